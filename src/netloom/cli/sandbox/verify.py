"""The command that verifies the containment of a Sandbox: by its plan, by the live objects, and by real packets.

`plan/sandbox/reachability.py` compares objects with the topology. The probes run on this machine, in the network
namespaces of the hosts that run here (`netloom.lab.echoes`), and are compared with what the plan lets pass.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct, structs

from netloom.cli.objects import manifests
from netloom.cli.options import OUTPUT, connectable
from netloom.cli.sandbox import stored
from netloom.cli.sandbox.files import FILE, NAME, sandbox_of, topology_of
from netloom.cli.tables import clean
from netloom.cli.terminal import counted, paint, print_json
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.errors import BadRequest, Forbidden, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import KINDS
from netloom.plan.sandbox.monitoring import Check, checks
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.objects import SandboxPlan, plan_sandbox
from netloom.plan.sandbox.reachability import Difference, Kind, Verification, cut_pairs, is_of, verify

LIVE = (Network, Subnet, Router, SecurityProfile, NetworkAttachment, EVPNNetwork)
"""The kinds that decide where packets pass."""
BLOCKED_ROUNDS = 3
"""How often a pair that must not reach is tried, after all others."""


class Probes(Struct, frozen=True, kw_only=True):
    """What real packets showed."""

    reached: int = 0
    blocked: int = 0
    elsewhere: tuple[str, ...] = ()
    """Hosts that do not run on this machine."""
    differences: tuple[Difference, ...] = ()


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
    output: str,
) -> int:
    """Check that the hosts of a Sandbox reach what its topology declares, and nothing else.

    The plan of FILE is compared with the topology, then the live objects of the Sandbox's namespace, then the answers
    to real pings from every host that runs on this machine, which needs root. The exit status is 1 if anything differs.
    """
    if others and not plan_only:
        raise click.UsageError("--with needs --plan-only: otherwise the objects are read from the server.")
    if plan_only:
        report = _offline(file, name, others)
    else:
        session = connecting()
        try:
            report = _online(session, file, name, rounds if probing else 0, quiet=output == "json")
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
    if not rounds:
        return _report(sandbox, found, now)
    here = _here(stored.places(plan.objects), objects, sandbox)
    probes = _probe(sandbox, found, now, here, rounds, quiet=quiet)
    return _report(sandbox, found, now, probes, tuple(_monitor(sandbox, found, here)))


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


def _probe(
    sandbox: Sandbox, plan: Verification, live: Verification, here: Mapping[str, str], rounds: int, *, quiet: bool
) -> Probes:
    """Ping every address from every host that runs here, and compare the answers with the plan."""
    from netloom.lab.echoes import Pair, pings  # only where packets are sent

    wanted: dict[bool, dict[Pair, tuple[str, str]]] = {True: {}, False: {}}
    wrong = {(one.source, one.target): one.kind is Kind.GAP for one in plan.differences}
    for host, netns in here.items():
        row = {**plan.matrix[host], **dict.fromkeys(live.strangers, False)}
        for target, reaches in row.items():
            declared = wrong.get((host, target), reaches)
            wanted[declared][Pair(netns, target.rpartition(" ")[2])] = host, target
    total = len(wanted[True]) + len(wanted[False])
    hidden = quiet or not sys.stderr.isatty()
    try:
        with click.progressbar(length=total, label="Probing", file=sys.stderr, hidden=hidden) as bar:
            good = pings(wanted[True], rounds=rounds, on_answer=bar.update)
            # Afterwards, when everything is known everywhere: what does not answer now is blocked.
            bad = pings(wanted[False], rounds=BLOCKED_ROUNDS)
            bar.update(total - len(good))
    except PermissionError:
        raise Forbidden("probes enter the network namespaces of hosts: run as root, or use --no-probe") from None
    answered = {wanted[True][pair] for pair in good} | {wanted[False][pair] for pair in bad}
    differences = [_leak(*wanted[False][pair], live) for pair in bad]
    differences += [
        structs.replace(one, reason="it answers a ping")
        for one in plan.differences
        if (one.entry, one.target) in answered
    ]
    differences += [_gap(*pair, live) for key, pair in wanted[True].items() if key not in good]
    return Probes(
        reached=len(good),
        blocked=len(wanted[False]) - len(bad),
        elsewhere=tuple(one.name for one in sandbox.spec.topology.hosts if one.name not in here),
        differences=tuple(sorted(differences)),
    )


def _leak(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path = known.path if known is not None else (host, target)
    return Difference(kind=Kind.LEAK, source=host, target=target, path=path, reason="it answers a ping")


def _gap(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path, reason = ((host, target), "it does not answer a ping") if known is None else (known.path, known.reason)
    return Difference(kind=Kind.GAP, source=host, target=target, path=path, reason=reason)


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
