"""ClusterNetworkPolicies: the profiles allow what the API reference allows, with NetworkPolicies between the tiers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.model.kinds import kubernetes
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.policy import Action
from netloom.model.kubernetes import CLUSTER_NETWORK_POLICY
from netloom.plan.kube.policies.cluster_policies import STEP, plan_cluster_policy
from netloom.plan.kube.policies.matching import MOST_PROFILES
from tests.plan.kube_objects import document
from tests.plan.kube_world import SETTINGS, Cluster, Judge, PodAt, Probe
from tests.plan.test_kube_policies_at_random import BLOCKS, NAMES, NUMBERS, clusters, policies, probes, selector

Json = dict[str, Any]
NODES = {"192.0.2.1": {"app": "x"}, "198.51.100.7": {}, "2001:db8::1": {"app": "y"}}

pods = st.one_of(
    st.fixed_dictionaries({"namespaces": selector}),
    st.fixed_dictionaries({"pods": st.fixed_dictionaries({"namespaceSelector": selector, "podSelector": selector})}),
)
networks = st.fixed_dictionaries({"networks": st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3, unique=True)})
nodes = st.fixed_dictionaries({"nodes": selector})
number = st.sampled_from(NUMBERS)
port = st.one_of(
    st.fixed_dictionaries({"number": number}),
    st.sampled_from([(53, 80), (80, 8080)]).map(lambda two: {"range": {"start": two[0], "end": two[1]}}),
)
numbers = st.tuples(st.sampled_from(["tcp", "udp", "sctp"]), port).map(
    lambda two: {two[0]: {"destinationPort": two[1]}}
)
named = st.fixed_dictionaries({"destinationNamedPort": st.sampled_from(NAMES)})


def rules(ends: str, *more: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    def rule(peers: st.SearchStrategy[Json], *protocols: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
        return st.fixed_dictionaries(
            {
                "action": st.sampled_from(["Accept", "Deny", "Pass"]),
                ends: st.lists(peers, min_size=1, max_size=2),
            },
            optional={"protocols": st.lists(st.one_of(*protocols), max_size=2)},
        )

    return st.lists(
        st.one_of(rule(pods, numbers, named), *(rule(st.one_of(pods, one), numbers) for one in more)), max_size=3
    )


@st.composite
def tiered(draw: st.DrawFn) -> Cluster:
    given: Cluster = draw(clusters())
    one = st.fixed_dictionaries(
        {"tier": st.sampled_from(["Admin", "Baseline"]), "subject": pods},
        optional={"ingress": rules("from"), "egress": rules("to", networks, nodes)},
    )
    found = [spec | {"priority": number} for number, spec in enumerate(draw(st.lists(one, max_size=4)))]
    return Cluster(given.namespaces, given.pods, *draw(policies), tiers=draw(st.permutations(found)), nodes=NODES)


@given(tiered())
@settings(max_examples=200, deadline=None)
def test_profiles_allow_what_the_api_reference_allows_and_nothing_else(cluster: Cluster) -> None:
    judge = Judge(cluster.profiles)
    assert {problem.reason for problem in cluster.problems} <= {"PortUnknown"}
    for probe in probes(cluster):
        if probe.port != 81 and probe.protocol != "SCTP":
            assert judge.allows(probe) == cluster.wanted(probe), probe


# The cases that a random cluster does not have.

WEB = PodAt("a", "web", "10.1.0.1", {"app": "web"}, (("TCP", "http", 80),))
API = PodAt("a", "api", "10.1.0.2", {"app": "web"}, (("TCP", "http", 8080),))
CLIENT = PodAt("b", "client", "10.1.0.3")
EVERYONE: Json = {"namespaces": {}}
ALL: Json = {"networks": ["0.0.0.0/0"]}


def cluster(*tiers: Json, network: tuple[Json, ...] = ()) -> Cluster:
    whole = [{"tier": "Admin", "priority": 7, "subject": EVERYONE, **one} for one in tiers]
    return Cluster({"a": {}, "b": {}}, [WEB, API, CLIENT], *network, tiers=whole)


def allowed(made: Cluster, source: PodAt | str, target: PodAt | str, port: int = 80) -> bool:
    return Judge(made.profiles).allows(Probe(source, target, "TCP", port))


def test_a_policy_without_rules_becomes_nothing() -> None:
    assert cluster({}).profiles == cluster().profiles


def test_an_ordinary_policy_is_one_profile_whose_priority_leaves_room() -> None:
    rule = {"action": "Deny", "from": [EVERYONE]}
    (_, one) = cluster({"ingress": [rule], "egress": [{"action": "Accept", "to": [ALL]}]}).profiles
    assert one.metadata.name == "cluster-policy.t0"
    assert (one.spec.tier, one.spec.priority) == ("admin", 7 * STEP)
    assert one.spec.ingress is not None
    assert one.spec.egress is not None


def test_a_named_port_between_other_rules_keeps_their_order() -> None:
    rules = [
        {"action": "Accept", "from": [EVERYONE], "protocols": [{"tcp": {"destinationPort": {"number": 8080}}}]},
        {"action": "Deny", "from": [EVERYONE], "protocols": [{"destinationNamedPort": "http"}]},
        {"action": "Accept", "from": [EVERYONE]},
    ]
    made = cluster({"ingress": rules})
    assert not allowed(made, CLIENT, WEB, 80)
    assert allowed(made, CLIENT, API, 8080)
    assert allowed(made, CLIENT, API, 80)
    assert sorted(one.spec.priority or 0 for one in made.profiles[1:]) == [700, 701, 702, 703]


@pytest.mark.parametrize("rule", [
    {"to": [{"domainNames": ["example.com"]}]},
    {"to": [{"else": {}}]},
    {"to": [{}]},
    {"to": []},
    {"to": [EVERYONE], "protocols": [{"icmp": {}}]},
    {"to": [EVERYONE], "protocols": [{"tcp": {"sourcePort": {"number": 1}}}]},
    {"to": [EVERYONE], "protocols": [{"tcp": {"destinationPort": {"number": 70000}}}]},
    {"to": [ALL], "protocols": [{"destinationNamedPort": "http"}]},
    {"to": [{"networks": ["10.0.0.0/8", "nonsense"]}]},
    {"to": [{"namespaces": {}}, {"pods": {"namespaceSelector": {}, "podSelector": {
        "matchExpressions": [{"key": f"k{n}", "operator": "Exists"} for n in range(65)]}}}]},
])  # fmt: skip
@pytest.mark.parametrize("action", ["Accept", "Deny", "Pass", "Else"])
def test_what_cannot_be_expressed_fails_closed(action: str, rule: Json) -> None:
    last = {"action": "Deny", "to": [EVERYONE, ALL]}
    made = cluster({"egress": [{"action": action, **rule}, last]})
    assert [one.reason for one in made.problems][-1] == "Unsupported"
    assert not allowed(made, WEB, CLIENT)
    assert not allowed(made, WEB, "192.0.2.9")
    open_ = cluster({"egress": [{"action": action, **rule}]})
    assert allowed(open_, WEB, CLIENT) == (action == "Accept")
    assert allowed(open_, WEB, "192.0.2.9") == (action == "Accept")


def test_an_unknown_tier_or_subject_has_no_effect_and_says_so() -> None:
    rule = {"ingress": [{"action": "Deny", "from": [EVERYONE]}]}
    for other in ({"tier": "Middle"}, {"subject": {"else": 1}}):
        made = cluster({**rule, **other})
        assert [one.reason for one in made.problems] == ["Unsupported"]
        assert allowed(made, CLIENT, WEB)


def test_what_there_is_no_room_for_is_denied() -> None:
    ports = {f"{first}": (("TCP", "http", first),) for first in range(1, MOST_PROFILES + 3)}
    many = [PodAt("a", name, f"10.1.1.{name}", ports=have) for name, have in ports.items()]
    rule = {"action": "Accept", "from": [EVERYONE], "protocols": [{"destinationNamedPort": "http"}]}
    spec = {"tier": "Admin", "priority": 1, "subject": EVERYONE, "ingress": [rule]}
    made = Cluster({"a": {}, "b": {}}, [*many, CLIENT], tiers=[spec])
    assert [one.reason for one in made.problems] == ["TooManyRules"]
    assert len(made.profiles) == MOST_PROFILES + 1
    assert allowed(made, CLIENT, many[0], 1)
    assert not allowed(made, CLIENT, many[0], 2)
    assert not allowed(made, CLIENT, many[-1], MOST_PROFILES + 2)


def test_a_null_is_an_absent_value() -> None:
    peer = {"networks": ["10.0.0.0/8"], "nodes": None}
    spec = {
        "tier": "Admin",
        "priority": 0,
        "subject": {"namespaces": {}, "pods": None},
        "ingress": None,
        "egress": [{"action": "Deny", "to": [peer], "protocols": None}],
    }
    raw = document(CLUSTER_NETWORK_POLICY, "t", spec=spec, annotations=None)
    view = kubernetes.decode(msgspec.json.encode(raw), ClusterNetworkPolicy)
    planned = plan_cluster_policy(SETTINGS, view, lambda _: (), lambda *_: (), lambda _: ())
    (one,) = planned.objects
    assert [rule.action for rule in one.spec.egress] == [Action.DROP]  # type: ignore[attr-defined]
