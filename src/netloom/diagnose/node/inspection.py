"""A node, looked at from outside its agent: its switch's database, its devices, and what the resources mean there.

A look asks for nothing but to read: not for the lock of the switch's database either, which is the agent's. Everything
runs in the node's network namespace: in a lab that is entered by a thread of its own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from random import SystemRandom
from typing import Any, TypeVar, cast

from netloom.control.node.ports import Ports
from netloom.control.node.status import PLUGGED
from netloom.diagnose.access import Switch, following
from netloom.diagnose.node import fabric as node_fabric
from netloom.drivers.link.audit import faults
from netloom.drivers.link.trouble import Trouble
from netloom.drivers.link.worker import Links
from netloom.drivers.vswitch.driver import GIVEN, INSTALLED, LOCK, OF, OURS, UID, VTEP, VXLAN_BRIDGE, Vswitch, given
from netloom.drivers.vswitch.mirrors import MirrorPlan
from netloom.drivers.vswitch.prepare import MAPPINGS, read_mappings
from netloom.drivers.vxlan.bridge import underlay_of
from netloom.errors import Unreachable
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Resource
from netloom.model.paths import Mirror, MirrorDirection
from netloom.ovsdb.rows import vswitch as rows
from netloom.plan.audit import ovn as audit_ovn
from netloom.plan.audit.ovn import Finding, Interface
from netloom.plan.node.grants import EVERYTHING, NOT_GRANTED
from netloom.plan.node.ports import Host, PortPlan, plan_ports
from netloom.plan.problem import Unit

T = TypeVar("T")


def on_node(switch: Switch, owner: str, work: "Callable[[NodeLook], Awaitable[T]]") -> T:
    """Return what `work` comes to on a node; `Unreachable` where its switch does not answer."""

    async def looking() -> T:
        look = NodeLook(switch, owner)
        try:
            async with following(look.switch.client):
                return await work(look)
        finally:
            look.links.close()

    if not switch.netns:
        return asyncio.run(looking())
    from netloom.lab.entering import inside  # only where a lab is named

    try:
        return inside(switch.netns, lambda: asyncio.run(looking()))
    except OSError as error:
        raise Unreachable(f"network namespace {switch.netns}: {error.strerror or error}") from None


class NodeLook:
    """One node."""

    def __init__(self, switch: Switch, owner: str) -> None:
        self.switch = Vswitch([switch.remote], owner=owner, random=SystemRandom())
        self.switch.client.unlock(LOCK)
        self.links = Links(owner=owner)
        self.folder = switch.folder
        """Where the switch's sockets are."""
        self._name = switch.node

    @property
    def name(self) -> str:
        """The node's name: what its switch says, else what it is called."""
        with contextlib.suppress(Trouble):
            return self.switch.root().external_ids.get("system-id", "") or self._name
        return self._name

    async def host(self) -> Host:
        """Return what plans must know of the node, as its agent does."""
        ids = self.switch.root().external_ids
        underlay = self._underlay()
        bridge = self.switch.bridge() or self.switch.bridge(VXLAN_BRIDGE)
        self.links.userspace = bridge is None or bridge.datapath_type == "netdev"
        device = await self.links.holder(underlay) if underlay else None
        return Host(
            underlay_mtu=device.mtu if device else 1500,
            underlay_v6=":" in underlay,
            physical_networks=frozenset(dict(read_mappings(ids.get(MAPPINGS, "")))),
            grants=EVERYTHING,  # What it does not grant, its agent says: see `plans_of`.
        )

    async def ports(self) -> Ports:
        """Return the agent's hands on ports, which know, as the agent's do, what on the node is not to be taken."""
        found = Ports(self.switch, self.links)
        underlay = self._underlay()
        device = await self.links.holder(underlay) if underlay else None
        if device is None:
            raise Unreachable(
                f"no device of node {self.name} has its underlay's address, {underlay or 'which is not told'}"
            )
        found.underlay = device.name
        return found

    def _underlay(self) -> str:
        """Return the node's own address: of several, the first."""
        told = self.switch.root().external_ids.get("ovn-encap-ip", "").partition(",")[0].strip()
        return told or underlay_of(self.switch)

    def interfaces(self) -> list[rows.Interface]:
        """Return our interfaces, but for the fabric's tunnel."""
        every = [cast("rows.Interface", row) for row in self._all("Interface")]
        return [row for row in every if self.switch.is_ours(row) and row.name != VTEP]

    def whose(self, row: rows.Interface) -> str:
        """Return the attachment that an interface says it is for, as NAMESPACE/NAME."""
        unit = unit_of(row.external_ids.get(OF, ""))
        return f"{unit.namespace}/{unit.name}" if unit is not None else row.name

    def numbers(self) -> dict[int, str]:
        """Return the devices on the bridge that OVN works on, by their numbers there."""
        bridge = self.switch.bridge()
        ports = [row for row in self._all("Port") if bridge is not None and row._uuid in bridge.ports]
        inside = {uuid for port in ports for uuid in port.interfaces}
        return {row.ofport: row.name for row in self._all("Interface") if row._uuid in inside and (row.ofport or 0) > 0}

    async def findings(self, resources: Iterable[Resource]) -> list[Finding]:
        """Return what does not fit here."""
        resources = list(resources)
        plans, waiting = plans_of(resources, self.name, await self.host())
        seen = [self._seen(row) for row in self.interfaces()]
        wanted = [self._wanted(plan) for plan in plans.values()]
        used = {row.name for row in map(self._row, self._all("Interface"))} | {plan.device for plan in plans.values()}
        return [
            *await self._flows(resources, plans),
            *audit_ovn.audit_switch(wanted, seen, waiting),
            *audit_ovn.audit_devices(await self.links.pairs(), used),
            *audit_ovn.audit_mirrors(
                {Unit("Mirror", *key) for key in mirrors_of(resources, self.switch, plans)}, self._mirrors()
            ),
        ]

    async def _flows(self, resources: list[Resource], plans: dict[tuple[str, str], PortPlan]) -> list[Finding]:
        """Return what does not fit of the vxlan fabric, where there is one."""
        if self.switch.bridge(VXLAN_BRIDGE) is None:
            return []
        plan = node_fabric.wanted(resources, self.name, plans, self.switch)
        return await node_fabric.findings(self.folder, self.name, plan, plans)

    def _wanted(self, plan: PortPlan) -> audit_ovn.Wanted:
        mine = [row for row in self.switch.interfaces((plan.namespace, plan.name)) if row.name == plan.device]
        amiss = faults(plan, given(mine[0])) if mine else []
        return audit_ovn.Wanted(plan, self.switch.ids(plan), tuple(amiss))

    def _seen(self, row: rows.Interface) -> Interface:
        ids = row.external_ids
        return Interface(
            name=row.name,
            of=unit_of(ids.get(OF, "")),
            uid=ids.get(UID, ""),
            internal=row.type == "internal",
            # Of the fabric's own ports the flows themselves are looked at.
            installed=ids.get(INSTALLED) == "true" or self.switch.place_of(row.name) == VXLAN_BRIDGE,
            works=row.ofport is not None and row.ofport > 0,
            error=row.error or "",
            ids={key: ids[key] for key in (*OURS, GIVEN) if key in ids},
        )

    def _mirrors(self) -> set[Unit]:
        ours = (row for row in self._all("Mirror") if self.switch.is_ours(row))
        return {unit for row in ours if (unit := unit_of(row.external_ids.get(OF, "")))}

    def _all(self, table: str) -> list[Any]:
        return list(self.switch.client.cache.rows(table).values())

    @staticmethod
    def _row(row: Any) -> rows.Interface:  # noqa: ANN401  # what the cache has
        return cast("rows.Interface", row)


