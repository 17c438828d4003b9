"""The fields that a node's credential may change: the admission rules in addition to the rights in roles.py.

Roles decide by kind, name and verb. A node may write these kinds, and only a part of each:

| kind | a node may write |
|---|---|
| Node | its own: spec, status, and labels under `node.netloom.dev/`; no other metadata |
| NetworkAttachment | of those on it: ifcName, hostIP, errors.host, postCreateExecReport, Plugged, Ready in the status |
| BGPSpeaker | of those it runs (`spec.node`): peers, established, lastHeartbeat, observedGeneration, Ready (status) |
| BGPPeer | of BGPSpeakers it runs: the status |
| EVPNNetwork | of BGPSpeakers it runs: remoteVTEPs, remoteMACs, localMACs, duplicateMACs, Advertised in the status |
| RemoteVTEP | its own (`spec.node`), of an EVPNNetwork of a BGPSpeaker it runs, which owns it; no other metadata |
| Event | its own, about the above, of limited size and rate; no metadata but the name |

hostIP is the underlay address of the node's own Node, and no other Node has it: a node can redirect its own traffic,
but not another's to itself. Only IPAM writes addresses, MAC, VNI and locks, and the condition Addressed. The VNI of an
EVPNNetwork, and which of several speakers forwards, is for its controller to say.

The name of a RemoteVTEP begins with that of its EVPNNetwork, so that a node cannot take the names that another node's
speaker needs. Its address is not that of a Node: packets for machines of other sites, with the VNI of a route, would
reach any Network of this one. Whether the node runs the BGPSpeaker is read from the store at each write, not from an
index: a speaker that has moved to another node writes nothing more.

Where a Kubernetes cluster stores the objects, ValidatingAdmissionPolicies enforce the same rules
(run/cluster/node_policies.py). Change both together; tests/e2e/node_fields.py tests every field against both.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct

from netloom.control.runtime.events import LONGEST_MESSAGE, Bucket
from netloom.errors import NotFound, TooManyRequests
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.auth.following import selecting
from netloom.front.api.auth.identity import Attributes, forbidden
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.front.api.auth.roles import Role, is_event_of, roles
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import NODE_LABELS
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    HOST_DOCUMENT,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
)
from netloom.model.values import addresses
from netloom.store.base import Store

EVENT_BYTES = 16 * 1024
"""The largest Event of a node, encoded, with its managedFields."""
EVENT_BURST = 1000.0
EVENT_SECONDS = 0.5
"""Seconds until a node may write one more Event."""
_NODES = 65536
"""How many nodes' rates to keep; the one that wrote least recently is removed first."""
REMOTE_VTEPS = 16384
"""How many RemoteVTEPs a node may have."""
UNDERLAYS_SECONDS = 5.0
"""For how long the addresses of Nodes are remembered."""
LONG_NAME = 180
"""From this length on the name of an EVPNNetwork may be abbreviated in those of its RemoteVTEPs."""
_METADATA = ("annotations", "finalizers", "ownerReferences", "generateName", "selfLink")
_IDENTITY = ("apiVersion", "kind", "namespace", "name", "uid")
_CLUSTER_EVENTS = "default"
"""The namespace of Events about cluster-scoped objects."""

WasOn = Callable[[str, Document], bool]
"""Whether a reference is to a deleted attachment that was on a node."""
Counts = Callable[[str], int | None]
"""How many RemoteVTEPs a node has; None if that is not known."""


class StatusPart(Struct, frozen=True):
    """The fields and conditions of a status that a node may write."""

    fields: frozenset[str]
    conditions: frozenset[str]


OWN_STATUS: Mapping[Kind, StatusPart] = {
    NETWORK_ATTACHMENT: StatusPart(
        frozenset(("ifcName", "hostIP", "postCreateExecReport")), frozenset(("Plugged", "Ready"))
    ),
    BGP_SPEAKER: StatusPart(
        frozenset(("peers", "established", "lastHeartbeat", "observedGeneration")), frozenset(("Ready",))
    ),
    EVPN_NETWORK: StatusPart(
        frozenset(("remoteVTEPs", "remoteMACs", "localMACs", "duplicateMACs")), frozenset(("Advertised",))
    ),
}
"""Besides these, a node may write errors.host of an attachment, and the whole status of its Node, its BGPPeers and its
HostDocuments."""


_ON_IT = {NETWORK_ATTACHMENT: "attachments on it", HOST_DOCUMENT: "its own HostDocuments"}


