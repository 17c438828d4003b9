"""What must be on the switch, by who needs it.  Pure.

    replace(owner, flows, rank), remove(owner) ──► claims ──► flows (what must be) ──► take() ──► Delta

Whoever needs flows claims them. Two may claim the same place, which is a table, a priority and a match: an address that
moves from one node to another is for a while claimed for both, and news of the two comes in any order. The highest rank
wins, and of two equal ones the greater name; the other's flow appears when the winner goes. So what must be depends on
the claims there are, never on the order in which they came.

What changed is kept until it is taken: a flow that comes and goes in between is no change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.openflow.flows import Flow, Key, MeterSpec


class Delta(Struct, frozen=True):
    """What changed in what must be on the switch.

    To be done in this order: meters that are set, flows in one bundle, meters that go. So no flow ever speaks of a
    meter that is not there.
    """

    puts: tuple[Flow, ...] = ()
    """To be there, whatever is in their place."""
    drops: tuple[Flow, ...] = ()
    """To be gone from their place."""
    meters: Mapping[int, MeterSpec | None] = {}
    """To be so; None: to be gone."""

    def __bool__(self) -> bool:
        return bool(self.puts or self.drops or self.meters)


class _Claim(NamedTuple):
    rank: int
    owner: str
    flow: Flow


class FlowClaims:
    """The claims, and what comes of them."""

    def __init__(self) -> None:
        self.flows: dict[Key, Flow] = {}
        """What must be; not to be changed by others."""
        self.meters: dict[int, MeterSpec] = {}
        self._claims: dict[Key, tuple[_Claim, ...]] = {}
        """The best first."""
        self._owned: dict[str, tuple[_Claim, ...]] = {}
        self._was: dict[Key, Flow | None] = {}
        """What was there when the changes were last taken, of what has changed since."""
        self._meter_was: dict[int, MeterSpec | None] = {}

    def replace(self, owner: str, flows: Iterable[Flow], rank: int = 0) -> None:
        """Let these be all that an owner claims."""
        claims = tuple([_Claim(rank, owner, flow) for flow in flows])
        old = self._owned.get(owner, ())
        if claims == old:
            return
        kept = {claim.flow.key for claim in claims}
        for claim in old:
            if (key := claim.flow.key) not in kept:
                self._settle(key, owner, None)
        for claim in claims:
            self._settle(claim.flow.key, owner, claim)
        if claims:
            self._owned[owner] = claims
        else:
            self._owned.pop(owner, None)

    def remove(self, owner: str) -> None:
        """Let an owner claim nothing."""
        self.replace(owner, ())

    def owners(self) -> frozenset[str]:
        """Return who claims something."""
        return frozenset(self._owned)

    def claimed(self, owner: str) -> tuple[Flow, ...]:
        """Return the flows an owner claims, whether it has them or another does."""
        return tuple([claim.flow for claim in self._owned.get(owner, ())])

    def meter(self, number: int, spec: MeterSpec | None) -> None:
        """Let a meter be so; None: let there be none."""
        old = self.meters.get(number)
        if old == spec:
            return
        self._meter_was.setdefault(number, old)
        if spec is None:
            del self.meters[number]
        else:
            self.meters[number] = spec

    def take(self) -> Delta:
        """Return what changed since this was last asked."""
        puts, drops = [], []
        for key, was in self._was.items():
            now = self.flows.get(key)
            if now is None:
                if was is not None:
                    drops.append(was)
            elif now != was:
                puts.append(now)
        changed = [(one, self.meters.get(one)) for one, was in self._meter_was.items() if self.meters.get(one) != was]
        self._was, self._meter_was = {}, {}
        return Delta(tuple(sorted(puts, key=_order)), tuple(sorted(drops, key=_order)), dict(changed))

    def _settle(self, key: Key, owner: str, claim: _Claim | None) -> None:
        """Let an owner's claim to a place be this, and the best of all have it."""
        rivals = self._claims.get(key)
        if not rivals or (len(rivals) == 1 and rivals[0].owner == owner):
            claims: tuple[_Claim, ...] = () if claim is None else (claim,)
        else:
            others = [one for one in rivals if one.owner != owner]
            claims = tuple(sorted([*others, claim] if claim is not None else others, key=_better, reverse=True))
        was = self.flows.get(key)
        if key not in self._was:
            self._was[key] = was
        if claims:
            self._claims[key] = claims
            self.flows[key] = claims[0].flow
        else:
            self._claims.pop(key, None)
            self.flows.pop(key, None)


def _better(claim: _Claim) -> tuple[int, str]:
    return claim.rank, claim.owner


def _order(flow: Flow) -> tuple[int, int, tuple[tuple[str, int, int], ...]]:
    return flow.table, -flow.priority, tuple([(one.field, one.value, one.mask or 0) for one in flow.match])
