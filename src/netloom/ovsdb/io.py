"""Sockets for the session: the only module of `ovsdb` that does IO, reads the clock and logs.

    client = OvsdbClient(["unix:/run/ovn/ovnnb_db.sock"], "OVN_Northbound", tables={"ACL": None}, random=Random())
    async with asyncio.TaskGroup() as group:
        group.create_task(client.run())
        await client.synced.wait()
        client.cache.rows("ACL")
        await client.transact([Delete("ACL", is_uuid(uuid))])

Transactions are written as they come, without waiting for earlier answers; the server executes them in order. A
transaction without an answer when the connection ends raises `Unreachable`: it may or may not have been applied.

A server with ssl: must present a certificate for the host of its remote or, if the caller passes `names`, for one of
these; nothing is sent to any other server.
"""

import asyncio
import gc
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, NoReturn

from msgspec import Struct

from netloom.ovsdb.cache import Cache
from netloom.ovsdb.errors import RemoteError, TransactionRefused, Unreachable
from netloom.ovsdb.framing import LIMIT
from netloom.ovsdb.monitor import Change, Following
from netloom.ovsdb.operations import Condition, Operation, OperationResult, without
from netloom.ovsdb.reconnect import split_host
from netloom.ovsdb.schema import Schema
from netloom.ovsdb.session import Changed, Closed, Event, LockChanged, Position, RpcAnswered, RpcSession, Synced
from netloom.reconnect import CONNECT_TIMEOUT, Action, Reconnect

log = logging.getLogger(__name__)

Dial = Callable[[str, asyncio.Protocol, ssl.SSLContext | None], Awaitable[asyncio.Transport]]


class Counters(Struct):
    """Counts of what happened so far."""

    connects: int = 0
    failures: int = 0
    """Failed attempts to connect."""
    disconnects: int = 0
    downloads: int = 0
    """How often the server sent everything."""
    resumes: int = 0
    """How often it sent only the changes since."""
    probes: int = 0
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    changes: int = 0
    transactions: int = 0
    operations: int = 0
    refusals: int = 0
    conflicts: int = 0
    unanswered: int = 0


