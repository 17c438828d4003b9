"""An in-memory OVSDB server that executes: for tests, and for simulations.  Pure: bytes and times in, bytes out.

    server = Server([Database(schema_document, Random(1))])
    connection = server.connect()
    connection.receive(data, now);  connection.to_send()

It has transactions (`engine`), all three versions of monitors with conditions and resumption (`watching`), locks,
blocking waits, echo, and `_Server`. Several servers may share a database, like those of a cluster; `describe` sets
which one leads. `serving` puts a server on a unix socket, or connects a client without one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from netloom.ovsdb.datum import Fault
from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.framing import Framer, RpcMessage
from netloom.ovsdb.memory.engine import Database
from netloom.ovsdb.memory.integrity import Edits
from netloom.ovsdb.memory.watching import ServedMonitor, monitored_table

__all__ = ["Connection", "Database", "Server"]

_optional = {"min": 0, "max": 1}
SERVER_SCHEMA: dict[str, Any] = {
    "name": "_Server",
    "version": "1.2.0",
    "tables": {
        "Database": {
            "columns": {
                "name": {"type": "string"},
                "model": {"type": {"key": {"type": "string", "enum": ["set", ["standalone", "clustered", "relay"]]}}},
                "connected": {"type": "boolean"},
                "leader": {"type": "boolean"},
                "schema": {"type": {"key": "string", **_optional}},
                "cid": {"type": {"key": "uuid", **_optional}},
                "sid": {"type": {"key": "uuid", **_optional}},
                "index": {"type": {"key": "integer", **_optional}},
            }
        }
    },
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Parked(Struct):
    """A waiting transaction."""

    connection: "Connection"
    id: Any
    params: list[Any]
    deadline: float | None


class Server:
    """One server with its databases."""

    def __init__(self, databases: Sequence[Database], *, methods: Sequence[str] | None = None) -> None:
        """Serve these databases; `methods`: only these methods, like an older server."""
        self.databases = {database.schema.name: database for database in databases}
        self.methods = methods
        self.connections: list[Connection] = []
        self.locks: dict[str, list[Connection]] = {}
        self._parked: list[_Parked] = []
        self._now = 0.0
        about = Database(SERVER_SCHEMA, Random(0))  # noqa: S311 - Uuids, not secrets.
        self.databases["_Server"] = about
        for database in databases:
            about.transact([{"op": "insert", "table": "Database", "row": _about(database)}])
        for database in self.databases.values():
            database.listeners.append(partial(self._committed, database))

    def describe(self, database: str, **columns: object) -> None:
        """Change the server's information about a database, such as `leader=False`."""
        where = [["name", "==", database]]
        about = self.databases["_Server"]
        outcome = about.transact([{"op": "update", "table": "Database", "where": where, "row": columns}])
        assert "error" not in outcome.results[-1], outcome.results

    def connect(self, wake: Callable[[], None] | None = None) -> "Connection":
        """Return a new connection; `wake` is called when it has unsolicited messages to send."""
        connection = Connection(self, wake)
        self.connections.append(connection)
        return connection

    def tick(self, now: float) -> None:
        """Set the time to `now`: waits may time out."""
        self._now = now
        for parked in [one for one in self._parked if one.deadline is not None and one.deadline <= now]:
            self._parked.remove(parked)
            parked.connection.transact(parked.id, parked.params, waits=False)

    def park(self, parked: _Parked, timeout: float | None) -> None:
        """Keep a transaction until its wait is fulfilled."""
        parked.deadline = None if timeout is None else self._now + timeout
        self._parked.append(parked)

    def cancel(self, connection: "Connection", number: object) -> None:
        """Cancel a waiting transaction."""
        for parked in [one for one in self._parked if one.connection is connection and number in (None, one.id)]:
            self._parked.remove(parked)
            if number is not None:
                connection.reply(number, error="canceled")

    def _committed(self, database: Database, edits: Edits) -> None:
        for connection in list(self.connections):
            connection.notify(database, edits)

    def retry(self) -> None:
        """Retry the waiting transactions after a commit."""
        waiting, self._parked = self._parked, []
        for parked in waiting:
            parked.connection.transact(parked.id, parked.params, deadline=parked.deadline)

    def drop(self, connection: "Connection") -> None:
        """Remove a connection with its monitors, locks and waits."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.cancel(connection, None)
            for name in list(self.locks):
                connection.unlock(name)


def _about(database: Database) -> dict[str, Any]:
    schema = _encode(database.document).decode()
    about = {"name": database.schema.name, "model": "standalone", "connected": True, "leader": True}
    return {**about, "schema": schema}


class Connection:
    """One client's connection."""

    def __init__(self, server: Server, wake: Callable[[], None] | None) -> None:
        self.server = server
        self._wake = wake
        self._framer = Framer()
        self._out: list[bytes] = []
        self._watches: dict[bytes, ServedMonitor] = {}

    def to_send(self) -> bytes:
        """Return the pending bytes."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def receive(self, data: bytes, now: float = 0.0) -> None:
        """Process the client's requests.  Invalid data raises `RemoteError`: close the connection."""
        self.server.tick(now)
        for message in self._framer.receive(data):
            self._dispatch(message)

    def reply(self, number: object, result: object = None, error: object = None) -> None:
        """Answer a request."""
        self._out.append(_encode({"id": number, "result": result, "error": error}))
        if self._wake is not None:
            self._wake()

    def _notify(self, method: str, params: list[Any]) -> None:
        self._out.append(_encode({"id": None, "method": method, "params": params}))
        if self._wake is not None:
            self._wake()

    def _dispatch(self, message: RpcMessage) -> None:
        if message.method is None:
            return  # The answer to an echo.
        try:
            params = _decode(message.params) if message.params else []
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
            raise RemoteError(f"the parameters are malformed: {problem}") from problem
        if not isinstance(params, list):
            raise RemoteError("the parameters are not an array")
        handler = _METHODS.get(message.method)
        methods = self.server.methods
        if handler is None or (methods is not None and message.method not in methods):
            if message.id is not None:
                self.reply(message.id, error="unknown method")
            return
        try:
            handler(self, message.id, params)
        except Fault as fault:
            self.reply(message.id, error={"error": fault.error, "details": fault.details})
        except (LookupError, TypeError, ValueError) as problem:
            self.reply(message.id, error={"error": "syntax error", "details": str(problem)})

    def _database(self, name: object) -> Database:
        database = self.server.databases.get(str(name))
        if database is None:
            raise Fault("unknown database", f"{name}")
        return database

    # Transactions.

    def transact(self, number: object, params: list[Any], *, waits: bool = True, deadline: float | None = None) -> None:
        """Execute a transaction, or park it."""
        outcome = self._database(params[0]).transact(params[1:], owns=self._owns, waits=waits)
        if outcome.parked:
            self.server.park(_Parked(self, number, params, None), outcome.timeout)
            if deadline is not None:
                self.server._parked[-1].deadline = deadline
            return
        self.reply(number, outcome.results)
        if outcome.edits:
            self.server.retry()

    # Monitors.

    def _monitor(self, number: object, params: list[Any], version: int) -> None:
        database, key = self._database(params[0]), _encode(params[1])
        if key in self._watches:
            raise Fault("syntax error", "duplicate monitor ID")
        parts = {}
        for table, wire in params[2].items():
            if table not in database.schema.tables:
                raise Fault("syntax error", f"no table named {table}")
            parts[table] = monitored_table(database.schema.tables[table], wire, conditional=version > 1)
        watch = self._watches[key] = ServedMonitor(params[1], database, version, parts)
        if version < 3:
            self.reply(number, watch.initial())
            return
        edits = database.since(params[3])
        updates = watch.initial() if edits is None else watch.updates(edits)
        self.reply(number, [edits is not None, str(database.last_id), updates])

    def _monitor_cancel(self, number: object, params: list[Any]) -> None:
        found = self._watches.pop(_encode(params[0]), None)
        self.reply(number, {} if found else None, None if found else {"error": "unknown monitor"})

    def notify(self, database: Database, edits: Edits) -> None:
        """Send the updates of a commit to the client."""
        for watch in self._watches.values():
            if watch.database is database and (updates := watch.updates(edits)):
                self._send_update(watch, updates, str(database.last_id))

    def _send_update(self, watch: ServedMonitor, updates: dict[str, Any], last_id: str) -> None:
        between = [last_id] if watch.version == 3 else []
        self._notify(("update", "update2", "update3")[watch.version - 1], [watch.id, *between, updates])

    # Locks.

    def _owns(self, name: str) -> bool:
        return self.server.locks.get(name, [None])[0] is self

    def _lock(self, number: object, params: list[Any]) -> None:
        queue = self.server.locks.setdefault(params[0], [])
        if self in queue:
            raise Fault("syntax error", "must unlock before locking again")
        queue.append(self)
        self.reply(number, {"locked": self._owns(params[0])})

    def _steal(self, number: object, params: list[Any]) -> None:
        queue = self.server.locks.setdefault(params[0], [])
        if self in queue:
            raise Fault("syntax error", "must unlock before locking again")
        if queue:
            queue[0]._notify("stolen", [params[0]])
        queue.insert(0, self)
        self.reply(number, {"locked": True})

    def _unlock(self, number: object, params: list[Any]) -> None:
        self.unlock(params[0])
        self.reply(number, {})

    def unlock(self, name: str) -> None:
        """Release a lock, or leave its queue; the next connection gets it."""
        queue = self.server.locks.get(name, [])
        if self not in queue:
            return
        owned = queue[0] is self
        queue.remove(self)
        if owned and queue:
            queue[0]._notify("locked", [name])

    # The rest.

    def _echo(self, number: object, params: list[Any]) -> None:
        self.reply(number, params)

    def _list_dbs(self, number: object, _: list[Any]) -> None:
        self.reply(number, list(self.server.databases))

    def _get_schema(self, number: object, params: list[Any]) -> None:
        self.reply(number, self._database(params[0]).document)

    def _agree(self, number: object, _: list[Any]) -> None:
        self.reply(number, {})

    def _cancel(self, _: object, params: list[Any]) -> None:
        self.server.cancel(self, params[0])


_METHODS: dict[str, Callable[[Connection, object, list[Any]], None]] = {
    "transact": Connection.transact,
    "cancel": Connection._cancel,
    "monitor": lambda connection, number, params: connection._monitor(number, params, 1),
    "monitor_cond": lambda connection, number, params: connection._monitor(number, params, 2),
    "monitor_cond_since": lambda connection, number, params: connection._monitor(number, params, 3),
    "monitor_cancel": Connection._monitor_cancel,
    "lock": Connection._lock,
    "steal": Connection._steal,
    "unlock": Connection._unlock,
    "echo": Connection._echo,
    "list_dbs": Connection._list_dbs,
    "get_schema": Connection._get_schema,
    "set_db_change_aware": Connection._agree,
}
