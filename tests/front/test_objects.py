"""One object through the API: created, read, replaced, patched, deleted."""

import gzip
from typing import Any

import pytest

from tests.front.serving import Serving, attachment, document, network, path


def reason(answer: Any) -> tuple[int, str]:
    return answer.code, answer.json["reason"]


def test_an_object_is_created_and_read_back(server: Serving) -> None:
    made = server.post(path("networks"), network(vni=10))
    assert made.code == 201
    metadata = made.json["metadata"]
    assert metadata["uid"]
    assert metadata["generation"] == 1
    assert made.json["spec"]["fabric"] == "ovn"  # A default.
    read = server.get(path("networks", name="blue"))
    assert read.code == 200
    assert read.json == made.json
    assert read.headers["Content-Type"] == "application/json"


def test_a_name_is_generated_on_wish(server: Serving) -> None:
    body = network()
    body["metadata"] = {"generateName": "net-"}
    names = {server.post(path("networks"), body).json["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("net-") and len(name) == 9 for name in names)


def test_a_name_is_taken_once(server: Serving) -> None:
    assert server.post(path("networks"), network()).code == 201
    again = server.post(path("networks"), network())
    assert reason(again) == (409, "AlreadyExists")
    assert again.json["message"] == 'networks.netloom.dev "blue" already exists'


def test_yaml_goes_in_and_comes_out(server: Serving) -> None:
    text = b"apiVersion: netloom.dev/v1alpha1\nkind: Network\nmetadata: {name: blue}\nspec: {vni: 7}\n"
    made = server.post(path("networks"), text, media="application/yaml", Accept="application/yaml")
    assert made.code == 201
    assert made.headers["Content-Type"] == "application/yaml"
    assert b"vni: 7" in made.body
    assert b"- apiVersion" in server.get(path("networks"), Accept="application/yaml").body


def test_what_is_not_there_is_not_found_with_details(server: Serving) -> None:
    answer = server.get(path("networks", name="x"))
    assert reason(answer) == (404, "NotFound")
    assert answer.json["message"] == 'networks.netloom.dev "x" not found'
    assert answer.json["details"] == {"name": "x", "group": "netloom.dev", "kind": "networks"}
    for method in ("PUT", "PATCH", "DELETE"):
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        assert server.request(method, path("networks", name="x"), network("x"), media=media).code == 404


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "Subnet"}, "kind"),
        ({"apiVersion": "v1"}, "API version"),
        ({"kind": None}, "Kind"),
        ({"apiVersion": None}, "ApiVersion"),
        ({"metadata": {"name": "blue", "namespace": "other"}}, "namespace"),
        ({"metadata": []}, "metadata"),
    ],
)
def test_a_body_about_something_else_is_a_bad_request(server: Serving, change: dict[str, Any], words: str) -> None:
    answer = server.post(path("networks"), network() | change)
    assert reason(answer) == (400, "BadRequest")
    assert words in answer.json["message"]
    assert server.get(path("networks")).json["items"] == []


def test_all_that_is_wrong_is_said_at_once(server: Serving) -> None:
    answer = server.post(path("networks"), network(vni=0, mtu=1, fabric="wool"))
    assert reason(answer) == (422, "Invalid")
    assert answer.json["details"]["kind"] == "Network"
    assert {cause["field"] for cause in answer.json["details"]["causes"]} == {"spec.vni", "spec.mtu", "spec.fabric"}


def test_unknown_fields_are_refused_warned_about_or_dropped(server: Serving) -> None:
    body = network(vnii=5)
    refused = server.post(path("networks"), body)
    assert reason(refused) == (400, "BadRequest")
    assert "spec.vnii" in refused.json["message"]
    assert "vni" in refused.json["message"]
    warned = server.post(path("networks") + "?fieldValidation=Warn", body)
    assert warned.code == 201
    assert 'unknown field \\"spec.vnii\\"' in warned.headers["Warning"]
    assert warned.headers["Warning"].startswith('299 - "')
    assert "vnii" not in warned.json["spec"]
    body["metadata"]["name"] = "red"
    silent = server.post(path("networks") + "?fieldValidation=Ignore", body)
    assert silent.code == 201
    assert silent.headers["Warning"] is None


