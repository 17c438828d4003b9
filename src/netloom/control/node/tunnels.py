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

from netloom.drivers.link.codec import Neighbour
from netloom.errors import NetloomError

log = logging.getLogger(__name__)

SOON, REFRESH = 1.0, 60.0
"""After how many seconds all of them are asked for again: the first time after a tunnel is new, and at most, each time
doubled. A switch forgets neighbours when it is restarted, or when its bridge changes, as at the start of a node."""
FIRST, LAST = 0.01, 1.0
"""After how many seconds those that have not answered are looked for: at first, and at most, each time doubled."""


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
        self._known: set[str] = set()
        self._asked: set[str] = set()
        self._unanswered: set[str] = set()
        """Those asked for that the switch does not know yet."""
        self._refresh = SOON
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
                self._refresh = min(2 * self._refresh, REFRESH)
                refresh_at = clock() + self._refresh
            if self._is_needed():
                try:
                    if await self._look():
                        self._refresh, refresh_at = SOON, clock() + SOON
                    self._trouble = ""
                except NetloomError as error:
                    if self._trouble != str(error):
                        log.info("the next hops of tunnels are not all known: %s", error)
                    self._trouble = str(error)
                    refresh_at = min(refresh_at, clock() + LAST)
            wake_at = min(refresh_at, clock() + self._rest) if self._unanswered else refresh_at
            self._rest = min(2 * self._rest, LAST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()

    async def _look(self) -> bool:
        """Ask for those that are due, and tell the switch of those that answered; whether any is new."""
        remotes = set(self._remotes())
        is_new = not remotes <= self._known
        self._known = remotes
        self._asked &= remotes
        self._unanswered &= remotes
        if due := remotes - self._asked:
            await self._kernel.resolve(due)
            self._asked |= due
            self._unanswered |= due
            self._rest = FIRST
        elif self._unanswered and self._rest >= LAST:
            await self._kernel.resolve(self._unanswered)  # The kernel gives up after three seconds.
        if self._unanswered:
            answered = await self._kernel.neighbours(self._unanswered)
            await self._tell(set(answered.values()))
            self._unanswered -= answered.keys()
        return is_new
