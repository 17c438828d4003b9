"""The built-in roles, and the rights of each.

| role | as written | reads | writes |
|---|---|---|---|
| admin | `netloom:admin[:NAMESPACE]` | everything | everything |
| editor | `netloom:editor[:NAMESPACE]` | everything | specs: Events, our namespaced kinds but HostDocument |
| viewer | `netloom:viewer[:NAMESPACE]` | everything | nothing |
| node | `netloom:node:NAME` | what its attachments and BGPSpeakers use | its part of them, its Node, its own Events |

With a namespace, "everything" is everything in that namespace, where HostDocuments are only read, the Namespace itself
(get), and the CustomResourceDefinitions (read). Only an admin of all namespaces creates and deletes Namespaces;
creating the first object in a namespace creates the Namespace too (namespaces.py).

Editors write specs. Status is observed state, which only controllers and agents know. Nodes are machines, and Leases
decide which controller leads: both are for administrators. So are HostDocuments, which may name any network namespace
of a Node and any VNI: the controller of Sandboxes writes them.

The objects that a node may read follow from its attachments and from the BGPSpeakers that it runs (`spec.node`), and
are those that an agent (`control/node/views.py`) and a speaker (`control/evpn`) watch, no more. A node *extends* the
Networks that the EVPNNetworks of its speakers name:

| kind | which a node may get, list and watch |
|---|---|
| Node | its own |
| NetworkAttachment | its own (`spec.node=NAME`); of a vxlan or linux Network it uses or extends (`spec.network=…`) |
| Network | one it has an attachment in or extends (`metadata.name=…`) |
| Subnet | of a Network it has an attachment in (`spec.network=…`) |
| Mirror, Shaping | of a namespace it has an attachment in |
| SecurityProfile | of a namespace it has an attachment in that is in a vxlan or linux Network |
| LoadBalancer | reachable through nodes (`spec.externalTrafficPolicy!=`), of a namespace it has an attachment in |
| BGPSpeaker | those it runs (`spec.node=NAME`) |
| BGPPeer | of a BGPSpeaker it runs (`spec.speaker=…`) |
| EVPNNetwork | the same; and of a vxlan Network it has an attachment in, or of one it extends (`spec.network=…`) |
| RemoteVTEP | its own (`spec.node=NAME`); those of a vxlan Network it has an attachment in (`spec.network=…`) |
| HostDocument | its own (`spec.node=NAME`) |
| Event | get only: its own |

A get of a missing object is refused like a get of an object of other nodes: a node learns nothing about other nodes.
Except for RemoteVTEPs in a namespace where it runs a BGPSpeaker: it may create them, so it could learn which names are
free anyway. A node may get what it may update or patch, because the answer to a patch is the object. Which fields it
may change is in front/api/admission/node_writes.py.

Every authenticated client may read the discovery documents; /metrics requires a role over all namespaces.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import NoReturn

from msgspec import Struct

from netloom.errors import NotFound
from netloom.front.api.auth.following import Versions, together
from netloom.front.api.auth.identity import Attributes, Identity
from netloom.front.api.auth.node_networks import NodeNetworks
from netloom.front.api.auth.node_speakers import NodeSpeakers
from netloom.front.api.http.paths import READS, Verb
from netloom.model.damaged import PATH as DAMAGED
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.events import AGENT
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    EVPN_NETWORK,
    GROUP,
    HOST_DOCUMENT,
    LOAD_BALANCER,
    MIRROR,
    NAMESPACE,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.model.values.selectors import Operator, Selector
from netloom.store.base import Store

PREFIX = "netloom:"
METRICS = "/metrics"
_FOR_PEOPLE = (METRICS, DAMAGED)
"""Paths about the whole server: for roles of all namespaces, and not for nodes."""
_OUTWARD = "spec.externalTrafficPolicy"
"""The field that LoadBalancers have which are reachable from outside through nodes."""
_UNCHANGING = object()
_STATUS_WRITES = frozenset({"update", "patch"})
_OWN_WRITES = frozenset({"create", "update", "patch"})
_OBJECT_WRITES = frozenset({"update", "patch", "delete"})


class Role(Struct, frozen=True):
    """One role; `scope` is a namespace ("" is all), or for `node` the node's name."""

    name: str
    scope: str = ""


@lru_cache(maxsize=4096)
def roles(texts: tuple[str, ...]) -> tuple[Role, ...]:
    """Return the roles in some texts.  A text that is not a role gives no rights."""
    found = []
    for text in texts:
        name, _, scope = text.removeprefix(PREFIX).partition(":")
        if text.startswith(PREFIX) and (name in _PEOPLE or (name == "node" and scope)):
            found.append(Role(name, scope))
    return tuple(found)


def node_of(who: Identity) -> str:
    """Return the name of the node that an identity belongs to; "" for users and programs."""
    return next((role.scope for role in roles(who.roles) if role.name == "node"), "")


