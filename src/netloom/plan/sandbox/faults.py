"""The deliberate faults of a Sandbox: which links are down, and which hosts are kept apart.  Pure.

    linkDown    the links of a machine, or one of them; an attachment and a router port have a field for it
    partition   the links of some hosts to those of others; `objects` makes a SecurityProfile of it

A fault that names what the topology does not have is a problem, and costs itself alone.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from netloom.model.kinds.policy import Action, EgressRule, IngressRule, Peer, SecurityProfileSpec
from netloom.model.kinds.sandbox import Fault, LinkDown, Partition
from netloom.model.selection import LabelSelector
from netloom.plan.problem import Problem
from netloom.plan.sandbox.names import FAULT_PREFIX, label_value
from netloom.plan.sandbox.topology import MAN, HostLink, Usable

FAULT_INVALID = "FaultInvalid"
PEERS = 32
"""Addresses in one rule of a SecurityProfile."""
OPEN, CONTAINED = "open", "contained"
"""The values of a fault's label: whether another profile restricts what the host sends."""


class Separation(Struct, frozen=True, kw_only=True):
    """Links of hosts that must not reach others, nor be reached by them."""

    fault: str
    members: frozenset[HostLink]
    peers: tuple[str, ...]
    """The addresses of the others, as blocks, sorted."""

    @property
    def label(self) -> str:
        """The key of the label of the members' attachments."""
        return FAULT_PREFIX + label_value(self.fault)


class Faults(Struct, frozen=True, kw_only=True):
    """The faults of a Sandbox that can be applied."""

    down: frozenset[tuple[str, str]] = frozenset()
    """Machine and network of each link that is down."""
    separations: tuple[Separation, ...] = ()
    active: tuple[str, ...] = ()
    """Each fault, as text."""
    problems: tuple[Problem, ...] = ()


def plan_faults(faults: Iterable[Fault], parts: Usable) -> Faults:
    """Return what the faults of a Sandbox mean for the usable parts of its topology."""
    links, named = _links_by_machine(parts), _links_by_name(parts)
    down: set[tuple[str, str]] = set()
    separations: list[Separation] = []
    active: list[str] = []
    problems: list[Problem] = []
    # No API of ours has checked the names: of two faults of one name, the choice does not depend on their order.
    chosen = {one.name: one for one in sorted(faults, key=repr, reverse=True)}
    for name, fault in sorted(chosen.items()):
        found: set[tuple[str, str]] | Separation | str = "name what is at fault: linkDown or partition"
        if fault.link_down is not None:
            found = _cut(fault.link_down, links)
        elif fault.partition is not None:
            found = _separated(name, fault.partition, parts.links, named)
        if isinstance(found, str):
            problems.append(Problem(FAULT_INVALID, f"spec.faults: {name}: {found}"))
            continue
        if isinstance(found, Separation):
            separations.append(found)
        else:
            down |= found
        active.append(f"{name}: {describe(fault)}")
    return Faults(down=frozenset(down), separations=tuple(separations), active=tuple(active), problems=tuple(problems))


def describe(fault: Fault) -> str:
    """Return what a fault does, as text."""
    if fault.link_down is not None:
        where = f"the link of {fault.link_down.host} to {fault.link_down.network}"
        return f"{where if fault.link_down.network else f'every link of {fault.link_down.host}'} is down"
    if fault.partition is None:
        return "nothing"
    others = _listed(fault.partition.from_) if fault.partition.from_ else "all other hosts"
    return f"{_listed(fault.partition.members)} and {others} cannot reach each other"


def profile_spec(separation: Separation, label: str, sandbox: Mapping[str, str]) -> SecurityProfileSpec:
    """Return the SecurityProfile that keeps hosts with a value of the fault's label from their peers.

    `sandbox` are the labels of all objects of the Sandbox: another one may have a fault of the same name.

    A rule that drops wins over all that allow. A profile with rules drops what none allows: so all the rest is allowed,
    unless another profile of the host says what it may send.
    """
    blocks = [separation.peers[at : at + PEERS] for at in range(0, len(separation.peers), PEERS)]
    peers = [tuple(Peer(cidr=one) for one in part) for part in blocks]
    ingress = [IngressRule(from_=part, action=Action.DROP) for part in peers]
    egress = [EgressRule(to=part, action=Action.DROP) for part in peers]
    return SecurityProfileSpec(
        selector=LabelSelector(match_labels={**sandbox, separation.label: label}),
        ingress=(*ingress, IngressRule()),
        egress=(*egress, EgressRule()) if label == OPEN else tuple(egress),
    )


def _links_by_machine(parts: Usable) -> dict[str, set[str]]:
    """Return the networks of each host and router, the WAN included."""
    found: dict[str, set[str]] = {}
    for link in parts.links:
        found.setdefault(link.host, set()).add(link.network)
    wan = {parts.wan.name} if parts.wan_block is not None else set()
    for router in parts.routers:
        found.setdefault(router.name, set()).update({name for name, _ in router.networks}, wan if router.wan else ())
    if parts.man:
        found.setdefault(MAN, set()).update(wan)
    return found


def _cut(fault: LinkDown, links: dict[str, set[str]]) -> set[tuple[str, str]] | str:
    """Return the links that are down, or what is wrong with the fault."""
    networks = links.get(fault.host, set())
    wanted = {fault.network} if fault.network else networks
    if not wanted or not wanted <= networks:
        where = f"link to {fault.network}" if fault.network else "link"
        return f"{fault.host} has no {where}: name a host or router and one of its networks, or remove the fault"
    return {(fault.host, network) for network in wanted}


def _separated(
    name: str, fault: Partition, links: Iterable[HostLink], named: Mapping[str, set[HostLink]]
) -> Separation | str:
    """Return who is kept apart from whom, or what is wrong with the fault."""
    members = _union(fault.members, named)
    if isinstance(members, str):
        return members
    others = _union(fault.from_, named) if fault.from_ else set(links) - members
    if isinstance(others, str):
        return others
    if both := sorted(members & others):
        return f"{both[0].host} on {both[0].network} is on both sides: name each host on one side"
    if not members or not others:
        return "no host is on the other side: name hosts on both sides, or remove the fault"
    peers = sorted({f"{one.ip}/{128 if ':' in one.ip else 32}" for one in others})
    return Separation(fault=name, members=frozenset(members), peers=tuple(peers))


def _links_by_name(parts: Usable) -> dict[str, set[HostLink]]:
    """Return the links of each host, network and group; of equal names, those of the first in this order."""
    groups: dict[str, set[HostLink]] = {name: set() for names in parts.groups.values() for name in names}
    networks: dict[str, set[HostLink]] = {name: set() for name in parts.segments}
    hosts: dict[str, set[HostLink]] = {name: set() for name in parts.hosts}
    for link in parts.links:
        hosts[link.host].add(link)
        networks[link.network].add(link)
        for group in parts.groups.get(link.host, ()):
            groups[group].add(link)
    return groups | networks | hosts


def _union(names: Iterable[str], named: Mapping[str, set[HostLink]]) -> set[HostLink] | str:
    """Return the links of several hosts, networks and groups, or which name is none of these."""
    found: set[HostLink] = set()
    for name in dict.fromkeys(names):
        if name not in named:
            return f"there is no host, network or group {name}: name another, or remove the fault"
        found |= named[name]
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
