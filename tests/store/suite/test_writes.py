"""Creating, replacing and deleting, on every store alike."""

import asyncio
import copy
import re

import pytest

from netloom.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from netloom.model.document import Document
from netloom.model.registry import LEASE
from netloom.store.base import Propagation, Store
from tests.store.backends import World, scenario
from tests.store.kinds import GADGET, HOLD, WIDGET, Widget, gadget, lease, widget


@scenario
async def test_a_created_object_has_what_only_the_server_gives(w: World) -> None:
    given = w.widget("blue", {"app": "web"}, node="n1")
    given["metadata"] |= {"uid": "mine", "generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z"}
    given["status"] = {"phase": "forged"}
    before = copy.deepcopy(given)
    made = await w.store.create(WIDGET, given)
    document = made.document()
    metadata = document["metadata"]
    assert given == before, "a document given is the caller's to keep"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert (metadata["generation"], metadata["resourceVersion"]) == (1, str(made.revision))
    assert "deletionTimestamp" not in metadata
    assert "status" not in document
    assert (document["apiVersion"], document["kind"]) == (WIDGET.api_version, "Widget")
    assert document["spec"] == {"node": "n1"}
    assert (made.namespace, made.name) == (w.ns, "blue")
    assert (await w.store.get(WIDGET, w.ns, "blue")).document() == document


@scenario
async def test_a_stored_object_can_be_had_as_its_kinds_value(w: World) -> None:
    value = (await w.add("blue", node="n1")).value()
    assert isinstance(value, Widget)
    assert (value.metadata.name, value.metadata.generation, value.spec) == ("blue", 1, {"node": "n1"})


@scenario
async def test_a_document_returned_is_the_callers_to_change(w: World) -> None:
    made = await w.add("blue", node="n1")
    made.document()["spec"]["node"] = "n2"
    assert made.document()["spec"]["node"] == "n1"


@scenario
async def test_a_name_that_is_taken_is_refused(w: World) -> None:
    await w.add("blue")
    with pytest.raises(AlreadyExists) as caught:
        await w.add("blue")
    assert caught.value.message == 'widgets.test.netloom.dev "blue" already exists'
    await w.store.create(WIDGET, widget(w.ns2, "blue"))


@scenario
async def test_an_object_that_is_not_there_is_not_found(w: World) -> None:
    with pytest.raises(NotFound) as caught:
        await w.store.get(WIDGET, w.ns, "blue")
    assert caught.value.message == 'widgets.test.netloom.dev "blue" not found'
    with pytest.raises(NotFound):
        await w.remove("blue")
    missing = w.widget("blue")
    missing["metadata"]["resourceVersion"] = "1"
    with pytest.raises(NotFound):
        await w.store.update(WIDGET, missing)


@scenario
async def test_generated_names_differ(w: World) -> None:
    names = []
    for _ in range(3):
        document = w.widget("")
        document["metadata"] = {"namespace": w.ns, "generateName": "web-"}
        names.append((await w.store.create(WIDGET, document)).name)
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"web-[a-z0-9]{5}", name) for name in names)


@scenario
async def test_an_object_needs_a_name(w: World) -> None:
    with pytest.raises(Invalid) as caught:
        await w.store.create(WIDGET, {"metadata": {"namespace": w.ns}})
    assert [cause.field for cause in caught.value.causes] == ["metadata.name"]


@scenario
async def test_an_object_to_be_created_has_no_revision(w: World) -> None:
    document = w.widget("blue")
    document["metadata"]["resourceVersion"] = "5"
    with pytest.raises(BadRequest, match="resourceVersion should not be set"):
        await w.store.create(WIDGET, document)


@scenario
async def test_an_object_is_created_in_its_scope(w: World) -> None:
    made = await w.store.create(GADGET, {"metadata": {"name": f"{w.ns}-g", "namespace": w.ns}})
    assert (made.namespace, "namespace" in made.document()["metadata"]) == ("", False)
    with pytest.raises(BadRequest, match="an empty namespace may not be set during creation"):
        await w.store.create(WIDGET, {"metadata": {"name": "nowhere"}})


