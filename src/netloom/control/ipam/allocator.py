"""Who gets which free address.

`Allocator` prefers an address that the attachment had before, then takes the next free one: the next after the one
chosen last, and from the beginning after the last. So a freed address is not allocated again at once, and workers that
run at the same time try different addresses.

An attachment that finds its Subnet full waits in the Subnet's `WaitQueue`, ordered by age. It is enqueued again when an
address is freed, when a Subnet is added, validated or changed, and when another attachment leaves the queue. An
attachment that does not wait gets an address only if more are free than the older ones in the queue need.

`LockClient` creates, keeps, takes back and releases IPLocks: the single steps of `controller`, whose docstring argues
why they are safe.
"""

from collections.abc import Callable, Iterable, Iterator

from netloom.control.ipam.ledger import AddressLedger
from netloom.control.ipam.locks import remove_quarantine
from netloom.control.ipam.pools import NetworkAddress, ReservedAddresses, SubnetPools
from netloom.control.ipam.telemetry import Telemetry
from netloom.control.ipam.views import DECIDED, QUARANTINE, Attachment, Lock, lock_view
from netloom.control.runtime.cache import Cache, Key
from netloom.control.runtime.client import Client
from netloom.errors import AlreadyExists, Conflict, NotFound, Unreachable
from netloom.model.document import Document
from netloom.model.kinds.networks import Network
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.plan.addresses.allocation import Held, Slot
from netloom.plan.addresses.blocks import Address, address, lock_name, text

ATTEMPTS = 8


class WaitQueue:
    """The attachments that wait for any address of a full Subnet, oldest first, or for a certain address."""

    def __init__(self) -> None:
        self._waiting: dict[Key, dict[Key, tuple[str, str]]] = {}
        """By Subnet, the attachments that wait and their ages."""
        self._subnets_of: dict[Key, tuple[Key, ...]] = {}
        self._requesting: dict[Key, dict[Key, None]] = {}
        """By lock, the attachments that wait for its address."""
        self._requests_of: dict[Key, tuple[Key, ...]] = {}

    def __len__(self) -> int:
        """Return how many attachments wait."""
        return len(self._subnets_of.keys() | self._requests_of.keys())

    def wait(
        self, attachment: Key, age: tuple[str, str], subnets: Iterable[Key], requested: Iterable[Key]
    ) -> tuple[Key, ...]:
        """Wait at exactly these Subnets and for exactly these locks; return the Subnets whose queue was left."""
        now, before = tuple(dict.fromkeys(subnets)), self._subnets_of.get(attachment, ())
        left = tuple(one for one in before if one not in now)
        for one in left:
            waiting = self._waiting[one]
            del waiting[attachment]
            if not waiting:
                del self._waiting[one]
        for one in now:
            self._waiting.setdefault(one, {})[attachment] = age
        _set(self._subnets_of, attachment, now)
        for one in self._requests_of.get(attachment, ()):
            self._requesting[one].pop(attachment, None)
            if not self._requesting[one]:
                del self._requesting[one]
        requests = tuple(requested)
        for one in requests:
            self._requesting.setdefault(one, {})[attachment] = None
        _set(self._requests_of, attachment, requests)
        return left

    def is_waiting(self, attachment: Key) -> bool:
        """Whether an attachment waits at any Subnet or for any address."""
        return attachment in self._subnets_of or attachment in self._requests_of

    def count_older(self, subnet: Key, attachment: Key, age: tuple[str, str]) -> int:
        """Return how many other attachments that are older than `age` wait at a Subnet."""
        waiting = self._waiting.get(subnet)
        return sum(other < age for one, other in waiting.items() if one != attachment) if waiting else 0

    def oldest(self, subnet: Key, most: int) -> list[Key]:
        """Return the oldest attachments that wait at a Subnet, at most `most`."""
        waiting = self._waiting.get(subnet)
        return sorted(waiting, key=waiting.__getitem__)[:most] if waiting else []

    def requesting(self, lock: Key) -> list[Key]:
        """Return the attachments that wait for the address of this lock."""
        return list(self._requesting.get(lock, ()))

    def has_waiters(self, subnet: Key) -> bool:
        """Whether any attachment waits at a Subnet."""
        return subnet in self._waiting


