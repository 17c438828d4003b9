"""The doctor's chapter on the nodes: have their switches, and the workloads' namespaces, what they should, and no more?

Looked at are the nodes whose switch can be reached: this machine's by --ovs, all of a lab's by --lab.

*Mending* goes through the agent's own hands (`control/node/ports.py`, `drivers/`): what is missing is made as the agent
makes it, and only what carries our owner is removed, and only after the API, asked once more, does not want it here.
Where an agent holds the switch's lock it is at work: then what is changed in the database is guarded by what was seen.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence

from netloom.cli.diagnosis.doctor import Complaint, Report
from netloom.cli.options import Session
from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import Access, Switch, no_switch
from netloom.diagnose.doctor.confirmation import Settle, believed
from netloom.diagnose.doctor.southbound import complaint
from netloom.diagnose.node import fabric as node_fabric
from netloom.diagnose.node.inspection import NodeLook, mirrors_of, on_node, plans_of, unjudged
from netloom.drivers.vswitch.driver import FROM, LOCK
from netloom.drivers.vswitch.mirrors import Mirrors
from netloom.drivers.vswitch.writer import Writer
from netloom.errors import NetloomError, NotFound
from netloom.model.cluster import Node
from netloom.model.document import Resource
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.ovsdb.operations import Operation, Wait, is_uuid
from netloom.plan.audit.ovn import ATTACHMENT, Check, Finding

CHAPTER = "nodes"
LOCK_SECONDS = 0.5
_AGENT = "The node's agent sees to it: see that it runs, and what its log says; --repair does it now."
ADVICE = {
    Check.MISSING_INTERFACE: _AGENT,
    Check.LEFTOVER_INTERFACE: f"Packets may still reach it. {_AGENT}",
    Check.WRONG_INTERFACE: f"Somebody else changed it. {_AGENT}",
    Check.BROKEN_INTERFACE: "The device went away under the switch. " + _AGENT,
    Check.NOT_INSTALLED: "See that ovn-controller runs on the node and reaches the southbound database.",
    Check.WRONG_DEVICE: f"Somebody else changed it, or it went away with its namespace. {_AGENT}",
    Check.LEFTOVER_DEVICE: f"A crash left it. {_AGENT}",
    Check.LEFTOVER_MIRROR: f"Traffic may still be copied. {_AGENT}",
    Check.MISSING_MIRROR: _AGENT,
    Check.FLOWS_MISSING: f"See that ovs-vswitchd runs. {_AGENT}",
    Check.LEFTOVER_FLOWS: f"Packets may still go by them. {_AGENT}",
}
DONE = {
    Check.MISSING_INTERFACE: "plugged",
    Check.LEFTOVER_INTERFACE: "unplugged",
    Check.WRONG_INTERFACE: "corrected",
    Check.BROKEN_INTERFACE: "made anew",
    Check.NOT_INSTALLED: "it is installed now",
    Check.WRONG_DEVICE: "corrected",
    Check.LEFTOVER_DEVICE: "removed",
    Check.LEFTOVER_MIRROR: "removed",
    Check.MISSING_MIRROR: "made",
    Check.FLOWS_MISSING: "written",
    Check.LEFTOVER_FLOWS: "removed",
}
_PLUGGED = (Check.MISSING_INTERFACE, Check.WRONG_INTERFACE, Check.BROKEN_INTERFACE, Check.WRONG_DEVICE)
_MIRRORED = (Check.LEFTOVER_MIRROR, Check.MISSING_MIRROR)
_CARRIED = (Check.FLOWS_MISSING, Check.LEFTOVER_FLOWS)

Told = tuple[str, Finding]
"""Which node, and what was found there."""


class NodesChapter:
    """The chapter."""

    def __init__(self, access: Access, *, settle: Settle = time.sleep) -> None:
        self._access = access
        self._settle = settle
        self._seen: set[str] = set()
        self._interfaces = 0
        self._unseen: list[str] = []

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Look twice, and mend if told to."""
        found = believed(lambda: self._look(session), self._settle)
        mended: list[Complaint] = []
        failures: dict[Told, str] = {}
        if repair and found:
            failures = self._mend(session, found)
            left = set(self._look(session))
            mended = [_complaint(one, DONE[one[1].check]) for one in found if one not in left]
            found = [one for one in found if one in left]
        counts = {"nodes": len(self._seen), "interfaces": self._interfaces} if self._seen else {}
        return Report(
            chapter=CHAPTER,
            looked_at=counts,
            mended=tuple(mended),
            complaints=tuple(_complaint(one, failures.get(one, "")) for one in found),
            unseen=tuple(self._unseen),
        )

    def _look(self, session: Session) -> list[Told]:
        resources = everything.load(session.client)
        found: list[Told] = []
        self._unseen, self._interfaces = [], 0
        for switch in self._access.switches:
            try:
                name, count, some = on_node(switch, self._access.owner, lambda look: _looked(look, resources))
            except NetloomError as error:
                self._unseen.append(f"node {switch.node or switch.remote}: {error.message}")
                continue
            self._seen.add(name)
            self._interfaces += count
            found += [(name, finding) for finding in some]
        known = [node.metadata.name for node in everything.of_type(resources, Node)]
        missed = [name for name in known if name not in self._seen and not self._unseen]
        self._unseen += [no_switch(missed[0] if len(missed) == 1 else f"{', '.join(missed)}")] if missed else []
        return found

    def _mend(self, session: Session, found: Sequence[Told]) -> dict[Told, str]:
        """Mend, node by node; return what could not be, and why."""
        resources = everything.load(session.client)
        failures: dict[Told, str] = {}
        for switch in self._access.switches:
            node = self._name(switch)
            mine = [one for name, one in found if name == node and _is_unwanted(session, node, one)]
            if not mine:
                continue
            try:
                told = on_node(switch, self._access.owner, lambda look, mine=mine: _mended(look, resources, mine))  # type: ignore[misc]
            except NetloomError as error:
                told = dict.fromkeys(mine, error.message)
            failures |= {(node, finding): words for finding, words in told.items()}
        return failures

    def _name(self, switch: Switch) -> str:
        async def name(look: NodeLook) -> str:
            return look.name

        try:
            return on_node(switch, self._access.owner, name)
        except NetloomError:
            return switch.node


