"""EVPN: the routes of our machines, and RemoteVTEPs of what others announce: in any order they come to the same."""

from ipaddress import IPv4Address, ip_address, ip_network
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.bgp.attributes import AttributeCache, Attributes, Pmsi
from netloom.bgp.communities import auto_target, encapsulation, mobility_of, route_distinguisher, route_target
from netloom.bgp.nlri import EvpnRoute, IpPrefix, MacIp, Multicast, Routes, decode_evpn
from netloom.bgp.rib import Path, Relation, Source
from netloom.model.kinds.bgp import MACS_OF_REMOTE_VTEP, BGPSpeaker, EVPNNetwork, RemoteVTEPSpec
from netloom.plan.evpn.evi import Evi, evi_of
from netloom.plan.evpn.exports import MOST_GONE, Exports, Flush, Machine, Prefix
from netloom.plan.evpn.imports import Imports, Place, object_name, vni_of

VTEPS = [IPv4Address(f"192.0.2.{number}") for number in (1, 2, 3)]
EVI = Evi(10, route_distinguisher("192.0.2.1:10"), frozenset(), (route_target("65000:10"), encapsulation()), VTEPS[0])
MACS = [bytes((2, 0, 0, 0, 0, number)) for number in range(4)]
R = TypeVar("R")
SOURCE = Source("192.0.2.9", Relation.INTERNAL, VTEPS[2])


class Table:
    """What peers have, from what was flushed."""

    def __init__(self, exports: Exports) -> None:
        self.exports = exports
        self.routes: dict[bytes, tuple[bytes, Attributes]] = {}

    def flush(self) -> Flush:
        flush = self.exports.flush()
        for key in flush.withdrawn:
            del self.routes[key]
        for attributes, routes in flush.announced.items():
            for key, route in routes.items():
                assert self.routes.get(key) != (route, attributes)
                self.routes[key] = (route, attributes)
        return flush

    def decoded(self) -> set[tuple[EvpnRoute, str]]:
        return {(decode_evpn(route), str(attributes.next_hop)) for route, attributes in self.routes.values()}


def _kept(routes: dict[Attributes, Routes]) -> dict[bytes, tuple[bytes, Attributes]]:
    return {key: (route, attributes) for attributes, some in routes.items() for key, route in some.items()}


owners = st.sampled_from(["a", "b", "c"])
machines = st.builds(
    Machine,
    st.sampled_from(MACS),
    st.sampled_from([(), (ip_address("10.0.0.1"),), (ip_address("10.0.0.1"), ip_address("2001:db8::1"))]),
    st.sampled_from(VTEPS),
)


@given(st.lists(st.tuples(owners, st.none() | machines, st.booleans()), max_size=30))
def test_routes_one_change_at_a_time_are_those_of_all_at_once(steps: list[tuple[str, Machine | None, bool]]) -> None:
    table = Table(Exports(EVI, AttributeCache()))
    now: dict[str, Machine] = {}
    for owner, machine, flushed in steps:
        table.exports.put(owner, machine)
        now.pop(owner, None)
        if machine is not None:
            now[owner] = machine
        if flushed:
            table.flush()
    table.flush()
    assert table.routes == _kept(table.exports.everything())
    wanted: set[tuple[EvpnRoute, str]] = {(Multicast(EVI.rd, one.vtep), str(one.vtep)) for one in now.values()}
    first = {one.mac: one for owner, one in sorted(now.items(), reverse=True)}
    for one in first.values():
        wanted |= {(MacIp(EVI.rd, one.mac, ip, 10), str(one.vtep)) for ip in (None, *one.ips)}
    assert table.decoded() == wanted
    assert len(table.exports) == len(first)
    empty = table.exports.flush()
    assert (empty.announced, empty.withdrawn, empty.macs) == ({}, {}, set())


