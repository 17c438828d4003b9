"""The gate: what it lets in, what it makes of it, and how it says no."""

import contextlib
import copy
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netloom.errors import BadRequest, Cause, Invalid, NetloomError
from netloom.model import registry
from netloom.model.document import Document, Json
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, KINDS, LEASE, NAMESPACE, NETWORK, NETWORK_ATTACHMENT, NODE, SUBNET
from netloom.model.schemas import checks
from netloom.model.schemas.validation import Unknown, admit
from tests.e2e.conformance.table import Case, cases
from tests.model import strategies

CASES = list(cases())
GOOD = {case.kind: case.steps[-1][1]["spec"] for case in CASES if not case.refuse} | {NAMESPACE: {}}
THOROUGH = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def made(kind: Kind, spec: Any, **more: Any) -> Document:
    metadata = {"name": "blue"} | ({"namespace": "default"} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec, **more}


def causes(error: pytest.ExceptionInfo[NetloomError]) -> dict[str, tuple[str, str]]:
    return {cause.field: (cause.reason, cause.message) for cause in error.value.causes}


def test_the_table_is_large_and_names_every_kind() -> None:
    assert len(CASES) >= 400
    assert {case.kind for case in CASES} == {kind for kind in KINDS if kind.group == registry.GROUP}
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table_of_good_and_bad_objects_holds(case: Case) -> None:
    *before, (subresource, last) = copy.deepcopy(case.steps)
    old: Document | None = None
    for written, document in before:
        admit(case.kind, document, old=old, subresource=written)
        old = document
    if not case.refuse:
        admit(case.kind, last, old=old, subresource=subresource)
        return
    with pytest.raises((BadRequest, Invalid)) as refused:
        admit(case.kind, last, old=old, subresource=subresource)
    assert case.refuse in causes(refused)


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.name)
def test_what_is_admitted_stays_as_it_is_and_can_be_read(kind: Kind) -> None:
    documents = strategies.documents(kind)
    if kind in GOOD:
        documents = st.one_of(documents, strategies.altered(kind, GOOD[kind]))

    @THOROUGH
    @given(documents, st.sampled_from(["", "status"]))
    def check(document: Document, subresource: str) -> None:
        with contextlib.suppress(NetloomError):
            admit(kind, document, subresource=subresource)
            again = copy.deepcopy(document)
            assert admit(kind, again, old=document, subresource=subresource) == []
            assert again == document
            if kind in GOOD and subresource == "status":
                document["spec"] = GOOD[kind]
            elif kind in GOOD:
                document.pop("status", None)
            kind.decode(msgspec.json.encode(document))

    check()


@THOROUGH
@given(st.sampled_from(list(KINDS)), strategies.JSON, strategies.JSON, strategies.JSON, st.sampled_from(list(Unknown)))
def test_any_json_is_admitted_or_refused(kind: Kind, spec: Any, status: Any, metadata: Any, unknown: Unknown) -> None:
    for document in (
        spec,
        made(kind, spec, status=status),
        made(kind, spec) | {"metadata": metadata},
        made(kind, spec) | {"metadata": {"name": "x", "namespace": "x", "labels": metadata, "finalizers": status}},
        made(kind, spec) | {"metadata": {"name": metadata, "ownerReferences": [status, spec]}},
    ):
        with contextlib.suppress(NetloomError):
            admit(kind, document, unknown=unknown, subresource="status" if unknown is Unknown.WARN else "")


def test_all_that_is_wrong_is_said_at_once_in_kubernetes_words() -> None:
    spec = {"vni": 0, "fabric": "silk", "mtu": "big", "provider": {"vlan": 5000}}
    with pytest.raises(Invalid) as refused:
        admit(NETWORK, made(NETWORK, spec))
    assert causes(refused) == {
        "spec.vni": ("FieldValueInvalid", "Invalid value: 0: must be between 1 and 16777215"),
        "spec.fabric": (
            "FieldValueNotSupported",
            'Unsupported value: "silk": supported values: "ovn", "vxlan", "linux"',
        ),
        "spec.mtu": ("FieldValueTypeInvalid", 'Invalid value: "big": must be an integer'),
        "spec.provider.vlan": ("FieldValueInvalid", "Invalid value: 5000: must be between 1 and 4094"),
        "spec.provider.physicalNetwork": ("FieldValueRequired", "Required value"),
    }
    assert str(refused.value).startswith(
        'Network.netloom.dev "blue" is invalid: [spec.vni: Invalid value: 0: must be between 1 and 16777215, spec.fab'
    )


def test_one_thing_wrong_needs_no_brackets() -> None:
    with pytest.raises(Invalid) as refused:
        admit(NETWORK, made(NETWORK, {"vni": 0}))
    assert str(refused.value) == (
        'Network.netloom.dev "blue" is invalid: spec.vni: Invalid value: 0: must be between 1 and 16777215'
    )


