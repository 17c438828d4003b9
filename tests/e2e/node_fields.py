"""Every field of every kind, written with a node's credential: what is stored changes only where it may.

The fields come from the schemas (model/schemas/schema.py), so a field that is added is tried without a change here.
Each is written by replace, merge patch, JSON patch and server-side apply, on the resource and on its status. `may`
is what a node may change, said a second time and differently.

    found = Walk(admin, node).walk(prepare(admin, kinds))
"""

import contextlib
import http.client
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct, field

from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.sandbox import PROTOCOL_PATTERN
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    EVPN_NETWORK,
    HOST_DOCUMENT,
    LEASE,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
)
from netloom.model.registry import NAMESPACE as NAMESPACES
from netloom.model.schemas import rules
from netloom.model.schemas.schema import PRESERVE, Schema, metadata_tree, tree
from netloom.store.kube import kubeconfig as kubeconfigs

Ask = Callable[..., tuple[int, Any]]
"""Sends a method, a path, perhaps a body and its media type, and returns status and answer."""
Place = tuple[str, ...]

OWN, OTHER = "nf1", "nf2"
NAMESPACE = "node-fields"
UNDERLAY = {OWN: "192.0.2.201", OTHER: "192.0.2.202"}
OWN_LABELS = "node.netloom.dev/"
OF_SPEAKERS = (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, REMOTE_VTEP)
OWNED = ((NODE, OWN), *((kind, "own") for kind in (NETWORK_ATTACHMENT, HOST_DOCUMENT, EVENT, *OF_SPEAKERS)))
"""The objects of which a node may write something: their fields are tried in all ways, others' in one of four each."""
CONFORMANCE = Path(__file__).parent / "conformance"
MERGE, JSON_PATCH, APPLY = (
    f"application/{name}" for name in ("merge-patch+json", "json-patch+json", "apply-patch+yaml")
)

STRINGS: dict[str, tuple[str, str]] = {
    rules.LABEL_PATTERN: ("one", "two"),
    rules.SUBDOMAIN_PATTERN: ("one", "two"),
    rules.LABEL_KEY_PATTERN: ("one", "two"),
    rules.LABEL_VALUE_PATTERN: ("one", "two"),
    rules.MAC_PATTERN: ("02:00:00:00:00:01", "02:00:00:00:00:02"),
    rules.RATE_PATTERN: ("1mbit", "2mbit"),
    rules.SIZE_PATTERN: ("1kb", "2kb"),
    rules.DURATION_PATTERN: ("1ms", "2ms"),
    rules.PERCENTAGE_PATTERN: ("1%", "2%"),
    rules.DEVICE_PATTERN: ("dev1", "dev2"),
    rules.PATH_PATTERN: ("/run/netns/a", "/run/netns/b"),
    rules.DISTINGUISHER_PATTERN: ("auto", "65000:10"),
    rules.TOPOLOGY_NAME_PATTERN: ("one", "two"),
    PROTOCOL_PATTERN: ("SSH", "WINRM"),
}
RULED = {
    rules.IP: ("10.10.0.7", "10.10.0.8"),
    rules.IPV4: ("10.10.0.7", "10.10.0.8"),
    rules.CIDR: ("10.10.0.0/24", "10.10.1.0/24"),
    rules.INTERFACE: ("10.10.0.7/24", "10.10.0.8/24"),
    rules.IP_OR_CIDR: ("10.10.0.7", "10.10.0.8"),
    rules.IP_RANGE: ("10.10.0.7", "10.10.0.8"),
    rules.DISTINGUISHER: ("auto", "65000:10"),
}


class Found(Struct):
    """What came of a walk."""

    attempts: int = 0
    written: set[str] = field(default_factory=set)
    """The fields that the node changed, as `networkattachments status.ifcName`."""
    refused: set[str] = field(default_factory=set)
    """Those that an administrator could have changed so, and the node could not."""
    withheld: set[str] = field(default_factory=set)
    """Of these the fields that a node may change."""
    wrong: list[str] = field(default_factory=list)


