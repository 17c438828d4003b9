"""What one request, and one caller, can take of a server: time, memory, disk.

test_cost.py has what input costs as it grows; here are the limits, as a client meets them.
"""

import asyncio
import contextlib
import gc
import http.client
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import TooLarge
from netloom.front.api.auth import delegated
from netloom.front.api.auth.identity import Attributes, Identity
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.http.limits import Limits
from netloom.front.api.verbs.batches import PATH as BATCH
from netloom.model.codec import documents
from netloom.model.registry import NETWORK
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, attachment, document, network, path, serving
from tests.front.test_streams import stream

OBJECT_LIMIT = 1536 * 1024
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def batch_of(method: str, target: str) -> dict[str, Any]:
    return {"requests": [{"method": method, "path": target}]}


# Selectors and paths


def test_a_batch_entry_has_no_longer_path_than_a_request(server: Serving) -> None:
    target = path("networks", name="x") + "?labelSelector=" + "," * 100_000
    [answer] = server.post(BATCH, batch_of("GET", target), who="n1").json["answers"]
    assert (answer["code"], answer["body"]["reason"]) == (413, "RequestEntityTooLarge")
    assert "32768" in answer["body"]["message"]


@pytest.mark.parametrize("selector", ["," * 8000, "(((", "a b"])
def test_a_label_selector_is_not_parsed_for_who_may_not_list(server: Serving, selector: str) -> None:
    target = path("networks") + "?labelSelector=" + selector.replace(" ", "%20")
    assert server.get(target, who="n1").code == 403
    assert server.get(target, who="viewer").code == 400


def test_a_stream_takes_no_longer_path_than_a_request(credentials: Path) -> None:
    with serving(credentials, limits=Limits(url=1000)) as server, stream(server) as opened:
        opened.begin(1, f"{path('networks')}?watch=1&resourceVersion=1&labelSelector={'a' * 1000}")
        [answer] = opened.take(1)
        assert (answer["type"], answer["object"]["code"]) == ("ERROR", 413)


def test_refused_requests_leave_nothing_behind(server: Serving) -> None:
    def ask(connection: http.client.HTTPSConnection, number: int) -> None:
        selector = f"{number:04}" + "a" * 31_000
        for query in (f"labelSelector={selector}", f"fieldSelector=metadata.name%3D{selector[:8000]}"):
            connection.request("GET", f"{path('networks')}?{query}", headers={"Authorization": "Bearer n1-token"})
            response = connection.getresponse()
            response.read()
            assert response.status == 403

    with contextlib.closing(server.connect()) as connection:
        ask(connection, 0)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(1, 60):
                ask(connection, number)
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert kept < 59 * 31_000 / 4


# Errors


def test_an_answer_lists_a_hundred_causes_and_how_many_more_there_are(server: Serving) -> None:
    body = attachment("a") | {"spec": {f"ntework{i}": 1 for i in range(5000)} | {"network": "blue", "node": "n1"}}
    answer = server.post(path("networkattachments"), body)
    causes = answer.json["details"]["causes"]
    assert answer.code == 400
    assert len(causes) == 101
    assert causes[-1]["message"].endswith("4900 more")
    assert answer.json["message"].endswith("and 4900 more")
    assert sum("did you mean" in cause["message"] for cause in causes) == 8
    assert len(answer.body) < 32_000


def test_a_long_name_is_quoted_in_part(server: Serving) -> None:
    answer = server.post(path("networkattachments"), attachment("a") | {"spec": {"x" * 100_000: 1}})
    assert answer.code == 400
    assert len(answer.body) < 4_000


def test_warnings_are_as_few(server: Serving) -> None:
    body = attachment("a") | {"spec": {f"x{i}": 1 for i in range(5000)} | {"network": "blue", "node": "n1"}}
    batch = {
        "requests": [{"method": "POST", "path": path("networkattachments") + "?fieldValidation=Warn", "body": body}]
    }
    [answer] = server.post(BATCH, batch).json["answers"]
    assert len(answer["warnings"]) == 101


# Bodies


