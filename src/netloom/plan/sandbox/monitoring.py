"""The monitoring targets of a topology as single checks: an address, and what must answer there.  Pure.

An interface `ethN` is the link of that number; other names are those of another platform's images, and stand for the
first link. A block stands for the machine's address in it.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from msgspec import Struct

from netloom.model.kinds.sandbox import Topology
from netloom.model.values import addresses

_ETH = re.compile(r"eth([0-9]{1,4})")


class Check(Struct, frozen=True, kw_only=True):
    """One target."""

    name: str
    """As `tcp server 10.0.0.5:22`."""
    address: str = ""
    """"": no machine of the topology has it."""
    port: int = 0
    """0: it must answer a ping."""
    url: str = ""
    """The page that must be served there."""
    text: str = ""
    """What the page must contain."""


def checks(topology: Topology) -> Iterator[Check]:
    """Yield the checks of a topology's monitoring targets."""
    monitoring = topology.monitoring_targets
    if monitoring is None:
        return
    links: dict[str, list[str]] = {}
    for link in topology.net_mappings:
        links.setdefault(link.host, []).append(link.ip)
    for mapping in topology.router_mappings:
        links.setdefault(mapping.router, []).append(mapping.ip)
    for icmp in monitoring.icmp:
        for ping in icmp.targets:
            ip = _address(links.get(icmp.node, []), ping.interface, ping.address)
            yield Check(name=f"icmp {icmp.node} {ip or ping.interface or ping.address}", address=ip)
    for tcp in monitoring.tcp:
        for connection in tcp.targets:
            ip = _address(links.get(tcp.node, []), connection.interface, connection.address)
            shown = f"tcp {tcp.node} {_joined(ip or connection.interface or connection.address, connection.port)}"
            yield Check(name=shown, address=ip, port=connection.port)
    for page in monitoring.http.targets if monitoring.http is not None else ():
        yield _page(page.url, page.check_string, links)


def _page(url: str, text: str, links: dict[str, list[str]]) -> Check:
    name = f"http {url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return Check(name=name, url=url, text=text)
    every = {ip for ips in links.values() for ip in ips}
    # The names of hosts have capitals, and those in a URL do not.
    named = {machine.lower(): ips[0] for machine, ips in links.items()}
    ip = host if host in every else named.get(host, "")
    return Check(name=name, address=ip, port=port, url=url, text=text)


def _address(ips: list[str], interface: str, given: str) -> str:
    if addresses.is_ip(given):
        return given
    if addresses.is_cidr(given):
        return next((ip for ip in ips if addresses.is_ip(ip) and addresses.within(ip, given)), "")
    numbered = _ETH.fullmatch(interface)
    position = int(numbered[1]) if numbered else 0
    return ips[position] if position < len(ips) else ""


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