@contextlib.contextmanager
def connected(kubeconfig: Path) -> Iterator[Ask]:
    """Give a way to ask a server over one connection, as a kubeconfig says."""
    cluster = kubeconfigs.load(str(kubeconfig))
    at = urlsplit(cluster.server)
    connection = http.client.HTTPSConnection(at.hostname or "", at.port, context=cluster.tls(), timeout=120)
    with contextlib.closing(connection):
        yield asking(connection, cluster.headers())


def asking(connection: http.client.HTTPConnection, headers: Mapping[str, str]) -> Ask:
    """Return a way to ask over a connection that is kept."""

    def ask(method: str, path: str, body: object = None, media: str = "application/json") -> tuple[int, Any]:
        sent = {**headers, **({} if body is None else {"Content-Type": media})}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    return ask


# What there is.


def prepare(admin: Ask, kinds: Iterable[Kind]) -> list[tuple[Kind, str, str]]:
    """Make one object of each kind, or one of the node's and one of another's; return kind, namespace and name."""
    made = []
    uids: dict[str, str] = {}
    for kind in sorted(kinds, key=lambda one: one is EVENT):  # An Event is about one of the others.
        namespace = NAMESPACE if kind.namespaced else ""
        for name, document in _objects(kind, uids):
            status = document.pop("status", None)
            document["metadata"] |= {"name": name} | ({"namespace": namespace} if namespace else {})
            code, stored = admin("POST", kind.path(namespace), document)
            assert code == 201, stored
            if status is not None:
                code, stored = admin("PUT", kind.path(namespace, name, "status"), stored | {"status": status})
                assert code == 200, stored
            if kind is NETWORK_ATTACHMENT:
                uids[name] = stored["metadata"]["uid"]
            made.append((kind, namespace, name))
    return made


