"""Attachments that are a VLAN of another's port, on the switch: whose interface carries them, and what is kept of them.

A child has no interface. That it can be told apart from others is OVN's doing, by its VLAN; here is only seen whether
its parent's interface is there. What programs it has run is kept with the bridge (`plan/node/hooks.py: Mark`), and
nothing at all where it has none: so a child that is as it should be costs no write.
"""

from collections.abc import Iterator
from typing import cast

from msgspec import structs

from netloom.drivers.vswitch.driver import UID, Place, Vswitch, entry
from netloom.model.attachments import ExecReport
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
        rows = self._switch.interfaces((plan.namespace, plan.parent))
        return next((row for row in rows if row.external_ids.get(UID) == plan.parent_uid), None)

    def places(self) -> set[Place]:
        """Return the children of which something is kept."""
        return {place for _, _, place, _ in self._marks()}

    async def keep(self, plan: PortPlan) -> None:
        """Have what is to be run for a child written down, once its parent's interface is there."""
        key = key_of(self._switch.owner, (plan.namespace, plan.name), plan.uid)
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
        await self._switch.writer.commit([put(bridge, key, hooks.marked(want))])

    async def clear(self, place: Place, *, keep: str = "") -> None:
        """Let children of an attachment's name be gone, but for that of the uid `keep`."""
        for bridge, key, whose, uid in list(self._marks()):
            if whose != place or uid == keep:
                continue
            operations: list[Operation] = [without(bridge, key)]
            mark = hooks.read_mark(bridge.external_ids[key])
            if mark is not None and (then := hooks.after(mark.after)):
                operations.append(put(bridge, f"{AFTER}/{self._switch.owner}/{uid}", then[AFTER]))
            await self._switch.writer.commit(operations)

    def _marks(self) -> Iterator[tuple[Bridge, str, Place, str]]:
        """Yield what is kept of children: with which bridge, as what, of whom, and of which uid."""
        for row in self._switch.client.cache.rows("Bridge").values():
            bridge = cast("Bridge", row)
            for key in bridge.external_ids:
                if key.startswith(self._prefix) and len(parts := key[len(self._prefix) :].split("/")) == 3:
                    yield bridge, key, (parts[0], parts[1]), parts[2]


def key_of(owner: str, place: Place, uid: str) -> str:
    """Return as what something is kept of a child."""
    return f"{CHILD}/{owner}/{place[0]}/{place[1]}/{uid}"


def put(bridge: Bridge, key: str, value: str) -> Operation:
    """Return what writes an entry of a bridge anew."""
    return entry("Bridge", bridge._uuid, key, value)


def without(bridge: Bridge, key: str) -> Operation:
    """Return what removes an entry of a bridge."""
    return Mutate("Bridge", is_uuid(bridge._uuid), [("external_ids", "delete", frozenset({key}))])
