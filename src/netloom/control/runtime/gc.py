"""Garbage collection: owned objects go with their owners, as Kubernetes' collector does it.

For a store of our own; a Kubernetes collects by itself. Three ways to go, by the owner's deletion:

- background: the owner is gone; its dependents, whose owners are now *all* gone, are deleted;
- foreground: the owner waits with the finalizer `foregroundDeletion` until those dependents are gone that have
  `blockOwnerDeletion`;
- orphan: the owner waits with the finalizer `orphan` until no dependent names it any more.

The collector must never delete what somebody living owns, so it believes in an absence only after a live read: no
object of that kind and name, or one with another uid. Where it cannot know (a kind that is not ours, a store that does
not answer, an owner that lives in another namespace) it leaves the object alone and says so in an Event. Deletes carry
the uid and the revision of what was judged: an object that got another owner meanwhile is judged again.

What blocks or must be orphaned is found by a live list, not in the caches, because a dependent that the cache does not
know yet would be lost. An owner that is in a namespace has dependents there only: an object of another namespace that
names it, which anybody with rights there can write, does not hold up its deletion.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

import msgspec

from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.errors import NotFound
from netloom.model.document import Document, OwnerReference, Value
from netloom.model.events import ObjectReference
from netloom.model.kind import Kind, Registry
from netloom.model.registry import KINDS
from netloom.store.base import Propagation, Store, Stored

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
BY_OWNER = "owner"
BY_UID = "uid"
SOON = 1.0
WORKERS = 64
"""Who deletes much does it together: writes made at the same time share a request and a commit."""


class ItemMeta(Value, frozen=True, kw_only=True):
    """What the collector keeps of an object's metadata: it keeps it of every object there is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Item(Value, frozen=True, kw_only=True):
    """What the collector keeps of an object."""

    metadata: ItemMeta = ItemMeta()


