"""Events in the words of events.k8s.io/v1: the same objects under both versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.front.api.output import protobuf_kinds
from netloom.front.api.schemas import served
from netloom.front.api.schemas.served import EVENTS
from tests.front.serving import Serving

CORE, NEW = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
STRATEGIC = "application/strategic-merge-patch+json"
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "regarding": {"kind": "Network", "namespace": "default", "name": "blue"},
    "note": "it was tried",
    "reportingController": "example.com/me",
    "eventTime": "2026-11-15T09:00:00.000001Z",
    "deprecatedCount": 2,
}


def test_what_is_written_under_one_version_is_read_under_both(server: Serving) -> None:
    made = server.post(NEW, EVENT)
    assert (made.code, made.json["apiVersion"], made.json["note"]) == (201, "events.k8s.io/v1", "it was tried")
    core = server.get(f"{CORE}/e").json
    assert (core["apiVersion"], core["message"], core["count"]) == ("v1", "it was tried", 2)
    assert core["involvedObject"]["name"] == "blue"
    assert server.get(f"{NEW}/e").json == EVENTS.shown(core)
    listed = server.get(NEW).json
    assert (listed["apiVersion"], listed["kind"], len(listed["items"])) == ("events.k8s.io/v1", "EventList", 1)
    assert listed["items"] == [EVENTS.shown(core)]


def test_it_is_changed_by_the_names_of_its_version(server: Serving) -> None:
    server.post(NEW, EVENT)
    patched = server.patch(f"{NEW}/e", {"note": "again", "series": {"count": 2}}, STRATEGIC).json
    assert (patched["note"], patched["series"]) == ("again", {"count": 2})
    replaced = server.put(f"{NEW}/e", patched | {"note": "last"}).json
    assert replaced["note"] == server.get(f"{CORE}/e").json["message"] == "last"
    answer = server.patch(f"{NEW}/e?fieldManager=me", EVENT, "application/apply-patch+yaml")
    assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert server.delete(f"{NEW}/e").code == 200
    assert server.get(f"{CORE}/e").code == 404


@pytest.mark.parametrize("wrong", [EVENT | {"message": "of the other version"}, EVENT | {"apiVersion": "v1"}])
def test_the_versions_are_not_mixed(server: Serving, wrong: dict[str, Any]) -> None:
    answer = server.post(NEW, wrong)
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    assert server.get(CORE).json["items"] == []


def test_both_are_in_protobuf(server: Serving) -> None:
    body = protobuf_kinds.encode(EVENT)
    made = server.post(NEW, body, media=protobuf_kinds.MEDIA, Accept=protobuf_kinds.MEDIA)
    assert protobuf_kinds.decode(made.body, "events.k8s.io/v1", "Event")["note"] == "it was tried"
    core = server.get(f"{CORE}/e", Accept=protobuf_kinds.MEDIA)
    assert protobuf_kinds.decode(core.body, "v1", "Event")["message"] == "it was tried"


def test_watchers_of_either_version_see_their_own(server: Serving) -> None:
    revision = server.get(CORE).json["metadata"]["resourceVersion"]
    query = f"?watch=1&resourceVersion={revision}"
    with server.watching(CORE + query) as core, server.watching(NEW + query) as new:
        server.post(NEW, EVENT)
        seen, other = core.next()["object"], new.next()["object"]
    assert (seen["apiVersion"], seen["message"]) == ("v1", "it was tried")
    assert other == EVENTS.shown(seen)


def test_the_rights_are_those_of_events(server: Serving) -> None:
    assert server.post(NEW, EVENT, who="viewer").code == 403
    review = {"spec": {"resourceAttributes": {"verb": "create", "group": "events.k8s.io", "resource": "events"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert [server.post(path, review, who=who).json["status"]["allowed"] for who in ("admin", "viewer")] == [
        True,
        False,
    ]


def test_nothing_else_is_there(server: Serving) -> None:
    found = server.get("/apis/events.k8s.io/v1").json
    assert [resource["name"] for resource in found["resources"]] == ["events"]
    for path in ("leases", "networks", "namespaces/default/leases/x", "namespaces/default"):
        assert server.get(f"/apis/events.k8s.io/v1/{path}").code == 404


NAMES = [stored for stored, _ in EVENTS.names] + ["type", "reason", "metadata"]


@given(st.dictionaries(st.sampled_from(NAMES), st.integers()))
def test_what_is_shown_is_stored_again(document: dict[str, int]) -> None:
    stored = {"apiVersion": "v1", **document}
    assert EVENTS.stored(EVENTS.shown(stored)) == stored
    if document.keys() - {"type", "reason", "metadata"}:
        with pytest.raises(BadRequest, match="unknown field"):
            EVENTS.stored(document)


def test_other_paths_stay_as_they_are() -> None:
    for path in ("/api/v1/events", "/apis/events.k8s.io/v1beta1/events", "/apis/events.k8s.io/v1x/events", "/x"):
        assert served.at(path) == (path, None)
    assert served.at("/apis/events.k8s.io/v1/events") == ("/api/v1/events", EVENTS)
