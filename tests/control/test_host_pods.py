"""Pods on a node in memory: whatever a runtime, a controller and a failing node do in whatever order, the pods that run
have their interfaces in the end, and nothing is left of the others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from netloom.control.node.local_ports.pods import PodPort, PodPorts
from netloom.drivers.vswitch.pods import POD, PodInterface
from netloom.errors import Conflict, NetloomError, TimedOut
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.kube.names import POD_UID
from netloom.plan.node.pods import PodSandbox
from netloom.plan.problem import ProblemError
from tests.control.host_world import World
from tests.control.test_host import begin, eventually, with_agent


class Pod(NamedTuple):
    name: str
    number: int
    container: str
    netns: str

    @property
    def uid(self) -> str:
        return f"uid-{self.number}"

    @property
    def sandbox(self) -> PodSandbox:
        return PodSandbox(
            namespace="ns1", name=self.name, uid=self.uid, container=self.container, device="eth0", netns=self.netns,
            identity="",
        )  # fmt: skip

    @property
    def interface(self) -> PodInterface:
        return PodInterface(self.container, "eth0")


def new_pod(world: World, name: str, number: int, container: str = "") -> Pod:
    """Make the sandbox of a pod, as a runtime does."""
    pod = Pod(name, number, container or f"c{number}", f"/ns/pod-{container or number}")
    world.machine.add_space(pod.netns, world.machine.next_identity())
    return pod


async def schedule(world: World, pod: Pod) -> None:
    await world.attach(pod.name, pod.number, {"type": "pod"}, labels={POD_UID: pod.uid})


def pods(world: World) -> PodPorts:
    assert world.agent is not None
    assert world.agent.services is not None
    return world.agent.services.pods


def anything(_: NetworkAttachment) -> None:
    pass


async def add(world: World, pod: Pod, timeout: float = 110.0) -> PodPort:
    return await pods(world).add(pod.sandbox, anything, timeout=timeout)


async def failure(call: Awaitable[object]) -> str:
    """Return why a call fails that must fail."""
    try:
        await call
    except NetloomError as error:
        return error.message
    raise AssertionError("it succeeded")


def records(world: World) -> set[str]:
    rows = world.select("Bridge")
    return {key for row in rows for key, _ in row["external_ids"][1] if key.startswith(POD)}


def plugged(world: World) -> set[str]:
    return {row["external_ids"]["netloom-of"].rpartition("/")[2] for row in world.interfaces().values()}


def check(world: World, *running: Pod) -> None:
    """The pods that run have all that they need, and there is nothing else."""
    assert records(world) == {f"{POD}/netloom/{pod.container}/eth0" for pod in running}
    assert plugged(world) == {pod.name for pod in running}
    outer = {f"nl{2:02x}00000000{pod.number:02x}": pod for pod in running}
    assert {name for name in world.machine.node if name.startswith("nl0")} == outer.keys()
    for name, pod in outer.items():
        device = world.machine.node[name]
        assert device.peer is world.machine.spaces[pod.netns]["eth0"]
        assert device.peer.addresses == {f"10.0.0.{pod.number}/24"}
        assert world.daemons.held[name] is device
    inside = [path for path, space in world.machine.spaces.items() if path.startswith("/ns/pod") and space]
    assert sorted(inside) == sorted(pod.netns for pod in running)


async def started(world: World) -> None:
    await eventually(lambda: world.agent is not None and world.agent.ready, "the agent is ready")


async def becomes(world: World, *running: Pod) -> None:
    def holds() -> bool:
        try:
            check(world, *running)
        except (AssertionError, KeyError):
            return False
        return True

    await eventually(holds, f"{[pod.name for pod in running]} run")
    check(world, *running)


def test_a_pod_is_added_checked_and_deleted() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        found = await add(world, pod)
        assert (found.plan.inner, found.plan.netns) == ("eth0", pod.netns)
        check(world, pod)
        assert await add(world, pod) == found
        assert (await pods(world).check(pod.interface))[1] == []
        await pods(world).delete(pod.interface)
        check(world)
        await pods(world).delete(pod.interface)

    with_agent(main)


def test_adding_a_pod_takes_one_transaction_and_deleting_it_another() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        assert world.agent is not None
        counters = world.agent.switch.writer.counters
        before = counters.changes
        await add(world, pod)
        assert counters.changes - before == 1
        await pods(world).delete(pod.interface)
        assert counters.changes - before == 2

    with_agent(main)


def test_an_add_waits_for_its_attachment_and_gives_up_in_time() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        with pytest.raises(TimedOut, match="gave up after 3 s: waiting for NetworkAttachment ns1/web of pod uid uid-5"):
            await add(world, pod, timeout=3.0)
        waiting = group.create_task(add(world, pod))
        await asyncio.sleep(60)
        await schedule(world, pod)
        await waiting
        check(world, pod)

    with_agent(main)


def test_an_add_that_is_cancelled_at_any_time_leaves_nothing() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        ended = False
        for at in range(60):
            task = group.create_task(add(world, pod))
            await asyncio.sleep(at * 0.002)
            ended = ended or task.done()
            task.cancel()
            await asyncio.wait([task])
            if ended:
                break
            check(world)
        assert ended
        await pods(world).delete(pod.interface)
        check(world)

    with_agent(main)


def test_a_sandbox_of_an_earlier_pod_waits_while_the_next_one_runs() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        old, new = new_pod(world, "web", 5), new_pod(world, "web", 6)
        late = group.create_task(failure(add(world, old, timeout=30.0)))
        await schedule(world, new)
        await add(world, new)
        check(world, new)
        assert "which is of another pod of this name until now" in await late
        await pods(world).delete(old.interface)
        check(world, new)

    with_agent(main)


def test_a_pod_that_is_made_again_does_not_inherit_the_sandbox_of_the_earlier_one() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        old, new = new_pod(world, "web", 5), new_pod(world, "web", 6)
        await schedule(world, old)
        await add(world, old)
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "web")
        await schedule(world, new)
        await eventually(lambda: not world.interfaces(), "the earlier port is gone")
        await add(world, new)
        assert plugged(world) == {"web"}
        await pods(world).delete(old.interface)
        check(world, new)

    with_agent(main)


def test_a_namespace_that_has_the_path_of_an_earlier_one_is_not_entered() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        await add(world, pod)
        await world.kill()
        world.machine.remove_space(pod.netns)
        world.machine.add_space(pod.netns, world.machine.next_identity())
        world.start(group)
        await becomes(world)

    with_agent(main)


def test_after_a_reboot_nothing_is_left_of_the_pods_before_it() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        running = [new_pod(world, f"web{number}", number) for number in range(5, 10)]
        for pod in running:
            await schedule(world, pod)
            await add(world, pod)
        await world.kill()
        for pod in running:
            world.machine.remove_space(pod.netns)
        world.crash_switch()
        world.start(group)
        await becomes(world)

    with_agent(main)


def test_what_another_program_removes_comes_back_even_after_a_restart() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        await add(world, pod)
        world.remove_port("nl020000000005")
        await becomes(world, pod)
        await world.kill()
        world.remove_port("nl020000000005")
        world.machine.remove(world.machine.node["nl020000000005"])
        world.start(group)
        await becomes(world, pod)

    with_agent(main)


def test_gc_keeps_what_is_in_the_list_and_what_is_being_added() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        kept, gone, coming = (new_pod(world, f"web{number}", number) for number in (5, 6, 7))
        for pod in (kept, gone):
            await schedule(world, pod)
            await add(world, pod)
        task = group.create_task(add(world, coming))
        await asyncio.sleep(1)
        assert await pods(world).collect({kept.interface}) == []
        await schedule(world, coming)
        await task
        check(world, kept, coming)

    with_agent(main)


def test_a_delete_cancels_the_add_of_the_same_interface() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        task = group.create_task(add(world, pod))
        await asyncio.sleep(1)
        await pods(world).delete(pod.interface)
        assert task.cancelled()
        check(world)

    with_agent(main)


def test_a_delete_fails_while_the_switch_is_away_and_succeeds_when_it_is_back() -> None:
    async def main(world: World, _: asyncio.TaskGroup) -> None:
        await started(world)
        pod = new_pod(world, "web", 5)
        await schedule(world, pod)
        await add(world, pod)
        server = world.reachable.pop("unix:/db")
        world.cut()
        assert world.agent is not None
        await eventually(lambda: world.agent is not None and not world.agent.switch.synced, "the switch is away")
        with pytest.raises(ProblemError):
            await pods(world).delete(pod.interface)
        world.reachable["unix:/db"] = server
        await eventually(lambda: world.agent is not None and world.agent.switch.synced, "the switch is back")
        await pods(world).delete(pod.interface)
        check(world)

    with_agent(main)


class Kubelet:
    """What a kubelet, its runtime and a controller do with pods, until each of them runs or is gone."""

    def __init__(self, world: World, group: asyncio.TaskGroup) -> None:
        self.world = world
        self.group = group
        self.running: dict[str, Pod] = {}
        self.ended: list[Pod] = []
        self.scheduled: set[str] = set()
        self.calls: list[asyncio.Task[object]] = []

    def start(self, number: int) -> None:
        pod = self.running[f"web{number}"] = new_pod(self.world, f"web{number}", number)
        self.calls.append(self.group.create_task(self._quietly(lambda: add(self.world, pod, timeout=20.0))))

    async def schedule(self) -> None:
        for name in sorted(self.running.keys() - self.scheduled):
            self.scheduled.add(name)
            await schedule(self.world, self.running[name])

    def again(self, name: str) -> None:
        """Make another sandbox for a pod, as after a crash of the first."""
        old = self.running[name]
        self.ended.append(old)
        pod = self.running[name] = new_pod(self.world, name, old.number, f"{old.container}x")
        self.world.machine.remove_space(old.netns)
        self.calls.append(self.group.create_task(self._quietly(lambda: add(self.world, pod, timeout=20.0))))

    async def stop(self, name: str, *, netns_first: bool) -> None:
        pod = self.running.pop(name)
        self.ended.append(pod)
        if netns_first:
            self.world.machine.remove_space(pod.netns)
        self.calls.append(self.group.create_task(self._quietly(lambda: pods(self.world).delete(pod.interface))))
        if name in self.scheduled:
            self.scheduled.discard(name)
            await self.world.store.delete(NETWORK_ATTACHMENT, "ns1", name)

    async def _quietly(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except NetloomError:
            pass

    async def give_up(self) -> None:
        for call in self.calls:
            call.cancel()
        if self.calls:
            await asyncio.wait(self.calls)
        self.calls.clear()

    async def settle(self) -> None:
        """Repeat all calls until they succeed."""
        await started(self.world)
        await self.schedule()
        for pod in self.ended:
            await self._until(lambda pod=pod: pods(self.world).delete(pod.interface))  # type: ignore[misc]
            self.world.machine.remove_space(pod.netns)
        for pod in self.running.values():
            await self._until(lambda pod=pod: add(self.world, pod))  # type: ignore[misc]

    async def _until(self, call: Callable[[], Awaitable[object]]) -> None:
        for _ in range(50):
            try:
                await call()
            except (ProblemError, Conflict, NetloomError):
                await asyncio.sleep(1)
            else:
                return
        raise AssertionError("it never succeeds")


async def churn(world: World, group: asyncio.TaskGroup) -> None:
    random = world.random
    kubelet = Kubelet(world, group)
    await started(world)
    number = 2
    for _ in range(60):
        names = sorted(kubelet.running)
        match random.choice(
            ("start", "start", "start", "schedule", "stop", "again", "kill", "crash", "cut", "port", "rest")
        ):
            case "start":
                number += 1
                kubelet.start(number)
            case "schedule":
                await kubelet.schedule()
            case "stop" if names:
                await kubelet.stop(random.choice(names), netns_first=random.random() < 0.5)
            case "again" if names:
                kubelet.again(random.choice(names))
            case "kill":
                await world.kill()
                await kubelet.give_up()
                world.start(group)
                await started(world)
            case "crash":
                world.crash_switch()
            case "cut":
                world.cut()
            case "port" if world.interfaces():
                world.remove_port(random.choice(sorted(world.interfaces())))
            case _:
                pass
        await asyncio.sleep(random.choice((0.0, 0.01, 0.05, 0.5)))
    if random.random() < 0.5:
        await kubelet.give_up()
    await kubelet.settle()
    await kubelet.give_up()
    await becomes(world, *kubelet.running.values())


@pytest.mark.parametrize("seed", range(40))
def test_pods_that_run_have_their_interfaces_in_the_end(seed: int) -> None:
    with_agent(churn, seed, begin)
