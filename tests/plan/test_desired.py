"""The wanted rows: what changes are told, and that the order in which outcomes come does not matter."""

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Member, Outcome, Ref, Row
from tests.plan.planning import Database, rendered

A, B, C = (Unit("Network", "default", name) for name in "abc")
SWITCH, PORT, ZONE = Ref("Logical_Switch", "s"), Ref("Logical_Switch_Port", "p"), Ref("DNS", "z")
JOINS = Member(SWITCH, "ports", PORT)


def row(ref: Ref, **columns: Any) -> Row:
    return Row(ref.table, ref.key, columns)


def test_a_member_of_a_planned_row_joins_and_leaves() -> None:
    wanted = DesiredRows()
    wanted.replace(A, Outcome(rows=[row(SWITCH)]))
    wanted.replace(B, Outcome(rows=[row(PORT)], members=[JOINS]))
    assert wanted.take() == Delta({SWITCH, PORT}, {JOINS}, set(), set())
    assert wanted.members(SWITCH) == {"ports": {PORT: PORT}}
    assert wanted.of == {SWITCH: A, PORT: B}
    wanted.replace(B, None)
    assert wanted.take() == Delta({PORT}, set(), {JOINS}, set())
    assert wanted.members(SWITCH) == {}


def test_a_member_waits_for_its_row_and_for_what_it_refers_to() -> None:
    wanted = DesiredRows()
    wanted.replace(C, Outcome(members=[JOINS]))
    assert not wanted.take()
    wanted.replace(A, Outcome(rows=[row(SWITCH)]))
    assert wanted.take() == Delta({SWITCH}, set(), set(), set())
    wanted.replace(B, Outcome(rows=[row(PORT)]))
    assert wanted.take() == Delta({PORT}, {JOINS}, set(), set())
    wanted.replace(A, None)
    assert wanted.take() == Delta({SWITCH}, set(), {JOINS}, set())
    assert wanted.members(SWITCH) == {}


def test_what_comes_and_goes_between_two_takes_is_not_told() -> None:
    wanted = DesiredRows()
    wanted.replace(A, Outcome(rows=[row(SWITCH)]))
    wanted.replace(B, Outcome(rows=[row(PORT)], members=[JOINS]))
    wanted.replace(B, None)
    assert wanted.take().joined == set()
    wanted.replace(B, Outcome(rows=[row(PORT)], members=[JOINS]))
    wanted.take()
    wanted.replace(A, None)
    wanted.replace(A, Outcome(rows=[row(SWITCH)]))
    assert wanted.take() == Delta({SWITCH}, set(), set(), set())


def test_the_same_outcome_again_changes_nothing() -> None:
    wanted = DesiredRows()
    for _ in range(2):
        wanted.replace(A, Outcome(rows=[row(SWITCH, name="s")], members=[JOINS, JOINS], problems=[Problem("Bad", "b")]))
    wanted.take()
    wanted.replace(A, Outcome(rows=[row(SWITCH, name="s")], members=[JOINS, JOINS], problems=[Problem("Bad", "b")]))
    assert not wanted.take()
    wanted.replace(A, Outcome(rows=[row(SWITCH, name="t")], members=[JOINS]))
    assert wanted.take() == Delta({SWITCH}, set(), set(), {A})
    assert wanted.problems == {}


def test_a_member_given_by_several_is_there_until_the_last_withdraws_it() -> None:
    wanted = DesiredRows()
    entry = Member(ZONE, "records", "10.0.0.1", "web")
    wanted.replace(A, Outcome(rows=[row(ZONE)]))
    for unit in (A, B, C):
        rows = [row(ZONE)] if unit == A else []
        wanted.replace(unit, Outcome(rows=rows, members=[entry]))
    assert wanted.take().joined == {entry}
    wanted.replace(C, None)
    wanted.replace(B, None)
    assert not wanted.take()
    wanted.replace(A, Outcome(rows=[row(ZONE)]))
    assert wanted.take().left == {entry}


def test_of_several_values_for_a_key_the_least_is_taken() -> None:
    wanted = DesiredRows()
    first, second = (Member(ZONE, "records", value, "web") for value in ("10.0.0.1", "10.0.0.2"))
    wanted.replace(A, Outcome(rows=[row(ZONE)]))
    wanted.replace(B, Outcome(members=[second]))
    wanted.take()
    wanted.replace(C, Outcome(members=[first]))
    assert wanted.take() == Delta(set(), {first}, {second}, set())
    assert wanted.members(ZONE) == {"records": {"web": "10.0.0.1"}}
    wanted.replace(C, None)
    assert wanted.take() == Delta(set(), {second}, {first}, set())


