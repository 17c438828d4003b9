"""The command that shows what `apply` would change, as objects and in the words of the topology."""

from collections.abc import Iterator

import click

from netloom.cli.options import OUTPUT, connected
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.files import describing
from netloom.cli.sandbox.verify import plan_of
from netloom.cli.tables import clean
from netloom.cli.terminal import paint, print_json
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.errors import NotFound
from netloom.model.document import Document
from netloom.plan.sandbox.changes import changes
from netloom.plan.sandbox.differences import Action, ObjectChange, differences
from netloom.plan.sandbox.objects import KINDS, SandboxPlan
from netloom.plan.sandbox.reachability import is_of

_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.CHANGE: ("~", "yellow"),
    Action.REPLACE: ("-/+", "yellow"),
    Action.DELETE: ("-", "red"),
}
_DONE = {
    Action.CREATE: "to create",
    Action.CHANGE: "to change",
    Action.REPLACE: "to make again",
    Action.DELETE: "to delete",
}


@click.command()
@describing
@OUTPUT
@connected
def plan(session: Session, document: Document, output: str) -> int:
    """Show what applying a file would change, without changing anything.

    Each line is an object: + is created, ~ changed, -/+ deleted and created again, - deleted.
    """
    try:
        live = stored.stored(session, str(document["metadata"]["name"]))
    except NotFound:
        live = None
    sandbox = stored.described(document, session.namespace, live)
    objects = snapshot.load(session.client, [kind.type for kind in KINDS], namespace=session.namespace)
    mine = [one for one in objects if live is not None and is_of(sandbox, one)]
    wanted = plan_of(session, sandbox, objects)
    observed = {(one.kind, one.metadata.name): one for one in mine}
    found = differences(sandbox.metadata.name, changes(wanted.objects, mine), observed)
    if output == "json":
        shown = {
            "sandbox": sandbox.metadata.name,
            "changes": found,
            "problems": [one.message for one in wanted.problems],
        }
        print_json(shown)
    else:
        click.echo("\n".join(_lines(found, wanted)))
    return 0


def _lines(found: tuple[ObjectChange, ...], wanted: SandboxPlan) -> Iterator[str]:
    for one in found:
        sign, colour = _SIGNS[one.action]
        yield paint(clean(f"{sign} {one.part} ({one.kind} {one.name})"), colour)
        for field in one.fields:
            yield clean(f"    {field.name}: {field.old or '(none)'} -> {field.new or '(none)'}")
    if wanted.problems:
        yield paint("Problems:", "red")
        yield from (clean(f"  {one.message}") for one in wanted.problems)
    counts = [
        f"{number} {text}" for action, text in _DONE.items() if (number := sum(one.action is action for one in found))
    ]
    yield f"{', '.join(counts)}." if counts else "Nothing would change."
