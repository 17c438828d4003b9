"""Many requests in one: each is what it would have been alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.http.limits import Limits
from netloom.front.api.verbs.batches import PATH
from netloom.store.memory import MemoryStore
from tests.front.serving import Answer, Serving, attachment, document, network, path, serving


def asked(method: str, path: str, body: Any = None, **rest: str) -> dict[str, Any]:
    return {"method": method, "path": path} | ({} if body is None else {"body": body}) | rest


def batch(server: Serving, *requests: dict[str, Any], who: str = "admin") -> list[Any]:
    """Send a batch and return its answers."""
    answer = server.post(PATH, {"requests": requests}, who=who)
    assert answer.code == 200, answer.body
    answers: list[Any] = answer.json["answers"]
    assert len(answers) == len(requests)
    return answers


def codes(answers: list[Any]) -> list[int]:
    return [answer["code"] for answer in answers]


def plain(body: Any) -> Any:
    """Return a body without what differs between two objects made alike."""
    if isinstance(body, dict):
        gone = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time")
        return {key: plain(value) for key, value in body.items() if key not in gone}
    if isinstance(body, str):
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", body)
    return [plain(item) for item in body] if isinstance(body, list) else body


NODE = {"underlayIP": "192.0.2.1"}
ATTACHMENTS = path("networkattachments")
REQUESTS: list[tuple[str, str, Any, str]] = [
    ("POST", path("networks"), network("made", vni=7), ""),
    ("POST", path("networks") + "?fieldManager=me&dryRun=All", network("made"), ""),
    ("POST", path("networks"), network("there"), ""),
    ("POST", path("networks"), network("bad", vni=-1), ""),
    ("POST", path("networks"), network("odd", colour="red"), ""),
    ("POST", path("networks") + "?fieldValidation=Warn", network("odd", colour="red"), ""),
    ("POST", path("networks"), network("blue", namespace="elsewhere"), ""),
    ("POST", path("networks"), ["no object"], ""),
    ("POST", path("networks"), None, ""),
    ("POST", path("nothings"), {}, ""),
    ("POST", "/elsewhere", {}, ""),
    ("POST", PATH, {"requests": []}, ""),
    ("GET", path("networks", name="there"), None, ""),
    ("GET", path("networks", name="absent"), None, ""),
    ("GET", path("networks", name="there", subresource="scale"), None, ""),
    ("PUT", path("networks", name="there"), network("there"), ""),
    ("PUT", path("networks", name="there") + "?dryRun=Some", network("there"), ""),
    ("PUT", path("networks", name="absent"), network("absent"), ""),
    ("PATCH", path("networks", name="there"), {"spec": {"mtu": 1500}}, "application/merge-patch+json"),
    ("PATCH", path("networks", name="there"), {"spec": {"mtu": 1500}}, "application/strange"),
    (
        "PATCH",
        path("networks", name="applied") + "?fieldManager=me",
        network("applied"),
        "application/apply-patch+yaml",
    ),
    ("DELETE", path("networks", name="there"), None, ""),
    ("DELETE", path("networks", name="there"), {"preconditions": {"uid": "another"}}, ""),
    ("DELETE", path("networks", name="there"), {"propagationPolicy": "Foreground"}, ""),
    ("DELETE", path("networks", name="there"), {"propagationPolicy": "Sideways"}, ""),
    ("DELETE", path("networks", name="absent"), None, ""),
]


@pytest.mark.parametrize("who", ["admin", "viewer", "editor-a"])
@pytest.mark.parametrize(("method", "where", "body", "media"), REQUESTS)
def test_a_request_in_a_batch_is_answered_as_one_of_its_own(
    credentials: Path, who: str, method: str, where: str, body: Any, media: str
) -> None:
    def alone(server: Serving) -> tuple[int, Any]:
        answer: Answer = server.request(method, where, body, who=who, media=media or "application/json")
        return answer.code, plain(answer.json)

    def together(server: Serving) -> tuple[int, Any]:
        [answer] = batch(server, asked(method, where, body, **({"contentType": media} if media else {})), who=who)
        return answer["code"], plain(answer["body"])

    found = []
    for way in (alone, together):
        with serving(credentials) as server:
            server.post(path("networks"), network("there"))
            found.append(way(server))
    if where in ("/elsewhere", PATH):
        assert found[1][0] == 404, "only objects are asked for in a batch"
    else:
        assert found[0] == found[1]


def test_one_that_fails_costs_itself_only(server: Serving) -> None:
    answers = batch(
        server,
        asked("POST", path("networks"), network("a")),
        asked("POST", path("networks"), network("b", vni=-1)),
        asked("POST", path("networks"), {"kind": "Network"}),
        asked("POST", path("networks"), network("c")),
    )
    assert codes(answers) == [201, 422, 400, 201]
    assert [answer["body"]["kind"] for answer in answers] == ["Network", "Status", "Status", "Network"]
    assert answers[1]["body"]["details"]["causes"][0]["field"] == "spec.vni"
    assert {item["metadata"]["name"] for item in server.get(path("networks")).json["items"]} == {"a", "c"}


def test_of_many_that_want_one_name_one_gets_it(server: Serving) -> None:
    answers = batch(server, *(asked("POST", path("networks"), network("blue", vni=n)) for n in range(1, 9)))
    assert sorted(codes(answers)) == [201] + [409] * 7


def test_of_many_that_update_one_revision_one_does(server: Serving) -> None:
    made = server.post(path("networks"), network()).json
    puts = [made | {"spec": {"mtu": 1400 + n}} for n in range(8)]
    answers = batch(server, *(asked("PUT", path("networks", name="blue"), put) for put in puts))
    assert sorted(codes(answers)) == [200] + [409] * 7
    assert {a["body"]["reason"] for a in answers if a["code"] == 409} == {"Conflict"}


def test_lists_watches_and_collections_are_not_for_batches(server: Serving) -> None:
    server.post(path("networks"), network())
    answers = batch(
        server,
        asked("GET", path("networks")),
        asked("GET", path("networks") + "?watch=1"),
        asked("DELETE", path("networks")),
        asked("GET", path("networks", namespace="")),
    )
    assert codes(answers) == [405] * 4
    assert server.get(path("networks", name="blue")).code == 200


def test_each_is_asked_for_its_rights(server: Serving) -> None:
    server.post(ATTACHMENTS, attachment("mine", node="n1"))
    server.post(ATTACHMENTS, attachment("theirs", node="n2"))
    status, claim = {"status": {"ifcName": "nl0"}}, {"status": {"ips": ["10.0.0.9/24"]}}
    live = {name: server.get(f"{ATTACHMENTS}/{name}").json for name in ("mine", "theirs")}
    answers = batch(
        server,
        *(asked("PUT", f"{ATTACHMENTS}/{name}/status", live[name] | status) for name in ("mine", "theirs")),
        asked("PUT", f"{ATTACHMENTS}/mine", live["mine"]),
        asked("PATCH", f"{ATTACHMENTS}/mine/status", claim, contentType="application/merge-patch+json"),
        asked("POST", path("nodes", namespace=""), document("Node", "n1", "", NODE)),
        asked("POST", path("nodes", namespace=""), document("Node", "n2", "", NODE)),
        asked("GET", f"{ATTACHMENTS}/mine"),
        asked("DELETE", f"{ATTACHMENTS}/mine"),
        who="n1",
    )
    assert codes(answers) == [200, 403, 403, 403, 201, 403, 200, 403]


def test_who_is_not_known_gets_nothing(server: Serving) -> None:
    assert server.post(PATH, {"requests": []}, who="").code == 401
    assert server.post(PATH, {"requests": []}, who="nobody").code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"requests":{}}',
        b'{"requests":[{}]}',
        b'{"requests":[{"method":"POST"}]}',
        b'{"requests":[{"method":"POST","path":7}]}',
        b'{"requests":[{"method":"POST","path":"/","colour":"red"}]}',
        b'{"requests":[],"more":1}',
        b'{"requests":[{"method":"POST","path":"/","body":' + b"[" * 100_000,
        b'{"requests":[{"method":"POST","path":"\xff"}]}',
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(server: Serving, body: bytes) -> None:
    answer = server.post(PATH, body)
    assert (answer.code, answer.json["kind"]) == (400, "Status")


def test_a_body_that_nests_too_deep_costs_its_request_only(server: Serving) -> None:
    deep = b"[" * 200 + b"]" * 200
    good = b'{"method":"GET","path":"%b"}' % path("networks", name="blue").encode()
    bad = b'{"method":"POST","path":"%b","body":%b}' % (path("networks").encode(), deep)
    answer = server.post(PATH, b'{"requests":[%b,%b]}' % (bad, good))
    assert codes(answer.json["answers"]) == [400, 404]


def test_a_field_given_twice_is_refused_in_a_batch_too(server: Serving) -> None:
    twice = b'{"apiVersion":"netloom.dev/v1alpha1","kind":"Network","metadata":{"name":"a","name":"b"}}'
    one = b'{"method":"POST","path":"%b","body":%b}' % (path("networks").encode(), twice)
    [answer] = server.post(PATH, b'{"requests":[%b]}' % one).json["answers"]
    assert answer["code"] == 400
    assert "duplicate field" in answer["body"]["message"]


def test_batches_are_sent_by_post(server: Serving) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert server.request(method, PATH).code == 405


def test_a_batch_is_bounded_and_answers_say_by_what(credentials: Path) -> None:
    with serving(credentials, limits=Limits(batch=3, body=2000)) as server:
        one = asked("GET", path("networks", name="blue"))
        assert server.get(path("networks")).headers["Netloom-Batch"] == "3"
        assert codes(batch(server, one, one, one)) == [404] * 3
        assert server.post(PATH, {"requests": [one] * 4}).code == 413
        assert server.post(PATH, {"requests": [asked("POST", path("networks"), {"a": "x" * 2000})]}).code == 413


def test_a_person_is_warned_beside_the_answer(server: Serving) -> None:
    where = path("networks") + "?fieldValidation=Warn"
    warned, other = batch(server, asked("POST", where, network("a", colour="red")), asked("POST", where, network("b")))
    assert warned["warnings"] == ['unknown field "spec.colour"']
    assert "warnings" not in other


def test_large_answers_come_in_pieces(server: Serving) -> None:
    long = {"metadata": {"annotations": {"note": "x" * 200_000}}}
    made = network("blue")
    made["metadata"] |= long["metadata"]
    assert server.post(path("networks"), made).code == 201
    answer = server.post(PATH, {"requests": [asked("GET", path("networks", name="blue"))] * 20})
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert [len(a["body"]["metadata"]["annotations"]["note"]) for a in answer.json["answers"]] == [200_000] * 20


def test_a_bug_costs_its_request_only(credentials: Path) -> None:
    class Buggy(MemoryStore):
        async def get(self, kind: Any, namespace: str, name: str, *, known: int = 0) -> Any:
            if name == "bug":
                raise ZeroDivisionError
            return await super().get(kind, namespace, name)

    with serving(credentials, store=Buggy()) as server:
        bug, fine = batch(server, *(asked("GET", path("networks", name=name)) for name in ("bug", "fine")))
    assert (bug["code"], bug["body"]["reason"]) == (500, "InternalError")
    assert fine["code"] == 404


def test_every_request_of_a_batch_is_measured(credentials: Path) -> None:
    seen: list[tuple[str, str, int]] = []
    with serving(credentials, observe=lambda o: seen.append((o.verb, o.resource, o.code))) as server:
        batch(
            server,
            asked("POST", path("networks"), network()),
            asked("GET", path("networks", name="absent")),
            asked("POST", "/nowhere", {}),
        )
    assert sorted(seen) == [("create", "networks", 201), ("get", "networks", 404), ("post", "", 200), ("post", "", 404)]
