"""Network namespaces that the agent creates: there while an attachment needs them, gone afterwards, only its own."""

import asyncio
from typing import Any, cast

import pytest

from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.node.namespaces import NetnsRecord, read_record, written
from tests.control.host_world import World
from tests.control.test_host import eventually, is_ready, with_agent

PATHS = ("/ns/made-1", "/ns/made-2")


def port(path: str, number: int) -> dict[str, str]:
    return cast("dict[str, str]", {"type": "veth", "netns": path, "name": f"eth{number}", "createNetns": True})


def records(world: World) -> set[str]:
    """Return the paths that the switch's database has records of."""
    keys = [key for row in world.select("Bridge") for key, _ in row["external_ids"][1]]
    return {key.removeprefix("netloom-netns/netloom/") for key in keys if key.startswith("netloom-netns/")}


async def delete(world: World, name: str) -> None:
    await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)


def test_a_namespace_is_created_for_its_attachments_and_removed_with_the_last_one() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        path = PATHS[0]
        await world.attach("a", 9, port(path, 0))
        await world.attach("b", 10, port(path, 1))
        await eventually(lambda: is_ready(world), "Ready")
        assert set(world.machine.spaces[path]) == {"eth0", "eth1"}
        first = world.machine.identities[path]
        await delete(world, "a")
        await eventually(lambda: set(world.machine.spaces[path]) == {"eth1"}, "one is gone")
        await asyncio.sleep(5)
        assert world.machine.identities[path] == first
        await delete(world, "b")
        await eventually(lambda: path not in world.machine.spaces and not records(world), "the namespace is removed")

    with_agent(main)


def test_a_namespace_of_others_is_used_and_stays() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        world.machine.add_space("/ns/theirs")
        await world.attach("a", 9, port("/ns/theirs", 0))
        await eventually(lambda: is_ready(world), "Ready")
        await delete(world, "a")
        await eventually(lambda: not world.machine.spaces["/ns/theirs"], "unplugged")
        await asyncio.sleep(1200)
        assert "/ns/theirs" in world.machine.spaces
        assert not records(world)

    with_agent(main)


def test_a_namespace_that_others_made_again_is_theirs() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        path = PATHS[0]
        await world.attach("a", 9, port(path, 0))
        await eventually(lambda: is_ready(world), "Ready")
        world.machine.remove_space(path)
        world.machine.add_space(path)
        await eventually(lambda: set(world.machine.spaces[path]) == {"eth0"}, "plugged into theirs")
        await delete(world, "a")
        await eventually(lambda: not records(world), "forgotten")
        assert path in world.machine.spaces

    with_agent(main)


def test_a_namespace_that_was_removed_by_hand_is_created_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        path = PATHS[0]
        await world.attach("a", 9, port(path, 0))
        await eventually(lambda: is_ready(world), "Ready")
        world.machine.remove_space(path)
        await eventually(lambda: set(world.machine.spaces.get(path, ())) == {"eth0"}, "created again")

    with_agent(main)


def test_an_attachment_of_another_namespace_does_not_get_in() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        path = PATHS[0]
        await world.attach("a", 9, port(path, 0))
        await eventually(lambda: is_ready(world), "Ready")
        await world.kill()
        for row in world.select("Bridge"):  # As if another namespace's attachment had been first.
            ids = dict(row["external_ids"][1])
            key = f"netloom-netns/netloom/{path}"
            if (record := read_record(ids.get(key, ""))) is not None:
                ids[key] = written(NetnsRecord(namespace="ns2", identity=record.identity))
                changed = {"external_ids": ["map", [list(one) for one in ids.items()]]}
                world.database.transact([{"op": "update", "table": "Bridge", "where": [["_uuid", "==", row["_uuid"]]],
                                          "row": changed}])  # fmt: skip
        world.start(group)
        await world.attach("b", 10, port(path, 1))

        async def refused() -> bool:
            status: dict[str, Any] = (await world.attachments())["b"]["status"]
            return f"{path} is of an attachment in another namespace: choose another" in str(status.get("errors"))

        await eventually(refused, "refused")
        assert set(world.machine.spaces[path]) <= {"eth0"}

    with_agent(main)


def test_a_namespace_outside_of_the_granted_folders_is_not_created() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, port("/elsewhere/x", 0))

        async def refused() -> bool:
            return "is in no folder that this node grants" in str((await world.attachments())["a"]["status"])

        await eventually(refused, "refused")
        assert "/elsewhere/x" not in world.machine.spaces
        assert not records(world)

    with_agent(main)


@pytest.mark.parametrize("seed", range(25))
def test_whenever_the_agent_is_killed_nothing_is_left_and_nothing_is_missing(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        random = world.random
        present: dict[str, str] = {}
        for _ in range(14):
            name = f"a{random.randrange(4)}"
            if name in present:
                await delete(world, name)
                del present[name]
            else:
                present[name] = random.choice(PATHS)
                await world.attach(name, 10 + int(name[1]), port(present[name], int(name[1])))
            await asyncio.sleep(random.choice((0.0, 0.01, 0.03, 0.1, 2.0)))
            if random.random() < 0.5:
                await world.kill()
                if random.random() < 0.2:  # A reboot: the namespaces end, the database stays.
                    for path in PATHS:
                        world.machine.remove_space(path)
                world.start(group)

        async def as_desired() -> bool:
            wanted: dict[str, set[str]] = {}
            for name, path in present.items():
                wanted.setdefault(path, set()).add(f"eth{name[1]}")
            seen = {path: set(world.machine.spaces[path]) for path in PATHS if path in world.machine.spaces}
            return seen == wanted and records(world) == set(wanted) and await is_ready(world)

        await eventually(as_desired, f"as desired: {present}")

    with_agent(main, seed)


def test_a_record_that_is_none_is_ignored() -> None:
    assert read_record("{}") is None
    assert read_record("nonsense") is None
    record = NetnsRecord(namespace="ns1", identity="boot/7", root="/run/netns")
    assert read_record(written(record)) == record
