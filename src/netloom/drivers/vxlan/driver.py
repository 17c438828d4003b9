"""The flows of the vxlan fabric on the node's switch: which of ours are installed, and changes to them, in bundles.

    new connection ──► read all flows back ──► compare with the desired flows ──► one bundle, or none
    a change of the desired flows ──► one bundle of the differences
    every few seconds ──► compare the number of flows ──► if it differs, read back

`seen` is the observed state: read back on each new connection, because a switch that restarted has no flows, and
updated by each acknowledged bundle. So an installed flow is not written again, and a restart of the agent writes
nothing. Ours are the flows with our cookie, and the meters with our numbers; others on the bridge are left alone.

A bundle is applied as a whole or not at all. If the switch refuses one, the flow at fault is left out and recorded with
the error, and the rest is written. The outcome of a bundle that was not answered is unknown: all flows are read back.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from netloom.errors import NetloomError, Unreachable
from netloom.openflow.flows import Flow, Key, MeterSpec
from netloom.openflow.switch import ChangeRefused, Drop, Mod, Put, Switch
from netloom.plan.vxlan.flow_claims import Delta
from netloom.signals import Signal

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FabricCounters:
    """Counters for the metrics."""

    bundles: int = 0
    puts: int = 0
    drops: int = 0
    compared: int = 0
    """The number of comparisons of all flows."""
    refused: int = 0
    meters: int = 0
    """Meters set or removed."""


class DesiredFlows(Protocol):
    """The flows and meters that the switch must have (`plan/vxlan/flow_claims.py`)."""

    @property
    def flows(self) -> Mapping[Key, Flow]:
        """The flows, by their place."""

    @property
    def meters(self) -> Mapping[int, MeterSpec]:
        """The meters, by number."""


class FabricFlows:
    """Our flows on the switch, a `ReconciledSet`."""

    def __init__(
        self,
        switch: Switch,
        *,
        cookie: int,
        cookie_mask: int,
        meters: range,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """`meters` are our meter numbers; `may_write` says whether this agent is the one that works on the switch."""
        self.counters = FabricCounters()
        self.refused: dict[Key, str] = {}
        """The flows that the switch refused, and its errors."""
        self.seen: dict[Key, Flow] = {}
        """Our flows on the switch, to the best of our knowledge."""
        self.on_outdated: Signal[[]] = Signal()
        """Sent when the flows of the switch are no longer known: `compare` is due."""
        self._switch = switch
        switch.on_connect.connect(self.on_outdated)
        self._cookie, self._mask, self._own_meters = cookie, cookie_mask, meters
        self._may_write = may_write
        self._meters: dict[int, MeterSpec] = {}
        self._generation: int | None = None
        """The connection by which `seen` was read; None: it must be read again."""
        self._unread = 0
        """The number of flows with our cookie that we cannot decode: they match on fields that no flow of ours uses."""

    @property
    def connected(self) -> bool:
        """Whether the switch is connected."""
        return self._switch.connected.is_set()

    @property
    def current(self) -> bool:
        """Whether what is seen is what is there."""
        return self.connected and self._generation == self._switch.generation

    def invalidate(self) -> None:
        """Read all flows back before the next change: another program may have changed them."""
        self._generation = None
        self.on_outdated()

    async def compare(self, desired: DesiredFlows, *, remove: bool = True) -> None:
        """Read all flows back, install the missing ones, and with `remove` delete the others of ours."""
        self._check()
        generation = self._switch.generation
        found = await self._switch.flows(self._cookie, self._mask)
        found_meters = await self._switch.meters()
        self._meters = {one: spec for one, spec in found_meters.items() if one in self._own_meters}
        self.seen = {flow.key: flow for flow in found}
        self._generation = generation
        self.counters.compared += 1
        self.refused = {key: error for key, error in self.refused.items() if key in desired.flows}
        gone = [flow for key, flow in self.seen.items() if key not in desired.flows] if remove else []
        gone_meters = [one for one in self._meters if one not in desired.meters] if remove else []
        await self._write(desired.flows.values(), gone, desired.meters, gone_meters)
        self._unread = await self._switch.count(self._cookie, self._mask) - len(self.seen)

    async def recount(self) -> None:
        """Invalidate `seen` if the switch has more or fewer flows of ours."""
        if self.current and await self._switch.count(self._cookie, self._mask) != len(self.seen) + self._unread:
            log.warning("another program changed our flows on the switch")
            self._generation = None

    async def apply(self, delta: Delta) -> None:
        """Install flows and delete others; a meter that is None is deleted."""
        self._check()
        gone = [one for one, spec in delta.meters.items() if spec is None]
        meters = {one: spec for one, spec in delta.meters.items() if spec is not None}
        await self._write(delta.puts, delta.drops, meters, gone)

    def numbers(self) -> Mapping[str, float]:
        """Return the values of this driver's metrics."""
        return {
            "fabric_connected": float(self.connected),
            "fabric_flows": len(self.seen),
            "fabric_flows_refused": len(self.refused),
            "fabric_bundles": self.counters.bundles,
            "fabric_puts": self.counters.puts,
            "fabric_drops": self.counters.drops,
            "fabric_compared": self.counters.compared,
        }

    def _check(self) -> None:
        if not self._may_write():
            self._generation = None  # This change is not written, and another agent may write meanwhile.
            raise Unreachable("another agent may be working on this switch")

    async def _write(
        self,
        puts: Iterable[Flow],
        drops: Iterable[Flow],
        meters: Mapping[int, MeterSpec],
        gone: Iterable[int],
    ) -> None:
        mods: list[Mod] = []
        for flow in drops:
            key = flow.key
            self.refused.pop(key, None)
            if key in self.seen:
                mods.append(Drop(self.seen[key]))
        mods += [Put(flow) for flow in puts if self.seen.get(flow.key) != flow]
        try:
            # A flow needs its meter, and a switch that deletes a meter deletes the flows that use it.
            for number, spec in meters.items():
                if self._meters.get(number) != spec:
                    await self._set_meter(number, spec)
            await self._change(mods)
            for number in gone:
                if number in self._meters:
                    await self._switch.remove_meter(number)
                    del self._meters[number]
                    self.counters.meters += 1
        except NetloomError:
            self._generation = None
            raise

    async def _set_meter(self, number: int, spec: MeterSpec) -> None:
        try:
            await self._switch.set_meter(number, spec.rate_kbps, spec.burst)
        except ChangeRefused as error:  # The switch then refuses the flows that use it, and that is reported.
            log.warning("the switch refuses meter %d: %s", number, error)
            return
        self._meters[number] = spec
        self.counters.meters += 1

    async def _change(self, mods: Sequence[Mod]) -> None:
        """Write one bundle; if it is refused, leave out the flow at fault."""
        while mods:
            self.counters.bundles += 1
            try:
                await self._switch.change(mods)
            except ChangeRefused as error:
                self.counters.refused += 1
                if len(mods) == 1:
                    self._refuse(mods[0], error)
                    return
                # The changes before the refused one are correct; if the switch does not say which it is, halve.
                at = error.index if error.index is not None else len(mods) // 2
                await self._change(mods[:at])
                if error.index is not None:
                    self._refuse(mods[at], error)
                mods = mods[at + (error.index is not None) :]
                continue
            self._applied(mods)
            return

    def _refuse(self, mod: Mod, error: ChangeRefused) -> None:
        self.refused[mod.flow.key] = error.error
        log.error("the switch refuses a flow: %s", error)

    def _applied(self, mods: Sequence[Mod]) -> None:
        for mod in mods:
            key = mod.flow.key
            self.refused.pop(key, None)
            if isinstance(mod, Put):
                self.seen[key] = mod.flow
                self.counters.puts += 1
            else:
                self.seen.pop(key, None)
                self.counters.drops += 1
