"""Peers that misbehave, over real sockets: the session is lost as the RFC says, never the speaker or another peer."""

import asyncio
import contextlib
import functools
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from ipaddress import IPv4Address
from random import Random
from typing import ParamSpec

import pytest

from netloom.bgp import communities as ext
from netloom.bgp import io
from netloom.bgp.attributes import SEQUENCE, Attributes, Context
from netloom.bgp.errors import Cease, Code, Notification, OpenError
from netloom.bgp.fsm import Local, State
from netloom.bgp.io import Endpoint, SpeakerIO
from netloom.bgp.messages import KEEPALIVE, Framer, Kind, decode_notification, encode_open
from netloom.bgp.nlri import EVPN, MacIp, encode_evpn, split
from netloom.bgp.peer import Side
from netloom.bgp.speaker import PeerConfig, SessionEvent, Speaker
from netloom.bgp.update import announce

P = ParamSpec("P")
US, GOOD, BAD, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"
OUR_ID = IPv4Address("10.0.0.1")
HOP = IPv4Address("10.0.0.3")
RD = ext.route_distinguisher("10.0.0.3:10")


def asynchronous(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(test(*args, **options))

    return run


def routes(number: int, first: int = 0) -> list[bytes]:
    return [encode_evpn(MacIp(RD, n.to_bytes(6, "big"), None, 10)) for n in range(first, first + number)]


def updates(*listed: bytes, **options: object) -> bytes:
    fields: dict[str, object] = {"next_hop": HOP, "as_path": ((SEQUENCE, (65003,)),), **options}
    return b"".join(announce(EVPN, listed, Attributes(**fields), Context(internal=False), 4096))  # type: ignore[arg-type]


class Serving:
    """Our speaker, and its two peers."""

    def __init__(self, listen: tuple[str, int] | None = (US, 0), asn: int = 65001) -> None:
        self.speaker = Speaker(asn, OUR_ID, random=Random(asn))
        self.events: list[SessionEvent] = []
        self.io = SpeakerIO(self.speaker, listen=listen, on_changes=lambda _: None, on_event=self.events.append)

    def state(self, peer: str) -> State:
        return self.speaker.neighbor(peer).peer.state

    def routes(self, peer: str) -> int:
        best = self.speaker.rib.best.get(EVPN, {}).values()
        return sum(path.source.name == peer for path in best)

    def connections(self) -> int:
        return len(self.io._links)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110  # nothing tells it
                await asyncio.sleep(0.01)


class Client:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.framer = Framer()

    async def up(self, asn: int, router_id: str) -> "Client":
        """Establish a session."""
        self.writer.write(encode_open(Local(asn, IPv4Address(router_id)).open()) + KEEPALIVE)
        while True:
            data = await self.reader.read(65536)
            assert data, "the connection was closed"
            if any(kind is Kind.KEEPALIVE for kind, _ in self.framer.feed(data)):
                return self

    async def notification(self) -> Notification:
        """Return the NOTIFICATION with which the connection ends."""
        found: list[Notification] = []
        async with asyncio.timeout(120):
            while data := await self.reader.read(65536):
                found += [decode_notification(body) for kind, body in self.framer.feed(data) if kind == 3]
        [one] = found
        return one

    async def is_closed(self) -> bool:
        """Wait until the connection ends."""
        async with asyncio.timeout(120):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True


@contextlib.asynccontextmanager
async def serving(max_prefixes: int = 0) -> AsyncIterator[tuple[Serving, Callable[[str], Awaitable[Client]]]]:
    """Yield a speaker with a peer that behaves and is up, and how to connect to it from an address."""
    made, clients = Serving(), list[asyncio.StreamWriter]()
    running = asyncio.create_task(made.io.run())
    await made.until(lambda: made.io.port)

    async def connect(address: str) -> Client:
        client = Client(*await asyncio.open_connection(US, made.io.port, local_addr=(address, 0)))
        clients.append(client.writer)
        return client

    try:
        made.io.add_peer(PeerConfig(GOOD, 65002, passive=True), Endpoint(GOOD))
        made.io.add_peer(PeerConfig(BAD, 65003, passive=True, max_prefixes=max_prefixes), Endpoint(BAD))
        made.speaker.complete()
        good = await (await connect(GOOD)).up(65002, "10.0.0.2")
        good.writer.write(updates(*routes(10), next_hop=IPv4Address("10.0.0.2"), as_path=((SEQUENCE, (65002,)),)))
        await made.until(lambda: made.routes(GOOD) == 10)
        reading = asyncio.create_task(good.is_closed())
        yield made, connect
        assert not reading.done()
        reading.cancel()
        assert made.state(GOOD) is State.ESTABLISHED
        assert made.routes(GOOD) == 10
        assert not running.done()
    finally:
        for writer in clients:
            writer.transport.abort()
        running.cancel()
        await asyncio.wait([running])


@asynchronous
async def test_a_flood_of_routes_ends_at_the_maximum() -> None:
    async with serving(max_prefixes=1000) as (made, connect):
        bad = await (await connect(BAD)).up(65003, "10.0.0.3")
        bad.writer.write(updates(*routes(5000, 100)))
        error = await bad.notification()
        assert (error.code, error.subcode) == (Code.CEASE, Cease.MAX_PREFIXES)
        await made.until(lambda: made.routes(BAD) == 0)


@asynchronous
async def test_a_reset_in_the_middle_of_a_message() -> None:
    async with serving() as (made, connect):
        bad = await (await connect(BAD)).up(65003, "10.0.0.3")
        bad.writer.write(updates(*routes(5, 100)) + updates(*routes(5, 200))[:50])
        await made.until(lambda: made.routes(BAD) == 5)
        sock: socket.socket = bad.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        bad.writer.transport.abort()
        await made.until(lambda: made.state(BAD) is not State.ESTABLISHED)
        assert made.routes(BAD) == 0
        neighbor = made.speaker.neighbor(BAD)
        assert neighbor.flaps == 1
        again = await (await connect(BAD)).up(65003, "10.0.0.3")
        again.writer.write(updates(*routes(3, 100)))
        await made.until(lambda: made.routes(BAD) == 3)
        assert neighbor.peer.messages == 6, "OPEN, KEEPALIVE and UPDATE, twice"


@pytest.mark.parametrize(
    ("asn", "router_id", "subcode"),
    [(65009, "10.0.0.3", OpenError.BAD_PEER_AS), (65003, "0.0.0.0", OpenError.BAD_IDENTIFIER)],
    ids=["another AS", "no identifier"],
)
@asynchronous
async def test_a_peer_that_is_not_the_configured_one(asn: int, router_id: str, subcode: int) -> None:
    async with serving() as (made, connect):
        bad = await (await connect(BAD)).up(65003, "10.0.0.3")
        bad.writer.transport.abort()
        await made.until(lambda: made.state(BAD) is not State.ESTABLISHED)
        bad = await connect(BAD)
        bad.writer.write(encode_open(Local(asn, IPv4Address(router_id)).open()))
        error = await bad.notification()
        assert (error.code, error.subcode) == (Code.OPEN, subcode)
        assert made.speaker.neighbor(BAD).last_error


@asynchronous
async def test_a_peer_with_our_identifier_in_another_as_is_taken() -> None:
    """RFC 6286 section 2.3: it is an error only of an internal peer."""
    async with serving() as (made, connect):
        await (await connect(BAD)).up(65003, str(OUR_ID))
        await made.until(lambda: made.state(BAD) is State.ESTABLISHED)


@pytest.mark.parametrize(
    "options",
    [{"next_hop": OUR_ID}, {"as_path": ((SEQUENCE, (65003, 65001)),)}],
    ids=["next hop", "AS path"],
)
@asynchronous
async def test_our_own_routes_that_come_back_are_refused(options: dict[str, object]) -> None:
    async with serving() as (made, connect):
        ours = split(EVPN, b"".join(routes(3, 100)))
        made.speaker.originate(EVPN, Attributes(next_hop=OUR_ID), ours)
        bad = await (await connect(BAD)).up(65003, "10.0.0.3")
        bad.writer.write(updates(*ours.values(), **options) + updates(*routes(1, 200)))
        await made.until(lambda: made.routes(BAD) == 1)
        assert made.speaker.rib.refused == 3
        assert made.routes("local") == 3
        assert made.state(BAD) is State.ESTABLISHED


@asynchronous
async def test_a_hundred_half_open_connections_leave_one() -> None:
    async with serving() as (made, connect):
        strangers = [await connect(STRANGER) for _ in range(100)]
        for stranger in strangers:
            assert await stranger.is_closed()
        half = [await connect(BAD) for _ in range(100)]
        for number, client in enumerate(half):
            client.writer.write(encode_open(Local(65003, IPv4Address("10.0.0.3")).open())[: number % 28])
        for client in half[:-1]:
            assert await client.is_closed()
        assert made.connections() == 2
        whole = await (await connect(BAD)).up(65003, "10.0.0.3")
        whole.writer.write(updates(*routes(1, 100)))
        await made.until(lambda: made.routes(BAD) == 1)
        assert made.connections() == 2
        assert await (await connect(BAD)).is_closed(), "while the session is up, another one is refused"
        assert made.state(BAD) is State.ESTABLISHED


@asynchronous
async def test_a_peer_that_does_not_read_costs_little_and_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "SEND_HOLD_SECONDS", 3.0)
    async with serving() as (made, connect):
        bad = await connect(BAD)
        small: socket.socket = bad.writer.get_extra_info("socket")
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await bad.up(65003, "10.0.0.3")
        await made.until(lambda: made.state(BAD) is State.ESTABLISHED)
        bad.writer.transport.pause_reading()  # type: ignore[attr-defined]
        link = next(one for key, one in made.io._links.items() if key[0] == BAD)
        many = split(EVPN, b"".join(routes(400_000, 100)))
        made.speaker.originate(EVPN, Attributes(next_hop=OUR_ID), many)
        made.io.wake()
        await made.until(lambda: link.is_paused)
        assert link._transport is not None
        assert link._transport.get_write_buffer_size() < 1 << 18
        assert made.state(BAD) is State.ESTABLISHED
        await made.until(lambda: made.state(BAD) is not State.ESTABLISHED)
        assert link._transport.get_write_buffer_size() == 0
        assert made.speaker.neighbor(BAD).last_error == "send hold timer"


