"""Two processes, one store, kills, freezes, partitions: one leads at a time, and no work is done twice.

The work is on a device that counts: a reconcile reads the device's count of its key and, if it is nought, adds one. The
device checks nothing, so two who work at once, or one who goes on after it lost the lead, would be seen as a two.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from netloom.control.runtime.cache import Key
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.election import Election
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import informer
from netloom.control.runtime.manager import Manager
from netloom.errors import Unreachable
from netloom.model.kinds.networks import Network
from netloom.model.registry import NETWORK
from netloom.sim import loop as sim
from netloom.sim.links import NetworkFaults
from netloom.sim.world import Process, World, eventually
from tests.control.helpers import memory, network
from tests.sim.scenarios import BLOCKS, is_found_again, run_block

ROUGH = NetworkFaults(latency=0.05, lose_request=0.02, lose_answer=0.02, break_watch=0.1, expire_watch=0.05)
TAKEOVER = 5.0


class Cluster:
    """Two processes that would lead, and the device they would work on."""

    def __init__(self, world: World, *, careful: bool = True) -> None:
        self.world = world
        self.careful = careful
        self.device: Counter[Key] = Counter()
        self.elections: dict[str, Election] = {}
        self.past: list[Election] = []
        self.processes = [world.process(name, self.body) for name in ("one", "two")]
        self.started_by: list[str] = []
        sim.current().invariants.append(self.one_leads)

    def one_leads(self) -> None:
        """Raise if two are certain to lead at this instant, be they dead or frozen."""
        certain = [e.identity for e in (*self.elections.values(), *self.past) if e.certain()]
        assert len(certain) <= 1, certain

    def leader(self) -> Process | None:
        return next((p for p in self.processes if p.name in self.elections and self.elections[p.name].certain()), None)

    async def body(self, process: Process) -> None:
        random = Random(f"{process.name}{process.incarnation}{sim.current().random.random()}")
        store = process.store
        if process.name in self.elections:
            self.past = [e for e in (*self.past, self.elections[process.name]) if e.certain()]
        election = self.elections[process.name] = Election(
            store,
            name="test",
            namespace="default",
            identity=f"{process.name}-{process.incarnation}",
            random=random,
            clock=process.clock,
        )

        async def look(key: Key) -> None:
            self.started_by.append(process.name)
            assert election.certain() or not self.careful
            if await process.link.call(lambda: self.read(key)):
                return
            if self.careful and not election.certain():
                raise Unreachable("not certain to lead")
            await process.link.call(lambda: self.act(key))

        networks = informer(store, Network, random=random)
        controller = Controller(
            "test", look, random=random, workers=2, fence=election.certain if self.careful else lambda: True
        )
        controller.watch(networks, lambda change: [change.key])
        manager = Manager(
            controllers=[controller],
            informers=[networks],
            recorder=Recorder(store, "test", random=random),
            random=random,
            election=election,
            grace=1.0,
        )
        await manager.run()

    async def read(self, key: Key) -> int:
        return self.device[key]

    async def act(self, key: Key) -> None:
        self.device[key] += 1
        assert self.device[key] == 1, f"{key} was done twice"


async def trouble(cluster: Cluster) -> None:
    """Make one bad thing happen, most often to the leader, and let it pass."""
    random = sim.current().random
    victim = cluster.leader() or random.choice(cluster.processes)
    match random.choice(["kill", "stop", "freeze", "partition", "outage", "nothing"]):
        case "kill":
            victim.kill()
            await asyncio.sleep(random.uniform(0, 8))
            victim.start()
        case "stop":
            await victim.stop()
            await asyncio.sleep(random.uniform(0, 8))
            victim.start()
        case "freeze":
            victim.freeze()
            await asyncio.sleep(random.uniform(0, 12))
            victim.thaw()
        case "partition":
            victim.link.cut()
            await asyncio.sleep(random.uniform(0, 12))
            victim.link.heal()
        case "outage":
            for process in cluster.processes:
                process.link.cut()
            await asyncio.sleep(random.uniform(0, 12))
            for process in cluster.processes:
                process.link.heal()
    await asyncio.sleep(random.uniform(0, 3))


async def rough_life(*, careful: bool = True) -> None:
    """Jobs come while all goes wrong; in the end each is done, once."""
    random = sim.current().random
    async with World(memory(), faults=ROUGH) as world:
        cluster = Cluster(world, careful=careful)
        for process in cluster.processes:
            process.start()
        for number in range(4):
            await asyncio.sleep(random.uniform(0, 2))
            await world.store.create(NETWORK, network(f"job{number}"))
            await asyncio.sleep(random.uniform(0, 0.3))  # So that trouble often strikes in the middle of work.
            await trouble(cluster)
            world.check()
        await eventually(lambda: len(cluster.device) == 4, within=120, every=0.5)
        world.check()
        assert set(cluster.device.values()) == {1}


async def a_kill() -> None:
    """The leader dies at some instant; the other leads within five seconds."""
    loop = sim.current()
    async with World(memory(), faults=NetworkFaults(latency=0.05)) as world:
        cluster = Cluster(world)
        for process in cluster.processes:
            process.start()
        await asyncio.sleep(loop.random.uniform(2, 4))
        leader = cluster.leader()
        assert leader is not None
        leader.kill()
        await world.store.create(NETWORK, network("job"))
        killed = loop.time()
        del cluster.elections[leader.name]
        await eventually(lambda: cluster.leader() is not None, within=TAKEOVER, every=0.02)
        assert loop.time() - killed < TAKEOVER
        await eventually(lambda: cluster.device[Key("ns1", "job")] == 1, within=TAKEOVER)


async def a_decent_stop() -> None:
    """The leader is asked to stop; the other leads at once."""
    loop = sim.current()
    async with World(memory()) as world:
        cluster = Cluster(world)
        for process in cluster.processes:
            process.start()
        await asyncio.sleep(loop.random.uniform(2, 4))
        leader = cluster.leader()
        assert leader is not None
        await leader.stop()
        stopped = loop.time()
        await eventually(lambda: cluster.leader() is not None, within=1, every=0.02)
        assert loop.time() - stopped < 1


async def careless_life() -> None:
    """The same life without fences: a planted bug."""
    await rough_life(careful=False)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_leads_at_a_time_and_no_work_is_done_twice(block: int) -> None:
    run_block(rough_life, block)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_killed_leader_is_replaced_within_five_seconds(block: int) -> None:
    run_block(a_kill, block)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_leader_that_stops_decently_is_replaced_at_once(block: int) -> None:
    run_block(a_decent_stop, block)


def test_a_seed_finds_work_without_fences_and_finds_it_again() -> None:
    assert is_found_again(careless_life, 100)


def test_a_seed_replays_a_whole_life() -> None:
    for seed in range(5):
        assert sim.traced(rough_life(), seed=seed) == sim.traced(rough_life(), seed=seed)


def test_a_seed_replays_a_whole_life_in_another_process_with_another_hash_seed() -> None:
    program = (
        "from netloom.sim import loop as sim; from tests.sim.test_leading import rough_life; "
        "print([sim.traced(rough_life(), seed=seed) for seed in range(3)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": salt},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(traces) == 1
