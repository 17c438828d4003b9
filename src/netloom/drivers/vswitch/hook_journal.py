"""What the switch's database remembers of programs that run at interfaces (`plan/node/hooks.py` says what, and why).

Every write asserts the agent's lock, so that nobody else has begun what is begun here. A write that was not answered
may have been done: it is looked at when the database is back, and only then decided.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from msgspec import structs

from netloom.drivers.vswitch.children import key_of, put, without
from netloom.drivers.vswitch.driver import UID, Place, Vswitch, entry
from netloom.errors import NetloomError
from netloom.model.attachments import ExecReport
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Operation
from netloom.ovsdb.rows.vswitch import Bridge, Interface
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, CHILD, EXEC, After, Mark

log = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds before a write is tried again."""


class HookJournal:
    """Reads and writes it."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch
        self._prefix = f"{AFTER}/{switch.owner}/"
        self._child = f"{CHILD}/{switch.owner}/"

    def made(self, place: Place, uid: str) -> tuple[str, ExecReport] | None:
        """Return an attachment's port, as it is known to this book, and its report; None: nothing runs at it."""
        for row in self._switch.interfaces(place):
            if row.external_ids.get(UID) == uid and (report := _report(row)) is not None:
                return str(row._uuid), report
        child = key_of(self._switch.owner, place, uid)
        mark = self._mark(child)
        return None if mark is None or mark.report is None else (child, mark.report)

    def gone(self) -> dict[str, After]:
        """Return what is to be run for interfaces that are gone, by what they are known as to this book."""
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
        """Write a port's report; False: it is gone."""
        if port.startswith(self._child):
            return await self._until_written(lambda: self._unmarked(port, report))
        value = hooks.written(report)

        def missing() -> list[Operation] | None:
            row = self._row(port)
            if row is None:
                return None
            return [] if row.external_ids.get(EXEC) == value else [entry("Interface", port, EXEC, value)]

        return await self._until_written(missing)

    async def begin(self, key: str, after: After) -> bool:
        """Write that what is to be run for an interface that is gone has begun; False: somebody removed it."""
        value = hooks.after(after)[AFTER]

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            if bridge is None:
                return None
            return [] if bridge.external_ids[key] == value else [put(bridge, key, value)]

        return await self._until_written(missing)

    async def forget(self, key: str) -> None:
        """Write that it is over."""

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            return None if bridge is None else [without(bridge, key)]

        await self._until_written(missing)

    async def _until_written(self, missing: Callable[[], list[Operation] | None]) -> bool:
        """Write what is missing until nothing is, however often the database goes away; False: it has no place."""
        while True:
            await self._switch.client.synced.wait()
            operations = missing()
            if not operations:
                return operations is not None
            try:
                await self._switch.writer.commit(operations)
            except NetloomError as error:
                log.info("what runs at an interface is not written yet: %s", error)
                await asyncio.sleep(AGAIN)

    def _mark(self, child: str) -> Mark | None:
        bridge = self._with(child)
        return None if bridge is None else hooks.read_mark(bridge.external_ids[child])

    def _unmarked(self, child: str, report: ExecReport) -> list[Operation] | None:
        """Return what is missing until a child's report is written; None: it is gone."""
        bridge, mark = self._with(child), self._mark(child)
        if bridge is None or mark is None:
            return None
        return [] if mark.report == report else [put(bridge, child, hooks.marked(structs.replace(mark, report=report)))]

    def _row(self, port: str) -> Interface | None:
        return cast("Interface | None", self._switch.client.cache.rows("Interface").get(Uuid(port)))

    def _with(self, key: str) -> Bridge | None:
        return next((bridge for bridge in self._bridges() if key in bridge.external_ids), None)

    def _bridges(self) -> list[Bridge]:
        return cast("list[Bridge]", list(self._switch.client.cache.rows("Bridge").values()))


def _report(row: Interface) -> ExecReport | None:
    return hooks.read_report(row.external_ids.get(EXEC))
