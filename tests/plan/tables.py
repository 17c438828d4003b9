"""An evaluator of the nftables tables that plans return: what happens to the first packet of a connection."""

import hashlib
import ipaddress
from random import Random
from typing import Any

from msgspec import Struct

from netloom.plan.kube.node.nftables import Table, element

ACCEPT, MISMATCH = "", object()


class Packet(Struct, frozen=True):
    """A packet; `device` is where it came in, or in postrouting where it goes out."""

    source: str
    destination: str
    protocol: int
    port: int
    device: str
    local: bool = False


def receive(table: Table, chain: str, packet: Packet, random: Random) -> str:
    """Return the new destination, "drop", "masquerade", or "" for a packet that is left alone."""
    return _chain(table, chain, packet, random) or ACCEPT


def _chain(table: Table, name: str, packet: Packet, random: Random) -> str | None:
    """Return the verdict of a chain, or None if none of its rules has one."""
    for rule in table.chains[name].rules:
        for statement in rule.json:
            [(kind, body)] = statement.items()
            if kind == "match":
                left, right = _value(body["left"], packet, random), body["right"]
                if left is MISMATCH or _equal(table, left, right) is not (body["op"] == "=="):
                    break
            elif kind == "jump":
                if (verdict := _chain(table, body["target"], packet, random)) is not None:
                    return verdict
            elif kind == "vmap":
                found = _look_up(table, body["data"], _value(body["key"], packet, random))
                if found is None:
                    break
                target = found if isinstance(found, str) else f"goto {found['goto']['target']}"
                return "drop" if target == "drop" else _chain(table, target.removeprefix("goto "), packet, random)
            elif kind == "dnat":
                key = _value(body["addr"]["map"]["key"], packet, random)
                wrong_family = (body["family"] == "ip6") != (":" in packet.destination)
                found = None if wrong_family else _look_up(table, body["addr"]["map"]["data"], key)
                if found is None:
                    break
                return str(found)
            else:
                assert kind in ("drop", "masquerade")
                return str(kind)
    return None


def _look_up(table: Table, name: Any, key: Any) -> Any:
    if key is MISMATCH:
        return None
    if isinstance(name, dict):
        return dict(name["set"])[key]
    return table.sets[name.removeprefix("@")].elements.get(key)


def _equal(table: Table, left: Any, right: Any) -> bool:
    if isinstance(right, dict) and "set" in right:
        return left in right["set"]
    if isinstance(right, dict) and "prefix" in right:
        return ipaddress.ip_address(left) in ipaddress.ip_network(f"{right['prefix']['addr']}/{right['prefix']['len']}")
    if not right.startswith("@"):
        return bool(left == right)
    named = table.sets[right.removeprefix("@")]
    if not named.interval:
        return left in named.elements
    *exact, address = left.split(" . ")
    for key in named.elements:
        *same, block = key.split(" . ")
        if same == exact and ipaddress.ip_address(address) in ipaddress.ip_network(block):
            return True
    return False


def _value(expression: Any, packet: Packet, random: Random) -> Any:
    """Return the value of an expression; MISMATCH if the packet has no such field."""
    [(kind, body)] = expression.items()
    if kind == "concat":
        parts = [_value(one, packet, random) for one in body]
        return MISMATCH if MISMATCH in parts else " . ".join(map(str, parts))
    if kind == "meta":
        return packet.protocol if body["key"] == "l4proto" else packet.device
    if kind == "fib":
        return "local" if packet.local else "unicast"
    if kind == "numgen":
        return random.randrange(body["mod"])
    if kind == "jhash":
        of = _value(body["expr"], packet, random)
        return int.from_bytes(hashlib.sha256(str(of).encode()).digest()[:4], "big") % body["mod"]
    assert kind == "payload"
    if body["protocol"] == "th":
        return packet.port
    address = packet.source if body["field"] == "saddr" else packet.destination
    return element(address) if (":" in address) == (body["protocol"] == "ip6") else MISMATCH
