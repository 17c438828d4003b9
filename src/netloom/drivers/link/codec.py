"""rtnetlink messages as bytes: the few that plugging a port and probing the kernel need.  Pure.

Netlink (RFC 3549, linux/netlink.h) is a header, a fixed part, and attributes:

    nlmsghdr   length(4) type(2) flags(2) sequence(4) port(4)
    ifinfomsg  family(1) pad(1) type(2) index(4) flags(4) change(4)
    ifaddrmsg  family(1) prefix(1) flags(1) scope(1) index(4)
    rtmsg      family(1) dst(1) src(1) tos(1) table(1) protocol(1) scope(1) type(1) flags(4)
    ndmsg      family(1) pad(3) index(4) state(2) flags(1) type(1)
    tcmsg      family(1) pad(3) index(4) handle(4) parent(4) info(4)
    rtattr     length(2) type(2) payload, padded to 4

in the machine's byte order. Written out because every attachment needs four of them: pyroute2 takes 0.4 ms to write
the one that makes a pair of veths and 0.2 ms to read one link; this takes a hundredth of that. The tests compare what
is written here with what pyroute2 reads and writes.
"""

import struct
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct

from netloom.plan.policy.impairment import Impairment

REQUEST, MULTI, ACK, DUMP = 0x1, 0x2, 0x4, 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
ERROR, DONE = 2, 3
NEW_LINK, DEL_LINK, GET_LINK, SET_LINK = 16, 17, 18, 19
NEW_ADDRESS, DEL_ADDRESS, GET_ADDRESS = 20, 21, 22
NEW_ROUTE, DEL_ROUTE, GET_ROUTE = 24, 25, 26
NEW_NEIGHBOUR, GET_NEIGHBOUR = 28, 30
NEW_QDISC, DEL_QDISC, GET_QDISC = 36, 37, 38
UP = 0x1
INET, INET6 = 2, 10

_ADDRESS, _NAME, _MTU, _LINK, _QDISC, _MASTER, _LINKINFO, _ALIAS, _NS_FD, _EXT_MASK = 1, 3, 4, 5, 6, 10, 18, 20, 28, 29
_PROMISCUITY = 30
_INFO_KIND, _INFO_DATA, _PEER = 1, 2, 1
_TCA_KIND, _TCA_OPTIONS, _ROOT, _LOOPBACK = 1, 2, 0xFFFFFFFF, 1
_HTB_INIT, _TBF_PARMS, _ETHERNET = 2, 1, 1
_VXLAN_ID, _GENEVE_ID, _GENEVE_REMOTE, _VRF_TABLE = 1, 1, 2, 1
_SKIP_STATISTICS = 8
_AF_SPEC, _ADDR_GEN_MODE, _FROM_MAC, _NONE = 26, 8, 0, 1
_INET_CONF, _RP_FILTER, _STRICT, _ARP_IGNORE, _ALWAYS = 1, 8, 1, 19, 8
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _NO_DAD = 1, 2, 8, 0x02
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_TABLE, _RTA_VIA = 1, 4, 5, 15, 18
_MAIN, _UNICAST, _ONLINK = 254, 1, 4
_NDA_DST, _NDA_MAC, _USE, _PROBE = 1, 2, 0x01, 0x10
REACHABLE, UNCONFIRMED, RESOLVED, FIXED = 0x02, 0x04 | 0x08, 0x02 | 0x04 | 0x08 | 0x10, 0x40 | 0x80
"""States of a neighbour: UNCONFIRMED is STALE or DELAY; RESOLVED is these, REACHABLE or PROBE; FIXED is NOARP or
PERMANENT, which an operator or a driver set."""
PROTOCOL = 173
"""The `protocol` of our routes, by which they are recognised.  No other program in iproute2's list has it."""

_HEADER = struct.Struct("=IHHII")
_IFINFO = struct.Struct("=BBHiII")
_IFADDR = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=BBHiHBB")
_ATTRIBUTE = struct.Struct("=HH")
_INT = struct.Struct("=I")
_SIGNED = struct.Struct("=i")
_TCMSG = struct.Struct("=BBHiIII")
_NETEM = struct.Struct("=6I")
NETEM_HANDLE = 0x4E4C0000
"""The handle of our netem, by which it is recognised."""
NETEM_LIMIT = 10_000
"""Packets that netem holds at most in one direction."""