def _set(table: dict[Key, tuple[Key, ...]], key: Key, value: tuple[Key, ...]) -> None:
    if value:
        table[key] = value
    else:
        table.pop(key, None)


class LockClient:
    """Creates, updates and deletes locks for attachments."""

    def __init__(self, client: Client, ledger: AddressLedger, *, quarantine: float) -> None:
        self._client = client
        self._ledger = ledger
        self._finalizers = [QUARANTINE] if quarantine > 0 else []
        self._created: dict[tuple[str, str], int] = {}
        """The revisions of locks that this process created and the informer has not reported."""

    def is_owner(self, view: Attachment, lock: Lock) -> bool:
        """Whether an attachment owns a lock."""
        owner = lock.owner
        return owner is not None and owner.uid == view.metadata.uid and not lock.terminating

    def may_take(self, view: Attachment, lock: Lock) -> bool:
        """Whether an attachment owns a lock, or the owner was an attachment of the same name that is gone.

        Of two attachments of the same name the one that we see is the living one, unless our cache is behind. The lock
        of a later one was decided on at a later revision.
        """
        owner = lock.owner
        if owner is None or owner.name != view.metadata.name or lock.metadata.namespace != view.metadata.namespace:
            return False
        if owner.uid == view.metadata.uid:
            return True
        return lock.terminating or 0 < lock.decided < view.metadata.revision

    def is_own_creation(self, lock: Lock) -> bool:
        """Whether the informer reports, for the first time, a lock that this process created."""
        if self._created.get(lock.key) != lock.metadata.revision:
            return False
        del self._created[lock.key]
        return True

    async def take(self, view: Attachment, vni: int, one: Address) -> Lock:
        """Return the lock of an address: that of this attachment, created if necessary, or that of another owner."""
        # Claim the address all the time: also between deleting an old lock and creating a new one it is not free.
        claimed = self._ledger.claim(view.metadata.namespace, vni, one)
        try:
            for _ in range(ATTEMPTS):
                lock = self._ledger.lock(*claimed)
                if lock is not None:
                    if not self.may_take(view, lock):
                        return lock
                    if self.is_owner(view, lock):
                        return await self._touch(view, lock)
                    await self._check_current(view)
                    await self._take_back(lock)
                if (created := await self._create(view, vni, one)) is not None:
                    return created
        finally:
            self._ledger.unclaim(claimed, vni, one, view.network, by=view.key)
        raise Conflict(f"IPLock {claimed} was created and deleted {ATTEMPTS} times by others")

    async def adopt(self, view: Attachment, held: Held) -> Lock:
        """Update a lock that the attachment owns and its status does not name, so that the status may name it."""
        lock = self._ledger.lock(view.metadata.namespace, held.name)
        if lock is None or lock.metadata.uid != held.uid:
            raise Conflict(f"IPLock {held.name} is gone")
        return await self._touch(view, lock)

    async def release(self, view: Attachment, held: Held) -> None:
        """Delete a lock that the attachment does not need any more."""
        await self._client.delete(IP_LOCK, view.metadata.namespace, held.name, uid=held.uid, revision=held.revision)
        self._ledger.record_release(held.uid)

    async def _create(self, view: Attachment, vni: int, one: Address) -> Lock | None:
        """Create a lock; return None if it exists, and record what the store has."""
        try:
            stored = await self._client.create_document(IP_LOCK, self._document(view, vni, one))
        except AlreadyExists:
            try:
                self._ledger.record(
                    lock_view(await self._client.read(IP_LOCK, view.metadata.namespace, lock_name(vni, one)))
                )
            except NotFound:
                pass  # Deleted in between.
            return None
        lock = lock_view(stored)
        self._ledger.record(lock)
        if lock.metadata.revision > self._ledger.revision:
            self._created[lock.key] = lock.metadata.revision
        return lock

    async def _touch(self, view: Attachment, lock: Lock) -> Lock:
        """Update a lock to say that it was decided on at the attachment's current revision."""
        if lock.decided == view.metadata.revision:
            return lock
        try:
            document = await self._client.document(IP_LOCK, *lock.key)
        except NotFound:
            raise Conflict(f"IPLock {lock.metadata.name} is gone") from None
        metadata = document["metadata"]
        if metadata["uid"] != lock.metadata.uid or metadata.get("deletionTimestamp"):
            raise Conflict(f"IPLock {lock.metadata.name} is being deleted")
        metadata.setdefault("annotations", {})[DECIDED] = view.metadata.resource_version
        touched = lock_view(await self._client.replace(IP_LOCK, document))
        self._ledger.record(touched)
        return touched

    async def _check_current(self, view: Attachment) -> None:
        """Raise `Conflict` if the store says that the attachment is gone or has changed."""
        try:
            live = (await self._client.document(NETWORK_ATTACHMENT, *view.key))["metadata"]
        except NotFound:
            raise Conflict(f"NetworkAttachment {view.key} is gone") from None
        if live["uid"] != view.metadata.uid or live["resourceVersion"] != view.metadata.resource_version:
            raise Conflict(f"NetworkAttachment {view.key} has changed")

    async def _take_back(self, lock: Lock) -> None:
        """Delete the lock of a former attachment; if another process was faster, creating the new lock fails."""
        meta = lock.metadata
        try:
            if lock.terminating:
                await remove_quarantine(self._client, lock)
                return
            await self._client.delete(IP_LOCK, *lock.key, uid=meta.uid, revision=meta.revision)
            if meta.finalizers:
                left = lock_view(await self._client.read(IP_LOCK, *lock.key))
                if left.terminating and left.metadata.uid == meta.uid:  # A lock with another uid has another owner.
                    await remove_quarantine(self._client, left)
        except (Conflict, NotFound):
            pass

    def _document(self, view: Attachment, vni: int, one: Address) -> Document:
        meta = view.metadata
        metadata: Document = {
            "name": lock_name(vni, one),
            "namespace": meta.namespace,
            "annotations": {DECIDED: meta.resource_version},
            "ownerReferences": [
                {
                    "apiVersion": NETWORK_ATTACHMENT.api_version,
                    "kind": NETWORK_ATTACHMENT.name,
                    "name": meta.name,
                    "uid": meta.uid,
                    "controller": True,
                }
            ],
        }
        if self._finalizers:
            metadata["finalizers"] = self._finalizers
        return {
            "apiVersion": IP_LOCK.api_version,
            "kind": IP_LOCK.name,
            "metadata": metadata,
            "spec": {"network": view.network, "vni": vni, "ip": text(one)},
        }


