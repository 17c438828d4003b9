"""Lists and watches through the API."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.http.limits import Limits
from netloom.model.registry import NETWORK
from netloom.store.memory import MemoryStore
from tests.front.serving import GROUP, Serving, attachment, network, path, serving, wait_until

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


def fill(server: Serving) -> None:
    for name, node, net in (("a", "n1", "blue"), ("b", "n1", "red"), ("c", "n2", "blue")):
        body = attachment(name, node, net)
        body["metadata"]["labels"] = {"net": net}
        assert server.post(path("networkattachments"), body).code == 201


def test_a_list_has_its_kind_and_revision(server: Serving) -> None:
    empty = server.get(path("networks")).json
    assert (empty["kind"], empty["apiVersion"], empty["items"]) == ("NetworkList", "netloom.dev/v1alpha1", [])
    made = server.post(path("networks"), network()).json
    full = server.get(path("networks")).json
    assert full["items"] == [made]
    assert full["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_selectors_select(server: Serving) -> None:
    fill(server)
    base = path("networkattachments")
    assert names(server.get(f"{base}?fieldSelector=spec.node%3Dn1")) == ["a", "b"]
    assert names(server.get(f"{base}?fieldSelector=spec.node%3D%3Dn1,spec.network!%3Dred")) == ["a"]
    assert names(server.get(f"{base}?labelSelector=net%20in%20(blue)")) == ["a", "c"]
    assert names(server.get(f"{GROUP}/networkattachments?fieldSelector=metadata.name=c")) == ["c"]


def test_a_long_list_comes_in_pages_of_one_state(server: Serving) -> None:
    fill(server)
    base = path("networkattachments")
    first = server.get(f"{base}?limit=2")
    assert names(first) == ["a", "b"]
    assert first.json["metadata"]["remainingItemCount"] == 1
    server.delete(path("networkattachments", name="c"))
    rest = server.get(f"{base}?limit=2&continue={first.json['metadata']['continue']}")
    assert names(rest) == ["c"]
    assert rest.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
    assert "continue" not in rest.json["metadata"]
    assert server.get(f"{base}?limit=2&continue=nonsense").code == 400


def test_a_list_is_of_the_revision_asked_for(server: Serving) -> None:
    fill(server)
    base = path("networkattachments")
    now = int(server.get(base).json["metadata"]["resourceVersion"])
    server.delete(path("networkattachments", name="a"))
    assert names(server.get(f"{base}?resourceVersion={now}&resourceVersionMatch=Exact")) == ["a", "b", "c"]
    assert names(server.get(f"{base}?resourceVersion={now}&resourceVersionMatch=NotOlderThan")) == ["b", "c"]
    assert names(server.get(f"{base}?resourceVersion={now}")) == ["b", "c"]
    assert names(server.get(f"{base}?resourceVersion=0")) == ["b", "c"]
    early = server.get(f"{base}?resourceVersion=999999")
    assert early.code == 504
    assert early.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert early.headers["Retry-After"] == "1"


def test_a_table_has_the_kinds_columns(server: Serving) -> None:
    fill(server)
    table = server.get(path("networkattachments"), Accept=TABLE).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:3] == ["Name", "Node", "Network"]
    assert [row["cells"][:3] for row in table["rows"]] == [["a", "n1", "blue"], ["b", "n1", "red"], ["c", "n2", "blue"]]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["metadata"]["resourceVersion"]
    one = server.get(path("networkattachments", name="b"), Accept=TABLE.replace("v=v1", "v=v1beta1")).json
    assert one["apiVersion"] == "meta.k8s.io/v1beta1"
    assert [row["cells"][0] for row in one["rows"]] == ["b"]
    whole = server.get(path("networkattachments", name="b") + "?includeObject=Object", Accept=TABLE).json
    assert whole["rows"][0]["object"]["spec"]["network"] == "red"
    paged = server.get(path("networkattachments") + "?limit=1", Accept=TABLE).json
    assert paged["metadata"]["continue"]


def test_metadata_alone_can_be_had(server: Serving) -> None:
    fill(server)
    listed = server.get(path("networkattachments"), Accept=PARTIAL.replace("Metadata;", "MetadataList;")).json
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [sorted(item) for item in listed["items"]] == [["apiVersion", "kind", "metadata"]] * 3
    one = server.get(path("networkattachments", name="a"), Accept=PARTIAL).json
    assert one["kind"] == "PartialObjectMetadata"
    assert one["metadata"]["labels"] == {"net": "blue"}


def test_a_watch_begins_with_the_state_and_goes_on_with_changes(server: Serving) -> None:
    fill(server)
    with server.watching(path("networkattachments") + "?watch=1&fieldSelector=spec.node=n1") as events:
        assert events.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        server.post(path("networkattachments"), attachment("d", "n1"))
        server.post(path("networkattachments"), attachment("e", "n2"))
        server.patch(path("networkattachments", name="a"), {"metadata": {"labels": {"x": "y"}}})
        server.delete(path("networkattachments", name="b"))
        assert events.take(3) == [("ADDED", "d"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_a_watch_from_a_revision_tells_what_came_after(server: Serving) -> None:
    fill(server)
    since = server.get(path("networkattachments")).json["metadata"]["resourceVersion"]
    server.delete(path("networkattachments", name="c"))
    for target in (path("networkattachments") + "?watch=true", f"{GROUP}/watch/networkattachments?"):
        with server.watching(f"{target}&resourceVersion={since}&timeoutSeconds=1") as events:
            assert [(e["type"], e["object"]["metadata"]["name"]) for e in events.rest()] == [("DELETED", "c")]


def test_what_stops_matching_is_deleted_for_the_watcher(server: Serving) -> None:
    fill(server)
    with server.watching(path("networkattachments") + "?watch=1&labelSelector=net=blue") as events:
        assert events.take(2) == [("ADDED", "a"), ("ADDED", "c")]
        server.patch(path("networkattachments", name="a"), {"metadata": {"labels": {"net": "red"}}})
        server.patch(path("networkattachments", name="b"), {"metadata": {"labels": {"net": "blue"}}})
        assert events.take(2) == [("DELETED", "a"), ("ADDED", "b")]


def test_bookmarks_come_now_and_then_and_at_the_end(credentials: Path) -> None:
    with serving(credentials, limits=Limits(bookmark_seconds=0.1)) as server:
        fill(server)
        with server.watching(
            path("networkattachments") + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
        ) as events:
            events.take(3)
            revision = server.post(path("networks"), network()).json["metadata"]["resourceVersion"]
            rest = events.rest()
    assert len(rest) > 2
    assert {event["type"] for event in rest} == {"BOOKMARK"}
    assert rest[-1]["object"]["metadata"]["resourceVersion"] == revision
    assert rest[-1]["object"]["kind"] == "NetworkAttachment"


def test_the_initial_state_can_be_streamed_with_a_mark_at_its_end(server: Serving) -> None:
    fill(server)
    query = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with server.watching(path("networkattachments") + query) as events:
        assert events.take(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        mark = events.next()
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        server.delete(path("networkattachments", name="a"))
        assert events.take(1) == [("DELETED", "a")]
    query = "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    with server.watching(path("networkattachments") + query) as events:
        assert events.rest() == []


def test_tables_and_metadata_are_watched_too(server: Serving) -> None:
    fill(server)
    base = path("networkattachments") + "?watch=1&fieldSelector=metadata.name=a&allowWatchBookmarks=1&timeoutSeconds=1"
    with server.watching(base, Accept=TABLE) as events:
        first, mark = events.rest()
        assert (first["object"]["kind"], first["object"]["rows"][0]["cells"][0]) == ("Table", "a")
        assert (mark["object"]["kind"], mark["object"]["rows"]) == ("Table", [])
        assert mark["object"]["metadata"]["resourceVersion"]
    with server.watching(base, Accept=PARTIAL) as events:
        first, mark = events.rest()
        assert {first["object"]["kind"], mark["object"]["kind"]} == {"PartialObjectMetadata"}
    assert server.get(base, Accept="application/yaml").code == 406


def test_a_watch_from_a_forgotten_revision_is_told_to_list_again(credentials: Path) -> None:
    with serving(credentials, store=MemoryStore(window_changes=2)) as server:
        fill(server)
        with server.watching(path("networkattachments") + "?watch=1&resourceVersion=1") as events:
            (only,) = events.rest()
    assert only["type"] == "ERROR"
    assert (only["object"]["code"], only["object"]["reason"]) == (410, "Expired")


def test_one_identity_has_only_so_many_watches(credentials: Path) -> None:
    with serving(credentials, limits=Limits(watches_per_identity=2)) as server:
        target = path("networks") + "?watch=1"
        with server.watching(target), server.watching(target):
            refused = server.get(target)
            assert (refused.code, refused.json["reason"]) == (429, "TooManyRequests")
            assert refused.headers["Retry-After"] == "1"
            with server.watching(target, who="viewer"):
                assert len(server.api.watches) == 3


def test_many_watchers_see_the_same_in_the_same_order(server: Serving) -> None:
    seen: list[list[tuple[str, str]]] = []

    def follow(ready: threading.Barrier) -> None:
        with server.watching(path("networkattachments") + "?watch=1") as events:
            ready.wait(120)
            seen.append(events.take(40))

    ready = threading.Barrier(9)
    threads = [threading.Thread(target=follow, args=(ready,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    ready.wait(120)
    for i in range(20):
        server.post(path("networkattachments"), attachment(f"a{i}"))
        server.delete(path("networkattachments", name=f"a{i}"))
    for thread in threads:
        thread.join(30)
    wanted = [(kind, f"a{i}") for i in range(20) for kind in ("ADDED", "DELETED")]
    assert seen == [wanted] * 8


def test_a_client_that_leaves_ends_its_watch(server: Serving) -> None:
    with server.watching(path("networks") + "?watch=1"):
        assert len(server.api.watches) == 1
    wait_until(lambda: len(server.api.watches) == 0)


def test_a_server_that_stops_ends_watches_cleanly(credentials: Path) -> None:
    with serving(credentials) as server:
        connection = server.connect()
        connection.request("GET", path("networks") + "?watch=1", headers={"Authorization": "Bearer admin-token"})
        response = connection.getresponse()
    assert response.read() == b""
    connection.close()


def test_a_page_is_never_larger_than_allowed(credentials: Path) -> None:
    with serving(credentials, limits=Limits(page=2)) as server:
        fill(server)
        assert len(server.get(path("networkattachments") + "?limit=100").json["items"]) == 2
        assert len(server.get(path("networkattachments")).json["items"]) == 3


def test_a_long_list_is_streamed_and_complete(server: Serving) -> None:
    for i in range(300):
        body = attachment(f"a{i:03}")
        body["metadata"]["annotations"] = {"text": "x" * 3000}
        server.post(path("networkattachments"), body)
    answer = server.get(path("networkattachments"))
    assert len(answer.body) > 900_000
    assert names(answer) == [f"a{i:03}" for i in range(300)]
    assert json.loads(answer.body)


@pytest.mark.parametrize("verb", ["get", "list"])
def test_what_we_cannot_write_is_not_acceptable(server: Serving, verb: str) -> None:
    server.post(path("networks"), network())
    answer = server.get(path("networks", name="blue" if verb == "get" else ""), Accept="image/png")
    assert (answer.code, answer.json["reason"]) == (406, "NotAcceptable")


def test_a_store_that_goes_away_is_said_to_watchers(server: Serving) -> None:
    with server.watching(path("networks") + "?watch=1&timeoutSeconds=20") as events:
        server.run(server.store.close())
        (only,) = events.rest()
    assert (only["type"], only["object"]["code"]) == ("ERROR", 503)
    assert server.get(path("networks")).code == 503


def test_a_watcher_that_falls_behind_is_told_to_list_again(credentials: Path) -> None:
    store = MemoryStore(queue_length=3)

    async def burst(server: Serving) -> None:
        for i in range(60):  # More than the kernel's buffers and ours take; the watcher does not read meanwhile.
            large = network(f"n{i}")
            large["metadata"]["annotations"] = {"weight": "x" * 200_000}
            await store.create(NETWORK, large)

    with serving(credentials, store=store) as server, server.watching(path("networks") + "?watch=1") as events:
        server.run(burst(server))
        last = events.rest()[-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)


def test_patches_at_the_same_time_all_count(server: Serving) -> None:
    server.post(path("networks"), network())

    def patch(i: int) -> None:
        server.patch(path("networks", name="blue"), {"metadata": {"labels": {f"l{i}": "x"}}})

    threads = [threading.Thread(target=patch, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.get(path("networks", name="blue")).json["metadata"]["labels"]) == 8
