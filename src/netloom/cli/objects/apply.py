"""`netloom apply -f`: server-side apply, document by document, each after those it depends on.

The server merges the fields and records which manager owns each, so two people who apply different fields of one object
do not undo each other's changes. A document that the server refuses is reported, and the rest is still applied; the
exit status is then 1.
"""

import contextlib
import re
from urllib.parse import quote

import click

from netloom.cli.failure import explain
from netloom.cli.objects import manifests
from netloom.cli.objects.manifests import Manifest
from netloom.cli.objects.output import print_documents
from netloom.cli.objects.selection import target_of
from netloom.cli.options import DRY_RUN, connected
from netloom.client import lists
from netloom.client.http import APPLY
from netloom.client.lists import Scope
from netloom.client.resources import Resource
from netloom.client.session import Session
from netloom.errors import BadRequest, Conflict, NetloomError, NotFound, Unreachable
from netloom.model.document import Document
from netloom.model.registry import KINDS
from netloom.model.schemas.checks import nearest
from netloom.model.schemas.schema import schema

MANAGER = "netloom"
_UNDECLARED = re.compile(r"(?P<path>(?:\.\w+(?:\[[^\]]*\])*)*)\.(?P<name>\w+): field not declared in schema")

from_files = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File or directory with manifests, or - for standard input. May be repeated.",
)
"""The option -f of commands that require manifests."""


@click.command()
@from_files
@DRY_RUN
@click.option("--force-conflicts", is_flag=True, help="Take ownership of fields that other managers own.")
@click.option(
    "--field-manager",
    default=MANAGER,
    show_default=True,
    metavar="NAME",
    help="Name of the owner of the applied fields.",
)
@click.option(
    "-o", "--output", type=click.Choice(["name", "yaml", "json"]), help="Print the applied objects in this format."
)
@connected
def apply(
    session: Session,
    files: tuple[str, ...],
    dry_run: str,
    force_conflicts: bool,
    field_manager: str,
    output: str | None,
) -> int:
    """Create or update objects from files, by server-side apply."""
    query = {"fieldManager": field_manager, "force": str(force_conflicts).lower()}
    query |= {"dryRun": "All"} if dry_run == "server" else {}
    found = manifests.read(files)
    if not found:
        raise click.UsageError(f"There are no objects in {', '.join(files)}.")
    failures = 0
    done: list[Document] = []
    for manifest in found:
        try:
            resource, before, after = apply_one(session, manifest, query)
        except Unreachable:
            raise
        except NetloomError as error:
            failures += 1
            click.echo(explain_refusal(error, manifest), err=True)
            continue
        done.append(after)
        if output is None:
            suffix = " (server dry run)" if dry_run == "server" else ""
            click.echo(f"{resource.qualified}/{after['metadata']['name']} {outcome(before, after)}{suffix}")
    if output is not None and done:
        print_documents(done, output, single=len(done) == 1)
    return 1 if failures else 0


def outcome(before: Document | None, after: Document) -> str:
    """Return the result of an apply: created, configured or unchanged."""
    if before is None:
        return "created"
    return "unchanged" if _substance(before) == _substance(after) else "configured"


def _substance(document: Document) -> Document:
    """Return a document without the metadata that the server maintains, which a dry run may count differently."""
    metadata = {
        k: v for k, v in document["metadata"].items() if k not in ("managedFields", "resourceVersion", "generation")
    }
    return {**document, "metadata": metadata}


def apply_one(
    session: Session, manifest: Manifest, query: dict[str, str]
) -> tuple[Resource, Document | None, Document]:
    """Apply one document; return its resource, and the object before and after."""
    target, namespace = target_of(session, manifest)
    if not target.name:
        raise BadRequest("metadata.name is required: apply does not support generateName")
    before: Document | None = None
    with contextlib.suppress(NotFound):
        before = lists.one(session.client, target, Scope(namespace))
    path = target.resource.path(namespace, quote(target.name, safe=""))
    after = session.client.call("PATCH", path, query, body=manifest.document, content_type=APPLY)
    return target.resource, before, after


def explain_refusal(error: NetloomError, manifest: Manifest) -> str:
    """Return the error message for a document that was refused."""
    where = manifest.where if manifest.error is not None else f"{manifest.where}: {manifest.name}"
    text = explain(error, where=where) + unknown_field(error.message, manifest.document)
    if isinstance(error, Conflict) and error.causes:
        text += "\n(use --force-conflicts to take ownership of these fields)"
    return text


def unknown_field(message: str, document: Document) -> str:
    """Return ` (did you mean "…"?)` if a message is about an unknown field that resembles a known one, else "".

    A kube-apiserver refuses such a field with just "field not declared in schema". The schemas of Netloom's kinds are
    known here.
    """
    found = _UNDECLARED.search(message)
    if found is None or "did you mean" in message:
        return ""
    try:
        node = schema(KINDS.kind(str(document.get("apiVersion", "")), str(document.get("kind", ""))))
    except NotFound:
        return ""
    for word in re.findall(r"\.(\w+)|(\[)", found["path"]):
        node = node.get("properties", {}).get(word[0], {}) if word[0] else node.get("items", {})
    return nearest(found["name"], list(node.get("properties", {})))
