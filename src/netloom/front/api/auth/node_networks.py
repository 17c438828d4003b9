"""The Networks of each node, counted by its attachments, so that the rights of a new watch are known at once.

   attachments ──► node ──► namespace ──► Network ──► count

A thousand agents open some dozen watches each, and their right to do so depends on their attachments. Searching all
attachments each time would cost more than the watch. The counts are maintained by one watch, whose events are processed
as they are published, so the counts are never older than what an agent received through this server. This needs a task:
while it does not run, or has lost its position in the watch, the store is asked.

Only the store may answer "no": another server may have sent an agent an attachment that this server has not received
yet. An attachment never changes its node or its Network, so only creations and deletions count.

The most recently deleted attachments are remembered by uid (`was_on`): an agent reports on hooks that it ran after a
deletion.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import NoReturn
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from netloom.errors import NetloomError, NotFound
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.model.document import Document
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.store.base import Event, EventType, Page, Store, Stored

log = logging.getLogger(__name__)

PAGE = 1000
REST = 1.0
VXLAN_SECONDS = 10.0
GONE = 4096
"""How many deleted attachments to remember."""
_Place = tuple[str, str]
_Counts = dict[_Place, Counter[str]]


class _Meta(Struct, frozen=True):
    uid: str = ""


class _Named(Struct, frozen=True):
    metadata: _Meta = _Meta()


class NodeNetworks:
    """An index of Networks by node."""

    def __init__(self, store: Store) -> None:
        self.known = asyncio.Event()
        """Set while the counts are maintained."""
        self._store = store
        self._counts: _Counts = {}
        """By node and namespace."""
        # A Network's fabric is immutable; only one that is deleted and created again can have another.
        self._vxlan = ExpiringCache[_Place, bool](lambda yes: VXLAN_SECONDS if yes else 0.0)
        self._versions: WeakValueDictionary[str, _Version] = WeakValueDictionary()
        self._gone: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        """Deleted attachments by their uid: node, namespace and name."""

    def was_on(self, node: str, reference: Document) -> bool:
        """Whether a reference is to a recently deleted attachment that was on a node."""
        place = node, reference.get("namespace", ""), reference.get("name", "")
        return self._gone.get(reference.get("uid", "")) == place

    async def run(self) -> NoReturn:
        """Maintain the counts until cancelled."""
        while True:
            try:
                await self._follow()
            except NetloomError as error:
                log.info("cannot count the attachments of nodes for now: %s", error)
                await asyncio.sleep(REST)

    def version(self, node: str) -> object | None:
        """Return the same object until the node loses a Network; None while the counts are not maintained."""
        return self._versions.setdefault(node, _Version()) if self.known.is_set() else None

    async def attached(self, node: str, namespace: str, network: str) -> bool:
        """Whether a node has an attachment in a Network."""
        if not namespace or not network:
            return False
        if (counted := self._counts.get((node, namespace))) and counted.get(network):
            return True
        return bool((await self._list(node, namespace, network, limit=1)).items)

    async def networks(self, node: str, namespace: str) -> Collection[str]:
        """Return the Networks of a namespace in which a node has an attachment."""
        if not namespace:
            return ()
        if counted := self._counts.get((node, namespace)):
            return list(counted)
        page = await self._list(node, namespace, None)
        return {one.facets().fields["spec.network"] for one in page.items}

    async def is_vxlan(self, namespace: str, network: str) -> bool:
        """Whether a Network is of fabric vxlan, on which nodes must know each other."""
        return await self._vxlan.get((namespace, network), lambda: self._reads_vxlan(namespace, network))

    async def _reads_vxlan(self, namespace: str, network: str) -> bool:
        try:
            found = await self._store.get(NETWORK, namespace, network)
        except NotFound:
            return False
        fabric = (found.document().get("spec") or {}).get("fabric", Fabric.OVN)
        return bool(fabric == Fabric.VXLAN)

    async def _list(self, node: str, namespace: str, network: str | None, limit: int | None = None) -> Page:
        return await self._store.list(NETWORK_ATTACHMENT, namespace, selector=_on(node, network), limit=limit)

    async def _follow(self) -> NoReturn:
        counts: _Counts = {}
        page = await self._store.list(NETWORK_ATTACHMENT, limit=PAGE)
        while True:
            for stored in page.items:
                _count(counts, stored, 1)
            if not page.token:
                break
            page = await self._store.list(NETWORK_ATTACHMENT, limit=PAGE, token=page.token)

        def take(event: Event) -> bool:
            if event.type is not EventType.MODIFIED and not _count(
                counts, event.object, 1 if event.type is EventType.ADDED else -1
            ):
                self._versions.pop(event.object.facets().fields["spec.node"], None)
            if event.type is EventType.DELETED:
                self._remember(event.object)
            return True

        watch = await self._store.watch(NETWORK_ATTACHMENT, since=page.revision)
        try:
            watch.direct(take)
            self._counts = counts
            self.known.set()
            while True:
                for event in await watch.next():
                    take(event)
        finally:
            self._counts = {}
            self.known.clear()
            self._versions.clear()
            watch.direct(None)
            await watch.close()

    def _remember(self, stored: Stored) -> None:
        uid = msgspec.json.decode(stored.raw, type=_Named).metadata.uid
        self._gone[uid] = stored.facets().fields["spec.node"], stored.namespace, stored.name
        if len(self._gone) > GONE:
            self._gone.popitem(last=False)


class _Version:
    """Identifies a period in which a node lost no Network.  It lives as long as something compares it."""

    __slots__ = ("__weakref__",)


def _count(counts: _Counts, stored: Stored, more: int) -> int:
    """Count an attachment that was created or deleted; return how many its node has in its Network now."""
    fields = stored.facets().fields
    place = fields["spec.node"], stored.namespace
    there = counts.setdefault(place, Counter())
    there[fields["spec.network"]] += more
    left = there[fields["spec.network"]]
    if not left:
        del there[fields["spec.network"]]
    if not there:
        del counts[place]
    return left


def _on(node: str, network: str | None) -> Selector:
    wanted = {"spec.node": node} if network is None else {"spec.node": node, "spec.network": network}
    return Selector((), tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in wanted.items()))
