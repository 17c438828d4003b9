"""Plugs this node's attachments: device, switch, OVN's word that it works, status.  And unplugs those that are gone.

    attachment Addressed ──► device ──► on the switch ──► addresses, routes ──► installed ──► Plugged, Ready
                             (link)       (vswitch)           (link)       (told by OVN, or by the fabric)

`reconcile` looks at one attachment: what it means here (`plan/node/ports.py`), what the switch and the kernel have,
and does what is missing. It never waits for the switch or for OVN: it returns, and their answer, which is a change in
the local database, or flows that the switch has taken (`control/node/fabric.py`), has the attachment looked at again.
Changes that many attachments need at the same time travel together.

Nothing is remembered but to be quick: ours are the rows with our owner and the pairs with our alias, found again after
any restart; those whose attachment is gone are removed. `_good` says what was found right in the kernel, so that each
word from OVN does not cost a visit to the namespace; a device that is made anew has another index, and is looked at.

Trouble (a namespace that is not there, a name that is taken) is the attachment's condition and is looked at again after
a wait that grows; nothing else is disturbed. What the node's operator does not grant (`plan/node/grants.py`) is
unplugged where it was plugged: it was granted once, or has changed since. While the switch or its database is away,
what was Ready stays Ready: packets flow.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import is_not
from random import Random
from typing import NoReturn

from netloom.control.node.children import Kin, children_of, concerned, family, rivals
from netloom.control.node.hooks import HostHooks
from netloom.control.node.lifetimes import Lifetimes
from netloom.control.node.ports import UP_HEARD, Ports, State
from netloom.control.node.status import PLUGGED, Found, document, settled
from netloom.control.node.views import Neighbourhood, View
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.counters import Histogram
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.queue import Pace
from netloom.drivers.link.trouble import Trouble
from netloom.errors import NetloomError, NotFound
from netloom.model.attachments import NetworkAttachment, PortType
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.ovsdb.errors import TransactionRefused
from netloom.plan import names
from netloom.plan.node.grants import NOT_GRANTED
from netloom.plan.node.ports import Host, PortPlan, plan_port
from netloom.plan.problem import Problem

log = logging.getLogger(__name__)

GRACE = 8.0
"""For how many seconds OVN's word is waited for before people are told that it has not come."""
ASK = 2.0
"""For how many seconds it is waited before OVN is asked to say again what it said before."""
TROUBLE = Pace(0.5, 8.0)
TIDY = 600.0
WORKERS = 64
"""How many attachments are seen to at a time: as many as may travel together, and some."""


@dataclass(slots=True)
class HostCounters:
    """What happened, for whoever exports metrics."""

    plugged: int = 0
    unplugged: int = 0
    statuses: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    to_ready: Histogram = field(default_factory=Histogram)
    """From seeing an attachment with its addresses to Ready."""


