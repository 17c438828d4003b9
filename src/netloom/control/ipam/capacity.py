"""How many addresses of a block can be given away.  Pure, and no slower for a /64 than for a /30.

The rule is `plan.addressing`'s, which gives them away; here it is counted for a Subnet's status.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

from netloom.plan.addresses import blocks as addressing

MOST = 2**53 - 1
"""The greatest number that every reader of JSON keeps; a /64 has more addresses than that."""

Block = IPv4Network | IPv6Network


def block(cidr: str) -> Block:
    """Return the block a CIDR means; bits behind the prefix do not count.  Raises ValueError."""
    return ip_network(cidr, strict=False)


def overlap(one: Block, other: Block) -> bool:
    """Whether two blocks have an address in common."""
    return one.version == other.version and one.overlaps(other)


def usable(within: Block) -> tuple[int, int]:
    """Return the first and the last address that may be given away, exclusions aside, as numbers."""
    return addressing.usable(int(within.network_address), int(within.broadcast_address))


def default_gateway(within: Block) -> int | None:
    """Return the first host address; a block of one or two addresses has no room for a gateway."""
    return addressing.default_gateway(int(within.network_address), int(within.broadcast_address))


def capacity(within: Block, gateway: str, exclude: Iterable[str]) -> int:
    """Return how many addresses can be given away, at most `MOST`."""
    place = addressing.place("", "", str(within), gateway=gateway, exclude=tuple(exclude))
    return min(MOST, place.capacity())
