"""One port, whatever it is made of: the device and the interface on the switch, made and unmade.

    internal   the switch makes the device; when OVN knows it too, or VXLAN carries it, it is given its addresses
    veth       the pair is made and given its addresses, then its outer end is put on the switch
    existing   a device that is there is taken from its bridge, and goes back to it
    child      nothing is made: its parent's device carries it, and when OVN has that installed, it is

Each step is taken only where something is missing, so that a plan that is met costs no write. What a step needs of
others (that the switch made the device) is seen in the database's copy; it is not waited for.

A switch opens a device once, when it first sees the port, and holds on to it: to one that is made anew in its place,
of the same name, it passes no packets, although it reports it as if it did. So before a device is made anew its port
is taken off the switch; and a device that the switch says is its port, and that nobody holds, is plugged again.

A port is installed when OVN says so, in the database; that of a vxlan Network, when its `Carrier` has its flows on the
switch. When a child goes, ovn-controller (23.03 to 26.03) takes its word back for the parent, whose flows stay, and
does not say it again until it looks at everything anew: it is asked to, once for each time (`ask_again`).
"""

import asyncio
import logging
from collections.abc import Collection
from typing import NamedTuple, Protocol

from netloom.control.runtime.cache import Key
from netloom.drivers.errors import ProblemError
from netloom.drivers.link.codec import Link
from netloom.drivers.link.worker import Links
from netloom.drivers.vswitch.children import Children
from netloom.drivers.vswitch.driver import FROM, INSTALLED, INSTALLED_AT, UID, Vswitch, given
from netloom.drivers.vswitch.prepare import MAPPINGS, read_mappings
from netloom.model.attachments import PortType
from netloom.model.networks import Fabric
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.node.children import NOT_PLUGGED
from netloom.plan.node.grants import in_use
from netloom.plan.node.ports import PortPlan

log = logging.getLogger(__name__)

UP_HEARD = 1.0
"""Within how many seconds a switch has heard that a device is up."""
NEVER = float("-inf")


class State(NamedTuple):
    """How far a port is."""

    installed: bool
    error: str = ""
    """What the switch says is wrong with it, or what else is."""
    down: bool = False
    """Whether the switch says that its device is down: it may not have heard, or have undone, that we set it up."""
    refused: str = ""
    """What the switch says is wrong with its flows; it will not change its mind."""
    reason: str = "SwitchRefused"
    """The error in one word."""
    lost: bool = False
    """Whether OVN said once that it is installed, and may have taken that back by mistake."""


class Carrier(Protocol):
    """Who sees to the flows of ports of vxlan Networks."""

    async def prepare(self) -> None:
        """Have the bridge that the ports are on."""
        ...

    def carries(self, plan: PortPlan, row: Interface) -> bool:
        """Whether a port's flows are on the switch."""
        ...

    def fault(self, plan: PortPlan) -> str:
        """Return what the switch says is wrong with a port's flows; "": nothing."""
        ...


class _Good(NamedTuple):
    """What was found right in the kernel."""

    plan: PortPlan
    device: int
    held: bool = False
    """Whether the switch was seen to hold it."""
    up: float = NEVER
    """Since when, although the switch has not said so yet, it is up."""


