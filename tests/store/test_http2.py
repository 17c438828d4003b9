"""The HTTP client with a server that chooses HTTP/2: requests and streams share connections, and stay independent."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable
from netloom.store.http import client as http_client
from netloom.store.http import http2
from netloom.store.http.client import Client
from netloom.store.http.connect import Refused, tls_context
from netloom.store.http.hpack import encode
from netloom.store.http.http2 import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, SETTINGS, WINDOW
from tests.store import fakeserver
from tests.store.certificates import certificate
from tests.store.fakegrpc import Answer, Call, FakeGrpc, always, frame, in_turn, serving

CERTIFICATE, KEY = certificate("server", None)


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "server.pem").write_bytes(CERTIFICATE + KEY)
    context.load_cert_chain(tmp_path / "server.pem")
    context.set_alpn_protocols(["h2"])
    return context


def on_server(
    tls: ssl.SSLContext,
    answer: Answer,
    act: Callable[[Client, FakeGrpc], Awaitable[None]],
    *,
    hello: bytes = frame(SETTINGS, 0, 0),
    login: http_client.Login | None = None,
    timeout: float = 120.0,
    max_body: int = 1 << 20,
    pongs: bool = False,
) -> None:
    async def go() -> None:
        async with asyncio.timeout(120), serving(answer, hello=hello, tls=tls, pongs=pongs) as server:
            client = Client(
                server.url + "/base/",
                tls=tls_context(ca=CERTIFICATE),
                headers=lambda: {"Authorization": "Bearer t"},
                login=login,
                timeout=timeout,
                max_body=max_body,
            )
            try:
                await act(client, server)
            finally:
                await client.close()

    asyncio.run(go())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in the fake server."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def most_streams(count: int) -> bytes:
    return frame(SETTINGS, 0, 0, http2._SETTING.pack(http2.MAX_STREAMS, count))


def goaway(last: int) -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + bytes(4))


def hello(call: Call) -> None:
    call.answer(b"hello", 200, ("x-note", "1"))


def begin(call: Call) -> None:
    call.begin()


def silence(call: Call) -> None:
    pass


def test_requests_and_streams_share_one_connection(tls: ssl.SSLContext) -> None:
    async def answer(call: Call) -> None:
        if "watch" in call.method:
            call.begin()
            call.send(DATA, 0, call.method.encode())
        else:
            hello(call)

    async def act(client: Client, server: FakeGrpc) -> None:
        streams = await asyncio.gather(*(client.stream("GET", f"/watch/{number}") for number in range(50)))
        answers = await asyncio.gather(*(client.request("POST", "/path?q=1", body=b"{}") for _ in range(50)))
        assert {(one.status, one.body, one.headers["x-note"]) for one in answers} == {(200, b"hello", "1")}
        assert [await one.read() for one in streams] == [b"/base/watch/%d" % number for number in range(50)]
        assert len(server.writers) == 1
        asked = server.calls[-1]
        assert (asked.method, asked.body) == ("/base/path?q=1", b"{}")
        assert asked.headers[":method"] == "POST"
        assert asked.headers["authorization"] == "Bearer t"
        assert asked.headers["content-type"] == "application/json"
        assert client.multiplexed
        assert client.meter.received > 0
        for stream in streams:
            stream.close()

    on_server(tls, answer, act)


def test_a_server_that_does_not_choose_http2_gets_http1(tls: ssl.SSLContext) -> None:
    async def go() -> None:
        tls.set_alpn_protocols(["http/1.1"])
        async with fakeserver.serving(fakeserver.always(fakeserver.reply(200, b"old")), tls=tls) as server:
            client = Client(server.url, tls=tls_context(ca=CERTIFICATE))
            assert (await client.request("GET", "/")).body == b"old"
            assert (await client.request("GET", "/")).body == b"old"
            assert server.connections == 1
            await asyncio.gather(*(client.stream("GET", "/") for _ in range(3)))
            assert server.connections == 4
            assert not client.multiplexed
            await client.close()

    asyncio.run(go())


def test_another_connection_is_made_when_the_server_takes_no_more_streams(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        streams = await asyncio.gather(*(client.stream("GET", "/") for _ in range(7)))
        assert len(server.writers) == 3
        streams[0].close()
        streams[3].close()
        await asyncio.gather(*(client.stream("GET", "/") for _ in range(2)))
        assert len(server.writers) == 3, "where one ended there is room for the next"

    on_server(tls, always(begin), act, hello=most_streams(3))


@pytest.mark.parametrize("first", [most_streams(0), frame(SETTINGS, 0, 0) + goaway(0)])
def test_a_server_that_takes_no_streams_costs_an_error(tls: ssl.SSLContext, first: bytes) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        with pytest.raises(Refused):
            await client.request("GET", "/")
        assert len(server.writers) <= 2

    on_server(tls, always(hello), act, hello=first)


def test_a_stream_that_is_not_read_does_not_delay_others_and_is_bounded(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "WINDOW", 40_000)
    monkeypatch.setattr(http2, "OUR_WINDOW", 40_000)

    async def act(client: Client, server: FakeGrpc) -> None:
        unread = await client.stream("GET", "/")
        await until(lambda: bool(server.calls))
        for _ in range(4):
            server.calls[0].send(DATA, 0, b"x" * 10_000)
        other = await client.stream("GET", "/")
        for _ in range(20):
            server.calls[1].send(DATA, 0, b"y" * 16_000)
            assert await other.read() == b"y" * 16_000
        updates = {stream for kind, _, stream, _ in server.frames if kind == WINDOW}
        assert updates == {0, server.calls[1].number}, "the peer may send no more on the stream that is not read"
        assert await unread.read() == b"x" * 40_000
        await until(lambda: any(kind == WINDOW and stream == 1 for kind, _, stream, _ in server.frames))

    on_server(tls, always(begin), act)


def test_a_server_that_ignores_a_window_costs_the_connection(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "WINDOW", 40_000)

    async def act(client: Client, server: FakeGrpc) -> None:
        stream = await client.stream("GET", "/")
        for _ in range(5):
            server.calls[0].send(DATA, 0, b"x" * 10_000)
        await until(lambda: server.writers[0].transport.is_closing())
        assert await stream.read() == b"x" * 40_000
        with pytest.raises(Unreachable, match="more data than the window"):
            await stream.read()

    on_server(tls, always(begin), act)


def test_what_the_server_has_not_processed_is_sent_again(tls: ssl.SSLContext) -> None:
    async def answer(call: Call) -> None:
        if len(server_calls) == 0 and call.number == 5:
            call.writer.write(goaway(1))
            server_calls.append(call)
        elif server_calls:
            hello(call)

    server_calls: list[Call] = []

    async def act(client: Client, server: FakeGrpc) -> None:
        asked = [asyncio.ensure_future(client.request("POST", f"/{number}", body=b"{}")) for number in range(3)]
        assert {one.body for one in await asyncio.gather(*asked[1:])} == {b"hello"}
        assert len(server.writers) == 2
        assert not asked[0].done(), "the server may still answer it on the connection that it ends"
        server.writers[0].close()
        with pytest.raises(Unreachable) as caught:
            await asked[0]
        assert not isinstance(caught.value, Refused)

    on_server(tls, answer, act)


def test_reading_is_tried_again_when_the_connection_breaks_and_writing_is_not(tls: ssl.SSLContext) -> None:
    def hang_up(call: Call) -> None:
        call.writer.transport.abort()

    async def act(client: Client, server: FakeGrpc) -> None:
        await client.request("GET", "/")
        assert (await client.request("GET", "/")).body == b"hello"
        with pytest.raises(Unreachable):
            await client.request("PUT", "/", body=b"{}")
        assert len(server.calls) == 4

    on_server(tls, in_turn(hello, hang_up, hello, hang_up), act)


def test_a_reset_ends_one_request_only(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        streams = [await client.stream("GET", f"/{number}") for number in range(2)]
        server.calls[0].send(RESET, 0, (2).to_bytes(4, "big"))
        with pytest.raises(Unreachable, match="gave up the request"):
            await streams[0].read()
        server.calls[1].send(DATA, END_STREAM, b"on")
        assert await streams[1].read() == b"on"
        assert await streams[1].read() == b""
        assert len(server.writers) == 1

    on_server(tls, always(begin), act)


def test_a_request_that_the_server_refuses_is_sent_again_once(tls: ssl.SSLContext) -> None:
    def refuse(call: Call) -> None:
        call.send(RESET, 0, http2.REFUSED_STREAM.to_bytes(4, "big"))

    async def act(client: Client, server: FakeGrpc) -> None:
        assert (await client.request("POST", "/", body=b"{}")).body == b"hello"
        with pytest.raises(Refused):
            await client.request("POST", "/", body=b"{}")

    on_server(tls, in_turn(refuse, hello, refuse, refuse), act)


def test_closing_a_stream_resets_it_and_keeps_the_connection(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        stream = await client.stream("GET", "/")
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0)
        stream.close()
        with pytest.raises(Unreachable, match="cancelled"):
            await reading
        await until(lambda: (RESET, 0, 1, http2.CANCEL.to_bytes(4, "big")) in server.frames)
        await client.stream("GET", "/")
        assert len(server.writers) == 1

    on_server(tls, always(begin), act)


def test_a_request_that_times_out_or_is_too_large_is_reset(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        with pytest.raises(TooLarge):
            await client.request("GET", "/")
        with pytest.raises(TimedOut):
            await client.request("GET", "/")
        await until(lambda: [stream for kind, _, stream, _ in server.frames if kind == RESET] == [1, 3])
        assert len(server.writers) == 1

    def large(call: Call) -> None:
        call.begin()
        call.send(DATA, 0, bytes(5_000))

    on_server(tls, in_turn(large, silence), act, timeout=1.0, max_body=4_999)


def test_a_peer_that_is_gone_is_noticed(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEPALIVE", 0.05)

    async def act(client: Client, server: FakeGrpc) -> None:
        stream = await client.stream("GET", "/")
        with pytest.raises(Unreachable, match="did not answer a PING"):
            await stream.read()

    on_server(tls, always(begin), act)


def test_a_peer_that_answers_is_kept(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEPALIVE", 0.2)

    async def act(client: Client, server: FakeGrpc) -> None:
        stream = await client.stream("GET", "/")
        await until(lambda: len([kind for kind, *_ in server.frames if kind == PING]) >= 3)
        server.calls[0].send(DATA, END_STREAM, b"still here")
        assert await stream.read() == b"still here"

    on_server(tls, always(begin), act, pongs=True)


@pytest.mark.parametrize(
    "nonsense",
    [
        frame(HEADERS, END_HEADERS, 1, encode([("x-no", "status")])),
        frame(HEADERS, END_HEADERS, 1, encode([(":status", "many")])),
        frame(HEADERS, 0, 1, b"x" * 16_000) + frame(9, 0, 1, b"x" * 16_000) * 4,
        frame(5, END_HEADERS, 1, bytes(8)),
        frame(DATA, END_STREAM, 1, b"a body without a head"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_broken_server_costs_an_error(tls: ssl.SSLContext, nonsense: bytes) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        with pytest.raises(Unreachable) as caught:
            await client.request("POST", "/", body=b"{}")
        assert not isinstance(caught.value, Refused)

    on_server(tls, always(lambda call: call.writer.write(nonsense)), act)


@pytest.mark.parametrize("asking", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0, b"")], ids=["ping", "settings"])
def test_a_flood_of_frames_whose_answers_are_not_read_ends(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, asking: bytes
) -> None:
    def answer(call: Call) -> None:
        monkeypatch.setattr(http2, "_MOST_UNSENT", -1)
        call.writer.write(asking)

    async def act(client: Client, server: FakeGrpc) -> None:
        with pytest.raises(Unreachable, match="does not read the answers"):
            await client.request("POST", "/", body=b"{}")

    on_server(tls, always(answer), act)


def test_an_informational_answer_empty_data_and_trailers_are_passed_over(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        answer = await client.request("GET", "/")
        assert (answer.status, answer.body) == (201, b"made")

    def answer(call: Call) -> None:
        call.begin(103)
        call.begin(201)
        call.send(DATA, 0)
        call.send(DATA, 0, b"made")
        call.send(HEADERS, END_HEADERS | END_STREAM, encode([("x-sum", "1")]))

    on_server(tls, always(answer), act)


def test_long_headers_are_sent_in_several_frames(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        path = "/" + "x" * 40_000
        assert (await client.request("GET", path)).body == b"hello"
        assert (await client.request("POST", path, body=b"{}")).body == b"hello"
        assert [(call.method, call.body) for call in server.calls] == [("/base" + path, b""), ("/base" + path, b"{}")]

    on_server(tls, always(hello), act)


def test_characters_that_headers_must_not_have_are_refused(tls: ssl.SSLContext) -> None:
    async def act(client: Client, server: FakeGrpc) -> None:
        for path in ("/a b", "/a\r\nx: y", "/ä"):
            with pytest.raises(BadRequest):
                await client.request("GET", path)
        assert (await client.request("GET", "/")).body == b"hello"
        assert len(server.writers) == 1

    on_server(tls, always(hello), act)


class Renewed:
    """A login that gets a new credential when the server refuses one."""

    def __init__(self) -> None:
        self.generation = 1

    async def refresh(self) -> None:
        pass

    def refused(self, generation: int) -> bool:
        self.generation += 1
        return True


def test_a_new_credential_gets_a_new_connection(tls: ssl.SSLContext) -> None:
    async def answer(call: Call) -> None:
        if call.method.endswith("watch"):
            call.begin()
        elif call.method.endswith("refused") and call.writer is first:
            call.answer(b"", 401)
        else:
            hello(call)

    first: asyncio.StreamWriter

    async def act(client: Client, server: FakeGrpc) -> None:
        nonlocal first
        watch = await client.stream("GET", "/watch")
        first = server.writers[0]
        assert (await client.request("GET", "/refused")).status == 200
        assert len(server.writers) == 2
        server.calls[0].send(DATA, 0, b"goes on")
        assert await watch.read() == b"goes on"
        watch.close()
        await until(first.is_closing)

    on_server(tls, answer, act, login=Renewed())


def test_who_asks_at_the_moment_a_connection_is_made_gets_it() -> None:
    async def main() -> None:
        gate = asyncio.get_running_loop().create_future()
        made = http2.Connection()

        async def connect() -> http2.Connection:
            await gate
            return made

        pool = http2.Pool(connect)
        first = asyncio.create_task(pool.take())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.set_result(None)
        second = asyncio.create_task(pool.take())  # It runs when the attempt has ended, and nobody was told yet.
        assert await first is await second is made
        made.lost.set_result(None)
        await pool.close()

    asyncio.run(main())
