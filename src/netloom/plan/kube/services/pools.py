"""Pools: the addresses outside that an administrator grants to the Services of a cluster.  Pure."""

import re
from typing import NamedTuple

from netloom.errors import Invalid
from netloom.model.schemas.rules import LABEL_PATTERN
from netloom.model.values import addresses
from netloom.plan.addresses.blocks import Address

MOST_POOLS = 64
_NAMESPACE = re.compile(LABEL_PATTERN)


class Pool(NamedTuple):
    """A range of addresses, for the Services of one namespace or of all."""

    namespace: str
    """"": all."""
    version: int
    first: int
    last: int

    def is_for(self, namespace: str) -> bool:
        """Whether Services of a namespace may have its addresses."""
        return self.namespace in ("", namespace)

    def holds(self, one: Address) -> bool:
        """Whether an address is in it."""
        return one.version == self.version and self.first <= one.number <= self.last

    def overlaps(self, other: "Pool") -> bool:
        """Whether two pools have an address in common."""
        return self.version == other.version and self.first <= other.last and other.first <= self.last


def parse(text: str) -> Pool:
    """Return a pool: a block, a range or an address, with `NAMESPACE=` before it for one namespace; else raise."""
    namespace, given, rest = text.rpartition("=")
    if given and not _NAMESPACE.fullmatch(namespace):
        raise Invalid(f"{namespace!r:.64} is not the name of a namespace: write shop=192.0.2.0/28, or 192.0.2.0/28")
    if addresses.is_block(rest):
        block = addresses.block(rest)
        return Pool(namespace, block.version, int(block.network_address), int(block.broadcast_address))
    if addresses.is_range(rest):
        span = addresses.span(rest)
        return Pool(namespace, span.first.version, int(span.first), int(span.last))
    raise Invalid(f"{rest!r:.64} is no pool: write a block, as 192.0.2.0/28, or a range, as 192.0.2.10-192.0.2.20")
