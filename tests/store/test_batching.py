"""Requests made together go as one, where the server takes that; nobody who asks can tell, but by the speed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound, TooManyRequests, Unreachable
from netloom.model.registry import EVENT
from netloom.store.base import Stored
from netloom.store.kube import batching
from netloom.store.kube.batching import PATH
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.store import KubeStore
from tests.store.fakeserver import Answer, FakeServer, Request, reply, serving
from tests.store.kinds import WIDGET, widget

TAKES = "Netloom-Batch: 100"


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def made(name: str) -> dict[str, Any]:
    document = widget("ns", name)
    document["metadata"] |= {"resourceVersion": "5", "uid": "u"}
    return document


def status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}


def alone(request: Request) -> tuple[int, Any]:
    """What a server makes of one request: names say what is to go wrong."""
    name = request.target.partition("?")[0].removesuffix("/status").rpartition("/")[2]
    if request.method == "POST":
        document: Any = request.json()
        name = document["metadata"]["name"]
    match name:
        case "taken":
            return 409, status(409, "AlreadyExists")
        case "late":
            return 409, status(409, "Conflict")
        case "absent":
            return 404, status(404, "NotFound")
        case "busy":
            return 429, status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 7}}
    return (201 if request.method == "POST" else 200), made(name)


def together(request: Request) -> list[dict[str, Any]]:
    answers = []
    for one in request.json()["requests"]:  # type: ignore[attr-defined]
        part = Request(one["method"], one["path"], {}, encoded(one["body"]) if "body" in one else b"")
        code, body = alone(part)
        answers.append({"code": code, "body": body})
    return answers


def takes_batches(*, offers: str = TAKES) -> Answer:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.write(reply(200, encoded({"answers": together(request)}), offers))
        else:
            code, body = alone(request)
            writer.write(reply(code, encoded(body), offers))

    return send


def on_server(answer: Answer, act: Callable[[KubeStore, FakeServer], Awaitable[None]]) -> None:
    async def go() -> None:
        async with asyncio.timeout(120), serving(answer) as server:
            store = await KubeStore.open(Cluster(server=server.url, token="t"), manager="tester")
            try:
                await act(store, server)
            finally:
                await store.close()

    asyncio.run(go())


async def outcome(work: Awaitable[Stored]) -> str | type[NetloomError]:
    """Return the name of what came back, or the class of what was raised."""
    try:
        return (await work).name
    except NetloomError as error:
        return type(error)


async def creations(store: KubeStore, *names: str) -> list[str | type[NetloomError]]:
    return await asyncio.gather(*(outcome(store.create(WIDGET, widget("ns", name))) for name in names))


async def asked(server: FakeServer, count: int) -> None:
    """Wait until the server has been asked so often."""
    while len(server.requests) < count:  # noqa: ASYNC110 - what is waited for happens in the fake server.
        await asyncio.sleep(0.001)


def targets(server: FakeServer) -> list[str]:
    return [request.target.partition("?")[0].rpartition("/")[2] for request in server.requests]


def test_nothing_goes_together_until_the_server_says_it_may() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        assert await creations(store, "a", "b", "c") == ["a", "b", "c"]
        assert PATH not in {request.target for request in server.requests}
        assert await creations(store, "d", "e", "f") == ["d", "e", "f"]
        assert targets(server)[3:] == ["batch"]

    on_server(takes_batches(), act)


def test_a_server_that_does_not_offer_it_is_never_asked() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        for _ in range(3):
            await creations(store, "a", "b", "c")
        assert targets(server) == ["widgets"] * 9

    on_server(takes_batches(offers="Server: kube"), act)


@pytest.mark.parametrize("offered", ["", "many", "-1", "0", "1e3"])
def test_an_offer_that_means_nothing_is_none(offered: str) -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        for _ in range(2):
            assert await creations(store, "a", "b") == ["a", "b"]
        assert targets(server) == ["widgets"] * 4

    on_server(takes_batches(offers=f"Netloom-Batch: {offered}"), act)


def test_each_gets_its_own_answer() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        found = await creations(store, "a", "taken", "b", "late", "busy")
        assert found == ["a", AlreadyExists, "b", Conflict, TooManyRequests]
        with pytest.raises(TooManyRequests) as caught:
            await store.create(WIDGET, widget("ns", "busy"))
        assert caught.value.retry_after == 7.0
        assert targets(server) == ["widgets", "batch", "widgets"]

    on_server(takes_batches(), act)


def test_reads_updates_and_deletions_of_one_object_go_together_too() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        found = await asyncio.gather(
            outcome(store.get(WIDGET, "ns", "a")),
            outcome(store.get(WIDGET, "ns", "absent")),
            outcome(store.update(WIDGET, made("b"), subresource="status")),
            outcome(store.delete(WIDGET, "ns", "c", uid="u")),
        )
        assert list(found) == ["a", NotFound, "b", "c"]
        batch, delete = server.requests[1:]
        root = "/apis/test.netloom.dev/v1/namespaces/ns/widgets"
        query = "?fieldManager=tester&fieldValidation=Strict"
        sent: Any = batch.json()["requests"]
        assert [(one["method"], one["path"]) for one in sent] == [
            ("GET", f"{root}/a"),
            ("GET", f"{root}/absent"),
            ("PUT", f"{root}/b/status{query}"),
            ("GET", f"{root}/c"),
        ]
        assert sent[2]["body"] == made("b")
        assert delete.method == "DELETE"

    on_server(takes_batches(), act)


def test_one_alone_is_sent_as_it_always_was() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        for name in ("a", "b", "c"):
            assert await creations(store, name) == [name]
        assert targets(server) == ["widgets"] * 3

    on_server(takes_batches(), act)


def test_what_comes_while_batches_are_on_their_way_waits_and_goes_together() -> None:
    gate = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            await gate.wait()
        await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        waiting = []
        for turn in range(5):
            waiting.append(asyncio.ensure_future(creations(store, *(f"w{turn}-{n}" for n in range(3)))))
            await asked(server, 1 + min(turn + 1, batching.IN_FLIGHT))
        assert len(server.requests) == 1 + batching.IN_FLIGHT
        gate.set()
        assert [len(await found) for found in waiting] == [3] * 5
        sizes = [len(request.json()["requests"]) for request in server.requests[1:]]  # type: ignore[arg-type]
        assert sizes == [3] * batching.IN_FLIGHT + [3 * (5 - batching.IN_FLIGHT)]

    on_server(slow, act)


def test_many_at_once_are_divided_so_that_nobody_takes_turns() -> None:
    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        await creations(store, *(f"w{number}" for number in range(90)))
        sizes = [len(request.json()["requests"]) for request in server.requests[1:]]  # type: ignore[arg-type]
        assert sizes == [30, 30, 30]

    on_server(takes_batches(), act)


def test_batches_are_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MOST_BYTES", 2000)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        assert len(await creations(store, *(f"n{number}" for number in range(25)))) == 25
        big = [widget("ns", name, note="x" * 800) for name in ("a", "b", "c", "d")] + [
            widget("ns", "e", note="x" * 3000)
        ]
        assert await asyncio.gather(*(outcome(store.create(WIDGET, one)) for one in big)) == ["a", "b", "c", "d", "e"]
        sizes = [len(r.json()["requests"]) for r in server.requests if r.target == PATH]  # type: ignore[arg-type]
        assert max(sizes) <= 10
        assert sizes[-2:] == [2, 2]

    on_server(takes_batches(offers="Netloom-Batch: 10"), act)


def test_a_lost_connection_leaves_all_of_the_batch_unknown() -> None:
    async def hangs_up(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.transport.abort()
        else:
            await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        raised = await asyncio.gather(
            *(store.create(WIDGET, widget("ns", name)) for name in ("a", "b")), return_exceptions=True
        )
        assert [type(error) for error in raised] == [Unreachable, Unreachable]
        assert raised[0] is not raised[1], "each has its own, with its own traceback"

    on_server(hangs_up, act)


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'{"answers":[]}', b'{"answers":[{"code":200,"body":{}}]}'])
def test_an_answer_that_does_not_fit_leaves_all_unknown(body: bytes) -> None:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.write(reply(200, body, TAKES))
        else:
            await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        assert await creations(store, "a", "b") == [Unreachable, Unreachable]

    on_server(send, act)


def test_what_is_said_to_the_batch_is_said_to_all() -> None:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.write(reply(429, encoded(status(429, "TooManyRequests")), TAKES))
        else:
            await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        assert await creations(store, "a", "b") == [TooManyRequests, TooManyRequests]

    on_server(send, act)


@pytest.mark.parametrize("code", [404, 405])
def test_a_server_that_takes_no_batches_any_more_gets_single_requests(code: int) -> None:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.write(reply(code, encoded(status(code, ""))))
        else:
            await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        assert await creations(store, "a", "taken", "c") == ["a", AlreadyExists, "c"]
        assert targets(server) == ["widgets", "batch"] + ["widgets"] * 3

    on_server(send, act)


def test_a_guard_that_forbids_batches_is_asked_once() -> None:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            writer.write(reply(403, encoded(status(403, "Forbidden"))))
        else:
            code, body = alone(request)
            writer.write(reply(code, encoded(body), TAKES))

    async def act(store: KubeStore, server: FakeServer) -> None:
        await store.create(WIDGET, widget("ns", "first"))
        for number in range(2):
            await asyncio.gather(*(store.create(WIDGET, widget("ns", f"w{number}-{i}")) for i in range(5)))
        assert [request.target for request in server.requests].count(PATH) == 1

    on_server(send, act)


def test_what_another_server_answers_goes_alone() -> None:
    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            assert all("/events" not in one["path"] for one in request.json()["requests"])  # type: ignore[attr-defined]
            writer.write(reply(200, encoded({"answers": together(request)}), TAKES))
        elif "/events" in request.target:
            writer.write(reply(201, encoded(made("event"))))
        else:
            code, body = alone(request)
            writer.write(reply(code, encoded(body), TAKES))

    async def act(store: KubeStore, server: FakeServer) -> None:
        event = {"metadata": {"name": "event", "namespace": "ns"}}
        for _ in range(3):
            widgets = (store.create(WIDGET, widget("ns", f"w{i}")) for i in range(4))
            await asyncio.gather(*widgets, *(store.create(EVENT, event) for _ in range(4)))
        assert [request.target for request in server.requests].count(PATH) == 2

    on_server(send, act)


def test_who_gives_up_waiting_costs_nobody_else() -> None:
    gate = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            await gate.wait()
        await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        tasks = [asyncio.ensure_future(creations(store, name)) for name in ("a", "b", "c", "d")]
        await asked(server, 2)
        late = [asyncio.ensure_future(creations(store, name)) for name in ("e", "f")]
        for _ in range(3):
            await asyncio.sleep(0)
        tasks[1].cancel()
        late[0].cancel()
        await asyncio.sleep(0)
        gate.set()
        assert [await task for task in (tasks[0], tasks[2], tasks[3], late[1])] == [["a"], ["c"], ["d"], ["f"]]

    on_server(slow, act)


def test_a_store_that_is_closed_lets_nobody_wait() -> None:
    never = asyncio.Event()

    async def stuck(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == PATH:
            await never.wait()
        await takes_batches()(request, writer)

    async def act(store: KubeStore, server: FakeServer) -> None:
        await creations(store, "first")
        waiting = []
        for turn in range(batching.IN_FLIGHT + 1):
            waiting.append(asyncio.ensure_future(creations(store, f"a{turn}", f"b{turn}")))
            await asked(server, 1 + min(turn + 1, batching.IN_FLIGHT))
        await store.close()
        assert [await found for found in waiting] == [[Unreachable, Unreachable]] * len(waiting)
        assert await creations(store, "x", "y") == [Unreachable, Unreachable]

    on_server(stuck, act)
