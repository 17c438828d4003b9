"""The devices of ports: pairs of veths, and the configuration of workloads' devices. Runs in one thread, one command at
a time.

The present state is read from the kernel each time, and only differences are written: the same plan twice writes once.
Ours are the pairs whose outer end has our alias, the addresses that the caller says we set (`given`), and the routes
with our protocol number; everything else on a workload's device is left alone.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from netloom.drivers.link import codec, kernel
from netloom.drivers.link.codec import DeviceRoute, Link, Neighbour
from netloom.drivers.link.kernel import Kernel, NetlinkRefusal, Step, own_namespace, probe, visit
from netloom.model.kinds.attachments import PortType
from netloom.plan import names
from netloom.plan.node.ports import PortPlan
from netloom.plan.policy.impairment import NONE, Impairment, PortImpairment
from netloom.plan.problem import ProblemError

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LOOPBACK = "lo"
_LINK_LOCAL = "fe80:"
_KERNEL_SWITCH = "openvswitch"
_UPON = frozenset(("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"))
"""Kinds of devices that are made on top of another device."""


@dataclass(slots=True)
class LinkCounters:
    """Counters for the metrics."""

    writes: int = 0
    pairs: int = 0


Work = Callable[Concatenate["Links", P], T]


def _in_thread(work: Work[P, T]) -> Work[P, Coroutine[Any, Any, T]]:
    """Make an async method of one that blocks: it runs in the thread."""

    @wraps(work)
    async def run(self: "Links", /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, partial(work, self, *args, **kwargs))
        except OSError as error:
            raise ProblemError("KernelRefused", f"the kernel: {error.strerror or error}") from error

    return run


class Links:
    """The node's devices, commanded from the event loop; a `PortDevices`.  Made in the node's own namespace."""

    def __init__(self, *, owner: str, userspace: bool = True) -> None:
        self.counters = LinkCounters()
        self.userspace = userspace
        """Whether a userspace switch forwards the packets: then their checksums must be complete."""
        self._owner = owner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="links")
        self._node: Kernel | None = None

    def close(self) -> None:
        """Wait for the present command, and close the sockets."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._node is not None:
            self._node.close()

    @_in_thread
    def device(self, name: str) -> Link | None:
        """Return a device of the node."""
        return self._kernel().link(name)

    @_in_thread
    def devices(self) -> list[Link]:
        """Return all devices of the node."""
        return self._kernel().links()

    @_in_thread
    def holder(self, ip: str) -> Link | None:
        """Return the node's device that has an address."""
        node = self._kernel()
        indexes = {index for index, text in node.all_addresses() if text.partition("/")[0] == ip}
        return next((one for one in node.links() if one.index in indexes), None)

    @_in_thread
    def pair(self, plan: PortPlan, given: Collection[str]) -> Link:
        """Make a pair of veths as planned, or correct it; with a relay, another pair; return the switch's end."""
        node = self._kernel()
        with workload(plan) as (there, namespace):
            outer, inner, fresh = self._ends(plan, (node, there), namespace)
            if outer is not None and inner is not None and _joined(outer, inner):
                return self._relayed(plan, self._complete(plan, (node, there), (outer, inner), given, fresh=fresh))
            if outer is not None:
                # It leads elsewhere: the spec has another namespace or another name now.
                self._write(node, [Step(codec.del_link(outer.index), f"removing {plan.outer}")])
                inner = there.link(plan.inner)
            if inner is not None:
                raise ProblemError("NameTaken", f"device {plan.inner} exists in {there.where}")
            outer, inner = self._make(plan, node, namespace), there.link(plan.inner)
            if outer is None or inner is None:
                raise ProblemError("NamespaceMissing", f"the namespace at {plan.netns} disappeared")
            return self._relayed(plan, self._complete(plan, (node, there), (outer, inner), given, fresh=True))

    @_in_thread
    def same_pair(self, plan: PortPlan, given: Collection[str]) -> Link | None:
        """Correct an existing pair; return the switch's end, or None, with nothing done, if it must be made."""
        node = self._kernel()
        with workload(plan) as (there, namespace):
            outer, inner, fresh = self._ends(plan, (node, there), namespace)
            if outer is None or inner is None or not _joined(outer, inner):
                return None
            if plan.relayed and self._relay_ends(plan) is None:
                return None
            return self._relayed(plan, self._complete(plan, (node, there), (outer, inner), given, fresh=fresh))

    @_in_thread
    def inner(self, plan: PortPlan, given: Collection[str]) -> Link:
        """Configure a device of the node as planned; raise `ProblemError` if it does not exist."""
        found = self._existing(plan.inner)
        self._configure(self._kernel(), found, plan, given, fresh=False)
        return found

    @_in_thread
    def set_up(self, name: str, *, up: bool) -> None:
        """Set a device up, or down."""
        found = self._existing(name)
        if found.up != up:
            self._write(self._kernel(), [_set_up(found.index, name, up=up)])

    @_in_thread
    def enslave(self, name: str, master: str) -> None:
        """Put a device on a Linux bridge; "": take it off."""
        found, index = self._existing(name), self._existing(master).index if master else 0
        if found.master != index:
            self._write(self._kernel(), [Step(codec.set_link(found.index, master=index), f"moving {name}")])

    @_in_thread
    def faults(self, plan: PortPlan, given: Collection[str]) -> list[str]:
        """Return what is wrong with the devices of a port that was given these addresses."""
        from netloom.drivers.link.audit import faults  # It imports this module.

        return faults(plan, given)

    async def bridge_of(self, device: Link) -> str:
        """Return the Linux bridge that a device is on, or ""."""
        if not device.master:
            return ""
        found = [one for one in await self.devices() if one.index == device.master and one.kind == "bridge"]
        return found[0].name if found else ""

    @_in_thread
    def in_use(self, device: Link, *, switched: bool) -> str:
        """Return what the node itself uses one of its devices for, as text; "": nothing known.

        With `switched`, the device is a port of the switch, which does not count as a use.
        """
        node = self._kernel()
        own = [text for text in node.addresses(device.index) if not text.startswith(_LINK_LOCAL)]
        return use(device, own, node.links(), switched=switched)

    @_in_thread
    def remove_pair(self, name: str) -> None:
        """Remove a pair by its outer end, if it is ours."""
        node = self._kernel()
        found = node.link(name)
        if found is not None and found.alias.startswith(self._alias("")):
            self._write(node, [Step(codec.del_link(found.index), f"removing {name}")])

    async def pairs(self) -> dict[str, str]:
        """Return the outer ends of our pairs, each with the uid it was made for."""
        prefix = self._alias("")
        return {one.name: one.alias[len(prefix) :] for one in await self.devices() if one.alias.startswith(prefix)}

    @_in_thread
    def namespace(self, path: str, root: str) -> str:
        """Return the identity of the network namespace at a path; "": there is none."""
        return kernel.identity(path, root=root)

    async def create_namespace(self, path: str, root: str, record: Callable[[str], Awaitable[None]]) -> None:
        """Create a network namespace; `record` is called with its identity before it gets its path."""
        made, identity = await self._new_namespace()
        try:
            await record(identity)
            await self._give_path(made, path, root)
        finally:
            os.close(made)

    @_in_thread
    def remove_namespace(self, path: str, root: str, identity: str) -> None:
        """Remove the path of the network namespace with this identity; any other is left alone."""
        kernel.remove_path(path, identity, root=root)

    @_in_thread
    def _new_namespace(self) -> tuple[int, str]:
        self.counters.writes += 1
        return kernel.new_namespace()

    @_in_thread
    def _give_path(self, namespace: int, path: str, root: str) -> None:
        kernel.give_path(namespace, path, root=root)

    async def resolve(self, ips: Collection[str]) -> None:
        """Start resolving the next hops towards these addresses."""
        await self._each(Kernel.resolve, ips)

    async def neighbours(self, ips: Collection[str]) -> dict[str, Neighbour]:
        """Return the resolved next hops towards these addresses."""
        found = await self._each(Kernel.neighbour, ips)
        return {ip: one for ip, one in found.items() if one is not None}

    @_in_thread
    def probe(self) -> dict[str, bool]:
        """Test the capabilities of the kernel."""
        return probe()

    @_in_thread
    def _each(self, call: Callable[[Kernel, str], T], ips: Collection[str]) -> dict[str, T]:
        found = {}
        for ip in sorted(ips):
            try:
                found[ip] = call(self._kernel(), ip)
            except (OSError, NetlinkRefusal) as error:  # Other addresses are not affected.
                log.debug("the next hop towards %s cannot be resolved: %s", ip, error)
        return found

    # In the thread.

    def _kernel(self) -> Kernel:
        if self._node is None:
            self._node = Kernel()
        return self._node

    def _existing(self, name: str) -> Link:
        found = self._kernel().link(name)
        if found is None:
            raise ProblemError("DeviceMissing", f"there is no device {name}")
        return found

    def _ends(
        self, plan: PortPlan, kernels: tuple[Kernel, Kernel], namespace: int
    ) -> tuple[Link | None, Link | None, bool]:
        """Return the ends of a pair, as far as they exist, and whether the inner one has just come from the node.

        The inner end of a port that was made ahead is moved into its namespace.
        """
        node, there = kernels
        outer = node.link(plan.outer)
        if outer is not None and outer.alias != self._alias(plan.uid):
            raise ProblemError("NameTaken", f"device {plan.outer} exists and is not ours")
        inner = there.link(plan.inner)
        if inner is not None or outer is None or plan.staged or plan.type is not PortType.POD:
            return outer, inner, False
        staged = node.link(names.inner(plan.mac))
        if staged is None or not _joined(outer, staged):
            return outer, None, False
        step = Step(codec.move_link(staged.index, plan.inner, namespace=namespace), f"moving {staged.name}")
        self._write(node, [step])
        return outer, there.link(plan.inner), True

    def _relay_ends(self, plan: PortPlan) -> tuple[Link, Link] | None:
        """Return the ends of the pair behind a relay: on the switch, and the relay's; None if it has to be made."""
        node, (name, peer) = self._kernel(), names.relay(plan.mac)
        outer, inner = node.link(name), node.link(peer)
        if outer is not None and outer.alias != self._alias(plan.uid):
            raise ProblemError("NameTaken", f"device {name} exists and is not ours")
        return (outer, inner) if outer is not None and inner is not None and _joined(outer, inner) else None

    def _relayed(self, plan: PortPlan, outer: Link) -> Link:
        """Return the switch's end of a port: of the workload's pair, or of the pair behind its relay, which is made."""
        if not plan.relayed:
            return outer
        node, (name, peer) = self._kernel(), names.relay(plan.mac)
        if self._relay_ends(plan) is None:
            if (left := node.link(name)) is not None:
                self._write(node, [Step(codec.del_link(left.index), f"removing {name}")])
            if node.link(peer) is not None:
                raise ProblemError("NameTaken", f"device {peer} exists and is not ours")
            with own_namespace() as namespace:
                made = codec.veth(name, peer, namespace=namespace, mac="", mtu=plan.mtu, alias=self._alias(plan.uid))
                self._write(node, [*_making(made, name), *_silencing(codec.silence(peer), peer)])
        ends = self._relay_ends(plan)
        if ends is None:
            raise ProblemError("DeviceMissing", f"device {name} disappeared")
        for end in ends:
            if self.userspace:
                self.counters.writes += node.tx_checksums(end.name, on=False)
            if not end.up or end.mtu != plan.mtu:
                step = Step(codec.set_link(end.index, up=True, mtu=plan.mtu), f"setting up {end.name}")
                self._write(node, [step])
        return ends[0]

    def _complete(
        self,
        plan: PortPlan,
        kernels: tuple[Kernel, Kernel],
        ends: tuple[Link, Link],
        given: Collection[str],
        *,
        fresh: bool,
    ) -> Link:
        """Configure both ends of a pair as planned; return the outer one."""
        (node, there), (outer, inner) = kernels, ends
        if self.userspace:
            self.counters.writes += there.tx_checksums(plan.inner, on=False)
            self.counters.writes += node.tx_checksums(plan.outer, on=False)
        if outer.up == plan.link_down or outer.mtu != plan.mtu:
            step = Step(codec.set_link(outer.index, up=not plan.link_down, mtu=plan.mtu), f"setting up {plan.outer}")
            self._write(node, [step])
        self._configure(there, inner, plan, given, fresh=fresh)
        wanted = PortImpairment() if plan.impairment is None or plan.relayed else plan.impairment
        self._impair(there, inner, wanted.sent)
        self._impair(node, outer, wanted.received)
        return outer

    def _impair(self, kernel: Kernel, device: Link, wanted: Impairment) -> None:
        """Set netem on what a device sends, or remove it if it is ours."""
        if wanted == NONE and device.qdisc != "netem":
            return
        seen = kernel.qdisc(device.index)
        ours = seen is not None and seen.handle == codec.NETEM_HANDLE
        if wanted == NONE:
            if ours:
                self._write(kernel, [Step(codec.del_netem(device.index), f"removing netem of {device.name}")])
            return
        if seen is not None and seen.handle and not ours:
            raise ProblemError(
                "QdiscTaken",
                f"{device.name} in {kernel.where} has a qdisc {seen.kind} of another program: remove it",
            )
        options = codec.netem(wanted)
        if seen is None or not ours or seen.options != options:
            step = Step(codec.set_netem(device.index, options), f"setting netem of {device.name}")
            self._write(kernel, [step])

    def _make(self, plan: PortPlan, node: Kernel, namespace: int) -> Link | None:
        made = codec.veth(
            plan.outer,
            plan.inner,
            namespace=namespace,
            mac=plan.mac,
            mtu=plan.mtu,
            alias=self._alias(plan.uid),
        )
        self._write(node, _making(made, plan.outer))
        self.counters.pairs += 1
        return node.link(plan.outer)

    def _configure(self, kernel: Kernel, seen: Link, plan: PortPlan, given: Collection[str], *, fresh: bool) -> None:
        """Write the differences between the plan and the present state."""
        have = set() if fresh else kernel.addresses(seen.index)
        # A device that is down has no routes.
        routes = kernel.routes(seen.index) if seen.up else set()
        steps = differences(plan, seen, have, routes, given)
        try:
            self._write(kernel, steps)
        except NetlinkRefusal as error:
            if error.errno == errno.EEXIST:
                raise ProblemError("RouteTaken", error.message) from None
            raise

    def _write(self, kernel: Kernel, steps: list[Step]) -> None:
        self.counters.writes += len(steps)
        kernel.change(steps)

    def _alias(self, uid: str) -> str:
        return f"netloom/{self._owner}/{uid}"


