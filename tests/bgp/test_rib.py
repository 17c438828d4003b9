"""RIBs: the best of all paths, whatever the order; what peers get; loops, reflection, restarts, constraints."""

from ipaddress import IPv4Address
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from netloom.bgp import communities as ext
from netloom.bgp.attributes import AttributeCache, Attributes, Context
from netloom.bgp.messages import Framer
from netloom.bgp.nlri import EVPN, ROUTE_TARGETS, MacIp, Routes, encode_evpn, split
from netloom.bgp.rib import AdjOut, Path, Relation, Rib, Source, membership, preference
from netloom.bgp.update import decode_update

OURS = IPv4Address("10.0.0.1")
RD = ext.route_distinguisher("10.0.0.9:1")
TARGET, OTHER_TARGET = ext.route_target("65001:10"), ext.route_target("65001:11")
SOURCES = [
    Source("local", Relation.LOCAL, OURS),
    Source("external", Relation.EXTERNAL, IPv4Address("10.0.0.2"), 65002),
    Source("internal", Relation.INTERNAL, IPv4Address("10.0.0.3"), 65001),
    Source("client", Relation.CLIENT, IPv4Address("10.0.0.4"), 65001),
    Source("client2", Relation.CLIENT, IPv4Address("10.0.0.5"), 65001),
]
LOCAL, EXTERNAL, INTERNAL, CLIENT, CLIENT2 = SOURCES


def route(number: int, **options: Any) -> Routes:
    made = MacIp(RD, number.to_bytes(6, "big"), None, 10, **options)
    return split(EVPN, encode_evpn(made))


def some(**options: Any) -> Attributes:
    return Attributes(**{"next_hop": IPv4Address("10.0.0.9"), "local_pref": 100, "extended": (TARGET,), **options})


def rib() -> Rib:
    made = Rib(65001, OURS)
    for source in SOURCES:
        made.add_source(source)
    return made


def best(made: Rib) -> dict[bytes, Path]:
    return made.best.get(EVPN, {})


