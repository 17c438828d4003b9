"""A node's vxlan fabric, in memory: what its switch has is what the resources say, whatever happened, and no more."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from netloom.control.node.fabrics.fabric import COMPARE, COUNT
from netloom.diagnose.node.inspection import plans_of
from netloom.model.document import Resource
from netloom.model.registry import (
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.openflow.flows import Flow, Key, Mod
from netloom.plan.node.grants import EVERYTHING
from netloom.plan.node.ports import Host
from netloom.plan.vxlan.flow_claims import Delta
from netloom.plan.vxlan.inputs import plan_fabric
from netloom.sim import loop as sim
from netloom.store.base import Stored
from tests.control import test_host
from tests.control.helpers import document, memory, run
from tests.control.host_world import Flows, World
from tests.control.test_host import eventually

INTERNAL = {"type": "internal"}
HOSTS = {"n2": "172.31.0.2", "n3": "172.31.0.3"}


async def begin() -> World:
    store = memory()
    for name, fabric in (("blue", "ovn"), ("red", "vxlan"), ("green", "vxlan")):
        made = (await store.create(NETWORK, document(NETWORK, name, {"fabric": fabric}))).document()
        await store.update(NETWORK, {**made, "status": {"vni": VNIS[name]}}, subresource="status")
        cidr = {"network": name, "cidr": "10.0.0.0/24"}
        made = (await store.create(SUBNET, document(SUBNET, name, cidr))).document()
        made["status"] = {"validated": True}
        await store.update(SUBNET, made, subresource="status")
    return World(store, Random(sim.current().random.random()))


with_agent = partial(test_host.with_agent, begin=begin)


async def plug(world: World, name: str, number: int, network: str = "red") -> None:
    await world.attach(name, number, INTERNAL, network=network, vni=VNIS[network])


async def elsewhere(world: World, name: str, number: int, network: str = "red", node: str = "n2") -> None:
    more: dict[str, Any] = {"hostIP": HOSTS[node], "vni": VNIS[network]}
    await world.attach(name, number, INTERNAL, network=network, node=node, **more)


VNIS = {"blue": 5, "red": 10, "green": 11}


async def model(world: World) -> Mapping[Key, Flow]:
    """Return the flows that diagnosis plans, from all resources at once and the numbers of the ports."""
    kinds = (NETWORK, SUBNET, NETWORK_ATTACHMENT, SECURITY_PROFILE, SHAPING, EVPN_NETWORK, REMOTE_VTEP)
    resources = [stored.value() for kind in kinds for stored in (await world.store.list(kind)).items]
    interfaces, tunnel = world.interfaces(), world.select("Interface", ["name", "==", "nl-vtep"])
    plans, _ = plans_of(resources, "n1", Host(grants=EVERYTHING))
    numbers = {name: row["ofport"] for name, row in interfaces.items()}
    vtep = tunnel[0]["ofport"] if tunnel else None
    return plan_fabric(resources, "n1", plans, lambda port: numbers.get(port.device), vtep).claims.flows


async def in_step(world: World) -> bool:
    mine = {name: one for name, one in (await world.attachments()).items() if one["spec"]["node"] == "n1"}
    ready = all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", ()))
        for one in mine.values()
    )
    return ready and world.flows.table == await model(world)


def test_a_port_is_ready_when_the_switch_has_its_flows_and_others_are_known_by_their_hosts() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await elsewhere(world, "far", 3)
        await elsewhere(world, "stranger", 4, "green")
        await world.attach("homeless", 5, INTERNAL, network="red", node="n3", vni=10)
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        assert world.agent is not None
        numbers = world.agent.numbers()
        assert (numbers["local_attachments"], numbers["remote_attachments"], numbers["relevant_networks"]) == (1, 1, 1)
        await elsewhere(world, "later", 6)
        await eventually(lambda: in_step(world), "the fabric to follow")
        assert (await world.attachments())["a"]["status"]["ifcName"] == "nl020000000002"

    with_agent(main)


def test_a_restart_writes_nothing_and_removes_nothing() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        for at in range(2, 6):
            await plug(world, f"a{at}", at)
            await elsewhere(world, f"b{at}", at + 100)
        await eventually(lambda: in_step(world), "the fabric")
        await world.kill()
        before, bundles = dict(world.flows.table), world.flows.counters.bundles
        agent = world.start(group)
        await eventually(lambda: agent.numbers().get("fabric_compared", 0) > 0, "the agent to have compared")
        await asyncio.sleep(30)
        numbers = agent.numbers()
        assert (numbers["switch_transactions"], numbers["statuses"], numbers["fabric_bundles"]) == (0, 0, 0)
        assert (world.flows.table, world.flows.counters.bundles) == (before, bundles)

    with_agent(main)


def test_a_switch_that_was_started_again_gets_everything_in_one_bundle() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        for at in range(2, 30):
            await elsewhere(world, f"b{at}", at + 100)
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        before = world.flows.counters.bundles
        world.flows.restart()
        await eventually(lambda: in_step(world), "all flows to be back")
        assert world.flows.counters.bundles == before + 1

    with_agent(main)


def test_one_change_is_one_bundle_and_many_at_once_are_few() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        before = world.flows.counters.bundles
        await elsewhere(world, "one", 3)
        await eventually(lambda: in_step(world), "the fabric")
        assert world.flows.counters.bundles == before + 1
        for at in range(10, 60):
            await elsewhere(world, f"b{at}", at)
        await eventually(lambda: in_step(world), "the fabric")
        assert world.flows.counters.bundles <= before + 52

    with_agent(main)


def test_when_the_last_port_of_a_network_goes_so_does_all_that_is_known_of_it() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await plug(world, "g", 3, "green")
        for at in range(10, 20):
            await elsewhere(world, f"b{at}", at)
        await eventually(lambda: in_step(world), "the fabric")
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await eventually(lambda: in_step(world), "what is not needed to be gone")
        assert world.agent is not None
        assert world.agent.numbers()["remote_attachments"] == 0

    with_agent(main)


def test_while_the_switch_cannot_be_spoken_to_what_was_ready_stays_so() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        before = (await world.attachments())["a"]["metadata"]["resourceVersion"]
        world.flows.cut()
        await plug(world, "b", 3)
        await eventually(lambda: told(world, "b", "NotInstalled"), "b to be waited for")
        await world.kill()
        world.start(group)
        await asyncio.sleep(60)
        assert (await world.attachments())["a"]["metadata"]["resourceVersion"] == before
        world.flows.reconnect()
        await eventually(lambda: in_step(world), "both to be Ready")

    with_agent(main)


async def told(world: World, name: str, reason: str) -> bool:
    conditions = (await world.attachments())[name]["status"].get("conditions", ())
    return any(one.get("reason") == reason for one in conditions)


def test_profiles_and_shapings_come_and_go_with_their_flows_and_meters() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await elsewhere(world, "far", 9)
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        bare = dict(world.flows.table)
        closed = document(SECURITY_PROFILE, "closed", {"selector": {}, "ingress": []})
        slow = document(SHAPING, "slow", {"from": {"attachment": "a"}, "rate": "10mbit"})
        await world.store.create(SECURITY_PROFILE, closed)
        await world.store.create(SHAPING, slow)
        await eventually(lambda: in_step(world), "the fabric with both")
        assert len(world.flows.table) > len(bare)
        assert world.flows.metered
        await world.store.delete(SECURITY_PROFILE, "ns1", "closed")
        await world.store.delete(SHAPING, "ns1", "slow")
        await eventually(lambda: in_step(world), "the fabric without")
        assert (world.flows.table, world.flows.metered) == (bare, {})

    with_agent(main)


def test_what_was_not_answered_is_made_good() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        world.flows.lossy = True
        await elsewhere(world, "far", 9)
        await eventually(lambda: not world.flows.connected.is_set(), "the connection to go")
        world.flows.lossy = False
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "far")
        world.flows.reconnect()
        await eventually(lambda: in_step(world), "the fabric")

    with_agent(main)


def test_flows_that_somebody_removed_are_put_back_in_time() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        compared = world.flows.counters.bundles
        await asyncio.sleep(COUNT * 3)
        assert world.flows.counters.bundles == compared
        world.flows.table.clear()
        await asyncio.sleep(COUNT * 1.5)
        assert await in_step(world)

    with_agent(main)


def test_flows_that_somebody_changed_are_put_right_in_time() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        world.flows.table = {key: replace(flow, actions=()) for key, flow in world.flows.table.items()}
        await asyncio.sleep(COMPARE * 1.5)
        assert await in_step(world)

    with_agent(main)


def test_a_bug_in_a_plan_does_not_end_the_agent() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        assert world.agent is not None
        assert world.agent.fabric is not None
        plan = world.agent.fabric.plan
        flush, turns = plan.flush, iter((True, True, False))

        def stumbling() -> Delta:
            if next(turns, False):
                raise ZeroDivisionError
            return flush()

        plan.flush = stumbling  # type: ignore[method-assign]  # as a bug would
        await elsewhere(world, "far", 9)
        await eventually(lambda: in_step(world), "the fabric, all the same")

    with_agent(main)


class Choosy(Flows):
    """A switch that does not take the flows of one machine."""

    def _refusal(self, mod: Mod) -> str | None:
        return "bad match: this one I do not like" if "02:00:00:00:00:03" in str(mod.flow) else super()._refusal(mod)


def test_a_port_whose_flows_are_refused_says_so_and_the_rest_is_written() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.kill()
        world.flows = Choosy()
        world.start(group)
        await plug(world, "good", 2)
        await plug(world, "bad", 3)
        await elsewhere(world, "far", 9)
        await eventually(lambda: told(world, "bad", "FlowsRefused"), "bad to be refused")
        await eventually(lambda: ready(world, "good"), "good to be Ready")
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "bad")
        await eventually(lambda: in_step(world), "the fabric")

    with_agent(main)


async def ready(world: World, name: str) -> bool:
    conditions = (await world.attachments())[name]["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def test_a_port_is_not_open_by_mistake_before_its_profiles_are_known() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        spec: dict[str, Any] = {"selector": {}, "ingress": []}
        await world.store.create(SECURITY_PROFILE, document(SECURITY_PROFILE, "closed", spec))
        await plug(world, "a", 2)
        await eventually(lambda: ready(world, "a"), "a to be Ready")
        assert world.agent is not None
        written = dict(world.flows.table)
        await world.kill()
        agent = world.start(group)
        await eventually(lambda: agent.numbers().get("fabric_compared", 0) > 0, "the agent to have compared")
        await asyncio.sleep(30)
        assert agent.numbers()["fabric_bundles"] == 0
        assert world.flows.table == written

    with_agent(main)


def test_a_profile_that_cannot_be_decoded_opens_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    readable = Stored.value

    def value(stored: Stored) -> Resource:
        if b"unreadable" in stored.raw:
            raise ValueError("what is this?")
        return readable(stored)

    async def write(world: World, name: str, **labels: str) -> None:
        profile = (await world.store.get(SECURITY_PROFILE, "ns1", name)).document()
        profile["metadata"]["labels"] = labels
        await world.store.update(SECURITY_PROFILE, profile)

    async def main(world: World, group: asyncio.TaskGroup) -> None:
        spec: dict[str, Any] = {"selector": {}, "ingress": []}
        await world.store.create(SECURITY_PROFILE, document(SECURITY_PROFILE, "closed", spec))
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        closed = dict(world.flows.table)
        await write(world, "closed", unreadable="yes")
        await asyncio.sleep(COUNT * 3)
        assert world.flows.table == closed
        await world.kill()
        world.start(group)
        await asyncio.sleep(COUNT * 3)
        assert world.flows.table == closed
        await plug(world, "b", 3)
        await asyncio.sleep(COUNT * 3)
        assert world.flows.table == closed
        await write(world, "closed")
        await eventually(lambda: in_step(world), "the fabric to be as it should")
        await write(world, "closed", unreadable="yes")
        await asyncio.sleep(COUNT)
        await world.store.delete(SECURITY_PROFILE, "ns1", "closed")
        await eventually(lambda: in_step(world), "the ports to be open")

    monkeypatch.setattr(Stored, "value", value)
    with_agent(main)


def test_a_tunnel_that_somebody_took_away_is_made_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await elsewhere(world, "far", 9)
        await plug(world, "a", 2)
        await eventually(lambda: in_step(world), "the fabric")
        world.remove_port("nl-vtep")
        await eventually(lambda: bool(world.select("Interface", ["name", "==", "nl-vtep"])), "the tunnel")
        await eventually(lambda: in_step(world), "the fabric to be whole again")

    with_agent(main)


def test_where_ovn_tunnels_by_vxlan_itself_the_fabric_is_refused() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await eventually(lambda: world.agent is not None and world.agent.ready, "the agent")
        changed = [["external_ids", "delete", ["set", ["ovn-encap-type"]]],
                   ["external_ids", "insert", ["map", [["ovn-encap-type", "geneve,vxlan"]]]]]  # fmt: skip
        world.database.transact([{"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": changed}])
        await asyncio.sleep(1)  # The agent sees it.
        await plug(world, "a", 2)
        await eventually(lambda: told(world, "a", "TunnelTaken"), "a to be told")

    with_agent(main)


def test_a_node_without_ovn_is_ready_by_its_own_fabric() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await plug(world, "a", 2)
        await world.attach("b", 3, INTERNAL)
        await eventually(lambda: ready(world, "a"), "a to be Ready")
        await eventually(lambda: told(world, "b", "SwitchNotPrepared"), "b to be told")
        assert {row["name"] for row in world.select("Bridge")} == {"br-vxlan"}
        status = (await world.store.get(NODE, "", "n1")).document()["status"]
        assert [(one["type"], one["status"]) for one in status["conditions"]] == [("Ready", "True")]

    async def there() -> None:
        world = await begin()
        world.ovn_remote = ""
        async with asyncio.TaskGroup() as group:
            daemons = group.create_task(world.daemons.run())
            world.start(group)
            await main(world, group)
            await world.kill()
            daemons.cancel()

    run(there())


async def churn(world: World, group: asyncio.TaskGroup) -> None:
    random = world.random
    free = list(range(2, 60))
    there: dict[str, int] = {}
    for at in range(40):
        match random.choice(
            ("here", "here", "there", "there", "gone", "gone", "move", "kill", "crash", "cut", "flows")
        ):
            case "here":
                number = there[f"a{at}"] = free.pop(0)
                await plug(world, f"a{at}", number, random.choice(("red", "green")))
            case "there":
                number = there[f"a{at}"] = free.pop(0)
                await elsewhere(world, f"a{at}", number, random.choice(("red", "green")), random.choice(sorted(HOSTS)))
            case "gone" if there:
                name = random.choice(sorted(there))
                free.append(there.pop(name))
                await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
            case "move" if there:
                # The same name and addresses, on another node.
                name = random.choice(sorted(there))
                await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
                if random.random() < 0.5:
                    await plug(world, name, there[name])
                else:
                    await elsewhere(world, name, there[name])
            case "kill":
                await world.kill()
                await asyncio.sleep(random.choice((0, 2)))
                world.start(group)
            case "crash":
                world.crash_switch()
            case "cut":
                world.cut()
            case "flows":
                world.flows.cut()
                await asyncio.sleep(random.choice((0, 3)))
                world.flows.reconnect()
        await asyncio.sleep(random.choice((0, 0.01, 0.1, 2)))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_fabric_is_what_the_resources_say_in_the_end(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await churn(world, group)
        await eventually(lambda: in_step(world), "the fabric to be as the resources say")
        await asyncio.sleep(30)
        assert await in_step(world)

    with_agent(main, seed)
