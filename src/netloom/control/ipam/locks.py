"""IPLocks: created, kept, taken back and released for attachments; ended when their quarantine is over.

`LockClient` takes the single steps of `controller`, whose docstring argues why they are safe.

`LockReconciler` ends locks. A deleted IPLock stays in the store, with its deletionTimestamp, as long as it has its
finalizer: its name cannot be created again, and a restart does not lose it. The quarantine lasts from the moment this
process saw the deletion, by its own clock, because the timestamp is from another machine's clock. After a restart it
starts again: an address may stay in quarantine longer than configured, never shorter.
"""

import asyncio
from collections.abc import Iterable

from netloom.control.ipam.ledger import AddressLedger
from netloom.control.ipam.views import DECIDED, QUARANTINE, Attachment, Lock, lock_view
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.gc import BY_UID
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import Document
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.plan.addresses.allocation import Held
from netloom.plan.addresses.blocks import Address, lock_name, text

ATTEMPTS = 8
WORKERS = 16


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


async def remove_quarantine(client: Client, lock: Lock) -> None:
    """Remove the finalizer from a terminating lock, so that the store deletes it."""
    meta = lock.metadata
    if meta.finalizers != (QUARANTINE,) or len(meta.owner_references) != 1:
        document = await client.document(IP_LOCK, *lock.key)
        if document["metadata"]["uid"] != meta.uid:
            raise Conflict(f"IPLock {meta.name} is a new one")
        finalizers = document["metadata"].get("finalizers") or []
        document["metadata"]["finalizers"] = [name for name in finalizers if name != QUARANTINE]
        await client.replace(IP_LOCK, document)
        return
    # This write ends the lock, so only what identifies it matters, and reading it first is unnecessary.
    owner = meta.owner_references[0]
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": [reference],
        "finalizers": [],
    }
    await client.replace(
        IP_LOCK,
        {
            "apiVersion": IP_LOCK.api_version,
            "kind": IP_LOCK.name,
            "metadata": metadata,
            "spec": {"network": lock.network, "vni": lock.vni, "ip": text(lock.address)},
        },
    )


class LockReconciler:
    """Ends the quarantine of terminating IPLocks, and deletes those whose owner is gone."""

    def __init__(
        self, client: Client, *, locks: Cache[Lock], attachments: Cache[Attachment], quarantine: float = 5.0
    ) -> None:
        self._client = client
        self._locks = locks
        self._attachments = attachments
        self._quarantine = quarantine
        self._since: dict[str, float] = {}

    def lock_changed(self, change: Change[Lock]) -> Iterable[Key]:
        """Return the key of a lock in quarantine.  The garbage collector deletes locks whose owner goes."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._since.pop(old.metadata.uid, None)
        if new is not None and new.terminating and QUARANTINE in new.metadata.finalizers:
            self._since.setdefault(new.metadata.uid, asyncio.get_running_loop().time())
            yield change.key

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all locks that are terminating, or seem to have no owner."""
        return [key for key, lock in self._locks.items() if lock.terminating or self._is_orphan(lock)]

    def _is_orphan(self, lock: Lock) -> bool:
        owner = lock.owner
        return owner is not None and not self._attachments.indexed(BY_UID, owner.uid)

    async def reconcile(self, key: Key) -> float | None:
        """End a lock's quarantine when it is over, or delete a lock that has no owner."""
        lock = self._locks.get(*key)
        if lock is None:
            return None
        if not lock.terminating:
            if self._is_orphan(lock):
                await self._delete_orphan(lock)
            return None
        if QUARANTINE not in lock.metadata.finalizers:
            return None
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(lock.metadata.uid, now) + self._quarantine - now
        if left > 0:
            return left
        try:
            await remove_quarantine(self._client, lock)
        except NotFound:
            return None
        except Conflict:
            return 1.0  # It changed, or an attachment took it back: the informer will report it.
        return None

    async def _delete_orphan(self, lock: Lock) -> None:
        """Delete a lock if a live read confirms that its owner is gone."""
        owner = lock.owner
        assert owner is not None
        live = await self._client.find(NetworkAttachment, lock.metadata.namespace, owner.name)
        if live is None or live.metadata.uid != owner.uid:
            meta = lock.metadata
            await self._client.delete(IP_LOCK, meta.namespace, meta.name, uid=meta.uid, revision=meta.revision)
