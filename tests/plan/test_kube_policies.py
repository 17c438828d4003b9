"""NetworkPolicies: the well-known traps one by one, limits, named ports, and which policies a change concerns."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netloom.model import codec
from netloom.model.kinds import kubernetes
from netloom.model.kinds.kubernetes import NetworkPolicy
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan.kube import names
from netloom.plan.kube.indexes import (
    NamedPorts,
    Namespaces,
    PolicyIndex,
    PolicyKey,
    PortPlace,
    port_labels,
)
from netloom.plan.kube.policies.matching import NamedPort
from netloom.plan.kube.policies.network_policies import named_ports, namespace_selectors
from tests.plan.kube_world import Cluster, Judge, PodAt, Probe, policy

Json = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs/kubernetes-policies.md"

NAMESPACES = {
    "a": {"kubernetes.io/metadata.name": "a", "team": "red"},
    "b": {"kubernetes.io/metadata.name": "b", "team": "blue"},
    "c": {"kubernetes.io/metadata.name": "c", "team": "blue", "stage": "test"},
}
PODS = {
    pod.name: pod
    for pod in (
        PodAt("a", "web", "10.1.0.1", {"app": "web"}, (("TCP", "http", 80), ("UDP", "dns", 53))),
        PodAt("a", "web2", "10.1.0.2", {"app": "web", "v": "2"}, (("TCP", "http", 8080),)),
        PodAt("a", "db", "10.1.0.3", {"app": "db", "tier": "data"}),
        PodAt("b", "client", "10.1.1.1", {"app": "client"}),
        PodAt("b", "web-b", "10.1.1.2", {"app": "web"}, (("TCP", "http", 8000),)),
        PodAt("c", "tester", "10.1.2.1", {"app": "client", "tier": "data"}),
        PodAt("c", "v6", "fd01::1", {"app": "web"}),
        PodAt("", "host", "10.1.0.200"),
    )
}
OUTSIDE, OUTSIDE_V6 = "192.0.2.1", "2001:db8::1"


def pods(**labels: str) -> Json:
    return {"podSelector": {"matchLabels": labels}}


def spaces(**labels: str) -> Json:
    return {"namespaceSelector": {"matchLabels": labels}}


def into(*rules: Json, **spec: Any) -> Json:
    return policy({"policyTypes": ["Ingress"], "ingress": list(rules), **spec})


def out(*rules: Json, **spec: Any) -> Json:
    return policy({"policyTypes": ["Egress"], "egress": list(rules), **spec})


def block(cidr: str, *exceptions: str) -> Json:
    return {"ipBlock": {"cidr": cidr, **({"except": list(exceptions)} if exceptions else {})}}


WEB = pods(app="web")
TCP_80 = [{"port": 80}]

# Each case: what it shows, the policies, and connections `source target[:port[/protocol]]` that pass and that do not.
CASES: list[tuple[str, list[Json], str, str]] = [
    ("no policy", [], "client>web 192.0.2.1>db web>192.0.2.1", ""),
    ("default deny ingress", [into()], "web>client host>web", "client>web db>web 192.0.2.1>web"),
    ("policyTypes defaults to Ingress", [policy({})], "web>client", "client>web"),
    (
        "policyTypes defaults to both where there are egress rules",
        [policy({"egress": [{}]})],
        "web>client",
        "client>web",
    ),
    ("empty egress rules do not imply Egress", [policy({"egress": []})], "web>client", "client>web"),
    ("default deny egress", [out()], "client>web host>web", "web>client web>192.0.2.1 web>db"),
    (
        "policyTypes Egress ignores ingress rules",
        [out(ingress=[{"from": [pods(app="none")]}])],
        "client>web",
        "web>client",
    ),
    ("policyTypes Ingress ignores egress rules", [into({}, egress=[{"to": []}])], "client>web web>client", ""),
    ("a rule without fields allows all", [into({})], "client>web 192.0.2.1>web:9/UDP", ""),
    (
        "from: [] allows every source",
        [into({"from": [], "ports": TCP_80})],
        "192.0.2.1>web client>web",
        "client>web:81",
    ),
    ("ports: [] allows every port", [into({"from": [WEB], "ports": []})], "web2>web:9/SCTP", "db>web"),
    (
        "an empty podSelector is all pods of the policy's namespace",
        [into({"from": [{"podSelector": {}}]})],
        "db>web host>web",
        "client>web 192.0.2.1>web",
    ),
    (
        "a podSelector alone does not reach another namespace",
        [into({"from": [WEB]})],
        "web2>web",
        "web-b>web client>web",
    ),
    (
        "an empty namespaceSelector is all pods everywhere",
        [into({"from": [{"namespaceSelector": {}}]})],
        "client>web tester>web db>web",
        "192.0.2.1>web 10.1.0.77>web",
    ),
    ("a namespaceSelector by label", [into({"from": [spaces(team="blue")]})], "client>web tester>web", "db>web"),
    (
        "a namespaceSelector that selects nothing allows nobody",
        [into({"from": [spaces(team="green")]})],
        "host>web",
        "client>web db>web 192.0.2.1>web",
    ),
    (
        "a podSelector that selects nothing allows nobody",
        [into({"from": [pods(app="none")]})],
        "host>web",
        "db>web 192.0.2.1>web",
    ),
    (
        "both selectors in one peer: and",
        [into({"from": [{**spaces(team="blue"), **pods(tier="data")}]})],
        "tester>web",
        "client>web db>web",
    ),
    (
        "both selectors in two peers: or",
        [into({"from": [spaces(team="blue"), pods(tier="data")]})],
        "tester>web client>web db>web",
        "web2>web 192.0.2.1>web",
    ),
    (
        "namespaceSelector: {} with a podSelector",
        [into({"from": [{"namespaceSelector": {}, **WEB}]})],
        "web-b>web web2>web",
        "client>web db>web",
    ),
    (
        "namespaceSelector by expression",
        [into({"from": [{"namespaceSelector": {"matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}}]})],
        "client>web db>web",
        "tester>web",
    ),
    (
        "podSelector NotIn selects pods without the label",
        [
            into(
                {"from": [{"podSelector": {"matchExpressions": [{"key": "v", "operator": "NotIn", "values": ["2"]}]}}]},
                podSelector={"matchLabels": {"app": "db"}},
            )
        ],
        "web>db client>web",
        "web2>db client>db",
    ),
    (
        "a policy selects only its pods",
        [into(podSelector={"matchLabels": {"app": "db"}})],
        "client>web client>web2",
        "client>db web>db",
    ),
    (
        "a policy in another namespace does not select them",
        [into(namespace="b")],
        "client>web tester>db",
        "web>client web>web-b client>web-b",
    ),
    ("two policies add up", [into(name="p"), into({"from": [WEB]}, name="q")], "web2>web", "db>web client>web"),
    (
        "rules of one policy add up",
        [into({"from": [WEB], "ports": TCP_80}, {"from": [pods(app="db")], "ports": [{"port": 81}]})],
        "web2>web db>web:81",
        "web2>web:81 db>web",
    ),
    (
        "egress and ingress must both allow",
        [out({"to": [WEB]}, namespace="b", podSelector={}), into({"from": [spaces(team="blue")]})],
        "client>web-b tester>web",
        "client>web client>db",
    ),
    ("an ipBlock is about addresses outside", [into({"from": [block("192.0.2.0/24")]})], "192.0.2.1>web", "client>web"),
    ("an ipBlock is about pods too", [into({"from": [block("10.1.1.0/24")]})], "client>web", "db>web tester>web"),
    (
        "an ipBlock with an exception",
        [into({"from": [block("192.0.2.0/24", "192.0.2.0/31")]})],
        "192.0.2.9>web",
        "192.0.2.1>web 198.51.100.1>web",
    ),
    (
        "an exception in one block does not matter to another",
        [into({"from": [block("192.0.2.0/24", "192.0.2.0/31"), block("192.0.2.1/32")]})],
        "192.0.2.1>web",
        "192.0.2.0>web",
    ),
    ("0.0.0.0/0 is not IPv6", [into({"from": [block("0.0.0.0/0")]}, namespace="c")], "client>tester", "2001:db8::1>v6"),
    ("::/0 is IPv6", [into({"from": [block("::/0")]}, namespace="c")], "2001:db8::1>v6", "client>tester"),
    ("egress to an ipBlock", [out({"to": [block("192.0.2.0/24")]})], "web>192.0.2.1", "web>198.51.100.1 web>db"),
    ("a port without protocol is TCP", [into({"ports": TCP_80})], "client>web:80/TCP", "client>web:80/UDP"),
    ("a protocol without port", [into({"ports": [{"protocol": "UDP"}]})], "client>web:9/UDP", "client>web:9/TCP"),
    ("an empty port is all of TCP", [into({"ports": [{}]})], "client>web:9/TCP", "client>web:9/UDP"),
    ("SCTP", [into({"ports": [{"protocol": "SCTP", "port": 7}]})], "client>web:7/SCTP", "client>web:7/TCP"),
    (
        "a range of ports",
        [into({"ports": [{"port": 100, "endPort": 200}]})],
        "client>web:100 client>web:200",
        "client>web:99 client>web:201",
    ),
    (
        "ingress to a named port is another number in each pod",
        [into({"ports": [{"port": "http"}]})],
        "client>web:80 client>web2:8080",
        "client>web:8080 client>web2:80 client>db:80",
    ),
    (
        "a named port of another protocol is another port",
        [into({"ports": [{"port": "dns", "protocol": "TCP"}]})],
        "host>web",
        "client>web:53/TCP client>web:53/UDP",
    ),
    (
        "a named port that no pod has allows nothing",
        [into({"from": [], "ports": [{"port": "none"}]})],
        "host>web",
        "client>web client>web2:8080",
    ),
    (
        "egress to a named port",
        [out({"to": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]})],
        "web>web2:8080 web>web-b:8000",
        "web>web2:80 web>web-b:80 web>db:80",
    ),
    (
        "egress to a named port of anyone",
        [out({"ports": [{"port": "http"}]})],
        "web>web2:8080 db>web-b:8000",
        "web>192.0.2.1:8080 web>web2:8000",
    ),
    (
        "egress to a named port of a block allows nothing",
        [out({"to": [block("10.1.0.0/16")], "ports": [{"port": "http"}]})],
        "client>web",
        "web>web2:8080",
    ),
    (
        "named and numbered ports together",
        [into({"from": [pods(app="db")], "ports": [{"port": "http"}, {"port": 9000}]})],
        "db>web:80 db>web:9000 db>web2:8080",
        "db>web:8080 client>web:80",
    ),
    (
        "the host of a node always comes in",
        [into(), out()],
        "host>web:80 host>db:9/UDP",
        "web>host db>web",
    ),
    (
        "our own labels cannot be selected",
        [
            into({"from": [{"podSelector": {"matchLabels": {names.HOST: "true"}}}]}, name="host"),
            into({"from": [{"podSelector": {"matchLabels": {names.OF_NAMESPACE: "b"}}}]}, name="namespace"),
        ],
        "host>web",
        "client>web db>web",
    ),
    (
        "a policy cannot select another namespace's pods by our labels",
        [into(podSelector={"matchLabels": {names.OF_NAMESPACE: "b"}})],
        "web>client web>web-b client>web",
        "",
    ),
]


def probe(text: str) -> Probe:
    ends, _, rest = text.rpartition(">")
    source, target, port = ends, rest, "80"
    name, colon, more = rest.partition(":")
    if colon and (name in PODS or name.count(".") == 3):
        target, port = name, more
    number, _, protocol = port.partition("/")
    return Probe(PODS.get(source, source), PODS.get(target, target), protocol or "TCP", int(number))


@pytest.mark.parametrize(("policies", "passing", "dropped"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_policies_allow(policies: list[Json], passing: str, dropped: str) -> None:
    cluster = Cluster(NAMESPACES, PODS.values(), *(one["spec"] | one["metadata"] for one in policies))
    judge = Judge(cluster.profiles)
    for text in passing.split():
        assert judge.allows(probe(text)), f"{text} must pass"
        assert cluster.wanted(probe(text))
    for text in dropped.split():
        assert not judge.allows(probe(text)), f"{text} must not pass"
        assert not cluster.wanted(probe(text))


def test_there_are_forty_cases_and_more() -> None:
    assert len({case[0] for case in CASES}) == len(CASES) > 40


# Limits.


def test_more_exceptions_than_a_peer_can_have_become_the_blocks_that_remain() -> None:
    holes = [f"192.0.2.{number}/32" for number in range(0, 200, 2)]
    cluster = Cluster(
        NAMESPACES, PODS.values(), {"ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": holes}}]}]}
    )
    judge = Judge(cluster.profiles)
    for number in range(256):
        found = judge.allows(Probe(f"192.0.2.{number}", PODS["web"], "TCP", 80))
        assert found is (number >= 200 or number % 2 == 1)
    assert len(cluster.profiles) == 2


def test_rules_that_one_profile_cannot_hold_are_spread_over_several() -> None:
    peers = [block(f"198.51.{number}.0/24") for number in range(100)]
    ports = [{"port": number} for number in range(1000, 3000, 2)]
    cluster = Cluster(NAMESPACES, PODS.values(), {"ingress": [{"from": peers, "ports": ports}]})
    assert [one.metadata.name for one in cluster.profiles] == [
        "hosts",
        "policy.a.p",
        "policy-2.a.p",
        "policy-3.a.p",
    ]
    judge = Judge(cluster.profiles)
    for source in ("198.51.0.1", "198.51.99.1", "198.51.100.1"):
        for port in (1000, 1001, 2998, 3000):
            found = judge.allows(Probe(source, PODS["web"], "TCP", port))
            assert found is (source != "198.51.100.1" and port in (1000, 2998))


def test_many_namespaces_are_several_selectors() -> None:
    namespaces = {f"n{number}": {"team": "blue"} for number in range(150)} | {"a": {}}
    sources = [PodAt(name, "client", f"10.9.{number}.1") for number, name in enumerate(namespaces)]
    cluster = Cluster(namespaces, [*sources, PODS["web"]], {"ingress": [{"from": [spaces(team="blue")]}]})
    judge = Judge(cluster.profiles)
    assert [one.namespace for one in sources if not judge.allows(Probe(one, PODS["web"], "TCP", 1))] == ["a"]
    [rule] = cluster.profiles[1].spec.ingress[1:]  # type: ignore[index]
    assert len(rule.from_) == 3


def test_a_list_of_values_that_is_too_long_is_split_for_the_pods_of_the_policy_too() -> None:
    wanted = {"key": "app", "operator": "In", "values": [f"x{number}" for number in range(100)] + ["web"]}
    unwanted = {"key": "v", "operator": "NotIn", "values": [f"x{number}" for number in range(100)] + ["2"]}
    cluster = Cluster(NAMESPACES, PODS.values(), {"podSelector": {"matchExpressions": [wanted, unwanted]}})
    judge = Judge(cluster.profiles)
    assert not judge.allows(probe("client>web"))
    assert judge.allows(probe("client>web2"))
    assert judge.allows(probe("client>db"))


def test_a_policy_that_would_become_too_many_profiles_keeps_pods_closed_and_says_so() -> None:
    peers = [block(f"198.{number // 256}.{number % 256}.0/24") for number in range(3000)]
    ports = [{"port": number} for number in range(1000, 6000, 2)]
    cluster = Cluster(NAMESPACES, PODS.values(), {"ingress": [{"from": peers, "ports": ports}]})
    assert [one.reason for one in cluster.problems] == ["TooManyRules"]
    assert cluster.problems[0].message.startswith("NetworkPolicy a/p: its rules and named ports need more than 32 ")
    assert len(cluster.profiles) == 1 + 32
    assert not Judge(cluster.profiles).allows(probe("client>web"))


def test_a_selector_with_too_many_requirements_allows_nothing_and_says_so() -> None:
    wide = {"podSelector": {"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(99)]}}
    cluster = Cluster(NAMESPACES, PODS.values(), {"ingress": [{"from": [wide]}]})
    [problem] = cluster.problems
    assert problem.reason == "SelectorTooLong"
    assert problem.message == (
        "NetworkPolicy a/p: spec.ingress[0].from[0].podSelector: it has more than 64 requirements"
    )
    assert not Judge(cluster.profiles).allows(probe("db>web"))


@pytest.mark.parametrize("cidr", ["10.0.0.0", "10.0.0.0/33", "x/8", "10..0.0/8", "fe80::%1/64", "/", "10.0.0.0/-1"])
def test_what_is_no_block_allows_nothing_and_is_reported(cidr: str) -> None:
    cluster = Cluster({"a": {}}, [], {"ingress": [{"from": [block(cidr)]}]})
    assert [one.reason for one in cluster.problems] == ["NotABlock"]
    assert len(cluster.profiles[1].spec.ingress or ()) == 1


@pytest.mark.parametrize(
    ("cidr", "read"),
    [("10.0.0.9/24", "10.0.0.0/24"), ("010.0.0.0/8", "10.0.0.0/8"), ("::ffff:10.0.0.0/104", "10.0.0.0/8")],
)
def test_blocks_are_read_as_kubernetes_reads_them(cidr: str, read: str) -> None:
    cluster = Cluster({"a": {}}, [], {"ingress": [{"from": [block(cidr)]}]})
    assert cluster.profiles[1].spec.ingress[1].from_[0].cidr == read  # type: ignore[index]


def test_a_named_port_of_a_block_is_reported() -> None:
    rule = {"to": [block("10.0.0.0/8")], "ports": [{"port": "http"}]}
    cluster = Cluster(NAMESPACES, PODS.values(), {"egress": [rule]})
    [problem] = cluster.problems
    assert problem.reason == "PortUnknown"
    assert problem.message == (
        "NetworkPolicy a/p: spec.egress[0].to: no address of an ipBlock is known to have a port named http: give its"
        " number"
    )


def test_a_protocol_that_nobody_knows_allows_nothing_and_is_reported() -> None:
    cluster = Cluster(NAMESPACES, PODS.values(), {"ingress": [{"ports": [{"protocol": "DCCP", "port": 1}]}]})
    assert [one.reason for one in cluster.problems] == ["Unsupported"]
    assert not Judge(cluster.profiles).allows(probe("db>web"))


def test_names_and_labels_say_what_a_profile_is_of() -> None:
    long = "p" * 253
    cluster = Cluster(NAMESPACES, PODS.values(), {"name": long, "ingress": [{"ports": [{"port": "http"}]}]})
    found = [one.metadata for one in cluster.profiles[1:]]
    assert len({one.name for one in found}) == 3
    assert all(len(one.name) <= 253 for one in found)
    assert all(one.labels == {names.MANAGED: "true", names.OF_NAMESPACE: "a"} for one in found)


def test_the_example_of_the_page_is_true() -> None:
    given, wanted, _ = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [document] = codec.documents(given)
    namespaces = {"shop": {}, "night": {"team": "backup"}, "vault": {"team": "backup"}, "other": {"team": "x"}}
    cluster = Cluster(namespaces, [], document["spec"] | document["metadata"])
    [profile] = codec.documents(wanted)
    [found] = [one for one in cluster.profiles if one.metadata.name == profile["metadata"]["name"]]
    assert found.spec == msgspec.convert(profile, SecurityProfile).spec


# What a change concerns.


def view(spec: Json) -> NetworkPolicy:
    return kubernetes.decode(json.dumps(policy(spec)).encode(), NetworkPolicy)


def test_a_pod_concerns_policies_only_by_a_number_that_is_new_or_gone() -> None:
    ports = NamedPorts()
    http = NamedPort("TCP", "http")
    one, two = PodAt("a", "one", "", ports=(("TCP", "http", 80),)), PodAt("a", "two", "", ports=(("TCP", "http", 80),))
    assert ports.put("a", "one", one.view) == {PortPlace("a", http)}
    assert ports.put("a", "two", two.view) == set()
    assert ports.put("a", "two", msgspec.structs.replace(two, labels={"app": "x"}).view) == set()
    assert ports.put("b", "two", two.view) == {PortPlace("b", http)}
    assert set(ports.numbers("a", "TCP", "http")) == {80}
    changed = msgspec.structs.replace(two, ports=(("TCP", "http", 81), ("UDP", "dns", 53)))
    assert ports.put("a", "two", changed.view) == {PortPlace("a", http), PortPlace("a", NamedPort("UDP", "dns"))}
    assert set(ports.numbers("", "TCP", "http")) == {80, 81}
    assert ports.put("a", "one", None) == {PortPlace("a", http)}
    assert set(ports.numbers("a", "TCP", "http")) == {81}
    ports.put("a", "two", None)
    ports.put("b", "two", None)
    assert not ports._numbers
    assert not ports._of


def test_labels_of_named_ports_are_the_first_of_each_name() -> None:
    many = (("TCP", "http", 80), ("TCP", "http", 81), ("UDP", "http", 82), ("TCP", "", 83))
    pod = PodAt("a", "one", "", ports=many)
    assert port_labels(pod.view) == {names.PORT + "tcp-http": "80", names.PORT + "udp-http": "82"}


def _put(index: PolicyIndex, key: PolicyKey, policy: NetworkPolicy) -> None:
    index.put(key, namespace_selectors(policy), named_ports(policy))


def test_a_namespace_concerns_the_policies_that_select_it_before_or_after_the_change() -> None:
    index = PolicyIndex()
    blue, test = PolicyKey("a", "blue"), PolicyKey("a", "test")
    _put(index, blue, view({"ingress": [{"from": [spaces(team="blue")]}]}))
    _put(index, test, view({"egress": [{"to": [spaces(stage="test"), {"namespaceSelector": {}}]}]}))
    assert index.of_namespace(None, {"team": "blue"}) == {blue}
    assert index.of_namespace({"team": "blue"}, {"team": "blue", "x": "y"}) == set()
    assert index.of_namespace({"team": "blue"}, {"stage": "test"}) == {blue, test}
    assert index.of_namespace({"stage": "test"}, None) == {test}
    _put(index, blue, view({"ingress": [{"ports": [{"port": "http"}]}]}))
    assert index.of_namespace(None, {"team": "blue"}) == set()
    assert index.of_port(NamedPort("TCP", "http")) == {blue}
    assert index.of_port(NamedPort("UDP", "http")) == set()
    index.put(blue)
    index.put(test)
    assert not index._policies
    assert not index._selectors
    assert not index._ports


def test_selected_namespaces_follow_their_labels() -> None:
    index = Namespaces()
    blue = kubernetes.LabelSelector(match_labels={"team": "blue"})
    assert index.put("b", {"team": "blue"}) is None
    assert index.selected(blue) == ("b",)
    index.put("a", {"team": "blue"})
    assert index.selected(blue) == ("a", "b")
    assert index.put("b", {}) == {"team": "blue"}
    assert index.selected(blue) == ("a",)
    index.put("a", None)
    assert index.selected(blue) == ()
