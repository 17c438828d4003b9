"""`netloom status`: the problems, then all objects as a tree.

It reads the API only; `netloom explain` and `netloom doctor` check OVN and the nodes too. The exit status is 0 if there
are no problems, else 1.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
import msgspec

from netloom.cli.options import ALL_NAMESPACES, OUTPUT, connected
from netloom.cli.tables import clean, safe
from netloom.cli.terminal import counted, paint, print_json
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.status import FAILED, LISTED, PENDING, READY, Item, Overview, Section, gathered, overview

COLOURS = {FAILED: "red", PENDING: "yellow", READY: "green"}
MARKS = {FAILED: "FAILED", PENDING: "not ready yet", READY: "ready"}
MARKED_READY = ("Node", "NetworkAttachment")
"""The kinds for which `ready` is shown as well."""


@click.command()
@ALL_NAMESPACES
@OUTPUT
@connected
def status(session: Session, everywhere: bool, output: str) -> int:
    """Show problems, and then all objects as a tree."""
    namespace = "" if everywhere else session.namespace
    found = overview(snapshot.load(session.client, LISTED, namespace=namespace), datetime.now(UTC), namespace)
    if output == "json":
        print_json({"healthy": not found.problems, **msgspec.structs.asdict(found)})
    else:
        click.echo("\n".join(lines(found, session.client.server, namespace)))
    return 1 if found.problems else 0


def lines(found: Overview, server: str, namespace: str) -> Iterator[str]:
    """Yield the overview as lines of text."""
    yield clean(f"Netloom at {server}" + (f", namespace {namespace}" if namespace else ""))
    yield ""
    if found.problems:
        yield paint(f"{counted(len(found.problems), 'problem')}:", "red", bold=True)
        yield from (paint(safe(f"  {problem}"), "red") for problem in gathered(found.problems))
    else:
        yield paint("No problems found.", "green")
    yield ""
    yield from _section(Section("Nodes", found.nodes)) if found.nodes else ("There are no Nodes: no agent runs.",)
    if namespace and namespace not in found.namespaces:
        yield f"Namespace {clean(namespace)} is empty."
    for name, sections in found.namespaces.items():
        if not namespace:
            yield from ("", f"Namespace {clean(name)}")
        for section in sections:
            yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield paint(section.title, "cyan", bold=True)
    yield from _branches(section.items, "")


def _branches(items: Sequence[Item], stem: str) -> Iterator[str]:
    width = max((len(clean(item.name)) for item in items if item.about), default=0)
    for item in items:
        last = item is items[-1]
        words = ", ".join(clean(word) for word in item.about)
        mark = MARKS[item.state] if item.state != READY or (item.kind in MARKED_READY and not item.items) else ""
        text = "  ".join(
            part for part in (clean(item.name).ljust(width) if item.about else clean(item.name), words) if part
        )
        if mark:
            text = f"{text}  {paint(mark, COLOURS[item.state])}"
        yield f"{stem}{'└─' if last else '├─'} {text}"
        yield from _branches(item.items, stem + ("   " if last else "│  "))
