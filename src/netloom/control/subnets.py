"""The Subnet validator: the blocks of one VNI are disjoint, and all of one namespace.

A Subnet belongs to the Network it names; Networks with one VNI are one segment, and so are their Subnets one set of
rivals. (A Network whose VNI is yet to be chosen is a segment of its own; who chooses sees to it that no other has it.)
A Subnet with no rival that overlaps it becomes `validated`, for ever. Of two in conflict, one that is validated stays
so and only the newcomer is refused; if neither is, both are, until one goes.

Why two Subnets in conflict are never both validated, however many validators run and however stale their caches are:
say that a Subnet *counts* from the instant at which it exists and its Network has its VNI; block, network and VNI do
not change after that. Take two in conflict, A counting no later than B. Who validates B reads, live, first all Networks
and then the Subnets of those with B's VNI. B counted when the Networks were read, because B was seen before and its VNI
is taken from that very list. So A counted, too: its Network is in that list with the same VNI, and A in the Subnets
read after it, unless A has been deleted. With A in sight B is not validated, whether A is or not. The caches only say
when to look; the write carries the revision of the B that was read, so it cannot fall upon another B of the same name.

What makes a refused Subnet be looked at again: its rivals are remembered, and when one goes, or its Network changes,
those it stood in the way of are queued. A rival that the cache has not seen yet could go unnoticed; then the Subnet is
looked at again soon, until the cache knows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from netloom.control.node.lifetimes import SEEN, WISH, by_since, wished
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import FALSE, TRUE, observed
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.events import Recorder
from netloom.model.document import Condition
from netloom.model.networks import Network, Subnet, SubnetStatus
from netloom.model.registry import NETWORK, SUBNET
from netloom.model.selectors import selector
from netloom.plan.addresses import blocks

VALIDATED = "Validated"
BY_NETWORK = "network"
SOON = 1.0
MOST_ERRORS = 256


class Verdict(NamedTuple):
    """What was found out about one Subnet."""

    errors: tuple[str, ...]
    """Sorted; empty: it is valid."""
    reason: str
    rivals: tuple[Subnet, ...] = ()


@dataclass(slots=True)
class SubnetCounters:
    """What happened, for whoever exports metrics."""

    wish_to_validated: Histograms = field(default_factory=by_since)
    """From a wish for a Subnet to its being valid."""
    refused: int = 0
    """How often a Subnet was found to be in conflict, anew."""


def by_network(subnet: Subnet) -> Iterable[str]:
    """Return the index entry of a Subnet: its Network."""
    return (str(Key(subnet.metadata.namespace, subnet.spec.network)),)


def vni_of(network: Network) -> int | None:
    """Return a Network's VNI, given or chosen."""
    return network.spec.vni or network.status.vni


def judge(subnet: Subnet, others: Iterable[Subnet]) -> Verdict:
    """Compare a Subnet with those that share its VNI.  Pure."""
    try:
        mine = blocks.block(subnet.spec.cidr)
    except ValueError:
        return Verdict((f"CIDR {subnet.spec.cidr} is malformed",), "Malformed")
    errors: list[str] = []
    rivals: list[Subnet] = []
    for other in others:
        if other.metadata.uid == subnet.metadata.uid:
            continue
        found = list(_conflicts(subnet, mine, other))
        errors += found
        rivals += [other] * bool(found)
    return Verdict(tuple(sorted(errors)), "Conflict" if errors else "Disjoint", tuple(rivals))


def _conflicts(subnet: Subnet, mine: blocks.Block, other: Subnet) -> Iterable[str]:
    name = f"{other.metadata.namespace}/{other.metadata.name}"
    try:
        overlapping = blocks.overlap(mine, blocks.block(other.spec.cidr))
    except ValueError:
        overlapping = False  # It will never be validated.
    if overlapping:
        yield f"CIDR overlaps with {name}'s ({other.spec.cidr})"
    if other.metadata.namespace != subnet.metadata.namespace:
        yield f"same VNI but different namespace wrt {name}"


