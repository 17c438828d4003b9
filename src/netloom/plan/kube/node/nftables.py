"""An nftables table as a value: what a plan returns, and what a driver reads back and compares.  Pure.

A rule has two forms: the text that nft reads, and the JSON that `nft -j` prints for it. The text is written, because it
can be read by people when nft refuses it. The JSON is compared, because its format is versioned. The functions below
build both at once, so that they cannot differ.

Sets have plain types. Their declaration by `typeof` would allow a random number as a part of a key, but nft 1.0.6 does
not read all such declarations back from the kernel.

Elements of sets and maps have one canonical text each: numbers of protocols instead of names, addresses as Python
writes them, a single address without a prefix length.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

PROTOCOLS: Mapping[str, int] = {"tcp": 6, "udp": 17, "sctp": 132}
Json = Any


class Expression(NamedTuple):
    """A part of a rule."""

    text: str
    json: Json


class Rule(NamedTuple):
    """A rule."""

    text: str
    json: tuple[Json, ...]


class Hook(NamedTuple):
    """Where packets enter a chain."""

    type: str
    hook: str
    priority: int


class Chain(Struct, frozen=True):
    """A chain: its rules, in order."""

    rules: tuple[Rule, ...] = ()
    hook: Hook | None = None
    """None: only other chains lead to it."""


class NamedSet(Struct, frozen=True, kw_only=True):
    """A set, or with `data` a map, and its elements."""

    key: tuple[str, ...]
    """The types of the parts of a key."""
    data: tuple[str, ...] = ()
    """The types of the parts of a value; (): a set."""
    interval: bool = False
    """Whether elements may be address blocks."""
    elements: Mapping[str, str] = {}
    """Keys and values; the values of a set are ""."""

    @property
    def declaration(self) -> tuple[Json, ...]:
        """What `nft -j` prints of it, besides its elements."""
        return (self.key, " . ".join(self.data), self.interval)


class Table(Struct, frozen=True):
    """A table: its sets and chains, by name."""

    sets: Mapping[str, NamedSet]
    chains: Mapping[str, Chain]


VERDICT = ("verdict",)
PROTOCOL_TYPE, PORT_TYPE = "inet_proto", "inet_service"


def address_type(family: int) -> str:
    """Return the type of addresses."""
    return f"ipv{family}_addr"


def payload(protocol: str, field: str) -> Expression:
    """Return a field of a packet's header."""
    return Expression(f"{protocol} {field}", {"payload": {"protocol": protocol, "field": field}})


def meta(key: str) -> Expression:
    """Return a property of a packet."""
    return Expression(key if key.endswith("ifname") else f"meta {key}", {"meta": {"key": key}})


def constant(value: str) -> Expression:
    """Return a name."""
    return Expression(value, value)


def device(*names: str) -> Expression:
    """Return one of some devices."""
    quoted = [f'"{name}"' for name in names]
    if len(names) == 1:
        return Expression(quoted[0], names[0])
    return Expression(f"{{ {', '.join(quoted)} }}", {"set": list(names)})


def named(name: str) -> Expression:
    """Return the elements of a set."""
    return Expression(f"@{name}", f"@{name}")


def block(text: str) -> Expression:
    """Return an address, or a block of addresses."""
    address, _, length = text.partition("/")
    return Expression(text, {"prefix": {"addr": address, "len": int(length)}} if length else address)


def joined(*parts: Expression) -> Expression:
    """Return a concatenation."""
    return Expression(" . ".join(part.text for part in parts), {"concat": [part.json for part in parts]})


def random(modulus: int) -> Expression:
    """Return a random number below a modulus."""
    return Expression(f"numgen random mod {modulus}", {"numgen": {"mode": "random", "mod": modulus, "offset": 0}})


def hashed(of: Expression, modulus: int, seed: int) -> Expression:
    """Return the hash of an expression, below a modulus."""
    return Expression(
        f"jhash {of.text} mod {modulus} seed {seed:#x}", {"jhash": {"mod": modulus, "seed": seed, "expr": of.json}}
    )


def equal(left: Expression, right: Expression) -> Expression:
    """Return the condition that two expressions are equal, or that the left one is in a set."""
    return Expression(f"{left.text} {right.text}", {"match": {"op": "==", "left": left.json, "right": right.json}})


def differs(left: Expression, right: Expression) -> Expression:
    """Return the opposite of `equal`."""
    return Expression(f"{left.text} != {right.text}", {"match": {"op": "!=", "left": left.json, "right": right.json}})


def verdict(key: Expression, name: str) -> Expression:
    """Return the statement that a map says what happens next."""
    return Expression(f"{key.text} vmap @{name}", {"vmap": {"key": key.json, "data": f"@{name}"}})


def choice(number: Expression, chains: Iterable[str]) -> Expression:
    """Return the statement that continues in the chain with a number."""
    pairs = list(enumerate(chains))
    text = ", ".join(f"{index} : goto {chain}" for index, chain in pairs)
    data = {"set": [[index, {"goto": {"target": chain}}] for index, chain in pairs]}
    return Expression(f"{number.text} vmap {{ {text} }}", {"vmap": {"key": number.json, "data": data}})


def destination(protocol: str, key: Expression, name: str) -> Expression:
    """Return the statement that a map has the new destination address and port."""
    translated = {"family": protocol, "addr": {"map": {"key": key.json, "data": f"@{name}"}}}
    return Expression(f"dnat {protocol} to {key.text} map @{name}", {"dnat": translated})


def jump(chain: str) -> Expression:
    """Return the statement that another chain is evaluated."""
    return Expression(f"jump {chain}", {"jump": {"target": chain}})


DROP = Expression("drop", {"drop": None})
MASQUERADE = Expression("masquerade fully-random", {"masquerade": {"flags": "fully-random"}})


def rule(*statements: Expression) -> Rule:
    """Return a rule."""
    return Rule(" ".join(one.text for one in statements), tuple(one.json for one in statements))


def element(*parts: str | int) -> str:
    """Return the canonical text of a key or value."""
    return " . ".join(map(atom, parts))


@lru_cache(maxsize=65536)
def atom(part: str | int) -> str:
    """Return the canonical text of a part of an element: a number, a protocol, an address, or a block."""
    if isinstance(part, int):
        return str(part)
    if part in PROTOCOLS:
        return str(PROTOCOLS[part])
    try:
        found = ipaddress.ip_network(part)
    except ValueError:
        return part
    return str(found.network_address) if found.prefixlen == found.max_prefixlen else str(found)


def disjoint(blocks: Iterable[str]) -> list[str]:
    """Return the same addresses in the fewest blocks, of which none overlap: a set of intervals takes no others."""
    blocks = list(blocks)
    if len(blocks) == 1:
        return [str(ipaddress.ip_network(blocks[0]))]
    networks = [ipaddress.ip_network(one) for one in blocks]
    v4 = [one for one in networks if isinstance(one, ipaddress.IPv4Network)]
    v6 = [one for one in networks if isinstance(one, ipaddress.IPv6Network)]
    return [str(one) for one in (*ipaddress.collapse_addresses(v4), *ipaddress.collapse_addresses(v6))]