def test_an_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    document = made(NETWORK, {"fabrik": "ovn", "Vni": 1, "qqqqqq": 1}, statuss={})
    with pytest.raises(BadRequest) as refused:
        admit(NETWORK, document)
    assert str(refused.value) == (
        'Network in version "v1alpha1" cannot be handled as a Network: strict decoding error: '
        'unknown field "spec.fabrik" (did you mean "fabric"?), unknown field "spec.Vni" (did you mean "vni"?), '
        'unknown field "spec.qqqqqq", unknown field "statuss" (did you mean "status"?)'
    )
    assert [cause.field for cause in refused.value.causes] == ["spec.fabrik", "spec.Vni", "spec.qqqqqq", "statuss"]


def test_unknown_fields_are_dropped_with_a_warning_if_one_asks_for_that() -> None:
    document = made(NETWORK, {"fabrik": "ovn"})
    assert admit(NETWORK, document, unknown=Unknown.WARN) == ['unknown field "spec.fabrik" (did you mean "fabric"?)']
    assert document["spec"] == {"fabric": "ovn"}


def test_unknown_fields_are_dropped_in_silence_if_one_asks_for_that() -> None:
    document = made(NETWORK, {"fabrik": "ovn"}, other=1)
    assert admit(NETWORK, document, unknown=Unknown.IGNORE) == []
    assert document == made(NETWORK, {"fabric": "ovn"})


def test_dropping_unknown_fields_does_not_hide_what_is_wrong() -> None:
    with pytest.raises(Invalid, match=r"spec\.vni"):
        admit(NETWORK, made(NETWORK, {"fabrik": "ovn", "vni": 0}), unknown=Unknown.IGNORE)


def test_defaults_are_filled_in_and_not_shared() -> None:
    first, second = (
        made(NETWORK_ATTACHMENT, {"node": "n", "network": "b"}),
        made(NETWORK_ATTACHMENT, {"node": "n", "network": "b"}),
    )
    for document in (first, second):
        admit(NETWORK_ATTACHMENT, document)
    assert first["spec"] == {"node": "n", "network": "b", "port": {"type": "internal"}, "defaultRoute": False}
    first["spec"]["port"]["name"] = "eth0"
    assert "name" not in second["spec"]["port"]


def test_nulls_go_as_in_kubernetes() -> None:
    document = made(NETWORK, {"fabric": None, "vni": None, "provider": None}, status=None)
    document["metadata"] |= {"creationTimestamp": None, "labels": {"a": None}}
    admit(NETWORK, document)
    assert document == made(NETWORK, {"fabric": "ovn"}) | {
        "metadata": {"name": "blue", "namespace": "default", "labels": {}}
    }


def test_a_number_without_a_fraction_is_an_integer() -> None:
    document = made(NETWORK, {"vni": 10.0})
    admit(NETWORK, document)
    assert type(document["spec"]["vni"]) is int


def test_a_status_is_not_judged_where_it_would_not_be_stored() -> None:
    admit(NETWORK, made(NETWORK, {}, status={"vni": 0}))
    admit(NETWORK, made(NETWORK, {}, status=5))
    with pytest.raises(Invalid):
        admit(NETWORK, made(NETWORK, {}, status={"vni": 0}), subresource="status")


def test_a_spec_is_not_judged_where_it_would_not_be_stored() -> None:
    admit(NETWORK, made(NETWORK, {"vni": 0}, status={}), subresource="status")
    document = made(NETWORK, {}, status={"vni": 1})
    del document["spec"]
    admit(NETWORK, document, subresource="status")
    admit(NETWORK, made(NETWORK, {"fabric": "vxlan"}), old=made(NETWORK, {"fabric": "ovn"}), subresource="status")


def test_unknown_fields_are_refused_even_where_nothing_is_stored() -> None:
    with pytest.raises(BadRequest, match=r"status\.foo"):
        admit(NETWORK, made(NETWORK, {}, status={"foo": 0}))


@pytest.mark.parametrize("document", [None, [], "x", {}, {"kind": "Network"}, {"kind": 1, "apiVersion": []}])
def test_what_is_no_document_of_the_kind_is_refused(document: Any) -> None:
    with pytest.raises(BadRequest):
        admit(NETWORK, document)


def test_a_missing_kind_is_named() -> None:
    with pytest.raises(BadRequest) as refused:
        admit(NETWORK, {"apiVersion": "netloom.dev/v1alpha1"})
    assert refused.value.causes == (Cause("kind", "Invalid value: null: must be Network"),)


def test_a_node_may_not_say_where_it_is() -> None:
    document = made(NODE, {"underlayIP": "172.31.0.1"})
    document["metadata"]["namespace"] = "default"
    admit(NODE, document)
    assert document["metadata"] == {"name": "blue"}


def test_a_document_without_metadata_lacks_a_name() -> None:
    document = made(SUBNET, {"network": "blue", "cidr": "10.0.0.0/24"})
    del document["metadata"]
    with pytest.raises(Invalid) as refused:
        admit(SUBNET, document)
    assert causes(refused) == {
        "metadata.name": ("FieldValueRequired", "Required value: name or generateName is required"),
        "metadata.namespace": ("FieldValueRequired", "Required value"),
    }
    assert str(refused.value).startswith('Subnet.netloom.dev "" is invalid: [')


