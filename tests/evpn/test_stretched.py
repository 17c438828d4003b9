"""One EVPNNetwork against the routes of a hostile peer: the speaker goes on, and other machines are as they were."""

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.bgp import communities as ext
from netloom.bgp.attributes import Attributes
from netloom.bgp.evi import MOST_IPS, MOST_ROUTES, MOVES, RECOVERY_SECONDS
from netloom.bgp.nlri import EVPN, EvpnRoute, MacIp, Multicast, encode_evpn, split
from netloom.bgp.rib import Path, Relation, Source
from netloom.bgp.speaker import Speaker
from netloom.control.evpn.stretched import Stretched
from netloom.model.kinds.bgp import EVPNClient, EVPNNetwork
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import REMOTE_VTEP
from netloom.model.schemas.validation import admit
from netloom.plan.evpn.evi import Evi
from netloom.plan.evpn.exports import Machine
from tests.control.helpers import document

TARGET = ext.route_target("65000:10")
RD = ext.route_distinguisher("192.0.2.1:10")
OURS = IPv4Address("192.0.2.9")
PEER = Source("192.0.2.1", Relation.EXTERNAL, IPv4Address("192.0.2.1"), 65001)
OWN = "02:00:00:00:00:01"
LAST = 2**32 - 1


class Site:
    """An extended Network with one machine of its own, and a peer."""

    def __init__(self) -> None:
        spec = {"network": "blue", "speaker": "main", "clients": [{"mac": OWN, "ip": "10.0.0.1"}]}
        content = {"apiVersion": "", "kind": "", "metadata": {"name": "blue", "uid": "u"}, "spec": spec}
        network = msgspec.convert(content, EVPNNetwork)
        assert network.spec.clients == (EVPNClient(mac=OWN, ip="10.0.0.1"),)
        self.speaker = Speaker(65000, OURS, random=Random(1))
        evi = Evi(10, ext.route_distinguisher("192.0.2.9:10"), frozenset((TARGET,)), (TARGET,), OURS)
        self.stretched = Stretched(network, evi, Fabric.OVN, "gw", speaker=self.speaker, on_routes=lambda: None)
        self.stretched.settle()
        self.stretched.put_others(network)
        self.stretched.forward(True)
        self.stretched.export(0.0)

    def announce(self, route: EvpnRoute, *extended: bytes, vtep: str = "192.0.2.1", now: float = 1.0) -> None:
        attributes = Attributes(next_hop=ip_address(vtep), extended=(TARGET, *extended))
        routes = split(EVPN, encode_evpn(route))
        self.stretched.instance.put({key: Path(one, attributes, PEER) for key, one in routes.items()})
        asyncio.run(self.stretched.take_up(now))

    def withdraw(self, route: EvpnRoute, now: float) -> None:
        self.stretched.instance.drop(list(split(EVPN, encode_evpn(route))))
        asyncio.run(self.stretched.take_up(now))

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return the machines of the RemoteVTEPs, each of which the schema must admit."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.stretched.imports.take():
            spec = self.stretched.imports.spec(name)
            assert spec is not None
            content = msgspec.json.decode(msgspec.json.encode(spec))
            admit(REMOTE_VTEP, document(REMOTE_VTEP, name, content, "default"))
            found |= {one.mac: one.ips for one in spec.macs}
        return found

    def sequence(self) -> int:
        """Return the sequence with which our machine is announced."""
        best = self.speaker.rib.best[EVPN].values()
        return max(ext.mobility_of(path.attributes.extended).sequence for path in best)


def test_a_claim_with_the_last_sequence_is_answered_with_the_last_sequence() -> None:
    site = Site()
    for now in range(10):
        claim = ext.mac_mobility(ext.Mobility(LAST))
        site.announce(MacIp(RD, bytes.fromhex(OWN.replace(":", "")), None, 10), claim, now=float(now))
    assert site.sequence() == LAST
    assert site.stretched.imports.macs == 0
    assert site.stretched.duplicates(10.0) == [OWN]


CLAIM = MacIp(RD, bytes.fromhex(OWN.replace(":", "")), None, 10)


def test_a_peer_that_withdraws_its_claim_each_time_is_answered_five_times() -> None:
    site, now = Site(), 0.0
    for sequence in range(1, 40, 2):
        now += 5.0
        site.announce(CLAIM, ext.mac_mobility(ext.Mobility(sequence)), now=now)
        if sequence < 39:
            site.withdraw(CLAIM, now + 1.0)
    assert site.sequence() == 2 * (MOVES - 1)
    assert site.stretched.duplicates(now) == [OWN]