def use(device: Link, addresses: Collection[str], devices: Collection[Link], *, switched: bool) -> str:
    """Return what the node uses a device for, by its addresses and all devices of the node.  Pure."""
    masters = {"bridge", _KERNEL_SWITCH} if switched else {"bridge"}
    if device.name == _LOOPBACK:
        return "is the node's loopback"
    if addresses:
        return f"has the node's own address {min(addresses)}"
    for other in sorted(devices, key=lambda one: one.name):
        if other.index == device.master and other.kind not in masters:
            return f"is part of {other.name}"
        if other.master == device.index:
            return f"has {other.name} in it"
        if other.peer == device.index and other.kind in _UPON:
            return f"carries {other.name}"
    return ""


@contextmanager
def workload(plan: PortPlan) -> Iterator[tuple[Kernel, int]]:
    """Visit the namespace of a port's inner end: see `kernel.visit`."""
    # One that is made ahead stays in the node's own.
    path = kernel.OWN if plan.staged else plan.netns
    with visit(path, root=plan.netns_root, own=plan.own_netns, known=plan.netns_identity) as found:
        yield found


def _set_up(index: int, name: str, *, up: bool) -> Step:
    return Step(codec.set_link(index, up=up), f"setting {name} {'up' if up else 'down'}")


def _making(messages: tuple[bytes, bytes, bytes], name: str) -> list[Step]:
    """Return the steps that make a pair: see `codec.veth`."""
    made, *rest = messages
    return [Step(made, f"making {name}"), *_silencing(rest, name)]


