"""Names and numbers of the backend `linux`: devices, MAC addresses and VNIs.  Pure.

All of them follow from the namespace and name of the Sandbox and from the part of the topology, so that every plan of
the same Sandbox has the same ones, on any machine and without a store. Of two parts that lead to the same name or
number, the first in order has it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2s
from types import MappingProxyType

LONGEST_DEVICE = 15
LONGEST_OWNER = 120
FIRST_VNI = 4096
"""Lower numbers are those that people choose by hand."""
VNIS = 2**24
_UNFIT = re.compile(r"[^A-Za-z0-9-]+")

Key = tuple[str, ...]


def owner(namespace: str, name: str) -> str:
    """Return the owner of what a Sandbox has on a host, as its state file is named."""
    plain = f"{namespace or 'default'}.{name}"
    return plain if len(plain) <= LONGEST_OWNER else f"{plain[: LONGEST_OWNER - 17]}-{_digest((plain,), 0, 8).hex()}"


def devices(prefix: str, keys: Iterable[Key]) -> dict[Key, str]:
    """Return the name of a device for each part, made of its first two words, at most 15 characters, all different."""
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for key in sorted(set(keys)):
        plain = prefix + _UNFIT.sub("-", "-".join(key[:2]))
        name, attempt = plain, 0
        while name in taken or len(name) > LONGEST_DEVICE:
            digest = _digest(key, attempt, 3).hex()
            name = f"{plain[: LONGEST_DEVICE - len(digest) - 1]}-{digest}"
            attempt += 1
        names[key] = name
        taken.add(name)
    return names


def macs(sandbox: str, keys: Iterable[Key], given: Mapping[Key, str] = MappingProxyType({})) -> dict[Key, str]:
    """Return a locally administered MAC address for each interface, or the one that is given; no two of them equal."""
    found: dict[Key, str] = dict(given)
    taken: set[str] = set(given.values())
    for key in sorted(set(keys)):
        attempt = 0
        while key not in found:
            mac = ":".join(f"{octet:02x}" for octet in (2, *_digest((sandbox, *key), attempt, 5)))
            if mac not in taken:
                found[key] = mac
                taken.add(mac)
            attempt += 1
    return found


def vnis(sandbox: str, networks: Iterable[str], avoid: Collection[int]) -> dict[str, int]:
    """Return a VNI for each network, none that others use."""
    found: dict[str, int] = {}
    taken = set(avoid)
    for network in sorted(set(networks)):
        attempt = 0
        while network not in found:
            number = FIRST_VNI + int.from_bytes(_digest((sandbox, network), attempt, 8)) % (VNIS - FIRST_VNI)
            if number not in taken:
                found[network] = number
                taken.add(number)
            attempt += 1
    return found


def _digest(key: Key, attempt: int, size: int) -> bytes:
    return blake2s("\0".join((*key, str(attempt))).encode(), digest_size=size).digest()
