"""Addresses as numbers: sets of them, the pool of a Subnet, and the names of locks.  Pure.

The cost of every operation depends on the number of addresses in use, not on the size of the block: a /64 is two
numbers.

In a block of five addresses or more the first two (network, gateway) and the last (broadcast) are never chosen; a
smaller block is used completely. This rule and the names of locks are those of kos. The gateway and the addresses that
the Subnet excludes are never allocated either, wherever they are in the block. The second address of a block whose
gateway is another one is allocated to an attachment that requests it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from msgspec import Struct

from netloom.model.values import addresses
from netloom.plan.problem import Problem

Span = tuple[int, int]
"""The first and the last address of a range."""
Block = IPv4Network | IPv6Network
MOST = 2**53 - 1
"""The greatest integer that every reader of JSON keeps; a /64 has more addresses than that."""


class Address(NamedTuple):
    """One address."""

    version: int
    number: int

    def __str__(self) -> str:
        return text(self)


def address(written: str) -> Address | None:
    """Parse an address; return None if it is malformed.  As in the API, an IPv4-mapped IPv6 address is malformed."""
    if addresses.is_ipv4(written):
        return Address(4, int.from_bytes(map(int, written.split(".")), "big"))
    try:
        return Address(6, int(addresses.address(written)))
    except ValueError:
        return None


def text(one: Address) -> str:
    """Return an address in its usual notation."""
    if one.version == 4:
        number = one.number
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return str(IPv6Address(one.number))


def lock_name(vni: int, one: Address) -> str:
    """Return the name of an address's lock.  Names are unique for VNI and address, so no address is allocated twice."""
    if one.version == 4:
        return f"v1-{vni}-{text(one).replace('.', '-')}"
    groups = ((one.number >> shift) & 0xFFFF for shift in range(112, -1, -16))
    return f"v1-{vni}-{'-'.join(f'{group:x}' for group in groups)}"


def vni_lock_name(vni: int) -> str:
    """Return the name of a VNI's lock."""
    return f"vni-{vni}"


