"""Listing, on every store alike."""

import asyncio

import pytest

from netloom.errors import BadRequest, Expired, TimedOut
from netloom.model.values.selectors import selector
from netloom.store.base import Page
from tests.store.backends import LOCAL, World, scenario
from tests.store.kinds import GADGET, WIDGET, gadget, widget


def names(page: Page) -> list[str]:
    return [item.name for item in page.items]


@scenario
async def test_a_list_is_ordered_by_namespace_and_name(w: World) -> None:
    for namespace, name in ((w.ns2, "a"), (w.ns, "b"), (w.ns, "a"), (w.ns2, "b"), (w.ns, "a-1")):
        await w.store.create(WIDGET, widget(namespace, name))
    assert names(await w.store.list(WIDGET, w.ns)) == ["a", "a-1", "b"]
    everywhere = await w.store.list(WIDGET)
    mine = [(item.namespace, item.name) for item in everywhere.items if item.namespace in (w.ns, w.ns2)]
    assert mine == [(w.ns, "a"), (w.ns, "a-1"), (w.ns, "b"), (w.ns2, "a"), (w.ns2, "b")]


@scenario
async def test_a_list_of_a_kind_is_of_that_kind(w: World) -> None:
    await w.add("blue")
    made = await w.store.create(GADGET, gadget(f"{w.ns}-g"))
    page = await w.store.list(GADGET)
    assert made.name in names(page)
    assert {item.document()["kind"] for item in page.items} == {"Gadget"}


@scenario
async def test_an_empty_list_has_the_stores_revision(w: World) -> None:
    before = await w.store.revision()
    page = await w.store.list(WIDGET, w.ns)
    assert (list(page.items), page.token) == ([], "")
    assert page.revision >= before


@scenario
async def test_a_list_item_is_the_object_as_get_returns_it(w: World) -> None:
    made = await w.add("blue", {"app": "web"}, node="n1")
    (item,) = (await w.store.list(WIDGET, w.ns)).items
    assert (item.document(), item.revision) == (made.document(), made.revision)


@scenario
async def test_a_list_at_a_revision_shows_what_was_then(w: World) -> None:
    for name in ("a", "b", "c"):
        await w.add(name, node="n1")
    then = (await w.store.list(WIDGET, w.ns)).revision
    await w.edit("a", lambda d: d["spec"].update(node="n2"))
    await w.edit("a", lambda d: d["spec"].update(node="n3"))
    await w.remove("b")
    await w.add("d")
    await w.remove("d")
    await w.add("aa")
    page = await w.store.list(WIDGET, w.ns, revision=then)
    assert page.revision == then
    assert [(item.name, item.document()["spec"]["node"]) for item in page.items] == [
        ("a", "n1"),
        ("b", "n1"),
        ("c", "n1"),
    ]
    assert names(await w.store.list(WIDGET, w.ns)) == ["a", "aa", "c"]


@scenario
async def test_pages_show_one_revision_while_others_write(w: World) -> None:
    for number in range(10):
        await w.add(f"w{number:02}", turn=0)
    page = await w.store.list(WIDGET, w.ns, limit=3)
    first, got = page.revision, list(page.items)
    assert (len(got), page.remaining) == (3, 7)
    turn = 1
    while page.token:
        await w.add(f"w{2 * turn:02}x")
        await w.edit("w09", lambda d, turn=turn: d["spec"].update(turn=turn))  # type: ignore[misc]
        await w.remove(f"w{8 - turn:02}")
        turn += 1
        page = await w.store.list(WIDGET, w.ns, limit=3, token=page.token)
        assert page.revision == first
        got += page.items
    assert [item.name for item in got] == [f"w{number:02}" for number in range(10)]
    assert {item.document()["spec"]["turn"] for item in got} == {0}


@scenario
async def test_a_page_may_hold_everything(w: World) -> None:
    for number in range(4):
        await w.add(f"w{number}")
    page = await w.store.list(WIDGET, w.ns, limit=4)
    assert (len(page.items), page.token) == (4, "")
    page = await w.store.list(WIDGET, w.ns, limit=0)
    assert (len(page.items), page.token) == (4, "")


