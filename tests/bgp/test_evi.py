"""EVPN instances: import by route target, where MAC addresses are, which of several claims counts, duplicates."""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from netloom.bgp import communities as ext
from netloom.bgp.attributes import Attributes, Pmsi
from netloom.bgp.evi import MOVES, RECOVERY_SECONDS, WINDOW_SECONDS, Instance, Instances, MoveCounter
from netloom.bgp.nlri import EVPN, IP_PREFIX, MULTICAST, EvpnRoute, IpPrefix, MacIp, Multicast, encode_evpn, split
from netloom.bgp.rib import Relation, Rib, Source

BLUE, RED = ext.route_target("65001:10"), ext.route_target("65001:11")
MAC = bytes.fromhex("020000000001")
OURS = IPv4Address("10.0.0.1")
LOCAL = Source("local", Relation.LOCAL, OURS)
PEER = Source("peer", Relation.EXTERNAL, IPv4Address("10.0.0.9"), 65002)
VTEPS = [IPv4Address(f"10.0.1.{number}") for number in range(1, 4)]


class World:
    """A RIB and the instances that import from it."""

    def __init__(self) -> None:
        self.rib = Rib(65001, OURS)
        self.rib.add_source(LOCAL)
        self.rib.add_source(PEER)
        self.instances = Instances()
        for name, target in (("blue", BLUE), ("red", RED)):
            self.instances.add(Instance(name, [target]), {})

    def put(self, route: EvpnRoute, vtep: Any, *extended: bytes, source: Source = PEER, **options: Any) -> None:
        attributes = Attributes(next_hop=vtep, extended=extended, **options)
        self.rib.announce(source, EVPN, attributes, split(EVPN, encode_evpn(route)))
        self.take()

    def drop(self, route: EvpnRoute, source: Source = PEER) -> None:
        self.rib.withdraw(source, EVPN, split(EVPN, encode_evpn(route)))
        self.take()

    def take(self) -> None:
        self.instances.apply(self.rib.take_changes().get(EVPN, {}))


def rd(vtep: Any) -> bytes:
    return ext.route_distinguisher(f"{vtep}:1")


def test_routes_are_imported_by_target_and_leave_with_it() -> None:
    world = World()
    route = MacIp(rd(VTEPS[0]), MAC, IPv4Address("10.1.0.1"), 10)
    world.put(route, VTEPS[0], BLUE)
    blue, red = world.instances["blue"], world.instances["red"]
    entry = blue.mac(MAC)
    assert entry is not None
    assert (entry.vtep, entry.local, entry.label, entry.ips) == (VTEPS[0], False, 10, (IPv4Address("10.1.0.1"),))
    assert red.mac(MAC) is None
    assert blue.take_changes() == ({MAC}, False)
    world.put(route, VTEPS[0], RED)
    assert blue.mac(MAC) is None
    assert red.mac(MAC) is not None
    world.put(route, VTEPS[0], RED, BLUE)
    assert blue.mac(MAC) is not None
    world.drop(route)
    assert (list(blue.macs()), list(red.macs()), blue.paths, red.paths) == ([], [], {}, {})
    assert blue.take_changes() == ({MAC}, False)
    assert blue.take_changes() == (set(), False)


def test_all_addresses_of_a_mac_at_its_vtep_are_known() -> None:
    world = World()
    for ip in (None, IPv6Address("fd00::1"), IPv4Address("10.1.0.2"), IPv4Address("10.1.0.1")):
        world.put(MacIp(rd(VTEPS[0]), MAC, ip, 10), VTEPS[0], BLUE)
    entry = world.instances["blue"].mac(MAC)
    assert entry is not None
    assert list(map(str, entry.ips)) == ["10.1.0.1", "10.1.0.2", "fd00::1"]
    assert len(entry.paths) == 4


def test_an_instance_that_comes_later_gets_the_routes_that_are_there() -> None:
    world = World()
    world.put(MacIp(rd(VTEPS[0]), MAC, None, 10), VTEPS[0], BLUE)
    world.instances.add(Instance("green", [BLUE, RED]), world.rib.best[EVPN])
    assert world.instances["green"].mac(MAC) is not None
    world.instances.remove("blue")
    assert "blue" not in world.instances
    world.drop(MacIp(rd(VTEPS[0]), MAC, None, 10))
    assert world.instances["green"].mac(MAC) is None


@given(st.permutations(range(4)))
def test_the_last_move_counts_then_the_lowest_vtep_and_sticky_addresses_stay(order: list[int]) -> None:
    claims = [
        (VTEPS[2], ext.Mobility(1)),
        (VTEPS[1], ext.Mobility(2)),
        (VTEPS[0], ext.Mobility(1)),
        (IPv4Address("10.0.1.9"), ext.Mobility(0, sticky=True)),
    ]
    world = World()
    for at in order:
        vtep, moved = claims[at]
        world.put(MacIp(rd(vtep), MAC, None, 10), vtep, BLUE, ext.mac_mobility(moved))
    blue = world.instances["blue"]
    expected = [3, 1, 0, 2]
    expected.sort(key=lambda at: (-claims[at][1].sticky, -claims[at][1].sequence, int(claims[at][0])))
    for at in expected:
        entry = blue.mac(MAC)
        assert entry is not None
        assert (entry.vtep, entry.mobility) == claims[at]
        world.drop(MacIp(rd(claims[at][0]), MAC, None, 10))
    assert blue.mac(MAC) is None


