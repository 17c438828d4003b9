"""Making, keeping and giving back IPLocks, one step of `ipam` each.  Why these steps are safe is said there.

The end of a lock: the quarantine of freed addresses, and locks whose owner is gone.

A deleted IPLock stays, with its deletion time, as long as its finalizer does; so its name cannot be created again, and
no restart forgets it. The quarantine lasts from the moment this process saw the deletion, by its own clock: the store's
time of day is another machine's. After a restart it begins anew; an address may rest longer than told, never shorter.
"""

import asyncio
from collections.abc import Iterable

from netloom.control.ipam.ledger import Books
from netloom.control.ipam.views import DECIDED, QUARANTINE, Attachment, Lock, lock_view
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.gc import BY_UID
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Document
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.plan.addresses.allocation import Held
from netloom.plan.addresses.blocks import Address, lock_name, text

ATTEMPTS = 8


class Locksmith:
    """Makes locks for attachments."""

    def __init__(self, client: Client, books: Books, *, quarantine: float) -> None:
        self._client = client
        self._books = books
        self._finalizers = [QUARANTINE] if quarantine > 0 else []
        self._made: dict[tuple[str, str], int] = {}

    def is_mine(self, view: Attachment, lock: Lock) -> bool:
        """Whether a lock is this attachment's."""
        owner = lock.owner
        return owner is not None and owner.uid == view.metadata.uid and not lock.going

    def may_have(self, view: Attachment, lock: Lock) -> bool:
        """Whether a lock is this attachment's, or was that of one of its name that is gone.

        Of two of one name the one we see lives, unless we are behind. The lock of a later one was decided on later.
        """
        owner = lock.owner
        if owner is None or owner.name != view.metadata.name or lock.metadata.namespace != view.metadata.namespace:
            return False
        if owner.uid == view.metadata.uid:
            return True
        return lock.going or 0 < lock.decided < view.metadata.revision

    def made(self, lock: Lock) -> bool:
        """Whether the informer tells of a lock we made, for the first time."""
        if self._made.get(lock.key) != lock.metadata.revision:
            return False
        del self._made[lock.key]
        return True

    async def take(self, view: Attachment, vni: int, one: Address) -> Lock:
        """Return the lock of an address: this attachment's, made if need be, or whoever's it is."""
        # Claimed all the while: between letting go of an old lock and making a new one the address is nobody else's.
        claimed = self._books.claim(view.metadata.namespace, vni, one)
        try:
            for _ in range(ATTEMPTS):
                lock = self._books.lock(*claimed)
                if lock is not None:
                    if not self.may_have(view, lock):
                        return lock
                    if self.is_mine(view, lock):
                        return await self._touched(view, lock)
                    await self._check_current(view)
                    await self._take_back(lock)
                if (made := await self._create(view, vni, one)) is not None:
                    return made
        finally:
            self._books.unclaim(claimed, vni, one, view.network, by=view.key)
        raise Conflict(f"{claimed} comes and goes")

    async def adopt(self, view: Attachment, held: Held) -> Lock:
        """Return a lock that the attachment owns and its status does not name, so that it may be named now."""
        lock = self._books.lock(view.metadata.namespace, held.name)
        if lock is None or lock.metadata.uid != held.uid:
            raise Conflict(f"{held.name} is gone")
        return await self._touched(view, lock)

    async def release(self, view: Attachment, held: Held) -> None:
        """Give a lock back that is no longer wanted."""
        await self._client.delete(IP_LOCK, view.metadata.namespace, held.name, uid=held.uid, revision=held.revision)
        self._books.given_back(held.uid)

    async def _create(self, view: Attachment, vni: int, one: Address) -> Lock | None:
        """Create a lock; None: it is there already, and noted as it is now."""
        try:
            made = await self._client.create_document(IP_LOCK, self._document(view, vni, one))
        except AlreadyExists:
            try:
                self._books.note(
                    lock_view(await self._client.read(IP_LOCK, view.metadata.namespace, lock_name(vni, one)))
                )
            except NotFound:
                pass  # Gone meanwhile.
            return None
        lock = lock_view(made)
        self._books.note(lock)
        if lock.metadata.revision > self._books.revision:
            self._made[lock.key] = lock.metadata.revision
        return lock

    async def _touched(self, view: Attachment, lock: Lock) -> Lock:
        """Make a lock say that it was decided on at the attachment's present revision."""
        if lock.decided == view.metadata.revision:
            return lock
        try:
            document = await self._client.document(IP_LOCK, *lock.key)
        except NotFound:
            raise Conflict(f"{lock.metadata.name} is gone") from None
        metadata = document["metadata"]
        if metadata["uid"] != lock.metadata.uid or metadata.get("deletionTimestamp"):
            raise Conflict(f"{lock.metadata.name} is going")
        metadata.setdefault("annotations", {})[DECIDED] = view.metadata.resource_version
        touched = lock_view(await self._client.replace(IP_LOCK, document))
        self._books.note(touched)
        return touched

    async def _check_current(self, view: Attachment) -> None:
        """Refuse to end a quarantine for an attachment that, as the store says, is gone or has changed."""
        try:
            live = (await self._client.document(NETWORK_ATTACHMENT, *view.key))["metadata"]
        except NotFound:
            raise Conflict(f"{view.key} is gone") from None
        if live["uid"] != view.metadata.uid or live["resourceVersion"] != view.metadata.resource_version:
            raise Conflict(f"{view.key} has changed")

    async def _take_back(self, lock: Lock) -> None:
        """Let go of a lock that was ours; if somebody else was faster, creating ours will tell."""
        meta = lock.metadata
        try:
            if lock.going:
                await lift(self._client, lock)
                return
            await self._client.delete(IP_LOCK, *lock.key, uid=meta.uid, revision=meta.revision)
            if meta.finalizers:
                left = lock_view(await self._client.read(IP_LOCK, *lock.key))
                if left.going and left.metadata.uid == meta.uid:  # Another of that name is somebody's.
                    await lift(self._client, left)
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


async def lift(client: Client, lock: Lock) -> None:
    """Take the quarantine's finalizer from a lock that is going, so that it goes."""
    meta = lock.metadata
    if meta.finalizers != (QUARANTINE,) or len(meta.owner_references) != 1:
        document = await client.document(IP_LOCK, *lock.key)
        if document["metadata"]["uid"] != meta.uid:
            raise Conflict(f"{meta.name} is another by now")
        finalizers = document["metadata"].get("finalizers") or []
        document["metadata"]["finalizers"] = [name for name in finalizers if name != QUARANTINE]
        await client.replace(IP_LOCK, document)
        return
    # It ends with this write, so nothing but what identifies it matters; that saves reading it.
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
