"""An ipBlock with its exceptions, as Kubernetes reads it and as a SecurityProfile can have it.  Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, summarize_address_range
from typing import NamedTuple

from netloom.errors import Invalid
from netloom.model.values.addresses import Block


class BlockError(Invalid):
    """A text is no address block."""


class Remaining(NamedTuple):
    """A block without its exceptions."""

    cidr: str
    exceptions: tuple[str, ...] = ()
    blocks: Sequence[str] | None = None
    """What remains, where the exceptions are too many to be a part of one peer; else None."""


def remaining(cidr: str, exceptions: Iterable[str], most: int) -> Remaining:
    """Return a block without exceptions; with more than `most` of them, the blocks that remain."""
    whole = block(cidr)
    holes = sorted({hole for hole in map(block, exceptions) if hole.version == whole.version}, key=_span)
    inside = [hole for hole in holes if _holds(whole, hole)]
    if any(_holds(hole, whole) for hole in holes):
        return Remaining(str(whole), (), ())
    if len(inside) <= most:
        return Remaining(str(whole), tuple(str(hole) for hole in inside))
    return Remaining(str(whole), (), _without(whole, inside))


def block(text: str) -> Block:
    """Return an address block as Kubernetes reads it: host bits are ignored, and so are zeros before a number.

    An IPv4 address in the form of an IPv6 address is the IPv4 address.
    """
    ip, slash, length = text.partition("/")
    try:
        if not slash or not length.isdecimal() or len(length) > 3 or "%" in ip:
            raise ValueError(text)
        if ":" not in ip:
            plain = ".".join(octet.lstrip("0") or "0" if octet else "" for octet in ip.split("."))
            return IPv4Network(f"{plain}/{int(length)}", strict=False)
        found = IPv6Network(f"{ip}/{int(length)}", strict=False)
        mapped = IPv6Address(ip).ipv4_mapped
        if mapped is None:
            return found
        return IPv4Network(f"{mapped}/{max(0, int(length) - 96)}", strict=False)
    except ValueError:
        raise BlockError(f"{text!r:.64} is not an address block") from None


def _span(one: Block) -> tuple[int, int]:
    return int(one.network_address), one.prefixlen


def _holds(outer: Block, inner: Block) -> bool:
    return inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def _without(whole: Block, holes: Iterable[Block]) -> list[str]:
    """Return the fewest blocks with the addresses of a block that are in none of the holes, which are sorted."""
    found: list[str] = []
    kind = IPv4Address if whole.version == 4 else IPv6Address
    start = int(whole.network_address)
    for hole in holes:
        first, last = int(hole.network_address), int(hole.broadcast_address)
        if first > start:
            found += map(str, summarize_address_range(kind(start), kind(first - 1)))
        start = max(start, last + 1)
    if start <= int(whole.broadcast_address):
        found += map(str, summarize_address_range(kind(start), whole.broadcast_address))
    return found
