"""Which addresses are used, as far as this process knows: a cache beside the hard state, never instead of it.

An address is used when the informer has its lock, or we know of a lock the informer has not seen yet (we made it, or
met it), or one of our workers is about to make it. What is known besides the informer is forgotten as soon as the
informer has come as far: from then on its word counts. A book that is wrong costs a retry, because the store refuses to
create a lock twice; it never costs an address.

An address whose lock went before its quarantine was over, because somebody took it back and may not have come to lock
it again, goes on resting here: it is used, for all but attachments of the name that had it.

There is one book for each VNI of a namespace. Names of locks are unique in a namespace, and a VNI is one Network's.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from netloom.control.ipam.views import QUARANTINE, Lock
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.gc import BY_OWNER
from netloom.plan.addresses.blocks import Address, AddressSet, lock_name

Freed = Callable[[Key, str, Address, Key | None], None]
"""Told which lock is gone, the Network and the address it was of, and who gave up on it if somebody did."""


class Book:
    """The addresses used in one VNI."""

    __slots__ = ("v4", "v6")

    def __init__(self) -> None:
        self.v4 = AddressSet()
        self.v6 = AddressSet()

    def of(self, version: int) -> AddressSet:
        """Return the used addresses of one family."""
        return self.v4 if version == 4 else self.v6

    def __len__(self) -> int:
        return len(self.v4) + len(self.v6)


class Books:
    """All books of this process."""

    def __init__(self, cache: Cache[Lock], freed: Freed, *, quarantine: float = 0.0) -> None:
        """`freed` is told of each address that nothing speaks for any more."""
        self._cache = cache
        self._quarantine = quarantine
        self._going: dict[str, float] = {}
        """Since when we know that a lock, by uid, is going."""
        self._resting: dict[Key, Lock] = {}
        """Locks that went before their time."""
        self._freed = freed
        self._books: dict[tuple[str, int], Book] = {}
        self._noted: dict[Key, Lock] = {}
        """Locks we know of besides the informer."""
        self._noted_of: dict[str, dict[Key, None]] = {}
        self._expiry: list[tuple[int, Key]] = []
        self._claimed: dict[Key, int] = {}
        """Locks about to be made."""
        self._former: dict[Key, dict[Key, None]] = {}
        """For each attachment's name, the locks that one of that name has left behind."""
        self._given_back: set[str] = set()
        """The uids of locks we deleted, until the informer knows it."""

    @property
    def revision(self) -> int:
        """Up to where the informer has come."""
        return self._cache.revision

    def book(self, namespace: str, vni: int) -> Book:
        """Return one VNI's book."""
        found = self._books.get((namespace, vni))
        if found is None:
            found = self._books[namespace, vni] = Book()
        return found

    def known(self, namespace: str, vni: int) -> bool:
        """Whether any address of a VNI is used."""
        return bool(self._books.get((namespace, vni)))

    def lock(self, namespace: str, name: str) -> Lock | None:
        """Return a lock, as new as we know it."""
        key = Key(namespace, name)
        cached, noted = self._cache.get(namespace, name), self._noted.get(key)
        if noted is not None and (cached is None or noted.metadata.revision > cached.metadata.revision):
            return noted
        return cached

    def is_claimed(self, key: Key) -> bool:
        """Whether one of our workers is about to make this lock."""
        return key in self._claimed

    def owned(self, uid: str) -> list[Lock]:
        """Return the locks an attachment has, those in quarantine and those given back left out."""
        found: dict[Key, Lock] = {one.key: one for one in self._cache.indexed(BY_OWNER, uid)}
        for key in self._noted_of.get(uid, ()):
            if (noted := self.lock(*key)) is not None:
                found[key] = noted
        return [one for one in found.values() if not one.going and one.metadata.uid not in self._given_back]

    def left_behind(self, attachment: Key, lock: Key) -> None:
        """Know that an attachment is gone, and that a lock is to follow."""
        if self.lock(*lock) is not None:
            self._former.setdefault(attachment, {})[lock] = None

    def former(self, attachment: Key) -> list[Lock]:
        """Return the locks, in quarantine or soon to be, that an attachment of this name had."""
        found = [self.lock(*key) or self._resting.get(key) for key in self._former.get(attachment, ())]
        return [one for one in found if one is not None]

    def resting(self, namespace: str, name: str) -> Lock | None:
        """Return a lock that went before its quarantine was over."""
        return self._resting.get(Key(namespace, name))

    def claim(self, namespace: str, vni: int, one: Address) -> Key:
        """Keep an address from our other workers while its lock is made."""
        key = Key(namespace, lock_name(vni, one))
        self._claimed[key] = self._claimed.get(key, 0) + 1
        self.book(namespace, vni).of(one.version).add(one.number)
        return key

    def unclaim(self, key: Key, vni: int, one: Address, network: str, *, by: Key) -> None:
        """Say that a lock is made, or will not be, by the attachment that had the claim."""
        left = self._claimed.pop(key) - 1
        if left:
            self._claimed[key] = left
        self._drop(key, vni, one, network, by=by)

    def note(self, lock: Lock) -> None:
        """Know of a lock that the informer may not have seen yet."""
        if lock.metadata.revision <= self._cache.revision or not lock.version:
            return
        key = lock.key
        self._noted[key] = lock
        if owner := lock.owner:
            self._noted_of.setdefault(owner.uid, {})[key] = None
        heappush(self._expiry, (lock.metadata.revision, key))
        self.book(key.namespace, lock.vni).of(lock.version).add(lock.number)

    def is_noted(self, lock: Lock) -> bool:
        """Whether we knew of this very version of a lock."""
        noted = self._noted.get(lock.key)
        return noted is not None and noted.metadata.resource_version == lock.metadata.resource_version

    def given_back(self, lock_uid: str) -> None:
        """Know that a lock was deleted by us."""
        self._given_back.add(lock_uid)

    def settle(self) -> None:
        """Forget what the informer knows by now."""
        while self._expiry and self._expiry[0][0] <= self._cache.revision:
            _, key = heappop(self._expiry)
            noted = self._noted.get(key)
            if noted is None or noted.metadata.revision > self._cache.revision:
                continue
            del self._noted[key]
            if (owner := noted.owner) and (keys := self._noted_of.get(owner.uid)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._noted_of[owner.uid]
            self._drop(key, noted.vni, noted.address, noted.network)

    def changed(self, change: Change[Lock]) -> None:
        """Follow the informer."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid or new.going):
            self._given_back.discard(old.metadata.uid)
        if old is not None and (old.going or new is None or new.metadata.uid != old.metadata.uid):
            self._unformer(old)
        if new is not None:
            self._resting.pop(change.key, None)
            if new.going:
                self._going.setdefault(new.metadata.uid, asyncio.get_running_loop().time())
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._rest(change.key, old, self._going.pop(old.metadata.uid, None), gone=new is None)
        if new is not None and new.version:
            self.book(new.metadata.namespace, new.vni).of(new.version).add(new.number)
            if new.going and (owner := new.owner):
                self._former.setdefault(Key(new.metadata.namespace, owner.name), {})[change.key] = None
        elif new is None and old is not None and old.version:
            self._drop(change.key, old.vni, old.address, old.network)

    def _rest(self, key: Key, lock: Lock, since: float | None, *, gone: bool) -> None:
        """Let an address rest for what is left of its quarantine."""
        if not gone or QUARANTINE not in lock.metadata.finalizers:
            return
        loop = asyncio.get_running_loop()
        left = self._quarantine - (loop.time() - since if since is not None else 0.0)
        if left <= 0 or (owner := lock.owner) is None:
            return
        self._resting[key] = lock
        self._former.setdefault(Key(key.namespace, owner.name), {})[key] = None
        loop.call_later(left, self._rested, key, lock)

    def _rested(self, key: Key, lock: Lock) -> None:
        if self._resting.get(key) is not lock:
            return
        del self._resting[key]
        if self.lock(*key) is None:
            self._unformer(lock)
        self._drop(key, lock.vni, lock.address, lock.network)

    def _unformer(self, lock: Lock) -> None:
        if not (owner := lock.owner):
            return
        name = Key(lock.metadata.namespace, owner.name)
        if keys := self._former.get(name):
            keys.pop(lock.key, None)
            if not keys:
                del self._former[name]

    def _drop(self, key: Key, vni: int, one: Address, network: str, *, by: Key | None = None) -> None:
        """Take an address out of its book if nothing speaks for it any more."""
        if key in self._claimed or key in self._noted or key in self._resting or self._cache.get(*key) is not None:
            return
        book = self._books.get((key.namespace, vni))
        if book is None or not book.of(one.version).discard(one.number):
            return
        if not book:
            del self._books[key.namespace, vni]
        self._freed(key, network, one, by)
