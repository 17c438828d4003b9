"""A node's linux Networks, in memory: their bridges and VXLAN ports are what the objects say, whatever happened."""

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest

from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SECURITY_PROFILE, SUBNET
from netloom.sim import loop as sim
from tests.control import test_host
from tests.control.helpers import document, memory
from tests.control.host_world import World
from tests.control.test_host import eventually, is_ready

INTERNAL = {"type": "internal"}
VNIS = {"red": 10, "green": 11}
HOSTS = {"n2": "172.31.0.2", "n3": "172.31.0.3"}


async def begin() -> World:
    store = memory()
    for name, vni in VNIS.items():
        made = (await store.create(NETWORK, document(NETWORK, name, {"fabric": "linux"}))).document()
        await store.update(NETWORK, {**made, "status": {"vni": vni}}, subresource="status")
        made = (await store.create(SUBNET, document(SUBNET, name, {"network": name, "cidr": "10.0.0.0/24"}))).document()
        await store.update(SUBNET, {**made, "status": {"validated": True}}, subresource="status")
    return World(store, Random(sim.current().random.random()))


with_agent = partial(test_host.with_agent, begin=begin)


async def plug(world: World, name: str, number: int, network: str = "red", **more: Any) -> None:
    await world.attach(name, number, INTERNAL, network=network, vni=VNIS[network], **more)


async def elsewhere(world: World, name: str, number: int, network: str = "red", node: str = "n2") -> None:
    more: dict[str, Any] = {"hostIP": HOSTS[node], "vni": VNIS[network]}
    ready = [{"type": kind, "status": "True", "observedGeneration": 1} for kind in ("Addressed", "Ready")]
    await world.attach(name, number, INTERNAL, network=network, node=node, conditions=ready, **more)


async def drop(world: World, name: str) -> None:
    await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)


def bridges(world: World) -> dict[str, set[str]]:
    """Return the ports of the bridges of linux Networks; a VXLAN port must be protected, and lead where it says."""
    ports = {row["_uuid"][1]: row for row in world.select("Port")}
    interfaces = {row["name"]: row for row in world.select("Interface")}
    found = {}
    for bridge in [row for row in world.select("Bridge") if row["name"].startswith("br-nl")]:
        listed = bridge["ports"][1] if bridge["ports"][0] == "set" else [bridge["ports"]]
        names = {ports[uuid]["name"] for _, uuid in listed} - {bridge["name"]}
        assert bridge["fail_mode"] == "standalone"
        for name in names:
            assert ports[interfaces_port(ports, name)]["protected"] is name.startswith("nlx_")
            if name.startswith("nlx_"):
                _, vni, address = name.split("_")
                assert bridge["name"] == f"br-nl{vni}"
                options = dict(interfaces[name]["options"][1])
                assert options == {"key": vni, "remote_ip": address, "local_ip": "172.31.0.1"}
        found[str(bridge["name"])] = names
    return found


def interfaces_port(ports: dict[str, dict[str, Any]], name: str) -> str:
    return next(uuid for uuid, row in ports.items() if row["name"] == name)


TO_2, TO_3 = "nlx_10_172.31.0.2", "nlx_10_172.31.0.3"


def test_a_bridge_leads_to_the_nodes_with_machines_and_goes_with_the_last_port() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await elsewhere(world, "far", 103)
        await elsewhere(world, "stranger", 104, "green", "n3")
        await plug(world, "a", 2)
        await eventually(lambda: is_ready(world), "the port to be Ready")
        assert bridges(world) == {"br-nl10": {"nl020000000002", TO_2}}
        await elsewhere(world, "farther", 105, node="n3")
        await elsewhere(world, "too", 106)
        await eventually(lambda: bridges(world) == {"br-nl10": {"nl020000000002", TO_2, TO_3}}, "the other node")
        await plug(world, "b", 7, "green")
        wanted = {"nl020000000007", "nlx_11_172.31.0.3"}
        await eventually(lambda: bridges(world).get("br-nl11") == wanted, "the other Network")
        await drop(world, "far")
        await asyncio.sleep(10)
        assert TO_2 in bridges(world)["br-nl10"]  # `too` is there.
        await drop(world, "too")
        await eventually(lambda: bridges(world)["br-nl10"] == {"nl020000000002", TO_3}, "no way to n2")
        await drop(world, "a")
        await eventually(lambda: bridges(world).keys() == {"br-nl11"}, "its bridge to be gone")
        await drop(world, "b")
        await eventually(lambda: bridges(world) == {}, "no bridges")

    with_agent(main)


