"""Shaping: how much goes through, as OVN's QoS rules.  Pure.

Each attachment at the beginning of a way (`from`) gets rules, and by that meters, of its own: a rate on a Network is
what each of its attachments has, not what they share. A rule stands on the attachment's switch and is about what the
attachment sends to the other end, and with direction both another about what it gets from there. Meters count IP, so
that ARP is never lost to them.

A meter has no queue: what is too much is dropped. TCP answers to a burst of losses by waiting, at least 200 ms, for its
retransmission timer, and then goes on with what the meter has saved up meanwhile, which is at most its burst. So with
less than 200 ms worth of the rate TCP gets a fraction of it (measured: with 64 kB at 10 Mbit/s a quarter), and with 300
ms within 10 %. That is the default, and what a smaller wish comes to.

Only one rule is applied to a packet. The more closely a rule says whom it is about, the higher it stands:

    priority   from            and 1000 more where `to` is given
    2000       node
    4000       network
    6000       selector
    8000       attachment

and of two that say it equally, the slower.

Delay, jitter and loss are beyond OVN. What is applied and what is not is said by `verdict`.
"""

from collections.abc import Iterator
from math import log2
from typing import NamedTuple

from netloom.model import addresses, quantities
from netloom.model.cluster import Node
from netloom.model.networks import Fabric, Network
from netloom.model.paths import Direction, Place, Quality, Shaping, ShapingSpec, Unsupported
from netloom.model.selection import LabelSelector
from netloom.plan import matches, names
from netloom.plan.rows import Column, Member, Outcome, Problem, Ref, Row
from netloom.plan.world import Port, World

SAVED = 0.3
"""The least burst, in seconds of the rate: what TCP needs to live with a meter."""
LEAST = 120
"""The least burst at all, in kbit: some ten packets."""
LARGEST = 2**32 - 1
"""What a meter can count, in kbit/s and kbit."""

NODE, NETWORK, SELECTOR, ATTACHMENT = 2000, 4000, 6000, 8000
TO = 1000


class Way(NamedTuple):
    """One of the two directions, as seen from the attachment."""

    name: str
    direction: str
    port: str
    end: str


FORWARD = Way("forward", "from-lport", "inport", "dst")
BACK = Way("back", "to-lport", "outport", "src")


class Verdict(NamedTuple):
    """What of a Shaping is in force, for its status."""

    applied: Quality | None
    unsupported: tuple[Unsupported, ...]


def plan_shaping(world: World, shaping: Shaping) -> Outcome:
    """Plan the rules of a Shaping."""
    outcome, spec = Outcome(), shaping.spec
    if not spec.rate:
        return outcome
    namespace = shaping.metadata.namespace
    ports = _ports(world, namespace, spec.from_, "spec.from", outcome)
    other = _other(world, shaping, outcome)
    if other is None:
        return outcome
    carried = {name for name in {port.network for port in ports} if _carried(world, namespace, name)}
    for port in ports:
        if port.ips and port.network in carried:
            for way in (FORWARD, BACK) if spec.direction is Direction.BOTH else (FORWARD,):
                _rule(shaping, port, way, other, outcome)
    return outcome


def verdict(spec: ShapingSpec) -> Verdict:
    """Return what is in force of a Shaping that is planned, and what cannot be."""
    missing = [
        Unsupported(field=name, reason="OVN cannot do it: a meter drops what is too much, and does nothing else")
        for name in ("delay", "jitter", "loss")
        if getattr(spec, name)
    ]
    if not spec.rate:
        return Verdict(None, tuple(missing))
    rate, burst = _bandwidth(spec)
    if spec.burst and quantities.size(spec.burst) * 8 < burst * 1000:
        said = f"a meter has no queue: with less than {SAVED * 1000:.0f} ms of the rate TCP would get a fraction of it"
        missing.append(Unsupported(field="burst", reason=said))
    applied = spec.rate if rate < LARGEST else f"{LARGEST}kbit"
    return Verdict(Quality(rate=applied, burst=f"{burst * 1000 // 8}b"), tuple(missing))


