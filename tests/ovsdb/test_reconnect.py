"""When to connect, where to, when to probe, and when to give up; with a clock that is an argument."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.ovsdb.reconnect import is_remote
from netloom.reconnect import CONNECT_TIMEOUT, LONGEST, SHORTEST, Action, Reconnect, State


def test_all_remotes_are_tried_at_once_and_then_the_wait_grows() -> None:
    machine, now, waits, remotes = Reconnect(["a", "b", "c"], Random(3)), 10.0, [], []
    for _ in range(12):
        deadline = machine.deadline()
        assert deadline is not None
        waits.append(max(0.0, deadline - now))
        now = max(now, deadline)
        remotes.append(machine.remote)
        assert machine.run(now) is Action.CONNECT
        machine.disconnected(now)
    assert sorted(remotes[:3]) == ["a", "b", "c"]
    assert remotes[:3] == remotes[3:6]
    assert waits[1:4] == [0, 0, 0]
    assert 0 < waits[4] < waits[-1] <= LONGEST


def test_a_connection_that_proved_good_resets_the_wait() -> None:
    machine = Reconnect(["a"], Random(3))
    for _ in range(8):
        machine.disconnected(5.0)
    assert (machine.deadline() or 0) > 5.0
    machine.run(100.0)
    machine.connected(100.0)
    machine.useful()
    machine.disconnected(101.0, elsewhere=False)
    assert machine.deadline() == 101.0


def test_a_connection_that_proves_good_and_ends_at_once_is_not_made_again_without_end() -> None:
    machine, now = Reconnect(["a"], Random(3)), 100.0
    for _ in range(100):
        assert machine.run(now) is Action.CONNECT
        machine.connected(now)
        machine.useful()
        machine.disconnected(now, elsewhere=False)
        now = machine.deadline() or 0.0
    assert now >= 100.0 + 99 * SHORTEST


def test_silence_is_probed_and_then_given_up() -> None:
    machine = Reconnect(["a"], Random(3), probe=5.0)
    assert machine.run(0.0) is Action.CONNECT
    machine.connected(1.0)
    assert machine.run(5.9) is None
    assert machine.run(6.0) is Action.PROBE
    assert machine.state is State.PROBING
    assert machine.run(10.9) is None
    assert machine.run(11.0) is Action.DISCONNECT


def test_anything_said_is_a_sign_of_life() -> None:
    machine = Reconnect(["a"], Random(3), probe=5.0)
    machine.run(0.0)
    machine.connected(0.0)
    machine.activity(3.0)
    assert machine.deadline() == 8.0
    machine.run(8.0)
    machine.activity(9.0)
    assert machine.state is State.ACTIVE
    assert machine.deadline() == 14.0


def test_without_a_probe_silence_is_golden() -> None:
    machine = Reconnect(["a"], Random(3), probe=0)
    machine.run(0.0)
    machine.connected(0.0)
    assert machine.deadline() is None
    assert machine.run(1e9) is None


def test_an_attempt_that_takes_too_long_is_given_up() -> None:
    machine = Reconnect(["a"], Random(3))
    machine.run(0.0)
    assert machine.run(CONNECT_TIMEOUT - 0.1) is None
    assert machine.run(CONNECT_TIMEOUT) is Action.DISCONNECT


def test_no_remotes_are_refused() -> None:
    with pytest.raises(ValueError, match="no remotes"):
        Reconnect([], Random(1))


@given(st.lists(st.sampled_from(["run", "connected", "activity", "useful", "lost", "stay", "wait"]), max_size=60))
def test_any_order_of_events_leaves_a_machine_that_goes_on(events: list[str]) -> None:
    machine, now = Reconnect(["a", "b"], Random(1)), 0.0
    for event in events:
        match event:
            case "run":
                machine.run(now)
            case "connected":
                machine.connected(now)
            case "activity":
                machine.activity(now)
            case "useful":
                machine.useful()
            case "lost" | "stay":
                machine.disconnected(now, elsewhere=event == "lost")
            case _:
                now += 3.0
        deadline = machine.deadline()
        assert deadline is not None
        assert deadline <= now + max(LONGEST, CONNECT_TIMEOUT)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("unix:/run/db.sock", True),
        ("tcp:192.0.2.1:6641", True),
        ("tcp:[2001:db8::1]:6641", True),
        ("ssl:ovn.example", True),
        ("unix:", False),
        ("nowhere", False),
        ("udp:192.0.2.1:6641", False),
        ("tcp:192.0.2.1:66x", False),
        ("tcp:192.0.2.1:66666", False),
        ("tcp::6641", False),
    ],
)
def test_what_is_no_remote_is_known_before_anybody_connects(text: str, is_one: bool) -> None:
    assert is_remote(text) is is_one
