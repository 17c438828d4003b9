"""The sizes of a run's Networks, and their address blocks.  Pure.

The sizes follow Zipf's law: of `count` Networks the i-th has

    ceil((1 + bias) * top / (i + bias) ** exponent)          i = 1, 2, …

attachments, so a few are large and most are small, as in practice. They have one Subnet or two, alternately, each with
its own block: blocks are disjoint over the whole run, whatever the sizes, and begin at a base address.
"""

import math
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from msgspec import Struct

from netloom.errors import Invalid

SPARE = 4
"""Addresses of a block that are not allocated: the first, the last, the gateway's, and one more."""
V6_PREFIX = 64

Block = IPv4Network | IPv6Network


class Shape(Struct, frozen=True, kw_only=True):
    """How many Networks there are, and how large."""

    count: int = 10
    top: int = 100
    exponent: float = 1.0
    bias: float = 0.0


def sizes(shape: Shape) -> list[int]:
    """Return how many attachments each Network has, the largest first."""
    scale = (1 + shape.bias) * shape.top
    return [max(1, math.ceil(_exactly(scale / (i + shape.bias) ** shape.exponent))) for i in range(1, shape.count + 1)]


def _exactly(value: float) -> float:
    """Return a value without its last digits, where rounding errors are: ceil would add one."""
    return round(value, 9)


def average_peers(found: Sequence[int]) -> float:
    """Return how many peers an attachment has in its Network, on average over the attachments."""
    total = sum(found)
    return sum(size * (size - 1) for size in found) / total if total else 0.0


def divided(size: int, number: int, *, single: bool = False) -> list[int]:
    """Return how the attachments of the Network of this number are divided among its Subnets: every other has two."""
    if single or number % 2 == 0 or size < 2:
        return [size]
    return [size - size // 2, size // 2]


def blocks(wanted: Sequence[float], base: str) -> list[Block]:
    """Return a block for each number of addresses, consecutive from `base`, disjoint."""
    first = ip_address(base)
    found: list[Block] = []
    at = int(first)
    for count in wanted:
        bits = V6_PREFIX if first.version == 6 else max(2, math.ceil(math.log2(count + SPARE)))
        at = -(-at >> bits) << bits  # The next multiple of the block's size.
        if at + (1 << bits) > 1 << first.max_prefixlen:
            raise Invalid(f"the blocks do not fit above {base}: choose a lower base address, or fewer Networks")
        made = IPv4Address(at) if first.version == 4 else IPv6Address(at)
        found.append(_network(made, made.max_prefixlen - bits))
        at += 1 << bits
    return found


def _network(first: IPv4Address | IPv6Address, prefix: int) -> Block:
    if isinstance(first, IPv4Address):
        return IPv4Network((first, prefix))
    return IPv6Network((first, prefix))
