"""What the doctor mends on a node it mends as the agent would: what the agent would not take, it does not either."""

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec import structs

from netloom.client.session import connect
from netloom.diagnose.doctor.nodes import _is_unwanted
from netloom.diagnose.node.inspection import NodeInspection
from netloom.model.kinds.attachments import PortType
from netloom.plan.audit.ovn import ATTACHMENT, ExpectedInterface, Interface, audit_switch
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import ProblemError, Unit
from tests.cli.test_commands import apply, network
from tests.control.host_world import FakeLinks, FakeRelays, World
from tests.control.test_host import eventually, with_agent
from tests.run.serving import Serving

THERE = "earlier"
"""The name of an attachment that is the word by which a repair was once decided."""
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
        look: Any = NodeInspection.__new__(NodeInspection)
        look.switch, look.links, look._name = agent.switch, FakeLinks(world.machine, world.random), "n1"
        look.relays = FakeRelays(world.machine)
        ports = await look.ports()
        with pytest.raises(ProblemError, match="connects the node to other nodes"):
            await ports.ensure(PLAN)
        assert "uplink" not in world.interfaces()

    with_agent(main)


def test_an_interface_that_the_api_still_wants_stays_whatever_its_attachment_is_called(
    server: Serving, ns: str
) -> None:
    """The attachment came back between the look and the repair; only one that was created again may lose its device."""
    web = {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "metadata": {"name": THERE}}
    apply(server, ns, network("blue"), web | {"spec": {"node": "n1", "network": "blue"}})
    session = connect(str(server.kubeconfig))
    with contextlib.closing(session.client):
        seen = Interface(
            name="nl1", of=Unit(ATTACHMENT, ns, THERE), uid="u1", internal=False, installed=True, works=True, ids={}
        )
        [leftover] = audit_switch([], [seen], ())
        assert not _is_unwanted(session, "n1", leftover)
        assert _is_unwanted(session, "n2", leftover)
        plan = structs.replace(PLAN, namespace=ns, name=THERE, uid="u2", device="nl2")
        replaced = next(one for one in audit_switch([ExpectedInterface(plan, {})], [seen], ()) if one.what == "nl1")
        assert _is_unwanted(session, "n1", replaced)