@asynchronous
async def test_a_connection_that_is_reset_while_we_close_it() -> None:
    async with serving() as (made, connect):
        bad = await (await connect(BAD)).up(65003, "10.0.0.3")
        await made.until(lambda: made.state(BAD) is State.ESTABLISHED)
        sock: socket.socket = bad.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        bad.writer.transport.abort()
        await asyncio.sleep(0)
        made.io.remove_peer(BAD)  # Before our side has noticed: it writes to what is no connection any more.


@asynchronous
async def test_a_connection_that_follows_one_with_an_error_at_once_is_not_closed_for_it() -> None:
    async with serving() as (made, connect):
        await (await connect(BAD)).up(65003, "10.0.0.3")
        await made.until(lambda: made.state(BAD) is State.ESTABLISHED)
        old, key = made.io._links[BAD, Side.THEIRS], (BAD, Side.THEIRS)
        new, (ours, theirs) = io._Link(made.io, key), socket.socketpair()
        await asyncio.get_running_loop().create_connection(lambda: new, sock=ours)
        with theirs:
            # All of it before what the error asks for is done.
            old.data_received(bytes(19))
            old.connection_lost(None)
            assert made.io.opened(new, BAD)
            theirs.setblocking(False)
            found = await asyncio.get_running_loop().sock_recv(theirs, 65536)
            assert [kind for kind, _ in Framer().feed(found)] == [Kind.OPEN]
            assert made.io._links[key] is new
        old.abort()


