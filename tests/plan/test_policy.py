"""SecurityProfiles: what the rows do to packets, against what the words of the API say."""

from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.model.kinds.policy import Action, EgressRule, IngressRule, Peer, SecurityProfile, Tier
from netloom.plan.ovn.planner import Planner
from netloom.plan.policy.port_groups import covered, group, memberships
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Ref
from netloom.plan.world.selector_matches import selector_in
from netloom.plan.world.world import Port
from tests.plan.acls import Packet, Reader
from tests.plan.planning import planned, resources

NETWORK = "{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 4096}}"
SUBNET = """
kind: Subnet
metadata: {name: s}
spec: {network: blue, cidr: 10.0.0.0/24, dhcp: {}}
status: {validated: true}
"""
PORTS = {
    "a": Port("default", "a", "n1", "blue", ("10.0.0.1/24", "fd00::1/64"), "02:00:00:00:00:01", 4096, {"app": "web"}),
    "b": Port(
        "default", "b", "n1", "blue", ("10.0.0.2/24",), "02:00:00:00:00:02", 4096, {"app": "lb", "x": ""}, ("p",)
    ),
    "c": Port("default", "c", "n2", "blue", ("fd00::3/64",), "02:00:00:00:00:03", 4096, {}, ("p", "q"), ("10.0.0.9",)),
}
SELECTORS: list[Any] = [
    {},
    {"matchLabels": {"app": "web"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "lb"]}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
]
peers = st.one_of(
    st.sampled_from(SELECTORS).map(lambda one: {"selector": one}),
    st.sampled_from(["p", "q", "gone"]).map(lambda one: {"profile": one}),
    st.sampled_from(
        [
            {"cidr": "0.0.0.0/0"},
            {"cidr": "::/0"},
            {"cidr": "10.0.0.0/24", "except": ["10.0.0.2/32"]},
            {"cidr": "fd00::/64", "except": ["fd00::/127"]},
        ]
    ),
)
ranges = st.sampled_from(
    [
        {"protocol": "tcp"},
        {"protocol": "tcp", "port": 80},
        {"protocol": "tcp", "port": 79, "endPort": 81},
        {"protocol": "udp", "port": 53},
        {"protocol": "icmp"},
    ]
)


def rules(ends: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            ends: st.lists(peers, max_size=2),
            "ports": st.lists(ranges, max_size=2),
            "action": st.sampled_from([Action.ALLOW, Action.DROP, Action.REJECT]),
            "log": st.booleans(),
        }
    )


specs = st.fixed_dictionaries(
    {},
    optional={
        "selector": st.sampled_from(SELECTORS),
        "ingress": st.lists(rules("from"), max_size=3),
        "egress": st.lists(rules("to"), max_size=3),
    },
)
strangers = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.9", "10.9.9.9", "fd00::1", "fd00::3", "fd99::9"])
packets = st.tuples(
    st.sampled_from(sorted(PORTS)),
    strangers,
    st.sampled_from([("tcp", 80), ("tcp", 82), ("udp", 53), ("udp", 67), ("sctp", 80), ("icmp", 0), ("gre", 0)]),
)


def profile(name: str, spec: Any) -> SecurityProfile:
    metadata = {"name": name, "namespace": "default"}
    whole = {"apiVersion": "netloom.dev/v1alpha1", "kind": "SecurityProfile", "metadata": metadata, "spec": spec}
    return msgspec.convert(whole, SecurityProfile)


def world(*profiles: SecurityProfile) -> Planner:
    planner = planned(NETWORK, *profiles)
    for port in PORTS.values():
        planner.put(port)
    planner.flush()
    return planner


# What the API says, in its own words.


def covers(one: SecurityProfile, port: Port) -> bool:
    selector = one.spec.selector
    return one.metadata.name in port.profiles or (
        selector is not None and selector_in("default", selector).matches(port.labels)
    )


def is_end(peer: Peer, ip: str, profiles: list[SecurityProfile]) -> bool:
    if peer.cidr:
        at = ip_address(ip)
        return at in ip_network(peer.cidr) and not any(at in ip_network(one) for one in peer.except_)
    owners = [
        port for port in PORTS.values() if ip in {one.partition("/")[0] for one in port.ips + port.allowed_addresses}
    ]
    if peer.selector is not None:
        return any(selector_in("default", peer.selector).matches(port.labels) for port in owners)
    return any(covers(one, port) for one in profiles if one.metadata.name == peer.profile for port in owners)


