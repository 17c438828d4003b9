"""What is planned of Services and NetworkPolicies, in real OVN: VIPs outside the slices, and rules on both ways."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from netloom.lab import Lab
from netloom.model.kinds.kubernetes import EndpointSlice, NetworkPolicy, Service, decode
from netloom.plan.kube.indexes import Namespaces
from netloom.plan.kube.planned import ClusterSettings, Planned
from netloom.plan.kube.policies.network_policies import plan_hosts, plan_policy
from netloom.plan.kube.services.load_balancers import plan_service
from tests.lab.worlds import World, world

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

Json = dict[str, Any]
SETTINGS = ClusterSettings(namespace="services", pod_blocks=("10.61.0.0/16",), service_blocks=("10.97.0.0/24",))
WEB, DB, NONE, LOCAL = (
    ("10.97.0.1", "fd97::1"),
    ("10.97.0.2", "fd97::2"),
    ("10.97.0.3", "fd97::3"),
    ("10.97.0.4", "fd97::4"),
)
ONE = ("10.97.0.5", "fd97::5")
ZONAL = ("10.97.0.6", "fd97::6")
FAMILIES = pytest.mark.parametrize("family", [0, 1], ids=["v4", "v6"])


@pytest.fixture(scope="module")
def services(lab: Lab) -> Iterator[World]:
    """Pods on two nodes, and Services of them."""
    with world(lab, "services") as made:
        made.listen("web-1", 8081)
        made.listen("web-2", 8082)
        made.listen("db", 5432)
        for name in ("client", "guest"):
            made.listen(name, 80)
        _apply(made, plan_hosts(SETTINGS))
        web = [("web-1", ("10.61.1.11", "fd61:0:0:1::11"), 8081), ("web-2", ("10.61.2.12", "fd61:0:0:2::12"), 8082)]
        _apply(made, service("web", WEB, *web))
        _apply(made, service("db", DB, ("db", ("10.61.2.20", "fd61:0:0:2::20"), 5432)))
        _apply(made, service("none", NONE))
        _apply(made, service("local", LOCAL, *web, internalTrafficPolicy="Local"))
        _apply(made, service("zonal", ZONAL, *web, zones={"n1": "b", "n2": "a", "n3": ""}, hints="ab"))
        yield made


def service(
    name: str,
    ips: tuple[str, str],
    *pods: tuple[str, tuple[str, str], int],
    zones: dict[str, str] | None = None,
    hints: str = "",
    **spec: Any,
) -> Planned:
    """Return a Service with port 80, and a slice for each pod and family: the named port differs.

    `zones` are those of the nodes, `hints` has a zone for each pod.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"clusterIPs": list(ips), "ports": [{"name": "http", "port": 80, "targetPort": "http"}], **spec},
    }
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "shop", "name": pod},
            "addressType": ("IPv4", "IPv6")[family],
            "endpoints": [
                {
                    "addresses": [addresses[family]],
                    "nodeName": "n" + pod[-1],
                    "hints": {"forZones": [{"name": hints[number]}]} if hints else None,
                }
            ],
            "ports": [{"name": "http", "protocol": "TCP", "port": port}],
        }
        for number, (pod, addresses, port) in enumerate(pods)
        for family in (0, 1)
    ]
    views = [decode(json.dumps(one).encode(), EndpointSlice) for one in slices]
    return plan_service(SETTINGS, decode(json.dumps(document).encode(), Service), views, zones)


def policy(name: str, spec: Json) -> Planned:
    """Return the profiles of a policy in namespace `shop`."""
    document = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": name},
        "spec": spec,
    }
    view = decode(json.dumps(document).encode(), NetworkPolicy)
    return plan_policy(SETTINGS, view, Namespaces().selected, lambda *_: (8081, 8082))


def _apply(made: World, plan: Planned) -> list[str]:
    assert plan.problems == ()
    text = "\n---\n".join(msgspec.json.encode(one).decode() for one in plan.objects)
    made.apply(text)
    made.ready(text)
    return [f"{one.kind.lower()}/{one.metadata.name}" for one in plan.objects]


