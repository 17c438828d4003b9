"""MAC addresses derived from VNI and IP address.  Pure.

The formula of kos packs a VNI of 21 bits and a private IPv4 address into one MAC, so the result is unique everywhere.
Where VNI or address do not fit, the MAC is a hash. Hashes can collide, so there are several candidates: an attachment
uses the first that is not in use in its Network. All are unicast and locally administered, so no hardware has them.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

from netloom.plan.addresses.blocks import Address

CANDIDATES = 16
"""How many candidates there are; that all of them are in use is practically impossible."""
_PRIVATE = ((0x0A000000, 0xFF000000), (0xAC100000, 0xFFF00000), (0xC0A80000, 0xFFFF0000))


def formula(vni: int, one: Address) -> str:
    """Return the MAC of an address by the formula of kos, or "" where the formula does not fit."""
    number = one.number
    if one.version != 4 or vni >= 1 << 21 or not any(number & mask == base for base, mask in _PRIVATE):
        return ""
    head = ((vni >> 13) & 0xF8) | (((number >> 24) & 2) << 1) | 2
    return _text(head << 40 | (number & 0xFFFFFF) << 16 | vni & 0xFFFF)


def hashed(vni: int, one: Address, attempt: int = 0) -> str:
    """Return a MAC that is a hash of VNI, address and attempt."""
    return digest(f"{vni}/{one.version}/{one.number}/{attempt}")


def digest(seed: str) -> str:
    """Return a MAC that is a hash of a text."""
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=6).digest(), "big")
    return _text(number & ~(0x01 << 40) | (0x02 << 40))


def candidates(vni: int, one: Address) -> Iterator[str]:
    """Return the MACs that an attachment with this first address may have, in order of preference."""
    if fitting := formula(vni, one):
        yield fitting
    yield from islice((hashed(vni, one, attempt) for attempt in range(CANDIDATES)), CANDIDATES - bool(fitting))


def number(mac: str) -> int:
    """Return a MAC as a number, which is the same for every notation of it."""
    return int(mac.replace(":", ""), 16)


def _text(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")