class OvsdbClient:
    """A client that monitors and writes a database, and reconnects."""

    def __init__(
        self,
        remotes: Sequence[str],
        database: str,
        *,
        tables: Mapping[str, Sequence[str] | None],
        random: Random,
        conditions: Mapping[str, Sequence[Condition | bool]] | None = None,
        leader_only: bool = True,
        tls: ssl.SSLContext | None = None,
        names: Sequence[str] = (),
        probe: float = 5.0,
        changed: Callable[[Sequence[Change]], None] | None = None,
        limit: int = LIMIT,
        dial: "Dial | None" = None,
        rows: Mapping[str, type[Struct]] | None = None,
    ) -> None:
        """Monitor `tables` of `database`; `rows` are the types of its rows if they are not in `ovsdb.rows`.

        `names` replace the host of the remote: a server's certificate must have one of them. Then `tls` must not check
        host names itself; otherwise it must.
        """
        if tls is not None and tls.check_hostname is bool(names):
            raise ValueError("either the TLS context checks host names, or names are given")
        self.cache = Cache()
        self.synced = asyncio.Event()
        self.counters = Counters()
        self.missing: frozenset[str] = frozenset()
        """Monitored tables ("T") and columns ("T.c") that the server does not have."""
        self._following = Following(database, dict(tables), dict(conditions or {}), rows)
        self._reconnect = Reconnect(remotes, random, probe=probe)
        self._position = Position()
        self._leader_only, self._tls, self._names, self._limit = leader_only, tls, tuple(names), limit
        self._changed = changed
        self._dial = dial or open_remote
        self._link: _Link | None = None
        self._sending = asyncio.Lock()
        self._locks: dict[str, Lock] = {}
        self._warned: set[str] = set()

    @property
    def schema(self) -> Schema | None:
        """The schema of the connected server."""
        return self._link.session.schema if self._link else None

    @property
    def remote(self) -> str:
        """The current or next remote."""
        return self._reconnect.remote

    async def run(self) -> NoReturn:
        """Monitor the database, for ever."""
        clock = asyncio.get_running_loop().time
        self._reconnect.disconnected(clock(), elsewhere=False)
        self._reconnect.useful()
        while True:
            await asyncio.sleep(max(0.0, (self._reconnect.deadline() or 0.0) - clock()))
            if self._reconnect.run(clock()) is Action.CONNECT:
                await self._connect_and_follow(clock)

    async def _connect_and_follow(self, clock: Callable[[], float]) -> None:
        remote = self._reconnect.remote
        session = RpcSession(
            self._following, self.cache, self._position, leader_only=self._leader_only, limit=self._limit
        )
        link = _Link(self, session, clock)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._dial(remote, link, self._tls)
        except (OSError, TimeoutError, ssl.CertificateError) as problem:
            self.counters.failures += 1
            if isinstance(problem, ssl.SSLCertVerificationError):
                self._warn(f"{remote}: the server's certificate is refused: {problem.verify_message or problem}")
            log.debug("%s: cannot connect: %s", remote, problem)
            self._reconnect.disconnected(clock())
            return
        self.counters.connects += 1
        self._link = link
        try:
            closed = await link.ended
            log.info("%s: %s", remote, closed.reason)
        finally:
            self._lost(link)
        self._reconnect.disconnected(clock(), elsewhere=closed.elsewhere)

    def _lost(self, link: "_Link") -> None:
        self._link = None
        self.synced.clear()
        self.counters.disconnects += 1
        link.close()
        for lock in self._locks.values():
            lock._is(held=False)

    async def transact(
        self, operations: Sequence[Operation], *, sent: Callable[[], None] | None = None
    ) -> list[OperationResult]:
        """Apply all operations, or none; return the result of each; `sent` is called when they are sent.

        `TransactionRefused`: the server refuses. `Conflict`: a wait did not hold, or a lock is not ours. `Unreachable`:
        the connection ended, and the transaction may or may not have been applied.
        """
        # In order, and each is encoded only after the previous one was sent: the server works meanwhile.
        async with self._sending:
            link = self._link
            if link is not None:
                await link.writable.wait()
            if link is None or link is not self._link or link.session.schema is None:
                raise Unreachable(f"{self._reconnect.remote}: not connected")
            if self.missing:
                operations = without(operations, self.missing)
            self.counters.transactions += 1
            self.counters.operations += len(operations)
            answer = link.expect(link.session.transact(operations))
            link.flush()
        if sent is not None:
            sent()
        return await answer

    def lock(self, name: str) -> "Lock":
        """Request a lock, now and on each later connection; `Assert(name)` makes a transaction depend on it."""
        if name not in self._locks:
            self._locks[name] = Lock(name)
            if self._link is not None:
                self._link.session.lock(name)
                self._link.flush()
        return self._locks[name]

    def unlock(self, name: str) -> None:
        """Release a lock."""
        if (lock := self._locks.pop(name, None)) is None:
            return
        lock._is(held=False)
        if self._link is not None:
            self._link.session.unlock(name)
            self._link.flush()

    def _handle(self, event: Event, link: "_Link") -> None:
        match event:
            case Changed(changes):
                self._notify(changes)
            case RpcAnswered():
                link.answer(event, self.counters)
            case Synced(resumed, changes):
                self.counters.resumes += resumed
                self.counters.downloads += not resumed
                self._warn_missing(link)
                self._reconnect.useful()
                self.synced.set()
                self._notify(changes)
            case LockChanged(name, held):
                if name in self._locks:
                    self._locks[name]._is(held=held)
            case Closed():
                link.end(event)

    def _warn(self, text: str) -> None:
        """Log a warning once, however often it repeats."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

    def _notify(self, changes: Sequence[Change]) -> None:
        self.counters.changes += len(changes)
        if self._changed is not None and changes:
            self._changed(changes)

    def _warn_missing(self, link: "_Link") -> None:
        assert link.session.monitor is not None
        self.missing = frozenset(link.session.monitor.missing)
        if news := sorted(self.missing - self._warned):
            self._warned.update(news)
            version = link.session.schema.version if link.session.schema else ""
            log.warning("%s: schema %s lacks %s: not monitored", self._reconnect.remote, version, ", ".join(news))


class Lock:
    """A requested lock of the server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = asyncio.Event()
        """Set while the lock is ours."""

    def _is(self, *, held: bool) -> None:
        if held:
            self.held.set()
        else:
            self.held.clear()


