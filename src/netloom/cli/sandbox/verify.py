"""The command that verifies the containment of a Sandbox: by its plan, by the live objects, and by real packets.

`plan/sandbox/reachability.py` compares objects with the topology. The probes run on this machine, in the network
namespaces of the hosts that run here (`netloom.lab.echoes`), or over SSH on the hosts that have the Sandbox, and are
compared with what the plan lets pass.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct, structs

from netloom.cli.objects import manifests
from netloom.cli.options import OUTPUT, connectable
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.containment import verified_alone, without_faults
from netloom.cli.sandbox.files import FILE, NAME, is_over_ssh, read_or_fail, sandbox_of, topology_of
from netloom.cli.sandbox.over_ssh import deployed, sandbox_over_ssh
from netloom.cli.sandbox.probing import Pair, Probes, probe
from netloom.cli.sandbox.remote_hosts import NODE, OVER_SSH, PARALLEL, SSH_CONFIG
from netloom.cli.tables import clean
from netloom.cli.terminal import counted, paint, print_json
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.errors import Forbidden, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kinds.sandbox import Backend, HostDocument, Sandbox
from netloom.model.registry import KINDS
from netloom.plan.linux.objects import plan_host_documents, vnis_of
from netloom.plan.sandbox.monitoring import Check, checks
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.objects import NETNS_FOLDER, SandboxPlan, plan_sandbox
from netloom.plan.sandbox.reachability import Difference, Verification, cut_pairs, is_of, verify

LIVE = (Network, Subnet, Router, SecurityProfile, NetworkAttachment, EVPNNetwork)
"""The kinds that decide where packets pass."""


class Monitored(Struct, frozen=True, kw_only=True):
    """The answer of a monitoring target."""

    target: str
    source: str
    """The host that asked."""
    answer: str
    """"": as required."""


class Report(Struct, frozen=True, kw_only=True):
    """What `verify -o json` prints."""

    sandbox: str
    verified: bool
    plan: Verification
    live: Verification | None = None
    probes: Probes | None = None
    monitoring: tuple[Monitored, ...] = ()
    failed: dict[str, str] = {}
    """Why hosts could not be asked over SSH, by name."""


@click.command("verify")
@click.argument("file", type=FILE, required=False)
@NAME
@click.option("--plan-only", is_flag=True, help="Check the plan of FILE only, without a server.")
@click.option("--probe/--no-probe", "probing", default=True, help="Send packets between the hosts.  [default: probe]")
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
    probing: bool,
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
        report = _over_ssh(file, name, access, nodes, parallel, rounds if probing else 0, quiet=output == "json")
    else:
        session = connecting()
        try:
            report = _online(session, file, name, rounds if probing else 0, quiet=output == "json")
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
    from netloom.cli.sandbox.verify_over_ssh import MARGIN, LivingSandbox  # only for hosts over SSH

    sandbox = sandbox_over_ssh(file, name, access)
    living = LivingSandbox(deployed(sandbox, access, nodes, parallel, MARGIN + rounds))
    plan, live = living.verifications()
    probes = probe(sandbox, plan, live, living.here, rounds, ask=living.ask, quiet=quiet) if rounds else None
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


def _online(session: Session, file: str | None, name: str, rounds: int, *, quiet: bool) -> Report:
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
        return _on_linux(session, sandbox, rounds, quiet=quiet)
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
    if not rounds:
        return _report(sandbox, found, now)
    here = _here(stored.places(plan.objects), objects, sandbox)
    probes = probe(sandbox, found, now, here, rounds, ask=_ping_here, quiet=quiet)
    return _report(sandbox, found, now, probes, tuple(_monitor(sandbox, found, here)))


def _on_linux(session: Session, sandbox: Sandbox, rounds: int, *, quiet: bool) -> Report:
    """Verify a Sandbox on the backend `linux`, of which no objects but its documents decide where packets pass."""
    found = verify(sandbox, stored.plan_alone(sandbox).objects)
    if sandbox.spec.faults:
        healthy = without_faults(sandbox)
        whole = verify(healthy, stored.plan_alone(healthy).objects)
        found = verify(sandbox, stored.plan_alone(sandbox).objects, cut=cut_pairs(whole, found))
    if not rounds:
        return _report(sandbox, found)
    spaces = {host: name for one in stored.host_documents(session, sandbox) for host, name in one.spec.hosts.items()}
    here = {host: name for host, name in spaces.items() if Path(NETNS_FOLDER, name).exists()}
    probes = probe(sandbox, found, found, here, rounds, ask=_ping_here, quiet=quiet)
    return _report(sandbox, found, None, probes, tuple(_monitor(sandbox, found, here)))


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
    probes: Probes | None = None,
    monitoring: tuple[Monitored, ...] = (),
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


# Real packets.


def _here(places: Mapping[str, NetworkAttachment], objects: Collection[Resource], sandbox: Sandbox) -> dict[str, str]:
    """Return the network namespaces of the hosts that run on this machine, by host."""
    labels = {label_value(one.name): one.name for one in sandbox.spec.topology.hosts}
    plugged = {one.metadata.name for one in objects if isinstance(one, NetworkAttachment)}
    found = {}
    for label, place in places.items():
        path = Path(place.spec.port.netns)
        if label in labels and place.metadata.name in plugged and path.exists():
            found[labels[label]] = path.name
    return found


def _ping_here(pairs: Collection[Pair], rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
    """Ping from namespaces of this machine."""
    from netloom.lab import echoes  # only where packets are sent

    try:
        answered = echoes.pings([echoes.Pair(*one) for one in pairs], rounds=rounds, on_answer=on_answer)
    except PermissionError:
        raise Forbidden("probes enter the network namespaces of hosts: run as root, or use --no-probe") from None
    return {Pair(*one) for one in answered}


def _monitor(sandbox: Sandbox, plan: Verification, here: Mapping[str, str]) -> Iterable[Monitored]:
    """Yield the answers of the monitoring targets, each asked by a host that reaches it."""
    for check in checks(sandbox.spec.topology):
        source = _asker(sandbox, check, plan, here) if check.address else ""
        if not check.address:
            answer = "no machine of the topology has this address"
        elif not source:
            answer = "no host that runs here reaches it"
        else:
            answer = _ask(here[source], check)
        yield Monitored(target=check.name, source=source, answer=answer)


def _asker(sandbox: Sandbox, check: Check, plan: Verification, here: Mapping[str, str]) -> str:
    """Return a host that runs here and reaches an address: another one, or if there is none the machine itself."""
    owners = {link.ip: link.host for link in sandbox.spec.topology.net_mappings}
    owner = owners.get(check.address, "")
    if owner:
        shown = f"{owner} {check.address}"
        return next((one for one in here if plan.matrix[one].get(shown)), owner if owner in here else "")
    networks = {one.network for one in sandbox.spec.topology.router_mappings if one.ip == check.address}
    near = {link.host for link in sandbox.spec.topology.net_mappings if link.network in networks}
    return next((one for one in here if one in near), "")


def _ask(netns: str, check: Check) -> str:
    from netloom.lab import probes  # only where packets are sent

    if check.url:
        return probes.fetches(netns, check.address, check.port, check.url, check.text)
    if check.port:
        return probes.connects(netns, check.address, check.port)
    return "" if probes.ping(netns, check.address) else "no answer"


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
