"""MAC addresses made of VNI and address.  Pure.

kos's formula packs a VNI of 21 bits and a private IPv4 address into one MAC: no two of them share one, anywhere. What
does not fit gets a hash; there the candidates after the first are for whoever finds the first taken in its Network.
All are unicast and locally administered, so they are nobody's hardware.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

from netloom.plan.addresses.blocks import Address

CANDIDATES = 16
"""How many are tried; that all are taken happens to nobody."""
_PRIVATE = ((0x0A000000, 0xFF000000), (0xAC100000, 0xFFF00000), (0xC0A80000, 0xFFFF0000))


def formula(vni: int, one: Address) -> str:
    """Return kos's MAC of an address, or "" where the formula does not fit."""
    number = one.number
    if one.version != 4 or vni >= 1 << 21 or not any(number & mask == base for base, mask in _PRIVATE):
        return ""
    head = ((vni >> 13) & 0xF8) | (((number >> 24) & 2) << 1) | 2
    return _text(head << 40 | (number & 0xFFFFFF) << 16 | vni & 0xFFFF)


def hashed(vni: int, one: Address, attempt: int = 0) -> str:
    """Return a MAC that VNI, address and attempt decide."""
    seed = f"{vni}/{one.version}/{one.number}/{attempt}".encode()
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=6).digest(), "big")
    return _text(number & ~(0x01 << 40) | (0x02 << 40))


def candidates(vni: int, one: Address) -> Iterator[str]:
    """Give the MACs an attachment with this first address may have, the best first."""
    if fitting := formula(vni, one):
        yield fitting
    yield from islice((hashed(vni, one, attempt) for attempt in range(CANDIDATES)), CANDIDATES - bool(fitting))


def number(mac: str) -> int:
    """Return a MAC as a number: what two ways of writing it have in common."""
    return int(mac.replace(":", ""), 16)


def _text(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")