def test_a_restart_writes_nothing_and_what_others_remove_comes_back() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await elsewhere(world, "far", 103)
        await plug(world, "a", 2)
        await eventually(lambda: is_ready(world), "the port to be Ready")
        before = bridges(world)
        await world.kill()
        agent = world.start(group)
        await asyncio.sleep(30)
        numbers = agent.numbers()
        assert (numbers["switch_transactions"], numbers["statuses"]) == (0, 0)
        world.remove_port(TO_2)
        await eventually(lambda: bridges(world) == before, "the VXLAN port to be back")
        gone = [
            ["bridges", "delete", ["set", [row["_uuid"] for row in world.select("Bridge", ["name", "==", "br-nl10"])]]]
        ]
        world.database.transact([{"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": gone}])
        await eventually(lambda: bridges(world) == before, "the bridge to be back")

    with_agent(main)


def test_a_bridge_of_somebody_else_is_not_used() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        row = {"name": "br-nl10", "datapath_type": "netdev"}
        bridge = ["bridges", "insert", ["set", [["named-uuid", "b"]]]]
        world.database.transact(
            [
                {"op": "insert", "table": "Bridge", "row": row, "uuid-name": "b"},
                {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [bridge]},
            ]
        )
        await plug(world, "a", 2)
        await eventually(lambda: said(world, "a", "NameTaken"), "the condition")
        assert world.interfaces() == {}

    with_agent(main)


def test_a_profile_that_restricts_a_machine_unplugs_it_until_it_is_gone() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2, labels={"app": "web"})
        await plug(world, "b", 3)
        await eventually(lambda: is_ready(world), "the ports to be Ready")
        spec = {"selector": {"matchLabels": {"app": "web"}}, "ingress": []}
        await world.store.create(SECURITY_PROFILE, document(SECURITY_PROFILE, "web", spec))
        await eventually(lambda: said(world, "a", "ProfilesUnsupported"), "the condition")
        await eventually(lambda: bridges(world) == {"br-nl10": {"nl020000000003"}}, "only the other port")
        await world.store.delete(SECURITY_PROFILE, "ns1", "web")
        await eventually(lambda: is_ready(world), "both ports to be Ready")

    with_agent(main)


async def said(world: World, name: str, reason: str) -> bool:
    status = (await world.attachments())[name]["status"]
    return any(one["type"] == "Plugged" and one["reason"] == reason for one in status["conditions"])


@pytest.mark.parametrize("seed", range(8))
def test_after_any_changes_and_kills_the_bridges_are_as_the_objects_say(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        random = world.random
        here: dict[str, tuple[int, str]] = {}
        there: dict[str, tuple[str, str]] = {}
        for at in range(2, 40):
            network = random.choice(list(VNIS))
            match random.randrange(6):
                case 0 | 1:
                    await plug(world, f"a{at}", at, network)
                    here[f"a{at}"] = at, network
                case 2:
                    node = random.choice(list(HOSTS))
                    await elsewhere(world, f"b{at}", at, network, node)
                    there[f"b{at}"] = node, network
                case 3 if here:
                    await drop(world, name := random.choice(list(here)))
                    del here[name]
                case 4 if there:
                    await drop(world, name := random.choice(list(there)))
                    del there[name]
                case _:
                    await world.kill()
                    world.start(group)
            await asyncio.sleep(random.choice((0, 0.02, 3)))
        wanted = {
            f"br-nl{vni}": {
                *(f"nl0200000000{number:02x}" for number, on in here.values() if on == network),
                *(f"nlx_{vni}_{HOSTS[node]}" for node, on in there.values() if on == network),
            }
            for network, vni in VNIS.items()
            if network in {on for _, on in here.values()}
        }
        await eventually(lambda: bridges(world) == wanted, "the bridges")

    with_agent(main, seed)
