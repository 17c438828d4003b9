"""What a node's credential may change: the admission beside the rights of roles.py.

Roles decide by kind, name and verb. A node may write three kinds, and of each only a part:

| kind | what a node may write |
|---|---|
| Node | its own: spec, status, and labels under `node.netloom.dev/`; no other metadata |
| NetworkAttachment | of those on it: ifcName, hostIP, errors.host, postCreateExecReport, Plugged, Ready in the status |
| Event | its own, about its Node and its attachments, of bounded size and rate; no metadata but the name |

hostIP is the underlay address of the node's own Node, and no other Node has it: a node can direct its own traffic
elsewhere, but not another's to itself. Addresses, MAC, VNI and locks are IPAM's to write, and Addressed is IPAM's
condition.

The same rules hold where a Kubernetes cluster keeps the objects, as ValidatingAdmissionPolicies (run/node_policies.py).
Change both together; tests/e2e/node_fields.py tries every field against either.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct

from netloom.control.runtime.events import LONGEST_MESSAGE, Bucket
from netloom.errors import NotFound, TooManyRequests
from netloom.front.api.admission.admission import Operation, Write
from netloom.front.api.auth.identity import Attributes, forbidden
from netloom.front.api.auth.roles import Role, is_event_of, roles
from netloom.model import addresses
from netloom.model.cluster import NODE_LABELS
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, NETWORK_ATTACHMENT, NODE
from netloom.store.base import Store

EVENT_BYTES = 16 * 1024
"""The largest Event of a node, encoded, with its managedFields."""
EVENT_BURST = 1000.0
EVENT_SECONDS = 0.5
"""Seconds until a node may write one more Event."""
_NODES = 65536
"""How many nodes' rates are kept; the one that wrote least recently is forgotten first."""
_METADATA = ("annotations", "finalizers", "ownerReferences", "generateName", "selfLink")
_OWN_STATUS = frozenset(("ifcName", "hostIP", "postCreateExecReport"))
_OWN_CONDITIONS = frozenset(("Plugged", "Ready"))
_IDENTITY = ("apiVersion", "kind", "namespace", "name", "uid")
_CLUSTER_EVENTS = "default"
"""The namespace of Events about objects that are in none."""

WasOn = Callable[[str, Document], bool]
"""Whether a reference is to an attachment that was on a node, and is deleted."""


def nowhere(node: str, reference: Document) -> bool:
    """Know no deleted attachment."""
    return False


class NodeRestriction:
    """Refuses what a node writes beyond its own; others it lets pass."""

    def __init__(self, clock: Callable[[], float], *, was_on: WasOn = nowhere) -> None:
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
        """Refuse a node that would change more than its own."""
        rule = self._rules.get(write.kind)
        if rule is None or write.operation is Operation.DELETE:
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
        verb = "create" if write.operation is Operation.CREATE else "update"
        what = Attributes(verb, write.kind, write.namespace, write.name, write.subresource)
        raise forbidden(write.who, what, reasons[0])

    async def _event(self, node: str, write: Write, store: Store) -> str:
        new, old = write.new or {}, write.old.document() if write.old is not None else None
        if old is not None and not is_event_of(node, old):
            return "a node may write only its own Events"
        if reason := _metadata(new, old):
            return reason
        if labels := _changed_labels(new, old):
            return f"metadata.labels: an Event of a node has none: leave out {labels[0]}"
        if not is_event_of(node, new):
            return (
                "reportingInstance and source.host must be the node, reportingComponent and source.component "
                "netloom-agent"
            )
        if len(new.get("message") or "") > LONGEST_MESSAGE:
            return f"message: a node may write {LONGEST_MESSAGE} characters at most"
        if len(msgspec.json.encode(new)) > EVENT_BYTES:
            return f"an Event of a node may have {EVENT_BYTES} bytes at most"
        if new.get("related"):
            return "related: an Event of a node is about one object"
        subject = new.get("involvedObject") or {}
        if old is not None and any(subject.get(key) != old["involvedObject"].get(key) for key in _IDENTITY):
            return "involvedObject: an Event stays about what it is about: create another"
        if reason := await self._subject(node, write, subject, store):
            return reason
        if not write.dry_run:
            self._take(node)
        return ""

    async def _subject(self, node: str, write: Write, subject: Document, store: Store) -> str:
        """Return why a node may not write an Event about an object; "": it may."""
        if _is(subject, NODE) and subject.get("name") == node and not subject.get("namespace"):
            if write.namespace != _CLUSTER_EVENTS:
                return f"metadata.namespace: an Event about a Node is in {_CLUSTER_EVENTS}"
            kept = await _found(store, NODE, "", node)
            return "" if _same_uid(subject, kept) else "involvedObject.uid: the Node has another uid"
        if _is(subject, NETWORK_ATTACHMENT) and subject.get("namespace") == write.namespace and subject.get("uid"):
            kept = await _found(store, NETWORK_ATTACHMENT, write.namespace, str(subject.get("name", "")))
            on = kept is not None and kept["spec"].get("node") == node and _same_uid(subject, kept)
            if on or self._was_on(node, subject):
                return ""
        return "involvedObject: a node may write Events about its own Node and the attachments on it only"

    def _take(self, node: str) -> None:
        """Count one Event of a node; raise `TooManyRequests` where there are too many."""
        now = self._clock()
        rate = self._rates.get(node)
        if rate is None:
            rate = self._rates[node] = Bucket(EVENT_BURST, now, burst=EVENT_BURST, refill=EVENT_SECONDS)
        self._rates.move_to_end(node)
        if len(self._rates) > _NODES:
            self._rates.popitem(last=False)
        if not rate.take(now):
            raise TooManyRequests(
                f"node {node} writes too many Events: {EVENT_BURST:g} at once and {1 / EVENT_SECONDS:g} a second are "
                "taken",
                retry_after=1,
            )


