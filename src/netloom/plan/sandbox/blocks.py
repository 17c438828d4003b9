"""Addresses as numbers, and values by address block: quick to look up, a hundred thousand times.  Pure."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Generic, NamedTuple, TypeVar

from netloom.model.values import addresses

T = TypeVar("T")


class Ip(NamedTuple):
    """An address as a number, which is quick to look up."""

    version: int
    number: int

    def __str__(self) -> str:
        """Return it as text."""
        return str(IPv6Address(self.number) if self.version == 6 else IPv4Address(self.number))


def ip_of(text: str) -> Ip:
    """Return an address, which may have a prefix length."""
    found = addresses.address(text.partition("/")[0])
    return Ip(found.version, int(found))


class Blocks(Generic[T]):
    """Values by address block; the longest block that contains an address has precedence."""

    def __init__(self) -> None:
        self._by_length: dict[tuple[int, int], dict[int, T]] = {}
        self._shifts: dict[int, list[tuple[int, dict[int, T]]]] = {}

    def add(self, cidr: str, value: T) -> None:
        """Add a block, unless it has a value already."""
        net = addresses.interface(cidr).network
        bits = net.max_prefixlen - net.prefixlen
        self._by_length.setdefault((net.version, bits), {}).setdefault(int(net.network_address) >> bits, value)
        self._shifts = {}

    def find(self, ip: Ip) -> T | None:
        """Return the value of the longest block that contains an address."""
        if not self._shifts:
            for (version, bits), table in sorted(self._by_length.items()):
                self._shifts.setdefault(version, []).append((bits, table))
        for bits, table in self._shifts.get(ip.version, ()):
            found = table.get(ip.number >> bits)
            if found is not None:
                return found
        return None


def containing(blocks: Iterable[str]) -> Callable[[Ip], bool]:
    """Return whether an address is in one of some blocks, as a function."""
    table = Blocks[bool]()
    for one in blocks:
        if addresses.is_cidr(one):
            table.add(one, True)
    return lambda ip: table.find(ip) is not None
