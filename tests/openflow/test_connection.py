"""The connection when the other side is not there, goes, hangs, or is no switch; and the switch in memory likewise."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from netloom.openflow import messages
from netloom.openflow.flows import Drop, Flow, Meter, MeterSpec, Output, Put, match
from netloom.openflow.io import Connection
from netloom.openflow.memory import Memory
from netloom.openflow.switch import ChangeRefused, Switch, Unreachable
from netloom.openflow.wire import Framer, Message, Type, frame
from tests.openflow.real import connection, until

Answer = Callable[[Message], bytes]


def polite(message: Message) -> bytes:
    """Answer what is said to every switch, and nothing else."""
    if message.type == Type.HELLO:
        return messages.hello(message.xid)
    if message.type == Type.ECHO_REQUEST:
        return frame(Type.ECHO_REPLY, message.xid, message.body)
    return b""


@contextlib.asynccontextmanager
async def peer(path: Path, answer: Answer) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Give something that listens like a switch, and the connections there are."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        framer = Framer()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for message in framer.feed(data):
                    writer.write(answer(message))
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield writers
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def test_without_a_connection_nothing_is_known_to_have_been_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with connection(tmp_path / "none", wait=False) as made:
            await until(lambda: made.counters.failures > 1)
            for ask in (made.flows(), made.change([]), made.meters(), made.set_meter(1, 1, 1), made.remove_meter(1)):
                with pytest.raises(Unreachable, match="not connected"):
                    await ask
            assert made.generation == 0

    asyncio.run(story())


def test_a_switch_that_goes_leaves_it_unknown_whether_a_change_was_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with peer(tmp_path / "s", polite) as writers, connection(tmp_path / "s") as made:
            change = asyncio.create_task(made.change([Put(Flow(0, 1, (), ()))]))
            given_up = asyncio.create_task(made.flows())
            await until(lambda: made.counters.bytes_out > 100)
            given_up.cancel()
            writers[0].close()
            with pytest.raises(Unreachable, match="before its answer"):
                await change
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert made.counters.unanswered == 1
            await until(lambda: made.generation == 2)
            await asyncio.wait_for(made.connected.wait(), 120)

    asyncio.run(story())


def test_a_switch_that_goes_while_a_large_change_is_written_does_not_hold_it(tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(messages.hello(1))
            await stop.wait()  # Without reading, so that writing must wait.
            writer.close()

        server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
        async with server, connection(tmp_path / "s") as made:
            mods = [Put(Flow(0, 1, match(reg0=at), ())) for at in range(20_000)]
            change = asyncio.create_task(made.change(mods))
            await until(lambda: made.counters.bytes_out > 100_000)
            link = made._link
            assert link is not None
            await until(lambda: not link._writable.is_set())
            assert not change.done()
            stop.set()
            with pytest.raises(Unreachable):
                await change

    asyncio.run(story())


def test_a_switch_that_hangs_is_given_up(tmp_path: Path) -> None:
    def deaf(message: Message) -> bytes:
        return messages.hello(1) if message.type == Type.HELLO else b""

    async def story() -> None:
        async with peer(tmp_path / "s", deaf) as writers, connection(tmp_path / "s", probe=0.05) as made:
            await until(lambda: len(writers) > 1)
            assert made.counters.connects >= 1

    asyncio.run(story())


def test_a_switch_that_is_quiet_is_asked_and_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with peer(tmp_path / "s", polite) as writers, connection(tmp_path / "s", probe=0.02) as made:
            await until(lambda: made.counters.bytes_in > 80)
            assert len(writers) == 1

    asyncio.run(story())


@pytest.mark.parametrize("said", [frame(Type.ERROR, 1, bytes(4)), b"SSH-2.0-OpenSSH", struct.pack("!BBHI", 1, 0, 8, 1)])
def test_what_is_no_switch_of_our_version_is_never_connected(tmp_path: Path, said: bytes) -> None:
    async def story() -> None:
        async with peer(tmp_path / "s", lambda _: said) as writers, connection(tmp_path / "s", wait=False) as made:
            await until(lambda: len(writers) > 1)
            assert not made.connected.is_set()
            assert made.generation == 0

    asyncio.run(story())


def test_what_a_switch_says_unasked_is_answered_or_ignored(tmp_path: Path) -> None:
    heard: list[Message] = []

    def chatty(message: Message) -> bytes:
        heard.append(message)
        unasked = (
            frame(Type.ECHO_REQUEST, 77, b"there?"),
            frame(Type.MULTIPART_REPLY, 999, bytes(8)),
            frame(Type.BARRIER_REPLY, 999),
            frame(Type.BUNDLE_CONTROL, 999, bytes(8)),
            frame(Type.ERROR, 999, bytes(4)),
            frame(Type.BUNDLE_ADD, 999, bytes(24)),
        )
        return messages.hello(1) + b"".join(unasked) if message.type == Type.HELLO else b""

    async def story() -> None:
        async with peer(tmp_path / "s", chatty), connection(tmp_path / "s") as made:
            await until(lambda: any(one.type == Type.ECHO_REPLY for one in heard))
            assert [one.body for one in heard if one.type == Type.ECHO_REPLY] == [b"there?"]
            assert made.connected.is_set()

    asyncio.run(story())


def test_an_answer_that_is_an_error_is_a_refusal(tmp_path: Path) -> None:
    def refusing(message: Message) -> bytes:
        if message.type == Type.MULTIPART_REQUEST:
            return frame(Type.ERROR, message.xid, struct.pack("!HH", 1, 2))
        return polite(message)

    async def story() -> None:
        async with peer(tmp_path / "s", refusing), connection(tmp_path / "s") as made:
            with pytest.raises(ChangeRefused, match="bad request: bad multipart"):
                await made.flows()
            assert made.counters.refusals == 1

    asyncio.run(story())


def test_a_bundle_that_cannot_be_opened_or_committed_is_a_refusal_of_no_one_mod(tmp_path: Path) -> None:
    refuse = {"open": True}

    def switch(message: Message) -> bytes:
        if message.type == Type.BARRIER_REQUEST:
            return frame(Type.BARRIER_REPLY, message.xid)
        if message.type == Type.BUNDLE_CONTROL:
            kind = struct.unpack_from("!IH", message.body)[1]
            if kind == messages.Bundle.OPEN and not refuse["open"]:
                return b""
            return frame(Type.ERROR, message.xid, struct.pack("!HH", 17, 5))
        return polite(message)

    async def story() -> None:
        async with peer(tmp_path / "s", switch), connection(tmp_path / "s") as made:
            for refuse["open"] in (True, False):
                with pytest.raises(ChangeRefused, match="out of bundles") as refused:
                    await made.change([Put(Flow(0, 1, (), ()))])
                assert refused.value.mod is None

    asyncio.run(story())


def test_numbers_begin_anew_before_they_run_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with peer(tmp_path / "s", polite), connection(tmp_path / "s") as made:
            link = made._link
            assert link is not None
            link.session._xid = 0xF0000000
            assert link.session.ask_meters() == 1

    asyncio.run(story())


def test_the_switch_in_memory_forgets_at_a_restart_and_can_be_cut_off() -> None:
    async def story() -> None:
        memory = Memory()
        switch: Switch = memory
        flow = Flow(0, 1, (), (Meter(1), Output(1)), 0x55)
        await switch.set_meter(1, 10, 5)
        await switch.change([Put(flow)])
        assert await switch.flows(0x50, 0xF0) == [flow]
        assert await switch.flows(0x60, 0xF0) == []
        memory.cut()
        assert not switch.connected.is_set()
        with pytest.raises(Unreachable):
            await switch.flows()
        memory.reconnect()
        assert (switch.generation, await switch.flows()) == (2, [flow])
        memory.lossy = True
        with pytest.raises(Unreachable, match="before its answer"):
            await switch.change([Drop(flow)])
        memory.lossy = False
        memory.reconnect()
        assert await switch.flows() == []
        assert await switch.meters() == {1: MeterSpec(10, 5)}
        memory.restart()
        assert (switch.generation, await switch.meters()) == (4, {})
        with pytest.raises(ChangeRefused, match="bad meter"):
            await switch.set_meter(0, 1, 1)
        with pytest.raises(ChangeRefused, match="invalid flow"):
            await switch.change([Put(Flow(300, 1, (), ()))])

    asyncio.run(story())


def test_a_connection_is_a_switch() -> None:
    def takes(switch: Switch) -> int:
        return switch.generation

    async def story() -> None:
        assert takes(Connection("/nowhere", random=Random(1))) == 0
        assert takes(Memory()) == 1

    asyncio.run(story())
