"""Plugs this node's attachments: device, interface on the switch, flows, status.  Unplugs those that are gone.

    attachment Addressed ──► device ──► on the switch ──► addresses, routes ──► installed ──► Plugged, Ready
                             (link)       (vswitch)           (link)      (reported by OVN, or by the vxlan fabric)

`reconcile` handles one attachment: it plans its port (`plan/node/ports.py`), compares with the switch and the kernel,
and does what is missing. It never waits for the switch or for OVN: it returns, and their result, which is a change in
the local database, or flows that the switch has accepted (`control/node/fabrics/fabric.py`), enqueues the attachment
again. Changes of many attachments at the same time share transactions.

All state is found again after a restart: ours are the rows with our owner and the pairs with our alias; those whose
attachment is gone are removed. A pod's port also needs a container runtime to ask for it (`pods.py`). What `Ports`
keeps in memory only saves visits to network namespaces.

A problem (a missing namespace, a name that is taken) becomes the attachment's condition, and is retried after a wait
that grows; other attachments are not affected. A port that the node's operator does not grant (`plan/node/grants.py`)
is unplugged if it was plugged before, as after a change of the grants or of the attachment. While the switch or its
database is away, an attachment that was Ready stays Ready: packets are still forwarded.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn

from netloom.control.node.local_ports.hooks import HookRunner
from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.control.node.local_ports.port_planner import PortPlanner
from netloom.control.node.local_ports.ports import UP_NOTICED, Ports, PortState
from netloom.control.node.local_ports.status import PlugResult, document, settled
from netloom.control.node.switch import NodeSwitch
from netloom.control.node.views import NETNS, AttachmentView
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.queue import Pace
from netloom.drivers.vswitch.driver import AttachmentName
from netloom.errors import NetloomError, NotFound
from netloom.model.conditions import PLUGGED
from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.paths import Shaping
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.ovsdb.errors import TransactionRefused
from netloom.plan import names
from netloom.plan.node.bridges import PROFILES_UNSUPPORTED
from netloom.plan.node.grants import NOT_GRANTED
from netloom.plan.node.ports import PortPlan
from netloom.plan.pools import is_pooled
from netloom.plan.problem import Problem, ProblemError, Waiting

log = logging.getLogger(__name__)

GRACE = 8.0
"""Seconds to wait for OVN before the condition says that it has not installed the port."""
RECOMPUTE_AFTER = 2.0
"""Seconds to wait before OVN is asked for a recompute."""
RETRY = Pace(0.5, 8.0)
TIDY = 600.0
"""Seconds between two searches for leftovers."""
WORKERS = 64
"""Attachments that are reconciled at a time: somewhat more than fit into one transaction."""


@dataclass(slots=True)
class AttachmentCounters:
    """Counters for the metrics."""

    plugged: int = 0
    unplugged: int = 0
    statuses: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    """By reason."""


class AttachmentReconciler:
    """The attachments of this node."""

    def __init__(
        self,
        client: Client,
        *,
        attachments: Cache[AttachmentView],
        planner: PortPlanner,
        ports: Ports,
        switch: NodeSwitch,
        hooks: HookRunner,
        recorder: Recorder,
        lifetimes: Lifetimes,
        host_ip: str,
        clock: Clock,
        random: Random,
    ) -> None:
        self.counters = AttachmentCounters()
        self._client = client
        self._attachments = attachments
        self._planner = planner
        self._ports = ports
        self._switch = switch
        self._hooks = hooks
        self._recorder = recorder
        self._lifetimes = lifetimes
        self._host_ip = host_ip
        self._clock = clock
        self._random = random
        self._bridges = switch.bridges()
        self._waiting_since: dict[Key, float] = {}
        """When attachments began to wait for OVN, or for the end of a problem."""
        self._without_sandbox: set[Key] = set()
        """The attachments of pods that wait for the container runtime."""
        self._reported_late: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._written: dict[Key, int] = {}
        """The revision of the last status written: a change of an older revision needs no answer."""
        self._postponed: set[Key] = set()
        """The attachments with another status to write once the last one has come back by the watch."""

    # What to reconcile.

    def all_keys(self) -> set[Key]:
        """Return the attachments, and those that left a port or a program behind; read all devices again."""
        self._ports.invalidate()
        return {key for key, _ in self._attachments.items()} | self._ports.attachments() | self._hooks.attachments()

    def attachment_changed(self, change: Change[AttachmentView]) -> Iterable[Key]:
        """Yield the attachment, unless only our own status changed, and the others that the change affects."""
        key, old, new = change.key, change.old, change.new
        if new is not None:
            self._lifetimes.heard(new.value)
        elif old is not None:
            self._lifetimes.gone(old.value.metadata.uid)
            self._written.pop(key, None)
        if new is not None and not new.value.status.mac and not self._ports.has(key):
            pass  # IPAM comes first.
        elif new is None or new.stored.revision > self._written.get(key, 0) or key in self._postponed:
            yield key
        yield from self._planner.affected(change)

    def interfaces_changed(self, names: Iterable[AttachmentName]) -> Iterable[Key]:
        """Return the attachments whose interfaces changed, and their children."""
        return self._planner.with_children(Key(*name) for name in names)

    def in_namespace(self, namespace: str) -> Iterable[Key]:
        """Return the attachments in a namespace."""
        return [Key(one.stored.namespace, one.stored.name) for one in self._attachments.indexed("namespace", namespace)]

    def shaping_changed(self, change: Change[Shaping]) -> Iterable[Key]:
        """Return the attachments that a Shaping starts at, before and after."""
        ends = [one.spec.from_.attachment for one in (change.old, change.new) if one is not None]
        return {Key(change.key.namespace, name) for name in ends if name}

    def relay_ended(self, device: str) -> Iterable[Key]:
        """Return the attachments behind a relay."""
        return {key for key, view in self._attachments.items() if names.interface(view.value.status.mac) == device}

    def switch_changed(self) -> Iterable[Key]:
        """Return those to reconcile when bridges or the switch's own row changed.

        A bridge that was made again has lost its ports: then it is all of them. Otherwise the change may have ended a
        problem.
        """
        before, self._bridges = self._bridges, self._switch.bridges()
        if any(now is not None and now != then for then, now in zip(before, self._bridges, strict=True)):
            return self.all_keys() | self._failures.keys()
        return list(self._failures)

    def event_target(self, key: Key) -> NetworkAttachment | None:
        """Return the object of an Event about a key."""
        view = self._attachments.get(*key)
        return None if view is None else view.value

    # Chores.

    async def remind(self, enqueue: Callable[[Key], None]) -> NoReturn:
        """Enqueue the attachments for which OVN is late, until cancelled."""
        while True:
            await asyncio.sleep(GRACE / 4)
            late = asyncio.get_running_loop().time() - GRACE
            waiting = [key for key, since in self._waiting_since.items() if since <= late]
            for key in [key for key in waiting if key not in self._reported_late]:
                self._reported_late.add(key)
                enqueue(key)

    async def tidy(self) -> NoReturn:
        """Remove what crashes left behind, at the start and every now and then, until cancelled."""
        while True:
            made = self._ports.sandboxes
            all_ports = [(view.value, view.value.spec.port.type) for view in self._attachments]
            veths = [one for one, port in all_ports if port is PortType.VETH or (port is PortType.POD and made.of(one))]
            try:
                wanted = {names.interface(one.status.mac) for one in veths if one.status.mac}
                plans = [self._planner.plan(view) for view in self._attachments]
                await self._ports.tidy(wanted | {plan.device for plan in plans if isinstance(plan, PortPlan)})
                await self._ports.release_namespaces(self._is_netns_needed)
            except NetloomError as error:
                log.info("leftovers are not removed yet: %s", error)
            await asyncio.sleep(TIDY * self._random.uniform(0.75, 1.25))

    # Reconciling.

    async def reconcile(self, key: Key) -> float | None:
        """Plug or unplug one attachment; return the seconds after which to do so again, if any."""
        view = self._attachments.get(*key)
        try:
            again = await self._reconcile(key, view)
        except ProblemError as error:
            if error.problem.reason in (NOT_GRANTED, PROFILES_UNSUPPORTED):
                await self._unplug(key)  # It may have been plugged while it was granted, or not restricted.
            return await self._report(key, view, error.problem)
        except TransactionRefused as error:
            return await self._report(key, view, Problem("SwitchRefused", f"the switch's database: {error}"))
        self._hooks.removed(key)
        if again is None:
            self._failures.pop(key, None)
        return again

    async def _reconcile(self, key: Key, view: AttachmentView | None) -> float | None:
        if view is None and key in self._attachments.undecodable:
            return None  # Perhaps of a newer version: its port stays until the attachment can be read, or is gone.
        if view is None or view.going:
            self._planner.forget(key)
            self._waiting_since.pop(key, None)
            self._without_sandbox.discard(key)
            self._reported_late.discard(key)
            self._postponed.discard(key)
            await self._unplug(key)
            return None
        plan = self._planner.plan(view)

        def is_current() -> bool:
            return view.value.spec.port.type is not PortType.POD or self._planner.plan(view) is plan

        if isinstance(plan, Waiting):
            meta = view.value.metadata
            # A port that was made ahead stays for the pod that it was given to; with a pod that ends, DEL removes it.
            await self._ports.clear(key, keep=meta.uid if is_pooled(meta.labels) else "", is_current=is_current)
            if not self._ports.has(key):
                await self._waiting(key, view, plan)
            return None
        if not isinstance(plan, PortPlan):
            await self._ports.clear(key, keep=view.value.metadata.uid)
            if plan is None:
                return None
            raise ProblemError(*plan)
        if not self._ports.has(_carrier(plan)) and (problem := self._switch.obstacle(plan)) is not None:
            raise ProblemError(*problem)
        if key not in self._waiting_since or key in self._without_sandbox:
            self._without_sandbox.discard(key)
            self._waiting_since[key] = asyncio.get_running_loop().time()
            self._reported_late.discard(key)
        with nullcontext() if self._ports.has(_carrier(plan)) else self._lifetimes.timing("plug"):
            state = await self._ports.ensure(plan, is_current)
        if not state.installed:
            return await self._not_installed(key, view, plan, state)
        self._waiting_since.pop(key, None)
        self._lifetimes.plugged(view.value)
        if await self._write(key, view, PlugResult(device=plan.device, installed=True)):
            self._lifetimes.ready(view.value)
            self.counters.plugged += not _was_plugged(view)
        self._hooks.installed(key, view.value)
        return UP_NOTICED if state.late else None

    async def _waiting(self, key: Key, view: AttachmentView, plan: Waiting) -> None:
        """Report what a port waits for: after some patience, because it is usually over before anyone reads of it."""
        since = self._waiting_since.setdefault(key, asyncio.get_running_loop().time())
        self._without_sandbox.add(key)
        if _was_plugged(view) or asyncio.get_running_loop().time() - since >= GRACE:
            await self._write(key, view, PlugResult(waiting=plan))

    async def _not_installed(self, key: Key, view: AttachmentView, plan: PortPlan, state: PortState) -> float | None:
        """Report why a port is not installed, after some patience; return when to check it again."""
        if state.refused:
            raise ProblemError("FlowsRefused", f"the switch refuses the port's flows: {state.refused}")
        waited = asyncio.get_running_loop().time() - self._waiting_since[key]
        if state.withdrawn and waited < RECOMPUTE_AFTER:
            return RECOMPUTE_AFTER - waited
        if state.withdrawn:
            await self._ports.request_recompute(plan)
        # What OVN reports, or `remind`, enqueues the attachment again.
        again = UP_NOTICED if state.late else None
        if waited < GRACE:
            return again
        if state.error:
            raise ProblemError(state.reason, state.error)
        if self._ports.is_reachable(plan) or not _was_plugged(view):
            await self._write(key, view, PlugResult(device=plan.device, fabric=plan.fabric))
        return again

    async def _unplug(self, key: Key) -> None:
        with self._lifetimes.timing("unplug") if self._ports.has(key) else nullcontext():
            self.counters.unplugged += await self._ports.clear(key)
        await self._ports.release_namespaces(self._is_netns_needed)

    def _is_netns_needed(self, path: str) -> bool:
        # An attachment that cannot be decoded may need it.
        return bool(self._attachments.indexed(NETNS, path) or self._attachments.undecodable)

    # Statuses.

    async def _report(self, key: Key, view: AttachmentView | None, problem: Problem) -> float:
        """Write a problem to the status; return the seconds after which to retry."""
        self.counters.problems[problem.reason] = self.counters.problems.get(problem.reason, 0) + 1
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        # While only the database is away, a port that worked before works still.
        works = view is not None and problem.reason == "SwitchUnreachable" and _was_plugged(view)
        if view is not None and not view.going and not works:
            device = view.value.status.ifc_name if self._ports.has(key) else ""
            written = await self._write(key, view, PlugResult(device=device, problem=problem))
            if written and failures == 1:
                self._recorder.warning(view.value, problem.reason, problem.message)
        elif failures == 1:
            log.warning("%s: %s", key, problem.message)
        return RETRY.delay(failures, self._random)

    async def _write(self, key: Key, view: AttachmentView, result: PlugResult) -> bool:
        """Write the status; return whether it changed."""
        if view.stored.revision < self._written.get(key, 0):
            self._postponed.add(key)
            return False
        self._postponed.discard(key)
        result = self._hooks.completed(key, view.value, result)
        if settled(view.value, result, self._host_ip):
            return False
        wanted = document(view, result, self._host_ip, self._clock())
        try:
            written = await self._client.replace_status(NETWORK_ATTACHMENT, wanted)
        except NotFound:
            return False  # Deleted; the watch is about to say so.
        self._written[key] = written.revision
        self.counters.statuses += 1
        self._hooks.reported(view.value, result)
        return True


def _carrier(plan: PortPlan) -> Key:
    """Return the attachment whose interface carries a port: its own, or a child's parent."""
    return Key(plan.namespace, plan.parent or plan.name)


def _was_plugged(view: AttachmentView) -> bool:
    was = view.value.status.condition(PLUGGED)
    return was is not None and was.status == TRUE
