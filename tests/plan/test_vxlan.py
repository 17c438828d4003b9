"""The vxlan fabric's flows: what packets do in them, and that what must be depends on nothing but what there is."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from netloom.openflow import packets
from netloom.openflow.packets import Packet
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, LocalPort, Remote, VxlanPlan, base, local, remote
from netloom.plan.vxlan.layout import link_local
from tests.plan.vxlan_nodes import VTEP, Nodes, mac, nodes, number, profile, shaping, vtep

GROUP = 0x333300000001


def world() -> Nodes:
    """Return two nodes with three ports in one Network, and two of the same addresses in another."""
    found = nodes("n1", "n2")
    found.plug("a", "n1", "10.0.0.1", "fd00::1")
    found.plug("b", "n1", "10.0.0.2", "fd00::2")
    found.plug("c", "n2", "10.0.0.3", "fd00::3")
    found.plug("a2", "n1", "10.0.0.1", "fd00::1", vni=43)
    found.plug("c2", "n2", "10.0.0.3", "fd00::3", vni=43)
    return found


def ping(at: Nodes, sender: str, receiver: str, version: int = 4, **more: int) -> Packet:
    """Return a ping from one to another, with his MAC."""
    mine, yours = at.ports[sender], at.ports[receiver]
    given = {"dl_src": mac(mine.mac), "dl_dst": mac(yours.mac), **more}
    ends = {"src": number(mine.ips[version // 5]), "dst": number(yours.ips[version // 5])}
    return packets.echo(**{**ends, "version": version, **given})


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("receiver", ["b", "c"])
def test_a_ping_and_its_answer_arrive_here_and_elsewhere(receiver: str, version: int) -> None:
    at = world()
    got = at.send("a", ping(at, "a", receiver, version))
    assert got.keys() == {receiver}
    assert at.send(receiver, packets.reply(got[receiver])).keys() == {"a"}


def test_a_packet_for_another_node_is_sent_to_it_alone_with_its_vni() -> None:
    at = world()
    at.send("a", ping(at, "a", "c"))
    ((node, sent),) = at.log
    assert (node, sent.port) == ("n1", VTEP)
    assert (sent.packet["tun_id"], sent.packet["tun_dst"]) == (42, number("192.0.2.2"))


def test_an_underlay_of_ipv6_is_spoken_to_by_its_field() -> None:
    face = {"uid": "c", "namespace": "default", "name": "c", "vni": 42, "mac": "02:00:00:00:00:03"}
    flows = remote(Remote(ips=("10.0.0.3",), host_ip="2001:db8::2", **face), VTEP)  # type: ignore[arg-type]
    assert {str(flow).partition("actions=")[2] for flow in flows} == {"set_field:2001:db8::2->tun_ipv6_dst,output:1"}


@pytest.mark.parametrize(("asked", "receiver"), [("10.0.0.2", "b"), ("10.0.0.3", "c")])
def test_an_arp_request_goes_to_whom_it_asks_for_and_nobody_else(asked: str, receiver: str) -> None:
    at = world()
    request = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number(asked))
    assert at.send("a", request).keys() == {receiver}
    yours = at.ports[receiver]
    answer = packets.arp_reply(
        mac=mac(yours.mac), sender=number(asked), to_mac=mac(at.ports["a"].mac), target=number("10.0.0.1")
    )
    assert at.send(receiver, answer).keys() == {"a"}


@pytest.mark.parametrize("receiver", ["b", "c"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_neighbour_solicitation_goes_to_whom_it_asks_for_and_nobody_else(receiver: str, linked: bool) -> None:
    at = world()
    mine, yours = at.ports["a"], at.ports[receiver]
    src, target = (
        (link_local(mac(mine.mac)), link_local(mac(yours.mac)))
        if linked
        else (number(mine.ips[1]), number(yours.ips[1]))
    )
    assert at.send("a", packets.solicitation(mac=mac(mine.mac), src=src, target=target)).keys() == {receiver}
    answer = packets.advertisement(mac=mac(yours.mac), src=target, to_mac=mac(mine.mac), dst=src)
    assert at.send(receiver, answer).keys() == {"a"}


def flooding(at: Nodes) -> list[Packet]:
    one = at.ports["a"]
    own = mac(one.mac)
    return [
        packets.arp_request(mac=own, sender=number("10.0.0.1"), target=number("10.0.0.77")),
        packets.arp_request(mac=own, sender=number("10.0.0.1"), target=number("10.0.0.1")),
        packets.arp_reply(mac=own, sender=number("10.0.0.1"), to_mac=packets.BROADCAST, target=number("10.0.0.2")),
        packets.solicitation(mac=own, src=number("fd00::1"), target=number("fd00::77")),
        packets.advertisement(mac=own, src=number("fd00::1"), to_mac=GROUP, dst=number("ff02::1")),
        packets.echo(src=number("10.0.0.1"), dst=number("10.0.0.255"), dl_src=own, dl_dst=packets.BROADCAST),
        packets.echo(src=number("10.0.0.1"), dst=number("224.0.0.1"), dl_src=own, dl_dst=0x01005E000001),
        packets.echo(src=number("10.0.0.1"), dst=number("10.0.0.77"), dl_src=own, dl_dst=0x020000000077),
        packets.packet(dl_src=own, dl_dst=packets.BROADCAST, dl_type=0x88B5),
        packets.ip(src=0, dst=0xFFFFFFFF, proto=17, udp_src=68, udp_dst=67, dl_src=own, dl_dst=packets.BROADCAST),
    ]


@pytest.mark.parametrize("position", range(10))
def test_nothing_is_flooded_and_what_is_for_nobody_goes_nowhere(position: int) -> None:
    at = world()
    assert at.send("a", flooding(at)[position]) == {}
    assert at.log == []


def spoofed(at: Nodes) -> list[Packet]:
    own, other, to = (mac(at.ports[name].mac) for name in "abc")
    a, b, c, a6, b6, c6 = map(number, ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "fd00::3"))
    return [
        packets.echo(src=a, dst=c, dl_src=other, dl_dst=to),
        packets.echo(src=b, dst=c, dl_src=own, dl_dst=to),
        packets.echo(src=0, dst=c, dl_src=own, dl_dst=to),
        packets.echo(src=b6, dst=c6, version=6, dl_src=own, dl_dst=to),
        packets.echo(src=0, dst=c6, version=6, dl_src=own, dl_dst=to),
        packets.echo(src=link_local(other), dst=c6, version=6, dl_src=own, dl_dst=to),
        packets.arp_request(mac=own, sender=b, target=c),
        packets.arp_request(mac=own, sender=0, target=c),
        packets.arp_request(mac=own, sender=a, target=c, arp_sha=other),
        packets.arp_reply(mac=own, sender=b, to_mac=to, target=c),
        packets.arp_reply(mac=own, sender=a, to_mac=to, target=c, arp_sha=other),
        packets.solicitation(mac=own, src=b6, target=c6),
        packets.solicitation(mac=own, src=a6, target=c6, nd_sll=other),
        packets.solicitation(mac=own, src=0, target=c6, nd_sll=other),
        packets.advertisement(mac=own, src=a6, to_mac=to, dst=c6, nd_target=b6),
        packets.advertisement(mac=own, src=a6, to_mac=to, dst=c6, nd_tll=other),
        packets.advertisement(mac=own, src=a6, to_mac=to, dst=c6, icmpv6_code=1),
        packets.packet(dl_src=other, dl_dst=to, dl_type=0x88B5),
    ]


@pytest.mark.parametrize("position", range(18))
def test_who_pretends_to_be_another_is_not_heard(position: int) -> None:
    at = world()
    assert at.send("a", spoofed(at)[position]) == {}
    assert at.log == []


def test_a_port_may_ask_whether_an_address_is_free_and_use_those_it_is_allowed() -> None:
    at = nodes("n1")
    a = at.plug("a", "n1", "10.0.0.1", "fd00::1", allowed=("10.0.0.100",))
    at.plug("b", "n1", "10.0.0.2", "fd00::2")
    own, to = mac(a.mac), mac(at.ports["b"].mac)
    assert at.send("a", packets.solicitation(mac=own, src=0, target=number("fd00::2"))).keys() == {"b"}
    out = packets.echo(src=number("10.0.0.100"), dst=number("10.0.0.2"), dl_src=own, dl_dst=to)
    assert at.send("a", out).keys() == {"b"}
    assert at.send("b", packets.reply(out)).keys() == {"a"}


def test_a_port_without_addresses_of_a_family_speaks_nothing_of_it() -> None:
    at = nodes("n1")
    a = at.plug("a", "n1", "10.0.0.1")
    b = at.plug("b", "n1", "10.0.0.2", "fd00::2")
    ends = {"dl_src": mac(a.mac), "dl_dst": mac(b.mac)}
    here = {"src": link_local(mac(a.mac)), "dst": number("fd00::2")}
    assert at.send("a", packets.echo(version=6, **here, **ends)) == {}
    assert at.send("a", packets.solicitation(mac=mac(a.mac), src=here["src"], target=here["dst"])) == {}
    back = packets.echo(version=6, src=number("fd00::2"), dst=here["src"], dl_src=ends["dl_dst"], dl_dst=ends["dl_src"])
    assert at.send("b", back) == {}


def test_a_port_gets_only_what_is_for_its_own_addresses() -> None:
    at = world()
    assert at.send("a", ping(at, "a", "c", dst=number("10.0.0.77"))) == {}
    assert at.send("a", ping(at, "a", "c", 6, dst=number("fd00::77"))) == {}


def test_what_is_neither_ip_nor_arp_goes_nowhere() -> None:
    at = world()
    frame = packets.packet(dl_src=mac(at.ports["a"].mac), dl_dst=mac(at.ports["c"].mac), dl_type=0x88B5)
    assert at.send("a", frame) == {}


@pytest.mark.parametrize("tag", [0x1000, 0x1007, 0x1FFF])
def test_what_has_a_vlans_tag_goes_nowhere_from_a_port_and_from_the_tunnel(tag: int) -> None:
    at = world()
    assert at.send("a", ping(at, "a", "b")).keys() == {"b"}
    assert at.send("a", ping(at, "a", "b", vlan_vid=tag)) == {}
    assert at.send("a", ping(at, "a", "c", 6, vlan_vid=tag)) == {}
    through = ping(at, "c", "a", tun_id=42, tun_src=number("192.0.2.2"))
    assert at.step(at.nodes["n1"], through, VTEP) != []
    assert at.step(at.nodes["n1"], through.having(vlan_vid=tag), VTEP) == []


def test_equal_addresses_of_two_networks_never_meet() -> None:
    at = world()
    request = packets.arp_request(mac=mac(at.ports["a2"].mac), sender=number("10.0.0.1"), target=number("10.0.0.3"))
    assert at.send("a2", request).keys() == {"c2"}
    none = packets.arp_request(mac=mac(at.ports["a2"].mac), sender=number("10.0.0.1"), target=number("10.0.0.2"))
    assert at.send("a2", none) == {}
    assert at.send("a2", ping(at, "a2", "c2")).keys() == {"c2"}
    assert at.send("a2", ping(at, "a2", "b")) == {}
    assert at.send("a2", ping(at, "a2", "c")) == {}


def test_what_came_from_the_tunnel_does_not_go_back_to_it_whatever_it_is_for() -> None:
    at = world()
    node = at.nodes["n1"]
    for packet in (
        ping(at, "a", "c"),
        packets.arp_request(mac=1, sender=number("10.0.0.1"), target=number("10.0.0.3")),
        packets.solicitation(mac=1, src=number("fd00::1"), target=number("fd00::3")),
    ):
        assert at.step(node, packet.having(tun_id=42, tun_src=number("192.0.2.2")), VTEP) == []


def test_what_comes_from_the_tunnel_with_a_vni_that_is_not_here_goes_nowhere() -> None:
    at = world()
    for vni in (0, 44, 1 << 24):
        assert at.step(at.nodes["n1"], ping(at, "c", "a").having(tun_id=vni), VTEP) == []


def test_what_comes_in_by_a_port_nobody_knows_goes_nowhere() -> None:
    at = world()
    assert at.step(at.nodes["n1"], ping(at, "a", "b"), 99) == []


def test_an_address_that_several_may_use_is_asked_of_each_once() -> None:
    at = nodes("n1", "n2", "n3")
    at.plug("a", "n1", "10.0.0.1")
    for name, where in (("b", "n1"), ("c", "n2"), ("d", "n2"), ("e", "n3")):
        at.plug(name, where, f"10.0.0.{ord(name)}", allowed=("10.0.0.100",))
    request = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number("10.0.0.100"))
    assert at.send("a", request).keys() == {"b", "c", "d", "e"}
    assert len(at.log) == 2
    for node in at.nodes.values():
        (node.plan.drop_local if node.name == "n1" else node.plan.drop_remote)("b")
        (node.plan.drop_local if node.name == "n3" else node.plan.drop_remote)("e")
    del at.ports["b"]
    assert at.send("a", request).keys() == {"c", "d"}
    for node in at.nodes.values():
        for name in "cd":
            (node.plan.drop_local if node.name == "n2" else node.plan.drop_remote)(name)
    assert at.send("a", request) == {}


def test_one_whose_own_an_address_is_is_asked_with_those_who_are_allowed_it() -> None:
    at = nodes("n1", "n2")
    at.plug("a", "n1", "10.0.0.1")
    at.plug("b", "n1", "10.0.0.100")
    at.plug("c", "n2", "10.0.0.3", allowed=("10.0.0.100",))
    request = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number("10.0.0.100"))
    assert at.send("a", request).keys() == {"b", "c"}


# What must be depends on what there is.

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


def _local(uid: str, more: dict[str, Any]) -> Callable[[VxlanPlan], None]:
    port = LocalPort(uid=uid, namespace="default", name=uid, ofport=ord(uid), node="here", **more)
    return lambda plan: plan.put_local(port, ord(uid))


def _remote(uid: str, host: str, more: dict[str, Any]) -> Callable[[VxlanPlan], None]:
    one = Remote(uid=uid, namespace="default", name=uid, host_ip=host, node=host, **more)
    return lambda plan: plan.put_remote(one, ord(uid))


faces = st.fixed_dictionaries(
    {
        "vni": st.sampled_from([42, 42, 43]),
        "mac": st.sampled_from(MACS),
        "ips": st.sampled_from([("10.0.0.1",), ("10.0.0.2", "fd00::2"), ("10.0.0.3",)]),
        "network": st.just("blue"),
    },
    optional={
        "allowed": st.sampled_from([("10.0.0.1",), ("10.0.0.100",)]),
        "profiles": st.sampled_from([("p",), ("q",), ("p", "q")]),
        "labels": st.sampled_from([{"app": "web"}, {"app": "lb"}]),
    },
)
WEB: dict[str, Any] = {"matchLabels": {"app": "web"}}
TCP = [{"protocol": "tcp", "port": 80}]
SPECS: list[dict[str, Any]] = [
    {},
    {"ingress": []},
    {"ingress": [{"from": [{"profile": "q"}]}], "egress": []},
    {"selector": WEB, "egress": [{"to": [{"selector": WEB}, {"profile": "p"}], "ports": TCP}]},
    {"ingress": [{"from": [{"selector": WEB}], "action": "drop"}, {"from": [{"cidr": "10.0.0.0/24"}], "ports": TCP}]},
]
SHAPES: list[dict[str, Any]] = [
    {"from": {"network": "blue"}, "rate": "10mbit"},
    {"from": {"selector": WEB}, "to": {"selector": WEB}, "rate": "10mbit"},
    {"from": {"node": "here"}, "to": {"attachment": "x"}, "rate": "1mbit", "direction": "forward"},
    {"from": {"attachment": "a"}, "to": {"network": "blue"}, "rate": "5mbit"},
]
Step = tuple[str, Callable[[VxlanPlan], None]]


def _vtep(number: int | None) -> Step:
    return "vtep", lambda plan: setattr(plan, "vtep", number)


steps = st.one_of(
    st.builds(lambda uid, more: (f"local/{uid}", _local(uid, more)), st.sampled_from("abc"), faces),
    st.builds(lambda uid: (f"local/{uid}", lambda plan: plan.drop_local(uid)), st.sampled_from("abc")),
    st.builds(
        lambda uid, host, more: (f"remote/{uid}", _remote(uid, host, more)),
        st.sampled_from("xyz"),
        st.sampled_from(["192.0.2.1", "192.0.2.2"]),
        faces,
    ),
    st.builds(lambda uid: (f"remote/{uid}", lambda plan: plan.drop_remote(uid)), st.sampled_from("xyz")),
    st.builds(
        lambda name, spec: (f"profile/{name}", lambda plan: plan.put_profile(profile(name, **spec))),
        st.sampled_from("pq"),
        st.sampled_from(SPECS),
    ),
    st.builds(lambda name: (f"profile/{name}", lambda plan: plan.drop_profile("default", name)), st.sampled_from("pq")),
    st.builds(
        lambda name, spec: (f"shaping/{name}", lambda plan: plan.put_shaping(shaping(name, **spec))),
        st.sampled_from("st"),
        st.sampled_from(SHAPES),
    ),
    st.builds(lambda name: (f"shaping/{name}", lambda plan: plan.drop_shaping("default", name)), st.sampled_from("st")),
    st.builds(
        lambda name, address, macs, more: (
            f"vtep/{name}",
            lambda plan: plan.put_vtep(vtep(name, address, macs, **more)),
        ),
        st.sampled_from("vw"),
        st.sampled_from(["198.51.100.1", "198.51.100.2"]),
        st.dictionaries(
            st.sampled_from([*MACS, "02:00:00:00:00:03"]),
            st.sampled_from([(), ("10.0.0.1",), ("10.0.0.2", "fd00::2"), ("10.0.0.100",)]),
        ),
        st.fixed_dictionaries(
            {},
            optional={"vni": st.just(77), "local_vni": st.sampled_from([42, 43]), "flood": st.booleans()},
        ),
    ),
    st.builds(lambda name: (f"vtep/{name}", lambda plan: plan.drop_vtep("default", name)), st.sampled_from("vw")),
    st.builds(_vtep, st.sampled_from([1, 2, None])),
)
KNOWN = _vtep(1)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=25), st.randoms(use_true_random=False))
def test_a_change_at_a_time_comes_to_what_everything_at_once_does_in_any_order(
    made: list[tuple[Step, bool]], random: Any
) -> None:
    plan, seen, metered = VxlanPlan(), dict[object, object](), dict[int, object]()
    last: dict[str, Callable[[VxlanPlan], None]] = {}
    for (subject, step), flushed in [*made, (KNOWN, True)]:
        step(plan)
        last[subject] = step
        if random.random() < 0.5:
            for _ in plan.slices():
                if random.random() < 0.3:
                    break
        if flushed:
            delta = plan.flush()
            for one in delta.drops:
                del seen[one.key]
            seen.update({one.key: one for one in delta.puts})
            metered = {**metered, **delta.meters}
            metered = {number: spec for number, spec in metered.items() if spec is not None}
            assert seen == plan.claims.flows
            assert metered == plan.claims.meters
    order = list(last.values()) * 2
    random.shuffle(order)
    fresh = VxlanPlan()
    for step in order:
        step(fresh)
    fresh.flush()
    assert fresh.claims.flows == plan.claims.flows
    assert fresh.claims.meters == plan.claims.meters
    assert not plan.flush()


def test_all_that_goes_leaves_nothing_behind() -> None:
    at = world()
    far = vtep("v", "198.51.100.1", {"02:00:00:00:01:01": ("10.0.0.9", "fd00::9"), "02:00:00:00:01:02": ()})
    at.put(profile("p", **SPECS[3]), shaping("s", **SHAPES[1]), far)
    plan = at.nodes["n1"].plan
    plan.flush()
    for name, port in at.ports.items():
        (plan.drop_local if port.node == "n1" else plan.drop_remote)(name)
    plan.drop_profile("default", "p")
    plan.drop_shaping("default", "s")
    plan.drop_vtep("default", "v")
    plan.flush()
    assert set(plan.claims.flows.values()) == set(base(VTEP))
    plan.vtep = None
    plan.flush()
    assert not plan.claims.flows


def test_one_remote_among_many_costs_its_own_flows() -> None:
    plan = VxlanPlan()
    plan.vtep = VTEP
    plan.put_profile(profile("p", ingress=[{"from": [{"selector": WEB}], "ports": TCP}]))
    face: dict[str, Any] = {"namespace": "default", "vni": 42, "labels": {"app": "web"}}
    plan.put_local(
        LocalPort(uid="a", name="a", ofport=9, mac=MACS[0], ips=("10.0.0.1",), **{**face, "profiles": ("p",)})
    )
    for position in range(200):
        found = {**face, "mac": f"02:00:00:01:00:{position:02x}", "ips": (f"10.0.1.{position}",)}
        plan.put_remote(Remote(uid=f"r{position}", name="r", host_ip="192.0.2.2", **found), 1)
    plan.flush()
    flows = len(plan.claims.flows)
    one = Remote(uid="one", name="one", host_ip="192.0.2.3", **face, mac=MACS[1], ips=("10.0.0.2",))
    plan.put_remote(one, 1)
    came = plan.flush()
    assert (len(came.puts), came.drops) == (4, ())  # Its MAC, its address when asked for, and its class, either way.
    plan.put_remote(structs.replace(one, host_ip="192.0.2.2"), 2)
    moved = plan.flush()
    assert (len(moved.puts), moved.drops) == (2, ())
    plan.drop_remote("one")
    assert len(plan.flush().drops) == 4
    assert len(plan.claims.flows) == flows


def test_all_flows_are_known_by_their_cookie() -> None:
    at = world()
    at.put(profile("p", selector={}, ingress=[{"from": [{"selector": {}}], "ports": TCP}]))
    for node in at.nodes.values():
        node.plan.flush()
        assert {flow.cookie & COOKIE_MASK for flow in node.plan.claims.flows.values()} == {COOKIE}


def test_a_port_has_few_flows_and_a_remote_fewer() -> None:
    at = world()
    assert len(local(at.ports["a"])) == 25
    face = structs.asdict(at.ports["a"])
    del face["ofport"]
    assert len(remote(Remote(host_ip="192.0.2.1", **face), VTEP)) == 4
