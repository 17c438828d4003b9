"""A store as controllers use it: typed values in and out, and no write without leadership.

Every write checks `fence` first: a process that is no longer certain to lead (it was stopped, the store was
unreachable) does not write, even in the middle of a reconcile. A request that was sent before cannot be recalled; the
resourceVersion of every update, and the uid of every delete, decide whether it takes effect. `Conflict` goes to the
caller: the queue retries.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from netloom.errors import NotFound, Unreachable
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind, Registry
from netloom.model.registry import KINDS
from netloom.model.status import Status
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Propagation, Store, Stored

R = TypeVar("R", bound=Resource)
PAGE = 500


def always() -> bool:
    """Return True: the fence of a process that needs no leader election."""
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
        """Read one object from the store; raise `NotFound` if there is none."""
        return _value(of, await self._store.get(self._registry.of(of), namespace, name))

    async def find(self, of: type[R], namespace: str, name: str) -> R | None:
        """Read one object from the store; return None if there is none."""
        try:
            return await self.get(of, namespace, name)
        except NotFound:
            return None

    async def list(self, of: type[R], namespace: str = "", *, selector: Selector = EVERYTHING) -> list[R]:
        """Read all selected objects from the store."""
        kind = self._registry.of(of)
        return [_value(of, item) for item in await self.stored(kind, namespace, selector=selector)]

    async def stored(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING) -> Iterable[Stored]:
        """Read all selected objects, undecoded, from all pages."""
        page = await self._store.list(kind, namespace, selector=selector, limit=self._page)
        items = list(page.items)
        while page.token:
            page = await self._store.list(kind, namespace, selector=selector, limit=self._page, token=page.token)
            items += page.items
        return items

    async def any(self, kind: Kind, namespace: str) -> bool:
        """Whether the store has an object of a kind in a namespace."""
        return bool((await self._store.list(kind, namespace, limit=1)).items)

    async def document(self, kind: Kind, namespace: str, name: str) -> Document:
        """Read one object from the store as a document."""
        return (await self._store.get(kind, namespace, name)).document()

    async def read(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Read one object from the store, undecoded."""
        return await self._store.get(kind, namespace, name)

    async def create_document(self, kind: Kind, document: Document) -> Stored:
        """Create an object from a document, and return it undecoded."""
        self._check()
        return await self._store.create(kind, document)

    async def create(self, value: R) -> R:
        """Create an object."""
        self._check()
        kind = self._registry.of(value)
        return _value(type(value), await self._store.create(kind, kind.document(value)))

    async def update(self, value: R) -> R:
        """Replace an object.  Fields that its type does not have are lost: use it for our own objects only."""
        self._check()
        kind = self._registry.of(value)
        return _value(type(value), await self._store.update(kind, kind.document(value)))

    async def replace(self, kind: Kind, document: Document, *, subresource: str = "") -> Stored:
        """Replace an object, or a subresource of it, by a document, read before with `document`: no field is lost."""
        self._check()
        return await self._store.update(kind, document, subresource=subresource)

    async def replace_status(self, kind: Kind, document: Document) -> Stored:
        """Replace an object's status by that of a document, whose metadata has the object's uid and revision."""
        return await self.replace(kind, document, subresource="status")

    async def update_status(self, value: R, status: Status) -> R:
        """Write `status` as the status of `value`, unless they are equal; return the object."""
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
        """Delete the object with this uid (and revision); an object that is gone is no error."""
        self._check()
        try:
            await self._store.delete(kind, namespace, name, uid=uid, revision=revision, propagation=propagation)
        except NotFound:
            pass

    def _check(self) -> None:
        if not self.fence():
            raise Unreachable("this process is not certain to lead: nothing was written")


def _value(of: type[R], stored: Stored) -> R:
    value = stored.value()
    assert isinstance(value, of)
    return value