class AddressSet:
    """A set of numbers, stored as sorted, disjoint runs; no two runs are adjacent."""

    __slots__ = ("_firsts", "_lasts", "_size")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._size = 0
        for number in numbers:
            self.add(number)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs():
            yield from range(first, last + 1)

    def runs(self) -> list[Span]:
        """Return the runs, in order."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def add(self, number: int) -> bool:
        """Add a number; return False if the set had it."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, number)
        if at and number <= lasts[at - 1]:
            return False
        before = at > 0 and lasts[at - 1] == number - 1
        behind = at < len(firsts) and firsts[at] == number + 1
        if before and behind:
            lasts[at - 1] = lasts.pop(at)
            del firsts[at]
        elif before:
            lasts[at - 1] = number
        elif behind:
            firsts[at] = number
        else:
            firsts.insert(at, number)
            lasts.insert(at, number)
        self._size += 1
        return True

    def discard(self, number: int) -> bool:
        """Remove a number; return False if the set did not have it."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, number) - 1
        if at < 0 or number > lasts[at]:
            return False
        first, last = firsts[at], lasts[at]
        if first == last:
            del firsts[at], lasts[at]
        elif number == first:
            firsts[at] = number + 1
        elif number == last:
            lasts[at] = number - 1
        else:
            lasts[at] = number - 1
            firsts.insert(at + 1, number + 1)
            lasts.insert(at + 1, last)
        self._size -= 1
        return True

    def count(self, first: int, last: int) -> int:
        """Return how many numbers of this set are in a range."""
        firsts, lasts = self._firsts, self._lasts
        found = 0
        for at in range(bisect_left(lasts, first), bisect_right(firsts, last)):
            found += min(last, lasts[at]) - max(first, firsts[at]) + 1
        return found

    def gap(self, first: int, last: int) -> int | None:
        """Return the first number of a range that is not in this set, or None."""
        at = bisect_right(self._firsts, first) - 1
        if at >= 0 and first <= self._lasts[at]:
            first = self._lasts[at] + 1  # Runs are not adjacent: the number after a run is free.
        return first if first <= last else None


NO_ADDRESSES = AddressSet()


class Pool(Struct, frozen=True):
    """The addresses of one Subnet."""

    name: str
    network: str
    version: int
    first: int
    last: int
    """The first and the last address of the block."""
    prefix: int
    ranges: tuple[Span, ...]
    """The addresses that can be allocated, in order."""
    gateway: int | None
    excluded: tuple[Span, ...]
    validated: bool = True
    errors: tuple[str, ...] = ()
    cidr: str = ""
    reserved: AddressSet = NO_ADDRESSES
    """The addresses that other objects reserve without a lock: they count as used, and are never chosen."""

    def holds(self, one: Address) -> bool:
        """Whether an address is in the block."""
        return one.version == self.version and self.first <= one.number <= self.last

    def refusal(self, one: Address) -> Problem | None:
        """Return why an address of the block is never allocated; None if it can be."""
        number = one.number
        if number == self.gateway:
            return Problem("Reserved", f"{one} is the gateway of Subnet {self.name}")
        if self.last - self.first >= 4 and number in (self.first, self.last):
            what = "broadcast" if number == self.last else "network"
            text = f"{one} is reserved in Subnet {self.name}: it is the {what} address of {self.cidr}"
            return Problem("Reserved", text)
        if any(low <= number <= high for low, high in self.excluded):
            return Problem("Excluded", f"{one} is excluded by Subnet {self.name}")
        return None

    def may_choose(self, one: Address) -> bool:
        """Whether an address of the block may be allocated to an attachment that did not request it."""
        return any(low <= one.number <= high for low, high in self.ranges) and one.number not in self.reserved

    def capacity(self) -> int:
        """Return how many addresses can be allocated at most."""
        return sum(high - low + 1 for low, high in self.ranges)

    def used(self, taken: AddressSet) -> int:
        """Return how many of the addresses that can be allocated are taken or reserved."""
        found = sum(taken.count(low, high) for low, high in self.ranges)
        if self.reserved:
            others = (number for number in self.reserved if number not in taken)
            found += sum(any(low <= number <= high for low, high in self.ranges) for number in others)
        return found

    def free(self, taken: AddressSet) -> int:
        """Return how many addresses are free."""
        return self.capacity() - self.used(taken)

    def choose(self, taken: AddressSet, cursor: int = 0) -> int | None:
        """Return the first free address at or after the cursor, else the first free one; None if the pool is full."""
        for low, high in self.ranges:
            if high >= cursor and (found := self._gap(taken, max(low, cursor), high)) is not None:
                return found
        for low, high in self.ranges:
            if low >= cursor:
                break
            if (found := self._gap(taken, low, min(high, cursor - 1))) is not None:
                return found
        return None

    def _gap(self, taken: AddressSet, first: int, last: int) -> int | None:
        """Return the first number of a range that is neither taken nor reserved, or None."""
        found = taken.gap(first, last)
        while found is not None and found in self.reserved:
            beyond = self.reserved.gap(found, last)
            found = taken.gap(beyond, last) if beyond is not None else None
        return found


def usable(base: int, last: int) -> Span:
    """Return the first and the last address of a block that can be allocated, before exclusions."""
    return (base + 2, last - 1) if last - base >= 4 else (base, last)


def default_gateway(base: int, last: int) -> int | None:
    """Return the first host address; None for a block of one or two addresses, which has no gateway."""
    return base + 1 if last - base >= 2 else None


def pool(
    name: str,
    network: str,
    cidr: str,
    *,
    gateway: str = "",
    exclude: Sequence[str] = (),
    validated: bool = True,
    errors: tuple[str, ...] = (),
) -> Pool:
    """Return a Subnet's pool; bits of the CIDR behind the prefix do not count.  Raises ValueError."""
    within = block(cidr)
    base, last = int(within.network_address), int(within.broadcast_address)
    way_out = int(ip_address(gateway)) if gateway else default_gateway(base, last)
    excluded = tuple(sorted(found for one in exclude if (found := span(one, within.version)) is not None))
    holes = list(excluded)
    if way_out is not None:
        holes.append((way_out, way_out))
    return Pool(
        name=name,
        network=network,
        version=within.version,
        first=base,
        last=last,
        prefix=within.prefixlen,
        ranges=tuple(without(usable(base, last), holes)),
        gateway=way_out,
        excluded=excluded,
        validated=validated,
        errors=errors,
        cidr=cidr,
    )


def block(cidr: str) -> Block:
    """Return the block of a CIDR; bits behind the prefix do not count.  Raises ValueError."""
    return ip_network(cidr, strict=False)


def overlap(one: Block, other: Block) -> bool:
    """Whether two blocks have an address in common."""
    return one.version == other.version and one.overlaps(other)


def capacity(within: Block, gateway: str, exclude: Iterable[str]) -> int:
    """Return how many addresses of a block can be allocated, at most `MOST`."""
    return min(MOST, pool("", "", str(within), gateway=gateway, exclude=tuple(exclude)).capacity())


def span(written: str, version: int) -> Span | None:
    """Return a range `FIRST-LAST`, or one address, as numbers; None if it is of another family."""
    low, _, high = written.partition("-")
    ends = ip_address(low.strip()), ip_address((high or low).strip())
    if not ends[0].version == ends[1].version == version:
        return None
    first, last = sorted(map(int, ends))
    return first, last


def without(whole: Span, holes: Iterable[Span]) -> Iterator[Span]:
    """Return the parts of a range that are in none of `holes`, in order."""
    position, last = whole
    for low, high in sorted(holes):
        if low > last:
            break
        if low > position:
            yield position, low - 1
        position = max(position, high + 1)
    if position <= last:
        yield position, last
