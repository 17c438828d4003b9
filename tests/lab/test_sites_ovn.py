"""A Network of fabric ovn and two other sites, each a kernel VTEP with a bridge: packets, rows, and what remains.

The test has the control socket of n1's speakers, so that no speaker runs there, and writes the objects itself.
"""

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from netloom.control.evpn.live import SOCKET
from netloom.lab import Lab
from netloom.lab.wiring import run
from netloom.model.registry import BGP_SPEAKER, EVPN_NETWORK
from tests.lab.capturing import Wire, capturing, send
from tests.lab.labs import killed_comes_back, running
from tests.lab.test_sites import Site, neighbours_forgotten, status
from tests.lab.vxlan_wire import BROADCAST, Tunnelled, arp, mac, tunnelled, udp
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

VNI, THERE = 7012, 9012
"""The VNI of packets to this site, and to the others."""
A, B = "10.72.0.11", "10.72.0.12"
EAST = Site("east", "172.31.203.1", "02:00:00:72:01:01", "10.72.0.101", "fd00:72::101")
WEST = Site("west", "172.31.204.1", "02:00:00:72:02:01", "10.72.0.102", "fd00:72::102")
SITES = (EAST, WEST)


@contextmanager
def no_speaker(lab: Lab, node: str) -> Iterator[None]:
    """Keep the agent of a node from running speakers."""
    with (lab.layout.node(node) / SOCKET).with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.fixture(scope="module")
def sites() -> Iterator[World]:
    """A Network with a on n1, which is the VTEP, and b on n2; and two sites of which it does not know yet.

    The lab is its own: an agent that has the control socket keeps it.
    """
    with running(nodes=2) as lab, no_speaker(lab, "n1"), world(lab, "default") as made:
        for site in SITES:
            build(made, site)
        yield made


@pytest.fixture
def reached(sites: World) -> Iterator[World]:
    """The same, when both sites are known."""
    for site in SITES:
        learn(sites, site)
    ways = [(who, site.ip, "ping") for who in "ab" for site in SITES]
    assert all(sites.reaches(ways).values())
    yield sites
    sites.delete(*(f"remotevtep/{name(site)}" for site in SITES))


def name(site: Site, number: int = 0) -> str:
    """Return the name of an object of a site."""
    return f"main.{site.address.replace('.', '-')}.{THERE}.{number}"


def port(site: Site) -> str:
    """Return the name of a site's port."""
    return f"vxlan_{site.address}_{THERE}"


def build(made: World, site: Site) -> None:
    """Make a site: a cable to the underlay, a bridge, and two VXLAN devices: one sends to n1, one receives from it."""
    lab = made.lab
    lab.workload(f"{made.name}-{site.name}")
    there, underlay = made.netns(site.name), lab.netns("underlay")
    run(["ip", "-n", underlay, "link", "add", site.name, "type", "veth", "peer", "name", "uplink", "netns", there])
    run(["ip", "-n", underlay, "link", "set", site.name, "master", "underlay", "addrgenmode", "none", "up"])
    for netns, device in ((underlay, site.name), (there, "uplink")):
        run(["ip", "netns", "exec", netns, "ethtool", "-K", device, "tx", "off"])
    tunnel = f"local {site.address} remote {lab.underlay_ip('n1')} dstport 4789 nolearning"
    for words in (
        f"address add {site.address}/16 dev uplink",
        "link set uplink up",
        f"link add br0 address {site.mac} mtu 1400 type bridge forward_delay 0 mcast_snooping 0",
        f"link add vx0 mtu 1400 type vxlan id {VNI} {tunnel}",
        f"link add vx1 mtu 1400 type vxlan id {THERE} {tunnel}",
        "link set vx0 master br0 up",
        "link set vx1 master br0 up",
        "link set vx1 type bridge_slave flood off mcast_flood off bcast_flood off learning off isolated on",
        "link set vx0 type bridge_slave isolated on",
        "link set br0 up",
        f"address add {site.ip}/24 dev br0",
        f"address add {site.ip6}/64 dev br0 nodad",
    ):
        run(["ip", "-n", there, *words.split()])
    run(["ip", "netns", "exec", there, "ethtool", "-K", "br0", "tx", "off"])


def learn(made: World, site: Site, number: int = 0, **more: Any) -> None:
    """Write a RemoteVTEP of a site, as the speaker does; and that the speaker lives, and forwards."""
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status(made, BGP_SPEAKER, {"lastHeartbeat": later})
    status(made, EVPN_NETWORK, {"vni": VNI, "forwarding": True, "node": "n1"})
    spec = {"evpnNetwork": "main", "network": "wide", "node": "n1", "address": site.address, "vni": THERE}
    machines = [] if number else [{"mac": site.mac, "ips": [site.ip, site.ip6]}]
    owner = {"apiVersion": EVPN_NETWORK.api_version, "kind": "EVPNNetwork", "name": "main"}
    owners = [{**owner, "uid": made.get("evpnnetwork", "main")["metadata"]["uid"]}]
    whole = {**spec, "localVNI": VNI, "localAddress": "172.31.0.1", "flood": True, "macs": machines, **more}
    made.put("RemoteVTEP", name(site, number), whole, ownerReferences=owners)


