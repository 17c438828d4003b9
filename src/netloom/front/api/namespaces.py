"""Nothing is made in a namespace that a cluster does not have, or that is going.

On its own an API of ours has every namespace: nothing needs to be made before it is used. Behind kube-apiserver a
namespace is the cluster's: who deletes it wants all in it gone, and the cluster's controller sees to that once. What
came in afterwards would stay for ever. So the cluster is asked before something is created, at most twice a second for
each namespace; what comes in within that time is still there to be found by the controller, or is left over.
"""

from collections.abc import Awaitable, Callable

from netloom.errors import Cause, Forbidden, NetloomError, NotFound, Unreachable
from netloom.front.api.admission import Operation, Write
from netloom.front.api.identity import Attributes, forbidden
from netloom.front.api.remembering import Remembered
from netloom.model.document import Document
from netloom.store.base import Store

SECONDS = 0.5

Find = Callable[[str], Awaitable[Document]]
"""Returns a namespace of the cluster; `NotFound` where there is none."""


class NamespaceLifecycle:
    """The admission that asks the cluster for namespaces."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._going = Remembered[str, bool](lambda _: SECONDS, size=10_000)

    async def review(self, write: Write, store: Store) -> None:
        """Refuse what would be made in a namespace that is not there, or not for long."""
        if write.operation is not Operation.CREATE or not write.namespace:
            return
        if await self._going.get(write.namespace, lambda: self._is_going(write.namespace)):
            what = Attributes("create", write.kind, write.namespace, write.name)
            refused = forbidden(
                write.who,
                what,
                f"unable to create new content in namespace {write.namespace} because it is being terminated",
            )
            cause = Cause("metadata.namespace", f"namespace {write.namespace} is being terminated")
            raise Forbidden(refused.message, causes=[cause])

    async def _is_going(self, name: str) -> bool:
        try:
            found = await self._find(name)
        except NotFound:
            raise NotFound(f'namespaces "{name}" not found') from None
        except NetloomError as error:
            raise Unreachable(
                f"the cluster cannot be asked for namespace {name}: {error.message}", retry_after=1
            ) from error
        return bool((found.get("metadata") or {}).get("deletionTimestamp"))
