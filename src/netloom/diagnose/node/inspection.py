"""A node seen from outside its agent: its switch's database, its devices, and what the resources mean there.

An inspection only reads. It does not request the lock of the switch's database, which belongs to the agent. All of it
runs in the node's network namespace (`Switch.enter`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from random import SystemRandom
from typing import Any, TypeVar

from msgspec import structs

from netloom.control.node.local_ports.ports import Ports
from netloom.diagnose.access import Switch, following
from netloom.diagnose.node import bridges, fabric
from netloom.diagnose.node.fabric import Plans
from netloom.diagnose.snapshot import of_type, unit
from netloom.drivers.link.audit import faults
from netloom.drivers.link.worker import Links
from netloom.drivers.relay.relays import Relays
from netloom.drivers.vswitch.driver import GIVEN, INSTALLED, LOCK, OF, OURS, UID, VTEP, VXLAN_BRIDGE, Vswitch, given
from netloom.drivers.vswitch.network_bridges import NETWORK
from netloom.drivers.vswitch.pods import PodSandboxes
from netloom.drivers.vswitch.prepare import MAPPINGS, read_mappings
from netloom.drivers.vxlan.bridge import underlay_address
from netloom.errors import Unreachable
from netloom.model.conditions import PLUGGED
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import RemoteVTEP
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.paths import Mirror
from netloom.ovsdb.rows import vswitch as rows
from netloom.plan.audit import ovn as audit_ovn
from netloom.plan.audit.finding import Finding
from netloom.plan.audit.ovn import Interface
from netloom.plan.node.grants import EVERYTHING, NOT_GRANTED
from netloom.plan.node.mirrors import MirrorPlan, plan_mirrors
from netloom.plan.node.pods import PodSandbox
from netloom.plan.node.ports import Host, PortPlan, host_of, plan_ports
from netloom.plan.problem import ProblemError, Unit

T = TypeVar("T")


def on_node(switch: Switch, owner: str, work: "Callable[[NodeInspection], Awaitable[T]]") -> T:
    """Return the result of `work` on a node; raise `Unreachable` if its switch does not answer."""

    async def inspect() -> T:
        node = NodeInspection(switch, owner)
        try:
            async with following(node.switch.client):
                return await work(node)
        finally:
            node.relays.close()
            node.links.close()

    return switch.enter(lambda: asyncio.run(inspect()))


class NodeInspection:
    """One node, while its switch's database is connected."""

    def __init__(self, switch: Switch, owner: str) -> None:
        self.switch = Vswitch([switch.remote], owner=owner, random=SystemRandom())
        self.switch.client.unlock(LOCK)
        self.links = Links(owner=owner)
        self.relays = Relays(owner=owner)
        self.folder = switch.folder
        """The directory of the switch's sockets."""
        self._name = switch.node

    @property
    def name(self) -> str:
        """The node's name: the switch's system-id, or else the name by which it was configured."""
        with contextlib.suppress(ProblemError):
            return self.switch.root().external_ids.get("system-id", "") or self._name
        return self._name

    async def host(self) -> Host:
        """Return the properties of the node that port plans depend on, as its agent has them."""
        underlay = underlay_address(self.switch)
        self.links.userspace = self.switch.datapath("netdev") == "netdev"
        device = await self.links.holder(underlay) if underlay else None
        return host_of(
            underlay,
            mtu=None if device is None else device.mtu,
            physical_networks=dict(read_mappings(self.switch.root().external_ids.get(MAPPINGS, ""))),
            grants=EVERYTHING,  # Refusals are in the statuses that its agent writes: see `plans_of`.
        )

    async def ports(self) -> Ports:
        """Return the agent's port driver, which like the agent's own does not touch the underlay device."""
        underlay = underlay_address(self.switch)
        device = await self.links.holder(underlay) if underlay else None
        if device is None:
            raise Unreachable(
                f"no device of node {self.name} has its underlay address {underlay or '(which is not configured)'}"
            )
        name = device.name
        return Ports(self.switch, self.links, carriers={}, relays=self.relays, underlay_device=lambda: name)

    def sandboxes(self) -> list[PodSandbox]:
        """Return the pod sandboxes that the agent recorded."""
        return PodSandboxes(self.switch).recorded()

    def interfaces(self) -> list[rows.Interface]:
        """Return the interfaces that Netloom owns, except the tunnels of fabrics."""
        rows = [row for row in self._all("Interface") if self.switch.is_ours(row) and row.name != VTEP]
        return [row for row in rows if not row.external_ids.get(OF, "").startswith(f"{NETWORK}/")]

    def attachment_of(self, row: rows.Interface) -> str:
        """Return the attachment that an interface belongs to, as NAMESPACE/NAME."""
        unit = unit_of(row.external_ids.get(OF, ""))
        return f"{unit.namespace}/{unit.name}" if unit is not None else row.name

    def devices_by_ofport(self) -> dict[int, str]:
        """Return the devices on OVN's integration bridge, by their OpenFlow port numbers."""
        bridge = self.switch.bridge()
        ports = [row for row in self._all("Port") if bridge is not None and row._uuid in bridge.ports]
        inside = {uuid for port in ports for uuid in port.interfaces}
        return {row.ofport: row.name for row in self._all("Interface") if row._uuid in inside and (row.ofport or 0) > 0}

    async def findings(self, resources: Iterable[Resource]) -> list[Finding]:
        """Return the differences between the resources and this node."""
        resources = list(resources)
        plans, waiting = plans_of(resources, self.name, await self.host(), self.sandboxes())
        seen = [self._seen(row) for row in self.interfaces()]
        wanted = [self._wanted(plan) for plan in plans.values()]
        used = {row.name for row in self._all("Interface")} | {
            device for plan in plans.values() for device in (plan.device, plan.outer)
        }
        mirrors = [unit_of(row.external_ids.get(OF, "")) for row in self._all("Mirror") if self.switch.is_ours(row)]
        copied = self.mirrors(resources, plans)
        vteps = of_type(resources, RemoteVTEP)
        remote = {
            Unit(one.kind, one.metadata.namespace, one.metadata.name) for one in vteps if one.spec.node == self.name
        }
        return [
            *await self._flows(resources, plans),
            *bridges.findings(self.switch, self.name, bridges.plan(resources, self.name, plans)),
            *audit_ovn.audit_switch(wanted, seen, {*waiting, *copied, *remote}),  # Tunnel ports belong to these.
            *audit_ovn.audit_devices(await self.links.pairs(), used),
            *audit_ovn.audit_mirrors(copied, {unit for unit in mirrors if unit is not None}),
        ]

    def mirrors(self, resources: Iterable[Resource], plans: Plans) -> dict[Unit, MirrorPlan]:
        """Return the mirrors that the node should have."""

        def device(namespace: str, name: str) -> str:
            plan = plans.get((namespace, name))
            row = None if plan is None else self.switch.plugged((namespace, name), plan.uid)
            return "" if row is None else row.name

        def devices(namespace: str, network: str) -> set[str]:
            every = of_type(resources, NetworkAttachment)
            inside = [one for one in every if (one.metadata.namespace, one.spec.network) == (namespace, network)]
            return {device(namespace, one.metadata.name) for one in inside} - {""}

        resources = list(resources)
        underlay = next(
            (one.spec.underlay_ip for one in of_type(resources, Node) if one.metadata.name == self.name), ""
        )
        return plan_mirrors(of_type(resources, Mirror), underlay, device, devices)

    async def _flows(self, resources: list[Resource], plans: dict[tuple[str, str], PortPlan]) -> list[Finding]:
        """Return the differences in the flows of the vxlan fabric, if this node has it."""
        if self.switch.bridge(VXLAN_BRIDGE) is None:
            return []
        plan = fabric.plan(resources, self.name, plans, self.switch)
        return await fabric.findings(self.folder, self.name, plan, plans)

    def _wanted(self, plan: PortPlan) -> audit_ovn.ExpectedInterface:
        mine = [row for row in self.switch.interfaces((plan.namespace, plan.name)) if row.name == plan.device]
        wrong = faults(plan, given(mine[0])) if mine else []
        return audit_ovn.ExpectedInterface(plan, self.switch.ids(plan), tuple(wrong))

    def _seen(self, row: rows.Interface) -> Interface:
        ids = row.external_ids
        return Interface(
            name=row.name,
            of=unit_of(ids.get(OF, "")),
            uid=ids.get(UID, ""),
            internal=row.type == "internal",
            # For ports of other fabrics the flows, or the bridge, are checked.
            installed=ids.get(INSTALLED) == "true" or self.switch.bridge_name_of(row.name) in self._bridges_of_agents(),
            works=row.ofport is not None and row.ofport > 0,
            error=row.error or "",
            ids={key: ids[key] for key in (*OURS, GIVEN) if key in ids},
        )

    def _bridges_of_agents(self) -> set[str]:
        return {VXLAN_BRIDGE, *(bridge.name for bridge in self.switch.network_bridges().values())}

    def _all(self, table: str) -> list[Any]:
        return list(self.switch.client.cache.rows(table).values())


