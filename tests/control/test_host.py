"""The agent's loop on a node in memory: whatever happens in whatever order, what is wished is there in the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random

import pytest

from netloom.errors import Conflict, NetloomError
from netloom.model.document import Document
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, NODE, SUBNET
from netloom.sim import loop as sim
from tests.control.helpers import document, memory, run
from tests.control.host_world import REMOTE, World

SPACES = ("/ns/1", "/ns/2", "/ns/3")
NICS = ("nic1", "nic2")


async def begin() -> World:
    store = memory()
    await store.create(NETWORK, document(NETWORK, "blue", {}))
    made = await store.create(SUBNET, document(SUBNET, "v4", {"network": "blue", "cidr": "10.0.0.0/24"}))
    subnet = made.document()
    subnet["status"] = {"validated": True}
    await store.update(SUBNET, subnet, subresource="status")
    world = World(store, Random(sim.current().random.random()))
    for path in SPACES:
        world.machine.spaces[path] = {}
    bridge = world.machine.add("", "lin0", "bridge")
    for name in NICS:
        world.machine.add("", name, "", master=bridge)
    return world


async def eventually(holds: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    for _ in range(600):
        result = holds()
        if result if isinstance(result, bool) else await result:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"never: {what}")


async def is_ready(world: World) -> bool:
    found = await world.attachments()
    return all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in one.get("status", {}).get("conditions", []))
        for one in found.values()
    )


async def check(world: World) -> None:
    """What is on the switch, and in the kernel, is what is wished, and nothing else of ours."""
    wished = await world.attachments()
    interfaces = world.interfaces()
    foreign = {name for name in interfaces if name.startswith("foreign")}
    assert {one["status"]["ifcName"] for one in wished.values()} == interfaces.keys() - foreign
    for name, one in wished.items():
        status, port = one["status"], one["spec"]["port"]
        row = interfaces[status["ifcName"]]
        assert row["external_ids"]["iface-id"] == f"ns1/{name}"
        assert row["external_ids"]["netloom-uid"] == one["metadata"]["uid"]
        device = world.machine.node[status["ifcName"]]
        assert world.daemons.held[device.name] is device
        cut = one["spec"].get("linkDown", False)
        assert device.up is not cut
        if port["type"] == "existing":
            assert device.master is None
            continue
        if port["type"] == "veth":
            assert device.peer is world.machine.spaces[port["netns"]][port["name"]]
            device = device.peer
        assert device.addresses == set(status["ips"])
        # A device that is down has no routes; the inner end of a pair is never set down.
        assert device.routes == (set() if cut and port["type"] == "internal" else {("0.0.0.0/0", "10.0.0.1")})
        assert device.mac == status["mac"]
    devices = {one["status"]["ifcName"] for one in wished.values()}
    assert {name for name in world.machine.node if name.startswith("nl")} == devices - set(NICS)
    for name in set(NICS) - devices:
        assert world.machine.node[name].master is world.machine.node["lin0"]


async def cut(world: World, name: str, *, down: bool) -> None:
    while True:
        one = (await world.store.get(NETWORK_ATTACHMENT, "ns1", name)).document()
        one["spec"]["linkDown"] = down
        try:
            await world.store.update(NETWORK_ATTACHMENT, one)
        except Conflict:
            continue
        return


def with_agent(
    main: Callable[[World, asyncio.TaskGroup], Awaitable[None]],
    seed: int = 0,
    begin: Callable[[], Awaitable[World]] = begin,
) -> None:
    async def there() -> None:
        world = await begin()
        async with asyncio.TaskGroup() as group:
            daemons = group.create_task(world.daemons.run())
            world.start(group)
            await main(world, group)
            await world.kill()
            daemons.cancel()

    run(there(), seed)


def port(random: Random, at: int, used: Iterable[dict[str, str]]) -> dict[str, str]:
    free = set(NICS) - {one.get("device") for one in used}
    if free and random.random() < 0.2:
        return {"type": "existing", "device": min(free)}
    if random.random() < 0.5:
        return {"type": "internal"}
    return {"type": "veth", "netns": random.choice(SPACES), "name": f"e{at}"}


async def churn(world: World, group: asyncio.TaskGroup) -> None:
    random = world.random
    ports: dict[str, dict[str, str]] = {}
    for at in range(2, 40):
        match random.choice(
            (
                "attach",
                "attach",
                "attach",
                "detach",
                "kill",
                "crash",
                "cut",
                "space",
                "remove",
                "down",
                "link",
                "nic",
                "wait",
            )
        ):
            case "attach":
                ports[f"a{at}"] = port(random, at, ports.values())
                await world.attach(f"a{at}", at, ports[f"a{at}"])
            case "detach" if ports:
                name = random.choice(sorted(ports))
                del ports[name]
                await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
            case "kill":
                await world.kill()
                await asyncio.sleep(random.choice((0, 2)))
                world.start(group)
            case "crash":
                world.crash_switch()
            case "cut":
                world.cut()
            case "space":
                path = random.choice(SPACES)
                world.machine.remove_space(path)
                await asyncio.sleep(random.choice((0, 1, 20)))
                world.machine.spaces[path] = {}
            case "remove" if interfaces := sorted(world.interfaces()):
                world.remove_port(random.choice(interfaces))
            case "down":
                world.machine.set_up(random.choice(list(world.machine.node.values())), up=False)
            case "link" if ports:
                await cut(world, random.choice(sorted(ports)), down=random.random() < 0.5)
            case "nic":
                name = random.choice(NICS)
                world.machine.remove(world.machine.node[name])
                await asyncio.sleep(random.choice((0, 0.01, 20)))
                world.machine.add("", name, "", master=world.machine.node["lin0"])
        await asyncio.sleep(random.choice((0, 0.01, 0.1, 5)))


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_what_is_wished_is_there_in_the_end_and_a_restart_writes_nothing(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await churn(world, group)
        await eventually(lambda: is_ready(world), "all Ready")
        await asyncio.sleep(30)
        assert await is_ready(world)
        await check(world)
        await world.kill()
        before = {name: one["metadata"]["resourceVersion"] for name, one in (await world.attachments()).items()}
        agent = world.start(group)
        await eventually(lambda: agent.ready and agent.numbers()["looked"] >= len(before), "a look at all")
        await asyncio.sleep(30)
        numbers = agent.numbers()
        assert (numbers["switch_transactions"], numbers["link_writes"], numbers["statuses"]) == (0, 0, 0)
        after = {name: one["metadata"]["resourceVersion"] for name, one in (await world.attachments()).items()}
        assert after == before

    with_agent(main, seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_burst_is_a_handful_of_transactions_and_one_status_each(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        before = agent.numbers()["switch_transactions"]
        async with asyncio.TaskGroup() as many:
            for at in range(2, 102):
                many.create_task(world.attach(f"b{at}", at, {"type": "internal"}))
        await eventually(lambda: is_ready(world), "all Ready")
        assert agent.numbers()["switch_transactions"] - before <= 25
        assert agent.numbers()["statuses"] == 100

    with_agent(main, seed)


def test_a_status_that_somebody_else_writes_at_the_same_time_loses_nothing() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, {"type": "internal"})
        for turn in range(20):
            one = (await world.store.get(NETWORK_ATTACHMENT, "ns1", "a")).document()
            one["status"]["fromTheFuture"] = turn
            try:
                await world.store.update(NETWORK_ATTACHMENT, one, subresource="status")
            except NetloomError:
                continue
            await asyncio.sleep(0.01)
        await eventually(lambda: is_ready(world), "Ready")
        assert "fromTheFuture" in (await world.attachments())["a"]["status"]

    with_agent(main)


def test_a_namespace_that_is_missing_costs_its_attachment_only() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, {"type": "veth", "netns": "/ns/none", "name": "eth0"})
        await world.attach("b", 10, {"type": "internal"})
        await asyncio.sleep(5)
        found = await world.attachments()
        assert found["a"]["status"]["errors"]["host"] == ["there is no network namespace at /ns/none"]
        assert "ifcName" not in found["a"]["status"]
        assert any(c["type"] == "Ready" and c["status"] == "True" for c in found["b"]["status"]["conditions"])
        world.machine.spaces["/ns/none"] = {}
        await eventually(lambda: is_ready(world), "healed")
        await check(world)

    with_agent(main)


def ready(node: Document) -> str:
    found: str = next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
    return found


def test_the_node_beats_and_says_when_the_switch_is_gone_and_back() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        async def node() -> Document:
            return (await world.store.get(NODE, "", "n1")).document()

        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        await world.attach("a", 9, {"type": "internal"})
        await eventually(lambda: is_ready(world), "Ready")
        await asyncio.sleep(30)
        first = await node()
        await asyncio.sleep(30)
        assert (await node())["status"]["lastHeartbeat"] > first["status"]["lastHeartbeat"]
        assert ready(first) == "True"
        world.reachable.clear()
        world.cut()
        await asyncio.sleep(30)
        assert ready(await node()) == "False"
        assert await is_ready(world)
        await world.attach("b", 10, {"type": "internal"})
        await asyncio.sleep(5)
        errors = (await world.attachments())["b"]["status"]["errors"]["host"]
        assert "does not answer" in errors[0]
        world.reachable[REMOTE] = world.server
        await eventually(lambda: is_ready(world), "all Ready")
        await asyncio.sleep(30)
        assert ready(await node()) == "True"

    with_agent(main)


def test_a_node_without_its_own_underlay_address_says_so() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        async def said() -> str:
            conditions = (await world.store.get(NODE, "", "n1")).document()["status"]["conditions"]
            return str(conditions[0].get("message", ""))

        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        assert await said() == ""
        world.machine.uplinked = False
        await asyncio.sleep(60)
        assert "no device has the underlay address 172.31.0.1" in await said()
        world.machine.uplinked = True
        await asyncio.sleep(60)
        assert await said() == ""

    with_agent(main)


def test_the_node_is_put_right_when_somebody_changes_its_address() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        assert world.agent is not None
        agent = world.agent
        await eventually(lambda: agent.ready, "the agent")
        node = (await world.store.get(NODE, "", "n1")).document()
        node["spec"]["underlayIP"] = "192.0.2.9"
        node["metadata"]["labels"] = {"rack": "a"}
        await world.store.update(NODE, node)
        await asyncio.sleep(60)
        after = (await world.store.get(NODE, "", "n1")).document()
        assert after["spec"]["underlayIP"] == "172.31.0.1"
        assert after["metadata"]["labels"] == {"rack": "a"}

    with_agent(main)
