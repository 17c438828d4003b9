"""Sockets for the session: the only part of `ovsdb` that does IO, reads the clock and logs.

    client = Client(["unix:/run/ovn/ovnnb_db.sock"], "OVN_Northbound", tables={"Logical_Switch": None}, random=Random())
    async with asyncio.TaskGroup() as group:
        group.create_task(client.run())
        await client.synced.wait()
        client.cache.rows("Logical_Switch")
        await client.transact([Insert("Logical_Switch", {"name": "blue"})])

Transactions are written as they come, without waiting for earlier answers; the server does them in order. One that is
not answered when the connection goes ends in `Unreachable`: it is not known whether it acted.

A server reached by ssl: must show a certificate for the host that is connected to, or, where the caller gives `names`,
for one of these; nothing is sent to another one.
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
from netloom.ovsdb.errors import Refused, RemoteError, Unreachable
from netloom.ovsdb.framing import LIMIT
from netloom.ovsdb.monitor import Change, Following
from netloom.ovsdb.operations import Condition, Operation, Result, without
from netloom.ovsdb.reconnect import CONNECT_TIMEOUT, Action, Reconnect, split_host
from netloom.ovsdb.schema import Schema
from netloom.ovsdb.session import Answered, Changed, Closed, Event, LockChanged, Position, Session, Stage, Synced

log = logging.getLogger(__name__)

Dial = Callable[[str, asyncio.Protocol, ssl.SSLContext | None], Awaitable[asyncio.Transport]]


class Counters(Struct):
    """What happened so far."""

    connects: int = 0
    failures: int = 0
    """Attempts to connect that came to nothing."""
    disconnects: int = 0
    downloads: int = 0
    """Times that the server sent everything."""
    resumes: int = 0
    """Times that it sent only what had changed since."""
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


class Client:
    """A database that is followed and written to, whatever happens to the servers."""

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
        """Follow `tables` of `database`; `rows` are the types of its rows where they are not among `ovsdb.rows`.

        `names` are those a server's certificate may be for, instead of the host in its remote: one of them must be in
        it. Then `tls` does not check host names itself, and otherwise it does.
        """
        if tls is not None and tls.check_hostname is bool(names):
            raise ValueError("either the TLS context checks host names or the names are given")
        self.cache = Cache()
        self.synced = asyncio.Event()
        self.counters = Counters()
        self.missing: frozenset[str] = frozenset()
        """Tables ("T") and columns ("T.c") of those followed that the server does not have."""
        self._following = Following(database, dict(tables), dict(conditions or {}), rows)
        self._reconnect = Reconnect(remotes, random, probe=probe)
        self._position = Position()
        self._leader_only, self._tls, self._names, self._limit = leader_only, tls, tuple(names), limit
        self._changed = changed
        self._dial = dial or open_remote
        self._link: _Link | None = None
        self._sending = asyncio.Lock()
        self._locks: dict[str, Lock] = {}
        self._told: set[str] = set()

    @property
    def schema(self) -> Schema | None:
        """The server's schema, of the connection there is."""
        return self._link.session.schema if self._link else None

    @property
    def remote(self) -> str:
        """The remote that is, or will next be, connected to."""
        return self._reconnect.remote

    async def run(self) -> NoReturn:
        """Follow the database, for ever."""
        clock = asyncio.get_running_loop().time
        self._reconnect.disconnected(clock(), elsewhere=False)
        self._reconnect.useful()
        while True:
            await asyncio.sleep(max(0.0, (self._reconnect.deadline() or 0.0) - clock()))
            if self._reconnect.run(clock()) is Action.CONNECT:
                await self._connect_and_follow(clock)

    async def _connect_and_follow(self, clock: Callable[[], float]) -> None:
        remote = self._reconnect.remote
        session = Session(self._following, self.cache, self._position, leader_only=self._leader_only, limit=self._limit)
        link = _Link(self, session, clock)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._dial(remote, link, self._tls)
        except (OSError, TimeoutError, ssl.CertificateError) as problem:
            self.counters.failures += 1
            if isinstance(problem, ssl.SSLCertVerificationError):
                self._warn(f"{remote}: its certificate is refused: {problem.verify_message or problem}")
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
    ) -> list[Result]:
        """Do all of this, or nothing; return what each operation came to; `sent` is called when it is on its way.

        `Refused`: the server will not. `Conflict`: a wait did not hold, or a lock is not ours. `Unreachable`: the
        connection went, and it is not known whether it was done.
        """
        # In the order they came, and each encoded only when the one before is on its way: the server works meanwhile.
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

    async def set_condition(self, table: str, conditions: Sequence[Condition | bool]) -> None:
        """Follow other rows of a table: those for which one of these holds, none if there are none."""
        following = self._following
        wanted = {**following.conditions, table: conditions or (False,)}
        self._following = Following(following.database, following.tables, wanted, following.known)
        link = self._link
        if link is None or link.session.stage is not Stage.FOLLOWING:
            self._position.last_id = Position().last_id  # What comes after it is of other rows: begin anew.
            if link is not None:
                link.end(Closed("the conditions changed", elsewhere=False))
            return
        answer = link.expect(link.session.set_conditions(self._following, {table: wanted[table]}))
        link.flush()
        try:
            await answer
        except Unreachable:
            self._position.last_id = Position().last_id  # It is not known by which conditions that was counted.

    def lock(self, name: str, *, steal: bool = False) -> "Lock":
        """Ask for a lock, now and on each connection to come; `Assert(name)` makes a transaction depend on it."""
        if name not in self._locks:
            self._locks[name] = Lock(name)
            if self._link is not None:
                self._link.session.lock(name, steal=steal)
                self._link.flush()
        return self._locks[name]

    def unlock(self, name: str) -> None:
        """Give a lock back."""
        if (lock := self._locks.pop(name, None)) is None:
            return
        lock._is(held=False)
        if self._link is not None:
            self._link.session.unlock(name)
            self._link.flush()

    def _handle(self, event: Event, link: "_Link") -> None:
        match event:
            case Changed(changes):
                self._tell(changes)
            case Answered():
                link.answer(event, self.counters)
            case Synced(resumed, changes):
                self.counters.resumes += resumed
                self.counters.downloads += not resumed
                self._say_missing(link)
                self._reconnect.useful()
                self.synced.set()
                self._tell(changes)
            case LockChanged(name, held):
                if name in self._locks:
                    self._locks[name]._is(held=held)
            case Closed():
                link.end(event)

    def _warn(self, text: str) -> None:
        """Log a warning once, however often the same is tried again."""
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

    def _tell(self, changes: Sequence[Change]) -> None:
        self.counters.changes += len(changes)
        if self._changed is not None and changes:
            self._changed(changes)

    def _say_missing(self, link: "_Link") -> None:
        assert link.session.monitor is not None
        self.missing = frozenset(link.session.monitor.missing)
        if news := sorted(self.missing - self._told):
            self._told.update(news)
            version = link.session.schema.version if link.session.schema else ""
            log.warning("%s: schema %s lacks %s: left out", self._reconnect.remote, version, ", ".join(news))


