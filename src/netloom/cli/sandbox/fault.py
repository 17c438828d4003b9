"""`netloom sandbox fault`: cut links, keep hosts apart, and end that again.

A fault is an entry of `spec.faults`, and lasts until it is removed there. The entries are written with a field manager
of their own: the server keeps them when a file without them is applied. Only `flap` acts by itself: it writes and
removes one entry for as long as it runs.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec

from netloom.cli.durations import DURATION
from netloom.cli.options import OUTPUT, connected
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.deploy import TIMEOUT, WAIT
from netloom.cli.tables import Aligner, clean
from netloom.cli.terminal import ended_by_term, print_json
from netloom.client.session import Session
from netloom.errors import BadRequest, NetloomError, NotFound, Unreachable
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Fault, LinkDown, Partition, Topology
from netloom.plan.sandbox.faults import describe, plan_faults
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.topology import usable

MANAGER = "netloom-fault"
LEAST_SECONDS = 0.1
"""The shortest time between two changes of a link that flaps."""
AWAY_SECONDS = 60.0
"""How long a flapping link is tried to be restored while the server is unreachable."""
PAUSE_SECONDS = 0.5

NAME = click.option("--name", default="", metavar="NAME", help="Name of the fault.  [default: from what it does]")
HOST = click.argument("host")
NETWORK = click.argument("network", default="")


@click.group()
@click.argument("sandbox")
def fault(sandbox: str) -> None:
    """Make deliberate faults in a running Sandbox, and end them.

    A fault lasts until `restore`: it survives restarts, and an apply of the file.
    """


def _sandbox() -> str:
    """Return the argument of the group."""
    parent = click.get_current_context().parent
    assert parent is not None
    return str(parent.params["sandbox"])


@fault.command("link-down")
@HOST
@NETWORK
@NAME
@WAIT
@TIMEOUT
@connected
def link_down(session: Session, host: str, network: str, name: str, waiting: bool, timeout: float) -> int:
    """Take down the link of a host or router to a network, or all its links."""
    name = name or _name("link-down", host, network)
    return _add(session, Fault(name=name, link_down=LinkDown(host=host, network=network)), waiting, timeout)


@fault.command()
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@click.option(
    "--from", "others", multiple=True, metavar="MEMBER", help="Who is on the other side.  [default: all other hosts]"
)
@NAME
@WAIT
@TIMEOUT
@connected
def partition(
    session: Session, members: tuple[str, ...], others: tuple[str, ...], name: str, waiting: bool, timeout: float
) -> int:
    """Keep hosts from reaching others, in both directions.

    A member is a host, a network or a group: of a network, the links of hosts to it. --from may be repeated.
    """
    name = name or _name("partition", *members, *(["from"] if others else []), *others)
    return _add(session, Fault(name=name, partition=Partition(members=members, from_=others)), waiting, timeout)


@fault.command()
@HOST
@NETWORK
@click.option(
    "--every", type=DURATION, default="5s", show_default=True, metavar="TIME", help="Time that it is down, then up."
)
@click.option("--for", "length", type=DURATION, default="-1", metavar="TIME", help="Stop after this time.")
@connected
def flap(session: Session, host: str, network: str, every: float, length: float) -> int:
    """Take a link down and up again, over and over, until Ctrl-C, SIGTERM or the end of --for.

    The link is up at the end. After a kill -9 it may be down: `restore` ends that.
    """
    if every < LEAST_SECONDS:
        raise click.BadParameter(f"must be at least {LEAST_SECONDS}s.", param_hint="--every")
    sandbox = _sandbox()
    made = Fault(name=_name("flap", host, network), link_down=LinkDown(host=host, network=network))
    for one in _faults(stored.document(session, sandbox)):
        cut = one.link_down
        if one.name != made.name and cut is not None and cut.host == host and cut.network in ("", network):
            raise BadRequest(f"{describe(one)} by fault {one.name}: restore it first")
    end = time.monotonic() + length if length >= 0 else float("inf")
    times = 0
    with ended_by_term(), _restored(session, sandbox, made.name):
        while time.monotonic() < end:
            _put(session, sandbox, made)
            times += 1
            click.echo(clean(describe(made)))
            time.sleep(max(0.0, min(every, end - time.monotonic())))
            stored.change(session, sandbox, _without({made.name}), manager=MANAGER)
            click.echo(clean(f"{describe(made).removesuffix('down')}up"))
            time.sleep(max(0.0, min(every, end - time.monotonic())))
    return 0


@fault.command()
@click.argument("names", nargs=-1, metavar="[FAULT...]")
@WAIT
@TIMEOUT
@connected
def restore(session: Session, names: tuple[str, ...], waiting: bool, timeout: float) -> int:
    """End the faults of these names, or all faults."""
    sandbox = _sandbox()
    present = {one.name for one in _faults(stored.document(session, sandbox))}
    if missing := sorted(set(names) - present):
        raise NotFound(f"sandbox {sandbox} has no fault {missing[0]}: see netloom sandbox fault {sandbox} list")
    gone = sorted(set(names) or present)
    _, after = stored.change(session, sandbox, _without(set(gone)), manager=MANAGER)
    for name in gone:
        click.echo(clean(f"{name} restored"))
    if not gone:
        click.echo("No faults found.")
    elif waiting:
        stored.until_ready(session, after, timeout=timeout)
    return 0


@fault.command("list")
@OUTPUT
@connected
def list_faults(session: Session, output: str) -> None:
    """List the faults of the Sandbox."""
    found = _faults(stored.document(session, _sandbox()))
    if output == "json":
        print_json(found)
    elif found:
        for line in Aligner().lines([("NAME", "FAULT"), *((one.name, describe(one)) for one in found)]):
            click.echo(line)
    else:
        click.echo("No faults found.")


def _add(session: Session, made: Fault, waiting: bool, timeout: float) -> int:
    sandbox = _sandbox()
    before, after = _put(session, sandbox, made)
    click.echo(clean(f"{made.name} {'unchanged' if before is after else 'created'}: {describe(made)}"))
    if waiting:
        stored.until_ready(session, after, timeout=timeout)
    return 0


def _put(session: Session, sandbox: str, made: Fault) -> tuple[Document, Document]:
    """Write a fault to a Sandbox; refuse one that its topology does not have, or whose name another one has."""

    def edit(spec: Document) -> None:
        faults = spec.get("faults") or []
        wanted = msgspec.to_builtins(made)
        same = [one for one in faults if one["name"] == made.name]
        if same and msgspec.convert(same[0], Fault) != made:
            raise BadRequest(f"fault {made.name} exists and is another one: restore it, or choose another --name")
        if not same:
            topology = msgspec.convert(spec["topology"], Topology)
            for problem in plan_faults([made], usable(topology)).problems:
                raise BadRequest(problem.message.removeprefix("spec.faults: "))
            spec["faults"] = [*faults, wanted]

    return stored.change(session, sandbox, edit, manager=MANAGER)


def _without(names: set[str]) -> Callable[[Document], None]:
    def edit(spec: Document) -> None:
        faults = spec.pop("faults", None) or []
        if kept := [one for one in faults if one["name"] not in names]:
            spec["faults"] = kept

    return edit


@contextmanager
def _restored(session: Session, sandbox: str, name: str) -> Iterator[None]:
    """Remove a fault at the end, whatever the end is; say how to do it by hand if that fails."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                stored.change(session, sandbox, _without({name}), manager=MANAGER)
                break
            except NotFound:
                break
            except NetloomError as error:
                if isinstance(error, Unreachable) and time.monotonic() < deadline:
                    time.sleep(PAUSE_SECONDS)
                    continue
                click.echo(clean(f"the link may be down: netloom sandbox fault {sandbox} restore {name}"), err=True)
                raise


def _faults(found: Document) -> tuple[Fault, ...]:
    return stored.value(found).spec.faults


def _name(*words: str) -> str:
    return label_value("-".join(word for word in words if word))
