"""Garbage collection: dependents are deleted with their owners, as by the garbage collector of Kubernetes.

It runs on our own stores; Kubernetes has its own. There are three policies, chosen when the owner is deleted:

- background: the owner is removed at once; dependents whose owners are *all* gone are deleted afterwards;
- foreground: the owner has the finalizer `foregroundDeletion` until the dependents with `blockOwnerDeletion` are gone;
- orphan: the owner has the finalizer `orphan` until no dependent names it any more.

The collector must never delete an object with an existing owner. It considers an owner absent only after a live read:
the store has no object of that kind and name, or one with another uid. Where it cannot decide (an unknown kind, an
unreachable store, an owner in another namespace) it leaves the object alone and records an Event. A deletion carries
the uid and the revision of the object as it was checked: an object that got another owner in between is checked again.

Dependents that block, or that must be orphaned, are found by a live list and not in the caches, because a dependent
that the cache does not have yet would be lost. An owner in a namespace has dependents only there: an object in another
namespace that names it, which any user with permissions there can create, does not block its deletion.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

import msgspec

from netloom.control.runtime.cache import Change, Indexer, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.errors import NotFound
from netloom.model.document import Document, OwnerReference, Value
from netloom.model.kind import Kind, Registry
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import KINDS
from netloom.store.base import Propagation, Store, Stored

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
BY_OWNER = "owner"
BY_UID = "uid"
INDEXES: dict[str, Indexer[Any]] = {
    BY_OWNER: lambda one: [owner.uid for owner in one.metadata.owner_references],
    BY_UID: lambda one: (one.metadata.uid,),
}
"""The indexes of every informer that the collector uses."""
SOON = 1.0
WORKERS = 64
"""Many, because deletions made at the same time share a request and a commit."""


class ItemMeta(Value, frozen=True, kw_only=True):
    """The metadata that the collector keeps, of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Item(Value, frozen=True, kw_only=True):
    """The part of an object that the collector keeps."""

    metadata: ItemMeta = ItemMeta()


