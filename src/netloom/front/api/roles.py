"""The built-in roles, and what each may do.

| role | as written | reads | writes |
|---|---|---|---|
| admin | `netloom:admin[:NAMESPACE]` | everything | everything |
| editor | `netloom:editor[:NAMESPACE]` | everything | netloom.dev's namespaced kinds and Events, but no status |
| viewer | `netloom:viewer[:NAMESPACE]` | everything | nothing |
| node | `netloom:node:NAME` | what concerns its node | its own Node, the status of attachments on it, Events |

With a namespace, "everything" is everything in that namespace. Editors write wishes: status is what was seen, which
only controllers and agents know; Nodes are machines and Leases decide who leads, which is an administrator's business.

What concerns a node follows its attachments. It may read its own Node; attachments and PortPools selected by
`spec.node=NAME`; and, of each Network in which it has an attachment, the Network, its Subnets, IPLocks and attachments
(selected by `metadata.name` or `spec.network`, in their namespace). Other kinds it may read in namespaces where it has
an attachment. Leases it may not read. A get of something that is not there is refused like one of something that does
not concern it: a node learns nothing about other nodes.

Everybody we know may read the discovery documents; /metrics needs a role over all namespaces.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from netloom.errors import NotFound
from netloom.front.api.admission import Operation, Write
from netloom.front.api.identity import Attributes, Identity, forbidden
from netloom.front.api.paths import READS
from netloom.model.kind import Kind
from netloom.model.registry import (
    EVENT,
    GROUP,
    IP_LOCK,
    LEASE,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    PORT_POOL,
    SUBNET,
)
from netloom.model.selectors import Operator, Requirement, Selector
from netloom.store.base import Store

PREFIX = "netloom:"
METRICS = "/metrics"
_STATUS_WRITES = frozenset({"update", "patch"})
_OWN_WRITES = frozenset({"create", "update", "patch"})


class Role(Struct, frozen=True):
    """One role; `scope` is a namespace ("" is all), or for `node` the node's name."""

    name: str
    scope: str = ""


@lru_cache(maxsize=4096)
def roles(texts: tuple[str, ...]) -> tuple[Role, ...]:
    """Return the roles that some texts name.  A text that names none gives no rights."""
    found = []
    for text in texts:
        name, _, scope = text.removeprefix(PREFIX).partition(":")
        if text.startswith(PREFIX) and (name in _PEOPLE or (name == "node" and scope)):
            found.append(Role(name, scope))
    return tuple(found)


class RoleAuthorizer:
    """Decides by roles; for nodes it asks the store what concerns them."""

    def __init__(self, store: Store) -> None:
        self._nodes = _Nodes(store)

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether one of their roles allows it."""
        held = roles(who.roles)
        if what.kind is None:
            return what.path != METRICS or any(role.name in _PEOPLE and not role.scope for role in held)
        for role in held:
            if role.name in _PEOPLE:
                if (not role.scope or role.scope == what.namespace) and _PEOPLE[role.name](what, what.kind):
                    return True
            elif await self._nodes.allows(role.scope, what, what.kind):
                return True
        return False


class NodeRestriction:
    """Admission for nodes: a Node may be created only by itself, and its name stands in the body, not in the path."""

    async def review(self, write: Write, store: Store) -> None:
        """Refuse a node that would make another Node."""
        if write.kind is not NODE or write.operation is not Operation.CREATE:
            return
        held = roles(write.who.roles)
        nodes = [role.scope for role in held if role.name == "node"]
        if not nodes or write.name in nodes or Role("admin") in held:
            return
        raise forbidden(write.who, Attributes("create", NODE, name=write.name), "a node may write only its own Node")


def _admin(what: Attributes, kind: Kind) -> bool:
    return True


def _viewer(what: Attributes, kind: Kind) -> bool:
    return what.verb in READS


def _editor(what: Attributes, kind: Kind) -> bool:
    if what.verb in READS:
        return True
    return kind.namespaced and not what.subresource and (kind.group == GROUP or kind is EVENT)


_PEOPLE: Mapping[str, Callable[[Attributes, Kind], bool]] = {"admin": _admin, "editor": _editor, "viewer": _viewer}


class _Nodes:
    """What a node may do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads: Mapping[Kind, Callable[[str, Attributes], Awaitable[bool]]] = {
            NETWORK_ATTACHMENT: self._reads_attachments,
            PORT_POOL: self._reads_pools,
            NETWORK: self._reads_networks,
            SUBNET: self._reads_parts,
            IP_LOCK: self._reads_parts,
        }

    async def allows(self, node: str, what: Attributes, kind: Kind) -> bool:
        if what.verb not in READS:
            return await self._writes(node, what, kind)
        if kind is NODE:
            return _named(what) == node
        if kind is LEASE or not kind.namespaced:
            return False
        if kind in self._reads:
            return await self._reads[kind](node, what)
        return bool(what.namespace) and await self._attached(node, what.namespace)

    async def _writes(self, node: str, what: Attributes, kind: Kind) -> bool:
        if kind is EVENT:
            return what.verb in _OWN_WRITES
        if kind is NODE:
            # The name of a Node that is created stands in the body: see `NodeRestriction`.
            return what.verb in _OWN_WRITES and (what.name == node or (what.verb == "create" and not what.name))
        if kind is NETWORK_ATTACHMENT and what.subresource == "status" and what.verb in _STATUS_WRITES:
            return (await self._spec(kind, what)).get("node") == node
        return False

    async def _reads_attachments(self, node: str, what: Attributes) -> bool:
        if what.name:
            spec = await self._spec(NETWORK_ATTACHMENT, what)
            return spec.get("node") == node or await self._attached(node, what.namespace, spec.get("network", ""))
        if _field(what.selector, "spec.node") == node:
            return True
        return await self._reads_parts(node, what)

    async def _reads_pools(self, node: str, what: Attributes) -> bool:
        if what.name:
            return (await self._spec(PORT_POOL, what)).get("node") == node
        return _field(what.selector, "spec.node") == node

    async def _reads_networks(self, node: str, what: Attributes) -> bool:
        return await self._attached(node, what.namespace, _named(what))

    async def _reads_parts(self, node: str, what: Attributes) -> bool:
        if what.name and what.kind is not None:
            network = (await self._spec(what.kind, what)).get("network", "")
        else:
            network = _field(what.selector, "spec.network")
        return await self._attached(node, what.namespace, network)

    async def _attached(self, node: str, namespace: str, network: str | None = None) -> bool:
        """Whether the node has an attachment in the namespace, and in that Network where one is given."""
        if not namespace or network == "":
            return False
        page = await self._store.list(NETWORK_ATTACHMENT, namespace, selector=_on(node, network), limit=1)
        return bool(page.items)

    async def _spec(self, kind: Kind, what: Attributes) -> dict[str, str]:
        try:
            found = await self._store.get(kind, what.namespace, what.name)
        except NotFound:
            return {}
        spec: dict[str, str] = found.document().get("spec", {})
        return spec


@lru_cache(maxsize=4096)
def _on(node: str, network: str | None) -> Selector:
    wanted = {"spec.node": node} if network is None else {"spec.node": node, "spec.network": network}
    return Selector((), tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in wanted.items()))


def _named(what: Attributes) -> str:
    """Return the one name asked for, in the path or by a field selector."""
    return what.name or _field(what.selector, "metadata.name")


def _field(wanted: Selector, field: str) -> str:
    """Return the one value a selector leaves for a field, or ""."""
    for requirement in wanted.fields:
        if requirement.key == field and requirement.operator is Operator.IN and len(requirement.values) == 1:
            return min(requirement.values)
    return ""