def applies(
    rule: IngressRule | EgressRule, ip: str, protocol: str, number: int, profiles: list[SecurityProfile]
) -> bool:
    ends = rule.from_ if isinstance(rule, IngressRule) else rule.to
    if ends and not any(is_end(peer, ip, profiles) for peer in ends):
        return False
    return not rule.ports or any(
        one.protocol == protocol and (one.port is None or one.port <= number <= (one.end_port or one.port))
        for one in rule.ports
    )


def wanted_of(
    profiles: list[SecurityProfile], port: Port, field: str, ip: str, protocol: str, number: int
) -> tuple[str, bool]:
    mine = [one for one in profiles if covers(one, port)]
    default = [one for one in mine if one.spec.tier is Tier.DEFAULT]
    lists = [found for one in default if (found := getattr(one.spec, field)) is not None]
    if not lists:
        return ("allow-related", False) if mine else ("", False)
    hit = [rule for found in lists for rule in found if applies(rule, ip, protocol, number, profiles)]
    for action, verdict in ((Action.DROP, "drop"), (Action.REJECT, "reject"), (Action.ALLOW, "allow-related")):
        if chosen := [rule for rule in hit if rule.action is action]:
            return verdict, any(rule.log for rule in chosen)
    return "drop", False


@settings(max_examples=150)
@given(st.fixed_dictionaries(dict.fromkeys("pq", specs)), st.lists(packets, min_size=1, max_size=8))
def test_packets_fare_as_the_words_say(written: dict[str, Any], sent: list[tuple[str, str, tuple[str, int]]]) -> None:
    profiles = [profile(name, spec) for name, spec in written.items()]
    reader = Reader(world(*profiles).desired)
    for name, other, (protocol, number) in sent:
        port, ref = PORTS[name], f"default/{name}"
        for field, direction in (("ingress", "to-lport"), ("egress", "from-lport")):
            coming = field == "ingress"
            packet = Packet(
                inport="" if coming else ref,
                outport=ref if coming else "",
                src=other if coming else "fd00::1" if ":" in other else "10.0.0.1",
                dst="fd00::1" if coming and ":" in other else "10.0.0.1" if coming else other,
                protocol=protocol,
                dport=number,
            )
            assert reader.verdict(packet, direction) == wanted_of(profiles, port, field, other, protocol, number)


CLOSED = profile("p", {"ingress": [{"action": "drop"}], "egress": [{"action": "reject"}], "selector": {}})


def test_what_must_always_work_works_against_rules_that_forbid_everything() -> None:
    planner = world(CLOSED)
    planner.put(resources(SUBNET)[0])
    planner.flush()
    reader = Reader(planner.desired)
    out = Packet(inport="default/a", protocol="udp", src="10.0.0.1", sport=68, dport=67)
    for dst, action in (("255.255.255.255", "allow"), ("10.0.0.1", "allow"), ("10.0.0.7", "reject")):
        assert reader.verdict(msgspec.structs.replace(out, dst=dst), "from-lport")[0] == action
    v6 = Packet(inport="default/a", protocol="udp", src="fe80::1", dst="ff02::1:2", sport=546, dport=547)
    assert reader.verdict(v6, "from-lport") == ("allow", False)
    for protocol, direction, action in (
        ("arp", "from-lport", "allow"),
        ("nd", "from-lport", "allow"),
        ("nd_rs", "from-lport", "allow"),
        ("nd_ra", "from-lport", "reject"),
        ("arp", "to-lport", "allow"),
        ("nd", "to-lport", "allow"),
        ("nd_ra", "to-lport", "allow"),
        ("other", "to-lport", "drop"),
    ):
        packet = Packet(inport="default/a", outport="default/a", protocol=protocol, src="fe80::1")
        assert reader.verdict(packet, direction)[0] == action, protocol


