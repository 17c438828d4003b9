"""Attachments that are a VLAN of another attachment's port: the interface that carries them, and their records.

A child has no interface of its own; OVN tells its packets apart by its VLAN. Here it is only checked whether the
interface of its parent exists. A child with programs has a record at the bridge (`plan/node/hooks.py: Mark`), the
others have none: so a child that is as planned costs no write.
"""

from collections.abc import Iterator
from typing import cast

from msgspec import structs

from netloom.drivers.vswitch.driver import AttachmentName, Vswitch, entry
from netloom.model.kinds.attachments import ExecReport
from netloom.ovsdb.operations import Mutate, Operation, is_uuid
from netloom.ovsdb.rows.vswitch import Bridge, Interface
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, CHILD, Mark
from netloom.plan.node.ports import PortPlan


class Children:
    """The children on one switch."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch
        self._prefix = f"{CHILD}/{switch.owner}/"

    def carrier(self, plan: PortPlan) -> Interface | None:
        """Return the interface that carries a child, if it is on the switch."""
        return self._switch.plugged((plan.namespace, plan.parent), plan.parent_uid)

    def attachments(self) -> set[AttachmentName]:
        """Return the children that have a record."""
        return {name for _, _, name, _ in self._marks()}

    async def ensure(self, plan: PortPlan) -> None:
        """Record the programs of a child whose parent's interface exists."""
        key = child_key(self._switch.owner, (plan.namespace, plan.name), plan.uid)
        bridge = self._switch.bridge()
        if bridge is None:
            return
        have = hooks.read_mark(bridge.external_ids.get(key))
        due = ExecReport(command=plan.runs.create) if plan.runs.create and have is None else None
        want = Mark(plan.namespace, plan.name, plan.uid, due, plan.runs.delete)
        if have is not None:
            want = structs.replace(want, report=have.report)
        if have == want or (have is None and want.report is None and not want.then):
            return
        await self._switch.writer.commit([entry("Bridge", bridge._uuid, key, hooks.marked(want))])

    async def clear(self, name: AttachmentName, *, keep: str = "") -> None:
        """Remove the records of children of this name, except that of the uid `keep`."""
        for bridge, key, child, uid in list(self._marks()):
            if child != name or uid == keep:
                continue
            operations: list[Operation] = [without(bridge, key)]
            mark = hooks.read_mark(bridge.external_ids[key])
            if mark is not None and (then := hooks.after(mark.after)):
                operations.append(entry("Bridge", bridge._uuid, f"{AFTER}/{self._switch.owner}/{uid}", then[AFTER]))
            await self._switch.writer.commit(operations)

    def _marks(self) -> Iterator[tuple[Bridge, str, AttachmentName, str]]:
        """Yield the records of children: the bridge, the key, the child and its uid."""
        for row in self._switch.client.cache.rows("Bridge").values():
            bridge = cast("Bridge", row)
            for key in bridge.external_ids:
                if key.startswith(self._prefix) and len(parts := key[len(self._prefix) :].split("/")) == 3:
                    yield bridge, key, (parts[0], parts[1]), parts[2]


def child_key(owner: str, name: AttachmentName, uid: str) -> str:
    """Return the key of a child's record."""
    return f"{CHILD}/{owner}/{name[0]}/{name[1]}/{uid}"


def without(bridge: Bridge, key: str) -> Operation:
    """Return the operation that removes an entry of a bridge's external_ids."""
    return Mutate("Bridge", is_uuid(bridge._uuid), [("external_ids", "delete", frozenset({key}))])