class _Link(asyncio.Protocol):
    """One connection: carries bytes and time between a session and a socket."""

    def __init__(self, client: OvsdbClient, session: RpcSession, clock: Callable[[], float]) -> None:
        self.session = session
        self.ended: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()
        self._client = client
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[list[OperationResult]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client._reconnect.connected(self._clock())
        if (names := self._client._names) and (peer := transport.get_extra_info("peercert")) is not None:
            shown = certificate_names(peer)
            if not {name.lower() for name in names} & {name.lower() for name in shown}:
                said = f"the server's certificate is for {', '.join(shown) or 'no name'}, not {', '.join(names)}"
                self._client._warn(f"{self._client.remote}: {said}")
                self.end(Closed(said))
                return
        self.session.start()
        for name in self._client._locks:
            self.session.lock(name)
        self.flush()
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        if self.ended.done():
            return
        client = self._client
        client.counters.bytes_in += len(data)
        client._reconnect.activity(self._clock())
        before = self.session.messages
        try:
            try:
                events = _without_gc(self.session.receive, data)
            except RemoteError as problem:
                client._position.last_id = Position().last_id  # The cache may have missed an update: download again.
                events = [*self.session.events(), Closed(str(problem))]
            for event in events:
                client._handle(event, self)
        except Exception as bug:  # noqa: BLE001 - A listener failed; `run` must raise that.
            if not self.ended.done():
                self.ended.set_exception(bug)
        client.counters.messages += self.session.messages - before
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.end(Closed(f"connection lost: {exc}" if exc else "the server closed the connection"))

    def pause_writing(self) -> None:
        """Make senders wait."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Resume senders."""
        self.writable.set()

    def flush(self) -> None:
        """Write the session's pending messages."""
        data = self.session.to_send()
        if data and self._transport is not None and not self.ended.done():
            self._client.counters.bytes_out += len(data)
            self._transport.write(data)

    def _tick(self) -> None:
        match self._client._reconnect.run(self._clock()):
            case Action.PROBE:
                self._client.counters.probes += 1
                self.session.probe()
                self.flush()
            case Action.DISCONNECT:
                self.end(Closed("the server does not answer"))
                return
        if (deadline := self._client._reconnect.deadline()) is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def expect(self, number: int) -> "asyncio.Future[list[OperationResult]]":
        """Return the future of a request's answer."""
        future: asyncio.Future[list[OperationResult]] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        return future

    def answer(self, event: RpcAnswered, counters: Counters) -> None:
        """Set the result of a request."""
        future = self._answers.pop(event.id, None)
        if event.error is not None:
            counters.refusals += isinstance(event.error, TransactionRefused)
            counters.conflicts += not isinstance(event.error, TransactionRefused)
        if future is None or future.done():  # The caller was cancelled.
            return
        if event.error is not None:
            future.set_exception(event.error)
        else:
            future.set_result(event.results or [])

    def end(self, closed: Closed) -> None:
        """End the connection."""
        if not self.ended.done():
            self.ended.set_result(closed)

    def close(self) -> None:
        """Close the socket; pending answers fail."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.writable.set()
        for future in self._answers.values():
            if not future.done():
                self._client.counters.unanswered += 1
                future.set_exception(Unreachable("the connection to the database was lost before its answer"))
        self._answers.clear()


def _without_gc(receive: Callable[[bytes], list[Event]], data: bytes) -> list[Event]:
    """Call `receive` without garbage collection.

    A message of thousands of rows creates as many objects, all of which stay: the collector would visit them again and
    again, and collect nothing. That is a third of the time of a large update.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return receive(data)
    finally:
        if collecting:
            gc.enable()


def certificate_names(peer: Mapping[str, Any]) -> list[str]:
    """Return the names in a certificate, as `SSLSocket.getpeercert` shows it.

    These are the names and addresses of its subjectAltName or, without any, the common name, as older versions of
    `ovs-pki` wrote it.
    """
    shown = [value for kind, value in peer.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if shown:
        return shown
    return [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]


async def open_remote(remote: str, link: asyncio.Protocol, tls: ssl.SSLContext | None) -> asyncio.Transport:
    """Connect to unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT."""
    loop = asyncio.get_running_loop()
    method, _, rest = remote.partition(":")
    if method == "unix":
        transport, _ = await loop.create_unix_connection(lambda: link, rest)
        return transport
    host, port = split_host(rest)
    if method == "tcp":
        transport, _ = await loop.create_connection(lambda: link, host, port)
        return transport
    if tls is None:
        raise ValueError(f"{remote} needs a TLS context")
    transport, _ = await loop.create_connection(lambda: link, host, port, ssl=tls)
    return transport
