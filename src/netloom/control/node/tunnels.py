"""The next hops of this node's tunnels, known to the switch before the first packet needs them.

A userspace Open vSwitch resolves the neighbour behind a tunnel only when a packet is to be sent there, and drops that
packet. It also learns from ARP replies and neighbour advertisements that pass its bridges, but not from all of them:
one that matches a cached flow, or arrives while the switch reloads its addresses, is forwarded and not inspected. So
the node's kernel, whose own address is on such a bridge, resolves the next hop, and the result is written into the
switch: when a tunnel port appears (OVN), when an attachment on another node becomes known (vxlan), and again before the
entry expires, after 15 minutes. A kernel datapath queues packets until their neighbour is resolved, so nothing is done
there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NoReturn, Protocol

from netloom.drivers.link.codec import Neighbour
from netloom.errors import NetloomError

log = logging.getLogger(__name__)

REFRESH_MIN, REFRESH_MAX = 1.0, 60.0
"""Seconds between refreshes of all next hops: doubled each time, and reset when a tunnel is new.  A switch drops its
neighbours when it restarts, or when their bridge changes, as it does while a node starts."""
POLL_MIN, POLL_MAX, POLL_GROWTH = 0.01, REFRESH_MAX, 1.5
"""Seconds between checks whether a neighbour has answered, and by what they grow: an answer is noticed after a third of
the time it took."""
KERNEL_GIVES_UP = 1.0
"""From this interval on a neighbour that has not answered is also asked again: the kernel asks three times, in three
seconds.  That is a few times a minute and no more: another node's credential chooses which addresses these are."""


class Kernel(Protocol):
    """The node's kernel (`drivers/link/worker.py: Links`)."""

    async def resolve(self, ips: Collection[str]) -> None:
        """Start resolving the next hops towards addresses."""
        ...

    async def neighbours(self, ips: Collection[str]) -> dict[str, Neighbour]:
        """Return the next hops that are resolved."""
        ...


class TunnelNeighbours:
    """Keeps the next hops of tunnels in the switch's neighbour table."""

    def __init__(
        self,
        *,
        remotes: Callable[[], Iterable[str]],
        kernel: Kernel,
        write: Callable[[Collection[Neighbour]], Awaitable[None]],
        is_needed: Callable[[], bool],
    ) -> None:
        """`remotes` returns the addresses of the other ends; `write` writes next hops into the switch."""
        self._remotes = remotes
        self._kernel = kernel
        self._write = write
        self._is_needed = is_needed
        self._known: set[str] = set()
        self._asked: set[str] = set()
        self._unanswered: set[str] = set()
        """Those of the asked that are not in the switch yet."""
        self._refresh = REFRESH_MIN
        self._poll = POLL_MIN
        self._last_error = ""
        self._changed = asyncio.Event()

    def enqueue(self) -> None:
        """Check for new tunnels."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Resolve new tunnels at once and all of them every now and then, until cancelled."""
        clock = asyncio.get_running_loop().time
        refresh_at = clock()
        while True:
            self._changed.clear()
            if clock() >= refresh_at:
                self._asked.clear()
                self._refresh = min(2 * self._refresh, REFRESH_MAX)
                refresh_at = clock() + self._refresh
            if self._is_needed():
                try:
                    if await self._reconcile():
                        self._refresh, refresh_at = REFRESH_MIN, clock() + REFRESH_MIN
                    self._last_error = ""
                except NetloomError as error:
                    if self._last_error != str(error):
                        log.info("tunnel neighbours are not all resolved: %s", error)
                    self._last_error = str(error)
                    refresh_at = min(refresh_at, clock() + REFRESH_MIN)
            wake_at = min(refresh_at, clock() + self._poll) if self._unanswered else refresh_at
            self._poll = min(POLL_GROWTH * self._poll, POLL_MAX)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()

    async def _reconcile(self) -> bool:
        """Resolve what is due, and write what is resolved into the switch; return whether any tunnel is new."""
        remotes = set(self._remotes())
        is_new = not remotes <= self._known
        self._known = remotes
        self._asked &= remotes
        self._unanswered &= remotes
        if due := remotes - self._asked:
            await self._kernel.resolve(due)
            self._asked |= due
            self._unanswered |= due
            self._poll = POLL_MIN
        elif self._unanswered and self._poll >= KERNEL_GIVES_UP:
            await self._kernel.resolve(self._unanswered)
        if self._unanswered:
            answered = await self._kernel.neighbours(self._unanswered)
            await self._write(set(answered.values()))
            self._unanswered -= answered.keys()
        return is_new
