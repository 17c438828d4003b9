from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.model.registry import NETWORK
from netloom.store.base import Event, EventType, Stored
from tests.control.helpers import fill


class History:
    """A tiny store: what was written, in order, and what any reader could have been told of it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, name: str, value: int | None) -> None:
        revision = len(self.events) + 1
        there = name in self.state(revision - 1)
        if value is None and not there:
            value = 0
        kind = EventType.DELETED if value is None else EventType.MODIFIED if there else EventType.ADDED
        self.events.append(Event(kind, _stored(name, revision, value)))

    def state(self, revision: int) -> dict[str, Stored]:
        state: dict[str, Stored] = {}
        for event in self.events[:revision]:
            if event.type is EventType.DELETED:
                del state[event.object.name]
            else:
                state[event.object.name] = event.object
        return state


def _stored(name: str, revision: int, value: Any) -> Stored:
    return Stored(NETWORK, "ns1", name, revision, msgspec.json.encode(value))


def _decode(stored: Stored) -> tuple[int, int]:
    return stored.revision, msgspec.json.decode(stored.raw, type=int)


def _cache() -> Cache[tuple[int, int]]:
    return Cache(_decode, {"parity": lambda value: [str(value[1] % 2)], "none": lambda _: []})


names = st.sampled_from("abcd")
writes = st.lists(st.tuples(names, st.none() | st.integers(0, 5)), max_size=30)
steps = st.lists(st.tuples(st.sampled_from(["list", "watch", "repeat"]), st.integers(0, 10)), max_size=20)


@given(writes, steps)
def test_any_order_of_lists_and_events_ends_as_the_stores_state(
    written: list[tuple[str, int | None]], told: list[tuple[str, int]]
) -> None:
    history = History()
    for name, value in written:
        history.write(name, value)
    cache, followed = _cache(), dict[Key, tuple[int, int]]()

    def follow(changes: list[Change[tuple[int, int]]]) -> None:
        for change in changes:
            assert followed.get(change.key) == change.old
            assert change.old != change.new
            if change.new is None:
                del followed[change.key]
            else:
                followed[change.key] = change.new

    for how, ahead in [*told, ("watch", len(history.events))]:
        at = min(len(history.events), cache.revision + ahead)
        if how == "list":
            follow(fill(cache, history.state(at).values(), at))
        elif how == "watch":
            follow(cache.apply(history.events[cache.revision : at], at))
        else:
            follow(cache.apply(history.events[max(0, cache.revision - ahead) : cache.revision], cache.revision))
        expected = {Key("ns1", name): _decode(stored) for name, stored in history.state(cache.revision).items()}
        assert dict(cache.items()) == followed == expected
        assert sorted(cache) == sorted(expected.values())
        for parity in "01":
            indexed = [value for value in expected.values() if value[1] % 2 == int(parity)]
            assert sorted(cache.indexed("parity", parity)) == sorted(indexed)
        assert cache.indexed("none", "x") == []
    assert cache.revision == len(history.events)


def test_a_relist_tells_of_deletions_nobody_saw() -> None:
    cache = _cache()
    fill(cache, [_stored("a", 1, 1), _stored("b", 2, 1)], 2)
    [change] = fill(cache, [_stored("b", 2, 1)], 9)
    assert (change.key, change.old, change.new) == (Key("ns1", "a"), (1, 1), None)
    assert cache.get("ns1", "a") is None
    assert len(cache) == 1


def test_an_object_that_cannot_be_decoded_costs_itself_only() -> None:
    cache = _cache()
    changes = fill(cache, [_stored("a", 1, "not a number"), _stored("b", 2, 1)], 2)
    assert [change.key.name for change in changes] == ["b"]
    assert list(cache.undecodable) == [Key("ns1", "a")]
    assert fill(cache, [_stored("a", 1, "not a number"), _stored("b", 2, 1)], 3) == []
    [change] = cache.apply([Event(EventType.MODIFIED, _stored("a", 4, 7))], 4)
    assert change.new == (4, 7)
    assert cache.undecodable == {}
    [change] = cache.apply([Event(EventType.MODIFIED, _stored("a", 5, None))], 5)
    assert change.new is None
    assert cache.apply([Event(EventType.DELETED, _stored("a", 6, None))], 6) == []
    assert cache.undecodable == {}


def test_a_key_reads_as_people_write_it() -> None:
    assert str(Key("ns1", "a")) == "ns1/a"
    assert str(Key("", "n1")) == "n1"
