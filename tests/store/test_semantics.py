"""What writing means, without any store."""

import copy

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from netloom.errors import Cause, Conflict, Invalid, NotFound
from netloom.model.document import Document
from netloom.model.registry import LEASE, NAMESPACE
from netloom.store.base import Propagation, Stored, stored
from netloom.store.semantics import (
    Verdict,
    encode,
    invalid,
    prepare_create,
    prepare_delete,
    prepare_update,
    restamp,
    stamp,
    timestamp,
)
from tests.store.kinds import GADGET, HOLD, WIDGET, gadget, lease, widget

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(st.text(min_size=1), JSON, max_size=4)


def made(document: Document) -> Document:
    """Return a document as it is once created, at revision 5."""
    kind = GADGET if document["kind"] == "Gadget" else WIDGET
    created = prepare_create(kind, document, now=0, uid="u-1", suffix="")
    created["metadata"]["resourceVersion"] = "5"
    return created


@given(SPECS, SPECS)
def test_generation_grows_exactly_when_the_wish_changes(before: Document, after: Document) -> None:
    old = made(widget("ns", "a") | {"spec": before})
    outcome = prepare_update(WIDGET, old, {**old, "spec": after})
    same = msgspec.json.encode(before, order="sorted") == msgspec.json.encode(after, order="sorted")
    assert (outcome.verdict is Verdict.SAME) is same
    assert outcome.document["metadata"]["generation"] == (1 if same else 2)
    assert outcome.document["spec"] == after


@given(SPECS, SPECS)
def test_nothing_given_is_changed(before: Document, after: Document) -> None:
    old, new = made(widget("ns", "a") | {"spec": before}), made(widget("ns", "a") | {"spec": after})
    kept = copy.deepcopy((old, new))
    prepare_create(WIDGET, {**new, "metadata": {"namespace": "ns", "name": "b"}}, now=1, uid="u", suffix="x")
    prepare_update(WIDGET, old, new)
    prepare_update(WIDGET, old, new, subresource="status")
    prepare_delete(WIDGET, old, propagation=Propagation.ORPHAN, now=1)
    assert (old, new) == kept


@given(SPECS, st.integers(1, 2**62), st.integers(1, 2**62))
def test_a_revision_is_put_in_without_changing_anything_else(spec: Document, first: int, second: int) -> None:
    document = made(widget("ns", "a") | {"spec": spec, "status": {"resourceVersion": '"resourceVersion":"1",'}})
    one = stamp(WIDGET, "ns", "a", first, encode(WIDGET, document))
    expected = {**document, "metadata": {**document["metadata"], "resourceVersion": str(first)}}
    assert one.document() == expected
    assert stored(WIDGET, one.document()).document() == expected
    two = restamp(one, second)
    assert (two.revision, two.document()["metadata"].pop("resourceVersion")) == (second, str(second))
    assert restamp(two, first).raw == one.raw
    assert restamp(one, 0).raw == encode(WIDGET, document)


def test_facets_are_what_selectors_look_at() -> None:
    document = made(widget("ns", "a", None, node="n1", size=3, shiny=False))
    facets = stored(WIDGET, document).facets()
    assert facets.labels == {}
    assert facets.fields == {
        "metadata.name": "a",
        "metadata.namespace": "ns",
        "spec.node": "n1",
        "spec.size": "3",
        "spec.shiny": "false",
    }
    odd = Stored(WIDGET, "ns", "a", 1, b'{"metadata":{"labels":null},"spec":"text"}')
    assert odd.facets().fields["spec.node"] == ""


def test_a_generated_name_is_cut_to_what_a_name_may_have() -> None:
    document = {"metadata": {"generateName": "x" * 80}}
    assert prepare_create(GADGET, document, now=0, uid="u", suffix="12345")["metadata"]["name"] == "x" * 58 + "12345"


def test_a_kind_without_status_treats_it_as_any_field() -> None:
    created = prepare_create(LEASE, lease("ns", "l") | {"status": {"a": 1}}, now=0, uid="u", suffix="")
    assert created["status"] == {"a": 1}
    created["metadata"]["resourceVersion"] = "5"
    changed = prepare_update(LEASE, created, {**created, "status": {"a": 2}})
    assert changed.document["metadata"]["generation"] == 2
    with pytest.raises(NotFound):
        prepare_update(LEASE, created, created, subresource="status")


def test_there_is_no_sub_resource_but_status() -> None:
    with pytest.raises(NotFound):
        prepare_update(WIDGET, made(widget("ns", "a")), made(widget("ns", "a")), subresource="scale")


def test_a_status_update_may_say_who_owns_the_status() -> None:
    old = made(widget("ns", "a"))
    owners = [{"manager": "m", "subresource": "status"}]
    new = {**old, "metadata": {**old["metadata"], "managedFields": owners, "labels": {"forged": "yes"}}}
    after = prepare_update(WIDGET, old, new, subresource="status").document
    assert after["metadata"]["managedFields"] == owners
    assert "labels" not in after["metadata"]


def test_all_that_is_wrong_is_said_at_once() -> None:
    old = made(widget("ns", "a"))
    old["metadata"] |= {"finalizers": [HOLD], "deletionTimestamp": timestamp(0)}
    new = copy.deepcopy(old)
    new["metadata"] |= {"finalizers": [HOLD, "x/y"], "deletionGracePeriodSeconds": 30}
    with pytest.raises(Invalid) as caught:
        prepare_update(WIDGET, old, new)
    assert caught.value.message == (
        'Widget.test.netloom.dev "a" is invalid: [metadata.deletionGracePeriodSeconds: Invalid value: 30: field is '
        "immutable, metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"x/y"}]'
    )
    core = invalid(LEASE, "l", [Cause("x", "y")])
    assert core.message == 'Lease.coordination.k8s.io "l" is invalid: x: y'


def test_a_background_deletion_undoes_an_earlier_propagation() -> None:
    old = made(gadget("g"))
    marked = prepare_delete(GADGET, old, propagation=Propagation.FOREGROUND, now=60)
    assert marked.document["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked.document["metadata"]["deletionTimestamp"] == "1970-01-01T00:01:00Z"
    again = prepare_delete(GADGET, marked.document, propagation=Propagation.FOREGROUND, now=99)
    assert again.verdict is Verdict.SAME
    assert prepare_delete(GADGET, marked.document, propagation=Propagation.BACKGROUND, now=99).verdict is Verdict.REMOVE


def test_preconditions_come_first() -> None:
    with pytest.raises(Conflict, match="might have been deleted and then recreated"):
        prepare_delete(GADGET, made(gadget("g")), propagation=Propagation.BACKGROUND, uid="other", now=0)


def test_a_namespace_waits_for_its_contents_whatever_the_propagation() -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    space = prepare_create(NAMESPACE, named, now=0, uid="u", suffix="")
    space["metadata"]["resourceVersion"] = "1"
    orphaned = prepare_delete(NAMESPACE, space, propagation=Propagation.ORPHAN, now=0)
    assert orphaned.document["metadata"]["finalizers"] == ["orphan"]
    deleted = prepare_delete(NAMESPACE, orphaned.document, propagation=Propagation.BACKGROUND, now=0)
    assert (deleted.verdict, deleted.document["status"]) == (Verdict.WRITE, {"phase": "Terminating"})
    assert "finalizers" not in deleted.document["metadata"]
    emptied = {**deleted.document, "spec": {"finalizers": []}}
    assert prepare_update(NAMESPACE, deleted.document, emptied).verdict is Verdict.SAME
    assert prepare_update(NAMESPACE, deleted.document, emptied, subresource="finalize").verdict is Verdict.REMOVE
