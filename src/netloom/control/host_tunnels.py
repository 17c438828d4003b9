"""The next hops of this node's tunnels, known to the switch before the first packet needs them.

A userspace Open vSwitch resolves the neighbour behind a tunnel only when a packet is to be sent there, and drops that
packet. It also learns from ARP replies and neighbour advertisements that pass its bridges, but not from all of them:
one that matches a cached flow, or comes while the switch reads its addresses again, is forwarded and not looked at. So
the node's kernel, whose own address is on such a bridge, asks for the next hop, and what it learns is written into the
switch: when a tunnel port appears (OVN), when an attachment on another node is heard of (vxlan), and again before the
switch forgets it, which it does after 15 minutes. A kernel's datapath keeps packets until their neighbour is known, so
nothing is done there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NoReturn, Protocol

from netloom.drivers.link_codec import Neighbour
from netloom.errors import NetloomError

log = logging.getLogger(__name__)

REFRESH = 60.0
"""After how many seconds all of them are asked for again: a switch that was restarted knows none."""
FIRST, LAST = 0.01, 1.0
"""How soon, and at the latest how soon, it is looked again whether a neighbour has answered, in seconds."""
PATIENCE = 5.0
"""How long that goes on before the next refresh."""


class Kernel(Protocol):
    """What the node's kernel does (`drivers.link_worker.Links`)."""

    async def resolve(self, ips: Collection[str]) -> None:
        """Ask for the next hops towards addresses."""
        ...

    async def neighbours(self, ips: Collection[str]) -> dict[str, Neighbour]:
        """Return those that have answered."""
        ...


class TunnelNeighbours:
    """Keeps the switch knowing the next hops of its tunnels."""

    def __init__(
        self,
        *,
        remotes: Callable[[], Iterable[str]],
        kernel: Kernel,
        tell: Callable[[Collection[Neighbour]], Awaitable[None]],
        is_needed: Callable[[], bool],
    ) -> None:
        """`remotes` returns the addresses of the other ends; `tell` writes next hops into the switch."""
        self._remotes = remotes
        self._kernel = kernel
        self._tell = tell
        self._is_needed = is_needed
        self._asked: set[str] = set()
        self._unanswered: dict[str, float] = {}
        """Those asked for that the switch does not know yet, and until when that is tried."""
        self._rest = FIRST
        self._trouble = ""
        self._changed = asyncio.Event()

    def enqueue(self) -> None:
        """Look for tunnels that are new."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Resolve new tunnels at once and all of them every now and then, until cancelled."""
        clock = asyncio.get_running_loop().time
        refresh_at = clock()
        while True:
            self._changed.clear()
            if clock() >= refresh_at:
                self._asked.clear()
                refresh_at = clock() + REFRESH
            if self._is_needed():
                try:
                    await self._look(clock())
                    self._trouble = ""
                except NetloomError as error:
                    if self._trouble != str(error):
                        log.info("the next hops of tunnels are not all known: %s", error)
                    self._trouble = str(error)
            self._rest = min(2 * self._rest, LAST)
            wake_at = min(refresh_at, clock() + self._rest) if self._unanswered else refresh_at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()

    async def _look(self, now: float) -> None:
        remotes = set(self._remotes())
        self._asked &= remotes
        self._unanswered = {ip: until for ip, until in self._unanswered.items() if ip in remotes and now < until}
        if new := remotes - self._asked:
            self._rest = FIRST
            await self._kernel.resolve(new)
            self._asked |= new
            self._unanswered |= dict.fromkeys(new, now + PATIENCE)
        if not self._unanswered:
            return
        answered = await self._kernel.neighbours(self._unanswered)
        await self._tell(set(answered.values()))
        for ip in answered:
            del self._unanswered[ip]
