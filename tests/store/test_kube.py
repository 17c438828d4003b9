"""What the Kubernetes store does with answers that a healthy server seldom gives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from netloom.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Internal,
    Invalid,
    NetloomError,
    NotFound,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from netloom.model.registry import LEASE
from netloom.model.values.selectors import selector
from netloom.store.base import EventType, Propagation
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.store import KubeStore
from tests.store.fakeserver import END, STREAM, Answer, FakeServer, always, chunk, in_turn, reply, serving
from tests.store.kinds import WIDGET, widget


def on_server(answer: Answer, act: Callable[[KubeStore, FakeServer], Awaitable[None]]) -> None:
    """Do something with a store whose server answers like this."""

    async def go() -> None:
        async with serving(answer) as server:
            store = await KubeStore.open(Cluster(server=server.url, token="t"), manager="tester")
            try:
                await act(store, server)
            finally:
                await store.close()

    asyncio.run(go())


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> bytes:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return encoded(body | ({"details": details} if details else {}))


def event(type_: str, object_: Any) -> bytes:
    return encoded({"type": type_, "object": object_}) + b"\n"


def at(revision: int, name: str = "a") -> dict[str, Any]:
    document = widget("ns", name)
    document["metadata"] |= {"resourceVersion": str(revision), "uid": "u"}
    return document


@pytest.mark.parametrize(
    ("code", "reason", "cls"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (404, "", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (409, "", Conflict),
        (410, "Gone", Expired),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", Internal),
        (500, "ServerTimeout", TimedOut),
        (503, "ServiceUnavailable", Unreachable),
        (504, "Timeout", TimedOut),
        (418, "IAmATeapot", BadRequest),
        (599, "", Internal),
    ],
)
def test_a_status_becomes_the_error_it_means(code: int, reason: str, cls: type[NetloomError]) -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        with pytest.raises(NetloomError) as caught:
            await store.get(WIDGET, "ns", "a")
        assert type(caught.value) is cls
        assert caught.value.message == "no"

    on_server(always(reply(code, status(code, reason))), act)


def test_causes_and_the_time_to_wait_are_kept() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        with pytest.raises(Invalid) as caught:
            await store.get(WIDGET, "ns", "a")
        assert [str(cause) for cause in caught.value.causes] == ["spec.x: wrong"]
        with pytest.raises(TooManyRequests) as busy:
            await store.get(WIDGET, "ns", "a")
        assert busy.value.retry_after == 7.0
        with pytest.raises(TooManyRequests) as busy:
            await store.get(WIDGET, "ns", "a")
        assert busy.value.retry_after == 3.0

    causes = [{"reason": "FieldValueInvalid", "field": "spec.x", "message": "wrong"}]
    answers = (
        reply(422, status(422, "Invalid", causes=causes)),
        reply(429, status(429, "TooManyRequests", retryAfterSeconds=7)),
        reply(429, b"slow down", "Retry-After: 3"),
    )
    on_server(in_turn(*answers), act)


def test_words_that_are_no_status_are_shown_in_short() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        with pytest.raises(Unreachable) as caught:
            await store.get(WIDGET, "ns", "a")
        assert caught.value.message.startswith("<html>")
        assert len(caught.value.message) <= 200
        with pytest.raises(Unreachable, match="the server answered 503"):
            await store.get(WIDGET, "ns", "a")

    on_server(in_turn(reply(503, b"<html>" + b"x" * 5000), reply(503)), act)


def test_requests_say_what_is_wanted() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        await store.create(WIDGET, widget("ns", "a"), dry_run=True)
        await store.update(WIDGET, at(5), subresource="status")
        await store.delete(
            WIDGET, "ns", "a/../b", propagation=Propagation.FOREGROUND, uid="u", revision=5, dry_run=True
        )
        wanted = selector("app in (a,b)", "spec.node!=n1", selectable=WIDGET.selectable)
        await store.list(WIDGET, selector=wanted, revision=5, limit=10)
        create, update, _, delete, list_ = server.requests
        root = "/apis/test.netloom.dev/v1"
        query = "fieldManager=tester&fieldValidation=Strict"
        assert (create.method, create.target) == ("POST", f"{root}/namespaces/ns/widgets?{query}&dryRun=All")
        assert (update.method, update.target) == ("PUT", f"{root}/namespaces/ns/widgets/a/status?{query}")
        assert (delete.method, delete.target) == ("DELETE", f"{root}/namespaces/ns/widgets/a%2F..%2Fb")
        assert delete.json() == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "5"},
            "dryRun": ["All"],
        }
        assert list_.target == (
            f"{root}/widgets?labelSelector=app+in+%28a%2Cb%29&fieldSelector=spec.node%21%3Dn1"
            "&resourceVersion=5&resourceVersionMatch=Exact&limit=10"
        )
        assert create.headers["authorization"] == "Bearer t"

    answers = [reply(200, encoded(at(5)))] * 4 + [reply(200, encoded({"metadata": {"resourceVersion": "9"}}))]
    on_server(in_turn(*answers), act)


def test_items_that_do_not_say_what_they_are_are_named() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        (item,) = (await store.list(LEASE)).items
        assert item.document() == {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": {}}

    metadata = {"name": "l", "namespace": "ns", "resourceVersion": "4"}
    listed = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": metadata, "spec": {}}]}
    on_server(always(reply(200, encoded(listed))), act)


def test_a_watch_that_the_server_ends_goes_on_from_where_it_was() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        watch = await store.watch(WIDGET, "ns", since=5)
        (first,) = await watch.next()
        assert (first.type, first.object.revision) == (EventType.ADDED, 6)
        assert watch.revision in (6, 10)  # The bookmark may have arrived together with the event.
        (second,) = await watch.next()
        assert (second.object.revision, watch.revision) == (12, 12)
        assert [request.target.rpartition("=")[2] for request in server.requests] == ["5", "10"]
        await watch.close()
        with pytest.raises(Unreachable):
            await watch.next()

    bookmark = event("BOOKMARK", {"kind": "Widget", "metadata": {"resourceVersion": "10"}})
    line = event("MODIFIED", at(12))
    on_server(
        in_turn(
            STREAM + chunk(event("ADDED", at(6))) + chunk(bookmark) + END,
            STREAM + chunk(line[:20]) + chunk(line[20:] + b"\n"),
        ),
        act,
    )


def test_a_watch_is_told_when_its_past_is_gone() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        watch = await store.watch(WIDGET, "ns", since=5)
        with pytest.raises(Expired, match="too old"):
            await watch.next()
        with pytest.raises(Expired):
            await store.watch(WIDGET, "ns", since=5)
        with pytest.raises(Expired):
            await store.watch(WIDGET, "ns", since=5)
        with pytest.raises(TimedOut):
            await store.watch(WIDGET, "ns", since=5)

    ahead = status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large"}])
    answers = (
        STREAM + chunk(event("ERROR", msgspec.json.decode(status(410, "Expired", "too old")))),
        reply(410, status(410, "Gone")),
        reply(504, ahead),
        reply(504, status(504, "Timeout")),
    )
    on_server(in_turn(*answers), act)


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type": 1}\n'])
def test_a_watch_that_cannot_be_understood_is_broken_off(line: bytes) -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        watch = await store.watch(WIDGET, "ns", since=5)
        with pytest.raises(Unreachable, match="cannot be read"):
            await watch.next()

    on_server(always(STREAM + chunk(line)), act)


def test_an_event_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        watch = await store.watch(WIDGET, "ns", since=5)
        with pytest.raises(Unreachable, match="more than 1000 bytes"):
            await watch.next()

    monkeypatch.setattr("netloom.store.kube.store._MAX_EVENT", 1000)
    on_server(always(STREAM + chunk(b"x" * 2000)), act)


def test_a_watch_whose_connection_breaks_can_be_taken_up_again() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        watch = await store.watch(WIDGET, "ns", since=5)
        assert len(await watch.next()) == 1
        server.hang_up()
        with pytest.raises(Unreachable):
            await watch.next()
        again = await store.watch(WIDGET, "ns", since=watch.revision)
        await again.close()
        assert server.requests[-1].target.endswith("resourceVersion=6")

    on_server(always(STREAM + chunk(event("ADDED", at(6)))), act)


def test_the_last_state_is_returned_when_the_answer_is_only_a_status() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        assert (await store.delete(WIDGET, "ns", "a")).revision == 5
        marked = await store.delete(WIDGET, "ns", "a")
        assert marked.revision == 6

    done = encoded({"kind": "Status", "status": "Success"})
    on_server(in_turn(*(reply(200, b) for b in (encoded(at(5)), done, encoded(at(5)), encoded(at(6))))), act)


def test_an_object_that_is_none_is_left_out_of_its_list(caplog: pytest.LogCaptureFixture) -> None:
    good = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "3"}}
    bad: list[Any] = [
        {"metadata": {"name": 7}},
        {"metadata": {}},
        {"metadata": good["metadata"] | {"resourceVersion": "x"}},
    ]
    listed = encoded({"metadata": {"resourceVersion": "9"}, "items": [bad[0], good, *bad[1:]]})
    events = b"".join(event("ADDED", one) for one in [*bad, good]) + event("STRANGE", good) + event("BOOKMARK", bad[0])
    answers = in_turn(
        reply(200, listed),
        STREAM + chunk(events) + END,
        reply(200, encoded(bad[0])),
        reply(200, b'{"metadata": {"resourceVersion": "many"}}'),
    )

    async def act(store: KubeStore, server: FakeServer) -> None:
        page = await store.list(WIDGET)
        assert ([item.name for item in page.items], page.revision) == (["a"], 9)
        watch = await store.watch(WIDGET, since=1)
        assert [seen.object.name for seen in await watch.next()] == ["a"]
        await watch.close()
        with pytest.raises(Unreachable, match="an object of widgets that cannot be decoded"):
            await store.get(WIDGET, "ns", "a")
        with pytest.raises(Unreachable, match="a list of widgets that cannot be read"):
            await store.list(WIDGET)
        assert await store.damaged() == ()

    on_server(answers, act)
    assert "that the server sent without a name" in caplog.text
