"""The state of a store in this process: current objects, history, and the decision of writes.

Two steps are separate so that a durable store can be made of the same parts. *Deciding* computes from a
state what a write changes; *applying* changes the state and notifies the watchers. The memory store does both at once,
the sqlite store commits between them. `LocalStore` is what the two have in common.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random, SystemRandom
from typing import NamedTuple

from netloom.errors import AlreadyExists, Cause, Expired, Internal, TimedOut, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.values import uids
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Page, Precondition, PreconditionFailed, Propagation, Stored, Watch
from netloom.store.collection import Collection
from netloom.store.damage import Unreadable, placeholder
from netloom.store.hub import Change, Hub
from netloom.store.paging import position, too_old
from netloom.store.semantics import (
    SUFFIX_ALPHABET,
    SUFFIX_LENGTH,
    Verdict,
    WriteOutcome,
    already_exists,
    encode_new,
    encode_outcome,
    key_of,
    not_found,
    prepare_create,
    prepare_delete,
    prepare_update,
    restamp,
    stamp,
)

FIRST_REVISION = 1
"""The revision of an empty store.  Not 0, which to Kubernetes' clients means "any"."""
_NAME_ATTEMPTS = 8

Lookup = Callable[[Kind, str], Stored | None]


class Decision(NamedTuple):
    """The result of a write, and the change it makes, if any."""

    result: Stored
    change: Change | None


Write = Callable[[Lookup, int], Decision]
"""A write to be decided, given the state and the revision it would get."""


@dataclass(slots=True)
class Minter:
    """The source of times, uids and random names; a simulation has its own."""

    clock: Callable[[], float]
    random: Random = field(default_factory=SystemRandom)

    def uid(self, now: float) -> str:
        """Return a new uid with the time `now` in it."""
        return uids.mint(now, self.random.getrandbits(62))

    def suffix(self) -> str:
        """Return a random suffix for a generated name."""
        return "".join(self.random.choices(SUFFIX_ALPHABET, k=SUFFIX_LENGTH))


def creation(kind: Kind, document: Document, minter: Minter) -> Write:
    """Return the write that creates `document`.  It is encoded here, so later changes to it have no effect."""
    generated = not (document.get("metadata") or {}).get("name")
    first = candidate(kind, document, minter)

    def decide(lookup: Lookup, revision: int) -> Decision:
        namespace, name, body = first
        for _ in range(_NAME_ATTEMPTS if generated else 0):
            if lookup(kind, key_of(namespace, name)) is None:
                break
            namespace, name, body = candidate(kind, document, minter)
        key = key_of(namespace, name)
        if lookup(kind, key) is not None:
            raise already_exists(kind, name)
        made = stamp(kind, namespace, name, revision, body)
        return Decision(made, Change(revision, kind, key, namespace, made, None))

    return decide


def candidate(kind: Kind, document: Document, minter: Minter) -> tuple[str, str, bytes]:
    """Return the namespace, the name and the bytes of what is to be created; another name each time it is generated."""
    suffix = "" if (document.get("metadata") or {}).get("name") else minter.suffix()
    now = minter.clock()
    made = prepare_create(kind, document, now=now, uid=minter.uid(now), suffix=suffix)
    return made["metadata"].get("namespace", ""), made["metadata"]["name"], encode_new(kind, made)


