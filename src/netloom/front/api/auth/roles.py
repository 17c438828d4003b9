"""The built-in roles, and what each may do.

| role | as written | reads | writes |
|---|---|---|---|
| admin | `netloom:admin[:NAMESPACE]` | everything | everything |
| editor | `netloom:editor[:NAMESPACE]` | everything | netloom.dev's namespaced kinds and Events, but no status |
| viewer | `netloom:viewer[:NAMESPACE]` | everything | nothing |
| node | `netloom:node:NAME` | what concerns its node | its own Node, the status of attachments on it, its own Events |

With a namespace, "everything" is everything in that namespace, the Namespace itself (to get it) and the
CustomResourceDefinitions (to read them). Namespaces are created and deleted by an admin over all of them; the first
object somebody may create in a namespace brings it along (namespaces.py).

Editors write specs: status is what was seen, which only controllers and agents know; Nodes are machines and Leases
decide who leads, which is an administrator's business.

What concerns a node follows its attachments, and is what an agent follows (`control/node/views.py`), no more:

| kind | which a node may get, list and watch |
|---|---|
| Node | its own |
| NetworkAttachment | its own (`spec.node=NAME`); those of a vxlan Network it has one in (`spec.network=…`) |
| Network, Subnet | of a Network it has an attachment in (`metadata.name=…`, `spec.network=…`) |
| Mirror | of a namespace it has an attachment in |
| SecurityProfile, Shaping | of a namespace it has an attachment in that is in a vxlan Network |
| Event | get only: its own |

A get of something that is not there is refused like one of something that does not concern it: a node learns nothing
about other nodes. What it may update or patch, it may get, because the answer to a patch is the object. What of an
object it may change, front/api/admission/node_writes.py says.

Everybody we know may read the discovery documents; /metrics needs a role over all namespaces.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import NoReturn

from msgspec import Struct

from netloom.errors import NotFound
from netloom.front.api.auth.identity import Attributes, Identity
from netloom.front.api.auth.node_networks import Concern
from netloom.front.api.http.paths import READS, Verb
from netloom.model.damaged import PATH as DAMAGED
from netloom.model.document import Document
from netloom.model.events import AGENT
from netloom.model.kind import Kind
from netloom.model.registry import (
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    GROUP,
    MIRROR,
    NAMESPACE,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.model.selectors import Operator, Selector
from netloom.store.base import Store

PREFIX = "netloom:"
METRICS = "/metrics"
_FOR_PEOPLE = (METRICS, DAMAGED)
"""Paths about everything there is: for roles of all namespaces, and no node's."""
_UNCHANGING = object()
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


def node_of(who: Identity) -> str:
    """Return which node somebody is; "" for people and programs."""
    return next((role.scope for role in roles(who.roles) if role.name == "node"), "")


class RoleAuthorizer:
    """Decides by roles; for nodes it asks the store what concerns them."""

    asks_others = False

    def __init__(self, store: Store) -> None:
        self.concern = Concern(store)
        self._nodes = _Nodes(store, self.concern)

    async def run(self) -> NoReturn:
        """Know what concerns nodes before they ask, until cancelled; where this does not run, the store is asked."""
        await self.concern.run()

    def version(self, who: Identity) -> object | None:
        """Return what changes when a right can have ended: a node's follow its attachments, other roles stay."""
        nodes = [role.scope for role in roles(who.roles) if role.name == "node"]
        if len(nodes) > 1:
            return None
        return self.concern.version(nodes[0]) if nodes else _UNCHANGING

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether one of their roles allows it."""
        held = roles(who.roles)
        if what.kind is None:
            return what.path not in _FOR_PEOPLE or any(role.name in _PEOPLE and not role.scope for role in held)
        for role in held:
            if role.name in _PEOPLE:
                if _in_scope(role, what) and _PEOPLE[role.name](what, what.kind):
                    return True
            elif await self._nodes.allows(role.scope, what, what.kind):
                return True
        return False


def is_event_of(node: str, event: Document) -> bool:
    """Whether an Event says that a node's agent wrote it."""
    source = event.get("source") or {}
    return (
        event.get("reportingInstance") == source.get("host") == node
        and event.get("reportingComponent") == source.get("component") == AGENT
    )


