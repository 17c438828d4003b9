"""What others use is not deleted: 409, and who they are.

Who uses an object is what names it (the table in model/references.py). A Subnet is used, besides, by the attachments
that hold an address of its block, whether their status says so yet or only an IPLock of theirs does; a lock whose
attachment is gone, as one in quarantine, holds nobody up. What goes with the object, because the object owns it, does
not count, nor does the object itself.

*When.* The state that counts is read after the request came and before the store deletes, so whatever was stored when
the request came is seen. A user that is written at the same moment may come before or after: then it names something
that is gone, which every kind has to stand anyhow, since it may also be written before what it names. An attachment
that gets an address at that moment is told by IPAM that its Subnet is gone, and gives it back: the IPLock, not this
check, is what keeps addresses apart.

*Cost.* No store has an index of fields: to find who names an object is to look at each object of a kind. So one look
serves all who wait for it, as when a collection is deleted; a look that began before a request came does not serve it.
On a Kubernetes cluster's own API none of this runs, and nothing is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from netloom.errors import Cause, Conflict
from netloom.front.api.admission import Operation, Write
from netloom.model import addresses
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.references import Reference, references_to
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.store.base import Propagation, Store, Stored

SHOWN = 10
"""How many users are named."""
_AT_ONCE = 1_000
"""How many objects are looked at before others get their turn."""

_ATTACHED = Reference(NETWORK_ATTACHMENT, "spec.network", NETWORK)
_LOCKED = Reference(IP_LOCK, "spec.network", NETWORK)

Holders = dict[str, list[Stored]]
"""Objects by what they name."""


class User(Struct, frozen=True, order=True):
    """Who uses an object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class InUse:
    """The admission that refuses to delete what others use."""

    def __init__(self) -> None:
        self._next: dict[tuple[Reference, str], list[asyncio.Future[Holders | None]]] = {}
        """Who waits for a look that has not begun."""

    async def review(self, write: Write, store: Store) -> None:
        """Refuse with the list of users, if there are any."""
        if write.operation is not Operation.DELETE or write.old is None or not references_to(write.kind):
            return
        target = write.old.document()
        if target["metadata"].get("deletionTimestamp"):
            return  # It has been decided, and waits for its finalizers: saying so again changes nothing.
        # What it owns goes with it, unless it is to stay behind.
        uid = "" if write.propagation is Propagation.ORPHAN else target["metadata"]["uid"]
        users = sorted({user async for user in self._users(write.old, target, uid, store)})
        if users:
            raise in_use(write.kind, write.name, users)

    async def _users(self, stored: Stored, target: Document, uid: str, store: Store) -> AsyncIterator[User]:
        """Yield who uses the target, but for who goes with its owner `uid`."""
        for reference in references_to(stored.kind):
            if reference.target is SUBNET:
                continue  # Below, where only the attachments of its Network are looked at.
            holders = await self._holders(reference, stored.namespace, store)
            for holder in holders.get(stored.name, ()):
                if not _is(holder, stored) and not _owned(holder, uid):
                    yield _user(holder)
        if stored.kind is SUBNET:
            async for user in self._users_of_subnet(stored, target["spec"], uid, store):
                yield user

    async def _users_of_subnet(self, stored: Stored, spec: Document, uid: str, store: Store) -> AsyncIterator[User]:
        attachments = (await self._holders(_ATTACHED, stored.namespace, store)).get(spec["network"], ())
        if not attachments:
            return
        locks = (await self._holders(_LOCKED, stored.namespace, store)).get(spec["network"], ())
        owners = {owner async for lock in _in_turns(locks) for owner in _locking(lock.document(), spec["cidr"])}
        async for attachment in _in_turns(attachments):
            document = attachment.document()
            if _owned(attachment, uid):
                continue
            named = stored.name in document["spec"].get("subnets", ())
            if named or document["metadata"]["uid"] in owners or _holds(document, spec["cidr"]):
                yield _user(attachment)

    async def _holders(self, reference: Reference, namespace: str, store: Store) -> Holders:
        """Return the objects of `reference.holder`, by the names in the field, as they are now or later."""
        key = reference, namespace
        while True:
            if key not in self._next:
                return await self._look(key, store)
            turn: asyncio.Future[Holders | None] = asyncio.get_running_loop().create_future()
            self._next[key].append(turn)
            if (found := await turn) is not None:
                return found

    async def _look(self, key: tuple[Reference, str], store: Store) -> Holders:
        """Look, for us and for all who ask before it begins."""
        waiting = self._next[key] = []
        found: Holders | None = None
        try:
            await asyncio.sleep(0)  # For those who ask at the same time.
            del self._next[key]
            found = await _look(*key, store)
            return found
        finally:
            if self._next.get(key) is waiting:
                del self._next[key]
            for turn in waiting:
                if not turn.done():
                    turn.set_result(found)  # None, where we were interrupted: they look themselves.


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


async def _look(reference: Reference, namespace: str, store: Store) -> Holders:
    found: Holders = {}
    async for stored in _in_turns((await store.list(reference.holder, namespace)).items):
        for name in _names(reference, stored):
            found.setdefault(name, []).append(stored)
    return found


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


def _locking(lock: Document, cidr: str) -> list[str]:
    """Return the uids of the owners of a lock that is held and within the block."""
    metadata = lock["metadata"]
    if metadata.get("deletionTimestamp") or not addresses.within(lock["spec"]["ip"], cidr):
        return []
    return [owner.get("uid", "") for owner in metadata.get("ownerReferences") or ()]


def _holds(attachment: Document, cidr: str) -> bool:
    """Whether the status of an attachment has an address of the block."""
    status = attachment.get("status") or {}
    held = [ip.partition("/")[0] for ip in status.get("ips") or ()]
    held += [lock["ip"] for lock in status.get("locks") or ()]
    return any(addresses.within(ip, cidr) for ip in held)
