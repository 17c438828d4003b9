"""Who owns which field, and server-side apply, without a server.  `test_apply_like_kube` has the judge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest, Conflict
from netloom.front.api.merge import apply, documents, managers, shapes
from netloom.front.api.merge.patch import clone
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind

T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
KIND = Kind(
    group="netloom.dev", version="v1alpha1", name="Network", plural="networks", singular="network", type=Resource
)
TEXT = {"type": "string"}
LIKE = shapes.of_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "mtu": {"type": "integer"},
                    "name": TEXT,
                    "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                    "order": {"type": "array", "items": TEXT},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "tcp"},
                                "to": TEXT,
                            },
                        },
                    },
                    "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
                    "closed": {"type": "object", "additionalProperties": False},
                    "open": {"type": "object", "additionalProperties": True},
                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "properties": {"vni": {"type": "integer"}}},
        },
    }
)


def network(spec: Any = None, **rest: Any) -> Document:
    metadata = {"name": "blue", "namespace": "default", **rest.pop("metadata", {})}
    document: Document = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "metadata": metadata, **rest}
    return document if spec is None else document | {"spec": spec}


def updated(live: Document | None, new: Document, manager: str = "alice", now: str = T0, **rest: Any) -> Document:
    before = clone([live, new])
    done = apply.updated(KIND, live, new, manager=manager, now=now, like=LIKE, **rest)
    assert [live, new] == before, "nothing given was changed"
    return done


def applied(live: Document | None, config: Document, manager: str = "bob", now: str = T1, **rest: Any) -> Document:
    before = clone([live, config])
    done = apply.applied(KIND, live, config, manager=manager, now=now, like=LIKE, **rest)
    assert [live, config] == before, "nothing given was changed"
    return done


def owners(document: Document) -> dict[str, Any]:
    return {
        " ".join(filter(None, (e["manager"], e["operation"], e.get("subresource")))): e["fieldsV1"]
        for e in document["metadata"].get("managedFields", [])
    }


def test_the_creator_owns_everything_it_wrote() -> None:
    made = updated(None, network({"mtu": 1}, metadata={"labels": {"a": "b"}, "generateName": "x"}, status={"vni": 3}))
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "alice",
            "operation": "Update",
            "apiVersion": "netloom.dev/v1alpha1",
            "time": T0,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:generateName": {}},
                "f:spec": {".": {}, "f:mtu": {}},
            },
        }
    ]


def test_a_document_with_nothing_in_it_has_no_owner() -> None:
    assert "managedFields" not in updated(None, network())["metadata"]


def test_whoever_changes_a_field_owns_it_and_nobody_else() -> None:
    made = updated(None, network({"mtu": 1, "name": "a"}))
    changed = updated(made, made | {"spec": {"mtu": 2}}, "bob", T1)
    assert owners(changed) == {"alice Update": {"f:spec": {}}, "bob Update": {"f:spec": {"f:mtu": {}}}}
    gone = updated(changed, {k: v for k, v in changed.items() if k != "spec"}, "bob", T2)
    assert owners(gone) == {}


def test_writing_the_same_again_changes_nothing() -> None:
    made = updated(None, network({"mtu": 1}))
    assert updated(made, made, "bob", T1) == made
    assert updated(made, clone(made), "alice", T1) == made


def test_a_manager_keeps_one_entry_with_the_time_of_its_last_change() -> None:
    made = updated(None, network({"mtu": 1}))
    again = updated(made, made | {"spec": {"mtu": 1, "name": "a"}}, "alice", T1)
    (entry,) = again["metadata"]["managedFields"]
    assert entry["time"] == T1
    assert entry["fieldsV1"] == {"f:spec": {".": {}, "f:mtu": {}, "f:name": {}}}


def test_the_status_subresource_has_entries_of_its_own() -> None:
    made = updated(None, network({"mtu": 1}))
    seen = updated(made, made | {"status": {"vni": 1}, "spec": {"mtu": 9}}, "agent", T1, subresource="status")
    assert owners(seen) == {
        "alice Update": {"f:spec": {".": {}, "f:mtu": {}}},
        "agent Update status": {"f:status": {".": {}, "f:vni": {}}},
    }


def test_managed_fields_can_be_reset_and_are_tracked_again_once_somebody_applies() -> None:
    made = updated(None, network({"mtu": 1}))
    wiped = updated(made, network({"mtu": 1}, metadata={"managedFields": [{}]}))
    assert "managedFields" not in wiped["metadata"]
    assert "managedFields" not in updated(wiped, network({"mtu": 2}))["metadata"]
    assert owners(applied(wiped, network({"name": "b"}))) == {
        "before-first-apply Update": {"f:spec": {".": {}, "f:mtu": {}}},
        "bob Apply": {"f:spec": {"f:name": {}}},
    }


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        "x",
        [3],
        [{"manager": "x"}],
        [{"manager": 3, "operation": "Update", "apiVersion": "v", "fieldsType": "FieldsV1"}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v", "fieldsType": "FieldsV2"}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}],
    ],
)
def test_managed_fields_that_are_none_are_as_if_not_sent(sent: Any) -> None:
    made = updated(None, network({"mtu": 1}))
    assert updated(made, network({"mtu": 1}, metadata={"managedFields": sent})) == made
    assert owners(updated(None, network({"mtu": 1}, metadata={"managedFields": sent}))) == owners(made)


def test_managed_fields_that_are_sound_are_taken_as_sent() -> None:
    made = updated(None, network({"mtu": 1}))
    entry = made["metadata"]["managedFields"][0]
    renamed = network({"mtu": 1}, metadata={"managedFields": [entry | {"manager": "carol"}]})
    assert list(owners(updated(made, renamed))) == ["carol Update"]
    assert list(owners(updated(None, renamed))) == ["alice Update"]


def test_broken_entries_of_the_live_object_are_forgotten() -> None:
    live = network({"mtu": 1}, metadata={"managedFields": [{"manager": "x", "operation": "Eat"}]})
    assert "managedFields" not in updated(live, network({"mtu": 2}))["metadata"]


def test_entries_of_another_version_are_dropped() -> None:
    made = updated(None, network({"mtu": 1}))
    entry = made["metadata"]["managedFields"][0] | {"apiVersion": "netloom.dev/v1", "manager": "old"}
    made["metadata"]["managedFields"].append(entry)
    assert list(owners(updated(made, made | {"spec": {"mtu": 2}}))) == ["alice Update"]


def test_apply_creates_and_owns_what_it_says() -> None:
    made = applied(None, network({"mtu": 1, "tags": ["a"], "ports": [{"port": 80}]}, metadata={"labels": {"a": "b"}}))
    assert owners(made) == {
        "bob Apply": {
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {
                "f:mtu": {},
                "f:tags": {'v:"a"': {}},
                "f:ports": {'k:{"port":80,"protocol":"tcp"}': {".": {}, "f:port": {}}},
            },
        }
    }
    assert made["spec"] == {"mtu": 1, "tags": ["a"], "ports": [{"port": 80}]}


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    config = network({"mtu": 1, "tags": ["a"]})
    made = applied(None, config)
    assert applied(made, config, now=T2) == made


def test_what_is_applied_no_more_goes_unless_somebody_else_owns_it() -> None:
    made = applied(None, network({"mtu": 1, "name": "a", "tags": ["a", "b"]}))
    shared = applied(made, network({"name": "a", "tags": ["b"]}), "carol")
    less = applied(shared, network({"tags": ["a"]}), "bob", T2)
    assert less["spec"] == {"name": "a", "tags": ["a", "b"]}
    assert owners(less)["carol Apply"] == {"f:spec": {"f:name": {}, "f:tags": {'v:"b"': {}}}}
    nothing = applied(less, network(), "bob", T2)
    assert nothing["spec"] == {"name": "a", "tags": ["b"]}
    assert "bob Apply" not in owners(nothing)


def test_an_empty_object_applied_where_a_full_one_was_is_left_empty() -> None:
    made = applied(None, network({"mtu": 1, "tags": ["a"]}))
    assert applied(made, network({}))["spec"] == {}


def test_a_conflict_names_the_field_and_its_owner() -> None:
    made = updated(None, network({"mtu": 1, "name": "a"}), "kubectl")
    with pytest.raises(Conflict) as one:
        applied(made, network({"mtu": 2}))
    message = 'conflict with "kubectl" using netloom.dev/v1alpha1'
    assert one.value.message == f"Apply failed with 1 conflict: {message}: .spec.mtu"
    (cause,) = one.value.causes
    assert (cause.reason, cause.message, cause.field) == ("FieldManagerConflict", message, ".spec.mtu")
    with pytest.raises(Conflict, match="2 conflicts") as two:
        applied(made, network({"mtu": 2, "name": "b"}))
    assert [cause.field for cause in two.value.causes] == [".spec.mtu", ".spec.name"]


def test_force_takes_fields_over() -> None:
    made = updated(None, network({"mtu": 1, "name": "a"}))
    forced = applied(made, network({"mtu": 2}), force=True)
    assert forced["spec"] == {"mtu": 2, "name": "a"}
    assert owners(forced) == {
        "alice Update": {"f:spec": {".": {}, "f:name": {}}},
        "bob Apply": {"f:spec": {"f:mtu": {}}},
    }


def test_applying_to_status_touches_status_only() -> None:
    made = applied(None, network({"mtu": 1}, metadata={"labels": {"a": "b"}}))
    config = network({"mtu": 2}, status={"vni": 7}, metadata={"labels": {"a": "c"}})
    seen = applied(made, config, "agent", subresource="status")
    assert (seen["spec"], seen["status"], seen["metadata"]["labels"]) == ({"mtu": 1}, {"vni": 7}, {"a": "b"})
    assert owners(seen)["agent Apply status"] == {"f:status": {"f:vni": {}}}
    with pytest.raises(Conflict, match='"agent" with subresource "status"'):
        applied(seen, network(status={"vni": 8}), "other", subresource="status")


def test_merged_lists_keep_the_order_of_the_configuration() -> None:
    made = applied(None, network({"tags": ["a", "b", "c"]}), "carol")
    assert applied(made, network({"tags": ["c", "x", "a"]}))["spec"]["tags"] == ["b", "c", "x", "a"]


def test_duplicates_in_the_live_object_are_one_field() -> None:
    twice = updated(None, network({"tags": ["a", "a", "b"]}))
    assert owners(twice)["alice Update"]["f:spec"]["f:tags"] == {".": {}, 'v:"a"': {}, 'v:"b"': {}}
    more = updated(twice, twice | {"spec": {"tags": ["a", "a", "a", "b"]}}, "bob")
    assert owners(more)["bob Update"] == {"f:spec": {"f:tags": {'v:"a"': {}}}}
    once = updated(more, more | {"spec": {"tags": ["a", "b"]}}, "carol")
    assert owners(once)["carol Update"] == {"f:spec": {"f:tags": {'v:"a"': {}}}}
    again = updated(once, once | {"spec": {"tags": ["a", "a", "b"]}}, "dave")
    assert owners(again)["dave Update"] == {"f:spec": {"f:tags": {'v:"a"': {}}}}
    fewer = updated(again, again | {"spec": {"tags": ["b"]}}, "erin")
    assert "dave Update" not in owners(fewer)
    assert owners(applied(twice, network({"tags": ["a"]}), force=True))["bob Apply"] == {
        "f:spec": {"f:tags": {'v:"a"': {}}}
    }


def test_atomic_values_are_one_field() -> None:
    made = applied(None, network({"order": ["a"], "selector": {"a": "b"}, "any": {"x": [1]}}))
    assert owners(made)["bob Apply"] == {"f:spec": {"f:order": {}, "f:selector": {}, "f:any": {"f:x": {}}}}
    changed = applied(made, network({"order": ["b"], "selector": {"c": "d"}}))
    assert changed["spec"] == {"order": ["b"], "selector": {"c": "d"}}


def test_a_field_of_any_type_may_change_its_type() -> None:
    made = updated(None, network({"any": {"a": 1}}))
    scalar = updated(made, made | {"spec": {"any": 3}}, "bob")
    assert owners(scalar)["bob Update"] == {"f:spec": {"f:any": {}}}
    back = updated(scalar, scalar | {"spec": {"any": {"a": [1]}}}, "carol")
    assert owners(back)["carol Update"] == {"f:spec": {"f:any": {".": {}, "f:a": {}}}}
    null = updated(back, back | {"spec": {"any": None}}, "dave")
    assert owners(null) == {"alice Update": {"f:spec": {}}, "carol Update": {"f:spec": {"f:any": {}}}}
    assert applied(made, network({"any": None}), force=True)["spec"] == {"any": {"a": 1}}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (network({"mtv": 1}), r"\.spec\.mtv: field not declared"),
        (network({"closed": {"a": 1}}), r"\.spec\.closed\.a"),
        (network({}) | {"metadata": None}, "metadata: expected an object"),
        (network([]), "expected an object"),
        (network("x"), "expected an object"),
        (network({"tags": {}}), "expected a list"),
        (network({"tags": "x"}), "expected a list"),
        (network({"mtu": {}}), "expected a scalar"),
        (network({"mtu": []}), "expected a scalar"),
        (network({"tags": [{}]}), "expected a scalar"),
        (network({"tags": [None]}), "scalars"),
        (network({"tags": ["a", "a"]}), "duplicate"),
        (network({"ports": [{"port": 1}, {"port": 1, "protocol": "tcp"}]}), "duplicate"),
        (network({"ports": [None]}), "keys"),
        (network({}, metadata={"managedFields": []}), "must be nil"),
        (network({}) | {"kind": "Subnet"}, "Incorrect version"),
        (network({}) | {"apiVersion": "netloom.dev/v1"}, "Incorrect version"),
    ],
)
def test_a_configuration_that_cannot_be_merged_is_refused(config: Document, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        applied(None, config)


def test_applying_something_with_a_uid_that_is_not_there_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="uid mismatch"):
        applied(None, network({}, metadata={"uid": "u"}))


def test_an_open_object_takes_anything() -> None:
    made = applied(None, network({"open": {"a": {"b": 1}, "c": [1]}, "any": [{"x": {"y": []}}]}))
    assert owners(made)["bob Apply"]["f:spec"]["f:open"] == {"f:a": {".": {}, "f:b": {}}, "f:c": {}}


def test_the_oldest_updaters_share_an_entry_when_there_are_too_many() -> None:
    live = updated(None, network({"open": {"m0": 1}}), "m0", "2026-01-01T00:00:00Z")
    for number in range(1, 14):
        now = f"2026-01-01T00:00:{number:02}Z"
        live = updated(live, live | {"spec": {"open": live["spec"]["open"] | {f"m{number}": 1}}}, f"m{number}", now)
    entries = live["metadata"]["managedFields"]
    assert len(entries) == managers.MAX_UPDATE_MANAGERS
    assert entries[0]["manager"] == "ancient-changes"
    assert entries[0]["fieldsV1"]["f:spec"]["f:open"].keys() == {".", "f:m0", "f:m1", "f:m2", "f:m3", "f:m4"}


def test_an_ancient_entry_that_changed_lately_is_not_lost() -> None:
    shares = {
        managers.Owner(name, "Update", "v", ""): managers.Share({f"f:{name}": {}}, f"{time:02}")
        for time, name in enumerate(["a", "ancient-changes", *"bcdefghij"])
    }
    kept = managers.capped(shares)
    assert len(kept) == managers.MAX_UPDATE_MANAGERS
    assert kept[managers.Owner("ancient-changes", "Update", "v", "")].fields.keys() == {"f:a", "f:ancient-changes"}


def test_kubectl_may_take_over_what_it_applied_on_the_client_side() -> None:
    note = '{"apiVersion":"netloom.dev/v1alpha1","kind":"Network","spec":{"mtu":1,"name":"a"}}'
    annotated = {"annotations": {apply.LAST_APPLIED: note}}
    made = updated(None, network({"mtu": 1, "name": "a"}, metadata=annotated), "kubectl-client-side-apply")
    with pytest.raises(Conflict):
        applied(made, network({"mtu": 2}), "bob")
    taken = applied(made, network({"mtu": 2}, metadata={"annotations": {"x": "y"}}), "kubectl")
    assert taken["spec"] == {"mtu": 2, "name": "a"}
    assert taken["metadata"]["annotations"][apply.LAST_APPLIED] == (
        '{"apiVersion":"netloom.dev/v1alpha1","kind":"Network","metadata":{"annotations":{"x":"y"},"name":"blue",'
        '"namespace":"default"},"spec":{"mtu":2}}\n'
    )
    large = applied(made, network({"mtu": 2, "name": "x" * 300_000}, metadata=annotated), "kubectl", force=True)
    assert apply.LAST_APPLIED not in large["metadata"]["annotations"]


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"apiVersion":"v2"}', '{"apiVersion":"netloom.dev/v1alpha1","spec":3}']
)
def test_a_note_that_means_nothing_forgives_nothing(note: str) -> None:
    made = updated(None, network({"mtu": 1}, metadata={"annotations": {apply.LAST_APPLIED: note}}))
    with pytest.raises(Conflict):
        applied(made, network({"mtu": 2}), "kubectl")


def test_values_of_the_wrong_form_are_one_field() -> None:
    """What validation will refuse must not trip the bookkeeping before it."""
    made = updated(None, network({"tags": "x", "mtu": {}, "ports": [3, {}], "selector": 1, "unheard": {"a": 1}}))
    changed = updated(made, network({"tags": [], "mtu": [1], "ports": "x", "selector": {}, "unheard": 2}), "bob")
    assert set(owners(changed)) == {"alice Update", "bob Update"}
    assert documents.without(LIKE, {"spec": "x"}, {"f:spec": {"f:mtu": {}}}) == {"spec": "x"}
    assert documents.without(LIKE.fields["spec"], {"order": ["a"]}, {"f:order": {"i:0": {}}}) == {"order": ["a"]}


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["mtu", "tags", "ports", "port", "order", "selector", "any", "open", "labels", apply.LAST_APPLIED]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
ODD_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "spec": ODD,
        "status": ODD,
        "metadata": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "odd"), ODD
            ),
        ),
    },
).map(lambda parts: network(**parts))


@given(ODD_DOCUMENTS, ODD_DOCUMENTS, ODD_DOCUMENTS, st.sampled_from(["bob", "kubectl"]), st.booleans())
def test_no_document_trips_the_bookkeeping(
    first: Document, second: Document, config: Document, manager: str, force: bool
) -> None:
    made = updated(None, first)
    changed = updated(made, second)
    for live in (None, made, changed):
        try:
            # What is stored was valid once; what is sent need not be.
            shapes.check(LIKE, live)
            applied(live, config, manager, force=force)
        except (BadRequest, Conflict):
            continue
