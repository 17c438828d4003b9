"""The objects that arguments and selectors name: KIND, KIND NAME, KIND/NAME, -n, -A, -l and --field-selector."""

from collections.abc import Iterator, Sequence

import click

from netloom.cli.objects.manifests import Manifest
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Resource, Target, all_kinds, named, of_document
from netloom.client.session import Session


def select(
    session: Session, words: Sequence[str], *, everywhere: bool = False, labels: str = "", fields: str = ""
) -> tuple[list[Target], Scope]:
    """Return the kinds or objects that `words` name, and the namespace and selectors that limit them."""
    found = targets(session.client, words)
    if everywhere and any(target.name and target.resource.namespaced for target in found):
        raise click.UsageError("A name identifies an object in one namespace: omit -A.")
    return found, scope(session, everywhere=everywhere, labels=labels, fields=fields)


def scope(session: Session, *, everywhere: bool, labels: str, fields: str) -> Scope:
    """Return the namespace and the selectors of `-n`, `-A`, `-l` and `--field-selector`."""
    query = {"labelSelector": labels} if labels else {}
    query |= {"fieldSelector": fields} if fields else {}
    return Scope("" if everywhere else session.namespace, query)


def target_of(session: Session, manifest: Manifest) -> tuple[Target, str]:
    """Return the object that a manifest describes, and its namespace.

    Raises the manifest's own error, or `NotFound` if the server does not have its kind.
    """
    if manifest.error is not None:
        raise manifest.error
    metadata = manifest.document["metadata"]
    resource = of_document(session.client, manifest.document)
    name = metadata.get("name")
    namespace = str(metadata.get("namespace") or session.namespace) if resource.namespaced else ""
    return Target(resource, name if isinstance(name, str) else ""), namespace


def targets(client: Client, words: Sequence[str]) -> list[Target]:
    """Return what `KIND`, `KIND,KIND`, `KIND NAME...`, `KIND/NAME...` or `all` name."""
    if not words:
        raise click.UsageError("Name a kind, such as `networks`, or an object, such as `network/blue`.")
    if any("/" in word for word in words):
        return [_slashed(client, word) for word in words]
    kinds = list(dict.fromkeys(_kinds(client, words[0])))
    names = words[1:]
    if names and len(kinds) > 1:
        raise click.UsageError("Names need a single kind; with several kinds use KIND/NAME.")
    return [Target(kind, name) for kind in kinds for name in names or ("",)]


def _kinds(client: Client, words: str) -> Iterator[Resource]:
    for word in filter(None, words.split(",")):
        yield from all_kinds() if word == "all" else [named(client, word)]


def _slashed(client: Client, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise click.UsageError(f"{word!r}: if one argument is KIND/NAME, all arguments must be.")
    return Target(named(client, kind), name)