@scenario
async def test_labels_and_fields_select(w: World) -> None:
    await w.add("a", {"app": "web", "tier": "front"}, node="n1", size=1, shiny=True)
    await w.add("b", {"app": "web"}, node="n2", size=2)
    await w.add("c", {"app": "db"}, node="n1")
    await w.add("d")

    async def chosen(labels: str = "", fields: str = "") -> list[str]:
        wanted = selector(labels, fields, selectable=WIDGET.selectable)
        return names(await w.store.list(WIDGET, w.ns, selector=wanted))

    assert await chosen("app=web") == ["a", "b"]
    assert await chosen("app!=web") == ["c", "d"]
    assert await chosen("app in (web, db),tier") == ["a"]
    assert await chosen("!app") == ["d"]
    assert await chosen("app notin (db)") == ["a", "b", "d"]
    assert await chosen("", "spec.node=n1") == ["a", "c"]
    assert await chosen("", "spec.node!=n1") == ["b", "d"]
    assert await chosen("", "spec.size=2") == ["b"]
    assert await chosen("", "spec.shiny=true") == ["a"]
    assert await chosen("", "metadata.name=c") == ["c"]
    assert await chosen("", f"metadata.namespace={w.ns},metadata.name!=c,spec.node=n1") == ["a"]
    assert await chosen("app=web", "spec.node=n2") == ["b"]
    assert await chosen("", "spec.node=") == ["d"]


@scenario
async def test_pages_of_a_selection_hold_only_what_is_selected(w: World) -> None:
    for number in range(12):
        await w.add(f"w{number:02}", {"odd": "yes"} if number % 2 else {})
    odd = selector("odd=yes")
    page = await w.store.list(WIDGET, w.ns, selector=odd, limit=4)
    got = names(page)
    assert (len(got), page.remaining) == (4, None)
    while page.token:
        page = await w.store.list(WIDGET, w.ns, selector=odd, limit=4, token=page.token)
        got += names(page)
    assert got == ["w01", "w03", "w05", "w07", "w09", "w11"]


@scenario
async def test_a_token_that_is_none_of_ours_is_refused(w: World) -> None:
    for token in ("nonsense!", "AAAA", "e30", "é"):
        with pytest.raises(BadRequest):
            await w.store.list(WIDGET, w.ns, limit=2, token=token)


@scenario
async def test_a_token_brings_its_own_revision(w: World) -> None:
    for number in range(3):
        await w.add(f"w{number}")
    page = await w.store.list(WIDGET, w.ns, limit=1)
    with pytest.raises(BadRequest):
        await w.store.list(WIDGET, w.ns, limit=1, token=page.token, revision=page.revision)


@scenario
async def test_a_compacted_revision_is_expired(w: World) -> None:
    for number in range(3):
        await w.add(f"w{number}")
    await w.backend.forget(w.store)
    with pytest.raises(Expired):
        await w.store.list(WIDGET, w.ns, revision=1)
    assert names(await w.store.list(WIDGET, w.ns)) == ["w0", "w1", "w2"]


@pytest.mark.only_on(*LOCAL, because="a Kubernetes API server may go on for a while from what it remembers itself")
@scenario
async def test_a_page_that_was_read_before_the_compaction_has_no_next(w: World) -> None:
    for number in range(3):
        await w.add(f"w{number}")
    page = await w.store.list(WIDGET, w.ns, limit=1)
    await w.backend.forget(w.store)
    with pytest.raises(Expired, match="continue parameter is too old"):
        await w.store.list(WIDGET, w.ns, limit=1, token=page.token)
    with pytest.raises(Expired):
        await w.store.list(WIDGET, w.ns, revision=page.revision)


@scenario
async def test_a_revision_that_is_not_reached_yet_cannot_be_listed(w: World) -> None:
    with pytest.raises(TimedOut, match="Too large resource version"):
        await w.store.list(WIDGET, w.ns, revision=await w.store.revision() + 1000)


@scenario
async def test_what_is_listed_is_what_was_written_before(w: World) -> None:
    """Reads are not older than writes that returned, whoever made them."""
    await asyncio.gather(*(w.add(f"w{number:02}") for number in range(20)))
    assert len((await w.store.list(WIDGET, w.ns)).items) == 20
