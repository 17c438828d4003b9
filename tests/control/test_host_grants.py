"""A namespace gets of a node what the node's operator grants it, and nothing else."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from netloom.model.registry import NETWORK_ATTACHMENT
from tests.control.host_world import World
from tests.control.test_host import begin, eventually, is_ready, with_agent

NOT_GRANTED = "NotGranted"
NARROW: Mapping[str, tuple[str, ...]] = {
    "netns_folders": ("/ns/{namespace}",),
    "internal_routes": ("ns1=10.0.0.0/24", "ns1=192.168.0.0/16"),
    "internal_names": ("ns1=web*",),
    "existing_devices": ("ns1=eth*", "ns1=nic1"),
}


async def plugged(world: World, name: str = "a") -> dict[str, Any]:
    """Return what the status says of a port once it says something."""
    found: dict[str, Any] = {}

    async def said() -> bool:
        conditions = (await world.attachments())[name].get("status", {}).get("conditions", [])
        found.update(next((one for one in conditions if one["type"] == "Plugged"), {}))
        return found.get("status") in ("True", "False")

    await eventually(said, f"{name} plugged or not")
    return found


def on_bridge(world: World) -> bool:
    """Whether nic1 is on the Linux bridge where it was at first."""
    return world.machine.node["nic1"].master is world.machine.node["lin0"]


def granting(grants: Mapping[str, tuple[str, ...]]) -> Any:
    """Return what makes a world whose node grants so much, with some devices and namespaces more."""

    async def made() -> World:
        world = await begin()
        world.grants = dict(grants)
        machine = world.machine
        for path in ("/ns/ns1/w", "/ns/ns1-b/w", "/run/netns/w", "/run/netns/other/w"):
            machine.spaces[path] = {}
        machine.add("", "eth1", "")
        machine.add("", "eth2", "", master=machine.node["lin0"])
        machine.add("", "eth3", "veth")
        machine.add("", "cali1", "veth")
        return world

    return made


@pytest.mark.parametrize(
    ("port", "spec"),
    [
        ({"type": "internal", "name": "docker0"}, {"routes": [{"to": "0.0.0.0/1", "via": "10.0.0.1"}]}),
        ({"type": "internal"}, {"defaultRoute": False}),
        ({"type": "veth", "netns": "/run/netns/w", "name": "e0"}, {}),
        ({"type": "veth", "netns": "/run/netns/other/w", "name": "e0"}, {}),
        ({"type": "existing", "device": "eth1"}, {}),
        ({"type": "existing", "device": "cali1"}, {}),
    ],
)
def test_a_node_with_no_settings_of_its_own_gives_nobody_anything(port: dict[str, str], spec: dict[str, Any]) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        before = set(world.machine.node)
        await world.attach("a", 9, port, spec=spec)
        found = await plugged(world)
        assert (found["status"], found["reason"]) == ("False", NOT_GRANTED)
        assert "by the setting " in found["message"]
        status = (await world.attachments())["a"]["status"]
        assert status["errors"]["host"] == [found["message"]]
        assert next(one for one in status["conditions"] if one["type"] == "Ready")["status"] == "False"
        assert world.interfaces() == {}
        assert {name for name in world.machine.node if name != "br-int"} == before
        assert not world.machine.spaces.get(port.get("netns", ""), {}).keys() - before

    with_agent(main, begin=granting({}))


@pytest.mark.parametrize(
    ("port", "spec", "setting"),
    [
        ({"type": "internal"}, {"defaultRoute": False}, ""),
        ({"type": "internal", "name": "web7"}, {"defaultRoute": False}, ""),
        ({"type": "internal", "name": "docker0"}, {"defaultRoute": False}, "internalNames"),
        ({"type": "internal"}, {"defaultRoute": True}, "internalRoutes"),
        ({"type": "internal"}, {"defaultRoute": False, "routes": [{"to": "192.168.7.0/24", "via": "10.0.0.1"}]}, ""),
        (
            {"type": "internal"},
            {"defaultRoute": False, "routes": [{"to": "128.0.0.0/1", "via": "10.0.0.1"}]},
            "internalRoutes",
        ),
        ({"type": "veth", "netns": "/ns/ns1/w", "name": "docker0"}, {"defaultRoute": True}, ""),
        ({"type": "veth", "netns": "/ns/ns1-b/w", "name": "e0"}, {}, "netnsFolders"),
        ({"type": "veth", "netns": "/ns/ns1/../ns1-b/w", "name": "e0"}, {}, "netnsFolders"),
        ({"type": "existing", "device": "eth1"}, {}, ""),
        ({"type": "existing", "device": "nic1"}, {}, ""),
        ({"type": "existing", "device": "eth2"}, {}, "existingDevices"),
        ({"type": "existing", "device": "eth3"}, {}, "existingDevices"),
        ({"type": "existing", "device": "nic2"}, {}, "existingDevices"),
    ],
)
def test_a_namespace_gets_what_it_is_granted(port: dict[str, str], spec: dict[str, Any], setting: str) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, port, spec=spec)
        found = await plugged(world)
        assert (found["status"], found["reason"]) == (("False", NOT_GRANTED) if setting else ("True", "Plugged")), found
        assert f"by the setting {setting}: ns1=" in found["message"] if setting else not found.get("message")
        assert len(world.interfaces()) == (0 if setting else 1)

    with_agent(main, begin=granting(NARROW))


def test_an_address_outside_the_granted_blocks_is_a_route_too() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, {"type": "internal"}, spec={"defaultRoute": False}, ips=["172.31.0.2/16"])
        found = await plugged(world)
        assert (found["reason"], world.interfaces()) == (NOT_GRANTED, {})
        assert "the address 172.31.0.2/16" in found["message"]

    with_agent(main, begin=granting(NARROW))


def test_a_device_taken_from_a_bridge_goes_back_when_only_a_pattern_grants_it_any_more() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, {"type": "existing", "device": "nic1"})
        assert (await plugged(world))["status"] == "True"
        assert not on_bridge(world)
        await world.kill()
        world.grants["existing_devices"] = ("ns1=nic*",)
        world.start(group)

        async def refused() -> bool:
            return bool((await plugged(world))["reason"] == NOT_GRANTED)

        await eventually(refused, "refused")
        assert on_bridge(world)
        assert world.interfaces() == {}

    with_agent(main, begin=granting(NARROW))


def test_what_was_plugged_goes_when_its_grant_is_gone_and_comes_back_with_it() -> None:
    ports = [
        {"type": "internal", "name": "web0"},
        {"type": "veth", "netns": "/ns/ns1/w", "name": "e0"},
        {"type": "existing", "device": "nic1"},
    ]

    async def main(world: World, group: asyncio.TaskGroup) -> None:
        for number, port in enumerate(ports):
            await world.attach(f"a{number}", 9 + number, port, spec={"defaultRoute": False})
        await eventually(lambda: is_ready(world), "ready")
        # Whatever else is the matter with it: this one lost its addresses, and stays plugged as long as it is granted.
        lost = (await world.store.get(NETWORK_ATTACHMENT, "ns1", "a0")).document()
        addressed = next(one for one in lost["status"]["conditions"] if one["type"] == "Addressed")
        addressed["status"] = "False"
        await world.store.update(NETWORK_ATTACHMENT, lost, subresource="status")
        await asyncio.sleep(5)
        assert len(world.interfaces()) == 3
        for grants in ({}, NARROW):
            await world.kill()
            world.grants = dict(grants)
            world.start(group)
            for number in range(0 if not grants else 1, 3):
                wanted = "True" if grants else "False"

                async def told(name: str = f"a{number}", wanted: str = wanted) -> bool:
                    return bool((await plugged(world, name))["status"] == wanted)

                await eventually(told, f"a{number} plugged: {wanted}")
            assert len(world.interfaces()) == (2 if grants else 0)
            assert ("web0" in world.machine.node, "e0" in world.machine.spaces["/ns/ns1/w"]) == (False, bool(grants))
            assert on_bridge(world) is not bool(grants)

    with_agent(main, begin=granting(NARROW))
