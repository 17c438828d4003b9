"""The flows of UDP that the connection tracker sends to where no nodePort, hostPort or external address leads any more.

A flow is translated as its first packet was, for as long as it does not pause. A client of UDP may never pause, so its
flow must be forgotten when its endpoint is gone, or when a nodePort begins to exist for it. TCP needs none of this: a
connection ends with its endpoint.

    nlmsghdr   length(4) type(2) flags(2) sequence(4) port(4)            in the machine's byte order
    nfgenmsg   family(1) version(1) resource(2)
    attributes CTA_ZONE; CTA_TUPLE_ORIG and CTA_TUPLE_REPLY, each of CTA_TUPLE_IP { source, destination }
               and CTA_TUPLE_PROTO { number, ports }

`stale` decides, `forget` asks the kernel (linux/netfilter/nfnetlink_conntrack.h).
"""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from netloom.plan.kube.node.nftables import PROTOCOLS, Table, element

UDP = PROTOCOLS["udp"]
_NETFILTER = 12
_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct(">BBH")
_ATTRIBUTE = struct.Struct("=HH")
_NEW, _GET, _DELETE = 0x100, 0x101, 0x102
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_KIND = 0x3FFF
_ORIGINAL, _REPLY, _ZONE = 1, 2, 18
_IP, _PROTOCOL = 1, 2
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_SOURCES, _DESTINATIONS = (1, 3), (2, 4)
_NESTED = 0x8000
_BUFFER = 1 << 18


class Flow(NamedTuple):
    """A flow as the tracker has it."""

    family: int
    protocol: int
    destination: str
    port: int
    to: str
    """Where its packets go: the source of replies."""
    to_port: int
    original: bytes = b""
    """By this the kernel knows it."""
    zone: bytes = b""


Targets = Mapping[str, frozenset[str]]
"""By the key of a port or external address of UDP: where it may lead."""


def targets(table: Table | None) -> Targets:
    """Return where a table leads packets of UDP."""
    found: dict[str, set[str]] = {}
    for name, one in (table.sets if table is not None else {}).items():
        if one.data and name.startswith(("node-port", "external", "host-port")):
            for key, value in one.elements.items():
                if f" . {UDP} . " in key or key.startswith(f"{UDP} . "):
                    kept = found.setdefault(f"{name[-1]}:{key}", set())
                    if " . " in value:
                        kept.add(value)
    return {key: frozenset(values) for key, values in found.items()}


def stale(flow: Flow, now: Targets, before: Targets, *, is_local: Callable[[str], bool]) -> bool:
    """Whether a flow leads to where it must not: `before` has what is gone since; `is_local` knows own addresses."""
    if flow.protocol != UDP:
        return False
    family = 6 if flow.family == socket.AF_INET6 else 4
    to = element(flow.to, flow.to_port)
    translated = to != element(flow.destination, flow.port)
    external, node_port = element(flow.destination, UDP, flow.port), element(UDP, flow.port)
    for key in (f"{family}:{external}", f"{family}:{node_port}"):
        if key in now:
            # What is not translated may be on its way to the same port of another host.
            return to not in now[key] and (translated or key.endswith(external) or is_local(flow.destination))
        if key in before:
            return translated and to in before[key]
    return False


def forget(now: Targets, before: Targets) -> int:
    """Make the kernel forget stale flows; return how many.  The caller is in the node's network namespace."""
    families = {socket.AF_INET6 if key.startswith("6") else socket.AF_INET for key in (*now, *before)}
    count = 0
    if not families:
        return count
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER) as kernel:
        kernel.settimeout(10.0)
        for family in sorted(families):
            for flow in [one for one in _flows(kernel, family) if stale(one, now, before, is_local=_is_local)]:
                _delete(kernel, flow)
                count += 1
    return count


def _is_local(ip: str) -> bool:
    """Whether an address is one of this node."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True


def _flows(kernel: socket.socket, family: int) -> Iterator[Flow]:
    kernel.send(_message(_GET, _REQUEST | _DUMP, family, b""))
    while True:
        for kind, body in _messages(kernel.recv(_BUFFER)):
            if kind == _DONE:
                return
            if kind == _ERROR:
                _check(body)
            elif kind == _NEW and (flow := decode(body)) is not None:
                yield flow


def _delete(kernel: socket.socket, flow: Flow) -> None:
    body = _attribute(_ORIGINAL | _NESTED, flow.original) + (_attribute(_ZONE, flow.zone) if flow.zone else b"")
    kernel.send(_message(_DELETE, _REQUEST | _ACK, flow.family, body))
    for kind, answer in _messages(kernel.recv(_BUFFER)):
        if kind == _ERROR:
            with contextlib.suppress(FileNotFoundError):  # It has ended by itself.
                _check(answer)


def _check(body: bytes) -> None:
    (code,) = struct.unpack_from("=i", body)
    if code:
        raise OSError(-code, os.strerror(-code) if -code in errno.errorcode else "unknown error")


def decode(body: bytes) -> Flow | None:
    """Return the flow in a message; None if it has no ports."""
    found = dict(_attributes(body[_GENERIC.size :]))
    original, reply = found.get(_ORIGINAL), found.get(_REPLY)
    if original is None or reply is None:
        return None
    forth, back = _tuple(original), _tuple(reply)
    if forth is None or back is None:
        return None
    zone = found.get(_ZONE, b"")
    return Flow(body[0], forth.protocol, forth.destination, forth.to_port, back.source, back.from_port, original, zone)


class _Tuple(NamedTuple):
    """One direction of a flow."""

    protocol: int
    source: str
    destination: str
    from_port: int
    to_port: int


def _tuple(body: bytes) -> _Tuple | None:
    parts = dict(_attributes(body))
    ends, ports = dict(_attributes(parts.get(_IP, b""))), dict(_attributes(parts.get(_PROTOCOL, b"")))
    source = next((ends[one] for one in _SOURCES if one in ends), b"")
    destination = next((ends[one] for one in _DESTINATIONS if one in ends), b"")
    complete = all(ports.get(one) for one in (_NUMBER, _SOURCE_PORT, _DESTINATION_PORT))
    if not complete or {len(source), len(destination)} - {4, 16}:
        return None
    return _Tuple(
        ports[_NUMBER][0],
        str(ipaddress.ip_address(source)),
        str(ipaddress.ip_address(destination)),
        int.from_bytes(ports[_SOURCE_PORT], "big"),
        int.from_bytes(ports[_DESTINATION_PORT], "big"),
    )


def _message(kind: int, flags: int, family: int, body: bytes) -> bytes:
    length = _HEADER.size + _GENERIC.size + len(body)
    return _HEADER.pack(length, kind, flags, 0, 0) + _GENERIC.pack(family, 0, 0) + body


def _messages(data: bytes) -> Iterable[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _attribute(kind: int, payload: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _attributes(data: bytes) -> Iterable[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
