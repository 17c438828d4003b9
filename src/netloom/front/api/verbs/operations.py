"""All operations on one object: get, create, update, patch, delete.

Single requests and batches both use it. Lists, watches and the deletion of collections are elsewhere: they are about
many objects, and their answers differ.
"""

import time
from collections.abc import Callable, Sequence

from netloom.errors import MethodNotAllowed
from netloom.front.api.admission.admission import Admission
from netloom.front.api.admission.namespaces import NamespaceLifecycle
from netloom.front.api.auth.identity import Authorizer, Identity, forbidden
from netloom.front.api.http.paths import Request, Verb
from netloom.front.api.verbs.calls import Call, CallResult
from netloom.front.api.verbs.deletes import Deletes
from netloom.front.api.verbs.writes import Writes
from netloom.store.base import Store

ON_ONE = frozenset((Verb.GET, Verb.CREATE, Verb.UPDATE, Verb.PATCH, Verb.DELETE))
"""The verbs about one object."""


class Operations:
    """The verbs about one object, over one store."""

    def __init__(
        self,
        store: Store,
        authorizer: Authorizer,
        admissions: Sequence[Admission],
        *,
        namespaces: NamespaceLifecycle | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._writes = Writes(store, authorizer, admissions, namespaces=namespaces, clock=clock)
        self.deletes = Deletes(store, admissions)

    async def authorize(self, request: Request, who: Identity) -> None:
        """Raise `Forbidden` unless `who` may make this request."""
        what = request.attributes()
        if not await self._authorizer.allows(who, what):
            raise forbidden(who, what)

    async def run(self, call: Call) -> CallResult:
        """Run a request that is already authorized."""
        request = call.request
        match request.verb:
            case Verb.CREATE:
                return await self._writes.create(call)
            case Verb.UPDATE:
                return await self._writes.replace(call)
            case Verb.PATCH:
                return await self._writes.patch(call)
            case Verb.DELETE:
                return await self.deletes.delete(call)
            case Verb.GET:
                return CallResult(200, await self._store.get(request.kind, request.namespace, request.name))
            case _:
                raise MethodNotAllowed(f"{request.verb} is not an operation on one object")