@asynchronous
async def test_a_shutdown_tells_why_and_ends_the_sessions() -> None:
    made = Serving()
    running = asyncio.create_task(made.io.run())
    await made.until(lambda: made.io.port)
    made.io.add_peer(PeerConfig(GOOD, 65002, passive=True), Endpoint(GOOD))
    client = Client(*await asyncio.open_connection(US, made.io.port, local_addr=(GOOD, 0)))
    await client.up(65002, "10.0.0.2")
    await made.until(lambda: made.state(GOOD) is State.ESTABLISHED)
    _, error = await asyncio.gather(made.io.shut_down("moving house"), client.notification())
    assert str(error) == "cease: shutdown: 'moving house'"
    assert [event.is_up for event in made.events] == [True, False]
    neighbor = made.speaker.neighbor(GOOD)
    assert (neighbor.messages_out, neighbor.flaps, neighbor.bytes_in > 0, neighbor.bytes_out > 0) == (3, 1, True, True)
    client.writer.close()
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(
    ("listen", "one", "other"),
    [("127.0.0.1", "127.0.0.1", "127.0.0.2"), ("::1", "::1", "::1"), ("", "127.0.0.1", "127.0.0.2")],
    ids=["IPv4", "IPv6", "both"],
)
@asynchronous
async def test_two_speakers_with_ttl_security_come_up(listen: str, one: str, other: str) -> None:
    """RFC 5082: what answers a connection, too, has to send with the highest TTL."""
    listening, dialing = Serving((listen, 0)), Serving(None, 65002)
    running = [asyncio.create_task(listening.io.run())]
    await listening.until(lambda: listening.io.port)
    listening.io.add_peer(PeerConfig(other, 65002, passive=True), Endpoint(other, ttl_security=True))
    running.append(asyncio.create_task(dialing.io.run()))
    endpoint = Endpoint(one, listening.io.port, local=other, ttl_security=True)
    dialing.io.add_peer(PeerConfig(one, 65001), endpoint)
    try:
        await listening.until(lambda: listening.state(other) is State.ESTABLISHED)
        await dialing.until(lambda: dialing.state(one) is State.ESTABLISHED)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


