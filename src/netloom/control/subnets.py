"""The Subnet validator: the blocks of one VNI are disjoint, and all in one namespace.

A Subnet belongs to the Network that it names. Networks with the same VNI are one segment, and all their Subnets must be
disjoint. (A Network without a VNI is a segment of its own; the VNI that it gets later is unique.) A Subnet that
overlaps no other one becomes `validated`, and stays so. Of two Subnets in conflict, a validated one stays validated and
only the new one is refused; if neither is validated, both are refused, until one is deleted.

Why two Subnets in conflict are never both validated, however many validators run and however stale their caches are:
say that a Subnet *counts* from the moment at which it exists and its Network has its VNI; block, Network and VNI do not
change after that. Take two Subnets in conflict, where A counts no later than B. The process that validates B reads,
live, first all Networks and then the Subnets of those with B's VNI. B counted when the Networks were read, because B
was seen before and its VNI is taken from that list. So A counted, too: its Network is in that list with the same VNI,
and A is among the Subnets read afterwards, unless it has been deleted. If A is there, B is not validated, whether or
not A is. The caches only decide when to check. The write carries the revision of the B that was read, so it cannot
apply to another B of the same name.

When a refused Subnet is checked again: its rivals are remembered. When one is deleted, or its Network changes, the
Subnets that it blocked are enqueued. The deletion of a rival that the cache has not seen could be missed; in that case
the Subnet is checked again soon, until the cache has the rival.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import FALSE, TRUE, observed
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.creation import by_since, created_at, observe_since
from netloom.control.runtime.events import Recorder
from netloom.model.document import Condition
from netloom.model.kinds.networks import Network, Subnet, SubnetStatus
from netloom.model.registry import NETWORK, SUBNET
from netloom.model.values.selectors import selector
from netloom.plan.addresses import blocks

VALIDATED = "Validated"
BY_NETWORK = "network"
SOON = 1.0
MOST_ERRORS = 256


class Verdict(NamedTuple):
    """The result of checking one Subnet."""

    errors: tuple[str, ...]
    """Sorted; empty if the Subnet is valid."""
    reason: str
    rivals: tuple[Subnet, ...] = ()


@dataclass(slots=True)
class SubnetCounters:
    """Counters of the Subnet validator."""

    creation_to_validated: Histograms = field(default_factory=by_since)
    """From the creation of a Subnet to its validation."""
    refused: int = 0
    """How often a Subnet was newly found in conflict."""


def by_network(subnet: Subnet) -> Iterable[str]:
    """Return the index entry of a Subnet: its Network."""
    return (str(Key(subnet.metadata.namespace, subnet.spec.network)),)


def vni_of(network: Network) -> int | None:
    """Return a Network's VNI, from its spec or its status."""
    return network.spec.vni or network.status.vni


def check(subnet: Subnet, others: Iterable[Subnet]) -> Verdict:
    """Compare a Subnet with the others of its VNI.  Pure."""
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
    """Reconciles Subnets.  The keys are those of Subnets."""

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
        """For each rival, the Subnets that it blocks."""
        self._vnis: dict[Key, tuple[int, int | None]] = {}
        """Revision and VNI of each Network in the last list, so that each version is decoded once."""
        self._seen: dict[str, float] = {}
        """When Subnets that are not validated yet were first seen, by uid."""

    def subnet_changed(self, change: Change[Subnet]) -> Iterable[Key]:
        """Return the Subnet, and those that it blocked if it is gone."""
        if change.new is None or (change.old is not None and change.old.metadata.uid != change.new.metadata.uid):
            yield from self._blocked.pop(change.key, ())
        if change.new is None and change.old is not None:
            self._seen.pop(change.old.metadata.uid, None)
        elif change.new is not None and not change.new.status.validated:
            self._seen.setdefault(change.new.metadata.uid, self._clock().timestamp())
        yield change.key

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return the Subnets of a Network whose VNI changed, and those that they block."""
        if change.old is not None and change.new is not None and vni_of(change.old) == vni_of(change.new):
            return
        for subnet in self._subnets.indexed(BY_NETWORK, str(change.key)):
            key = Key(subnet.metadata.namespace, subnet.metadata.name)
            yield key
            yield from self._blocked.get(key, ())

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all Subnets."""
        return [key for key, _ in self._subnets.items()]

    def event_target(self, key: Key) -> Subnet | None:
        """Return the Subnet of a key, for Events."""
        return self._subnets.get(*key)

    async def reconcile(self, key: Key) -> float | None:
        """Check a Subnet and write the result."""
        subnet = self._subnets.get(*key)
        if subnet is None or subnet.metadata.deletion_timestamp:
            return None
        if subnet.status.validated:
            await self._write(subnet, Verdict((), "Disjoint"))
            return None
        live, verdict = await self._examine(subnet)
        if live is None:
            return None  # Gone or replaced: the informer will report it.
        again = self._remember(key, verdict.rivals)
        await self._write(live, verdict)
        return again

    async def _examine(self, subnet: Subnet) -> tuple[Subnet | None, Verdict]:
        """Read the Networks, then the Subnets of the same VNI, live and in this order; compare."""
        namespace, network = subnet.metadata.namespace, subnet.spec.network
        vnis = await self._read_vnis()
        if (own := Key(namespace, network)) not in vnis:
            live = await self._client.find(Subnet, namespace, subnet.metadata.name)
            if live is not None and live.metadata.uid != subnet.metadata.uid:
                live = None
            return live, Verdict((f"Network {own} does not exist",), "NetworkMissing")
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
        return live, check(live or subnet, others)

    async def _read_vnis(self) -> dict[Key, int | None]:
        """Return all Networks and their VNIs, by a live list."""
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
        """Remember the rivals of `key`; return when to check again if the deletion of one could be missed."""
        again: float | None = None
        for rival in rivals:
            theirs = Key(rival.metadata.namespace, rival.metadata.name)
            self._blocked.setdefault(theirs, {})[key] = None
            cached = self._subnets.get(*theirs)
            if cached is None or cached.metadata.uid != rival.metadata.uid:
                again = SOON
        return again

    async def _write(self, subnet: Subnet, verdict: Verdict) -> None:
        """Write the result, if it has changed, and record an Event."""
        before = subnet.status
        status = self._status(subnet, verdict)
        await self._client.update_status(subnet, status)
        if status.validated and not before.validated:
            self._recorder.normal(subnet, "SubnetValidated", f"{subnet.spec.cidr} overlaps no other block")
            meta, counted = subnet.metadata, self.counters.creation_to_validated
            created, seen = created_at(meta.uid, meta.creation_timestamp), self._seen.pop(meta.uid, None)
            observe_since(counted, self._clock().timestamp(), created=created, seen=seen)
        elif status.errors and status.errors != before.errors:
            names = ", ".join(sorted(f"{r.metadata.namespace}/{r.metadata.name}" for r in verdict.rivals))
            message = f"Found rival subnets: {names}" if names else "; ".join(status.errors)
            self._recorder.warning(subnet, "SubnetFailedValidation", message)
            self.counters.refused += 1

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


def _capacity(subnet: Subnet) -> int | None:
    spec = subnet.spec
    try:
        return blocks.capacity(blocks.block(spec.cidr), spec.gateway, spec.exclude)
    except ValueError:
        return None