def test_a_duplicate_is_announced_again_when_its_time_is_over() -> None:
    site = Site()
    for now in range(MOVES + 2):
        site.announce(CLAIM, ext.mac_mobility(ext.Mobility(2 * now)), now=float(now))
    before = site.sequence()
    site.stretched.recover(RECOVERY_SECONDS - 1)
    assert site.sequence() == before
    site.stretched.recover(RECOVERY_SECONDS + MOVES + 2)
    assert site.sequence() == 2 * (MOVES + 1) + 1


def test_a_machine_with_very_many_addresses_costs_no_more_than_one_with_many() -> None:
    site = Site()
    mac = bytes.fromhex("020000000002")
    routes = [MacIp(RD, mac, IPv4Address(0x0A000000 + number), 10) for number in range(2, 3 * MOST_ROUTES)]
    found = split(EVPN, b"".join(map(encode_evpn, routes)))
    path = Attributes(next_hop=IPv4Address("192.0.2.1"), extended=(TARGET,))
    site.stretched.instance.put({key: Path(route, path, PEER) for key, route in found.items()})
    entry = site.stretched.instance.mac(mac)
    assert entry is not None
    assert len(entry.paths) == MOST_ROUTES
    assert entry.ips == tuple(IPv4Address(0x0A000000 + number) for number in range(2, 2 + MOST_IPS))
    keys = list(found)
    site.stretched.instance.drop(keys[: 2 * MOST_ROUTES])
    entry = site.stretched.instance.mac(mac)
    assert entry is not None
    assert len(entry.paths) == len(keys) - 2 * MOST_ROUTES
    site.stretched.instance.drop(keys[2 * MOST_ROUTES :])
    assert site.stretched.instance.mac(mac) is None
    assert list(site.stretched.instance.macs()) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([2, 3, 4, 5]),
            st.none() | st.ip_addresses(v=4) | st.ip_addresses(v=6),
            st.sampled_from(["192.0.2.1", "192.0.2.2", "0.0.0.0", ""]),
            st.sampled_from([0, 10, 11]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_machines_are_imported_many_at_once_as_one_by_one(
    routes: list[tuple[int, IPv4Address | IPv6Address | None, str, int, bool]],
) -> None:
    many, single = Site(), Site()
    for last, ip, vtep, vni, first in routes:
        mac = bytes((2, 0, 0, 0, 0, last))
        found = split(EVPN, encode_evpn(MacIp(RD, mac, ip, vni)))
        for site in (many, single):
            if not vtep:
                site.stretched.instance.drop(list(found))
                continue
            path = Attributes(next_hop=ip_address(vtep), extended=(ext.encapsulation(),))
            site.stretched.instance.put({key: Path(route, path, PEER) for key, route in found.items()})
        single.stretched._import(mac, 1.0)
        if first:
            asyncio.run(many.stretched.take_up(1.0))
    asyncio.run(many.stretched.take_up(1.0))

    def imported(site: Site) -> dict[str, object]:
        imports = site.stretched.imports
        return {mac: (imports.place(mac), imports.ips(mac)) for mac in imports.known()}

    assert imported(many) == imported(single)


def test_a_machine_moves_between_nodes_after_a_claim_with_the_last_sequence() -> None:
    exports = Site().stretched.exports
    mac = bytes.fromhex(OWN.replace(":", ""))
    exports.contest(mac, LAST + 1)
    exports.flush()
    exports.put(f"client {OWN}", Machine(mac, (), IPv4Address("192.0.2.8")))
    assert exports.flush().macs == {mac}
    assert exports.sequence(mac) == LAST


@pytest.mark.parametrize("mac", ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"])
def test_a_mac_that_no_object_may_have_costs_no_other_machine(mac: str) -> None:
    site = Site()
    site.announce(MacIp(RD, bytes.fromhex("020000000002"), None, 10))
    site.announce(MacIp(RD, bytes.fromhex(mac.replace(":", "")), None, 10))
    assert site.written() == {"02:00:00:00:00:02": ()}


@pytest.mark.parametrize("ip", ["::ffff:10.0.0.9", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "127.0.0.1", "::1"])
def test_an_ip_that_no_machine_may_have_is_left_out_and_the_others_stay(ip: str) -> None:
    site = Site()
    for one in (ip, "10.0.0.2"):
        site.announce(MacIp(RD, bytes.fromhex("020000000002"), ip_address(one), 10))
    assert site.written() == {"02:00:00:00:00:02": ("10.0.0.2",)}


@pytest.mark.parametrize("vtep", ["::ffff:192.0.2.2", "255.255.255.255", "0.0.0.1", "169.254.0.1", "fe80::1"])
def test_a_next_hop_that_no_vtep_can_have_has_no_object(vtep: str) -> None:
    site = Site()
    site.announce(MacIp(RD, bytes.fromhex("020000000002"), None, 10), vtep=vtep)
    site.announce(Multicast(RD, IPv4Address("192.0.2.1")), vtep=vtep)
    assert site.stretched.imports.places() == []
    assert site.stretched.imports.take() == set()