def test_machines_of_two_sites_and_of_this_one_reach_each_other(reached: World) -> None:
    ways = [(who, there, "ping") for who in "ab" for site in SITES for there in (site.ip, site.ip6)]
    ways += [(site.name, here, "ping") for site in SITES for here in (A, B, "fd00:72::11", "fd00:72::12")]
    assert {way for way, answer in reached.reaches(ways).items() if not answer} == set()
    reached.listen("east", 80)
    reached.listen("b", 80)
    assert reached.answers("b", EAST.ip, 80).split() == ["east", B]
    assert reached.answers("east", B, 80).split() == ["b", EAST.ip]


def test_ovn_answers_for_machines_of_other_sites_itself(reached: World) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(capturing(reached.netns(site.name), "uplink")) for site in SITES]
        neighbours_forgotten(reached, "b")
        assert reached.ping("b", EAST.ip)
        assert reached.ping("b", EAST.ip6)
        wait_until(lambda: len(arrived(wires[0])) >= 2, what="the pings")
    inner = [one.inner for wire in wires for one in arrived(wire)]
    asked = [one for one in inner if socket.inet_aton(EAST.ip) in one and one[12:14] == b"\x08\x06"]
    asked += [one for one in inner if socket.inet_pton(socket.AF_INET6, EAST.ip6) in one and one[:2] == b"\x33\x33"]
    assert asked == []


def test_a_broadcast_goes_once_to_each_site(reached: World) -> None:
    mine = str(reached.get("networkattachment", "b")["status"]["mac"])
    frames = [
        arp(mine, (mine, B), "10.72.0.99"),
        udp((mine, B), (BROADCAST, "10.72.0.255"), b"to all"),
        solicitation(mine, "fd00:72::12", "fd00:72::99"),
    ]
    with ExitStack() as stack:
        wires = {site: stack.enter_context(capturing(reached.netns(site.name), "uplink")) for site in SITES}
        for frame in frames:
            send(reached.netns("b"), "eth0", frame)
        unknown = udp((mine, B), ("02:00:00:00:77:77", "10.72.0.99"), b"to nobody")
        send(reached.netns("b"), "eth0", unknown)
        for site in SITES:  # A ping takes the same way, behind them.
            assert reached.ping("b", site.ip)
        wait_until(lambda: all(len(arrived(wire)) > len(frames) for wire in wires.values()), what="the broadcasts")
    for wire in wires.values():
        inner = [one.inner for one in arrived(wire)]
        assert [inner.count(frame) for frame in frames] == [1] * len(frames)
        assert unknown not in inner
        assert {one.vni for one in arrived(wire)} == {THERE}


@pytest.mark.parametrize("is_stateful", [False, True], ids=["no profile", "a profile"])
def test_nothing_of_one_site_goes_to_the_other(reached: World, is_stateful: bool) -> None:
    sender = EAST.mac, EAST.ip
    frames = [udp(sender, (BROADCAST, "10.72.0.255"), b"to all"), arp(EAST.mac, sender, "10.72.0.99")]
    hairpin = [udp(sender, (WEST.mac, WEST.ip), b"to one"), arp(EAST.mac, sender, WEST.ip, to=WEST.mac)]
    forged = udp((WEST.mac, WEST.ip), (BROADCAST, "10.72.0.255"), b"from another")
    with ExitStack() as stack:
        if is_stateful:
            allowed = {"from": [{"cidr": "10.72.0.0/24"}, {"cidr": "fd00:72::/64"}]}
            reached.put("SecurityProfile", "web", {"selector": {"matchLabels": {"app": "web"}}, "ingress": [allowed]})
            stack.callback(reached.delete, "securityprofile/web")
            reached.becomes("securityprofile", "web", "True", "Programmed")
        west = stack.enter_context(capturing(reached.netns("west"), "uplink"))
        ports = [stack.enter_context(capturing(reached.netns(place), "eth0")) for place in "ab"]
        for frame in (*frames, *hairpin, forged):
            send(reached.netns("east"), "vx0", frame)
        for address in (A, B):
            assert reached.answers("east", address, "ping")
        for wire in ports:
            wire.wait(lambda frame: frame.data == frames[0], what="a broadcast")
    for wire in ports:
        got = [frame.data for frame in wire.frames]
        assert [got.count(frame) for frame in frames] == [1, 1]
        assert not {forged, *hairpin} & set(got)
    # No ACL of OVN applies to neighbour discovery: such a multicast reaches the other site, and ends there.
    others = [one.inner for one in arrived(west) if one.inner[:2] != b"\x33\x33"]
    assert [one for one in others if one[6:12] in (mac(EAST.mac), mac(WEST.mac))] == []