def _bandwidth(spec: ShapingSpec) -> tuple[int, int]:
    """Return rate and burst as a meter has them: in kbit/s and kbit."""
    rate = max(1, quantities.rate(spec.rate) // 1000)
    asked = quantities.size(spec.burst) * 8 // 1000 if spec.burst else 0
    return min(rate, LARGEST), min(max(asked, int(rate * SAVED), LEAST), LARGEST)


def _carried(world: World, namespace: str, name: str) -> bool:
    network = world.get(Network, namespace, name)
    return network is not None and network.spec.fabric is Fabric.OVN


# Whom it is about.


def _ports(world: World, namespace: str, place: Place, at: str, outcome: Outcome) -> tuple[Port, ...]:
    """Return the attachments of a place; what is not there is a problem."""
    if place.selector is not None:
        return world.selected(namespace, place.selector)
    if place.attachment:
        port = world.port(namespace, place.attachment)
        if port is None:
            said = f"{at}.attachment: NetworkAttachment {place.attachment} does not exist"
            outcome.problems.append(Problem("AttachmentMissing", said))
        return () if port is None else (port,)
    if place.network:
        network = world.get(Network, namespace, place.network)
        if network is None:
            outcome.problems.append(Problem("NetworkMissing", f"{at}.network: Network {place.network} does not exist"))
        return world.ports(namespace, place.network)
    if world.get(Node, "", place.node) is None:
        outcome.problems.append(Problem("NodeMissing", f"{at}.node: Node {place.node} does not exist"))
    return tuple(port for port in world.selected(namespace, LabelSelector()) if port.node == place.node)


class Other(NamedTuple):
    """The other end: what matches it, by family; none: anywhere."""

    values: dict[int, list[str]]


def _other(world: World, shaping: Shaping, outcome: Outcome) -> Other | None:
    """Return the other end, or None where it is nobody."""
    namespace, to = shaping.metadata.namespace, shaping.spec.to
    if to is None:
        return Other({})
    ports = _ports(world, namespace, to, "spec.to", outcome)
    found: dict[int, list[str]] = {4: [], 6: []}
    if to.network:
        for subnet in world.subnets(namespace, to.network):
            found[addresses.family(subnet.spec.cidr)].append(str(addresses.interface(subnet.spec.cidr).network))
    elif to.attachment:
        for ip in (one.partition("/")[0] for port in ports for one in port.ips):
            found[addresses.family(ip)].append(ip)
    else:
        _sets(shaping, ports, found, outcome)
    return Other(found) if any(found.values()) else None


def _sets(shaping: Shaping, ports: tuple[Port, ...], found: dict[int, list[str]], outcome: Outcome) -> None:
    """Put the addresses of many into address sets, so that one more does not change every rule."""
    key = f"{shaping.metadata.namespace}/{shaping.metadata.name}"
    for version in (4, 6):
        name = names.symbol(f"to{version}", key)
        row = Row("Address_Set", f"shaping/{key}:v{version}", {"name": name})
        outcome.rows.append(row)
        found[version].append(f"${name}")
        for ip in (one.partition("/")[0] for port in ports for one in port.ips):
            if addresses.family(ip) == version:
                outcome.members.append(Member(row.ref, "addresses", ip))


# The rules.


def _rule(shaping: Shaping, port: Port, way: Way, other: Other, outcome: Outcome) -> None:
    namespace, spec = shaping.metadata.namespace, shaping.spec
    terms = [f'{way.port} == "{names.port(namespace, port.name)}"', matches.either(list(_far(way, other)))]
    rate, burst = _bandwidth(spec)
    columns: dict[str, Column] = {
        "direction": way.direction,
        "priority": _priority(spec, rate),
        "match": " && ".join(terms),
        "bandwidth": {"rate": rate, "burst": burst},
    }
    row = Row("QoS", f"{namespace}/{shaping.metadata.name}:{port.name}:{way.name}", columns)
    outcome.rows.append(row)
    switch = Ref("Logical_Switch", names.switch(namespace, port.network))
    outcome.members.append(Member(switch, "qos_rules", row.ref))


def _far(way: Way, other: Other) -> Iterator[str]:
    if not other.values:
        yield "ip"
    for version, values in other.values.items():
        if values:
            yield matches.addressed(version, way.end, sorted(set(values)))


def _priority(spec: ShapingSpec, rate: int) -> int:
    place = spec.from_
    tier = ATTACHMENT if place.attachment else SELECTOR if place.selector else NETWORK if place.network else NODE
    return tier + (TO if spec.to else 0) + 999 - int(log2(rate) * 30)
