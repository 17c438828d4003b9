"""Containers in virtual machines: VLANs of a machine's one device, each in a Network of its own, with real packets."""

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from netloom.lab import Lab, probes
from netloom.plan.node.hooks import REFUSED
from tests.lab import labs
from tests.lab.capturing import IPV4, VLAN, capturing, send
from tests.lab.tagging import tagged
from tests.lab.test_dhcp import leased
from tests.lab.test_qos import WITHIN, about, measured
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

CONTAINERS = {"web": ("vm1", 7), "db": ("vm1", 8), "far": ("vm2", 7), "shy": ("vm2", 8)}
"""Of which machine each is which VLAN."""


@pytest.fixture(scope="module")
def children(lab: Lab) -> Iterator[World]:
    """Two machines with two containers each, and a machine beside them."""
    with world(lab, "children") as made, ExitStack() as stack:
        for name, (machine, vlan) in CONTAINERS.items():
            status = made.get("networkattachment", name)["status"]
            netns = lab.workload(f"children-{name}").name
            stack.enter_context(
                tagged(made.netns(machine), "eth0", vlan, within=netns, name="eth0", mac=status["mac"], mtu=1400)
            )
            for ip in status["ips"]:
                flags = ["nodad"] if ":" in ip else []
                subprocess.run(["ip", "-n", netns, "address", "add", ip, "dev", "eth0", *flags], check=True)
        for name in ("web", "db", "far", "plain"):
            made.listen(name, 8300, "udp/8300")
        yield made


def mac_of(children: World, name: str) -> bytes:
    return bytes.fromhex(children.get("networkattachment", name)["status"]["mac"].replace(":", ""))


@pytest.mark.parametrize(
    ("source", "own", "target", "answering"),
    [
        ("web", "10.83.0.7", "10.83.0.20", "plain"),
        ("web", "fd83::7", "fd83::20", "plain"),
        ("plain", "10.83.0.20", "10.83.0.7", "web"),
        ("web", "10.83.0.7", "10.83.0.9", "far"),
        ("web", "fd83::7", "fd83::9", "far"),
        ("web", "10.83.0.7", "10.83.0.8", "db"),
        ("db", "fd83::8", "fd83::7", "web"),
    ],
)
def test_containers_reach_who_is_in_their_network_wherever_that_is(
    children: World, source: str, own: str, target: str, answering: str
) -> None:
    seen = children.reaches([(source, target, how) for how in ("ping", 8300, "udp/8300")])
    assert list(seen.values()) == ["pong", f"{answering} {own}", f"{answering} {own}"]


def test_what_a_machine_sends_untagged_is_in_its_own_network(children: World) -> None:
    assert children.answers("vm1", "10.82.0.12", "ping") == "pong"
    green = subprocess.run(
        ["ip", "-n", children.netns("vm1"), "route", "replace", "10.83.0.0/24", "dev", "eth0"], check=False
    )
    assert green.returncode == 0
    try:
        assert not children.ping("vm1", "10.83.0.20")
        assert not children.ping("web", "10.82.0.12")
    finally:
        subprocess.run(["ip", "-n", children.netns("vm1"), "route", "del", "10.83.0.0/24", "dev", "eth0"], check=True)


def datagram(source: str, target: str) -> bytes:
    """Return an IPv4 packet with a datagram."""
    data = struct.pack("!HHHH", 8301, 8301, 8, 0)
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, socket.IPPROTO_UDP, 0) + ends
    total = sum(struct.unpack("!10H", header))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return header[:10] + struct.pack("!H", checksum) + header[12:] + data


