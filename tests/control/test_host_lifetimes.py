"""What an agent measures of its node's attachments and of those elsewhere, in memory, by the simulation's clock."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from netloom.control.runtime.clock import micro
from netloom.control.runtime.counters import Histograms
from netloom.run.metrics import agent as metrics_agent
from netloom.run.metrics import exposition
from netloom.sim import loop as sim
from tests.control.host_world import World
from tests.control.test_host import eventually
from tests.control.test_host_fabric import elsewhere, in_step, plug, with_agent
from tests.run.test_metrics import sample, scraped


def counts(many: Histograms) -> dict[tuple[str, ...], int]:
    return {words: one.count for words, one in many.found.items()}


def conditions() -> list[dict[str, Any]]:
    """Return what the agent of another node says now."""
    now = micro(datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=sim.current().time()))
    return [{"type": name, "status": "True", "lastTransitionTime": now} for name in ("Addressed", "Plugged", "Ready")]


async def plugged_elsewhere(world: World, name: str, number: int) -> None:
    more: dict[str, Any] = {"hostIP": "172.31.0.2", "vni": 10, "conditions": conditions()}
    await world.attach(name, number, {"type": "internal"}, network="red", node="n2", **more)


def test_wishes_are_measured_here_and_from_other_nodes_each_once() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plugged_elsewhere(world, "before", 3)
        await asyncio.sleep(60)
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        agent = world.agent
        assert agent is not None
        lifetimes = agent.lifetimes
        assert counts(lifetimes.to_interface) == counts(lifetimes.to_ready) == {("created",): 1}
        assert lifetimes.to_interface.found["created",].total < 10
        assert counts(lifetimes.to_remote) == {}  # It was there before the Network concerned us.
        assert (lifetimes.networks, lifetimes.networks_known, lifetimes.remotes) == (1, 1, 1)
        assert lifetimes.relevance.count == 1

        await plugged_elsewhere(world, "later", 4)
        await eventually(lambda: in_step(world), "the fabric to follow")
        await eventually(lambda: lifetimes.remotes == 2, "the flows to be there")
        assert counts(lifetimes.to_remote) == {("created",): 1}
        assert lifetimes.from_plugged.count == 1
        assert counts(lifetimes.fabric)["plug", "ok"] == 1
        assert counts(lifetimes.fabric)["change-flows", "ok"] >= 1

    with_agent(main)


def test_an_agent_that_is_started_again_counts_nothing_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await elsewhere(world, "far", 3)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        await world.kill()
        await asyncio.sleep(60)
        agent = world.start(group)
        await eventually(lambda: agent.ready and agent.lifetimes.remotes == 1, "all to be known again")
        for one in (agent.lifetimes.to_interface, agent.lifetimes.to_ready, agent.lifetimes.to_remote):
            assert counts(one) == {}

    with_agent(main)


def test_the_text_tells_what_concerns_a_node_and_all_that_it_counts() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        measured = exposition.Metrics()
        agent = world.agent
        assert agent is not None
        measured.add(metrics_agent.agent, agent)
        assert sample(scraped(measured), "netloom_agent_attachments", place="local") == 0
        await plug(world, "a", 2)
        await elsewhere(world, "far", 3)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        text = scraped(measured)
        assert sample(text, "netloom_agent_networks", state="known") == 1
        assert sample(text, "netloom_agent_attachments", place="local") == 1
        assert sample(text, "netloom_agent_attachments", place="remote") == 1
        assert sample(text, "netloom_agent_watches", resource="networkattachments") == 2
        assert sample(text, "netloom_agent_fabric_flows") == len(world.flows.table)
        assert sample(text, "netloom_queue_keys", controller="host", state="ready") == 0
        told_otherwise = {"local_attachments", "remote_attachments", "relevant_networks"}
        assert agent.numbers().keys() - told_otherwise <= metrics_agent.COUNTERS.keys() | metrics_agent.GAUGES.keys()

    with_agent(main)
