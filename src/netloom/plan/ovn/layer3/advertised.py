"""The Subnets behind the Routers of a Network, which EVPN advertises as IP prefixes.  Pure.

A prefix is reached through the Router's address in the extended Network, as RFC 9136 has it with a gateway (section
4.2): other sites send frames to the Router's MAC address, which is advertised with it. A Subnet behind several Routers
is advertised with each.
"""

from collections.abc import Iterable, Iterator

from netloom.model.kinds.bgp import AdvertisedSubnet
from netloom.model.kinds.networks import Router, Subnet
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.ovn.layer3.router_ports import mac, requested_addresses

MOST = 1024


def advertised_subnets(network: str, routers: Iterable[Router], subnets: Iterable[Subnet]) -> list[AdvertisedSubnet]:
    """Return the Subnets behind the Routers of a Network; all are of its namespace."""
    by_network: dict[str, list[Subnet]] = {}
    for subnet in subnets:
        if subnet.status.validated and not subnet.metadata.deletion_timestamp:
            by_network.setdefault(subnet.spec.network, []).append(subnet)
    found = {(one.cidr, one.gateway): one for router in routers for one in _behind(network, router, by_network)}
    return [one for _, one in sorted(found.items())][:MOST]


def _behind(network: str, router: Router, subnets: dict[str, list[Subnet]]) -> Iterator[AdvertisedSubnet]:
    own = next((port for port in router.spec.networks if port.network == network), None)
    if own is None or router.metadata.deletion_timestamp:
        return
    requested = [one.text for one in requested_addresses(own, subnets.get(network, ()), "")]
    gateways = [addresses.interface(text).ip for text in requested if addresses.is_cidr(text)]
    address = mac(names.router(router.metadata.namespace, router.metadata.name), network)
    for port in router.spec.networks:
        for subnet in subnets.get(port.network, ()) if port.network != network else ():
            version = addresses.interface(subnet.spec.cidr).version
            for gateway in gateways:
                if gateway.version == version:
                    yield AdvertisedSubnet(cidr=subnet.spec.cidr, gateway=str(gateway), mac=address)
                    break
