"""One attachment on its node: its interface on the switch, its device, and its flows if the fabric is vxlan."""

from msgspec import Struct

from netloom.diagnose.access import Switch
from netloom.diagnose.node import bridges, fabric
from netloom.diagnose.node.fabric import Plans
from netloom.diagnose.node.inspection import NodeInspection, on_node, plans_of
from netloom.drivers.link.audit import faults
from netloom.drivers.vswitch.driver import IFACE_ID, INSTALLED, given
from netloom.model.document import Resource
from netloom.model.kinds.networks import Fabric
from netloom.plan.audit.ovn import ATTACHMENT
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Unit


class Port(Struct, frozen=True, kw_only=True):
    """The port of an attachment."""

    node: str
    lines: tuple[str, ...] = ()
    """What exists."""
    missing: tuple[str, ...] = ()
    """What is missing or wrong."""


def read_port(switch: Switch, owner: str, unit: Unit, resources: list[Resource]) -> Port | None:
    """Return the port of an attachment on a node; None if the attachment belongs to another node."""

    async def work(node: NodeInspection) -> Port | None:
        plans, waiting = plans_of(resources, node.name, await node.host(), node.sandboxes())
        plan = plans.get((unit.namespace, unit.name))
        if plan is None:
            return Port(node=node.name, missing=("no port is planned yet",)) if unit in waiting else None
        row = next(iter(node.switch.interfaces((unit.namespace, plan.parent or unit.name))), None)
        if row is None:
            return Port(node=node.name, missing=(f"interface {plan.device} is not on the switch",))
        port = node.switch.port_of(row)
        bridge = node.switch.bridge_of(port) if port is not None else None
        kind = row.type or "system"
        line = f"Interface {row.name} ({kind}) on {bridge.name if bridge else 'no bridge'}: ofport {row.ofport},"
        if plan.parent:
            line = f"VLAN {plan.vlan} of {plan.namespace}/{plan.parent}: {line}"
        if plan.fabric is Fabric.VXLAN:
            more, absent = await _flows(node, resources, plans, plan)
            lines = [f"{line} VNI {plan.vni}", *more]
        elif plan.fabric is Fabric.LINUX:
            lines = [f"{line} VNI {plan.vni}"]
            wanted = {vni: one for vni, one in bridges.plan(resources, node.name, plans).items() if vni == plan.vni}
            others = [one["remote_ip"] for bridge in wanted.values() for one in bridge.tunnels.values()]
            lines.append(f"Its bridge leads to {', '.join(others) or 'no other node'}")
            absent = [finding.message for finding in bridges.findings(node.switch, node.name, wanted)]
        else:
            ids = row.external_ids
            lines = [f"{line} iface-id {ids.get(IFACE_ID, 'absent')}, ovn-installed {ids.get(INSTALLED, 'absent')}"]
            absent = [] if ids.get(INSTALLED) == "true" else ["ovn-controller has not installed its flows"]
        wrong = [] if plan.parent else faults(plan, given(row))
        where = f" in {plan.netns}" if plan.netns else ""
        has = ", ".join([*plan.addresses, *(f"{one.to} via {one.via}" for one in plan.routes), f"MTU {plan.mtu}"])
        if not wrong and not plan.parent:
            lines.append(f"Device {plan.inner}{where}: {plan.mac}, {has}")
        missing = [*wrong, *([f"the switch reports: {row.error}"] if row.error else []), *absent]
        return Port(node=node.name, lines=tuple(lines), missing=tuple(missing))

    return on_node(switch, owner, work)


async def _flows(
    node: NodeInspection, resources: list[Resource], plans: Plans, plan: PortPlan
) -> tuple[list[str], list[str]]:
    """Return a line about the flows of a vxlan port, and what is missing of them."""
    planned = fabric.plan(resources, node.name, plans, node.switch)
    mine = {(plan.namespace, plan.name): plan}
    found = await fabric.findings(node.folder, node.name, planned, mine)
    own = len(planned.claims.claimed(f"local/{plan.uid}"))
    absent = [finding.message for finding in found if finding.kind == ATTACHMENT]
    return [] if absent else [f"{own} flows of its own, all on the switch"], absent
