"""Real packets of `netloom sandbox verify`: from every host that can be reached, and from where users enter."""

import contextlib
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import click
from msgspec import Struct, structs

from netloom.cli.objects.apply import MANAGER, apply_one
from netloom.cli.objects.manifests import Manifest
from netloom.cli.objects.wait import Goal, until
from netloom.cli.sandbox import stored
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.errors import Forbidden, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.sandbox.monitoring import Check, checks
from netloom.plan.sandbox.names import label_value
from netloom.plan.sandbox.objects import NETNS_FOLDER, wan_network
from netloom.plan.sandbox.reachability import OUTSIDE, USERS, Difference, Kind, Verification

BLOCKED_ROUNDS = 3
"""How often a pair that must not reach is tried, after all others."""
SECONDS = 60.0
"""How long the machine from which users are probed may take to come, and to go."""


class Pair(NamedTuple):
    """A network namespace, by its name, and the address to ping from it."""

    netns: str
    address: str


class Ask(Protocol):
    """Ping from network namespaces."""

    def __call__(self, pairs: Collection[Pair], rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
        """Return the pairs that answer within some rounds of a second each; `on_answer` is told how many more did."""


class Entry(Struct, frozen=True):
    """Where users enter."""

    netns: str
    """The network namespace of a machine there."""


class Probes(Struct, frozen=True, kw_only=True):
    """What real packets showed."""

    reached: int = 0
    blocked: int = 0
    elsewhere: tuple[str, ...] = ()
    """Hosts whose network namespace is not known."""
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """What was not proved, and why."""


class Monitored(Struct, frozen=True, kw_only=True):
    """The answer of a monitoring target."""

    target: str
    source: str
    """The host that asked."""
    answer: str
    """"": as required."""


def hosts_here(
    places: Mapping[str, NetworkAttachment], objects: Collection[Resource], sandbox: Sandbox
) -> dict[str, str]:
    """Return the network namespaces of the hosts that run on this machine, by host."""
    labels = {label_value(one.name): one.name for one in sandbox.spec.topology.hosts}
    plugged = {one.metadata.name for one in objects if isinstance(one, NetworkAttachment)}
    found = {}
    for label, place in places.items():
        path = Path(place.spec.port.netns)
        if label in labels and place.metadata.name in plugged and path.exists():
            found[labels[label]] = path.name
    return found


def probe(
    sandbox: Sandbox,
    plan: Verification,
    live: Verification,
    here: Mapping[str, str],
    *,
    rounds: int,
    ask: Ask,
    outside: str = "",
    users: Entry | None = None,
    quiet: bool,
) -> Probes:
    """Ping every address from every host whose namespace is known, and compare the answers with the plan.

    `outside` is an address outside that is pinged as well, unless it is "". `users` is where users enter.
    """
    wanted: dict[bool, dict[Pair, tuple[str, str]]] = {True: {}, False: {}}
    wrong = {(one.source, one.target): one.kind is Kind.GAP for one in plan.differences}
    sources = dict(here) | ({USERS: users.netns} if users is not None and USERS in plan.matrix else {})
    for host, netns in sources.items():
        row = {**plan.matrix[host], **(dict.fromkeys(live.strangers, False) if host != USERS else {})}
        for target, reaches in row.items():
            declared = wrong.get((host, target), reaches)
            wanted[declared][Pair(netns, target.rpartition(" ")[2])] = host, target
        if outside and host in plan.outside and OUTSIDE not in row:
            wanted[plan.outside[host]][Pair(netns, outside)] = host, OUTSIDE
    total = len(wanted[True]) + len(wanted[False])
    hidden = quiet or not sys.stderr.isatty()
    with click.progressbar(length=total, label="Probing", file=sys.stderr, hidden=hidden) as bar:
        good = ask(wanted[True], rounds, bar.update)
        # Afterwards, when everything is known everywhere: what does not answer now is blocked.
        bad = ask(wanted[False], BLOCKED_ROUNDS, lambda number: None)
        bar.update(total - len(good))
    answered = {wanted[True][pair] for pair in good} | {wanted[False][pair] for pair in bad}
    silent = {wanted[True][pair] for pair in wanted[True] if pair not in good}
    notes: list[str] = []
    if not any(target == OUTSIDE for _, target in answered) and (mute := {one for one in silent if one[1] == OUTSIDE}):
        # A next hop need not answer at all.
        silent -= mute
        notes.append(f"  outside: {outside} answers nobody: name an address that does with --outside")
    differences = [_leak(*wanted[False][pair], live) for pair in bad]
    differences += [
        structs.replace(one, reason="it answers a ping")
        for one in plan.differences
        if (one.entry, one.target) in answered
    ]
    differences += [_gap(*pair, live) for pair in silent]
    return Probes(
        reached=len(good),
        blocked=len(wanted[False]) - len(bad),
        elsewhere=tuple(one.name for one in sandbox.spec.topology.hosts if one.name not in here),
        differences=tuple(sorted(differences)),
        notes=tuple(notes),
    )


def ping_here(pairs: Collection[Pair], rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
    """Ping from namespaces of this machine; an `Ask`."""
    from netloom.lab import echoes  # only where packets are sent

    try:
        answered = echoes.pings([echoes.Pair(*one) for one in pairs], rounds=rounds, on_answer=on_answer)
    except PermissionError:
        raise Forbidden("probes enter the network namespaces of hosts: run as root, or use --no-probe") from None
    return {Pair(*one) for one in answered}


@contextlib.contextmanager
def users(session: Session, sandbox: Sandbox, here: Mapping[str, str]) -> Iterator[Entry]:
    """Give a machine on the WAN, the default route of which leads to `man`: where users enter.

    It is an attachment of nobody, on a Node that runs on this machine, and is deleted at the end.
    """
    nodes = sorted(
        one.spec.node for one in stored.attachments(session, sandbox) if Path(one.spec.port.netns).name in here.values()
    )
    wan = wan_network(sandbox)
    if not wan or not nodes:
        raise NotFound(
            f"Sandbox {sandbox.metadata.name} has no {'host that runs here' if wan else 'router'}: leave --as-users out"
        )
    name = f"{sandbox.metadata.name}-{USERS}-{secrets.token_hex(3)}"
    netns = f"{NETNS_FOLDER}/{name}"
    port = {"type": "veth", "netns": netns, "createNetns": True, "name": "eth0"}
    spec = {"node": nodes[0], "network": wan, "port": port, "defaultRoute": True}
    kind = NETWORK_ATTACHMENT
    document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    resource, _, after = apply_one(session, Manifest("", document), {"fieldManager": MANAGER, "force": "false"})
    target, where = Target(resource, name), Scope(str(after["metadata"]["namespace"]))
    deadline = time.monotonic() + SECONDS
    try:
        until(session, target, where, goal=Goal("condition=Ready"), deadline=deadline)
        yield Entry(netns=name)
    finally:
        with contextlib.suppress(NotFound):
            session.client.call("DELETE", resource.path(where.namespace, name))
        until(session, target, where, goal=Goal("delete"), deadline=time.monotonic() + SECONDS)


def _leak(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path = known.path if known is not None else (host, target)
    return Difference(kind=Kind.LEAK, source=host, target=target, path=path, reason="it answers a ping")


def _gap(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path, reason = ((host, target), "it does not answer a ping") if known is None else (known.path, known.reason)
    return Difference(kind=Kind.GAP, source=host, target=target, path=path, reason=reason)


def monitor(sandbox: Sandbox, plan: Verification, here: Mapping[str, str]) -> Iterable[Monitored]:
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
