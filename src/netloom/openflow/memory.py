"""An in-memory switch that executes: for tests, and for the simulator.  It does no IO.

    switch = Memory()
    await switch.change([Put(flow)])
   switch.restart()          loses all flows, like Open vSwitch; another generation

It refuses what Open vSwitch refuses (`checks`), and applies a change completely or not at all. `cut()` breaks the
connection, `reconnect()` restores it; a switch with `lossy` set applies a change and loses its answer.
"""

import asyncio
import struct
from collections.abc import Iterable, Sequence

from netloom.openflow import checks, messages
from netloom.openflow.flows import Drop, Flow, Key, Meter, MeterSpec, Mod
from netloom.openflow.switch import ChangeRefused, Counters, Unreachable
from netloom.signals import Signal


class Memory:
    """One switch; a `Switch`."""

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.on_connect: Signal[[]] = Signal()
        self.generation = 1
        self.counters = Counters(connects=1)
        self.table: dict[Key, Flow] = {flow.key: flow for flow in flows}
        """The flows of the switch."""
        self.metered: dict[int, MeterSpec] = {}
        self.lossy = False
        """Whether changes are applied, and the answer is lost with the connection."""

    def restart(self) -> None:
        """Lose all flows, and reconnect at once."""
        self.table.clear()
        self.metered.clear()
        self.reconnect()

    def cut(self) -> None:
        """Break the connection; the flows stay."""
        self.connected.clear()

    def reconnect(self) -> None:
        """Restore the connection."""
        self.generation += 1
        self.counters.connects += 1
        self.connected.set()
        self.on_connect()

    async def flows(self, cookie: int = 0, cookie_mask: int = 0) -> list[Flow]:
        """Return the flows whose cookies equal `cookie` in the bits of the mask."""
        await self._carry()
        return [flow for flow in self.table.values() if not (flow.cookie ^ cookie) & cookie_mask]

    async def count(self, cookie: int = 0, cookie_mask: int = 0) -> int:
        """Return the number of flows with matching cookies."""
        return len(await self.flows(cookie, cookie_mask))

    async def change(self, mods: Sequence[Mod]) -> None:
        """Apply all of these changes, or none, in this order."""
        self.counters.bundles += 1
        self.counters.mods += len(mods)
        await self._carry()
        for index, mod in enumerate(mods):
            if (why := self._refusal(mod)) is not None:
                self.counters.refusals += 1
                raise ChangeRefused(why, mod=mod, index=index)
        for mod in mods:
            if isinstance(mod, Drop):
                self.table.pop(mod.flow.key, None)
            else:
                self.table[mod.flow.key] = mod.flow
        self._say()

    async def meters(self) -> dict[int, MeterSpec]:
        """Return the meters by number."""
        await self._carry()
        return dict(self.metered)

    async def set_meter(self, meter: int, rate_kbps: int, burst: int) -> None:
        """Create a meter, or change it."""
        await self._carry()
        if not 0 < meter <= MOST_METERS:
            self.counters.refusals += 1
            raise ChangeRefused("meter mod failed: bad meter")
        self.metered[meter] = MeterSpec(rate_kbps, burst)
        self._say()

    async def remove_meter(self, meter: int) -> None:
        """Remove a meter, and the flows that use it."""
        await self._carry()
        self.metered.pop(meter, None)
        self.table = {key: flow for key, flow in self.table.items() if Meter(meter) not in flow.actions}
        self._say()

    def _refusal(self, mod: Mod) -> str | None:
        try:
            messages.bundle_add(0, 0, mod)
        except (LookupError, ValueError, OverflowError, struct.error) as problem:
            return f"invalid flow: {problem}"
        return checks.bad_match(mod.flow.match) if isinstance(mod, Drop) else checks.refusal(mod.flow, self.metered)

    async def _carry(self) -> None:
        # Like a socket: other tasks may run, and the connection may end, between a request and its answer.
        self._there()
        await asyncio.sleep(0)
        self._there()

    def _there(self) -> None:
        if not self.connected.is_set():
            raise Unreachable("the switch is not connected")

    def _say(self) -> None:
        if self.lossy:
            self.counters.unanswered += 1
            self.cut()
            raise Unreachable("the connection to the switch was lost before its answer")


MOST_METERS = 65536
