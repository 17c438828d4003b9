"""`--over-ssh`: a Sandbox on the backend `linux`, pushed to hosts over SSH. No API server and no agent is needed.

show      each host says what it has: machines stay there, VNIs of others are avoided, tunnels fit its MTU
plan      any problem ends the command, and nothing is applied
apply     hosts with a part of the Sandbox get its document; from all others, what they still have is removed
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

import click
import msgspec
from msgspec import Struct, structs

from netloom.cli.options import given
from netloom.cli.sandbox.containment import refuse_leaks
from netloom.cli.sandbox.files import (
    OWN_SSH_CONFIG,
    is_over_ssh,
    is_pushed,
    read_or_fail,
    sandbox_of,
    topology_of,
    valid,
)
from netloom.cli.sandbox.ssh.hosts import (
    DRY_RUN,
    NODE,
    OVER_SSH,
    PARALLEL,
    SSH_CONFIG,
    Hosts,
    Reach,
    Task,
    task,
    warn_of_silent,
)
from netloom.cli.tables import clean
from netloom.drivers.remote.hosts import Job
from netloom.drivers.remote.protocol import Result, Shown
from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Backend, Sandbox
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import admit
from netloom.model.topology import ssh_config
from netloom.model.values import addresses
from netloom.plan.linux.documents import ETHERNET_MTU, OVERHEAD, LinuxPlan, plan_documents
from netloom.plan.linux.names import owner
from netloom.plan.linux.placements import Observed, observed, placements
from netloom.plan.problem import Problem
from netloom.plan.sandbox.placement import NODE_MISSING

F = TypeVar("F", bound=Callable[..., object])

APPLIER = "netloom.drivers.linux.applier"


class Deployed(Struct, frozen=True, kw_only=True):
    """A Sandbox, the hosts that it is on or will be, and what they say."""

    sandbox: Sandbox
    hosts: Hosts
    task: Task
    nodes: dict[str, str]
    """The addresses of hosts, by node."""
    shown: dict[str, Result]
    """What each host answered, by name."""
    failed: dict[str, Result]
    """Hosts that have no address, or cannot be asked, by name."""

    def observed(self) -> dict[str, Observed]:
        """Return the documents on the hosts, by node."""
        every = {
            node: observed(bytes(said.document))
            for node, name in self.hosts.names.items()
            if (said := self._said(name)) is not None
        }
        return {node: one for node, one in every.items() if one is not None}

    def plan(self) -> LinuxPlan:
        """Return the plan; what is on the hosts stays where it is."""
        documents = self.observed()
        said = [one for name in self.hosts.names.values() if (one := self._said(name)) is not None]
        plan = plan_documents(
            self.sandbox,
            self.nodes,
            placements(self.sandbox, documents, self.nodes),
            {vni for one in said for vni in one.taken},
            self._mtu(documents),
        )
        # A host that has no address fails by itself.
        lost = {node for node, name in self.hosts.names.items() if node not in self.nodes and name in self.failed}
        return structs.replace(plan, problems=tuple(one for one in plan.problems if not _is_about(one, lost)))

    def leftovers(self) -> list[str]:
        """Return hosts that are not used now, and have a part of the Sandbox from before."""
        names = self.hosts.others.values()
        return [name for name in names if (said := self._said(name)) is not None and not said.is_empty]

    def _said(self, name: str) -> Shown | None:
        found = self.shown.get(name)
        return None if found is None or found.error else found.shown

    def _mtu(self, documents: Mapping[str, Observed]) -> int:
        """Return the least MTU between the hosts; for those that say nothing, what was planned before holds."""
        every: list[int] = []
        for node, ip in self.nodes.items():
            said = self._said(self.hosts.names[node])
            known = [one.mtu + OVERHEAD[addresses.family(ip)] for one in documents.values()]
            every.append(min(known, default=ETHERNET_MTU) if said is None else _mtu_of(said, ip))
        return min(every, default=ETHERNET_MTU)


def applying_over_ssh(command: F) -> F:
    """Add `--over-ssh` to the command that applies a Sandbox."""

    @SSH_CONFIG
    @OVER_SSH
    @NODE
    @PARALLEL
    @DRY_RUN
    @click.option("--rollback", is_flag=True, help="Over SSH: if a host fails, undo the changes on the others.")
    @functools.wraps(command)
    def wrapped(
        access: str | None,
        over_ssh: bool,
        nodes: tuple[str, ...],
        parallel: int,
        dry_run: bool,
        rollback: bool,
        **rest: object,
    ) -> object:
        document = cast("Document", rest["document"])
        if not is_pushed(access or "", over_ssh=over_ssh, backend=str(document["spec"].get("backend", ""))):
            _refuse({"--node": nodes, "--dry-run": dry_run, "--rollback": rollback})
            if access:
                text = f"{access} places hosts on Nodes, as --placement does; --over-ssh deploys on its hosts"
                click.echo(clean(text), err=True)
            return command(**rest)
        sandbox = linux_sandbox(document)
        if rest["verifying"]:
            refuse_leaks(sandbox)
        found = deployed(sandbox, access, nodes, parallel, cast("float", rest["timeout"]))
        warn_of_silent({name: found.shown[name] for name in found.hosts.others.values()}, _echo)
        plan = found.plan()
        if plan.problems:
            text = "\n  ".join(clean(f"{one.reason}: {one.message}") for one in plan.problems)
            raise BadRequest(f"nothing is applied:\n  {text}")
        verb, nothing = ("plan", Job("plan", b"")) if dry_run else ("apply", Job("remove"))
        jobs = {
            name: Job(verb, msgspec.json.encode(plan.documents[node])) if node in plan.documents else nothing
            for node, name in found.hosts.names.items()
            if name not in found.failed
        }
        jobs |= dict.fromkeys(found.leftovers(), nothing)
        before = found.shown if rollback and not dry_run else None
        before = None if before is None else {name: one for name, one in before.items() if name in jobs}
        ended = found.task.carry_out(jobs, failed=found.failed, before=before, dry_run=dry_run)
        return 1 if any(one.error for one in ended.values()) else 0

    setattr(wrapped, OWN_SSH_CONFIG, True)
    return cast("F", wrapped)


def destroying_over_ssh(command: F) -> F:
    """Add `--over-ssh` to the command that removes a Sandbox."""

    @SSH_CONFIG
    @OVER_SSH
    @NODE
    @PARALLEL
    @DRY_RUN
    @functools.wraps(command)
    def wrapped(
        access: str | None, over_ssh: bool, nodes: tuple[str, ...], parallel: int, dry_run: bool, **rest: object
    ) -> object:
        file = str(rest["file"])
        # Standard input is read once: what it has decides nothing.
        if not over_ssh and (not access or file == "-" or not is_over_ssh(read_or_fail(file))):
            _refuse({"--ssh-config": access, "--node": nodes, "--dry-run": dry_run})
            return command(**rest)
        sandbox = sandbox_over_ssh(file, str(rest["name"]), access)
        hosts, work = _hosts(sandbox, access, nodes, parallel, cast("float", rest["timeout"]))
        shown = work.ask(list(hosts.others.values()))
        warn_of_silent(shown, _echo)
        left = [
            name for name, one in shown.items() if not one.error and one.shown is not None and not one.shown.is_empty
        ]
        job = Job("plan", b"") if dry_run else Job("remove")
        ended = work.carry_out(dict.fromkeys([*hosts.names.values(), *left], job), dry_run=dry_run)
        return 1 if any(one.error for one in ended.values()) else 0

    return cast("F", wrapped)


def deployed(sandbox: Sandbox, access: str | None, chosen: Iterable[str], parallel: int, timeout: float) -> Deployed:
    """Return a Sandbox with what the hosts of an SSH config say about it."""
    hosts, work = _hosts(sandbox, access, chosen, parallel, timeout)
    nodes, failed = asyncio.run(hosts.reach(work.reach))
    asked = [name for name in (*hosts.names.values(), *hosts.others.values()) if name not in failed]
    shown = work.ask(asked)
    failed |= {name: shown[name] for name in hosts.names.values() if name in shown and shown[name].error}
    return Deployed(sandbox=sandbox, hosts=hosts, task=work, nodes=nodes, shown=shown, failed=failed)


def sandbox_over_ssh(file: str, name: str, access: str | None) -> Sandbox:
    """Return the Sandbox of a file, with its hosts where an SSH config has them."""
    topology, reading = topology_of(file)
    placement = ssh_config.placement(topology, valid(access).machines) if access else None
    return linux_sandbox(sandbox_of(topology, reading, placement, name))


def linux_sandbox(document: Document) -> Sandbox:
    """Return a Sandbox on the backend `linux`, with the defaults that an API server would set."""
    document["spec"]["backend"] = Backend.LINUX.value
    document["metadata"]["namespace"] = given("namespace") or "default"
    admit(SANDBOX, document)
    return msgspec.convert(document, Sandbox)


def _refuse(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise click.UsageError(f"{name} needs --over-ssh.")


def _hosts(
    sandbox: Sandbox, config: str | None, chosen: Iterable[str], parallel: int, timeout: float
) -> tuple[Hosts, Task]:
    if not config:
        raise click.UsageError("--over-ssh needs --ssh-config FILE, which says how hosts are reached.")
    placement = sandbox.spec.placement
    placed = {*placement.hosts.values(), placement.default} - {""} if placement else set()
    machines = ssh_config.machines_of(sandbox.spec.topology, valid(config).machines)
    hosts = Hosts(config, placed, chosen, {name for names in machines.values() for name in names})
    name = owner(sandbox.metadata.namespace, sandbox.metadata.name)
    return hosts, task(APPLIER, name, Reach(config, timeout=timeout), parallel)


def _is_about(problem: Problem, nodes: Iterable[str]) -> bool:
    return problem.reason == NODE_MISSING and any(f"there is no Node {node}:" in problem.message for node in nodes)


def _mtu_of(said: Shown, ip: str) -> int:
    return next((mtu for known, mtu in said.mtus.items() if addresses.is_ip(known) and _same(known, ip)), ETHERNET_MTU)


def _same(one: str, other: str) -> bool:
    return addresses.address(one) == addresses.address(other)


def _echo(text: str) -> None:
    click.echo(clean(text), err=True)
