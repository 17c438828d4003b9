"""Gives pods their interfaces when a container runtime asks for them, and takes them back.

    add ──► attachment seen, of this pod ──► sandbox known ──► pair, port, record ──► installed by OVN ──► done
            (watch)                          (memory)          (control/node/ports)   (switch's database)

The attachment belongs to a controller, which makes it when the pod is scheduled, or takes it from a PortPool; here it
is only waited for. That of a pool has its pair and its port already: the inner end is moved, and configured. The
sandbox, which says where the inner end belongs, is known from the runtime's ADD to its DEL, whatever happens to the
attachment meanwhile; `attachments.py` reconciles the port between them. Here the same steps are taken
directly, one port at a time, so that neither the API server nor the reconciler's queue delays a pod.

Nothing polls: an `add` sleeps until something that it waits for changes. As many as `AT_A_TIME` make ports at a time,
the others wait for their turn. An `add` that fails, is cancelled or takes too long removes what it made.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import NamedTuple, NoReturn

from msgspec import structs

from netloom.control.node.local_ports.port_planner import PortPlanner
from netloom.control.node.local_ports.ports import UP_NOTICED, Ports
from netloom.control.node.local_ports.status import WAITING
from netloom.control.node.local_ports.turns import Turns
from netloom.control.node.switch import NodeSwitch
from netloom.control.node.views import POD, AttachmentView
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.drivers.link.kernel import MISSING, OWN
from netloom.drivers.shapes import PortDevices
from netloom.drivers.vswitch.driver import INSTALLED, Vswitch, given
from netloom.drivers.vswitch.pods import PodInterface
from netloom.errors import Conflict, NetloomError, TimedOut, Unreachable
from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.networks import Fabric
from netloom.plan.node.grants import NOT_GRANTED
from netloom.plan.node.pods import PodSandbox, is_for
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Problem, ProblemError, Waiting
from netloom.signals import Signal

log = logging.getLogger(__name__)

AT_A_TIME = 50
"""Ports that are made at a time: OVN is quickest with groups of 20 to 50."""
RETRY = 0.2
"""Seconds before a step is repeated that the switch's database did not acknowledge."""
ROLLBACK = 10.0
"""Seconds for removing what an `add` made; after that the reconciler does it."""
TIDY = 600.0
"""Seconds between two searches for sandboxes whose namespaces are gone."""
LASTING = frozenset((MISSING, NOT_GRANTED, "NameTaken", "RouteTaken", "QdiscTaken", "ProfilesUnsupported"))
"""The problems of a port that no change elsewhere on the node ends."""


class PodPort(NamedTuple):
    """A pod's port that is installed."""

    sandbox: PodSandbox
    plan: PortPlan


