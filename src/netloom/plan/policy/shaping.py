"""What a Shaping means on the fabrics ovn and vxlan: rate, burst, and which of several applies to a packet.  Pure.

A meter has no queue: it drops packets above the rate. After a burst of losses TCP waits for its retransmission timer,
at least 200 ms, and then sends what the meter has accumulated in the meantime, which is at most its burst. So with a
burst of less than 200 ms of the rate TCP gets a fraction of it (measured: with 64 kB at 10 Mbit/s a quarter), and with
300 ms it gets within 10 %. That is the default, and the minimum.

Only one rule applies to a packet. The more specific a rule is, the higher its priority:

    priority   from            and 1000 more where `to` is given
    2000       node
    4000       network
    6000       selector
    8000       attachment

and of two equally specific ones, the slower applies.

A meter cannot do delay, jitter and loss: the node of the attachment does (`plan/policy/impairment.py`). `verdict` says
what is applied and what is not.
"""

from math import log2

from msgspec.structs import replace

from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.paths import Quality, Shaping, ShapingSpec, Unsupported
from netloom.model.values import quantities
from netloom.plan.policy.impairment import impairs, unsupported, unusable
from netloom.plan.problem import Problem
from netloom.plan.world.world import World

SAVED = 0.3
"""The smallest burst, in seconds of the rate: TCP needs it behind a meter."""
LEAST = 120
"""The smallest burst in any case, in kbit: some ten packets."""
LARGEST = 2**32 - 1
"""The largest rate and burst of a meter, in kbit/s and kbit."""

NODE, NETWORK, SELECTOR, ATTACHMENT = 2000, 4000, 6000, 8000
TO = 1000
IMPAIRMENT_UNSUPPORTED, RATE_UNSUPPORTED = "ImpairmentUnsupported", "RateUnsupported"


def verdict(world: World, shaping: Shaping) -> tuple[Quality | None, tuple[Unsupported, ...]]:
    """Return what of a planned Shaping is in force, and what is not supported."""
    spec = shaping.spec
    reason = _not_impaired(world, shaping)
    asked = [name for name in ("delay", "jitter", "loss") if getattr(spec, name)]
    missing = [Unsupported(field=name, reason=reason) for name in asked] if reason else []
    impaired = Quality() if reason else Quality(delay=spec.delay, jitter=spec.jitter, loss=spec.loss)
    if not spec.rate:
        return (None if reason or not asked else impaired), tuple(missing)
    if unlimited := _not_limited(world, shaping):
        missing.append(Unsupported(field="rate", reason=unlimited))
        return (None if reason or not asked else impaired), tuple(missing)
    rate, burst = bandwidth(spec)
    if spec.burst and quantities.size(spec.burst) * 8 < burst * 1000:
        said = f"a meter has no queue: with less than {SAVED * 1000:.0f} ms of the rate TCP would get a fraction of it"
        missing.append(Unsupported(field="burst", reason=said))
    applied = spec.rate if rate < LARGEST else f"{LARGEST}kbit"
    return replace(impaired, rate=applied, burst=f"{burst * 1000 // 8}b"), tuple(missing)


def impairment_problem(world: World, shaping: Shaping) -> Problem | None:
    """Return why delay and loss of a Shaping are not in force; None: they are, or it has none."""
    reason = _not_impaired(world, shaping)
    field = "delay" if shaping.spec.delay else "loss"
    return Problem(IMPAIRMENT_UNSUPPORTED, f"spec.{field}: {reason}") if reason else None


def rate_problem(world: World, shaping: Shaping) -> Problem | None:
    """Return why the rate of a Shaping is not in force; None: it is, or it has none."""
    reason = _not_limited(world, shaping) if shaping.spec.rate else ""
    return Problem(RATE_UNSUPPORTED, f"spec.rate: {reason}") if reason else None


def _not_limited(world: World, shaping: Shaping) -> str:
    """Return why nothing limits the rate where a Shaping starts; "": something does, or some of many."""
    namespace, start = shaping.metadata.namespace, shaping.spec.from_
    port = world.port(namespace, start.attachment) if start.attachment else None
    network = world.get(Network, namespace, start.network if port is None else port.network)
    if network is None or network.spec.fabric is not Fabric.LINUX:
        return ""
    return f"Network {network.metadata.name} of fabric linux has no meters: use fabric ovn or vxlan"


def _not_impaired(world: World, shaping: Shaping) -> str:
    spec = shaping.spec
    if not impairs(spec):
        return ""
    if reason := unusable(spec):
        return reason
    port = world.port(shaping.metadata.namespace, spec.from_.attachment)
    if port is None:
        return f"NetworkAttachment {spec.from_.attachment} does not exist"
    node = world.get(Node, "", port.node)
    found = {} if node is None else node.status.capabilities
    return unsupported(spec, port.type, port.node, {name for name, has in found.items() if has})


def bandwidth(spec: ShapingSpec) -> tuple[int, int]:
    """Return rate and burst of the meter, in kbit/s and kbit."""
    rate = max(1, quantities.rate(spec.rate) // 1000)
    asked = quantities.size(spec.burst) * 8 // 1000 if spec.burst else 0
    return min(rate, LARGEST), min(max(asked, int(rate * SAVED), LEAST), LARGEST)


def priority(spec: ShapingSpec, rate: int) -> int:
    """Return the priority of a Shaping among those that match the same packet."""
    place = spec.from_
    tier = ATTACHMENT if place.attachment else NETWORK if place.network else NODE if place.node else SELECTOR
    return tier + (TO if spec.to else 0) + 999 - int(log2(rate) * 30)
