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
from tests.lab.worlds import WISHES, World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@pytest.fixture(scope="module")
def mishaps(lab: Lab) -> Iterator[World]:
    """Two machines that are well, and wishes that cannot be."""
    with world(lab, "mishaps") as made:
        for name in ("one", "two"):
            made.listen(name, 80)
        made.apply((WISHES / "mishaps-bad.yaml").read_text())
        yield made


@pytest.fixture
def pings(mishaps: World, tmp_path: Path) -> Iterator[Pings]:
    """A ping between the two that are well, none of which may be lost."""
    with pinging(
        {"v4": (mishaps.netns("one"), "10.78.0.12"), "v6": (mishaps.netns("one"), "fd78::12")}, tmp_path
    ) as made:
        since = made.settle()  # a port that was just made may cost the switch a packet
        yield made
        made.go_on()
        assert made.lost(since) == {}


@pytest.mark.usefixtures("pings")
def test_a_subnet_that_overlaps_another_waits_until_the_other_goes(mishaps: World) -> None:
    mishaps.wish("Network", "crowded", {})
    mishaps.wish("Subnet", "first", {"network": "crowded", "cidr": "10.85.0.0/16"})
    mishaps.cli("wait", "subnet/first")
    mishaps.wish("Subnet", "second", {"network": "crowded", "cidr": "10.85.7.0/24"})
    said = wait_until(lambda: mishaps.get("subnet", "second")["status"].get("errors"), what="an error", interval=0.2)
    assert "first" in said[0]
    mishaps.wish("NetworkAttachment", "crowd", {"node": "n3", "network": "crowded", "subnets": ["second"]})
    assert mishaps.condition("networkattachment", "crowd").get("status") != "True"
    mishaps.delete("subnet/first")
    mishaps.cli("wait", "subnet/second", "networkattachment/crowd")


@pytest.mark.usefixtures("pings")
def test_a_router_with_two_networks_of_one_block_has_the_first(mishaps: World) -> None:
    said = mishaps.becomes("router", "two-of-a-block", "False", "Overlap")
    assert "10.79.0.0/24" in said
    assert mishaps.answers("left", "10.80.0.11", "ping"), "the rest of it works"


@pytest.mark.usefixtures("pings")
def test_a_gateway_outside_its_block_is_refused(mishaps: World) -> None:
    wish = "{apiVersion: netloom.dev/v1alpha1, kind: Subnet, metadata: {name: amiss}, spec: {network: lan, %s}}"
    answer = mishaps.cli("apply", "-f", "-", stdin=wish % "cidr: 10.86.0.0/24, gateway: 10.87.0.1", check=False)
    assert (answer.rc, "spec.gateway" in answer.err) == (1, True), answer
    said = mishaps.becomes("router", "beside-its-block", "False", "AddressOutside")
    assert "10.99.0.1" in said


@pytest.mark.usefixtures("pings")
def test_a_gateway_node_that_does_not_exist_leaves_it_to_the_next(mishaps: World) -> None:
    said = mishaps.becomes("router", "on-no-node", "False", "NodeMissing")
    assert "Node n9 does not exist" in said
    assert mishaps.answers("outside", "192.0.2.111", "ping"), "n3 serves it"


@pytest.mark.usefixtures("pings")
def test_a_vip_in_use_costs_that_vip(mishaps: World) -> None:
    said = mishaps.becomes("loadbalancer", "half-taken", "False", "AddressInUse")
    assert "10.78.0.11" in said
    said = mishaps.becomes("loadbalancer", "too-late", "False", "AddressInUse")
    assert "half-taken" in said
    seen = mishaps.answers("two", "10.78.0.100", 80)
    assert seen.partition(" ")[0] in ("one", "two"), "the VIP that is free is served"
    spec = mishaps.get("loadbalancer", "half-taken")["spec"]
    mishaps.wish("LoadBalancer", "half-taken", {**spec, "vips": spec["vips"][1:]})
    mishaps.cli("wait", "loadbalancer/half-taken")


