"""What may happen to IPAM: four kinds of histories."""

import asyncio

from netloom.model.kinds.networks import IPLock
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.sim import loop as sim
from netloom.sim.crashes import Crashes
from netloom.sim.links import NetworkFaults
from netloom.sim.world import eventually
from tests.control.helpers import network, subnet
from tests.sim.ipam_ledger import Ledger
from tests.sim.ipam_oracle import complaints, givable, in_line
from tests.sim.ipam_users import BLOCKS, VNI, attachment, subnets_of, torment
from tests.sim.ipam_world import History, Wiring, living

ROUGH = NetworkFaults(
    latency=0.1,
    lose_request=0.03,
    lose_answer=0.03,
    break_watch=0.05,
    expire_watch=0.03,
    lag=0.4,
    repeat_watch=0.1,
)
CALM = NetworkFaults(latency=0.02)


async def stormy(wiring: Wiring, *, changes: int = 10) -> None:
    """Users change objects while two controllers, both certain to lead, crash, freeze, lag and are cut off."""
    random = sim.current().random
    quarantine = random.choice((0.0, 1.0, 5.0))
    async with living(wiring, quarantine=quarantine, faults=ROUGH, controllers=2) as past:
        await past.people.settle_in()
        past.start()
        for _ in range(changes):
            await past.people.change()
            await asyncio.sleep(random.choice((0.0, 0.0, 0.05, 0.5, 2.0)))
            torment(past.processes, past.people, random)
            past.check()


async def peaceful(wiring: Wiring, crashes: Crashes, *, changes: int = 5) -> None:
    """Users change objects and one controller works without disturbance, except for one crash."""
    random = sim.current().random
    async with living(wiring, quarantine=random.choice((0.0, 1.0)), faults=CALM) as past:
        crashes.attach(past.world, *past.processes)
        await past.people.settle_in()
        past.start()
        for _ in range(changes):
            await past.people.change()
            await asyncio.sleep(random.choice((0.0, 0.05, 0.5)))
            past.check()


async def line(wiring: Wiring) -> None:
    """More wait than there are addresses; whenever one is freed, who came first is served first.

    One controller, in bad faults, and now and then killed: it learns of those who wait in the order in which they
    came, so there is no excuse. They come in different seconds, so that their age says who was first.
    """
    random = sim.current().random
    async with living(wiring, quarantine=random.choice((0.0, 1.0)), faults=ROUGH) as past:
        store = past.store
        store.on_lock.append(lambda lock: _overtaken(store, lock))
        await store.create(NETWORK, network("blue", VNI))
        await store.create(SUBNET, subnet("tiny", BLOCKS["tiny"]))
        past.start()
        await eventually(lambda: not complaints(past.state()), every=1)  # The Subnet is validated, the VNI is there.
        for number in range(6):
            await _come(past, f"w{number}")
        for number in range(6, 9):
            leaving = random.choice(in_line(store.attachments))
            past.people.tell(f"delete {leaving.metadata.name}")
            await store.delete(NETWORK_ATTACHMENT, "ns1", leaving.metadata.name)
            await asyncio.sleep(random.choice((0.0, 0.1, 3.0)))
            if random.random() < 0.3:
                past.people.tell("kill")
                past.processes[0].kill()
                past.processes[0].start()
            await _come(past, f"w{number}")
            past.check()


async def _come(past: History, name: str) -> None:
    past.people.tell(f"create {name}")
    await past.store.create(NETWORK_ATTACHMENT, attachment(name))
    await asyncio.sleep(past.random.uniform(1.0, 1.5))


def _overtaken(store: Ledger, lock: IPLock) -> str:
    """Say who was overtaken by whom this lock is for: all want an address, and too few are left for who is older."""
    served = {one.metadata.owner_references[0].uid for one in store.locks if not one.metadata.deletion_timestamp}
    name = lock.metadata.owner_references[0].name
    there = in_line(store.attachments)
    if name not in [one.metadata.name for one in there]:
        return ""
    older = [one.metadata.name for one in there if one.metadata.uid not in served]
    older = [other for other in older if int(other[1:]) < int(name[1:])]
    [tiny] = subnets_of(store)
    free = len(givable(tiny) - {one.spec.ip for one in store.locks})
    return f"{name} is served before {older} while {free} are left" if len(older) > free else ""


async def moving(wiring: Wiring) -> None:
    """A Network goes, and another of another namespace takes its VNI while its addresses are still locked."""
    random = sim.current().random
    async with living(wiring, quarantine=random.choice((0.0, 1.0, 5.0)), faults=ROUGH, controllers=2) as past:
        past.start()
        await _settle(past, "ns1", "blue")
        await asyncio.sleep(random.choice((1.0, 3.0, 6.0)))
        early = random.random() < 0.5
        if early:
            await _settle(past, "ns2", "green")
        past.people.tell("ns1 goes")
        for name in ("a0", "a1"):
            await past.store.delete(NETWORK_ATTACHMENT, "ns1", name)
        await asyncio.sleep(random.choice((0.0, 0.1, 1.0)))
        await past.store.delete(SUBNET, "ns1", "tiny")
        await past.store.delete(NETWORK, "ns1", "blue")
        await asyncio.sleep(random.choice((0.0, 0.1, 1.0)))
        if not early:
            await _settle(past, "ns2", "green")
        for _ in range(3):
            torment(past.processes, past.people, random)
            await asyncio.sleep(random.choice((0.1, 1.0, 3.0)))
            past.check()


async def _settle(past: History, namespace: str, name: str) -> None:
    past.people.tell(f"{namespace} comes")
    await past.store.create(NETWORK, network(name, VNI, namespace))
    await past.store.create(SUBNET, subnet("tiny", BLOCKS["tiny"], name, namespace))
    for one in ("a0", "a1"):
        await past.store.create(NETWORK_ATTACHMENT, attachment(one, name, namespace))
