"""What hosts have of a Sandbox, as an input of its next plan on the backend `linux`.  Pure.

The documents on the hosts are all that is recorded: machines stay where these say that they are. Of a host that does
not answer, the documents of others know the MAC addresses behind it. What hosts say is not trusted: what is not a
document is none, and a name that is not of the topology places nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from netloom.model.kinds.sandbox import Sandbox
from netloom.plan.linux.names import macs, owner
from netloom.plan.sandbox.names import Part, assign
from netloom.plan.sandbox.topology import MAN, Usable, usable


class _Member(Struct, frozen=True):
    namespace: str
    mac: str


class _Tunnel(Struct, frozen=True):
    macs: list[tuple[str, str]]


class Observed(Struct, frozen=True):
    """The parts of a host's document that the next plan needs."""

    mtu: int
    members: list[_Member]
    tunnels: list[_Tunnel]


_decoder: msgspec.json.Decoder[Observed | None] = msgspec.json.Decoder(Observed | None)


def observed(data: bytes) -> Observed | None:
    """Return a document of a host; None: it has none, or what it says is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def placements(sandbox: Sandbox, documents: Mapping[str, Observed], nodes: Mapping[str, str]) -> dict[str, str]:
    """Return the host of each machine that has one; `nodes` are the addresses of hosts, by name."""
    parts = usable(sandbox.spec.topology)
    machines = _spaces(sandbox, parts)
    found: dict[str, str] = {}
    behind: dict[str, str] = {}
    names = {ip: node for node, ip in nodes.items()}
    for node, document in sorted(documents.items()):
        for one in document.members:
            if one.namespace in machines:
                found.setdefault(machines[one.namespace], node)
        for mac, ip in (pair for tunnel in document.tunnels for pair in tunnel.macs):
            # A host that answers says itself what it has.
            if names.get(ip, node) not in documents:
                behind[mac] = names[ip]
    for mac, machine in _macs(sandbox, parts, machines):
        if mac in behind:
            found.setdefault(machine, behind[mac])
    return found


def spaces(sandbox: Sandbox) -> dict[str, str]:
    """Return the machine of each network namespace, of hosts, routers and `man`."""
    return _spaces(sandbox, usable(sandbox.spec.topology))


def _spaces(sandbox: Sandbox, parts: Usable) -> dict[str, str]:
    """Return the machine of each network namespace."""
    name = sandbox.metadata.name
    hosts = assign(name, (Part((host,)) for host in parts.hosts))
    others = assign(name, [Part((MAN,), MAN), *(Part((one.name,), "router") for one in parts.routers)], hosts.values())
    return {space: part.words[0] for part, space in (*hosts.items(), *others.items())}


def _macs(sandbox: Sandbox, parts: Usable, machines: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the MAC addresses of hosts, each with its host."""
    own = {machine: space for space, machine in machines.items()}
    keys: Iterable[tuple[str, ...]] = [
        (one.host, one.network, f"eth{one.position}", own[one.host]) for one in parts.links
    ]
    yield from ((one.mac.lower(), one.host) for one in sandbox.spec.macs if one.host in own)
    derived = macs(owner(sandbox.metadata.namespace, sandbox.metadata.name), keys)
    yield from ((mac, key[0]) for key, mac in derived.items())
