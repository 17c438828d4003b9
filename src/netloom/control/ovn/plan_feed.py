"""From resources to plans, and from plans to a sink: OVN's northbound database, or none.

    informers ──► World.put, remove ──► slices ──► Delta ──► Sink.follow ──► conditions (`status`)
                        ▲ the first change of a burst at once, the others together

One task does it all, in turns, while this process leads. It starts with a comparison of everything (`Sink.resync`):
rows that are missing are written, and rows of ours that are no longer desired are removed. So a deleted resource needs
no finalizer for its rows: even if no process saw the deletion, the comparison finds the rows that nothing desires.
After that only changes are processed. Everything is compared again periodically, and when the sink asks for it.

A resource that cannot be decoded (one of a newer version, for example) does not count as deleted: its rows stay as they
are, and while there is one, a comparison of everything removes nothing. Deletions that are observed are still carried
out.

After any failure the next turn compares everything: what was being written may have arrived or not.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from random import Random
from typing import Any, NamedTuple, NoReturn

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import always
from netloom.control.runtime.counters import Histogram
from netloom.control.runtime.queue import Pace
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.kinds.cluster import Node
from netloom.plan.node.grants import NO_PROVIDERS, ProviderRefusal
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.ovn.layer2.mirrors import rerouted
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.vxlan.limits import counted
from netloom.plan.world.inputs import ATTACHMENT, Port
from netloom.signals import Signal

BATCH_SECONDS = 0.02
"""How long to wait after a write for more changes: OVN is fastest with groups of 20 to 50 ports."""
PACE = Pace(0.1, 10.0)
UNCERTAIN_SECONDS = 0.1
SLICE = 500
"""How many resources to plan at once, before other tasks get their turn."""

logger = logging.getLogger(__name__)


class Followed(NamedTuple):
    """The result of `Sink.follow`."""

    units: set[Unit]
    """The resources whose refusals changed."""
    wrote: bool


class Sink:
    """Where plans go.  By default it takes all of them at once, and writes nothing."""

    name: str
    """For logs."""
    success: str
    """What a status says of a resource that is planned and written."""
    sweep: float | None
    """Seconds between two comparisons of everything; None: it needs none."""
    on_problem: Signal[[]]
    """Sent when everything must be compared."""

    def refusal(self, unit: Unit) -> Problem | None:
        """Return why the sink does not take a resource, if so."""
        return None

    def refused(self) -> Iterable[Unit]:
        """Return the resources whose refusals may differ from what their statuses say."""
        return ()

    def newly_needed(self, unit: Unit) -> Iterable[Attachment]:
        """Return the attachments that must be planned from now on because a resource refers to them."""
        return ()

    def needs(self, attachment: Attachment) -> bool:
        """Return whether an attachment must be planned."""
        return True

    def is_connected(self) -> bool:
        """Return whether the sink can take plans now."""
        return True

    async def connected(self) -> None:
        """Wait until the sink can take plans."""

    async def follow(self, desired: DesiredRows, deltas: Iterator[Delta]) -> Followed:
        """Write changes as they are planned."""
        wrote = False
        for _ in deltas:
            wrote = True
            await asyncio.sleep(0)  # Other tasks have waited.
        return Followed(set(), wrote)

    async def resync(self, desired: DesiredRows, *, repairing: bool, keep: bool) -> set[Unit]:
        """Write everything that differs; return the resources whose refusals changed.

        With `repairing` another writer made all differences, and they are reported. With `keep` nothing is removed.
        """
        return set()


class PlanFeed:
    """Feeds resources to the planner, and what it plans to a sink."""

    def __init__(
        self,
        sink: Sink,
        *,
        random: Random,
        fence: Callable[[], bool] = always,
        caches: Mapping[str, Cache[Any]] | None = None,
        refusal: ProviderRefusal = NO_PROVIDERS.refusal,
    ) -> None:
        """`caches` know which objects of a kind cannot be decoded.

        `refusal` returns why a Network may not join its physical network.
        """
        self.planner = Planner(refusal)
        self.sink = sink
        self.on_programmed: Signal[[set[Unit] | None]] = Signal()
        """Sent with the resources whose rows the sink has now, or whose problems changed; None: all of them."""
        self.programmed: dict[Unit, int] = {}
        """The generations of resources, attachments aside, that the sink has."""
        self.in_step = False
        """Whether the sink has everything that is desired, since this process leads."""
        self.lag = Histogram()
        """From receiving a change to its being in the sink."""
        self.sweeps = 0
        self._wrote = 0.0
        self._was_in_step = False
        self._random = random
        self._fence = fence
        self._caches = caches or {}
        self._wake = asyncio.Event()
        self._resync = True
        self._since: float | None = None
        self._pending: dict[Unit, int] = {}
        """Generations that the planner has and the sink has not."""
        self._writing: dict[Unit, int] = {}
        """Those of them that are being written."""
        self._moved: set[str] = set()
        """Namespaces in which attachments were created, changed or deleted."""
        sink.on_problem.connect(self.resync)

    def ready(self, *, leading: bool) -> bool:
        """Return whether the sink had everything once; in a process that does not lead, whether it is connected."""
        return self._was_in_step or (not leading and self.sink.is_connected())

    # Input.

    def changed(self, kind: str, change: Change[Resource]) -> None:
        """Process the change of a resource."""
        unit, new = Unit(kind, *change.key), change.new
        if self._is_undecodable(unit):
            return
        if new is None:
            self._plan(unit, None)
            for generations in (self._pending, self._writing, self.programmed):
                generations.pop(unit, None)  # A new resource of the same name starts from the beginning.
            return
        for attachment in self.sink.newly_needed(unit):
            self._moved.add(unit.namespace)
            self._plan(Unit(ATTACHMENT, *attachment.key), planner_input(attachment))
        if self._plan(unit, new):
            self._pending[unit] = new.metadata.generation

    def attachment_changed(self, change: Change[Attachment]) -> None:
        """Process the change of an attachment."""
        unit, old, new = Unit(ATTACHMENT, *change.key), change.old, change.new
        if self._is_undecodable(unit):
            return
        needed = new is not None and self.sink.needs(new)
        if not needed and (old is None or not self.sink.needs(old)):
            return
        self._moved.add(unit.namespace)
        self._plan(unit, planner_input(new) if new is not None and needed else None)

    def _plan(self, unit: Unit, new: Resource | Port | None) -> bool:
        self._call()
        try:
            if new is None:
                self.planner.world.remove(unit)
            else:
                self.planner.world.put(new)
        except Exception:  # The edge: one unexpected object must not stop the informer.
            logger.exception("cannot plan %s", unit)
            return False
        return True

    def _is_undecodable(self, unit: Unit) -> bool:
        cache = self._caches.get(unit.kind)
        return cache is not None and (unit.namespace, unit.name) in cache.undecodable

    def resync(self) -> None:
        """Compare everything in the next turn."""
        self._resync = True
        self._call()

    def _call(self) -> None:
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        self._wake.set()

    # The loop.

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        self.in_step = False
        failures = 0
        while True:
            try:
                await self.sink.connected()
                await self._turn()
                failures = 0
            except NetloomError as error:
                failures += 1
                logger.warning("%s is not in step yet: %s", self.sink.name, error)
            except Exception:  # The task's edge: a bug here must not end the process.
                failures += 1
                logger.exception("%s is not in step yet", self.sink.name)
            if failures:
                self._resync = True
                await asyncio.sleep(PACE.delay(failures, self._random))

    async def _turn(self) -> None:
        sweeping = self.in_step and not await self._called()
        if not self._fence():
            await asyncio.sleep(UNCERTAIN_SECONDS)
            self._call()
            return
        everything = self._resync or not self.in_step or sweeping
        self._resync = False
        self._wake.clear()
        since, self._since = self._since, None
        pending, self._pending = self._pending, {}
        self._writing = pending
        try:
            await self._flush(everything=everything)
        except BaseException:
            self._pending = pending | self._pending
            raise
        new = {unit for unit, generation in pending.items() if self.programmed.get(unit) != generation}
        self.programmed |= pending
        moved, self._moved = self._moved, set()
        world = self.planner.world
        restated = counted(world, moved) | rerouted(world, moved, any(unit.kind == Node.__name__ for unit in new))
        self.on_programmed(pending.keys() | restated if self.in_step else None)
        if not self.in_step:
            self.in_step = self._was_in_step = True
            logger.info("%s is in step", self.sink.name, extra={"rows": len(self.planner.desired.rows)})
        if since is not None:
            self.lag.observe(asyncio.get_running_loop().time() - since)

    async def _called(self) -> bool:
        """Wait for changes, and soon after a write for more of them; return False when it is time for a sweep."""
        sweep = self.sink.sweep
        try:
            async with asyncio.timeout(None if sweep is None else sweep * self._random.uniform(0.75, 1.25)):
                await self._wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(max(0.0, self._wrote + BATCH_SECONDS - asyncio.get_running_loop().time()))
        return True

    async def _flush(self, *, everything: bool) -> None:
        concerned: set[Unit] = set()

        def noted() -> Iterator[Delta]:
            of = self.planner.desired.of
            for delta in deltas:
                concerned.update(delta.problems)
                # The SecurityProfiles whose port groups gained or lost members.
                groups = {
                    one.row for some in (delta.joined, delta.left) for one in some if one.row.table == "Port_Group"
                }
                concerned.update(unit for ref in groups if (unit := of.get(ref)) is not None)
                yield delta

        with closing(self.planner.slices(SLICE)) as deltas:
            if self.in_step:
                followed = await self.sink.follow(self.planner.desired, noted())
                if followed.wrote:
                    self._wrote = asyncio.get_running_loop().time()
                self.on_programmed(followed.units | concerned)
            for _ in deltas:
                await asyncio.sleep(0)  # Other tasks have waited.
        if everything:
            unread = sum(len(cache.undecodable) for cache in self._caches.values())
            if unread:
                logger.warning(
                    "nothing is removed from %s while objects cannot be decoded",
                    self.sink.name,
                    extra={"objects": unread},
                )
            units = await self.sink.resync(self.planner.desired, repairing=self.in_step, keep=bool(unread))
            self.sweeps += 1
            self.on_programmed(units)


def planner_input(attachment: Attachment) -> Port:
    """Return the part of an attachment that a plan reads."""
    metadata = attachment.metadata
    return Port(
        namespace=metadata.namespace,
        name=metadata.name,
        node=attachment.node,
        network=attachment.network,
        ips=attachment.has_ips,
        mac=attachment.has_mac,
        vni=attachment.vni or None,
        labels=attachment.labels,
        profiles=attachment.profiles,
        allowed_addresses=attachment.allowed,
        parent=attachment.parent,
        vlan=attachment.vlan,
        forwarding=attachment.forwarding,
        link_down=attachment.link_down,
        type=attachment.type,
    )