def _in_scope(role: Role, what: Attributes) -> bool:
    """Whether a role is about what is asked: with a namespace it is about that one's objects, and knows what it is."""
    if not role.scope:
        return True
    if what.kind is CUSTOM_RESOURCE_DEFINITION:
        return what.verb in READS  # No more than discovery says to everybody.
    if what.kind is NAMESPACE and what.verb != Verb.GET:
        return False
    return role.scope == what.namespace


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

    def __init__(self, store: Store, concern: Concern) -> None:
        self._store = store
        self._concern = concern
        self._reads: Mapping[Kind, Callable[[str, Attributes], Awaitable[bool]]] = {
            NODE: self._reads_nodes,
            NETWORK_ATTACHMENT: self._reads_attachments,
            NETWORK: self._reads_networks,
            SUBNET: self._reads_subnets,
            MIRROR: self._reads_mirrors,
            SECURITY_PROFILE: self._reads_policies,
            SHAPING: self._reads_policies,
            EVENT: self._reads_events,
        }

    async def allows(self, node: str, what: Attributes, kind: Kind) -> bool:
        if what.verb not in READS:
            return await self._writes(node, what, kind)
        return kind in self._reads and await self._reads[kind](node, what)

    async def _writes(self, node: str, what: Attributes, kind: Kind) -> bool:
        if kind is EVENT:
            # Whose Event is created stands in the body: see front/api/admission/node_writes.py.
            return what.verb == "create" or (what.verb in _OWN_WRITES and await self._reads_events(node, what))
        if kind is NODE:
            # The name of a Node that is created stands in the body: see front/api/admission/node_writes.py.
            return what.verb in _OWN_WRITES and (what.name == node or (what.verb == "create" and not what.name))
        if kind is NETWORK_ATTACHMENT and what.subresource == "status" and what.verb in _STATUS_WRITES:
            return (await self._spec(kind, what)).get("node") == node
        return False

    async def _reads_nodes(self, node: str, what: Attributes) -> bool:
        return _named(what) == node

    async def _reads_attachments(self, node: str, what: Attributes) -> bool:
        if what.name:
            spec = await self._spec(NETWORK_ATTACHMENT, what)
            if spec.get("node") == node:
                return True
            network = spec.get("network", "")
        else:
            if _field(what.selector, "spec.node") == node:
                return True
            network = _field(what.selector, "spec.network")
        concern = self._concern
        return await concern.attached(node, what.namespace, network) and await concern.is_vxlan(what.namespace, network)

    async def _reads_networks(self, node: str, what: Attributes) -> bool:
        return await self._concern.attached(node, what.namespace, _named(what))

    async def _reads_subnets(self, node: str, what: Attributes) -> bool:
        if what.name:
            network = (await self._spec(SUBNET, what)).get("network", "")
        else:
            network = _field(what.selector, "spec.network")
        return await self._concern.attached(node, what.namespace, network)

    async def _reads_mirrors(self, node: str, what: Attributes) -> bool:
        return bool(await self._concern.networks(node, what.namespace))

    async def _reads_policies(self, node: str, what: Attributes) -> bool:
        for network in await self._concern.networks(node, what.namespace):
            if await self._concern.is_vxlan(what.namespace, network):
                return True
        return False

    async def _reads_events(self, node: str, what: Attributes) -> bool:
        return bool(what.name) and is_event_of(node, await self._document(EVENT, what))

    async def _spec(self, kind: Kind, what: Attributes) -> dict[str, str]:
        spec: dict[str, str] = (await self._document(kind, what)).get("spec", {})
        return spec

    async def _document(self, kind: Kind, what: Attributes) -> Document:
        """Return the object that is asked about; {}: it is not there."""
        try:
            return (await self._store.get(kind, what.namespace, what.name)).document()
        except NotFound:
            return {}


def _named(what: Attributes) -> str:
    """Return the one name asked for, in the path or by a field selector."""
    return what.name or _field(what.selector, "metadata.name")


def _field(wanted: Selector, field: str) -> str:
    """Return the one value a selector leaves for a field, or ""."""
    for requirement in wanted.fields:
        if requirement.key == field and requirement.operator is Operator.IN and len(requirement.values) == 1:
            return min(requirement.values)
    return ""