class SubnetValidator:
    """Reconciles Subnets.  The keys are Subnets' keys."""

    def __init__(
        self,
        client: Client,
        subnets: Cache[Subnet],
        recorder: Recorder,
        *,
        clock: Clock = time_of_day,
    ) -> None:
        """`subnets` has the index `BY_NETWORK`, made by `by_network`."""
        self.counters = SubnetCounters()
        self._client = client
        self._subnets = subnets
        self._recorder = recorder
        self._clock = clock
        self._blocked: dict[Key, dict[Key, None]] = {}
        """For each rival, those it stands in the way of."""
        self._vnis: dict[Key, tuple[int, int | None]] = {}
        """What the last list of Networks said: revision and VNI, so that each version is decoded once."""
        self._seen: dict[str, float] = {}
        """When Subnets that are not valid yet were first seen, by uid."""

    def subnet_changed(self, change: Change[Subnet]) -> Iterable[Key]:
        """Return whom a change of a Subnet concerns: itself, and, when it goes, those it stood in the way of."""
        if change.new is None or (change.old is not None and change.old.metadata.uid != change.new.metadata.uid):
            yield from self._blocked.pop(change.key, ())
        if change.new is None and change.old is not None:
            self._seen.pop(change.old.metadata.uid, None)
        elif change.new is not None and not change.new.status.validated:
            self._seen.setdefault(change.new.metadata.uid, self._clock().timestamp())
        yield change.key

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return whom a change of a Network concerns: its Subnets, and those they stand in the way of."""
        if change.old is not None and change.new is not None and vni_of(change.old) == vni_of(change.new):
            return
        for subnet in self._subnets.indexed(BY_NETWORK, str(change.key)):
            key = Key(subnet.metadata.namespace, subnet.metadata.name)
            yield key
            yield from self._blocked.get(key, ())

    def all_keys(self) -> Iterable[Key]:
        """Return all keys."""
        return [key for key, _ in self._subnets.items()]

    def event_target(self, key: Key) -> Subnet | None:
        """Return the Subnet a key means, for Events."""
        return self._subnets.get(*key)

    async def reconcile(self, key: Key) -> float | None:
        """Find out whether a Subnet is valid and write it down."""
        subnet = self._subnets.get(*key)
        if subnet is None or subnet.metadata.deletion_timestamp:
            return None
        if subnet.status.validated:
            await self._write(subnet, Verdict((), "Disjoint"))
            return None
        live, verdict = await self._examine(subnet)
        if live is None:
            return None  # Gone, or another by now: the informer will tell.
        again = self._remember(key, verdict.rivals)
        await self._write(live, verdict)
        return again

    async def _examine(self, subnet: Subnet) -> tuple[Subnet | None, Verdict]:
        """Read the Networks, then the Subnets that share the VNI, live and in this order; compare."""
        namespace, network = subnet.metadata.namespace, subnet.spec.network
        vnis = await self._read_vnis()
        if (own := Key(namespace, network)) not in vnis:
            live = await self._client.find(Subnet, namespace, subnet.metadata.name)
            return _same(live, subnet), Verdict((f"Network {own} does not exist",), "NetworkMissing")
        vni = vnis[own]
        others: list[Subnet] = []
        for key, number in vnis.items():
            if key == own or (vni is not None and number == vni):
                others += await self._client.list(
                    Subnet,
                    key.namespace,
                    selector=selector(fields=f"spec.network={key.name}", selectable=SUBNET.selectable),
                )
        live = next((other for other in others if other.metadata.uid == subnet.metadata.uid), None)
        return live, judge(live or subnet, others)

    async def _read_vnis(self) -> dict[Key, int | None]:
        """Return all Networks there are now, and their VNIs."""
        listed: dict[Key, tuple[int, int | None]] = {}
        for item in await self._client.stored(NETWORK):
            key = Key(item.namespace, item.name)
            before = self._vnis.get(key)
            if before is None or before[0] != item.revision:
                network = item.value()
                assert isinstance(network, Network)
                before = (item.revision, vni_of(network))
            listed[key] = before
        self._vnis = listed
        return {key: vni for key, (_, vni) in listed.items()}

    def _remember(self, key: Key, rivals: Iterable[Subnet]) -> float | None:
        """Note who stands in the way of `key`; say when to look again if one could go unnoticed."""
        again: float | None = None
        for rival in rivals:
            theirs = Key(rival.metadata.namespace, rival.metadata.name)
            self._blocked.setdefault(theirs, {})[key] = None
            cached = self._subnets.get(*theirs)
            if cached is None or cached.metadata.uid != rival.metadata.uid:
                again = SOON
        return again

    async def _write(self, subnet: Subnet, verdict: Verdict) -> None:
        """Write what was found out, if it is news, and tell of it."""
        before = subnet.status
        status = self._status(subnet, verdict)
        await self._client.update_status(subnet, status)
        if status.validated and not before.validated:
            self._recorder.normal(subnet, "SubnetValidated", f"{subnet.spec.cidr} overlaps no other block")
            self._validated(subnet)
        elif status.errors and status.errors != before.errors:
            names = ", ".join(sorted(f"{r.metadata.namespace}/{r.metadata.name}" for r in verdict.rivals))
            message = f"Found rival subnets: {names}" if names else "; ".join(status.errors)
            self._recorder.warning(subnet, "SubnetFailedValidation", message)
            self.counters.refused += 1

    def _validated(self, subnet: Subnet) -> None:
        """Count how long it took."""
        seen = self._seen.pop(subnet.metadata.uid, None)
        wish = wished(subnet.metadata.uid, subnet.metadata.creation_timestamp)
        if wish is not None:
            self.counters.wish_to_validated.observe((WISH,), self._clock().timestamp() - wish)
        elif seen is not None:
            self.counters.wish_to_validated.observe((SEEN,), self._clock().timestamp() - seen)

    def _status(self, subnet: Subnet, verdict: Verdict) -> SubnetStatus:
        generation = subnet.metadata.generation
        validated = subnet.status.validated or not verdict.errors
        errors = () if validated else verdict.errors[:MOST_ERRORS]
        condition = Condition(
            type=VALIDATED,
            status=TRUE if validated else FALSE,
            reason=verdict.reason,
            message="; ".join(errors)[:1024],
        )
        return msgspec.structs.replace(
            subnet.status,
            validated=validated,
            errors=errors,
            capacity=_capacity(subnet),
            used=(subnet.status.used or 0) if validated else subnet.status.used,
            observed_generation=generation,
            conditions=observed(subnet.status.conditions, [condition], generation=generation, now=self._clock()),
        )


def _same(live: Subnet | None, subnet: Subnet) -> Subnet | None:
    return live if live and live.metadata.uid == subnet.metadata.uid else None


def _capacity(subnet: Subnet) -> int | None:
    spec = subnet.spec
    try:
        return blocks.capacity(blocks.block(spec.cidr), spec.gateway, spec.exclude)
    except ValueError:
        return None