@pytest.mark.parametrize("metadata", [5, [], "x"])
def test_metadata_must_be_an_object(metadata: Any) -> None:
    with pytest.raises(Invalid, match="must be an object"):
        admit(NETWORK, made(NETWORK, {}) | {"metadata": metadata})


def event(namespace: str, about: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": namespace},
        "involvedObject": about,
        "firstTimestamp": None,
        "eventTime": None,
        "source": {},
        "reason": "Made",
    }


def test_an_event_is_beside_what_it_is_about() -> None:
    admit(EVENT, event("lab", {"kind": "Subnet", "namespace": "lab", "name": "s"}))
    admit(EVENT, event("default", {"kind": "Node", "name": "n1"}))
    for namespace, about in (("lab", {"namespace": "other"}), ("lab", {}), ("lab", {"namespace": []}), ("lab", None)):
        with pytest.raises(Invalid):
            admit(EVENT, event(namespace, about))


def test_a_lease_as_client_libraries_write_it_is_admitted() -> None:
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T09:00:00.000000Z",
        "renewTime": "2026-11-15T09:00:00.000000Z",
        "leaseTransitions": 0,
    }
    admit(LEASE, made(LEASE, spec))
    admit(LEASE, {key: value for key, value in made(LEASE, None).items() if key != "spec"})
    with pytest.raises(Invalid, match="leaseDurationSeconds"):
        admit(LEASE, made(LEASE, spec | {"leaseDurationSeconds": 0}))


def test_no_finalizer_comes_while_an_object_goes() -> None:
    old = made(NETWORK, {"fabric": "ovn"})
    old["metadata"] |= {"finalizers": ["a.b/c"], "deletionTimestamp": "2026-11-15T09:00:00Z"}
    new = copy.deepcopy(old)
    admit(NETWORK, new, old=old)
    new["metadata"]["finalizers"] = ["a.b/d"]
    with pytest.raises(Invalid, match=r"no new finalizers can be added while the object is being deleted: a\.b/d"):
        admit(NETWORK, new, old=old)


def test_annotations_have_an_end() -> None:
    document = made(NETWORK, {})
    document["metadata"]["annotations"] = {"a": "x" * 200_000, "b": "é" * 40_000}
    with pytest.raises(Invalid, match="may not be more than 262144 bytes"):
        admit(NETWORK, document)


def test_a_map_has_an_end() -> None:
    options = {f"o{i}": "x" for i in range(65)}
    with pytest.raises(Invalid, match=r"spec\.dhcp\.options: Too many: 65: must have at most 64 entries"):
        admit(SUBNET, made(SUBNET, {"network": "b", "cidr": "10.0.0.0/24", "dhcp": {"options": options}}))


def test_keys_with_dots_stand_in_brackets() -> None:
    status = {"capabilities": {"a.b/c": 1}}
    with pytest.raises(Invalid) as refused:
        admit(NODE, made(NODE, {"underlayIP": "10.0.0.1"}, status=status), subresource="status")
    assert [*causes(refused)] == ["status.capabilities[a.b/c]"]


def test_a_bad_namespace_is_refused() -> None:
    with pytest.raises(Invalid, match=r'metadata\.namespace: Invalid value: "A"'):
        admit(NETWORK, made(NETWORK, {}) | {"metadata": {"name": "a", "namespace": "A"}})


def test_long_values_are_shortened() -> None:
    assert checks.quoted("x" * 500) == '"' + "x" * 95 + '…"'
    assert checks.quoted("\ud800") == "'\\ud800'"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("2024-02-29T23:59:59Z", True),
        ("2000-02-29T00:00:00Z", True),
        ("1900-02-29T00:00:00Z", False),
        ("2026-04-31T00:00:00Z", False),
        ("2026-01-00T00:00:00Z", False),
        ("2026-13-01T00:00:00Z", False),
        ("2026-01-01T24:00:00Z", False),
        ("2026-01-01T00:00:00.5-07:00", True),
        ("now", False),
    ],
)
def test_a_time_is_in_the_calendar(text: str, right: bool) -> None:
    assert checks.is_timestamp(text) is right


@given(strategies.JSON)
def test_a_quoted_value_is_its_json_shortened(value: Json) -> None:
    text = msgspec.json.encode(value).decode()
    assert checks.quoted(value) == (text if len(text) <= 100 else f"{text[:96]}…{text[-1]}")


@given(
    st.lists(st.one_of(st.text(max_size=150), st.lists(st.text(max_size=60)), st.dictionaries(st.text(), st.text())))
)
def test_a_long_quoted_value_is_the_beginning_of_its_json(value: list[Json]) -> None:
    text = msgspec.json.encode(value).decode()
    assert checks.quoted(value) == (text if len(text) <= 100 else f"{text[:96]}…{text[-1]}")
