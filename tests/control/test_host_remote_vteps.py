"""VXLAN ports to the VTEPs of other sites: for the objects of a node with a speaker, and nothing else on the switch."""

import asyncio
from random import Random
from typing import Any

import pytest

from netloom.model.registry import BGP_SPEAKER, REMOTE_VTEP
from netloom.plan.node.remote_vteps import VtepView, plan_vxlan_ports
from netloom.store.base import Store
from tests.control.helpers import document, memory, run
from tests.control.host_world import World
from tests.control.test_host import eventually

SPEAKER = {"asn": 65001, "routerID": "172.31.0.1", "node": "n1"}
VTEP = {
    "evpnNetwork": "blue", "network": "blue", "node": "n1", "address": "192.0.2.1", "vni": 10, "localVNI": 10,
    "localAddress": "172.31.0.1",
}  # fmt: skip
NAME = "vxlan_192.0.2.1_10"


async def put(store: Store, name: str, **spec: Any) -> None:
    await store.create(REMOTE_VTEP, document(REMOTE_VTEP, name, VTEP | spec))


def ports(world: World) -> dict[str, dict[str, str]]:
    """Return the options of the interfaces with our mark."""
    rows = world.interfaces().items()
    return {name: dict(row["options"][1]) for name, row in rows if "netloom-owner" in row["external_ids"]}


def test_ports_follow_the_objects_and_the_speaker_and_leave_others_alone() -> None:
    async def main() -> None:
        store, random = memory(), Random(1)
        world = World(store, random)
        world.grants |= {"speaker": False, "speaker_namespaces": ("ns1",)}
        async with asyncio.TaskGroup() as group:
            daemons = group.create_task(world.daemons.run())
            world.start(group)
            await put(store, "blue.1.10.0")
            await put(store, "blue.1.10.1", macs=[{"mac": "02:00:00:00:0b:01"}])
            await put(store, "red.1.11.0", vni=11, localVNI=12)
            await put(store, "elsewhere.1.10.0", node="n2", vni=13)
            await put(store, "each-node.1.10.0", localAddress="", vni=14)
            await put(store, "self.1.10.0", address="172.31.0.1")
            await asyncio.sleep(10)
            assert ports(world) == {}  # There is no speaker.
            world.add_port("br-int", "vxlan_192.0.2.9_9", type="vxlan", options=["map", [["remote_ip", "192.0.2.9"]]])
            await put(store, "taken.9.9.0", address="192.0.2.9", vni=9, localVNI=9)
            before = world.select("Interface", ["name", "==", "vxlan_192.0.2.9_9"])[0]["external_ids"]

            await store.create(BGP_SPEAKER, document(BGP_SPEAKER, "main", SPEAKER))
            common = {"remote_ip": "192.0.2.1", "local_ip": "172.31.0.1", "dst_port": "4789"}
            wanted = {NAME: {**common, "key": "10"}, "vxlan_192.0.2.1_11": {**common, "in_key": "12", "out_key": "11"}}
            await eventually(lambda: ports(world) == wanted, "the ports")
            ids = world.interfaces()[NAME]["external_ids"]
            assert (ids["iface-id"], ids["netloom-of"]) == (NAME, "RemoteVTEP/ns1/blue.1.10.0")
            assert world.select("Interface", ["name", "==", "vxlan_192.0.2.9_9"])[0]["external_ids"] == before
            await eventually(lambda: "192.0.2.1" in world.machine.resolved, "the ports")

            world.remove_port(NAME)
            await eventually(lambda: ports(world) == wanted, "the ports")
            await store.delete(REMOTE_VTEP, "ns1", "blue.1.10.0")
            await asyncio.sleep(10)
            assert ports(world) == wanted  # Its second object is still there.
            await store.delete(REMOTE_VTEP, "ns1", "blue.1.10.1")
            await eventually(lambda: ports(world).keys() == {"vxlan_192.0.2.1_11"}, "the ports")

            await world.kill()
            await store.delete(REMOTE_VTEP, "ns1", "red.1.11.0")
            await put(store, "blue.1.10.0")
            world.start(group)
            await eventually(lambda: ports(world) == {NAME: wanted[NAME]}, "the ports")
            await world.kill()
            world.grants["speaker_namespaces"] = ("ns2",)
            world.start(group)
            await eventually(lambda: ports(world) == {}, "no ports")
            await world.kill()
            world.grants["speaker_namespaces"] = ("ns*",)
            world.start(group)
            await eventually(lambda: ports(world) == {NAME: wanted[NAME]}, "the ports")
            await store.delete(BGP_SPEAKER, "ns1", "main")
            await eventually(lambda: ports(world) == {}, "the ports")
            assert "vxlan_192.0.2.9_9" in world.interfaces()
            await world.kill()
            daemons.cancel()

    run(main())


@pytest.mark.parametrize("node", ["172.31.0.2", "172.31.0.3"])
def test_an_address_of_a_node_is_never_that_of_a_remote_vtep(node: str) -> None:
    view = VtepView("ns1", "a.0", node, 10, 10, "172.31.0.1")
    assert plan_vxlan_ports([view], {("ns1", "172.31.0.1")}, ()).keys() == {f"vxlan_{node}_10"}
    assert plan_vxlan_ports([view], {("ns1", "172.31.0.1")}, {"172.31.0.2", "172.31.0.3"}) == {}


def test_the_source_must_be_that_of_a_speaker_of_the_namespace() -> None:
    view = VtepView("ns1", "a.0", "192.0.2.1", 10, 10, "172.31.0.1")
    for sources in (set(), {("ns2", "172.31.0.1")}, {("ns1", "172.31.0.9")}):
        assert plan_vxlan_ports([view], sources, ()) == {}


def test_of_two_networks_with_one_vtep_and_vni_the_one_with_that_vni_has_the_port() -> None:
    one = VtepView("ns1", "a.0", "192.0.2.1", 10, 11, "172.31.0.1")
    other = VtepView("ns2", "a.0", "192.0.2.1", 10, 10, "172.31.0.1")
    [port] = plan_vxlan_ports([one, other], {("ns1", "172.31.0.1"), ("ns2", "172.31.0.1")}, ()).values()
    assert port.of == other


def test_of_two_vnis_of_one_vtep_for_one_network_one_has_a_port() -> None:
    """Open vSwitch tells ports apart by their source, their other end and the VNI from there, not by the VNI to it."""
    usual = VtepView("ns1", "blue.192-0-2-1.10.0", "192.0.2.1", 10, 10, "172.31.0.1")
    other = VtepView("ns1", "blue.192-0-2-1.7.0", "192.0.2.1", 7, 10, "172.31.0.1")
    for views in ([usual, other], [other, usual]):
        assert plan_vxlan_ports(views, {("ns1", "172.31.0.1")}, ()).keys() == {"vxlan_192.0.2.1_10"}
    elsewhere = VtepView("ns1", "red.192-0-2-1.7.0", "192.0.2.1", 7, 11, "172.31.0.1")
    found = plan_vxlan_ports([usual, other, elsewhere], {("ns1", "172.31.0.1")}, ())
    assert found.keys() == {"vxlan_192.0.2.1_10", "vxlan_192.0.2.1_7"}
    assert found["vxlan_192.0.2.1_7"].of == elsewhere