class Link(Struct, frozen=True):
    """A device as the kernel has it."""

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    kind: str = ""
    """As veth, tun, bridge; "" for a device without a kind, as a physical one."""
    peer: int = 0
    """The index of the device it is joined to: for a veth the other end, in the namespace of that end."""
    master: int = 0
    alias: str = ""
    held: bool = False
    """Whether a program receives all its packets, whatever their destination, as a switch does of its ports."""
    qdisc: str = ""
    """The kind of its root qdisc."""


class Qdisc(NamedTuple):
    """The root qdisc of a device."""

    kind: str
    handle: int
    """0 for one that the kernel set by default."""
    options: bytes


class DeviceRoute(NamedTuple):
    """A route of ours on a device."""

    to: str
    via: str
    onlink: bool = False
    """Whether `via` counts as on the link although no address says so."""


class NextHop(NamedTuple):
    """The neighbour that packets to an address are sent to."""

    ip: str
    device: int
    """The index of the device that reaches it."""


class Neighbour(NamedTuple):
    """A next hop whose MAC is known."""

    ip: str
    device: str
    """The name of the device that reaches it."""
    mac: str


class NetlinkMessage(NamedTuple):
    """One message that was received."""

    type: int
    flags: int
    sequence: int
    body: bytes


def numbered(message: bytes, sequence: int) -> bytes:
    """Return a message made by one of the functions below with its sequence number."""
    return message[:8] + _INT.pack(sequence) + message[12:]