@contextmanager
def enforced(made: World, spec: Json) -> Iterator[None]:
    names = _apply(made, policy("p", spec))
    try:
        yield
    finally:
        made.delete(*names)


def answering(made: World, who: str, vip: str) -> set[str]:
    """Ask a dozen times and return who answered; "" for a time nobody did."""
    return {made.ask(who, vip, 80).partition(" ")[0] for _ in range(12)}


@FAMILIES
def test_a_service_is_answered_by_pods_on_all_nodes_at_their_own_ports(services: World, family: int) -> None:
    for who in ("client", "db", "guest", "node"):
        assert services.answers(who, WEB[family], 80)
        assert answering(services, who, WEB[family]) == {"web-1", "web-2"}


@FAMILIES
def test_a_service_without_endpoints_refuses_at_once(services: World, family: int) -> None:
    assert services.answers("client", WEB[family], 80)
    assert services.refusal("client", NONE[family], 80) == "ConnectionRefusedError"


@FAMILIES
def test_a_service_with_an_internal_traffic_policy_stays_on_the_client_s_node(services: World, family: int) -> None:
    for who, web in (("client", "web-1"), ("node", "web-1"), ("db", "web-2"), ("web-2", "web-2")):
        assert services.answers(who, LOCAL[family], 80).partition(" ")[0] == web
        assert answering(services, who, LOCAL[family]) == {web}


@FAMILIES
def test_a_service_without_an_endpoint_on_the_client_s_node_does_not_answer(services: World, family: int) -> None:
    web = [("web-1", ("10.61.1.11", "fd61:0:0:1::11"), 8081)]
    names = _apply(services, service("one", ONE, *web, internalTrafficPolicy="Local"))
    try:
        assert services.answers("client", ONE[family], 80)
        assert not services.ask("db", ONE[family], 80)
    finally:
        services.delete(*names)


@FAMILIES
def test_a_service_with_hints_is_answered_by_pods_for_the_client_s_zone(services: World, family: int) -> None:
    # Node n1 is in the zone for which web-2 is, on n2; and n2 in that of web-1.
    for who, web in (("client", "web-2"), ("node", "web-2"), ("db", "web-1"), ("web-2", "web-1")):
        assert services.answers(who, ZONAL[family], 80).partition(" ")[0] == web
        assert answering(services, who, ZONAL[family]) == {web}


@FAMILIES
def test_egress_rules_are_about_the_pod_behind_a_service(services: World, family: int) -> None:
    assert services.answers("client", DB[family], 80)
    selector = {"podSelector": {"matchLabels": {"app": "web"}}}
    spec = {
        "podSelector": {"matchLabels": {"app": "client"}},
        "policyTypes": ["Egress"],
        "egress": [{"to": [selector]}],
    }
    with enforced(services, spec):
        services.blocked(("client", DB[family], 80))
        assert services.answers("client", WEB[family], 80)
        assert answering(services, "client", WEB[family]) == {"web-1", "web-2"}
        assert services.answers("guest", DB[family], 80)


@FAMILIES
def test_ingress_rules_are_about_the_client_of_a_service(services: World, family: int) -> None:
    selector = {"podSelector": {"matchLabels": {"app": "client"}}}
    rule = {"from": [selector], "ports": [{"port": "http"}]}
    with enforced(services, {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [rule]}):
        services.blocked(("guest", WEB[family], 80), ("db", WEB[family], 80))
        assert services.answers("client", WEB[family], 80)
        assert answering(services, "client", WEB[family]) == {"web-1", "web-2"}
        assert services.answers("node", WEB[family], 80), "the host always comes in"


@FAMILIES
def test_a_pod_that_nobody_may_reach_reaches_itself_by_its_service(services: World, family: int) -> None:
    assert services.answers("guest", DB[family], 80)
    with enforced(services, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}):
        services.blocked(("guest", DB[family], 80), ("client", DB[family], 80))
        assert services.answers("db", DB[family], 80)
        services.blocked(("db", WEB[family], 80))