class ItemKey(NamedTuple):
    """Which object of which kind."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {Key(self.namespace, self.name)}"


class State(Enum):
    """What is known of an owner."""

    LIVING = auto()
    WAITING = auto()
    """It lives only until its dependents are gone."""
    ABSENT = auto()
    UNKNOWN = auto()


def item(stored: Stored) -> Item:
    """Return the part of an object that the collector reads."""
    return msgspec.json.decode(stored.raw, type=Item)


def collected_informers(
    store: Store, *, random: Random, registry: Registry = KINDS, shared: Iterable[Informer[Any]] = ()
) -> list[Informer[Item]]:
    """Return the informers a `Collector` needs, one of each kind.

    Those `shared` with other controllers are taken as they are: their values have an `ItemMeta`, and they the indexes.
    """
    indexes = {
        BY_OWNER: lambda item: [owner.uid for owner in item.metadata.owner_references],
        BY_UID: lambda item: (item.metadata.uid,),
    }
    have = {informer.kind: informer for informer in shared}
    return [have.get(kind) or Informer(store, kind, item, random=random, indexes=indexes) for kind in registry]


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
        """Return whom a change concerns: the object if it owns or is owned, and its dependents when it goes."""
        key = ItemKey(kind.api_version, kind.name, *change.key)
        if change.new is not None and _concerned(change.new) and not self._seems_well(key, change.new.metadata):
            yield key
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            yield from self._dependents(change.old.metadata.uid)
        elif change.new is not None and change.new.metadata.deletion_timestamp:
            yield from self._dependents(change.new.metadata.uid)
        for owner in change.old.metadata.owner_references if change.old else ():
            # A dependent that is gone, or no longer owned, may be what its owner waits for.
            yield from self._waiting_owner(owner)

    def all_keys(self) -> Iterable[ItemKey]:
        """Return the keys of all objects that own or are owned, and do not seem well."""
        return [
            item_key
            for informer in self._informers.values()
            for key, value in informer.cache.items()
            if _concerned(value)
            for item_key in [ItemKey(informer.kind.api_version, informer.kind.name, *key)]
            if not self._seems_well(item_key, value.metadata)
        ]

    def event_target(self, key: ItemKey) -> ObjectReference:
        """Return what Events about a key are about."""
        found = self._cached(key)
        uid = found.metadata.uid if found else ""
        return ObjectReference(
            kind=key.kind, namespace=key.namespace, name=key.name, uid=uid, api_version=key.api_version
        )

    async def reconcile(self, key: ItemKey) -> float | None:
        """Do what is missing for one object, as a dependent and as an owner."""
        cached = self._cached(key)
        if cached is None or self._seems_well(key, cached.metadata):
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
            await self._judge(key, kind, document, meta)
        return None

    def _seems_well(self, key: ItemKey, meta: ItemMeta) -> bool:
        """Whether the caches have all owners living.  If they are behind they will tell; nothing is lost by then."""
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

    async def _judge(self, key: ItemKey, kind: Kind, document: Document, meta: ItemMeta) -> None:
        """Delete an object that has nobody left, or take away the owners that are gone."""
        states = {owner: await self._state(key, owner) for owner in dict.fromkeys(meta.owner_references)}
        if State.UNKNOWN in states.values():
            return
        if State.LIVING in states.values():
            left = [owner for owner in meta.owner_references if states[owner] is State.LIVING]
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
        """Return how to delete what a waiting owner waits for: its own dependents first, unless that is a circle."""
        dependents = [found for key in self._dependents(meta.uid, meta.namespace) if (found := self._cached(key))]
        if not dependents or any(_waits(found.metadata) for found in dependents):
            return Propagation.BACKGROUND
        return Propagation.FOREGROUND

    async def _state(self, dependent: ItemKey, owner: OwnerReference) -> State:
        """Find out whether an owner lives, by a live read."""
        try:
            kind = self._registry.kind(owner.api_version, owner.kind)
        except NotFound:
            self._warn(dependent, "OwnerRefUnknownKind", f"owner {_named(owner)} is of a kind not kept here")
            return State.UNKNOWN
        if kind.namespaced and not dependent.namespace:
            self._warn(dependent, "OwnerRefInvalidNamespace", f"owner {_named(owner)} is in a namespace, this is not")
            return State.UNKNOWN
        namespace = dependent.namespace if kind.namespaced else ""
        try:
            found = msgspec.convert(await self._client.document(kind, namespace, owner.name), Item).metadata
        except NotFound:
            found = ItemMeta()
        if found.uid == owner.uid:
            return State.WAITING if _waits(found) else State.LIVING
        elsewhere = self._elsewhere(owner.uid)
        if elsewhere is None or not await self._lives(elsewhere, owner.uid):
            return State.ABSENT
        self._warn(dependent, "OwnerRefInvalidNamespace", f"owner {_named(owner)} is not here but at {elsewhere}")
        return State.UNKNOWN

    def _elsewhere(self, uid: str) -> ItemKey | None:
        """Return where the caches have an object of this uid."""
        for informer in self._informers.values():
            for found in informer.cache.indexed(BY_UID, uid):
                meta = found.metadata
                return ItemKey(informer.kind.api_version, informer.kind.name, meta.namespace, meta.name)
        return None

    async def _lives(self, key: ItemKey, uid: str) -> bool:
        kind = self._registry.kind(key.api_version, key.kind)
        try:
            document = await self._client.document(kind, key.namespace, key.name)
        except NotFound:
            return False
        return msgspec.convert(document, Item).metadata.uid == uid

    async def _finish_foreground(self, kind: Kind, document: Document, meta: ItemMeta) -> float | None:
        """Let an owner go when nobody is left that it waits for; the others are queued and go by `_judge`."""
        known = [found for key in self._dependents(meta.uid, meta.namespace) if (found := self._cached(key))]
        if any(_blocks(found, meta.uid) for found in known):
            return None  # As far as the cache knows; when it learns better, it tells.
        if any(_blocks(item(stored), meta.uid) for _, stored in await self._live_dependents(kind, meta)):
            return SOON  # Unknown to the cache, which may so miss its end.
        await self._remove_finalizer(kind, document, FOREGROUND)
        return None

    async def _finish_orphan(self, kind: Kind, document: Document, meta: ItemMeta) -> None:
        """Take an owner out of all its dependents, then let it go."""
        for of, stored in await self._live_dependents(kind, meta):
            owners = [owner for owner in item(stored).metadata.owner_references if owner.uid != meta.uid]
            await self._replace_owners(of, stored.document(), owners)
        await self._remove_finalizer(kind, document, ORPHAN)

    async def _live_dependents(self, kind: Kind, meta: ItemMeta) -> list[tuple[Kind, Stored]]:
        """Return all objects that name this owner, from the store itself."""
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
        """Return who the caches say names this owner, in the owner's namespace if it has one, else anywhere."""
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


def _concerned(value: Item) -> bool:
    meta = value.metadata
    return bool(meta.owner_references or (meta.deletion_timestamp and {FOREGROUND, ORPHAN} & set(meta.finalizers)))


def _named(owner: OwnerReference) -> str:
    return f"{owner.kind} {owner.name} ({owner.uid})"
