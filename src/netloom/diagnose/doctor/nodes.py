"""The doctor's section on the nodes: switches and workloads' namespaces have the ports they should, and no others.

It checks the nodes whose switches can be reached (`Access.switches`).

*Repairs* use the agent's own code (`control/node/local_ports/ports.py`, `drivers/`): what is missing is created as the
agent creates it. Only what carries Netloom's owner is removed, and only after another request to the API shows that it
does not belong here. If an agent holds the lock of the switch's database, changes are guarded by the rows that were
read.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

from msgspec.structs import replace

from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.access import Access, no_switch
from netloom.diagnose.doctor.report import Complaint, Report, complaint, confirmed
from netloom.diagnose.node import bridges, fabric
from netloom.diagnose.node.inspection import NodeInspection, on_node, plans_of, undecided
from netloom.drivers.vswitch.driver import FROM, LOCK
from netloom.drivers.vswitch.mirrors import Mirrors
from netloom.drivers.vswitch.writer import GroupWriter
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.cluster import Node
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.ovsdb.operations import Operation, Wait, is_uuid
from netloom.plan.audit.finding import Check, Finding
from netloom.plan.audit.ovn import ATTACHMENT

SECTION = "nodes"
LOCK_SECONDS = 0.5
_AGENT = "The node's agent repairs this: check that it runs, and read its log. `netloom doctor --repair` does it now."
_NOT_INSTALLED = "Check that ovn-controller runs on the node and reaches the southbound database."
_CHECKS = {
    Check.MISSING_INTERFACE: ("plugged", _AGENT),
    Check.LEFTOVER_INTERFACE: ("unplugged", f"It may still receive packets. {_AGENT}"),
    Check.WRONG_INTERFACE: ("corrected", f"Another program changed it. {_AGENT}"),
    Check.BROKEN_INTERFACE: ("created again", f"Its device was removed from under the switch. {_AGENT}"),
    Check.NOT_INSTALLED: ("installed in the meantime", _NOT_INSTALLED),
    Check.WRONG_DEVICE: ("corrected", f"Another program changed it, or it was removed with its namespace. {_AGENT}"),
    Check.LEFTOVER_DEVICE: ("removed", f"It remained after a crash. {_AGENT}"),
    Check.LEFTOVER_MIRROR: ("removed", f"Traffic may still be copied. {_AGENT}"),
    Check.MISSING_MIRROR: ("created", _AGENT),
    Check.FLOWS_MISSING: ("written", f"Check that ovs-vswitchd runs. {_AGENT}"),
    Check.LEFTOVER_FLOWS: ("removed", f"They may still forward packets. {_AGENT}"),
    Check.WRONG_BRIDGE: ("connected", _AGENT),
}
"""What a repair of each finding does, and the advice."""
ADVICE = {check: advice for check, (_, advice) in _CHECKS.items()}
_PORTS = (Check.MISSING_INTERFACE, Check.WRONG_INTERFACE, Check.BROKEN_INTERFACE, Check.WRONG_DEVICE)
_MIRRORS = (Check.LEFTOVER_MIRROR, Check.MISSING_MIRROR)
_FLOWS = (Check.FLOWS_MISSING, Check.LEFTOVER_FLOWS)

NodeFinding = tuple[str, Finding]
"""A node's name, and a finding there."""


class NodeSection:
    """The section."""

    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access
        self._seen: dict[str, str] = {}
        """The names of the nodes that were checked, by the remote of their switch."""
        self._interfaces = 0
        self._unseen: list[str] = []

    def examine(self, *, repair: bool) -> Report:
        """Check twice, and repair if asked to."""
        found = confirmed(self._check)
        repaired: list[Complaint] = []
        failures: dict[NodeFinding, str] = {}
        if repair and found:
            failures = self._repair(found)
            left = set(self._check())
            repaired = [_complaint(one, _CHECKS[one[1].check][0]) for one in found if one not in left]
            found = [one for one in found if one in left]
        return Report(
            section=SECTION,
            checked={"nodes": len(self._seen), "interfaces": self._interfaces} if self._seen else {},
            repaired=tuple(repaired),
            complaints=tuple(_complaint(one, failures.get(one, "")) for one in found),
            unseen=tuple(self._unseen),
        )

    def _check(self) -> list[NodeFinding]:
        resources = snapshot.load(self._session.client)
        found: list[NodeFinding] = []
        self._unseen, self._interfaces = [], 0

        async def checked(node: NodeInspection) -> tuple[str, int, list[Finding]]:
            return node.name, len(node.interfaces()), await node.findings(resources)

        for switch in self._access.switches:
            try:
                name, count, some = on_node(switch, self._access.owner, checked)
            except NetloomError as error:
                self._unseen.append(f"node {switch.node or switch.remote}: {error.message}")
                continue
            self._seen[switch.remote] = name
            self._interfaces += count
            found += [(name, finding) for finding in some]
        known = [node.metadata.name for node in snapshot.of_type(resources, Node)]
        missed = [name for name in known if name not in self._seen.values() and not self._unseen]
        self._unseen += [no_switch(", ".join(missed))] if missed else []
        return found

    def _repair(self, found: Sequence[NodeFinding]) -> dict[NodeFinding, str]:
        """Repair node by node; return what could not be repaired, and why."""
        resources = snapshot.load(self._session.client)
        failures: dict[NodeFinding, str] = {}
        for switch in self._access.switches:
            node = self._seen.get(switch.remote, switch.node)
            mine = [one for name, one in found if name == node and _is_unwanted(self._session, node, one)]
            if not mine:
                continue
            try:
                failed = on_node(switch, self._access.owner, partial(_repair, resources=resources, found=mine))
            except NetloomError as error:
                failed = dict.fromkeys(mine, error.message)
            failures |= {(node, finding): words for finding, words in failed.items()}
        return failures


