"""Addresses that are spoken for without being given: Routers', VIPs, and what attachments may use besides their own.

Nobody locks such an address: its owner wrote it into its own spec. Whoever gives addresses away must know them, or an
attachment would get a VIP some day, and the LoadBalancer would lose it. Which Network an address is claimed in follows
from the wish alone, whether or not a Subnet there has it.

An address of a Router or of a LoadBalancer is nobody else's. One that attachments are *allowed* may be the own address
of one of them: it is not chosen for anybody, but whoever asks for it may have it.  Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from netloom.model.networks import Router
from netloom.model.policy import LoadBalancer
from netloom.plan.addresses.blocks import Address, address


class Claim(NamedTuple):
    """One address in one Network."""

    network: str
    address: Address
    by: str
    """Whose it is, as "that of Router NAME"; "" where whoever asks for it may have it."""


def of_router(router: Router) -> Iterator[Claim]:
    """Give what a Router claims; a gateway it takes from a Subnet is the Subnet's own business."""
    by = f"that of Router {router.metadata.name}"
    for port in router.spec.networks:
        yield from _claims(port.network, port.ips, by)
    if router.spec.gateway is not None:
        outside = router.spec.gateway.network
        yield from _claims(outside, router.spec.gateway.ips, by)
        yield from _claims(outside, (one.external for one in router.spec.nat), by)


def of_balancer(balancer: LoadBalancer, router: Callable[[str], Router | None]) -> Iterator[Claim]:
    """Give what a LoadBalancer claims: its VIPs, in all Networks where they are answered for."""
    by = f"a VIP of LoadBalancer {balancer.metadata.name}"
    for network in networks(balancer, router):
        yield from _claims(network, (vip.ip for vip in balancer.spec.vips), by)


def networks(balancer: LoadBalancer, router: Callable[[str], Router | None]) -> list[str]:
    """Return the Networks a balancer has to do with: those it serves, and those its Routers' gateways are in."""
    routers = [one for one in map(router, balancer.spec.routers) if one is not None]
    found = dict.fromkeys(balancer.spec.networks)
    found |= dict.fromkeys(port.network for one in routers for port in one.spec.networks)
    found |= dict.fromkeys(one.spec.gateway.network for one in routers if one.spec.gateway is not None)
    return list(found)


def of_attachment(network: str, allowed: Iterable[str]) -> Iterator[Claim]:
    """Give what an attachment claims besides its own addresses."""
    yield from _claims(network, allowed, "")


def _claims(network: str, texts: Iterable[str], by: str) -> Iterator[Claim]:
    for text in texts:
        if (one := address(text.partition("/")[0])) is not None:
            yield Claim(network, one, by)