@asynchronous
async def test_keys_that_the_kernel_does_not_take_cost_their_own_peers_alone() -> None:
    async with serving() as (made, connect):
        made.io.add_peer(PeerConfig("fd00::9", 65009), Endpoint("fd00::9", password=b"secret"))
        made.io.remove_peer("fd00::9")
        # There is a limit of the memory for the keys of a socket, net.core.optmem_max.
        number = 0
        while len(made.io._signed) == number:
            number += 1
            assert number < 100_000
            last = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
            made.io.add_peer(PeerConfig(last, 65003, passive=True), Endpoint(last, password=b"secret"))
        bad = await connect(last)
        assert await bad.is_closed(), "it has not signed"
        first = await (await connect(BAD)).up(65003, "10.0.0.3")
        first.writer.write(updates(*routes(1, 100)))
        await made.until(lambda: made.routes(BAD) == 1)
        for name in (last, "127.1.0.1"):
            made.io.remove_peer(name)
        made.io.add_peer(PeerConfig(last, 65003, passive=True), Endpoint(last, password=b"secret"))
        assert last in made.io._signed, "there is room again"


@asynchronous
async def test_keys_of_peers_that_were_there_before_do_not_keep_a_speaker_from_listening() -> None:
    made = Serving()
    for name in ("fd00::9", GOOD):
        made.io.add_peer(PeerConfig(name, 65002, passive=True), Endpoint(name, password=b"secret"))
    running = asyncio.create_task(made.io.run())
    await made.until(lambda: made.io.port or running.done())
    assert made.io._signed == {GOOD}
    running.cancel()
    await asyncio.wait([running])