def no_deleted(node: str, reference: Document) -> bool:
    """Return False: no deleted attachment is known."""
    return False


def not_counted(node: str) -> int | None:
    """Return None: nothing counts RemoteVTEPs."""
    return None


class NodeRestriction:
    """Refuses writes of a node beyond its own objects; admits all other clients."""

    def __init__(
        self, clock: Callable[[], float], *, was_on: WasOn = no_deleted, remote_vteps: Counts = not_counted
    ) -> None:
        """`clock` is monotonic."""
        self._clock = clock
        self._remote_vteps = remote_vteps
        self._was_on = was_on
        self._rates: OrderedDict[str, Bucket] = OrderedDict()
        self._underlays = ExpiringCache[None, dict[addresses.Address, str]](lambda _: UNDERLAYS_SECONDS, clock=clock)
        self._rules: Mapping[Kind, Callable[[str, Write, Store], Awaitable[str]]] = {
            NODE: _node,
            NETWORK_ATTACHMENT: _attachment,
            BGP_SPEAKER: _status,
            BGP_PEER: _status,
            EVPN_NETWORK: _status,
            HOST_DOCUMENT: _status,
            REMOTE_VTEP: self._remote_vtep,
            EVENT: self._event,
        }

    async def review(self, write: Write, store: Store) -> None:
        """Refuse a node's write if it changes more than the node may."""
        rule = self._rules.get(write.kind)
        if rule is None or (write.operation is WriteOperation.DELETE and write.kind is not REMOTE_VTEP):
            return  # Of these kinds, a node has no right to delete others: see roles.py.
        held = roles(write.who.roles)
        nodes = [role.scope for role in held if role.name == "node"]
        if not nodes or Role("admin") in held:
            return
        reasons = []
        for node in nodes:
            if not (reason := await rule(node, write, store)):
                return
            reasons.append(reason)
        what = Attributes(write.operation.lower(), write.kind, write.namespace, write.name, write.subresource)
        raise forbidden(write.who, what, reasons[0])

    async def _event(self, node: str, write: Write, store: Store) -> str:
        new, old = write.new or {}, write.old.document() if write.old is not None else None
        if old is not None and not is_event_of(node, old):
            return "a node may write only its own Events"
        if reason := _metadata(new, old):
            return reason
        if labels := _changed_labels(new, old):
            return f"metadata.labels: an Event of a node may have no labels: remove {labels[0]}"
        if not is_event_of(node, new):
            return (
                "reportingInstance and source.host must be the node, reportingComponent and source.component must be "
                "netloom-agent"
            )
        if len(new.get("message") or "") > LONGEST_MESSAGE:
            return f"message: must have at most {LONGEST_MESSAGE} characters"
        if len(msgspec.json.encode(new)) > EVENT_BYTES:
            return f"an Event of a node must have at most {EVENT_BYTES} bytes"
        if new.get("related"):
            return "related: must be empty in an Event of a node"
        subject = new.get("involvedObject") or {}
        if old is not None and any(subject.get(key) != old["involvedObject"].get(key) for key in _IDENTITY):
            return "involvedObject: cannot be changed: create another Event"
        if reason := await self._subject(node, write, subject, store):
            return reason
        if not write.dry_run:
            self._take(node)
        return ""

    async def _subject(self, node: str, write: Write, subject: Document, store: Store) -> str:
        """Return why a node may not write an Event about an object; "" if it may."""
        if _is(subject, NODE) and subject.get("name") == node and not subject.get("namespace"):
            if write.namespace != _CLUSTER_EVENTS:
                return f"metadata.namespace: an Event about a Node must be in {_CLUSTER_EVENTS}"
            kept = await _found(store, NODE, "", node)
            return "" if _same_uid(subject, kept) else "involvedObject.uid: the Node has another uid"
        if _is(subject, NETWORK_ATTACHMENT) and subject.get("namespace") == write.namespace and subject.get("uid"):
            kept = await _found(store, NETWORK_ATTACHMENT, write.namespace, str(subject.get("name", "")))
            on = kept is not None and kept["spec"].get("node") == node and _same_uid(subject, kept)
            if on or self._was_on(node, subject):
                return ""
        for kind in (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK):
            if _is(subject, kind) and subject.get("namespace") == write.namespace and subject.get("uid"):
                kept = await _found(store, kind, write.namespace, str(subject.get("name", "")))
                if kept is not None and _same_uid(subject, kept) and await _has(node, kind, kept, store):
                    return ""
        return (
            "involvedObject: a node may write Events only about its own Node, the attachments on it, the BGPSpeakers "
            "that it runs, and their BGPPeers and EVPNNetworks"
        )

    async def _remote_vtep(self, node: str, write: Write, store: Store) -> str:
        old = write.old.document() if write.old is not None else None
        if any(one is not None and one["spec"].get("node") != node for one in (old, write.new)):
            return "spec.node: a node may write only RemoteVTEPs of its own"
        if write.new is None:
            return ""
        new, spec = write.new, write.new["spec"]
        if (new.get("status") or None) != ((old or {}).get("status") or None):
            return "status: a node may not change this field"
        if labels := _changed_labels(new, old):
            return f"metadata.labels: a RemoteVTEP of a node may have no labels: remove {labels[0]}"
        evpn = await _found(store, EVPN_NETWORK, write.namespace, spec["evpnNetwork"])
        if evpn is None or not await _has(node, EVPN_NETWORK, evpn, store):
            return "spec.evpnNetwork: must be an EVPNNetwork of a BGPSpeaker that the node runs"
        if old is not None:
            return _metadata(new, old)
        if evpn["spec"].get("network") != spec["network"]:
            return f"spec.network: must be that of the EVPNNetwork, {evpn['spec'].get('network')}"
        if not _is_name_of_vtep(write.name, spec["evpnNetwork"]):
            return "metadata.name: must be the name of the EVPNNetwork and three parts, as in NAME.192-0-2-1.10.0"
        if reason := _metadata(new, {"metadata": {"ownerReferences": new["metadata"].get("ownerReferences")}}):
            return reason
        owners: list[Document] = new["metadata"].get("ownerReferences") or []
        named = {"name": spec["evpnNetwork"], "uid": evpn["metadata"]["uid"]}
        if len(owners) != 1 or not _is(owners[0], EVPN_NETWORK) or owners[0] | named != owners[0]:
            return f"metadata.ownerReferences: must be the EVPNNetwork, uid {named['uid']}, and no other"
        underlays = await self._underlays.get(None, lambda: _underlays(store))
        if at := underlays.get(addresses.address(spec["address"])):
            return f"spec.address: Node {at} has {spec['address']}: a VTEP of another site has another address"
        count = self._remote_vteps(node)
        if count is None:
            page = await store.list(REMOTE_VTEP, selector=selecting({"spec.node": node}), limit=REMOTE_VTEPS)
            count = len(page.items)
        if count >= REMOTE_VTEPS:
            return f"a node may have at most {REMOTE_VTEPS} RemoteVTEPs: this one has {count}"
        return ""

    def _take(self, node: str) -> None:
        """Count one Event of a node; raise `TooManyRequests` if there are too many."""
        now = self._clock()
        rate = self._rates.get(node)
        if rate is None:
            rate = self._rates[node] = Bucket(EVENT_BURST, now, burst=EVENT_BURST, refill=EVENT_SECONDS)
        self._rates.move_to_end(node)
        if len(self._rates) > _NODES:
            self._rates.popitem(last=False)
        if not rate.take(now):
            raise TooManyRequests(
                f"node {node} writes too many Events: the limits are {EVENT_BURST:g} at once and {1 / EVENT_SECONDS:g} "
                "a second",
                retry_after=1,
            )


