"""The command that verifies the containment of a Sandbox: by its plan, by the live objects, and by real packets.

`plan/sandbox/reachability.py` compares objects with the topology. The probes run on this machine, in the network
namespaces of the hosts that run here (`probing.py`), and are compared with what the plan lets pass.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence

import click
from msgspec import Struct, structs

from netloom.cli.objects import manifests
from netloom.cli.options import OUTPUT, connectable
from netloom.cli.sandbox import probing, stored
from netloom.cli.sandbox.files import FILE, NAME, sandbox_of, topology_of
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
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import KINDS
from netloom.model.values import addresses
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.objects import SandboxPlan, plan_sandbox
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
    output: str,
) -> int:
    """Check that the hosts of a Sandbox reach what its topology declares, and nothing else.

    The plan of FILE is compared with the topology, then the live objects of the Sandbox's namespace, then the answers
    to real pings from every host that runs on this machine, which needs root. The exit status is 1 if anything differs.
    """
    if outside and not addresses.is_ip(outside):
        raise click.BadParameter("it is no IP address", param_hint="--outside")
    if (outside or as_users) and (plan_only or not probe):
        raise click.UsageError("--outside and --as-users need probes.")
    if others and not plan_only:
        raise click.UsageError("--with needs --plan-only: otherwise the objects are read from the server.")
    if plan_only:
        report = _offline(file, name, others)
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
        click.echo("\n".join(map(clean, _lines(report))))
    return 0 if report.verified else 1


def refuse_leaks(sandbox: Sandbox) -> None:
    """Raise an error with the paths if the plan of a Sandbox does not reach as its topology declares."""
    sandbox = _without_faults(sandbox)
    objects = stored.plan_alone(sandbox).objects
    found = verify(sandbox, objects)
    if objects and found.differences:
        text = "\n  ".join(map(clean, found.differences[: stored.SHOWN]))
        raise BadRequest(
            f"Sandbox {sandbox.metadata.name} does not reach as declared; --no-verify skips this:\n  {text}"
        )


def _without_faults(sandbox: Sandbox) -> Sandbox:
    """Return a Sandbox without its deliberate faults, which cut what its topology declares."""
    return structs.replace(sandbox, spec=structs.replace(sandbox.spec, faults=()))


def _offline(file: str | None, name: str, others: Sequence[str]) -> Report:
    if file is None:
        raise click.UsageError("--plan-only needs FILE.")
    topology, reading = topology_of(file)
    sandbox = _without_faults(stored.described(sandbox_of(topology, reading, None, name), "default"))
    beside = [one for other in others for one in _objects(other, sandbox.metadata.namespace)]
    return _report(sandbox, verify(sandbox, [*stored.plan_alone(sandbox).objects, *beside]))


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
    objects = snapshot.load(session.client, LIVE, namespace=session.namespace)
    plan = plan_of(session, sandbox, objects)
    found = verify(sandbox, plan.objects)
    cut: frozenset[tuple[str, str]] = frozenset()
    if sandbox.spec.faults:
        healthy = _without_faults(sandbox)
        whole = verify(healthy, plan_of(session, healthy, objects).objects)
        cut = cut_pairs(whole, found)
        found = verify(sandbox, plan.objects, cut=cut)
    now = verify(sandbox, objects, plan.objects, cut=cut)
    if not asked.rounds:
        return _report(sandbox, found, now)
    here = probing.hosts_here(stored.places(plan.objects), objects, sandbox)
    outside = asked.outside or (sandbox.spec.gateway.next_hop if sandbox.spec.gateway is not None else "")
    with probing.users(session, sandbox, here) if asked.users else contextlib.nullcontext(probing.Entry()) as entry:
        probes = probing.probe(
            sandbox, found, now, here, rounds=asked.rounds, outside=outside, users=entry, quiet=asked.quiet
        )
    return _report(sandbox, found, now, probes, tuple(probing.monitor(sandbox, found, here)))


def plan_of(session: Session, sandbox: Sandbox, objects: Collection[Resource]) -> SandboxPlan:
    """Return the plan of a Sandbox on the Nodes of a server, with hosts where they are."""
    nodes = {one.metadata.name for one in snapshot.load(session.client, (Node,))}
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


def _lines(report: Report) -> Iterable[str]:
    seen: set[str] = set()
    for title, part in (("plan", report.plan), ("live objects", report.live)):
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
            yield f"  not probed from {some}, which do not run here: run this command on their Nodes as well"
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
