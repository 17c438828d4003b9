"""The hosts of an SSH config: which of them a command uses, how it reaches them, and what they have of a Sandbox."""

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import click
from msgspec import Struct

from netloom.cli.sandbox.files import valid
from netloom.cli.sandbox.ssh.progress import HostProgress
from netloom.drivers.remote import protocol
from netloom.drivers.remote.hosts import Fleet, Job, Run
from netloom.drivers.remote.protocol import Result
from netloom.errors import BadRequest
from netloom.model.topology import ssh_config
from netloom.model.values import addresses

MOST_PARALLEL = 256
OVER_SSH = click.option(
    "--over-ssh",
    is_flag=True,
    help="Use the hosts of --ssh-config by SSH, with the backend linux.  "
    "[default: if FILE has the backend linux, or no API server is configured]",
)
SSH_CONFIG = click.option(
    "--ssh-config",
    "access",
    type=click.Path(allow_dash=True, dir_okay=False),
    help="The hosts of the Sandbox, as an OpenSSH client config.",
)
NODE = click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME[=ADDRESS]",
    help="Over SSH: a host to use, and the address that the others reach it at. Repeat for each.  "
    "[default: the jump hosts of the topology's hosts, or all Hosts of the SSH config; their HostName]",
)
PARALLEL = click.option(
    "--parallel",
    type=click.IntRange(1, MOST_PARALLEL),
    default=8,
    show_default=True,
    help="Over SSH: how many hosts at once.",
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Over SSH: print what would change, and change nothing.")


class Hosts:
    """The hosts of an SSH config that a command uses, by the name that placements know them under."""

    def __init__(
        self, config: str, placed: Iterable[str], chosen: Iterable[str], machines: Collection[str] = ()
    ) -> None:
        """`placed` are hosts with machines of the topology; `machines` are Hosts that are these machines."""
        self.config = config
        blocks = valid(config).machines
        every = [name for one in blocks for name in one.names]
        named = [name for name in every if not set(name) & set("*?!")]
        by_node = {name.lower(): name for name in reversed(named)}
        self.addresses = dict(_split(text) for text in chosen)
        placed = sorted(set(placed))
        usual = [name for name in named if name not in machines]
        wanted = list(self.addresses) or placed or usual
        self.names = {name.lower(): by_node.get(name.lower(), name) for name in wanted}
        if not self.names:
            raise BadRequest(f"{config}: it has no Host: add one for each host, or use --node")
        # `Host *` has options for all hosts, and names none.
        patterns = [name for name in every if name not in named and not name.startswith(("!", "*"))]
        unknown = [
            node
            for node, name in self.names.items()
            if node not in by_node and not any(fnmatchcase(name, one) for one in patterns)
        ]
        if unknown:
            raise BadRequest(
                f"{config}: it has no Host {', '.join(sorted(unknown))}: add it, or choose others by --node"
            )
        self.others: dict[str, str] = {}
        """Hosts that are not used now, and may have a part of the Sandbox from before."""
        if not self.addresses:
            # Machines are behind hosts: what is farther away than all of these is a machine, of any Sandbox.
            distances = ssh_config.distances(blocks)
            farthest = max((distances.get(name, 0) for name in self.names.values()), default=0)
            near = [name for name in usual if distances[name] <= farthest]
            self.others = {name.lower(): name for name in near if name.lower() not in self.names}

    async def reach(self, run: "Reach") -> tuple[dict[str, str], dict[str, Result]]:
        """Return the address of each host, by node, and the hosts that have none, by name."""
        given_here = {name.lower(): address for name, address in self.addresses.items() if address}
        found: dict[str, str] = {}
        failed: dict[str, Result] = {}
        for node, name in self.names.items():
            try:
                found[node] = given_here.get(node) or await run.address(name)
            except BadRequest as error:
                failed[name] = Result(error=error.message)
        return found, failed


class Reach:
    """How programs run on the hosts of an SSH config."""

    def __init__(self, config: str, *, timeout: float) -> None:
        from netloom.drivers.remote import ssh  # an extra: few need it

        if config == "-":
            raise BadRequest("--ssh-config: over SSH it must be a file, not standard input")
        self._access = ssh.Access(config=Path(config), timeout=timeout if timeout >= 0 else None)
        self._ssh = ssh

    async def address(self, host: str) -> str:
        """Return the address of a host."""
        return await self._ssh.address(self._access, host)

    @property
    def run(self) -> Run:
        """What runs a request on a host."""
        return functools.partial(self._ssh.run, self._access)


class Task(Struct, frozen=True, kw_only=True):
    """A program for hosts, and how many of them run it at once."""

    program: bytes
    owner: str
    reach: Reach
    parallel: int

    def ask(self, hosts: Collection[str]) -> dict[str, Result]:
        """Return what hosts say that they have."""
        return self.do(dict.fromkeys(hosts, Job("show")))

    def do(self, jobs: Mapping[str, Job]) -> dict[str, Result]:
        """Do jobs on hosts, and print nothing."""
        fleet = Fleet(self.program, self.owner, self.reach.run, parallel=self.parallel, on_step=lambda *_: None)
        return asyncio.run(fleet.do(jobs, lambda *_: None))

    def carry_out(
        self,
        jobs: Mapping[str, Job],
        *,
        failed: Mapping[str, Result] | None = None,
        before: Mapping[str, Result] | None = None,
        dry_run: bool = False,
        unchanged: str = "unchanged",
    ) -> dict[str, Result]:
        """Do jobs on hosts, with a line for each; an interrupt ends the programs there.

        Hosts that `failed` before get a line too. With `before`, what hosts had, all are given that back if one fails.
        """
        failed = failed or {}
        progress = HostProgress(len(jobs) + len(failed), dry_run=dry_run, unchanged=unchanged)
        fleet = Fleet(self.program, self.owner, self.reach.run, parallel=self.parallel, on_step=progress.on_step)
        for host, result in failed.items():
            progress.on_end(host, result)
        try:
            if before is None:
                return {**failed, **asyncio.run(fleet.do(jobs, progress.on_end))}
            return {**failed, **asyncio.run(fleet.do_or_undo(jobs, progress.on_end, {**before, **failed}))}
        except KeyboardInterrupt:
            progress.clear()
            click.echo("Interrupted: hosts may be half way. The same command again completes it.", err=True)
            raise


def task(program: str, owner: str, reach: Reach, parallel: int) -> Task:
    """Return a task of a program of this project."""
    return Task(program=protocol.source(program), owner=owner, reach=reach, parallel=parallel)


def warn_of_silent(others: Mapping[str, Result], echo: Callable[[str], None]) -> None:
    """Print which hosts could not be asked whether they have a part of the Sandbox."""
    for name, result in sorted(others.items()):
        if result.error:
            echo(f"{name}: warning: whether it has a part of the Sandbox is unknown: {result.error}")


def _split(text: str) -> tuple[str, str]:
    name, _, address = text.partition("=")
    if not name or not (address == "" or addresses.is_ip(address)):
        raise BadRequest(f"--node: {text!r} is not NAME or NAME=ADDRESS")
    return name, address