async def _node(node: str, write: Write, store: Store) -> str:
    if write.name != node:
        return "a node may write only its own Node"
    if write.subresource:
        return ""  # Only the status is stored.
    new, old = write.new or {}, write.old.document() if write.old is not None else None
    if reason := _metadata(new, old):
        return reason
    if labels := _changed_labels(new, old, NODE_LABELS):
        return f"metadata.labels: a node may change only labels under {NODE_LABELS}: not {labels[0]}"
    written = new["spec"]["underlayIP"]
    if old is not None and old["spec"].get("underlayIP") == written:
        return ""
    if (await _underlays(store, but=node)).get(addresses.address(written)):
        return f"spec.underlayIP: another Node has {written}: delete that Node if this machine was renamed"
    return ""


async def _underlays(store: Store, *, but: str = "") -> dict[addresses.Address, str]:
    """Return the names of all Nodes by their underlay addresses, without one Node."""
    nodes = [one for one in (await store.list(NODE)).items if one.name != but]
    found = {one.name: msgspec.json.decode(one.raw, type=_Node).spec.underlayIP for one in nodes}
    return {addresses.address(text): name for name, text in found.items() if text}


class _Spec(Struct, frozen=True):
    underlayIP: str = ""


class _Node(Struct, frozen=True):
    spec: _Spec = _Spec()


