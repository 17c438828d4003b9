"""Histories of the vxlan fabric: users change objects while agents, switches and the network fail; then all is calm."""

import asyncio

from netloom.sim import loop as sim
from netloom.sim.links import MANY_FAULTS, NO_FAULTS
from netloom.sim.world import World
from tests.control.helpers import memory
from tests.sim.fabric_oracle import Resources, Switchboard, complaints
from tests.sim.fabric_packets import astray
from tests.sim.fabric_people import People
from tests.sim.fabric_world import Node

NODES = 3
UNDERLAYS = ("172.31.0.", "172.31.0.", "fd31::")
ARRIVALS = 8
"""How many are there before anything goes wrong, or are about to be."""
CHANGES = 20
FAULTS = 5
"""How many, at most, each of two troubles brings."""
REST = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""After how many more virtual seconds each it is looked whether all has come right after the last fault."""
PACKETS = 5
"""How many pairs send each other packets in the end."""
STILL = 3.0
"""How long it must stay so."""


class History:
    """One run."""

    def __init__(self, world: World, *, policed: bool) -> None:
        self.world = world
        self.random = sim.current().random
        underlay = self.random.choice(UNDERLAYS)
        self.nodes = [Node(world, number, underlay=underlay) for number in range(1, NODES + 1)]
        self.people = People(world.store, [node.name for node in self.nodes], policed=policed)

    async def live(self) -> None:
        """Change objects and cause faults at the same time."""
        await self.people.prepare()
        for node in self.nodes:
            node.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._changes())
            group.create_task(self._faults())
            group.create_task(self._faults())

    async def _changes(self) -> None:
        for _ in range(ARRIVALS):
            await self.people.arrive()
        for _ in range(CHANGES):
            await self.people.change()
            await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.3, 2.0)))

    async def _faults(self) -> None:
        for _ in range(self.random.randint(0, FAULTS)):
            await asyncio.sleep(self.random.uniform(0, 2.0))
            await self._fault(self.random.choice(self.nodes))

    async def _fault(self, node: Node) -> None:
        lasts = self.random.choice((0, 0.1, 1.0, 5.0))
        match self.random.randrange(7):
            case 0:
                node.kill()
                await asyncio.sleep(lasts)
                node.start()
            case 1:
                node.process.link.cut()
                await asyncio.sleep(lasts)
                node.process.link.heal()
            case 2:
                await node.restart_switch(away=lasts)
            case 3:
                await node.cut_switch(away=lasts)
            case 4:
                node.switch.lossy = True
                await asyncio.sleep(lasts)
                await node.cut_switch(away=0)
            case 5:
                node.process.freeze()
                await asyncio.sleep(lasts)
                node.process.thaw()
            case _:
                node.cut_database()

    def calm(self) -> None:
        """End all faults."""
        self.world.faults = NO_FAULTS
        for node in self.nodes:
            node.start()
            node.process.link.heal()
            node.process.link.faults = NO_FAULTS

    async def rest(self) -> None:
        """Wait until every node's fabric is what the resources say, and see that it stays so; say what is not."""
        for seconds in REST:
            await asyncio.sleep(seconds)
            self.world.check()
            if not (found := complaints(*await self.state())):
                break
        else:
            raise AssertionError("not at rest:\n" + "\n".join(found))
        await asyncio.sleep(STILL)
        state = await self.state()
        found = complaints(*state) or astray(*state, self.random, PACKETS)
        assert not found, "no longer at rest:\n" + "\n".join(found)

    async def state(self) -> tuple[Resources, list[Switchboard]]:
        """Return the desired and the observed state."""
        return await self.people.resources(), [node.board() for node in self.nodes]


async def fabric() -> None:
    """Run one history to its end; in half of them SecurityProfiles and Shapings come and go as well."""
    random = sim.current().random
    async with World(memory(), faults=random.choice((NO_FAULTS, MANY_FAULTS))) as world:
        history = History(world, policed=random.random() < 0.5)
        await history.live()
        history.calm()
        await history.rest()
