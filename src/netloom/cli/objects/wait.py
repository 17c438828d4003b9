"""`netloom wait`: block until objects meet a condition, by watching them and not by polling."""

import time
from collections.abc import Callable, Iterator

import click

from netloom.cli.durations import DURATION
from netloom.cli.objects.selection import scope, targets
from netloom.cli.options import ALL_NAMESPACES, FIELD_SELECTOR, SELECTOR, connectable
from netloom.cli.shell_completion import complete_targets
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.errors import Expired, NetloomError, NotFound, TimedOut
from netloom.model.document import Document
from netloom.model.values.jsonpath import JSONPath, shown

Check = Callable[[Document | None], bool]
A_WEEK = 7 * 24 * 3600.0
ASK_SECONDS = 0.1


class Goal:
    """What to wait for: a predicate on an object (None if it does not exist) and its name."""

    def __init__(self, text: str) -> None:
        """Parse `delete`, `create`, `condition=NAME[=VALUE]` or `jsonpath={PATH}[=VALUE]`."""
        self.text = text
        word, _, rest = text.partition("=")
        self.deletion, self.creation = text == "delete", text == "create"
        self.done = {"delete": "deleted", "create": "created"}.get(text, "condition met")
        if self.deletion or self.creation:
            self.met: Check = lambda document: (document is None) is self.deletion
        elif word in ("condition", "jsonpath") and rest:
            self.met = (_condition if word == "condition" else _jsonpath)(rest)
        else:
            raise click.BadParameter(
                f"{text!r} is not delete, create, condition=NAME[=VALUE] or jsonpath={{PATH}}[=VALUE].",
                param_hint="--for",
            )


@click.command()
@click.argument("words", nargs=-1, metavar="KIND [NAME...] | KIND/NAME... | server", shell_complete=complete_targets)
@click.option(
    "--for",
    "goal_text",
    default="condition=Ready",
    show_default=True,
    metavar="GOAL",
    help="Goal: delete, create, condition=NAME[=VALUE] or jsonpath={PATH}[=VALUE].",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Fail after this time; a negative value means a week.",
)
@SELECTOR
@FIELD_SELECTOR
@click.option("--all", "whole", is_flag=True, help="Wait for all objects of the kind.")
@ALL_NAMESPACES
@connectable
def wait(
    connecting: Callable[[], Session],
    words: tuple[str, ...],
    goal_text: str,
    timeout: float,
    labels: str,
    fields: str,
    whole: bool,
    everywhere: bool,
) -> int:
    """Wait until objects meet a condition, or with `wait server` until the API server is ready."""
    goal = Goal(goal_text)
    deadline = time.monotonic() + (A_WEEK if timeout < 0 else timeout)
    if words == ("server",):
        return _server(connecting, deadline)
    session = connecting()
    where = scope(session, everywhere=everywhere, labels=labels, fields=fields)
    wanted = targets(session.client, words)
    if any(not target.name for target in wanted) and not (labels or fields or whole):
        raise click.UsageError("Name the objects, or select them by -l, --field-selector or --all.")
    count = 0
    for target, within, uid in list(_expand(session, wanted, where, goal)):
        until(session, target, within, goal=goal, deadline=deadline, uid=uid)
        click.echo(f"{target.resource.qualified}/{target.name} {goal.done}")
        count += 1
    if not count and not goal.deletion:
        raise NotFound("no matching resources found")
    return 0


def until(session: Session, target: Target, where: Scope, *, goal: Goal, deadline: float, uid: str = "") -> None:
    """Return when the object meets the goal; raise `TimedOut` at the deadline, `NotFound` if it does not exist."""
    while True:
        document, revision = _now(session, target, where)
        if uid and document is not None and document["metadata"].get("uid") != uid:
            document = None  # Another object of the same name: the one we wait for is gone.
        if goal.met(document):
            return
        if document is None and not goal.creation:
            raise NotFound(f'{target.resource.plural} "{target.name}" not found')
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut(f"timed out waiting for {goal.text} on {target.resource.qualified}/{target.name}")
        try:
            for event in lists.changes(session.client, target, where, revision, seconds=left):
                if goal.met(None if event["type"] == "DELETED" else event["object"]):
                    return
                if event["type"] == "DELETED":
                    break
        except Expired:
            continue


def _server(connecting: Callable[[], Session], deadline: float) -> int:
    """Wait until the server is ready and accepts our credential; at its first start it first writes the kubeconfig."""
    while True:
        try:
            client = connecting().client
            client.text("/readyz")
            client.get("/version")  # Unlike /readyz this needs a credential, and a new one takes effect after a moment.
        except NetloomError as error:
            if time.monotonic() >= deadline:
                raise TimedOut(f"the server is not ready: {error.message}") from None
            time.sleep(ASK_SECONDS)
        else:
            click.echo("server ready")
            return 0


def _now(session: Session, target: Target, where: Scope) -> tuple[Document | None, str]:
    """Return the object, or None, and the revision to watch from."""
    only = Scope(where.namespace, {"fieldSelector": f"metadata.name={target.name}"})
    found, revision = lists.objects(session.client, Target(target.resource), only)
    return (found[0] if found else None), revision


def _expand(session: Session, wanted: list[Target], where: Scope, goal: Goal) -> Iterator[tuple[Target, Scope, str]]:
    """Yield each object by name and namespace, and by uid if its deletion is waited for."""
    for target in wanted:
        if target.name:
            document, _ = _now(session, target, where)
            yield target, where, str(document["metadata"].get("uid", "")) if document and goal.deletion else ""
            continue
        for metadata in (document["metadata"] for document in lists.objects(session.client, target, where)[0]):
            uid = str(metadata.get("uid", "")) if goal.deletion else ""
            yield Target(target.resource, metadata["name"]), Scope(str(metadata.get("namespace") or "")), uid


def _condition(text: str) -> Check:
    name, _, value = text.partition("=")
    wanted = (value or "True").lower()

    def met(document: Document | None) -> bool:
        status = (document or {}).get("status") or {}
        generation = ((document or {}).get("metadata") or {}).get("generation") or 0
        for condition in status.get("conditions") or ():
            if str(condition.get("type", "")).lower() != name.lower():
                continue
            # The condition describes an older spec.
            if (condition.get("observedGeneration") or generation) < generation:
                return False
            return str(condition.get("status", "")).lower() == wanted
        return False

    return met


def _jsonpath(text: str) -> Check:
    path, value = (text, None)
    if text.startswith("{"):
        inner, brace, tail = text.rpartition("}")
        path, value = inner + brace, tail.removeprefix("=") if tail.startswith("=") else None
    elif "=" in text:
        path, _, value = text.rpartition("=")
    parsed = JSONPath(path)

    def met(document: Document | None) -> bool:
        found = parsed.find(document)
        return any(shown(one) == value for one in found) if value is not None else bool(found)

    return met
