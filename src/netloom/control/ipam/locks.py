"""The end of a lock: the quarantine of freed addresses, and locks whose owner is gone.

A deleted IPLock stays, with its deletion time, as long as its finalizer does; so its name cannot be created again, and
no restart forgets it. The quarantine lasts from the moment this process saw the deletion, by its own clock: the store's
time of day is another machine's. After a restart it begins anew; an address may rest longer than told, never shorter.
"""

import asyncio
from collections.abc import Iterable

from netloom.control.ipam.lock_client import lift
from netloom.control.ipam.views import QUARANTINE, Attachment, Lock
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.gc import BY_UID
from netloom.errors import Conflict, NotFound
from netloom.model.attachments import NetworkAttachment
from netloom.model.registry import IP_LOCK

WORKERS = 16


class LockKeeper:
    """Reconciles IPLocks that are going, or should."""

    def __init__(
        self, client: Client, *, locks: Cache[Lock], attachments: Cache[Attachment], quarantine: float = 5.0
    ) -> None:
        self._client = client
        self._locks = locks
        self._attachments = attachments
        self._quarantine = quarantine
        self._since: dict[str, float] = {}
        self.ended = 0
        """How many quarantines ended here."""

    def lock_changed(self, change: Change[Lock]) -> Iterable[Key]:
        """Return the lock itself when it is going; the garbage collector sees to those that should."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._since.pop(old.metadata.uid, None)
        if new is not None and new.going and QUARANTINE in new.metadata.finalizers:
            self._since.setdefault(new.metadata.uid, asyncio.get_running_loop().time())
            yield change.key

    def everything(self) -> Iterable[Key]:
        """Return the locks that are going, and those that seem to have lost their owner."""
        return [key for key, lock in self._locks.items() if lock.going or self._orphaned(lock)]

    def _orphaned(self, lock: Lock) -> bool:
        owner = lock.owner
        return owner is not None and not self._attachments.indexed(BY_UID, owner.uid)

    async def reconcile(self, key: Key) -> float | None:
        """Let a lock go whose time has come."""
        lock = self._locks.get(*key)
        if lock is None:
            return None
        if not lock.going:
            if self._orphaned(lock):
                await self._collect(lock)
            return None
        if QUARANTINE not in lock.metadata.finalizers:
            return None
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(lock.metadata.uid, now) + self._quarantine - now
        if left > 0:
            return left
        try:
            await lift(self._client, lock)
        except NotFound:
            return None
        except Conflict:
            return 1.0  # It changed, or somebody took it back: the informer will tell.
        self.ended += 1
        return None

    async def _collect(self, lock: Lock) -> None:
        """Delete a lock whose owner is gone, which only the store can say."""
        owner = lock.owner
        assert owner is not None
        live = await self._client.find(NetworkAttachment, lock.metadata.namespace, owner.name)
        if live is None or live.metadata.uid != owner.uid:
            meta = lock.metadata
            await self._client.delete(IP_LOCK, meta.namespace, meta.name, uid=meta.uid, revision=meta.revision)
