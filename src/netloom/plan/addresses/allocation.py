"""Which addresses an attachment gets: request, pools and locks in; keep, take, choose, release and refusals out.  Pure.

    ips given        exactly these, for their families; each must be in a Subnet, free, and one that can be allocated
    subnets named    one address of each, in the families for which no ips are given
    neither          one address of each family that has a validated Subnet on the Network

A lock that the attachment holds is kept if it serves the request. If several do, one that the status names comes first,
then the oldest (the larger uid if they are of the same age): two processes that see the same locks keep the same one.
An address in use stays although the Subnet excludes it later: exclusions apply to new allocations only. A part of the
request that cannot be served becomes a refusal, and does not affect the other parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from netloom.model.values import addresses
from netloom.plan.addresses.blocks import Address, Pool, address
from netloom.plan.problem import Problem

FULL = "SubnetFull"
"""The reason of a refusal that ends when an address is freed."""


class Request(Struct, frozen=True):
    """The part of an attachment that decides about its addresses."""

    namespace: str
    network: str
    subnets: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    """The uids of the locks that its status names, in order."""


class Held(Struct, frozen=True):
    """A lock that the attachment owns."""

    address: Address
    vni: int
    uid: str
    created: str = ""
    name: str = ""
    revision: int = 0
    decided: int = 0


class Slot(Struct, frozen=True):
    """One address to choose, from the first of these pools that has a free one."""

    version: int
    pools: tuple[Pool, ...]


class Decision(Struct):
    """What to do for one attachment."""

    keep: list[Held] = []
    take: list[Address] = []
    """Requested addresses that seem to be free."""
    choose: list[Slot] = []
    release: list[Held] = []
    refusals: list[Problem] = []
    blocked: list[Address] = []
    """Requested addresses that are taken: decide again when one is freed."""
    pending: bool = False
    """A Subnet is not validated yet: decide again when it is."""


Taken = Callable[[Address], str | None]
"""Returns who has an address, as "taken by NAMESPACE/NAME"; None if it is free."""


def decide(
    request: Request,
    vni: int | None,
    pools: Mapping[str, Pool],
    held: Sequence[Held],
    taken: Taken,
    *,
    network: bool = True,
) -> Decision:
    """Return what to do for one attachment.

    `pools` are those of the Subnets that it names, or of its Network, by name. `network` is whether the Network exists.
    """
    decision = Decision()
    if not network:
        decision.release = list(held)
        decision.refusals = [Problem("NetworkMissing", f"Network {request.network} does not exist")]
        return decision
    if vni is None:
        decision.keep = sorted(
            (one for one in held if one.uid in request.named), key=lambda one: request.named.index(one.uid)
        )
        decision.refusals = [Problem("NetworkPending", f"Network {request.network} has no VNI yet")]
        return decision
    ready = _usable_pools(request, pools, decision)
    mine = [one for one in held if one.vni == vni]
    kept: dict[str, Held] = {}
    families = _requested(request, pools, ready, mine, taken, decision, kept)
    for slot in _slots(request, ready, families):
        best = _best(request, slot, [one for one in mine if one.uid not in kept])
        if best is None:
            decision.choose.append(slot)
        else:
            kept[best.uid] = best
    _keep_or_release(request, held, kept, decision)
    return decision


def _usable_pools(request: Request, pools: Mapping[str, Pool], decision: Decision) -> list[Pool]:
    """Return the pools that addresses may come from, and refuse the others."""
    if not request.subnets:
        ready = sorted((one for one in pools.values() if one.validated), key=lambda one: one.name)
        if not pools:
            decision.refusals.append(Problem("SubnetMissing", f"Network {request.network} has no Subnet"))
        for unready in () if ready else pools.values():
            _refuse_unvalidated(unready, decision)
        return ready
    ready = []
    for name in dict.fromkeys(request.subnets):
        if (one := pools.get(name)) is None:
            decision.refusals.append(Problem("SubnetMissing", f"Subnet {name} does not exist"))
        elif one.network != request.network:
            text = f"Subnet {name} belongs to Network {one.network}, not to {request.network}"
            decision.refusals.append(Problem("SubnetElsewhere", text))
        elif not one.validated:
            _refuse_unvalidated(one, decision)
        else:
            ready.append(one)
    return ready


def _refuse_unvalidated(one: Pool, decision: Decision) -> None:
    if not one.errors:
        decision.pending = True
        return
    refusal = Problem("SubnetInvalid", f"Subnet {one.name} is not validated: {'; '.join(one.errors)}"[:1024])
    if refusal not in decision.refusals:
        decision.refusals.append(refusal)


def _requested(
    request: Request,
    pools: Mapping[str, Pool],
    ready: Sequence[Pool],
    mine: Sequence[Held],
    taken: Taken,
    decision: Decision,
    kept: dict[str, Held],
) -> set[int]:
    """Keep, take or refuse each requested address; return their families."""
    families: set[int] = set()
    seen: set[Address] = set()
    for text in request.ips:
        families.add(addresses.family(text))
        one = address(text)
        if one is None:
            decision.refusals.append(Problem("Malformed", f"{text} is not an IPv4 or IPv6 address"))
        elif one in seen:
            decision.refusals.append(Problem("AskedTwice", f"{one} is requested twice"))
        else:
            seen.add(one)
            _request_one(one, request, pools, ready, mine, taken, decision, kept)
    return families


def _request_one(
    one: Address,
    request: Request,
    pools: Mapping[str, Pool],
    ready: Sequence[Pool],
    mine: Sequence[Held],
    taken: Taken,
    decision: Decision,
    kept: dict[str, Held],
) -> None:
    pool = next((pool for pool in ready if pool.holds(one)), None)
    if pool is None:
        _refuse_outside(one, request, pools, ready, decision)
        return
    refused = pool.refusal(one)
    have = [held for held in mine if held.address == one and (held.uid in request.named or not refused)]
    if have:
        kept[have[0].uid] = have[0]
    elif refused:
        decision.refusals.append(refused)
    elif (by := taken(one)) is not None:
        decision.refusals.append(Problem("Taken", f"{one} is {by}"))
        decision.blocked.append(one)
    else:
        decision.take.append(one)


def _refuse_outside(
    one: Address, request: Request, pools: Mapping[str, Pool], ready: Sequence[Pool], decision: Decision
) -> None:
    """Refuse an address that is in none of the usable pools, unless an earlier refusal explains that."""
    around = [pool for pool in pools.values() if pool.network == request.network and pool.holds(one)]
    if around:  # Not validated. Where the request names Subnets, `_usable_pools` has refused it already.
        _refuse_unvalidated(around[0], decision)
        return
    if not ready or (request.subnets and len(ready) < len(set(request.subnets))):
        return
    families = {pool.version for pool in pools.values()}
    of = f"Subnet{'s' * (len(ready) > 1)} {', '.join(pool.name for pool in ready)}"
    if one.version not in families:
        text = (
            f"{one} is IPv{one.version}, but {of} {'have' if len(ready) > 1 else 'has'} no IPv{one.version} addresses"
        )
        decision.refusals.append(Problem("WrongFamily", text))
        return
    blocks = ", ".join(f"{pool.name} ({pool.cidr})" for pool in ready if pool.version == one.version)
    decision.refusals.append(Problem("Outside", f"{one} is outside Subnet {blocks}"[:1024]))


def _slots(request: Request, ready: Sequence[Pool], requested: set[int]) -> Iterator[Slot]:
    if request.subnets:
        yield from (Slot(one.version, (one,)) for one in ready if one.version not in requested)
        return
    for version in sorted({one.version for one in ready} - requested):
        yield Slot(version, tuple(one for one in ready if one.version == version))


def _best(request: Request, slot: Slot, free: Iterable[Held]) -> Held | None:
    """Return the lock to keep for a slot."""
    fitting = []
    for held in free:
        pool = next((pool for pool in slot.pools if pool.holds(held.address)), None)
        if pool is not None and (held.uid in request.named or pool.refusal(held.address) is None):
            fitting.append(held)
    if not fitting:
        return None
    fitting.sort(key=lambda held: held.uid, reverse=True)
    fitting.sort(key=lambda held: held.created)
    fitting.sort(key=lambda held: _rank(request, held))
    return fitting[0]


def _rank(request: Request, held: Held) -> int:
    return request.named.index(held.uid) if held.uid in request.named else len(request.named)


def _keep_or_release(request: Request, held: Sequence[Held], kept: dict[str, Held], decision: Decision) -> None:
    """Divide the held locks into those to keep, with those that the status names first, and those to release."""
    rest = [one for one in held if one.uid not in kept]
    if decision.pending:
        # It is not known yet which locks will serve: release none that the status names.
        kept |= {one.uid: one for one in rest if one.uid in request.named}
    else:
        decision.release = rest
    decision.keep = sorted(kept.values(), key=lambda one: _rank(request, one))
