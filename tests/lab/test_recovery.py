"""Bad input and faults: each ends as a condition that says what is wrong, heals where it can, and disturbs nobody.

Two machines on two nodes ping each other all the while. What is made meanwhile is made on a third: a port that is
added may cost a switch in userspace a packet of its tunnels.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.lab import Lab, wiring
from tests.lab import labs
from tests.lab.pinging import Pings, pinging
from tests.lab.worlds import MANIFESTS, World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@pytest.fixture(scope="module")
def recovery(lab: Lab) -> Iterator[World]:
    """Two machines that work, and objects that cannot be realized."""
    with world(lab, "recovery") as made:
        for name in ("one", "two"):
            made.listen(name, 80)
        made.apply((MANIFESTS / "recovery-bad.yaml").read_text())
        yield made


@pytest.fixture
def pings(recovery: World, tmp_path: Path) -> Iterator[Pings]:
    """A ping between the two that are well, none of which may be lost."""
    with pinging(
        {"v4": (recovery.netns("one"), "10.78.0.12"), "v6": (recovery.netns("one"), "fd78::12")}, tmp_path
    ) as made:
        since = made.settle()  # a port that was just made may cost the switch a packet
        yield made
        made.go_on()
        assert made.lost(since) == {}


@pytest.mark.usefixtures("pings")
def test_a_subnet_that_overlaps_another_waits_until_the_other_goes(recovery: World) -> None:
    recovery.put("Network", "crowded", {})
    recovery.put("Subnet", "first", {"network": "crowded", "cidr": "10.85.0.0/16"})
    recovery.cli("wait", "subnet/first")
    recovery.put("Subnet", "second", {"network": "crowded", "cidr": "10.85.7.0/24"})
    said = wait_until(lambda: recovery.get("subnet", "second")["status"].get("errors"), what="an error", interval=0.2)
    assert "first" in said[0]
    recovery.put("NetworkAttachment", "crowd", {"node": "n3", "network": "crowded", "subnets": ["second"]})
    assert recovery.condition("networkattachment", "crowd").get("status") != "True"
    recovery.delete("subnet/first")
    recovery.cli("wait", "subnet/second", "networkattachment/crowd")


@pytest.mark.usefixtures("pings")
def test_a_router_with_two_networks_of_one_block_has_the_first(recovery: World) -> None:
    said = recovery.becomes("router", "two-of-a-block", "False", "Overlap")
    assert "10.79.0.0/24" in said
    assert recovery.answers("left", "10.80.0.11", "ping"), "the rest of it works"


@pytest.mark.usefixtures("pings")
def test_a_gateway_outside_its_block_is_refused(recovery: World) -> None:
    manifest = "{apiVersion: netloom.dev/v1alpha1, kind: Subnet, metadata: {name: wrong}, spec: {network: lan, %s}}"
    answer = recovery.cli("apply", "-f", "-", stdin=manifest % "cidr: 10.86.0.0/24, gateway: 10.87.0.1", check=False)
    assert (answer.rc, "spec.gateway" in answer.err) == (1, True), answer
    said = recovery.becomes("router", "beside-its-block", "False", "AddressOutside")
    assert "10.99.0.1" in said


@pytest.mark.usefixtures("pings")
def test_a_gateway_node_that_does_not_exist_leaves_it_to_the_next(recovery: World) -> None:
    said = recovery.becomes("router", "on-no-node", "False", "NodeMissing")
    assert "Node n9 does not exist" in said
    assert recovery.answers("outside", "192.0.2.111", "ping"), "n3 serves it"


@pytest.mark.usefixtures("pings")
def test_a_vip_in_use_costs_that_vip(recovery: World) -> None:
    said = recovery.becomes("loadbalancer", "half-taken", "False", "AddressInUse")
    assert "10.78.0.11" in said
    said = recovery.becomes("loadbalancer", "too-late", "False", "AddressInUse")
    assert "half-taken" in said
    seen = recovery.answers("two", "10.78.0.100", 80)
    assert seen.partition(" ")[0] in ("one", "two"), "the VIP that is free is served"
    spec = recovery.get("loadbalancer", "half-taken")["spec"]
    recovery.put("LoadBalancer", "half-taken", {**spec, "vips": spec["vips"][1:]})
    recovery.cli("wait", "loadbalancer/half-taken")


@pytest.mark.usefixtures("pings")
def test_who_is_not_there_is_named(recovery: World) -> None:
    assert "nobody" in recovery.becomes("securityprofile", "of-nobody", "False", "ProfileMissing")
    assert "nobody" in recovery.becomes("shaping", "of-nobody", "False", "AttachmentMissing")
    assert recovery.condition("networkattachment", "no-node").get("status") != "True"


@pytest.mark.usefixtures("pings")
def test_a_nic_that_does_not_exist_is_taken_when_it_does(recovery: World) -> None:
    lab = recovery.lab
    said = recovery.becomes("networkattachment", "no-nic", "False", "DeviceMissing", condition="Plugged")
    assert "nic30" in said
    # A cable to a machine that has the address and the MAC.
    mac, machine = recovery.get("networkattachment", "no-nic")["status"]["mac"], lab.workload("recovery-machine").name
    lab.exec("n3", ["ip", "link", "add", "nic30", "type", "veth", "peer", "name", "eth0", "netns", machine])
    lab.exec(
        "recovery-machine",
        [
            "sh",
            "-c",
            f"ip link set eth0 address {mac} up; ip address add 10.78.0.30/24 dev eth0; ethtool -K eth0 tx off",
        ],
    )
    try:
        recovery.cli("wait", "networkattachment/no-nic", "--timeout", "50s")
        assert recovery.answers("one", "10.78.0.30", "ping")
        recovery.delete("networkattachment/no-nic")
        wait_until(lambda: "nic30" not in lab.exec("n3", ["ovs-vsctl", "list-ports", "br-int"]).stdout, what="it to go")
        assert "nic30" in lab.exec("n3", ["ip", "-br", "link"]).stdout, "it is given back, not removed"
    finally:
        lab.exec("n3", ["ip", "link", "delete", "nic30"])


@pytest.mark.usefixtures("pings")
def test_a_namespace_that_disappears_is_filled_again_when_it_is_back(recovery: World) -> None:
    netns = recovery.netns("left")
    assert recovery.answers("other", "10.79.0.11", "ping")
    wiring.run(["ip", "netns", "delete", netns])
    said = recovery.becomes("networkattachment", "left", "False", "NamespaceMissing", condition="Plugged")
    assert netns in said
    recovery.lab.workload("recovery-left")
    assert recovery.answers("other", "10.79.0.11", "ping", patience=50)
    recovery.cli("wait", "networkattachment/left")


@pytest.mark.parametrize("program", ["ovs-vswitchd-n2", "ovsdb-server-n2"])
def test_a_switch_that_restarts_has_its_ports_again(recovery: World, program: str) -> None:
    assert recovery.answers("one", "10.78.0.12", "ping")
    labs.killed_comes_back(recovery.lab, program)
    ways = [("one", address, "ping") for address in ("10.78.0.12", "fd78::12", "10.78.0.13", "fd78::13")]
    assert [way for way, seen in recovery.reaches(ways).items() if not seen] == []
    recovery.cli("wait", "networkattachment/two", "networkattachment/three")
    shown = recovery.lab.exec("n2", ["ip", "address", "show", "br-phys"]).stdout
    assert f"{recovery.lab.underlay_ip('n2')}/16" in shown
    assert "UP" in shown


@pytest.mark.usefixtures("pings")
def test_a_northbound_that_is_compacted_goes_on(recovery: World) -> None:
    lab = recovery.lab
    for name in ("nb", "sb"):
        lab.exec("central", ["ovs-appctl", "-t", str(lab.layout.ovn / f"{name}.ctl"), "ovsdb-server/compact"])
    recovery.put(
        "NetworkAttachment",
        "later",
        {
            "node": "n3",
            "network": "lan",
            "ips": ["10.78.0.40"],
            "port": {"type": "veth", "netns": "/run/netns/later", "name": "eth0"},
        },
    )
    recovery.cli("wait", "networkattachment/later")
    assert recovery.answers("one", "10.78.0.40", "ping")
