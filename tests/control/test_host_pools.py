"""Ports of PortPools on a node in memory: they are made ahead, and a pod that gets one has what every pod has."""

import asyncio
from typing import Any

import pytest

from netloom.drivers.vswitch.driver import INSTALLED
from netloom.drivers.vswitch.pods import PodInterface
from netloom.errors import Conflict, NetloomError
from netloom.model.registry import NETWORK_ATTACHMENT, PORT_POOL
from netloom.plan.kube import names
from netloom.plan.node.pods import PodSandbox
from netloom.plan.pools import LABEL
from tests.control.host_world import World
from tests.control.test_host import eventually, with_agent
from tests.control.test_host_pods import Pod, anything, failure, new_pod, pods, records, started

OWNER = {
    "apiVersion": PORT_POOL.api_version,
    "kind": PORT_POOL.name,
    "name": "pool",
    "uid": "pool-uid",
    "controller": True,
}


async def make_port(world: World, number: int) -> None:
    """Make a free port, as a controller does."""
    await world.attach(f"pool.{number}", number, {"type": "pod"}, labels={LABEL: "pool"}, owners=[OWNER])


async def give(world: World, number: int, pod: Pod) -> None:
    """Give a port to a pod, as a controller does."""
    while True:
        made = (await world.store.get(NETWORK_ATTACHMENT, "ns1", f"pool.{number}")).document()
        made["metadata"]["ownerReferences"] = []
        made["metadata"]["labels"] = {LABEL: "pool", names.POD_UID: pod.uid, names.OF_NAMESPACE: "shop"}
        made["metadata"]["annotations"] = {names.POD_NAME: pod.name}
        try:
            await world.store.update(NETWORK_ATTACHMENT, made)
        except Conflict:
            continue  # The agent wrote its status.
        return


def sandbox(pod: Pod) -> PodSandbox:
    """Return what a runtime asks for: it does not know of pools."""
    return PodSandbox(
        namespace="ns1", name=names.pod("shop", pod.name), uid=pod.uid, container=pod.container, device="eth0",
        netns=pod.netns, identity="",
    )  # fmt: skip


async def add(world: World, pod: Pod, timeout: float = 110.0) -> str:
    return (await pods(world).add(sandbox(pod), anything, timeout=timeout)).plan.device


def device(number: int) -> str:
    return f"nl0200000000{number:02x}"


def is_staged(world: World, number: int) -> bool:
    """Whether a port is on the switch, its inner end in the node's own namespace, down and without addresses."""
    outer, inner = world.machine.node.get(device(number)), world.machine.node.get("ni" + device(number)[2:])
    row = world.interfaces().get(device(number))
    if outer is None or inner is None or row is None:
        return False
    clean = not inner.up and not inner.addresses and not inner.routes
    return outer.peer is inner and clean and row["external_ids"].get(INSTALLED) == "true"


async def staged(world: World, *numbers: int) -> None:
    await eventually(lambda: all(is_staged(world, number) for number in numbers), f"{numbers} are made")


def check(world: World, *running: tuple[int, Pod], free: tuple[int, ...] = ()) -> None:
    """These pods have these ports, these ports are free, and there is nothing else."""
    assert set(world.interfaces()) == {device(number) for number, _ in running} | {device(one) for one in free}
    assert all(is_staged(world, number) for number in free)
    ends = {one for one in world.machine.node if one.startswith(("nl0", "ni0"))}
    assert ends == set(world.interfaces()) | {"ni" + device(one)[2:] for one in free}
    assert len(records(world)) == len(running)
    for number, pod in running:
        outer, inner = world.machine.node[device(number)], world.machine.spaces[pod.netns]["eth0"]
        assert outer.peer is inner
        assert inner.up
        assert inner.addresses == {f"10.0.0.{number}/24"}


async def becomes(world: World, *running: tuple[int, Pod], free: tuple[int, ...] = ()) -> None:
    def holds() -> bool:
        try:
            check(world, *running, free=free)
        except (AssertionError, KeyError):
            return False
        return True

    await eventually(holds, f"{running} run, {free} are free")


async def conditions(world: World, name: str) -> dict[str, Any]:
    status = (await world.attachments())[name]["status"]
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_a_free_port_is_installed_and_ready_before_there_is_a_pod() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        await make_port(world, 5)
        await staged(world, 5)
        await asyncio.sleep(5)
        assert await conditions(world, "pool.5") == {"Addressed": "True", "Plugged": "True", "Ready": "True"}
        check(world, free=(5,))
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "pool.5")
        await becomes(world)

    with_agent(main)


