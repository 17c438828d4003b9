"""The port numbers and datapaths of an Open vSwitch, which ryu's clients name: read from its database."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import NoReturn

from netloom.errors import Unreachable
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.rows.vswitch import Bridge, Interface

_ANSWER_SECONDS = 5.0


class SwitchPorts:
    """Follows the database of an Open vSwitch."""

    def __init__(self, remote: str, *, random: Random) -> None:
        tables = {"Bridge": ("datapath_id",), "Interface": ("name", "ofport")}
        self._remote = remote
        self._client = OvsdbClient([remote], "Open_vSwitch", tables=tables, random=random)

    async def run(self) -> NoReturn:
        """Follow the database until cancelled."""
        await self._client.run()

    async def numbers(self) -> Mapping[str, int]:
        """Return the OpenFlow number of each port, by name."""
        await self._known()
        rows = self._client.cache.rows("Interface").values()
        return {
            row.name: row.ofport
            for row in rows
            if isinstance(row, Interface) and row.ofport is not None and row.ofport > 0
        }

    async def datapaths(self) -> set[int]:
        """Return the datapath IDs of the bridges."""
        await self._known()
        rows = self._client.cache.rows("Bridge").values()
        return {int(row.datapath_id, 16) for row in rows if isinstance(row, Bridge) and row.datapath_id}

    async def _known(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._client.synced.wait()
        except TimeoutError:
            raise Unreachable(
                f"Open vSwitch does not answer at {self._remote}: check that ovsdb-server runs there, and --ovs",
                retry_after=1,
            ) from None
