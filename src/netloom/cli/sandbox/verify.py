"""The command that verifies the containment of a Sandbox: by its plan, by the live objects, and by real packets.

`plan/sandbox/reachability.py` compares objects with the topology. The probes run on this machine, in the network
namespaces of the hosts that run here, or over SSH on the hosts that have the Sandbox (`probing.py`), and are compared
with what the plan lets pass.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import click
from msgspec import Struct, structs

from netloom.cli.objects import manifests
from netloom.cli.options import OUTPUT, connectable
from netloom.cli.sandbox import probing, stored
from netloom.cli.sandbox.containment import verified_alone, without_faults
from netloom.cli.sandbox.files import FILE, NAME, is_over_ssh, read_or_fail, sandbox_of, topology_of
from netloom.cli.sandbox.ssh.deploying import deployed, sandbox_over_ssh
from netloom.cli.sandbox.ssh.hosts import NODE, OVER_SSH, PARALLEL, SSH_CONFIG
from netloom.cli.tables import clean
from netloom.cli.terminal import counted, paint, print_json
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.errors import BadRequest, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kinds.sandbox import Backend, HostDocument, Sandbox
from netloom.model.registry import KINDS
from netloom.model.values import addresses
from netloom.plan.linux.objects import plan_host_documents, vnis_of
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.objects import NETNS_FOLDER, SandboxPlan, plan_sandbox
from netloom.plan.sandbox.reachability import Difference, Verification, cut_pairs, is_of, verify

LIVE = (Network, Subnet, Router, SecurityProfile, NetworkAttachment, EVPNNetwork)
"""The kinds that decide where packets pass."""


class Report(Struct, frozen=True, kw_only=True):
    """What `verify -o json` prints."""

    sandbox: str
    verified: bool
    plan: Verification
    live: Verification | None = None
    probes: probing.Probes | None = None
    monitoring: tuple[probing.Monitored, ...] = ()
    failed: dict[str, str] = {}
    """Why hosts could not be asked over SSH, by name."""


@click.command("verify")
@click.argument("file", type=FILE, required=False)
@NAME
@click.option("--plan-only", is_flag=True, help="Check the plan of FILE only, without a server.")
@click.option("--probe/--no-probe", default=True, help="Send packets between the hosts.  [default: probe]")
@click.option(
    "--outside",
    default="",
    metavar="ADDRESS",
    help="Also probe this address outside.  [default: the gateway's next hop]",
)
@click.option(
    "--as-users", is_flag=True, help="Also send packets as users do, through man, from a temporary machine on the WAN."
)
@click.option(
    "--with", "others", multiple=True, type=FILE, metavar="FILE", help="With --plan-only: objects beside the Sandbox."
)
@click.option(
    "--rounds",
    default=20,
    show_default=True,
    type=click.IntRange(1, 600),
    metavar="N",
    help="Try hosts that must reach each other N times, once a second.",
)
@SSH_CONFIG
@OVER_SSH
@NODE
@PARALLEL
@OUTPUT
@connectable
def verify_command(
    connecting: Callable[[], Session],
    file: str | None,
    name: str,
    plan_only: bool,
    probe: bool,
    outside: str,
    as_users: bool,
    others: tuple[str, ...],
    rounds: int,
    access: str | None,
    over_ssh: bool,
    nodes: tuple[str, ...],
    parallel: int,
    output: str,
) -> int:
    """Check that the hosts of a Sandbox reach what its topology declares, and nothing else.

    The plan of FILE is compared with the topology, then the live objects of the Sandbox's namespace, then the answers
    to real pings from every host that runs on this machine, which needs root. The exit status is 1 if anything differs.

    With --over-ssh, these are the plan on the backend linux, what the hosts of --ssh-config have of it, and pings from
    all of them.
    """
    if outside and not addresses.is_ip(outside):
        raise click.BadParameter("it is no IP address", param_hint="--outside")
    if (outside or as_users) and (plan_only or not probe):
        raise click.UsageError("--outside and --as-users need probes.")
    if others and not plan_only:
        raise click.UsageError("--with needs --plan-only: otherwise the objects are read from the server.")
    if file is None and (over_ssh or access):
        raise click.UsageError("--over-ssh and --ssh-config need FILE.")
    chosen = over_ssh or (access and file not in (None, "-") and is_over_ssh(read_or_fail(str(file))))
    is_remote = bool(chosen and not plan_only)
    if access and not chosen:
        raise click.UsageError("--ssh-config needs --over-ssh.")
    if plan_only:
        report = _offline(file, name, others)
    elif is_remote and file is not None:
        report = _over_ssh(file, name, access, nodes, parallel, rounds if probe else 0, quiet=output == "json")
    else:
        session = connecting()
        try:
            asked = Asked(rounds=rounds if probe else 0, outside=outside, users=as_users, quiet=output == "json")
            report = _online(session, file, name, asked)
        finally:
            session.client.close()
    if output == "json":
        print_json(report)
    else:
        click.echo("\n".join(map(clean, _lines(report, over_ssh=is_remote))))
    return 0 if report.verified else 1


def _offline(file: str | None, name: str, others: Sequence[str]) -> Report:
    if file is None:
        raise click.UsageError("--plan-only needs FILE.")
    topology, reading = topology_of(file)
    sandbox = without_faults(stored.described(sandbox_of(topology, reading, None, name), "default"))
    beside = [one for other in others for one in _objects(other, sandbox.metadata.namespace)]
    alone = None if beside else verified_alone(sandbox)
    return _report(sandbox, alone or verify(sandbox, [*stored.plan_alone(sandbox).objects, *beside]))


def _over_ssh(
    file: str, name: str, access: str | None, nodes: Sequence[str], parallel: int, rounds: int, *, quiet: bool
) -> Report:
    from netloom.cli.sandbox.ssh.verifying import MARGIN, LivingSandbox  # only for hosts over SSH

    sandbox = sandbox_over_ssh(file, name, access)
    living = LivingSandbox(deployed(sandbox, access, nodes, parallel, MARGIN + rounds))
    plan, live = living.verifications()
    probes = None
    if rounds:
        probes = probing.probe(sandbox, plan, live, living.here, rounds=rounds, ask=living.ask, quiet=quiet)
    report = _report(sandbox, plan, live, probes)
    failed = {host: result.error for host, result in sorted(living.failed.items())}
    return structs.replace(report, failed=failed, verified=report.verified and not failed)


def _objects(file: str, namespace: str) -> Iterable[Resource]:
    """Yield the objects of a file, all in one namespace."""
    for one in manifests.read((file,)):
        if one.error is not None:
            raise one.error
        kind = KINDS.kind(str(one.document.get("apiVersion", "")), str(one.document.get("kind", "")))
        metadata = {**(one.document.get("metadata") or {}), "namespace": namespace}
        yield snapshot.value({**one.document, "metadata": metadata}, kind.type)


class Asked(Struct, frozen=True, kw_only=True):
    """Which packets to send."""

    rounds: int
    """How often hosts that must reach each other are tried; 0: no packet is sent."""
    outside: str
    """An address outside; "": the next hop of the gateway, if there is one."""
    users: bool
    """Whether to send packets as users."""
    quiet: bool


def _online(session: Session, file: str | None, name: str, asked: Asked) -> Report:
    topology = None
    if file is not None:
        topology, reading = topology_of(file)
        name = str(sandbox_of(topology, reading, None, name)["metadata"]["name"])
    try:
        sandbox = stored.find(session, name)
    except NotFound as error:
        raise NotFound(f"{error.message}; --plan-only verifies a file that is not deployed") from None
    if topology is not None:
        sandbox = structs.replace(sandbox, spec=structs.replace(sandbox.spec, topology=topology))
    if sandbox.spec.backend is Backend.LINUX:
        return _on_linux(session, sandbox, asked)
    objects = snapshot.load(session.client, LIVE, namespace=session.namespace)
    plan = plan_of(session, sandbox, objects)
    found = verify(sandbox, plan.objects)
    cut: frozenset[tuple[str, str]] = frozenset()
    if sandbox.spec.faults:
        healthy = without_faults(sandbox)
        whole = verify(healthy, plan_of(session, healthy, objects).objects)
        cut = cut_pairs(whole, found)
        found = verify(sandbox, plan.objects, cut=cut)
    now = verify(sandbox, objects, plan.objects, cut=cut)
    if not asked.rounds:
        return _report(sandbox, found, now)
    here = probing.hosts_here(stored.places(plan.objects), objects, sandbox)
    outside = asked.outside or (sandbox.spec.gateway.next_hop if sandbox.spec.gateway is not None else "")
    with probing.users(session, sandbox, here) if asked.users else contextlib.nullcontext() as entry:
        probes = probing.probe(
            sandbox,
            found,
            now,
            here,
            rounds=asked.rounds,
            ask=probing.ping_here,
            outside=outside,
            users=entry,
            quiet=asked.quiet,
        )
    return _report(sandbox, found, now, probes, tuple(probing.monitor(sandbox, found, here)))


def _on_linux(session: Session, sandbox: Sandbox, asked: Asked) -> Report:
    """Verify a Sandbox on the backend `linux`, of which no objects but its documents decide where packets pass."""
    if asked.outside or asked.users:
        raise BadRequest("--outside and --as-users are for the backend ovn: this Sandbox has no way out")
    found = verify(sandbox, stored.plan_alone(sandbox).objects)
    if sandbox.spec.faults:
        healthy = without_faults(sandbox)
        whole = verify(healthy, stored.plan_alone(healthy).objects)
        found = verify(sandbox, stored.plan_alone(sandbox).objects, cut=cut_pairs(whole, found))
    if not asked.rounds:
        return _report(sandbox, found)
    spaces = {host: name for one in stored.host_documents(session, sandbox) for host, name in one.spec.hosts.items()}
    here = {host: name for host, name in spaces.items() if Path(NETNS_FOLDER, name).exists()}
    probes = probing.probe(sandbox, found, found, here, rounds=asked.rounds, ask=probing.ping_here, quiet=asked.quiet)
    return _report(sandbox, found, None, probes, tuple(probing.monitor(sandbox, found, here)))


def plan_of(session: Session, sandbox: Sandbox, objects: Collection[Resource]) -> SandboxPlan:
    """Return the plan of a Sandbox on the Nodes of a server, with hosts where they are."""
    nodes = {
        one.metadata.name: one.spec.underlay_ip
        for one in snapshot.load(session.client, (Node,))
        if isinstance(one, Node)
    }
    if sandbox.spec.backend is Backend.LINUX:
        documents = [one for one in objects if isinstance(one, HostDocument)]
        mine = [one for one in documents if is_of(sandbox, one)]
        taken = frozenset[int]().union(*(vnis_of(one) for one in documents if one not in mine))
        return plan_host_documents(sandbox, nodes, mine, taken)
    # Another Sandbox may have hosts of the same names.
    places = stored.places(one for one in objects if is_of(sandbox, one))
    hosts = {one.name: label_value(one.name) for one in sandbox.spec.topology.hosts}
    return plan_sandbox(
        sandbox, nodes, {host: places[label].spec.node for host, label in hosts.items() if label in places}
    )


def _report(
    sandbox: Sandbox,
    plan: Verification,
    live: Verification | None = None,
    probes: probing.Probes | None = None,
    monitoring: tuple[probing.Monitored, ...] = (),
) -> Report:
    parts = [part for part in (plan, live, probes) if part is not None]
    return Report(
        sandbox=sandbox.metadata.name,
        verified=not any(part.differences for part in parts),
        plan=plan,
        live=live,
        probes=probes,
        monitoring=monitoring,
    )


# Words.


def _lines(report: Report, *, over_ssh: bool) -> Iterable[str]:
    seen: set[str] = set()
    for host, error in report.failed.items():
        yield paint(f"{host}: failed: {error}", "red")
    live = "on the hosts" if over_ssh else "live objects"
    for title, part in (("plan", report.plan), (live, report.live)):
        if part is not None:
            cut = f", {counted(part.cut, 'pair')} cut by faults" if part.cut else ""
            ending = f"{cut}{_count_differences(part.differences, part.more)}"
            yield f"{title}: {_counts(part.reached, part.blocked)}{ending}"
            yield from _differences(part.differences, seen)
    probes = report.probes
    if probes is not None:
        yield f"probes: {_counts(probes.reached, probes.blocked)}{_count_differences(probes.differences, 0)}"
        yield from _differences(probes.differences, seen)
        yield from probes.notes
        if probes.elsewhere:
            some = ", ".join(probes.elsewhere[: stored.SHOWN]) + ", ..." * (len(probes.elsewhere) > stored.SHOWN)
            where = "on any host" if over_ssh else "here: run this command on their Nodes as well"
            yield f"  not probed from {some}, which do not run {where}"
    for one in report.monitoring:
        yield f"monitoring: {one.target}: {one.answer or 'answers'}" + (
            f", asked by {one.source}" if one.source else ""
        )
    yield from (f"warning: {text}" for text in report.plan.warnings)


def _counts(reached: int, blocked: int) -> str:
    are = "is" if blocked == 1 else "are"
    return f"{counted(reached, 'pair')} reach{'es' * (reached == 1)} as declared, {blocked} {are} blocked as declared"


def _count_differences(differences: Collection[Difference], more: int) -> str:
    number = len(differences) + more
    return paint(f", {counted(number, 'difference')}", "red") if number else ""


def _differences(differences: Iterable[Difference], seen: set[str]) -> Iterable[str]:
    """Yield differences that were not shown before."""
    for one in differences:
        if str(one) not in seen:
            seen.add(str(one))
            yield f"  {one}"
