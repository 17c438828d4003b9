"""What a node has of one attachment: its interface on the switch, and its devices."""

from msgspec import Struct

from netloom.diagnose.access import Switch
from netloom.diagnose.node import fabric as node_fabric
from netloom.diagnose.node.fabric import Plans
from netloom.diagnose.node.inspection import NodeLook, on_node, plans_of
from netloom.drivers.link.audit import faults
from netloom.drivers.vswitch.driver import IFACE_ID, INSTALLED, given
from netloom.model.document import Resource
from netloom.model.networks import Fabric
from netloom.plan.audit.ovn import ATTACHMENT
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Unit


class Port(Struct, frozen=True, kw_only=True):
    """What there is on the node."""

    node: str
    lines: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def read_port(switch: Switch, owner: str, unit: Unit, resources: list[Resource]) -> Port | None:
    """Return what a node has of an attachment; None where the attachment is not of this node."""

    async def work(look: NodeLook) -> Port | None:
        plans, waiting = plans_of(resources, look.name, await look.host())
        plan = plans.get((unit.namespace, unit.name))
        if plan is None:
            return Port(node=look.name, missing=("nothing is planned here yet",)) if unit in waiting else None
        row = next(iter(look.switch.interfaces((unit.namespace, plan.parent or unit.name))), None)
        if row is None:
            return Port(node=look.name, missing=(f"interface {plan.device} is not on the switch",))
        port = look.switch.port_of(row)
        bridge = look.switch.bridge_of(port) if port is not None else None
        kind = row.type or "system"
        line = f"Interface {row.name} ({kind}) on {bridge.name if bridge else 'no bridge'}: ofport {row.ofport},"
        if plan.parent:
            line = f"VLAN {plan.vlan} of {plan.namespace}/{plan.parent}: {line}"
        if plan.fabric is Fabric.VXLAN:
            more, absent = await _carried(look, resources, plans, plan)
            lines = [f"{line} VNI {plan.vni}", *more]
        else:
            ids = row.external_ids
            lines = [f"{line} iface-id {ids.get(IFACE_ID, 'absent')}, ovn-installed {ids.get(INSTALLED, 'absent')}"]
            absent = [] if ids.get(INSTALLED) == "true" else ["ovn-controller has not installed its flows"]
        amiss = [] if plan.parent else faults(plan, given(row))
        where = f" in {plan.netns}" if plan.netns else ""
        has = ", ".join([*plan.addresses, *(f"{one.to} via {one.via}" for one in plan.routes), f"MTU {plan.mtu}"])
        if not amiss and not plan.parent:
            lines.append(f"Device {plan.inner}{where}: {plan.mac}, {has}")
        missing = [*amiss, *([f"the switch says: {row.error}"] if row.error else []), *absent]
        return Port(node=look.name, lines=tuple(lines), missing=tuple(missing))

    return on_node(switch, owner, work)


async def _carried(
    look: NodeLook, resources: list[Resource], plans: Plans, plan: PortPlan
) -> tuple[list[str], list[str]]:
    """Return what is to be said of a vxlan port's flows, and what is missing of them."""
    fabric = node_fabric.wanted(resources, look.name, plans, look.switch)
    mine = {(plan.namespace, plan.name): plan}
    amiss = await node_fabric.findings(look.folder, look.name, fabric, mine)
    own = len(fabric.table.claimed(f"local/{plan.uid}"))
    absent = [finding.message for finding in amiss if finding.kind == ATTACHMENT]
    return [] if absent else [f"{own} flows of its own, all on the switch"], absent
