"""What a Shaping means on either fabric: rate, burst, and which of several applies to a packet.  Pure.

A meter has no queue: what is too much is dropped. TCP answers to a burst of losses by waiting, at least 200 ms, for its
retransmission timer, and then goes on with what the meter has saved up meanwhile, which is at most its burst. So with
less than 200 ms worth of the rate TCP gets a fraction of it (measured: with 64 kB at 10 Mbit/s a quarter), and with 300
ms within 10 %. That is the default, and the least: a smaller burst is raised to it.

Only one rule is applied to a packet. The more specific the source of a rule, the higher its priority:

    priority   from            and 1000 more where `to` is given
    2000       node
    4000       network
    6000       selector
    8000       attachment

and of two with the same source, the slower.

Delay, jitter and loss are beyond a meter: `verdict` says what is applied and what is not.
"""

from math import log2
from typing import NamedTuple

from netloom.model import quantities
from netloom.model.paths import Quality, ShapingSpec, Unsupported

SAVED = 0.3
"""The least burst, in seconds of the rate: what TCP needs to live with a meter."""
LEAST = 120
"""The least burst at all, in kbit: some ten packets."""
LARGEST = 2**32 - 1
"""What a meter can count, in kbit/s and kbit."""

NODE, NETWORK, SELECTOR, ATTACHMENT = 2000, 4000, 6000, 8000
TO = 1000


class Verdict(NamedTuple):
    """What of a Shaping is in force, for its status."""

    applied: Quality | None
    unsupported: tuple[Unsupported, ...]


def verdict(spec: ShapingSpec) -> Verdict:
    """Return what is in force of a Shaping that is planned, and what cannot be."""
    missing = [
        Unsupported(field=name, reason="it cannot be done: a meter drops what is too much, and does nothing else")
        for name in ("delay", "jitter", "loss")
        if getattr(spec, name)
    ]
    if not spec.rate:
        return Verdict(None, tuple(missing))
    rate, burst = bandwidth(spec)
    if spec.burst and quantities.size(spec.burst) * 8 < burst * 1000:
        said = f"a meter has no queue: with less than {SAVED * 1000:.0f} ms of the rate TCP would get a fraction of it"
        missing.append(Unsupported(field="burst", reason=said))
    applied = spec.rate if rate < LARGEST else f"{LARGEST}kbit"
    return Verdict(Quality(rate=applied, burst=f"{burst * 1000 // 8}b"), tuple(missing))


def bandwidth(spec: ShapingSpec) -> tuple[int, int]:
    """Return rate and burst as a meter has them: in kbit/s and kbit."""
    rate = max(1, quantities.rate(spec.rate) // 1000)
    asked = quantities.size(spec.burst) * 8 // 1000 if spec.burst else 0
    return min(rate, LARGEST), min(max(asked, int(rate * SAVED), LEAST), LARGEST)


def priority(spec: ShapingSpec, rate: int) -> int:
    """Return how high a Shaping stands among those that are about the same packet."""
    place = spec.from_
    tier = ATTACHMENT if place.attachment else NETWORK if place.network else NODE if place.node else SELECTOR
    return tier + (TO if spec.to else 0) + 999 - int(log2(rate) * 30)
