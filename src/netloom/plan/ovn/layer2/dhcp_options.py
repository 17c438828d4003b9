"""The DHCP options that OVN supports, and the notation of their values.  Pure.

One value that OVN cannot parse makes it drop the whole reply to every host of the Subnet. So values are parsed here
first and converted to OVN's notation; a value that cannot be parsed is reported and ignored. So is one that is longer
than an option can be: OVN would send the lowest byte of its length. Tests compare the names and types with those of
ovn-northd.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

import msgspec

from netloom.model.values import addresses
from netloom.plan.problem import Problem

OPTIONS_V4 = {
    "T1": "uint32",
    "T2": "uint32",
    "arp_cache_timeout": "uint32",
    "bootfile_name": "str",
    "bootfile_name_alt": "str",
    "broadcast_address": "ipv4",
    "classless_static_route": "static_routes",
    "default_ttl": "uint8",
    "dns_server": "ipv4",
    "domain_name": "str",
    "domain_search_list": "domains",
    "ethernet_encap": "bool",
    "hostname": "str",
    "ip_forward_enable": "bool",
    "lease_time": "uint32",
    "log_server": "ipv4",
    "lpr_server": "ipv4",
    "ms_classless_static_route": "static_routes",
    "mtu": "uint16",
    "netbios_name_server": "ipv4",
    "netbios_node_type": "uint8",
    "netmask": "ipv4",
    "next_server": "ipv4",
    "nis_server": "ipv4",
    "ntp_server": "ipv4",
    "path_prefix": "str",
    "policy_filter": "ipv4",
    "router": "ipv4",
    "router_discovery": "bool",
    "router_solicitation": "ipv4",
    "server_id": "ipv4",
    "server_mac": "mac",
    "swap_server": "ipv4",
    "tcp_keepalive_interval": "uint32",
    "tcp_ttl": "uint8",
    "tftp_server": "host_id",
    "tftp_server_address": "ipv4",
    "wpad": "str",
}
"""The type of each option, as OVN names it."""
OPTIONS_V6 = {"dns_server": "ipv6", "domain_search": "str", "server_id": "mac", "dhcpv6_stateless": "flag"}
MANDATORY = {"server_id", "server_mac", "lease_time"}
LONGEST = 255
"""The largest size of a DHCPv4 option, in bytes."""

_DOMAIN = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def written(options: Mapping[str, str], version: int) -> tuple[dict[str, str], list[Problem]]:
    """Return options in OVN's notation, and the problems of the others; an empty value removes an option."""
    known = OPTIONS_V4 if version == 4 else OPTIONS_V6
    good: dict[str, str] = {}
    problems: list[Problem] = []
    for name in sorted(options):
        value, kind = options[name].strip(), known.get(name)
        if kind is None:
            problems.append(Problem("UnknownOption", _unknown(name, version, known)))
            continue
        try:
            good[name] = _WRITERS[kind](value) if value or name in MANDATORY else ""
        except ValueError as error:
            text = f"spec.dhcp.options[{name}]: {value!r} is not {error}; the option is ignored"
            problems.append(Problem("BadOption", text))
    return good, problems


def listed(values: Iterable[str]) -> str:
    """Return one value or several in OVN's notation of a list."""
    every = list(values)
    return every[0] if len(every) == 1 else "{" + ", ".join(every) + "}"


def quoted(text: str) -> str:
    """Return a string in OVN's notation."""
    return msgspec.json.encode(text).decode()


def _unknown(name: str, version: int, known: Mapping[str, str]) -> str:
    said = f"spec.dhcp.options[{name}]: OVN has no such option for IPv{version}"
    if name in OPTIONS_V4 or name in OPTIONS_V6:
        return f"{said}, only for IPv{10 - version}"
    near = get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
    return f"{said}; did you mean {near[0]}?" if near else f"{said}; it has {', '.join(sorted(known))}"


def _parts(value: str) -> list[str]:
    inner = value[1:-1] if value[:1] == "{" and value[-1:] == "}" else value
    found = [part for part in re.split(r"[\s,]+", inner) if part]
    if not found:
        raise ValueError("a list of at least one")
    return found


def _bare(value: str) -> str:
    """Return a string without the quotes of OVN's own tools."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if _UNPRINTABLE.search(value):
        raise ValueError("a printable string")
    _check_length(len(value.encode()))
    return value


def _check_length(size: int) -> None:
    if size > LONGEST:
        raise ValueError(f"short enough: an option has at most {LONGEST} bytes")


def _addresses(version: int) -> Callable[[str], str]:
    def write(value: str) -> str:
        parts = _parts(value)
        if not all(addresses.is_ip(part) and addresses.family(part) == version for part in parts):
            raise ValueError(f"an IPv{version} address, or several separated by commas")
        if version == 4:
            _check_length(4 * len(parts))
        return listed(parts)

    return write


def _number(bits: int) -> Callable[[str], str]:
    def write(value: str) -> str:
        if not value.isascii() or not value.isdecimal() or int(value) >= 1 << bits:
            raise ValueError(f"a whole number from 0 to {(1 << bits) - 1}")
        return str(int(value))

    return write


def _choice(known: Mapping[str, str], what: str) -> Callable[[str], str]:
    def write(value: str) -> str:
        if value.lower() not in known:
            raise ValueError(what)
        return known[value.lower()]

    return write


def _text(value: str) -> str:
    return quoted(_bare(value))


def _domains(value: str) -> str:
    parts = _parts(_bare(value))
    if not all(_DOMAIN.fullmatch(part) for part in parts):
        raise ValueError("a domain name, or several separated by commas")
    _check_length(sum(len(part.rstrip(".")) + 2 for part in parts))
    return quoted(",".join(parts))


def _host(value: str) -> str:
    return value if addresses.is_ipv4(value) else _text(value)


def _mac(value: str) -> str:
    if not _MAC.fullmatch(value):
        raise ValueError("a MAC address")
    return value.lower()


def _routes(value: str) -> str:
    parts = _parts(value)
    pairs = list(zip(parts[::2], parts[1::2], strict=False))
    if len(parts) % 2 or not all(_is_route(to, via) for to, via in pairs):
        raise ValueError("a list of routes such as 10.9.0.0/16,10.0.0.1, 0.0.0.0/0,10.0.0.1")
    _check_length(sum(route_size(to) for to, _ in pairs))
    return routes(pairs)


def route_size(to: str) -> int:
    """Return the size of a route in an option (RFC 3442): prefix length, significant bytes of the prefix, next hop."""
    length = int(to.partition("/")[2] or 32)
    return 1 + (length + 7) // 8 + 4


def _is_route(to: str, via: str) -> bool:
    return addresses.is_ipv4(via) and (addresses.is_ipv4(to) or (":" not in to and addresses.is_cidr(to)))


def routes(pairs: Iterable[tuple[str, str]]) -> str:
    """Return static routes, each a block and a next hop, in OVN's notation."""
    return "{" + ", ".join(f"{to},{via}" for to, via in pairs) + "}"


_WRITERS: dict[str, Callable[[str], str]] = {
    "bool": _choice({"0": "0", "1": "1", "false": "0", "true": "1"}, "0 or 1"),
    "domains": _domains,
    "flag": _choice({"false": "false", "true": "true"}, "true or false"),
    "host_id": _host,
    "ipv4": _addresses(4),
    "ipv6": _addresses(6),
    "mac": _mac,
    "static_routes": _routes,
    "str": _text,
    "uint8": _number(8),
    "uint16": _number(16),
    "uint32": _number(32),
}
