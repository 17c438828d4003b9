"""Attachments that are a VLAN of another's port, on a node in memory: nothing is made, and all is told."""

import asyncio
import contextlib
from typing import Any

import pytest

from netloom.errors import Conflict
from netloom.model.document import Document
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT
from tests.control.helpers import document
from tests.control.host_world import World
from tests.control.test_host import SPACES, eventually, is_ready, with_agent
from tests.control.test_host_hooks import records, report, told

VM = {"type": "veth", "netns": SPACES[0], "name": "eth0"}
INTERNAL = {"type": "internal"}


def child(vlan: int, parent: str = "vm") -> dict[str, Any]:
    return {"type": "child", "parent": parent, "vlan": vlan}


async def status(world: World, name: str) -> Document:
    found: Document = (await world.attachments())[name].get("status", {})
    return found


async def plugged(world: World, name: str) -> str:
    """Return the reason of Plugged."""
    conditions = (await status(world, name)).get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Plugged"), "")


async def becomes(world: World, name: str, reason: str) -> None:
    async def so() -> bool:
        return await plugged(world, name) == reason

    await eventually(so, f"{reason} of {name}")


def marks(world: World) -> list[str]:
    ids = [dict(row["external_ids"][1]) for row in world.select("Bridge")]
    return [key for one in ids for key in one if key.startswith("netloom-child/")]


def test_a_child_is_ready_with_its_parents_device_and_nothing_is_made_for_it() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, VM)
        await world.attach("c", 10, child(7))
        await eventually(lambda: is_ready(world), "Ready")
        device = (await status(world, "vm"))["ifcName"]
        assert (await status(world, "c"))["ifcName"] == device
        assert (await status(world, "c"))["hostIP"] == "172.31.0.1"
        assert world.interfaces().keys() == {device}
        assert world.interfaces()[device]["external_ids"]["iface-id"] == "ns1/vm"
        assert world.machine.spaces[SPACES[0]]["eth0"].addresses == {"10.0.0.9/24"}
        assert marks(world) == []

    with_agent(main)


@pytest.mark.parametrize("seed", range(8))
def test_the_parent_may_come_later_go_and_come_back(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("c", 10, child(7))
        await becomes(world, "c", "ParentMissing")
        await world.attach("vm", 9, VM)
        await eventually(lambda: is_ready(world), "Ready")
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "vm")
        await becomes(world, "c", "ParentMissing")
        assert "ifcName" not in await status(world, "c")
        await world.attach("vm", 11, INTERNAL)
        await eventually(lambda: is_ready(world), "Ready again")
        assert (await status(world, "c"))["ifcName"] == (await status(world, "vm"))["ifcName"] == "nl02000000000b"

    with_agent(main, seed)


def test_a_parent_that_is_not_plugged_is_named_and_waited_for() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, {"type": "veth", "netns": "/ns/none", "name": "eth0"})
        await world.attach("c", 10, child(7))
        await world.attach("other", 12, INTERNAL)
        await becomes(world, "c", "ParentNotPlugged")
        errors = (await status(world, "c"))["errors"]["host"]
        assert errors == ["spec.port.parent: vm is not on the switch: see its own conditions"]
        assert await plugged(world, "other") == "Plugged"
        world.machine.spaces["/ns/none"] = {}
        await eventually(lambda: is_ready(world), "healed")

    with_agent(main)


def test_a_parent_whose_device_is_gone_from_under_the_switch_carries_nobody() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, {"type": "existing", "device": "nic1"})
        await world.attach("c", 10, child(7))
        await eventually(lambda: is_ready(world), "Ready")
        world.machine.remove(world.machine.node["nic1"])
        world.crash_switch()
        await becomes(world, "c", "ParentNotPlugged")
        world.machine.add("", "nic1", "", master=world.machine.node["lin0"])
        await eventually(lambda: is_ready(world), "healed")

    with_agent(main)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("restarted", [False, True])
def test_a_parent_for_which_ovn_takes_its_word_back_when_a_child_goes_is_asked_for_again(
    seed: int, restarted: bool
) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, INTERNAL)
        await world.attach("b", 10, child(7))
        await world.attach("c", 11, child(8))
        await eventually(lambda: is_ready(world), "Ready")
        before = {name: one["metadata"]["resourceVersion"] for name, one in (await world.attachments()).items()}
        for _ in range(3):
            if restarted:
                await world.kill()
            world.daemons.fall_silent((await status(world, "vm"))["ifcName"])
            if restarted:
                world.start(group)
            await asyncio.sleep(20)
            after = await world.attachments()
            assert {name: one["metadata"]["resourceVersion"] for name, one in after.items()} == before

    with_agent(main, seed)


def test_who_never_carried_a_child_is_not_asked_for() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, INTERNAL)
        await eventually(lambda: is_ready(world), "Ready")
        world.daemons.fall_silent((await status(world, "a"))["ifcName"])
        await becomes(world, "a", "NotInstalled")

    with_agent(main)


def test_what_cannot_be_is_said_of_the_child_alone() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.store.create(NETWORK, document(NETWORK, "far", {"fabric": "vxlan"}))
        await world.attach("vm", 9, VM)
        await world.attach("b", 10, child(7))
        await world.attach("a", 11, child(8, "b"))
        await world.attach("c", 12, child(7))
        await world.attach("d", 13, child(9), network="far")
        await becomes(world, "a", "ParentIsChild")
        await becomes(world, "c", "VlanTaken")
        await becomes(world, "d", "WrongFabric")
        assert [await plugged(world, name) for name in ("vm", "b")] == ["Plugged", "Plugged"]
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "b")
        await becomes(world, "c", "Plugged")
        await becomes(world, "a", "ParentMissing")
        await world.attach("aa", 14, child(7))
        await becomes(world, "c", "VlanTaken")
        await becomes(world, "aa", "Plugged")

    with_agent(main)


