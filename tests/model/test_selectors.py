"""Selectors: what they select, what they refuse, and that their text means the same again."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.model.values.selectors import EVERYTHING, Operator, Requirement, Selector, selector

KEYS = st.from_regex(r"([a-z]{1,5}\.[a-z]{1,3}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
VALUES = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?)?", fullmatch=True)
LABELS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from([Operator.IN, Operator.NOT_IN]), st.frozensets(VALUES, min_size=1)),
    st.builds(Requirement, KEYS, st.sampled_from([Operator.EXISTS, Operator.ABSENT])),
)
FIELDS = st.builds(
    Requirement,
    st.sampled_from(["metadata.name", "metadata.namespace", "spec.node"]),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.frozensets(st.text(st.characters(exclude_categories=["Z", "C"])), min_size=1, max_size=1),
)
SELECTORS = st.builds(Selector, st.lists(LABELS, max_size=8).map(tuple), st.lists(FIELDS, max_size=8).map(tuple))


@given(SELECTORS)
def test_the_text_of_a_selector_means_the_selector(given: Selector) -> None:
    assert selector(given.label_text, given.field_text, selectable=["spec.node"]) == given


@given(st.text(), st.text())
def test_any_text_is_a_selector_or_refused(labels: str, fields: str) -> None:
    with contextlib.suppress(BadRequest):
        selector(labels, fields)


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("", {}, True),
        ("app=web", {"app": "web"}, True),
        ("app == web", {"app": "web"}, True),
        ("app=web", {"app": "db"}, False),
        ("app=web", {}, False),
        ("app!=web", {}, True),
        ("app!=web", {"app": "web"}, False),
        ("app in (web, db)", {"app": "db"}, True),
        ("app in (web,db)", {}, False),
        ("app notin (web,db)", {"app": "lb"}, True),
        ("app notin (web,db)", {"app": "db"}, False),
        ("app", {"app": ""}, True),
        ("app", {}, False),
        ("!app", {}, True),
        ("! app", {"app": "web"}, False),
        ("app=web,tier in (a,b),!old", {"app": "web", "tier": "b"}, True),
        ("app=", {"app": ""}, True),
    ],
)
def test_labels_select_as_in_kubernetes(text: str, labels: dict[str, str], selected: bool) -> None:
    assert selector(text).matches(labels, {}) is selected


@pytest.mark.parametrize("text", ["a b", "a=b=c", "=a", "a in b", "a in (b", "-a", "a=b c", ",", "a>1", "a in (-b)"])
def test_a_label_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="unable to parse label selector"):
        selector(text)


@pytest.mark.parametrize("text", ["metadata.name", "metadata.name=a=b", "=a", "metadata.name=a\\b"])
def test_a_field_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="unable to parse field selector"):
        selector(fields=text)


def test_a_field_that_is_not_selectable_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadRequest, match=r"not supported: spec\.x; supported: metadata\.name, metadata\.names"):
        selector(fields="spec.x=1")


@pytest.mark.parametrize(
    ("labels", "fields", "why"),
    [
        ("a" * 8193, "", "label selector: it has 8193 characters"),
        ("", "metadata.name=" + "a" * 8179, "field selector: it has 8193 characters"),
        (",".join(["a"] * 33), "", "label selector: it has more than 32 requirements"),
        ("", ",".join(["metadata.name=a"] * 33), "field selector: it has more than 32 requirements"),
        (f"a in ({','.join(['b'] * 513)})", "", "label selector: it has more than 512 values"),
    ],
)
def test_a_selector_is_limited(labels: str, fields: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        selector(labels, fields)


def test_a_selector_may_reach_its_limits() -> None:
    found = selector(
        ",".join([*["a=b"] * 31, f"a in ({','.join(f'v{i}' for i in range(481))})"]),
        ",".join(["metadata.name!=a"] * 32),
    )
    assert (len(found.labels), len(found.fields), len(found.labels[-1].values)) == (32, 32, 481)


def test_a_refusal_quotes_little_of_the_text() -> None:
    with pytest.raises(BadRequest) as refused:
        selector("(" * 8000)
    assert len(str(refused.value)) < 300


def test_fields_select() -> None:
    chosen = selector(fields="spec.node=n1,metadata.name!=b,", selectable=["spec.node"])
    assert chosen.matches({}, {"spec.node": "n1", "metadata.name": "a"})
    assert not chosen.matches({}, {"spec.node": "n1", "metadata.name": "b"})
    assert not chosen.matches({}, {"spec.node": "n2", "metadata.name": "a"})


def test_an_escaped_comma_is_part_of_the_value() -> None:
    assert selector(fields=r"metadata.name=a\,b\=c\\,metadata.namespace=d").fields == (
        Requirement("metadata.name", Operator.IN, frozenset(("a,b=c\\",))),
        Requirement("metadata.namespace", Operator.IN, frozenset(("d",))),
    )


def test_a_watch_is_indexed_by_the_field_every_object_must_have() -> None:
    assert selector(fields="metadata.name!=a,spec.node==n1", selectable=["spec.node"]).anchor() == ("spec.node", "n1")
    assert selector("a=b", "metadata.name!=a").anchor() is None


def test_everything_is_falsy() -> None:
    assert not EVERYTHING
    assert selector("a")
    assert selector(fields="metadata.name=a")