class Lock:
    """A lock of the server that was asked for."""

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

    def __init__(self, client: Client, session: Session, clock: Callable[[], float]) -> None:
        self.session = session
        self.ended: asyncio.Future[Closed] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()
        self._client = client
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[list[Result]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client._reconnect.connected(self._clock())
        if (names := self._client._names) and (peer := transport.get_extra_info("peercert")) is not None:
            shown = certificate_names(peer)
            if not {name.lower() for name in names} & {name.lower() for name in shown}:
                said = f"its certificate is refused: it is for {', '.join(shown) or 'nobody'}, not {', '.join(names)}"
                self._client._warn(f"{self._client.remote}: {said}")
                self.end(Closed(said))
                return
        self.session.start()
        for name in self._client._locks:
            self.session.lock(name)
        self.flush()
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        if self.ended.done():
            return
        client = self._client
        client.counters.bytes_in += len(data)
        client._reconnect.activity(self._clock())
        before = self.session.messages
        try:
            try:
                events = _without_collecting(self.session.receive, data)
            except RemoteError as problem:
                client._position.last_id = Position().last_id  # The cache may have missed something: begin anew.
                events = [*self.session.events(), Closed(str(problem))]
            for event in events:
                client._handle(event, self)
        except Exception as bug:  # noqa: BLE001 - A listener failed; `run` is where that must come out.
            if not self.ended.done():
                self.ended.set_exception(bug)
        client.counters.messages += self.session.messages - before
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.end(Closed(f"the connection was lost: {exc}" if exc else "the server closed the connection"))

    def pause_writing(self) -> None:
        """Let those who transact wait."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Let them go on."""
        self.writable.set()

    def flush(self) -> None:
        """Write what the session has to say."""
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

    def expect(self, number: int) -> "asyncio.Future[list[Result]]":
        """Return where a request's answer will be."""
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        return future

    def answer(self, event: Answered, counters: Counters) -> None:
        """Hand an answer over."""
        future = self._answers.pop(event.id, None)
        if event.error is not None:
            counters.refusals += isinstance(event.error, Refused)
            counters.conflicts += not isinstance(event.error, Refused)
        if future is None or future.done():  # Whoever asked has gone.
            return
        if event.error is not None:
            future.set_exception(event.error)
        else:
            future.set_result(event.results or [])

    def end(self, closed: Closed) -> None:
        """Let the connection be over."""
        if not self.ended.done():
            self.ended.set_result(closed)

    def close(self) -> None:
        """Close the socket; nobody waits for an answer any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.writable.set()
        for future in self._answers.values():
            if not future.done():
                self._client.counters.unanswered += 1
                future.set_exception(Unreachable("the connection to the database was lost before the answer came"))
        self._answers.clear()


def _without_collecting(receive: Callable[[bytes], list[Event]], data: bytes) -> list[Event]:
    """Call `receive` while the garbage collector rests.

    A message of thousands of rows makes as many objects, all of which stay: it would look at them again and again, and
    find nothing. That is a third of the time a large update takes.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return receive(data)
    finally:
        if collecting:
            gc.enable()


def certificate_names(peer: Mapping[str, Any]) -> list[str]:
    """Return whom a certificate is for, as `SSLSocket.getpeercert` has it.

    Those are the names and addresses of its subjectAltName; without any the common name, as `ovs-pki` wrote it for
    long.
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
