"""The desired flows of the switch, by the owners that claim them. Pure.

    replace(owner, flows, rank), remove(owner) ──► claims ──► flows (the desired ones) ──► take() ──► Delta

Owners claim flows. Two may claim the same key, which is a table, a priority and a match: an address that moves from one
node to another is claimed for both for a while, and the two events arrive in any order. The highest rank wins, and of
two equal ones the greater name; the other's flow appears when the winner is removed. So the desired flows depend on the
present claims, never on their order.

Changes are collected until they are taken: a flow that is added and removed in between is no change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.openflow.flows import Flow, Key, MeterSpec


class Delta(Struct, frozen=True):
    """A change of the desired flows and meters.

    To be applied in this order: meters that are set, flows in one bundle, meters that are deleted. So no flow ever
    refers to a meter that does not exist.
    """

    puts: tuple[Flow, ...] = ()
    """To install, replacing the flow with the same key."""
    drops: tuple[Flow, ...] = ()
    """To delete."""
    meters: Mapping[int, MeterSpec | None] = {}
    """To set; None: to delete."""

    def __bool__(self) -> bool:
        return bool(self.puts or self.drops or self.meters)


class _Claim(NamedTuple):
    rank: int
    owner: str
    flow: Flow


class FlowClaims:
    """The claims, and the flows that win."""

    def __init__(self) -> None:
        self.flows: dict[Key, Flow] = {}
        """The desired flows, by key; read only."""
        self.meters: dict[int, MeterSpec] = {}
        self._claims: dict[Key, tuple[_Claim, ...]] = {}
        """The winner first."""
        self._owned: dict[str, tuple[_Claim, ...]] = {}
        self._was: dict[Key, Flow | None] = {}
        """The flows at the last `take` of keys that have changed since."""
        self._meter_was: dict[int, MeterSpec | None] = {}

    def replace(self, owner: str, flows: Iterable[Flow], rank: int = 0) -> None:
        """Make these all claims of an owner."""
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
        """Remove all claims of an owner."""
        self.replace(owner, ())

    def claimed(self, owner: str) -> tuple[Flow, ...]:
        """Return the flows that an owner claims, whether they win or not."""
        return tuple([claim.flow for claim in self._owned.get(owner, ())])

    def meter(self, number: int, spec: MeterSpec | None) -> None:
        """Set a meter; None: delete it."""
        old = self.meters.get(number)
        if old == spec:
            return
        self._meter_was.setdefault(number, old)
        if spec is None:
            del self.meters[number]
        else:
            self.meters[number] = spec

    def take(self) -> Delta:
        """Return the changes since the last call."""
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
        """Replace an owner's claim to a key, and choose the winner."""
        rivals = self._claims.get(key)
        if not rivals or (len(rivals) == 1 and rivals[0].owner == owner):
            claims: tuple[_Claim, ...] = () if claim is None else (claim,)
        else:
            others = [one for one in rivals if one.owner != owner]
            claims = tuple(
                sorted(
                    [*others, claim] if claim is not None else others,
                    key=lambda one: (one.rank, one.owner),
                    reverse=True,
                )
            )
        was = self.flows.get(key)
        if key not in self._was:
            self._was[key] = was
        if claims:
            self._claims[key] = claims
            self.flows[key] = claims[0].flow
        else:
            self._claims.pop(key, None)
            self.flows.pop(key, None)


def _order(flow: Flow) -> tuple[int, int, tuple[tuple[str, int, int], ...]]:
    return flow.table, -flow.priority, tuple([(one.field, one.value, one.mask or 0) for one in flow.match])
