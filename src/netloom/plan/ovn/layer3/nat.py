"""Translations at a router's gateway: what goes out under another address, and what comes in by one.  Pure.

`gateway.snat` gives every block behind the router (those of its feet, and those its routes lead to through them) the
gateway's first address of the family. What the wish lists in `nat` comes on top, and a block it names itself is left to
it. Each entry is looked at by itself; of two that contradict each other the earlier stands.

All translation is done at the gateway node (centralised). OVN could do a floating address on the attachment's own node
instead. That takes the physical network on every node, where `provider.nodes` may say otherwise, and a further MAC in
the physical network for each address, which moves with the attachment; here an address moves with the gateway only,
whose failover announces it. A floating address also works for what is no attachment, as a host behind a route.

OVN answers ARP and ND for an external address at the gateway node by itself, in the gateway's block or out of it.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from netloom.model import addresses
from netloom.model.addresses import Address, Block
from netloom.model.networks import Nat, NatType, Router
from netloom.plan import names
from netloom.plan.ovn.layer3 import router_ports as feet
from netloom.plan.ovn.layer3.router_ports import Foot
from netloom.plan.problem import Problem
from netloom.plan.rows import Member, Outcome, Ref, Row
from netloom.plan.world.world import World


class _Books(Struct):
    """What is spoken for already."""

    inside: list[Block]
    """What is behind the router."""
    own: frozenset[Address]
    """The router's addresses inside."""
    gateway: frozenset[Address]
    """Its addresses outside."""
    entered: dict[Address, str] = {}
    """Which entry leads in by an external address."""
    left: dict[Block, str] = {}
    """Which entry a block or an address leaves by."""


def translated(
    world: World, router: Router, inner: Sequence[Foot], outer: Foot, routed: Iterable[Block], outcome: Outcome
) -> None:
    """Add a router's translations."""
    gateway = router.spec.gateway
    assert gateway is not None
    books = _Books(
        inside=list(dict.fromkeys([*_connected(inner), *routed])),
        own=frozenset(one.ip for foot in inner for one in foot.addresses),
        gateway=frozenset(one.ip for one in outer.addresses),
    )
    for position, wish in enumerate(router.spec.nat):
        at = f"spec.nat[{position}]"
        problem = _malformed(wish, at) or _taken(world, router, wish, at) or _refused(wish, at, books)
        if problem is not None:
            outcome.problems.append(problem)
            continue
        _add(router, outer, wish.type, addresses.address(wish.external), _logical(wish.logical), outcome)
    for block in books.inside if gateway.snat else ():
        external = next((one.ip for one in outer.addresses if one.version == block.version), None)
        if external is not None and block not in books.left:
            _add(router, outer, NatType.SNAT, external, block, outcome)


def _connected(inner: Iterable[Foot]) -> Iterator[Block]:
    for foot in inner:
        yield from (one.network for one in foot.addresses if not one.ip.is_link_local)


def _logical(text: str) -> Block:
    """Return an address or a block as a block."""
    return addresses.interface(text if "/" in text else f"{text}/{128 if ':' in text else 32}").network


def _add(router: Router, outer: Foot, kind: NatType, external: Address, logical: Block, outcome: Outcome) -> None:
    name = names.router(router.metadata.namespace, router.metadata.name)
    # OVN wants an address without a length, but of a block of one address either would do.
    inside = str(logical.network_address) if logical.num_addresses == 1 else str(logical)
    row = Row(
        "NAT",
        f"{name}:{kind}:{external}:{inside}",
        {
            "type": str(kind),
            "external_ip": str(external),
            "logical_ip": inside,
            "logical_port": None,
            "external_mac": None,
            "gateway_port": Ref("Logical_Router_Port", outer.name),
        },
    )
    outcome.rows.append(row)
    outcome.members.append(Member(Ref("Logical_Router", name), "nat", row.ref))


def _malformed(wish: Nat, at: str) -> Problem | None:
    logical = wish.logical if "/" in wish.logical else f"{wish.logical}/0"
    if addresses.is_ip(wish.external) and addresses.is_cidr(logical):
        return None
    return Problem("Malformed", f"{at}: {wish.external!r} or {wish.logical!r} is not an address")


def _taken(world: World, router: Router, wish: Nat, at: str) -> Problem | None:
    assert router.spec.gateway is not None
    other = feet.rival(world, router, router.spec.gateway.network, addresses.address(wish.external))
    if not other:
        return None
    return Problem("AddressTaken", f"{at}.external: {wish.external} is that of Router {other}: choose another address")


def _refused(wish: Nat, at: str, books: _Books) -> Problem | None:
    """Return why an entry cannot be, if so; else note what it takes."""
    external, inside = addresses.address(wish.external), _logical(wish.logical)
    problem = _external_refused(wish, external, at, books) or _logical_refused(wish, inside, at, books)
    if problem is not None:
        return problem
    comes_in, goes_out = wish.type is not NatType.SNAT, wish.type is not NatType.DNAT
    if comes_in and external in books.entered:
        text = f"{at}.external: {external} leads in by {books.entered[external]} already: give each its own"
        return Problem("NatTwice", text)
    if goes_out and inside in books.left:
        text = f"{at}.logical: {wish.logical} goes out by {books.left[inside]} already: take one of them out"
        return Problem("NatTwice", text)
    if comes_in:
        books.entered[external] = at
    if goes_out:
        books.left[inside] = at
    return None


def _external_refused(wish: Nat, external: Address, at: str, books: _Books) -> Problem | None:
    if problem := feet.unfit(addresses.interface(f"{external}/{external.max_prefixlen}"), f"{at}.external"):
        return problem
    if external in books.own or (wish.type is NatType.DNAT_AND_SNAT and external in books.gateway):
        text = f"{at}.external: {external} is the router's own address: choose another address of the outside network"
        return Problem("ExternalOwn", text)
    if not any(external.version == one.version for one in books.gateway):
        text = f"{at}.external: {external} is IPv{external.version}, and spec.gateway.ips has no such address: add one"
        return Problem("FamilyMissing", text)
    return None


def _logical_refused(wish: Nat, inside: Block, at: str, books: _Books) -> Problem | None:
    if inside.network_address in books.own and inside.num_addresses == 1:
        text = f"{at}.logical: {wish.logical} is the router's own address: name that of a machine"
        return Problem("LogicalOwn", text)
    if any(feet.overlap(inside, block) for block in books.inside):
        return None
    around = ", ".join(str(block) for block in books.inside if block.version == inside.version) or "none"
    text = (
        f"{at}.logical: {wish.logical} is in no network behind the router (there is {around}): correct it, or add its"
        " Network to spec.networks"
    )
    return Problem("LogicalElsewhere", text)
