"""etcd v3's API: the calls a store needs, on any server of the cluster that answers.

A request that no server took is sent to the next one. One that may have been acted on is sent again only if it is a
read. While the servers elect a leader, which takes a second or two, requests wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import TypeVar

from msgspec import Struct

from netloom.errors import BadRequest, Cause, Expired, Internal, NetloomError, TimedOut, TooLarge, Unreachable
from netloom.store.etcd import wire
from netloom.store.etcd.wire import Done, Range, WatchResponse
from netloom.store.http.connect import Refused, tls_context
from netloom.store.http.grpc import CallFailed, Channel, Messages

T = TypeVar("T")

_RANGE, _TXN, _COMPACT = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Compact"
_WATCH = "/etcdserverpb.Watch/Watch"
_MAX_MESSAGE = 64 << 20
KEEPALIVE = 10.0
"""Seconds of silence before a keep-alive PING, and again until the connection is given up."""
_REQUIRE_LEADER = (("hasleader", "true"),)
"""As etcd's own client sends it: without a leader, a member fails the call or ends the watch and is not just silent."""
_NO_LEADER = "etcdserver: no leader"
ELECTION_SECONDS = 5.0
"""How long a request waits for a cluster that has no leader."""
_RETRY_SECONDS = 0.1


class NoLeader(Refused):
    """A server took no request, because it knows no leader."""


class Tls(Struct, frozen=True):
    """TLS credentials for an etcd cluster: PEM bytes."""

    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return "Tls(…)"


def prefix_end(prefix: str) -> str:
    """Return the end of the range of all keys that begin with `prefix`, whose last character is ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class Etcd:
    """An etcd cluster, through any of its servers that answers."""

    def __init__(self, urls: Sequence[str], tls: Tls | None = None, *, keepalive: float = KEEPALIVE) -> None:
        if not urls:
            raise BadRequest("no etcd address is given")
        context = tls_context(ca=tls.ca, certificate=tls.certificate, key=tls.key) if tls else None
        self._channels = [
            Channel(
                url,
                tls=context,
                max_message=_MAX_MESSAGE,
                timeout=30.0,
                keepalive=keepalive,
                metadata=_REQUIRE_LEADER,
            )
            for url in urls
        ]
        self._current = 0

    async def range(
        self, key: str, *, end: str = "", limit: int = 0, revision: int = 0, count_only: bool = False
    ) -> Range:
        """Read a key, or the keys from `key` up to `end`, now or at a revision."""
        message = wire.range_(key, end, limit, revision, count_only=count_only)
        return await self._call(_RANGE, message, wire.read_range, reads=True)

    async def txn(self, conditions: Sequence[bytes], operations: Sequence[bytes]) -> Done:
        """Do all `operations` if all `conditions` hold."""
        return await self._call(_TXN, wire.txn(conditions, operations), wire.read_done, reads=False)

    async def compact(self, revision: int) -> None:
        """Drop the history before `revision`."""
        await self._call(_COMPACT, wire.compaction(revision), wire.read_done, reads=False)

    @asynccontextmanager
    async def watch(self, key: str, end: str, since: int) -> AsyncIterator[AsyncIterator[WatchResponse]]:
        """Watch a range of keys, from the revision after `since`."""
        channel = self._channels[self._current]
        try:
            stream = await channel.stream(_WATCH, wire.watch(key, end, since + 1))
        except NetloomError:
            self._turn(channel)
            raise
        with closing(stream):
            yield self._messages(stream, channel)

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()

    async def _messages(self, stream: Messages, channel: Channel) -> AsyncIterator[WatchResponse]:
        try:
            while True:
                yield wire.read_watch_response(await stream.next())
        except CallFailed as failure:
            self._turn(channel)
            raise _error(failure) from failure
        except Unreachable:
            self._turn(channel)
            raise

    async def _call(self, method: str, message: bytes, read: Callable[[bytes], T], *, reads: bool) -> T:
        until = asyncio.get_running_loop().time() + ELECTION_SECONDS
        while True:
            try:
                return await self._ask_each(method, message, read, reads=reads)
            except NoLeader:
                if asyncio.get_running_loop().time() >= until:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask_each(self, method: str, message: bytes, read: Callable[[bytes], T], *, reads: bool) -> T:
        """Ask one server after another; if all fail, and one because it has no leader, raise that error."""
        failures: list[NetloomError] = []
        for _ in self._channels:
            channel = self._channels[self._current]
            try:
                return read(await self._answer(channel, method, message))
            except (Unreachable, TimedOut) as error:
                self._turn(channel)
                if not (reads or isinstance(error, Refused)):
                    raise
                failures.append(error)
        raise next((error for error in failures if isinstance(error, NoLeader)), failures[-1])

    async def _answer(self, channel: Channel, method: str, message: bytes) -> bytes:
        try:
            return await channel.unary(method, message)
        except CallFailed as failure:
            raise _error(failure) from failure

    def _turn(self, failed: Channel) -> None:
        """Switch to the next server, unless another call already has."""
        if self._channels[self._current] is failed:
            self._current = (self._current + 1) % len(self._channels)


def _error(failure: CallFailed) -> NetloomError:
    """Return the error for a failed call; `code` is gRPC's."""
    text = failure.message
    if text == _NO_LEADER:
        return NoLeader(text)  # The member answers this before it processes the call.
    if "compacted" in text:
        return Expired("too old resource version: it has been compacted")
    if "future revision" in text:
        return TimedOut("Too large resource version", causes=[Cause("", text, "ResourceVersionTooLarge")])
    if "too large" in text or "larger than max" in text:
        return TooLarge(text)
    if failure.code == 4:
        return TimedOut(text)
    return Internal(text) if failure.code in (3, 5, 12, 13) else Unreachable(text)