def unit_of(written: str) -> Unit | None:
    """Return the resource that a row says it is for."""
    kind, _, rest = written.partition("/")
    namespace, _, name = rest.partition("/")
    return Unit(kind, namespace, name) if kind and name else None


def plans_of(resources: Iterable[Resource], node: str, host: Host) -> tuple[dict[tuple[str, str], PortPlan], set[Unit]]:
    """Return what is planned for a node, and those of its attachments for which nothing is planned now."""
    resources = [one for one in resources if not isinstance(one, NetworkAttachment) or one.spec.node == node]
    planned = plan_ports(resources, host)
    plans: dict[tuple[str, str], PortPlan] = {}
    waiting: set[Unit] = set()
    for one in resources:
        if not isinstance(one, NetworkAttachment):
            continue
        plan = planned[one.metadata.namespace, one.metadata.name]
        plugged = one.status.condition(PLUGGED)
        refused = plugged is not None and plugged.reason == NOT_GRANTED
        if isinstance(plan, PortPlan) and not one.metadata.deletion_timestamp and not refused:
            plans[one.metadata.namespace, one.metadata.name] = plan
        else:
            waiting.add(Unit(one.kind, one.metadata.namespace, one.metadata.name))
    return plans, waiting


def unjudged(resources: Iterable[Resource]) -> set[tuple[str, str]]:
    """Return the attachments, as they are now, of which their agent has not said whether it plugs them.

    What a node grants its agent knows, and nobody else.
    """
    found = set()
    for one in resources:
        if isinstance(one, NetworkAttachment):
            plugged = one.status.condition(PLUGGED)
            if plugged is None or plugged.observed_generation != one.metadata.generation:
                found.add((one.metadata.namespace, one.metadata.name))
    return found


def mirrors_of(
    resources: Iterable[Resource], switch: Vswitch, plans: dict[tuple[str, str], PortPlan]
) -> dict[tuple[str, str], MirrorPlan]:
    """Return the mirrors a node should have: those of which both ends are plugged there."""
    found = {}
    for one in resources:
        if not isinstance(one, Mirror) or one.metadata.deletion_timestamp:
            continue
        namespace, spec = one.metadata.namespace, one.spec
        ends = [plans.get((namespace, end.attachment)) for end in (spec.source, spec.destination)]
        own = [plan for plan in ends if plan is not None and not plan.parent]
        devices = [plan.device for plan in own if switch.interface(plan.device) is not None]
        if len(devices) == 2:
            sent = spec.direction is not MirrorDirection.INGRESS
            received = spec.direction is not MirrorDirection.EGRESS
            found[namespace, one.metadata.name] = MirrorPlan(devices[0], devices[1], sent, received)
    return found