def test_a_pod_gets_a_port_that_was_made_ahead_by_one_change_of_the_switch_and_no_status() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await make_port(world, 5)
        await staged(world, 5)
        await asyncio.sleep(5)
        before = world.machine.node[device(5)]
        assert world.agent is not None
        await give(world, 5, pod)
        await asyncio.sleep(60)
        assert is_staged(world, 5)  # It waits for the runtime.
        counters, revision = world.agent.switch.writer.counters, (await world.store.revision())
        changes = counters.changes
        assert await add(world, pod) == device(5)
        check(world, (5, pod))
        assert world.machine.node[device(5)] is before
        assert counters.changes - changes == 1
        assert await add(world, pod) == device(5)
        assert (await pods(world).check(pod.interface))[1] == []
        await asyncio.sleep(5)
        attachment = (await world.attachments())["pool.5"]
        assert int(attachment["metadata"]["resourceVersion"]) <= revision
        await pods(world).delete(pod.interface)
        await asyncio.sleep(60)
        check(world)  # It is not made ahead again for a pod that has ended.
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "pool.5")
        await becomes(world)

    with_agent(main)


def test_an_add_that_came_before_its_port_was_given_goes_on_then() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod, other = new_pod(world, "web", 5), new_pod(world, "web", 6)
        await make_port(world, 5)
        await staged(world, 5)
        waiting = group.create_task(add(world, pod))
        late = group.create_task(failure(add(world, other, timeout=30.0)))
        await asyncio.sleep(10)
        assert not waiting.done()
        await give(world, 5, pod)
        assert await waiting == device(5)
        assert "which is of another pod of this name until now" in await late
        check(world, (5, pod))

    with_agent(main)


@pytest.mark.parametrize("at", range(12))
def test_an_agent_that_is_killed_while_it_adds_leaves_the_port_to_the_next_add(at: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod, again = new_pod(world, "web", 5), new_pod(world, "web", 5, "c5x")
        await make_port(world, 5)
        await staged(world, 5)
        await give(world, 5, pod)
        call = group.create_task(failure_or_nothing(world, pod))
        await asyncio.sleep(at * 0.003)
        await world.kill()
        call.cancel()
        await asyncio.wait([call])
        # The runtime gives the first sandbox up, and makes another.
        if at % 2:
            world.machine.remove_space(pod.netns)
        world.start(group)
        await started(world)
        assert await add(world, again if at % 2 else pod) == device(5)
        await pods(world).delete(PodInterface("c5x" if not at % 2 else "c5", "eth0"))
        await becomes(world, (5, again if at % 2 else pod))

    with_agent(main)


def test_after_a_reboot_free_ports_are_made_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 6)
        for number in (5, 6):
            await make_port(world, number)
        await staged(world, 5, 6)
        await give(world, 6, pod)
        await add(world, pod)
        await world.kill()
        world.machine.remove_space(pod.netns)
        world.machine.remove(world.machine.node[device(5)])
        world.crash_switch()
        world.start(group)
        await becomes(world, free=(5,))

    with_agent(main)


@pytest.mark.parametrize("seed", range(6))
def test_pods_get_ports_and_end_while_everything_fails(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        random, running, free, number = world.random, dict[int, Pod](), list[int](), 4
        await started(world)
        for _ in range(40):
            match random.choice(("make", "make", "give", "give", "end", "kill", "crash", "cut", "port", "rest")):
                case "make":
                    number += 1
                    free.append(number)
                    await make_port(world, number)
                case "give" if free:
                    one = free.pop(random.randrange(len(free)))
                    pod = running[one] = new_pod(world, f"web{one}", one)
                    await give(world, one, pod)
                    group.create_task(failure_or_nothing(world, pod))
                case "end" if running:
                    one = random.choice(sorted(running))
                    pod = running.pop(one)
                    await deleted(world, pod)
                    await world.store.delete(NETWORK_ATTACHMENT, "ns1", f"pool.{one}")
                    world.machine.remove_space(pod.netns)
                case "kill":
                    await world.kill()
                    world.start(group)
                    await started(world)
                case "crash":
                    world.crash_switch()
                case "cut":
                    world.cut()
                case "port" if world.interfaces():
                    world.remove_port(random.choice(sorted(world.interfaces())))
            await asyncio.sleep(random.uniform(0.0, 0.5))
        await started(world)
        for pod in running.values():
            await repeated(world, pod)
        await becomes(world, *running.items(), free=tuple(free))

    with_agent(main, seed=seed)


async def failure_or_nothing(world: World, pod: Pod) -> None:
    """Try to add a pod: the runtime calls again."""
    try:
        await add(world, pod, timeout=5.0)
    except NetloomError:
        pass


async def repeated(world: World, pod: Pod) -> None:
    """Add a pod until that succeeds."""
    for _ in range(50):
        try:
            await add(world, pod)
        except NetloomError:
            await asyncio.sleep(1)
        else:
            return
    raise AssertionError("it never succeeds")


async def deleted(world: World, pod: Pod) -> None:
    """Delete a pod until that succeeds."""
    for _ in range(50):
        try:
            await started(world)
            await pods(world).delete(pod.interface)
        except NetloomError:
            await asyncio.sleep(1)
        else:
            return
    raise AssertionError("it never succeeds")