def test_replacing_needs_the_newest_revision(server: Serving) -> None:
    first = server.post(path("networks"), network()).json
    wanted = first | {"spec": first["spec"] | {"mtu": 1400}}
    second = server.put(path("networks", name="blue"), wanted)
    assert second.code == 200
    assert second.json["metadata"]["generation"] == 2
    stale = server.put(path("networks", name="blue"), wanted)
    assert reason(stale) == (409, "Conflict")
    del wanted["metadata"]["resourceVersion"]
    blind = server.put(path("networks", name="blue"), wanted)
    assert reason(blind) == (422, "Invalid")
    assert server.get(path("networks", name="blue")).json == second.json


def test_replacing_under_another_name_is_a_bad_request(server: Serving) -> None:
    first = server.post(path("networks"), network()).json
    assert reason(server.put(path("networks", name="red"), first)) == (400, "BadRequest")


def test_what_is_immutable_stays(server: Serving) -> None:
    server.post(path("networks"), network(vni=10))
    answer = server.patch(path("networks", name="blue"), {"spec": {"vni": 11}})
    assert reason(answer) == (422, "Invalid")
    assert "immutable" in answer.json["message"]
    assert server.get(path("networks", name="blue")).json["spec"]["vni"] == 10


def test_status_is_written_by_its_own_door_only(server: Serving) -> None:
    body = network() | {"status": {"vni": 9}}
    made = server.post(path("networks"), body).json
    assert "status" not in made
    server.patch(path("networks", name="blue"), {"status": {"vni": 9}})
    assert "status" not in server.get(path("networks", name="blue")).json
    door = path("networks", name="blue", subresource="status")
    seen = server.patch(door, {"status": {"vni": 9}, "spec": {"mtu": 1300}, "metadata": {"labels": {"a": "b"}}})
    assert seen.code == 200
    assert seen.json["status"] == {"vni": 9}
    assert seen.json["spec"] == made["spec"]
    assert "labels" not in seen.json["metadata"]
    assert seen.json["metadata"]["generation"] == 1
    replaced = server.put(door, seen.json | {"status": {"vni": 12}})
    assert replaced.json["status"] == {"vni": 12}
    assert server.get(door).json == replaced.json


def test_a_json_patch_changes_what_it_says(server: Serving) -> None:
    server.post(path("networks"), network())
    media = "application/json-patch+json"
    target = path("networks", name="blue")
    done = server.patch(target, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], media)
    assert done.json["metadata"]["labels"] == {"a": "b"}
    assert reason(server.patch(target, [{"op": "test", "path": "/spec/mtu", "value": 1}], media))[0] == 422
    assert reason(server.patch(target, {"no": "list"}, media)) == (400, "BadRequest")


def test_a_patch_without_effect_writes_nothing(server: Serving) -> None:
    first = server.post(path("networks"), network(mtu=1400)).json
    assert server.patch(path("networks", name="blue"), {"spec": {"mtu": 1400}}).json == first


def test_a_patch_for_one_revision_is_for_that_one_only(server: Serving) -> None:
    first = server.post(path("networks"), network()).json
    server.patch(path("networks", name="blue"), {"metadata": {"labels": {"a": "b"}}})
    late = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"], "labels": {"a": "c"}}}
    assert reason(server.patch(path("networks", name="blue"), late)) == (409, "Conflict")


def test_a_strategic_merge_patch_is_not_for_our_kinds(server: Serving) -> None:
    server.post(path("networks"), network())
    answer = server.patch(path("networks", name="blue"), {}, "application/strategic-merge-patch+json")
    assert reason(answer) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in answer.json["message"]


