"""The stores of our own engine against a reference model: a dict, and a list of everything that happened."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.registry import LEASE
from netloom.model.values.selectors import EVERYTHING, Selector, selector
from netloom.store.base import Event, EventType, Store, Stored, Watch
from netloom.store.memory import MemoryStore
from netloom.store.sqlite.store import SqliteStore
from tests.store.kinds import GADGET, HOLD, WIDGET, widget

T = TypeVar("T")
NAMES = st.sampled_from(["a", "b", "c"])
NAMESPACES = st.sampled_from(["x", "x-1", "y"])
APPS = st.sampled_from(["web", "db"])
NODES = st.sampled_from(["n1", "n2"])
SELECTORS = st.sampled_from(
    [
        EVERYTHING,
        selector("app=web"),
        selector("app!=web"),
        selector("", "spec.node=n1", selectable=WIDGET.selectable),
        selector("app=db", "spec.node=n2", selectable=WIDGET.selectable),
    ]
)
Key = tuple[str, str]


@dataclass
class Thing:
    """What the model knows of one object."""

    revision: int
    app: str
    node: str
    held: bool = False
    dying: bool = False

    def matches(self, wanted: Selector) -> bool:
        return wanted.matches({"app": self.app}, {"spec.node": self.node})


@dataclass
class Watching:
    """A watcher: the real one, and where it began."""

    watch: Watch
    namespace: str
    wanted: Selector
    since: int


State = dict[Key, Thing]


class Reference(RuleBasedStateMachine):
    """Do the same to a store and to the model, and compare."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.state: State = {}
        self.past: dict[int, State] = {1: {}}
        self.watching: list[Watching] = []

    @initialize()
    def open(self) -> None:
        self.store: Store = self.run(self.opened())

    async def opened(self) -> Store:
        return MemoryStore(window_changes=10_000)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    def note(self, key: Key, thing: Thing | None, revision: int) -> None:
        assert revision == max(self.past) + 1, "revisions are one sequence without gaps"
        self.state = {k: v for k, v in self.state.items() if k != key}
        if thing is not None:
            self.state[key] = thing
        self.past[revision] = self.state

    @rule(namespace=NAMESPACES, name=NAMES, app=APPS, node=NODES, held=st.booleans())
    def create(self, namespace: str, name: str, app: str, node: str, held: bool) -> None:
        document = widget(namespace, name, {"app": app}, node=node)
        if held:
            document["metadata"]["finalizers"] = [HOLD]
        if (namespace, name) in self.state:
            with pytest.raises(AlreadyExists):
                self.run(self.store.create(WIDGET, document))
            return
        made = self.run(self.store.create(WIDGET, document))
        self.note((namespace, name), Thing(made.revision, app, node, held), made.revision)

    @rule(namespace=NAMESPACES, name=NAMES, app=APPS, node=NODES, stale=st.booleans(), release=st.booleans())
    def update(self, namespace: str, name: str, app: str, node: str, stale: bool, release: bool) -> None:
        key = (namespace, name)
        thing = self.state.get(key)
        document = widget(namespace, name, {"app": app}, node=node)
        document["metadata"]["resourceVersion"] = "1" if thing is None or stale else str(thing.revision)
        held = thing is not None and thing.held and not release
        if held:
            document["metadata"]["finalizers"] = [HOLD]
        if thing is None or stale:
            with pytest.raises(NotFound if thing is None else Conflict):
                self.run(self.store.update(WIDGET, document))
            return
        after = self.run(self.store.update(WIDGET, document))
        if after.revision == thing.revision:
            assert (thing.app, thing.node, thing.held) == (app, node, held)
        elif thing.dying and not held:
            self.note(key, None, after.revision)
        else:
            self.note(key, Thing(after.revision, app, node, held, thing.dying), after.revision)

    @rule(namespace=NAMESPACES, name=NAMES)
    def delete(self, namespace: str, name: str) -> None:
        key = (namespace, name)
        thing = self.state.get(key)
        if thing is None:
            with pytest.raises(NotFound):
                self.run(self.store.delete(WIDGET, namespace, name))
            return
        last = self.run(self.store.delete(WIDGET, namespace, name))
        if thing.dying:
            assert last.revision == thing.revision
        elif thing.held:
            self.note(key, Thing(last.revision, thing.app, thing.node, held=True, dying=True), last.revision)
        else:
            self.note(key, None, last.revision)

    @rule(wanted=SELECTORS, namespace=st.sampled_from(["", "x", "x-1"]), limit=st.integers(1, 4), data=st.data())
    def list_the_past(self, wanted: Selector, namespace: str, limit: int, data: st.DataObject) -> None:
        revision = data.draw(st.sampled_from(sorted(self.past)))
        page = self.run(self.store.list(WIDGET, namespace, selector=wanted, revision=revision, limit=limit))
        items = list(page.items)
        while page.token:
            page = self.run(self.store.list(WIDGET, namespace, selector=wanted, limit=limit, token=page.token))
            items += page.items
        self.compare(items, self.past[revision], namespace, wanted)

    def compare(self, items: list[Stored], state: State, namespace: str, wanted: Selector) -> None:
        expected = {k: v for k, v in state.items() if v.matches(wanted) and namespace in ("", k[0])}
        assert [(i.namespace, i.name) for i in items] == sorted(expected, key=lambda key: f"{key[0]}/{key[1]}")
        for item in items:
            thing = expected[item.namespace, item.name]
            document = item.document()
            assert (item.revision, document["spec"]["node"]) == (thing.revision, thing.node)
            assert ("deletionTimestamp" in document["metadata"]) is thing.dying

    @rule(wanted=SELECTORS, namespace=st.sampled_from(["", "x"]), data=st.data())
    def watch(self, wanted: Selector, namespace: str, data: st.DataObject) -> None:
        since = data.draw(st.sampled_from(sorted(self.past)))
        watch = self.run(self.store.watch(WIDGET, namespace, selector=wanted, since=since))
        self.watching.append(Watching(watch, namespace, wanted, since))

    @precondition(lambda self: self.watching)
    @rule(data=st.data())
    def see(self, data: st.DataObject) -> None:
        at = self.watching.pop(data.draw(st.integers(0, len(self.watching) - 1)))
        expected = self.expected(at)
        got: list[Event] = []
        while len(got) < len(expected):
            got += self.run(at.watch.next())
        assert [(e.type, e.object.namespace, e.object.name, e.object.revision) for e in got] == expected
        assert at.watch.revision == max(self.past)
        self.run(at.watch.close())

    def expected(self, at: Watching) -> list[tuple[EventType, str, str, int]]:
        events = []
        for revision in range(at.since + 1, max(self.past) + 1):
            before, after = self.past[revision - 1], self.past[revision]
            (key,) = (k for k in before.keys() | after.keys() if before.get(k) is not after.get(k))
            was = key in before and before[key].matches(at.wanted)
            is_ = key in after and after[key].matches(at.wanted)
            if at.namespace in ("", key[0]) and (was or is_):
                kind = EventType.DELETED if not is_ else EventType.MODIFIED if was else EventType.ADDED
                events.append((kind, *key, revision))
        return events

    @invariant()
    def the_present_is_as_the_model_has_it(self) -> None:
        page = self.run(self.store.list(WIDGET))
        assert page.revision == max(self.past)
        self.compare(list(page.items), self.state, "", EVERYTHING)


class DurableReference(Reference):
    """The same with the SQLite store, which may be closed and opened again at any time."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="netloom-reference-")
        super().__init__()

    async def opened(self) -> Store:
        return await SqliteStore.open(Path(self.folder, "store.db"), kinds=(WIDGET, GADGET, LEASE))

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.opened())
        self.watching = []

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestMemory = Reference.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSqlite = DurableReference.TestCase
TestSqlite.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