class RoleAuthorizer:
    """Authorizes by roles; for nodes it asks the store for their attachments and BGPSpeakers."""

    asks_others = False

    def __init__(self, store: Store) -> None:
        self._versions = Versions()
        self.node_networks = NodeNetworks(store, self._versions)
        self.node_speakers = NodeSpeakers(store, self._versions)
        self._store = store
        self._node_reads: Mapping[Kind, Callable[[str, Attributes], Awaitable[bool]]] = {
            NODE: self._reads_nodes,
            NETWORK_ATTACHMENT: self._reads_attachments,
            NETWORK: self._reads_networks,
            SUBNET: self._reads_subnets,
            MIRROR: self._reads_paths,
            SECURITY_PROFILE: self._reads_policies,
            SHAPING: self._reads_paths,
            LOAD_BALANCER: self._reads_balancers,
            BGP_SPEAKER: self._reads_speakers,
            BGP_PEER: self._reads_peers,
            EVPN_NETWORK: self._reads_evpn_networks,
            REMOTE_VTEP: self._reads_vteps,
            HOST_DOCUMENT: self._reads_documents,
            EVENT: self._reads_events,
        }

    async def run(self) -> NoReturn:
        """Maintain the indexes by node until cancelled; while this does not run, the store is asked."""
        await together(self.node_networks.run, self.node_speakers.run)

    async def known(self) -> None:
        """Wait until all indexes are maintained."""
        await self.node_networks.known.wait()
        await self.node_speakers.known()

    def version(self, who: Identity) -> object | None:
        """Return an object that changes when a right may have ended: a node's, with an attachment or a BGPSpeaker."""
        nodes = [role.scope for role in roles(who.roles) if role.name == "node"]
        if len(nodes) > 1:
            return None
        if not nodes:
            return _UNCHANGING
        known = self.node_networks.known.is_set() and self.node_speakers.is_known()
        return self._versions.of(nodes[0]) if known else None

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether one of the identity's roles allows it."""
        held = roles(who.roles)
        if what.kind is None:
            return what.path not in _FOR_PEOPLE or any(role.name in _PEOPLE and not role.scope for role in held)
        for role in held:
            if role.name in _PEOPLE:
                if _in_scope(role, what) and _PEOPLE[role.name](what, what.kind):
                    return True
            elif await self._allows_node(role.scope, what, what.kind):
                return True
        return False

    async def _allows_node(self, node: str, what: Attributes, kind: Kind) -> bool:
        if what.verb not in READS:
            return await self._node_writes(node, what, kind)
        return kind in self._node_reads and await self._node_reads[kind](node, what)

    async def _node_writes(self, node: str, what: Attributes, kind: Kind) -> bool:
        if kind is EVENT:
            # The owner of a created Event is in the body: see front/api/admission/node_writes.py.
            return what.verb == "create" or (what.verb in _OWN_WRITES and await self._reads_events(node, what))
        if kind is NODE:
            # The name of a created Node is in the body: see front/api/admission/node_writes.py.
            return what.verb in _OWN_WRITES and (what.name == node or (what.verb == "create" and not what.name))
        if kind is REMOTE_VTEP and not what.subresource:
            if what.verb == "create":
                # Its spec is in the body: see front/api/admission/node_writes.py.
                return await self.node_speakers.runs_any(node, what.namespace)
            return what.verb in _OBJECT_WRITES and await self._has_vtep(node, what)
        if what.subresource != "status" or what.verb not in _STATUS_WRITES:
            return False
        if kind in (NETWORK_ATTACHMENT, BGP_SPEAKER, HOST_DOCUMENT):
            return (await self._spec(kind, what)).get("node") == node
        if kind is BGP_PEER or kind is EVPN_NETWORK:
            return await self._runs(node, what, await self._spec(kind, what))
        return False

    async def _has_vtep(self, node: str, what: Attributes) -> bool:
        """Whether a RemoteVTEP is a node's, or is missing where the node may create one."""
        spec = await self._spec(REMOTE_VTEP, what)
        return spec["node"] == node if spec else await self.node_speakers.runs_any(node, what.namespace)

    async def _reads_nodes(self, node: str, what: Attributes) -> bool:
        return _named(what) == node

    async def _reads_attachments(self, node: str, what: Attributes) -> bool:
        asked = await self._asked(NETWORK_ATTACHMENT, what)
        return asked.get("node") == node or await self._uses(node, what, asked.get("network", ""), by_agents=True)

    async def _reads_networks(self, node: str, what: Attributes) -> bool:
        return await self._uses(node, what, _named(what))

    async def _reads_subnets(self, node: str, what: Attributes) -> bool:
        network = (await self._asked(SUBNET, what)).get("network", "")
        return await self.node_networks.attached(node, what.namespace, network)

    async def _reads_paths(self, node: str, what: Attributes) -> bool:
        return bool(await self.node_networks.networks(node, what.namespace))

    async def _reads_balancers(self, node: str, what: Attributes) -> bool:
        if what.name:
            outward = bool((await self._spec(LOAD_BALANCER, what)).get("externalTrafficPolicy"))
        else:
            outward = any(one.key == _OUTWARD and not one.matches({_OUTWARD: ""}) for one in what.selector.fields)
        return outward and await self._reads_paths(node, what)

    async def _reads_policies(self, node: str, what: Attributes) -> bool:
        for network in await self.node_networks.networks(node, what.namespace):
            if await self.node_networks.is_by_agents(what.namespace, network):
                return True
        return False

    async def _reads_speakers(self, node: str, what: Attributes) -> bool:
        return (await self._asked(BGP_SPEAKER, what)).get("node") == node

    async def _reads_documents(self, node: str, what: Attributes) -> bool:
        return (await self._asked(HOST_DOCUMENT, what)).get("node") == node

    async def _reads_peers(self, node: str, what: Attributes) -> bool:
        return await self._runs(node, what, await self._asked(BGP_PEER, what))

    async def _reads_evpn_networks(self, node: str, what: Attributes) -> bool:
        asked = await self._asked(EVPN_NETWORK, what)
        return await self._runs(node, what, asked) or await self._uses(
            node, what, asked.get("network", ""), by_agents=True
        )

    async def _reads_vteps(self, node: str, what: Attributes) -> bool:
        asked = await self._asked(REMOTE_VTEP, what)
        if what.name and not asked:
            return await self.node_speakers.runs_any(node, what.namespace)
        return asked.get("node") == node or await self._attached(node, what, asked.get("network", ""), by_agents=True)

    async def _runs(self, node: str, what: Attributes, asked: Mapping[str, str]) -> bool:
        """Whether a node runs the BGPSpeaker that an object names."""
        return await self.node_speakers.runs(node, what.namespace, asked.get("speaker", ""))

    async def _uses(self, node: str, what: Attributes, network: str, *, by_agents: bool = False) -> bool:
        """Whether a node extends a Network or has an attachment in it, which with `by_agents` agents must implement."""
        # The indexes first: the store is asked only if neither answers yes.
        if self.node_speakers.counted(node, what.namespace, network):
            return True
        if self.node_networks.counted(node, what.namespace, network):
            return await self._attached(node, what, network, by_agents=by_agents) or await self.node_speakers.extends(
                node, what.namespace, network
            )
        return await self.node_speakers.extends(node, what.namespace, network) or await self._attached(
            node, what, network, by_agents=by_agents
        )

    async def _attached(self, node: str, what: Attributes, network: str, *, by_agents: bool) -> bool:
        attached = await self.node_networks.attached(node, what.namespace, network)
        return attached and (not by_agents or await self.node_networks.is_by_agents(what.namespace, network))

    async def _asked(self, kind: Kind, what: Attributes) -> Mapping[str, str]:
        """Return the spec of the requested object, or the fields of the spec that a selector requires."""
        if what.name:
            return await self._spec(kind, what)
        return {path.removeprefix("spec."): _field(what.selector, path) for path in kind.selectable}

    async def _reads_events(self, node: str, what: Attributes) -> bool:
        return bool(what.name) and is_event_of(node, await self._document(EVENT, what))

    async def _spec(self, kind: Kind, what: Attributes) -> dict[str, str]:
        spec: dict[str, str] = (await self._document(kind, what)).get("spec", {})
        return spec

    async def _document(self, kind: Kind, what: Attributes) -> Document:
        """Return the requested object; {} if it does not exist."""
        try:
            return (await self._store.get(kind, what.namespace, what.name)).document()
        except NotFound:
            return {}


