"""From wishes to OVN: resources go into the planner, what it plans goes to the northbound database.

    informers ──► Planner.put, remove ──► flush ──► Delta ──► Northbound.apply ──► conditions (`status`)
                        ▲ the first of a burst at once, the others together

One task does it all, in turns; it runs while this process leads. It begins with a look at everything there is: what is
missing in the database is written, and what is ours there and not wanted any more is removed. So a resource that is
deleted needs no finalizer for its rows: even if nobody was there to see it go, its rows are found without a wish, and
go. After that only what changes is looked at. Every few minutes, after a new connection, and when the driver finds
something amiss, everything is compared again; what somebody else changed in our rows is put back, counted and told.

A resource that cannot be read (a newer version's, perhaps) is not one that is gone: its rows stay as they are, and
while there is one, a look at everything takes nothing away; what is seen to be deleted still goes.

Whatever goes wrong with the database, the next turn looks at everything: what was on its way may have arrived or not.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from random import Random
from typing import Any, NoReturn

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import always
from netloom.control.runtime.counters import Histogram
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.queue import Pace
from netloom.drivers.northbound.driver import Applied, Northbound
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.events import ObjectReference
from netloom.plan.node.grants import NO_PROVIDERS, ProviderRefusal
from netloom.plan.ovn.desired import Delta
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.vxlan.limits import counted
from netloom.plan.world.inputs import ATTACHMENT, Port
from netloom.signals import Signal

TOGETHER = 0.02
"""How long after a write more changes are waited for, in seconds: OVN is quickest with groups of 20 to 50 ports."""
SWEEP = 300.0
PACE = Pace(0.1, 10.0)
UNCERTAIN = 0.1
SLICE = 500
"""How many resources are planned at once, before others get their turn."""
LONG = 10.0

logger = logging.getLogger(__name__)


class Logical:
    """Keeps a northbound database in step with the resources."""

    where = "it is in OVN's northbound database"

    def __init__(
        self,
        north: Northbound,
        *,
        recorder: Recorder,
        random: Random,
        fence: Callable[[], bool] = always,
        about: Callable[[Unit], Resource | ObjectReference | None] = lambda _unit: None,
        caches: Mapping[str, Cache[Any]] | None = None,
        sweep: float = SWEEP,
        refusal: ProviderRefusal = NO_PROVIDERS.refusal,
    ) -> None:
        """`about` finds the resource of a unit, for Events; `caches` know which objects of a kind cannot be read.

        `refusal` says which Networks may not join their physical networks.
        """
        self.planner = Planner(refusal)
        self.north = north
        self.on_programmed: Signal[[set[Unit] | None]] = Signal()
        """Sent with the resources whose rows are in the database now, or whose problems changed; None: all of them."""
        self.programmed: dict[Unit, int] = {}
        """The generations of resources, attachments aside, that the database has."""
        self.in_step = False
        """Whether the database was made what is wanted, since this process leads."""
        self.lag = Histogram()
        """From hearing of a change to its being in the database."""
        self.sweeps = 0
        self._wrote = 0.0
        self._ever = False
        self._recorder = recorder
        self._random = random
        self._fence = fence
        self._about = about
        self._caches = caches or {}
        self._sweep = sweep
        self._wake = asyncio.Event()
        self._everything = True
        self._since: float | None = None
        self._heard: dict[Unit, int] = {}
        """Generations that the planner was given and the database has not got yet."""
        self._moved: set[str] = set()
        """Namespaces in which attachments came, went or changed."""
        self._underway: dict[Unit, int] = {}
        """Those of them that are being written."""
        north.on_problem.connect(self.look_at_everything)

    def ready(self, *, leading: bool) -> bool:
        """Whether the database was made what is wanted, once; by who stands by, whether it could be."""
        return self._ever or (not leading and self.north.client.synced.is_set())

    @property
    def refusals(self) -> Mapping[Unit, Problem]:
        """What the database will not take, and why."""
        return self.north.problems

    # What is wanted.

    def changed(self, kind: str, change: Change[Resource]) -> None:
        """Take in what became of a resource."""
        unit = Unit(kind, *change.key)
        if self._is_unread(unit):
            return
        try:
            if change.new is None:
                self.planner.remove(unit)
                for generations in (self._heard, self._underway, self.programmed):
                    generations.pop(unit, None)  # One of the same name that comes next begins anew.
            else:
                self.planner.put(change.new)
                self._heard[unit] = change.new.metadata.generation
        except Exception:  # The edge: one object nobody thought of must not stop the informer.
            logger.exception("cannot take in %s", unit)
        self._call()

    def attachment_changed(self, change: Change[Attachment]) -> None:
        """Take in what became of an attachment."""
        unit = Unit(ATTACHMENT, *change.key)
        if self._is_unread(unit):
            return
        self._moved.add(unit.namespace)
        try:
            if change.new is None:
                self.planner.remove(unit)
            else:
                self.planner.put(face(change.new))
        except Exception:  # As above.
            logger.exception("cannot take in attachment %s", change.key)
        self._call()

    def _is_unread(self, unit: Unit) -> bool:
        cache = self._caches.get(unit.kind)
        return cache is not None and (unit.namespace, unit.name) in cache.undecodable

    def look_at_everything(self) -> None:
        """Compare everything, soon."""
        self._everything = True
        self._call()

    def _call(self) -> None:
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        self._wake.set()

    # The loop.

    async def run(self) -> NoReturn:
        """Keep in step until cancelled."""
        self.in_step = False
        failures = 0
        while True:
            try:
                await self._connected()
                await self._turn()
                failures = 0
            except NetloomError as error:
                failures += 1
                logger.warning("the northbound database is not in step yet: %s", error)
            except Exception:  # The task's edge: a bug here must not end the process.
                failures += 1
                logger.exception("the northbound database is not in step yet")
            if failures:
                self._everything = True
                await asyncio.sleep(PACE.delay(failures, self._random))

    async def _connected(self) -> None:
        """Wait for the database; say so when it takes long."""
        synced = self.north.client.synced
        while not synced.is_set():
            try:
                async with asyncio.timeout(LONG):
                    await synced.wait()
            except TimeoutError:
                logger.warning("no connection to the northbound database yet: %s", self.north.client.remote)

    async def _turn(self) -> None:
        sweeping = self.in_step and not await self._called()
        if not self._fence():
            await asyncio.sleep(UNCERTAIN)
            self._call()
            return
        everything = self._everything or not self.in_step or sweeping
        self._everything = False
        self._wake.clear()
        since, self._since = self._since, None
        heard, self._heard = self._heard, {}
        self._underway = heard
        try:
            await self._flush(everything=everything)
        except BaseException:
            self._heard = heard | self._heard
            raise
        self.programmed |= heard
        moved, self._moved = self._moved, set()
        self.on_programmed(heard.keys() | counted(self.planner.world, moved) if self.in_step else None)
        if not self.in_step:
            self.in_step = self._ever = True
            logger.info("the northbound database is in step", extra={"rows": len(self.planner.wanted.rows)})
        if since is not None:
            self.lag.observe(asyncio.get_running_loop().time() - since)

    async def _flush(self, *, everything: bool) -> None:
        wanted = self.planner.wanted
        with closing(self.planner.slices(SLICE)) as deltas:
            if self.in_step:
                await self._follow(deltas)
            for _ in deltas:
                await asyncio.sleep(0)  # Others have waited.
        if everything:
            unread = sum(len(cache.undecodable) for cache in self._caches.values())
            if unread:
                logger.warning("nothing is removed from OVN while objects cannot be read", extra={"objects": unread})
            applied = await self.north.apply(wanted, repairing=self.in_step, keep=bool(unread))
            self.sweeps += 1
            self._tell_repairs(applied)
            self.on_programmed(applied.told)

    async def _called(self) -> bool:
        """Wait for something to do, and soon after a write for more of it; say whether that was before the sweep."""
        try:
            async with asyncio.timeout(self._sweep * self._random.uniform(0.75, 1.25)):
                await self._wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(max(0.0, self._wrote + TOGETHER - asyncio.get_running_loop().time()))
        return True

    async def _follow(self, deltas: Iterator[Delta]) -> None:
        """Write what changed, as it is planned."""
        concerned: set[Unit] = set()

        def noted(several: Iterable[Delta]) -> Iterator[Delta]:
            for delta in several:
                concerned.update(delta.problems, self._filled(delta))
                yield delta

        first = next(deltas, None)
        second = next(deltas, None)
        if first is None:
            return
        if second is None:
            applied = await self.north.apply(self.planner.wanted, *noted([first]))
        else:
            applied = await self.north.apply_each(self.planner.wanted, noted(chain((first, second), deltas)))
        if applied.transactions:
            self._wrote = asyncio.get_running_loop().time()
        self.on_programmed(applied.told | concerned)

    def _filled(self, delta: Delta) -> set[Unit]:
        """Return the SecurityProfiles that somebody joined or left."""
        of = self.planner.wanted.of
        rows = {one.row for members in (delta.joined, delta.left) for one in members if one.row.table == "Port_Group"}
        return {unit for ref in rows if (unit := of.get(ref)) is not None}

    def _tell_repairs(self, applied: Applied) -> None:
        for unit, text in applied.repaired.items():
            if (about := self._about(unit)) is not None:
                self._recorder.warning(about, "Repaired", f"somebody else changed its rows in OVN, put back: {text}")


def face(view: Attachment) -> Port:
    """Return what of an attachment matters to the plan."""
    meta = view.metadata
    return Port(
        meta.namespace,
        meta.name,
        view.node,
        view.network,
        view.has_ips,
        view.has_mac,
        view.vni or None,
        view.labels,
        view.profiles,
        view.allowed,
        view.parent,
        view.vlan,
    )