def test_our_own_routes_are_in_the_table_as_local_ones() -> None:
    world = World()
    world.put(MacIp(rd(OURS), MAC, None, 10), OURS, BLUE, source=LOCAL)
    entry = world.instances["blue"].mac(MAC)
    assert entry is not None
    assert entry.local
    world.put(MacIp(rd(VTEPS[0]), MAC, None, 10), VTEPS[0], BLUE, ext.mac_mobility(ext.Mobility(1)))
    entry = world.instances["blue"].mac(MAC)
    assert entry is not None
    assert (entry.local, entry.vtep) == (False, VTEPS[0])


def test_vteps_and_prefixes() -> None:
    world = World()
    blue = world.instances["blue"]
    world.put(Multicast(rd(OURS), OURS), OURS, BLUE, source=LOCAL)
    world.put(Multicast(rd(VTEPS[0]), VTEPS[0]), VTEPS[0], BLUE, pmsi=Pmsi(10, VTEPS[0].packed))
    world.put(Multicast(rd(VTEPS[1]), VTEPS[1]), VTEPS[1], BLUE)
    assert {path.attributes.next_hop for _, path in blue.remote(MULTICAST)} == {VTEPS[0], VTEPS[1]}
    assert blue.take_changes() == (set(), True)
    prefix = IpPrefix(rd(VTEPS[0]), IPv4Address("10.7.0.0"), 16, IPv4Address(0), 99)
    world.put(prefix, VTEPS[0], BLUE)
    assert [route for route, _ in blue.remote(IP_PREFIX)] == [prefix]
    world.drop(Multicast(rd(VTEPS[0]), VTEPS[0]))
    world.drop(prefix)
    assert [path.attributes.next_hop for _, path in blue.remote(MULTICAST)] == [VTEPS[1]]
    assert blue.remote(IP_PREFIX) == []


numbers = st.integers(0, 2)
steps = st.lists(
    st.tuples(st.booleans(), numbers, numbers, st.sampled_from([(BLUE,), (RED,), (BLUE, RED), ()])), max_size=40
)


@given(steps)
def test_tables_are_those_of_the_routes_that_are_there(done: list[tuple[bool, int, int, tuple[bytes, ...]]]) -> None:
    world = World()
    model: dict[tuple[int, int], tuple[bytes, ...]] = {}
    for adds, vtep, number, targets in done:
        route = MacIp(rd(VTEPS[vtep]), number.to_bytes(6, "big"), None, 10)
        if adds:
            world.put(route, VTEPS[vtep], *targets)
            model[vtep, number] = targets
        else:
            world.drop(route)
            model.pop((vtep, number), None)
    for name, target in (("blue", BLUE), ("red", RED)):
        expected: dict[bytes, list[IPv4Address]] = {}
        for (vtep, number), targets in model.items():
            if target in targets:
                expected.setdefault(number.to_bytes(6, "big"), []).append(VTEPS[vtep])
        found = world.instances[name]
        assert set(found.macs()) == set(expected)
        for mac, vteps in expected.items():
            entry = found.mac(mac)
            assert entry is not None
            assert [path.attributes.next_hop for path in entry.paths] == sorted(vteps)


# Duplicates ------------------------------------------------------------------


def test_an_address_that_moves_often_is_a_duplicate_for_a_while() -> None:
    moves = MoveCounter()
    for number in range(MOVES - 1):
        assert not moves.moved(MAC, number * 30.0)
    assert moves.moved(MAC, 150.0)
    assert moves.is_duplicate(MAC, 151.0)
    assert moves.duplicates() == {MAC}
    assert moves.moved(MAC, 152.0), "its moves are not followed meanwhile"
    assert moves.expire(150.0 + RECOVERY_SECONDS) == {MAC}
    assert not moves.is_duplicate(MAC, 150.0 + RECOVERY_SECONDS)
    assert not moves.moved(MAC, 151.0 + RECOVERY_SECONDS)


@pytest.mark.parametrize("apart", [WINDOW_SECONDS / (MOVES - 1), 300.0])
def test_rare_moves_are_no_duplicate(apart: float) -> None:
    moves = MoveCounter()
    assert not any(moves.moved(MAC, number * apart) for number in range(50))


def test_a_duplicate_can_be_cleared_and_old_moves_take_no_memory() -> None:
    moves = MoveCounter()
    for number in range(MOVES):
        moves.moved(MAC, number)
    moves.clear(MAC)
    assert not moves.is_duplicate(MAC, 5)
    moves.moved(b"other", 0)
    moves.expire(WINDOW_SECONDS)
    assert not moves._moves