def messages(data: bytes) -> Iterator[NetlinkMessage]:
    """Read the messages that one receive returned, up to one that is cut short."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        yield NetlinkMessage(kind, flags, sequence, data[at + _HEADER.size : at + length])
        at += _aligned(length)


def error(body: bytes) -> int:
    """Return the errno of an ERROR message, 0 for an acknowledgement."""
    return -int(_SIGNED.unpack_from(body)[0])


def veth(name: str, inner: str, *, namespace: int, mac: str, mtu: int, alias: str) -> tuple[bytes, bytes, bytes]:
    """Return the messages that make a pair, set the outer end's alias, and keep the outer end silent.

    The inner end has its final name, MTU and MAC ("": the kernel chooses one), in the given namespace. The three
    messages are sent together: the kernel handles all of them even if the sender dies. A kernel without IPv6 refuses
    the last one, where it is not needed.
    """
    peer = _IFINFO.pack(0, 0, 0, 0, 0, 0) + _text(_NAME, inner) + (_attribute(_ADDRESS, _mac(mac)) if mac else b"")
    peer += _number(_MTU, mtu) + _number(_NS_FD, namespace)
    info = _text(_INFO_KIND, "veth") + _attribute(_INFO_DATA, _attribute(_PEER, peer))
    body = _IFINFO.pack(0, 0, 0, 0, 0, 0) + _text(_NAME, name) + _number(_MTU, mtu) + _attribute(_LINKINFO, info)
    return _message(NEW_LINK, ACK | CREATE | EXCLUSIVE, body), *silence(name, alias=alias)


def silence(name: str, *, alias: str = "") -> tuple[bytes, bytes]:
    """Return the messages that set a device's alias, if given, and that keep it silent.

    The device belongs to the switch, or to a relay: it gets no address, not even a link-local one. The node's kernel
    receives the packets that a program reads there, too: it must not answer ARP for the node's own addresses, nor
    accept packets to them past the switch; strict reverse path filtering drops these, as no route leads back here.
    """
    silent = _attribute(INET, _attribute(_INET_CONF, _number(_ARP_IGNORE, _ALWAYS) + _number(_RP_FILTER, _STRICT)))
    which = _IFINFO.pack(0, 0, 0, 0, 0, 0) + _text(_NAME, name)
    named = which + (_text(_ALIAS, alias) if alias else b"") + _attribute(_AF_SPEC, silent)
    return _message(SET_LINK, ACK, named), _message(SET_LINK, ACK, which + _link_local(_NONE))


def new_device(kind: str) -> bytes:
    """Create a device that is named after its kind, one of `PROBED_DEVICES`."""
    info = _text(_INFO_KIND, kind)
    if data := PROBED_DEVICES[kind]:
        info += _attribute(_INFO_DATA, data)
    body = _IFINFO.pack(0, 0, 0, 0, 0, 0) + _text(_NAME, kind) + _attribute(_LINKINFO, info)
    return _message(NEW_LINK, ACK | CREATE | EXCLUSIVE, body)


def new_qdisc(kind: str) -> bytes:
    """Set the root qdisc of the loopback device to one of `PROBED_QDISCS`, each with a handle of its own.

    With the handle of the qdisc that it replaces, the kernel refuses one of another kind.
    """
    handle = list(PROBED_QDISCS).index(kind) + 1 << 16
    body = _TCMSG.pack(0, 0, 0, _LOOPBACK, handle, _ROOT, 0) + _text(_TCA_KIND, kind)
    if options := PROBED_QDISCS[kind]:
        body += _attribute(_TCA_OPTIONS, options)
    return _message(NEW_QDISC, ACK | CREATE | REPLACE, body)


def netem(impairment: Impairment) -> bytes:
    """Return the options of netem, tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.

    Times are in the kernel's ticks of 64 ns, the loss as a part of 2^32.
    """
    delay, jitter = (round(seconds * 1e9) >> 6 for seconds in (impairment.delay, impairment.jitter))
    return _NETEM.pack(delay, NETEM_LIMIT, round(impairment.loss * 0xFFFFFFFF), 0, 0, jitter)


def set_netem(index: int, options: bytes) -> bytes:
    """Return the message that makes netem the root qdisc of a device, or changes its options."""
    body = _TCMSG.pack(0, 0, 0, index, NETEM_HANDLE, _ROOT, 0) + _text(_TCA_KIND, "netem")
    return _message(NEW_QDISC, ACK | CREATE | REPLACE, body + _attribute(_TCA_OPTIONS, options))


def del_netem(index: int) -> bytes:
    """Return the message that removes our netem from a device, which gets its default qdisc again."""
    return _message(DEL_QDISC, ACK, _TCMSG.pack(0, 0, 0, index, NETEM_HANDLE, _ROOT, 0))


def get_qdiscs() -> bytes:
    """Return the message that asks for the qdiscs of all devices."""
    return _message(GET_QDISC, DUMP, _TCMSG.pack(0, 0, 0, 0, 0, 0, 0))


def read_qdisc(body: bytes) -> tuple[int, Qdisc] | None:
    """Read one root qdisc: the index of its device, and the qdisc; None for a qdisc that is not the root."""
    _, _, _, index, handle, parent, _ = _TCMSG.unpack_from(body)
    if parent != _ROOT:
        return None
    have = _attributes(body, _TCMSG.size)
    return index, Qdisc(_read_text(have, _TCA_KIND), handle, have.get(_TCA_OPTIONS, b"")[: _NETEM.size])


def link_local(index: int, *, on: bool) -> bytes:
    """Return the message that sets whether a device, when it next comes up, has the link-local address of its MAC.

    A kernel without IPv6, or a device with an MTU too small for IPv6, refuses it with EAFNOSUPPORT.
    """
    which = _IFINFO.pack(0, 0, 0, index, 0, 0)
    return _message(SET_LINK, ACK, which + _link_local(_FROM_MAC if on else _NONE))


def _link_local(mode: int) -> bytes:
    return _attribute(_AF_SPEC, _attribute(INET6, _attribute(_ADDR_GEN_MODE, bytes([mode]))))


def set_link(
    index: int, *, up: bool | None = None, mtu: int | None = None, mac: str = "", master: int | None = None
) -> bytes:
    """Return the message that changes a device; `master` 0 takes it off its bridge."""
    change = 0 if up is None else UP
    body = _IFINFO.pack(0, 0, 0, index, UP if up else 0, change)
    if mtu is not None:
        body += _number(_MTU, mtu)
    if mac:
        body += _attribute(_ADDRESS, _mac(mac))
    if master is not None:
        body += _number(_MASTER, master)
    return _message(SET_LINK, ACK, body)


def move_link(index: int, name: str, *, namespace: int) -> bytes:
    """Return the message that moves a device into a namespace, and gives it a name there."""
    body = _IFINFO.pack(0, 0, 0, index, 0, 0) + _text(_NAME, name) + _number(_NS_FD, namespace)
    return _message(SET_LINK, ACK, body)


def del_link(index: int) -> bytes:
    """Return the message that removes a device, and with one end of a pair of veths the other."""
    return _message(DEL_LINK, ACK, _IFINFO.pack(0, 0, 0, index, 0, 0))


def get_link(name: str = "") -> bytes:
    """Return the message that asks for one device by name, or for all."""
    body = _IFINFO.pack(0, 0, 0, 0, 0, 0) + _number(_EXT_MASK, _SKIP_STATISTICS)
    if not name:
        return _message(GET_LINK, DUMP, body)
    return _message(GET_LINK, 0, body + _text(_NAME, name))


def link(body: bytes) -> Link:
    """Read one device."""
    _, _, _, index, flags, _ = _IFINFO.unpack_from(body)
    have = _attributes(body, _IFINFO.size)
    info = _attributes(have.get(_LINKINFO, b""), 0)
    return Link(
        index,
        _read_text(have, _NAME),
        have.get(_ADDRESS, b"").hex(":"),
        _read_number(have, _MTU),
        bool(flags & UP),
        _read_text(info, _INFO_KIND),
        _read_number(have, _LINK),
        _read_number(have, _MASTER),
        _read_text(have, _ALIAS),
        _read_number(have, _PROMISCUITY) > 0,
        _read_text(have, _QDISC),
    )


def address(text: str, index: int, *, remove: bool = False) -> bytes:
    """Return the message that adds an address (`10.0.0.9/24`), usable at once, or removes it."""
    ip, _, length = text.partition("/")
    packed = ip_address(ip).packed
    family = _family(packed)
    body = _IFADDR.pack(family, int(length), 0, 0, index) + _attribute(_IFA_LOCAL, packed)
    body += _attribute(_IFA_ADDRESS, packed)
    if remove:
        return _message(DEL_ADDRESS, ACK, body)
    if family == INET6:
        # The control plane allocates each address once: duplicate address detection would only cost a second.
        body += _number(_IFA_FLAGS, _NO_DAD)
    return _message(NEW_ADDRESS, ACK | CREATE | REPLACE, body)


def get_addresses(index: int) -> bytes:
    """Return the message that asks for the addresses of a device."""
    return _message(GET_ADDRESS, DUMP, _IFADDR.pack(0, 0, 0, 0, index))


def read_address(body: bytes) -> tuple[int, str]:
    """Read one address: the index of its device, and `10.0.0.9/24`."""
    _, length, _, _, index = _IFADDR.unpack_from(body)
    have = _attributes(body, _IFADDR.size)
    packed = have.get(_IFA_LOCAL) or have.get(_IFA_ADDRESS, b"")
    return index, f"{ip_address(packed)}/{length}"


def route(one: DeviceRoute, index: int, *, remove: bool = False) -> bytes:
    """Return the message that adds a route over a device, or removes it."""
    to, _, length = one.to.partition("/")
    packed, via = ip_address(to).packed, ip_address(one.via).packed
    family = _family(packed)
    flags = _ONLINK if one.onlink else 0
    body = _RTMSG.pack(family, int(length), 0, 0, _MAIN, PROTOCOL, 0, _UNICAST, flags)
    if int(length):
        body += _attribute(_RTA_DST, packed)
    body += _attribute(_RTA_GATEWAY, via) + _number(_RTA_OIF, index)
    if remove:
        return _message(DEL_ROUTE, ACK, body)
    # Exclusive: a route of another program to the same destination is neither replaced nor shadowed.
    return _message(NEW_ROUTE, ACK | CREATE | EXCLUSIVE, body)


def get_routes(family: int) -> bytes:
    """Return the message that asks for the routes of a family."""
    return _message(GET_ROUTE, DUMP, _RTMSG.pack(family, 0, 0, 0, _MAIN, 0, 0, 0, 0) + _number(_RTA_TABLE, _MAIN))


def read_route(body: bytes) -> tuple[int, DeviceRoute] | None:
    """Read one route of ours: the index of its device, and the route; None for a route of another program."""
    family, length, _, _, table, protocol, _, kind, flags = _RTMSG.unpack_from(body)
    if protocol != PROTOCOL or kind != _UNICAST or table != _MAIN:
        return None
    have = _attributes(body, _RTMSG.size)
    if _RTA_GATEWAY not in have or _RTA_OIF not in have:
        return None
    packed = have.get(_RTA_DST, bytes(16 if family == INET6 else 4))
    via = str(ip_address(have[_RTA_GATEWAY]))
    return _read_number(have, _RTA_OIF), DeviceRoute(f"{ip_address(packed)}/{length}", via, bool(flags & _ONLINK))


def get_next_hop(ip: str) -> bytes:
    """Return the message that asks for the next hop towards an address."""
    packed = ip_address(ip).packed
    header = _RTMSG.pack(_family(packed), len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    return _message(GET_ROUTE, 0, header + _attribute(_RTA_DST, packed))


def read_next_hop(body: bytes) -> NextHop | None:
    """Read the answer; None: there is no next hop, as for an address of the node itself."""
    kind = _RTMSG.unpack_from(body)[7]
    have = _attributes(body, _RTMSG.size)
    index = _read_number(have, _RTA_OIF)
    # An IPv4 route may have an IPv6 next hop: RTA_VIA is its family and then its address.
    packed = have.get(_RTA_GATEWAY) or have.get(_RTA_VIA, b"")[2:] or have.get(_RTA_DST, b"")
    if kind != _UNICAST or not index or not packed:
        return None
    return NextHop(str(ip_address(packed)), index)


def get_neighbour(hop: NextHop) -> bytes:
    """Return the message that asks for a neighbour; the kernel answers ENOENT if it has no entry."""
    return _message(GET_NEIGHBOUR, 0, _neighbour(hop, 0, 0))


def read_neighbour(body: bytes) -> tuple[int, str]:
    """Return the state of a neighbour and its MAC, "" while that is unknown."""
    return int(_NDMSG.unpack_from(body)[4]), _attributes(body, _NDMSG.size).get(_NDA_MAC, b"").hex(":")


def resolve(hop: NextHop) -> bytes:
    """Return the message that makes the kernel resolve a neighbour as if a packet were to be sent to it."""
    return _message(NEW_NEIGHBOUR, ACK | CREATE | REPLACE, _neighbour(hop, 0, _USE))


def probe(hop: NextHop) -> bytes:
    """Return the message that makes the kernel probe a resolved neighbour; for others it answers EINVAL."""
    return _message(NEW_NEIGHBOUR, ACK | REPLACE, _neighbour(hop, _PROBE, 0))


def _neighbour(hop: NextHop, state: int, flags: int) -> bytes:
    packed = ip_address(hop.ip).packed
    return _NDMSG.pack(_family(packed), 0, 0, hop.device, state, flags, 0) + _attribute(_NDA_DST, packed)


def _family(packed: bytes) -> int:
    return INET6 if len(packed) == 16 else INET


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 0, 0) + body


def _attribute(kind: int, payload: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + bytes(_aligned(length) - length)


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, _INT.pack(number))


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _attributes(data: bytes, at: int) -> dict[int, bytes]:
    found = {}
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            break
        # The upper two bits mark a nested attribute, or network byte order; the type says the same.
        found[kind & 0x3FFF] = data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)
    return found


def _read_text(have: Mapping[int, bytes], kind: int) -> str:
    return have.get(kind, b"").rstrip(b"\0").decode(errors="replace")


def _read_number(have: Mapping[int, bytes], kind: int) -> int:
    packed = have.get(kind, b"")
    return int(_INT.unpack(packed)[0]) if len(packed) == _INT.size else 0


def _aligned(length: int) -> int:
    return (length + 3) & ~3


PROBED_DEVICES: Mapping[str, bytes] = {
    "bond": b"",
    "bridge": b"",
    "dummy": b"",
    "geneve": _number(_GENEVE_ID, 1) + _attribute(_GENEVE_REMOTE, ip_address("127.0.0.1").packed),
    "ifb": b"",
    "vrf": _number(_VRF_TABLE, 10),
    "vxlan": _number(_VXLAN_ID, 1),
}
"""Kinds of devices that are probed, each with the attributes that the kernel requires."""
PROBED_QDISCS: Mapping[str, bytes] = {
    "fq": b"",
    # tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
    "htb": _attribute(_HTB_INIT, struct.pack("=5I", 3, 10, 0, 0, 0)),
    # tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
    "netem": _NETEM.pack(1000, 1000, 0, 0, 0, 0),
    # tc_tbf_qopt: rate and peak rate (cell_log, linklayer, overhead, cell_align, mpu, rate); limit, buffer, mtu. 1 MB/s
    # with a burst of 1,500 bytes, which is 1.5 ms in the kernel's ticks of 64 ns.
    "tbf": _attribute(
        _TBF_PARMS,
        struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, 1_000_000)
        + struct.pack("=BBHhHI", 0, 0, 0, 0, 0, 0)
        + struct.pack("=3I", 3000, 1_500_000 // 64, 0),
    ),
}
"""Kinds of qdiscs that are probed, each with the options that the kernel requires."""