async def _attachment(node: str, write: Write, store: Store) -> str:
    if write.subresource != "status" or write.old is None:
        return ""  # A node has no right to these: see roles.py.
    old = write.old.document()
    if reason := await _status(node, write, store):
        return reason
    address = ((write.new or {}).get("status") or {}).get("hostIP") or ""
    if address and address != (old.get("status") or {}).get("hostIP"):
        kept = await _found(store, NODE, "", node)
        if kept is None or kept["spec"].get("underlayIP") != address:
            return "status.hostIP: must be spec.underlayIP of the node's own Node"
    return ""


async def _status(node: str, write: Write, store: Store) -> str:
    """Return why a node may not write this status; "" if it may."""
    kind = write.kind
    if write.subresource != "status" or write.old is None:
        return ""  # A node has no right to these: see roles.py.
    old = write.old.document()
    if not await _has(node, kind, old, store):
        whose = _ON_IT.get(kind) or f"{kind.name}s of BGPSpeakers that it runs"
        return f"a node may write only the status of {whose}"
    if kind not in OWN_STATUS:
        return ""
    before, after = (_of_others(one.get("status") or {}, OWN_STATUS[kind]) for one in (old, write.new or {}))
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            return f"status.{field}: a node may not change this field"
    return ""


async def _has(node: str, kind: Kind, document: Document, store: Store) -> bool:
    """Whether an object is on a node, or is of a BGPSpeaker that the node runs."""
    spec = document["spec"]
    if kind is BGP_PEER or kind is EVPN_NETWORK:
        speaker = await _found(store, BGP_SPEAKER, document["metadata"].get("namespace", ""), spec.get("speaker", ""))
        spec = speaker["spec"] if speaker is not None else {}
    return bool(spec.get("node") == node)


def _is_name_of_vtep(name: str, evpn_network: str) -> bool:
    """Whether a name is EVPNNETWORK.ADDRESS.VNI.NUMBER; if the first part would be too long, another may be there."""
    parts = name.rsplit(".", 3)
    return len(parts) == 4 and (parts[0] == evpn_network or len(evpn_network) >= LONG_NAME)


def _of_others(status: Document, own: StatusPart) -> Document:
    """Return the parts of a status that a node may not change, by the names of the fields."""
    rest = {
        key: value for key, value in status.items() if key not in own.fields and key not in ("errors", "conditions")
    }
    rest |= {f"errors.{key}": value for key, value in (status.get("errors") or {}).items() if key != "host"}
    for one in status.get("conditions") or ():
        if one["type"] not in own.conditions:
            rest[f"conditions[{one['type']}]"] = one
    return rest


def _metadata(new: Document, old: Document | None) -> str:
    """Return why a node may not write this metadata, apart from labels; "" if it may."""
    has = new["metadata"]
    had = old["metadata"] if old is not None else {}
    for key in _METADATA:
        if old is None and key == "generateName":
            continue
        if (has.get(key) or None) != (had.get(key) or None):
            return f"metadata.{key}: a node may not change this field"
    return ""


def _changed_labels(new: Document, old: Document | None, own: str = "") -> list[str]:
    """Return the labels that would change, without those under the prefix `own`."""
    has = new["metadata"].get("labels") or {}
    had = (old["metadata"].get("labels") if old is not None else None) or {}
    changed = [key for key in has.keys() | had.keys() if has.get(key) != had.get(key)]
    return sorted(key for key in changed if not (own and key.startswith(own)))


def _is(reference: Document, kind: Kind) -> bool:
    return (reference.get("apiVersion"), reference.get("kind")) == (kind.api_version, kind.name)


def _same_uid(reference: Document, kept: Document | None) -> bool:
    """Whether a reference is to the stored object; one without a uid matches any."""
    uid = reference.get("uid")
    return not uid or (kept is not None and kept["metadata"]["uid"] == uid)


async def _found(store: Store, kind: Kind, namespace: str, name: str) -> Document | None:
    if not name:
        return None
    try:
        return (await store.get(kind, namespace, name)).document()
    except NotFound:
        return None
