"""`netloom lab`: a network of many hosts on this machine, each with its own real Open vSwitch and OVN."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

import click

OVN = {"none": 0, "1": 1, "3": 3}
DATA = click.option(
    "--data", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Directory of the lab."
)

NODES = click.argument("nodes", nargs=-1, required=True, metavar="NODE...")


@click.group()
def lab() -> None:
    """Run a network of many hosts on this machine, without virtual machines.

    Each host is a network namespace with its own Open vSwitch, ovn-controller and agent. OVN's central databases and
    the control plane run as well. `lab up` returns when every node is Ready.
    """


@lab.command()
@click.option(
    "--nodes", default=3, show_default=True, metavar="N", type=click.IntRange(1, 250), help="Number of hosts."
)
@DATA
@click.option(
    "--ovn", default="1", show_default=True, type=click.Choice(list(OVN)), help="Number of OVN central servers."
)
@click.option("--plain-ovn", is_flag=True, help="Connect to OVN's databases over unix sockets, without TLS or RBAC.")
@click.option("--no-restart", is_flag=True, help="Do not restart processes that exit.")
@click.option("--outside", is_flag=True, help="Add an external router, 192.0.2.1, on the physical network physnet1.")
@click.option(
    "--root-of",
    "roots",
    multiple=True,
    metavar="NODE=DIR",
    help="Run the OVS and OVN programs of NODE, or of `central`, with DIR as their root directory.",
)
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(path_type=Path), help="Use this API server instead of starting one."
)
@click.option(
    "--agents",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --kubeconfig: directory with a NODE.kubeconfig for the agent of each node.",
)
@click.option("--timeout", default=120.0, show_default=True, metavar="SECONDS", help="Fail after this time.")
def up(
    data: Path,
    ovn: str,
    no_restart: bool,
    roots: tuple[str, ...],
    **given: Any,  # noqa: ANN401  # what click parsed
) -> None:
    """Start a lab; a lab that was stopped keeps its data."""
    from netloom.lab import Lab  # the lab and its dependencies: only when used

    began = time.monotonic()
    servers: Literal[0, 1, 3] = OVN[ovn]  # type: ignore[assignment]  # the choices are these

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:5.1f} s  {text}")

    with _ended_by_term():
        found = Lab.up(data, ovn=servers, restart=not no_restart, roots=_roots(roots), say=say, **given)
    where = _shown(data)
    click.echo(
        f"\nThe lab is up: {', '.join(found.nodes)}.\n"
        f"  export KUBECONFIG={_shown(found.kubeconfig)}\n"
        f"  netloom get nodes\n"
        f"  netloom lab status --data {where}\n"
        f"  netloom lab exec --data {where} n1 -- ovs-vsctl show\n"
        f"  netloom lab down --data {where}"
    )


@lab.command()
@DATA
@click.option("--delete", is_flag=True, help="Also delete the directory, with all data.")
def down(data: Path, delete: bool) -> None:
    """Stop a lab, and keep its data.

    This also removes what a lab left behind that failed to start.
    """
    from netloom.lab import down as take_down  # as above

    take_down(data, delete=delete)
    click.echo(f"The lab in {_shown(data)} is down{' and gone' if delete else ''}.")


@lab.command()
@click.option(
    "--data", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the lab.  [default: all labs]"
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def status(data: Path | None, output: str) -> int:
    """Show a lab, or all labs of this machine, as a tree.

    The exit status is 1 if a part of a lab is not healthy.
    """
    import msgspec  # only to write JSON

    from netloom.cli.terminal import print_json
    from netloom.lab import state
    from netloom.lab.status import observe, tree  # as above

    folders = [data] if data else [folder for folder in state.registered().values() if (folder / state.FILE).exists()]
    found = [observe(folder) for folder in folders]
    if output == "json":
        shown = [{**msgspec.to_builtins(one), "well": one.healthy} for one in found]
        print_json(shown[0] if data else shown)
    elif not found:
        click.echo("There is no lab on this machine.")
    else:
        click.echo("\n\n".join("\n".join(tree(one)) for one in found))
    return 0 if all(one.healthy for one in found) else 1


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@DATA
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def execute(data: Path, node: str, command: tuple[str, ...]) -> NoReturn:
    """Run a command, or a shell, on a node or in a workload.

    NODE is a node, central, underlay, outside, or a workload. The tools of OVS and OVN connect to the node's own
    daemons; netloom and kubectl connect to the lab's API server.
    """
    from netloom.lab import Lab  # as above

    found = Lab(data)
    argv = found.command(node, command or [os.environ.get("SHELL", "/bin/sh")])
    sys.stdout.flush()
    os.execvpe(argv[0], argv, found.environment(node))  # noqa: S606  # without a shell


@lab.command()
@DATA
@NODES
def off(data: Path, nodes: tuple[str, ...]) -> None:
    """Power hosts off.

    This kills all their processes and takes their links down. Nothing is restarted.
    """
    from netloom.lab import Lab  # as above

    found = Lab(data)
    for node in nodes:
        found.off(node)
        click.echo(f"{node} is off.")


@lab.command()
@DATA
@NODES
def on(data: Path, nodes: tuple[str, ...]) -> None:
    """Power hosts on again, and wait until they are Ready."""
    from netloom.lab import Lab  # as above

    found = Lab(data)
    for node in nodes:
        found.on(node)
        click.echo(f"{node} is on and Ready.")


@lab.command()
@DATA
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def workload(data: Path, names: tuple[str, ...]) -> None:
    """Create network namespaces for workloads, and print their paths.

    Use a path as `port.netns` of an attachment, and a name with `lab exec`. They are removed with the lab.
    """
    from netloom.lab import Lab  # as above

    found = Lab(data)
    for name in names:
        click.echo(found.workload(name))


@contextlib.contextmanager
def _ended_by_term() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a partly started lab is cleaned up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _roots(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        place, equals, folder = text.partition("=")
        if not (place and equals and Path(folder).is_dir()):
            raise click.BadParameter(f"{text!r} is not NODE=DIR with an existing directory.", param_hint="--root-of")
        found[place] = str(Path(folder).resolve())
    return found


def _shown(path: Path) -> str:
    """Return a path relative to the working directory, if it is inside."""
    with contextlib.suppress(ValueError):
        return f"./{path.absolute().relative_to(Path.cwd())}"
    return str(path)
