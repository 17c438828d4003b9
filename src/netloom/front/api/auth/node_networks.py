"""The Networks of each node, counted by its attachments, so that the rights of a new watch are known at once.

   attachments ──► node ──► namespace ──► Network ──► count

A thousand agents open some dozen watches each, and their right to do so depends on their attachments. Searching all
attachments each time would cost more than the watch. The counts are maintained by one watch (following.py).

Only the store may answer "no": another server may have sent an agent an attachment that this server has not received
yet. An attachment never changes its node or its Network, so only creations and deletions count.

The most recently deleted attachments are remembered by uid (`was_on`): an agent reports on hooks that it ran after a
deletion.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import NoReturn

import msgspec
from msgspec import Struct

from netloom.errors import NotFound
from netloom.front.api.auth.following import Follower, Versions, selecting
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.model.document import Document
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT
from netloom.model.values.selectors import Selector
from netloom.store.base import Event, EventType, Page, Store, Stored

AGENTS_SECONDS = 10.0
GONE = 4096
"""How many deleted attachments to remember."""
_Place = tuple[str, str]


class _Meta(Struct, frozen=True):
    uid: str = ""


class _Named(Struct, frozen=True):
    metadata: _Meta = _Meta()


class NodeNetworks:
    """An index of Networks by node."""

    def __init__(self, store: Store, versions: Versions | None = None) -> None:
        self._versions = versions or Versions()
        self._store = store
        self._counts: dict[_Place, Counter[str]] = {}
        """By node and namespace."""
        # A Network's fabric is immutable; only one that is deleted and created again can have another.
        self._by_agents = ExpiringCache[_Place, bool](lambda yes: AGENTS_SECONDS if yes else 0.0)
        self._gone: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        """Deleted attachments by their uid: node, namespace and name."""
        self._attachments = Follower(store, NETWORK_ATTACHMENT, take=self._take, clear=self._clear)
        self.known = self._attachments.known
        """Set while the counts are maintained."""

    def was_on(self, node: str, reference: Document) -> bool:
        """Whether a reference is to a recently deleted attachment that was on a node."""
        place = node, reference.get("namespace", ""), reference.get("name", "")
        return self._gone.get(reference.get("uid", "")) == place

    async def run(self) -> NoReturn:
        """Maintain the counts until cancelled."""
        await self._attachments.run()

    def counted(self, node: str, namespace: str, network: str) -> bool:
        """Whether the counts have an attachment of a node in a Network.  If not, the store may have one."""
        counts = self._counts.get((node, namespace)) if self.known.is_set() else None
        return bool(counts and counts.get(network))

    async def attached(self, node: str, namespace: str, network: str) -> bool:
        """Whether a node has an attachment in a Network."""
        if not namespace or not network:
            return False
        if self.counted(node, namespace, network):
            return True
        return bool((await self._list(node, namespace, network, limit=1)).items)

    async def networks(self, node: str, namespace: str) -> Collection[str]:
        """Return the Networks of a namespace in which a node has an attachment."""
        if not namespace:
            return ()
        if self.known.is_set() and (counted := self._counts.get((node, namespace))):
            return list(counted)
        page = await self._list(node, namespace, None)
        return {one.facets().fields["spec.network"] for one in page.items}

    async def is_by_agents(self, namespace: str, network: str) -> bool:
        """Whether agents implement a Network, and so must know each other's ports in it: fabric vxlan or linux."""
        return await self._by_agents.get((namespace, network), lambda: self._reads_fabric(namespace, network))

    async def _reads_fabric(self, namespace: str, network: str) -> bool:
        try:
            found = await self._store.get(NETWORK, namespace, network)
        except NotFound:
            return False
        fabric = (found.document().get("spec") or {}).get("fabric", Fabric.OVN)
        return fabric in (Fabric.VXLAN, Fabric.LINUX)

    async def _list(self, node: str, namespace: str, network: str | None, limit: int | None = None) -> Page:
        return await self._store.list(NETWORK_ATTACHMENT, namespace, selector=_on(node, network), limit=limit)

    def _take(self, event: Event) -> None:
        if event.type is EventType.MODIFIED:
            return
        if not self._count(event.object, 1 if event.type is EventType.ADDED else -1):
            self._versions.end(event.object.facets().fields["spec.node"])
        if event.type is EventType.DELETED:
            self._remember(event.object)

    def _clear(self) -> None:
        self._counts = {}
        self._versions.clear()

    def _count(self, stored: Stored, more: int) -> int:
        """Count an attachment that was created or deleted; return how many its node has in its Network now."""
        fields = stored.facets().fields
        place = fields["spec.node"], stored.namespace
        there = self._counts.setdefault(place, Counter())
        there[fields["spec.network"]] += more
        left = there[fields["spec.network"]]
        if not left:
            del there[fields["spec.network"]]
        if not there:
            del self._counts[place]
        return left

    def _remember(self, stored: Stored) -> None:
        uid = msgspec.json.decode(stored.raw, type=_Named).metadata.uid
        self._gone[uid] = stored.facets().fields["spec.node"], stored.namespace, stored.name
        if len(self._gone) > GONE:
            self._gone.popitem(last=False)


def _on(node: str, network: str | None) -> Selector:
    return selecting({"spec.node": node} | ({} if network is None else {"spec.network": network}))