def test_applying_creates_changes_and_conflicts(server: Serving) -> None:
    target = path("networks", name="blue")
    media = "application/apply-patch+yaml"
    made = server.patch(f"{target}?fieldManager=me", network(mtu=1400), media)
    assert made.code == 201
    entry = made.json["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    same = server.patch(f"{target}?fieldManager=me", network(mtu=1400), media)
    assert (same.code, same.json) == (200, made.json)
    other = server.patch(f"{target}?fieldManager=you", network(mtu=1300), media)
    assert reason(other) == (409, "Conflict")
    assert other.json["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    forced = server.patch(f"{target}?fieldManager=you&force=true", network(mtu=1300), media)
    assert forced.json["spec"]["mtu"] == 1300
    assert reason(server.patch(target, network(), media)) == (422, "Invalid")
    assert reason(server.patch(f"{target}?force=true", {})) == (422, "Invalid")


def test_the_manager_is_the_programs_name_unless_it_says_another(server: Serving) -> None:
    made = server.post(path("networks"), network(mtu=1400), User_Agent="kubectl/v1.36 (linux)").json
    assert made["metadata"]["managedFields"][0]["manager"] == "kubectl"
    named = server.patch(path("networks", name="blue") + "?fieldManager=me", {"spec": {"mtu": 1300}}).json
    assert {entry["manager"] for entry in named["metadata"]["managedFields"]} == {"kubectl", "me"}


def test_the_length_of_a_managers_name_is_counted_in_bytes(server: Serving) -> None:
    target = path("networks", name="blue")
    made = server.post(path("networks"), network(mtu=1400), User_Agent="\u00e9" * 100 + "/1").json
    assert made["metadata"]["managedFields"][0]["manager"] == "\u00e9" * 64
    longest = server.patch(f"{target}?fieldManager={'%C3%A9' * 64}", {"spec": {"mtu": 1300}})
    assert longest.json["metadata"]["managedFields"][-1]["manager"] == "\u00e9" * 64
    longer = server.patch(f"{target}?fieldManager={'%C3%A9' * 65}", {"spec": {"mtu": 1200}})
    assert longer.code == 400
    assert longer.json["message"] == "fieldManager: Too long: may not be more than 128 bytes"


def test_a_dry_run_says_what_would_be_and_does_nothing(server: Serving) -> None:
    tried = server.post(path("networks") + "?dryRun=All", network())
    assert tried.code == 201
    assert server.get(path("networks")).json["items"] == []
    made = server.post(path("networks"), network()).json
    target = path("networks", name="blue")
    assert server.patch(f"{target}?dryRun=All", {"spec": {"mtu": 1400}}).json["spec"]["mtu"] == 1400
    assert server.put(f"{target}?dryRun=All", made).code == 200
    assert server.delete(f"{target}?dryRun=All").code == 200
    assert server.delete(target, {"dryRun": ["All"]}).code == 200
    assert server.get(target).json == made


def test_a_deletion_answers_with_a_status(server: Serving) -> None:
    made = server.post(path("networks"), network()).json
    gone = server.delete(path("networks", name="blue"))
    assert gone.code == 200
    assert (gone.json["kind"], gone.json["status"]) == ("Status", "Success")
    assert gone.json["details"]["uid"] == made["metadata"]["uid"]
    assert server.get(path("networks", name="blue")).code == 404


@pytest.mark.parametrize(
    ("query", "body", "finalizer"),
    [
        ("", {"propagationPolicy": "Foreground"}, "foregroundDeletion"),
        ("?propagationPolicy=Foreground", None, "foregroundDeletion"),
        ("", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}, "orphan"),
        ("", {"orphanDependents": True}, "orphan"),
        ("?orphanDependents=true", None, "orphan"),
    ],
)
def test_propagation_comes_by_body_or_query(server: Serving, query: str, body: Any, finalizer: str) -> None:
    server.post(path("networks"), network())
    answer = server.delete(path("networks", name="blue") + query, body)
    assert answer.code == 200
    assert answer.json["kind"] == "Network"
    assert answer.json["metadata"]["finalizers"] == [finalizer]
    assert answer.json["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"preconditions": {"uid": "not-this-one"}}, 409),
        ({"preconditions": {"resourceVersion": "1"}}, 409),
        ({"preconditions": {"resourceVersion": "x"}}, 422),
        ({"propagationPolicy": "Sideways"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["Some"]}, 422),
        ({"propagationPolicy": 5}, 400),
        ({"gracePeriodSeconds": 0}, 200),
        ({"orphanDependents": False}, 200),
    ],
)
def test_delete_options_hold_or_are_refused(server: Serving, body: Any, code: int) -> None:
    server.post(path("networks"), network())
    assert server.delete(path("networks", name="blue"), body).code == code
    assert server.get(path("networks", name="blue")).code == (404 if code == 200 else 200)