async def _node(node: str, write: Write, store: Store) -> str:
    if write.name != node:
        return "a node may write only its own Node"
    if write.subresource:
        return ""  # What is not status is not stored.
    new, old = write.new or {}, write.old.document() if write.old is not None else None
    if reason := _metadata(new, old):
        return reason
    if labels := _changed_labels(new, old, NODE_LABELS):
        return f"metadata.labels: a node may change only labels under {NODE_LABELS}: {labels[0]} is an administrator's"
    written = new["spec"]["underlayIP"]
    if old is not None and old["spec"].get("underlayIP") == written:
        return ""
    wanted = addresses.address(written)
    for stored in (await store.list(NODE)).items:
        has = msgspec.json.decode(stored.raw, type=_Node).spec.underlayIP
        if stored.name != node and has and addresses.address(has) == wanted:
            return f"spec.underlayIP: another Node has {written}: delete that Node if it is a machine's old name"
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
        return "a node may write the status of attachments on it only"
    old, new = document.get("status") or {}, (write.new or {}).get("status") or {}
    before, after = _of_others(old), _of_others(new)
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            return f"status.{field}: a node may not change it"
    address = new.get("hostIP") or ""
    if address and address != old.get("hostIP"):
        kept = await _found(store, NODE, "", node)
        if kept is None or kept["spec"].get("underlayIP") != address:
            return "status.hostIP: it must be spec.underlayIP of the node's own Node"
    return ""


def _of_others(status: Document) -> Document:
    """Return what of an attachment's status a node may not change, by the names of the fields."""
    rest = {
        key: value for key, value in status.items() if key not in _OWN_STATUS and key not in ("errors", "conditions")
    }
    rest |= {f"errors.{key}": value for key, value in (status.get("errors") or {}).items() if key != "host"}
    for one in status.get("conditions") or ():
        if one["type"] not in _OWN_CONDITIONS:
            rest[f"conditions[{one['type']}]"] = one
    return rest


def _metadata(new: Document, old: Document | None) -> str:
    """Return why a node may not write this metadata, but for labels; "": it may."""
    has = new["metadata"]
    had = old["metadata"] if old is not None else {}
    for key in _METADATA:
        if old is None and key == "generateName":
            continue
        if (has.get(key) or None) != (had.get(key) or None):
            return f"metadata.{key}: a node may not change it"
    return ""


def _changed_labels(new: Document, old: Document | None, own: str = "") -> list[str]:
    """Return the labels that would change, but for those under the prefix `own`."""
    has = new["metadata"].get("labels") or {}
    had = (old["metadata"].get("labels") if old is not None else None) or {}
    changed = [key for key in has.keys() | had.keys() if has.get(key) != had.get(key)]
    return sorted(key for key in changed if not (own and key.startswith(own)))


def _is(reference: Document, kind: Kind) -> bool:
    return (reference.get("apiVersion"), reference.get("kind")) == (kind.api_version, kind.name)


def _same_uid(reference: Document, kept: Document | None) -> bool:
    """Whether a reference names the object that is stored; one without a uid names any."""
    uid = reference.get("uid")
    return not uid or (kept is not None and kept["metadata"]["uid"] == uid)


async def _found(store: Store, kind: Kind, namespace: str, name: str) -> Document | None:
    if not name:
        return None
    try:
        return (await store.get(kind, namespace, name)).document()
    except NotFound:
        return None