@pytest.mark.parametrize(
    ("body", "media", "code", "words"),
    [
        (b'{"a":[' + b"[]," * 200_000 + b"[]]}", "application/json", 413, "commas and brackets"),
        (b"a:\n" + b"- b\n" * 30_000, "application/yaml", 400, "write it as JSON"),
        (b"---\n" * 30_000, "application/yaml", 400, "write it as JSON"),
    ],
    ids=["JSON", "YAML", "documents"],
)
def test_a_body_has_a_limited_number_of_values(server: Serving, body: bytes, media: str, code: int, words: str) -> None:
    answer = server.post(path("networks"), body, media=media)
    assert answer.code == code
    assert words in answer.json["message"]


def test_a_file_may_have_more_values_than_a_body() -> None:
    assert len(documents("---\na: b\n" * 15_000)) == 15_000


@pytest.mark.parametrize("name", ["labels", "annotations", "finalizers"])
def test_metadata_has_a_limited_number_of_entries(server: Serving, name: str) -> None:
    def made(number: int) -> dict[str, Any]:
        words = [f"a.b/x{i}" for i in range(number)]
        body = network()
        body["metadata"][name] = words if name == "finalizers" else dict.fromkeys(words, "v")
        return body

    answer = server.post(path("networks"), made(1025))
    assert answer.code == 422
    assert answer.json["details"]["causes"][0]["field"] == f"metadata.{name}"
    query = "?fieldManager=me"
    assert server.patch(path("networks", name="blue") + query, made(1025), "application/apply-patch+yaml").code == 422
    assert server.post(path("networks"), made(1024)).code == 201


# Objects


def heavy(body: dict[str, Any], size: int) -> dict[str, Any]:
    """Return an object of about a size: fields that nobody else limits."""
    owned: dict[str, Any] = {"f:" + "x" * (size - 2000): {}}
    entry = {"manager": "me", "operation": "Update", "apiVersion": "netloom.dev/v1alpha1", "fieldsType": "FieldsV1"}
    body["metadata"]["managedFields"] = [entry | {"fieldsV1": owned}]
    return body


