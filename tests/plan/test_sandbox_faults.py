"""Faults of a Sandbox: they change the links that they name and nothing else; a bad one costs itself alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Router
from netloom.model.kinds.policy import Action, SecurityProfile
from netloom.model.registry import KINDS as REGISTRY
from netloom.model.schemas.validation import admit
from netloom.plan.sandbox.changes import changes
from netloom.plan.sandbox.objects import SandboxPlan
from tests.plan.test_sandbox import edited, messages, of, planned

OFFICE = edited(
    hosts=[{"name": "server"}, {"name": "desk"}, {"name": "home", "block_internet": True}],
    net_mappings=[
        {"host": "server", "network": "server-switch", "ip": "10.10.20.5"},
        {"host": "desk", "network": "server-switch", "ip": "10.10.20.6"},
        {"host": "desk", "network": "home-switch", "ip": "10.10.30.6"},
        {"host": "home", "network": "home-switch", "ip": "10.10.30.5"},
    ],
    groups=[{"name": "staff", "nodes": ["server", "desk"]}],
)


def cut(host: str, network: str = "", name: str = "f") -> dict[str, Any]:
    return {"name": name, "linkDown": {"host": host, **({"network": network} if network else {})}}


def apart(*members: str, others: tuple[str, ...] = (), name: str = "f") -> dict[str, Any]:
    return {"name": name, "partition": {"members": list(members), **({"from": list(others)} if others else {})}}


def down(plan: SandboxPlan) -> set[str]:
    """Return the attachments and router ports whose links are down."""
    found = {name for name, one in of(plan, NetworkAttachment).items() if one.spec.link_down}
    routers = of(plan, Router).items()
    return found | {f"{name}:{port.network}" for name, one in routers for port in one.spec.networks if port.link_down}


@pytest.mark.parametrize(
    ("fault", "links"),
    [
        (cut("desk", "home-switch"), {"s1-desk-home-switch"}),
        (cut("desk"), {"s1-desk-home-switch", "s1-desk-server-switch"}),
        (cut("home-router", "home-switch"), {"s1-home-router:s1-home-switch"}),
        (cut("home-router", "wan"), {"s1-home-router:s1-wan"}),
        (cut("home-router"), {"s1-home-router:s1-home-switch", "s1-home-router:s1-wan"}),
        (cut("man"), {"s1-man:s1-wan"}),
    ],
)
def test_a_link_that_is_down_is_the_only_difference(fault: dict[str, Any], links: set[str]) -> None:
    plan = planned(OFFICE, faults=[fault])
    assert plan.problems == ()
    assert down(plan) == links
    found = changes(plan.objects, planned(OFFICE).objects)
    assert (found.create, found.remove) == ((), ())
    assert {one.metadata.name for one in found.update} == {link.partition(":")[0] for link in links}


def separated(plan: SandboxPlan) -> dict[str, dict[str, set[str]]]:
    """Return the attachments that each profile selects, and the blocks that it drops in each direction."""
    attachments = of(plan, NetworkAttachment)
    found: dict[str, dict[str, set[str]]] = {}
    for name, one in of(plan, SecurityProfile).items():
        if one.spec.selector is None:
            continue
        labels = one.spec.selector.match_labels.items()
        assert ("netloom.dev/sandbox", "s1") in labels
        found[name] = {
            "of": {key for key, port in attachments.items() if labels <= port.metadata.labels.items()},
            "in": {peer.cidr for rule in one.spec.ingress if rule.action is Action.DROP for peer in rule.from_},
            "out": {peer.cidr for rule in one.spec.egress if rule.action is Action.DROP for peer in rule.to},
        }
    return found


SERVER, DESK_OFFICE, DESK_HOME, HOME = "10.10.20.5/32", "10.10.20.6/32", "10.10.30.6/32", "10.10.30.5/32"


@pytest.mark.parametrize(
    ("fault", "members", "peers"),
    [
        (apart("server", others=("desk",)), {"s1-server-server-switch"}, {DESK_OFFICE, DESK_HOME}),
        (apart("server"), {"s1-server-server-switch"}, {DESK_OFFICE, DESK_HOME, HOME}),
        (
            apart("server-switch", others=("home-switch",)),
            {"s1-server-server-switch", "s1-desk-server-switch"},
            {DESK_HOME, HOME},
        ),
        (
            apart("staff", others=("home",)),
            {"s1-server-server-switch", "s1-desk-server-switch", "s1-desk-home-switch"},
            {HOME},
        ),
    ],
)
def test_a_partition_drops_both_directions_between_its_sides(
    fault: dict[str, Any], members: set[str], peers: set[str]
) -> None:
    plan = planned(OFFICE, faults=[fault])
    assert plan.problems == ()
    assert separated(plan) == {"s1-partition-f": {"of": members, "in": peers, "out": peers}}
    assert down(plan) == set()


def test_a_partition_opens_nothing_to_a_host_without_internet() -> None:
    plan = planned(OFFICE, faults=[apart("home", "server", others=("desk",))])
    profiles = of(plan, SecurityProfile)
    assert separated(plan)["s1-partition-f-contained"]["of"] == {"s1-home-home-switch"}
    assert separated(plan)["s1-partition-f"]["of"] == {"s1-server-server-switch"}
    allowed = [rule for rule in profiles["s1-partition-f-contained"].spec.egress if rule.action is Action.ALLOW]
    assert allowed == []
    assert [rule.to for rule in profiles["s1-partition-f"].spec.egress if rule.action is Action.ALLOW] == [()]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (cut("nobody"), "nobody has no link: name a host or router"),
        (cut("server", "home-switch"), "server has no link to home-switch: name a host or router"),
        (apart("nobody"), "there is no host, network or group nobody"),
        (apart("server", others=("nobody",)), "there is no host, network or group nobody"),
        (apart("server", others=("staff",)), "server on server-switch is on both sides"),
        (apart("server", "desk", "home"), "no host is on the other side"),
        ({"name": "f"}, "name what is at fault"),
    ],
)
def test_a_fault_that_cannot_be_applied_costs_itself_alone(fault: dict[str, Any], says: str) -> None:
    plan = planned(OFFICE, faults=[fault, cut("home", name="g")])
    assert len(plan.problems) == 1
    assert plan.problems[0].reason == "FaultInvalid"
    assert messages(plan)[0].startswith(f"spec.faults: f: {says}")
    assert down(plan) == {"s1-home-home-switch"}
    assert separated(plan) == {}
    assert plan.faults == ("g: every link of home is down",)


def test_faults_are_named_with_what_they_do() -> None:
    faults = [cut("home", "home-switch", "a"), apart("server", name="b"), apart("server", others=("home",), name="c")]
    assert planned(OFFICE, faults=faults).faults == (
        "a: the link of home to home-switch is down",
        "b: server and all other hosts cannot reach each other",
        "c: server and home cannot reach each other",
    )


names = st.sampled_from(["server", "desk", "home", "staff", "server-switch", "home-switch", "home-router", "wan", "x"])
some = st.builds(cut, names, st.one_of(st.just(""), names), st.sampled_from("abc")) | st.builds(
    lambda members, others, name: apart(*members, others=tuple(others), name=name),
    st.lists(names, min_size=1, max_size=4),
    st.lists(names, max_size=4),
    st.sampled_from("abc"),
)


@given(st.lists(some, max_size=6), st.randoms(use_true_random=False))
def test_any_faults_give_valid_objects_whatever_their_order(faults: list[dict[str, Any]], random: Any) -> None:
    plan = planned(OFFICE, faults=faults)
    shuffled = random.sample(faults, len(faults))
    assert planned(OFFICE, faults=shuffled) == plan
    for one in plan.objects:
        _admit(one)
    for profile in separated(plan).values():
        assert profile["in"] == profile["out"] != set()
        assert profile["of"] != set()


def _admit(one: Resource) -> None:
    kind = REGISTRY.of(one)
    document = kind.document(one)
    document.pop("status", None)
    admit(kind, document)