class HostKeeper:
    """The attachments of this node."""

    def __init__(
        self,
        client: Client,
        *,
        attachments: Cache[View],
        neighbours: Neighbourhood,
        ports: Ports,
        recorder: Recorder,
        host: Host,
        host_ip: str,
        clock: Clock,
        random: Random,
        lifetimes: Lifetimes | None = None,
        hooks: HostHooks | None = None,
    ) -> None:
        """`hooks` runs programs at interfaces, where that is wanted."""
        self.counters = HostCounters()
        self.lifetimes = lifetimes or Lifetimes(clock=clock)
        self.host = host
        self.amiss: Callable[[PortPlan], Problem | None] = lambda plan: None
        """Says what on this node keeps a port, and every other of its fabric, from being plugged."""
        self.reachable: Callable[[PortPlan], bool] = lambda plan: True
        """Whether who installs a port's flows can be asked."""
        self.hooks = hooks
        self._client = client
        self._attachments = attachments
        self._neighbours = neighbours
        self._ports = ports
        self._recorder = recorder
        self._host_ip = host_ip
        self._clock = clock
        self._random = random
        self._since: dict[Key, float] = {}
        """Since when OVN's word, or an end of trouble, is waited for."""
        self._told_late: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._written: dict[Key, int] = {}
        """The revision of what was last written: an older one need not be answered."""
        self._planned: dict[Key, tuple[tuple[object, ...], PortPlan | Problem | None]] = {}
        """What was last planned, and of what."""
        self._put_off: set[Key] = set()
        """Those with more to tell once what was last written has come back to us."""

    def everything(self) -> set[Key]:
        """Return all that is to be looked at, in the kernel too: attachments, and ports that may have lost theirs."""
        self._ports.doubt()
        left = self.hooks.places() if self.hooks is not None else set()
        return {key for key, _ in self._attachments.items()} | {Key(*place) for place in self._ports.places()} | left

    def attachment_changed(self, change: Change[View]) -> Iterable[Key]:
        """Look at it, unless only what we wrote ourselves has changed; and at whom it is a parent or a rival to."""
        return (*self._itself(change), *concerned(self._attachments, change))

    def with_children(self, keys: Iterable[Key]) -> list[Key]:
        """Return attachments, and those that are a VLAN of their ports."""
        keys = list(keys)
        return keys + [child for key in keys for child in children_of(self._attachments, key)]

    def _itself(self, change: Change[View]) -> Iterable[Key]:
        key = change.key
        if change.new is not None:
            self.lifetimes.heard(change.new.value)
        elif change.old is not None:
            self.lifetimes.gone(change.old.value.metadata.uid)
        if change.new is not None and not change.new.value.status.mac and not self._ports.has(key):
            return ()  # IPAM comes first.
        if change.new is not None and change.new.stored.revision <= self._written.get(key, 0):
            return (key,) if key in self._put_off else ()
        if change.new is None:
            self._written.pop(key, None)
        return (key,)

    def troubled(self) -> list[Key]:
        """Return those in trouble, to be looked at when something happened that may have ended it."""
        return list(self._failures)

    def about(self, key: Key) -> NetworkAttachment | None:
        """Return what an Event about a key is about."""
        view = self._attachments.get(*key)
        return None if view is None else view.value

    async def remind(self, look: Callable[[Key], None]) -> NoReturn:
        """Have those looked at again for which OVN's word has not come in time, until cancelled."""
        while True:
            await asyncio.sleep(GRACE / 4)
            late = asyncio.get_running_loop().time() - GRACE
            for key in [key for key, since in self._since.items() if since <= late and key not in self._told_late]:
                self._told_late.add(key)
                look(key)

    async def tidy(self) -> NoReturn:
        """Remove what crashes left behind, at the start and every now and then, until cancelled."""
        while True:
            veths = [view.value for view in self._attachments if view.value.spec.port.type is PortType.VETH]
            try:
                await self._ports.tidy({names.interface(one.status.mac) for one in veths if one.status.mac})
            except NetloomError as error:
                log.info("leftovers stay for now: %s", error)
            await asyncio.sleep(TIDY * self._random.uniform(0.75, 1.25))

    async def reconcile(self, key: Key) -> float | None:
        """Have one attachment's port as it should be."""
        view = self._attachments.get(*key)
        try:
            again = await self._look(key, view)
        except Trouble as trouble:
            if trouble.word == NOT_GRANTED:
                await self._unplug(key)  # What was plugged while it was granted goes.
            return await self._in_trouble(key, view, trouble)
        except TransactionRefused as error:
            return await self._in_trouble(key, view, Trouble("SwitchRefused", f"the switch's database: {error}"))
        if self.hooks is not None:
            self.hooks.gone(key)
        if again is None:
            self._failures.pop(key, None)
        return again

    async def _look(self, key: Key, view: View | None) -> float | None:
        if view is None and key in self._attachments.undecodable:
            return None  # A newer version's, perhaps: what is there stays as it is until it can be read, or is gone.
        if view is None or view.going:
            self._forget(key)
            await self._unplug(key)
            return None
        plan = self.planned(view)
        if not isinstance(plan, PortPlan):
            await self._ports.clear(key, keep=view.value.metadata.uid)
            if plan is None:
                return None
            raise Trouble.of(plan)
        if not self._ports.has(_port(plan)) and (problem := self.amiss(plan)) is not None:
            raise Trouble.of(problem)
        if key not in self._since:
            self._since[key] = asyncio.get_running_loop().time()
            self._told_late.discard(key)
        state = await self._plug(key, plan)
        if state.installed:
            await self._ready(key, view, plan)
            if self.hooks is not None:
                self.hooks.ready(key, view.value)
            return UP_HEARD if state.down else None
        if state.refused:
            raise Trouble("FlowsRefused", f"the switch does not take the port's flows: {state.refused}")
        waited = asyncio.get_running_loop().time() - self._since[key]
        if state.lost and waited < ASK:
            return ASK - waited
        if state.lost:
            await self._ports.ask_again(plan)
        if waited < GRACE:
            return UP_HEARD if state.down else None  # OVN's word, or the end of our patience, has us look again.
        if state.error:
            raise Trouble(state.word, state.error)
        if self.reachable(plan) or not _was_plugged(view):
            await self._tell(key, view, Found(device=plan.device, fabric=plan.fabric))
        return UP_HEARD if state.down else None

    async def _plug(self, key: Key, plan: PortPlan) -> State:
        if self._ports.has(_port(plan)):
            return await self._ports.ensure(plan)
        with self.lifetimes.timing("plug"):
            return await self._ports.ensure(plan)

    async def _unplug(self, key: Key) -> None:
        if not self._ports.has(key):
            await self._ports.clear(key)
            return
        with self.lifetimes.timing("unplug"):
            self.counters.unplugged += await self._ports.clear(key)

    def _forget(self, key: Key) -> None:
        self._since.pop(key, None)
        self._planned.pop(key, None)
        self._told_late.discard(key)
        self._put_off.discard(key)

    async def _ready(self, key: Key, view: View, plan: PortPlan) -> None:
        since = self._since.pop(key, None)
        self.lifetimes.plugged(view.value)
        if not await self._tell(key, view, Found(device=plan.device, installed=True)):
            return
        self.lifetimes.told(view.value)
        if not _was_plugged(view):
            self.counters.plugged += 1
            if since is not None:
                self.counters.to_ready.observe(asyncio.get_running_loop().time() - since)

    async def _in_trouble(self, key: Key, view: View | None, trouble: Trouble) -> float:
        self.counters.troubles[trouble.word] = self.counters.troubles.get(trouble.word, 0) + 1
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        if view is not None and not view.going and not self._spared(view, trouble):
            device = view.value.status.ifc_name if self._ports.has(key) else ""
            told = await self._tell(key, view, Found(device=device, word=trouble.word, message=trouble.message))
            if told and failures == 1:
                self._recorder.warning(view.value, trouble.word, trouble.message)
        elif failures == 1:
            log.warning("%s: %s", key, trouble.message)
        return TROUBLE.delay(failures, self._random)

    @staticmethod
    def _spared(view: View, trouble: Trouble) -> bool:
        """Whether nothing is to be said: the database is away, and a port that worked works still."""
        return trouble.word == "SwitchUnreachable" and _was_plugged(view)

    async def _tell(self, key: Key, view: View, found: Found) -> bool:
        """Write the status; whether there was anything to write."""
        if view.stored.revision < self._written.get(key, 0):
            self._put_off.add(key)
            return False
        self._put_off.discard(key)
        if self.hooks is not None:
            found = self.hooks.completed(key, view.value, found)
        if settled(view.value, found, self._host_ip):
            return False
        wanted = document(view, found, self._host_ip, self._clock())
        try:
            written = await self._client.replace_status(NETWORK_ATTACHMENT, wanted)
        except NotFound:
            return False  # Deleted, of which we are about to hear.
        self._written[key] = written.revision
        self.counters.statuses += 1
        if self.hooks is not None:
            self.hooks.told(view.value, found)
        return True

    def planned(self, view: View) -> PortPlan | Problem | None:
        """Return what an attachment means here; None: nothing yet."""
        around = self._neighbours.network(view.network)
        if around is None:
            return None
        network, subnets = around
        key = Key(view.stored.namespace, view.stored.name)
        planned = self._planned.get(key)
        # The very same values are what makes planning again needless; comparing them costs more than planning.
        kin = self._kin(view) if view.parent else ()
        made_of = (view, network, self.host, *kin, *subnets)
        if planned is None or len(planned[0]) != len(made_of) or any(map(is_not, planned[0], made_of)):
            plan = plan_port(view.value, network, subnets, self.host, family(kin) if kin else None)
            planned = self._planned[key] = made_of, plan
        return planned[1]

    def _kin(self, view: View) -> Kin:
        """Return what a child is planned from besides: its parent, what that comes to, and its rivals."""
        parent = None if view.parent is None else self._attachments.get(*view.parent)
        if parent is None or parent.going:
            return (None, None, None)
        around = self._neighbours.network(parent.network)
        # One that is itself a child comes to nothing here; two could be each other's.
        plan = None if parent.parent else self.planned(parent)
        return (parent, plan, around and around[0], *rivals(self._attachments, view))


def _port(plan: PortPlan) -> Key:
    """Return the attachment whose interface carries a port."""
    return Key(plan.namespace, plan.parent or plan.name)


def _was_plugged(view: View) -> bool:
    was = view.value.status.condition(PLUGGED)
    return was is not None and was.status == TRUE
