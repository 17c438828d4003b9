"""Controllers of Sandboxes that crash, freeze and lag: in the end there is what is planned; what is of others stays."""

import asyncio
from random import Random
from typing import Any

import pytest

from netloom.errors import Conflict, NotFound
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import NETWORK, NODE, ROUTER, SANDBOX
from netloom.plan.sandbox.changes import changes, owner_uid
from netloom.plan.sandbox.names import HOST_LABEL
from netloom.plan.sandbox.objects import KINDS, plan_sandbox
from netloom.sim import loop as sim
from netloom.sim.links import NetworkFaults
from netloom.sim.world import Process, World, eventually
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document
from tests.plan.test_sandbox import SMALL
from tests.sim.scenarios import BLOCKS, SEEDS, run_block

SLOW = NetworkFaults(latency=0.3, lose_request=0.03, lose_answer=0.03, break_watch=0.05, expire_watch=0.05)
NAMES = ("s1", "s2")


class Guarded(MemoryStore):
    """A store that asks of each deletion whether the object is that of a Sandbox."""

    async def delete(self, kind: Any, namespace: str, name: str, **options: Any) -> Stored:
        if kind in KINDS and not options.pop("by_user", False):
            found = (await self.get(kind, namespace, name)).value()
            assert owner_uid(found.metadata), f"{kind.name} {name} of another owner is deleted"
        return await super().delete(kind, namespace, name, **options)

    async def settled(self) -> bool:
        """Whether there is what is planned for each Sandbox, and nothing of one that is gone."""
        sandboxes = {one.name: one.value() for one in (await self.list(SANDBOX)).items}
        objects = [one.value() for kind in KINDS for one in (await self.list(kind)).items]
        uids = {one.metadata.uid for one in sandboxes.values()}
        if any(one.metadata.deletion_timestamp for one in sandboxes.values()):
            return False
        if any(owner_uid(one.metadata) not in uids for one in objects if owner_uid(one.metadata)):
            return False
        for sandbox in sandboxes.values():
            assert isinstance(sandbox, Sandbox)
            mine: list[Any] = [one for one in objects if owner_uid(one.metadata) == sandbox.metadata.uid]
            placed = {one.metadata.labels[HOST_LABEL]: one.spec.node for one in mine if one.kind == "NetworkAttachment"}
            found = changes(plan_sandbox(sandbox, {"n1", "n2"}, placed).objects, mine)
            missing = [one for one in found.create if one.metadata.name != "s1-wan"]
            if missing or found.update or found.remove:
                return False
        return True


async def _control(process: Process) -> None:
    parts = ("sandboxes", "garbage")
    manager = assemble(
        process.store, random=Random(process.incarnation), clock=process.clock, collect=True, parts=parts
    )
    await manager.run()


def _topology(random: Random) -> Document:
    hosts = [f"h{number}" for number in range(3) if random.random() < 0.7]
    return {
        **SMALL,
        "hosts": [{"name": name, "block_internet": random.random() < 0.3} for name in hosts],
        "net_mappings": [
            {"host": name, "network": random.choice(("home-switch", "server-switch")), "ip": f"10.10.{net}.{number}"}
            for number, name in enumerate(hosts, 10)
            for net in (random.choice((20, 30)),)
        ],
    }


def _faults(random: Random) -> list[Document]:
    """Return faults, some of which name hosts that are not there."""
    cut = {"name": "cut", "linkDown": {"host": random.choice(("h0", "h1", "home-router"))}}
    apart = {"name": "apart", "partition": {"members": [random.choice(("h0", "h1", "home-switch"))]}}
    return [one for one in (cut, apart) if random.random() < 0.6]


async def _user(store: Guarded, random: Random) -> None:
    """Do what somebody might do to a Sandbox, or to one of its objects."""
    name = random.choice(NAMES)
    there = {one.name: one for one in (await store.list(SANDBOX)).items}
    try:
        if name not in there:
            await store.create(SANDBOX, document(SANDBOX, name, {"topology": _topology(random)}))
        elif random.random() < 0.4:
            await store.delete(SANDBOX, "ns1", name)
        elif random.random() < 0.6:
            changed = there[name].document()
            if random.random() < 0.6:
                changed["spec"]["topology"] = _topology(random)
            if random.random() < 0.6:
                changed["spec"]["faults"] = _faults(random)
            await store.update(SANDBOX, changed)
        else:
            await store.delete(ROUTER, "ns1", f"{name}-man", by_user=True)
    except (Conflict, NotFound):
        pass


async def busy_day() -> None:
    """Users create, edit and delete Sandboxes while two processes with the controllers crash, freeze and lag."""
    random = sim.current().random
    store = Guarded(clock=lambda: 0.0, random=Random(1))
    for node in ("n1", "n2"):
        await store.create(NODE, document(NODE, node, {"underlayIP": "172.31.0.1"}))
    foreign = random.random() < 0.3
    if foreign:
        await store.create(NETWORK, document(NETWORK, "s1-wan", {"mtu": 1300}))
    async with World(store, faults=SLOW) as world:
        processes = [world.process(name, _control) for name in ("one", "two")]
        for process in processes:
            process.start()
        for _ in range(10):
            await _user(store, random)
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 5.0)))
            victim = random.choice(processes)
            match random.randrange(6):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.freeze()
                case 2:
                    victim.thaw()
            world.check()
        for process in processes:
            process.thaw()
        await eventually(store.settled, within=900, every=2)
        world.check()
        assert not foreign or (await store.get(NETWORK, "ns1", "s1-wan")).document()["spec"] == {"mtu": 1300}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_the_end_there_is_what_is_planned(block: int) -> None:
    run_block(busy_day, block, min(SEEDS, 40))
