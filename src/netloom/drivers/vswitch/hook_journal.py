"""The journal of programs that run at interfaces, in the switch's database (`plan/node/hooks.py` has its format).

Every write asserts the agent's lock, so that no other agent can have started the same program. A write that was not
acknowledged may have been made: that is checked when the database is back, and only then the program starts or not.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from msgspec import structs

from netloom.drivers.vswitch.children import child_key, without
from netloom.drivers.vswitch.driver import UID, AttachmentName, Vswitch, entry
from netloom.errors import NetloomError
from netloom.model.kinds.attachments import ExecReport
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Operation
from netloom.ovsdb.rows.vswitch import Bridge, Interface
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, CHILD, EXEC, After, Mark

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds before a write is retried."""


class HookJournal:
    """Reads and writes the journal."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch
        self._prefix = f"{AFTER}/{switch.owner}/"
        self._child = f"{CHILD}/{switch.owner}/"

    def created(self, name: AttachmentName, uid: str) -> tuple[str, ExecReport] | None:
        """Return the journal's key of an attachment's port, and its report; None: it has no program."""
        for row in self._switch.interfaces(name):
            if (
                row.external_ids.get(UID) == uid
                and (report := hooks.read_report(row.external_ids.get(EXEC))) is not None
            ):
                return str(row._uuid), report
        child = child_key(self._switch.owner, name, uid)
        mark = self._mark(child)
        return None if mark is None or mark.report is None else (child, mark.report)

    def removed(self) -> dict[str, After]:
        """Return the programs of removed interfaces, by their keys in the journal."""
        found = {}
        for bridge in self._bridges():
            for key, value in bridge.external_ids.items():
                if key.startswith(self._prefix) and (after := hooks.read_after(value)) is not None:
                    found[key] = after
        return found

    def in_use(self, device: str) -> bool:
        """Whether a device of this name is on the switch."""
        return self._switch.interface(device) is not None

    async def mark(self, port: str, report: ExecReport) -> bool:
        """Write the report of a port; return False if the port is gone."""
        if port.startswith(self._child):
            return await self._until_written(lambda: self._missing_report(port, report))
        value = hooks.written(report)

        def missing() -> list[Operation] | None:
            row = cast("Interface | None", self._switch.client.cache.rows("Interface").get(Uuid(port)))
            if row is None:
                return None
            return [] if row.external_ids.get(EXEC) == value else [entry("Interface", port, EXEC, value)]

        return await self._until_written(missing)

    async def begin(self, key: str, after: After) -> bool:
        """Write that the program of a removed interface has started; return False if its record is gone."""
        value = hooks.after(after)[AFTER]

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            if bridge is None:
                return None
            return [] if bridge.external_ids[key] == value else [entry("Bridge", bridge._uuid, key, value)]

        return await self._until_written(missing)

    async def forget(self, key: str) -> None:
        """Remove the record of a removed interface."""

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            return None if bridge is None else [without(bridge, key)]

        await self._until_written(missing)

    async def _until_written(self, missing: Callable[[], list[Operation] | None]) -> bool:
        """Write what `missing` returns until nothing is, across reconnects; return False if it returns None."""
        while True:
            await self._switch.client.synced.wait()
            operations = missing()
            if not operations:
                return operations is not None
            try:
                await self._switch.writer.commit(operations)
            except NetloomError as error:
                log.info("the journal of programs is not written yet: %s", error)
                await asyncio.sleep(RETRY)

    def _mark(self, child: str) -> Mark | None:
        bridge = self._with(child)
        return None if bridge is None else hooks.read_mark(bridge.external_ids[child])

    def _missing_report(self, child: str, report: ExecReport) -> list[Operation] | None:
        """Return what has to be written for a child's report; None: the child is gone."""
        bridge, mark = self._with(child), self._mark(child)
        if bridge is None or mark is None:
            return None
        marked = hooks.marked(structs.replace(mark, report=report))
        return [] if mark.report == report else [entry("Bridge", bridge._uuid, child, marked)]

    def _with(self, key: str) -> Bridge | None:
        return next((bridge for bridge in self._bridges() if key in bridge.external_ids), None)

    def _bridges(self) -> list[Bridge]:
        return cast("list[Bridge]", list(self._switch.client.cache.rows("Bridge").values()))