def unit_of(written: str) -> Unit | None:
    """Return the resource that a row's external_ids name."""
    kind, _, rest = written.partition("/")
    namespace, _, name = rest.rpartition("/")
    return Unit(kind, namespace, name) if kind and name else None


def plans_of(
    resources: Iterable[Resource], node: str, host: Host, sandboxes: Iterable[PodSandbox] = ()
) -> tuple[dict[tuple[str, str], PortPlan], set[Unit]]:
    """Return the port plans of a node with these pods, and its attachments for which there is no plan at present."""
    resources = [one for one in resources if not isinstance(one, NetworkAttachment) or one.spec.node == node]
    for found in of_type(resources, Node):
        if found.metadata.name == node:
            able = frozenset(name for name, has in found.status.capabilities.items() if has)
            host = structs.replace(host, capabilities=able)
    planned = plan_ports(resources, host, sandboxes)
    plans: dict[tuple[str, str], PortPlan] = {}
    waiting: set[Unit] = set()
    for one in of_type(resources, NetworkAttachment):
        plan = planned[one.metadata.namespace, one.metadata.name]
        plugged = one.status.condition(PLUGGED)
        refused = plugged is not None and plugged.reason == NOT_GRANTED
        if isinstance(plan, PortPlan) and not one.metadata.deletion_timestamp and not refused:
            plans[one.metadata.namespace, one.metadata.name] = plan
        else:
            waiting.add(unit(one))
    return plans, waiting


def undecided(resources: Iterable[Resource]) -> set[tuple[str, str]]:
    """Return the attachments on whose current spec their agent has not reported yet.

    Only the agent knows what its node grants.
    """
    found = set()
    for one in of_type(resources, NetworkAttachment):
        plugged = one.status.condition(PLUGGED)
        if plugged is None or plugged.observed_generation != one.metadata.generation:
            found.add((one.metadata.namespace, one.metadata.name))
    return found
