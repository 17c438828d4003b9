"""Nodes with their switches and real agents, in a world that is bad.

What is real: the agent as a whole (`run/node/agent.py`), its informers, reconcilers, plans, OVSDB client. What is
pretended, and executes: the switch's database, vswitchd's part in it, the switch's flow tables, the kernel's devices,
the network to the store. OpenFlow is not spoken: a switch is asked in its own process.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, cast

from netloom.drivers.vswitch.driver import UID, VTEP, Vswitch
from netloom.errors import NetloomError
from netloom.openflow.flows import Flow, MeterSpec, Mod
from netloom.openflow.memory import Memory
from netloom.openflow.switch import Counters
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.memory.serving import Pipe, dial
from netloom.run.config import AgentSettings
from netloom.run.node.agent import Agent
from netloom.signals import Signal
from netloom.sim import loop as sim
from netloom.sim.world import Process, World
from tests.control.host_world import GRANTS, REMOTE, SCHEMA, Daemons, FakeLinks, FakeRelays, Machine
from tests.sim.fabric_oracle import Switchboard

if TYPE_CHECKING:
    from netloom.drivers.link.worker import Links


class Speaking:
    """An agent's connection to a switch in memory."""

    def __init__(self, switch: Memory) -> None:
        self._switch = switch

    async def run(self) -> NoReturn:
        """Be there, until cancelled."""
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def connected(self) -> asyncio.Event:
        return self._switch.connected

    @property
    def on_connect(self) -> Signal[[]]:
        return self._switch.on_connect

    @property
    def generation(self) -> int:
        return self._switch.generation

    @property
    def counters(self) -> Counters:
        return self._switch.counters

    async def flows(self, cookie: int = 0, cookie_mask: int = 0) -> list[Flow]:
        return await self._switch.flows(cookie, cookie_mask)

    async def count(self, cookie: int = 0, cookie_mask: int = 0) -> int:
        return await self._switch.count(cookie, cookie_mask)

    async def change(self, mods: Sequence[Mod]) -> None:
        await self._switch.change(mods)

    async def meters(self) -> dict[int, MeterSpec]:
        return await self._switch.meters()

    async def set_meter(self, meter: int, rate_kbps: int, burst: int) -> None:
        await self._switch.set_meter(meter, rate_kbps, burst)

    async def remove_meter(self, meter: int) -> None:
        await self._switch.remove_meter(meter)


class Node:
    """One node: its devices, its switch, and its agent, a process that may die."""

    def __init__(self, world: World, number: int, *, underlay: str) -> None:
        self.name, self.host = f"n{number}", f"{underlay}{number}"
        self.random = Random(sim.current().random.random())
        self.machine = Machine()
        self.database = Database(SCHEMA, Random(self.random.random()))
        self.database.transact([{"op": "insert", "table": "Open_vSwitch", "row": {}}])
        self.server = Server([self.database])
        self.switch = Memory()
        self.daemons = Daemons(self.machine, self.server, self.database, self.random)
        self.process = world.process(self.name, self._live)
        self.agent: Agent | None = None
        self._pipes: list[Pipe] = []
        world.spawn(self.daemons.run())

    async def _live(self, process: Process) -> None:
        """Run the agent; start it again when it gives up, as an init system does."""
        while True:
            self.agent = self._agent(process)
            try:
                await self.agent.run()
            except* NetloomError:
                await asyncio.sleep(1)

    def _agent(self, process: Process) -> Agent:
        settings = AgentSettings(
            node=self.name, ovs=REMOTE, underlay_ip=self.host, prepare=True, datapath="netdev", **GRANTS
        )
        # Random(…) below: one for each life, as a process has.
        random = Random(self.random.random())
        switch = Vswitch([REMOTE], owner="netloom", random=random, dial=dial({REMOTE: self.server}, self._pipes))
        return Agent(
            settings,
            process.store,
            random=random,
            clock=process.clock,
            switch=switch,
            links=cast("Links", FakeLinks(self.machine, self.random)),
            relays=FakeRelays(self.machine),
            flows=Speaking(self.switch),
        )

    def start(self) -> None:
        """Have the agent run."""
        if not self.process.alive:
            self.process.start()

    def kill(self) -> None:
        """End the agent as SIGKILL does."""
        self.process.kill()
        self.cut_database()

    def cut_database(self) -> None:
        """Break the agent's connection to the switch's database."""
        for pipe in self._pipes:
            pipe.cut()
        self._pipes.clear()

    async def restart_switch(self, *, away: float) -> None:
        """End vswitchd, which forgets its flows, and start it again."""
        self.switch.cut()
        await asyncio.sleep(away)
        self.daemons.crash(renumber=True)
        self.switch.restart()

    async def cut_switch(self, *, away: float) -> None:
        """Break the connection to the switch, which goes on as it is."""
        self.switch.cut()
        await asyncio.sleep(away)
        self.switch.lossy = False
        self.switch.reconnect()

    def board(self) -> Switchboard:
        """Return what the switch has now."""
        numbers = {}
        for row in self.rows("Interface"):
            ids = dict(row["external_ids"][1])
            if isinstance(row["ofport"], int) and row["ofport"] > 0:
                if row["name"] == VTEP:
                    numbers[""] = row["ofport"]
                elif UID in ids:
                    numbers[ids[UID]] = row["ofport"]
        return Switchboard(self.name, self.host, numbers, list(self.switch.table.values()), dict(self.switch.metered))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return rows of the switch's database."""
        answer = self.database.transact([{"op": "select", "table": table, "where": []}])
        rows: list[dict[str, Any]] = cast("Any", answer).results[0]["rows"]
        return rows
