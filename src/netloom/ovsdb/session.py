"""One connection to one server, as a state machine: bytes go in, bytes and events come out.

   CHOOSING   request the server's databases, and whether it leads           -> SCHEMA, ASKING, or closed: not usable
   SCHEMA     an old server, without `_Server`: request the schema only      -> ASKING
   ASKING     request the monitor: all changes after `last_id`, if the
              server still has them; else everything                         -> FOLLOWING
   FOLLOWING  updates arrive; the cache is what the server has               -> closed: the server lost its leadership,
                                                                                cluster or database; or the schema
                                                                                changed
    start(), receive(data)  -> events, in order
   transact(...), ask(...) -> the request's number, which its answer carries
   to_send()               -> the bytes to write

Nothing here opens a socket, reads a clock or logs. A violation of the protocol by the peer, and nothing else, is a
`RemoteError`. Servers without monitor_cond_since are asked for monitor_cond, and those without that for RFC 7047's
monitor.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from netloom.ovsdb import server_rows
from netloom.ovsdb.cache import Cache
from netloom.ovsdb.errors import Conflict, RemoteError, TransactionRefused, failure
from netloom.ovsdb.framing import LIMIT, Framer, RpcMessage
from netloom.ovsdb.monitor import Change, Following, Monitor
from netloom.ovsdb.notation import ZERO, Uuid, decode_shape
from netloom.ovsdb.operations import Operation, OperationResult, encode_transact
from netloom.ovsdb.schema import Schema

FOLLOW, SERVER = "netloom", "netloom-server"
METHODS = ("monitor_cond_since", "monitor_cond", "monitor")


class Stage(Enum):
    """The stage of a connection."""

    CHOOSING = "choosing"
    SCHEMA = "schema"
    ASKING = "asking"
    FOLLOWING = "following"
    CLOSED = "closed"


class Synced(Struct, frozen=True):
    """The cache is now what the server has; `resumed`: the server sent only the changes."""

    resumed: bool
    changes: Sequence[Change]


class Changed(Struct, frozen=True):
    """Rows changed."""

    changes: Sequence[Change]


class RpcAnswered(Struct, frozen=True):
    """A request's answer: results, or an error."""

    id: int
    results: list[OperationResult] | None = None
    error: TransactionRefused | Conflict | None = None


class LockChanged(Struct, frozen=True):
    """A lock was acquired, or lost."""

    lock: str
    held: bool


class Closed(Struct, frozen=True):
    """This connection is not usable any more; `elsewhere`: try another server."""

    reason: str
    elsewhere: bool = True


Event = Synced | Changed | RpcAnswered | LockChanged | Closed


class _Outcome(Struct):
    """The outcome of one operation on the wire."""

    uuid: Any = None
    count: int = 0
    error: str | None = None
    details: str = ""


class Position(Struct):
    """The known state of a database: it is kept between connections."""

    last_id: Uuid = ZERO
    index: int = 0
    cluster: Uuid | None = None


_encode = msgspec.json.Encoder().encode
_outcomes = msgspec.json.Decoder(list[_Outcome | None]).decode
_pair = msgspec.json.Decoder(tuple[Any, Raw]).decode
_triple = msgspec.json.Decoder(tuple[Any, str, Raw]).decode
_since = msgspec.json.Decoder(tuple[bool, str, Raw]).decode
_anything = msgspec.json.Decoder().decode


