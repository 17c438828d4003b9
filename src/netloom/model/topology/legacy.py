"""The sandbox JSON of the old platform, and the notation of its link properties.

Teams, access of hosts, and the number of hosts for which a network has room are not converted. What is known of a host
besides its network (its roles, its memory) is kept in `extra`.
"""

import re
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from netloom.model.codec import Spot
from netloom.model.document import Document, Json
from netloom.model.topology.conversion import Converted, OldHost, OldNetwork, OldPort, Written, assemble
from netloom.model.topology.findings import at, shape
from netloom.model.values.scalars import Line, Word, meta

Names = Annotated[tuple[Line, ...], meta(maxItems=1024)]


class LegacySandbox(Struct, frozen=True, kw_only=True):
    """General properties."""

    name: Word = "sandbox"
    document_path: Line = field(name="document path", default="")
    teams: Names = ()
    logical_roles: Names = field(name="logicalRoles", default=())


class LegacyNetwork(Struct, frozen=True, kw_only=True):
    """A network."""

    name: Word
    ip: Word
    prefix: Annotated[int, meta(minimum=0, maximum=128)]
    max_hosts: int = field(name="maxHosts", default=0)


class LegacyNetworks(Struct, frozen=True, kw_only=True):
    """The networks."""

    networks: Annotated[tuple[LegacyNetwork, ...], meta(maxItems=256)] = ()


class LegacyRoute(Struct, frozen=True, kw_only=True):
    """A link between two networks."""

    name: Word = ""
    lan1: Word
    lan2: Word


class LegacyRoutes(Struct, frozen=True, kw_only=True):
    """The links between networks."""

    routes: Annotated[tuple[LegacyRoute, ...], meta(maxItems=4096)] = ()


class LegacyHost(Struct, frozen=True, kw_only=True):
    """A host."""

    name: Word
    lan: Word
    ip: Word = ""
    phys_role: Word = field(name="physRole", default="")
    logical_role: Word = field(name="logicalRole", default="")
    ram: int = 0
    host_interface: Word = field(name="hostInterface", default="")


class LegacyHosts(Struct, frozen=True, kw_only=True):
    """The hosts."""

    hosts: Annotated[tuple[LegacyHost, ...], meta(maxItems=512)] = ()


class LegacyProperties(Struct, frozen=True, kw_only=True):
    """The quality of the link of a host to its network."""

    lan_name: Word = field(name="lanName")
    host_name: Word = field(name="hostName")
    direction: Word = "duplex"
    properties: Line = ""


class LegacyLinks(Struct, frozen=True, kw_only=True):
    """The qualities of links."""

    properties: Annotated[tuple[LegacyProperties, ...], meta(maxItems=1024)] = field(name="linksProperties", default=())


class Legacy(Struct, frozen=True, kw_only=True):
    """A sandbox of the old platform."""

    sandbox: LegacySandbox = LegacySandbox()
    networks: LegacyNetworks
    routes: LegacyRoutes = LegacyRoutes()
    hosts: LegacyHosts = LegacyHosts()
    links: LegacyLinks = field(name="linksProperties", default=LegacyLinks())
    hosts_access: dict[str, Any] | None = field(name="hostsAccess", default=None)


def is_legacy(document: Document) -> bool:
    """Whether a document is a sandbox of the old platform: its lists are in objects of the same name."""
    nested = [(key, document.get(key)) for key in ("networks", "routes", "hosts")]
    return "sandbox" in document or any(isinstance(inner, dict) and key in inner for key, inner in nested)


def convert(document: Document, spot: Spot) -> Converted:
    """Return the topology document of a sandbox JSON.  Changes the document."""
    _, found = shape(document, spot, Legacy, lenient=True)
    if any(not one.is_warning for one in found):
        return Converted(None, findings=found)
    old = msgspec.convert(document, Legacy)

    def written(text: str, path: str) -> Written:
        place = at(spot, path, "")
        return Written(text, Spot(place.line, place.column))

    networks = []
    for i, network in enumerate(old.networks.networks):
        path = f".networks.networks[{i}]"
        networks.append(
            OldNetwork(written(network.name, f"{path}.name"), written(f"{network.ip}/{network.prefix}", f"{path}.ip"))
        )
    hosts = []
    for i, host in enumerate(old.hosts.hosts):
        path = f".hosts.hosts[{i}]"
        port = OldPort(written(host.lan, f"{path}.lan"), written(host.ip, f"{path}.ip"))
        hosts.append(OldHost(written(host.name, f"{path}.name"), (port,), _extra(document["hosts"]["hosts"][i])))
    routes = [
        (written(one.lan1, f".routes.routes[{i}].lan1"), written(one.lan2, f".routes.routes[{i}].lan2"))
        for i, one in enumerate(old.routes.routes)
    ]
    links = []
    for i, one in enumerate(old.links.properties):
        path = f".linksProperties.linksProperties[{i}]"
        quality, unknown = parse_properties(one.properties)
        if unknown:
            found.append(at(spot, f"{path}.properties", f'unknown property "{unknown:.64}": use rate, delay or loss'))
        if one.direction != "duplex":
            message = f'direction "{one.direction:.64}" is not supported: the link gets these properties both ways'
            found.append(at(spot, f"{path}.direction", message, is_warning=True))
        place = at(spot, path, "")
        if quality:
            links.append(({"host": one.host_name, "network": one.lan_name, **quality}, Spot(place.line, place.column)))
    name = written(old.sandbox.name, ".sandbox.name")
    return assemble(name, networks, hosts, routes, found, links)


def _extra(host: Document) -> Document:
    return {key: value for key, value in host.items() if key not in ("name", "lan", "ip")}


_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)")
_UNITS = {"rate": "bit", "burst": "b", "delay": "us", "jitter": "us", "loss": "%"}
"""The properties, and the units of tc for numbers without one."""
_SECONDS = {f"{prefix}sec{plural}": f"{prefix}s" for prefix in ("", "m", "u", "n") for plural in ("", "s")}
_OCTETS = {f"{prefix}bps": f"{prefix}bit" for prefix in ("", "k", "m", "g", "t", "ki", "mi", "gi", "ti")}
"""Units of tc for rates in bytes, each with the unit for bits."""


def parse_properties(text: str) -> tuple[dict[str, Json], str]:
    """Return the quality that the properties of a link describe, as tc writes them, and the first unknown word."""
    words = text.lower().split()
    found: dict[str, Json] = {}
    i = 0
    while i < len(words):
        name = words[i]
        if name not in _UNITS or i + 1 == len(words):
            return found, name
        if words[i : i + 2] == ["loss", "random"] and i + 2 < len(words):
            i += 1
        found[name] = _with_unit(words[i + 1], _UNITS[name])
        i += 2
        # tc writes the jitter behind the delay.
        if name == "delay" and i < len(words) and words[i][0].isdigit():
            found["jitter"] = _with_unit(words[i], _UNITS["jitter"])
            i += 1
    return found, ""


def _with_unit(word: str, unit: str) -> str:
    """Return a quantity of tc in the units of Shapings; one that cannot be read stays as it is, and is refused."""
    parts = _NUMBER.fullmatch(word)
    if parts is None:
        return word
    number, given = parts.groups()
    if unit == "bit" and given in _OCTETS:
        return f"{Decimal(number) * 8:f}{_OCTETS[given]}"
    return number + (_SECONDS.get(given, given) if unit == "us" else given) if given else number + unit
