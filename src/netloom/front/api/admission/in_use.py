"""What others use is not deleted: 409, and who they are.

Who uses an object is what names it (the table in model/references.py). A Subnet is used by the attachments of its
Network that name it, and by those that hold an address of its block, whether their status says so yet or only an IPLock
of theirs does. A lock whose attachment is gone, as one in quarantine, holds nobody up; nor does an attachment of
another Network, which has no use for the Subnet it names. What goes with the object, because the object owns it, does
not count, nor does the object itself, nor an object of a kind that nothing acts on yet. In a namespace that is being
deleted nothing is refused: the users go, too.

*When.* The users are looked for after the request came; then the store is told to delete unless somebody became a user
since (`Precondition`). Where one process decides all writes (sqlite, memory) nothing comes in between: an object that
was deleted had no user at that revision. Where several share an etcd, a user written through another server at the
same instant may be missed. It then names something that is gone, which every kind has to stand anyhow, since it may
also be written before what it names; an attachment that gets an address at that instant is told by IPAM that its Subnet
is gone, and gives it back. The IPLock, and not this check, is what keeps addresses apart.

*Cost.* No store has an index of fields: to find who names an object is to look at each object of a kind. So one look
serves all who wait for it, as when a collection is deleted; a look that began before a request came does not serve it.
On a Kubernetes cluster's own API none of this runs, and nothing is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from netloom.errors import Cause, Conflict
from netloom.front.api.admission.admission import Operation, Write
from netloom.model import addresses
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.references import Reference, references_to
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.store.base import Precondition, Propagation, Store, Stored

SHOWN = 10
"""How many users are named."""
_AT_ONCE = 1_000
"""How many objects are looked at before others get their turn."""

_ATTACHED = Reference(NETWORK_ATTACHMENT, "spec.network", NETWORK)
_LOCKED = Reference(IP_LOCK, "spec.network", NETWORK)


class User(Struct, frozen=True, order=True):
    """Who uses an object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Look(Struct, frozen=True):
    """What was seen of the objects of one kind."""

    revision: int
    holders: dict[str, list[Stored]]
    """The objects by what they name."""


class InUse:
    """The admission that refuses to delete what others use."""

    def __init__(self, is_terminating: Callable[[str], Awaitable[bool]] | None = None) -> None:
        """`is_terminating` says of a namespace whether it is being deleted with all that is in it."""
        self._is_terminating = is_terminating
        self._next: dict[tuple[Reference, str], list[asyncio.Future[Look | None]]] = {}
        """Who waits for a look that has not begun."""

    async def review(self, write: Write, store: Store) -> Precondition | None:
        """Refuse with the list of users, if there are any; else say whose coming would make it wrong to delete."""
        if write.operation is not Operation.DELETE or write.old is None or not references_to(write.kind):
            return None
        document = write.old.document()
        if document["metadata"].get("deletionTimestamp"):
            return None  # It has been decided, and waits for its finalizers: saying so again changes nothing.
        # What it owns goes with it, unless it is to stay behind.
        owner = "" if write.propagation is Propagation.ORPHAN else document["metadata"]["uid"]
        target = _Target(write.old, document["spec"], owner)
        looks = [await self._look(reference, write.namespace, store) for reference in target.references]
        users = await target.users(looks)
        if users and not await self._goes_too(write.namespace):
            raise in_use(write.kind, write.name, users)
        return Precondition(min(look.revision for look in looks), target.used_by) if not users else None

    async def _goes_too(self, namespace: str) -> bool:
        """Whether the users go as well, because their namespace does."""
        return bool(namespace) and self._is_terminating is not None and await self._is_terminating(namespace)

    async def _look(self, reference: Reference, namespace: str, store: Store) -> Look:
        """Return the objects of `reference.holder` as they are now or later."""
        key = reference, namespace
        while True:
            if key not in self._next:
                return await self._look_for_all(key, store)
            turn: asyncio.Future[Look | None] = asyncio.get_running_loop().create_future()
            self._next[key].append(turn)
            if (found := await turn) is not None:
                return found

    async def _look_for_all(self, key: tuple[Reference, str], store: Store) -> Look:
        """Look, for us and for all who ask before it begins."""
        waiting = self._next[key] = []
        found: Look | None = None
        try:
            await asyncio.sleep(0)  # For those who ask at the same time.
            del self._next[key]
            found = await _looked(*key, store)
            return found
        finally:
            if self._next.get(key) is waiting:
                del self._next[key]
            for turn in waiting:
                if not turn.done():
                    turn.set_result(found)  # None, where we were interrupted: they look themselves.


class _Target(Struct, frozen=True):
    """What is to be deleted, and who uses it."""

    stored: Stored
    spec: Document
    owner: str
    """Its uid, where what it owns goes with it."""

    @property
    def references(self) -> tuple[Reference, ...]:
        """What to look at."""
        return (_ATTACHED, _LOCKED) if self.stored.kind is SUBNET else references_to(self.stored.kind)

    async def users(self, looks: Sequence[Look]) -> list[User]:
        """Return who uses it, in order."""
        name = self.spec["network"] if self.stored.kind is SUBNET else self.stored.name
        seen = [holder for look in looks for holder in look.holders.get(name, ())]
        found = [holder async for holder in _in_turns(seen) if self.used_by(holder)]
        users = {_user(holder) for holder in found if holder.kind is not IP_LOCK}
        users |= {_user(owner) for owner in self._owners(found, seen)}
        return sorted(users)

    def used_by(self, holder: Stored) -> bool:
        """Whether an object uses it; a lock does for its owner."""
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
        """Yield the attachments for whom the locks among `found` are, as far as they are there."""
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
    """Return the error for an object that is used by `users`, in their order."""
    words = [str(user) for user in users[:SHOWN]]
    if len(users) > SHOWN:
        words.append(f"and {len(users) - SHOWN} more")
    listed = ", ".join(words).replace(", and ", " and ")
    return Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": it is used by {listed}',
        causes=[Cause("", word, "InUse") for word in words],
    )


async def _looked(reference: Reference, namespace: str, store: Store) -> Look:
    holders: dict[str, list[Stored]] = {}
    page = await store.list(reference.holder, namespace)
    async for stored in _in_turns(page.items):
        for name in _names(reference, stored):
            holders.setdefault(name, []).append(stored)
    return Look(page.revision, holders)


async def _in_turns(items: Sequence[Stored]) -> AsyncIterator[Stored]:
    """Yield all of them, without keeping the loop for long."""
    for number, stored in enumerate(items, start=1):
        yield stored
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _names(reference: Reference, stored: Stored) -> set[str]:
    if reference.selectable:
        return {stored.facets().fields[reference.path]}  # Known already where anybody selects by it.
    return set(reference.names(stored.document()))


def _is(one: Stored, other: Stored) -> bool:
    return (one.kind, one.namespace, one.name) == (other.kind, other.namespace, other.name)


def _owned(holder: Stored, uid: str) -> bool:
    """Whether an object goes with its owner `uid`."""
    if not uid or uid.encode() not in holder.raw:
        return False
    owners = holder.document()["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def _user(holder: Stored) -> User:
    return User(holder.kind.name, holder.namespace, holder.name)


def _owners(lock: Document) -> Iterator[tuple[str, str]]:
    """Yield name and uid of those for whom a lock holds an address; nobody, once it is on its way out."""
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
