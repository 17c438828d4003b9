"""Delay and loss on a node in memory: a port gets a relay or netem, loses it, and its workload notices nothing."""

import asyncio
from typing import Any

import pytest

from netloom.model.registry import NETWORK_ATTACHMENT, SHAPING
from netloom.plan.policy.impairment import NONE, Impairment, PortImpairment
from tests.control.helpers import document
from tests.control.host_world import Device, World
from tests.control.test_host import begin, eventually, is_ready, with_agent

VETH = {"type": "veth", "netns": "/ns/1", "name": "e2"}
SPEC: dict[str, Any] = {"from": {"attachment": "a2"}, "delay": "20ms", "loss": "1%", "impairment": "userspace"}
WANTED = Impairment(0.02, 0.01)


def names(world: World) -> set[str]:
    """Return the devices of ours on the node."""
    return {name for name in world.machine.node if name[:2] in ("nl", "nr", "np") and len(name) == 14}


def relay(world: World) -> PortImpairment | None:
    """Return what the only relay does, if there is one."""
    return next((wanted for _, _, wanted in world.machine.relays.values()), None)


async def shape(world: World, spec: dict[str, Any], name: str = "slow") -> None:
    await world.store.create(SHAPING, document(SHAPING, name, spec))


async def settled(world: World, *, relayed: bool) -> None:
    """Return when the port is on the switch with a relay, or without, and nothing else is there."""
    first, *others = ("nr", "nl", "np") if relayed else ("nl",)

    async def holds() -> bool:
        plugged = {name[:2] for name in world.interfaces()}
        made = plugged == {first} and {one[:2] for one in names(world)} == {first, *others}
        # A relay that was killed just now is started again; Ready does not wait for that.
        return made and bool(world.machine.relays) is relayed and await is_ready(world)

    await eventually(holds, f"the port with relay: {relayed}")


async def attached(world: World) -> Device:
    """Return the workload's device, plugged."""
    await world.attach("a2", 2, VETH)
    await settled(world, relayed=False)
    return world.machine.spaces["/ns/1"]["e2"]


def test_a_port_gets_a_relay_and_loses_it_while_its_workload_keeps_its_device() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        device = await attached(world)
        await shape(world, SPEC)
        await settled(world, relayed=True)
        assert relay(world) == PortImpairment(sent=WANTED, received=WANTED, userspace=True)
        changed = document(SHAPING, "slow", {**SPEC, "direction": "forward", "loss": "2%"})
        stored = (await world.store.get(SHAPING, "ns1", "slow")).document()
        await world.store.update(SHAPING, stored | {"spec": changed["spec"]})
        sent = Impairment(0.02, 0.02)
        wanted = PortImpairment(sent=sent, userspace=True)
        await eventually(lambda: relay(world) == wanted, "the change")
        await world.store.delete(SHAPING, "ns1", "slow")
        await settled(world, relayed=False)
        assert world.machine.spaces["/ns/1"]["e2"] is device
        assert device.netem == NONE

    with_agent(main)


def test_a_relay_that_was_killed_is_started_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await attached(world)
        await shape(world, SPEC)
        await settled(world, relayed=True)
        world.relays.kill(next(iter(world.machine.relays)))
        await eventually(lambda: bool(world.machine.relays), "the relay")

    with_agent(main)


@pytest.mark.parametrize("netem", [True, False])
def test_auto_is_netem_where_the_kernel_has_it(netem: bool) -> None:
    async def able() -> World:
        world = await begin()
        world.machine.netem = netem
        return world

    async def main(world: World, group: asyncio.TaskGroup) -> None:
        device = await attached(world)
        await shape(world, {**SPEC, "impairment": "auto"})
        if not netem:
            await settled(world, relayed=True)
            return
        assert device.peer is not None
        outer = device.peer
        await eventually(lambda: (device.netem, outer.netem) == (WANTED, WANTED), "netem")
        await settled(world, relayed=False)
        await world.store.delete(SHAPING, "ns1", "slow")
        await eventually(lambda: (device.netem, outer.netem) == (NONE, NONE), "no netem")

    with_agent(main, begin=able)


def test_what_the_kernel_cannot_do_leaves_the_port_as_it_is() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        device = await attached(world)
        await shape(world, {**SPEC, "impairment": "kernel"})
        await asyncio.sleep(20)
        await settled(world, relayed=False)
        assert device.netem == NONE

    with_agent(main)


def test_an_attachment_that_is_deleted_takes_its_relay_with_it() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await shape(world, SPEC)
        await world.attach("a2", 2, VETH)
        await settled(world, relayed=True)
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a2")
        await eventually(lambda: not world.interfaces() and not names(world), "its devices to be gone")
        assert not world.machine.relays

    with_agent(main)


@pytest.mark.parametrize("seed", range(30))
def test_after_any_history_of_kills_the_port_is_as_the_shapings_say(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        random, present = world.random, False
        device = await attached(world)
        for _ in range(8):
            match random.choice(("shape", "shape", "kill", "relay", "crash")):
                case "shape" if present:
                    await world.store.delete(SHAPING, "ns1", "slow")
                    present = False
                case "shape":
                    await shape(world, SPEC)
                    present = True
                case "kill":
                    await world.kill()
                    await asyncio.sleep(random.choice((0, 2)))
                    world.start(group)
                case "relay" if world.machine.relays:
                    world.relays.kill(next(iter(world.machine.relays)))
                case "crash":
                    world.crash_switch()
            await asyncio.sleep(random.choice((0, 0.005, 0.02, 0.1, 5)))
        await settled(world, relayed=present)
        assert world.machine.spaces["/ns/1"]["e2"] is device

    with_agent(main, seed)
