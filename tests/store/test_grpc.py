"""gRPC over HTTP/2: calls beside each other, and everything a server may do to them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom import protobuf
from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable
from netloom.store.etcd import wire
from netloom.store.http import http2
from netloom.store.http.connect import Refused
from netloom.store.http.grpc import CallFailed, Channel
from netloom.store.http.hpack import encode
from netloom.store.http.http2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, SETTINGS, WINDOW
from tests.store.fakegrpc import Answer, Call, FakeGrpc, always, frame, in_turn, message, serving, split_headers, window
from tests.support.process import free_port

METHOD = "/test.Service/Do"


def on_server(
    answer: Answer,
    act: Callable[[Channel, FakeGrpc], Awaitable[None]],
    *,
    hello: bytes = frame(SETTINGS, 0, 0),
    timeout: float = 120.0,
    limit: int = 1 << 20,
) -> None:
    async def go() -> None:
        async with asyncio.timeout(120), serving(answer, hello=hello) as server:
            channel = Channel(server.url, timeout=timeout, max_message=limit)
            try:
                await act(channel, server)
            finally:
                await channel.close()

    asyncio.run(go())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in the fake server."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def echo(call: Call) -> None:
    call.reply(call.body)


def test_many_calls_share_a_connection_and_each_gets_its_answer() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        asked = [b"%d" % number * (number + 1) for number in range(200)]
        assert await asyncio.gather(*(channel.unary(METHOD, body) for body in asked)) == asked
        assert len(server.writers) == 1
        assert {call.method for call in server.calls} == {METHOD}

    on_server(always(echo), act)


def test_answers_may_come_in_any_order_and_in_pieces() -> None:
    waiting: list[Call] = []

    async def late(call: Call) -> None:
        waiting.append(call)
        if len(waiting) < 3:
            return
        for one in reversed(waiting):
            split_headers(one, [(":status", "200"), ("content-type", "application/grpc")], last=False)
            body = message(one.body)
            for at in range(len(body)):
                one.send(DATA, 0, body[at : at + 1])
            split_headers(one, [("grpc-status", "0"), ("grpc-message", "")], last=True)

    async def act(channel: Channel, server: FakeGrpc) -> None:
        asked = [b"a", b"", b"ccc"]
        assert await asyncio.gather(*(channel.unary(METHOD, body) for body in asked)) == asked

    on_server(late, act)


def test_an_error_is_told_with_its_code_and_words() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(CallFailed) as caught:
            await channel.unary(METHOD, b"")
        assert (caught.value.code, caught.value.message) == (5, "nobody there: 100%")

    on_server(always(lambda call: call.fail(5, "nobody there: 100%25")), act)


def _headers(call: Call, *headers: tuple[str, str], last: bool = True) -> None:
    call.send(HEADERS, END_HEADERS | (END_STREAM if last else 0), encode(list(headers)))


@pytest.mark.parametrize(
    ("way", "cls"),
    [
        (lambda call: _headers(call, (":status", "404")), Unreachable),
        (lambda call: _headers(call, (":status", "200"), ("grpc-status", "0")), Unreachable),
        (lambda call: call.send(RESET, 0, (2).to_bytes(4, "big")), Unreachable),
        (lambda call: call.send(RESET, 0, (7).to_bytes(4, "big")), Refused),
        (lambda call: call.writer.transport.abort(), Unreachable),
        (lambda call: call.writer.write(frame(GOAWAY, 0, 0, bytes(8))), Refused),
        (lambda call: call.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Unreachable),
        (lambda call: call.send(HEADERS, END_HEADERS, b"\x80"), Unreachable),
        (lambda call: call.send(DATA, 8, b""), Unreachable),
        (lambda call: [call.send(HEADERS if n == 0 else 9, 0, b"x" * 16000) for n in range(6)], Unreachable),
        (lambda call: call.send(DATA, END_STREAM, message(b"x")), Unreachable),
        (lambda call: call.send(DATA, 0, b"\1\0\0\0\1x"), Unreachable),
        (lambda call: call.send(DATA, 0, b"\0\xff\xff\xff\xff"), TooLarge),
    ],
)
def test_what_a_server_may_do_to_a_call(way: Callable[[Call], None], cls: type[Exception]) -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(cls) as caught:
            await channel.unary(METHOD, b"x")
        assert type(caught.value) is cls

    on_server(always(way), act)


def test_a_connection_that_is_lost_is_made_again() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        assert await channel.unary(METHOD, b"one") == b"one"
        server.hang_up()
        with suppress(Unreachable):  # Whether it is noticed before or after it is sent is not ours to say.
            await channel.unary(METHOD, b"lost")
        assert await channel.unary(METHOD, b"two") == b"two"

    on_server(always(echo), act)


def test_a_server_that_goes_away_finishes_what_it_has_and_gets_nothing_new() -> None:
    async def answer(call: Call) -> None:
        call.writer.write(frame(GOAWAY, 0, 0, call.number.to_bytes(4, "big") + bytes(4)))
        call.reply(call.body)

    async def act(channel: Channel, server: FakeGrpc) -> None:
        assert await channel.unary(METHOD, b"one") == b"one"
        assert await channel.unary(METHOD, b"two") == b"two"
        assert len(server.writers) == 2

    on_server(answer, act)


def test_a_server_that_does_not_answer_is_given_up_and_told_so() -> None:
    async def silent(call: Call) -> None:
        pass

    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(TimedOut, match="did not answer"):
            await channel.unary(METHOD, b"")
        await until(lambda: any(kind == RESET for kind, *_ in server.frames))
        server.calls[0].reply(b"too late")
        await asyncio.sleep(0)

    on_server(silent, act, timeout=0.05)


def test_nobody_there_is_refused() -> None:
    async def go() -> None:
        channel = Channel(f"http://127.0.0.1:{free_port()}")
        with pytest.raises(Refused, match="cannot connect"):
            await channel.unary(METHOD, b"")
        await channel.close()
        with pytest.raises(Unreachable, match="closed"):
            await channel.unary(METHOD, b"")

    asyncio.run(go())
    with pytest.raises(BadRequest):
        Channel("ftp://127.0.0.1")


def test_no_more_is_sent_than_the_server_takes() -> None:
    big = bytes(range(256)) * 1000

    async def act(channel: Channel, server: FakeGrpc) -> None:
        call = asyncio.ensure_future(channel.unary(METHOD, big))
        given_up = asyncio.ensure_future(channel.unary(METHOD, big))
        await until(lambda: bool(server.writers))
        await asyncio.sleep(0.05)
        assert server.calls == [], "the windows are full"
        given_up.cancel()
        await asyncio.wait([given_up])
        server.writers[0].write(window(1 << 20) + window(1 << 20, 1))
        assert await call == big

    small = frame(SETTINGS, 0, 0, http2._SETTING.pack(4, 1000))
    on_server(always(echo), act, hello=small)


def test_what_a_server_takes_may_change_while_a_call_waits() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        call = asyncio.ensure_future(channel.unary(METHOD, b"x" * 50_000))
        await until(lambda: bool(server.writers))
        server.writers[0].write(frame(SETTINGS, 0, 0, http2._SETTING.pack(4, 60_000)))
        assert await call == b"x" * 50_000
        assert (SETTINGS, ACK, 0, b"") in server.frames

    on_server(always(echo), act, hello=frame(SETTINGS, 0, 0, http2._SETTING.pack(4, 0)))


def test_pings_are_answered_and_padding_is_taken_off() -> None:
    def padded(call: Call) -> None:
        call.writer.write(frame(PING, 0, 0, b"12345678"))
        head = encode([(":status", "200")])
        call.send(HEADERS, END_HEADERS | 0x8 | 0x20, b"\x02" + bytes(5) + head + b"\0\0")
        call.send(DATA, 0x8, b"\x03" + message(b"hi") + b"\0\0\0")
        call.end()

    async def act(channel: Channel, server: FakeGrpc) -> None:
        assert await channel.unary(METHOD, b"") == b"hi"
        await channel.unary(METHOD, b"")
        assert (PING, ACK, 0, b"12345678") in server.frames

    on_server(always(padded), act)


def test_what_was_read_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "OUR_WINDOW", 40_000)

    def long(call: Call) -> None:
        call.head()
        body = message(b"x" * 100_000)
        for at in range(0, len(body), 16_384):
            call.send(DATA, 0, body[at : at + 16_384])

    async def act(channel: Channel, server: FakeGrpc) -> None:
        with closing(await channel.stream(METHOD, b"go")) as messages:
            assert await messages.next() == b"x" * 100_000
        await until(lambda: len({stream for kind, _, stream, _ in server.frames if kind == WINDOW}) == 2)

    on_server(always(long), act)


def test_a_stream_of_messages_is_read_as_it_comes() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with closing(await channel.stream(METHOD, b"go")) as messages:
            assert await messages.next() == b"one"
            waiting = asyncio.ensure_future(messages.next())
            await asyncio.sleep(0)
            server.calls[0].tell(b"two")
            server.calls[0].tell(b"three")
            assert [await waiting, await messages.next()] == [b"two", b"three"]
            server.calls[0].end(14, "leader changed")
            for _ in range(2):
                with pytest.raises(CallFailed, match="leader changed"):
                    await messages.next()

    def begin(call: Call) -> None:
        call.head()
        call.tell(b"one")

    on_server(always(begin), act)


def test_a_stream_whose_messages_nobody_reads_is_bounded() -> None:
    def flood(call: Call) -> None:
        call.head()
        for _ in range(30):
            call.tell(b"x" * 900)

    async def act(channel: Channel, server: FakeGrpc) -> None:
        with closing(await channel.stream(METHOD, b"go")) as messages:
            await until(lambda: messages._error is not None)
            while messages._ready:
                await messages.next()
            with pytest.raises(TooLarge):
                await messages.next()

    on_server(always(flood), act, limit=10_000)


def test_a_stream_that_is_closed_wakes_who_waits() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        messages = await channel.stream(METHOD, b"go")
        waiting = asyncio.ensure_future(messages.next())
        await asyncio.sleep(0)
        messages.close()
        messages.close()
        with pytest.raises(Unreachable):
            await waiting

    on_server(always(Call.head), act)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_a_stranger_cannot_break_more_than_the_connection(data: bytes) -> None:
    async def go() -> None:
        connection = http2.Connection()
        connection.data_received(data)
        connection.data_received(data)

    asyncio.run(go())


@given(st.binary(max_size=100))
def test_messages_that_are_none_are_refused(data: bytes) -> None:
    for read in (wire.read_range, wire.read_done, wire.read_watch_response):
        try:
            read(data)
        except Unreachable:
            pass


VARINTS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
FIELDS_OF_A_KEY = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([1, 5]), st.binary(max_size=300)),
        st.tuples(st.sampled_from([2, 3, 4]), VARINTS),
        st.tuples(st.sampled_from([6, 7, 16, 5000]), st.one_of(st.binary(max_size=3), VARINTS)),
    ),
    max_size=8,
)


def written(fields: list[tuple[int, int | bytes]]) -> bytes:
    write = {int: protobuf.whole_field, bytes: protobuf.bytes_field}
    return b"".join(write[type(value)](number, value) for number, value in fields)  # type: ignore[operator]


@given(st.lists(FIELDS_OF_A_KEY, max_size=5), VARINTS)
def test_a_range_is_read_as_its_fields_are(keys: list[list[tuple[int, int | bytes]]], count: int) -> None:
    unknown = protobuf.bytes_field(77, b"?")
    parts = [unknown + protobuf.bytes_field(2, written(fields)) for fields in keys]
    found = wire.read_range(b"".join(parts) + protobuf.whole_field(3, 1) + protobuf.whole_field(4, count))
    assert (found.more, found.count) == (True, count)
    wanted = [dict(protobuf.fields(written(fields))) for fields in keys]
    assert [(kv.key, kv.value, kv.mod_revision) for kv in found.kvs] == [
        (fields.get(1, b""), fields.get(5, b""), fields.get(3, 0)) for fields in wanted
    ]


@given(FIELDS_OF_A_KEY.filter(bool), st.data())
def test_a_key_that_is_cut_off_is_refused(fields: list[tuple[int, int | bytes]], data: st.DataObject) -> None:
    whole = written(fields)
    whole += protobuf.bytes_field(5, b"value")
    cut = data.draw(st.integers(len(whole) - 6, len(whole) - 1))
    with pytest.raises(Unreachable, match="cannot be read"):
        wire.read_range(protobuf.bytes_field(2, whole[:cut]) + protobuf.whole_field(4, 1))


@given(st.text(max_size=50), st.binary(max_size=300), st.integers(0, 2**62))
def test_what_is_written_for_etcd_can_be_read(key: str, value: bytes, revision: int) -> None:
    fields = dict(protobuf.fields(wire.unless_changed(key, revision)))
    assert (fields[2], fields[3], fields[6]) == (2, key.encode(), revision)
    put = dict(protobuf.fields(wire.put(key, value)))[2]
    assert isinstance(put, bytes)
    assert dict(protobuf.fields(put)) == {1: key.encode(), 2: value}


def test_an_error_leaves_the_connection_as_it_is() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        assert await channel.unary(METHOD, b"a") == b"a"
        with pytest.raises(CallFailed):
            await channel.unary(METHOD, b"b")

    on_server(in_turn(echo, lambda call: call.fail(13, "no")), act)


def most_streams(count: int) -> bytes:
    """Return the frame that says how many streams may be open."""
    return frame(SETTINGS, 0, 0, http2._SETTING.pack(http2.MAX_STREAMS, count))


def test_calls_wait_until_the_server_takes_another() -> None:
    waiting: list[Call] = []

    async def collect(call: Call) -> None:
        waiting.append(call)

    async def act(channel: Channel, server: FakeGrpc) -> None:
        calls = [asyncio.ensure_future(channel.unary(METHOD, b"%d" % number)) for number in range(5)]
        await until(lambda: len(waiting) == 2)
        calls[2].cancel()
        waiting[0].reply(b"0")
        await until(lambda: len(waiting) == 3)
        assert [call.body for call in waiting] == [b"0", b"1", b"3"], "one that is given up is never sent"
        server.writers[0].write(most_streams(0))
        waiting[1].reply(b"1")
        await calls[1]
        assert len(waiting) == 3
        server.writers[0].write(most_streams(100))
        await until(lambda: len(waiting) == 4)
        for call in waiting[2:]:
            call.reply(call.body)
        assert await asyncio.gather(*calls[3:]) == [b"3", b"4"]
        assert len(server.writers) == 1

    on_server(collect, act, hello=most_streams(2))


def test_a_call_that_waits_when_the_connection_is_lost_was_never_sent() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        calls = [asyncio.ensure_future(channel.unary(METHOD, b"")) for _ in range(2)]
        await until(lambda: bool(server.calls))
        server.hang_up()
        sent, unsent = await asyncio.gather(*calls, return_exceptions=True)
        assert type(sent) is Unreachable
        assert type(unsent) is Refused

    on_server(always(lambda call: None), act, hello=most_streams(1))


def test_streams_of_messages_have_connections_of_their_own() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        streams = [await channel.stream(METHOD, b"go") for _ in range(2)]
        assert await channel.unary(METHOD, b"call") == b"call"
        assert len(server.writers) == 3
        streams[0].close()
        await (await channel.stream(METHOD, b"go")).next()
        assert len(server.writers) == 3, "where one ended there is room for the next"

    def answer(call: Call) -> None:
        if call.body == b"go":
            call.head()
            call.tell(b"one")
        else:
            call.reply(call.body)

    on_server(always(answer), act, hello=most_streams(1))


def test_a_server_that_says_nothing_is_not_connected_to() -> None:
    """The kernel takes connections for a process that hangs."""

    async def go() -> None:
        async with asyncio.timeout(120), serving(always(echo), hello=b"") as server:
            channel = Channel(server.url, connect_timeout=0.2)
            calls = (channel.unary(METHOD, b""), channel.unary(METHOD, b""), channel.stream(METHOD, b""))
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, Refused)
                assert "timed out" in error.message
            assert len(server.writers) == 2, "calls share an attempt"
            waiting = asyncio.ensure_future(channel.unary(METHOD, b""))
            await asyncio.sleep(0)
            await channel.close()
            with pytest.raises(Unreachable, match="closed"):
                await waiting

    asyncio.run(go())


def test_a_server_that_does_not_speak_http2_is_not_connected_to() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(Refused, match="does not speak HTTP/2"):
            await channel.unary(METHOD, b"")

    on_server(always(echo), act, hello=b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_silent_server_is_sent_a_ping_and_given_up_without_an_answer() -> None:
    async def go() -> None:
        async with asyncio.timeout(120), serving(always(Call.head)) as server:
            channel = Channel(server.url, keepalive=0.05)
            messages = await channel.stream(METHOD, b"go")
            with pytest.raises(Unreachable, match=r"did not answer a PING within 0\.05 s"):
                await messages.next()
            assert any(kind == PING for kind, *_ in server.frames)
            await channel.close()

    asyncio.run(go())


def test_a_server_that_answers_pings_may_be_silent_for_long() -> None:
    async def go() -> None:
        async with asyncio.timeout(120), serving(always(Call.head), pongs=True) as server:
            channel = Channel(server.url, keepalive=0.05)
            with closing(await channel.stream(METHOD, b"go")) as messages:
                await until(lambda: sum(kind == PING for kind, *_ in server.frames) >= 3)
                server.calls[0].tell(b"at last")
                assert await messages.next() == b"at last"
            seen = len(server.frames)
            await asyncio.sleep(0.2)
            assert not any(kind == PING for kind, *_ in server.frames[seen + 1 :]), "no call is under way"
            await channel.close()

    asyncio.run(go())


def test_what_is_too_large_is_not_read_to_its_end() -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(TooLarge):
            await channel.unary(METHOD, b"")
        await until(lambda: any(kind == RESET for kind, *_ in server.frames))

    def endless(call: Call) -> None:
        call.head()
        call.send(DATA, 0, b"\0\0\x01\0\0" + bytes(1000))

    on_server(always(endless), act, limit=10_000)


@pytest.mark.parametrize(
    "nonsense",
    [
        frame(SETTINGS, 0, 0, http2._SETTING.pack(4, 1 << 31)),
        frame(HEADERS, 0, 1, b"x" * 16_000) + frame(9, 0, 1, b"x" * 16_000) * 4,
        frame(9, END_HEADERS, 1, encode([("x", "y" * 10_000)])) * 2 + frame(9, END_HEADERS, 1, b"\x80"),
    ],
)
def test_what_no_server_may_send_ends_the_connection(nonsense: bytes) -> None:
    async def act(channel: Channel, server: FakeGrpc) -> None:
        with pytest.raises(Unreachable, match="violates HTTP/2"):
            await channel.unary(METHOD, b"")

    on_server(always(lambda call: call.writer.write(nonsense)), act)
