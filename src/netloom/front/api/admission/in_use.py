"""Refuse to delete an object that others use: 409 with the list of users.

The users of an object are the objects that name it (the table in model/references.py). A Subnet is used by the
attachments of its Network that name it, and by those that hold an address of its block, in their status or only in an
IPLock. A lock without its attachment, such as one in quarantine, blocks nothing; nor does an attachment of another
Network, which cannot use the Subnet that it names. Dependents that are deleted with the object do not count, nor does
the object itself, nor an object of a kind without an implementation. In a namespace that is being deleted nothing is
refused: the users go, too.

*When.* The users are listed after the request has arrived; then the store deletes unless another user was created since
(`Precondition`). Where one process decides all writes (sqlite, memory) nothing can come between: a deleted object had
no user at that revision. Where several servers share an etcd, a user that is written through another server at the same
instant may be missed. It then names a deleted object, which every kind must handle anyway, since it may also be written
before the object that it names; an attachment that gets an address at that instant learns from IPAM that its Subnet is
gone, and releases it. The IPLock, not this check, keeps addresses unique.

*Cost.* No store has an index of fields: finding the users means reading every object of a kind. So one snapshot serves
all concurrent requests, as when a collection is deleted; a snapshot that began before a request does not serve it. On a
Kubernetes cluster's own API none of this runs, and nothing is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from netloom.errors import Cause, Conflict
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.references import Reference, references_to
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.model.values import addresses
from netloom.store.base import Precondition, Propagation, Store, Stored

SHOWN = 10
"""How many users an error names."""
_AT_ONCE = 1_000
"""How many objects to read before other tasks get their turn."""

_ATTACHED = Reference(NETWORK_ATTACHMENT, "spec.network", NETWORK)
_LOCKED = Reference(IP_LOCK, "spec.network", NETWORK)


class User(Struct, frozen=True, order=True):
    """A user of an object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Snapshot(Struct, frozen=True):
    """The objects of one kind at one revision."""

    revision: int
    holders: dict[str, list[Stored]]
    """The objects by the names that they refer to."""


class InUse:
    """The admission that refuses to delete objects in use."""

    def __init__(self, is_terminating: Callable[[str], Awaitable[bool]] | None = None) -> None:
        """`is_terminating` returns whether a namespace is being deleted with everything in it."""
        self._is_terminating = is_terminating
        self._next: dict[tuple[Reference, str], list[asyncio.Future[Snapshot | None]]] = {}
        """The requests that wait for a snapshot that has not begun."""

    async def review(self, write: Write, store: Store) -> Precondition | None:
        """Refuse with the list of users, if there are any; else return the precondition: no new users."""
        if write.operation is not WriteOperation.DELETE or write.old is None or not references_to(write.kind):
            return None
        document = write.old.document()
        if document["metadata"].get("deletionTimestamp"):
            return None  # The deletion was admitted before, and waits for finalizers: repeating it changes nothing.
        # Dependents are deleted with it, unless they are orphaned.
        owner = "" if write.propagation is Propagation.ORPHAN else document["metadata"]["uid"]
        target = _Target(write.old, document["spec"], owner)
        snapshots = [await self._snapshot(reference, write.namespace, store) for reference in target.references]
        users = await target.users(snapshots)
        if not users:
            return Precondition(min(snapshot.revision for snapshot in snapshots), target.used_by)
        if write.namespace and self._is_terminating is not None and await self._is_terminating(write.namespace):
            return None  # The users are deleted as well, with their namespace.
        raise in_use(write.kind, write.name, users)

    async def _snapshot(self, reference: Reference, namespace: str, store: Store) -> Snapshot:
        """Return the objects of `reference.holder` at a revision not older than this call."""
        key = reference, namespace
        while True:
            if key not in self._next:
                return await self._shared_snapshot(key, store)
            turn: asyncio.Future[Snapshot | None] = asyncio.get_running_loop().create_future()
            self._next[key].append(turn)
            if (found := await turn) is not None:
                return found

    async def _shared_snapshot(self, key: tuple[Reference, str], store: Store) -> Snapshot:
        """Take a snapshot for this request and for all that ask before it begins."""
        waiting = self._next[key] = []
        found: Snapshot | None = None
        try:
            await asyncio.sleep(0)  # For concurrent requests.
            del self._next[key]
            found = await _take_snapshot(*key, store)
            return found
        finally:
            if self._next.get(key) is waiting:
                del self._next[key]
            for turn in waiting:
                if not turn.done():
                    turn.set_result(found)  # None if we were cancelled: they take their own.


