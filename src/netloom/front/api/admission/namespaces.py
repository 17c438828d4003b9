"""Namespaces: nothing is created in one that is being deleted, nor in one that does not exist on a cluster.

An API of ours stores the Namespaces itself. They need not be created before use: creating the first object in a
namespace creates its Namespace. An Event does not, because nodes write Events and a node must not create namespaces; it
is refused as Kubernetes refuses it. Behind kube-apiserver the namespaces are the cluster's, and must exist.

Deleting a namespace deletes everything in it: a controller deletes what exists (control/namespaces.py, or the cluster's
own). So before a creation its namespace is looked up; the answer that it is active is cached for half a second. Objects
created within that time are deleted with the others: the controller waits longer than that.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto

from netloom.errors import AlreadyExists, Cause, Forbidden, NetloomError, NotFound, Unreachable
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.auth.identity import Attributes, forbidden
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.model.document import Document
from netloom.model.kinds.cluster import SYSTEM_NAMESPACES
from netloom.model.registry import EVENT, NAMESPACE
from netloom.store.base import Store

SECONDS = 0.5

Find = Callable[[str], Awaitable[Document]]
"""Returns a namespace of the cluster; `NotFound` if there is none."""


class State(Enum):
    """The known state of a namespace."""

    ABSENT = auto()
    ACTIVE = auto()
    TERMINATING = auto()


class NamespaceLifecycle:
    """The admission that looks up namespaces, of a cluster or of our own store."""

    def __init__(self, find: Find, *, own: Store | None = None) -> None:
        """`own` is the store of the Namespaces, if we may create them."""
        self._find = find
        self._own = own
        # Our own store is asked again whether a namespace still terminates: it may be created again next.
        self._known = ExpiringCache[str, State](
            lambda state: SECONDS if state is State.ACTIVE or own is None else 0.0, size=10_000
        )

    @classmethod
    def of_store(cls, store: Store) -> "NamespaceLifecycle":
        """Return the admission for Namespaces in `store`."""

        async def find(name: str) -> Document:
            return (await store.get(NAMESPACE, "", name)).document()

        return cls(find, own=store)

    async def review(self, write: Write, store: Store) -> None:
        """Refuse creations in missing or terminating namespaces, and the deletion of system namespaces."""
        if write.kind is NAMESPACE:
            if write.operation is WriteOperation.DELETE and write.name in SYSTEM_NAMESPACES:
                raise Forbidden(f'namespaces "{write.name}" is forbidden: this namespace may not be deleted')
            return
        if write.operation is not WriteOperation.CREATE or not write.namespace:
            return
        match await self._state(write.namespace):
            case State.TERMINATING:
                raise _terminating(write)
            case State.ABSENT if not self._brings_namespace(write):
                raise NotFound(f'namespaces "{write.namespace}" not found')

    async def ensure(self, write: Write) -> None:
        """Create the Namespace of an object that has been reviewed and is about to be created."""
        if self._own is None or not write.namespace or write.dry_run:
            return
        if await self._state(write.namespace) is State.ABSENT:
            with suppress(AlreadyExists):
                namespace = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.name}
                await self._own.create(NAMESPACE, {**namespace, "metadata": {"name": write.namespace}})

    async def is_terminating(self, name: str) -> bool:
        """Whether a namespace is being deleted, or is gone from a cluster while objects remain in it."""
        try:
            return await self._state(name) is State.TERMINATING
        except NotFound:
            return True

    def _brings_namespace(self, write: Write) -> bool:
        if self._own is None:
            return False
        return write.kind is not EVENT or write.namespace in SYSTEM_NAMESPACES

    async def _state(self, name: str) -> State:
        return await self._known.get(name, lambda: self._look_up(name))

    async def _look_up(self, name: str) -> State:
        try:
            found = await self._find(name)
        except NotFound:
            if self._own is None:
                raise NotFound(f'namespaces "{name}" not found') from None
            return State.ABSENT
        except NetloomError as error:
            if self._own is not None:
                raise
            raise Unreachable(
                f"cannot look up namespace {name} in the cluster: {error.message}", retry_after=1
            ) from error
        return State.TERMINATING if (found.get("metadata") or {}).get("deletionTimestamp") else State.ACTIVE


def _terminating(write: Write) -> Forbidden:
    what = Attributes("create", write.kind, write.namespace, write.name)
    refused = forbidden(
        write.who,
        what,
        f"unable to create new content in namespace {write.namespace} because it is being terminated",
    )
    cause = Cause("metadata.namespace", f"namespace {write.namespace} is being terminated", "NamespaceTerminating")
    return Forbidden(refused.message, causes=[cause])
