"""Plans without OVN: what stands in the way of wishes is told, though there is no database to write them to.

    informers ──► Planner.put, remove ──► flush ──► problems ──► conditions (`status`)

In a cluster where VXLAN carries all Networks nobody runs OVN. SecurityProfiles and Shapings are then done by the nodes
themselves; Routers, LoadBalancers and Mirrors by nobody, and are told so. This stands where `Logical` stands otherwise.

Attachments are planned only where that tells somebody something: where they name a profile, or where something in their
namespace speaks of attachments. Most clusters have tens of thousands that nobody speaks of.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NoReturn

from netloom.control.ipam.views import Attachment
from netloom.control.ovn.northbound_sync import TOGETHER, face
from netloom.control.runtime.cache import Change
from netloom.model.document import Resource
from netloom.plan.node.grants import NO_PROVIDERS, ProviderRefusal
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.vxlan.limits import counted
from netloom.plan.world.inputs import ATTACHMENT
from netloom.signals import Signal

logger = logging.getLogger(__name__)

NEED_OVN = frozenset(("Router", "LoadBalancer", "Mirror"))
SPEAK_OF_ATTACHMENTS = frozenset(("LoadBalancer", "Mirror", "SecurityProfile", "Shaping"))
MISSING = "this cluster runs without OVN, and a {} needs it: give the controllers --ovn-nb and --ovn-sb, or take it out"


class Planning:
    """Keeps plans in step with the resources, and does nothing with them."""

    where = "the nodes it concerns do it by themselves"

    def __init__(
        self, attachments: Callable[[], Iterable[Attachment]], refusal: ProviderRefusal = NO_PROVIDERS.refusal
    ) -> None:
        """`attachments` gives all there are; `refusal`: which Networks may not join their physical networks."""
        self.planner = Planner(refusal)
        self.on_programmed: Signal[[set[Unit] | None]] = Signal()
        """Sent with the resources whose status may have changed; None: all of them."""
        self.programmed: dict[Unit, int] = {}
        """The generations of resources that were planned, attachments aside."""
        self.in_step = False
        self.refusals: dict[Unit, Problem] = {}
        self._heard: dict[Unit, int] = {}
        self._moved: set[str] = set()
        """Namespaces in which attachments came, went or changed."""
        self._wake = asyncio.Event()
        self._attachments = attachments
        self._spoken_of: set[str] = set()
        """Namespaces in which something speaks of attachments, or did."""

    def changed(self, kind: str, change: Change[Resource]) -> None:
        """Take in what became of a resource."""
        unit = Unit(kind, *change.key)
        if change.new is None:
            self._take(partial(self.planner.remove, unit))
            for known in (self._heard, self.programmed, self.refusals):
                known.pop(unit, None)
            return
        if kind in SPEAK_OF_ATTACHMENTS:
            self._speak(unit.namespace)
        if kind in NEED_OVN:
            self.refusals[unit] = Problem("OvnMissing", MISSING.format(kind))
        self._take(partial(self.planner.put, change.new))
        self._heard[unit] = change.new.metadata.generation

    def attachment_changed(self, change: Change[Attachment]) -> None:
        """Take in what became of an attachment."""
        if not any(map(self._matters, (change.old, change.new))):
            return
        unit = Unit(ATTACHMENT, *change.key)
        self._moved.add(unit.namespace)
        if change.new is not None and self._matters(change.new):
            self._take(partial(self._put, change.new))
        else:
            self._take(partial(self.planner.remove, unit))

    def _matters(self, view: Attachment | None) -> bool:
        if view is None:
            return False
        # Of a child more would have to be known, and that it needs OVN its node's agent says.
        return view.metadata.namespace in self._spoken_of or bool(view.profiles and not view.parent)

    def _speak(self, namespace: str) -> None:
        if namespace in self._spoken_of:
            return
        self._spoken_of.add(namespace)
        self._moved.add(namespace)
        for view in self._attachments():
            if view.metadata.namespace == namespace:
                self._take(partial(self._put, view))

    def _put(self, view: Attachment) -> None:
        self.planner.put(face(view))

    def _take(self, change: Callable[[], None]) -> None:
        try:
            change()
        except Exception:  # The edge: one object nobody thought of must not stop the informer.
            logger.exception("cannot take in a change")
        self._wake.set()

    async def run(self) -> NoReturn:
        """Keep in step until cancelled."""
        self.in_step = False
        while True:
            if self.in_step:
                await self._wake.wait()
                await asyncio.sleep(TOGETHER)
            self._wake.clear()
            heard, self._heard = self._heard, {}
            moved, self._moved = self._moved, set()
            concerned = set(self.planner.flush().problems) | heard.keys()
            self.programmed |= heard
            concerned |= counted(self.planner.world, moved)
            self.on_programmed(concerned if self.in_step else None)
            self.in_step = True