def _is_unwanted(session: Session, node: str, finding: Finding) -> bool:
    """Whether a finding may be repaired: of an interface to remove, whether its attachment is still not on the node."""
    if finding.check is not Check.LEFTOVER_INTERFACE or finding.kind != ATTACHMENT:
        return True
    try:
        there = session.client.get(NETWORK_ATTACHMENT.path(finding.namespace, finding.name))
    except NotFound:
        return True
    # An attachment that was created again has an interface of its own: `_unplug` removes only the one of the finding.
    return bool(there["spec"]["node"] != node or finding.replaced)


async def _repair(node: NodeInspection, resources: list[Resource], found: Sequence[Finding]) -> dict[Finding, str]:
    """Repair the findings on one node; return those that could not be repaired, and why."""
    plans, _ = plans_of(resources, node.name, await node.host(), node.sandboxes())
    waiting = undecided(resources)
    failures: dict[Finding, str] = {}
    for finding in found:
        key = finding.namespace, finding.name
        try:
            async with _writing(node, _guards(node, finding)):
                if finding.check in _PORTS and key in waiting:
                    failures[finding] = "the node's agent has not decided whether to plug it: start the agent"
                elif finding.check in _PORTS and key in plans:
                    await (await node.ports()).ensure(plans[key])
                elif finding.check is Check.LEFTOVER_INTERFACE:
                    await _unplug(node, finding)
                elif finding.check is Check.LEFTOVER_DEVICE:
                    await node.links.remove_pair(finding.what)
                elif finding.check in _MIRRORS:
                    wanted = node.mirrors(resources, plans).items()
                    mine = {unit.name: plan for unit, plan in wanted if unit.namespace == finding.namespace}
                    await Mirrors(node.switch).apply(finding.namespace, mine)
                elif finding.check in _FLOWS:
                    await fabric.repair(node.folder, fabric.plan(resources, node.name, plans, node.switch))
                elif finding.check is Check.WRONG_BRIDGE:
                    await bridges.repair(node.switch, bridges.plan(resources, node.name, plans))
        except NetloomError as error:
            failures[finding] = error.message
    await asyncio.sleep(LOCK_SECONDS)  # The next check shows how the switch applied the changes.
    return failures


async def _unplug(node: NodeInspection, finding: Finding) -> None:
    row = node.switch.interface(finding.what)
    if row is None or not node.switch.is_ours(row):
        return
    await node.switch.unplug(row)
    if FROM not in row.external_ids and row.type != "internal":
        await node.links.remove_pair(row.name)


def _guards(node: NodeInspection, finding: Finding) -> list[Operation]:
    """Return the preconditions of a change to the database."""
    row = node.switch.interface(finding.what) if finding.what else None
    if row is None or finding.check is not Check.LEFTOVER_INTERFACE:
        return []
    return [Wait("Interface", is_uuid(row._uuid), ["external_ids"], [{"external_ids": row.external_ids}])]


@contextlib.asynccontextmanager
async def _writing(node: NodeInspection, guards: list[Operation]) -> AsyncIterator[None]:
    """Enable writes to the switch's database: under its lock, or guarded if an agent holds that."""
    client = node.switch.client
    lock = client.lock(LOCK)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOCK_SECONDS):
            await lock.held.wait()
    if not lock.held.is_set():
        client.unlock(LOCK)
    node.switch.writer = GroupWriter(client.transact, guards)
    task = asyncio.create_task(node.switch.writer.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        client.unlock(LOCK)


def _complaint(found: NodeFinding, repair: str = "") -> Complaint:
    node, finding = found
    return replace(complaint(finding, ADVICE[finding.check], repair), message=f"on {node}: {finding.message}")
