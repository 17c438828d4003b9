"""Networks of fabric linux on three hosts without any OVN: bridges that learn, connected by VXLAN."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.lab import Lab
from tests.lab.capturing import capturing, send
from tests.lab.labs import killed_comes_back
from tests.lab.pinging import pinging
from tests.lab.vxlan_wire import BROADCAST, udp
from tests.lab.worlds import World, world
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

HALL, CELLAR, ATTIC = 7011, 7012, 7013
A, B, C, NEAR, OTHER = (f"10.71.0.{number}" for number in (11, 12, 13, 14, 15))


@pytest.fixture(scope="module")
def linux(plain: Lab) -> Iterator[World]:
    """The Network hall on all nodes, and cellar, with the same addresses, on two of them."""
    with world(plain, "linux") as made:
        for name in ("a", "b", "twin"):
            made.listen(name, 80)
        yield made


def test_machines_reach_those_of_their_network_on_all_nodes_and_no_other(linux: World) -> None:
    ways = [(who, to, "ping") for who in "abc" for to in (A, B, C, NEAR, "fd00:71::11", "fd00:71::12", "fd00:71::13")]
    assert {way for way, answer in linux.reaches(ways).items() if not answer} == set()
    assert linux.answers("c", B, 80).split()[0] == "b"
    assert linux.answers("other", B, 80).split()[0] == "twin"
    assert set(linux.tries([("other", A, "ping"), ("a", OTHER, "ping"), ("twin", C, "ping")]).values()) == {""}


def test_a_broadcast_and_a_multicast_reach_each_machine_of_the_network_once(linux: World) -> None:
    mine = str(linux.get("networkattachment", "a")["status"]["mac"])
    assert linux.ping("a", B)
    frames = [udp((mine, A), target, words) for target, words in (
        ((BROADCAST, "10.71.0.255"), b"to all"), (("01:00:5e:00:00:fb", "224.0.0.251"), b"to many"),
        (("02:00:00:00:77:77", "10.71.0.77"), b"to nobody that is known"))]  # fmt: skip
    with (
        capturing(linux.netns("b"), "eth0") as at_b,
        capturing(linux.netns("c"), "eth0") as at_c,
        capturing(linux.netns("other"), "eth0") as elsewhere,
        capturing(linux.netns("a"), "eth0") as back,
    ):
        for frame in frames:
            send(linux.netns("a"), "eth0", frame)
        for wire in (at_b, at_c):
            wire.wait(lambda frame: frame.data == frames[-1], what="the last frame")
        assert linux.ping("a", B)
        assert linux.ping("a", C)
    for wire in (at_b, at_c, back):  # What the sender captures is what it has sent itself.
        assert [frame.data for frame in wire.frames if frame.data in frames] == frames
    assert [frame.data for frame in elsewhere.frames if frame.data in frames] == []


def test_the_whole_mtu_passes_between_nodes(linux: World) -> None:
    size = linux.lab.exec("n1", ["ip", "-n", linux.netns("a"), "-j", "link", "show", "eth0"]).stdout
    mtu = json.loads(size)[0]["mtu"]
    assert mtu == 1450
    argv = ["ip", "netns", "exec", linux.netns("a"), "ping", "-M", "do", "-s", str(mtu - 28), "-c", "1", "-W", "2", B]
    wait_until(lambda: linux.lab.exec("n1", argv, check=False).returncode == 0, what="a whole packet to be answered")


def test_an_agent_that_is_killed_loses_no_packet_and_makes_nothing_again(
    plain: Lab, linux: World, tmp_path: Path
) -> None:
    ways = {"v4": B, "v6": "fd00:71::12", "far": C}
    with pinging({name: (linux.netns("a"), address) for name, address in ways.items()}, tmp_path) as pings:
        before = rows(plain, "n1")
        since = pings.settle()
        killed_comes_back(plain, "agent-n1")
        pings.go_on()
        assert pings.lost(since) == {}
        # One more, for which a switch in userspace may drop a packet: when it is Ready, everything was compared.
        spec = {"node": "n1", "network": "hall", "ips": ["10.71.0.21"], "port": {"type": "internal", "name": "hall-2"}}
        linux.put("NetworkAttachment", "more", spec)
        linux.cli("wait", "networkattachment/more", "--timeout", "30s")
        after = rows(plain, "n1")
        assert {name: after[name] for name in before} == before
        linux.delete("networkattachment/more")
        wait_until(lambda: rows(plain, "n1") == before, what="its port to be gone")
        pings.settle()


def test_a_profile_that_nothing_would_enforce_takes_a_machine_off_the_network(linux: World) -> None:
    assert linux.answers("a", B, "ping")
    linux.put("SecurityProfile", "closed", {"selector": {"matchLabels": {"role": "closed"}}, "ingress": []})
    said = linux.becomes("networkattachment", "b", "False", "ProfilesUnsupported", condition="Plugged")
    assert "SecurityProfile closed restricts b, and Network hall of fabric linux has no filters" in said
    linux.blocked(("a", B, "ping"))
    assert linux.answers("a", C, "ping")
    linux.delete("securityprofile/closed")
    assert linux.answers("a", B, "ping")


def test_doctor_and_explain_know_the_bridges(plain: Lab, linux: World) -> None:
    where = ("--lab", str(plain.layout.folder))
    healthy = netloom("doctor", *where, check=False)
    assert healthy.rc == 0, healthy.out
    told = linux.cli("explain", "networkattachment/a", *where).out
    assert f"on br-nl{HALL}" in told
    assert f"Its bridge leads to {plain.underlay_ip('n2')}, {plain.underlay_ip('n3')}" in told
    assert "MISSING" not in told
    assert "have no flows to trace" in linux.cli("trace", "a", "b", *where, check=False).err
    # Another program removes a tunnel, and the agent, which would see it, stands still.
    plain.kill("agent-n1", signal.SIGSTOP)
    try:
        plain.exec("n1", ["ovs-vsctl", "del-port", f"nlx_{HALL}_{plain.underlay_ip('n2')}"])
        repaired = netloom("doctor", "--chapter", "nodes", "--repair", *where, check=False)
    finally:
        plain.kill("agent-n1", signal.SIGCONT)
    assert (repaired.rc, "Repaired: connected" in repaired.out) == (0, True), repaired.out
    assert linux.answers("a", B, "ping")


def test_a_network_without_machines_on_a_node_has_no_bridge_there(plain: Lab, linux: World) -> None:
    linux.put("Network", "attic", {"fabric": "linux", "vni": ATTIC})
    linux.put("Subnet", "attic", {"network": "attic", "cidr": "10.72.0.0/24"})
    for name, node in (("up", "n1"), ("down", "n2")):
        linux.put("NetworkAttachment", name, {"node": node, "network": "attic", "port": {"type": "internal"}})
    linux.cli("wait", "networkattachment/up", "networkattachment/down", "--timeout", "40s")
    to_2 = f"nlx_{ATTIC}_{plain.underlay_ip('n2')}"
    wait_until(lambda: to_2 in rows(plain, "n1"), what="the VXLAN port")
    linux.delete("networkattachment/down")
    wait_until(lambda: f"br-nl{ATTIC}" not in bridges(plain, "n2"), what="the bridge to be gone")
    wait_until(lambda: to_2 not in rows(plain, "n1"), what="the VXLAN port to be gone")
    assert {f"br-nl{HALL}", f"br-nl{CELLAR}", f"br-nl{ATTIC}"} == bridges(plain, "n1")
    linux.delete("networkattachment/up", "subnet/attic", "network/attic")
    wait_until(lambda: f"br-nl{ATTIC}" not in bridges(plain, "n1"), what="the bridge to be gone")
    assert linux.ping("a", B)


def bridges(lab: Lab, node: str) -> set[str]:
    """Return the bridges of linux Networks on a node."""
    found = lab.exec(node, ["ovs-vsctl", "list-br"]).stdout.split()
    return {name for name in found if name.startswith("br-nl")}


def rows(lab: Lab, node: str) -> dict[str, str]:
    """Return a switch's interfaces, by name."""
    columns = "--columns=name,_uuid,ofport,ifindex"
    found = lab.exec(node, ["ovs-vsctl", "--format=csv", "--no-headings", columns, "list", "Interface"]).stdout
    return {line.split(",")[0]: line for line in found.splitlines()}
