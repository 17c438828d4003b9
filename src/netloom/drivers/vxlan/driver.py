"""The flows of the vxlan fabric on the node's switch: which of ours are there, and the changes to them, in bundles.

    new connection ──► read back what is there ──► compare with all that is wanted ──► one bundle, or none
    a change of what is wanted ──► one bundle of what differs
    every few seconds ──► as many as there should be? ──► else read back

`seen` is what the switch has: read back by each new connection, because a switch that was started again has nothing,
and kept by what it has acknowledged since. So what is there already costs no write, and a restart of the agent writes
nothing. Ours are the flows with our cookie, and the meters with our numbers; others on the bridge are left alone.

A bundle is done whole or not at all. Where the switch refuses one, the flow at fault is left out, remembered with the
reason, and the rest is written. Of a bundle that was not answered nothing is known: everything is read back.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from netloom.errors import NetloomError, Unreachable
from netloom.openflow.flows import Flow, Key, MeterSpec
from netloom.openflow.switch import ChangeRefused, Drop, Mod, Put, Switch

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FabricCounters:
    """What was done."""

    bundles: int = 0
    puts: int = 0
    drops: int = 0
    compared: int = 0
    """How often everything was read back and compared."""
    refused: int = 0
    meters: int = 0
    """Meters set or removed."""


@dataclass(slots=True)
class _Work:
    """Some changes on their way."""

    mods: list[Mod] = field(default_factory=list)
    set_meters: dict[int, MeterSpec] = field(default_factory=dict)
    remove_meters: list[int] = field(default_factory=list)


class Fabric:
    """Our flows on the switch."""

    def __init__(
        self,
        switch: Switch,
        *,
        cookie: int,
        cookie_mask: int,
        meters: range,
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        """`meters` are the numbers of ours; `may` says whether we are the one who works on this switch."""
        self.counters = FabricCounters()
        self.refused: dict[Key, str] = {}
        """Flows that the switch does not take, and why."""
        self.unknown: Callable[[], None] = lambda: None
        """Told that it is not known any more what the switch has: it is time to compare."""
        self._switch = switch
        switch.on_connect = lambda: self.unknown()
        self._cookie, self._mask, self._own_meters = cookie, cookie_mask, meters
        self._may = may
        self._seen: dict[Key, Flow] = {}
        self._meters: dict[int, MeterSpec] = {}
        self._generation: int | None = None
        """Of which connection what is seen is."""
        self._unread = 0
        """How many flows with our cookie are there that we cannot read: they match what no flow of ours can."""

    @property
    def seen(self) -> Mapping[Key, Flow]:
        """Our flows that the switch has, as far as is known."""
        return self._seen

    @property
    def connected(self) -> bool:
        """Whether the switch can be spoken to."""
        return self._switch.connected.is_set()

    @property
    def current(self) -> bool:
        """Whether what is seen is what is there."""
        return self.connected and self._generation == self._switch.generation

    def doubt(self) -> None:
        """Have everything read back: somebody may have changed it."""
        self._generation = None
        self.unknown()

    async def compare(
        self, wanted: Mapping[Key, Flow], meters: Mapping[int, MeterSpec], *, remove: bool = True
    ) -> None:
        """Read back what is there, and have the switch have all this, and with `remove` nothing else of ours."""
        self._check()
        generation = self._switch.generation
        found = await self._switch.flows(self._cookie, self._mask)
        found_meters = await self._switch.meters()
        self._meters = {one: spec for one, spec in found_meters.items() if one in self._own_meters}
        self._seen = {flow.key: flow for flow in found}
        self._generation = generation
        self.counters.compared += 1
        self.refused = {key: words for key, words in self.refused.items() if key in wanted}
        gone = [flow for key, flow in self._seen.items() if key not in wanted] if remove else []
        gone_meters = [one for one in self._meters if one not in meters] if remove else []
        await self._write(wanted.values(), gone, meters, gone_meters)
        self._unread = await self._switch.count(self._cookie, self._mask) - len(self._seen)

    async def recount(self) -> None:
        """Have everything read back if the switch has more or fewer flows of ours than it was seen to have."""
        if self.current and await self._switch.count(self._cookie, self._mask) != len(self._seen) + self._unread:
            log.warning("somebody changed our flows on the switch")
            self._generation = None

    async def apply(
        self, puts: Iterable[Flow], drops: Iterable[Flow], meters: Mapping[int, MeterSpec | None] | None = None
    ) -> None:
        """Have some flows and not some others; a meter that is None goes."""
        self._check()
        meters = meters or {}
        gone = [one for one, spec in meters.items() if spec is None]
        await self._write(puts, drops, {one: spec for one, spec in meters.items() if spec is not None}, gone)

    def _check(self) -> None:
        if not self._may():
            self._generation = None  # What was to be written is not, and somebody else may write meanwhile.
            raise Unreachable("another agent works on this switch, or nobody can say")

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
            if key in self._seen:
                mods.append(Drop(self._seen[key]))
        mods += [Put(flow) for flow in puts if self._seen.get(flow.key) != flow]
        try:
            # A flow needs its meter; and a meter that goes takes its flows along.
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
        except ChangeRefused as error:  # Then the flows that use it are refused, too, and that is told.
            log.warning("the switch does not take meter %d: %s", number, error)
            return
        self._meters[number] = spec
        self.counters.meters += 1

    async def _change(self, mods: Sequence[Mod]) -> None:
        """Write in one bundle; if that is refused, all but what is at fault."""
        while mods:
            self.counters.bundles += 1
            try:
                await self._switch.change(mods)
            except ChangeRefused as error:
                self.counters.refused += 1
                if len(mods) == 1:
                    self._blame(mods[0], error)
                    return
                # What stands before the one that was refused was found right; where that is not said, halve.
                at = error.index if error.index is not None else len(mods) // 2
                await self._change(mods[:at])
                if error.index is not None:
                    self._blame(mods[at], error)
                mods = mods[at + (error.index is not None) :]
                continue
            self._note(mods)
            return

    def _blame(self, mod: Mod, error: ChangeRefused) -> None:
        self.refused[mod.flow.key] = error.error
        log.error("the switch refuses a flow: %s", error)

    def _note(self, mods: Sequence[Mod]) -> None:
        for mod in mods:
            key = mod.flow.key
            self.refused.pop(key, None)
            if isinstance(mod, Put):
                self._seen[key] = mod.flow
                self.counters.puts += 1
            else:
                self._seen.pop(key, None)
                self.counters.drops += 1