def test_frames_that_are_not_ip_are_dropped_where_nothing_is_allowed() -> None:
    reader = Reader(world(profile("p", {"ingress": []})).desired)
    assert reader.verdict(Packet(outport="default/b", protocol="other"), "to-lport") == ("drop", False)
    assert reader.verdict(Packet(inport="default/b", protocol="other"), "from-lport") == ("", False)


def test_ports_do_not_multiply_the_rules() -> None:
    def acls(planner: Planner) -> int:
        return sum(ref.table == "ACL" for ref in planner.desired.rows)

    one = profile("p", {"ingress": [{"from": [{"selector": {}}], "ports": [{"protocol": "tcp", "port": 80}]}]})
    planner = world(one)
    before = acls(planner)
    for number in range(50):
        planner.put(
            Port("default", f"x{number}", "n1", "blue", (f"10.0.1.{number}/16",), "02:00:00:00:01:01", 4096, {}, ("p",))
        )
    planner.flush()
    assert acls(planner) == before
    assert len(planner.desired.members(group("default", "p"))["ports"]) == 52


def test_one_attachment_more_is_its_own_members_and_nothing_else() -> None:
    planner = world(profile("p", {"selector": {}, "ingress": [{"from": [{"profile": "p"}]}]}))
    planner.put(Port("default", "new", "n1", "blue", ("10.0.0.77/24",), "02:00:00:00:00:77", 4096))
    delta = planner.flush()
    assert delta.rows == {Ref("Logical_Switch_Port", "default/new")}
    ours = {one for one in delta.joined if one.row.table in ("Port_Group", "Address_Set")}
    assert ours == {
        Member(group("default", "p"), "ports", Ref("Logical_Switch_Port", "default/new")),
        Member(Ref("Address_Set", "default/p:members:v4"), "addresses", "10.0.0.77"),
    }
    assert not delta.left


def test_a_rule_that_changes_plans_no_attachment_again() -> None:
    planner = world(profile("p", {"selector": {}, "ingress": [{"from": [{"profile": "p"}]}]}))
    planner.put(
        profile("p", {"selector": {}, "ingress": [{"from": [{"profile": "p"}], "ports": [{"protocol": "udp"}]}]})
    )
    assert planner.world.drain() == {Unit("SecurityProfile", "default", "p")}


def test_a_profile_that_comes_and_goes_as_the_other_end_heals() -> None:
    spec = {"ingress": [{"from": [{"profile": "q"}]}]}
    planner = world(profile("p", spec))
    unit = Unit("SecurityProfile", "default", "p")
    assert [one.reason for one in planner.desired.problems[unit]] == ["ProfileMissing"]
    planner.put(profile("q", {}))
    planner.flush()
    assert unit not in planner.desired.problems
    assert planner.desired.members(Ref("Address_Set", "default/q:members:v6")) == {"addresses": {"fd00::3": "fd00::3"}}
    planner.remove(Unit("SecurityProfile", "default", "q"))
    planner.flush()
    assert unit in planner.desired.problems


def test_a_port_whose_profile_is_missing_is_closed_until_it_comes() -> None:
    planner = world(profile("p", {}))
    ref, unit = Ref("Logical_Switch_Port", "default/c"), Unit("NetworkAttachment", "default", "c")
    assert planner.desired.rows[ref].columns["enabled"] is False
    assert [one.reason for one in planner.desired.problems[unit]] == ["ProfileMissing"]
    planner.put(profile("q", {}))
    planner.flush()
    assert planner.desired.rows[ref].columns["enabled"] is True
    assert unit not in planner.desired.problems


def test_covered_are_those_named_and_those_selected_where_ovn_carries_them() -> None:
    one = profile("p", {"selector": {"matchLabels": {"app": "web"}}})
    planner = world(one, profile("q", {}))
    planner.put(Port("default", "elsewhere", "n1", "plain", ("10.3.0.1/24",), "02:00:00:00:00:99", 7, {}, ("p",)))
    for _ in range(2):
        assert [port.name for port in covered(planner.world, one)] == ["a", "b", "c"]
    assert [port.name for port in covered(planner.world, profile("q", {}))] == ["c"]


def test_a_port_of_another_namespace_joins_nothing() -> None:
    planner = world(profile("p", {"selector": {}}))
    assert memberships(planner.world, msgspec.structs.replace(PORTS["b"], namespace="other")) == []
