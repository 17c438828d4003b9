"""Decodes what `nft -j list table` prints.

Output that is not understood is no error: it differs from what is desired, and is replaced.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from netloom.plan.kube.node.nftables import Chain, Hook, Json, NamedSet, atom

Declared = tuple[Json, ...]


@dataclass(slots=True)
class SeenChain:
    """A chain as it is."""

    hook: Hook | None
    rules: list[Json] = field(default_factory=list)

    def form(self) -> tuple[Json, ...]:
        """Return what is compared."""
        return (self.hook, tuple(frozen(one) for one in self.rules))


@dataclass(slots=True)
class SeenSet:
    """A set or map as it is."""

    declaration: Declared
    elements: dict[str, str]


@dataclass(slots=True)
class SeenTable:
    """A table as it is."""

    sets: dict[str, SeenSet] = field(default_factory=dict)
    chains: dict[str, SeenChain] = field(default_factory=dict)
    other: bool = False
    """Whether there is something in it that no plan of ours has."""


def form(chain: Chain) -> tuple[Json, ...]:
    """Return the same of a planned chain as `SeenChain.form`."""
    return (chain.hook, tuple(frozen(list(one.json)) for one in chain.rules))


def declaration(one: NamedSet) -> Declared:
    """Return the same of a planned set as `SeenSet.declaration`."""
    key, data, interval = one.declaration
    return (tuple(key), data, interval)


def frozen(value: Json) -> Json:
    """Return a value that can be compared whatever the order of its keys."""
    if isinstance(value, Mapping):
        return frozenset((key, frozen(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return value


def table(listed: Mapping[str, Any], name: str) -> SeenTable:
    """Decode a listing of a table of family inet."""
    found = SeenTable()
    for entry in listed.get("nftables", ()):
        for kind, body in entry.items():
            if body.get("family") != "inet" or name not in (body.get("table"), body.get("name")):
                continue
            _take(found, kind, body)
    return found


def _take(found: SeenTable, kind: str, body: Mapping[str, Any]) -> None:
    match kind:
        case "table":
            found.other |= bool(body.get("flags"))  # A dormant table does nothing.
        case "chain":
            hook = Hook(body["type"], body["hook"], body["prio"]) if "hook" in body else None
            found.chains[body["name"]] = SeenChain(hook)
            found.other |= "hook" in body and body.get("policy", "accept") != "accept"
        case "rule":
            found.chains.setdefault(body["chain"], SeenChain(None)).rules.append(list(body.get("expr", ())))
        case "set" | "map":
            found.sets[body["name"]] = SeenSet(_declaration(body), dict(_elements(body.get("elem", ()))))
        case _:
            found.other = True


def _declaration(body: Mapping[str, Any]) -> Declared:
    key = body.get("type", ())
    flags = set(body.get("flags", ()))
    rest = tuple(sorted(flags - {"interval"}))
    declared: Declared = (
        (key,) if isinstance(key, str) else tuple(key),
        body.get("map", ""),
        "interval" in flags,
    )
    return (*declared, rest) if rest else declared


def _elements(listed: Iterable[Json]) -> Iterable[tuple[str, str]]:
    for one in listed:
        if isinstance(one, list) and len(one) == 2:
            yield _text(one[0]), _text(one[1])
        else:
            yield _text(one), ""


def _text(value: Json) -> str:
    """Return the canonical text of a key or value."""
    match value:
        case str() | int():
            return atom(value)
        case {"concat": [*parts]}:
            return " . ".join(map(_text, parts))
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return atom(f"{address}/{length}")
        case {"range": [str(first), str(last)]}:
            return _range(first, last)
        case {"goto": {"target": str(target)}}:
            return f"goto {target}"
        case {"drop": None}:
            return "drop"
        case {"elem": {"val": inner}}:
            return _text(inner)
        case _:
            return repr(value)


def _range(first: str, last: str) -> str:
    try:
        blocks = list(ipaddress.summarize_address_range(ipaddress.ip_address(first), ipaddress.ip_address(last)))
    except (TypeError, ValueError):
        return f"{first}-{last}"
    return atom(str(blocks[0])) if len(blocks) == 1 else f"{first}-{last}"