def is_event_of(node: str, event: Document) -> bool:
    """Whether an Event names a node's agent as its reporter."""
    source = event.get("source") or {}
    return (
        event.get("reportingInstance") == source.get("host") == node
        and event.get("reportingComponent") == source.get("component") == AGENT
    )


def _in_scope(role: Role, what: Attributes) -> bool:
    """Whether a role covers the request: a role of a namespace covers its objects and, for reading, the Namespace."""
    if not role.scope:
        return True
    if what.kind is CUSTOM_RESOURCE_DEFINITION:
        return what.verb in READS  # No more than discovery tells every client.
    if what.kind is NAMESPACE and what.verb != Verb.GET:
        return False
    if what.kind is not None and what.kind.controllers_only and what.verb not in READS:
        return False
    return role.scope == what.namespace


def _admin(what: Attributes, kind: Kind) -> bool:
    return True


def _viewer(what: Attributes, kind: Kind) -> bool:
    return what.verb in READS


def _editor(what: Attributes, kind: Kind) -> bool:
    if what.verb in READS:
        return True
    if kind.controllers_only or what.subresource:
        return False
    return kind.namespaced and (kind.group == GROUP or kind is EVENT)


_PEOPLE: Mapping[str, Callable[[Attributes, Kind], bool]] = {"admin": _admin, "editor": _editor, "viewer": _viewer}


def _named(what: Attributes) -> str:
    """Return the one requested name, from the path or a field selector."""
    return what.name or _field(what.selector, "metadata.name")


def _field(wanted: Selector, field: str) -> str:
    """Return the one value that a selector allows for a field, or ""."""
    for requirement in wanted.fields:
        if requirement.key == field and requirement.operator is Operator.IN and len(requirement.values) == 1:
            return min(requirement.values)
    return ""
