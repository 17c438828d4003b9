"""The fields that a node's credential may change: the admission rules in addition to the rights in roles.py.

Roles decide by kind, name and verb. A node may write three kinds, and only a part of each:

| kind | a node may write |
|---|---|
| Node | its own: spec, status, and labels under `node.netloom.dev/`; no other metadata |
| NetworkAttachment | of those on it: ifcName, hostIP, errors.host, postCreateExecReport, Plugged, Ready in the status |
| Event | its own, about its Node and its attachments, of limited size and rate; no metadata but the name |

hostIP is the underlay address of the node's own Node, and no other Node has it: a node can redirect its own traffic,
but not another's to itself. Only IPAM writes addresses, MAC, VNI and locks, and the condition Addressed.

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
from netloom.front.api.auth.identity import Attributes, forbidden
from netloom.front.api.auth.roles import Role, is_event_of, roles
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import NODE_LABELS
from netloom.model.registry import EVENT, NETWORK_ATTACHMENT, NODE
from netloom.model.values import addresses
from netloom.store.base import Store

EVENT_BYTES = 16 * 1024
"""The largest Event of a node, encoded, with its managedFields."""
EVENT_BURST = 1000.0
EVENT_SECONDS = 0.5
"""Seconds until a node may write one more Event."""
_NODES = 65536
"""How many nodes' rates to keep; the one that wrote least recently is removed first."""
_METADATA = ("annotations", "finalizers", "ownerReferences", "generateName", "selfLink")
_OWN_STATUS = frozenset(("ifcName", "hostIP", "postCreateExecReport"))
_OWN_CONDITIONS = frozenset(("Plugged", "Ready"))
_IDENTITY = ("apiVersion", "kind", "namespace", "name", "uid")
_CLUSTER_EVENTS = "default"
"""The namespace of Events about cluster-scoped objects."""

WasOn = Callable[[str, Document], bool]
"""Whether a reference is to a deleted attachment that was on a node."""


def no_deleted(node: str, reference: Document) -> bool:
    """Return False: no deleted attachment is known."""
    return False


class NodeRestriction:
    """Refuses writes of a node beyond its own objects; admits all other clients."""

    def __init__(self, clock: Callable[[], float], *, was_on: WasOn = no_deleted) -> None:
        """`clock` is monotonic."""
        self._clock = clock
        self._was_on = was_on
        self._rates: OrderedDict[str, Bucket] = OrderedDict()
        self._rules: Mapping[Kind, Callable[[str, Write, Store], Awaitable[str]]] = {
            NODE: _node,
            NETWORK_ATTACHMENT: _attachment,
            EVENT: self._event,
        }

    async def review(self, write: Write, store: Store) -> None:
        """Refuse a node's write if it changes more than the node may."""
        rule = self._rules.get(write.kind)
        if rule is None or write.operation is WriteOperation.DELETE:
            return
        held = roles(write.who.roles)
        nodes = [role.scope for role in held if role.name == "node"]
        if not nodes or Role("admin") in held:
            return
        reasons = []
        for node in nodes:
            if not (reason := await rule(node, write, store)):
                return
            reasons.append(reason)
        verb = "create" if write.operation is WriteOperation.CREATE else "update"
        what = Attributes(verb, write.kind, write.namespace, write.name, write.subresource)
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
        return "involvedObject: a node may write Events only about its own Node and the attachments on it"

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
    wanted = addresses.address(written)
    for stored in (await store.list(NODE)).items:
        has = msgspec.json.decode(stored.raw, type=_Node).spec.underlayIP
        if stored.name != node and has and addresses.address(has) == wanted:
            return f"spec.underlayIP: another Node has {written}: delete that Node if this machine was renamed"
    return ""


class _Spec(Struct, frozen=True):
    underlayIP: str = ""


class _Node(Struct, frozen=True):
    spec: _Spec = _Spec()


async def _attachment(node: str, write: Write, store: Store) -> str:
    if write.subresource != "status" or write.old is None:
        return ""  # A node has no right to these: see roles.py.
    document = write.old.document()
    if document["spec"].get("node") != node:
        return "a node may write only the status of attachments on it"
    old, new = document.get("status") or {}, (write.new or {}).get("status") or {}
    before, after = _of_others(old), _of_others(new)
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            return f"status.{field}: a node may not change this field"
    address = new.get("hostIP") or ""
    if address and address != old.get("hostIP"):
        kept = await _found(store, NODE, "", node)
        if kept is None or kept["spec"].get("underlayIP") != address:
            return "status.hostIP: must be spec.underlayIP of the node's own Node"
    return ""


def _of_others(status: Document) -> Document:
    """Return the parts of an attachment's status that a node may not change, by the names of the fields."""
    rest = {
        key: value for key, value in status.items() if key not in _OWN_STATUS and key not in ("errors", "conditions")
    }
    rest |= {f"errors.{key}": value for key, value in (status.get("errors") or {}).items() if key != "host"}
    for one in status.get("conditions") or ():
        if one["type"] not in _OWN_CONDITIONS:
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
