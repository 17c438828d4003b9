"""Two collectors at once in bad faults: nothing is deleted that somebody living owns, and the rest goes in the end."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from netloom.control.runtime.gc import FOREGROUND, ORPHAN, Item, item
from netloom.model.kind import Kind
from netloom.model.registry import IP_LOCK, NETWORK
from netloom.sim import loop as sim
from netloom.sim.links import NetworkFaults
from netloom.sim.world import Process, World, eventually
from netloom.store.base import Propagation, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, network, owner_reference
from tests.sim.scenarios import BLOCKS, run_block

SLOW = NetworkFaults(latency=0.2, lose_request=0.03, lose_answer=0.03, break_watch=0.05, expire_watch=0.05)
SPEC = {"network": "blue", "vni": 1, "ip": "10.0.0.1"}


class Guarded(MemoryStore):
    """A store that asks of every deletion with preconditions, which is the collectors', whether it is right."""

    async def items(self) -> list[Item]:
        return [item(found) for kind in (NETWORK, IP_LOCK) for found in (await self.list(kind)).items]

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Any) -> Stored:
        before = {one.metadata.uid: one for one in await self.items()}
        stored = await super().delete(kind, namespace, name, **options)
        if options.get("uid"):
            meta = msgspec.json.decode(stored.raw, type=Item).metadata
            for owner in meta.owner_references:
                if owner.uid in before:
                    assert FOREGROUND in before[owner.uid].metadata.finalizers, f"{name} has a living owner"
        return stored

    async def settled(self) -> bool:
        """Whether nobody is left without an owner, and nobody waits."""
        items = await self.items()
        uids = {one.metadata.uid for one in items}
        for one in items:
            if {FOREGROUND, ORPHAN} & set(one.metadata.finalizers):
                return False
            owners = one.metadata.owner_references
            if owners and not any(owner.uid in uids for owner in owners):
                return False
        return True


async def user(store: MemoryStore, random: Random) -> None:
    """Make an object with some owners, delete one in some way, or give one another owner."""
    networks = list((await store.list(NETWORK)).items)
    locks = list((await store.list(IP_LOCK)).items)
    match random.randrange(6):
        case 0 | 1 if len(networks) < 5:
            owners = [owner_reference(o, block=random.random() < 0.5) for o in networks if random.random() < 0.3]
            await store.create(NETWORK, network("", generateName="net", ownerReferences=owners))
        case 2 | 3 if networks:
            chosen = random.sample(networks, min(len(networks), random.randint(1, 2)))
            owners = [owner_reference(o, block=random.random() < 0.5) for o in chosen]
            await store.create(IP_LOCK, document(IP_LOCK, "", SPEC, generateName="lock", ownerReferences=owners))
        case 4 if networks:
            going = random.choice(networks)
            # Who is going already stays with how it goes: to change one's mind while dependents go is a race by itself.
            if not item(going).metadata.deletion_timestamp:
                await store.delete(NETWORK, "ns1", going.name, propagation=random.choice(list(Propagation)))
        case 5 if networks and locks:
            adopted = random.choice(locks).document()
            owners = adopted["metadata"].setdefault("ownerReferences", [])
            fresh = owner_reference(random.choice(networks))
            if not adopted["metadata"].get("deletionTimestamp") and fresh["uid"] not in [o["uid"] for o in owners]:
                owners.append(fresh)
                await store.update(IP_LOCK, adopted)


async def _collect(process: Process) -> None:
    manager = assemble(process.store, random=Random(process.incarnation), clock=process.clock, only=(NETWORK, IP_LOCK))
    await manager.run()


async def heirs_and_orphans() -> None:
    """Owners come and go in every way there is while two collectors crash, freeze and lag."""
    random = sim.current().random
    store = Guarded(clock=lambda: 0.0, random=Random(sim.current().random.random()))
    async with World(store, faults=SLOW) as world:
        collectors = [world.process(name, _collect) for name in ("one", "two")]
        for process in collectors:
            process.start()
        for _ in range(20):
            await user(store, random)
            await asyncio.sleep(random.choice((0.0, 0.05, 0.5)))
            victim = random.choice(collectors)
            match random.randrange(16):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.freeze()
                case 2:
                    victim.thaw()
            world.check()
        for process in collectors:
            process.thaw()
        await eventually(store.settled, within=900, every=2)
        world.check()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_owned_by_the_living_is_deleted_and_the_rest_goes_in_the_end(block: int) -> None:
    run_block(heirs_and_orphans, block)
