"""Snapshots of Sandboxes: one document from which a Sandbox with the same addresses and placement is made.  Pure.

    kind: SandboxSnapshot
    version: 1
    name: school            of the Sandbox, with its namespace
    namespace: default
    spec: {...}             of the Sandbox; the Node of each host and each MAC address are added to it
    checksum: sha256:...    of all the rest, as JSON with sorted keys

A Sandbox gives MAC addresses that depend on the VNIs of its Networks, which differ when it is made again, and places
hosts where there is room. What it did is therefore part of the snapshot.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, NetloomError
from netloom.model import codec
from netloom.model.document import Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.sandbox import HostDocument, Topology
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import admit
from netloom.plan.sandbox.names import HOST_LABEL, label_value
from netloom.plan.sandbox.topology import HostLink, usable

KIND = "SandboxSnapshot"
VERSION = 1


class Snapshot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A snapshot of a Sandbox."""

    kind: str = KIND
    version: int = VERSION
    name: str
    namespace: str
    spec: dict[str, Any]
    checksum: str = ""


def take(sandbox: Document, objects: Iterable[Resource]) -> tuple[Snapshot, list[HostLink]]:
    """Return the snapshot of a Sandbox, and the links of hosts whose place or MAC address is not known yet.

    `objects` are the NetworkAttachments of the Sandbox, or its HostDocuments.
    """
    metadata = sandbox["metadata"]
    spec: Document = msgspec.json.decode(msgspec.json.encode(sandbox["spec"]))
    by_link = {(host, ip): (node, mac) for one in objects for host, ip, node, mac in _ends(one)}
    hosts: dict[str, str] = {}
    macs: dict[tuple[str, str], str] = {}
    unknown: list[HostLink] = []
    for link in usable(msgspec.convert(spec["topology"], Topology)).links:
        node, mac = by_link.get((label_value(link.host), link.ip), ("", ""))
        if not mac:
            unknown.append(link)
            continue
        hosts[link.host] = node
        macs.setdefault((link.host, link.network), mac)
    if hosts:
        spec["placement"] = {**(spec.get("placement") or {}), "hosts": dict(sorted(hosts.items()))}
    if macs:
        spec["macs"] = [{"host": host, "network": net, "mac": mac} for (host, net), mac in sorted(macs.items())]
    made = Snapshot(name=str(metadata["name"]), namespace=str(metadata["namespace"]), spec=spec)
    return msgspec.structs.replace(made, checksum=checksum(made)), unknown


def _ends(one: Resource) -> Iterator[tuple[str, str, str, str]]:
    """Yield the links of hosts in an object: the label of the host, its address, the Node and the MAC address."""
    if isinstance(one, NetworkAttachment):
        for ip in one.spec.ips:
            yield one.metadata.labels.get(HOST_LABEL, ""), ip, one.spec.node, one.status.mac
    elif isinstance(one, HostDocument):
        hosts = {space: label_value(host) for host, space in one.spec.hosts.items()}
        for member in one.spec.document.get("members", ()):
            for ip in member["addresses"] if member["namespace"] in hosts else ():
                yield hosts[member["namespace"]], ip.partition("/")[0], one.spec.node, member["mac"]


def encode(snapshot: Snapshot) -> str:
    """Return a snapshot as YAML."""
    return codec.encode_yaml(msgspec.to_builtins(snapshot))


def read(data: bytes) -> Snapshot:
    """Return the snapshot in a file, or raise `BadRequest` if it is damaged or something else."""
    try:
        documents = codec.documents(data)
    except NetloomError as error:
        raise BadRequest(f"this is not a snapshot of a Sandbox: {error.message}") from None
    found: Document = documents[0] if documents else {}
    if found.get("kind") != KIND or len(documents) > 1:
        kind = found.get("kind")
        what = f", but {kind}" if isinstance(kind, str) and kind != KIND else ""
        raise BadRequest(f"this is not a snapshot of a Sandbox{what}: use a file of netloom sandbox snapshot")
    if found.get("version") != VERSION:
        text = f"the version of the snapshot is {found.get('version')!r}, and this program reads version {VERSION}"
        raise BadRequest(f"{text}: use the program that wrote it")
    try:
        snapshot = msgspec.convert(found, Snapshot)
        computed = checksum(snapshot)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise BadRequest(f"the snapshot is damaged: {error}") from None
    if snapshot.checksum != computed:
        text = "the snapshot is damaged, or was edited: its content does not have its checksum"
        raise BadRequest(f"{text}: use another copy, or take another snapshot")
    document = sandbox_of(snapshot, snapshot.name, snapshot.namespace)
    try:
        admit(SANDBOX, document)
    except NetloomError as error:
        raise BadRequest(f"the snapshot is not of a valid Sandbox: {error.message}") from None
    return snapshot


def sandbox_of(snapshot: Snapshot, name: str, namespace: str, *, macs: bool = True) -> Document:
    """Return a Sandbox like that of a snapshot; without `macs`, with MAC addresses of its own."""
    spec: Document = msgspec.json.decode(msgspec.json.encode(snapshot.spec))
    if not macs:
        spec.pop("macs", None)
    return {
        "apiVersion": SANDBOX.api_version,
        "kind": SANDBOX.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def checksum(snapshot: Snapshot) -> str:
    """Return the checksum that a snapshot must have."""
    content = {key: value for key, value in msgspec.to_builtins(snapshot).items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