def test_an_object_is_limited_on_every_way_in(server: Serving) -> None:
    target = path("networks", name="blue")
    assert server.post(path("networks"), heavy(network("red"), OBJECT_LIMIT // 2)).code == 201
    large = heavy(network(), OBJECT_LIMIT + 10_000)
    answers = [server.post(path("networks"), large)]
    made = server.post(path("networks"), network()).json
    answers += [
        server.put(target, heavy(made, OBJECT_LIMIT + 10_000)),
        server.patch(target, {"metadata": {"managedFields": large["metadata"]["managedFields"]}}),
        server.patch(
            target,
            [{"op": "add", "path": "/metadata/managedFields", "value": large["metadata"]["managedFields"]}],
            "application/json-patch+json",
        ),
    ]
    for answer in answers:
        assert (answer.code, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert f"limit is {OBJECT_LIMIT}" in answer.json["message"]
    assert len(server.get(target).body) < 2_000


def test_a_node_cannot_grow_its_own_node(server: Serving) -> None:
    assert (
        server.post(path("nodes", namespace=""), document("Node", "n1", "", {"underlayIP": "192.0.2.1"}), who="n1").code
        == 201
    )
    target = path("nodes", namespace="", name="n1")
    for number in range(40):
        labels = {f"l{number}-{i}": "x" * 60 for i in range(1000)}
        server.patch(target, {"metadata": {"labels": labels}}, who="n1")
    assert len(server.get(target).body) < OBJECT_LIMIT


def test_an_object_that_is_too_large_already_can_be_made_smaller_and_deleted(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = network()
    body["metadata"] |= {"finalizers": ["a.b/c"], "annotations": {"a": "x" * 5000}}
    made = server.post(path("networks"), body).json
    monkeypatch.setattr("netloom.store.semantics.OBJECT_LIMIT", 1000)
    target = path("networks", name="blue")
    assert server.patch(target, {"metadata": {"annotations": {"b": "c"}}}).code == 413
    assert server.patch(target, {"metadata": {"annotations": {"a": "x" * 4000}}}).code == 200
    assert server.delete(target).code == 200
    assert server.get(target).json["metadata"]["deletionTimestamp"]
    assert server.patch(target, {"metadata": {"finalizers": None}}).code == 200
    assert server.get(target).code == 404
    assert made["metadata"]["finalizers"] == ["a.b/c"]


# Lists


def test_a_large_object_is_not_written_as_yaml(server: Serving) -> None:
    body = network()
    body["metadata"]["annotations"] = {"a": "x" * 200_000}
    assert server.post(path("networks"), body).code == 201
    for target in (path("networks"), path("networks", name="blue")):
        answer = server.get(target, Accept="application/yaml")
        assert (answer.code, answer.json["reason"]) == (406, "NotAcceptable")
        assert "application/json" in answer.json["message"]
        assert server.get(target).code == 200


@pytest.mark.parametrize("form", ["application/yaml", "application/yaml;as=Table;v=v1;g=meta.k8s.io"])
def test_a_large_list_as_yaml_is_the_list(server: Serving, form: str) -> None:
    for i in range(90):
        body = network(f"n{i:02}")
        body["metadata"]["annotations"] = {"text": "line\n" * 100, "number": "017", "date": "2026-01-01"}
        assert server.post(path("networks"), body).code == 201
    [found] = documents(server.get(path("networks"), Accept=form).body)
    wanted = server.get(path("networks"), Accept=form.replace("yaml", "json")).json
    for table in (found, wanted):
        for row in table.get("rows", ()):
            row["cells"] = row["cells"][:1]  # The rest are ages.
    assert found == wanted


# Reviews


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nonResourceAttributes": {"verb": "get", "path": "/" * 2000}}, "path"),
        ({"resourceAttributes": {"group": "netloom.dev", "resource": "networks", "name": "x" * 300}}, "name"),
        ({"resourceAttributes": {"group": "netloom.dev", "resource": "networks", "verb": "x" * 300}}, "verb"),
    ],
    ids=["path", "name", "verb"],
)
def test_a_review_has_short_fields(server: Serving, spec: dict[str, Any], field: str) -> None:
    answer = server.post(REVIEW, {"spec": spec}, who="viewer")
    assert answer.code == 400
    assert answer.json["message"].startswith(f"{field}: Too long")


def test_a_review_is_short(server: Serving) -> None:
    assert server.post(REVIEW, {"spec": {"x": "y" * 100_000}}, who="viewer").code == 413


def test_what_the_cluster_answered_is_kept_in_few_bytes() -> None:
    async def main() -> int:
        asked = 0

        async def ask(where: str, review: Any) -> Any:
            nonlocal asked
            asked += 1
            return {"status": {"allowed": True}}

        reviews = delegated.AccessReviews(ask, RoleAuthorizer(MemoryStore()))
        for number in range(100):
            assert await reviews.allows(Identity("alice"), Attributes("get", path=f"/{number}" + "x" * 1_000_000))
        assert asked == 100
        return reviews._known.bytes

    assert asyncio.run(main()) <= 16 << 20


def test_what_is_kept_is_bounded_in_bytes_and_goes_when_it_is_out_of_date() -> None:
    async def main() -> None:
        now = 0.0
        kept = ExpiringCache[str, int](lambda _: 10.0, most_bytes=100, weigh=lambda key, _: len(key), clock=lambda: now)

        async def answer() -> int:
            return 1

        for key in ("a" * 60, "b" * 60, "c" * 30):
            await kept.get(key, answer)
        assert (len(kept), kept.bytes) == (2, 90)
        await kept.get("d" * 101, answer)
        assert (len(kept), kept.bytes) == (2, 90)
        now = 11.0
        await kept.get("e", answer)
        assert (len(kept), kept.bytes) == (1, 1)

    asyncio.run(main())


def test_a_memory_store_refuses_what_is_too_large_too() -> None:
    async def main() -> None:
        store = MemoryStore()
        with pytest.raises(TooLarge):
            await store.create(NETWORK, network() | {"spec": {"x": "y" * OBJECT_LIMIT}})
        await store.close()

    asyncio.run(main())
