"""IPAM: assigns addresses and a MAC to each attachment, and releases them.

    attachment ──► decide ──► create IPLocks ──► write the status that names them ──► delete spare IPLocks

The IPLock is the hard state. Its name consists of VNI and address, and a store creates a name once: the process that
creates the lock has the address, whatever any cache says. The lock's owner is the attachment, so it goes with it.

Why no address is assigned twice, and none that is in use is released, although two processes may both act as leader,
caches may be stale and requests may arrive late:

- A status *names* a lock only by a write that carries the revision of the attachment by which the decision was made. So
  of two processes that decide, one succeeds, and the other decides again.
- A lock has an annotation with the revision of its attachment at which it was decided on. At that revision the status
  may name it directly. To name it at a later revision, the process first *touches* it: it updates the annotation to the
  new revision, which changes the revision of the lock.
- A process deletes (releases) a lock only if it has seen the attachment at a later revision that does not name it, and
  the deletion carries the revision of the lock. So a process that decided on the lock before cannot name it any more,
  because the attachment has changed; and a process that decides now touches it, so that either the touch or the
  deletion fails.
- All processes prefer a lock that the status names, then the oldest: see `plan/addresses/allocation.py`.

A crash between any two steps leaves a lock that its attachment owns and does not name. The next reconcile of the
attachment uses or releases it.

A freed address is in quarantine: the finalizer of its lock keeps the name from being created again (`locks`). A new
attachment with the name of the former owner may take such an address back at once.

An attachment that finds its Subnet full waits in a queue (`allocator`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from netloom.control.ipam.allocator import Allocator
from netloom.control.ipam.macs import MacTable
from netloom.control.ipam.status import StatusWriter
from netloom.control.ipam.telemetry import Telemetry, reference_to
from netloom.control.ipam.views import BY_NETWORK, BY_SUBNET, Attachment, ConditionState, Lock
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.gc import BY_UID
from netloom.errors import NetloomError
from netloom.model.conditions import ADDRESSED
from netloom.model.kinds.events import ObjectReference
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import LoadBalancer
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import FULL, Decision, Held, Request, Slot, decide
from netloom.plan.addresses.blocks import Address, Pool, address, lock_name
from netloom.plan.problem import Problem

WORKERS = 256


@dataclass(slots=True)
class _Outcome:
    """The result of carrying out a decision."""

    locks: list[Lock] = field(default_factory=list)
    refusals: list[Problem] = field(default_factory=list)
    full: list[Key] = field(default_factory=list)
    """The full Subnets, to wait at."""
    blocked: list[Address] = field(default_factory=list)
    """The requested addresses that are taken, to wait for."""


class Ipam:
    """Reconciles attachments.  The keys are those of attachments."""

    def __init__(
        self,
        client: Client,
        *,
        attachments: Cache[Attachment],
        locks: Cache[Lock],
        networks: Cache[Network],
        recorder: Recorder,
        enqueue: Callable[[Iterable[Key]], None],
        on_use_changed: Callable[[Key], None],
        clock: Clock = time_of_day,
        quarantine: float = 5.0,
    ) -> None:
        """`attachments` and `locks` are the caches of the informers of `views`.

        `enqueue` adds attachments to the queue of this controller. `on_use_changed` is called with the key of each
        Subnet whose usage changed.
        """
        self._attachments = attachments
        self._locks = locks
        self._networks = networks
        self._enqueue = enqueue
        self._on_use_changed = on_use_changed
        self._telemetry = Telemetry(recorder, clock=clock)
        self.counters = self._telemetry.counters
        self.allocator = Allocator(
            client,
            locks=locks,
            networks=networks,
            telemetry=self._telemetry,
            quarantine=quarantine,
            enqueue=enqueue,
            on_use_changed=on_use_changed,
        )
        self._ledger, self._pools = self.allocator.ledger, self.allocator.pools
        self._macs = MacTable(attachments.get)
        self._status = StatusWriter(client, attachments, self._macs, self._telemetry, enqueue=enqueue, clock=clock)
        self._postponed: set[Key] = set()
        """The attachments to reconcile when the informer has seen the last write of their status."""

    # Changes. Each method returns the keys to reconcile.

    def attachment_changed(self, change: Change[Attachment]) -> Iterable[Key]:
        """Return the attachment, and those that wait for a MAC that it does not have any more."""
        key, old, new = change.key, change.old, change.new
        self.allocator.reservations_changed(self.allocator.reserved.attachment_changed(change))
        yield from self._macs.attachment_changed(key, old, new)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._forget(key)
            for ip, _ in old.locks:
                if (one := address(ip)) is not None:
                    self._ledger.add_former(key, Key(key.namespace, lock_name(old.vni, one)))
        if new is None:
            yield from self._macs.unclaim(key)
            return
        if old is None and not new.locks:
            self._telemetry.seen(key)
        written = self._status.written.get(key)
        if written is not None and new.metadata.revision >= written:
            del self._status.written[key]
            yield from self._macs.unclaim(key)
            if new.metadata.revision == written and key not in self._postponed:
                return  # Our own write, after which there was nothing to do.
        self._postponed.discard(key)
        yield key

    def lock_changed(self, change: Change[Lock]) -> Iterable[Key]:
        """Return the owner of a lock, unless this process created the lock."""
        old, new = change.old, change.new
        created_here = new is not None and self.allocator.locks.is_own_creation(new)
        self._ledger.lock_changed(change)
        self._ledger.expire_records()
        if old is None and new is not None:
            for subnet in self._pools.subnets_with(change.key.namespace, new.network, new.address):
                self._on_use_changed(subnet)
        owners = {owner.name for one in (old, new) if one is not None and (owner := one.owner)}
        if new is not None and (owner := new.owner) is not None:
            namesake = self._attachments.get(change.key.namespace, owner.name)
            if namesake is not None and namesake.metadata.uid != owner.uid:
                self._ledger.add_former(Key(change.key.namespace, owner.name), change.key)
        if not created_here:
            yield from (Key(change.key.namespace, name) for name in owners)

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return the attachments of a Network whose VNI changed."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.status.vni == new.status.vni:
            return []
        for name in self._pools.of_network(*change.key):
            self._on_use_changed(Key(change.key.namespace, name))
        return self._in_order(self._attachments.indexed(BY_NETWORK, str(change.key)))

    def subnet_changed(self, change: Change[Subnet]) -> Iterable[Key]:
        """Return the attachments that name a Subnet whose pool changed, or are on its Network."""
        self._on_use_changed(change.key)  # Always: `status.used` may be older than the last count.
        networks = self._pools.subnet_changed(change)
        if not networks:
            return []
        affected = {one.key: one for one in self._attachments.indexed(BY_SUBNET, str(change.key))}
        for network in networks:
            found = self._attachments.indexed(BY_NETWORK, str(Key(change.key.namespace, network)))
            affected |= {one.key: one for one in found}
        return self._in_order(affected.values())

    def router_changed(self, change: Change[Router]) -> Iterable[Key]:
        """Update what a Router reserves; the allocator enqueues the attachments that wait for a freed address."""
        self.allocator.reservations_changed(self.allocator.reserved.router_changed(change))
        return ()

    def balancer_changed(self, change: Change[LoadBalancer]) -> Iterable[Key]:
        """Update what a LoadBalancer reserves; the allocator enqueues the attachments that wait for a freed address."""
        self.allocator.reservations_changed(self.allocator.reserved.balancer_changed(change))
        return ()

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all attachments: first those with errors, and of these the oldest first."""
        for key, lock in self._locks.items():
            owner = lock.owner
            if owner is not None and not self._attachments.indexed(BY_UID, owner.uid):
                self._ledger.add_former(Key(key.namespace, owner.name), key)
        return self._in_order(self._attachments)

    def event_target(self, key: Key) -> ObjectReference | None:
        """Return the attachment of a key, for Events."""
        view = self._attachments.get(*key)
        return reference_to(view) if view is not None else None

    @property
    def locks(self) -> int:
        """How many addresses are locked."""
        return len(self._locks)

    # Reconciling one attachment.

    async def reconcile(self, key: Key) -> float | None:
        """Assign an attachment the addresses it should have."""
        view = self._attachments.get(*key)
        if view is None or view.metadata.deletion_timestamp:
            self.allocator.stop_waiting(key)  # The garbage collector deletes its locks.
            return None
        if self._status.written.get(key, 0) > view.metadata.revision:
            self._postponed.add(key)
            return None
        if self._is_up_to_date(view):
            return None
        self._ledger.expire_records()
        network = self._networks.get(view.metadata.namespace, view.network)
        vni = network.status.vni if network is not None else None
        pools = self._pools.of_attachment(view)
        decision = self._decide(view, vni, pools, network=network is not None)
        try:
            outcome = await self._carry_out(view, vni or 0, decision)
            if decision.pending and not (decision.refusals or outcome.refusals or outcome.locks or view.locks):
                return None  # There is nothing to write yet.
            result = self._status.assignment(view, vni, pools, decision, locks=outcome.locks, refusals=outcome.refusals)
            revision = await self._status.publish(view, result, decision.release)
            for held in decision.release:
                if held.decided < revision:
                    await self.allocator.locks.release(view, held)
                    self.counters.released += 1
        except NetloomError as error:
            self._telemetry.retried(type(error).__name__)
            raise
        return None

    def _is_up_to_date(self, view: Attachment) -> bool:
        """Whether an attachment without particular requests has what its locks say: a quick check, as most have.

        The status is compared with the locks exactly, although a controller wrote it: any difference is repaired.
        """
        if view.subnets or view.ips or view.mac or view.errors or not view.has_mac:
            return False
        if self.allocator.queue.is_waiting(view.key):
            return False
        network = self._networks.get(view.metadata.namespace, view.network)
        if network is None or network.status.vni != view.vni:
            return False
        generation = view.metadata.generation
        if view.addressed != ConditionState(TRUE, ADDRESSED, "", generation) or view.observed != generation:
            return False
        around = self._pools.of_network(view.metadata.namespace, view.network)
        pools = {one.version: one for one in around.values() if one.validated}
        if len(pools) != len(around) or len(view.locks) != len(view.has_ips):
            return False  # Several Subnets of a family, or one that is not validated: `decide` is needed.
        owned = {lock.metadata.uid: lock for lock in self._ledger.owned(view.metadata.uid)}
        first: Address | None = None
        for (locked, uid), ip in zip(view.locks, view.has_ips, strict=True):
            lock = owned.pop(uid, None)
            pool = pools.pop(lock.version, None) if lock is not None else None
            if lock is None or pool is None or lock.vni != view.vni or not pool.holds(lock.address):
                return False
            if locked != str(lock.address) or ip != f"{locked}/{pool.prefix}":
                return False
            first = first or lock.address
        if owned or pools or first is None or view.has_mac not in macs.candidates(view.vni, first):
            return False
        return self._macs.rival(view, view.has_mac) is None

    def _decide(self, view: Attachment, vni: int | None, pools: Mapping[str, Pool], *, network: bool) -> Decision:
        meta = view.metadata
        request = Request(meta.namespace, view.network, view.subnets, view.ips, tuple(uid for _, uid in view.locks))
        held = [_held(one) for one in self._ledger.owned(meta.uid)]

        def taken(one: Address) -> str | None:
            lock = self.allocator.find_lock(Key(meta.namespace, lock_name(vni or 0, one)))
            if lock is None or self.allocator.locks.may_take(view, lock):
                return self.allocator.reserved.owner(Key(meta.namespace, view.network), one)
            return _holder(lock)

        return decide(request, vni, pools, held, taken, network=network)

    async def _carry_out(self, view: Attachment, vni: int, decision: Decision) -> _Outcome:
        """Create the locks that are missing, and wait for the addresses that are not available."""
        outcome = _Outcome(blocked=list(decision.blocked))
        namespace = view.metadata.namespace
        named = {uid for _, uid in view.locks}
        try:
            for held in decision.keep:
                if held.uid not in named:
                    outcome.locks.append(await self.allocator.locks.adopt(view, held))
            for one in decision.take:
                lock = await self.allocator.take(view, vni, one)
                if self.allocator.locks.is_owner(view, lock):
                    outcome.locks.append(lock)
                else:
                    outcome.refusals.append(Problem("Taken", f"{one} is {_holder(lock)}"))
                    outcome.blocked.append(one)
            for slot in decision.choose:
                chosen = await self.allocator.choose(view, vni, slot)
                if chosen is not None:
                    outcome.locks.append(chosen)
                else:
                    outcome.refusals.append(_full(slot))
                    outcome.full += [Key(namespace, one.name) for one in slot.pools]
        except NetloomError as error:
            if error.retry:  # It keeps its place in the queue until the retry.
                subnets = [Key(namespace, one.name) for slot in decision.choose for one in slot.pools]
                self.allocator.wait(view.key, view.age, subnets, ())
            raise
        requested = {Key(namespace, lock_name(vni, one)): one for one in outcome.blocked}
        self.allocator.wait(view.key, view.age, outcome.full, requested)
        # Addresses freed while we took the other locks were freed before we waited for them.
        for subnet in outcome.full:
            self.allocator.enqueue_waiting(subnet)
        on = Key(namespace, view.network)
        if any(self.allocator.is_free(key, on, one) for key, one in requested.items()):
            self._enqueue([view.key])
        if outcome.locks:
            self._telemetry.locked(view)
        return outcome

    def _forget(self, key: Key) -> None:
        self._status.written.pop(key, None)
        self._postponed.discard(key)
        self._telemetry.forget(key)
        self.allocator.forget(key)

    def _in_order(self, views: Iterable[Attachment]) -> list[Key]:
        return [one.key for one in sorted(views, key=lambda one: (not one.errors, one.age))]


def _held(lock: Lock) -> Held:
    meta = lock.metadata
    return Held(
        address=lock.address,
        vni=lock.vni if lock.version else -1,  # A lock under a wrong name locks nothing.
        uid=meta.uid,
        created=meta.creation_timestamp,
        name=meta.name,
        revision=meta.revision,
        decided=lock.decided,
    )


def _holder(lock: Lock) -> str:
    """Return who has an address, or had it, for messages."""
    return f"in quarantine: {lock.holder} had it before" if lock.terminating else f"taken by {lock.holder}"


def _full(slot: Slot) -> Problem:
    names = ", ".join(one.name for one in slot.pools)
    return Problem(FULL, f"Subnet {names} is full" if len(slot.pools) == 1 else f"Subnets {names} are full")
