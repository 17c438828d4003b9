"""Access to what is behind the API: OVN's databases and the nodes' switches.

Nothing of it is required: a diagnosis names what it cannot reach and reports the rest. `NOT_CONFIGURED` ends the
message about a part for which no address is given, so that a user interface can add how to give it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from netloom.drivers.northbound.driver import Northbound
from netloom.errors import Unreachable
from netloom.ovsdb.io import OvsdbClient

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a database may take to answer."""
NOT_CONFIGURED = "no address is configured"
NO_NORTHBOUND = f"northbound database: {NOT_CONFIGURED}"
NO_SOUTHBOUND = f"southbound database: {NOT_CONFIGURED}"


class Enter(Protocol):
    """Runs a function where a node's network is, and returns its result."""

    def __call__(self, action: Callable[[], T]) -> T:
        """Run `action`; raise `Unreachable` if the node's network does not exist."""


def _here(action: Callable[[], T]) -> T:
    return action()


class Switch(Struct, frozen=True):
    """A node's Open vSwitch, and how to run code in that node's network namespace."""

    remote: str
    node: str = ""
    """"": the node that the switch's database names."""
    enter: Enter = _here

    @property
    def folder(self) -> Path:
        """The directory of the switch's sockets."""
        return Path(self.remote.partition(":")[2]).parent


class Access(Struct, frozen=True, kw_only=True):
    """What can be reached besides the API."""

    owner: str
    """The owner that Netloom's rows carry."""
    nb: tuple[str, ...]
    """The remotes of the northbound database."""
    sb: tuple[str, ...]
    """The remotes of the southbound database."""
    tls: ssl.SSLContext | None
    """The key and certificates for ssl: remotes."""
    names: tuple[str, ...]
    """The names that the servers' certificates may carry; none: the host of each remote."""
    north: Callable[[], Northbound]
    """Returns the driver of the northbound database; call it inside an event loop."""
    ovn_command: Callable[[Sequence[str]], list[str]]
    """Completes the command line of an OVN program that reads the southbound: its --db, TLS and chroot."""
    switches: tuple[Switch, ...]

    def south(self, tables: Mapping[str, Sequence[str] | None]) -> OvsdbClient:
        """Return a connection to the southbound database that monitors these tables."""
        return OvsdbClient(
            self.sb,
            "OVN_Southbound",
            tables=tables,
            random=SystemRandom(),
            leader_only=False,
            tls=self.tls,
            names=self.names,
        )


def no_switch(node: str) -> str:
    """Return the message about a node whose switch cannot be inspected."""
    return f"switch of node {node}: {NOT_CONFIGURED}"


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, Any], ready: asyncio.Event, *, silent: str) -> AsyncIterator[None]:
    """Run a coroutine until the end of the block, which starts when `ready` is set.

    Raise `Unreachable` with the message `silent` if that takes too long.
    """
    task = asyncio.create_task(work)
    try:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await ready.wait()
        except TimeoutError:
            raise Unreachable(silent) from None
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def following(client: OvsdbClient) -> AsyncIterator[OvsdbClient]:
    """Keep a database's cache in sync during the block; raise `Unreachable` if the database does not answer."""
    async with running(client.run(), client.synced, silent=f"{client.remote} does not answer"):
        yield client