class Allocator:
    """Locks addresses for attachments, and enqueues those that wait when addresses become free."""

    def __init__(
        self,
        client: Client,
        *,
        locks: Cache[Lock],
        networks: Cache[Network],
        telemetry: Telemetry,
        quarantine: float,
        enqueue: Callable[[Iterable[Key]], None],
        on_use_changed: Callable[[Key], None],
    ) -> None:
        """`enqueue` enqueues attachments; `on_use_changed` is called with each Subnet whose usage changed."""
        self.ledger = AddressLedger(locks, self._on_freed, quarantine=quarantine)
        self.reserved = ReservedAddresses()
        self.pools = SubnetPools(self.reserved)
        self.queue = WaitQueue()
        self.locks = LockClient(client, self.ledger, quarantine=quarantine)
        self._networks = networks
        self._telemetry = telemetry
        self._enqueue = enqueue
        self._on_use_changed = on_use_changed
        self._cursors: dict[Key, int] = {}
        self._attempts: dict[Key, tuple[Address, ...]] = {}
        """By attachment, addresses whose locks may exist: the store did not answer."""

    # Choosing.

    async def choose(self, view: Attachment, vni: int, slot: Slot) -> Lock | None:
        """Lock one address for a slot: one that the attachment had if possible, else the next free one."""
        for one in self._preferred(view, vni, slot):
            lock = await self.take(view, vni, one)
            if self.locks.is_owner(view, lock):
                return lock
        while (number := self._next_free(view, vni, slot)) is not None:
            lock = await self.take(view, vni, Address(slot.version, number))
            if self.locks.is_owner(view, lock):
                return lock
        return None

    async def take(self, view: Attachment, vni: int, one: Address) -> Lock:
        """Lock an address, or return the lock of its owner; remember the attempt if the store does not answer."""
        try:
            lock = await self.locks.take(view, vni, one)
        except Unreachable:
            self._attempts[view.key] = tuple({*self._attempts.get(view.key, ()), one})
            raise
        self._attempts.pop(view.key, None)
        if not self.locks.is_owner(view, lock):
            self._telemetry.retried("Taken")
        return lock

    def _preferred(self, view: Attachment, vni: int, slot: Slot) -> Iterator[Address]:
        """Return the addresses of a slot that the attachment had, or may have locked, and that it can get."""
        had = [lock.address for lock in self.ledger.former(view.key) if lock.vni == vni]
        had += [one for ip, _ in view.locks if view.vni == vni and (one := address(ip)) is not None]
        for one in dict.fromkeys((*self._attempts.get(view.key, ()), *had)):
            if not any(pool.holds(one) and pool.may_choose(one) for pool in slot.pools):
                continue
            lock = self.find_lock(Key(view.metadata.namespace, lock_name(vni, one)))
            if lock is None or self.locks.may_take(view, lock):
                yield one

    def _next_free(self, view: Attachment, vni: int, slot: Slot) -> int | None:
        """Return a free address that no older attachment in the queue needs."""
        used = self.ledger.used(view.metadata.namespace, vni, slot.version)
        for pool in slot.pools:
            subnet = Key(view.metadata.namespace, pool.name)
            if self.queue.has_waiters(subnet):
                free = pool.free(used)
                if free == 0 or free <= self.queue.count_older(subnet, view.key, view.age):
                    continue
            number = pool.choose(used, self._cursors.get(subnet, 0))
            if number is not None:
                self._cursors[subnet] = number + 1
                return number
        return None

    # Waiting.

    def wait(self, key: Key, age: tuple[str, str], subnets: Iterable[Key], requested: Iterable[Key]) -> None:
        """Make an attachment wait at exactly these Subnets, and for exactly these locks to go."""
        for subnet in self.queue.wait(key, age, subnets, requested):
            self.enqueue_waiting(subnet)

    def stop_waiting(self, key: Key) -> None:
        """Remove an attachment from the queue."""
        self.wait(key, ("", ""), (), ())

    def forget(self, key: Key) -> None:
        """Drop what is remembered of an attachment that is gone."""
        self._attempts.pop(key, None)
        self.stop_waiting(key)

    def enqueue_waiting(self, subnet: Key, *, but: Key | None = None) -> None:
        """Enqueue as many of the attachments that wait at a Subnet as it has free addresses."""
        pool = self.pools.get(subnet)
        if pool is None or not self.queue.has_waiters(subnet):
            return
        network = self._networks.get(subnet.namespace, pool.network)
        if network is not None and network.status.vni:
            used = self.ledger.used(subnet.namespace, network.status.vni, pool.version)
            self._enqueue(key for key in self.queue.oldest(subnet, pool.free(used)) if key != but)

    def reservations_changed(self, changed: Iterable[NetworkAddress]) -> None:
        """Follow a change of reservations: count usage again, and enqueue those that wait for a freed address."""
        for on, one in changed:
            network = self._networks.get(*on)
            if network is not None and network.status.vni and self.reserved.owner(on, one) is None:
                self._on_freed(Key(on.namespace, lock_name(network.status.vni, one)), on.name, one, None)
            else:
                for subnet in self.pools.subnets_with(*on, one):
                    self._on_use_changed(subnet)

    def find_lock(self, key: Key) -> Lock | None:
        """Return the lock that keeps an address in use: one that exists, or one whose quarantine continues."""
        return self.ledger.lock(*key) or self.ledger.quarantined(*key)

    def is_free(self, lock: Key, network: Key, one: Address) -> bool:
        """Whether an address is neither locked, nor in quarantine, nor reserved."""
        return self.find_lock(lock) is None and self.reserved.owner(network, one) is None

    def _on_freed(self, lock: Key, network: str, one: Address, by: Key | None) -> None:
        """Enqueue the attachments that wait for a freed address; not `by`, which gave it up and has its own retry."""
        self._enqueue(key for key in self.queue.requesting(lock) if key != by)
        for subnet in self.pools.subnets_with(lock.namespace, network, one):
            self._on_use_changed(subnet)
            self.enqueue_waiting(subnet, but=by)
