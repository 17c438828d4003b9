"""Remote VTEPs as logical ports: whose count, what wins, and what a machine more costs."""

from typing import Any

import pytest
from msgspec import structs

from netloom.model.kinds.bgp import RemoteMAC, RemoteVTEP
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Ref
from netloom.plan.world.world import Port
from tests.plan.planning import planned, resources

NETWORK = """
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 10}}
---
{kind: BGPSpeaker, metadata: {name: main}, spec: {asn: 65001, routerID: 172.31.0.1, node: gw1}}
---
{kind: EVPNNetwork, metadata: {name: blue}, spec: {network: blue, speaker: main}, status: {forwarding: true}}
"""
PORT = Ref("Logical_Switch_Port", "vxlan_192.0.2.1_10")
LOCAL = Port("default", "web", "n2", "blue", ("10.1.0.9/24",), "02:00:00:00:00:09", 10)


def vtep(name: str = "blue.192-0-2-1.10.0", *macs: RemoteMAC, namespace: str = "default", **spec: Any) -> RemoteVTEP:
    """Return a RemoteVTEP as the speaker writes it, but for what is given."""
    written = {"evpnNetwork": "blue", "network": "blue", "node": "gw1", "address": "192.0.2.1", "vni": 10}
    text = f"{{kind: RemoteVTEP, metadata: {{name: {name}}}, spec: { {**written, 'localVNI': 10, **spec} }}}"
    [one] = resources(text)
    assert isinstance(one, RemoteVTEP)
    metadata = structs.replace(one.metadata, namespace=namespace)
    return structs.replace(one, metadata=metadata, spec=structs.replace(one.spec, macs=macs))


def values(planner: Planner, column: str = "addresses") -> set[str]:
    planner.flush()
    return {str(value) for value in planner.desired.members(PORT).get(column, ())}


MACHINE = RemoteMAC(mac="02:00:00:00:0b:01", ips=("10.1.0.99",))
WRITTEN = "02:00:00:00:0b:01 10.1.0.99"


@pytest.mark.parametrize(
    "spec",
    [{"node": "n2"}, {"evpnNetwork": "red"}, {"network": "red"}, {"evpnNetwork": "late"}],
    ids=["another node", "no EVPNNetwork", "another Network", "an EVPNNetwork that does not forward"],
)
def test_only_what_the_forwarding_speaker_has_learned_counts(spec: dict[str, str]) -> None:
    late = "{kind: EVPNNetwork, metadata: {name: late}, spec: {network: blue, speaker: main}}"
    planner = planned(NETWORK, late, vtep("blue.192-0-2-1.10.0", MACHINE, **spec))
    assert not [ref for ref in planner.desired.rows if ref.key.startswith("vxlan_")]
    assert planner.desired.problems == {}
    planner.put(vtep("blue.192-0-2-1.10.0", MACHINE))
    assert values(planner) == {WRITTEN}


def test_what_is_planned_follows_forwarding_and_the_speaker() -> None:
    planner = planned(NETWORK, vtep("blue.192-0-2-1.10.0", MACHINE))
    assert planner.desired.rows[PORT].columns["options"] == {"requested-chassis": "gw1"}
    [still] = resources("{kind: EVPNNetwork, metadata: {name: blue}, spec: {network: blue, speaker: main}}")
    changes: list[Any] = [
        still,
        resources("{kind: Network, metadata: {name: blue}, spec: {fabric: vxlan}}")[0],
        Unit("BGPSpeaker", "default", "main"),
        Unit("EVPNNetwork", "default", "blue"),
    ]
    for change in changes:
        if isinstance(change, Unit):
            planner.remove(change)
        else:
            planner.put(change)
        planner.flush()
        assert not [ref for ref in planner.desired.rows if ref.table != "Logical_Switch"]
        for one in resources(NETWORK):
            planner.put(one)
        assert values(planner) == {WRITTEN}