def heard(children: World, vlan: int, mac: bytes, ip: str) -> bool:
    """Whether a machine with its own device hears what vm1 sends it with a tag, as somebody."""
    packet = datagram(ip, "10.83.0.20")
    frame = mac_of(children, "plain") + mac + struct.pack("!HHH", VLAN, vlan, IPV4) + packet
    with capturing(children.netns("plain"), "eth0") as wire:
        send(children.netns("vm1"), "eth0", frame)
        # What is let through has come when what was sent after it, on the same way, is answered.
        assert children.answers("web", "10.83.0.20", "ping") == "pong"
        return any(one.data[6:12] == mac and packet in one.data for one in list(wire.frames))


def test_a_tag_that_is_nobodys_leads_nowhere_and_no_container_can_be_another(children: World) -> None:
    web, db, vm = (mac_of(children, name) for name in ("web", "db", "vm1"))
    wait_until(lambda: heard(children, 7, web, "10.83.0.7"), what="what is sent as oneself")
    assert not heard(children, 9, web, "10.83.0.7"), "a VLAN that nobody has"
    assert not heard(children, 8, web, "10.83.0.7"), "with another's tag"
    assert not heard(children, 8, db, "10.83.0.7"), "with another's address"
    assert not heard(children, 7, db, "10.83.0.7"), "with another's MAC"
    assert not heard(children, 7, vm, "10.82.0.11"), "as the machine"
    assert heard(children, 8, db, "10.83.0.8")


def test_a_container_is_covered_by_its_profiles(children: World) -> None:
    assert children.answers("plain", "10.83.0.10", "ping") == "pong"
    assert children.answers("web", "10.83.0.20", "ping") == "pong"
    assert not children.ping("web", "10.83.0.10")


def test_a_container_reaches_what_is_behind_a_router(children: World) -> None:
    subprocess.run(["ip", "-n", children.netns("web"), "route", "replace", "default", "via", "10.83.0.1"], check=True)
    assert children.answers("web", "10.84.0.9", "ping") == "pong"
    assert children.answers("lamp", "10.83.0.7", "ping") == "pong"


def test_a_container_has_its_rate(children: World) -> None:
    assert children.answers("db", "10.83.0.20", "ping") == "pong"
    with probes.iperf_server(children.netns("plain")):
        assert measured(children, "db", "10.83.0.20", offered=20, fits=about(5)) == pytest.approx(5, rel=WITHIN)


def test_a_container_gets_its_lease(children: World) -> None:
    assert leased(children, "db")["ip"] == "10.83.0.8"


def test_all_is_said_of_them_and_nothing_is_amiss(children: World) -> None:
    status = children.get("networkattachment", "web")["status"]
    assert status["ifcName"] == children.get("networkattachment", "vm1")["status"]["ifcName"]
    lab = str(children.lab.layout.folder)

    def explained() -> str:
        found = children.cli("explain", "networkattachment/web", "--lab", lab).out
        return "" if "MISSING" in found else found

    # A child that went a moment ago took OVN's word for its parent along.
    found = wait_until(explained, what="nothing missing", interval=0.2)
    assert "VLAN 7 of children/vm1: Interface" in found
    assert "web  10.83.0.7 fd83::7, VLAN 7 of vm1  ready" in children.cli("status").out
    assert "delivered" in children.cli("trace", "web", "plain", "--lab", lab).out
    assert "delivered" in children.cli("trace", "plain", "web", "--lab", lab).out
    wait_until(lambda: children.cli("doctor", "--lab", lab, check=False).rc == 0, what="a doctor with nothing to say")


def test_an_agent_that_starts_again_writes_nothing_about_them(children: World) -> None:
    def versions() -> dict[str, str]:
        names = ("web", "db", "vm1")
        return {name: children.get("networkattachment", name)["metadata"]["resourceVersion"] for name in names}

    before = versions()
    labs.killed_comes_back(children.lab, "agent-n1")
    assert children.answers("web", "10.83.0.20", "ping") == "pong"
    assert versions() == before


