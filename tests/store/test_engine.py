"""Corners of the engine that the suite does not reach from outside."""

import asyncio
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from netloom.errors import AlreadyExists, BadRequest
from netloom.model.document import Document
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.values.selectors import Selector, selector
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from netloom.store.paging import position, token
from tests.store.kinds import GADGET, WIDGET, gadget, widget


class Unlucky(Random):
    """A source of chance that gives each name `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__(7)
        self._times = times
        self._turn = 0

    def choices(self, population: object, *_: object, k: int = 1, **__: object) -> list[str]:  # type: ignore[override]
        self._turn += 1
        return [str((self._turn - 1) // self._times)] * k


def test_a_generated_name_that_is_taken_is_generated_again() -> None:
    async def go(times: int) -> list[str]:
        store = MemoryStore(random=Unlucky(times))
        return [(await store.create(GADGET, {"metadata": {"generateName": "g-"}})).name for _ in range(3)]

    assert asyncio.run(go(3)) == ["g-00000", "g-11111", "g-22222"]
    with pytest.raises(AlreadyExists):
        asyncio.run(go(100))


def test_one_seed_gives_one_history() -> None:
    async def go() -> bytes:
        store = MemoryStore(clock=lambda: 1e9, random=Random(1))
        return (await store.create(GADGET, {"metadata": {"generateName": "g-"}})).raw

    assert asyncio.run(go()) == asyncio.run(go())
    assert b'"creationTimestamp":"2001-09-09T01:46:40Z"' in asyncio.run(go())


def test_a_dry_run_that_would_change_nothing_answers_with_what_is_there() -> None:
    async def go() -> None:
        store = MemoryStore()
        made = await store.create(GADGET, gadget("g"))
        assert await store.update(GADGET, made.document(), dry_run=True) is made

    asyncio.run(go())


def test_changes_of_other_kinds_do_not_disturb_a_list_of_the_past() -> None:
    async def go() -> None:
        store = MemoryStore()
        made = await store.create(WIDGET, widget("ns", "a"))
        await store.create(GADGET, gadget("g"))
        assert list((await store.list(WIDGET, revision=made.revision)).items) == [made]
        assert list((await store.list(GADGET, revision=made.revision)).items) == []

    asyncio.run(go())


@given(st.integers(1, 2**62), st.text(st.characters(codec="ascii", exclude_characters="\0")))
def test_a_token_says_what_it_was_given(revision: int, last: str) -> None:
    found = position(token(revision, last), revision=None)
    assert (found.rv, found.start) == (revision, last)


@given(st.text())
def test_any_other_text_is_refused_as_a_token(text: str) -> None:
    try:
        found = position(text, revision=None)
    except BadRequest:
        return
    assert token(found.rv, found.start) == text.rstrip("=") or found.rv > 0


def test_a_token_of_no_revision_is_refused() -> None:
    for text in (token(0, "a"), token(-1, "a"), token(5, "a\0b")):
        with pytest.raises(BadRequest, match="continue key is not valid"):
            position(text, revision=None)


QUESTIONS = [
    selector("", text, selectable=NETWORK_ATTACHMENT.selectable)
    for text in (
        "spec.node=n1",
        "spec.node=n3",
        "spec.network=red",
        "spec.network=red,spec.node=n1",
        "spec.network=red,spec.node!=n1,status.hostIP!=",
        "status.hostIP=h2",
        "status.hostIP=",
        "metadata.name=a1",
        "metadata.name=a1,spec.node=n2",
        "metadata.namespace=y,spec.node=n1",
    )
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["make", "host", "delete", "ask"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["a1", "a2", "a3", "a4"]),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(["red", "blue"]),
        st.sampled_from(["", "h1", "h2"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_list_by_a_field_is_what_looking_at_everything_gives(
    steps: list[tuple[str, str, str, str, str, str]],
) -> None:
    async def main() -> None:
        store = MemoryStore()
        for what, namespace, name, node, network, host in steps:
            there = {(one.namespace, one.name): one for one in (await store.list(NETWORK_ATTACHMENT)).items}
            one = there.get((namespace, name))
            if what == "make" and one is None:
                await store.create(NETWORK_ATTACHMENT, _attachment(namespace, name, node, network))
            elif what == "host" and one is not None:
                document = one.document() | {"status": {"hostIP": host}}
                await store.update(NETWORK_ATTACHMENT, document, subresource="status")
            elif what == "delete" and one is not None:
                await store.delete(NETWORK_ATTACHMENT, namespace, name)
            elif what == "ask":
                await _ask(store)
        await _ask(store)

    asyncio.run(main())


async def _ask(store: MemoryStore) -> None:
    everything = (await store.list(NETWORK_ATTACHMENT)).items
    for question in QUESTIONS:
        for namespace in ("", "x"):
            wanted = [one for one in everything if one.selected(question) and namespace in ("", one.namespace)]
            assert (await store.list(NETWORK_ATTACHMENT, namespace, selector=question)).items == wanted
            assert await _paged(store, namespace, question) == wanted


async def _paged(store: MemoryStore, namespace: str, question: Selector) -> list[Stored]:
    page = await store.list(NETWORK_ATTACHMENT, namespace, selector=question, limit=1)
    found = [*page.items]
    while page.token:
        page = await store.list(NETWORK_ATTACHMENT, namespace, selector=question, limit=1, token=page.token)
        found += page.items
    return found


def _attachment(namespace: str, name: str, node: str, network: str) -> Document:
    return {
        "apiVersion": NETWORK_ATTACHMENT.api_version,
        "kind": NETWORK_ATTACHMENT.name,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"node": node, "network": network},
    }
