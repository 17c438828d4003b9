"""Strategic merge patches: what becomes of lists, and the directives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.front.api.merge.patch import merge_patch
from netloom.front.api.merge.shapes import of_schema
from netloom.front.api.merge.strategic import strategic_merge_patch
from tests.front.serving import Serving

SHAPE = of_schema(
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "spec": {"type": "object", "properties": {"all": {"type": "array", "items": {"type": "string"}}}},
        },
    }
)
OWNERS = [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]


def meta(**members: Any) -> dict[str, Any]:
    return {"metadata": members}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"count": 1}, {"count": 2}, {"count": 2}),
        ({"count": 1, "x": 1}, {"count": None}, {"x": 1}),
        (meta(labels={"a": "1", "b": "2"}), meta(labels={"a": None, "c": "3"}), meta(labels={"b": "2", "c": "3"})),
        (meta(labels={"a": "1"}), meta(labels={"$patch": "replace", "b": "2"}), meta(labels={"b": "2"})),
        (meta(labels={"a": "1"}), meta(labels={"$patch": "delete"}), meta(labels={})),
        (
            meta(labels={"a": "1", "b": "2"}),
            meta(labels={"$retainKeys": ["b", "c"], "c": "3"}),
            meta(labels={"b": "2", "c": "3"}),
        ),
        (meta(finalizers=["a", "b"]), meta(finalizers=["c", "b"]), meta(finalizers=["a", "b", "c"])),
        (
            meta(finalizers=["a", "b"]),
            meta(**{"$deleteFromPrimitiveList/finalizers": ["a", "x"]}),
            meta(finalizers=["b"]),
        ),
        (
            meta(finalizers=["a", "b", "c"]),
            meta(**{"$setElementOrder/finalizers": ["c", "a"]}),
            meta(finalizers=["c", "a", "b"]),
        ),
        (
            meta(ownerReferences=OWNERS),
            meta(ownerReferences=[{"uid": "2", "name": "c"}, {"uid": "3", "name": "d"}]),
            meta(ownerReferences=[OWNERS[0], {"uid": "2", "name": "c"}, {"uid": "3", "name": "d"}]),
        ),
        (
            meta(ownerReferences=OWNERS),
            meta(ownerReferences=[{"uid": "1", "$patch": "delete"}]),
            meta(ownerReferences=OWNERS[1:]),
        ),
        (
            meta(ownerReferences=OWNERS),
            meta(ownerReferences=[{"$patch": "replace"}, {"uid": "9"}]),
            meta(ownerReferences=[{"uid": "9"}]),
        ),
        ({"spec": {"all": ["a"]}}, {"spec": {"all": ["b"]}}, {"spec": {"all": ["b"]}}),
    ],
)
def test_a_patch_does_what_kubernetes_does(
    before: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]
) -> None:
    assert strategic_merge_patch(SHAPE, before, patch) == after


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ([], "JSON object"),
        ({"$patch": "nonsense"}, "merge, replace or delete"),
        ({"$nonsense": 1}, "not a directive"),
        ({"$retainKeys": 1}, "must be a list"),
        (meta(ownerReferences=[{"name": "a"}]), "have its keys: uid"),
        (meta(ownerReferences=["a"]), "have its keys: uid"),
    ],
)
def test_what_is_no_strategic_patch_is_refused(patch: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        strategic_merge_patch(SHAPE, {}, patch)


SCALARS = st.one_of(st.none(), st.integers(), st.text(max_size=3))
OBJECTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.dictionaries(st.sampled_from(["a", "b", "count"]), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), OBJECTS), st.dictionaries(st.sampled_from("abc"), OBJECTS))
def test_without_lists_it_is_a_merge_patch(before: dict[str, Any], patch: dict[str, Any]) -> None:
    assert strategic_merge_patch(SHAPE, before, patch) == merge_patch(before, patch)


def test_built_in_kinds_take_it(server: Serving) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "count": 1, "message": "m"}
    assert server.post("/api/v1/namespaces/default/events", event).code == 201
    media = "application/strategic-merge-patch+json"
    answer = server.patch("/api/v1/namespaces/default/events/e", {"count": 2}, media)
    assert (answer.code, answer.json["count"], answer.json["message"]) == (200, 2, "m")
