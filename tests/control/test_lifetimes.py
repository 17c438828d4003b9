import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import micro, stamp
from netloom.control.runtime.counters import LIFETIMES, Histogram
from netloom.control.runtime.creation import created_at
from netloom.errors import Unreachable
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.values import uids

START = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
BLUE = Key("default", "blue")
OF_CHANCE = "0f0c7a4e-3b1c-4d9e-8a52-0d9c5a2f1b3c"


class Wall:
    """A clock on the wall, moved by hand."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def pass_by(self, milliseconds: float) -> None:
        self.time += timedelta(milliseconds=milliseconds)


def attachment(uid: str = "", **since: datetime) -> NetworkAttachment:
    conditions = [{"type": name, "status": "True", "lastTransitionTime": micro(at)} for name, at in since.items()]
    document: dict[str, Any] = {
        "apiVersion": NETWORK_ATTACHMENT.api_version,
        "kind": "NetworkAttachment",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": uid or uids.mint(START.timestamp(), 1),
            "creationTimestamp": stamp(START),
        },
        "spec": {"node": "n1", "network": "blue"},
        "status": {"conditions": conditions, **({"hostIP": "172.31.0.1"} if "Plugged" in since else {})},
    }
    return msgspec.convert(document, NetworkAttachment)


def told(what: Callable[[Lifetimes, Wall], None]) -> Lifetimes:
    async def main() -> Lifetimes:
        wall = Wall()
        lifetimes = Lifetimes(clock=wall)
        what(lifetimes, wall)
        return lifetimes

    return asyncio.run(main())


def below(histogram: Histogram) -> list[float]:
    """Return the upper bounds of what was observed."""
    bounds = [*histogram.bounds, float("inf")]
    return [bound for bound, count in zip(bounds, histogram.counts, strict=True) for _ in range(count)]


def test_an_interface_is_counted_from_the_wish_as_its_uid_has_it_and_from_its_address() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        one = attachment(Addressed=START + timedelta(milliseconds=20))
        lifetimes.heard(one)
        wall.pass_by(60)
        lifetimes.plugged(one)
        wall.pass_by(30)
        lifetimes.plugged(one)
        lifetimes.ready(one)

    lifetimes = told(happens)
    assert {words: below(one) for words, one in lifetimes.to_interface.found.items()} == {("created",): [0.1]}
    assert {words: below(one) for words, one in lifetimes.to_ready.found.items()} == {("created",): [0.1]}
    assert lifetimes.to_ready.found["created",].total > lifetimes.to_interface.found["created",].total
    assert below(lifetimes.from_address) == [0.05]


def test_where_the_uid_does_not_say_it_begins_with_what_the_agent_saw() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        one = attachment(OF_CHANCE)
        lifetimes.heard(one)
        wall.pass_by(4)
        lifetimes.heard(one)
        wall.pass_by(4)
        lifetimes.plugged(one)
        lifetimes.ready(one)
        lifetimes.plugged(one)  # Looked at again, by what was known before.
        lifetimes.ready(one)
        lifetimes.plugged(attachment("1f0c7a4e-3b1c-4d9e-8a52-0d9c5a2f1b3c"))  # Of which nobody heard.

    lifetimes = told(happens)
    assert {words: below(one) for words, one in lifetimes.to_interface.found.items()} == {("seen",): [0.01]}


def test_what_was_plugged_before_is_no_news() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        one = attachment(Addressed=START, Plugged=START)
        lifetimes.heard(one)
        lifetimes.plugged(one)
        lifetimes.ready(one)
        wall.pass_by(1000)
        lifetimes.relevant(BLUE)
        lifetimes.reached(one)  # It was there before the Network concerned us.

    lifetimes = told(happens)
    assert not lifetimes.to_interface.found
    assert not lifetimes.to_ready.found
    assert not lifetimes.to_remote.found
    assert lifetimes.remotes == 1


def test_another_nodes_attachment_is_counted_once_from_its_wish_and_from_its_plugging() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        lifetimes.relevant(BLUE)
        wall.pass_by(50)
        plugged = START + timedelta(milliseconds=48)
        for uid in ("", OF_CHANCE):
            one = attachment(uid, Addressed=START + timedelta(milliseconds=46), Plugged=plugged)
            lifetimes.reached(one)
            lifetimes.reached(one)
        lifetimes.lost(OF_CHANCE)

    lifetimes = told(happens)
    found = {words: below(one) for words, one in lifetimes.to_remote.found.items()}
    assert found == {("created",): [0.05], ("seen",): [0.005]}
    assert below(lifetimes.from_plugged) == [0.0025, 0.0025]
    assert lifetimes.remotes == 1


def test_a_clock_that_is_behind_is_counted_by_itself_and_adds_nothing() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        lifetimes.relevant(BLUE)
        lifetimes.reached(attachment(Plugged=START + timedelta(seconds=5)))

    lifetimes = told(happens)
    assert below(lifetimes.from_plugged) == [0.0]
    assert lifetimes.from_plugged.total == 0
    assert LIFETIMES[0] == 0


def test_a_network_is_known_once_for_each_time_it_begins_to_concern_us() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        lifetimes.known(BLUE)
        for _ in range(2):
            lifetimes.relevant(BLUE)
            lifetimes.known(BLUE)
            lifetimes.known(BLUE)
            lifetimes.irrelevant(BLUE)
        lifetimes.relevant(BLUE)

    lifetimes = told(happens)
    assert lifetimes.relevance.count == 2
    assert (lifetimes.networks, lifetimes.networks_known) == (1, 0)


def test_what_is_done_to_the_switch_is_counted_by_how_it_ended() -> None:
    def happens(lifetimes: Lifetimes, wall: Wall) -> None:
        for error in (None, Unreachable("away"), ValueError("a bug")):
            try:
                with lifetimes.timing("plug"):
                    if error:
                        raise error
            except (Unreachable, ValueError):
                pass

    found = told(happens).fabric.found
    assert {words: one.count for words, one in found.items()} == {
        ("plug", "ok"): 1,
        ("plug", Unreachable.reason): 1,
        ("plug", "other"): 1,
    }


def test_a_uid_that_disagrees_with_the_time_of_creation_is_not_believed() -> None:
    uid = uids.mint(START.timestamp(), 1)
    assert created_at(uid, stamp(START)) is not None
    assert created_at(uid, stamp(START + timedelta(hours=1))) is None
    assert created_at(uid, None) is None
    assert created_at(OF_CHANCE, stamp(START)) is None
