"""The arguments of the operations: which each takes, and how they are checked.

Both old systems are accepted: ryu reads numbers with `int(str(x), 0)`, so that 10, "10" and "0xa" are the same;
evpn-for-ovn has no dpid, and names a logical switch. An error names the argument and what would be valid.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from netloom.errors import BadRequest
from netloom.model import metadata
from netloom.model.document import Document
from netloom.model.schemas.rules import MAC_PATTERN
from netloom.model.values import addresses

_NUMBER_LENGTH = 32
_NUMBER_BITS = 128
_SHOWN = 64
_PORT_LENGTH = 1024
_MAC = re.compile(MAC_PATTERN)


class Field(Struct, frozen=True):
    """One argument: its check, which returns the value to use, and its schema for OpenAPI."""

    check: Callable[[str, Any], Any]
    schema: Document
    required: bool = True


def shown(value: object) -> str:
    """Return a client's value for a message, shortened."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def integer(name: str, value: object) -> int:
    """Return a number, or the number in a text: decimal, or with 0x, 0o or 0b."""
    # Bounds on the length: converting a number to text and back takes quadratic time.
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _NUMBER_BITS:
        return value
    if isinstance(value, str) and len(value) <= _NUMBER_LENGTH:
        with suppress(ValueError):
            return int(value, 0)
    raise BadRequest(f"{name} must be an integer, such as 10 or 0x0a")


def _between(least: int, most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: object) -> int:
        number = integer(name, value)
        if not least <= number <= most:
            raise BadRequest(f"{name} must be from {least} to {most}")
        return number

    return check


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string")
    return value


def _router_id(name: str, value: object) -> str:
    text = _text(name, value)
    if not addresses.is_ipv4(text) or text == "0.0.0.0":  # noqa: S104  # not an address to bind to
        raise BadRequest(f"{name} must be an IPv4 address, such as 192.0.2.1, not {shown(text)!r}")
    return text


def address(name: str, value: object) -> str:
    """Return an IP address in its canonical form."""
    text = _text(name, value)
    if len(text) > _SHOWN or not addresses.is_ip(text):
        raise BadRequest(f"{name} must be an IP address, such as 192.0.2.1, not {shown(text)!r}")
    return str(addresses.address(text))


def mac(name: str, value: object) -> str:
    """Return a MAC address in lower case."""
    text = _text(name, value)
    if not _MAC.fullmatch(text) or not text.strip("0:"):
        raise BadRequest(f"{name} must be a unicast MAC address, such as 02:ac:10:ff:00:11, not {shown(text)!r}")
    return text.lower()


def _object_name(name: str, value: object) -> str:
    text = _text(name, value)
    if not metadata.is_name(text):
        raise BadRequest(f"{name} {metadata.NAME}")
    return text


def _network_id(name: str, value: object) -> str:
    return _object_name(name, f"neutron-{_text(name, value)}")


def _port(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadRequest(f"{name} must be the name or the number of a port")
    text = value if isinstance(value, str) else str(_between(0, 2**32 - 1)(name, value))
    if not 0 < len(text) <= _PORT_LENGTH or not text.isprintable():
        raise BadRequest(f"{name} must have 1 to {_PORT_LENGTH} printable characters")
    return text


def _as_given(name: str, value: object) -> str:
    """Return a value of the path unchecked: no object has an invalid one, which is answered with 404."""
    return _text(name, value)


def _number(least: int, most: int, description: str, *, required: bool = True) -> Field:
    """Return an argument that is a number in a range."""
    schema = [{"type": "integer", "minimum": least, "maximum": most}, {"type": "string"}]
    return Field(_between(least, most), {"oneOf": schema, "description": description}, required)


_STRING: Document = {"type": "string"}
_AS = _number(1, 2**32 - 1, "The number of an autonomous system.")
_PORT: Document = {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, {"type": "string"}]}
_IN_PATH = {
    "vni": Field(integer, {"type": "string", "description": "The VNI."}),
    "address": Field(_as_given, {"type": "string", "description": "The address of the neighbor."}),
    "mac": Field(_as_given, {"type": "string", "description": "The MAC address of the client."}),
}


def _optional(name: str) -> dict[str, Field]:
    return {name: Field(_IN_PATH[name].check, _IN_PATH[name].schema, required=False)}


ARGUMENTS: Mapping[str, Mapping[str, Field]] = {
    "add_speaker": {
        "as_number": _AS,
        "router_id": Field(_router_id, {**_STRING, "description": "The BGP identifier and address of the VTEP."}),
        "dpid": _number(0, 2**64 - 1, "The datapath ID of the switch.", required=False),
    },
    "get_speaker": {},
    "del_speaker": {},
    "add_neighbor": {
        "address": Field(address, {**_STRING, "description": "The address of the neighbor."}),
        "remote_as": _AS,
    },
    "get_neighbors": _optional("address"),
    "del_neighbor": {"address": _IN_PATH["address"]},
    "add_network": {
        "vni": _number(1, 2**24 - 1, "The VNI between sites."),
        "logical_switch": Field(_object_name, {**_STRING, "description": "The Network to extend."}, required=False),
        "network_id": Field(
            _network_id, {**_STRING, "description": "Extends the Network neutron-NETWORK_ID."}, required=False
        ),
    },
    "get_networks": _optional("vni"),
    "del_network": {"vni": _IN_PATH["vni"]},
    "add_client": {
        "vni": _IN_PATH["vni"],
        "port": Field(_port, {**_PORT, "description": "The name or the number of the client's port."}),
        "mac": Field(mac, {**_STRING, "description": "The MAC address of the client."}),
        "ip": Field(address, {**_STRING, "description": "The IP address of the client."}),
    },
    "del_client": {"vni": _IN_PATH["vni"], "mac": _IN_PATH["mac"]},
}
"""The arguments of each operation."""


def checked(operation: str, given: object) -> dict[str, Any]:
    """Return the arguments of an operation; raise `BadRequest` if one is missing, unknown or invalid."""
    if not isinstance(given, dict):
        raise BadRequest("the body must be a JSON object")
    fields = ARGUMENTS[operation]
    for name in fields:
        if fields[name].required and given.get(name) is None:
            raise BadRequest(f"{name} not specified")
    for name in given:
        if name not in fields:
            known = ", ".join(fields)
            raise BadRequest(
                f"unknown key {shown(name)!r}: " + (f"use {known}" if known else "this request takes no argument")
            )
    return {name: fields[name].check(name, value) for name, value in given.items()}
