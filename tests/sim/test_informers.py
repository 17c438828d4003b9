"""Informers behind bad networks, slow readers and a store that forgets quickly: in the end they know what it knows."""

import asyncio
from random import Random

import pytest

from netloom.control.runtime.cache import Key
from netloom.control.runtime.informer import Informer, informer
from netloom.model.kinds.networks import Network
from netloom.model.registry import NETWORK
from netloom.model.values.selectors import Selector, selector
from netloom.sim import loop as sim
from netloom.sim.links import MANY_FAULTS
from netloom.sim.world import Process, World, eventually
from netloom.store.memory import MemoryStore
from tests.control.helpers import network
from tests.sim.scenarios import BLOCKS, run_block


async def change_something(store: MemoryStore, random: Random) -> None:
    """Create, change or delete one of a few Networks."""
    name, vni = f"n{random.randrange(4)}", random.choice((7, 8))
    there = {item.name: item for item in (await store.list(NETWORK)).items}
    if name not in there:
        await store.create(NETWORK, network(name, vni))
    elif random.random() < 0.3:
        await store.delete(NETWORK, "ns1", name)
    else:
        document = there[name].document()
        document["spec"] = {"vni": vni}
        await store.update(NETWORK, document)


class Follower:
    """A process with one informer, and what its handlers were told."""

    def __init__(self, world: World, name: str, chosen: Selector) -> None:
        self.chosen = chosen
        self.informer: Informer[Network] | None = None
        self.told: dict[Key, Network] = {}
        self.process = world.process(name, self.body)

    async def body(self, process: Process) -> None:
        self.told = {}
        self.informer = informer(
            process.store, Network, random=Random(process.incarnation), selector=self.chosen, page=2
        )

        def tell(change: object) -> None:
            key, old, new = change.key, change.old, change.new  # type: ignore[attr-defined]
            assert self.told.get(key) == old
            self.told.pop(key, None)
            if new is not None:
                self.told[key] = new

        self.informer.on_change(tell)
        await self.informer.run()

    async def agrees(self, store: MemoryStore) -> bool:
        """Whether cache and handlers know exactly what the store has."""
        expected = {
            Key(item.namespace, item.name): item.value()
            for item in (await store.list(NETWORK, selector=self.chosen)).items
        }
        return self.informer is not None and dict(self.informer.cache.items()) == self.told == expected


async def stormy_reading() -> None:
    """Writes go on while readers crash, are cut off, fall behind and are sent back to list again."""
    random = sim.current().random
    store = MemoryStore(clock=lambda: 0.0, random=Random(1), window_changes=6, queue_length=3)
    async with World(store, faults=MANY_FAULTS) as world:
        followers = [
            Follower(world, "all", Selector()),
            Follower(world, "some", selector(fields="spec.vni=7", selectable=NETWORK.selectable)),
        ]
        for follower in followers:
            follower.process.start()
        for _ in range(30):
            await change_something(store, random)
            await asyncio.sleep(random.choice((0, 0, 0.01, 0.2)))
            victim = random.choice(followers).process
            match random.randrange(12):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.link.cut()
                case 2:
                    victim.link.heal()
                case 3:
                    victim.freeze()
                case 4:
                    victim.thaw()
        for follower in followers:
            follower.process.thaw()
            follower.process.link.heal()
        world.check()
        for follower in followers:
            await eventually(lambda f=follower: f.agrees(store), within=300, every=1)  # type: ignore[misc]
        world.check()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_informers_converge_whatever_happens(block: int) -> None:
    run_block(stormy_reading, block)


def test_a_seed_replays_the_storm() -> None:
    for seed in range(5):
        assert sim.traced(stormy_reading(), seed=seed) == sim.traced(stormy_reading(), seed=seed)
