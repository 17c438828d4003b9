"""The vxlan fabric on three hosts without any OVN: who reaches whom, what is on the wire, and what dies."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, probes
from tests.lab.capturing import ARP, Frame, Wire, capturing, send
from tests.lab.labs import killed_comes_back
from tests.lab.pinging import Pings, pinging
from tests.lab.test_qos import about, measured
from tests.lab.vxlan_wire import BROADCAST, Tunnelled, arp, tunnelled, udp
from tests.lab.worlds import Way, World, world
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

RED, GREEN = 7001, 7002
A, B, C, NOBODY = "10.70.0.11", "10.70.0.12", "10.70.0.13", "10.70.0.99"
_STATISTICS = re.compile(r" (?:duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*,")


@pytest.fixture(scope="module")
def fabric(plain: Lab) -> Iterator[World]:
    """Two Networks with the same addresses; a and c on n1, b on n2, and of the other one twin on n2, other on n3."""
    with world(plain, "vxlan") as made:
        for name in ("a", "b", "c", "twin", "other"):
            made.listen(name, 80)
        assert all(made.reaches([("a", B, "ping"), ("b", "fd00:70::11", "ping")]).values())
        yield made


def test_no_ovn_runs_and_every_node_is_ready_without_it(plain: Lab, fabric: World) -> None:
    assert [name for name in (path.name for path in plain.layout.pids.iterdir()) if "ovn" in name] == []
    assert plain.exec("n1", ["ovs-vsctl", "list-br"]).stdout.split() == ["br-phys", "br-vxlan"]
    nodes = json.loads(netloom("get", "nodes", "-o", "json", kubeconfig=plain.kubeconfig).out)["items"]
    assert {one["metadata"]["name"] for one in nodes} == {"n1", "n2", "n3"}
    assert all(one["status"]["conditions"][0]["status"] == "True" for one in nodes)


def test_who_is_in_a_network_is_reached_and_another_of_the_same_addresses_is_not(fabric: World) -> None:
    ways = [(who, address, how) for who, others in REACHED.items() for address in others for how in ("ping", 80)]
    seen = fabric.reaches(ways)
    assert {way for way, answer in seen.items() if not answer} == set()
    assert seen["b", A, 80].split()[0] == "a"
    assert seen["other", A, 80].split()[0] == "twin"
    away: list[Way] = [("other", B, "ping"), ("other", C, 80), ("a", "10.70.0.14", "ping"), ("b", "10.70.0.14", 80)]
    assert set(fabric.tries(away).values()) == {""}


REACHED = {
    "a": (B, C, "fd00:70::12", "fd00:70::13"),
    "b": (A, C, "fd00:70::11", "fd00:70::13"),
    "c": (A, B, "fd00:70::11", "fd00:70::12"),
    "other": (A,),
}


def test_a_sender_that_lies_is_not_heard(fabric: World) -> None:
    own = {name: str(fabric.get("networkattachment", name)["status"]["mac"]) for name in "abc"}
    good, forged = own["a"], "02:00:00:00:66:66"
    target = own["b"], B
    lies = [
        udp((forged, A), target, b"a lie"),
        udp((own["c"], A), target, b"a lie"),
        udp((good, C), target, b"a lie"),
        udp((good, NOBODY), target, b"a lie"),
        arp(good, (good, C), B),
        arp(good, (own["c"], A), B),
        arp(forged, (good, A), B),
    ]
    said = udp((good, A), target, b"the truth, tagged")
    lies += [said[:12] + tag + said[12:] for tag in (b"\x81\x00\x00\x07", b"\x81\x00\x00\x00", b"\x88\xa8\x00\x07")]
    with capturing(fabric.netns("b"), "eth0") as wire:
        for lie in lies:
            send(fabric.netns("a"), "eth0", lie)
        # The truth takes the same way, behind them.
        send(fabric.netns("a"), "eth0", arp(good, (good, A), B))
        send(fabric.netns("a"), "eth0", udp((good, A), target, b"the truth"))
        wire.wait(lambda frame: frame.data.endswith(b"the truth"), what="the truth")
    assert [frame for frame in wire.frames if frame.data in lies or b"tagged" in frame.data] == []
    assert arp(good, (good, A), B) in [frame.data for frame in wire.frames]


def test_the_underlay_carries_the_vni_and_nobody_gets_what_is_not_for_them(plain: Lab, fabric: World) -> None:
    mine = str(fabric.get("networkattachment", "a")["status"]["mac"])
    with ExitStack() as stack:
        wires = {node: stack.enter_context(capturing(plain.netns("underlay"), node)) for node in plain.nodes}
        at_b = stack.enter_context(capturing(fabric.netns("b"), "eth0"))
        inside(fabric, "a", "ip", "neighbour", "flush", "all")
        assert not fabric.ping("a", NOBODY)
        for frame in (arp(mine, (mine, A), NOBODY), udp((mine, A), (BROADCAST, "10.70.0.255"), b"to all"),
                      udp((mine, A), ("01:00:5e:00:00:fb", "224.0.0.251"), b"to many"),
                      udp((mine, A), ("02:00:00:00:77:77", NOBODY), b"to nobody")):  # fmt: skip
            send(fabric.netns("a"), "eth0", frame)
        assert fabric.ping("a", B)
        assert fabric.answers("other", A, "ping")
        wait_until(lambda: carried(wires["n1"], RED), what="the ping to be on the wire")
    seen = {node: carried(wire, RED) for node, wire in wires.items()}
    ends = {plain.underlay_ip("n1"), plain.underlay_ip("n2")}
    assert all({one.source, one.target} == ends for one in seen["n1"] + seen["n2"])
    assert any(one.inner[12:14] == b"\x08\x06" for one in seen["n2"])  # The question for b, and b alone.
    assert seen["n3"] == []
    assert {one.vni for wire in wires.values() for one in tunnelled(wire.frames)} == {RED, GREEN}
    assert [frame.data for frame in at_b.frames if b"to " in frame.data[42:] or is_asked(frame, NOBODY)] == []


def is_asked(frame: Frame, address: str) -> bool:
    return frame.kind == ARP and frame.data[38:42] == socket.inet_aton(address)


def carried(wire: Wire, vni: int) -> list[Tunnelled]:
    return [one for one in tunnelled(list(wire.frames)) if one.vni == vni]


def test_an_agent_that_is_killed_loses_no_packet_and_makes_nothing_again(
    plain: Lab, fabric: World, tmp_path: Path
) -> None:
    with going(fabric, tmp_path) as pings:
        before = state(plain, "n1")
        since = pings.settle()
        killed_comes_back(plain, "agent-n1")
        # One more: when it is Ready, the new agent has compared everything.
        spec = {"node": "n1", "network": "red", "ips": ["10.70.0.21"]}
        fabric.put("NetworkAttachment", "more", {**spec, "port": {"type": "internal", "name": "vxlan-more"}})
        fabric.cli("wait", "networkattachment/more", "--timeout", "30s")
        pings.go_on()
        assert pings.lost(since) == {}
        after = state(plain, "n1")
        assert {name: after["rows"][name] for name in before["rows"]} == before["rows"]
        again = [flow for flow, (seconds, packets) in before["flows"].items()
                 if after["flows"].get(flow, (-1.0, -1)) < (seconds, packets)]  # fmt: skip
        assert again == []
        fabric.delete("networkattachment/more")
        wait_until(lambda: state(plain, "n1")["flows"].keys() == before["flows"].keys(), what="its flows to be gone")
        assert pings.lost(since) == {}


def test_a_switch_that_is_killed_has_all_flows_again(plain: Lab, fabric: World, tmp_path: Path) -> None:
    before = state(plain, "n1")
    with going(fabric, tmp_path) as pings:
        killed_comes_back(plain, "ovs-vswitchd-n1")
        pings.settle()
        wait_until(lambda: state(plain, "n1")["flows"].keys() == before["flows"].keys(), what="all flows to be back")
        since = pings.settle()
        killed_comes_back(plain, "ovsdb-server-n1")
        pings.go_on()
        assert pings.lost(since) == {}
    assert state(plain, "n1")["rows"].keys() == before["rows"].keys()
    assert fabric.answers("c", B, 80)


def test_a_profile_allows_and_drops(fabric: World) -> None:
    friends = [{"selector": {"matchLabels": {"role": "friend"}}}]
    allowed = {"from": friends, "ports": [{"protocol": "tcp", "port": 80}]}
    fabric.put("SecurityProfile", "web", {"selector": {"matchLabels": {"app": "web"}}, "ingress": [allowed]})
    fabric.blocked(("a", C, 80))
    assert fabric.answers("b", C, 80)
    assert set(fabric.tries([("a", C, "ping"), ("b", C, "ping"), ("a", "fd00:70::13", 80)]).values()) == {""}
    assert all(fabric.reaches([("c", A, 80), ("c", B, "ping"), ("b", "fd00:70::13", 80)]).values())
    fabric.delete("securityprofile/web")
    assert fabric.answers("a", C, 80)


def test_what_a_shaped_machine_sends_is_at_its_rate(plain: Lab, fabric: World) -> None:
    with probes.iperf_server(fabric.netns("b")):
        fabric.put("Shaping", "slow", {"from": {"attachment": "a"}, "direction": "forward", "rate": "10mbit"})
        assert measured(fabric, "a", B, offered=30, fits=about(10)) == pytest.approx(10, rel=0.15)
        assert measured(fabric, "c", B, offered=30, fits=lambda rate: rate > 20) > 20
        assert meters(plain) != []
    fabric.delete("shaping/slow")
    wait_until(lambda: meters(plain) == [], what="its meters to be gone")


def meters(lab: Lab) -> list[str]:
    """Return the meters of n1's switch, one line each."""
    said = lab.exec("n1", ["ovs-ofctl", "-O", "OpenFlow14", "dump-meters", "br-vxlan"]).stdout
    return [line for line in said.splitlines() if line.startswith("meter=")]