def test_a_container_whose_machine_goes_waits_for_it_with_its_address(children: World) -> None:
    def machine() -> None:
        children.put("NetworkAttachment", "vm3", {"node": "n1", "network": "office"})

    machine()
    port = {"type": "child", "parent": "vm3", "vlan": 7}
    children.put("NetworkAttachment", "lone", {"node": "n1", "network": "green", "port": port})
    children.cli("wait", "networkattachment/vm3", "networkattachment/lone", "--timeout", "40s")
    ips = children.get("networkattachment", "lone")["status"]["ips"]
    children.delete("networkattachment/vm3")
    for condition in ("Programmed", "Plugged"):
        children.becomes("networkattachment", "lone", "False", "ParentMissing", condition=condition)
    assert children.get("networkattachment", "lone")["status"]["ips"] == ips
    assert children.answers("web", "10.83.0.20", "ping") == "pong"
    machine()
    children.cli("wait", "networkattachment/vm3", "networkattachment/lone", "--timeout", "40s")
    children.delete("networkattachment/lone", "networkattachment/vm3")


def test_of_two_that_want_a_vlan_one_has_it_and_the_other_gets_it_when_it_is_free(children: World) -> None:
    port = {"type": "child", "parent": "vm1", "vlan": 30}
    for name in ("zoe-2", "zoe-1"):
        children.put("NetworkAttachment", name, {"node": "n1", "network": "green", "port": port})
    for condition in ("Programmed", "Plugged"):
        said = children.becomes("networkattachment", "zoe-2", "False", "VlanTaken", condition=condition)
        assert said == "spec.port.vlan: VLAN 30 of vm1 is zoe-1's: choose another"
    children.delete("networkattachment/zoe-1")
    children.cli("wait", "networkattachment/zoe-2", "networkattachment/vm1", "--timeout", "40s")
    wait_until(lambda: not children.condition("networkattachment", "zoe-2", "Programmed"), what="nothing in the way")
    children.delete("networkattachment/zoe-2")


def test_a_container_that_goes_takes_nobody_with_it(children: World) -> None:
    device = children.get("networkattachment", "vm1")["status"]["ifcName"]

    def installed() -> bool:
        found = children.lab.exec("n1", ["ovs-vsctl", "get", "Interface", device, "external_ids"])
        return 'ovn-installed="true"' in found.stdout

    wait_until(installed, what="OVN's word for the machine's port")
    port = {"type": "child", "parent": "vm1", "vlan": 31}
    children.put("NetworkAttachment", "guest", {"node": "n1", "network": "green", "port": port})
    children.cli("wait", "networkattachment/guest", "--timeout", "40s")
    children.delete("networkattachment/guest")
    assert children.answers("web", "10.83.0.20", "ping") == "pong"
    assert children.answers("vm1", "10.82.0.12", "ping") == "pong"
    wait_until(installed, what="OVN's word again")
    for name in ("vm1", "web", "db"):
        assert children.condition("networkattachment", name)["status"] == "True"


def test_what_is_kept_of_a_containers_programs_stands_with_the_bridge_until_it_is_gone(children: World) -> None:
    def kept() -> bool:
        return (
            "netloom-child" in children.lab.exec("n1", ["ovs-vsctl", "get", "Bridge", "br-int", "external_ids"]).stdout
        )

    port = {"type": "child", "parent": "vm1", "vlan": 32}
    program = ["/bin/true", "${ifname}"]  # Which no agent of a lab allows: what is told of it comes the same way.
    spec = {"node": "n1", "network": "green", "port": port, "postCreateExec": program, "postDeleteExec": program}
    children.put("NetworkAttachment", "busy", spec)
    report = wait_until(
        lambda: children.get("networkattachment", "busy").get("status", {}).get("postCreateExecReport"), what="a report"
    )
    device = children.get("networkattachment", "vm1")["status"]["ifcName"]
    assert (report["command"], report["exitStatus"]) == (["/bin/true", device], REFUSED)
    assert kept()
    children.delete("networkattachment/busy")
    wait_until(lambda: not kept(), what="nothing to be kept")
