"""MRT dumps: what another reader finds in them, and FRR's own dump of the same session."""

import signal
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mrtparse import Reader

from netloom.bgp import communities as ext
from netloom.bgp.attributes import SEQUENCE, Attributes, Context, Pmsi, decode_attributes
from netloom.bgp.errors import Notification
from netloom.bgp.fsm import Local
from netloom.bgp.messages import KEEPALIVE, Kind, encode_notification, encode_open
from netloom.bgp.mrt import Stream, table
from netloom.bgp.nlri import EVPN, IPV4, IPV6, MacIp, Multicast, encode_evpn, encode_prefix, split
from netloom.bgp.rib import Relation, Rib, Source
from netloom.bgp.update import announce
from tests.bgp.test_frr import config
from tests.support.bgp_peers import ROUTES, Ours, play
from tests.support.frr import OURS, THEIRS, frr

signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # As Python has it: mrtparse changes it for the whole process.

NOW = 1_700_000_000.9
LOCAL = Source("local", Relation.LOCAL, IPv4Address("10.0.0.1"), 65001)
PEERS = [
    Source("10.0.0.2", Relation.EXTERNAL, IPv4Address("10.0.0.2"), 65002),
    Source("fd00::3", Relation.INTERNAL, IPv4Address("10.0.0.3"), 4200000001),
]
RD = ext.route_distinguisher("10.0.0.2:10")
BASE = Attributes(next_hop=IPv4Address("10.0.0.2"), local_pref=100, extended=(ext.route_target("65001:10"),))


class Record(NamedTuple):
    seconds: int
    kind: int
    subtype: int
    body: bytes


def records(data: bytes) -> Iterator[Record]:
    """Yield the records of a file (RFC 6396 section 2)."""
    at = 0
    while at < len(data):
        seconds, kind, subtype, size = struct.unpack_from("!IHHI", data, at)
        at += 12 + size
        assert at <= len(data)
        yield Record(seconds, kind, subtype, data[at - size : at])


def rib() -> Rib:
    made = Rib(65001, IPv4Address("10.0.0.1"))
    for source in (LOCAL, *PEERS):
        made.add_source(source)
    return made


def parsed(path: Path, *found: bytes) -> list[Any]:
    path.write_bytes(b"".join(found))
    result = []
    for one in Reader(str(path)):
        assert not one.err, one.err_msg
        result.append(one.data)
    return result


def test_evpn_routes_have_all_their_paths_the_best_first() -> None:
    made = rib()
    mac, multicast = MacIp(RD, b"\2\0\0\0\0\1", IPv6Address("fd00::1"), 10), Multicast(RD, IPv4Address("10.0.0.2"))
    path = ((SEQUENCE, (65002, 4200000000)),)
    made.announce(
        PEERS[0], EVPN, Attributes(next_hop=IPv4Address("10.0.0.2"), as_path=path), split(EVPN, encode_evpn(mac))
    )
    made.announce(PEERS[1], EVPN, BASE, split(EVPN, encode_evpn(mac)))
    pmsi = Attributes(next_hop=IPv6Address("fd00::2"), pmsi=Pmsi(10, b"\x0a\0\0\2"))
    made.announce(LOCAL, EVPN, pmsi, split(EVPN, encode_evpn(multicast)))
    peers, *routes = records(b"".join(table(made, NOW, view="blue")))
    assert (peers.seconds, peers.kind, peers.subtype) == (1_700_000_000, 13, 1)
    assert peers.body.startswith(IPv4Address("10.0.0.1").packed + b"\0\4blue\0\3")
    assert [(one.kind, one.subtype) for one in routes] == [(13, 6)] * 2
    head = 4 + 3
    expected = [(encode_evpn(mac), [(2, "10.0.0.2"), (1, "10.0.0.2")]), (encode_evpn(multicast), [(0, "fd00::2")])]
    for sequence, (one, (nlri, hops)) in enumerate(zip(routes, expected, strict=True)):
        assert one.body[:head] == sequence.to_bytes(4, "big") + b"\0\x19\x46"
        assert one.body[head : head + len(nlri)] == nlri
        rest = one.body[head + len(nlri) :]
        assert int.from_bytes(rest[:2], "big") == len(hops)
        rest = rest[2:]
        for number, hop in hops:
            size = int.from_bytes(rest[6:8], "big")
            assert (int.from_bytes(rest[:2], "big"), rest[2:6]) == (number, (1_700_000_000).to_bytes(4, "big"))
            found = decode_attributes(rest[8 : 8 + size], Context(internal=True))
            assert not found.malformed
            packed = (IPv4Address if "." in hop else IPv6Address)(hop).packed
            assert found.reach == bytes((len(packed),)) + packed
            if number == 1:
                assert found.fields["as_path"] == path
            rest = rest[8 + size :]
        assert not rest


@pytest.mark.parametrize(("segments", "others", "entries"), [(64, 0, 2), (64, 400, 1), (65, 0, 1)])
def test_a_path_that_is_longer_than_an_entry_costs_itself_alone(segments: int, others: int, entries: int) -> None:
    made = rib()
    path = ((SEQUENCE, (65002,) * 255),) * segments  # AS numbers of two octets came; those of four are stored.
    nlri = encode_prefix(IPv4Address("10.8.0.0"), 13)
    long = Attributes(next_hop=IPv4Address("10.0.0.2"), as_path=path, communities=bytes(others))
    made.announce(PEERS[0], IPV4, long, split(IPV4, nlri))
    made.announce(PEERS[1], IPV4, BASE, split(IPV4, nlri))
    _, one = records(b"".join(table(made, NOW)))
    assert one.body[4 : 4 + len(nlri) + 2] == nlri + bytes((0, entries))


