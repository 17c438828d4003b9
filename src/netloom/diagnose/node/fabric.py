"""A node's vxlan fabric, looked at from outside its agent: are the flows there that the resources come to, and no more?

The flows are worked out anew from all resources and from the numbers the switch gave its ports, and compared with those
that the switch has. Nothing is written but to mend, and then what is missing, or too much, and nothing else.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from random import SystemRandom

from netloom.diagnose.access import running
from netloom.drivers.vswitch.driver import UID, VXLAN_BRIDGE, Vswitch
from netloom.drivers.vxlan.bridge import tunnel_number
from netloom.drivers.vxlan.driver import Fabric
from netloom.errors import NetloomError
from netloom.model import networks
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Resource
from netloom.model.paths import Shaping
from netloom.model.policy import SecurityProfile
from netloom.openflow.flows import Flow, Key
from netloom.openflow.io import Connection
from netloom.plan.audit.ovn import ATTACHMENT, NODE, Check, Finding
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, METERS, VxlanPlan
from netloom.plan.vxlan.inputs import local_port, remote_port

Plans = Mapping[tuple[str, str], PortPlan]


def wanted(resources: Iterable[Resource], node: str, plans: Plans, switch: Vswitch) -> VxlanPlan:
    """Return what a node's fabric should be."""
    found = VxlanPlan()
    found.vtep = tunnel_number(switch)
    mine = {key: plan for key, plan in plans.items() if plan.fabric is networks.Fabric.VXLAN}
    attachments = [one for one in resources if isinstance(one, NetworkAttachment)]
    relevant = set()
    for one in attachments:
        key = one.metadata.namespace, one.metadata.name
        if (plan := mine.get(key)) is None or one.spec.node != node:
            continue
        relevant.add((one.metadata.namespace, one.spec.network))
        row = switch.interface(plan.device)
        if row is not None and row.external_ids.get(UID) == plan.uid and (row.ofport or 0) > 0:
            found.put_local(local_port(one, plan, row.ofport or 0), _rank(one))
    for one in attachments:
        there = remote_port(one)
        if there is not None and one.spec.node != node and (there.namespace, there.network) in relevant:
            found.put_remote(there, _rank(one))
    spaces = {namespace for namespace, _ in relevant}
    for policy in resources:
        if isinstance(policy, SecurityProfile) and policy.metadata.namespace in spaces:
            found.put_profile(policy)
        elif isinstance(policy, Shaping) and policy.metadata.namespace in spaces:
            found.put_shaping(policy)
    found.flush()
    return found


async def findings(folder: Path, node: str, plan: VxlanPlan, plans: Plans) -> list[Finding]:
    """Return what does not fit between a node's flows and what they should be."""
    mine = [one for one in plans.values() if one.fabric is networks.Fabric.VXLAN]
    try:
        async with speaking(folder) as connection:
            seen = {flow.key: flow for flow in await connection.flows(COOKIE, COOKIE_MASK)}
    except NetloomError as error:
        text = f"its flows cannot be read: {error.message}"
        return [Finding(Check.FLOWS_MISSING, ATTACHMENT, one.namespace, one.name, text) for one in mine]
    return compared(node, plan, mine, seen)


def compared(node: str, plan: VxlanPlan, mine: Iterable[PortPlan], seen: Mapping[Key, Flow]) -> list[Finding]:
    """Return what does not fit, each attachment's own flows with it, the rest with the node.  Pure."""
    missing = {key: flow for key, flow in plan.table.flows.items() if seen.get(key) != flow}
    found = []
    for one in mine:
        own = [flow for flow in plan.table.claimed(f"local/{one.uid}") if missing.get(flow.key) == flow]
        if own:
            text = f"the switch has {len(own)} of its flows not, or otherwise, as: {own[0]}"
            found.append(Finding(Check.FLOWS_MISSING, ATTACHMENT, one.namespace, one.name, text, one.device))
        for flow in own:
            del missing[flow.key]
    if missing:
        text = f"its switch has {len(missing)} flows not, or otherwise, as: {next(iter(missing.values()))}"
        found.append(Finding(Check.FLOWS_MISSING, NODE, "", node, text))
    more = [flow for key, flow in seen.items() if key not in plan.table.flows]
    if more:
        text = f"its switch has {len(more)} flows too many, as: {more[0]}"
        found.append(Finding(Check.LEFTOVER_FLOWS, NODE, "", node, text))
    return sorted(found)


async def mend(folder: Path, plan: VxlanPlan) -> None:
    """Have a node's switch have what it should."""
    async with speaking(folder) as connection:
        fabric = Fabric(connection, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=METERS)
        await fabric.compare(plan.table.flows, plan.table.meters)


@contextlib.asynccontextmanager
async def speaking(folder: Path) -> AsyncIterator[Connection]:
    """Be connected to the switch's bridge; `Unreachable` where nobody answers."""
    path = f"{folder}/{VXLAN_BRIDGE}.mgmt"
    connection = Connection(path, random=SystemRandom())
    async with running(connection.run(), connection.connected, silent=f"nobody answers at {path}"):
        yield connection


def _rank(one: NetworkAttachment) -> int:
    version = one.metadata.resource_version
    return int(version) if version.isdecimal() else 0