def test_broadcast_has_a_route_with_the_vni_in_its_tunnel() -> None:
    table = Table(Exports(EVI, AttributeCache(), [VTEPS[0]]))
    table.flush()
    ((route, attributes),) = table.routes.values()
    assert decode_evpn(route) == Multicast(EVI.rd, VTEPS[0])
    assert attributes.pmsi == Pmsi(10, VTEPS[0].packed)
    assert attributes.extended == EVI.exports


def test_a_machine_that_moves_is_announced_with_a_higher_sequence() -> None:
    table = Table(Exports(EVI, AttributeCache()))
    sequences = []
    for vtep in (VTEPS[0], VTEPS[1], VTEPS[1], VTEPS[0]):
        table.exports.put("a", Machine(MACS[0], (), vtep))
        table.flush()
        found = [one for route, one in table.routes.values() if route[0] == 2]
        sequences.append([mobility_of(one.extended).sequence for one in found])
    assert sequences == [[0], [1], [1], [2]]
    table.exports.contest(MACS[0], 9)
    table.flush()
    assert [mobility_of(one.extended).sequence for route, one in table.routes.values() if route[0] == 2] == [9]
    for _ in range(2):
        table.exports.contest(MACS[0], 2**32)  # Another site has announced it with the highest.
        table.flush()
        highest = [mobility_of(one.extended).sequence for route, one in table.routes.values() if route[0] == 2]
        assert highest == [2**32 - 1]
        table.exports.put("a", Machine(MACS[0], (), VTEPS[1]))


def sequence(table: Table) -> list[int]:
    table.flush()
    return [mobility_of(one.extended).sequence for route, one in table.routes.values() if route[0] == 2]


def test_a_machine_that_is_deleted_and_created_elsewhere_has_moved() -> None:
    table = Table(Exports(EVI, AttributeCache()))
    found = []
    for number, vtep in enumerate((VTEPS[0], VTEPS[1], VTEPS[1], VTEPS[2])):
        table.exports.put(f"owner-{number}", Machine(MACS[0], (), vtep))
        found.append(sequence(table))
        table.exports.put(f"owner-{number}", None)
        assert sequence(table) == []
    assert found == [[0], [1], [1], [2]]


def test_a_bounded_number_of_machines_that_are_gone_is_remembered() -> None:
    exports = Exports(EVI, AttributeCache())
    for number in range(MOST_GONE + 10):
        mac = number.to_bytes(6, "big")
        exports.put("owner", Machine(mac, (), VTEPS[0]))
        exports.flush()
        exports.put("owner", None)
        exports.flush()
    assert len(exports._gone) == MOST_GONE


def test_a_later_turn_has_higher_sequences_than_those_before() -> None:
    first, second = Table(Exports(EVI, AttributeCache())), Table(Exports(EVI, AttributeCache()))
    first.exports.begin_turn(1)
    first.exports.put("a", Machine(MACS[0], (), VTEPS[0]))
    assert sequence(first) == [0]
    first.exports.contest(MACS[0], 9)
    second.exports.put("a", Machine(MACS[0], (), VTEPS[1]))
    second.exports.begin_turn(2)
    assert sequence(first) < sequence(second)
    second.exports.put("a", Machine(MACS[0], (), VTEPS[2]))
    assert sequence(second) == [257]


def test_subnets_behind_a_router_are_prefixes() -> None:
    table = Table(Exports(EVI, AttributeCache(), [VTEPS[0]]))
    block = ip_network("10.7.0.0/16")
    table.exports.put_prefixes(frozenset({Prefix(block, ip_address("10.0.0.254"), VTEPS[0])}))
    table.flush()
    prefix = IpPrefix(EVI.rd, block.network_address, 16, ip_address("10.0.0.254"), 10)
    assert (prefix, str(VTEPS[0])) in table.decoded()
    table.exports.put_prefixes(frozenset())
    table.flush()
    assert table.decoded() == {(Multicast(EVI.rd, VTEPS[0]), str(VTEPS[0]))}


