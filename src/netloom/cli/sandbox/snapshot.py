"""`netloom sandbox snapshot` and `restore`: a running Sandbox as a file, and back.

A restore writes the whole spec in one step. After that it hands fields over: what topology files contain belongs to the
manager of `netloom apply` again, so that the file can be edited and applied; MAC addresses and faults, which no file
has, belong to a manager of their own, so that an apply keeps them.
"""

import stat
from pathlib import Path

import click

from netloom.cli.objects.apply import MANAGER as APPLIER
from netloom.cli.objects.apply import outcome
from netloom.cli.options import connected
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.deploy import TIMEOUT, WAIT
from netloom.cli.sandbox.files import FILE, content
from netloom.cli.tables import clean
from netloom.client.http import APPLY
from netloom.client.session import Session
from netloom.errors import BadRequest, Forbidden, NotFound
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Backend
from netloom.plan.sandbox import snapshot as snapshots
from netloom.plan.sandbox.changes import owner_uid
from netloom.run.files import PRIVATE, write_whole

MANAGER = "netloom-snapshot"
OWN = ("macs", "faults")
"""The fields that no topology file has."""


@click.command()
@click.argument("sandbox")
@click.option("-o", "--output", "file", type=FILE, default="-", help="File to write.  [default: standard output]")
@connected
def snapshot(session: Session, sandbox: str, file: str) -> int:
    """Write a Sandbox to a file, with the Node and the MAC addresses that each host has.

    `netloom sandbox restore` makes the same Sandbox of it.
    """
    found = stored.document(session, sandbox)
    value = stored.value(found)
    if value.spec.backend is Backend.LINUX:
        taken, unknown = snapshots.take(found, stored.host_documents(session, value))
    else:
        mine = [one for one in stored.attachments(session, value) if owner_uid(one.metadata) == value.metadata.uid]
        taken, unknown = snapshots.take(found, mine)
    for link in unknown:
        text = f"warning: {link.host} has no MAC address on {link.network} yet: the snapshot is without it"
        click.echo(clean(text), err=True)
    text = snapshots.encode(taken)
    if file == "-":
        click.echo(text, nl=False)
    else:
        _write_file(Path(file).resolve(), text.encode())
    return 0


@click.command()
@click.argument("file", type=FILE)
@click.option("--name", default="", metavar="NAME", help="Name of the Sandbox, instead of the snapshot's.")
@WAIT
@TIMEOUT
@connected
def restore(session: Session, file: str, name: str, waiting: bool, timeout: float) -> int:
    """Make a Sandbox as it was when a snapshot was taken, and wait until it is Ready.

    One that exists is changed where it differs. With --name, or in another namespace, it is a copy: while the original
    exists, the copy has MAC addresses of its own.
    """
    taken = _read(file)
    name = name or taken.name
    is_copy = (name, session.namespace) != (taken.name, taken.namespace)
    macs = not is_copy or not _exists(session, taken.name, taken.namespace)
    wanted = snapshots.sandbox_of(taken, name, session.namespace, macs=macs)
    before, after = _write(session, wanted)
    click.echo(clean(f"{stored.RESOURCE.qualified}/{name} {outcome(before, after)}"))
    if not macs and "macs" in taken.spec:
        text = f"{taken.name} exists, and two hosts on one Node cannot have one MAC address: {name} gets its own"
        click.echo(clean(text), err=True)
    if waiting:
        stored.until_ready(session, after, timeout=timeout)
        click.echo(clean(f"{stored.RESOURCE.qualified}/{name} condition met"))
    return 0


def _write_file(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one; a device or a pipe is written as it is."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else PRIVATE
    write_whole(path, data, mode=mode)


def _read(file: str) -> snapshots.Snapshot:
    try:
        return snapshots.read(content(file))
    except BadRequest as error:
        raise BadRequest(f"{file}: {error.message}") from None


def _exists(session: Session, name: str, namespace: str) -> bool:
    try:
        stored.document(session, name, namespace)
    except NotFound:
        return False
    except Forbidden:
        return True  # It may.
    return True


def _write(session: Session, wanted: Document) -> tuple[Document | None, Document]:
    """Write a Sandbox, and hand its fields over; return it before and after."""
    name, spec = str(wanted["metadata"]["name"]), wanted["spec"]

    def edit(live: Document) -> None:
        live.clear()
        live.update(spec)

    before: Document | None
    try:
        before, after = stored.change(session, name, edit, manager=MANAGER)
    except NotFound:
        at = stored.RESOURCE.path(session.namespace)
        before, after = None, session.client.call("POST", at, {"fieldManager": MANAGER}, body=wanted)
    if after is not before:
        _hand_over(session, wanted)
    return before, after


def _hand_over(session: Session, wanted: Document) -> None:
    """Give the fields of a Sandbox to the managers that apply them; nothing but their owners changes."""
    name, spec = str(wanted["metadata"]["name"]), wanted["spec"]
    at = stored.path(session.namespace, name)
    parts = {
        APPLIER: {key: value for key, value in spec.items() if key not in OWN},
        MANAGER: {key: value for key, value in spec.items() if key in OWN},
    }
    for manager, part in parts.items():
        query = {"fieldManager": manager, "force": "true"}
        session.client.call("PATCH", at, query, body={**wanted, "spec": part}, content_type=APPLY)

    def release(metadata: Document) -> None:
        entries = metadata.get("managedFields") or []
        mine = (MANAGER, "Update")
        metadata["managedFields"] = [one for one in entries if (one.get("manager"), one.get("operation")) != mine]

    stored.change(session, name, release, manager=MANAGER, part="metadata")