def test_doctor_explain_and_trace_know_the_fabric(plain: Lab, fabric: World) -> None:
    where = ("--lab", str(plain.layout.folder))
    healthy = netloom("doctor", *where, check=False)
    assert healthy.rc == 0, healthy.out
    told = fabric.cli("explain", "networkattachment/a", *where).out
    assert "on br-vxlan" in told
    assert "MISSING" not in told
    way = fabric.cli("trace", "a", "b", "--tcp", "80", *where).out
    assert "through the tunnel to n2, VNI 7001" in way
    assert way.endswith("delivered to b\n")
    assert fabric.cli("trace", "other", "b", *where, check=False).rc == 1
    # Somebody meddles, and the agent, which would see it, stands still.
    plain.kill("agent-n2", signal.SIGSTOP)
    try:
        plain.exec("n2", ["ovs-ofctl", "-O", "OpenFlow14", "del-flows", "br-vxlan", "table=0"])
        mended = netloom("doctor", "--chapter", "nodes", "--repair", *where, check=False)
    finally:
        plain.kill("agent-n2", signal.SIGCONT)
    assert (mended.rc, "Repaired: written" in mended.out) == (0, True), mended.out
    assert fabric.ping("a", B)


def going(fabric: World, folder: Path) -> AbstractContextManager[Pings]:
    """Ping, from a: here and elsewhere, v4 and v6."""
    ways = {"v4": B, "v6": "fd00:70::12", "here": C}
    return pinging({name: (fabric.netns("a"), address) for name, address in ways.items()}, folder)


def state(lab: Lab, node: str) -> dict[str, Any]:
    """Return a switch's interfaces, and its flows, each with its age and how many packets it has seen."""
    rows = lab.exec(node, ["ovs-vsctl", "--format=csv", "--no-headings", "--columns=name,_uuid,ofport,ifindex",
                           "list", "Interface"]).stdout  # fmt: skip
    flows = {}
    for line in lab.exec(node, ["ovs-ofctl", "-O", "OpenFlow14", "dump-flows", "br-vxlan"]).stdout.splitlines():
        if found := re.search(r"duration=([\d.]+)s.*n_packets=(\d+)", line):
            flows[_STATISTICS.sub("", line)] = float(found[1]), int(found[2])
    return {"rows": {line.split(",")[0]: line for line in rows.splitlines()}, "flows": flows}


def inside(fabric: World, place: str, *argv: str) -> None:
    subprocess.run(["ip", "netns", "exec", fabric.netns(place), *argv], check=True, capture_output=True)
