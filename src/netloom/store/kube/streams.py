"""Watches that share one connection, to a server that supports it.

    KubeWatch ──► Streams.open(path) ──► begin ──┐                                     ┌──► lines of this watch
    KubeWatch ──► Streams.open(path) ──► begin ──┴─► one request, one answer, both last ┴──► lines of that watch

A Netloom server announces it in its answers (front/api/verbs/streams.py has the protocol). To a server that speaks
HTTP/2, as kube-apiserver does, each watch is a request of its own on a connection that is shared already. When the
shared connection is lost, all its watches are lost, as each would be alone; each resumes from its last revision, and
the first of them opens the next connection. A watch that is not read delays the others once its bounded buffer is
full, so memory stays bounded.
"""

import asyncio
import copy

import msgspec
from msgspec import Raw, Struct

from netloom.errors import NetloomError, TimedOut, TooLarge, Unreachable
from netloom.store.http.client import Client, Duplex, Stream

PATH = "/apis/netloom.dev/v1alpha1/watches"
HEADER = "netloom-watches"
BEGUN_SECONDS = 60.0
MOST_WAITING = 4 << 20
"""How many unread bytes of one watch stop reading from the connection."""
MOST_LINE = 32 << 20


_BEGUN = b'{"type":"BEGUN"'


class _Refusal(Struct):
    object: Raw


class _Status(Struct):
    code: int = 500


_refusal = msgspec.json.Decoder(_Refusal).decode
_status = msgspec.json.Decoder(_Status).decode


class Streams:
    """The watches of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offered = False
        self._current: _Shared | None = None
        self._opening = asyncio.Lock()

    def heard(self, headers: dict[str, str]) -> None:
        """Learn from an answer whether the server shares connections."""
        self._offered = HEADER in headers

    async def open(self, path: str) -> "Stream | Lines":
        """Start a watch, on the shared connection if the server supports it."""
        shared = await self._shared() if self._offered and not self._client.multiplexed else None
        if shared is None:
            return await self._client.stream("GET", path)
        return await shared.begin(path)

    async def close(self) -> None:
        """End all watches that share a connection."""
        if self._current is not None:
            await self._current.close()

    async def _shared(self) -> "_Shared | None":
        """Return the current shared connection; None if the server refuses it after all."""
        async with self._opening:
            if self._current is None or self._current.ended:
                duplex = await self._client.duplex("POST", PATH)
                if duplex.status != 200:
                    duplex.close()
                    self._offered = False
                    return None
                self._current = _Shared(duplex)
            return self._current


class _Shared:
    """One connection, and its watches."""

    def __init__(self, duplex: Duplex) -> None:
        self.ended = False
        self._duplex = duplex
        self._watches: dict[int, Lines] = {}
        self._last = 0
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def begin(self, path: str) -> "Lines":
        if self.ended:
            raise Unreachable("the connection was lost")
        self._last += 1
        number = self._last
        lines = self._watches[number] = Lines(self, number)
        self._duplex.send(msgspec.json.encode({"begin": number, "path": path}) + b"\n")
        try:
            async with asyncio.timeout(BEGUN_SECONDS):
                await lines.begun
        except TimeoutError:
            lines.close()
            raise TimedOut(f"a watch was not confirmed within {BEGUN_SECONDS:g} s") from None
        except BaseException:
            lines.close()
            raise
        if lines.status != 200:
            self._watches.pop(number, None)
        return lines

    def end(self, number: int) -> None:
        if self._watches.pop(number, None) is not None and not self.ended:
            self._duplex.send(b'{"end":%d}\n' % number)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        error: NetloomError | None = Unreachable("the client is closed")
        try:
            rest = b""
            while data := await self._duplex.read():
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > MOST_LINE:
                    raise TooLarge(f"the server sent an event of more than {MOST_LINE} bytes")
                for line in lines:
                    await self._take(line)
            error = None
        except NetloomError as lost:
            error = lost
        except msgspec.DecodeError as wrong:
            error = Unreachable(f"the server sent a line that cannot be read: {wrong}")
        finally:
            self.ended = True
            self._duplex.close()
            for watch in list(self._watches.values()):
                watch.lose(error)

    async def _take(self, line: bytes) -> None:
        """Pass a line to its watch: `{"watch":7,` precedes what a watch on its own connection would get."""
        head, _, tail = line.partition(b",")
        try:
            number = int(head.removeprefix(b'{"watch":'))
        except ValueError:
            raise Unreachable("the server sent a line for an unknown watch") from None
        if not number:
            for watch in self._watches.values():
                if watch.begun.done():
                    watch.put(b"{" + tail + b"\n")
        elif (found := self._watches.get(number)) is not None:
            found.put(b"{" + tail + b"\n")
            await found.room()


class Lines:
    """The lines of one watch."""

    def __init__(self, shared: _Shared, number: int) -> None:
        self.status = 200
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shared = shared
        self._number = number
        self._waiting: list[bytes] = []
        self._size = 0
        self._error: NetloomError | None = None
        self._over = False
        self._news: asyncio.Future[None] | None = None
        self._read: asyncio.Future[None] | None = None

    def put(self, line: bytes) -> None:
        """Queue a line."""
        if not self.begun.done():
            self._begin(line)
            return
        self._waiting.append(line)
        self._size += len(line)
        _wake(self._news)

    def _begin(self, line: bytes) -> None:
        """Read the first line: the watch has begun, or the error it would have got as an answer of its own."""
        self.begun.set_result(None)
        if line.startswith(_BEGUN):
            return
        why = _refusal(line).object
        self.status = _status(why).code
        self._waiting.append(bytes(why))

    def lose(self, error: NetloomError | None) -> None:
        """End the watch: the connection was lost, or ended."""
        self._error, self._over = error, True
        if not self.begun.done():
            self.begun.set_exception(error or Unreachable("the server ended the connection"))
        _wake(self._news)
        _wake(self._read)

    async def room(self) -> None:
        """Wait while too many bytes are unread."""
        while self._size > MOST_WAITING and not self._over:
            self._read = asyncio.get_running_loop().create_future()
            await self._read

    async def read(self) -> bytes:
        """Return the next lines, b"" at the orderly end; `Unreachable` when the connection is lost."""
        while not self._waiting:
            if self._error is not None:
                raise copy.copy(self._error)  # One exception for each: raising it writes a traceback into it.
            if self._over:
                return b""
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        _wake(self._read)
        return data

    async def read_all(self, limit: int) -> bytes:
        """Return the error with which the watch was refused."""
        return b"".join(self._waiting)[:limit]

    def close(self) -> None:
        """Stop reading."""
        self._over = True
        _wake(self._news)
        _wake(self._read)
        self._shared.end(self._number)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