@pytest.mark.usefixtures("pings")
def test_who_is_not_there_is_named(mishaps: World) -> None:
    assert "nobody" in mishaps.becomes("securityprofile", "of-nobody", "False", "ProfileMissing")
    assert "nobody" in mishaps.becomes("shaping", "of-nobody", "False", "AttachmentMissing")
    assert mishaps.condition("networkattachment", "no-node").get("status") != "True"


@pytest.mark.usefixtures("pings")
def test_a_nic_that_does_not_exist_is_taken_when_it_does(mishaps: World) -> None:
    lab = mishaps.lab
    said = mishaps.becomes("networkattachment", "no-nic", "False", "DeviceMissing", condition="Plugged")
    assert "nic30" in said
    # A cable to a machine that has the address and the MAC.
    mac, machine = mishaps.get("networkattachment", "no-nic")["status"]["mac"], lab.workload("mishaps-machine").name
    lab.exec("n3", ["ip", "link", "add", "nic30", "type", "veth", "peer", "name", "eth0", "netns", machine])
    lab.exec(
        "mishaps-machine",
        [
            "sh",
            "-c",
            f"ip link set eth0 address {mac} up; ip address add 10.78.0.30/24 dev eth0; ethtool -K eth0 tx off",
        ],
    )
    try:
        mishaps.cli("wait", "networkattachment/no-nic", "--timeout", "50s")
        assert mishaps.answers("one", "10.78.0.30", "ping")
        mishaps.delete("networkattachment/no-nic")
        wait_until(lambda: "nic30" not in lab.exec("n3", ["ovs-vsctl", "list-ports", "br-int"]).stdout, what="it to go")
        assert "nic30" in lab.exec("n3", ["ip", "-br", "link"]).stdout, "it is given back, not removed"
    finally:
        lab.exec("n3", ["ip", "link", "delete", "nic30"])


@pytest.mark.usefixtures("pings")
def test_a_namespace_that_disappears_is_filled_again_when_it_is_back(mishaps: World) -> None:
    netns = mishaps.netns("left")
    assert mishaps.answers("other", "10.79.0.11", "ping")
    wiring.run(["ip", "netns", "delete", netns])
    said = mishaps.becomes("networkattachment", "left", "False", "NamespaceMissing", condition="Plugged")
    assert netns in said
    mishaps.lab.workload("mishaps-left")
    assert mishaps.answers("other", "10.79.0.11", "ping", patience=50)
    mishaps.cli("wait", "networkattachment/left")


@pytest.mark.parametrize("program", ["ovs-vswitchd-n2", "ovsdb-server-n2"])
def test_a_switch_that_restarts_has_its_ports_again(mishaps: World, program: str) -> None:
    assert mishaps.answers("one", "10.78.0.12", "ping")
    labs.killed_comes_back(mishaps.lab, program)
    ways = [("one", address, "ping") for address in ("10.78.0.12", "fd78::12", "10.78.0.13", "fd78::13")]
    assert [way for way, seen in mishaps.reaches(ways).items() if not seen] == []
    mishaps.cli("wait", "networkattachment/two", "networkattachment/three")
    shown = mishaps.lab.exec("n2", ["ip", "address", "show", "br-phys"]).stdout
    assert f"{mishaps.lab.underlay_ip('n2')}/16" in shown
    assert "UP" in shown


@pytest.mark.usefixtures("pings")
def test_a_northbound_that_is_compacted_goes_on(mishaps: World) -> None:
    lab = mishaps.lab
    for name in ("nb", "sb"):
        lab.exec("central", ["ovs-appctl", "-t", str(lab.layout.ovn / f"{name}.ctl"), "ovsdb-server/compact"])
    mishaps.wish(
        "NetworkAttachment",
        "later",
        {
            "node": "n3",
            "network": "lan",
            "ips": ["10.78.0.40"],
            "port": {"type": "veth", "netns": "/run/netns/later", "name": "eth0"},
        },
    )
    mishaps.cli("wait", "networkattachment/later")
    assert mishaps.answers("one", "10.78.0.40", "ping")