def test_another_reader_reads_peers_and_prefixes(tmp_path: Path) -> None:
    made = rib()
    four, six = encode_prefix(IPv4Address("10.8.0.0"), 13), encode_prefix(IPv6Address("fd08::"), 33)
    made.announce(PEERS[0], IPV4, BASE, split(IPV4, four))
    made.announce(PEERS[1], IPV6, Attributes(next_hop=IPv6Address("fd00::3"), local_pref=7), split(IPV6, six))
    peers, first, second = parsed(tmp_path / "table", *table(made, NOW))
    assert [(one["peer_ip"], one["peer_as"], one["peer_bgp_id"]) for one in peers["peer_entries"]] == [
        ("0.0.0.0", "65001", "10.0.0.1"),
        ("10.0.0.2", "65002", "10.0.0.2"),
        ("fd00::3", "4200000001", "10.0.0.3"),
    ]
    assert (first["prefix"], first["length"]) == ("10.8.0.0", 13)
    assert (second["prefix"], second["length"]) == ("fd08::", 33)
    [entry] = first["rib_entries"]
    assert entry["peer_index"] == 1
    values = {next(iter(one["type"])): one["value"] for one in entry["path_attributes"]}
    assert values[3] == "10.0.0.2"
    assert values[5] == 100
    [entry] = second["rib_entries"]
    values = {next(iter(one["type"])): one["value"] for one in entry["path_attributes"]}
    assert values[14]["next_hop"] == ["fd00::3"]


LISTED = [
    encode_open(Local(65002, IPv4Address("10.0.0.2"), families=(EVPN, IPV4)).open()),
    KEEPALIVE,
    *announce(IPV4, [encode_prefix(IPv4Address("10.8.0.0"), 13)], BASE, Context(internal=True), 4096),
    *announce(EVPN, [encode_evpn(MacIp(RD, b"\2\0\0\0\0\1"))], BASE, Context(internal=True), 4096),
    encode_notification(Notification(6, 2)),
]


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=30), sent=st.booleans(), as4=st.booleans())
def test_each_message_of_a_stream_is_a_record(sizes: list[int], sent: bool, as4: bool) -> None:
    stream = Stream(peer="10.0.0.2", peer_asn=65002, local="10.0.0.1", local_asn=65001, as4=as4)
    data, found = b"".join(LISTED), b""
    feed = stream.sent if sent else stream.received
    while data:
        found += b"".join(feed(data[: sizes[0]], NOW))
        data, sizes = data[sizes[0] :], [*sizes[1:], sizes[0]]
    head = (65002).to_bytes(4 if as4 else 2, "big") + (65001).to_bytes(4 if as4 else 2, "big") + b"\0\0\0\1"
    head += IPv4Address("10.0.0.2").packed + IPv4Address("10.0.0.1").packed
    subtype = {(False, True): 4, (True, True): 7, (False, False): 1, (True, False): 6}[sent, as4]
    assert list(records(found)) == [Record(1_700_000_000, 16, subtype, head + one) for one in LISTED]


def test_a_stream_ends_at_what_is_no_message() -> None:
    stream = Stream(peer="10.0.0.2", peer_asn=65002, local="10.0.0.1", local_asn=65001)
    assert len(list(stream.received(KEEPALIVE + bytes(19) + KEEPALIVE, NOW))) == 1
    assert not list(stream.received(KEEPALIVE, NOW))


def test_another_reader_reads_messages(tmp_path: Path) -> None:
    stream = Stream(peer="fd00::2", peer_asn=65002, local="fd00::1", local_asn=65001)
    found = parsed(tmp_path / "updates", *stream.received(b"".join(LISTED[:3]), NOW))
    assert [(one["peer_as"], one["local_as"], one["peer_ip"]) for one in found] == [("65002", "65001", "fd00::2")] * 3
    assert [next(iter(one["bgp_message"]["type"])) for one in found] == [Kind.OPEN, Kind.KEEPALIVE, Kind.UPDATE]
    [prefix] = found[2]["bgp_message"]["nlri"]
    assert (prefix["prefix"], prefix["length"]) == ("10.8.0.0", 13)


@pytest.mark.root
def test_frr_dumps_the_messages_that_we_dump() -> None:
    with frr(config(65002)) as (netns, daemon):
        path = daemon.folder / "dump.mrt"
        daemon.vty("configure terminal", f"dump bgp all {path}")
        told: list[tuple[bool, bytes]] = []

        async def scene(ours: Ours) -> None:
            ours.originate(*ROUTES[:3])
            await ours.until(
                lambda: daemon.json("show bgp l2vpn evpn summary json")["peers"][OURS]["pfxRcd"] == 3, "routes"
            )

        play(netns, 65002, scene, on_bytes=lambda _, __, data, sent: told.append((sent, data)))
        daemon.program.stop()
        stream = Stream(peer=OURS, peer_asn=65001, local=THEIRS, local_asn=65002)
        ours = [
            record.body for sent, data in told if sent for one in stream.received(data, NOW) for record in records(one)
        ]
        theirs = [one.body for one in records(path.read_bytes()) if (one.kind, one.subtype) == (16, 4)]
        received = [body for body in theirs if body in ours]
        updates = [body for body in ours if body[20 + 18] == Kind.UPDATE]
        assert len(updates) >= 2
        assert all(body in received for body in updates), "it has each of our UPDATEs, byte for byte"
