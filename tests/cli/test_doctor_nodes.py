"""What the doctor mends on a node it mends as the agent would: what the agent would not take, it does not either."""

import asyncio
from typing import Any

import pytest

from netloom.cli.node_look import NodeLook
from netloom.drivers.link_trouble import Trouble
from netloom.model.attachments import PortType
from netloom.plan.nodes import PortPlan
from tests.control.host_world import FakeLinks, World
from tests.control.test_host import eventually, with_agent

PLAN = PortPlan(
    uid="u",
    namespace="ns1",
    name="greedy",
    type=PortType.EXISTING,
    device="uplink",
    inner="uplink",
    netns="",
    mac="02:00:00:00:00:09",
    mtu=1400,
)


def test_the_nodes_own_way_to_others_is_not_taken_by_a_repair() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        world.machine.add("", "uplink", "")
        look: Any = NodeLook.__new__(NodeLook)
        look.switch, look.links, look._name = agent.switch, FakeLinks(world.machine, world.random), "n1"
        ports = await look.ports()
        with pytest.raises(Trouble, match="the node's own way to other nodes"):
            await ports.ensure(PLAN)
        assert "uplink" not in world.interfaces()

    with_agent(main)