def test_one_machine_more_is_one_value_more_in_each_set() -> None:
    machines = tuple(RemoteMAC(mac=f"02:00:00:01:{i >> 8:02x}:{i & 255:02x}", ips=()) for i in range(512))
    planner = planned(NETWORK, vtep("blue.192-0-2-1.10.0", *machines), vtep("blue.192-0-2-1.10.1", MACHINE))
    planner.put(vtep("blue.192-0-2-2.10.0", address="192.0.2.2"))
    planner.flush()
    planner.put(vtep("blue.192-0-2-1.10.1"))
    delta = planner.flush()
    assert (delta.rows, delta.joined) == (set(), set())
    assert delta.left == {Member(PORT, "addresses", WRITTEN), Member(PORT, "port_security", MACHINE.mac)}


def test_the_other_objects_of_a_vtep_wait_for_its_first() -> None:
    planner = planned(NETWORK, vtep("blue.192-0-2-1.10.1", MACHINE))
    assert PORT not in planner.desired.rows
    planner.put(vtep())
    assert values(planner) == {WRITTEN}
    assert values(planner, "port_security") == set()
    planner.put(vtep("blue.192-0-2-2.10.0", address="192.0.2.2"))
    assert values(planner, "port_security") == {"00:00:00:00:00:00", MACHINE.mac}
    planner.remove(Unit("RemoteVTEP", "default", "blue.192-0-2-2.10.0"))
    assert values(planner, "port_security") == set()
    planner.remove(Unit("RemoteVTEP", "default", "blue.192-0-2-1.10.0"))
    planner.flush()
    assert PORT not in planner.desired.rows


def test_what_is_local_wins_for_as_long_as_it_is_there() -> None:
    same_mac = RemoteMAC(mac=LOCAL.mac, ips=("10.1.0.50",))
    same_ip = RemoteMAC(mac="02:00:00:00:0b:02", ips=("10.1.0.9", "10.1.0.51"))
    planner = planned(NETWORK, vtep("blue.192-0-2-1.10.0", same_mac, same_ip))
    everything = {f"{LOCAL.mac} 10.1.0.50", "02:00:00:00:0b:02 10.1.0.51 10.1.0.9"}
    assert values(planner) == everything
    planner.put(LOCAL)
    assert values(planner) == {"02:00:00:00:0b:02 10.1.0.51"}
    planner.put(structs.replace(LOCAL, network="red"))
    assert values(planner) == everything


def test_of_two_networks_with_the_same_vtep_the_one_with_that_vni_has_the_port() -> None:
    def of_namespace(namespace: str, vni: int) -> list[Any]:
        written = NETWORK.replace("vni: 10", f"vni: {vni}").replace(
            "metadata: {", f"metadata: {{namespace: {namespace}, "
        )
        return [*resources(written), vtep("blue.192-0-2-1.10.0", MACHINE, namespace=namespace)]

    planner = planned(*of_namespace("a", 11), *of_namespace("b", 10))
    assert planner.desired.of[PORT] == Unit("RemoteVTEP", "b", "blue.192-0-2-1.10.0")
    [problem] = planner.desired.problems[Unit("RemoteVTEP", "a", "blue.192-0-2-1.10.0")]
    assert problem.reason == "VTEPInUse"
    # Also its further objects add nothing to the row of the other.
    planner.put(vtep("blue.192-0-2-1.10.1", RemoteMAC(mac="02:00:00:00:0b:0f"), namespace="a"))
    assert values(planner) == {WRITTEN}
    planner.remove(Unit("RemoteVTEP", "b", "blue.192-0-2-1.10.0"))
    assert values(planner) == {WRITTEN, "02:00:00:00:0b:0f"}
    assert planner.desired.of[PORT].namespace == "a"
    assert planner.desired.problems == {}


def test_one_vtep_with_two_vnis_is_two_ports() -> None:
    other = NETWORK.replace("name: blue", "name: red").replace("network: blue", "network: red")
    planner = planned(NETWORK, other, vtep(), vtep("red.1.11.0", evpnNetwork="red", network="red", vni=11))
    assert {ref.key for ref in planner.desired.rows if ref.table == PORT.table} == {PORT.key, "vxlan_192.0.2.1_11"}