def replacement(kind: Kind, document: Document, subresource: str) -> Write:
    """Return the write that replaces an object by `document`."""
    metadata = document["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]

    def decide(lookup: Lookup, revision: int) -> Decision:
        old = _present(lookup, kind, namespace, name)
        return _carried_out(prepare_update(kind, old.document(), document, subresource=subresource), old, revision)

    return decide


def deletion(
    kind: Kind, namespace: str, name: str, *, propagation: Propagation, uid: str, revision: int | None, now: float
) -> Write:
    """Return the write that deletes an object."""

    def decide(lookup: Lookup, at: int) -> Decision:
        old = _present(lookup, kind, namespace, name)
        outcome = prepare_delete(kind, old.document(), propagation=propagation, uid=uid, revision=revision, now=now)
        return _carried_out(outcome, old, at)

    return decide


def check(unless: Precondition, hub: Hub, deciding: Iterable[Change] = ()) -> None:
    """Raise `PreconditionFailed` if something was written, or is `deciding` to be, that `unless` forbids."""
    try:
        written = hub.after(unless.since)
    except Expired:
        raise PreconditionFailed("too much was written meanwhile to say whether it matters") from None
    for change in chain(written, deciding):
        if change.new is not None and unless.forbids(change.new):
            raise PreconditionFailed(f"{change.kind.name} {change.key} was written meanwhile")


def _present(lookup: Lookup, kind: Kind, namespace: str, name: str) -> Stored:
    found = lookup(kind, key_of(namespace, name))
    if found is None:
        raise not_found(kind, name)
    return found


def _carried_out(outcome: WriteOutcome, old: Stored, revision: int) -> Decision:
    if outcome.verdict is Verdict.SAME:
        return Decision(old, None)
    kind, key = old.kind, key_of(old.namespace, old.name)
    new = stamp(kind, old.namespace, old.name, revision, encode_outcome(outcome, old))
    kept = None if outcome.verdict is Verdict.REMOVE else new
    return Decision(new, Change(revision, kind, key, old.namespace, kept, old))


def pretended(decision: Decision) -> Stored:
    """Return the answer to a dry run: the result, at the revision of the stored object."""
    if decision.change is None:
        return decision.result
    return restamp(decision.result, decision.change.old.revision if decision.change.old else 0)


class LocalStore(ABC):
    """A `Store` whose present objects are in this process's memory; how writes become durable is left to subclasses."""

    def __init__(
        self,
        hub: Hub,
        minter: Minter,
        kinds: Container[Kind] | None = None,
        objects: Iterable[Stored] = (),
        damaged: Iterable[Damaged] = (),
    ) -> None:
        """Store objects of `kinds`, or of any kind; `objects` are those of an earlier run."""
        self._hub = hub
        self._minter = minter
        self._kinds = kinds
        found: dict[Kind, dict[str, Stored]] = {}
        for stored in objects:
            found.setdefault(stored.kind, {})[key_of(stored.namespace, stored.name)] = stored
        self._collections = {kind: Collection(items) for kind, items in found.items()}
        self._damaged = {(one.kind, key_of(one.namespace, one.name)): one for one in damaged}
        self._deciding: list[Change] = []
        """The changes of the current batch so far."""
        self._closed = False

    @abstractmethod
    def _submit(self, write: Write, *, dry_run: bool) -> Awaitable[Stored]:
        """Decide a write, make it durable and apply it."""

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        self._check(kind)
        write = creation(kind, document, self._minter)

        def decide(lookup: Lookup, revision: int) -> Decision:
            try:
                return write(lookup, revision)
            except Unreadable as error:
                raise AlreadyExists(error.message) from error

        return await self._submit(decide, dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now."""
        self._check(kind)
        self._check_readable(kind, key_of(namespace, name))
        return _present(self._lookup, kind, namespace, name)

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        """Return the objects of a kind."""
        self._check(kind)
        start = ""
        at = self._hub.revision if revision is None else revision
        if token:
            where = position(token, revision=revision)
            at, start = where.rv, where.start
        try:
            collection = self._collection_at(kind, at)
        except Expired as error:
            raise too_old() if token else error from None
        return collection.page(namespace, selector, at, limit, start)

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`."""
        self._check(kind)
        if since > self._hub.revision:
            # Only a store that lost its history is asked this: the watcher must list again.
            raise Expired(f"too large resource version: {since}, current: {self._hub.revision}")
        return self._hub.watch(kind, namespace, selector, since)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or its status."""
        self._check(kind)
        return await self._submit(replacement(kind, document, subresource), dry_run=dry_run)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete an object and return its last state."""
        self._check(kind)
        now = self._minter.clock()
        write = deletion(kind, namespace, name, propagation=propagation, uid=uid, revision=revision, now=now)

        def decide(lookup: Lookup, at: int) -> Decision:
            if unless is not None:
                check(unless, self._hub, self._deciding)
            try:
                return write(lookup, at)
            except Unreadable as error:
                if uid or revision is not None:
                    raise
                one = error.damaged
                return Decision(placeholder(one), Change(at, kind, key_of(namespace, name), namespace, None, None))

        return await self._submit(decide, dry_run=dry_run)

    async def revision(self) -> int:
        """Return the revision of the newest write."""
        self._check_open()
        return self._hub.revision

    async def damaged(self) -> Sequence[Damaged]:
        """Return the objects that are set aside."""
        return list(self._damaged.values())

    def _check(self, kind: Kind) -> None:
        self._check_open()
        if self._kinds is not None and kind not in self._kinds:
            raise Internal(f"this store was opened without {kind.qualified}")

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("the store is closed")

    def _check_readable(self, kind: Kind, key: str) -> None:
        if (kind, key) in self._damaged:
            raise Unreadable(self._damaged[kind, key])

    def _lookup(self, kind: Kind, key: str) -> Stored | None:
        """Return one object, or None."""
        collection = self._collections.get(kind)
        return None if collection is None else collection.items.get(key)

    def _apply(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Apply decided changes and publish them to watchers; return the changes that left the history."""
        for change in changes:
            self._collections.setdefault(change.kind, Collection()).put(change.key, change.new)
        return self._hub.publish(changes)

    def _collection_at(self, kind: Kind, revision: int) -> Collection:
        current = self._collections.get(kind, Collection())
        if revision == self._hub.revision:
            return current
        if revision > self._hub.revision:
            raise TimedOut(
                f"Too large resource version: {revision}, current: {self._hub.revision}",
                causes=[Cause("", "Too large resource version", "ResourceVersionTooLarge")],
            )
        before: dict[str, Stored | None] = {}
        for change in self._hub.after(revision):
            if change.kind is kind:
                before.setdefault(change.key, change.old)
        if not before:
            return current
        then = {key: stored for key, stored in (current.items | before).items() if stored is not None}
        return Collection(then, indexed=False)
