"""What an attachment is to have: wish, Subnets and locks in; keep, take, choose, release and errors out.  Pure.

    ips given        exactly those, for their families; each must be in a Subnet, free, and one that is given away
    subnets named    one address of each, in the families for which no ips are given
    neither          one address of each family that has a validated Subnet on the Network

A lock that is held is kept where it serves the wish; of several that would do, one the status names, else the oldest
(the larger uid where they are of one age): so two deciders who see the same locks keep the same. An address that is in
use stays although the Subnet excludes it later: exclusions are about giving away. What cannot be had is an error of
this attachment and costs no other wish of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model import addresses
from netloom.plan.addresses.blocks import Address, Place, address


class Wish(Struct, frozen=True):
    """What of an attachment matters here."""

    namespace: str
    network: str
    subnets: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    """The uids of the locks its status names, in order."""


class Held(Struct, frozen=True):
    """A lock the attachment owns."""

    address: Address
    vni: int
    uid: str
    created: str = ""
    name: str = ""
    revision: int = 0
    decided: int = 0


class Refusal(NamedTuple):
    """Why a wish, or a part of it, is not fulfilled."""

    reason: str
    """In one word, for the condition."""
    text: str


class Slot(Struct, frozen=True):
    """One address to be chosen, from the first of these Subnets that has one."""

    version: int
    places: tuple[Place, ...]


class Decision(Struct):
    """What is to be done."""

    keep: list[Held] = []
    take: list[Address] = []
    """Asked for, and free as far as is known."""
    choose: list[Slot] = []
    release: list[Held] = []
    refusals: list[Refusal] = []
    blocked: list[Address] = []
    """Asked for, and taken: look again when it is freed."""
    pending: bool = False
    """A Subnet has not been looked at yet: wait."""


Taken = Callable[[Address], str | None]
"""Says who has an address, as "taken by NAMESPACE/NAME"; None where it may be had."""


def decide(
    wish: Wish,
    vni: int | None,
    places: Mapping[str, Place],
    held: Sequence[Held],
    taken: Taken,
    *,
    network: bool = True,
) -> Decision:
    """Return what is to be done for one attachment.

    `places` are the Subnets it names, or those of its Network, by name. `network` says whether the Network is there.
    """
    decision = Decision()
    if not network:
        decision.release = list(held)
        decision.refusals = [Refusal("NetworkMissing", f"Network {wish.network} does not exist")]
        return decision
    if vni is None:
        decision.keep = sorted(
            (one for one in held if one.uid in wish.named), key=lambda one: wish.named.index(one.uid)
        )
        decision.refusals = [Refusal("NetworkPending", f"Network {wish.network} has no VNI yet")]
        return decision
    ready = _selected(wish, places, decision)
    mine = [one for one in held if one.vni == vni]
    kept: dict[str, Held] = {}
    asked = _asked(wish, places, ready, mine, taken, decision, kept)
    for slot in _slots(wish, ready, asked):
        best = _best(wish, slot, [one for one in mine if one.uid not in kept])
        if best is None:
            decision.choose.append(slot)
        else:
            kept[best.uid] = best
    _settle(wish, held, kept, decision)
    return decision


def _selected(wish: Wish, places: Mapping[str, Place], decision: Decision) -> list[Place]:
    """Return the Subnets addresses may come from; say what is wrong with the others."""
    if not wish.subnets:
        ready = sorted((one for one in places.values() if one.validated), key=lambda one: one.name)
        if not places:
            decision.refusals.append(Refusal("SubnetMissing", f"Network {wish.network} has no Subnet"))
        for unready in () if ready else places.values():
            _unvalidated(unready, decision)
        return ready
    ready = []
    for name in dict.fromkeys(wish.subnets):
        if (one := places.get(name)) is None:
            decision.refusals.append(Refusal("SubnetMissing", f"Subnet {name} does not exist"))
        elif one.network != wish.network:
            text = f"Subnet {name} is of Network {one.network}, not of {wish.network}"
            decision.refusals.append(Refusal("SubnetElsewhere", text))
        elif not one.validated:
            _unvalidated(one, decision)
        else:
            ready.append(one)
    return ready


def _unvalidated(one: Place, decision: Decision) -> None:
    if not one.errors:
        decision.pending = True
        return
    refusal = Refusal("SubnetInvalid", f"Subnet {one.name} is not validated: {'; '.join(one.errors)}"[:1024])
    if refusal not in decision.refusals:
        decision.refusals.append(refusal)


def _asked(
    wish: Wish,
    places: Mapping[str, Place],
    ready: Sequence[Place],
    mine: Sequence[Held],
    taken: Taken,
    decision: Decision,
    kept: dict[str, Held],
) -> set[int]:
    """See to the addresses asked for; return their families."""
    families: set[int] = set()
    seen: set[Address] = set()
    for written in wish.ips:
        families.add(addresses.family(written))
        one = address(written)
        if one is None:
            decision.refusals.append(Refusal("Malformed", f"{written} is not an IPv4 or IPv6 address"))
        elif one in seen:
            decision.refusals.append(Refusal("AskedTwice", f"{one} is asked for twice"))
        else:
            seen.add(one)
            _ask(one, wish, places, ready, mine, taken, decision, kept)
    return families


def _ask(
    one: Address,
    wish: Wish,
    places: Mapping[str, Place],
    ready: Sequence[Place],
    mine: Sequence[Held],
    taken: Taken,
    decision: Decision,
    kept: dict[str, Held],
) -> None:
    place = next((place for place in ready if place.holds(one)), None)
    if place is None:
        _nowhere(one, wish, places, ready, decision)
        return
    refused = place.refuses(one)
    have = [held for held in mine if held.address == one and (held.uid in wish.named or not refused)]
    if have:
        kept[have[0].uid] = have[0]
    elif refused:
        decision.refusals.append(Refusal(*refused))
    elif (by := taken(one)) is not None:
        decision.refusals.append(Refusal("Taken", f"{one} is {by}"))
        decision.blocked.append(one)
    else:
        decision.take.append(one)


def _nowhere(one: Address, wish: Wish, places: Mapping[str, Place], ready: Sequence[Place], decision: Decision) -> None:
    """Say why an address is in none of the Subnets it may come from, unless that was explained already."""
    around = [place for place in places.values() if place.network == wish.network and place.holds(one)]
    if around:  # Not validated; where Subnets are named that was said already.
        _unvalidated(around[0], decision)
        return
    if not ready or (wish.subnets and len(ready) < len(set(wish.subnets))):
        return
    families = {place.version for place in places.values()}
    of = f"Subnet{'s' * (len(ready) > 1)} {', '.join(place.name for place in ready)}"
    if one.version not in families:
        text = f"{one} is IPv{one.version}, and {of} {'have' if len(ready) > 1 else 'has'} no such address"
        decision.refusals.append(Refusal("WrongFamily", text))
        return
    blocks = ", ".join(f"{place.name} ({place.cidr})" for place in ready if place.version == one.version)
    decision.refusals.append(Refusal("Outside", f"{one} is outside Subnet {blocks}"[:1024]))


def _slots(wish: Wish, ready: Sequence[Place], asked: set[int]) -> Iterator[Slot]:
    if wish.subnets:
        yield from (Slot(one.version, (one,)) for one in ready if one.version not in asked)
        return
    for version in sorted({one.version for one in ready} - asked):
        yield Slot(version, tuple(one for one in ready if one.version == version))


def _best(wish: Wish, slot: Slot, free: Iterable[Held]) -> Held | None:
    """Return the lock to keep for a slot."""
    fitting = []
    for held in free:
        place = next((place for place in slot.places if place.holds(held.address)), None)
        if place is not None and (held.uid in wish.named or place.refuses(held.address) is None):
            fitting.append(held)
    if not fitting:
        return None
    fitting.sort(key=lambda held: held.uid, reverse=True)
    fitting.sort(key=lambda held: held.created)
    fitting.sort(key=lambda held: _rank(wish, held))
    return fitting[0]


def _rank(wish: Wish, held: Held) -> int:
    return wish.named.index(held.uid) if held.uid in wish.named else len(wish.named)


def _settle(wish: Wish, held: Sequence[Held], kept: dict[str, Held], decision: Decision) -> None:
    """Part what is held into what is kept, those the status names first and in its order, and what is released."""
    rest = [one for one in held if one.uid not in kept]
    if decision.pending:
        # Not known yet what will serve: nothing that is in use is taken away meanwhile.
        kept |= {one.uid: one for one in rest if one.uid in wish.named}
    else:
        decision.release = rest
    decision.keep = sorted(kept.values(), key=lambda one: _rank(wish, one))