@scenario
async def test_revisions_grow_over_all_kinds(w: World) -> None:
    first = await w.add("blue")
    second = await w.store.create(GADGET, gadget(f"{w.ns}-g"))
    third = await w.store.create(LEASE, lease(w.ns, "leader"))
    fourth = await w.edit("blue", lambda d: d["spec"].update(node="n1"))
    fifth = await w.store.delete(GADGET, "", second.name)
    assert first.revision < second.revision < third.revision < fourth.revision <= await w.store.revision()
    assert fifth.document()["metadata"]["uid"] == second.document()["metadata"]["uid"]


@scenario
async def test_a_stale_update_is_a_conflict(w: World) -> None:
    stale = (await w.add("blue")).document()
    await w.edit("blue", lambda d: d["spec"].update(node="n1"))
    stale["spec"]["node"] = "n2"
    with pytest.raises(Conflict) as caught:
        await w.store.update(WIDGET, stale)
    assert caught.value.message == (
        'Operation cannot be fulfilled on widgets.test.netloom.dev "blue": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    with pytest.raises(Conflict):
        await w.store.update(WIDGET, {**stale, "status": {"phase": "late"}}, subresource="status")
    assert (await w.store.get(WIDGET, w.ns, "blue")).document()["spec"] == {"node": "n1"}


@scenario
async def test_an_update_says_which_revision_it_replaces(w: World) -> None:
    document = (await w.add("blue")).document()
    del document["metadata"]["resourceVersion"]
    with pytest.raises(Invalid, match="must be specified for an update") as caught:
        await w.store.update(WIDGET, document)
    assert [cause.field for cause in caught.value.causes] == ["metadata.resourceVersion"]


@scenario
async def test_an_update_keeps_the_status_and_a_status_update_keeps_the_rest(w: World) -> None:
    document = (await w.add("blue", {"app": "web"}, node="n1")).document()
    reported = {
        **document,
        "spec": {"node": "forged"},
        "status": {"phase": "Up"},
        "metadata": {**document["metadata"], "labels": {"app": "forged"}},
    }
    after = (await w.store.update(WIDGET, reported, subresource="status")).document()
    assert (after["spec"], after["status"]) == ({"node": "n1"}, {"phase": "Up"})
    assert after["metadata"]["labels"] == {"app": "web"}
    wished = {**after, "spec": {"node": "n2"}, "status": {"phase": "forged"}}
    last = (await w.store.update(WIDGET, wished)).document()
    assert (last["spec"], last["status"]) == ({"node": "n2"}, {"phase": "Up"})
    without = {k: v for k, v in last.items() if k != "status"}
    assert "status" not in (await w.store.update(WIDGET, without, subresource="status")).document()


@scenario
async def test_a_kind_without_status_has_no_status_to_update(w: World) -> None:
    made = await w.store.create(LEASE, lease(w.ns, "leader"))
    with pytest.raises(NotFound):
        await w.store.update(LEASE, made.document(), subresource="status")


@scenario
async def test_generation_counts_changes_of_the_wish_only(w: World) -> None:
    def generation(document: Document) -> int:
        value: int = document["metadata"]["generation"]
        return value

    document = (await w.add("blue", node="n1")).document()
    document["metadata"]["labels"] = {"app": "web"}
    document["metadata"]["generation"] = 40
    document = (await w.store.update(WIDGET, document)).document()
    assert generation(document) == 1
    document["status"] = {"phase": "Up"}
    document = (await w.store.update(WIDGET, document, subresource="status")).document()
    assert generation(document) == 1
    document["spec"]["node"] = "n2"
    document = (await w.store.update(WIDGET, document)).document()
    assert generation(document) == 2


@scenario
async def test_an_update_that_changes_nothing_writes_nothing(w: World) -> None:
    made = await w.add("blue", node="n1", size=1)
    same = made.document()
    same["spec"] = {"size": 1, "node": "n1"}
    assert (await w.store.update(WIDGET, same)).revision == made.revision
    assert (await w.store.get(WIDGET, w.ns, "blue")).revision == made.revision


@scenario
async def test_a_number_that_becomes_a_truth_is_a_change(w: World) -> None:
    made = await w.add("blue", count=1)
    after = await w.edit("blue", lambda d: d["spec"].update(count=True))
    assert after.revision > made.revision
    assert after.document()["spec"]["count"] is True
    assert after.document()["metadata"]["generation"] == 2


@scenario
async def test_an_update_of_another_object_of_the_same_name_is_a_conflict(w: World) -> None:
    document = (await w.add("blue")).document()
    document["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition"):
        await w.store.update(WIDGET, document)


@scenario
async def test_what_only_the_server_sets_cannot_be_changed(w: World) -> None:
    made = (await w.add("blue")).document()
    changed = copy.deepcopy(made)
    changed["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    assert (await w.store.update(WIDGET, changed)).revision == int(made["metadata"]["resourceVersion"])
    changed["metadata"]["deletionTimestamp"] = "2040-01-01T00:00:00Z"
    with pytest.raises(Invalid, match="field is immutable") as caught:
        await w.store.update(WIDGET, changed)
    assert {cause.field for cause in caught.value.causes} == {"metadata.deletionTimestamp"}
    left_out = copy.deepcopy(made)
    left_out["spec"]["node"] = "n1"
    for name in ("creationTimestamp", "uid", "generation"):
        del left_out["metadata"][name]
    after = (await w.store.update(WIDGET, left_out)).document()
    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert after["metadata"]["uid"] == made["metadata"]["uid"]


@scenario
async def test_a_deleted_object_is_gone_and_its_last_state_is_returned(w: World) -> None:
    made = await w.add("blue", node="n1")
    last = await w.remove("blue")
    assert last.document()["spec"] == {"node": "n1"}
    assert last.document()["metadata"]["uid"] == made.document()["metadata"]["uid"]
    with pytest.raises(NotFound):
        await w.store.get(WIDGET, w.ns, "blue")
    again = await w.add("blue")
    assert again.document()["metadata"]["uid"] != made.document()["metadata"]["uid"]


@scenario
async def test_a_deletion_may_insist_on_uid_and_revision(w: World) -> None:
    made = await w.add("blue")
    with pytest.raises(Conflict, match="UID in the precondition"):
        await w.store.delete(WIDGET, w.ns, "blue", uid="11111111-2222-3333-4444-555555555555")
    await w.edit("blue", lambda d: d["spec"].update(node="n1"))
    with pytest.raises(Conflict, match="ResourceVersion in the precondition"):
        await w.store.delete(WIDGET, w.ns, "blue", revision=made.revision)
    now = await w.store.get(WIDGET, w.ns, "blue")
    await w.store.delete(WIDGET, w.ns, "blue", uid=now.document()["metadata"]["uid"], revision=now.revision)
    with pytest.raises(NotFound):
        await w.store.get(WIDGET, w.ns, "blue")


@scenario
async def test_an_object_with_finalizers_goes_when_the_last_is_taken_away(w: World) -> None:
    document = w.widget("blue")
    document["metadata"]["finalizers"] = [HOLD]
    await w.store.create(WIDGET, document)
    marked = await w.remove("blue")
    metadata = marked.document()["metadata"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["deletionTimestamp"])
    assert metadata["deletionGracePeriodSeconds"] == 0
    assert metadata["generation"] == 2
    assert (await w.remove("blue")).revision == marked.revision, "deleting twice changes nothing"
    with pytest.raises(Invalid, match=r"no new finalizers can be added (if|while) the object is being deleted"):
        await w.edit("blue", lambda d: d["metadata"]["finalizers"].append(f"{HOLD}-2"))
    later = await w.edit("blue", lambda d: d["metadata"].update(deletionTimestamp="2040-01-01T00:00:00Z"))
    assert later.document()["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    kept = await w.edit("blue", lambda d: d["metadata"].pop("deletionTimestamp"))
    assert kept.document()["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    gone = await w.edit("blue", lambda d: d["metadata"].update(finalizers=[]))
    assert not gone.document()["metadata"].get("finalizers")
    with pytest.raises(NotFound):
        await w.store.get(WIDGET, w.ns, "blue")


@scenario
async def test_propagation_is_left_to_the_garbage_collector_as_a_finalizer(w: World) -> None:
    for name, propagation, finalizer in (
        ("foreground", Propagation.FOREGROUND, "foregroundDeletion"),
        ("orphan", Propagation.ORPHAN, "orphan"),
    ):
        document = w.widget(name)
        document["metadata"]["finalizers"] = [HOLD]
        await w.store.create(WIDGET, document)
        marked = await w.store.delete(WIDGET, w.ns, name, propagation=propagation)
        assert set(marked.document()["metadata"]["finalizers"]) == {HOLD, finalizer}
        assert "deletionTimestamp" in marked.document()["metadata"]
        again = await w.store.delete(WIDGET, w.ns, name, propagation=Propagation.BACKGROUND)
        assert again.document()["metadata"]["finalizers"] == [HOLD]


@scenario
async def test_a_dry_run_answers_as_if_and_changes_nothing(w: World) -> None:
    pretended = await w.store.create(WIDGET, w.widget("blue", node="n1"), dry_run=True)
    assert pretended.document()["metadata"]["uid"]
    assert pretended.revision == 0
    assert "resourceVersion" not in pretended.document()["metadata"]
    with pytest.raises(NotFound):
        await w.store.get(WIDGET, w.ns, "blue")
    made = await w.add("blue", node="n1")
    with pytest.raises(AlreadyExists):
        await w.store.create(WIDGET, w.widget("blue"), dry_run=True)
    document = made.document()
    document["spec"]["node"] = "n2"
    changed = await w.store.update(WIDGET, document, dry_run=True)
    assert changed.document()["spec"] == {"node": "n2"}
    assert changed.document()["metadata"]["generation"] == 2
    assert (await w.store.delete(WIDGET, w.ns, "blue", dry_run=True)).name == "blue"
    now = await w.store.get(WIDGET, w.ns, "blue")
    assert (now.revision, now.document()) == (made.revision, made.document())
    with pytest.raises(Conflict):
        await w.store.delete(WIDGET, w.ns, "blue", revision=made.revision - 1, dry_run=True)


@scenario
async def test_concurrent_writers_lose_no_update(w: World) -> None:
    await w.add("counter", value=0)

    async def count() -> None:
        for _ in range(10):
            await retried(w, lambda d: d["spec"].update(value=d["spec"]["value"] + 1))

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(count())
    final = (await w.store.get(WIDGET, w.ns, "counter")).document()
    assert final["spec"]["value"] == 60
    assert final["metadata"]["generation"] == 61


async def retried(w: World, change: object) -> None:
    while True:
        try:
            await w.edit("counter", change)  # type: ignore[arg-type]
        except Conflict:
            continue
        return


@scenario
async def test_of_many_that_create_one_name_one_wins(w: World) -> None:
    results = await asyncio.gather(*(w.add("blue", node=f"n{i}") for i in range(12)), return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert all(isinstance(result, AlreadyExists) for result in results if isinstance(result, BaseException))
    assert (await w.store.get(WIDGET, w.ns, "blue")).document() == won[0].document()


@scenario
async def test_a_lease_is_held_by_one(w: World) -> None:
    free = (await w.store.create(LEASE, lease(w.ns, "leader"))).document()

    async def acquire(store: Store, holder: str) -> bool:
        try:
            await store.update(LEASE, {**free, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}})
        except Conflict:
            return False
        return True

    won = await asyncio.gather(*(acquire(w.store, f"c{i}") for i in range(8)))
    assert won.count(True) == 1
    held = (await w.store.get(LEASE, w.ns, "leader")).document()
    assert held["spec"]["holderIdentity"] == f"c{won.index(True)}"