class PodPorts:
    """The ports of this node's pods."""

    def __init__(
        self,
        *,
        attachments: Cache[AttachmentView],
        planner: PortPlanner,
        ports: Ports,
        node_switch: NodeSwitch,
        switch: Vswitch,
        links: PortDevices,
        random: Random,
    ) -> None:
        self.on_sandbox: Signal[[Key]] = Signal()
        """Sent with the attachment when its sandbox came or went."""
        self._attachments = attachments
        self._planner = planner
        self._ports = ports
        self._sandboxes = ports.sandboxes
        self._node_switch = node_switch
        self._switch = switch
        self._links = links
        self._random = random
        self._slots = asyncio.Semaphore(AT_A_TIME)
        self._turns: Turns[PodInterface] = Turns()
        self._adding: dict[PodInterface, asyncio.Task[object]] = {}
        self._waiters: dict[Key, set[asyncio.Event]] = {}
        self._doubt = asyncio.Event()
        """Set when it is not known whether a change of the switch's database was made."""

    # Signals of what an `add` waits for.

    def attachment_changed(self, change: Change[AttachmentView]) -> None:
        """Continue what waits for an attachment, or for one of the same pod."""
        self.wake({change.key, *(_asked_for(one) for one in (change.old, change.new) if one is not None)})

    def wake(self, keys: Iterable[Key]) -> None:
        """Continue what waits for these attachments."""
        for key in keys:
            for waiter in self._waiters.get(key, ()):
                waiter.set()

    def wake_all(self) -> None:
        """Continue whatever waits."""
        self.wake(list(self._waiters))

    @contextmanager
    def _woken(self, key: Key) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiters.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            self._waiters[key].discard(event)
            if not self._waiters[key]:
                del self._waiters[key]

    # The runtime's verbs.

    def problem(self) -> Problem | None:
        """Return why no pod can be added to this node at present; None: they can."""
        return self._node_switch.facts().problem

    def any(self) -> bool:
        """Whether there are pods on this node."""
        return bool(self._sandboxes.all())

    async def add(self, wanted: PodSandbox, accept: Callable[[NetworkAttachment], None], *, timeout: float) -> PodPort:
        """Return the port of a pod, once it is installed; `wanted` is without the identity of its namespace.

        `accept` raises if the attachment, which has its addresses, is not what the runtime asked for. The same call
        again returns the same port.
        """
        interface = PodInterface(wanted.container, wanted.device)
        waits = _Waits("another operation on this interface")
        try:
            async with asyncio.timeout(timeout), self._turns.of(interface):
                task = asyncio.current_task()
                assert task is not None
                self._adding[interface] = task
                try:
                    return await self._add(wanted, accept, waits)
                finally:
                    del self._adding[interface]
        except TimeoutError:
            raise TimedOut(f"gave up after {timeout:g} s: waiting for {waits.reason}") from None

    async def delete(self, interface: PodInterface) -> None:
        """Remove an interface, if there is one; an `add` of it that has not ended is cancelled."""
        if (task := self._adding.get(interface)) is not None:
            task.cancel()
        async with self._turns.of(interface):
            sandbox = self._sandboxes.at(interface)
            if sandbox is None:
                return
            try:
                await self._remove(sandbox)
            except BaseException:
                self._doubt.set()
                if self._sandboxes.at(interface) is None:
                    self._sandboxes.put(sandbox)  # The runtime repeats the call, and must find it.
                raise

    async def check(self, interface: PodInterface) -> tuple[PodPort | None, list[str]]:
        """Return the port of an interface, if it is known, and its differences from what it should be."""
        sandbox = self._sandboxes.at(interface)
        if sandbox is None:
            return None, ["the agent knows no such interface"]
        key = Key(sandbox.namespace, sandbox.name)
        view = self._attachments.get(*key)
        if view is None or view.going or self._sandboxes.of(view.value) is not sandbox:
            return None, [f"there is no attachment {key} of this pod"]
        plan = self._planner.plan(view)
        if not isinstance(plan, PortPlan):
            return None, [plan.message if isinstance(plan, Problem | Waiting) else f"{key} has no addresses"]
        row = self._switch.plugged(key, plan.uid, plan.device)
        if row is None:
            return PodPort(sandbox, plan), [f"{plan.device} is not on the switch"]
        ids = self._switch.ids(plan)
        found = [
            f"{name} of {plan.device} is not {want}" for name, want in ids.items() if row.external_ids.get(name) != want
        ]
        if row.error:
            found.append(f"the switch cannot use {plan.device}: {row.error}")
        if plan.fabric is Fabric.OVN and row.external_ids.get(INSTALLED) != "true":
            found.append(f"OVN has not installed the flows of {plan.device}")
        found += await self._links.faults(plan, given(row))
        return PodPort(sandbox, plan), found

    async def collect(self, keep: Collection[PodInterface]) -> list[str]:
        """Remove all interfaces but those in `keep`, and those being added; return what failed, and why."""
        failed = []
        for sandbox in self._sandboxes.all():
            interface = PodInterface(sandbox.container, sandbox.device)
            if interface in keep or interface in self._adding:
                continue
            try:
                await self.delete(interface)
            except NetloomError as error:
                failed.append(f"{sandbox.container} {sandbox.device}: {error}")
        return failed

    async def tidy(self) -> NoReturn:
        """Remove sandboxes whose namespaces are gone, and records of none, until cancelled.

        At the start, every now and then, and after a change of the switch's database that was not acknowledged.
        """
        while True:
            self._doubt.clear()
            try:
                await self._switch.client.synced.wait()
                await self._switch.writer.commit(self._sandboxes.overdue())
                for sandbox in self._sandboxes.all():
                    if await self._is_gone(sandbox):
                        log.info("the network namespace of %s/%s is gone", sandbox.namespace, sandbox.name)
                        await self.delete(PodInterface(sandbox.container, sandbox.device))
            except NetloomError as error:
                log.info("sandboxes are not all checked yet: %s", error)
                self._doubt.set()
                await asyncio.sleep(RETRY)
            with suppress(TimeoutError):
                async with asyncio.timeout(TIDY * self._random.uniform(0.75, 1.25)):
                    await self._doubt.wait()

    async def _is_gone(self, sandbox: PodSandbox) -> bool:
        if await self._links.namespace(sandbox.netns, "") == sandbox.identity:
            return False
        # The kernel removes a pair with the namespace of either end: if ours is there, only the path is gone.
        rows = self._switch.interfaces((sandbox.namespace, sandbox.name))
        return not any([await self._links.device(row.name) for row in rows])

    # Steps.

    async def _add(self, wanted: PodSandbox, accept: Callable[[NetworkAttachment], None], waits: "_Waits") -> PodPort:
        identity = await self._links.namespace(wanted.netns, "")
        if not identity:
            raise ProblemError(MISSING, f"there is no network namespace at {wanted.netns}")
        if identity == await self._links.namespace(OWN, ""):
            raise ProblemError(NOT_GRANTED, f"{wanted.netns} is the node's own network namespace")
        wanted = structs.replace(wanted, identity=identity)
        sandbox = self._sandboxes.at(PodInterface(wanted.container, wanted.device))
        if sandbox is not None and sandbox != self._named(wanted, sandbox.name):
            await self._remove(sandbox)
            sandbox = None
        with self._woken(Key(wanted.namespace, wanted.name)) as woken:
            attachment = await self._addressed(wanted, woken, waits)
            accept(attachment)
        wanted = structs.replace(wanted, name=attachment.metadata.name)
        key = Key(wanted.namespace, wanted.name)
        with self._woken(key) as woken:
            if sandbox == wanted:
                return await self._installed(sandbox, woken, waits)
            if sandbox is not None:
                await self._remove(sandbox)
            self._sandboxes.put(wanted)
            self.on_sandbox(key)
            try:
                return await self._installed(wanted, woken, waits)
            except BaseException:
                await self._roll_back(wanted)
                raise

    def _attachment(self, wanted: PodSandbox) -> AttachmentView | None:
        """Return the attachment of a pod; one of another pod of the same name, if there is none."""
        found = self._attachments.indexed(POD, f"{wanted.namespace}/{wanted.name}")
        present = sorted((view for view in found if not view.going), key=lambda view: view.stored.name)
        own = [view for view in present if is_for(wanted, view.value)]
        return next(iter(own or present), None)

    def _named(self, wanted: PodSandbox, default: str) -> PodSandbox:
        """Return a sandbox with the name of the pod's attachment; with `default`, if there is none at present."""
        view = self._attachment(wanted)
        return structs.replace(wanted, name=default if view is None else view.stored.name)

    async def _addressed(self, wanted: PodSandbox, woken: asyncio.Event, waits: "_Waits") -> NetworkAttachment:
        """Wait for the attachment of a pod, and for its addresses."""
        key = Key(wanted.namespace, wanted.name)
        seen = False
        while True:
            woken.clear()
            view = self._attachment(wanted)
            if view is None or not is_for(wanted, view.value):
                if seen:
                    raise Conflict(f"NetworkAttachment {key} was deleted")
                other = "" if view is None else ", which is of another pod of this name until now"
                waits.reason = f"NetworkAttachment {key} of pod uid {wanted.uid or '(any)'}{other}"
            else:
                if view.value.spec.port.type is not PortType.POD:
                    raise ProblemError("NotAPod", f"NetworkAttachment {key} has port.type {view.value.spec.port.type}")
                seen = True
                plan = self._planner.plan(view)
                if isinstance(plan, Problem):
                    raise ProblemError(*plan)
                if plan is not None:
                    return view.value
                waits.reason = f"the addresses of NetworkAttachment {key}, or for its Network"
            await woken.wait()

    async def _installed(self, sandbox: PodSandbox, woken: asyncio.Event, waits: "_Waits") -> PodPort:
        """Make the port of a sandbox, and wait until it is installed."""
        waits.reason = "other pods that are being added"
        async with self._slots:
            while True:
                woken.clear()
                key = Key(sandbox.namespace, sandbox.name)
                view = self._attachments.get(*key)
                if view is None or view.going or self._sandboxes.of(view.value) is not sandbox:
                    raise Conflict(f"NetworkAttachment {key} was deleted, or was given to another sandbox")
                plan = self._planner.plan(view)
                if isinstance(plan, Problem):
                    raise ProblemError(*plan)
                waits.reason = f"the addresses of NetworkAttachment {key}"
                again: float | None = None
                if isinstance(plan, PortPlan):
                    done, again = await self._step(view, plan, waits)
                    if done:
                        return PodPort(sandbox, plan)
                with suppress(TimeoutError):
                    async with asyncio.timeout(again):
                        await woken.wait()

    async def _step(self, view: AttachmentView, plan: PortPlan, waits: "_Waits") -> tuple[bool, float | None]:
        """Do what is missing of a port; return whether it is installed, and in how many seconds to try again, if so."""
        obstacle = self._node_switch.obstacle(plan)
        if obstacle is not None:
            waits.reason = f"the switch: {obstacle.message}"
            return False, RETRY * 5
        try:
            state = await self._ports.ensure(plan, lambda: self._planner.plan(view) is plan)
        except ProblemError as error:
            if error.problem.reason in LASTING:
                raise
            waits.reason = error.problem.message
            return False, RETRY
        except Unreachable as error:
            waits.reason = f"the switch's database: {error}"
            return False, RETRY
        if state.refused:
            raise ProblemError("FlowsRefused", f"the switch refuses the port's flows: {state.refused}")
        waits.reason = state.error or f"the port's flows: {WAITING[plan.fabric]}"
        return state.installed, UP_NOTICED if state.late else None

    async def _roll_back(self, sandbox: PodSandbox) -> None:
        self._sandboxes.drop(sandbox)
        try:
            async with asyncio.timeout(ROLLBACK):
                await self._switch.writer.settled()
                await self._remove(sandbox)
        except (NetloomError, TimeoutError) as error:
            self._doubt.set()
            log.warning("%s/%s is removed later: %s", sandbox.namespace, sandbox.name, error)

    async def _remove(self, sandbox: PodSandbox) -> None:
        """Forget a sandbox, and remove its port and its record."""
        self._sandboxes.drop(sandbox)
        key = Key(sandbox.namespace, sandbox.name)
        self.on_sandbox(key)
        await self._ports.clear(key, is_current=lambda: not self._is_used(key))
        await self._switch.writer.commit(self._sandboxes.overdue())

    def _is_used(self, key: Key) -> bool:
        """Whether an attachment has another sandbox."""
        view = self._attachments.get(*key)
        if view is None:
            return key in self._sandboxes.attachments()
        return self._sandboxes.of(view.value) is not None


def _asked_for(view: AttachmentView) -> Key:
    return Key(view.stored.namespace, view.pod)


class _Waits:
    """What an `add` waits for, for the message if that takes too long."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
