"""Shaping: the rate is the one in the spec, within 15 %, and no less for anybody else."""

from collections.abc import Callable, Iterator

import pytest

from netloom.lab import Lab, probes
from tests.lab.worlds import World, world

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

TRIES = 5
WITHIN = 0.15


@pytest.fixture(scope="module")
def qos(lab: Lab) -> Iterator[World]:
    """Links of three qualities."""
    with (
        world(lab, "qos") as made,
        probes.iperf_server(made.netns("sink")),
        probes.iperf_server(made.netns("both")),
    ):
        assert all(made.reaches([(name, "10.69.0.14", "ping") for name in ("slow", "both", "free")]).values())
        yield made


@pytest.mark.parametrize("sink", ["10.69.0.14", "fd69::14"], ids=["v4", "v6"])
def test_what_a_shaped_machine_sends_is_at_its_rate(qos: World, sink: str) -> None:
    assert measured(qos, "slow", sink, offered=30, fits=about(10)) == pytest.approx(10, rel=WITHIN)


def test_tcp_gets_its_rate_too(qos: World) -> None:
    assert measured(qos, "slow", "10.69.0.14", offered=0, fits=about(10)) == pytest.approx(10, rel=WITHIN)


@pytest.mark.parametrize(("source", "target"), [("both", "10.69.0.14"), ("sink", "10.69.0.12")], ids=["to", "fro"])
def test_both_ways_have_the_rate(qos: World, source: str, target: str) -> None:
    assert measured(qos, source, target, offered=60, fits=about(20)) == pytest.approx(20, rel=WITHIN)


def test_who_is_not_shaped_is_not_slowed(qos: World) -> None:
    assert measured(qos, "free", "10.69.0.14", offered=0, fits=lambda rate: rate > 40) > 40


def test_the_status_says_what_is_in_force_and_what_cannot_be(qos: World) -> None:
    status = qos.get("shaping", "both")["status"]
    assert status["applied"]["rate"] == "20mbit"
    assert [one["field"] for one in status["unsupported"]] == ["burst"]
    assert qos.get("shaping", "slow")["status"]["applied"]["rate"] == "10mbit"


def about(rate: float) -> Callable[[float], bool]:
    """Return whether something is as much as this."""
    return lambda seen: abs(seen - rate) <= rate * WITHIN


def measured(made: World, source: str, target: str, *, offered: float, fits: Callable[[float], bool]) -> float:
    """Return a rate; measured again when the machine may have been too busy to send or to receive."""
    seen = 0.0
    for _ in range(TRIES):
        seen = probes.megabits(made.netns(source), target, offered=offered)
        if fits(seen):
            break
    return seen