def _is_unwanted(session: Session, node: str, finding: Finding) -> bool:
    """Whether what would be removed is not wanted on the node, asked for once more; true of what is not removed."""
    if finding.check is not Check.LEFTOVER_INTERFACE or finding.kind != ATTACHMENT:
        return True
    try:
        there = session.client.get(NETWORK_ATTACHMENT.path(finding.namespace, finding.name))
    except NotFound:
        return True
    # An attachment that was created again has an interface of its own: `_unplug` takes only the one of the finding.
    return bool(there["spec"]["node"] != node or finding.replaced)


async def _looked(look: NodeLook, resources: Iterable[Resource]) -> tuple[str, int, list[Finding]]:
    return look.name, len(look.interfaces()), await look.findings(resources)


async def _mended(look: NodeLook, resources: list[Resource], found: Sequence[Finding]) -> dict[Finding, str]:
    """Mend what was found on one node; return what could not be."""
    plans, _ = plans_of(resources, look.name, await look.host())
    waiting = unjudged(resources)
    failures: dict[Finding, str] = {}
    for finding in found:
        key = finding.namespace, finding.name
        try:
            async with _writing(look, _guards(look, finding)):
                if finding.check in _PLUGGED and key in waiting:
                    failures[finding] = "the node's agent has not said whether it may be plugged: start the agent"
                elif finding.check in _PLUGGED and key in plans:
                    await (await look.ports()).ensure(plans[key])
                elif finding.check is Check.LEFTOVER_INTERFACE:
                    await _unplug(look, finding)
                elif finding.check is Check.LEFTOVER_DEVICE:
                    await look.links.remove_pair(finding.what)
                elif finding.check in _MIRRORED:
                    wanted = mirrors_of(resources, look.switch, plans)
                    mine = {name: plan for (space, name), plan in wanted.items() if space == finding.namespace}
                    await Mirrors(look.switch).apply(finding.namespace, mine)
                elif finding.check in _CARRIED:
                    plan = node_fabric.wanted(resources, look.name, plans, look.switch)
                    await node_fabric.mend(look.folder, plan)
        except NetloomError as error:
            failures[finding] = error.message
    await asyncio.sleep(LOCK_SECONDS)  # What the switch makes of it is seen in the next look.
    return failures


async def _unplug(look: NodeLook, finding: Finding) -> None:
    row = look.switch.interface(finding.what)
    if row is None or not look.switch.is_ours(row):
        return
    await look.switch.unplug(row)
    if FROM not in row.external_ids and row.type != "internal":
        await look.links.remove_pair(row.name)


def _guards(look: NodeLook, finding: Finding) -> list[Operation]:
    """Return what must still be so for a change to be made."""
    row = look.switch.interface(finding.what) if finding.what else None
    if row is None or finding.check is not Check.LEFTOVER_INTERFACE:
        return []
    return [Wait("Interface", is_uuid(row._uuid), ["external_ids"], [{"external_ids": row.external_ids}])]


@contextlib.asynccontextmanager
async def _writing(look: NodeLook, guards: list[Operation]) -> AsyncIterator[None]:
    """Have changes to the switch's database written: under its lock, or, where an agent has it, guarded."""
    client = look.switch.client
    lock = client.lock(LOCK)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOCK_SECONDS):
            await lock.held.wait()
    if not lock.held.is_set():
        client.unlock(LOCK)
    look.switch.writer = Writer(client.transact, guards)
    task = asyncio.create_task(look.switch.writer.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        client.unlock(LOCK)


def _complaint(told: Told, repair: str = "") -> Complaint:
    node, finding = told
    found = complaint(finding, ADVICE[finding.check], repair)
    return Complaint(
        check=found.check,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        message=f"on {node}: {found.message}",
        advice=found.advice,
        repair=repair,
    )
