"""NAT at a router's gateway.  Pure.

`gateway.snat` translates every block behind the router (those of its ports, and those its routes lead to through them)
to the gateway's first address of the family. The entries of `spec.nat` come in addition, and a block that one of them
names is left to it. Each entry is checked by itself; of two that contradict each other the earlier one applies.

All translation is done at the gateway chassis (centralised). OVN could translate a floating address on the attachment's
own chassis instead. That takes the physical network on every node, which `provider.nodes` may exclude, and a further
MAC in the physical network for each address, which moves with the attachment. Here an address moves with the gateway
only, and its failover announces it. A floating address also works for a host that is not an attachment, as one behind a
route.

OVN answers ARP and ND for an external address at the gateway chassis, in the gateway's block or outside of it.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from netloom.model.kinds.networks import Nat, NatType, Router
from netloom.model.values import addresses
from netloom.model.values.addresses import Address, Block
from netloom.plan import names
from netloom.plan.addresses.blocks import overlap
from netloom.plan.ovn.layer3 import router_ports
from netloom.plan.ovn.layer3.router_ports import LogicalRouterPort
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Ref, Row
from netloom.plan.world.world import World


class _Claims(Struct):
    """The addresses that are in use already."""

    inside: list[Block]
    """The blocks behind the router."""
    own: frozenset[Address]
    """The router's addresses inside."""
    gateway: frozenset[Address]
    """Its addresses outside."""
    entered: dict[Address, str] = {}
    """The entry that translates an external address on the way in."""
    left: dict[Block, str] = {}
    """The entry that translates a block or an address on the way out."""


def add_nat(
    world: World,
    router: Router,
    inner: Sequence[LogicalRouterPort],
    outer: LogicalRouterPort,
    routed: Iterable[Block],
    outcome: Outcome,
) -> None:
    """Add a router's NAT rows."""
    gateway = router.spec.gateway
    assert gateway is not None
    connected = [one.network for port in inner for one in port.addresses if not one.ip.is_link_local]
    claims = _Claims(
        inside=list(dict.fromkeys([*connected, *routed])),
        own=frozenset(one.ip for port in inner for one in port.addresses),
        gateway=frozenset(one.ip for one in outer.addresses),
    )
    for position, entry in enumerate(router.spec.nat):
        at = f"spec.nat[{position}]"
        problem = _malformed(entry, at) or _taken(world, router, entry, at) or _refused(entry, at, claims)
        if problem is not None:
            outcome.problems.append(problem)
            continue
        _add(router, outer, entry.type, addresses.address(entry.external), _logical(entry.logical), outcome)
    for block in claims.inside if gateway.snat else ():
        external = next((one.ip for one in outer.addresses if one.version == block.version), None)
        if external is not None and block not in claims.left:
            _add(router, outer, NatType.SNAT, external, block, outcome)


def _logical(text: str) -> Block:
    """Return an address or a block as a block."""
    return addresses.interface(text if "/" in text else f"{text}/{128 if ':' in text else 32}").network


def _add(
    router: Router, outer: LogicalRouterPort, kind: NatType, external: Address, logical: Block, outcome: Outcome
) -> None:
    name = names.router(router.metadata.namespace, router.metadata.name)
    # OVN wants an address without a length, but of a block of one address either would do.
    inside = str(logical.network_address) if logical.num_addresses == 1 else str(logical)
    columns: dict[str, Column] = {
        "type": str(kind),
        "external_ip": str(external),
        "logical_ip": inside,
        "logical_port": None,
        "external_mac": None,
        "gateway_port": Ref("Logical_Router_Port", outer.name),
    }
    outcome.add(Row("NAT", f"{name}:{kind}:{external}:{inside}", columns), Ref("Logical_Router", name), "nat")


def _malformed(entry: Nat, at: str) -> Problem | None:
    logical = entry.logical if "/" in entry.logical else f"{entry.logical}/0"
    if addresses.is_ip(entry.external) and addresses.is_cidr(logical):
        return None
    return Problem("Malformed", f"{at}: {entry.external!r} or {entry.logical!r} is not an address")


def _taken(world: World, router: Router, entry: Nat, at: str) -> Problem | None:
    assert router.spec.gateway is not None
    other = router_ports.other_holder(world, router, router.spec.gateway.network, addresses.address(entry.external))
    if not other:
        return None
    return Problem("AddressTaken", f"{at}.external: {entry.external} is used by Router {other}: choose another address")


def _refused(entry: Nat, at: str, claims: _Claims) -> Problem | None:
    """Return why an entry is not possible, if so; otherwise record what it claims."""
    external, inside = addresses.address(entry.external), _logical(entry.logical)
    problem = _external_refused(entry, external, at, claims) or _logical_refused(entry, inside, at, claims)
    if problem is not None:
        return problem
    comes_in, goes_out = entry.type is not NatType.SNAT, entry.type is not NatType.DNAT
    if comes_in and external in claims.entered:
        text = f"{at}.external: {claims.entered[external]} translates {external} already: choose another address"
        return Problem("NatTwice", text)
    if goes_out and inside in claims.left:
        text = f"{at}.logical: {claims.left[inside]} translates {entry.logical} already: remove one of them"
        return Problem("NatTwice", text)
    if comes_in:
        claims.entered[external] = at
    if goes_out:
        claims.left[inside] = at
    return None


def _external_refused(entry: Nat, external: Address, at: str, claims: _Claims) -> Problem | None:
    if problem := router_ports.not_a_host(
        addresses.interface(f"{external}/{external.max_prefixlen}"), f"{at}.external"
    ):
        return problem
    if external in claims.own or (entry.type is NatType.DNAT_AND_SNAT and external in claims.gateway):
        text = f"{at}.external: {external} is the router's own address: choose another address of the outside network"
        return Problem("ExternalOwn", text)
    if not any(external.version == one.version for one in claims.gateway):
        text = f"{at}.external: {external} is IPv{external.version}, and spec.gateway.ips has no such address: add one"
        return Problem("FamilyMissing", text)
    return None


def _logical_refused(entry: Nat, inside: Block, at: str, claims: _Claims) -> Problem | None:
    if inside.network_address in claims.own and inside.num_addresses == 1:
        text = f"{at}.logical: {entry.logical} is the router's own address: name that of a host"
        return Problem("LogicalOwn", text)
    if any(overlap(inside, block) for block in claims.inside):
        return None
    around = ", ".join(str(block) for block in claims.inside if block.version == inside.version) or "none"
    text = (
        f"{at}.logical: {entry.logical} is in no network behind the router (these are {around}): correct it, or add its"
        " Network to spec.networks"
    )
    return Problem("LogicalElsewhere", text)
