"""Namespaces: every namespace in use has a Namespace, and a deleted one is emptied first, as in Kubernetes.

It runs on our own stores; Kubernetes does this itself. The API creates a Namespace with the first object in it
(front/api/admission/namespaces.py). This controller creates those that are missing all the same (data of an older
version, or an object that was created at the very moment its namespace was removed), and the system namespaces.

A deleted Namespace stays, with the phase `Terminating`, until `kubernetes` is removed from its `spec.finalizers`.
Before that all objects in it are deleted, those that refer to others first. Objects with finalizers are waited for: the
quarantine of an IPLock, a finalizer of a user's operator. The conditions say what is left.

API servers cache for half a second that a namespace is active. So a Namespace is removed only after a longer time than
that, and after its content was listed once more. Events are deleted last and not waited for, because deletions cause
new ones.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from netloom.control.runtime.cache import Change
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, TRUE, with_condition
from netloom.control.runtime.gc import Item, item
from netloom.control.runtime.informer import Informer
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import Condition
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import NAMESPACE_FINALIZER, SYSTEM_NAMESPACES, Namespace
from netloom.model.references import deletion_order
from netloom.model.registry import EVENT, IP_LOCK, NAMESPACE
from netloom.store.base import Stored

SETTLE = 1.0
"""How long a deleted namespace must have been empty, in seconds; longer than the API caches that it is active."""
AGAIN = 2.0
TOGETHER = 64
REMAINING, HELD = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"

Left = dict[Kind, list[Stored]]
"""The objects that are not gone yet."""


class NamespaceReconciler:
    """Reconciles Namespaces.  The keys are their names."""

    def __init__(self, client: Client, informers: Sequence[Informer[Item]], *, clock: Clock) -> None:
        """`informers` are those of all kinds, including Namespace."""
        self._client = client
        self._clock = clock
        self._namespaces = next(one for one in informers if one.kind is NAMESPACE)
        self._contents = [one for one in informers if one.kind.namespaced]
        kinds = tuple(one.kind for one in self._contents if one.kind is not EVENT)
        self._order = deletion_order(kinds)
        # IPLocks in quarantine and Events do not keep a namespace in use.
        self._using = tuple(kind for kind in kinds if kind is not IP_LOCK)
        self._since: dict[str, tuple[str, float]] = {}
        """By name, the uid of a deleted Namespace and when the deletion was first seen."""

    def changed(self, kind: Kind, change: Change[Item]) -> Iterable[str]:
        """Return the namespace of a changed object, if it is missing or deleted."""
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
        """Return the namespaces that are deleted or have no Namespace."""
        known = {key.name: one.metadata.deletion_timestamp for key, one in self._namespaces.cache.items()}
        used = {
            key.namespace for one in self._contents if one.kind in self._using for key, _ in one.cache.items()
        } | set(SYSTEM_NAMESPACES)
        return sorted((used - known.keys()) | {name for name, deleted in known.items() if deleted})

    async def reconcile(self, name: str) -> float | None:
        """Create a missing Namespace, or empty a deleted one; return when to check again."""
        try:
            found = await self._client.get(Namespace, "", name)
        except NotFound:
            self._since.pop(name, None)
            used = name in SYSTEM_NAMESPACES
            for kind in self._using:
                used = used or await self._client.any(kind, name)
            if used:
                document = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.name, "metadata": {"name": name}}
                with suppress(AlreadyExists):
                    await self._client.create_document(NAMESPACE, document)
            return None
        if not found.metadata.deletion_timestamp:
            return None
        return await self._empty(found)

    async def _empty(self, namespace: Namespace) -> float | None:
        """Delete the content of a namespace, and remove its finalizer when nothing is left."""
        name, uid = namespace.metadata.name, namespace.metadata.uid
        now = asyncio.get_running_loop().time()
        if self._since.get(name, ("", now))[0] != uid:
            self._since[name] = (uid, now)
        since = self._since[name][1]
        left = {kind: found for kind in self._order if (found := await self._delete_all(kind, name))}
        if left:
            await self._write_remaining(namespace, left)
            return AGAIN
        if now - since < SETTLE:
            return SETTLE - (now - since)
        await self._delete_all(EVENT, name)
        await self._finish(namespace)
        return None

    async def _delete_all(self, kind: Kind, namespace: str) -> list[Stored]:
        """Delete all objects of a kind; return those that are not gone yet."""
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
        with suppress(Conflict):  # In use, or replaced: decided at the next reconcile.
            await self._client.delete(stored.kind, stored.namespace, stored.name, uid=meta.uid)

    async def _finish(self, namespace: Namespace) -> None:
        document = await self._client.document(NAMESPACE, "", namespace.metadata.name)
        if document["metadata"]["uid"] != namespace.metadata.uid:
            return
        finalizers = document["spec"].get("finalizers") or []
        document["spec"] = {"finalizers": [one for one in finalizers if one != NAMESPACE_FINALIZER]}
        await self._client.replace(NAMESPACE, document, subresource="finalize")

    async def _write_remaining(self, namespace: Namespace, left: Left) -> None:
        """Write into the status what is left."""
        counts = ", ".join(f"{kind.qualified} has {len(found)} resource instances" for kind, found in left.items())
        finalizers = sorted(
            {one for found in left.values() for stored in found for one in item(stored).metadata.finalizers}
        )
        remaining = Condition(
            type=REMAINING, status=TRUE, reason="SomeResourcesRemain", message=f"Some resources are remaining: {counts}"
        )
        held = Condition(type=HELD, status=FALSE, reason="ContentHasNoFinalizers")
        if finalizers:
            text = f"Some content in the namespace has finalizers remaining: {', '.join(finalizers[:10])}"
            held = Condition(type=HELD, status=TRUE, reason="SomeFinalizersRemain", message=text)
        conditions = namespace.status.conditions
        for condition in (remaining, held):
            conditions = with_condition(conditions, condition, self._clock())
        if conditions == namespace.status.conditions:
            return
        document = await self._client.document(NAMESPACE, "", namespace.metadata.name)
        status = replace(namespace.status, conditions=conditions)
        document["status"] = NAMESPACE.document(replace(namespace, status=status))["status"]
        await self._client.replace_status(NAMESPACE, document)