moves = st.builds(
    lambda sequence, sticky: ext.mac_mobility(ext.Mobility(sequence, sticky)), st.integers(0, 3), st.booleans()
)
kinds = st.builds(
    some,
    local_pref=st.sampled_from((50, 100, 200)),
    origin=st.integers(0, 2),
    med=st.none() | st.integers(0, 2),
    as_path=st.sampled_from(((), ((2, (65002,)),), ((2, (65002, 65003)),), ((1, (65002, 65003)),))),
    extended=st.one_of(st.just((TARGET,)), moves.map(lambda one: (TARGET, one))),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(("announce", "announce", "withdraw", "remove", "stale", "sweep", "take")),
        st.sampled_from(SOURCES),
        st.lists(st.integers(0, 3), min_size=1, max_size=4),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(steps, st.lists(kinds, min_size=6, max_size=6))
def test_the_best_path_is_the_best_of_all_and_changes_tell_the_rest(
    done: list[tuple[str, Source, list[int], int]], attributes: list[Attributes]
) -> None:
    made = rib()
    model: dict[Source, dict[bytes, Attributes]] = {source: {} for source in SOURCES}
    stale: dict[Source, set[bytes]] = {source: set() for source in SOURCES}
    known: dict[bytes, Path] = {}

    def take() -> None:
        for key, (was, now) in made.take_changes().get(EVPN, {}).items():
            assert known.get(key) is was
            if now is None:
                del known[key]
            else:
                known[key] = now
        assert known == best(made)

    for what, source, numbers, which in done:
        routes = {key: value for number in numbers for key, value in route(number).items()}
        match what:
            case "announce":
                made.announce(source, EVPN, attributes[which], routes)
                model[source] |= dict.fromkeys(routes, attributes[which])
                stale[source] -= set(routes)
            case "withdraw":
                made.withdraw(source, EVPN, routes)
                model[source] = {key: value for key, value in model[source].items() if key not in routes}
                stale[source] -= set(routes)
            case "remove":
                made.remove_source(source)
                made.add_source(source)
                model[source], stale[source] = {}, set()
            case "stale":
                made.mark_stale(source, [EVPN])
                stale[source] = set(model[source])
            case "sweep":
                assert made.sweep_stale(source, EVPN) == len(stale[source])
                model[source] = {key: value for key, value in model[source].items() if key not in stale[source]}
                stale[source] = set()
            case _:
                take()
        for key in {key for routes in model.values() for key in routes} | set(best(made)):
            paths = [Path(key, table[key], source) for source, table in model.items() if key in table]
            raw = next(iter(made.paths(EVPN, key)), None)
            assert len(paths) == len(made.paths(EVPN, key))
            if not paths:
                assert key not in best(made)
                continue
            assert raw is best(made)[key]
            chosen = max(paths, key=lambda path: preference(Path(raw.route, path.attributes, path.source)))
            assert (raw.attributes, raw.source) == (chosen.attributes, chosen.source)
    take()


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Path(b"", some(local_pref=200), INTERNAL), Path(b"", some(), CLIENT)),
        (Path(b"", some(), LOCAL), Path(b"", some(local_pref=900), INTERNAL)),
        (Path(b"", some(), INTERNAL), Path(b"", some(as_path=((2, (1,)),)), CLIENT)),
        (Path(b"", some(as_path=((1, (1, 2, 3)),)), INTERNAL), Path(b"", some(as_path=((2, (1, 2)),)), INTERNAL)),
        (Path(b"", some(origin=0), INTERNAL), Path(b"", some(origin=1), INTERNAL)),
        (Path(b"", some(), INTERNAL), Path(b"", some(med=5), INTERNAL)),
        (Path(b"", some(), EXTERNAL), Path(b"", some(), INTERNAL)),
        (Path(b"", some(), INTERNAL), Path(b"", some(), CLIENT)),
        (Path(b"", some(originator_id=IPv4Address(1)), CLIENT), Path(b"", some(), INTERNAL)),
        (
            Path(b"", some(originator_id=IPv4Address(9)), CLIENT),
            Path(b"", some(originator_id=IPv4Address(9), cluster_list=(OURS,)), CLIENT),
        ),
        (
            Path(b"\2", some(extended=(ext.mac_mobility(ext.Mobility(1)),)), INTERNAL),
            Path(b"\2", some(local_pref=900), INTERNAL),
        ),
        (
            Path(b"\2", some(extended=(ext.mac_mobility(ext.Mobility(0, True)),)), INTERNAL),
            Path(b"\2", some(extended=(ext.mac_mobility(ext.Mobility(7)),)), INTERNAL),
        ),
    ],
)
def test_the_order_of_paths(better: Path, worse: Path) -> None:
    kind = better.route or b"\3"
    one, other = (Path(kind, path.attributes, path.source) for path in (better, worse))
    assert preference(one) > preference(other)


@pytest.mark.parametrize(
    ("attributes", "source"),
    [
        (some(as_path=((2, (65002, 65001)),)), EXTERNAL),
        (some(as_path=((1, (65001,)),)), INTERNAL),
        (some(originator_id=OURS), INTERNAL),
        (some(cluster_list=(IPv4Address(1), OURS)), CLIENT),
        (some(next_hop=OURS), INTERNAL),
    ],
)
def test_routes_that_have_been_here_are_refused_and_replace_the_earlier_one(
    attributes: Attributes, source: Source
) -> None:
    made = rib()
    made.announce(source, EVPN, some(), route(1))
    assert len(best(made)) == 1
    made.announce(source, EVPN, attributes, route(1))
    assert not best(made)
    assert made.refused == 1


# Adj-RIB-Out -----------------------------------------------------------------


class Receiver:
    """A peer, as far as its routes go."""

    def __init__(self, made: Rib, peer: Source, *, most: int = 4096, **options: Any) -> None:
        self.most = most
        self.context = Context(internal=peer.relation is not Relation.EXTERNAL)
        self.out = AdjOut(made, peer, self.context, (EVPN, ROUTE_TARGETS), **options)
        self.routes: dict[bytes, tuple[bytes, Attributes]] = {}
        self.messages = 0

    def get(self) -> None:
        framer = Framer()
        framer.longest = 65535
        while self.out.is_pending:
            for data in self.out.flush(self.most):
                self.messages += 1
                for _, body in framer.feed(data):
                    update = decode_update(body, self.context, (EVPN, ROUTE_TARGETS), AttributeCache())
                    assert not update.malformed
                    for key in update.withdrawn.get(EVPN, {}):
                        del self.routes[key]  # It is withdrawn only if it was announced.
                    for came in update.announced.values():
                        self.routes |= {key: (raw, came.attributes) for key, raw in came.routes.items()}


