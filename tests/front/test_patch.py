"""JSON patch and merge patch: the RFCs' own examples, and what strangers may send."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest, Invalid, TooLarge
from netloom.front.api.merge import patch

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text("ab/~", max_size=2), VALUES, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return value


def difference(source: Any, target: Any) -> Any:
    """The merge patch from one document without nulls to another."""
    if not (isinstance(source, dict) and isinstance(target, dict)):
        return target
    gone: dict[str, Any] = {key: None for key in source if key not in target}
    return gone | {
        key: difference(source.get(key), value)
        for key, value in target.items()
        if key not in source or not patch.same(source[key], value)
    }


# RFC 7386, appendix A.
MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "change", "result"), MERGES)
def test_merge_patch_does_what_the_rfc_says(target: Any, change: Any, result: Any) -> None:
    assert patch.merge(target, change) == result


@given(DOCUMENTS, DOCUMENTS)
def test_merging_the_difference_gives_the_target(source: Any, target: Any) -> None:
    source, target = without_nulls(source), without_nulls(target)
    before = patch.clone(source)
    assert patch.same(patch.merge_patch(source, difference(source, target)), target)
    assert patch.same(source, before)


@given(DOCUMENTS, DOCUMENTS)
def test_merging_twice_is_merging_once(source: Any, change: Any) -> None:
    once = patch.merge_patch(source, change)
    assert patch.same(patch.merge_patch(once, change), once)


@pytest.mark.parametrize("change", [None, [], "x", 3])
def test_merge_patch_that_is_no_object_is_a_bad_request(change: Any) -> None:
    with pytest.raises(BadRequest):
        patch.merge_patch({}, change)


# RFC 6902, appendix A, and corners of RFC 6901.
APPLY: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo", "foo": "bar"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}),
    (
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": 10}, {"op": "test", "path": "/~1", "value": 9}],
        {"/": 9, "~1": 10},
    ),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}], {"foo": ["bar", ["abc", "def"]]}),
    (
        {"foo": [1]},
        [{"op": "copy", "from": "/foo", "path": "/bar"}, {"op": "add", "path": "/bar/0", "value": 2}],
        {"foo": [1], "bar": [2, 1]},
    ),
    ({"foo": 1}, [{"op": "replace", "path": "", "value": {"bar": 2}}], {"bar": 2}),
    ({"foo": 1}, [{"op": "add", "path": "", "value": {"bar": 2}}], {"bar": 2}),
    ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
    ({"foo": None}, [{"op": "test", "path": "/foo", "value": None}], {"foo": None}),
    ({"foo": 1}, [{"op": "test", "path": "/foo", "value": 1.0}], {"foo": 1}),
    ({"foo": 1}, [{"op": "move", "from": "/foo", "path": "/foo"}], {"foo": 1}),
    ({"a": [{"b": 1}]}, [{"op": "replace", "path": "/a/0/b", "value": {"c": 2}}], {"a": [{"b": {"c": 2}}]}),
    ({"a": 1}, [], {"a": 1}),
]


@pytest.mark.parametrize(("document", "operations", "result"), APPLY)
def test_json_patch_does_what_the_rfc_says(document: Any, operations: Any, result: Any) -> None:
    before = patch.clone(document)
    assert patch.json_patch(document, operations) == result
    assert document == before


REFUSED: list[tuple[Any, list[dict[str, Any]]]] = [
    ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}]),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}]),
    ({"foo": "bar"}, [{"op": "add", "path": "/foo/bat", "value": "qux"}]),
    ({"foo": "bar"}, [{"op": "remove", "path": "/baz"}]),
    ({"foo": "bar"}, [{"op": "replace", "path": "/baz", "value": 1}]),
    ({"foo": "bar"}, [{"op": "copy", "from": "/baz", "path": "/x"}]),
    ({"foo": {}}, [{"op": "move", "from": "/foo", "path": "/foo/x"}]),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/2", "value": 1}]),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/-1", "value": 1}]),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/01", "value": 1}]),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/\u0661", "value": 1}]),
    ({"foo": [1]}, [{"op": "add", "path": "/foo/" + "9" * 5000, "value": 1}]),
    ({"foo": [1]}, [{"op": "remove", "path": "/foo/-"}]),
    ({"foo": [1]}, [{"op": "remove", "path": "/foo/1"}]),
    ({"foo": [1]}, [{"op": "remove", "path": "/foo/x/y"}]),
    ({"foo": True}, [{"op": "test", "path": "/foo", "value": 1}]),
    ({"foo": [1]}, [{"op": "test", "path": "/foo", "value": [1, 2]}]),
    ({"foo": 1}, [{"op": "remove", "path": ""}]),
    ({"foo": 1}, [{"op": "replace", "path": "", "value": [1]}]),
]


@pytest.mark.parametrize(("document", "operations"), REFUSED)
def test_json_patch_that_does_not_apply_is_invalid(document: Any, operations: Any) -> None:
    before = patch.clone(document)
    with pytest.raises(Invalid):
        patch.json_patch(document, operations)
    assert document == before


@pytest.mark.parametrize(
    "operations",
    [
        None,
        {},
        "x",
        [1],
        [{}],
        [{"op": "explode", "path": "/a"}],
        [{"op": ["add"], "path": "/a"}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": 3, "value": 1}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "path": "/a", "from": "b"}],
        [{"op": "add", "path": "/ok", "value": 1}, {"op": "test", "path": "/ok"}],
    ],
)
def test_what_is_no_json_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(BadRequest):
        patch.json_patch({"a": 1}, operations)


def test_too_many_operations_are_too_large() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}] * patch.MAX_OPERATIONS
    assert patch.json_patch({"a": 1}, operations) == {"a": 1}
    with pytest.raises(TooLarge, match="10000"):
        patch.json_patch({"a": 1}, [*operations, operations[0]])


def test_copies_that_double_the_document_are_stopped() -> None:
    bomb = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 64
    with pytest.raises(Invalid, match="copies and moves of the patch exceed"):
        patch.json_patch({"a": ["x" * 100_000]}, bomb)


def test_a_patch_cannot_build_a_tower() -> None:
    tower = [{"op": "move", "from": "/a", "path": "/b"}, {"op": "add", "path": "/a", "value": {}}]
    tower += [{"op": "move", "from": "/b", "path": "/a/b"}, {"op": "move", "from": "/a", "path": "/b"}] * 2
    assert patch.json_patch({"a": {}}, tower[:3]) == {"a": {"b": {}}}
    with pytest.raises(Invalid, match="deep"):
        patch.json_patch({"a": {}}, [{"op": "copy", "from": "/a", "path": "/a/b"}] * 200)
    with pytest.raises(Invalid, match="deep"):
        patch.json_patch({"a": {}}, [{"op": "add", "path": "/a" * n, "value": {}} for n in range(1, 200)])


@given(DOCUMENTS, st.text("ab/~", max_size=2), VALUES)
def test_what_was_added_is_found_and_can_be_taken_away_again(document: Any, key: str, value: Any) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    operations = [{"op": "add", "path": pointer, "value": value}, {"op": "test", "path": pointer, "value": value}]
    added = patch.json_patch(document, operations)
    assert patch.same(added, document | {key: value})
    removed = patch.json_patch(added, [{"op": "remove", "path": pointer}])
    assert patch.same(removed, {k: v for k, v in document.items() if k != key})
