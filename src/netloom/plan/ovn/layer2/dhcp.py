"""DHCP: the options of a Subnet, as one row that ports refer to.  Pure.

OVN answers DHCP on each chassis, from the address of the port: there is no server process, and it needs no Router. The
server's address is the gateway's; its MAC is a digest of the Subnet's name, so it never changes.

For a v6 Subnet hosts get addresses and name servers here; router advertisements tell them to use DHCP.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from netloom.model.kinds.networks import Dhcp, Fabric, Network, Router, Subnet
from netloom.model.values import addresses
from netloom.plan.addresses import macs
from netloom.plan.addresses.blocks import Address, Pool, pool, text
from netloom.plan.ovn.layer2.dhcp_options import LONGEST, listed, quoted, route_size, routes, written
from netloom.plan.problem import Problem
from netloom.plan.rows import Outcome, Ref, Row
from netloom.plan.world.world import World

TABLE = "DHCP_Options"
TUNNELLED_MTU = 1442
"""The MTU inside a Geneve tunnel over Ethernet with 1500 bytes; the default of a Network."""


def served(subnet: Subnet) -> Ref | None:
    """Return which row has a Subnet's options, or None where it serves no DHCP."""
    dhcp = subnet.spec.dhcp
    if dhcp is None or not dhcp.enabled:
        return None
    return Ref(TABLE, f"{subnet.metadata.namespace}/{subnet.metadata.name}")


def plan_subnet(world: World, subnet: Subnet) -> Outcome:
    """Plan a Subnet's options, if it serves DHCP, is validated and its Network is of fabric ovn."""
    ref, dhcp = served(subnet), subnet.spec.dhcp
    if ref is None or dhcp is None or not subnet.status.validated:
        return Outcome()
    network = world.get(Network, subnet.metadata.namespace, subnet.spec.network)
    if network is None or network.spec.fabric is not Fabric.OVN:
        outcome = Outcome()
        if network is not None:
            said = (
                f"spec.dhcp: Network {network.metadata.name} is of fabric {network.spec.fabric}, which has no DHCP: "
                "the agent sets the addresses of ports"
            )
            outcome.report("WrongFabric", said)
        return outcome
    if world.ungranted(network) is not None:
        return Outcome()  # Its Network reports it.
    block = pool(subnet.metadata.name, subnet.spec.network, subnet.spec.cidr, gateway=subnet.spec.gateway)
    v4 = block.version == 4
    options = _options_v4(network, subnet, dhcp, block) if v4 else _options_v6(subnet, dhcp)
    asked, problems = written(dhcp.options, block.version)
    options |= asked
    if v4 and "classless_static_route" not in asked and (extra := _extra_routes(world, subnet, block)):
        # A client that gets these routes ignores option `router`, so the default route must be among them.
        router = options.get("router", "").strip("{}").partition(",")[0]
        fitting, left_out = _fitting([("0.0.0.0/0", router), *extra] if router else extra)
        options["classless_static_route"] = routes(fitting)
        problems += left_out
    row = Row(
        TABLE,
        ref.key,
        {
            "cidr": f"{text(Address(block.version, block.first))}/{block.prefix}",
            "options": {name: value for name, value in options.items() if value},
        },
    )
    return Outcome(rows=[row], problems=[*_wrong_family(dhcp, block.version), *problems])


def server_mac(namespace: str, subnet: str) -> str:
    """Return the MAC of a Subnet's DHCP server."""
    return macs.digest(f"dhcp/{namespace}/{subnet}")


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
    # Not domain_search: OVN sends it as plain text, which clients discard. Routers advertise the domain.
    return options


def _wrong_family(dhcp: Dhcp, version: int) -> Iterator[Problem]:
    for position, one in enumerate(dhcp.dns_servers):
        if addresses.family(one) != version:
            said = f"spec.dhcp.dnsServers[{position}]: DHCP for IPv{version} cannot announce {one}: it is ignored"
            yield Problem("WrongFamily", said)


def _extra_routes(world: World, subnet: Subnet, block: Pool) -> list[tuple[str, str]]:
    """Return the blocks behind Routers that are not the gateway, and the Router's address in the Subnet."""
    namespace, network = subnet.metadata.namespace, subnet.spec.network
    found: set[tuple[str, str]] = set()
    for router in world.routers(namespace, network):
        for port in router.spec.networks:
            if port.network != network:
                continue
            own = [Address(ip.version, int(ip)) for ip in (addresses.interface(ip).ip for ip in port.ips)]
            near = [one for one in own if block.holds(one)]
            if near and all(one.number != block.gateway for one in near):
                found.update((to, text(near[0])) for to in _beyond(world, router, network))
    return sorted(found)


def _fitting(wanted: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Return the routes that fit into one option, the default route last, and a problem if some do not fit."""
    sizes = list(accumulate(route_size(to) for to, _ in wanted))
    count = bisect_right(sizes, LONGEST)
    fitting = sorted(wanted[:count], key=lambda route: route[0] == "0.0.0.0/0")
    if count == len(wanted):
        return fitting, []
    said = (
        "spec.network: the DHCP option has no room for all routes through Routers that are not the gateway:"
        f" hosts do not get {wanted[count][0]}, nor {len(wanted) - count - 1} more"
    )
    return fitting, [Problem("TooManyRoutes", said)]


def _beyond(world: World, router: Router, network: str) -> Iterator[str]:
    """Yield the v4 blocks that a Router leads to from one of its Networks."""
    for port in router.spec.networks:
        if port.network != network:
            for subnet in world.subnets(router.metadata.namespace, port.network):
                if addresses.family(subnet.spec.cidr) == 4:
                    yield str(addresses.interface(subnet.spec.cidr).network)
    for route in router.spec.routes:
        if addresses.family(route.to) == 4:
            yield str(addresses.interface(route.to).network)