@given(steps, st.lists(kinds, min_size=6, max_size=6), st.sampled_from(SOURCES[1:]), st.integers(1, 4))
def test_a_peer_has_the_best_paths_that_it_may_have(
    done: list[tuple[str, Source, list[int], int]], attributes: list[Attributes], peer: Source, most: int
) -> None:
    made = rib()
    receiver = Receiver(made, peer, most=most)
    for what, source, numbers, which in done:
        routes = {key: value for number in numbers for key, value in route(number).items()}
        if what == "announce":
            made.announce(source, EVPN, attributes[which], routes)
        elif what == "withdraw":
            made.withdraw(source, EVPN, routes)
        elif what == "take":
            receiver.out.enqueue_chosen(EVPN, made.take_chosen().get(EVPN, {}))
            receiver.get()
    receiver.out.enqueue_chosen(EVPN, made.take_chosen().get(EVPN, {}))
    receiver.get()
    expected = {key for key, path in best(made).items() if is_told(path, peer)}
    assert set(receiver.routes) == expected
    for key, (raw, got) in receiver.routes.items():
        path = best(made)[key]
        assert raw == path.route
        if peer.relation is Relation.EXTERNAL:
            assert got.as_path[0][1][0] == 65001
            assert got.path_length == path.attributes.path_length + 1
            assert (got.local_pref, got.originator_id, got.cluster_list) == (None, None, ())
        else:
            assert got.local_pref == path.attributes.local_pref
            reflected = path.source.relation in (Relation.INTERNAL, Relation.CLIENT)
            assert got.originator_id == (path.source.router_id if reflected else None)
            assert got.cluster_list == ((OURS,) if reflected else ())
        assert (got.next_hop, got.extended) == (path.attributes.next_hop, path.attributes.extended)
    sent = receiver.messages
    receiver.out.enqueue_all(EVPN)
    receiver.get()
    assert receiver.messages == sent, "nothing is sent twice"
    receiver.out.resend(EVPN)
    receiver.get()
    assert set(receiver.routes) == expected


def is_told(path: Path, peer: Source) -> bool:
    """Whether a peer gets a path: not its own, not back into its AS, not from one internal peer to another."""
    if path.source is peer:
        return False
    if peer.relation is Relation.EXTERNAL:
        return not any(peer.asn in asns for _, asns in path.attributes.as_path)
    return not (path.source.relation is Relation.INTERNAL and peer.relation is Relation.INTERNAL)


def test_routes_that_come_and_go_while_a_peer_does_not_read_are_forgotten() -> None:
    made = rib()
    receiver = Receiver(made, CLIENT)
    made.announce(LOCAL, EVPN, some(), route(0))
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    receiver.get()
    for number in range(1000):
        # The next one comes before this one goes: they are in one batch, in either order.
        made.announce(LOCAL, EVPN, some(), route(number + 1))
        made.withdraw(LOCAL, EVPN, route(number))
        if number % 2:
            made.announce(LOCAL, EVPN, some(), route(number))
            made.withdraw(LOCAL, EVPN, route(number))
        receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
        assert sum(map(len, receiver.out._pending.values())) <= 2
    made.withdraw(LOCAL, EVPN, route(1000))
    made.announce(LOCAL, EVPN, some(), route(1000))
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    receiver.get()
    assert set(receiver.routes) == set(route(1000))


def test_many_routes_take_few_messages() -> None:
    made = rib()
    many = {key: raw for number in range(1000) for key, raw in route(number).items()}
    made.announce(LOCAL, EVPN, some(), many)
    small, big = Receiver(made, CLIENT), Receiver(made, CLIENT, longest=65535)
    for receiver in (small, big):
        receiver.out.enqueue_all(EVPN)
        receiver.get()
        assert len(receiver.routes) == receiver.out.count() == 1000
    assert (small.messages, big.messages) == (9, 1)


