"""Makes and removes one port: its device, and its interface on the switch.

    internal   the switch makes the device; once OVN, or an agent's fabric, has connected it, it gets its addresses
    veth, pod  the pair is made and gets its addresses, then its outer end is put on the switch; where a process delays
               or drops its packets, that relay passes them on to another pair, whose outer end is put on the switch
    existing   a device that exists is taken from its bridge, and is returned to it in the end
    child      nothing is made: its parent's device carries it, and it is installed when OVN has installed that

Each step is taken only where something is missing, so a plan that is met costs no write. Results of other programs,
such as the device that the switch makes, are read from the copy of the database; no step waits for them.

A switch opens a device once, when it first sees the port, and keeps it open: to a new device of the same name it passes
no packets, although it reports the port as working. So the port is taken off the switch before its device is made
again; and if the switch reports a device as its port, and no program holds it, it is plugged again.

A port is installed when OVN says so, in the database; a port of a vxlan Network, when the fabric has its flows on
the switch; one of a linux Network, when its bridge leads to the other nodes. When a child is removed, ovn-controller
(23.03 to 26.03) withdraws `ovn-installed` from the parent, whose flows stay, and does not set it again before its next
full recompute: `request_recompute` triggers one, once for each time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from netloom.control.node.local_ports.turns import Turns
from netloom.control.runtime.cache import Key
from netloom.drivers.link.codec import Link
from netloom.drivers.shapes import PortDevices, PortRelays
from netloom.drivers.vswitch.children import Children
from netloom.drivers.vswitch.driver import FROM, INSTALLED, INSTALLED_AT, UID, Vswitch, given
from netloom.drivers.vswitch.pods import PodSandboxes
from netloom.drivers.vswitch.prepare import MAPPINGS, read_mappings
from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.networks import Fabric
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan import names
from netloom.plan.node.children import NOT_PLUGGED
from netloom.plan.node.grants import in_use
from netloom.plan.node.namespaces import NetnsRecord
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import ProblemError

log = logging.getLogger(__name__)

UP_NOTICED = 1.0
"""Seconds within which a switch notices that a device is up."""
NEVER = float("-inf")


class Carrier(Protocol):
    """What connects ports on a fabric that agents implement."""

    @property
    def connected(self) -> bool:
        """Whether it can be asked."""
        ...

    async def prepare(self, plan: PortPlan) -> None:
        """Create the bridge of a port, unless it exists."""
        ...

    def carries(self, plan: PortPlan, row: Interface) -> bool:
        """Whether a port is connected."""
        ...

    def refusal(self, plan: PortPlan) -> str:
        """Return why the switch refuses the flows of a port; "": it does not."""
        ...

    def error(self, plan: PortPlan) -> str:
        """Return what else prevents a port from being connected; "": nothing."""
        ...


class PortState(NamedTuple):
    """The progress of a port."""

    installed: bool
    error: str = ""
    """What the switch reports to be wrong with it, or another problem."""
    late: bool = False
    """Whether the switch reports its device as down, or up, against the plan: it may not have noticed, or have
    reverted, what we set."""
    refused: str = ""
    """Why the switch refuses its flows; retrying does not help."""
    reason: str = "SwitchRefused"
    """The reason of the condition that reports `error`."""
    withdrawn: bool = False
    """Whether OVN reported it as installed, and may have withdrawn that by mistake."""


class _Verified(NamedTuple):
    """What was last found correct in the kernel."""

    plan: PortPlan
    device: int
    held: bool = False
    """Whether the switch was seen to hold the device."""
    up: float = NEVER
    """Since when it is up, or down, as planned, although the switch has not reported that yet."""


class Ports:
    """The ports of this node, commanded one at a time."""

    def __init__(
        self,
        switch: Vswitch,
        links: PortDevices,
        *,
        carriers: Mapping[Fabric, Carrier],
        relays: PortRelays,
        underlay_device: Callable[[], str],
        sandboxes: PodSandboxes | None = None,
    ) -> None:
        """Ports on a fabric without a carrier are OVN's, or are made and never found to be installed.

        `underlay_device` names the device with the node's own address: it, and the devices on it, are not taken.
        """
        self.sandboxes = sandboxes or PodSandboxes(switch)
        self._switch = switch
        self._children = Children(switch)
        self._carriers = carriers
        self._links = links
        self._relays = relays
        self._underlay_device = underlay_device
        self._verified: dict[Key, _Verified] = {}
        self._carrying: set[str] = set()
        """The interfaces that carry children, or did."""
        self._reported: set[str] = set()
        """The interfaces that OVN has reported as installed."""
        self._requested: dict[str, str] = {}
        """The interfaces for which a recompute was requested, and OVN's timestamp at that time."""
        self._creating = asyncio.Lock()
        """Held while a network namespace is created or removed: several ports may need it."""
        self._moving = asyncio.Lock()
        """Held while a device is taken or returned: the next to take it may be another attachment."""
        self._turns: Turns[Key] = Turns()
        """Held while a port is worked on: the reconciler and the CNI server may meet."""

    def attachments(self) -> set[Key]:
        """Return the attachments that have a port, or a record in the switch's database."""
        if not self._switch.synced:
            return set()
        found = self._switch.attachments() | self._children.attachments() | self.sandboxes.attachments()
        return {Key(*name) for name in found}

    def has(self, key: Key) -> bool:
        """Whether an attachment has a port."""
        return bool(self._switch.interfaces(key))

    def is_reachable(self, plan: PortPlan) -> bool:
        """Whether the program that installs a port's flows can be asked."""
        if plan.fabric is Fabric.OVN:
            return True
        carrier = self._carriers.get(plan.fabric)
        return carrier is not None and carrier.connected

    def invalidate(self) -> None:
        """Read all devices from the kernel the next time: other programs may have changed them."""
        self._verified.clear()
        present = self._switch.client.cache.rows("Interface").keys()
        self._carrying &= present
        self._reported &= present
        self._requested = {row: at for row, at in self._requested.items() if row in present}

    async def clear(self, key: Key, *, keep: str = "", is_current: Callable[[], bool] = lambda: True) -> int:
        """Remove an attachment's ports, except those of the uid `keep`; return how many.

        Nothing is done if what led to it is no longer so when its turn comes.
        """
        async with self._turns.of(key):
            return await self._clear(key, keep) if is_current() else 0

    async def _clear(self, key: Key, keep: str) -> int:
        self._check()
        rows = [row for row in self._switch.interfaces(key) if not keep or row.external_ids.get(UID) != keep]
        for row in rows:
            await self._remove(key, row)
        if not rows:
            await self._switch.writer.commit(self.sandboxes.overdue())
        await self._drop(key)
        await self._children.clear(key, keep=keep)
        await self._return_devices()
        return len(rows)

    async def tidy(self, wanted: Collection[str]) -> None:
        """Remove what a crash left: our pairs that are neither on the switch nor among the `wanted` devices."""
        self._check()
        await self._return_devices()
        for name in await self._links.pairs():
            if name not in wanted and self._switch.interface(name) is None:
                log.info("removing leftover device %s", name)
                await self._links.remove_pair(name)

    async def release_namespaces(self, is_needed: Callable[[str], bool]) -> None:
        """Remove the network namespaces that the agent created and that no attachment needs any more."""
        for path in self._switch.namespaces():
            if is_needed(path):
                continue
            async with self._creating:
                record = self._switch.namespaces().get(path)
                if record is None or is_needed(path):
                    continue
                log.info("removing network namespace %s", path)
                await self._links.remove_namespace(path, record.root, record.identity)
                await self._switch.forget_namespace(path)

    async def _create_namespace(self, plan: PortPlan) -> None:
        """Create the network namespace of a port, if there is none."""
        async with self._creating:
            present = await self._links.namespace(plan.netns, plan.netns_root)
            record = self._switch.namespaces().get(plan.netns)
            if present and record is not None and record.identity == present and record.namespace != plan.namespace:
                raise ProblemError(
                    "NameTaken", f"{plan.netns} is of an attachment in another namespace: choose another"
                )
            if present:
                return

            async def recorded(identity: str) -> None:
                made = NetnsRecord(namespace=plan.namespace, identity=identity, root=plan.netns_root)
                await self._switch.record_namespace(plan, made)

            await self._links.create_namespace(plan.netns, plan.netns_root, recorded)

    async def ensure(self, plan: PortPlan, is_current: Callable[[], bool] = lambda: True) -> PortState:
        """Do what is missing; return the port's state.  Nothing is done for a plan that is no longer current."""
        key = Key(plan.namespace, plan.name)
        async with self._turns.of(key):
            return await self._ensure(key, plan) if is_current() else PortState(installed=False)

    async def _ensure(self, key: Key, plan: PortPlan) -> PortState:
        self._check()
        row = was = None
        for one in self._switch.interfaces(key):
            if row is None and _fits(one, plan):
                row = one
            elif was is None and _is_swapped(one, plan):
                await self._swap(key, one)
                was = one
            else:
                await self._remove(key, one)
        if row is None:
            await self._drop(key, plan)
        await self._children.clear(key, keep=plan.uid if plan.parent else "")
        if plan.parent:
            return await self._child(plan)
        carrier = self._carriers.get(plan.fabric)
        if carrier is not None:
            await carrier.prepare(plan)
        match plan.type:
            case PortType.INTERNAL:
                await self._internal(key, plan, row)
            case PortType.VETH | PortType.POD:
                await self._veth(key, plan, row, was)
            case PortType.EXISTING:
                async with self._moving:
                    await self._existing(key, plan, row)
        if plan.relayed and plan.impairment is not None:
            await self._relays.ensure(plan.outer, names.relay(plan.mac)[1], plan.impairment)
        row = self._switch.interface(plan.device)
        if row is None:
            return PortState(installed=False)
        if row.external_ids.get(INSTALLED) == "true":
            self._reported.add(row._uuid)
        found = self._verified.get(key)
        correct = found is not None and found.held and not row.error and _is_as_set(found, row)
        return PortState(
            installed=correct and self._is_installed(plan, row),
            error=row.error or (carrier.error(plan) if carrier is not None else ""),
            late=_contradicts(row, plan),
            refused=carrier.refusal(plan) if carrier is not None else "",
            withdrawn=self._is_withdrawn(row),
        )

    def _is_withdrawn(self, row: Interface) -> bool:
        """Whether OVN withdrew `ovn-installed`, perhaps because a child went, and no recompute was requested yet."""
        at = row.external_ids.get(INSTALLED_AT)
        if at is None or row.external_ids.get(INSTALLED) == "true" or self._requested.get(row._uuid) == at:
            return False
        return row._uuid in self._carrying or row._uuid not in self._reported

    async def request_recompute(self, plan: PortPlan) -> None:
        """Ask OVN, once, for a recompute if it withdrew `ovn-installed` from a port."""
        row = self._switch.interface(plan.device)
        if row is not None and self._is_withdrawn(row):
            at = self._requested[row._uuid] = row.external_ids[INSTALLED_AT]
            log.info("requesting a recompute from OVN: %s is no longer reported as installed", row.name)
            await self._switch.request_recompute(f"{row.name} {at}")

    async def _child(self, plan: PortPlan) -> PortState:
        """Return the state of a child, and record the programs to run for it."""
        row = self._children.carrier(plan)
        if row is None or row.name != plan.device:
            error = f"spec.port.parent: {plan.parent} is not on the switch: see its own conditions"
            return PortState(installed=False, error=error, reason=NOT_PLUGGED)
        self._carrying.add(row._uuid)
        await self._children.ensure(plan)
        if row.error:
            error = f"spec.port.parent: the switch cannot use the device of {plan.parent}: {row.error}"
            return PortState(installed=False, error=error, reason=NOT_PLUGGED)
        return PortState(row.external_ids.get(INSTALLED) == "true")

    def _is_installed(self, plan: PortPlan, row: Interface) -> bool:
        if plan.fabric is not Fabric.OVN:
            carrier = self._carriers.get(plan.fabric)
            return carrier is not None and carrier.carries(plan, row)
        return row.external_ids.get(INSTALLED) == "true"

    async def _internal(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        if row is None:
            self._check_free(plan)
            if not plan.generated and await self._links.device(plan.device) is not None:
                raise ProblemError("NameTaken", f"device {plan.device} exists on the node")
            await self._switch.plug(plan)
            return
        # Not earlier: when a device changes, the switch reads all its ports again, and OVN waits meanwhile.
        ready = plan.fabric is not Fabric.OVN or self._is_installed(plan, row)
        if (
            ready
            and row.ofport is not None
            and row.ofport > 0
            and not row.error
            and not self._is_verified(key, plan, row)
        ):
            found = await self._links.inner(plan, given(row))
            self._verified[key] = _Verified(plan, found.index, held=True, up=_now())
        await self._switch.correct(row, plan)

    async def _veth(self, key: Key, plan: PortPlan, row: Interface | None, was: Interface | None) -> None:
        """Make the pair of a port; `was` is the interface without a relay, or with one, that it had before."""
        record = self.sandboxes.missing(plan) if plan.type is PortType.POD else ()
        if row is None:
            self._check_free(plan)
            if plan.creates_netns:
                await self._create_namespace(plan)
            outer = await self._links.pair(plan, () if was is None else given(was))
            self._verified[key] = _Verified(plan, outer.index)
            await self._switch.plug(plan, was=was, also=record)
            return
        if record:
            await self._switch.writer.commit(record)
        if await self._is_held(key, plan, row):
            await self._switch.correct(row, plan)
        else:
            if plan.creates_netns:
                await self._create_namespace(plan)
            found = await self._links.same_pair(plan, given(row))
            if found is not None and not _let_go(row, found):
                self._verified[key] = _Verified(plan, found.index, found.held, _now() if found.held else NEVER)
                await self._switch.correct(row, plan)
                return
            await self._switch.unplug(row)
            outer = await self._links.pair(plan, ())
            self._verified[key] = _Verified(plan, outer.index)
            same = found is not None and found.index == outer.index
            await self._switch.plug(plan, was=row if same else None)

    async def _existing(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        if row is not None and not plan.takes_used and row.external_ids.get(FROM, "none:") != "none:":
            raise ProblemError(*in_use(plan.namespace, plan.device, "was a port of a bridge"))
        if row is not None and await self._is_held(key, plan, row):
            return
        device = await self._links.device(plan.device)
        if device is None:
            raise ProblemError("DeviceMissing", f"there is no device {plan.device} on the node")
        master = await self._links.bridge_of(device)
        there = self._switch.interface(plan.device)
        underlay = self._underlay_device()
        if underlay and underlay in (plan.device, master, self._switch.bridge_name_of(plan.device)):
            raise ProblemError("DeviceInUse", f"device {plan.device} connects the node to other nodes")
        if row is None:
            await self._check_unused(device)
            self._check_granted(plan, device)
        was = None
        if row is not None and _let_go(row, device):
            await self._switch.unplug(row)
            row, there, was = None, self._switch.interface(plan.device), row
        if row is not None:
            await self._switch.correct(row, plan)
        elif there is not None:
            await self._switch.move(there, plan)
        else:
            # Recorded before the device is moved: after a crash in between it can still be returned.
            home = master or self._switch.owed().get(plan.device, "")
            await self._switch.plug(plan, origin=f"linux:{home}" if home else "none:", was=was)
        if master:
            await self._links.enslave(plan.device, "")
        await self._links.set_up(plan.device, up=not plan.link_down)
        held = row is not None and device.held
        self._verified[key] = _Verified(plan, device.index, held, _now() if held else NEVER)

    async def _check_unused(self, device: Link) -> None:
        """Refuse a device that the node itself needs: an attachment must not cut off its node."""
        mappings = read_mappings(self._switch.root().external_ids.get(MAPPINGS, ""))
        bridge_name = self._switch.bridge_name_of(device.name)
        networks = [network for network, bridge in mappings if bridge in (bridge_name, device.name)]
        if networks:
            raise ProblemError(
                "DeviceInUse", f"device {device.name} connects the node to physical network {networks[0]}"
            )
        if use := await self._links.in_use(device, switched=self._switch.interface(device.name) is not None):
            raise ProblemError("DeviceInUse", f"device {device.name} {use}")

    def _check_granted(self, plan: PortPlan, device: Link) -> None:
        """Refuse a device that another program uses, unless it is granted by its exact name."""
        bridge_name = self._switch.bridge_name_of(device.name)
        use = f"is a port of bridge {bridge_name}" if bridge_name else "is a port of a bridge" if device.master else ""
        use = use or ("is one end of a veth pair" if device.kind == "veth" else "")
        if use and not plan.takes_used:
            raise ProblemError(*in_use(plan.namespace, plan.device, use))

    async def _drop(self, key: Key, plan: PortPlan | None = None) -> None:
        """Remove the pair of an attachment if its port was taken off the switch by another program.

        A pair that the plan needs stays.
        """
        found = self._verified.get(key)
        if found is None or not found.plan.paired or self._switch.interface(found.plan.device) is not None:
            return
        if plan is None or (plan.type, plan.device) != (found.plan.type, found.plan.device):
            del self._verified[key]
            await self._links.remove_pair(found.plan.device)

    async def _remove(self, key: Key, row: Interface) -> None:
        await self._switch.unplug(row, gone=True, also=self.sandboxes.overdue())
        self._verified.pop(key, None)
        if FROM not in row.external_ids and row.type != "internal":
            await self._links.remove_pair(row.name)
            if behind := names.relayed(row.name):
                await self._links.remove_pair(behind)
        elif FROM in row.external_ids and row.admin_state == "down" and await self._links.device(row.name) is not None:
            await self._links.set_up(row.name, up=True)  # Its owner gets it as it was taken.

    async def _swap(self, key: Key, row: Interface) -> None:
        """Take a port off the switch that gets a relay, or loses it; the workload keeps its pair."""
        await self._switch.unplug(row)
        self._verified.pop(key, None)
        if names.relayed(row.name):
            await self._links.remove_pair(row.name)

    async def _return_devices(self) -> None:
        """Return devices to the Linux bridges that they were taken from."""
        for name, bridge in self._switch.owed().items():
            async with self._moving:
                if self._switch.interface(name) is not None:
                    continue  # It is in use.
                if await self._links.device(name) is None or await self._links.device(bridge) is None:
                    log.warning("cannot return %s to bridge %s: one of them does not exist", name, bridge)
                else:
                    await self._links.enslave(name, bridge)
                await self._switch.returned(name)

    async def _is_held(self, key: Key, plan: PortPlan, row: Interface) -> bool:
        """Whether a device is as planned, and the switch, once it reports the port, holds that very device."""
        if not self._is_verified(key, plan, row):
            self._verified.pop(key, None)
            return False
        found = self._verified[key]
        if found.held or row.ofport is None:
            return True
        device = await self._links.device(plan.device)
        if device is None or device.index != found.device or not device.held:
            self._verified.pop(key, None)
            return False
        self._verified[key] = found._replace(held=True)
        return True

    def _is_verified(self, key: Key, plan: PortPlan, row: Interface | None) -> bool:
        found = self._verified.get(key)
        if found is None or found.plan != plan or row is None or row.error or not _is_as_set(found, row):
            return False
        return row.ifindex in (None, found.device) and row.ofport != -1

    def _check_free(self, plan: PortPlan) -> None:
        if self._switch.interface(plan.device) is not None:
            raise ProblemError("NameTaken", f"interface {plan.device} exists on the switch and is not ours")

    def _check(self) -> None:
        if not self._switch.synced:
            raise ProblemError(
                "SwitchUnreachable", f"the switch's database at {self._switch.client.remote} does not answer"
            )


def _is_as_set(found: _Verified, row: Interface) -> bool:
    """Whether a device is up, or down, as planned, to the best of our knowledge.

    The switch opens a device before it reports the port, and may set it down by that. Once the port is reported, what
    we read or set counts for a while, until the switch has noticed it.
    """
    return not _contradicts(row, found.plan) or _now() - found.up < UP_NOTICED


def _contradicts(row: Interface, plan: PortPlan) -> bool:
    """Whether the switch reports a device as down that must be up, or as up that must be down."""
    return row.admin_state == ("up" if plan.link_down else "down")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _let_go(row: Interface, device: Link) -> bool:
    """Whether the switch reports a port whose device it does not hold: it holds an earlier device, which is gone."""
    return row.ofport is not None and row.ofport > 0 and not device.held


def _is_swapped(row: Interface, plan: PortPlan) -> bool:
    """Whether an interface is the one that a port had before it got a relay, or lost it."""
    both = names.interface(plan.mac), names.relay(plan.mac)[0]
    return (
        plan.paired
        and row.external_ids.get(UID) == plan.uid
        and row.name != plan.device
        and row.name in both
        and plan.device in both
    )


def _fits(row: Interface, plan: PortPlan) -> bool:
    """Whether an interface can be changed into what is planned."""
    return (
        row.external_ids.get(UID) == plan.uid
        and row.name == plan.device
        and (row.type == "internal") is (plan.type is PortType.INTERNAL)
        and (FROM in row.external_ids) is (plan.type is PortType.EXISTING)
    )
