"""Claims: what must be on a switch depends on who claims what, never on the order in which they came."""

from hypothesis import given
from hypothesis import strategies as st

from netloom.openflow.flows import Flow, MeterSpec, Output, match
from netloom.plan.vxlan.flow_claims import Delta, FlowClaims

OWNERS = ("a", "b", "c")
claims = st.dictionaries(
    st.sampled_from(OWNERS),
    st.tuples(st.integers(0, 2), st.dictionaries(st.integers(1, 4), st.integers(1, 2), max_size=3)),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(OWNERS), st.integers(0, 2), st.dictionaries(st.integers(1, 4), st.integers(1, 2)), st.booleans()
    ),
    max_size=12,
)


def flow(place: int, port: int) -> Flow:
    return Flow(0, 1, match(in_port=place), (Output(port),))


def test_the_highest_rank_wins_and_the_other_appears_when_it_goes() -> None:
    table = FlowClaims()
    table.replace("old", [flow(1, 1)], rank=7)
    table.replace("new", [flow(1, 2)], rank=9)
    assert table.take().puts == (flow(1, 2),)
    table.remove("new")
    assert table.take() == Delta((flow(1, 1),))
    table.remove("old")
    assert table.take() == Delta((), (flow(1, 1),))
    assert not table.flows


def test_of_two_of_one_rank_the_greater_name_wins_whoever_came_first() -> None:
    for names in (("a", "b"), ("b", "a")):
        table = FlowClaims()
        for name in names:
            table.replace(name, [flow(1, ord(name))], rank=1)
        assert table.take().puts == (flow(1, ord("b")),)


def test_what_comes_and_goes_between_two_takes_is_no_change() -> None:
    table = FlowClaims()
    table.replace("a", [flow(1, 1)])
    table.meter(3, MeterSpec(10, 5))
    table.take()
    table.replace("b", [flow(1, 2), flow(2, 2)], rank=1)
    table.meter(3, None)
    table.remove("b")
    table.meter(3, MeterSpec(10, 5))
    assert not table.take()


def test_a_meter_that_changes_or_goes_is_told_with_its_number() -> None:
    table = FlowClaims()
    table.meter(3, MeterSpec(10, 5))
    table.meter(4, MeterSpec(10, 5))
    assert table.take().meters == {3: MeterSpec(10, 5), 4: MeterSpec(10, 5)}
    table.meter(3, MeterSpec(20, 5))
    table.meter(4, None)
    assert table.take().meters == {3: MeterSpec(20, 5), 4: None}
    assert table.meters == {3: MeterSpec(20, 5)}


@given(claims, st.permutations(OWNERS))
def test_any_order_of_claims_comes_to_the_same(wanted: dict[str, tuple[int, dict[int, int]]], order: list[str]) -> None:
    table, other = FlowClaims(), FlowClaims()
    for name in OWNERS:
        rank, flows = wanted.get(name, (0, {}))
        table.replace(name, [flow(*one) for one in flows.items()], rank)
    for name in order:
        rank, flows = wanted.get(name, (0, {}))
        other.replace(name, [flow(*one) for one in flows.items()], rank)
        other.replace(name, [flow(*one) for one in flows.items()], rank)
    assert table.flows == other.flows
    assert table.take() == other.take()


@given(steps)
def test_what_was_taken_bit_by_bit_is_what_must_be(made: list[tuple[str, int, dict[int, int], bool]]) -> None:
    table, seen = FlowClaims(), dict[object, Flow]()
    last: dict[str, tuple[int, dict[int, int]]] = {}
    for owner, rank, flows, taken in made:
        table.replace(owner, [flow(*one) for one in flows.items()], rank)
        last[owner] = rank, flows
        if taken:
            delta = table.take()
            for one in delta.drops:
                del seen[one.key]
            seen.update({one.key: one for one in delta.puts})
            assert seen == table.flows
    fresh = FlowClaims()
    for owner, (rank, flows) in last.items():
        fresh.replace(owner, [flow(*one) for one in flows.items()], rank)
    assert fresh.flows == table.flows
    for owner, (rank, flows) in last.items():
        assert sorted(table.claimed(owner), key=str) == sorted((flow(*one) for one in flows.items()), key=str), rank
