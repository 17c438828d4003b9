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
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from netloom.drivers.link.codec import Neighbour
from netloom.errors import NetloomError

log = logging.getLogger(__name__)

REFRESH_MIN, REFRESH_MAX = 1.0, 60.0
"""Seconds until a next hop is resolved again: doubled each time, for each next hop by itself.  A switch drops its
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


@dataclass(slots=True)
class _Schedule:
    """When the next hop of one tunnel is resolved again, and when it is checked for an answer."""

    refresh_at: float
    refresh: float = REFRESH_MIN
    poll_at: float = math.inf
    """Infinite once the switch has the answer."""
    poll: float = POLL_MIN


class TunnelNeighbours:
    """Keeps the next hops of tunnels in the switch's neighbour table.

    Each tunnel has its own schedule, which begins when the tunnel appears and is dropped with it.  A Node that keeps
    changing its address makes the other nodes probe its new address, and none of the rest.
    """

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
        self._schedules: dict[str, _Schedule] = {}
        self._last_error = ""
        self._changed = asyncio.Event()

    def enqueue(self) -> None:
        """Check for new tunnels."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Resolve new tunnels at once and each of them every now and then, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            wake_at = clock() + (REFRESH_MAX if self._is_needed() else REFRESH_MIN)
            try:
                await self._reconcile(clock())
                self._last_error = ""
            except NetloomError as error:
                if self._last_error != str(error):
                    log.info("tunnel neighbours are not all resolved: %s", error)
                self._last_error = str(error)
                wake_at = clock() + REFRESH_MIN
            for schedule in self._schedules.values():
                wake_at = min(wake_at, schedule.refresh_at, schedule.poll_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()

    async def _reconcile(self, now: float) -> None:
        """Resolve what is due, and write what is resolved into the switch."""
        remotes = self._remotes() if self._is_needed() else ()
        self._schedules = {ip: self._schedules.get(ip) or _Schedule(refresh_at=now) for ip in remotes}
        asked, polled = set[str](), set[str]()
        for ip, schedule in self._schedules.items():
            if schedule.refresh_at <= now:
                asked.add(ip)
                schedule.refresh_at = now + schedule.refresh
                schedule.refresh = min(2 * schedule.refresh, REFRESH_MAX)
                schedule.poll_at, schedule.poll = now, POLL_MIN
            if schedule.poll_at <= now:
                polled.add(ip)
                if schedule.poll >= KERNEL_GIVES_UP:
                    asked.add(ip)
                schedule.poll_at = now + schedule.poll
                schedule.poll = min(POLL_GROWTH * schedule.poll, POLL_MAX)
        if asked:
            try:
                await self._kernel.resolve(asked)
            except NetloomError:
                for ip in asked:
                    del self._schedules[ip]  # the next pass resolves it as if it were new
                raise
        if polled:
            answered = await self._kernel.neighbours(polled)
            await self._write(set(answered.values()))
            for ip in answered:
                self._schedules[ip].poll_at = math.inf
