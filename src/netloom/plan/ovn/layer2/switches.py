"""Networks as logical switches, attachments as their ports.  Pure.

All attachments of a Network need the same of it: its switch, its DNS zone, the Subnet of an address. That is its
`Segment`, computed once for all of them, so that planning an attachment takes microseconds.

A Network requests its VNI as the tunnel key: a packet capture shows the same number as the API. A provider Network also
has a port of type localnet. Its VLAN is in `tag`, not in `tag_request`, which ovn-northd copies and never removes. So
is the VLAN of a child attachment (`plan/node/children.py`): ovn-northd passes on a `tag` that was not requested
unchanged, and that one can be removed.

A Network resolves the names of its attachments: it has one row of DNS records, to which each attachment adds its name
in the domain of its Subnet. Only Networks with a domain have records: on a switch with records OVN lets UDP from port
53 pass every ingress rule (by its own flow, above all ACLs), and a firewall must not have a hole that nobody requested.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network, Provider
from netloom.model.selection import LabelSelector
from netloom.plan import names
from netloom.plan.addresses.blocks import Pool, address, pool
from netloom.plan.node import children
from netloom.plan.ovn.layer2 import dhcp
from netloom.plan.ovn.layer2.qos import shares
from netloom.plan.policy.port_groups import memberships, unknown
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.selector_matches import selector_in
from netloom.plan.world.world import Port, World

SWITCH = "Logical_Switch"
PORT = "Logical_Switch_Port"


def switch(namespace: str, network: str) -> Ref:
    """Return which row is a Network's switch."""
    return Ref(SWITCH, names.switch(namespace, network))


def port(namespace: str, attachment: str) -> Ref:
    """Return which row is an attachment's port."""
    return Ref(PORT, names.port(namespace, attachment))


def records(namespace: str, network: str) -> Ref:
    """Return which row has a Network's DNS records."""
    return Ref("DNS", f"{namespace}/{network}")


def plan_network(world: World, network: Network) -> Outcome:
    """Plan a switch, its DNS zone, and its localnet port."""
    spec, namespace, name = network.spec, network.metadata.namespace, network.metadata.name
    if spec.fabric is not Fabric.OVN:
        return Outcome()
    if (problem := world.ungranted(network)) is not None:
        return Outcome(problems=[problem])
    ref = switch(namespace, name)
    config = {"mcast_snoop": "false"}
    if network.status.vni is not None:
        config["requested-tnl-key"] = str(network.status.vni)
    outcome = Outcome(rows=[Row(SWITCH, ref.key, {"name": ref.key, "other_config": config})])
    if world.shared(_is_named, namespace, name):
        outcome.add(Row(*records(namespace, name), {}), ref, "dns_records")
    if spec.provider is not None:
        outcome.add(_localnet(namespace, name, spec.provider), ref, "ports")
    return outcome


def _is_named(world: World, namespace: str, network: str) -> bool:
    """Return whether a Network resolves the names of its attachments."""
    return any(one.spec.dhcp is not None and one.spec.dhcp.domain_name for one in world.subnets(namespace, network))


def _localnet(namespace: str, network: str, provider: Provider) -> Row:
    name = names.localnet(namespace, network)
    columns: dict[str, Column] = {
        "name": name,
        "type": "localnet",
        "addresses": frozenset(("unknown",)),
        "options": {"network_name": provider.physical_network},
        "tag": provider.vlan,
    }
    return Row(PORT, name, columns)


class Block(Struct, frozen=True):
    """What an attachment with an address of a Subnet needs of it."""

    place: Pool
    dhcp: Ref | None
    domain: str


NOWHERE = Block(Pool("", "", 0, 0, 0, 0, (), None, ()), None, "")
"""Stands for the Subnet of an address that is in none."""


class Segment(Struct, frozen=True):
    """What the attachments of a Network need of it."""

    switch: Ref
    dns: Ref
    v4: tuple[Block, ...]
    v6: tuple[Block, ...]
    physical_network: str = ""
    nodes: LabelSelector | None = None
    """The nodes with the physical network; None: all."""


def segment(world: World, namespace: str, network: str) -> Segment | None:
    """Return a Network's segment; None: it is not of fabric ovn, or not granted."""
    found = world.get(Network, namespace, network)
    if found is None or found.spec.fabric is not Fabric.OVN or world.ungranted(found) is not None:
        return None
    blocks = []
    for subnet in world.subnets(namespace, network):
        spec = subnet.spec
        where = pool(subnet.metadata.name, network, spec.cidr)
        blocks.append(Block(where, dhcp.served(subnet), spec.dhcp.domain_name if spec.dhcp is not None else ""))
    provider = found.spec.provider
    return Segment(
        switch=switch(namespace, network),
        dns=records(namespace, network),
        v4=tuple(one for one in blocks if one.place.version == 4),
        v6=tuple(one for one in blocks if one.place.version == 6),
        physical_network="" if provider is None else provider.physical_network,
        nodes=None if provider is None else provider.nodes,
    )