class Ports:
    """Makes ports, and unmakes them."""

    def __init__(self, switch: Vswitch, links: Links) -> None:
        self._switch = switch
        self._children = Children(switch)
        self.carrier: Carrier | None = None
        """Without one, ports of vxlan Networks are made, and never found to be installed."""
        self._links = links
        self._good: dict[Key, _Good] = {}
        self._carrying: set[str] = set()
        """The interfaces that carry children, or did."""
        self._heard: set[str] = set()
        """The interfaces of which OVN said that they are installed."""
        self._asked: dict[str, str] = {}
        """Those of which it was asked to say so again, and when it had said so before."""
        self.underlay = ""
        """The device with the node's own address: it, and what is on it, is not to be taken."""
        self._moving = asyncio.Lock()
        """Held while a device is taken or given back: the next to take it may be another attachment."""

    def places(self) -> set[tuple[str, str]]:
        """Return the attachments that have ports, or of which something is kept."""
        return self._switch.places() | self._children.places() if self._switch.synced else set()

    def has(self, key: Key) -> bool:
        """Whether an attachment has a port."""
        return bool(self._switch.interfaces(key))

    def doubt(self, key: Key | None = None) -> None:
        """Have the kernel looked at the next time: something may have happened to the device, or to all."""
        if key is None:
            self._good.clear()
            there = self._switch.client.cache.rows("Interface").keys()
            self._carrying &= there
            self._heard &= there
            self._asked = {row: said for row, said in self._asked.items() if row in there}
        else:
            self._good.pop(key, None)

    async def clear(self, key: Key, *, keep: str = "") -> int:
        """Remove an attachment's ports, but for those of the uid `keep`; return how many."""
        self._check()
        rows = [row for row in self._switch.interfaces(key) if not keep or row.external_ids.get(UID) != keep]
        for row in rows:
            await self._remove(key, row)
        await self._drop(key)
        await self._children.clear(key, keep=keep)
        await self._settle()
        return len(rows)

    async def tidy(self, wanted: Collection[str]) -> None:
        """Remove what a crash left: pairs of ours that are neither on the switch nor among the `wanted` devices."""
        self._check()
        await self._settle()
        for name in await self._links.pairs():
            if name not in wanted and self._switch.interface(name) is None:
                log.info("removing %s, left behind", name)
                await self._links.remove_pair(name)

    async def ensure(self, plan: PortPlan) -> State:
        """Do what is missing; return how far it is."""
        self._check()
        key = Key(plan.namespace, plan.name)
        row = None
        for one in self._switch.interfaces(key):
            if row is None and _fits(one, plan):
                row = one
            else:
                await self._remove(key, one)
        if row is None:
            await self._drop(key, plan)
        await self._children.clear(key, keep=plan.uid if plan.parent else "")
        if plan.parent:
            return await self._child(plan)
        if plan.fabric is Fabric.VXLAN and self.carrier is not None:
            await self.carrier.prepare()
        match plan.type:
            case PortType.INTERNAL:
                await self._internal(key, plan, row)
            case PortType.VETH:
                await self._veth(key, plan, row)
            case PortType.EXISTING:
                await self._existing(key, plan, row)
        row = self._switch.interface(plan.device)
        if row is None:
            return State(installed=False)
        if row.external_ids.get(INSTALLED) == "true":
            self._heard.add(row._uuid)
        good = self._good.get(key)
        fine = good is not None and good.held and not row.error and _is_up(good, row)
        return State(
            fine and self._is_installed(plan, row),
            row.error or "",
            row.admin_state == "down",
            self.carrier.fault(plan) if plan.fabric is Fabric.VXLAN and self.carrier is not None else "",
            lost=self._is_lost(row),
        )

    def _is_lost(self, row: Interface) -> bool:
        """Whether OVN took its word back, for all we know because a child went, and has not been asked yet."""
        said = row.external_ids.get(INSTALLED_AT)
        if said is None or row.external_ids.get(INSTALLED) == "true" or self._asked.get(row._uuid) == said:
            return False
        return row._uuid in self._carrying or row._uuid not in self._heard

    async def ask_again(self, plan: PortPlan) -> None:
        """Have OVN asked once whether a port that it took its word back for is installed."""
        row = self._switch.interface(plan.device)
        if row is not None and self._is_lost(row):
            said = self._asked[row._uuid] = row.external_ids[INSTALLED_AT]
            log.info("asking OVN again whether %s is installed", row.name)
            await self._switch.ask_again(f"{row.name} {said}")

    async def _child(self, plan: PortPlan) -> State:
        """See whether a child is carried, and have what is to be run for it known."""
        row = self._children.carrier(plan)
        if row is None or row.name != plan.device:
            said = f"spec.port.parent: {plan.parent} is not on the switch: see its own conditions"
            return State(installed=False, error=said, reason=NOT_PLUGGED)
        self._carrying.add(row._uuid)
        await self._children.keep(plan)
        if row.error:
            said = f"spec.port.parent: the switch cannot use the device of {plan.parent}: {row.error}"
            return State(installed=False, error=said, reason=NOT_PLUGGED)
        return State(row.external_ids.get(INSTALLED) == "true")

    def _is_installed(self, plan: PortPlan, row: Interface) -> bool:
        if plan.fabric is Fabric.VXLAN:
            return self.carrier is not None and self.carrier.carries(plan, row)
        return row.external_ids.get(INSTALLED) == "true"

    async def _internal(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        if row is None:
            self._check_free(plan)
            if not plan.generated and await self._links.device(plan.device) is not None:
                raise ProblemError("NameTaken", f"there is a device {plan.device} already on the node")
            await self._switch.plug(plan)
            return
        # Not before: a device that changes has the switch look at all of its ports, and OVN waits meanwhile.
        known = plan.fabric is Fabric.VXLAN or self._is_installed(plan, row)
        if known and row.ofport is not None and row.ofport > 0 and not row.error and not self._is_good(key, plan, row):
            found = await self._links.inner(plan, given(row))
            self._good[key] = _Good(plan, found.index, held=True, up=_now())
        await self._switch.correct(row, plan)

    async def _veth(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        if row is None:
            self._check_free(plan)
            outer = await self._links.pair(plan, ())
            self._good[key] = _Good(plan, outer.index)
            await self._switch.plug(plan)
        elif await self._is_held(key, plan, row):
            await self._switch.correct(row, plan)
        else:
            found = await self._links.same_pair(plan, given(row))
            if found is not None and not _let_go(row, found):
                self._good[key] = _Good(plan, found.index, found.held, _now() if found.held else NEVER)
                await self._switch.correct(row, plan)
                return
            await self._switch.unplug(row)
            outer = await self._links.pair(plan, ())
            self._good[key] = _Good(plan, outer.index)
            same = found is not None and found.index == outer.index
            await self._switch.plug(plan, was=row if same else None)

    async def _existing(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        async with self._moving:
            await self._take(key, plan, row)

    async def _take(self, key: Key, plan: PortPlan, row: Interface | None) -> None:
        if row is not None and not plan.takes_used and row.external_ids.get(FROM, "none:") != "none:":
            raise ProblemError.of(in_use(plan.namespace, plan.device, "was a port of a bridge"))
        if row is not None and await self._is_held(key, plan, row):
            return
        device = await self._links.device(plan.device)
        if device is None:
            raise ProblemError("DeviceMissing", f"there is no device {plan.device} on the node")
        master = await self._links.bridge_of(device)
        there = self._switch.interface(plan.device)
        if self.underlay and self.underlay in (plan.device, master, self._switch.place_of(plan.device)):
            raise ProblemError("DeviceInUse", f"device {plan.device} is the node's own way to other nodes")
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
            # Remembered before it is done: who dies in between finds the way back.
            home = master or self._switch.owed().get(plan.device, "")
            await self._switch.plug(plan, origin=f"linux:{home}" if home else "none:", was=was)
        if master:
            await self._links.enslave(plan.device, "")
        await self._links.up(plan.device)
        held = row is not None and device.held
        self._good[key] = _Good(plan, device.index, held, _now() if held else NEVER)

    async def _check_unused(self, device: Link) -> None:
        """Refuse a device that others on the node live by: a wish must not cut off its node."""
        mappings = read_mappings(self._switch.root().external_ids.get(MAPPINGS, ""))
        place = self._switch.place_of(device.name)
        networks = [network for network, bridge in mappings if bridge in (place, device.name)]
        if networks:
            raise ProblemError(
                "DeviceInUse", f"device {device.name} connects the node to physical network {networks[0]}"
            )
        if use := await self._links.in_use(device, switched=self._switch.interface(device.name) is not None):
            raise ProblemError("DeviceInUse", f"device {device.name} {use}")

    def _check_granted(self, plan: PortPlan, device: Link) -> None:
        """Refuse a device of another program that is not granted by its name."""
        place = self._switch.place_of(device.name)
        use = f"is a port of bridge {place}" if place else "is a port of a bridge" if device.master else ""
        use = use or ("is one end of a veth pair" if device.kind == "veth" else "")
        if use and not plan.takes_used:
            raise ProblemError.of(in_use(plan.namespace, plan.device, use))

    async def _drop(self, key: Key, plan: PortPlan | None = None) -> None:
        """Remove the pair that was made for an attachment, if nothing says any more that it is there but we.

        As when somebody took its port off the switch. A pair that the plan wants stays.
        """
        good = self._good.get(key)
        if good is None or good.plan.type is not PortType.VETH or self._switch.interface(good.plan.device) is not None:
            return
        if plan is None or (plan.type, plan.device) != (good.plan.type, good.plan.device):
            del self._good[key]
            await self._links.remove_pair(good.plan.device)

    async def _remove(self, key: Key, row: Interface) -> None:
        await self._switch.unplug(row, gone=True)
        self._good.pop(key, None)
        if FROM not in row.external_ids and row.type != "internal":
            await self._links.remove_pair(row.name)

    async def _settle(self) -> None:
        """Put devices back on the Linux bridges they came from."""
        for name, bridge in self._switch.owed().items():
            async with self._moving:
                if self._switch.interface(name) is not None:
                    continue  # It is in use, or in use again.
                if await self._links.device(name) is None or await self._links.device(bridge) is None:
                    log.warning("%s cannot go back to %s: there is no such device", name, bridge)
                else:
                    await self._links.enslave(name, bridge)
                await self._switch.returned(name)

    async def _is_held(self, key: Key, plan: PortPlan, row: Interface) -> bool:
        """Whether a device is as it should be, and the switch holds that very one, as soon as it says so."""
        if not self._is_good(key, plan, row):
            self._good.pop(key, None)
            return False
        good = self._good[key]
        if good.held or row.ofport is None:
            return True
        device = await self._links.device(plan.device)
        if device is None or device.index != good.device or not device.held:
            self._good.pop(key, None)
            return False
        self._good[key] = good._replace(held=True)
        return True

    def _is_good(self, key: Key, plan: PortPlan, row: Interface | None) -> bool:
        good = self._good.get(key)
        if good is None or good.plan != plan or row is None or row.error or not _is_up(good, row):
            return False
        return row.ifindex in (None, good.device) and row.ofport != -1

    def _check_free(self, plan: PortPlan) -> None:
        if self._switch.interface(plan.device) is not None:
            raise ProblemError("NameTaken", f"interface {plan.device} exists on the switch and is not ours")

    def _check(self) -> None:
        if not self._switch.synced:
            raise ProblemError(
                "SwitchUnreachable", f"the switch's database at {self._switch.client.remote} does not answer"
            )


def _is_up(good: _Good, row: Interface) -> bool:
    """Whether a device is up, as far as we know.

    The switch opens a device, by which it may undo that it is up, before it reports a port: after that what we found,
    or set, is believed for a while until the switch has heard of it.
    """
    return row.admin_state != "down" or _now() - good.up < UP_HEARD


def _now() -> float:
    return asyncio.get_running_loop().time()


def _let_go(row: Interface, device: Link) -> bool:
    """Whether the switch says that it has a port, and does not have its device: it holds another one, which is gone."""
    return row.ofport is not None and row.ofport > 0 and not device.held


def _fits(row: Interface, plan: PortPlan) -> bool:
    """Whether an interface can become what is planned by changes to it."""
    return (
        row.external_ids.get(UID) == plan.uid
        and row.name == plan.device
        and (row.type == "internal") is (plan.type is PortType.INTERNAL)
        and (FROM in row.external_ids) is (plan.type is PortType.EXISTING)
    )
