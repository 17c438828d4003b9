"""The command that runs a program on a host of a Sandbox, on the machine where the host runs."""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from netloom.cli.options import connected, session
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.files import FILE, read_or_fail
from netloom.client.session import Session
from netloom.errors import NetloomError, NotFound
from netloom.model.kinds.sandbox import Topology

SHELL = "/bin/sh"


def _complete_hosts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Suggest the names of the hosts, of a file or as the server has them; nothing if it does not answer."""
    try:
        topology = _topology(ctx)
    except (NetloomError, click.ClickException, OSError, KeyError, ValueError):
        return []
    return [one.name for one in topology.hosts if one.name.startswith(incomplete)] if topology is not None else []


def _topology(ctx: click.Context) -> Topology | None:
    if file := ctx.params.get("file"):
        return read_or_fail(file).topology
    with ctx.scope(cleanup=False):
        connection = session()
    with contextlib.closing(connection.client):
        return stored.find(connection, str(ctx.params.get("name") or "")).spec.topology


# What follows the host belongs to the command, with or without `--`.
@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("-f", "--file", type=FILE, help="The Sandbox that this file describes.")
@click.option("--name", default="", metavar="NAME", help="Name of the Sandbox.  [default: the only one]")
@connected
@click.argument("host", shell_complete=_complete_hosts)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def execute(session: Session, file: str | None, name: str, host: str, command: tuple[str, ...]) -> NoReturn:
    """Run a command, or a shell, on a host of a Sandbox.

    It runs in the network namespace of the host, on the machine of its Node, with the files and rights of the caller;
    this needs root. The exit status is that of the command. Options come before HOST.
    """
    command = command[1:] if command[:1] == ("--",) else command
    netns = _namespace(session, file, name, host)
    # `ip netns exec` also shows the devices of the namespace in /sys.
    argv = ["ip", "netns", "exec", netns, *(command or (os.environ.get("SHELL", SHELL),))]
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  # without a shell


def _namespace(session: Session, file: str | None, name: str, host: str) -> str:
    """Return the network namespace of a host, which is on this machine."""
    sandbox = stored.find(session, name or (stored.name_of(file) if file else ""))
    shown = sandbox.metadata.name
    hosts = [one.name for one in sandbox.spec.topology.hosts]
    if host not in hosts:
        some = ", ".join(hosts[: stored.SHOWN]) + (", ..." if len(hosts) > stored.SHOWN else "")
        raise NotFound(f"Sandbox {shown} has no host {host}: its hosts are {some or 'none'}")
    found = stored.attachments(session, sandbox, host)
    if not found:
        raise NotFound(f"host {host} has no attachment: see `netloom describe sandbox/{shown}`")
    spec = found[0].spec
    path = Path(spec.port.netns)
    if path.exists():
        return path.name
    if not sandbox.spec.run:
        raise NotFound(f"host {host} does not run: apply the Sandbox with --run, or create {path} on {spec.node}")
    raise NotFound(f"host {host} runs on Node {spec.node}, and {path} is not here: run this command on that Node")
