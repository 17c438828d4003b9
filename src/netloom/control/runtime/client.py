"""A store as controllers see it: typed values in and out, and no write without the right to write.

Writes are checked against `fence` first: a process that is no longer certain to lead (it slept, the store was away)
does not write, even in the middle of a reconcile. What was sent before cannot be called back; there the resourceVersion
that every update carries, and the uid that every delete does, decide. `Conflict` is the caller's: the queue retries.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from netloom.errors import NotFound, Unreachable
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind, Registry
from netloom.model.registry import KINDS
from netloom.model.selectors import EVERYTHING, Selector
from netloom.model.status import Status
from netloom.store.base import Propagation, Store, Stored

R = TypeVar("R", bound=Resource)
PAGE = 500


def always() -> bool:
    """Be certain: for a process that runs alone."""
    return True


class Client:
    """Typed access to a store."""

    def __init__(
        self, store: Store, *, fence: Callable[[], bool] = always, registry: Registry = KINDS, page: int = PAGE
    ) -> None:
        self._store = store
        self._page = page
        self.fence = fence
        self._registry = registry

    async def get(self, of: type[R], namespace: str, name: str) -> R:
        """Return one object as it is now; `NotFound` if there is none."""
        return _value(of, await self._store.get(self._registry.of(of), namespace, name))

    async def find(self, of: type[R], namespace: str, name: str) -> R | None:
        """Return one object as it is now, or None."""
        try:
            return await self.get(of, namespace, name)
        except NotFound:
            return None

    async def list(self, of: type[R], namespace: str = "", *, selector: Selector = EVERYTHING) -> list[R]:
        """Return all objects selected, as they are now."""
        kind = self._registry.of(of)
        return [_value(of, item) for item in await self.stored(kind, namespace, selector=selector)]

    async def stored(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING) -> Iterable[Stored]:
        """Return all objects selected, as the store has them, from all pages."""
        page = await self._store.list(kind, namespace, selector=selector, limit=self._page)
        items = list(page.items)
        while page.token:
            page = await self._store.list(kind, namespace, selector=selector, limit=self._page, token=page.token)
            items += page.items
        return items

    async def any(self, kind: Kind, namespace: str) -> bool:
        """Whether there is an object of a kind in a namespace now."""
        return bool((await self._store.list(kind, namespace, limit=1)).items)

    async def document(self, kind: Kind, namespace: str, name: str) -> Document:
        """Return one object as a document, as it is now."""
        return (await self._store.get(kind, namespace, name)).document()

    async def read(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return one object as the store has it now."""
        return await self._store.get(kind, namespace, name)

    async def create_document(self, kind: Kind, document: Document) -> Stored:
        """Store a new object, and return it as the store has it."""
        self._check()
        return await self._store.create(kind, document)

    async def create(self, value: R) -> R:
        """Store a new object."""
        self._check()
        kind = self._registry.of(value)
        return _value(type(value), await self._store.create(kind, kind.document(value)))

    async def update(self, value: R) -> R:
        """Replace an object.  What this version's type does not know of it is lost: fit for our own objects."""
        self._check()
        kind = self._registry.of(value)
        return _value(type(value), await self._store.update(kind, kind.document(value)))

    async def replace(self, kind: Kind, document: Document) -> Stored:
        """Replace an object by a document, read before with `document`: nothing is lost."""
        self._check()
        return await self._store.update(kind, document)

    async def replace_status(self, kind: Kind, document: Document) -> Stored:
        """Replace an object's status by that of a document, which says which object at which revision."""
        self._check()
        return await self._store.update(kind, document, subresource="status")

    async def finalize(self, kind: Kind, document: Document) -> Stored:
        """Replace an object's spec.finalizers by those of a document; what is deleted goes with the last of them."""
        self._check()
        return await self._store.update(kind, document, subresource="finalize")

    async def update_status(self, value: R, status: Status) -> R:
        """Let `status` be the status of `value` and return the outcome; write only if that changes anything."""
        if getattr(value, "status", None) == status:
            return value
        self._check()
        kind = self._registry.of(value)
        changed = msgspec.structs.replace(value, **cast("dict[str, Any]", {"status": status}))
        return _value(type(value), await self._store.update(kind, kind.document(changed), subresource="status"))

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        revision: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> None:
        """Delete the object that has this uid (and revision); one that is gone already is no error."""
        self._check()
        try:
            await self._store.delete(kind, namespace, name, uid=uid, revision=revision, propagation=propagation)
        except NotFound:
            pass

    def _check(self) -> None:
        if not self.fence():
            raise Unreachable("not certain to lead: nothing is written")


def _value(of: type[R], stored: Stored) -> R:
    value = stored.value()
    assert isinstance(value, of)
    return value
