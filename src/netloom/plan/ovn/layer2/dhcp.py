"""DHCP: what a Subnet tells its machines, as one row of options that their ports refer to.  Pure.

OVN answers DHCP on each node by itself, from the address the port has anyway: no server runs anywhere, and none is
needed where there is no Router. The server's address is the gateway's; its MAC is made of the Subnet's name, so it
stays the same for good.

Of a v6 Subnet machines get addresses and name servers here; that they should ask at all is what a router advertises.
"""

from collections.abc import Iterator
from hashlib import blake2b

from netloom.model import addresses
from netloom.model.networks import Dhcp, Fabric, Network, Router, Subnet
from netloom.plan.addresses.blocks import Address, Pool, pool, text
from netloom.plan.ovn.layer2.dhcp_options import LONGEST, listed, quoted, route_size, routes, written
from netloom.plan.problem import Problem
from netloom.plan.rows import Outcome, Ref, Row
from netloom.plan.world.world import World

TABLE = "DHCP_Options"
TUNNELLED_MTU = 1442
"""What is left of an Ethernet frame of 1500 bytes inside a Geneve tunnel; where a Network says nothing else."""


def served(subnet: Subnet) -> Ref | None:
    """Return which row holds a Subnet's options, or None where it serves no DHCP."""
    dhcp = subnet.spec.dhcp
    if dhcp is None or not dhcp.enabled:
        return None
    return Ref(TABLE, f"{subnet.metadata.namespace}/{subnet.metadata.name}")


def plan_subnet(world: World, subnet: Subnet) -> Outcome:
    """Plan a Subnet's options, if it serves DHCP, is validated and its Network is OVN's."""
    ref, dhcp = served(subnet), subnet.spec.dhcp
    if ref is None or dhcp is None or not subnet.status.validated:
        return Outcome()
    network = world.get(Network, subnet.metadata.namespace, subnet.spec.network)
    if network is None or network.spec.fabric is not Fabric.OVN:
        return Outcome(problems=_unserved(network))
    if world.ungranted(network) is not None:
        return Outcome()  # Of which its Network tells.
    block = pool(subnet.metadata.name, subnet.spec.network, subnet.spec.cidr, gateway=subnet.spec.gateway)
    v4 = block.version == 4
    options = _options_v4(network, subnet, dhcp, block) if v4 else _options_v6(subnet, dhcp)
    asked, problems = written(dhcp.options, block.version)
    options |= asked
    if v4 and "classless_static_route" not in asked and (detours := _detours(world, subnet, block)):
        # Who is told these routes ignores the router, so the default route must be among them.
        router = options.get("router", "").strip("{}").partition(",")[0]
        told, left_out = _fitting([("0.0.0.0/0", router), *detours] if router else detours)
        options["classless_static_route"] = routes(told)
        problems += left_out
    row = Row(
        TABLE,
        ref.key,
        {
            "cidr": f"{text(Address(block.version, block.first))}/{block.prefix}",
            "options": {name: value for name, value in options.items() if value},
        },
    )
    return Outcome(rows=[row], problems=[*_strangers(dhcp, block.version), *problems])


def _unserved(network: Network | None) -> list[Problem]:
    if network is None or network.spec.fabric is not Fabric.VXLAN:
        return []
    said = (
        f"spec.dhcp: Network {network.metadata.name} is of fabric vxlan, where nobody serves DHCP: ports get their "
        "addresses from the agent"
    )
    return [Problem("WrongFabric", said)]


def server_mac(namespace: str, subnet: str) -> str:
    """Return the MAC a Subnet's DHCP server answers from."""
    number = int.from_bytes(blake2b(f"dhcp/{namespace}/{subnet}".encode(), digest_size=6).digest(), "big")
    return (number & ~(0x01 << 40) | (0x02 << 40)).to_bytes(6, "big").hex(":")


def _options_v4(network: Network, subnet: Subnet, dhcp: Dhcp, block: Pool) -> dict[str, str]:
    gateway = None if block.gateway is None else text(Address(4, block.gateway))
    options = {
        "server_id": gateway or text(Address(4, block.first)),
        "server_mac": server_mac(subnet.metadata.namespace, subnet.metadata.name),
        "lease_time": str(dhcp.lease_seconds),
    }
    if gateway is not None:
        options["router"] = gateway
    if servers := [one for one in dhcp.dns_servers if addresses.family(one) == 4]:
        options["dns_server"] = listed(servers)
    if dhcp.domain_name:
        options["domain_name"] = quoted(dhcp.domain_name)
    if network.spec.mtu is not None:
        options["mtu"] = str(network.spec.mtu)
    elif network.spec.provider is None:
        options["mtu"] = str(TUNNELLED_MTU)
    return options


def _options_v6(subnet: Subnet, dhcp: Dhcp) -> dict[str, str]:
    options = {"server_id": server_mac(subnet.metadata.namespace, subnet.metadata.name)}
    if servers := [one for one in dhcp.dns_servers if addresses.family(one) == 6]:
        options["dns_server"] = listed(servers)
    # Not domain_search: OVN sends it as bare text, which clients throw away. Routers advertise the domain.
    return options


def _strangers(dhcp: Dhcp, version: int) -> Iterator[Problem]:
    for position, one in enumerate(dhcp.dns_servers):
        if addresses.family(one) != version:
            said = f"spec.dhcp.dnsServers[{position}]: {one} cannot be told by DHCP for IPv{version}; it is left out"
            yield Problem("WrongFamily", said)


def _detours(world: World, subnet: Subnet, block: Pool) -> list[tuple[str, str]]:
    """Return the blocks that are reached through a Router that is not the gateway, and its address in the Subnet."""
    namespace, network = subnet.metadata.namespace, subnet.spec.network
    found: set[tuple[str, str]] = set()
    for router in world.routers(namespace, network):
        for foot in router.spec.networks:
            if foot.network != network:
                continue
            own = [Address(ip.version, int(ip)) for ip in (addresses.interface(ip).ip for ip in foot.ips)]
            near = [one for one in own if block.holds(one)]
            if near and all(one.number != block.gateway for one in near):
                found.update((to, text(near[0])) for to in _beyond(world, router, network))
    return sorted(found)


def _fitting(wanted: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Return the routes that one option has room for, the default route last, and what is to be said of the others."""
    told: list[tuple[str, str]] = []
    size = 0
    for route in wanted:
        size += route_size(route[0])
        if size > LONGEST:
            said = (
                "spec.network: DHCP has no room for all ways through Routers that are not the gateway: machines are not"
                f" told of {route[0]}, nor of {len(wanted) - len(told) - 1} more"
            )
            return _default_last(told), [Problem("TooManyRoutes", said)]
        told.append(route)
    return _default_last(told), []


def _default_last(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(told, key=lambda route: route[0] == "0.0.0.0/0")


def _beyond(world: World, router: Router, network: str) -> Iterator[str]:
    """Give the v4 blocks a Router leads to from one of its Networks."""
    for foot in router.spec.networks:
        if foot.network != network:
            for subnet in world.subnets(router.metadata.namespace, foot.network):
                if addresses.family(subnet.spec.cidr) == 4:
                    yield str(addresses.interface(subnet.spec.cidr).network)
    for route in router.spec.routes:
        if addresses.family(route.to) == 4:
            yield str(addresses.interface(route.to).network)