def _objects(asn: int = 65000, number: int | None = None, **spec: object) -> tuple[BGPSpeaker, EVPNNetwork]:
    def made(kind: type[R], content: dict[str, object], **status: object) -> R:
        plain = {"apiVersion": "", "kind": "", "metadata": {"name": "x"}, "spec": content, "status": status}
        return msgspec.convert(plain, kind)

    speaker = made(BGPSpeaker, {"asn": asn, "routerID": "192.0.2.1", "node": "gw"})
    return speaker, made(EVPNNetwork, {"network": "blue", "speaker": "main", **spec}, rdNumber=number)


@pytest.mark.parametrize(
    ("spec", "vni", "rd", "target"),
    [
        ({}, 10, "192.0.2.1:10", auto_target(65000, 10)),
        ({"number": 7}, 70000, "192.0.2.1:7", auto_target(65000, 70000)),
        ({"asn": 4200000001}, 10, "192.0.2.1:10", auto_target(4200000001, 10)),
        ({"rd": "65000:77"}, 10, "65000:77", auto_target(65000, 10)),
        ({"rfc8365Targets": True}, 10, "192.0.2.1:10", auto_target(65000, 10, rfc8365=True)),
        ({"exportTargets": ["192.0.2.7:3"]}, 10, "192.0.2.1:10", route_target("192.0.2.7:3")),
    ],
)
def test_the_instance_of_an_evpn_network(spec: dict[str, object], vni: int, rd: str, target: bytes) -> None:
    evi = evi_of(*_objects(**spec), vni)  # type: ignore[arg-type]
    assert evi.rd == route_distinguisher(rd)
    assert evi.exports == (target, encapsulation())


def test_a_large_vni_needs_a_number_in_the_route_distinguisher() -> None:
    with pytest.raises(ValueError, match=r"spec\.rd"):
        evi_of(*_objects(), 70000)


@pytest.mark.parametrize(
    ("route", "pmsi", "target", "vni"),
    [
        (MacIp(route_distinguisher("65000:4"), MACS[0], None, 1, tag=2), None, "65000:3", 1),
        (MacIp(route_distinguisher("65000:4"), MACS[0], None, 0, tag=2), None, "65000:3", 2),
        (Multicast(route_distinguisher("65000:4"), VTEPS[0], 2), Pmsi(1), "65000:3", 1),
        (Multicast(route_distinguisher("65000:4"), VTEPS[0], 2), None, "65000:3", 2),
        (Multicast(route_distinguisher("65000:4"), VTEPS[0]), None, "65000:3", 3),
        (Multicast(route_distinguisher("65000:4"), VTEPS[0]), None, "65000:268435459", 3),
        (Multicast(route_distinguisher("65000:4"), VTEPS[0]), None, "", 4),
        (Multicast(route_distinguisher("192.0.2.1:5"), VTEPS[0]), None, "", 5),
        (Multicast(route_distinguisher("192.0.2.1:0"), VTEPS[0]), None, "", 0),
    ],
)
def test_the_vni_of_a_route(route: EvpnRoute, pmsi: Pmsi | None, target: str, vni: int) -> None:
    extended = (route_target(target),) if target else ()
    assert vni_of(route, Path(b"", Attributes(next_hop=VTEPS[0], extended=extended, pmsi=pmsi), SOURCE)) == vni


PLACES = [Place("192.0.2.1", 10), Place("192.0.2.2", 10), Place("192.0.2.2", 11), Place("2001:db8::1", 10)]
texts = st.sampled_from([f"02:00:00:00:00:{number:02x}" for number in range(6)])
puts = st.tuples(texts, st.none() | st.sampled_from(PLACES), st.sets(st.sampled_from(["10.0.0.1", "10.0.0.2"])))
floods = st.sets(st.sampled_from(PLACES))