def test_a_key_of_a_map_may_equal_its_value() -> None:
    wanted = DesiredRows()
    entry = Member(ZONE, "records", "same", "same")
    wanted.replace(A, Outcome(rows=[row(ZONE)], members=[entry]))
    assert wanted.take().joined == {entry}
    wanted.replace(A, Outcome(rows=[row(ZONE)]))
    assert wanted.take().left == {entry}


def test_the_least_of_those_that_want_a_row_has_it_and_the_others_are_told() -> None:
    wanted = DesiredRows()
    mine = Member(PORT, "options", "mine", "who")
    wanted.replace(A, Outcome(rows=[row(SWITCH)]))
    wanted.replace(C, Outcome(rows=[row(PORT, name="c")], members=[JOINS, mine]))
    wanted.take()
    wanted.replace(B, Outcome(rows=[row(PORT, name="b")]))
    assert wanted.rows[PORT] == row(PORT, name="b")
    assert wanted.of[PORT] == B
    message = "Logical_Switch_Port p belongs to Network/default/b already"
    assert wanted.problems == {C: (Problem("Conflict", message),)}
    assert wanted.take() == Delta({PORT}, set(), {JOINS, mine}, {C})
    wanted.replace(B, None)
    assert wanted.rows[PORT] == row(PORT, name="c")
    assert wanted.take() == Delta({PORT}, {JOINS, mine}, set(), {C})
    wanted.replace(B, Outcome(rows=[row(PORT, name="b")]))
    wanted.replace(C, None)
    assert wanted.problems == {}
    assert wanted.rows[PORT] == row(PORT, name="b")


UNITS = [Unit("Network", "default", name) for name in "abcd"]
REFS = [Ref(table, key) for table in ("DNS", "Logical_Switch") for key in "xyz"]
REF = st.sampled_from(REFS)
ROWS = st.builds(lambda ref, name: row(ref, name=name), REF, st.sampled_from("mn"))
MEMBERS = st.one_of(
    st.builds(lambda ref, value: Member(ref, "set", value), REF, REF),
    st.builds(lambda ref, value: Member(ref, "words", value), REF, st.sampled_from("uv")),
    st.builds(
        lambda ref, value, key: Member(ref, "map", value, key),
        REF,
        st.one_of(REF, st.sampled_from("uvk")),
        st.sampled_from("kl"),
    ),
)


def _unique(rows: Sequence[Row]) -> list[Row]:
    return list({one.ref: one for one in rows}.values())


OUTCOMES = st.builds(
    lambda rows, members, problems: Outcome(_unique(rows), members, problems),
    st.lists(ROWS, max_size=3),
    st.lists(MEMBERS, max_size=5),
    st.lists(st.just(Problem("Bad", "bad")), max_size=1),
)


class Replacing(RuleBasedStateMachine):
    """Outcomes come in any order; the wanted rows are those of the last outcomes, and deltas lead to them."""

    def __init__(self) -> None:
        super().__init__()
        self.desired = DesiredRows()
        self.database = Database()
        self.problems: dict[Unit, tuple[Problem, ...]] = {}
        self.outcomes: dict[Unit, Outcome] = {}

    @rule(unit=st.sampled_from(UNITS), outcome=OUTCOMES)
    def replace(self, unit: Unit, outcome: Outcome) -> None:
        self.desired.replace(unit, outcome)
        self.outcomes[unit] = outcome

    @rule(unit=st.sampled_from(UNITS))
    def remove(self, unit: Unit) -> None:
        self.desired.replace(unit, None)
        self.outcomes.pop(unit, None)

    @rule()
    def take(self) -> None:
        delta = self.desired.take()
        self.database.apply(self.desired, delta)
        self.database.insist(self.desired)
        assert {unit for unit in UNITS if self.problems.get(unit) != self.desired.problems.get(unit)} <= delta.problems
        self.problems = dict(self.desired.problems)
        assert not self.desired.take()

    @invariant()
    def is_as_from_scratch(self) -> None:
        scratch = DesiredRows()
        for unit in sorted(self.outcomes, reverse=True):
            scratch.replace(unit, self.outcomes[unit])
        assert rendered(scratch) == rendered(self.desired)


TestReplacing = Replacing.TestCase
TestReplacing.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