def _objects(kind: Kind, uids: Mapping[str, str]) -> Iterator[tuple[str, Document]]:
    """Yield name and document of the objects of a kind; `uids` are the attachments'."""

    def made(**parts: Any) -> Document:
        labels = {} if kind is EVENT else {"labels": {"rack": "a"}}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": labels, **parts}

    if kind is EVENT:
        yield "own", made(**event(OWN, "own", uids["own"]))
        yield "other", made(**event(OTHER, "other", uids["other"]))
        yield "controllers", made(**event(OWN, "own", uids["own"]) | {"reportingComponent": "netloom-controller"})
    elif kind is NAMESPACES:
        yield "one", made(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
    elif kind is CUSTOM_RESOURCE_DEFINITION:
        return  # Nobody writes one: they are read-only, whoever asks.
    elif kind is LEASE:
        yield "one", made(spec={"holderIdentity": "a", "leaseDurationSeconds": 15})
    elif kind is NODE:
        for name in (OWN, OTHER):
            status = {"agentVersion": "1", "conditions": [condition("Ready")]}
            yield name, made(spec={"underlayIP": UNDERLAY[name]}, status=status)
    elif kind is NETWORK_ATTACHMENT:
        for name, node in (("own", OWN), ("other", OTHER)):
            yield name, made(spec={"node": node, "network": "blue"}, status=_status())
    elif kind is HOST_DOCUMENT:
        for name, node in (("own", OWN), ("other", OTHER)):
            yield name, made(spec=_good(kind) | {"node": node}, status={"conditions": [condition("Ready")]})
    elif kind in OF_SPEAKERS:
        for name, node in (("own", OWN), ("other", OTHER)):
            names = {"node": node, "speaker": name, "evpnNetwork": name, "network": "blue"}
            spec = {key: names.get(key, value) for key, value in _good(kind).items()}
            yield name, made(spec=spec, **({"status": SPOKEN[kind]} if kind.has_status else {}))
    else:
        good = _good(kind)
        yield "one", made(spec=good, **({"status": {"conditions": [condition("Ready")]}} if kind.has_status else {}))


def _good(kind: Kind) -> Document:
    good: Document = yaml.safe_load((CONFORMANCE / f"{kind.singular}.yaml").read_text())["good"]
    return good


def condition(name: str) -> Document:
    """Return a condition."""
    return {"type": name, "status": "True", "reason": "Well", "lastTransitionTime": "2026-11-15T09:00:00Z"}


def _status() -> Document:
    return {
        "ips": ["10.10.0.9/24"],
        "mac": "02:00:00:00:00:09",
        "vni": 10,
        "locks": [{"ip": "10.10.0.9", "uid": "u1"}],
        "errors": {"ipam": ["one"], "host": ["two"]},
        "conditions": [condition("Addressed"), condition("Plugged"), condition("Ready")],
        "observedGeneration": 1,
    }


SPOKEN: Mapping[Kind, Document] = {
    BGP_SPEAKER: {"peers": 1, "conditions": [condition("Ready"), condition("Accepted")]},
    BGP_PEER: {"state": "Idle", "conditions": [condition("Ready")]},
    EVPN_NETWORK: {"vni": 10, "remoteMACs": 1, "conditions": [condition("Ready"), condition("Advertised")]},
}
"""Statuses of which a speaker writes something."""


def event(node: str, attachment: str, uid: str) -> Document:
    """Return an Event of a node about an attachment, but for its metadata."""
    return {
        "involvedObject": {
            "apiVersion": NETWORK_ATTACHMENT.api_version,
            "kind": NETWORK_ATTACHMENT.name,
            "namespace": NAMESPACE,
            "name": attachment,
            "uid": uid,
        },
        "reason": "Told",
        "message": "one",
        "type": "Normal",
        "source": {"component": "netloom-agent", "host": node},
        "reportingComponent": "netloom-agent",
        "reportingInstance": node,
        "firstTimestamp": "2026-11-15T09:00:00Z",
        "lastTimestamp": "2026-11-15T09:00:00Z",
        "count": 1,
    }


# What is tried.


def variants(schema: Schema, have: Any, at: Place) -> Iterator[tuple[Place, Any]]:
    """Yield a value for each field below, and including, one: as it is, but for that field."""
    if schema.get(PRESERVE):
        yield at, {"one": "two"}
    elif "properties" in schema:
        base = have if isinstance(have, dict) else minimal(schema)
        for name, part in schema["properties"].items():
            for where, value in variants(part, base.get(name), (*at, name)):
                yield where, {**base, name: value}
            if name in base and name not in schema.get("required", ()):
                yield (*at, name), {key: value for key, value in base.items() if key != name}
    elif schema["type"] == "object":
        base = have or {}
        for key in ("one", f"{OWN_LABELS}one", *base):
            yield (*at, key), {**base, key: sample(schema["additionalProperties"], base.get(key))}
        for key in base:
            yield (*at, key), {other: value for other, value in base.items() if other != key}
    elif schema["type"] == "array":
        base = have or []
        for number, item in enumerate(base):
            for where, value in variants(schema["items"], item, (*at, str(number))):
                yield where, [*base[:number], value, *base[number + 1 :]]
            yield (*at, str(number)), [*base[:number], *base[number + 1 :]]
        for where, value in variants(schema["items"], None, (*at, str(len(base)))):
            yield where, [*base, value]
    else:
        yield at, sample(schema, have)


def minimal(schema: Schema) -> Any:
    """Return an object with what it must have, or a value."""
    if "properties" in schema:
        return {name: minimal(schema["properties"][name]) for name in schema.get("required", ())}
    if schema.get("type") == "array":
        return [minimal(schema["items"]) for _ in range(schema.get("minItems", 0))]
    return {} if schema.get("type") == "object" else sample(schema, None)


def sample(schema: Schema, have: Any) -> Any:
    """Return a value of a schema that is another one than `have`."""
    return next(value for value in _samples(schema) if value != have)


def _samples(schema: Schema) -> Sequence[Any]:
    if "enum" in schema:
        return [*schema["enum"], schema["enum"][0]]
    match schema.get("type"):
        case "integer":
            least = schema.get("minimum", 1)
            return [least, least + 1]
        case "boolean":
            return [True, False]
        case "string":
            return _texts(schema)
        case _:
            return [minimal(schema), None]


def _texts(schema: Schema) -> Sequence[str]:
    for rule in schema.get("rules", ()):
        if rule in RULED:
            return RULED[rule]
    if schema.get("format") == "date-time":
        return ["2026-11-15T10:00:00Z", "2026-11-15T11:00:00Z"]
    if "pattern" in schema:
        return STRINGS[schema["pattern"]]
    return ["one", "two"]


# What may come of it.


def may(kind: Kind, name: str, at: Place) -> bool:
    """Whether a node may change a field."""
    if kind is NODE and name == OWN:
        own_label = at[:2] == ("metadata", "labels") and at[2].startswith(OWN_LABELS)
        return at[0] == "status" or at == ("spec", "underlayIP") or own_label
    if kind is NETWORK_ATTACHMENT and name == "own" and at[0] == "status":
        own_condition = at[1] == "conditions" and at[2] in ("Plugged", "Ready")
        return at[1] in ("ifcName", "hostIP", "postCreateExecReport") or at[1:3] == ("errors", "host") or own_condition
    if kind is BGP_SPEAKER and name == "own" and at[0] == "status":
        return at[1] in ("peers", "established", "lastHeartbeat", "observedGeneration") or at[1:3] == (
            "conditions",
            "Ready",
        )
    if kind in (BGP_PEER, HOST_DOCUMENT) and name == "own":
        return at[0] == "status"
    if kind is EVPN_NETWORK and name == "own" and at[0] == "status":
        told = ("remoteVTEPs", "remoteMACs", "localMACs", "duplicateMACs")
        return at[1] in told or at[1:3] == ("conditions", "Advertised")
    if kind is REMOTE_VTEP and name == "own":
        return at[:2] in (("spec", "flood"), ("spec", "macs"), ("spec", "localAddress"))
    if kind is EVENT and name == "own":
        return at[0] in TOLD or at in (("involvedObject", "resourceVersion"), ("involvedObject", "fieldPath"))
    return False


TOLD = ("reason", "message", "type", "firstTimestamp", "lastTimestamp", "count", "eventTime", "series", "action")
BOOKKEEPING = (("metadata", "resourceVersion"), ("metadata", "generation"))


def leaves(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield all that a document says; conditions by their type."""
    if at == ("metadata", "managedFields") or at in BOOKKEEPING:
        return  # It follows from who wrote what.
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*at, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            named = part["type"] if at == ("status", "conditions") else str(number)
            yield from leaves(part, (*at, named))
    elif value is not None and (value != "" or at[0] != "metadata"):
        yield at, value


def differences(one: Document, other: Document) -> set[Place]:
    """Return the fields in which two documents differ."""
    before, after = dict(leaves(one)), dict(leaves(other))
    return {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}


def requests(old: Document, new: Document, member: str, url: str) -> Iterator[tuple[str, str, Any, str]]:
    """Yield the four ways to write a document of which one member changed."""
    new = _at(old, new, member)
    yield "PUT", url, new, "application/json"
    yield "PATCH", url, {member: _merge(old.get(member), new.get(member))}, MERGE
    yield "PATCH", url, [{"op": "add", "path": f"/{member}", "value": new.get(member)}], JSON_PATCH
    applied: Document = {key: new[key] for key in ("apiVersion", "kind")}
    servers = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation")
    metadata = new["metadata"] if member == "metadata" else {}
    applied["metadata"] = {"name": old["metadata"]["name"]}
    applied["metadata"] |= {key: value for key, value in metadata.items() if key not in servers}
    if member != "metadata":
        applied[member] = new.get(member)
    yield "PATCH", f"{url}?fieldManager=fields&force=true", applied, APPLY


def _at(old: Document, new: Document, member: str) -> Document:
    """Return the change of one member as one that is made to `old`."""
    if member != "metadata":
        return {**old, member: new[member]} if member in new else {k: v for k, v in old.items() if k != member}
    now = {key: old["metadata"].get(key) for key in ("resourceVersion", "managedFields")}
    return {**old, "metadata": {**new["metadata"], **now}}


def _merge(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {key: _merge(old.get(key), value) for key, value in new.items() if value != old.get(key)}
    return {**dict.fromkeys(old.keys() - new.keys()), **changed}


class Walk:
    """Tries all fields of some objects."""

    def __init__(self, admin: Ask, node: Ask) -> None:
        self.found = Found()
        self._admin = admin
        self._node = node
        self._turn = cycle(range(4))

    def walk(self, objects: Iterable[tuple[Kind, str, str]]) -> Found:
        """Try every field of all objects, and see that they are as they were."""
        first = {one: self._get(*one) for one in objects}
        for one in first:
            self._object(*one)
        for (kind, namespace, name), before in first.items():
            if changed := differences(before, self._get(kind, namespace, name)):
                self.found.wrong.append(f"{kind.plural}/{name}: refused, and yet changed {sorted(changed)}")
        return self.found

    def _get(self, kind: Kind, namespace: str, name: str) -> Document:
        code, found = self._admin("GET", kind.path(namespace, name))
        assert code == 200, found
        document: Document = found
        return document

    def _object(self, kind: Kind, namespace: str, name: str) -> None:
        base = self._get(kind, namespace, name)
        parts = {**tree(kind)["properties"], "metadata": _metadata()}
        own = (kind, name) in OWNED
        for member in sorted(parts.keys() - {"apiVersion", "kind"}):
            place = "status" if member == "status" and kind.has_status else ""
            for at, value in variants(parts[member], base.get(member), (member,)):
                new = {**base, member: value}
                base = self._field(kind, base, kind.path(namespace, name, place), at, new, all_ways=own)
                if own and kind.has_status:  # By the other path too, where it must be without effect.
                    other = kind.path(namespace, name, "" if place else "status")
                    base = self._field(kind, base, other, at, {**base, member: value}, all_ways=False)

    def _field(self, kind: Kind, base: Document, url: str, at: Place, new: Document, *, all_ways: bool) -> Document:
        """Write one field, in all ways or in one of them; return the object as it is then, which is as it was."""
        name, member = base["metadata"]["name"], at[0]
        accepted = False
        turn = next(self._turn)
        for number in range(4):
            if not all_ways and number != turn:
                continue
            method, path, body, media = list(requests(base, new, member, url))[number]
            self.found.attempts += 1
            code, answer = self._node(method, path, body, media)
            if code >= 300:
                assert code in (400, 403, 404, 405, 409, 413, 415, 422), (method, path, body, answer)
                continue
            changed = differences(base, answer)
            if wrong := [one for one in changed if not may(kind, name, one)]:
                self.found.wrong.append(f"{method} {media} {path} {'.'.join(at)}: changed {sorted(wrong)}")
            self.found.written |= {f"{kind.plural} {'.'.join(one)}" for one in changed}
            accepted = accepted or bool(changed)
            # Without a change of a field, its managers may be others.
            base = self._restored(kind, base) if changed else answer
        if all_ways and not accepted and (changed := self._writable(base, _at(base, new, member), url)):
            self.found.refused.add(f"{kind.plural} {'.'.join(at)}")
            if all(may(kind, name, one) for one in changed):
                self.found.withheld.add(f"{kind.plural} {'.'.join(at)}")
        return base

    def _writable(self, base: Document, new: Document, url: str) -> set[Place]:
        """Return what an administrator would change by the same document."""
        code, answer = self._admin("PUT", f"{url}?dryRun=All", new)
        return differences(base, answer) if code == 200 else set()

    def _restored(self, kind: Kind, base: Document) -> Document:
        """Put an object back, and return it."""
        metadata = base["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        for subresource in ("", "status") if kind.has_status else ("",):
            now = self._get(kind, namespace, name)
            kept = {**metadata, "resourceVersion": now["metadata"]["resourceVersion"]}
            kept["managedFields"] = now["metadata"].get("managedFields")
            code, answer = self._admin("PUT", kind.path(namespace, name, subresource), {**base, "metadata": kept})
            assert code == 200, answer
        return self._get(kind, namespace, name)


def _metadata() -> Schema:
    """Return the schema of metadata, without what follows from who wrote what and when."""
    schema = metadata_tree()
    apart = ("managedFields", "resourceVersion")
    parts = {name: part for name, part in schema["properties"].items() if name not in apart}
    return {**schema, "properties": parts}


def created(admin: Ask, node: Ask) -> list[str]:
    """Have the node create what it may create, with every field of the metadata; return what it should not get."""
    wrong = []
    for kind, namespace, document in _creations(admin):
        for at, metadata in [((), document["metadata"]), *variants(_metadata(), document["metadata"], ("metadata",))]:
            code, answer = node("POST", kind.path(namespace), {**document, "metadata": metadata})
            if code >= 300:
                if not at:
                    wrong.append(f"{kind.name}: refused: {answer['message']}")
                continue
            got = {key for key in answer["metadata"] if key not in (*GIVEN, "generateName")}
            labels = {key for key in answer["metadata"].get("labels", {}) if not key.startswith(OWN_LABELS)}
            allowed = {"labels"} if kind is NODE else set()
            if _owners(answer) == _owners(document):
                allowed |= {"ownerReferences"}
            name = answer["metadata"]["name"]
            if got - allowed or labels or (kind is NODE and name != OWN) or "status" in answer:
                wrong.append(f"{kind.name}: {'.'.join(at)}: got {got}")
            assert admin("DELETE", kind.path(namespace, name))[0] == 200
    return wrong


GIVEN = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "generateName",
)


def _owners(document: Document) -> list[tuple[str, ...]]:
    owners = document["metadata"].get("ownerReferences", ())
    return [tuple(owner[key] for key in ("apiVersion", "kind", "name", "uid")) for owner in owners]


def learned(admin: Ask, **changes: str) -> Document:
    """Return a RemoteVTEP as the node's speaker writes it, but for some fields of its spec."""
    _, evpn = admin("GET", EVPN_NETWORK.path(NAMESPACE, "own"))
    owner = {key: evpn[key] for key in ("apiVersion", "kind")} | {key: evpn["metadata"][key] for key in ("name", "uid")}
    metadata = {"name": "own.192-0-2-204.10.0", "namespace": NAMESPACE, "ownerReferences": [owner]}
    # No Node has this address, also none that another test left in the cluster.
    own = {"node": OWN, "evpnNetwork": "own", "network": "blue", "address": "192.0.2.204"}
    spec = _good(REMOTE_VTEP) | own | changes
    return {"apiVersion": REMOTE_VTEP.api_version, "kind": REMOTE_VTEP.name, "metadata": metadata, "spec": spec}


def _creations(admin: Ask) -> Iterator[tuple[Kind, str, Document]]:
    yield REMOTE_VTEP, NAMESPACE, learned(admin)
    _, attachment = admin("GET", NETWORK_ATTACHMENT.path(NAMESPACE, "own"))
    identity = {"apiVersion": EVENT.api_version, "kind": EVENT.name}
    metadata = {"name": "created", "namespace": NAMESPACE}
    yield EVENT, NAMESPACE, {**identity, "metadata": metadata, **event(OWN, "own", attachment["metadata"]["uid"])}
    users = (NETWORK_ATTACHMENT, REMOTE_VTEP, EVPN_NETWORK, BGP_PEER, BGP_SPEAKER)
    for path in (*(kind.path(NAMESPACE, "own") for kind in users), NODE.path(name=OWN)):
        code, answer = admin("DELETE", path)
        assert code == 200, answer
    identity = {"apiVersion": NODE.api_version, "kind": NODE.name}
    yield (
        NODE,
        "",
        {**identity, "metadata": {"name": OWN}, "spec": {"underlayIP": UNDERLAY[OWN]}, "status": {"agentVersion": "1"}},
    )
