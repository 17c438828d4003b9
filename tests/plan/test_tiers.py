"""The tiers of SecurityProfiles on both fabrics: what becomes of packets, against what docs/firewalls.md says."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.model.kinds.policy import Action, EgressRule, IngressRule, SecurityProfile, Tier
from netloom.openflow import packets as wire
from netloom.openflow.pipeline import Tables, Tracker, run
from netloom.plan.ovn.planner import Planner
from netloom.plan.policy.tiers import CLOSED, FIRST, MOST_BASELINE
from netloom.plan.problem import Problem, Unit
from netloom.plan.world.world import Port
from tests.plan.acls import Packet, Reader
from tests.plan.test_policy import PORTS, SELECTORS, applies, covers, packets, profile, rules, specs, wanted_of, world
from tests.plan.test_vxlan_policy import SINK, one_node, packet_of
from tests.plan.vxlan_nodes import VTEP

Json = dict[str, Any]
Sent = tuple[str, str, tuple[str, int]]


def tiered(ends: str) -> st.SearchStrategy[Json]:
    return st.tuples(rules(ends), st.sampled_from([None, None, "pass"])).map(
        lambda two: {**two[0], "action": "pass", "log": False} if two[1] else {**two[0], "log": False}
    )


ordered = st.fixed_dictionaries(
    {"tier": st.sampled_from(["admin", "admin", "baseline"]), "priority": st.integers(0, 3)},
    optional={
        "selector": st.sampled_from(SELECTORS),
        "ingress": st.lists(tiered("from"), max_size=3),
        "egress": st.lists(tiered("to"), max_size=3),
    },
)
either = st.one_of(specs, ordered)
some = st.fixed_dictionaries({"p": either, "q": either, "r": ordered, "s": ordered, "t": ordered})


def decided(found: list[IngressRule | EgressRule], *about: Any) -> Action | None:
    """Return the action of the first rule that applies."""
    return next((rule.action for rule in found if applies(rule, *about)), None)


def wanted(profiles: list[SecurityProfile], port: Port, field: str, ip: str, protocol: str, number: int) -> str:
    """Return what becomes of a packet: the tiers one after the other."""
    mine = [one for one in profiles if covers(one, port)]
    if not mine:
        return ""
    about = ip, protocol, number, profiles
    for tier in (Tier.ADMIN, Tier.DEFAULT, Tier.BASELINE):
        those = [one for one in mine if one.spec.tier is tier]
        if tier is Tier.DEFAULT:
            if any(getattr(one.spec, field) is not None for one in those):
                return wanted_of(profiles, port, field, ip, protocol, number)[0]
            continue
        those.sort(key=lambda one: (one.spec.priority, one.metadata.name))
        action = decided([rule for one in those for rule in getattr(one.spec, field) or ()], *about)
        if action is not None and action is not Action.PASS:
            return {Action.ALLOW: "allow-related"}.get(action, str(action))
    return "allow-related"


@settings(max_examples=400, deadline=None)
@given(some, st.lists(packets, min_size=1, max_size=8))
def test_acls_evaluate_the_tiers_in_order(written: Json, sent: list[Sent]) -> None:
    profiles = [profile(name, spec) for name, spec in written.items()]
    reader = Reader(world(*profiles).desired)
    for name, other, (protocol, number) in sent:
        for field, direction in (("ingress", "to-lport"), ("egress", "from-lport")):
            coming = field == "ingress"
            own = "fd00::1" if ":" in other else "10.0.0.1"
            packet = Packet(
                inport="" if coming else f"default/{name}",
                outport=f"default/{name}" if coming else "",
                src=other if coming else own,
                dst=own if coming else other,
                protocol=protocol,
                dport=number,
            )
            got = reader.verdict(packet, direction)[0]
            assert got == wanted(profiles, PORTS[name], field, other, protocol, number)


@settings(max_examples=150, deadline=None)
@given(some, st.lists(packets, min_size=1, max_size=4))
def test_flows_evaluate_the_tiers_in_order(written: Json, sent: list[Sent]) -> None:
    profiles = [profile(name, spec) for name, spec in written.items()]
    for name, other, (protocol, number) in sent:
        port = PORTS[name]
        tables = Tables(one_node(profiles, name).claims.flows.values())
        own = {ip.partition("/")[0] for ip in (*port.ips, *port.allowed_addresses)} - {other}
        for ip in sorted(ip for ip in own if (":" in ip) == (":" in other)):
            coming = packet_of(protocol, number, other, ip, SINK, port.mac)
            going = packet_of(protocol, number, ip, other, port.mac, SINK)
            for field, packet, by, to in (("ingress", coming, VTEP, 10), ("egress", going, 10, VTEP)):
                tracker = Tracker()
                verdict = wanted(profiles, port, field, other, protocol, number)
                got = run(tables, packet, by, tracker=tracker)
                assert [one.port for one in got] == ([to] if verdict in ("", "allow-related") else [])
                answers = [run(tables, wire.reply(one.packet), to, tracker=tracker) for one in got]
                assert [[one.port for one in answer] for answer in answers] == [[by]] * len(got)


def _verdict(reader: Reader, port: int) -> str:
    packet = Packet(outport="default/a", src="10.9.9.9", dst="10.0.0.1", protocol="tcp", dport=port)
    return reader.verdict(packet, "to-lport")[0]


def _problems(planner: Planner, name: str) -> tuple[Problem, ...]:
    return planner.desired.problems.get(Unit("SecurityProfile", "default", name), ())


def _rules(first: int, count: int, action: str) -> list[Json]:
    return [{"action": action, "ports": [{"port": first + number}]} for number in range(count)]


def test_rules_for_which_no_priorities_are_left_close_their_profile_and_no_other() -> None:
    allowing = [
        profile(
            f"p{number:03}", {"tier": "admin", "priority": number, "selector": {}, "ingress": _rules(1, 64, "drop")}
        )
        for number in range((FIRST - CLOSED) // 64 + 1)
    ]
    first = profile("first", {"tier": "admin", "priority": 0, "selector": {}, "ingress": _rules(99, 1, "allow")})
    planner = world(first, *allowing)
    reader = Reader(planner.desired)
    assert [_verdict(reader, port) for port in (99, 64, 100)] == ["allow-related", "drop", "drop"]
    last = allowing[-1].metadata.name
    assert [one.metadata.name for one in allowing if _problems(planner, one.metadata.name)] == [last]
    planner.put(profile(last, {"tier": "admin", "priority": 5, "selector": {}, "ingress": _rules(1, 1, "drop")}))
    planner.flush()
    assert _verdict(Reader(planner.desired), 100) == "allow-related"


def test_baseline_rules_for_which_no_priorities_are_left_close_what_they_would_decide() -> None:
    count = MOST_BASELINE // 64 + 1
    baseline = [
        profile(f"b{number:02}", {
            "tier": "baseline", "priority": number, "selector": {}, "ingress": _rules(1 + 64 * number, 64, "allow"),
        })
        for number in range(count)
    ]  # fmt: skip
    passing = {"tier": "admin", "priority": 1, "selector": {}, "ingress": [*_rules(1, 1, "pass"), {"action": "drop"}]}
    reader = Reader(world(*baseline, profile("rest", passing)).desired)
    assert [_verdict(reader, port) for port in (1, 2)] == ["allow-related", "drop"]
    reader = Reader(world(*baseline).desired)
    ports = (1, MOST_BASELINE, MOST_BASELINE + 1, 9000)
    assert [_verdict(reader, port) for port in ports] == ["allow-related", "allow-related", "drop", "drop"]
