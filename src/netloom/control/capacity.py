"""How many addresses of a block can be given away.  Pure, and no slower for a /64 than for a /30.

The rule is kos's: a block of five addresses or more keeps back its first two (the network, the gateway) and its last
(broadcast); a smaller one is used whole. The gateway and what the Subnet excludes are taken out, wherever they lie.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

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
    base, last = int(within.network_address), int(within.broadcast_address)
    return (base + 2, last - 1) if last - base >= 4 else (base, last)


def default_gateway(within: Block) -> int | None:
    """Return the first host address; a block of one or two addresses has no room for a gateway."""
    base, last = int(within.network_address), int(within.broadcast_address)
    return base + 1 if last - base >= 2 else None


def capacity(within: Block, gateway: str, exclude: Iterable[str]) -> int:
    """Return how many addresses can be given away, at most `MOST`."""
    first, last = usable(within)
    taken = [_span(text, within.version) for text in exclude]
    if gateway:
        taken.append(_span(gateway, within.version))
    elif (address := default_gateway(within)) is not None:
        taken.append((address, address))
    free, position = 0, first
    for low, high in sorted(taken):
        if low > last:
            break
        free += max(0, low - position)
        position = max(position, high + 1)
    return min(MOST, free + max(0, last - position + 1))


def _span(text: str, version: int) -> tuple[int, int]:
    """Return a range `FIRST-LAST` or one address as numbers; of another family, a span that takes nothing."""
    low, _, high = text.partition("-")
    start, end = ip_address(low.strip()), ip_address((high or low).strip())
    return (int(start), int(end)) if start.version == end.version == version else (0, -1)