def test_the_right_preconditions_let_a_deletion_pass(server: Serving) -> None:
    metadata = server.post(path("networks"), network()).json["metadata"]
    right = {"preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
    assert server.delete(path("networks", name="blue"), right).code == 200


def test_a_finalizer_keeps_an_object_until_it_is_taken_away(server: Serving) -> None:
    body = network()
    body["metadata"]["finalizers"] = ["netloom.dev/test"]
    server.post(path("networks"), body)
    kept = server.delete(path("networks", name="blue"))
    assert kept.json["metadata"]["deletionTimestamp"]
    assert server.delete(path("networks", name="blue"), {"orphanDependents": False}).code == 202
    assert server.patch(path("networks", name="blue"), {"metadata": {"finalizers": None}}).code == 200
    assert server.get(path("networks", name="blue")).code == 404


def test_a_collection_is_deleted_as_far_as_selected(server: Serving) -> None:
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        server.post(path("networkattachments"), attachment(name, node))
    gone = server.delete(path("networkattachments") + "?fieldSelector=spec.node=n1")
    assert gone.code == 200
    assert [item["metadata"]["name"] for item in gone.json["items"]] == ["a", "b"]
    left = server.get(path("networkattachments")).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


def test_events_may_leave_their_kind_to_the_url_and_be_replaced_blindly(server: Serving) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Network", "name": "blue", "namespace": "default"},
        "reason": "Tested",
        "message": "once",
        "type": "Normal",
    }
    made = server.post("/api/v1/namespaces/default/events", event)
    assert made.code == 201, made.body
    assert (made.json["kind"], made.json["apiVersion"]) == ("Event", "v1")
    event["message"] = "twice"
    assert server.put("/api/v1/namespaces/default/events/e", event).json["message"] == "twice"


def test_large_answers_are_compressed_for_those_who_accept_it(server: Serving) -> None:
    for i in range(150):
        body = attachment(f"a{i}")
        body["metadata"]["annotations"] = {"text": "x" * 1000}
        server.post(path("networkattachments"), body)
    plain = server.get(path("networkattachments"))
    packed = server.get(path("networkattachments"), Accept_Encoding="gzip, deflate")
    assert plain.headers["Content-Encoding"] is None
    assert int(plain.headers["Content-Length"]) == len(plain.body)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 5
    assert gzip.decompress(packed.body) == plain.body
    assert (
        server.get(path("networkattachments") + "?limit=1", Accept_Encoding="gzip").headers["Content-Encoding"] is None
    )


def test_cluster_scoped_objects_have_no_namespace(server: Serving) -> None:
    made = server.post(path("nodes", ""), document("Node", "n1", "", {"underlayIP": "192.0.2.1"}))
    assert made.code == 201
    assert "namespace" not in made.json["metadata"]
    assert server.get(path("nodes", "", "n1")).json == made.json
