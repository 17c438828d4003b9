"""etcd v3 over its JSON gateway: the few calls a store needs, with whichever of several servers answers.

Bytes travel as base64 and 64-bit numbers as strings, which msgspec reads and writes by itself. A request that no server
took is given to the next one; one that may have been acted on is given to another only if it merely reads.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, Cause, Expired, Internal, NetloomError, TimedOut, TooLarge, Unreachable
from netloom.store.http import Client, Refused, tls_context

T = TypeVar("T", bound=Struct)
Json = dict[str, Any]

_MAX_MESSAGE = 512 << 20


class Tls(Struct, frozen=True):
    """How to reach an etcd that wants TLS: PEM bytes."""

    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return "Tls(…)"


class Header(Struct, frozen=True):
    """The revision of the whole store when it answered."""

    revision: int = 0


class KeyValue(Struct, frozen=True):
    """One key."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0


class Range(Struct, frozen=True):
    """What a read found."""

    header: Header = Header()
    kvs: list[KeyValue] = []
    more: bool = False
    count: int = 0


class Done(Struct, frozen=True):
    """What became of a transaction."""

    header: Header = Header()
    succeeded: bool = False


class KeyEvent(Struct, frozen=True):
    """One change of one key."""

    kv: KeyValue
    prev_kv: KeyValue | None = None
    type: str = "PUT"


class Told(Struct, frozen=True):
    """One message of a watch."""

    header: Header = Header()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[KeyEvent] = []


class _Message(Struct, frozen=True):
    result: Told | None = None
    error: Any = None


class _Failure(Struct, frozen=True):
    error: Any = ""
    message: str = ""
    code: int = 0


def put(key: str, value: bytes) -> Json:
    """Return the operation that sets a key."""
    return {"request_put": {"key": key.encode(), "value": value}}


def delete_key(key: str) -> Json:
    """Return the operation that removes a key."""
    return {"request_delete_range": {"key": key.encode()}}


def unless_changed(key: str, revision: int) -> Json:
    """Return the condition that a key was last written at `revision`; 0: that it is not there."""
    return {"key": key.encode(), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def prefix_end(prefix: str) -> str:
    """Return the end of the range of all keys that begin with `prefix`, whose last character is ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class Etcd:
    """An etcd cluster, through whichever of its servers answers."""

    def __init__(self, urls: Sequence[str], tls: Tls | None = None) -> None:
        if not urls:
            raise BadRequest("no etcd address is given")
        context = tls_context(ca=tls.ca, certificate=tls.certificate, key=tls.key) if tls else None
        self._clients = [Client(url, tls=context, max_body=_MAX_MESSAGE, timeout=30.0) for url in urls]
        self._current = 0

    async def range(
        self, key: str, *, end: str = "", limit: int = 0, revision: int = 0, count_only: bool = False
    ) -> Range:
        """Read a key, or the keys from `key` up to `end`, now or at a revision."""
        body: Json = {"key": key.encode(), "limit": str(limit), "revision": str(revision), "count_only": count_only}
        if end:
            body["range_end"] = end.encode()
        return await self._call("/v3/kv/range", body, Range, reads=True)

    async def txn(self, conditions: Sequence[Json], operations: Sequence[Json]) -> Done:
        """Do all `operations` if all `conditions` hold."""
        body = {"compare": conditions, "success": operations}
        return await self._call("/v3/kv/txn", body, Done, reads=False)

    async def compact(self, revision: int) -> None:
        """Drop the history before `revision`."""
        await self._call("/v3/kv/compaction", {"revision": str(revision)}, Range, reads=False)

    @asynccontextmanager
    async def watch(self, key: str, end: str, since: int) -> AsyncIterator[AsyncIterator[Told]]:
        """Watch a range of keys, from the revision after `since`."""
        create = {
            "key": key.encode(),
            "range_end": end.encode(),
            "start_revision": str(since + 1),
            "prev_kv": True,
            "progress_notify": True,
        }
        client = self._clients[self._current]
        try:
            stream = await client.stream("POST", "/v3/watch", body=msgspec.json.encode({"create_request": create}))
        except NetloomError:
            self._turn(client)
            raise
        async with stream:
            if stream.status != 200:
                raise _failure(await stream.read_all(1 << 20))
            yield self._messages(stream.read, client)

    async def close(self) -> None:
        """End all connections."""
        for client in self._clients:
            await client.close()

    async def _messages(self, read: Callable[[], Awaitable[bytes]], client: Client) -> AsyncIterator[Told]:
        parts: list[bytes] = []
        try:
            while data := await read():
                # A message may be large and come in many pieces: they are joined once, when its end is there.
                head, newline, rest = data.partition(b"\n")
                parts.append(head)
                while newline:
                    line = b"".join(parts)
                    if line:
                        yield _told(line)
                    head, newline, rest = rest.partition(b"\n")
                    parts = [head]
        except Unreachable:
            self._turn(client)
            raise
        self._turn(client)
        raise Unreachable("etcd ended the watch")

    async def _call(self, path: str, body: Json, type_: type[T], *, reads: bool) -> T:
        encoded = msgspec.json.encode(body)
        for attempt in range(len(self._clients)):
            client = self._clients[self._current]
            try:
                response = await client.request("POST", path, body=encoded)
                if response.status != 200:
                    raise _failure(response.body)
                return msgspec.json.decode(response.body, type=type_, strict=False)
            except (Unreachable, TimedOut) as error:
                self._turn(client)
                if attempt + 1 == len(self._clients) or not (reads or isinstance(error, Refused)):
                    raise
        raise AssertionError("there is at least one server")

    def _turn(self, failed: Client) -> None:
        """Go on with the next server, unless somebody already did."""
        if self._clients[self._current] is failed:
            self._current = (self._current + 1) % len(self._clients)


def _told(line: bytes) -> Told:
    message = msgspec.json.decode(line, type=_Message, strict=False)
    if message.result is None:
        raise _failure(line)
    return message.result


def _failure(body: bytes) -> NetloomError:
    """Return the error an answer of etcd means; `code` is gRPC's."""
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except msgspec.DecodeError:
        return Unreachable(f"etcd answered {body[:200]!r}")
    if isinstance(failure.error, dict):  # In a stream the error is an object of its own.
        failure = msgspec.convert(failure.error, _StreamFailure).failure()
    text = failure.message or str(failure.error)
    if "compacted" in text:
        return Expired("too old resource version: it has been compacted")
    if "future revision" in text:
        return TimedOut("Too large resource version", causes=[Cause("", text, "ResourceVersionTooLarge")])
    if "too large" in text or "larger than max" in text:
        return TooLarge(text)
    if failure.code == 4:
        return TimedOut(text)
    return Internal(text) if failure.code in (3, 5, 12, 13) else Unreachable(text)


class _StreamFailure(Struct, frozen=True):
    message: str = ""
    grpc_code: int = 0

    def failure(self) -> _Failure:
        return _Failure(message=self.message, code=self.grpc_code)