class RpcSession:
    """One connection."""

    def __init__(
        self,
        following: Following,
        cache: Cache,
        position: Position,
        *,
        leader_only: bool = True,
        limit: int = LIMIT,
    ) -> None:
        self.stage = Stage.CHOOSING
        self.following = following
        self.position = position
        self.schema: Schema | None = None
        self.monitor: Monitor | None = None
        self.method = 0
        """The index in METHODS of the monitor method in use."""
        self.locks: dict[str, bool] = {}
        self.messages = 0
        self._cache = cache
        self._leader_only = leader_only
        self._framer = Framer(limit)
        self._servers = Cache()
        self._server_monitor = server_rows.monitor()
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._pending: dict[int, Callable[[RpcMessage], None]] = {}
        self._next = 0

    # What goes out.

    def to_send(self) -> bytes:
        """Return the pending bytes."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def start(self) -> None:
        """Start, on a new connection."""
        self._request("set_db_change_aware", [True], lambda _: None)
        asked = server_rows.request(every_index=not self._leader_only)
        self._request("monitor_cond", ["_Server", SERVER, asked], self._on_server)

    def probe(self) -> None:
        """Send an echo request."""
        self._request("echo", [], lambda _: None)

    def transact(self, operations: Sequence[Operation]) -> int:
        """Send a transaction; its `RpcAnswered` has the returned number."""
        self._next += 1
        self._out.append(encode_transact(self.following.database, operations, self._next))
        self._pending[self._next] = partial(self._on_transacted, len(operations))
        return self._next

    def lock(self, name: str) -> None:
        """Request a lock; `LockChanged` reports when it is ours."""
        self.locks[name] = False
        self._request("lock", [name], lambda message: self._on_lock(name, message))

    def unlock(self, name: str) -> None:
        """Release a lock, or cancel its request."""
        if self.locks.pop(name, None) is not None:
            self._request("unlock", [name], lambda _: None)

    def _request(self, method: str, params: list[Any], then: Callable[[RpcMessage], None]) -> None:
        self._next += 1
        self._pending[self._next] = then
        self._out.append(_encode({"id": self._next, "method": method, "params": params}))

    # What comes in.

    def receive(self, data: bytes) -> list[Event]:
        """Process received bytes; return the events, in order.

        If it raises, `events` has the events before the error: the cache has them already.
        """
        try:
            for message in self._framer.receive(data):
                if self.stage is Stage.CLOSED:
                    break
                self.messages += 1
                self._dispatch(message)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
            raise RemoteError(f"malformed message: {problem}") from problem
        return self.events()

    def events(self) -> list[Event]:
        """Return the events that were not returned yet."""
        events, self._events = self._events, []
        return events

    def _dispatch(self, message: RpcMessage) -> None:
        if message.method is None:
            handler = self._pending.pop(message.id, None) if isinstance(message.id, int) else None
            if handler is None:
                raise RemoteError("unexpected answer")
            handler(message)
            return
        match message.method:
            case "update3":
                monitor, last_id, updates = _triple(message.params)
                self._on_update(monitor, updates, last_id)
            case "update2" | "update":
                monitor, updates = _pair(message.params)
                self._on_update(monitor, updates, None)
            case "echo":
                params = _anything(message.params) if message.params else []
                self._out.append(_encode({"id": message.id, "result": params, "error": None}))
            case "locked" | "stolen":
                self._on_lock_notified(message)
            case "monitor_canceled":
                self._on_canceled(message)
            case _ if message.id is not None:
                self._out.append(_encode({"id": message.id, "result": None, "error": "unknown method"}))

    def _close(self, reason: str, *, elsewhere: bool = True) -> None:
        self.stage = Stage.CLOSED
        self._events.append(Closed(reason, elsewhere))

    # Which server it is.

    def _on_server(self, message: RpcMessage) -> None:
        if _failed(message):  # Servers before 2.9 have no such database.
            self.stage = Stage.SCHEMA
            self._request("get_schema", [self.following.database], self._on_schema)
            return
        self._servers.apply(self._server_monitor.decode(message.result), self._server_monitor)
        self._check_server()

    def _check_server(self) -> None:
        """Continue if this server is usable."""
        row = server_rows.find(self._servers, self.following.database)
        reason = server_rows.objection(row, self.position, leader_only=self._leader_only)
        if reason or row is None:
            self._close(reason or "the server does not have the database")
            return
        if row.index is not None:
            self.position.index = max(self.position.index, row.index)
        if self.stage is Stage.CHOOSING:
            if row.cid != self.position.cluster:
                self.position.cluster, self.position.last_id = row.cid, ZERO
            self._follow(Schema.parse(row.schema or ""))

    def _on_schema(self, message: RpcMessage) -> None:
        if _failed(message):
            self._close("the server does not have the database")
            return
        self._follow(Schema.parse(_anything(message.result)))

    # Following.

    def _follow(self, schema: Schema) -> None:
        self.schema = schema
        self.monitor = Monitor(self.following, schema)
        self.stage = Stage.ASKING
        self._ask_to_follow()

    def _ask_to_follow(self) -> None:
        assert self.monitor is not None
        method = METHODS[self.method]
        params = [self.following.database, FOLLOW, self.monitor.request(conditions=method != "monitor")]
        if method == "monitor_cond_since":
            params.append(str(self.position.last_id))
        self._request(method, params, self._on_followed)

    def _on_followed(self, message: RpcMessage) -> None:
        assert self.monitor is not None
        if _failed(message):
            error = _anything(message.error)
            if error != "unknown method" or self.method == len(METHODS) - 1:
                self._close(f"the server refuses the monitor: {error}")
                return
            self.method += 1
            self._ask_to_follow()
            return
        resumed, last_id, data = False, str(ZERO), message.result
        if self.method == 0:
            resumed, last_id, data = _since(message.result)
        updates = self.monitor.decode_old(data) if self.method == 2 else self.monitor.decode(data)
        changes = self._cache.apply(updates, self.monitor) if resumed else self._cache.replace(updates)
        self.position.last_id = Uuid(last_id)
        self.stage = Stage.FOLLOWING
        self._events.append(Synced(resumed, changes))

    def _on_update(self, monitor: object, data: Raw, last_id: str | None) -> None:
        if monitor == SERVER:
            self._servers.apply(self._server_monitor.decode(data), self._server_monitor)
            before = self.schema
            self._check_server()
            row = server_rows.find(self._servers, self.following.database)
            if self.stage is not Stage.CLOSED and before is not None and row is not None:
                self._check_schema(before, Schema.parse(row.schema or ""))
            return
        if monitor != FOLLOW or self.monitor is None or self.stage is not Stage.FOLLOWING:
            raise RemoteError("unexpected update")
        updates = self.monitor.decode_old(data) if self.method == 2 else self.monitor.decode(data)
        changes = self._cache.apply(updates, self.monitor)
        if last_id is not None:
            self.position.last_id = Uuid(last_id)
        if changes:
            self._events.append(Changed(changes))

    def _check_schema(self, before: Schema, now: Schema) -> None:
        if now != before:
            self.position.last_id = ZERO
            self._close(f"the schema changed from {before.version} to {now.version}", elsewhere=False)

    def _on_canceled(self, message: RpcMessage) -> None:
        if _anything(message.params) == [FOLLOW]:
            self.position.last_id = ZERO
            self._close("the database was removed or converted", elsewhere=False)

    # Answers.

    def _on_transacted(self, operations: int, message: RpcMessage) -> None:
        number: int = message.id
        if _failed(message):
            self._events.append(RpcAnswered(number, error=_error(message)))
            return
        results: list[OperationResult] = []
        for at, one in enumerate(_outcomes(message.result)):
            if one is None:  # Not executed, because of an error after it in the list.
                continue
            if one.error is not None:
                which = at if at < operations else None
                self._events.append(RpcAnswered(number, error=failure(one.error, one.details, which)))
                return
            results.append(OperationResult(None if one.uuid is None else decode_shape(Uuid, one.uuid), one.count))
        self._events.append(RpcAnswered(number, results))

    def _on_lock(self, name: str, message: RpcMessage) -> None:
        if _failed(message):
            raise RemoteError(f"the lock {name} is refused: {_error(message)}")
        answer = _anything(message.result)
        if isinstance(answer, dict) and answer.get("locked"):
            self._lock_is(name, held=True)

    def _on_lock_notified(self, message: RpcMessage) -> None:
        params = _anything(message.params)
        if not isinstance(params, list) or len(params) != 1:
            raise RemoteError("a lock without a name")
        self._lock_is(params[0], held=message.method == "locked")

    def _lock_is(self, name: object, *, held: bool) -> None:
        if isinstance(name, str) and self.locks.get(name, held) != held:
            self.locks[name] = held
            self._events.append(LockChanged(name, held))


def _failed(message: RpcMessage) -> bool:
    return bool(message.error) and bytes(message.error) != b"null"


def _error(message: RpcMessage) -> TransactionRefused | Conflict:
    match _anything(message.error):
        case {"error": str() as error, "details": str() as details}:
            return failure(error, details, None)
        case {"error": str() as error}:
            return failure(error, "", None)
        case error:
            return failure(str(error), "", None)
