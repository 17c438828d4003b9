"""SecurityProfiles on the vxlan fabric: what the flows do to packets, against what the words of the API say."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from netloom.model.kinds.policy import SecurityProfile
from netloom.openflow import packets
from netloom.openflow.flows import Ct, Flow
from netloom.openflow.packets import Packet
from netloom.openflow.pipeline import Tables, Tracker, run
from netloom.plan.vxlan.fabric import LocalPort, Remote, VxlanPlan
from netloom.plan.vxlan.policy import _prefixes
from tests.plan.test_policy import PORTS, specs, wanted_of
from tests.plan.test_policy import packets as judged
from tests.plan.test_policy import profile as written_as
from tests.plan.vxlan_nodes import VTEP, Nodes, mac, nodes, number, profile

SINK = "02:00:00:00:00:99"
PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132, "gre": 47}
WEB: dict[str, Any] = {"matchLabels": {"app": "web"}}


def one_node(profiles: list[SecurityProfile], here: str) -> VxlanPlan:
    """Return a plan with one of the ports of the words here, the others and a sink elsewhere."""
    plan = VxlanPlan()
    plan.vtep = VTEP
    for one in profiles:
        plan.put_profile(one)
    for name, port in PORTS.items():
        face: dict[str, Any] = {"uid": name, "namespace": "default", "name": name, "vni": 42, "mac": port.mac}
        face |= {"ips": port.ips, "allowed": port.allowed_addresses, "profiles": port.profiles, "labels": port.labels}
        if name == here:
            plan.put_local(LocalPort(ofport=10, **face))
        else:
            plan.put_remote(Remote(host_ip="192.0.2.2", **face), 1)
    sink = Remote(uid="sink", namespace="other", name="sink", vni=42, mac=SINK, ips=("10.7.7.7",), host_ip="192.0.2.3")
    plan.put_remote(sink, 1)
    plan.flush()
    return plan


def packet_of(protocol: str, port: int, src: str, dst: str, dl_src: str, dl_dst: str) -> Packet:
    version = 6 if ":" in src else 4
    ends: dict[str, int] = {"src": number(src), "dst": number(dst), "version": version}
    ends |= {"dl_src": mac(dl_src), "dl_dst": mac(dl_dst), "tun_id": 42}
    if protocol == "icmp":
        return packets.echo(**ends)
    ports = {} if protocol == "gre" else {f"{protocol}_src": 40000, f"{protocol}_dst": port}
    return packets.ip(proto=PROTOCOLS[protocol], **ends, **ports)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys("pq", specs)), st.lists(judged, min_size=1, max_size=6))
def test_packets_and_their_replies_fare_as_the_words_say(
    written: dict[str, Any], sent: list[tuple[str, str, tuple[str, int]]]
) -> None:
    profiles = [written_as(name, spec) for name, spec in written.items()]
    for name, other, (protocol, port) in sent:
        face = PORTS[name]
        tables = Tables(one_node(profiles, name).claims.flows.values())
        own = {ip.partition("/")[0] for ip in (*face.ips, *face.allowed_addresses)} - {other}
        for ip in sorted(ip for ip in own if (":" in ip) == (":" in other)):
            coming = packet_of(protocol, port, other, ip, SINK, face.mac)
            going = packet_of(protocol, port, ip, other, face.mac, SINK)
            for field, packet, by, to in (("ingress", coming, VTEP, 10), ("egress", going, 10, VTEP)):
                tracker = Tracker()
                verdict, _ = wanted_of(profiles, face, field, other, protocol, port)
                got = run(tables, packet, by, tracker=tracker)
                assert [one.port for one in got] == ([to] if verdict in ("", "allow-related") else [])
                answers = [run(tables, packets.reply(packet), to, tracker=tracker) for _ in got]
                assert [[one.port for one in answer] for answer in answers] == [[by]] * len(got)


@given(st.integers(1, 65535), st.integers(1, 65535))
def test_a_range_of_ports_is_written_as_few_masks(one: int, other: int) -> None:
    first, last = sorted((one, other))
    found = list(_prefixes(first, last))
    assert len(found) <= 30
    assert sum(0x10000 - mask for _, mask in found) == last - first + 1
    assert all(value & mask == value and first <= value and value + 0xFFFF - mask <= last for value, mask in found)


# Between nodes.


def world(**web: Any) -> Nodes:
    """Return a server with a profile on one node, clients on both."""
    at = nodes("n1", "n2")
    at.plug("server", "n1", "10.0.0.1", "fd00::1", profiles=("web",))
    at.plug("near", "n1", "10.0.0.2", "fd00::2", labels={"app": "web"})
    at.plug("far", "n2", "10.0.0.3", "fd00::3", labels={"app": "web"})
    at.plug("other", "n2", "10.0.0.4", "fd00::4")
    at.put(profile("web", **web))
    return at


def tcp(at: Nodes, sender: str, receiver: str, port: int = 80, version: int = 4, **more: int) -> Packet:
    mine, yours = at.ports[sender], at.ports[receiver]
    ends = {"src": number(mine.ips[version // 5]), "dst": number(yours.ips[version // 5]), "version": version}
    return packets.tcp(**ends, port=port, dl_src=mac(mine.mac), dl_dst=mac(yours.mac), **more)


CLIENTS: dict[str, Any] = {"ingress": [{"from": [{"selector": WEB}], "ports": [{"protocol": "tcp", "port": 80}]}]}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("client", "port", "passes"), [
    ("near", 80, True), ("far", 80, True), ("other", 80, False), ("near", 81, False), ("far", 81, False),
])  # fmt: skip
def test_who_is_a_member_here_or_elsewhere_gets_in_and_nobody_else(
    client: str, port: int, passes: bool, version: int
) -> None:
    at = world(**CLIENTS)
    got = at.send(client, tcp(at, client, "server", port, version))
    assert got.keys() == ({"server"} if passes else set())
    answers = [at.send("server", packets.reply(one)).keys() for one in got.values()]
    assert answers == [{client}] * len(got)


def test_what_a_port_begins_is_answered_and_what_others_begin_is_not_let_in() -> None:
    at = world(ingress=[])
    got = at.send("server", tcp(at, "server", "other"))
    assert at.send("other", packets.reply(got["other"])).keys() == {"server"}
    assert at.send("other", tcp(at, "other", "server")) == {}


def test_an_error_about_what_passed_passes_and_one_about_nothing_does_not() -> None:
    at = world(ingress=[])
    got = at.send("server", tcp(at, "server", "other"))
    assert at.send("other", packets.unreachable(got["other"])).keys() == {"server"}
    stranger = packets.unreachable(tcp(at, "server", "other", 99))
    assert at.send("other", stranger) == {}


def test_neighbours_find_each_other_whatever_is_forbidden() -> None:
    at = world(ingress=[{"action": "drop"}], egress=[{"action": "drop"}])
    server, other = at.ports["server"], at.ports["other"]
    ends = {"mac": mac(server.mac), "sender": number("10.0.0.1"), "target": number("10.0.0.4")}
    assert at.send("server", packets.arp_request(**ends)).keys() == {"other"}
    answer = {"mac": mac(other.mac), "sender": number("10.0.0.4"), "to_mac": mac(server.mac)}
    assert at.send("other", packets.arp_reply(**answer, target=number("10.0.0.1"))).keys() == {"server"}
    asked = packets.solicitation(mac=mac(other.mac), src=number("fd00::4"), target=number("fd00::1"))
    assert at.send("other", asked).keys() == {"server"}
    told = {"mac": mac(server.mac), "src": number("fd00::1"), "to_mac": mac(other.mac), "dst": number("fd00::4")}
    assert at.send("server", packets.advertisement(**told)).keys() == {"other"}
    assert at.send("other", tcp(at, "other", "server")) == {}
    assert at.send("server", tcp(at, "server", "other")) == {}


def test_what_is_not_ip_is_dropped_whatever_rules_allow() -> None:
    specs: tuple[dict[str, list[object]], ...] = ({"ingress": []}, {"ingress": [{}]}, {"egress": []})
    for spec in specs:
        at = world(**spec)
        ends = {"dl_src": mac(at.ports["other"].mac), "dl_dst": mac(at.ports["server"].mac)}
        assert at.send("other", packets.packet(**ends, dl_type=0x88B5)) == {}


def test_a_connection_that_is_no_longer_allowed_ends_with_its_replies_and_begins_again_when_it_is() -> None:
    at = world(**CLIENTS)
    asked = tcp(at, "far", "server")
    answer = packets.reply(at.send("far", asked)["server"])
    assert at.send("server", answer).keys() == {"far"}
    at.put(profile("web", ingress=[]))
    assert at.send("far", asked) == {}
    assert at.send("server", answer) == {}
    at.put(profile("web", **CLIENTS))
    assert at.send("far", asked).keys() == {"server"}
    assert at.send("server", answer).keys() == {"far"}


def test_a_port_that_names_an_unknown_profile_is_closed_until_there_is_one() -> None:
    at = world(ingress=[{}], egress=[{}])
    at.plug("late", "n1", "10.0.0.5", profiles=("web", "missing"))
    plan = at.nodes["n1"].plan
    request = packets.arp_request(mac=mac(at.ports["near"].mac), sender=number("10.0.0.2"), target=number("10.0.0.5"))
    assert at.send("near", request) == {}
    assert at.send("near", tcp(at, "near", "late")) == {}
    assert at.send("late", tcp(at, "late", "near")) == {}
    assert plan.missing("late") == ("missing",)
    at.put(profile("missing"))
    assert at.send("near", request).keys() == {"late"}
    assert at.send("near", tcp(at, "near", "late")).keys() == {"late"}
    assert plan.missing("late") == ()
    plan.drop_profile("default", "missing")
    assert at.send("near", tcp(at, "near", "late")) == {}


def test_an_unknown_profile_as_the_other_end_is_nobody_until_there_is_one() -> None:
    at = world(ingress=[{"from": [{"profile": "clients"}]}])
    at.plug("member", "n2", "10.0.0.5", profiles=("clients",))
    assert at.send("other", tcp(at, "other", "server")) == {}
    at.put(profile("clients", selector=WEB))
    assert at.send("far", tcp(at, "far", "server")).keys() == {"server"}
    assert at.send("member", tcp(at, "member", "server")).keys() == {"server"}
    assert at.send("other", tcp(at, "other", "server")) == {}
    for node in at.nodes.values():
        node.plan.drop_profile("default", "clients")
    assert at.send("far", tcp(at, "far", "server", source=41000)) == {}


def test_members_are_of_the_same_network_and_namespace() -> None:
    at = world(**CLIENTS)
    at.plug("stranger", "n2", "10.0.0.4", vni=43, labels={"app": "web"})  # The address that `other` has in 42.
    assert at.send("other", tcp(at, "other", "server")) == {}
    at.plug("elsewhere", "n2", "10.0.0.9", namespace="elsewhere", labels={"app": "web"})
    assert at.send("elsewhere", tcp(at, "elsewhere", "server")) == {}


def tracked(at: Nodes, sender: str, packet: Packet) -> bool:
    port = at.ports[sender]
    plan, seen = at.nodes[port.node].plan, list[Flow]()
    plan.flush()
    run(plan.claims.flows.values(), packet, port.ofport, seen=seen)
    return any(isinstance(action, Ct) for flow in seen for action in flow.actions)


def test_only_ports_with_a_list_are_tracked() -> None:
    at = world(**CLIENTS)
    at.plug("plain", "n1", "10.0.0.6", profiles=("nothing",))
    at.put(profile("nothing"))
    assert tracked(at, "near", tcp(at, "near", "server"))
    assert tracked(at, "server", tcp(at, "server", "far"))
    assert not tracked(at, "near", tcp(at, "near", "far"))
    assert not tracked(at, "near", tcp(at, "near", "plain"))
    assert not tracked(at, "plain", tcp(at, "plain", "near"))


def count(ports: int, members: int, rules: int) -> int:
    """Return how many flows come of ports with a profile, of members of a set, and of rules that all name the set."""
    plan = VxlanPlan()
    plan.vtep = VTEP
    one = {"from": [{"selector": WEB}], "ports": [{"protocol": "tcp", "port": 80}]}
    listed = [{**one, "ports": [{"protocol": "tcp", "port": 1 + 2 * position}]} for position in range(rules)]
    plan.put_profile(
        profile("p", ingress=listed, egress=[{"to": rule["from"], "ports": rule["ports"]} for rule in listed])
    )
    face: dict[str, Any] = {"namespace": "default", "vni": 42}
    for position in range(ports):
        ends: dict[str, Any] = {
            "mac": f"02:00:00:00:00:{position:02x}",
            "ips": (f"10.0.0.{position}",),
            "profiles": ("p",),
        }
        plan.put_local(LocalPort(uid=f"p{position}", name=f"p{position}", ofport=10 + position, **face, **ends))
    for position in range(members):
        ends = {"mac": f"02:00:00:01:00:{position:02x}", "ips": (f"10.0.1.{position}",), "labels": {"app": "web"}}
        plan.put_remote(Remote(uid=f"r{position}", name="r", host_ip="192.0.2.2", **face, **ends), 1)
    plan.flush()
    return len(plan.claims.flows)


def test_flows_grow_like_ports_and_members_and_rules_and_not_like_one_times_another() -> None:
    least = count(1, 1, 1)
    more = {"ports": count(11, 1, 1) - least, "members": count(1, 11, 1) - least, "rules": count(1, 1, 11) - least}
    assert count(11, 11, 11) == least + sum(more.values())
    assert more["members"] == 10 * 4


def test_what_the_tracker_knows_of_who_had_a_port_before_lets_nobody_in_to_the_next() -> None:
    at = world(ingress=[])
    at.plug("first", "n1", "10.0.0.9", uid="one", profiles=("web",))
    got = at.send("first", tcp(at, "first", "other"))
    answer = packets.reply(got["other"])
    assert at.send("other", answer).keys() == {"first"}
    for node in at.nodes.values():
        (node.plan.drop_local if node.name == "n1" else node.plan.drop_remote)("one")
    second = structs.replace(at.ports["first"], uid="two")
    at.nodes["n1"].plan.put_local(second)
    assert at.send("other", answer) == {}
    assert at.send("first", tcp(at, "first", "other", 81)).keys() == {"other"}