class Written:
    """The objects as a speaker writes them."""

    def __init__(self) -> None:
        self.objects: dict[str, RemoteVTEPSpec] = {}

    def write(self, imports: Imports) -> None:
        for name in imports.take():
            spec = imports.spec(name)
            if spec is None:
                self.objects.pop(name, None)
                imports.forget(name)
            else:
                self.objects[name] = spec

    def machines(self) -> dict[str, tuple[Place, tuple[str, ...]]]:
        found: dict[str, tuple[Place, tuple[str, ...]]] = {}
        for spec in self.objects.values():
            for one in spec.macs:
                assert one.mac not in found
                found[one.mac] = (Place(spec.address, spec.vni), one.ips)
        return found


@given(st.lists(puts | floods, max_size=40), st.integers(0, 40))
def test_objects_are_what_was_put_also_after_a_restart(steps: list[object], restart: int) -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=1024), Written()
    wanted: dict[str, tuple[Place, tuple[str, ...]]] = {}
    flood: set[Place] = set()
    for number, step in enumerate(steps):
        if number == restart:
            written.write(imports)
            imports = Imports("blue", "net", "gw", 10, most=1024)
            for name, spec in written.objects.items():
                imports.adopt(name, spec)
        if isinstance(step, tuple):
            mac, place, ips = step
            imports.put(mac, place, ips)
            wanted.pop(mac, None)
            if place is not None:
                wanted[mac] = (place, tuple(sorted(ips)))
        else:
            assert isinstance(step, set)
            imports.flood(step)
            flood = step
        if number % 3 == 0:
            written.write(imports)
    written.write(imports)
    assert written.machines() == wanted
    places = {place for place, _ in wanted.values()} | flood
    assert {spec.address for spec in written.objects.values()} == {one.address for one in places}
    for place in places:
        first = written.objects[object_name("blue", place, 0)]
        assert first.flood is (place in flood)
    assert imports.macs == len(wanted)
    assert set(imports.places()) == places


def test_a_vtep_with_many_machines_has_several_objects_and_one_change_writes_one() -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=1024), Written()
    count = 3 * MACS_OF_REMOTE_VTEP + 5
    for number in range(count):
        imports.put(number.to_bytes(6, "big").hex(":"), PLACES[0])
    assert len(imports._dirty) == 4
    written.write(imports)
    assert len(written.objects) == 4
    for spec in written.objects.values():
        assert len(spec.macs) <= MACS_OF_REMOTE_VTEP
    imports.put((600).to_bytes(6, "big").hex(":"), PLACES[0], ["10.0.0.1"])
    assert len(imports.take()) == 1
    for number in range(count):
        imports.put(number.to_bytes(6, "big").hex(":"), None)
    written.write(imports)
    assert written.objects == {}
    assert imports._objects == {}


def test_a_peer_cannot_make_more_vteps_than_there_may_be() -> None:
    imports = Imports("blue", "net", "gw", 10, most=100)
    for number in range(110):
        imports.put(number.to_bytes(6, "big").hex(":"), Place(str(IPv4Address(0xC0000200 + number)), 10))
    assert imports.macs == 100
    assert imports.refused == 10


@pytest.mark.parametrize(
    ("name", "place", "found"),
    [
        ("blue", PLACES[0], "blue.192-0-2-1.10.3"),
        ("blue", PLACES[3], "blue.2001-db8--1.10.3"),
        ("blue", Place("::1", 10), "blue.0--10.10.3"),
        ("blue", Place("2001:db8::", 10), "blue.02001-db8--0.10.3"),
    ],
)
def test_names_of_objects(name: str, place: Place, found: str) -> None:
    assert object_name(name, place, 3) == found
    assert len(object_name("x" * 253, place, 3)) <= 253


