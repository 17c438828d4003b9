"""Protobuf over the wire: what is answered in it, and how often it is made."""

import http.client
import zlib
from contextlib import closing
from typing import Any

import pytest

from netloom import protobuf
from netloom.front.api.http.negotiation import OF_MESSAGES, negotiate
from netloom.front.api.output import protobuf_kinds
from netloom.front.api.output.forms import View
from netloom.front.api.output.frames import Frames
from netloom.front.api.output.protobuf_kinds import MEDIA, MESSAGES
from netloom.model.registry import LEASE as KIND
from netloom.store.base import Event, EventType
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, network, path, serving

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE = "coordination.k8s.io/v1", "Lease"
PARTIAL = f"{MEDIA};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


def lease(name: str, **spec: Any) -> bytes:
    return protobuf_kinds.encode({"apiVersion": LEASE[0], "kind": LEASE[1], "metadata": {"name": name}, "spec": spec})


def frames(response: http.client.HTTPResponse, count: int) -> list[tuple[str, bytes]]:
    """Return the type and the envelope of the next events of a watch."""
    found = []
    for _ in range(count):
        size = int.from_bytes(response.read(4), "big")
        event = response.read(size)
        kind = event[2 : 2 + event[1]]
        assert protobuf_kinds.MAGIC in event
        found.append((kind.decode(), event[event.index(protobuf_kinds.MAGIC) :]))
    return found


def test_a_lease_goes_in_and_comes_out_in_protobuf(server: Serving) -> None:
    sent = lease("one", holderIdentity="me", renewTime="2026-11-15T09:08:07.123456Z")
    made = server.post(LEASES, sent, media=MEDIA, Accept=MEDIA)
    assert (made.code, made.headers["Content-Type"]) == (201, MEDIA)
    document = protobuf_kinds.decode(made.body, *LEASE)
    assert document == server.get(f"{LEASES}/one").json
    assert document["spec"] == {"holderIdentity": "me", "renewTime": "2026-11-15T09:08:07.123456Z"}
    document["spec"]["holderIdentity"] = "you"
    changed = server.put(f"{LEASES}/one", protobuf_kinds.encode(document), media=MEDIA, Accept=MEDIA)
    assert protobuf_kinds.decode(changed.body, *LEASE)["spec"]["holderIdentity"] == "you"
    stale = server.put(f"{LEASES}/one", protobuf_kinds.encode(document), media=MEDIA, Accept=MEDIA)
    assert protobuf_kinds.decode(stale.body, "v1", "Status")["reason"] == "Conflict"


def test_our_kinds_have_no_protobuf(server: Serving) -> None:
    body = protobuf_kinds.envelope("netloom.dev/v1alpha1", "Network", b"")
    answer = server.post(path("networks"), body, media=MEDIA)
    assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert "networks.netloom.dev have no Protobuf" in answer.json["message"]
    assert server.post(path("networks"), network()).code == 201
    answer = server.get(path("networks", name="blue"), Accept=MEDIA)
    assert (answer.code, answer.headers["Content-Type"]) == (406, MEDIA)
    assert protobuf_kinds.decode(answer.body, "v1", "Status")["reason"] == "NotAcceptable"


def test_metadata_of_all_kinds_is_in_protobuf(server: Serving) -> None:
    server.post(path("networks"), network())
    answer = server.get(path("networks", name="blue"), Accept=PARTIAL)
    wanted = server.get(path("networks", name="blue")).json["metadata"]
    assert answer.body == protobuf_kinds.envelope(
        "meta.k8s.io/v1", "PartialObjectMetadata", protobuf_kinds.PARTIAL.encode({"metadata": wanted})
    )


def test_a_large_list_is_one_message(server: Serving) -> None:
    long = "x" * 1000
    for number in range(200):
        server.post(LEASES, lease(f"l-{number:03}", holderIdentity=long), media=MEDIA)
    for headers in ({}, {"Accept_Encoding": "gzip"}):
        answer = server.get(LEASES, Accept=MEDIA, **headers)
        body = answer.body
        if headers:
            assert answer.headers["Content-Encoding"] == "gzip"
            body = zlib.decompress(body, wbits=31)
        listed = server.get(LEASES).json
        items = [protobuf.bytes_field(2, MESSAGES["Lease"].encode(item)) for item in listed["items"]]
        first = protobuf.bytes_field(1, protobuf_kinds.LIST_META.encode(listed["metadata"]))
        assert body == protobuf_kinds.envelope(LEASE[0], "LeaseList", first + b"".join(items))
    page = server.get(f"{LEASES}?limit=7", Accept=MEDIA).body
    assert b"".join(items[:7]) in page
    assert protobuf.whole_field(4, 193) in page


def test_a_watch_is_framed(server: Serving) -> None:
    server.post(LEASES, lease("one"), media=MEDIA)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with closing(server.connect()) as connection:
        connection.request("GET", f"{LEASES}?{query}", headers={"Authorization": "Bearer admin-token", "Accept": MEDIA})
        response = connection.getresponse()
        assert response.headers["Content-Type"] == f"{MEDIA};stream=watch"
        (added, one), (bookmark, end) = frames(response, 2)
        assert (added, protobuf_kinds.decode(one, *LEASE)["metadata"]["name"]) == ("ADDED", "one")
        marked = protobuf_kinds.decode(end, *LEASE)["metadata"]
        assert (bookmark, marked["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
        server.delete(f"{LEASES}/one")
        ((deleted, last),) = frames(response, 1)
        assert deleted == "DELETED"
        assert int(protobuf_kinds.decode(last, *LEASE)["metadata"]["resourceVersion"]) > int(marked["resourceVersion"])


def test_a_watch_from_a_revision_that_is_gone_ends_with_a_status(credentials: Any) -> None:
    with serving(credentials, store=MemoryStore(window_changes=1)) as server:
        for name in ("a", "b", "c"):
            server.post(LEASES, lease(name), media=MEDIA)
        answer = server.get(f"{LEASES}?watch=1&resourceVersion=1", Accept=MEDIA)
    assert (answer.code, answer.headers["Content-Type"]) == (200, f"{MEDIA};stream=watch")
    status = protobuf_kinds.decode(answer.body[answer.body.index(protobuf_kinds.MAGIC) :], "v1", "Status")
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert protobuf_kinds.event("ERROR", protobuf_kinds.encode(status)) == answer.body


def test_an_event_is_encoded_once_for_all_who_watch(server: Serving) -> None:
    server.post(LEASES, lease("one"), media=MEDIA)
    event = Event(EventType.ADDED, server.run(server.store.get(KIND, "default", "one")))
    kept = Frames()
    views = [View(KIND, negotiate(accept, OF_MESSAGES)) for accept in (MEDIA, f"{MEDIA},application/json", "")]
    first, second, other = (kept.of(event, view.event, (view.output, view.include)) for view in views)
    assert first is second
    assert other == b'{"type":"ADDED","object":%b}\n' % event.object.raw


@pytest.mark.parametrize("wrong", [5, {"resourceAttributes": {"verb": "get", "labelSelector": 5}}])
def test_a_review_that_is_none_is_a_bad_request(server: Serving, wrong: Any) -> None:
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = server.post(review, {"spec": wrong}, Accept=MEDIA)
    assert answer.code == 400
    assert protobuf_kinds.decode(answer.body, "v1", "Status")["reason"] == "BadRequest"


def test_who_is_not_known_is_told_so_in_protobuf(server: Serving) -> None:
    answer = server.get(LEASES, who="stranger", Accept=f"{MEDIA},application/json")
    assert protobuf_kinds.decode(answer.body, "v1", "Status")["code"] == answer.code == 401