def plan_attachment(world: World, one: Port) -> Outcome:
    """Plan a port, once it has addresses."""
    if not one.ips or not one.mac:
        return Outcome()
    if one.parent and (problem := children.obstacle(world, one)) is not None:
        return Outcome(problems=[problem])
    on = world.shared(segment, one.namespace, one.network)
    if on is None:
        return Outcome(problems=_closed(world, one))
    ips, secure, v4, v6 = _addresses(on, one)
    if not ips:
        return Outcome()
    name = f"{one.namespace}/{one.name}"
    missing = unknown(world, one) if one.profiles else []
    columns: dict[str, Column] = {
        "name": name,
        "addresses": frozenset((f"{one.mac} {ips}",)),
        # Without addresses, OVN checks those of no packet, in either direction; it checks the MAC all the same.
        "port_security": frozenset((one.mac if one.forwarding else f"{one.mac} {secure}",)),
        "enabled": not missing and not one.link_down,  # A port without its ACLs stays closed.
        "dhcpv4_options": v4.dhcp,
        "dhcpv6_options": v6.dhcp,
        "options": requested_chassis(one.node),
        # Set for all: a port of its own may have been a child before.
        "parent_name": names.port(one.namespace, one.parent) if one.parent else None,
        "tag": one.vlan,
    }
    members = [Member(on.switch, "ports", Ref(PORT, name)), *memberships(world, one)]
    if domain := v4.domain or v6.domain:
        members.append(Member(on.dns, "records", ips, f"{one.name}.{domain}"))
    outcome = Outcome([Row(PORT, name, columns)], members, missing)
    shaped = shares(world, one)
    outcome.rows += shaped.rows
    outcome.members += shaped.members
    if on.nodes is not None:
        outcome.problems += _misplaced(world, on, one)
    return outcome


def _closed(world: World, one: Port) -> list[Problem]:
    """Return the problems that close a port outside of OVN: its node makes the flows of vxlan, but not this report."""
    network = world.get(Network, one.namespace, one.network)
    if network is None:
        return []
    if (problem := world.ungranted(network)) is not None:
        return [Problem(problem.reason, f"spec.network: Network {one.network}: {problem.message}")]
    if network.spec.fabric is not Fabric.VXLAN:
        return []
    problems = unknown(world, one) if one.profiles else []
    if one.forwarding:
        said = f"spec.forwarding: Network {one.network} is of fabric vxlan, which checks all addresses: use fabric ovn"
        problems.append(Problem("Unsupported", said))
    return problems


def _addresses(on: Segment, one: Port) -> tuple[str, str, Block, Block]:
    """Return a port's addresses, those it may send from, and the Subnets of its first address of each family.

    IPAM allocates no address outside of the Network's Subnets: such an address is ignored.
    """
    plain: list[str] = []
    secure: list[str] = []
    v4 = v6 = NOWHERE
    for written in one.ips:
        ip, _, length = written.partition("/")
        blocks = on.v6 if ":" in ip else on.v4
        block = _block(blocks, ip)
        if block is NOWHERE and blocks:
            continue
        plain.append(ip)
        if ":" in ip:
            secure.append(ip)
            if v6 is NOWHERE:
                v6 = block
            continue
        # With the prefix length, the port may also receive broadcasts of its Subnet. But OVN takes an address whose
        # host bits are zero for the whole block: where the last byte cannot exclude that, the length is left out.
        bits = 32 - int(length or 32)
        secure.append(written if bits and int(ip[ip.rindex(".") + 1 :]) & ((1 << min(bits, 8)) - 1) else ip)
        if v4 is NOWHERE:
            v4 = block
    if one.allowed_addresses:
        secure += [ip for ip in sorted(one.allowed_addresses) if ip not in plain]
    return " ".join(plain), " ".join(secure), v4, v6


def _block(blocks: tuple[Block, ...], ip: str) -> Block:
    where = address(ip)
    return next((block for block in blocks if where is not None and block.place.holds(where)), NOWHERE)


@lru_cache(maxsize=4096)
def requested_chassis(node: str) -> Mapping[str, str]:
    """Return the options of a port that only one node may bind."""
    return {"requested-chassis": node}


def _misplaced(world: World, on: Segment, one: Port) -> list[Problem]:
    """Return a problem if an attachment is on a node without its physical network."""
    node = world.get(Node, "", one.node)
    if on.nodes is None or node is None or selector_in("", on.nodes).matches(node.metadata.labels):
        return []
    said = (
        f"spec.node: Network {one.network} is on physical network {on.physical_network}, which node {one.node} does "
        "not have by the Network's provider.nodes: it reaches nothing outside its node"
    )
    return [Problem("NodeWithoutNetwork", said)]
