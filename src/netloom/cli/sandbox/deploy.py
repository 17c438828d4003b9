"""The commands that deploy the Sandbox of a file, and remove it."""

import time

import click

from netloom.cli.durations import DURATION
from netloom.cli.objects.apply import MANAGER, apply_one, explain_refusal, outcome
from netloom.cli.objects.delete import Deleter, Doomed
from netloom.cli.objects.manifests import Manifest
from netloom.cli.objects.wait import Goal, until
from netloom.cli.options import connected
from netloom.cli.sandbox.containment import refuse_leaks
from netloom.cli.sandbox.files import FILE, NAME, describing, sandbox_of, topology_of
from netloom.cli.sandbox.ssh.deploying import applying_over_ssh, destroying_over_ssh
from netloom.cli.sandbox.stored import described
from netloom.cli.tables import clean
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.client.session import Session
from netloom.errors import NetloomError, Unreachable
from netloom.model.document import Document
from netloom.model.registry import SANDBOX

WAIT = click.option("--wait/--no-wait", "waiting", default=True, help="Wait until it is done.  [default: wait]")
TIMEOUT = click.option(
    "--timeout", type=DURATION, default="120s", show_default=True, metavar="TIME", help="Stop waiting after this time."
)


@click.command()
@describing
@click.option(
    "--verify/--no-verify",
    "verifying",
    default=True,
    help="Check first that the plan reaches what the file declares, and nothing else.  [default: verify]",
)
@applying_over_ssh
@WAIT
@TIMEOUT
@connected
def apply(session: Session, document: Document, verifying: bool, waiting: bool, timeout: float) -> int:
    """Create or update the Sandbox that a file describes, and wait until it is Ready.

    Nothing is changed if the file has errors, or leaks. What does not differ from the Sandbox as it is stays untouched.

    With --over-ssh there is no Sandbox and no API server: the hosts of --ssh-config get it over SSH, on the backend
    linux. They need python3 and no agent. Without an API server, --ssh-config is enough.
    """
    if verifying:
        refuse_leaks(described(document, session.namespace))
    manifest = Manifest("", document)
    try:
        resource, before, after = apply_one(session, manifest, {"fieldManager": MANAGER, "force": "false"})
    except Unreachable:
        raise
    except NetloomError as error:
        click.echo(clean(explain_refusal(error, manifest)), err=True)
        return 1
    target = Target(resource, str(after["metadata"]["name"]))
    shown = f"{resource.qualified}/{target.name}"
    click.echo(f"{shown} {outcome(before, after)}")
    if waiting:
        goal, where = Goal("condition=Ready"), Scope(str(after["metadata"]["namespace"]))
        until(session, target, where, goal=goal, deadline=time.monotonic() + timeout)
        click.echo(f"{shown} {goal.done}")
    return 0


@click.command()
@click.argument("file", type=FILE)
@NAME
@destroying_over_ssh
@WAIT
@TIMEOUT
@connected
def destroy(session: Session, file: str, name: str, waiting: bool, timeout: float) -> int:
    """Delete the Sandbox that a file describes, and wait until it and its objects are gone.

    Agents remove the interfaces, and the network namespaces of hosts that run, within seconds after that.

    With --over-ssh, or with --ssh-config where there is no API server, it is removed from hosts over SSH: all of it is
    gone when the command ends.
    """
    topology, reading = topology_of(file)
    found = sandbox_of(topology, reading, None, name)["metadata"]["name"]
    deleter = Deleter(session, cascade="background", dry_run=False, ignore_not_found=False)
    one = Doomed(Target(of_kind(SANDBOX), found), session.namespace)
    deleter.delete_all([one], deadline=time.monotonic() + timeout if waiting else None)
    return 1 if deleter.failed else 0
