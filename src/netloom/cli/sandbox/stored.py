"""Sandboxes of the server: finding and reading one, its parts, changing its spec, and waiting until it is Ready."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

import click
import msgspec

from netloom.cli.objects.wait import Goal, until
from netloom.cli.sandbox.files import sandbox_of, topology_of
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.errors import Conflict, NetloomError, NotFound
from netloom.model.document import Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.sandbox import Backend, HostDocument, Sandbox
from netloom.model.registry import HOST_DOCUMENT, NETWORK_ATTACHMENT, SANDBOX
from netloom.plan.sandbox.changes import owner_uid
from netloom.plan.sandbox.names import HOST_LABEL, SANDBOX_LABEL, label_value
from netloom.plan.sandbox.objects import NETNS_FOLDER, SandboxPlan, plan_sandbox

RESOURCE = of_kind(SANDBOX)
ATTEMPTS = 20
"""How often a change is tried that others overtake."""
UNKNOWN_NODE = "node"
"""Stands for the Nodes of a plan that is made without a server."""
SHOWN = 10


def find(session: Session, name: str) -> Sandbox:
    """Return the Sandbox of a name; if it is "", the only one of the namespace."""
    if name:
        return stored(session, name)
    found = snapshot.load(session.client, (Sandbox,), namespace=session.namespace)
    if len(found) == 1 and isinstance(found[0], Sandbox):
        return found[0]
    if not found:
        raise NotFound(f"there is no Sandbox in namespace {session.namespace}: use -n, or apply one")
    names = ", ".join(one.metadata.name for one in found[:SHOWN])
    raise click.UsageError(f"There are several Sandboxes: choose one of {names} with --name.")


def name_of(file: str) -> str:
    """Return the name of the Sandbox that a file describes."""
    topology, reading = topology_of(file)
    return str(sandbox_of(topology, reading, None, "")["metadata"]["name"])


def stored(session: Session, name: str) -> Sandbox:
    """Return a Sandbox as the server has it."""
    return value(document(session, name))


def described(document: Document, namespace: str, live: Sandbox | None = None) -> Sandbox:
    """Return the Sandbox that a file describes, with the identity of the one that the server has."""
    metadata = {**document["metadata"], "namespace": namespace, "uid": live.metadata.uid if live else ""}
    return msgspec.convert({**document, "metadata": metadata}, Sandbox)


def plan_alone(sandbox: Sandbox) -> SandboxPlan:
    """Return the objects of a Sandbox without knowing any Node but those that it names.

    They are those of the backend ovn, also for the other one: hosts reach the same on both.
    """
    placement = sandbox.spec.placement
    nodes = {placement.default, *placement.hosts.values()} if placement is not None else set()
    return plan_sandbox(sandbox, {UNKNOWN_NODE, *nodes} - {""})


def attachments(session: Session, sandbox: Sandbox, host: str = "") -> list[NetworkAttachment]:
    """Return the attachments of a Sandbox, or of one of its hosts."""
    labels = f"{SANDBOX_LABEL}={label_value(sandbox.metadata.name)}"
    labels += f",{HOST_LABEL}={label_value(host)}" if host else ""
    where = Scope(sandbox.metadata.namespace, {"labelSelector": labels})
    documents, _ = lists.objects(session.client, Target(of_kind(NETWORK_ATTACHMENT)), where)
    return [snapshot.value(one, NetworkAttachment) for one in documents]


def host_documents(session: Session, sandbox: Sandbox) -> list[HostDocument]:
    """Return the HostDocuments of a Sandbox on the backend `linux`."""
    labels = f"{SANDBOX_LABEL}={label_value(sandbox.metadata.name)}"
    where = Scope(sandbox.metadata.namespace, {"labelSelector": labels})
    documents, _ = lists.objects(session.client, Target(of_kind(HOST_DOCUMENT)), where)
    found = [snapshot.value(one, HostDocument) for one in documents]
    return [one for one in found if owner_uid(one.metadata) == sandbox.metadata.uid]


def place(session: Session, sandbox: Sandbox, host: str) -> tuple[str, Path] | None:
    """Return the Node of a host and its network namespace; None: it has none."""
    if sandbox.spec.backend is Backend.LINUX:
        found = [one.spec for one in host_documents(session, sandbox) if host in one.spec.hosts]
        return (found[0].node, Path(NETNS_FOLDER, found[0].hosts[host])) if found else None
    specs = [one.spec for one in attachments(session, sandbox, host)]
    return (specs[0].node, Path(specs[0].port.netns)) if specs else None


def places(of: Iterable[Resource]) -> dict[str, NetworkAttachment]:
    """Return an attachment of each host, by the label of the host: it has the Node and the network namespace."""
    return {one.metadata.labels.get(HOST_LABEL, ""): one for one in of if isinstance(one, NetworkAttachment)}


def document(session: Session, name: str, namespace: str = "") -> Document:
    """Return a Sandbox as the server has it."""
    return lists.one(session.client, Target(RESOURCE, name), Scope(namespace or session.namespace))


def value(found: Document) -> Sandbox:
    """Return a Sandbox as a typed value."""
    return snapshot.value(found, Sandbox)


def path(namespace: str, name: str) -> str:
    """Return the path of a Sandbox on the server."""
    return RESOURCE.path(namespace, quote(name, safe=""))


def change(
    session: Session, name: str, edit: Callable[[Document], None], *, manager: str, part: str = "spec"
) -> tuple[Document, Document]:
    """Change the spec, or another part, of a Sandbox; return it before and after.

    Nothing is written if `edit` changes nothing, or if the Sandbox is being deleted, which raises `Conflict`.

    If somebody else writes it meanwhile, what they wrote is read and edited.
    """
    refused: NetloomError | None = None
    for _ in range(ATTEMPTS):
        before = document(session, name)
        if before["metadata"].get("deletionTimestamp"):
            raise Conflict(f"sandbox {name} is being deleted: repeat this when it is gone")
        after: Document = msgspec.json.decode(msgspec.json.encode(before))
        edit(after[part])
        if after[part] == before[part]:
            return before, before
        at = path(str(before["metadata"]["namespace"]), name)
        try:
            return before, session.client.call("PUT", at, {"fieldManager": manager}, body=after)
        except Conflict as error:
            refused = error
    assert refused is not None
    raise refused


def until_ready(session: Session, found: Document, *, timeout: float) -> None:
    """Return when a Sandbox is Ready as it is now."""
    metadata = found["metadata"]
    target, where = Target(RESOURCE, str(metadata["name"])), Scope(str(metadata["namespace"]))
    until(session, target, where, goal=Goal("condition=Ready"), deadline=time.monotonic() + timeout)
