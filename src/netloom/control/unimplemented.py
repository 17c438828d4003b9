"""Kinds that Netloom does not implement yet: the status of each of their objects says so.

An object that is accepted and has no effect must not look as if it had one: its `Ready` is False, with the reason
`NotImplemented`. A user's own operator may implement such a kind: a `Ready` with another reason is left alone. The
kinds are listed in `NOT_IMPLEMENTED` in `model/registry.py`; this module can be removed with the last of them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, with_condition
from netloom.model.document import Condition, Resource
from netloom.plan.problem import Unit

REASON = "NotImplemented"


class UnimplementedReconciler:
    """Reconciles the statuses of objects of kinds that are not implemented."""

    def __init__(self, client: Client, caches: Mapping[str, Cache[Any]], *, clock: Clock) -> None:
        """`caches` are by kind."""
        self._client = client
        self._caches = caches
        self._clock = clock

    def changed(self, kind: str, change: Change[Any]) -> Iterable[Unit]:
        """Return the object that changed."""
        return () if change.new is None else (Unit(kind, *change.key),)

    def all_keys(self) -> Iterable[Unit]:
        """Return the keys of all these objects."""
        return [Unit(kind, *key) for kind, cache in self._caches.items() for key, _ in cache.items()]

    def event_target(self, key: Unit) -> Resource | None:
        """Return the object of a key, for Events."""
        found: Resource | None = self._caches[key.kind].get(key.namespace, key.name)
        return found

    async def reconcile(self, key: Unit) -> None:
        """Write the condition `Ready`, if it is missing."""
        found: Any = self.event_target(key)
        if found is None or found.metadata.deletion_timestamp:
            return
        ready = found.status.condition(READY)
        if ready is not None and ready.reason != REASON:
            return
        generation = found.metadata.generation
        condition = Condition(
            type=READY,
            status=FALSE,
            observed_generation=generation,
            reason=REASON,
            message=f"this version of Netloom does nothing with a {key.kind}: the object is stored and has no effect",
        )
        conditions = with_condition(found.status.conditions, condition, self._clock())
        status = msgspec.structs.replace(found.status, conditions=conditions, observed_generation=generation)
        await self._client.update_status(found, status)