def test_the_acl_tracks_no_connections(reached: World) -> None:
    flows = reached.lab.exec("central", ["ovn-sbctl", "lflow-list", "default/wide"]).stdout.splitlines()
    assert [line for line in flows if "flags.loopback == 0" in line and "drop" in line]
    assert [line for line in flows if "_pre_acl" in line]
    assert not [line for line in flows if "_pre_acl" in line and "reg0[0] = 1" in line]  # It asks for tracking.


def test_a_machine_that_comes_is_an_address_more(reached: World) -> None:
    lab = reached.lab
    learn(reached, EAST, 1, macs=[{"mac": "02:00:00:72:01:02", "ips": ["10.72.0.111"]}])
    wait_until(lambda: "10.72.0.111" in addresses(lab, EAST), what="the address")
    assert EAST.ip in addresses(lab, EAST)
    reached.delete(f"remotevtep/{name(EAST, 1)}")
    wait_until(lambda: "10.72.0.111" not in addresses(lab, EAST), what="the address to go")
    assert reached.ping("b", EAST.ip)


def test_a_machine_that_is_attached_here_is_not_elsewhere(reached: World) -> None:
    own = reached.get("networkattachment", "b")["status"]["mac"]
    learn(reached, WEST, macs=[{"mac": own, "ips": [B]}, {"mac": WEST.mac, "ips": [WEST.ip, "10.72.0.11"]}])
    wait_until(lambda: WEST.ip6 not in addresses(reached.lab, WEST), what="the new addresses")
    assert own not in addresses(reached.lab, WEST)
    assert A not in addresses(reached.lab, WEST).replace(WEST.ip, "")
    assert all(reached.reaches([("a", B, "ping"), ("east", B, "ping"), ("b", WEST.ip, "ping")]).values())


def test_an_agent_that_is_killed_changes_nothing_and_all_goes_with_the_objects(sites: World) -> None:
    lab = sites.lab
    before, rows = interfaces(lab), northbound(lab)
    learn(sites, WEST, node="n2")  # The speaker is not there.
    learn(sites, EAST)
    assert all(sites.reaches([("a", EAST.ip, "ping"), ("b", EAST.ip6, "ping")]).values())
    assert interfaces(lab) == {**before, "n1": before["n1"] | {port(EAST)}}
    wait_until(lambda: EAST.address in lab.exec("n1", ["ovs-appctl", "tnl/neigh/show"]).stdout, what="the next hop")
    killed_comes_back(lab, "agent-n1")
    assert sites.answers("b", EAST.ip, "ping")
    sites.cli("delete", "--ignore-not-found", f"remotevtep/{name(EAST)}", f"remotevtep/{name(WEST)}")
    wait_until(lambda: interfaces(lab) == before, what="the port to go", timeout=120)
    wait_until(lambda: northbound(lab) == rows, what="the rows to go", timeout=120)


def addresses(lab: Lab, site: Site) -> str:
    """Return the addresses of a site's logical port."""
    return lab.exec(
        "central", ["ovn-nbctl", "--if-exists", "get", "Logical_Switch_Port", port(site), "addresses"]
    ).stdout


def interfaces(lab: Lab) -> dict[str, set[str]]:
    """Return the ports on OVN's bridge of each node."""
    return {node: set(lab.exec(node, ["ovs-vsctl", "list-ports", "br-int"]).stdout.split()) for node in ("n1", "n2")}


def northbound(lab: Lab) -> list[str]:
    """Return the ports of the switch, and the ACLs."""
    shown = lab.exec("central", ["ovn-nbctl", "lsp-list", "default/wide"]).stdout
    acls = lab.exec("central", ["ovn-nbctl", "--bare", "--columns=match", "list", "ACL"]).stdout
    return sorted([*shown.splitlines(), *(line for line in acls.splitlines() if "vxlan_" in line)])


def arrived(wire: Wire) -> list[Tunnelled]:
    """Return what this site sent to another."""
    return [one for one in tunnelled(list(wire.frames)) if one.source == "172.31.0.1"]


def solicitation(sender: str, source: str, target: str) -> bytes:
    """Return a neighbour solicitation."""
    wanted = socket.inet_pton(socket.AF_INET6, target)
    ends = socket.inet_pton(socket.AF_INET6, source) + bytes.fromhex("ff0200000000000000000001ff") + wanted[-3:]
    body = struct.pack("!BBHI", 135, 0, 0, 0) + wanted + b"\x01\x01" + mac(sender)
    words = ends + struct.pack("!II", len(body), 58) + body
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    total = (total & 0xFFFF) + (total >> 16)
    body = body[:2] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
    return b"\x33\x33\xff" + wanted[-3:] + mac(sender) + b"\x86\xdd" + head + ends + body
