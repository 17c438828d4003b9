"""Which devices of a node may be taken by a wish: not those that the node, or others on it, live by."""

import asyncio

import pytest

from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vswitch.prepare import MAPPINGS, ensure_mappings
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.ovsdb.operations import Mutate, Operation, is_uuid
from tests.control.host_world import World
from tests.control.test_host import eventually, is_ready, with_agent


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("lo", "is the node's loopback"),
        ("eth0", "has the node's own address 192.0.2.1/24"),
        ("slave", "is part of bond0"),
        ("bond0", "has slave in it"),
        ("below", "carries below.7"),
        ("genev_sys_6081", "is part of ovs-system"),
    ],
)
def test_a_device_that_the_node_lives_by_is_not_to_be_taken(device: str, says: str) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        machine = world.machine
        machine.add("", "lo", "", up=True)
        machine.add("", "eth0", "", addresses={"192.0.2.1/24"})
        machine.add("", "slave", "", master=machine.add("", "bond0", "bond"))
        machine.add("", "below.7", "vlan", peer=machine.add("", "below", ""))
        machine.add("", "genev_sys_6081", "geneve", master=machine.add("", "ovs-system", "openvswitch"))
        await world.attach("a", 9, {"type": "existing", "device": device})
        await asyncio.sleep(5)
        found = await world.attachments()
        assert found["a"]["status"]["errors"]["host"] == [f"device {device} {says}"]
        assert device not in world.interfaces()

    with_agent(main)


def test_the_way_to_a_physical_network_is_not_to_be_taken() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        await ensure_mappings(agent.switch, {"physnet1": "br-ex"}, "netdev")
        await eventually(lambda: agent.switch.bridge("br-ex") is not None, "the bridge")
        world.machine.add("", "ex0", "")
        world.add_port("br-ex", "ex0")
        await world.attach("a", 9, {"type": "existing", "device": "ex0"})
        await asyncio.sleep(5)
        found = await world.attachments()
        assert found["a"]["status"]["errors"]["host"] == ["device ex0 connects the node to physical network physnet1"]
        assert agent.switch.bridge_name_of("ex0") == "br-ex"

    with_agent(main)


def test_a_port_of_the_kernels_switch_can_be_taken_from_its_bridge() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        await ensure_mappings(agent.switch, {"other": "br-else"}, "netdev")  # To have a bridge more.
        await agent.switch.writer.commit([_unmap(agent.switch)])
        world.machine.add("", "nic", "", master=world.machine.add("", "ovs-system", "openvswitch"))
        world.add_port("br-else", "nic")
        await world.attach("a", 9, {"type": "existing", "device": "nic"})
        await eventually(lambda: agent.switch.bridge_name_of("nic") == "br-int", "taken")

    with_agent(main)


def test_a_device_whose_link_is_down_is_returned_up() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        nic = world.machine.node["nic1"]
        await world.attach("a", 9, {"type": "existing", "device": "nic1"}, spec={"linkDown": True})
        await eventually(lambda: is_ready(world), "Ready")
        assert not nic.up
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await eventually(lambda: nic.up and nic.master is world.machine.node["lin0"], "returned")

    with_agent(main)


def _unmap(switch: Vswitch) -> Operation:
    return Mutate("Open_vSwitch", is_uuid(switch.root()._uuid), [("external_ids", "delete", frozenset({MAPPINGS}))])


def test_a_wish_that_cannot_be_read_keeps_the_port_it_has() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, {"type": "internal"})
        await eventually(lambda: is_ready(world), "Ready")
        before = world.interfaces()
        one = (await world.store.get(NETWORK_ATTACHMENT, "ns1", "a")).document()
        one["spec"]["port"]["type"] = "of a newer version"
        await world.store.update(NETWORK_ATTACHMENT, one)
        await asyncio.sleep(30)
        assert world.interfaces() == before
        await world.kill()
        world.start(group)
        await asyncio.sleep(30)
        assert world.interfaces() == before
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await asyncio.sleep(3600)  # Nobody is told of the end of what was never there for him: the sweep finds it.
        assert world.interfaces() == {}

    with_agent(main)
