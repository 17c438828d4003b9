"""The vxlan flows of a node, checked from outside its agent.

The desired flows are computed again, from all resources and from the port numbers of the switch, and compared with the
flows on the switch. Only `repair` writes: it adds missing flows and removes superfluous ones.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from random import SystemRandom

from netloom.diagnose.access import running
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vxlan.bridge import tunnel_ofport
from netloom.drivers.vxlan.driver import FabricFlows
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.kinds import networks
from netloom.openflow.flows import Flow, Key
from netloom.openflow.io import Connection
from netloom.plan.audit.finding import Check, Finding
from netloom.plan.audit.ovn import ATTACHMENT, NODE
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, METERS, VxlanPlan
from netloom.plan.vxlan.inputs import plan_fabric

Plans = Mapping[tuple[str, str], PortPlan]


def plan(resources: Iterable[Resource], node: str, plans: Plans, switch: Vswitch) -> VxlanPlan:
    """Return the plan of a node's vxlan flows, with the port numbers of its switch."""

    def ofport(port: PortPlan) -> int | None:
        row = switch.plugged((port.namespace, port.name), port.uid, port.device)
        return None if row is None else row.ofport

    return plan_fabric(resources, node, plans, ofport, tunnel_ofport(switch))


async def findings(folder: Path, node: str, plan: VxlanPlan, plans: Plans) -> list[Finding]:
    """Return the differences between a node's flows and their plan."""
    mine = [one for one in plans.values() if one.fabric is networks.Fabric.VXLAN]
    try:
        async with connected(folder) as connection:
            seen = {flow.key: flow for flow in await connection.flows(COOKIE, COOKIE_MASK)}
    except NetloomError as error:
        text = f"cannot read its flows: {error.message}"
        return [Finding(Check.FLOWS_MISSING, ATTACHMENT, one.namespace, one.name, text) for one in mine]
    return compared(node, plan, mine, seen)


def compared(node: str, plan: VxlanPlan, mine: Iterable[PortPlan], seen: Mapping[Key, Flow]) -> list[Finding]:
    """Return the differences between planned flows and flows on the switch.  Pure.

    An attachment's own flows are reported for the attachment, the others for the node.
    """
    missing = {key: flow for key, flow in plan.claims.flows.items() if seen.get(key) != flow}
    found = []
    for one in mine:
        own = [flow for flow in plan.claims.claimed(f"local/{one.uid}") if missing.get(flow.key) == flow]
        if own:
            text = f"{len(own)} of its flows are missing or wrong on the switch, for example: {own[0]}"
            found.append(Finding(Check.FLOWS_MISSING, ATTACHMENT, one.namespace, one.name, text, one.device))
        for flow in own:
            del missing[flow.key]
    if missing:
        text = f"{len(missing)} flows are missing or wrong on its switch, for example: {next(iter(missing.values()))}"
        found.append(Finding(Check.FLOWS_MISSING, NODE, "", node, text))
    more = [flow for key, flow in seen.items() if key not in plan.claims.flows]
    if more:
        text = f"its switch has {len(more)} superfluous flows, for example: {more[0]}"
        found.append(Finding(Check.LEFTOVER_FLOWS, NODE, "", node, text))
    return sorted(found)


async def repair(folder: Path, plan: VxlanPlan) -> None:
    """Write the planned flows and meters to a node's switch, and remove others."""
    async with connected(folder) as connection:
        fabric = FabricFlows(connection, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=METERS)
        await fabric.compare(plan.claims)


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Connection]:
    """Connect to the bridge of the vxlan fabric; raise `Unreachable` if it does not answer."""
    path = f"{folder}/{VXLAN_BRIDGE}.mgmt"
    connection = Connection(path, random=SystemRandom())
    async with running(connection.run(), connection.connected, silent=f"{path} does not answer"):
        yield connection