class ItemKey(NamedTuple):
    """The kind, namespace and name of an object."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {Key(self.namespace, self.name)}"


class State(Enum):
    """The state of an owner."""

    EXISTS = auto()
    WAITING = auto()
    """It is deleted in the foreground: it waits until its dependents are gone."""
    ABSENT = auto()
    UNKNOWN = auto()


def item(stored: Stored) -> Item:
    """Decode the part of an object that the collector keeps."""
    return msgspec.json.decode(stored.raw, type=Item)


def collected_informers(
    store: Store, *, random: Random, registry: Registry = KINDS, shared: Iterable[Informer[Any]] = ()
) -> list[Informer[Item]]:
    """Return the informers that a `Collector` needs, one of each kind.

    Informers that are `shared` with other controllers are used as they are: their values have an `ItemMeta`, and they
    have the same indexes.
    """
    have = {informer.kind: informer for informer in shared}
    return [have.get(kind) or Informer(store, kind, item, random=random, indexes=INDEXES) for kind in registry]


class Collector:
    """Reconciles objects of all kinds, as dependents and as owners."""

    def __init__(
        self, client: Client, informers: Sequence[Informer[Item]], recorder: Recorder, *, registry: Registry = KINDS
    ) -> None:
        self._client = client
        self._informers = {(informer.kind.api_version, informer.kind.name): informer for informer in informers}
        self._recorder = recorder
        self._registry = registry

    def changed(self, kind: Kind, change: Change[Item]) -> Iterable[ItemKey]:
        """Return the object, its dependents if it is gone, and owners that wait for it."""
        key = ItemKey(kind.api_version, kind.name, *change.key)
        if change.new is not None and _is_relevant(change.new) and not self._needs_nothing(key, change.new.metadata):
            yield key
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            yield from self._dependents(change.old.metadata.uid)
        elif change.new is not None and change.new.metadata.deletion_timestamp:
            yield from self._dependents(change.new.metadata.uid)
        for owner in change.old.metadata.owner_references if change.old else ():
            # Its owner may wait for a dependent that is gone, or does not name it any more.
            yield from self._waiting_owner(owner)

    def all_keys(self) -> Iterable[ItemKey]:
        """Return the keys of all objects with owners or finalizers of the collector, unless they need no action."""
        return [
            item_key
            for informer in self._informers.values()
            for key, value in informer.cache.items()
            if _is_relevant(value)
            for item_key in [ItemKey(informer.kind.api_version, informer.kind.name, *key)]
            if not self._needs_nothing(item_key, value.metadata)
        ]

    def event_target(self, key: ItemKey) -> ObjectReference:
        """Return the object of a key, for Events."""
        found = self._cached(key)
        uid = found.metadata.uid if found else ""
        return ObjectReference(
            kind=key.kind, namespace=key.namespace, name=key.name, uid=uid, api_version=key.api_version
        )

    async def reconcile(self, key: ItemKey) -> float | None:
        """Process one object, as an owner and as a dependent."""
        cached = self._cached(key)
        if cached is None or self._needs_nothing(key, cached.metadata):
            return None
        kind = self._registry.kind(key.api_version, key.kind)
        try:
            document = await self._client.document(kind, key.namespace, key.name)
        except NotFound:
            return None
        live = msgspec.convert(document, Item)
        meta = live.metadata
        if meta.deletion_timestamp:
            if FOREGROUND in meta.finalizers:
                return await self._finish_foreground(kind, document, meta)
            if ORPHAN in meta.finalizers:
                await self._finish_orphan(kind, document, meta)
            return None
        if meta.owner_references:
            await self._check_owners(key, kind, document, meta)
        return None

    def _needs_nothing(self, key: ItemKey, meta: ItemMeta) -> bool:
        """Whether all owners exist according to the caches.  If a cache is behind, its next change enqueues the key."""
        return not meta.deletion_timestamp and all(
            found is not None and found.metadata.uid == owner.uid and not _waits(found.metadata)
            for owner in meta.owner_references
            for found in [self._cached_owner(key, owner)]
        )

    def _cached_owner(self, dependent: ItemKey, owner: OwnerReference) -> Item | None:
        informer = self._informers.get((owner.api_version, owner.kind))
        if informer is None:
            return None
        return informer.cache.get(dependent.namespace if informer.kind.namespaced else "", owner.name)

    async def _check_owners(self, key: ItemKey, kind: Kind, document: Document, meta: ItemMeta) -> None:
        """Delete an object that has no owner left, or remove the references to owners that are gone."""
        states = {owner: await self._state(key, owner) for owner in dict.fromkeys(meta.owner_references)}
        if State.UNKNOWN in states.values():
            return
        if State.EXISTS in states.values():
            left = [owner for owner in meta.owner_references if states[owner] is State.EXISTS]
            if len(left) != len(meta.owner_references):
                await self._replace_owners(kind, document, left)
            return
        await self._client.delete(
            kind,
            meta.namespace,
            meta.name,
            uid=meta.uid,
            revision=int(meta.resource_version),
            propagation=self._propagation(meta) if State.WAITING in states.values() else Propagation.BACKGROUND,
        )

    def _propagation(self, meta: ItemMeta) -> Propagation:
        """Return how to delete a dependent of a waiting owner: in the foreground, unless owners form a cycle."""
        dependents = [found for key in self._dependents(meta.uid, meta.namespace) if (found := self._cached(key))]
        if not dependents or any(_waits(found.metadata) for found in dependents):
            return Propagation.BACKGROUND
        return Propagation.FOREGROUND

    async def _state(self, dependent: ItemKey, owner: OwnerReference) -> State:
        """Return the state of an owner, by a live read."""
        try:
            kind = self._registry.kind(owner.api_version, owner.kind)
        except NotFound:
            self._warn(dependent, "OwnerRefUnknownKind", f"owner {_named(owner)} has an unknown kind")
            return State.UNKNOWN
        if kind.namespaced and not dependent.namespace:
            self._warn(
                dependent,
                "OwnerRefInvalidNamespace",
                f"owner {_named(owner)} is in a namespace, but this object is not",
            )
            return State.UNKNOWN
        found = await self._live(kind, dependent.namespace if kind.namespaced else "", owner.name)
        if found.uid == owner.uid:
            return State.WAITING if _waits(found) else State.EXISTS
        elsewhere = self._elsewhere(owner.uid)
        if elsewhere is None:
            return State.ABSENT
        its_kind = self._registry.kind(elsewhere.api_version, elsewhere.kind)
        if (await self._live(its_kind, elsewhere.namespace, elsewhere.name)).uid != owner.uid:
            return State.ABSENT
        self._warn(dependent, "OwnerRefInvalidNamespace", f"owner {_named(owner)} is in another namespace: {elsewhere}")
        return State.UNKNOWN

    def _elsewhere(self, uid: str) -> ItemKey | None:
        """Return the object that has this uid in the caches."""
        for informer in self._informers.values():
            for found in informer.cache.indexed(BY_UID, uid):
                meta = found.metadata
                return ItemKey(informer.kind.api_version, informer.kind.name, meta.namespace, meta.name)
        return None

    async def _live(self, kind: Kind, namespace: str, name: str) -> ItemMeta:
        """Return the metadata that the store has; that of an absent object is empty."""
        try:
            return item(await self._client.read(kind, namespace, name)).metadata
        except NotFound:
            return ItemMeta()

    async def _finish_foreground(self, kind: Kind, document: Document, meta: ItemMeta) -> float | None:
        """Remove the finalizer of an owner that waits for no dependent; `_check_owners` deletes the dependents."""
        known = [found for key in self._dependents(meta.uid, meta.namespace) if (found := self._cached(key))]
        if any(_blocks(found, meta.uid) for found in known):
            return None  # When the cache sees that one is gone, it enqueues this owner.
        if any(_blocks(item(stored), meta.uid) for _, stored in await self._live_dependents(kind, meta)):
            return SOON  # The cache does not have it yet, and may never report that it is gone.
        await self._remove_finalizer(kind, document, FOREGROUND)
        return None

    async def _finish_orphan(self, kind: Kind, document: Document, meta: ItemMeta) -> None:
        """Remove an owner from all its dependents, then remove its finalizer."""
        for of, stored in await self._live_dependents(kind, meta):
            owners = [owner for owner in item(stored).metadata.owner_references if owner.uid != meta.uid]
            await self._replace_owners(of, stored.document(), owners)
        await self._remove_finalizer(kind, document, ORPHAN)

    async def _live_dependents(self, kind: Kind, meta: ItemMeta) -> list[tuple[Kind, Stored]]:
        """Return all objects that name this owner, by a live list."""
        return [
            (of, stored)
            for of in self._registry
            if of.namespaced or not kind.namespaced
            for stored in await self._client.stored(of, meta.namespace if of.namespaced else "")
            if any(owner.uid == meta.uid for owner in item(stored).metadata.owner_references)
        ]

    async def _replace_owners(self, kind: Kind, document: Document, owners: Sequence[OwnerReference]) -> None:
        if owners:
            document["metadata"]["ownerReferences"] = msgspec.to_builtins(owners)
        else:
            document["metadata"].pop("ownerReferences", None)
        await self._client.replace(kind, document)

    async def _remove_finalizer(self, kind: Kind, document: Document, finalizer: str) -> None:
        metadata = document["metadata"]
        metadata["finalizers"] = [name for name in metadata["finalizers"] if name != finalizer]
        await self._client.replace(kind, document)

    def _cached(self, key: ItemKey) -> Item | None:
        informer = self._informers.get((key.api_version, key.kind))
        return informer.cache.get(key.namespace, key.name) if informer else None

    def _dependents(self, uid: str, namespace: str = "") -> Iterable[ItemKey]:
        """Return the dependents of an owner in the caches: in its namespace if it has one, else anywhere."""
        for informer in self._informers.values():
            for dependent in informer.cache.indexed(BY_OWNER, uid):
                meta = dependent.metadata
                if namespace and meta.namespace != namespace:
                    continue
                yield ItemKey(informer.kind.api_version, informer.kind.name, meta.namespace, meta.name)

    def _waiting_owner(self, owner: OwnerReference) -> Iterable[ItemKey]:
        informer = self._informers.get((owner.api_version, owner.kind))
        for found in informer.cache.indexed(BY_UID, owner.uid) if informer else ():
            if found.metadata.deletion_timestamp:
                yield ItemKey(owner.api_version, owner.kind, found.metadata.namespace, found.metadata.name)

    def _warn(self, dependent: ItemKey, reason: str, message: str) -> None:
        self._recorder.warning(self.event_target(dependent), reason, message)


def _blocks(dependent: Item, uid: str) -> bool:
    return any(owner.uid == uid and owner.block_owner_deletion for owner in dependent.metadata.owner_references)


def _waits(meta: ItemMeta) -> bool:
    return bool(meta.deletion_timestamp) and FOREGROUND in meta.finalizers


def _is_relevant(value: Item) -> bool:
    meta = value.metadata
    return bool(meta.owner_references or (meta.deletion_timestamp and {FOREGROUND, ORPHAN} & set(meta.finalizers)))


def _named(owner: OwnerReference) -> str:
    return f"{owner.kind} {owner.name} ({owner.uid})"
