"""The command that runs a program on a host of a Sandbox, on the machine where the host runs, here or over SSH."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from netloom.cli.options import connectable, session
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.files import FILE, is_over_ssh, read_or_fail
from netloom.cli.sandbox.ssh.deploying import deployed, sandbox_over_ssh
from netloom.cli.sandbox.ssh.hosts import MOST_PARALLEL, NODE, OVER_SSH, SSH_CONFIG
from netloom.client.session import Session
from netloom.errors import NetloomError, NotFound
from netloom.model.kinds.sandbox import Sandbox, Topology
from netloom.plan.linux.placements import placements, spaces

SHELL = "/bin/sh"
SECONDS = 60.0
"""The time limit of each host that is asked what it has."""


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
@SSH_CONFIG
@OVER_SSH
@NODE
@connectable
@click.argument("host", shell_complete=_complete_hosts)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def execute(
    connecting: Callable[[], Session],
    file: str | None,
    name: str,
    access: str | None,
    over_ssh: bool,
    nodes: tuple[str, ...],
    host: str,
    command: tuple[str, ...],
) -> NoReturn:
    """Run a command, or a shell, on a host of a Sandbox.

    It runs in the network namespace of the host, on the machine of its Node, with the files and rights of the caller;
    this needs root. The exit status is that of the command. Options come before HOST.

    With --over-ssh, it runs on the host of --ssh-config that has it, by the program ssh, as root there.
    """
    command = command[1:] if command[:1] == ("--",) else command
    if (over_ssh or access) and not file:
        raise click.UsageError("--over-ssh and --ssh-config need -f FILE.")
    if over_ssh or (access and file != "-" and is_over_ssh(read_or_fail(str(file)))):
        argv = _over_ssh(str(file), name, access, nodes, host, command or (SHELL,))
    elif access:
        raise click.UsageError("--ssh-config needs --over-ssh.")
    else:
        connection = connecting()
        with contextlib.closing(connection.client):
            netns = _namespace(connection, file, name, host)
        # `ip netns exec` also shows the devices of the namespace in /sys.
        argv = ["ip", "netns", "exec", netns, *(command or (os.environ.get("SHELL", SHELL),))]
    sys.stdout.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606  # without a shell
    except FileNotFoundError:
        raise NotFound(f"the program {argv[0]} is not installed here") from None


def _over_ssh(
    file: str, name: str, access: str | None, nodes: tuple[str, ...], host: str, command: tuple[str, ...]
) -> list[str]:
    """Return the command that runs another one on a host of a Sandbox, over SSH."""
    sandbox = sandbox_over_ssh(file, name, access)
    _require(sandbox, host)
    found = deployed(sandbox, access, nodes, MOST_PARALLEL, SECONDS)
    node = placements(sandbox, found.observed(), found.nodes).get(host, "")
    if not node:
        some = "".join(f"; {one} could not be asked: {result.error}" for one, result in sorted(found.failed.items()))
        raise NotFound(f"host {host} runs on none of the hosts of {access}: apply {file}{some}")
    space = next(space for space, machine in spaces(sandbox).items() if machine == host)
    inner = shlex.join(["ip", "netns", "exec", space, *command])
    script = f'if [ "$(id -u)" = 0 ]; then exec {inner}; else exec sudo -n {inner}; fi'
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    # As for other commands, a key that is not known is refused, whatever the config says.
    options = ["-F", str(access), "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", *terminal]
    return ["ssh", *options, "--", found.hosts.names[node], script]


def _require(sandbox: Sandbox, host: str) -> None:
    """Refuse a name that no host of a Sandbox has."""
    hosts = [one.name for one in sandbox.spec.topology.hosts]
    if host not in hosts:
        some = ", ".join(hosts[: stored.SHOWN]) + (", ..." if len(hosts) > stored.SHOWN else "")
        raise NotFound(f"Sandbox {sandbox.metadata.name} has no host {host}: its hosts are {some or 'none'}")


def _namespace(session: Session, file: str | None, name: str, host: str) -> str:
    """Return the network namespace of a host, which is on this machine."""
    sandbox = stored.find(session, name or (stored.name_of(file) if file else ""))
    shown = sandbox.metadata.name
    _require(sandbox, host)
    place = stored.place(session, sandbox, host)
    if place is None:
        raise NotFound(f"host {host} is on no Node: see `netloom describe sandbox/{shown}`")
    node, path = place
    if path.exists():
        return path.name
    if not sandbox.spec.run:
        raise NotFound(f"host {host} does not run: apply the Sandbox with --run, or create {path} on {node}")
    raise NotFound(f"host {host} runs on Node {node}, and {path} is not here: run this command on that Node")
