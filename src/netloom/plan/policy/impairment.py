"""Delay, jitter and loss of an attachment's port: which Shapings cause them, and what carries them out.  Pure.

A port is impaired as a whole, so only a Shaping of one attachment, without `to`, impairs it. Two means exist:

    netem       a qdisc of the kernel on each end of the port's veth pair; with jitter it may reorder packets
    userspace   a process between the pair and the switch (`drivers/relay`), which keeps the order

`means` chooses by the spec and the Node's capabilities: the agent plans ports with it (`plan/node/ports.py`), and the
controller tells with it what is not supported (`plan/policy/shaping.py`). So both agree.

Of several Shapings of one attachment the one with the longest delay applies in each direction, and of these the one
with the highest loss.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.paths import Direction, Impairing, Shaping, ShapingSpec
from netloom.model.values import quantities

NETEM = "netem"
"""The capability of a Node whose kernel has netem."""
PACKET = "packet"
"""The capability of a Node whose agent may open packet sockets, which the userspace process needs."""
LONGEST = 60.0
"""The longest delay with its jitter, in seconds."""


class Impairment(Struct, frozen=True, order=True):
    """What happens to packets of one direction."""

    delay: float = 0.0
    """Seconds."""
    loss: float = 0.0
    """From 0 to 1."""
    jitter: float = 0.0
    """Seconds by which the delay varies in both directions."""


NONE = Impairment()


class PortImpairment(Struct, frozen=True, kw_only=True):
    """What happens to the packets of a port."""

    sent: Impairment = NONE
    received: Impairment = NONE
    userspace: bool = False


def impairs(spec: ShapingSpec) -> bool:
    """Whether a Shaping asks for delay or loss."""
    return impairment(spec) != NONE


def impairment(spec: ShapingSpec) -> Impairment:
    """Return the delay, jitter and loss that a Shaping asks for."""
    return Impairment(
        quantities.duration(spec.delay) if spec.delay else 0.0,
        float(spec.loss.rstrip("%")) / 100 if spec.loss else 0.0,
        quantities.duration(spec.jitter) if spec.jitter else 0.0,
    )


def means(wanted: Impairing, capabilities: Collection[str]) -> str:
    """Return the capability by which a Node impairs a port; "": it cannot."""
    if wanted is not Impairing.USERSPACE and NETEM in capabilities:
        return NETEM
    return PACKET if wanted is not Impairing.KERNEL and PACKET in capabilities else ""


def unusable(spec: ShapingSpec) -> str:
    """Return why a Shaping cannot impair packets on any Node, and the remedy; "": it can."""
    if not spec.from_.attachment:
        return "only the port of one attachment can be impaired: set spec.from.attachment"
    if spec.to is not None:
        return "a port is impaired as a whole: remove spec.to"
    asked = impairment(spec)
    if asked.delay + asked.jitter > LONGEST:
        return f"delay and jitter are more than {LONGEST:g} s together: choose less"
    return ""


def unsupported(spec: ShapingSpec, port: PortType, node: str, capabilities: Collection[str]) -> str:
    """Return why a Shaping cannot impair a port on a Node, and the remedy; "": it can."""
    if reason := unusable(spec):
        return reason
    if port not in (PortType.VETH, PortType.POD):
        return f"a port of type {port.value} cannot be impaired: use type veth"
    if means(spec.impairment, capabilities):
        return ""
    if spec.impairment is Impairing.KERNEL:
        remedy = "load the module sch_netem there, or set spec.impairment to userspace or auto"
        return f"the kernel of Node {node} has no netem: {remedy}"
    return f"the agent of Node {node} may not open packet sockets: give it the capability CAP_NET_RAW"


def port_impairment(shapings: Iterable[Shaping], capabilities: Collection[str]) -> PortImpairment | None:
    """Return what some Shapings of an attachment do to its port, which is a veth; None: nothing that is possible."""
    sent, received, userspace = NONE, NONE, False
    for shaping in shapings:
        spec = shaping.spec
        by = "" if unusable(spec) else means(spec.impairment, capabilities)
        asked = impairment(spec) if by else NONE
        if asked == NONE:
            continue
        sent = max(sent, asked)
        if spec.direction is Direction.BOTH:
            received = max(received, asked)
        userspace = userspace or by == PACKET
    if sent == NONE:
        return None
    return PortImpairment(sent=sent, received=received, userspace=userspace)
