"""The addresses in use, as far as this process knows: a cache of the hard state, which is the IPLocks in the store.

An address is in use if the informer has its lock, if this process knows of a lock that the informer has not seen yet
(it created the lock, or the store refused to create another), or if one of its workers is about to create the lock. As
soon as the informer has reached the revision of such a lock, only the informer counts. A wrong entry costs a retry,
because the store refuses to create a lock twice; it never costs an address.

A lock may disappear before its quarantine is over: an attachment took the address back, and may have failed to lock it
again. Such an address stays in quarantine here: it is in use, except for attachments with the name of the former owner.

Addresses are kept by namespace and VNI: the names of locks are unique in a namespace, and a VNI belongs to one Network.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from netloom.control.ipam.views import QUARANTINE, Lock
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.gc import BY_OWNER
from netloom.plan.addresses.blocks import Address, AddressSet, lock_name

OnFreed = Callable[[Key, str, Address, Key | None], None]
"""Called with the lock that is gone, its Network and address, and the attachment that gave up its claim, if one did."""


class AddressLedger:
    """The addresses in use, of all namespaces and VNIs."""

    def __init__(self, cache: Cache[Lock], on_freed: OnFreed, *, quarantine: float = 0.0) -> None:
        self._cache = cache
        self._quarantine = quarantine
        self._terminating: dict[str, float] = {}
        """The times at which this process first saw locks terminating, by uid."""
        self._quarantined: dict[Key, Lock] = {}
        """Locks that disappeared before their quarantine was over."""
        self._on_freed = on_freed
        self._used: dict[tuple[str, int, int], AddressSet] = {}
        """By namespace, VNI and address family."""
        self._recorded: dict[Key, Lock] = {}
        """Locks that the informer may not have seen yet."""
        self._recorded_of: dict[str, dict[Key, None]] = {}
        self._expiry: list[tuple[int, Key]] = []
        self._claimed: dict[Key, int] = {}
        """Locks that workers are about to create."""
        self._former: dict[Key, dict[Key, None]] = {}
        """By the key of an attachment, the locks of former attachments with that key."""
        self._released: set[str] = set()
        """The uids of locks that this process deleted, until the informer has seen it."""

    @property
    def revision(self) -> int:
        """The revision that the informer has reached."""
        return self._cache.revision

    def used(self, namespace: str, vni: int, version: int) -> AddressSet:
        """Return the addresses in use of one VNI and family."""
        key = (namespace, vni, version)
        found = self._used.get(key)
        if found is None:
            found = self._used[key] = AddressSet()
        return found

    def in_use(self, namespace: str, vni: int) -> bool:
        """Whether any address of a VNI is in use."""
        return any(self._used.get((namespace, vni, version)) for version in (4, 6))

    def lock(self, namespace: str, name: str) -> Lock | None:
        """Return the newest known version of a lock."""
        key = Key(namespace, name)
        cached, recorded = self._cache.get(namespace, name), self._recorded.get(key)
        if recorded is not None and (cached is None or recorded.metadata.revision > cached.metadata.revision):
            return recorded
        return cached

    def owned(self, uid: str) -> list[Lock]:
        """Return the locks of an attachment, without those in quarantine and those that this process released."""
        found: dict[Key, Lock] = {one.key: one for one in self._cache.indexed(BY_OWNER, uid)}
        for key in self._recorded_of.get(uid, ()):
            if (recorded := self.lock(*key)) is not None:
                found[key] = recorded
        return [one for one in found.values() if not one.terminating and one.metadata.uid not in self._released]

    def add_former(self, attachment: Key, lock: Key) -> None:
        """Remember a lock of an attachment that is gone; the lock will follow."""
        if self.lock(*lock) is not None:
            self._former.setdefault(attachment, {})[lock] = None

    def former(self, attachment: Key) -> list[Lock]:
        """Return the locks, in quarantine or soon to be, of former attachments with this key."""
        found = [self.lock(*key) or self._quarantined.get(key) for key in self._former.get(attachment, ())]
        return [one for one in found if one is not None]

    def quarantined(self, namespace: str, name: str) -> Lock | None:
        """Return a lock that disappeared before its quarantine was over."""
        return self._quarantined.get(Key(namespace, name))

    def claim(self, namespace: str, vni: int, one: Address) -> Key:
        """Keep an address from the other workers while its lock is created."""
        key = Key(namespace, lock_name(vni, one))
        self._claimed[key] = self._claimed.get(key, 0) + 1
        self.used(namespace, vni, one.version).add(one.number)
        return key

    def unclaim(self, key: Key, vni: int, one: Address, network: str, *, by: Key) -> None:
        """End the claim of the attachment `by`: the lock is created, or will not be."""
        left = self._claimed.pop(key) - 1
        if left:
            self._claimed[key] = left
        self._free_if_unused(key, vni, one, network, by=by)

    def record(self, lock: Lock) -> None:
        """Remember a lock that the informer may not have seen yet."""
        if lock.metadata.revision <= self._cache.revision or not lock.version:
            return
        key = lock.key
        self._recorded[key] = lock
        if owner := lock.owner:
            self._recorded_of.setdefault(owner.uid, {})[key] = None
        heappush(self._expiry, (lock.metadata.revision, key))
        self.used(key.namespace, lock.vni, lock.version).add(lock.number)

    def record_release(self, lock_uid: str) -> None:
        """Remember that this process deleted a lock."""
        self._released.add(lock_uid)

    def expire_records(self) -> None:
        """Drop the recorded locks that the informer has seen by now."""
        while self._expiry and self._expiry[0][0] <= self._cache.revision:
            _, key = heappop(self._expiry)
            recorded = self._recorded.get(key)
            if recorded is None or recorded.metadata.revision > self._cache.revision:
                continue
            del self._recorded[key]
            if (owner := recorded.owner) and (keys := self._recorded_of.get(owner.uid)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._recorded_of[owner.uid]
            self._free_if_unused(key, recorded.vni, recorded.address, recorded.network)

    def lock_changed(self, change: Change[Lock]) -> None:
        """Apply a change that the informer reports."""
        old, new = change.old, change.new
        replaced = old is not None and (new is None or new.metadata.uid != old.metadata.uid)
        if old is not None and (replaced or (new is not None and new.terminating)):
            self._released.discard(old.metadata.uid)
        if old is not None and (old.terminating or replaced):
            self._remove_former(old)
        if new is not None:
            self._quarantined.pop(change.key, None)
            if new.terminating:
                self._terminating.setdefault(new.metadata.uid, asyncio.get_running_loop().time())
        if old is not None and replaced:
            since = self._terminating.pop(old.metadata.uid, None)
            if new is None:
                self._continue_quarantine(change.key, old, since)
        if new is not None and new.version:
            self.used(new.metadata.namespace, new.vni, new.version).add(new.number)
            if new.terminating and (owner := new.owner):
                self._former.setdefault(Key(new.metadata.namespace, owner.name), {})[change.key] = None
        elif new is None and old is not None and old.version:
            self._free_if_unused(change.key, old.vni, old.address, old.network)

    def _continue_quarantine(self, key: Key, lock: Lock, since: float | None) -> None:
        """Keep the address of a lock that is gone in use for the rest of its quarantine."""
        if QUARANTINE not in lock.metadata.finalizers:
            return
        loop = asyncio.get_running_loop()
        left = self._quarantine - (loop.time() - since if since is not None else 0.0)
        if left <= 0 or (owner := lock.owner) is None:
            return
        self._quarantined[key] = lock
        self._former.setdefault(Key(key.namespace, owner.name), {})[key] = None
        loop.call_later(left, self._end_quarantine, key, lock)

    def _end_quarantine(self, key: Key, lock: Lock) -> None:
        if self._quarantined.get(key) is not lock:
            return
        del self._quarantined[key]
        if self.lock(*key) is None:
            self._remove_former(lock)
        self._free_if_unused(key, lock.vni, lock.address, lock.network)

    def _remove_former(self, lock: Lock) -> None:
        if not (owner := lock.owner):
            return
        name = Key(lock.metadata.namespace, owner.name)
        if keys := self._former.get(name):
            keys.pop(lock.key, None)
            if not keys:
                del self._former[name]

    def _free_if_unused(self, key: Key, vni: int, one: Address, network: str, *, by: Key | None = None) -> None:
        """Remove an address that has no lock, no claim and no quarantine."""
        if key in self._claimed or key in self._recorded or key in self._quarantined or self._cache.get(*key):
            return
        used = self._used.get((key.namespace, vni, one.version))
        if used is None or not used.discard(one.number):
            return
        if not used:
            del self._used[key.namespace, vni, one.version]
        self._on_freed(key, network, one, by)
