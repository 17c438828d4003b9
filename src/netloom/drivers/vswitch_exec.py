"""What the switch's database remembers of programs that run at interfaces (`plan/hooks.py` says what, and why).

Every write asserts the agent's lock, so that nobody else has begun what is begun here. A write that was not answered
may have been done: it is looked at when the database is back, and only then decided.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from netloom.drivers.vswitch import UID, Place, Vswitch
from netloom.errors import NetloomError
from netloom.model.attachments import ExecReport
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Mutate, Operation, is_uuid
from netloom.ovsdb.rows.vswitch import Bridge, Interface
from netloom.plan import hooks
from netloom.plan.hooks import AFTER, EXEC, After

log = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds before a write is tried again."""


class ExecBook:
    """Reads and writes it."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch
        self._prefix = f"{AFTER}/{switch.owner}/"

    def made(self, place: Place, uid: str) -> tuple[str, ExecReport] | None:
        """Return an attachment's port, as it is known to this book, and its report; None: nothing runs at it."""
        for row in self._switch.interfaces(place):
            if row.external_ids.get(UID) == uid and (report := _report(row)) is not None:
                return str(row._uuid), report
        return None

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
        value = hooks.written(report)

        def missing() -> list[Operation] | None:
            row = self._row(port)
            if row is None:
                return None
            return [] if row.external_ids.get(EXEC) == value else [_put("Interface", port, EXEC, value)]

        return await self._until_written(missing)

    async def begin(self, key: str, after: After) -> bool:
        """Write that what is to be run for an interface that is gone has begun; False: somebody removed it."""
        value = hooks.after(after)[AFTER]

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            if bridge is None:
                return None
            return [] if bridge.external_ids[key] == value else [_put("Bridge", str(bridge._uuid), key, value)]

        return await self._until_written(missing)

    async def forget(self, key: str) -> None:
        """Write that it is over."""

        def missing() -> list[Operation] | None:
            bridge = self._with(key)
            gone = [("external_ids", "delete", frozenset({key}))]
            return None if bridge is None else [Mutate("Bridge", is_uuid(bridge._uuid), gone)]

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

    def _row(self, port: str) -> Interface | None:
        return cast("Interface | None", self._switch.client.cache.rows("Interface").get(Uuid(port)))

    def _with(self, key: str) -> Bridge | None:
        return next((bridge for bridge in self._bridges() if key in bridge.external_ids), None)

    def _bridges(self) -> list[Bridge]:
        return cast("list[Bridge]", list(self._switch.client.cache.rows("Bridge").values()))


def _report(row: Interface) -> ExecReport | None:
    return hooks.read_report(row.external_ids.get(EXEC))


def _put(table: str, uuid: str, key: str, value: str) -> Operation:
    replaced = ("external_ids", "delete", frozenset({key}))
    return Mutate(table, is_uuid(uuid), [replaced, ("external_ids", "insert", {key: value})])
