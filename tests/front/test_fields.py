"""Sets of fields against the simplest model of them: a set of paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.front.api.merge import fields

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", "f:spec", 'k:{"name":"x"}', 'v:"y"', "i:0"])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=8)


def tree(paths: frozenset[Path]) -> fields.Fields:
    """The set, built from scratch."""
    out: fields.Fields = {}
    for head in {path[0] for path in paths}:
        below = tree(frozenset(path[1:] for path in paths if path[0] == head and len(path) > 1))
        out[head] = fields.node(below, member=(head,) in paths)
    return out


def flat(tree: fields.Fields, prefix: Path = ()) -> frozenset[Path]:
    out: set[Path] = set()
    for key, below in tree.items():
        if key == fields.SELF:
            out.add(prefix)
            continue
        if not below:
            out.add((*prefix, key))
        out |= flat(below, (*prefix, key))
    return frozenset(out)


@given(PATHS)
def test_a_set_holds_the_paths_it_was_made_of(paths: frozenset[Path]) -> None:
    assert flat(tree(paths)) == paths
    assert fields.decode(tree(paths)) == tree(paths)
    assert len(list(fields.paths(tree(paths)))) == len(paths)


@given(PATHS, PATHS)
def test_operations_are_those_of_sets(left: frozenset[Path], right: frozenset[Path]) -> None:
    mine, theirs = tree(left), tree(right)
    assert fields.union(mine, theirs) == tree(left | right)
    assert fields.intersection(mine, theirs) == tree(left & right)
    assert fields.difference(mine, theirs) == tree(left - right)
    assert (mine, theirs) == (tree(left), tree(right)), "nothing given was changed"


@given(PATHS)
def test_marking_a_path_puts_it_into_the_set(paths: frozenset[Path]) -> None:
    below = tree(paths)
    assert flat({"f:x": fields.marked(below)}) == {("f:x",)} | {("f:x", *path) for path in paths}
    assert fields.marked(None) == {}


@pytest.mark.parametrize(
    ("element", "shown"),
    [
        ("f:mtu", ".mtu"),
        ('k:{"port":80,"protocol":"tcp"}', '[port=80,protocol="tcp"]'),
        ('v:"a"', '[="a"]'),
        ("v:3", "[=3]"),
        ("i:7", "[7]"),
    ],
)
def test_elements_read_as_kubernetes_writes_them(element: str, shown: str) -> None:
    assert fields.text(element) == shown


def test_paths_come_in_kubernetes_order() -> None:
    owned: fields.Fields = {"f:spec": {".": {}, "f:b": {}, "f:a": {"f:x": {}}}, "f:data": {}}
    assert list(fields.paths(owned)) == [".data", ".spec", ".spec.b", ".spec.a.x"]


def test_numbers_and_keys_have_one_spelling() -> None:
    assert fields.by_value(1.0) == fields.by_value(1) == "v:1"
    assert fields.by_value("a<b>&\u2028") == 'v:"a\\u003cb\\u003e\\u0026\\u2028"'
    assert fields.by_keys({"protocol": "tcp", "port": 80}) == 'k:{"port":80,"protocol":"tcp"}'
    sent: fields.Fields = {
        'k:{"protocol": "tcp", "port": 80.0}': {"f:a": {}},
        'k:{"port":80,"protocol":"tcp"}': {"f:b": {}},
    }
    assert fields.decode(sent) == {'k:{"port":80,"protocol":"tcp"}': {"f:a": {}, "f:b": {}}}


def test_what_a_newer_version_may_know_is_dropped() -> None:
    assert fields.decode({"f:a": {}, "z:b": {}, "f:c": {"z:d": {}}}) == {"f:a": {}, "f:c": {}}
    assert fields.decode({"f:a": {".": {}}}) == {"f:a": {}}


@pytest.mark.parametrize(
    "raw", [[], "x", {"": {}}, {"f": {}}, {"fa": {}}, {"f:a": 1}, {"k:[]": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}]
)
def test_what_is_no_set_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError):
        fields.decode(raw)


def test_a_tower_is_refused() -> None:
    tower: dict[str, Any] = {}
    for _ in range(200):
        tower = {"f:a": tower}
    with pytest.raises(ValueError):
        fields.decode(tower)
