"""A router's policies become rows that say what is done with which packets; a bad one costs that one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from netloom.plan.rows import Outcome, Ref
from tests.plan.northd import write
from tests.plan.routers import ROUTER, members, planner, reasons, resource, routed, rows
from tests.support.ovn import ovn_central

TABLE = "Logical_Router_Policy"


def steered(*policies: str, router: str = ROUTER) -> Outcome:
    return routed(f"{router}policies: [{', '.join(policies)}]")


def found(outcome: Outcome) -> dict[tuple[int, str], tuple[str, set[str]]]:
    """Return action and next hops of all policies, by priority and match."""
    every = rows(outcome, TABLE).values()
    return {(one["priority"], one["match"]): (one["action"], set(one["nexthops"])) for one in every}


def match(policy: str) -> str:
    """Return what a policy matches, without problems."""
    outcome = steered(policy)
    assert outcome.problems == []
    ((_, text),) = found(outcome)
    return text


def test_a_policy_is_a_row_of_its_router() -> None:
    outcome = steered("{priority: 100, to: [198.51.100.0/24], action: reroute, via: [10.20.0.7, 10.10.0.7]}")
    assert outcome.problems == []
    ((key, columns),) = rows(outcome, TABLE).items()
    assert key.startswith("ns/r1:policy:100:")
    assert columns == {
        "priority": 100,
        "match": "ip4.dst == 198.51.100.0/24",
        "action": "reroute",
        "nexthops": frozenset({"10.20.0.7", "10.10.0.7"}),
        "nexthop": None,
    }
    assert members(outcome, "policies") == {(Ref("Logical_Router", "ns/r1"), Ref(TABLE, key))}


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("action: drop", "ip"),
        ("action: allow, from: [], to: [], ports: []", "ip"),
        ("from: [10.10.0.0/24]", "ip4.src == 10.10.0.0/24"),
        ("from: [10.10.0.0/24], to: [10.20.0.0/24]", "ip4.src == 10.10.0.0/24 && ip4.dst == 10.20.0.0/24"),
        ("to: [10.9.0.0/24, 10.1.0.0/24]", "ip4.dst == {10.1.0.0/24, 10.9.0.0/24}"),
        ("to: [10.1.1.0/24, 10.1.0.0/24, 10.1.0.9/32]", "ip4.dst == 10.1.0.0/23"),
        ("to: ['fd00:0::/64', 'fd00::/64']", "ip6.dst == fd00::/64"),
        ("from: [0.0.0.0/0]", "ip4"),
        ("from: ['::/0'], to: ['::/0']", "ip6"),
        ("from: [0.0.0.0/0], to: [10.20.0.0/24]", "ip4.dst == 10.20.0.0/24"),
        ("from: [0.0.0.0/1, 128.0.0.0/1], to: [10.20.0.0/24]", "ip4.dst == 10.20.0.0/24"),
        ("ports: [{port: 443}, {port: 80}]", "tcp.dst == {80, 443}"),
        ("ports: [{protocol: icmp}]", "icmp"),
        ("from: ['::/0'], ports: [{protocol: icmp}]", "ip6 && icmp6"),
        ("to: [10.20.0.0/24], ports: [{port: 80, endPort: 90}]", "ip4.dst == 10.20.0.0/24 && 80 <= tcp.dst <= 90"),
        ("action: reroute, via: [10.20.0.7]", "ip4"),
        ("action: reroute, via: ['fd00:10::7'], ports: [{protocol: udp}]", "ip6 && udp"),
        ("action: reroute, via: [192.0.2.7]", "ip4"),
    ],
)
def test_what_a_policy_is_for_is_written_shortly_and_of_one_family_where_it_says_which(policy: str, text: str) -> None:
    assert match(f"{{priority: 7, {policy}}}") == text


def test_neither_the_order_of_policies_nor_of_what_is_in_them_changes_a_row() -> None:
    one = "{priority: 7, from: [10.1.0.0/24, 10.9.0.0/24], action: reroute, via: [10.20.0.7, 10.20.0.8]}"
    same = "{priority: 7, from: [10.9.0.0/24, 10.1.0.0/24], action: reroute, via: [10.20.0.8, 10.20.0.7]}"
    other = "{priority: 8, from: [10.9.0.0/24, 10.1.0.0/24], action: drop}"
    assert rows(steered(one, other), TABLE) == rows(steered(other, same), TABLE)


def test_policies_that_differ_only_in_priority_or_in_packets_are_rows_of_their_own() -> None:
    outcome = steered("{priority: 7}", "{priority: 8}", "{priority: 8, to: [0.0.0.0/0]}")
    assert outcome.problems == []
    assert found(outcome).keys() == {(7, "ip"), (8, "ip"), (8, "ip4")}


def test_a_policy_that_is_there_twice_is_one_policy() -> None:
    outcome = steered("{priority: 7, action: drop}", "{priority: 7, from: [], action: drop}")
    assert outcome.problems == []
    assert len(rows(outcome, TABLE)) == len(members(outcome, "policies")) == 1


STRICTER = ["{priority: 7, action: drop, to: [0.0.0.0/0]}"]
STRICTER += [f"{{priority: 7, action: reroute, via: [{hop}]}}" for hop in ("10.10.0.9", "10.20.0.7")]
STRICTER += ["{priority: 7, to: [0.0.0.0/0]}"]


@pytest.mark.parametrize("stricter", range(4))
@pytest.mark.parametrize("laxer", range(4))
def test_of_two_for_the_same_packets_at_one_priority_the_stricter_stands(stricter: int, laxer: int) -> None:
    if stricter >= laxer:
        stricter, laxer = laxer, stricter
    alone = found(steered(STRICTER[stricter]))
    one, other = steered(STRICTER[stricter], STRICTER[laxer]), steered(STRICTER[laxer], STRICTER[stricter])
    assert found(one) == found(other) == alone
    if stricter != laxer:
        assert reasons(one) == [("PolicyTwice", "spec.policies[1]")]
        assert reasons(other) == [("PolicyTwice", "spec.policies[0]")]
        assert "spec.policies[0] matches the same packets" in one.problems[0].message


@pytest.mark.parametrize(
    ("policy", "reason", "field"),
    [
        ("action: reroute, via: [10.77.0.7]", "NextHopFar", "via[0]"),
        ("action: reroute, via: [10.20.0.7, 10.77.0.7]", "NextHopFar", "via[1]"),
        ("action: reroute, via: [10.20.0.254]", "NextHopOwn", "via[0]"),
        ("action: reroute, via: [nobody]", "Malformed", "via[0]"),
        ("action: reroute", "Malformed", "via"),
        ("via: [10.20.0.7]", "Malformed", "via"),
        ("from: [10.20.0.7]", "Malformed", "from[0]"),
        ("to: [10.20.0.0/24, everywhere]", "Malformed", "to[1]"),
        ("from: ['fd00::/64'], to: [10.20.0.0/24]", "FamiliesMixed", ""),
        ("from: ['fd00::/64'], action: reroute, via: [10.20.0.7]", "FamiliesMixed", ""),
    ],
)
def test_a_policy_that_cannot_be_costs_that_policy(policy: str, reason: str, field: str) -> None:
    outcome = steered(f"{{priority: 9, {policy}}}", "{priority: 7, action: drop}")
    assert reasons(outcome) == [(reason, f"spec.policies[0]{field and '.'}{field}")]
    assert found(outcome) == {(7, "ip"): ("drop", set())}
    assert "ns/r1:0.0.0.0/0:192.0.2.1" in rows(outcome, "Logical_Router_Static_Route")


def test_what_no_route_leads_to_cannot_be_rerouted_and_that_is_said_of_each_block() -> None:
    inner = "networks: [{network: blue}, {network: red}]\n"
    away = "{priority: 9, to: [10.20.0.9/32, 198.51.100.0/24], action: reroute, via: [10.20.0.7]}"
    outcome = steered(away, "{priority: 8, to: [198.51.100.0/24], action: drop}", router=inner)
    assert reasons(outcome) == [("RouteMissing", "spec.policies[0].to[1]")]
    assert sorted(action for action, _ in found(outcome).values()) == ["drop", "reroute"], "the rest is rerouted"
    assert steered(away, router=inner + "routes: [{to: 198.51.100.128/25, via: 10.20.0.8}]\n").problems == []


def test_a_link_local_next_hop_may_be_anywhere() -> None:
    router = "networks: [{network: blue, ips: [10.10.0.1/24, 'fe80::1/64']}]\n"
    outcome = steered("{priority: 9, action: reroute, via: ['fe80::7']}", router=router)
    assert reasons(outcome) == [("NextHopLinkLocal", "spec.policies[0].via[0]")]
    assert rows(outcome, TABLE) == {}


def test_a_foot_that_is_lost_costs_the_policies_through_it() -> None:
    spec: dict[str, Any] = yaml.safe_load(ROUTER)
    spec["policies"] = [
        {"priority": 9, "action": "reroute", "via": ["10.20.0.7"]},
        {"priority": 8, "action": "reroute", "via": ["10.10.0.7"]},
    ]
    outcome = routed(yaml.safe_dump(spec), "red: null")
    assert reasons(outcome)[-1] == ("NextHopFar", "spec.policies[0].via[0]")
    assert found(outcome) == {(8, "ip4"): ("reroute", {"10.10.0.7"})}


@pytest.mark.ovn
def test_northd_makes_flows_of_policies_for_one_next_hop_and_for_several(tmp_path: Path) -> None:
    made = planner()
    policies = [
        {"priority": 7, "action": "drop"},
        {"priority": 8, "ports": [{"port": 80}]},
        {"priority": 9, "action": "reroute", "via": ["10.20.0.7"]},
        {"priority": 9, "action": "reroute", "via": ["fd00:10::8", "fd00:10::7"]},
    ]
    networks = [{"network": "blue"}, {"network": "red"}]
    made.put(resource("r1", {"kind": "Router", "spec": {"networks": networks, "policies": policies}}))
    made.flush()
    with ovn_central(tmp_path) as central:
        write(central, made.desired)
        listed = central.nbctl("lr-policy-list", "ns/r1").split("\n")
        flows = [one for one in central.sbctl("lflow-list", "ns/r1").split("\n") if "(lr_in_policy" in one]
    assert len([line for line in listed if line.startswith("  ")]) == 4

    def done(priority: int, match: str) -> str:
        (one,) = [flow for flow in flows if f"priority={priority} " in flow and f"match=({match})" in flow]
        return one.partition("action=")[2]

    assert done(7, "ip") == "(drop;)"
    assert done(8, "tcp.dst == 80").endswith("next;)")
    assert "reg0 = 10.20.0.7;" in done(9, "ip4")
    assert 'outport = "ns/r1:red";' in done(9, "ip4")
    assert "select(1, 2);" in done(9, "ip6")
    ways = [one.partition("xxreg0 = ")[2].partition(";")[0] for one in flows if "lr_in_policy_ecmp" in one]
    assert sorted(filter(None, ways)) == ["fd00:10::7", "fd00:10::8"]
