"""Several validators at once, with stale caches, in bad faults: no two Subnets in conflict are ever both validated."""

import asyncio
from itertools import combinations
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.cache import Key
from netloom.control.runtime.client import Client
from netloom.control.subnets import SubnetValidator, Verdict, check, vni_of
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.registry import NETWORK, SUBNET
from netloom.plan.addresses import blocks
from netloom.sim import loop as sim
from netloom.sim.links import NetworkFaults
from netloom.sim.world import Process, World, eventually
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, network, subnet
from tests.sim.scenarios import BLOCKS, is_found_again, run_block

SLOW = NetworkFaults(latency=0.3, lose_request=0.03, lose_answer=0.03, break_watch=0.05, expire_watch=0.05)
BLOCKS_OF_ADDRESSES = ("10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "10.0.1.0/24", "10.0.0.0/16")


class Guarded(MemoryStore):
    """A store that looks, at every status written, whether the rule still holds."""

    async def update(self, *args: Any, **options: Any) -> Stored:
        stored = await super().update(*args, **options)
        if stored.kind is SUBNET:
            await self.check()
        return stored

    async def segments(self) -> dict[Any, list[Subnet]]:
        """Return the Subnets of each VNI, or of each Network that has none."""
        client = Client(self)
        networks = {Key(n.metadata.namespace, n.metadata.name): vni_of(n) for n in await client.list(Network)}
        found: dict[Any, list[Subnet]] = {}
        for one in await client.list(Subnet):
            key = Key(one.metadata.namespace, one.spec.network)
            if key in networks:
                found.setdefault(networks[key] or key, []).append(one)
        return found

    async def check(self) -> None:
        for segment in (await self.segments()).values():
            for one, two in combinations([s for s in segment if s.status.validated], 2):
                assert one.metadata.namespace == two.metadata.namespace
                overlap = blocks.overlap(blocks.block(one.spec.cidr), blocks.block(two.spec.cidr))
                assert not overlap, f"{one.metadata.name} and {two.metadata.name} are both validated"

    async def settled(self) -> bool:
        """Whether every Subnet is valid, or says rightly why it is not."""
        for segment in (await self.segments()).values():
            for one in segment:
                verdict = check(one, segment)
                if one.status.validated:
                    continue
                if not verdict.errors or one.status.errors != verdict.errors:
                    return False
        return True


async def user(store: MemoryStore, random: Random) -> None:
    """Do what somebody might do."""
    namespace = random.choice(("ns1", "ns1", "ns1", "ns2"))
    name = f"s{random.randrange(4)}"
    there = {(item.namespace, item.name) for item in (await store.list(SUBNET)).items}
    if (namespace, name) in there:
        await store.delete(SUBNET, namespace, name)
        return
    of = random.choice(("blue", "red"))
    await store.create(SUBNET, subnet(name, random.choice(BLOCKS_OF_ADDRESSES), of, namespace))


async def _networks(store: MemoryStore, random: Random) -> None:
    """Make the Networks one after the other: two of VNI 1, one of them in another namespace, and one of its own."""
    for document in (network("blue", 1), network("red", random.choice((1, 2, None))), network("blue", 1, "ns2")):
        await asyncio.sleep(random.uniform(0, 1))
        await store.create(NETWORK, document)


async def _validate(process: Process) -> None:
    manager = assemble(process.store, random=Random(process.incarnation), clock=process.clock)
    await manager.run()


async def _busy_day(body: Any) -> None:
    random = sim.current().random
    store = Guarded(clock=lambda: 0.0, random=Random(1))
    async with World(store, faults=SLOW) as world:
        validators = [world.process(name, body) for name in ("one", "two")]
        for process in validators:
            process.start()
        making = world.spawn(_networks(store, random))
        for _ in range(10):
            await user(store, random)
            await asyncio.sleep(random.choice((0.0, 0.05, 0.5, 1.5)))
            victim = random.choice(validators)
            match random.randrange(8):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.freeze()
                case 2:
                    victim.thaw()
            world.check()
        await making
        for process in validators:
            process.thaw()
        await eventually(store.settled, within=900, every=2)
        world.check()


async def busy_day() -> None:
    """Users make and delete Subnets that overlap while two validators crash, freeze and lag."""
    await _busy_day(_validate)


class Gullible(SubnetValidator):
    """A planted bug: it believes its cache."""

    async def _examine(self, subnet: Subnet) -> tuple[Subnet | None, Verdict]:
        return subnet, check(subnet, (s for s in self._subnets if s.spec.network == subnet.spec.network))


async def gullible_day() -> None:
    """The same day with validators that believe their caches."""

    async def body(process: Process) -> None:
        manager = assemble(process.store, random=Random(1), clock=process.clock, validator=Gullible)
        await manager.run()

    await _busy_day(body)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_overlapping_subnets_are_never_both_validated_and_all_is_judged_in_the_end(block: int) -> None:
    run_block(busy_day, block)


def test_a_seed_finds_the_validator_that_believes_its_cache_and_finds_it_again() -> None:
    assert is_found_again(gullible_day, 30)
