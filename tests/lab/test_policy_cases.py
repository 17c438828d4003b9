"""The well-known traps of NetworkPolicies, and the tiers of ClusterNetworkPolicies, with real packets.

Each case has a port of its own, so all policies are there at once. What must be possible is what the API reference says
(`tests/plan/kube_world.py`), of all of them together.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from netloom.lab import Lab
from netloom.model.kinds import kubernetes
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.policy import SecurityProfile, Tier
from netloom.model.kubernetes import CLUSTER_NETWORK_POLICY
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.kube.policies.cluster_policies import plan_cluster_policy
from netloom.plan.kube.policies.network_policies import plan_hosts, plan_policy
from tests.lab.worlds import MANIFESTS, Way, World, world
from tests.plan.kube_objects import document
from tests.plan.kube_world import Cluster, PodAt, Probe, policy

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.timeout(300)]

Json = dict[str, Any]
SETTINGS = ClusterSettings(namespace="cases", pod_blocks=("10.61.0.0/16",), service_blocks=("10.97.0.0/24",))
NAME = "kubernetes.io/metadata.name"
NAMESPACES = {"shop": {NAME: "shop", "team": "red"}, "other": {NAME: "other", "team": "blue"}}
PODS = {
    one.name: one
    for one in (
        PodAt("shop", "web-1", "10.61.1.11", {"app": "web"}, (("TCP", "http", 8081),)),
        PodAt("shop", "web-2", "10.61.2.12", {"app": "web"}, (("TCP", "http", 8082),)),
        PodAt("shop", "db", "10.61.2.20", {"app": "db"}),
        PodAt("shop", "client", "10.61.1.30", {"app": "client"}),
        PodAt("other", "guest", "10.61.1.40", {"app": "guest"}),
        PodAt("", "node", "10.61.1.2"),
    )
}


def pods(**labels: str) -> Json:
    return {"podSelector": {"matchLabels": labels}}


def spaces(**labels: str) -> Json:
    return {"namespaceSelector": {"matchLabels": labels}}


def where(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def block(cidr: str, *exceptions: str) -> Json:
    return {"ipBlock": {"cidr": cidr, **({"except": list(exceptions)} if exceptions else {})}}


PEERS: dict[str, list[Json] | None] = {
    "no list of peers is everyone": None,
    "an empty list of peers is everyone": [],
    "an empty podSelector is the namespace": [{"podSelector": {}}],
    "pods by label": [pods(app="client")],
    "a podSelector selects in its own namespace only": [pods(app="guest")],
    "an empty namespaceSelector is everyone in the cluster": [{"namespaceSelector": {}}],
    "namespaces by label": [spaces(team="blue")],
    "a namespace by its name": [spaces(**{NAME: "shop"})],
    "namespaces that do not exist": [spaces(team="green")],
    "both selectors in one peer must match": [spaces(team="blue") | pods(app="client")],
    "both selectors in one peer, of one pod": [spaces(team="blue") | pods(app="guest")],
    "of two peers one must match": [spaces(team="blue"), pods(app="client")],
    "In": [{"podSelector": where("app", "In", "client", "nobody")}],
    "NotIn": [{"podSelector": where("app", "NotIn", "client")}],
    "NotIn of a label that no pod has": [{"podSelector": where("stage", "NotIn", "test")}],
    "Exists": [{"namespaceSelector": {}, "podSelector": where("app", "Exists")}],
    "DoesNotExist": [{"podSelector": where("app", "DoesNotExist")}],
    "namespaces by NotIn": [{"namespaceSelector": where("team", "NotIn", "red")}],
    "labels and expressions must all match": [{"podSelector": {
        "matchLabels": {"app": "client"}, **where("stage", "Exists")}}],
    "the address of a pod": [block("10.61.1.30/32")],
    "a block with an exception": [block("10.61.0.0/16", "10.61.1.0/24")],
    "a block of all addresses": [block("0.0.0.0/0")],
    "a block of nobody": [block("192.0.2.0/24")],
    "a block of another family": [block("::/0")],
}  # fmt: skip
PORTS: dict[str, Any] = {
    "a range of ports": lambda port: {"port": port - 1, "endPort": port + 1},
    "a range that ends before": lambda port: {"port": port - 2, "endPort": port - 1},
    "another protocol": lambda port: {"protocol": "UDP", "port": port},
    "another port": lambda port: {"port": port + 1},
}


def cases(field: str, peers: str, first: int) -> Iterator[tuple[str, int, Json]]:
    """Yield the name, the port and the policy of each case for a direction."""
    subject = {"podSelector": {"matchLabels": {"app": "web" if field == "ingress" else "db"}}}
    of = {"namespace": "shop", **subject, "policyTypes": [field.title()]}
    port = first
    for name, some in PEERS.items():
        rule = {"ports": [{"port": port}], **({} if some is None else {peers: some})}
        yield name, port, {**of, field: [rule]}
        port += 10
    for name, make in PORTS.items():
        yield name, port, {**of, field: [{"ports": [make(port)]}]}
        port += 10
    yield "a policy for other pods", port, {**of, **pods(app="nobody"), field: [{"ports": [{"port": port}]}]}


INGRESS = list(cases("ingress", "from", 9000))
EGRESS = list(cases("egress", "to", 10_000))
NAMED = {"namespace": "shop", "podSelector": {"matchLabels": {"app": "web"}},
         "ingress": [{"from": [pods(app="client")], "ports": [{"port": "http"}]}]}  # fmt: skip
LET_IN = {"namespace": "shop", "podSelector": {"matchLabels": {"app": "web"}},
          "ingress": [{"from": [pods(app="db")], "ports": [{"port": 10_000, "endPort": 10_999}]}]}  # fmt: skip
POLICIES = [one | {"name": f"p{n}"} for n, one in enumerate([NAMED, LET_IN, *(c[2] for c in (*INGRESS, *EGRESS))])]


def tcp(first: int, last: int = 0) -> list[Json]:
    port = {"range": {"start": first, "end": last}} if last else {"number": first}
    return [{"tcp": {"destinationPort": port}}]


EVERYONE: Json = {"namespaces": {}}
WEB: Json = {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}}
SHOP: Json = {"namespaces": {"matchLabels": {"team": "red"}}}
GUEST: Json = {"namespaces": {"matchLabels": {"team": "blue"}}}
FIRST, PASSED = 9000, 9030
"""Ports of cases above: for everyone, and for one pod."""
TIERS: list[Json] = [
    {"tier": "Admin", "priority": 0, "subject": WEB, "ingress": [
        {"action": "Accept", "from": [GUEST], "protocols": tcp(PASSED)},
        {"action": "Pass", "from": [SHOP], "protocols": tcp(FIRST, PASSED)},
        {"action": "Deny", "from": [EVERYONE], "protocols": tcp(FIRST, PASSED)},
        {"action": "Accept", "from": [SHOP], "protocols": [{"destinationNamedPort": "http"}]},
    ]},
    {"tier": "Admin", "priority": 1000, "subject": WEB, "ingress": [
        {"action": "Accept", "from": [EVERYONE], "protocols": tcp(FIRST, PASSED)},
        {"action": "Deny", "from": [{"pods": WEB["pods"]}]},
    ]},
    {"tier": "Admin", "priority": 5, "subject": GUEST, "egress": [
        {"action": "Pass", "to": [WEB]},
        {"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}], "protocols": tcp(7000)},
    ]},
    {"tier": "Baseline", "priority": 3, "subject": EVERYONE, "ingress": [
        {"action": "Accept", "from": [SHOP], "protocols": tcp(7001)},
        {"action": "Deny", "from": [EVERYONE], "protocols": tcp(7000, 7002)},
    ], "egress": [{"action": "Deny", "to": [GUEST], "protocols": tcp(7003)}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def made(lab: Lab) -> Iterator[World]:
    """Pods on two nodes, and all policies."""
    text = (MANIFESTS / "services.yaml").read_text()
    with world(lab, "cases", text) as found:
        for name in ("web-1", "web-2"):
            found.listen(name, *(port for _, port, _ in (*INGRESS, *EGRESS)), 8081, 8082)
        for name in ("client", "guest"):
            found.listen(name, 7000, 7001, 7002, 7003)
        _apply(found, Cluster(NAMESPACES, PODS.values(), *POLICIES))
        yield found


def _apply(found: World, cluster: Cluster) -> list[str]:
    """Apply what is planned of policies; return the profiles of tiers."""
    plans = [plan_hosts(SETTINGS)]
    for one in POLICIES:
        view = kubernetes.decode(msgspec.json.encode(policy(one)), kubernetes.NetworkPolicy)
        plans.append(plan_policy(SETTINGS, view, cluster.index.selected, cluster.ports.numbers))
    for number, spec in enumerate(cluster.tiers):
        raw = msgspec.json.encode(document(CLUSTER_NETWORK_POLICY, f"t{number}", spec=spec))
        tier = kubernetes.decode(raw, ClusterNetworkPolicy)
        plans.append(plan_cluster_policy(SETTINGS, tier, cluster.index.selected, cluster.ports.numbers, lambda _: ()))
    text = "\n---\n".join(msgspec.json.encode(one).decode() for plan in plans for one in plan.objects)
    found.apply(text)
    found.ready(text)
    objects = [one for plan in plans for one in plan.objects if isinstance(one, SecurityProfile)]
    return [f"securityprofile/{one.metadata.name}" for one in objects if one.spec.tier is not Tier.DEFAULT]


def _check(found: World, cluster: Cluster, ways: set[tuple[str, str, int]]) -> None:
    """Try ways from a pod to a port of another; what must be possible is, and nothing else."""
    wanted: dict[bool, list[Way]] = {True: [], False: []}
    for source, target, port in sorted(ways):
        possible = cluster.wanted(Probe(PODS[source], PODS[target], "TCP", port))
        wanted[possible].append((source, PODS[target].ip, port))
    assert all(wanted.values())
    answers = found.reaches(wanted[True])
    assert [way for way, who in answers.items() if not who] == []
    found.blocked(*wanted[False])


def test_there_are_at_least_40_cases() -> None:
    assert len({port for _, port, _ in (*INGRESS, *EGRESS)}) >= 40


def test_policies_allow_what_the_api_reference_allows_and_nothing_else(made: World) -> None:
    ways = {(source, f"web-{1 + port // 10 % 2}", port)
            for _, port, _ in INGRESS for source in ("client", "db", "guest", "node")}  # fmt: skip
    ways |= {("db", f"web-{1 + port // 10 % 2}", port) for _, port, _ in EGRESS}
    ways |= {(source, *target) for source in ("client", "guest") for target in (("web-1", 8081), ("web-2", 8081))}
    _check(made, Cluster(NAMESPACES, PODS.values(), *POLICIES), ways)


def test_tiers_are_evaluated_before_and_after_policies(made: World) -> None:
    cluster = Cluster(NAMESPACES, PODS.values(), *POLICIES, tiers=TIERS)
    applied = _apply(made, cluster)
    sources = ("client", "db", "guest", "web-2")
    ways = {(source, "web-1", port) for source in sources for port in (9000, 9010, 9030, 9050, 8081)}
    ways |= {("web-1", "guest", port) for port in (7000, 7001, 7002, 7003)}
    ways |= {("guest", "client", port) for port in (7000, 7001, 7002, 7003)}
    try:
        _check(made, cluster, ways)
    finally:  # The other tests are about policies without tiers.
        made.delete(*applied)
