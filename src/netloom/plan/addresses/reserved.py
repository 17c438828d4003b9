"""Addresses that objects reserve in their own specs, without a lock: of Routers, VIPs, and allowed addresses.  Pure.

IPAM must know these addresses, or it would one day allocate a VIP to an attachment, and the LoadBalancer would lose it.
The Network in which an address is reserved follows from the specs alone, whether or not a Subnet there has it.

An address of a Router or a LoadBalancer is exclusive. An address in `allowedAddresses` may be the own address of one of
the attachments that share it: it is never chosen, but an attachment that requests it gets it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from netloom.model.kinds.networks import Router
from netloom.model.kinds.policy import LoadBalancer
from netloom.plan.addresses.blocks import Address, address


class Reservation(NamedTuple):
    """One address in one Network."""

    network: str
    address: Address
    by: str
    """The owner, as "used by Router NAME"; "" where an attachment that requests the address gets it."""


def of_router(router: Router) -> Iterator[Reservation]:
    """Return what a Router reserves.  A gateway address that it takes from a Subnet is excluded there already."""
    by = f"used by Router {router.metadata.name}"
    for port in router.spec.networks:
        yield from _reservations(port.network, port.ips, by)
    if router.spec.gateway is not None:
        outside = router.spec.gateway.network
        yield from _reservations(outside, router.spec.gateway.ips, by)
        yield from _reservations(outside, (one.external for one in router.spec.nat), by)


def of_balancer(balancer: LoadBalancer, router: Callable[[str], Router | None]) -> Iterator[Reservation]:
    """Return what a LoadBalancer reserves: its VIPs, in every Network in which they are answered."""
    by = f"a VIP of LoadBalancer {balancer.metadata.name}"
    for network in networks(balancer, router):
        yield from _reservations(network, (vip.ip for vip in balancer.spec.vips), by)


def networks(balancer: LoadBalancer, router: Callable[[str], Router | None]) -> list[str]:
    """Return the Networks in which a LoadBalancer is reached: those it serves, and those of its Routers."""
    routers = [one for one in map(router, balancer.spec.routers) if one is not None]
    found = dict.fromkeys(balancer.spec.networks)
    found |= dict.fromkeys(port.network for one in routers for port in one.spec.networks)
    found |= dict.fromkeys(one.spec.gateway.network for one in routers if one.spec.gateway is not None)
    return list(found)


def of_attachment(network: str, allowed: Iterable[str]) -> Iterator[Reservation]:
    """Return what an attachment reserves besides its own addresses."""
    yield from _reservations(network, allowed, "")


def _reservations(network: str, texts: Iterable[str], by: str) -> Iterator[Reservation]:
    for text in texts:
        if (one := address(text.partition("/")[0])) is not None:
            yield Reservation(network, one, by)