class _Target(Struct, frozen=True):
    """The object to delete."""

    stored: Stored
    spec: Document
    owner: str
    """Its uid, if its dependents are deleted with it."""

    @property
    def references(self) -> tuple[Reference, ...]:
        """The references to check."""
        return (_ATTACHED, _LOCKED) if self.stored.kind is SUBNET else references_to(self.stored.kind)

    async def users(self, snapshots: Sequence[Snapshot]) -> list[User]:
        """Return its users, sorted."""
        name = self.spec["network"] if self.stored.kind is SUBNET else self.stored.name
        seen = [holder for snapshot in snapshots for holder in snapshot.holders.get(name, ())]
        found = [holder async for holder in _in_turns(seen) if self.used_by(holder)]
        users = {_user(holder) for holder in found if holder.kind is not IP_LOCK}
        users |= {_user(owner) for owner in self._owners(found, seen)}
        return sorted(users)

    def used_by(self, holder: Stored) -> bool:
        """Whether an object uses it; a lock counts for its owner."""
        kind = self.stored.kind
        if kind.namespaced and holder.namespace != self.stored.namespace:
            return False
        if _is(holder, self.stored) or _owned(holder, self.owner):
            return False
        if kind is not SUBNET:
            names = (_names(one, holder) for one in references_to(kind) if one.holder is holder.kind)
            return any(self.stored.name in some for some in names)
        if holder.kind not in (NETWORK_ATTACHMENT, IP_LOCK):
            return False
        document = holder.document()
        if document["spec"]["network"] != self.spec["network"]:
            return False
        if holder.kind is IP_LOCK:
            return any(True for _ in _owners(document)) and _within([document["spec"]["ip"]], self.spec["cidr"])
        return self.stored.name in document["spec"].get("subnets", ()) or _within(_held(document), self.spec["cidr"])

    def _owners(self, found: Iterable[Stored], seen: Iterable[Stored]) -> Iterator[Stored]:
        """Yield the existing attachments that own the locks among `found`."""
        locks = [holder for holder in found if holder.kind is IP_LOCK]
        attachments = {one.name: one for one in seen if one.kind is NETWORK_ATTACHMENT} if locks else {}
        for lock in locks:
            for name, uid in _owners(lock.document()):
                attachment = attachments.get(name)
                if attachment is None or attachment.document()["metadata"]["uid"] != uid:
                    continue
                if not _owned(attachment, self.owner):
                    yield attachment


def in_use(kind: Kind, name: str, users: list[User]) -> Conflict:
    """Return the error for an object with `users`, in their order."""
    words = [str(user) for user in users[:SHOWN]]
    if len(users) > SHOWN:
        words.append(f"and {len(users) - SHOWN} more")
    listed = ", ".join(words).replace(", and ", " and ")
    return Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": it is used by {listed}',
        causes=[Cause("", word, "InUse") for word in words],
    )


async def _take_snapshot(reference: Reference, namespace: str, store: Store) -> Snapshot:
    holders: dict[str, list[Stored]] = {}
    page = await store.list(reference.holder, namespace)
    async for stored in _in_turns(page.items):
        for name in _names(reference, stored):
            holders.setdefault(name, []).append(stored)
    return Snapshot(page.revision, holders)


async def _in_turns(items: Sequence[Stored]) -> AsyncIterator[Stored]:
    """Yield all items, and let other tasks run in between."""
    for number, stored in enumerate(items, start=1):
        yield stored
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _names(reference: Reference, stored: Stored) -> set[str]:
    if reference.selectable:
        return {stored.facets().fields[reference.path]}  # Already decoded if anything selects by it.
    return set(reference.names(stored.document()))


def _is(one: Stored, other: Stored) -> bool:
    return (one.kind, one.namespace, one.name) == (other.kind, other.namespace, other.name)


def _owned(holder: Stored, uid: str) -> bool:
    """Whether an object is deleted with its owner `uid`."""
    if not uid or uid.encode() not in holder.raw:
        return False
    owners = holder.document()["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def _user(holder: Stored) -> User:
    return User(holder.kind.name, holder.namespace, holder.name)


def _owners(lock: Document) -> Iterator[tuple[str, str]]:
    """Yield name and uid of the owners of a lock; none, once it is being released."""
    metadata = lock["metadata"]
    if not metadata.get("deletionTimestamp"):
        yield from ((owner.get("name", ""), owner.get("uid", "")) for owner in metadata.get("ownerReferences") or ())


def _held(attachment: Document) -> list[str]:
    """Return the addresses in an attachment's status."""
    status = attachment.get("status") or {}
    ips = [ip.partition("/")[0] for ip in status.get("ips") or ()]
    return ips + [lock["ip"] for lock in status.get("locks") or ()]


def _within(ips: Iterable[str], cidr: str) -> bool:
    return any(addresses.within(ip, cidr) for ip in ips)
