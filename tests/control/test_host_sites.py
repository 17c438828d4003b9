"""A vxlan Network that EVPN extends, on one node: flows follow from the RemoteVTEPs that count, and from no others."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from netloom.control.node.views import HOLD
from netloom.model.kind import Kind
from netloom.model.registry import EVPN_NETWORK, NETWORK, NETWORK_ATTACHMENT, REMOTE_VTEP
from tests.control.helpers import document
from tests.control.host_world import World
from tests.control.test_host import eventually
from tests.control.test_host_fabric import VNIS, elsewhere, in_step, plug, with_agent

EAST, WEST = "198.51.100.1", "198.51.100.2"


async def extend(world: World, name: str, *, network: str = "red", node: str = "gw1", forwarding: bool = True) -> None:
    """Extend a Network, as its controller does; or change by which node."""
    if name not in [one.name for one in (await world.store.list(EVPN_NETWORK)).items]:
        spec = {"network": network, "speaker": name}
        await world.store.create(EVPN_NETWORK, document(EVPN_NETWORK, name, spec))
    await status(world, EVPN_NETWORK, name, {"vni": VNIS[network], "forwarding": forwarding, "node": node})


async def status(world: World, kind: Kind, name: str, new: dict[str, Any]) -> None:
    made = (await world.store.get(kind, "ns1", name)).document()
    await world.store.update(kind, {**made, "status": new}, subresource="status")


async def learn(world: World, name: str, numbers: Collection[int] = (), **more: Any) -> None:
    """Write a RemoteVTEP, as a speaker does: of machines with these numbers."""
    network = more.get("network", "red")
    spec = {"evpnNetwork": "main", "network": network, "node": "gw1", "address": EAST, "vni": 900, "flood": True}
    spec = {**spec, "localVNI": VNIS[network], "macs": [behind(number) for number in numbers], **more}
    made = document(REMOTE_VTEP, name, spec)
    for stored in (await world.store.list(REMOTE_VTEP)).items:
        if stored.name == name:
            made["metadata"] = stored.document()["metadata"]
            await world.store.update(REMOTE_VTEP, made)
            return
    await world.store.create(REMOTE_VTEP, made)


def behind(number: int) -> dict[str, Any]:
    return {"mac": f"02:00:00:00:01:{number:02x}", "ips": [f"10.0.0.{number}", f"fd00::{number}"]}


def to_sites(world: World) -> list[str]:
    """Return the flows that send packets to other sites."""
    return [str(flow) for flow in world.flows.table.values() if "->tun_dst" in str(flow) and "198.51." in str(flow)]


async def is_reached(world: World, count: int) -> bool:
    """Whether all flows are as the resources say, and this many lead to other sites."""
    return await in_step(world) and len(to_sites(world)) == count


def test_flows_to_the_machines_of_other_sites_come_and_go_with_their_objects() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await elsewhere(world, "far", 3)
        await eventually(lambda: in_step(world), "the fabric")
        bare = dict(world.flows.table)
        await extend(world, "main")
        await learn(world, "east", [101, 102])
        # For each machine its MAC and its addresses; and the broadcasts.
        await eventually(lambda: is_reached(world, 7), "the machines to be reached")
        assert world.agent is not None
        assert world.agent.numbers()["remote_vteps"] == 1
        bundles = world.flows.counters.bundles
        await learn(world, "east", [101, 103])
        await eventually(lambda: is_reached(world, 7), "one machine to be replaced by another")
        assert world.flows.counters.bundles == bundles + 1
        await learn(world, "east", [101], flood=False)
        await eventually(lambda: is_reached(world, 3), "no broadcasts to be sent")
        await world.store.delete(REMOTE_VTEP, "ns1", "east")
        await eventually(lambda: is_reached(world, 0), "the machines to be gone")
        assert world.flows.table == bare

    with_agent(main)


@pytest.mark.parametrize(
    "wrong",
    [
        {"node": "n2"},
        {"localVNI": 11},
        {"evpnNetwork": "other"},
        {"evpnNetwork": "green"},
        {"evpnNetwork": "spare"},
        {"network": "green"},
    ],
    ids=str,
)
def test_what_the_speakers_node_has_not_written_for_this_network_has_no_effect(wrong: dict[str, Any]) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await extend(world, "main")
        await extend(world, "spare", forwarding=False)
        await extend(world, "green", network="green")
        await learn(world, "good", [101])
        await learn(world, "bad", [66], **{"address": WEST, **wrong})
        await eventually(lambda: is_reached(world, 4), "the good one to be reached")
        await asyncio.sleep(30)
        assert await is_reached(world, 4)
        assert WEST not in "".join(to_sites(world))

    with_agent(main)


def test_machines_are_known_when_the_network_gets_its_vni_and_when_the_speaker_forwards() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await status(world, NETWORK, "red", {})
        await extend(world, "main", forwarding=False)
        await learn(world, "east", [101])
        await plug(world, "a", 2)
        await eventually(lambda: is_reached(world, 0), "the fabric")
        await extend(world, "main")
        await asyncio.sleep(5)
        assert await is_reached(world, 0)
        await status(world, NETWORK, "red", {"vni": VNIS["red"]})
        await eventually(lambda: is_reached(world, 4), "the machine to be reached")
        await extend(world, "main", node="gw2")
        await eventually(lambda: is_reached(world, 0), "the machine to be gone")

    with_agent(main)


def test_no_flow_changes_while_another_speaker_takes_over() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await extend(world, "main")
        await extend(world, "spare", node="gw2", forwarding=False)
        await learn(world, "east", [101])
        await eventually(lambda: is_reached(world, 4), "the machine to be reached")
        before, bundles = dict(world.flows.table), world.flows.counters.bundles
        await extend(world, "main", forwarding=False)
        await asyncio.sleep(HOLD / 4)
        await extend(world, "spare", node="gw2")
        await asyncio.sleep(HOLD / 4)
        await learn(world, "east-spare", [101], evpnNetwork="spare", node="gw2")
        await asyncio.sleep(HOLD)
        await world.store.delete(EVPN_NETWORK, "ns1", "main")
        await world.store.delete(REMOTE_VTEP, "ns1", "east")
        await asyncio.sleep(5)
        assert await is_reached(world, 4)
        assert (world.flows.table, world.flows.counters.bundles) == (before, bundles)

    with_agent(main)


def test_what_a_speaker_has_learned_has_no_effect_some_time_after_it_ceased_to_forward() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        for _ in range(2):
            await extend(world, "main")
            await learn(world, "east", [101])
            await eventually(lambda: is_reached(world, 4), "the machine to be reached")
            await extend(world, "main", forwarding=False)
            await asyncio.sleep(HOLD / 2)
            assert len(to_sites(world)) == 4
            await asyncio.sleep(HOLD)
            assert await is_reached(world, 0)
        await extend(world, "main")
        await eventually(lambda: is_reached(world, 4), "the machine to be reached")
        await extend(world, "main", forwarding=False)
        await world.store.delete(EVPN_NETWORK, "ns1", "main")
        await asyncio.sleep(HOLD / 4)
        assert await is_reached(world, 0)

    with_agent(main)


def test_a_restart_of_the_agent_changes_no_flow_to_other_sites() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await extend(world, "main")
        await learn(world, "east", range(101, 120))
        await eventually(lambda: is_reached(world, 58), "the machines to be reached")
        await world.kill()
        before = dict(world.flows.table)
        agent = world.start(group)
        await eventually(lambda: agent.numbers().get("fabric_compared", 0) > 0, "the agent to have compared")
        await asyncio.sleep(30)
        assert (world.flows.table, agent.numbers()["fabric_bundles"]) == (before, 0)

    with_agent(main)


def test_the_next_hops_of_vteps_are_resolved_while_they_count() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await extend(world, "main")
        await learn(world, "east")
        await learn(world, "bad", address=WEST, node="n2")
        await eventually(lambda: in_step(world), "the fabric")
        assert world.agent is not None
        assert world.agent.fabric is not None
        heard: list[bool] = []
        world.agent.fabric.on_remote_host.connect(lambda: heard.append(True))
        assert world.agent.fabric.remote_hosts() == {EAST}
        await learn(world, "west", address=WEST)
        await eventually(lambda: in_step(world), "the fabric")
        assert (heard, world.agent.fabric.remote_hosts()) == ([True], {EAST, WEST})
        await world.store.delete(REMOTE_VTEP, "ns1", "east")
        await eventually(lambda: in_step(world), "the fabric")
        assert world.agent.fabric.remote_hosts() == {WEST}

    with_agent(main)


def test_what_is_known_of_a_network_goes_with_the_last_port_of_it_and_comes_with_the_next() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "g", 3, "green")
        await extend(world, "main")
        await learn(world, "east", [101])
        for _ in range(2):
            await plug(world, "a", 2)
            await eventually(lambda: is_reached(world, 4), "the machine to be reached")
            await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
            await eventually(lambda: is_reached(world, 0), "the machine to be gone")

    with_agent(main)


async def churn(world: World, group: asyncio.TaskGroup) -> None:
    random = world.random
    await plug(world, "a", 2)
    for at in range(40):
        name = random.choice(("main", "spare"))
        network = "red" if name == "main" else "green"
        match random.choice(("extend", "extend", "learn", "learn", "learn", "forget", "end", "port", "kill", "crash")):
            case "extend":
                await extend(world, name, network=network, node=random.choice(("gw1", "gw1", "gw2")),
                             forwarding=random.random() < 0.8)  # fmt: skip
            case "learn":
                macs = random.sample(range(100, 110), random.randrange(5))
                # The address of a RemoteVTEP does not change.
                for vtep, address in (("v", EAST), ("w", WEST)):
                    flood = random.random() < 0.7
                    more = {"evpnNetwork": name, "network": network, "address": address, "flood": flood}
                    await learn(world, f"{name}-{vtep}", macs, **more)
            case "forget" if there := (await world.store.list(REMOTE_VTEP)).items:
                await world.store.delete(REMOTE_VTEP, "ns1", random.choice(there).name)
            case "end" if there := (await world.store.list(EVPN_NETWORK)).items:
                await world.store.delete(EVPN_NETWORK, "ns1", random.choice(there).name)
            case "port":
                names = [one for one in await world.attachments() if one != "a"]
                if names and random.random() < 0.5:
                    await world.store.delete(NETWORK_ATTACHMENT, "ns1", random.choice(names))
                else:
                    await plug(world, f"p{at}", 10 + at, random.choice(("red", "green")))
            case "kill":
                await world.kill()
                await asyncio.sleep(random.choice((0, 2)))
                world.start(group)
            case "crash":
                world.crash_switch()
        await asyncio.sleep(random.choice((0, 0.01, 0.1, 2)))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_flows_are_what_the_resources_say_in_the_end(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await churn(world, group)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        await asyncio.sleep(30)
        assert await in_step(world)

    with_agent(main, seed)
