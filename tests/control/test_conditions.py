from datetime import UTC, datetime, timedelta

import pytest

from netloom.control.runtime import clock
from netloom.control.runtime.conditions import FALSE, TRUE, UNKNOWN, observed, summary, with_condition
from netloom.model.document import Condition
from tests.control.helpers import NOON

LATER = NOON + timedelta(hours=1)


def test_the_time_of_a_transition_moves_only_with_the_status() -> None:
    first = with_condition((), Condition(type="Valid", status=FALSE, reason="Bad"), NOON)
    same = with_condition(first, Condition(type="Valid", status=FALSE, reason="Worse", message="oh"), LATER)
    other = with_condition(same, Condition(type="Valid", status=TRUE), LATER)
    assert first[0].last_transition_time == same[0].last_transition_time == "2030-01-01T12:00:00.000000Z"
    assert same[0].message == "oh"
    assert other[0].last_transition_time == "2030-01-01T13:00:00.000000Z"


def test_a_condition_keeps_its_place_and_others_stay() -> None:
    conditions = (Condition(type="A", status=TRUE), Condition(type="B", status=TRUE))
    changed = with_condition(conditions, Condition(type="A", status=FALSE), NOON)
    assert [c.type for c in changed] == ["A", "B"]
    assert changed[1] is conditions[1]
    assert [c.type for c in with_condition(changed, Condition(type="C", status=TRUE), NOON)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("have", "status", "reason"),
    [
        ({"A": TRUE, "B": TRUE}, TRUE, "Ready"),
        ({"A": TRUE, "B": FALSE}, FALSE, "B"),
        ({"A": UNKNOWN, "B": FALSE}, FALSE, "B"),
        ({"A": TRUE, "B": UNKNOWN}, UNKNOWN, "B"),
        ({"A": TRUE}, UNKNOWN, "Pending"),
    ],
)
def test_ready_is_the_first_thing_that_does_not_hold(have: dict[str, str], status: str, reason: str) -> None:
    conditions = [Condition(type=name, status=value) for name, value in have.items()]
    ready = summary(conditions, ["A", "B"], 3)
    assert (ready.type, ready.status, ready.reason, ready.observed_generation) == ("Ready", status, reason, 3)


def test_what_is_observed_again_is_equal_to_what_was_observed_before() -> None:
    new = [Condition(type="A", status=FALSE, reason="Why", message="text")]
    once = observed((), new, generation=2, now=NOON)
    assert [(c.type, c.status, c.reason, c.message) for c in once] == [
        ("A", FALSE, "Why", "text"),
        ("Ready", FALSE, "Why", "text"),
    ]
    assert observed(once, new, generation=2, now=LATER) == once
    assert {c.observed_generation for c in observed(once, new, generation=3, now=LATER)} == {3}


def test_times_are_written_and_read_as_kubernetes_does() -> None:
    time = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    assert clock.stamp(time) == "2030-01-02T03:04:05Z"
    assert clock.micro(time) == "2030-01-02T03:04:05.000678Z"
    assert clock.parse(clock.micro(time)) == time
    assert clock.parse("2030-01-02T03:04:05") == time.replace(microsecond=0)
    assert clock.parse("") is clock.parse(None) is clock.parse("noon") is None
    assert clock.now().tzinfo is UTC
