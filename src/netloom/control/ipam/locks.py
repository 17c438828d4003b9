"""The end of IPLocks: `LockReconciler` ends them when their quarantine is over.

A deleted IPLock stays in the store, with its deletionTimestamp, as long as it has its
finalizer: its name cannot be created again, and a restart does not lose it. The quarantine lasts from the moment this
process saw the deletion, by its own clock, because the timestamp is from another machine's clock. After a restart it
starts again: an address may stay in quarantine longer than configured, never shorter.
"""

import asyncio
from collections.abc import Iterable

from netloom.control.ipam.views import QUARANTINE, Attachment, Lock
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.gc import BY_UID
from netloom.errors import Conflict, NotFound
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import IP_LOCK
from netloom.plan.addresses.blocks import text

WORKERS = 16


async def remove_quarantine(client: Client, lock: Lock) -> None:
    """Remove the finalizer from a terminating lock, so that the store deletes it."""
    meta = lock.metadata
    if meta.finalizers != (QUARANTINE,) or len(meta.owner_references) != 1:
        document = await client.document(IP_LOCK, *lock.key)
        if document["metadata"]["uid"] != meta.uid:
            raise Conflict(f"IPLock {meta.name} was deleted and created again")
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
        meta, owner = lock.metadata, lock.owner
        if not lock.terminating:
            if owner is not None and self._is_orphan(lock):
                live = await self._client.find(NetworkAttachment, meta.namespace, owner.name)
                if live is None or live.metadata.uid != owner.uid:
                    await self._client.delete(IP_LOCK, meta.namespace, meta.name, uid=meta.uid, revision=meta.revision)
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