def _silencing(messages: Sequence[bytes], name: str) -> list[Step]:
    """Return the steps that keep a device silent: see `codec.silence`."""
    named, silenced = messages
    return [Step(named, f"naming {name}"), Step(silenced, f"silencing {name}", errno.EAFNOSUPPORT)]


def _joined(outer: Link, inner: Link) -> bool:
    """Whether two devices are the ends of one pair."""
    return inner.kind == "veth" and inner.peer == outer.index


def differences(
    plan: PortPlan, seen: Link, have: Collection[str], routes: Collection[DeviceRoute], given: Collection[str]
) -> list[Step]:
    """Return the changes that make a device with these addresses, and these routes of ours, match the plan. Pure.

    `given` are the addresses that we set before: of the present ones only these may be removed.
    """
    index, name = seen.index, plan.inner
    if plan.staged:  # Until it is moved it stays down, without addresses.
        return [_set_up(index, name, up=False)] if seen.up else []
    wanted, there = {DeviceRoute(*one) for one in plan.routes}, set(routes)
    steps = []
    six = {text for text in plan.addresses if ":" in text}
    if plan.four_only and not seen.up:
        # A switch in the same namespace reads all routes there whenever one changes: avoid those that lead nowhere.
        step = codec.link_local(index, on=False)
        steps.append(Step(step, f"silencing {name}", errno.EAFNOSUPPORT))
    elif six and seen.up and six.isdisjoint(have):
        step = codec.link_local(index, on=True)
        steps.append(Step(step, f"enabling IPv6 on {name}", errno.EAFNOSUPPORT))
    if seen.mac != plan.mac or seen.mtu != plan.mtu:
        mac = plan.mac if seen.mac != plan.mac else ""
        steps.append(Step(codec.set_link(index, mtu=plan.mtu, mac=mac), f"setting MAC and MTU of {name}"))
    steps += [
        Step(codec.route(one, index, remove=True), f"removing the route to {one.to}") for one in sorted(there - wanted)
    ]
    steps += [
        Step(codec.address(text, index, remove=True), f"removing address {text}")
        for text in sorted((set(given) & set(have)) - set(plan.addresses))
    ]
    steps += [
        Step(codec.address(text, index), f"setting address {text}") for text in sorted(set(plan.addresses) - set(have))
    ]
    # With a pair, the outer end is down: the workload's own end has no carrier, and keeps its routes.
    up = not plan.link_down or plan.inner != plan.device
    if seen.up != up:
        steps.append(_set_up(index, name, up=up))
    if not up:
        return steps
    # Routes disappear when a device goes down, and can be added only once it is up.
    steps += [
        Step(codec.route(one, index), f"adding the route to {one.to} via {one.via}")
        for one in sorted(wanted - there if seen.up else wanted)
    ]
    return steps
