"""A vxlan Network and two other sites, each a kernel VTEP with a bridge: reachability, and frames on the wire."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netloom.client.resources import of_kind
from netloom.client.session import connect
from netloom.lab import Lab
from netloom.lab.wiring import run
from netloom.model.kind import Kind
from netloom.model.registry import BGP_SPEAKER, EVPN_NETWORK
from tests.lab.capturing import Wire, capturing, send
from tests.lab.labs import killed_comes_back
from tests.lab.pinging import pinging
from tests.lab.test_vxlan import state
from tests.lab.vxlan_wire import BROADCAST, Tunnelled, arp, tunnelled, udp
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

VNI = 7011
A, B, C, NOBODY = "10.71.0.11", "10.71.0.12", "10.71.0.13", "10.71.0.99"
MANY = "01:00:5e:00:00:fb"


class Site(NamedTuple):
    """Another site: one VTEP, and one machine, which is its bridge."""

    name: str
    address: str
    mac: str
    ip: str
    ip6: str

    @property
    def object(self) -> str:
        """The name of its RemoteVTEP."""
        return f"main.{self.address.replace('.', '-')}.{VNI}.0"


EAST = Site("east", "172.31.201.1", "02:00:00:71:01:01", "10.71.0.101", "fd00:71::101")
WEST = Site("west", "172.31.202.1", "02:00:00:71:02:01", "10.71.0.102", "fd00:71::102")


@pytest.fixture(scope="module")
def sites(plain: Lab) -> Iterator[World]:
    """A Network with a and c on n1 and b on n2, and two sites that know them, and of which it does not know yet."""
    with world(plain, "sites") as made:
        try:
            for site in (EAST, WEST):
                build(made, site)
            yield made
        finally:
            for site in (EAST, WEST):
                run(["ip", "-n", plain.netns("underlay"), "link", "delete", site.name])


@pytest.fixture
def reached(sites: World) -> Iterator[World]:
    """The same, when both sites are known."""
    learn(sites, EAST)
    learn(sites, WEST)
    ways = [(who, site.ip, "ping") for who in "ab" for site in (EAST, WEST)]
    assert all(sites.reaches(ways).values())
    yield sites
    sites.delete(f"remotevtep/{EAST.object}", f"remotevtep/{WEST.object}")


def build(made: World, site: Site) -> None:
    """Make a site: a cable to the underlay, a bridge, and a VXLAN device that knows the ports of this one."""
    lab = made.lab
    lab.workload(f"{made.name}-{site.name}")
    there, underlay = made.netns(site.name), lab.netns("underlay")
    run(["ip", "-n", underlay, "link", "add", site.name, "type", "veth", "peer", "name", "uplink", "netns", there])
    run(["ip", "-n", underlay, "link", "set", site.name, "master", "underlay", "addrgenmode", "none", "up"])
    for netns, device in ((underlay, site.name), (there, "uplink")):
        run(["ip", "netns", "exec", netns, "ethtool", "-K", device, "tx", "off"])
    for words in (
        f"address add {site.address}/16 dev uplink",
        "link set uplink up",
        f"link add br0 address {site.mac} mtu 1400 type bridge forward_delay 0 mcast_snooping 0",
        f"link add vx0 mtu 1400 type vxlan id {VNI} local {site.address} dstport 4789 nolearning",
        "link set vx0 master br0 up",
        "link set br0 up",
        f"address add {site.ip}/24 dev br0",
        f"address add {site.ip6}/64 dev br0 nodad",
    ):
        run(["ip", "-n", there, *words.split()])
    run(["ip", "netns", "exec", there, "ethtool", "-K", "br0", "tx", "off"])
    for node in ("n1", "n2"):
        fdb(made, site, "append", "00:00:00:00:00:00", node)
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        fdb(made, site, "append", str(made.get("networkattachment", name)["status"]["mac"]), node)


def fdb(made: World, site: Site, command: str, mac: str, node: str) -> None:
    """Change where a site sends packets for a MAC."""
    there = ["dev", "vx0", "dst", made.lab.underlay_ip(node)]
    run(["ip", "netns", "exec", made.netns(site.name), "bridge", "fdb", command, mac, *there])


def learn(made: World, site: Site, **more: Any) -> None:
    """Write the RemoteVTEP of a site, as a speaker does; and that the speaker lives, and forwards."""
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status(made, BGP_SPEAKER, {"lastHeartbeat": later})
    status(made, EVPN_NETWORK, {"vni": VNI, "forwarding": True, "node": "gateway"})
    spec = {"evpnNetwork": "main", "network": "wide", "node": "gateway", "address": site.address, "vni": VNI}
    machines = [{"mac": site.mac, "ips": [site.ip, site.ip6]}]
    owner = {"apiVersion": EVPN_NETWORK.api_version, "kind": "EVPNNetwork", "name": "main"}
    owners = [{**owner, "uid": made.get("evpnnetwork", "main")["metadata"]["uid"]}]
    whole = {**spec, "localVNI": VNI, "flood": True, "macs": machines, **more}
    made.put("RemoteVTEP", site.object, whole, ownerReferences=owners)


def status(made: World, kind: Kind, new: dict[str, Any]) -> None:
    client = connect(str(made.lab.kubeconfig)).client
    path = of_kind(kind).path(made.name, "main") + "/status"
    client.call("PATCH", path, body={"status": new}, content_type="application/merge-patch+json")
    client.close()


def to_sites(lab: Lab, node: str) -> list[str]:
    """Return the flows of a node that know another site."""
    return [flow for flow in state(lab, node)["flows"] if any(one.address in flow for one in (EAST, WEST))]


def test_machines_of_two_sites_and_of_this_one_reach_each_other(reached: World) -> None:
    ways = [(who, there, "ping") for who in "abc" for site in (EAST, WEST) for there in (site.ip, site.ip6)]
    ways += [(site.name, here, "ping") for site in (EAST, WEST) for here in (A, B, C, "fd00:71::11", "fd00:71::12")]
    assert {way for way, answer in reached.reaches(ways).items() if not answer} == set()
    reached.listen("east", 80)
    reached.listen("c", 80)
    assert reached.answers("a", EAST.ip, 80).split() == ["east", A]
    assert reached.answers("east", C, 80).split() == ["c", EAST.ip]


def test_a_question_for_a_machine_of_one_site_does_not_go_to_the_other(plain: Lab, reached: World) -> None:
    with ExitStack() as stack:
        wires = {name: stack.enter_context(capturing(reached.netns(name), "uplink")) for name in ("east", "west")}
        neighbours_forgotten(reached, "a")
        assert reached.ping("a", EAST.ip)
        assert reached.ping("a", EAST.ip6)
        wait_until(lambda: questions(wires["east"], EAST.ip), what="the question")
    assert questions(wires["west"], EAST.ip) == []
    # Machines send other multicasts when they like.
    assert [one for one in from_nodes(plain, wires["west"]) if IPv6Address(EAST.ip6).packed in one.inner] == []


def test_a_broadcast_goes_once_to_each_site_and_to_no_other_node(plain: Lab, reached: World) -> None:
    mine = str(reached.get("networkattachment", "a")["status"]["mac"])
    frames = [
        arp(mine, (mine, A), NOBODY),
        arp(mine, (mine, A), A),
        udp((mine, A), (BROADCAST, "10.71.0.255"), b"to all"),
        udp((mine, A), (MANY, "224.0.0.251"), b"to many"),
    ]
    with ExitStack() as stack:
        wires = {name: stack.enter_context(capturing(reached.netns(name), "uplink")) for name in ("east", "west")}
        nodes = [stack.enter_context(capturing(plain.netns("underlay"), node)) for node in ("n2", "n3")]
        at_c = stack.enter_context(capturing(reached.netns("c"), "eth0"))
        for frame in frames:
            send(reached.netns("a"), "eth0", frame)
        unknown = udp((mine, A), ("02:00:00:00:77:77", NOBODY), b"to nobody")
        send(reached.netns("a"), "eth0", unknown)
        for site in (EAST, WEST):  # A ping takes the same way, behind them.
            assert reached.ping("a", site.ip)
        wait_until(
            lambda: all(len(from_nodes(plain, wire)) > len(frames) for wire in wires.values()), what="the broadcasts"
        )
    for wire in wires.values():
        inner = [one.inner for one in from_nodes(plain, wire)]
        assert [inner.count(frame) for frame in frames] == [1] * len(frames)
        assert unknown not in inner
    assert [one for wire in nodes for one in tunnelled(wire.frames) if one.inner in frames] == []
    assert [frame for frame in at_c.frames if frame.data in frames] == []


def test_a_broadcast_of_one_site_reaches_each_port_once_and_the_other_site_never(plain: Lab, reached: World) -> None:
    sender = EAST.mac, EAST.ip
    frames = [udp(sender, (BROADCAST, "10.71.0.255"), b"to all"), udp(sender, (MANY, "224.0.0.251"), b"to many")]
    question = arp(EAST.mac, sender, B)
    with ExitStack() as stack:
        west = stack.enter_context(capturing(reached.netns("west"), "uplink"))
        ports = {name: stack.enter_context(capturing(reached.netns(name), "eth0")) for name in "abc"}
        for frame in (*frames, question):
            send(reached.netns("east"), "vx0", frame)
        for address in (A, B, C):
            assert reached.ping("east", address)
        for wire in ports.values():
            wire.wait(lambda frame: frame.data in frames, what="a broadcast")
    for name, wire in ports.items():
        got = [frame.data for frame in wire.frames]
        assert [got.count(frame) for frame in (*frames, question)] == [1, 1, 1 if name == "b" else 0]
    assert [one for one in from_nodes(plain, west) if one.inner in (*frames, question)] == []


def test_a_rule_names_machines_of_other_sites_by_address(reached: World) -> None:
    reached.listen("c", 81)
    allowed = {"from": [{"cidr": f"{EAST.ip}/32"}], "ports": [{"protocol": "tcp", "port": 81}]}
    reached.put("SecurityProfile", "web", {"selector": {"matchLabels": {"app": "web"}}, "ingress": [allowed]})
    reached.blocked(("west", C, 81))
    assert reached.answers("east", C, 81)
    reached.delete("securityprofile/web")
    assert reached.answers("west", C, 81)


def test_an_agent_that_is_killed_loses_no_packet_to_another_site(plain: Lab, reached: World, tmp_path: Path) -> None:
    ways = {"v4": (reached.netns("a"), EAST.ip), "v6": (reached.netns("west"), "fd00:71::11")}
    with pinging(ways, tmp_path) as pings:
        since = pings.settle()
        before = state(plain, "n1")["flows"]
        killed_comes_back(plain, "agent-n1")
        learn(reached, WEST, flood=False)  # When this is written, the new agent has compared everything.
        wait_until(lambda: state(plain, "n1")["flows"].keys() != before.keys(), what="the new agent to write")
        pings.go_on()
        assert pings.lost(since) == {}


def test_what_a_node_without_the_speaker_writes_is_ignored_and_all_flows_go_with_the_object(
    plain: Lab, sites: World
) -> None:
    before = [state(plain, node)["flows"].keys() for node in plain.nodes]
    assert [flow for node in plain.nodes for flow in to_sites(plain, node)] == []
    learn(sites, WEST, node="n3")
    learn(sites, EAST)
    assert all(sites.reaches([("a", EAST.ip, "ping"), ("b", EAST.ip6, "ping")]).values())
    known = "".join(flow for node in plain.nodes for flow in to_sites(plain, node))
    assert EAST.address in known
    assert WEST.address not in known
    assert to_sites(plain, "n3") == []  # It has no port in the Network.
    sites.delete("--ignore-not-found", f"remotevtep/{EAST.object}", f"remotevtep/{WEST.object}")
    wait_until(lambda: [state(plain, node)["flows"].keys() for node in plain.nodes] == before, what="no more flows")


def from_nodes(lab: Lab, wire: Wire) -> list[Tunnelled]:
    """Return what the nodes of this site sent."""
    addresses = [lab.underlay_ip(node) for node in lab.nodes]
    return [one for one in tunnelled(list(wire.frames)) if one.source in addresses]


def questions(wire: Wire, address: str) -> list[Tunnelled]:
    octets = bytes(map(int, address.split(".")))
    return [one for one in tunnelled(list(wire.frames)) if one.inner[12:14] == b"\x08\x06" and octets in one.inner]


def neighbours_forgotten(made: World, place: str) -> None:
    subprocess.run(["ip", "-n", made.netns(place), "neighbour", "flush", "all"], check=True, capture_output=True)