@pytest.mark.parametrize("seed", range(15))
def test_whatever_comes_first_children_are_ready_in_the_end_and_a_restart_writes_nothing(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        random = world.random
        wishes: dict[str, dict[str, Any]] = {f"vm{n}": random.choice((VM | {"name": f"e{n}"}, INTERNAL)) for n in "123"}
        wishes |= {f"c{n}": child(n, f"vm{random.randint(1, 3)}") for n in range(1, 13)}
        names = list(wishes)
        random.shuffle(names)
        for number, name in enumerate(names, 2):
            hook = {"postCreateExec": ["/bin/note", name]} if random.random() < 0.5 else {}
            await world.attach(name, number, wishes[name], spec=hook)
            match random.choice(("kill", "crash", "cut", "port", "again", "", "", "")):
                case "kill":
                    await world.kill()
                    world.start(group)
                case "crash":
                    world.crash_switch()
                case "cut":
                    world.cut()
                case "port" if interfaces := sorted(world.interfaces()):
                    world.remove_port(random.choice(interfaces))
                case "again":
                    await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
                    await asyncio.sleep(random.choice((0, 1)))
                    await world.attach(name, number, wishes[name])
            await asyncio.sleep(random.choice((0, 0.01, 5)))
        await eventually(lambda: is_ready(world), "all Ready")
        await asyncio.sleep(30)
        found = await world.attachments()
        for name, port in wishes.items():
            assert found[name]["status"]["ifcName"] == found[port.get("parent", name)]["status"]["ifcName"]
        assert len(world.interfaces()) == 3
        await world.kill()
        agent = world.start(group)
        await eventually(lambda: agent.ready and agent.numbers()["looked"] >= len(wishes), "a look at all")
        await asyncio.sleep(30)
        numbers = agent.numbers()
        assert (numbers["switch_transactions"], numbers["link_writes"], numbers["statuses"]) == (0, 0, 0)
        versions = {name: one["metadata"]["resourceVersion"] for name, one in found.items()}
        after = await world.attachments()
        assert {name: one["metadata"]["resourceVersion"] for name, one in after.items()} == versions

    with_agent(main, seed)


@pytest.mark.parametrize("seed", range(6))
def test_programs_of_a_child_run_once_each_with_its_parents_device(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, INTERNAL)
        spec = {
            "postCreateExec": ["/bin/note", "made", "${ifname}", "${ipv4}"],
            "postDeleteExec": ["/bin/note", "gone", "${ifname}"],
        }
        await world.attach("c", 10, child(7), spec=spec)
        found = await report(world, "c")
        device = (await status(world, "vm"))["ifcName"]
        assert (found["command"], found["exitStatus"]) == (["/bin/note", "made", device, "10.0.0.10"], 0)
        assert world.programs.written == [("/bin/note", "made", device, "10.0.0.10")]
        assert len(marks(world)) == 1
        await world.kill()
        world.start(group)
        await asyncio.sleep(30)
        world.crash_switch()
        await asyncio.sleep(30)
        assert len(world.programs.written) == 1
        await world.kill()
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "c")
        world.start(group)
        await eventually(lambda: not marks(world) and not records(world), "an end")
        assert world.programs.written[1:] == [("/bin/note", "gone", device)]
        await told(
            world,
            ("c", "ExecSucceeded", "postCreateExec: /bin/note succeeded"),
            ("c", "ExecSucceeded", "postDeleteExec: /bin/note succeeded"),
        )
        assert world.interfaces().keys() == {device}

    with_agent(main, seed)


def test_one_that_becomes_a_child_gives_up_its_device_and_one_that_ceases_to_be_gets_one() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        async def become(port: dict[str, Any]) -> None:
            while True:
                one = (await world.store.get(NETWORK_ATTACHMENT, "ns1", "c")).document()
                one["spec"]["port"] = port
                with contextlib.suppress(Conflict):
                    await world.store.update(NETWORK_ATTACHMENT, one)
                    return

        async def at(count: int) -> None:
            await eventually(lambda: len(world.interfaces()) == count, f"{count} interfaces")

        note = {"postDeleteExec": ["/bin/note", "gone"]}
        await world.attach("vm", 9, INTERNAL)
        await world.attach("c", 10, {"type": "veth", "netns": SPACES[1], "name": "eth0"}, spec=note)
        await eventually(lambda: is_ready(world), "Ready")
        await at(2)
        await become(child(7))
        await at(1)
        assert world.machine.spaces[SPACES[1]] == {}
        await eventually(lambda: len(marks(world)) == 1, "what is kept of it")
        await become(INTERNAL)
        await at(2)
        await eventually(lambda: not marks(world) and not records(world), "an end")
        assert world.programs.written == [("/bin/note", "gone")] * 2

    with_agent(main)


def test_children_cost_no_watch() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("vm", 9, VM)
        await eventually(lambda: is_ready(world), "Ready")
        assert world.agent is not None
        assert world.agent.watches is not None
        before = len(world.agent.watches.informers())
        for number in range(10, 40):
            await world.attach(f"c{number}", number, child(number))
        await eventually(lambda: is_ready(world), "all Ready")
        assert len(world.agent.watches.informers()) == before

    with_agent(main)
