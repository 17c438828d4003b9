"""The next hops of this node's tunnels, resolved before the first packet needs them.

A userspace Open vSwitch resolves the neighbour behind a tunnel only when a packet is to be sent there, and drops that
packet. It learns neighbours from every ARP reply and neighbour advertisement that passes its bridges, so this node's
kernel, whose own address is on such a bridge, asks for them first: when a tunnel port appears (OVN), when an
attachment on another node is heard of (vxlan), and again before the switch forgets them, which it does 15 minutes
after it last heard of one. A kernel's datapath keeps packets until their neighbour is known, so nothing is done there.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NoReturn

from netloom.errors import NetloomError

log = logging.getLogger(__name__)

REFRESH = 60.0
"""After how many seconds all of them are asked for again: a switch that was started again knows none."""


class TunnelNeighbours:
    """Keeps the switch knowing the next hops of its tunnels."""

    def __init__(
        self,
        *,
        remotes: Callable[[], Iterable[str]],
        resolve: Callable[[Collection[str]], Awaitable[int]],
        is_needed: Callable[[], bool],
    ) -> None:
        """`remotes` returns the addresses of the other ends; `resolve` has their next hops asked for."""
        self._remotes = remotes
        self._resolve = resolve
        self._is_needed = is_needed
        self._known: set[str] = set()
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
                self._known.clear()
                refresh_at = clock() + REFRESH
            await self._resolve_new()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(refresh_at):
                    await self._changed.wait()

    async def _resolve_new(self) -> None:
        if not self._is_needed():
            return
        remotes = set(self._remotes())
        new = remotes - self._known
        self._known &= remotes
        if not new:
            return
        try:
            await self._resolve(new)
        except NetloomError as error:
            log.info("the next hops of tunnels cannot be resolved: %s", error)
            return
        self._known |= new