@pytest.mark.parametrize(
    ("community", "external", "internal"),
    [("ffffff01", False, True), ("ffffff02", False, False), ("ffffff03", False, True), ("ffffff04", True, True)],
    ids=["NO_EXPORT", "NO_ADVERTISE", "NO_EXPORT_SUBCONFED", "another"],
)
def test_well_known_communities_say_which_peers_get_a_route(community: str, external: bool, internal: bool) -> None:
    """RFC 1997."""
    made = rib()
    made.announce(CLIENT, EVPN, some(communities=bytes(4) + bytes.fromhex(community)), route(1))
    made.announce(CLIENT, EVPN, some(communities=b"\xff\xff" + bytes.fromhex(community) + b"\0\0"), route(2))
    for peer, expected in ((EXTERNAL, external), (CLIENT2, internal)):
        receiver = Receiver(made, peer)
        receiver.out.enqueue_all(EVPN)
        receiver.get()
        assert [key in receiver.routes for number in (1, 2) for key in route(number)] == [expected, True]


def test_communities_that_are_not_transitive_stay_in_the_as() -> None:
    """RFC 4360 section 6."""
    made = rib()
    inner = bytes((0x43, 0x04)) + bytes(6)
    made.announce(CLIENT, EVPN, some(extended=(TARGET, inner)), route(1))
    for peer, expected in ((EXTERNAL, (TARGET,)), (CLIENT2, (TARGET, inner))):
        receiver = Receiver(made, peer)
        receiver.out.enqueue_all(EVPN)
        receiver.get()
        assert [got.extended for _, got in receiver.routes.values()] == [expected]


@pytest.mark.parametrize(
    "long",
    [some(communities=bytes(4060)), some(as_path=((2, (65002,) * 255),) * 80)],
    ids=["for the peer", "for any attribute"],
)
def test_routes_whose_attributes_have_no_room_are_not_sent(long: Attributes) -> None:
    made = rib()
    receiver = Receiver(made, CLIENT)
    made.announce(LOCAL, EVPN, some(), {**route(1), **route(2)})
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    receiver.get()
    made.announce(LOCAL, EVPN, long, {**route(2), **route(3)})
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    while receiver.out.is_pending:
        data = receiver.out.flush()
        assert [len(one) < 4096 for one in data] == [True], "one withdrawal"
    assert receiver.out.count() == 1
    made.announce(LOCAL, EVPN, some(), {**route(2), **route(3)})
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    receiver.get()
    assert set(receiver.routes) == {*route(1), *route(2), *route(3)}


def test_a_peer_gets_only_the_targets_that_it_wants() -> None:
    made = rib()
    made.announce(LOCAL, EVPN, some(), route(1))
    made.announce(LOCAL, EVPN, some(extended=(OTHER_TARGET,)), route(2))
    receiver = Receiver(made, CLIENT)
    receiver.out.enqueue_all(EVPN)
    receiver.get()
    assert set(receiver.routes) == {*route(1), *route(2)}
    wanted = split(ROUTE_TARGETS, membership(65001, TARGET))
    receiver.out.want_targets(wanted)
    receiver.get()
    assert set(receiver.routes) == set(route(1))
    receiver.out.want_targets(split(ROUTE_TARGETS, b"\0"))
    receiver.get()
    assert set(receiver.routes) == {*route(1), *route(2)}
    receiver.out.want_targets({})
    receiver.get()
    assert not receiver.routes
    segment = ext.es_import(b"\2\0\0\0\0\1")  # RFC 7432 section 7.6: a target of another kind.
    made.announce(LOCAL, EVPN, some(extended=(segment,)), route(3))
    receiver.out.enqueue_chosen(EVPN, made.take_chosen()[EVPN])
    receiver.out.want_targets(split(ROUTE_TARGETS, membership(65001, segment)))
    receiver.get()
    assert set(receiver.routes) == set(route(3))