def test_a_vtep_that_takes_no_more_broadcasts_is_in_no_object_of_it() -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=1024), Written()
    for number in range(MACS_OF_REMOTE_VTEP + 5):
        imports.put(number.to_bytes(6, "big").hex(":"), PLACES[0])
    imports.flood({PLACES[0]})
    written.write(imports)
    imports.flood(set())
    written.write(imports)
    assert [spec.flood for spec in written.objects.values()] == [False, False]


@given(st.lists(puts | floods, max_size=40))
def test_refused_vteps_are_imported_as_soon_as_there_is_room(steps: list[object]) -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=2), Written()
    wanted: dict[str, tuple[Place, tuple[str, ...]]] = {}
    flood: set[Place] = set()
    for step in steps:
        if isinstance(step, tuple):
            mac, place, ips = step
            imports.put(mac, place, ips)
            wanted.pop(mac, None)
            if place is not None:
                wanted[mac] = (place, tuple(sorted(ips)))
        else:
            assert isinstance(step, set)
            imports.flood(step)
            flood = step
        while imports._dirty:
            written.write(imports)
        places = {place for place, _ in wanted.values()} | flood
        present = set(imports.places())
        assert present <= places
        assert len(present) == min(2, len(places))
        assert written.machines() == {mac: found for mac, found in wanted.items() if found[0] in present}
        assert imports.flooded == flood & present
        assert set(imports._waiting) == places - present


def test_a_machine_that_was_refused_is_imported_when_there_is_room() -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=100), Written()
    macs = [number.to_bytes(6, "big").hex(":") for number in range(100 + 2)]
    places = [Place(str(IPv4Address(0xC0000200 + number)), 10) for number in range(100 + 2)]
    for mac, place in zip(macs, places, strict=True):
        imports.put(mac, place, ["10.0.0.1"])
    written.write(imports)
    imports.put(macs[-1], None)
    imports.put(macs[0], None)
    written.write(imports)
    written.write(imports)
    assert written.machines()[macs[-2]] == (places[-2], ("10.0.0.1",))
    assert imports.macs == 100
    assert macs[-1] not in written.machines()


def test_the_first_object_of_a_vtep_comes_back_with_a_machine() -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=1024), Written()
    macs = [number.to_bytes(6, "big").hex(":") for number in range(MACS_OF_REMOTE_VTEP + 5)]
    for mac in macs:
        imports.put(mac, PLACES[0])
    written.write(imports)
    for mac in macs:
        imports.put(mac, None)
    first = object_name("blue", PLACES[0], 0)
    imports.take()
    imports.forget(first)  # The other one is not deleted yet.
    imports.put(macs[-1], PLACES[0])
    assert imports.spec(first) is not None
    written.objects = {}
    written.write(imports)
    assert set(written.machines()) == {macs[-1]}
    assert first in written.objects


def test_more_vteps_are_accepted_when_the_limit_rises() -> None:
    imports = Imports("blue", "net", "gw", 10, most=1)
    imports.put("02:00:00:00:00:01", PLACES[0])
    imports.put("02:00:00:00:00:02", PLACES[1])
    imports.flood({PLACES[2]})
    assert imports.places() == [PLACES[0]]
    imports.admit(3)
    assert set(imports.places()) == {PLACES[0], PLACES[1], PLACES[2]}


def test_what_a_speaker_has_not_written_is_known_when_it_forwards() -> None:
    imports, written = Imports("blue", "net", "gw", 10, most=1024), Written()
    imports.put("02:00:00:00:00:01", PLACES[0])
    imports.flood({PLACES[1]})
    for name in imports.take():  # As a speaker that does not forward: it has nothing to write.
        imports.forget(name)
    for name in imports.names():
        spec = imports.spec(name)
        assert spec is not None
        written.objects[name] = spec
    assert written.machines() == {"02:00:00:00:00:01": (PLACES[0], ())}
    assert {(spec.address, spec.flood) for spec in written.objects.values()} == {
        (PLACES[0].address, False),
        (PLACES[1].address, True),
    }
