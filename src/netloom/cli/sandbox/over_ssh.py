"""`--over-ssh`: a Sandbox on the backend `linux`, pushed to hosts over SSH. No API server and no agent is needed."""

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar, cast

import click
import msgspec

from netloom.cli.options import given
from netloom.cli.sandbox.files import FILE, sandbox_of, topology_of, valid
from netloom.cli.sandbox.progress import HostProgress
from netloom.cli.sandbox.verify import refuse_leaks
from netloom.cli.tables import clean
from netloom.drivers.remote import protocol
from netloom.drivers.remote.hosts import Fleet, Job, Run
from netloom.drivers.remote.protocol import Result
from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Backend, Sandbox
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import admit
from netloom.model.topology import ssh_config
from netloom.model.values import addresses
from netloom.plan.linux.documents import plan_documents

F = TypeVar("F", bound=Callable[..., object])

APPLIER = "netloom.drivers.linux.applier"
MOST_PARALLEL = 256
OVER_SSH = click.option(
    "--over-ssh", is_flag=True, help="Use hosts of --ssh-config by SSH, with the backend linux and no API server."
)
NODE = click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME[=ADDRESS]",
    help="With --over-ssh: a host to use, and the address that the others reach it at. Repeat for each.  "
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

    def __init__(self, config: str, placed: Iterable[str], chosen: Iterable[str]) -> None:
        self.config = config
        machines = valid(config).machines
        every = [name for one in machines for name in one.names]
        named = [name for name in every if not set(name) & set("*?!")]
        by_node = {name.lower(): name for name in reversed(named)}
        self.addresses = dict(_split(text) for text in chosen)
        wanted = list(self.addresses) or sorted(set(placed)) or named
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

    async def reach(self, run: "Reach") -> dict[str, str]:
        """Return the address of each host."""
        given_here = {name.lower(): address for name, address in self.addresses.items() if address}
        return {node: given_here.get(node) or await run.address(name) for node, name in self.names.items()}


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


def carry_out(
    program: bytes,
    owner: str,
    jobs: Mapping[str, Job],
    reach: Reach,
    *,
    parallel: int,
    rollback: bool = False,
    dry_run: bool = False,
    unchanged: str = "unchanged",
) -> dict[str, Result]:
    """Do jobs on hosts, with a line for each; an interrupt ends the programs there."""
    progress = HostProgress(len(jobs), dry_run=dry_run, unchanged=unchanged)
    fleet = Fleet(program, owner, reach.run, parallel=parallel, on_step=progress.on_step)
    work = fleet.do_or_undo if rollback else fleet.do
    try:
        return asyncio.run(work(jobs, progress.on_end))
    except KeyboardInterrupt:
        progress.clear()
        click.echo("Interrupted: hosts may be half way. The same command again completes it.", err=True)
        raise


def applying_over_ssh(command: F) -> F:
    """Add `--over-ssh` to the command that applies a Sandbox."""

    @OVER_SSH
    @NODE
    @PARALLEL
    @DRY_RUN
    @click.option("--rollback", is_flag=True, help="Over SSH: if a host fails, undo the changes on the others.")
    @functools.wraps(command)
    def wrapped(
        over_ssh: bool, nodes: tuple[str, ...], parallel: int, dry_run: bool, rollback: bool, **rest: object
    ) -> object:
        if not over_ssh:
            _refuse({"--node": nodes, "--dry-run": dry_run, "--rollback": rollback})
            return command(**rest)
        sandbox = _sandbox(cast("Document", rest["document"]))
        if rest["verifying"]:
            refuse_leaks(sandbox)
        hosts, reach = _hosts(sandbox, given("access"), nodes, cast("float", rest["timeout"]))
        plan = plan_documents(sandbox, asyncio.run(hosts.reach(reach)))
        for problem in plan.problems:
            click.echo(clean(f"{problem.reason}: {problem.message}"), err=True)
        verb = "plan" if dry_run else "apply"
        # A host without a part of the Sandbox may have one from before.
        nothing = Job("plan", b"") if dry_run else Job("remove")
        jobs = {
            name: Job(verb, msgspec.json.encode(plan.documents[node])) if node in plan.documents else nothing
            for node, name in hosts.names.items()
        }
        program = protocol.source(APPLIER)
        ended = carry_out(
            program, plan.owner, jobs, reach, parallel=parallel, rollback=rollback and not dry_run, dry_run=dry_run
        )
        return 1 if plan.problems or any(one.error for one in ended.values()) else 0

    return cast("F", wrapped)


def destroying_over_ssh(command: F) -> F:
    """Add `--over-ssh` to the command that removes a Sandbox."""

    @click.option("--ssh-config", "access", type=FILE, help="With --over-ssh: the hosts that have the Sandbox.")
    @OVER_SSH
    @NODE
    @PARALLEL
    @DRY_RUN
    @functools.wraps(command)
    def wrapped(
        access: str | None, over_ssh: bool, nodes: tuple[str, ...], parallel: int, dry_run: bool, **rest: object
    ) -> object:
        if not over_ssh:
            _refuse({"--ssh-config": access, "--node": nodes, "--dry-run": dry_run})
            return command(**rest)
        topology, reading = topology_of(str(rest["file"]))
        placement = ssh_config.placement(topology, valid(access).machines) if access else None
        sandbox = _sandbox(sandbox_of(topology, reading, placement, str(rest["name"])))
        hosts, reach = _hosts(sandbox, access, nodes, cast("float", rest["timeout"]))
        owner = plan_documents(sandbox, {}).owner
        jobs = dict.fromkeys(hosts.names.values(), Job("plan", b"") if dry_run else Job("remove"))
        program = protocol.source(APPLIER)
        ended = carry_out(program, owner, jobs, reach, parallel=parallel, dry_run=dry_run)
        return 1 if any(one.error for one in ended.values()) else 0

    return cast("F", wrapped)


def _refuse(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise click.UsageError(f"{name} needs --over-ssh.")


def _sandbox(document: Document) -> Sandbox:
    document["spec"]["backend"] = Backend.LINUX.value
    document["metadata"]["namespace"] = given("namespace") or "default"
    admit(SANDBOX, document)
    return msgspec.convert(document, Sandbox)


def _hosts(sandbox: Sandbox, config: str | None, chosen: Iterable[str], timeout: float) -> tuple[Hosts, Reach]:
    if not config:
        raise click.UsageError("--over-ssh needs --ssh-config FILE, which says how hosts are reached.")
    placement = sandbox.spec.placement
    placed = {*placement.hosts.values(), placement.default} - {""} if placement else set()
    return Hosts(config, placed, chosen), Reach(config, timeout=timeout)


def _split(text: str) -> tuple[str, str]:
    name, _, address = text.partition("=")
    if not name or not (address == "" or addresses.is_ip(address)):
        raise BadRequest(f"--node: {text!r} is not NAME or NAME=ADDRESS")
    return name, address
