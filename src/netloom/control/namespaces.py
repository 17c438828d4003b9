"""Namespaces: each that is used has a Namespace, and one that is deleted is emptied first, as Kubernetes does it.

For a store of our own; a Kubernetes does this by itself. The API creates the Namespace with the first object in it
(front/api/admission/namespaces.py). What is found without one (data of an older version, or an object that was created
just when its namespace was finished) is given one here, and so are the namespaces that are always there.

A deleted Namespace stays, with the phase `Terminating`, until `kubernetes` is taken out of its `spec.finalizers`.
Before that everything in it is deleted, what names others before what is named, and what is held by finalizers is
waited for: an IPLock's quarantine, a finalizer of somebody's operator. The conditions say what is left.

API servers remember for half a second that a namespace is active. So it is not finished before it has been watched for
longer than that, and looked through once more. Events come last and are not waited for: what is deleted causes them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from netloom.control.runtime.cache import Change
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, TRUE, with_condition
from netloom.control.runtime.gc import Item, item
from netloom.control.runtime.informer import Informer
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.cluster import NAMESPACE_FINALIZER, SYSTEM_NAMESPACES, Namespace
from netloom.model.document import Condition
from netloom.model.kind import Kind
from netloom.model.references import deletion_order
from netloom.model.registry import EVENT, IP_LOCK, NAMESPACE
from netloom.store.base import Stored

SETTLE = 1.0
"""How long a namespace is watched before it is finished, in seconds; longer than the API's admission caches it."""
AGAIN = 2.0
TOGETHER = 64
REMAINING, HELD = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"

Left = dict[Kind, list[Stored]]
"""What could not be deleted yet."""


class NamespaceReconciler:
    """Reconciles namespaces.  The keys are their names."""

    def __init__(self, client: Client, informers: Sequence[Informer[Item]], *, clock: Clock) -> None:
        """`informers` are of all kinds, Namespace among them."""
        self._client = client
        self._clock = clock
        self._namespaces = next(one for one in informers if one.kind is NAMESPACE)
        self._contents = [one for one in informers if one.kind.namespaced]
        kinds = tuple(one.kind for one in self._contents if one.kind is not EVENT)
        self._order = deletion_order(kinds)
        # What others leave behind does not keep a namespace in use: locks rest, Events expire.
        self._using = tuple(kind for kind in kinds if kind is not IP_LOCK)
        self._since: dict[str, tuple[str, float]] = {}
        """Which namespace of a name is deleted, by its uid, and since when that is known."""

    def changed(self, kind: Kind, change: Change[Item]) -> Iterable[str]:
        """Return the namespaces that a change is about."""
        if kind is NAMESPACE:
            yield change.key.name
            return
        namespace = self._namespaces.cache.get("", change.key.namespace)
        if namespace is None:
            if change.new is not None and kind in self._using:
                yield change.key.namespace
        elif namespace.metadata.deletion_timestamp and change.new is None:
            yield change.key.namespace

    def all_keys(self) -> Iterable[str]:
        """Return the namespaces that are deleted, or have no Namespace."""
        known = {key.name: one.metadata.deletion_timestamp for key, one in self._namespaces.cache.items()}
        used = {
            key.namespace for one in self._contents if one.kind in self._using for key, _ in one.cache.items()
        } | set(SYSTEM_NAMESPACES)
        return sorted((used - known.keys()) | {name for name, deleted in known.items() if deleted})

    async def reconcile(self, name: str) -> float | None:
        """Create a Namespace that is missing, or empty one that is deleted; return when to look again."""
        try:
            found = await self._client.get(Namespace, "", name)
        except NotFound:
            self._since.pop(name, None)
            if name in SYSTEM_NAMESPACES or await self._is_used(name):
                await self._create(name)
            return None
        if not found.metadata.deletion_timestamp:
            return None
        return await self._empty(found)

    async def _create(self, name: str) -> None:
        document = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.name, "metadata": {"name": name}}
        with suppress(AlreadyExists):
            await self._client.create_document(NAMESPACE, document)

    async def _is_used(self, name: str) -> bool:
        for kind in self._using:
            if await self._client.any(kind, name):
                return True
        return False

    async def _empty(self, namespace: Namespace) -> float | None:
        """Delete what is in a namespace, and finish it when nothing is left."""
        name, uid = namespace.metadata.name, namespace.metadata.uid
        now = asyncio.get_running_loop().time()
        if self._since.get(name, ("", now))[0] != uid:
            self._since[name] = (uid, now)
        since = self._since[name][1]
        left = {kind: found for kind in self._order if (found := await self._delete_all(kind, name))}
        if left:
            await self._say(namespace, left)
            return AGAIN
        if now - since < SETTLE:
            return SETTLE - (now - since)
        await self._delete_all(EVENT, name)
        await self._finish(namespace)
        return None

    async def _delete_all(self, kind: Kind, namespace: str) -> list[Stored]:
        """Delete all objects of a kind; return those that stay for now."""
        found = list(await self._client.stored(kind, namespace))
        if not found:
            return []
        for start in range(0, len(found), TOGETHER):
            await asyncio.gather(*(self._delete(one) for one in found[start : start + TOGETHER]))
        return list(await self._client.stored(kind, namespace))

    async def _delete(self, stored: Stored) -> None:
        meta = item(stored).metadata
        if meta.deletion_timestamp:
            return
        with suppress(Conflict):  # In use, or another by now: the next look decides.
            await self._client.delete(stored.kind, stored.namespace, stored.name, uid=meta.uid)

    async def _finish(self, namespace: Namespace) -> None:
        document = await self._client.document(NAMESPACE, "", namespace.metadata.name)
        if document["metadata"]["uid"] != namespace.metadata.uid:
            return
        finalizers = document["spec"].get("finalizers") or []
        document["spec"] = {"finalizers": [one for one in finalizers if one != NAMESPACE_FINALIZER]}
        await self._client.finalize(NAMESPACE, document)

    async def _say(self, namespace: Namespace, left: Left) -> None:
        """Write what is left into the status."""
        counts = ", ".join(f"{kind.qualified} has {len(found)} resource instances" for kind, found in left.items())
        finalizers = sorted(
            {one for found in left.values() for stored in found for one in item(stored).metadata.finalizers}
        )
        remaining = Condition(
            type=REMAINING, status=TRUE, reason="SomeResourcesRemain", message=f"Some resources are remaining: {counts}"
        )
        held = Condition(type=HELD, status=FALSE, reason="ContentHasNoFinalizers")
        if finalizers:
            words = f"Some content in the namespace has finalizers remaining: {', '.join(finalizers[:10])}"
            held = Condition(type=HELD, status=TRUE, reason="SomeFinalizersRemain", message=words)
        conditions = namespace.status.conditions
        for condition in (remaining, held):
            conditions = with_condition(conditions, condition, self._clock())
        if conditions == namespace.status.conditions:
            return
        document = await self._client.document(NAMESPACE, "", namespace.metadata.name)
        value = Namespace(
            api_version=NAMESPACE.api_version,
            kind=NAMESPACE.name,
            metadata=namespace.metadata,
            status=type(namespace.status)(phase=namespace.status.phase, conditions=conditions),
        )
        document["status"] = NAMESPACE.document(value)["status"]
        await self._client.replace_status(NAMESPACE, document)
