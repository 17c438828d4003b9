"""Services: which endpoints are used, what one change changes, and what is left alone."""

import copy
import json
from typing import Any

import msgspec
import pytest

from netloom.model.kinds.kubernetes import EndpointSlice, Service, decode
from netloom.model.kinds.policy import Endpoint, ExternalTrafficPolicy, InternalTrafficPolicy, LoadBalancer, Protocol
from netloom.model.registry import LOAD_BALANCER
from netloom.model.schemas.validation import admit
from netloom.plan.kube import names
from netloom.plan.kube.planned import Planned
from netloom.plan.kube.services.load_balancers import plan_service
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from tests.plan.kube_world import SETTINGS

Json = dict[str, Any]
HTTP = [{"name": "http", "port": 80}]


def service(*, labels: Json | None = None, status: Json | None = None, **spec: Any) -> Service:
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web", "labels": labels or {}},
        "spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.10"], "ports": HTTP, **spec},
        "status": status or {},
    }
    return decode(json.dumps(document).encode(), Service)


def endpoint(ip: str, **conditions: bool) -> Json:
    return {"addresses": [ip], "conditions": conditions}


def endpoints(*given: Json, ports: list[Json] | None = None, kind: str = "IPv4") -> EndpointSlice:
    document = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": kind,
        "endpoints": list(given) or None,
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}] if ports is None else ports,
    }
    return decode(json.dumps(document).encode(), EndpointSlice)


def balancers(of: Planned) -> dict[str, LoadBalancer]:
    """Return planned LoadBalancers, after the API took them."""
    found = {}
    for one in of.objects:
        assert isinstance(one, LoadBalancer)
        document = json.loads(msgspec.json.encode(one))
        admit(LOAD_BALANCER, copy.deepcopy(document))
        found[one.metadata.name] = one
    return found


def rows(of: Planned) -> dict[str, dict[str, str]]:
    """Return the VIPs that OVN gets, by LoadBalancer."""
    planner = Planner()
    for one in of.objects:
        planner.put(one)
    planner.flush()
    found: dict[str, dict[str, str]] = {}
    for unit in (Unit("LoadBalancer", names.NAMESPACE, one.metadata.name) for one in of.objects):
        given = [row for ref, row in planner.desired.rows.items() if planner.desired.of[ref] == unit]
        found[unit.name] = {vip: str(ips) for row in given for vip, ips in dict(row.columns["vips"]).items()}  # type: ignore[arg-type]
    return found


def test_a_service_is_one_load_balancer_for_all_its_ports() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    numbers = [{"name": "http", "protocol": "TCP", "port": 8080}, {"name": "dns", "protocol": "UDP", "port": 53}]
    plan = plan_service(
        SETTINGS, service(ports=ports), [endpoints(endpoint("10.1.0.2"), endpoint("10.1.0.1"), ports=numbers)]
    )
    assert plan.problems == ()
    [one] = balancers(plan).values()
    assert one.metadata.name == "service-v4.shop.web"
    assert one.metadata.namespace == "netloom-pods"
    assert one.metadata.labels == {names.MANAGED: "true", names.OF_NAMESPACE: "shop"}
    assert one.spec.networks == ("pods",)
    assert one.spec.routers == ("pods",)
    assert [(vip.ip, vip.port, vip.protocol, vip.target_port) for vip in one.spec.vips] == [
        ("10.96.0.10", 80, Protocol.TCP, 8080),
        ("10.96.0.10", 53, Protocol.UDP, None),
    ]
    assert one.spec.endpoints == (Endpoint(ip="10.1.0.1"), Endpoint(ip="10.1.0.2"))
    assert one.spec.external_traffic_policy is None


def test_a_service_of_both_families_is_one_load_balancer_for_each() -> None:
    both = service(clusterIPs=["fd96::10", "10.96.0.10"])
    plan = plan_service(SETTINGS, both, [endpoints(endpoint("10.1.0.1")), endpoints(endpoint("fd01::1"), kind="IPv6")])
    assert rows(plan) == {
        "service-v4.shop.web": {"10.96.0.10:80": "10.1.0.1:8080"},
        "service-v6.shop.web": {"[fd96::10]:80": "[fd01::1]:8080"},
    }


@pytest.mark.parametrize(
    "left_alone",
    [
        service(clusterIPs=["None"], clusterIP="None"),
        service(clusterIPs=[], clusterIP=""),
        service(clusterIPs=None, type="ExternalName", externalName="example.org"),
        service(type="ExternalName", externalName="example.org"),
        service(labels={"service.kubernetes.io/service-proxy-name": "other"}),
        service(labels={"service.kubernetes.io/headless": ""}),
    ],
)
def test_headless_services_and_those_of_others_are_left_alone(left_alone: Service) -> None:
    assert plan_service(SETTINGS, left_alone, [endpoints(endpoint("10.1.0.1"))]) == Planned()


def test_a_service_without_endpoints_refuses() -> None:
    for slices in ([], [endpoints()], [endpoints(endpoint("10.1.0.1", ready=False))]):
        plan = plan_service(SETTINGS, service(), slices)
        [one] = balancers(plan).values()
        assert one.spec.endpoints == ()
        assert rows(plan) == {"service-v4.shop.web": {"10.96.0.10:80": ""}}


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ([endpoint("10.1.0.1")], "1"),
        ([endpoint("10.1.0.1", ready=True), endpoint("10.1.0.2", ready=False)], "1"),
        ([endpoint("10.1.0.1", ready=True), endpoint("10.1.0.2", ready=False, serving=True, terminating=True)], "1"),
        ([endpoint("10.1.0.1", ready=False), endpoint("10.1.0.2", ready=False, serving=True, terminating=True)], "2"),
        ([endpoint("10.1.0.1", ready=False, terminating=True)], "1"),
        ([endpoint("10.1.0.1", ready=False, serving=False, terminating=True)], ""),
        ([endpoint("10.1.0.1", ready=False, serving=True, terminating=False)], ""),
        ([endpoint("10.1.0.1", ready=True, serving=True, terminating=True)], "1"),
        ([{"addresses": ["10.1.0.1", "10.1.0.2"]}], "1"),
        ([{"addresses": []}, endpoint("x"), endpoint("fd01::1"), endpoint("10.1.0.2")], "2"),
    ],
)
def test_endpoints_are_used_as_kube_proxy_does(given: list[Json], used: str) -> None:
    [one] = balancers(plan_service(SETTINGS, service(), [endpoints(*given)])).values()
    assert "".join(ip.ip.rpartition(".")[2] for ip in one.spec.endpoints or ()) == used


def test_an_endpoint_in_two_slices_is_one_and_ready_if_one_says_so() -> None:
    slices = [endpoints(endpoint("10.1.0.1", ready=False)), endpoints(endpoint("10.1.0.1"), endpoint("10.1.0.2"))]
    [one] = balancers(plan_service(SETTINGS, service(), slices)).values()
    assert one.spec.endpoints == (Endpoint(ip="10.1.0.1"), Endpoint(ip="10.1.0.2"))


def test_slices_of_names_of_other_ports_protocols_and_of_all_ports_are_not_used() -> None:
    others = [
        endpoints(endpoint("10.1.0.1"), ports=[{"name": "http", "protocol": "UDP", "port": 8080}]),
        endpoints(endpoint("10.1.0.2"), ports=[{"name": "other", "protocol": "TCP", "port": 8080}]),
        endpoints(endpoint("10.1.0.3"), ports=[{"name": "http", "protocol": "TCP", "port": None}]),
        endpoints(endpoint("example.org"), kind="FQDN"),
        endpoints(endpoint("10.1.0.4"), ports=[]),
    ]
    [one] = balancers(plan_service(SETTINGS, service(), others)).values()
    assert one.spec.endpoints == ()


def test_a_named_target_port_may_have_another_number_in_each_pod() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "admin", "port": 81}]
    slices = [
        endpoints(
            endpoint(f"10.1.0.{number}"),
            ports=[
                {"name": "http", "protocol": "TCP", "port": 8000 + number},
                {"name": "admin", "protocol": "TCP", "port": 81},
            ],
        )
        for number in (1, 2)
    ]
    plan = plan_service(SETTINGS, service(ports=ports), slices)
    assert rows(plan) == {
        "service-v4.shop.web": {"10.96.0.10:80": "10.1.0.1:8001,10.1.0.2:8002"},
        "service-v4.shop.web.admin": {"10.96.0.10:81": "10.1.0.1:81,10.1.0.2:81"},
    }
    balancers(plan)


def test_a_port_whose_endpoints_are_not_those_of_the_others_has_its_own() -> None:
    ports = [{"name": name, "port": number} for number, name in enumerate(("a", "b", "c"), 1)]
    slices = [
        endpoints(endpoint("10.1.0.1"), ports=[{"name": n, "protocol": "TCP", "port": 9} for n in "ac"]),
        endpoints(endpoint("10.1.0.2"), ports=[{"name": "b", "protocol": "TCP", "port": 9}]),
    ]
    assert rows(plan_service(SETTINGS, service(ports=ports), slices)) == {
        "service-v4.shop.web": {"10.96.0.10:1": "10.1.0.1:9", "10.96.0.10:3": "10.1.0.1:9"},
        "service-v4.shop.web.b": {"10.96.0.10:2": "10.1.0.2:9"},
    }


def test_an_endpoint_that_changes_changes_one_load_balancer() -> None:
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 30)]
    numbers = [{"name": f"p{number}", "protocol": "TCP", "port": number} for number in range(1, 30)]
    both = service(ports=ports, clusterIPs=["10.96.0.10", "fd96::10"])
    six = endpoints(endpoint("fd01::1"), ports=numbers, kind="IPv6")
    four = [endpoint(f"10.1.0.{number}") for number in range(1, 100)]
    before = balancers(plan_service(SETTINGS, both, [endpoints(*four, ports=numbers), six]))
    after = balancers(plan_service(SETTINGS, both, [endpoints(*four[1:], ports=numbers), six]))
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == ["service-v4.shop.web"]


def test_the_order_of_slices_and_endpoints_changes_nothing() -> None:
    some = [endpoint(f"10.1.0.{number}") for number in range(1, 9)]
    one, two = endpoints(*some[:4]), endpoints(*some[4:])
    again = endpoints(*reversed(some))
    assert plan_service(SETTINGS, service(), [one, two]) == plan_service(SETTINGS, service(), [again])


def test_many_ports_are_several_load_balancers() -> None:
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 151)]
    numbers = [{"name": f"p{number}", "protocol": "TCP", "port": number} for number in range(1, 151)]
    found = balancers(plan_service(SETTINGS, service(ports=ports), [endpoints(endpoint("10.1.0.1"), ports=numbers)]))
    assert list(found) == ["service-v4.shop.web", "service-v4.shop.web.p65", "service-v4.shop.web.p129"]
    assert sum(len(one.spec.vips) for one in found.values()) == 150


def test_more_endpoints_than_a_load_balancer_can_have_are_reported_with_the_service() -> None:
    some = [endpoint(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}") for number in range(9000)]
    plan = plan_service(SETTINGS, service(), [endpoints(*some[at : at + 1000]) for at in range(0, 9000, 1000)])
    [one] = balancers(plan).values()
    assert len(one.spec.endpoints or ()) == 8192
    [problem] = plan.problems
    assert problem == ("TooManyEndpoints", "Service shop/web has 9000 endpoints: only 8192 of them are used")


def test_session_affinity_lasts_as_long_as_it_is_asked_to() -> None:
    def seconds(**spec: Any) -> int:
        [one] = balancers(plan_service(SETTINGS, service(**spec), [])).values()
        return one.spec.affinity_seconds

    assert seconds() == 0
    assert seconds(sessionAffinity="ClientIP") == 10800
    assert seconds(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 5}}) == 5


def test_an_affinity_of_a_day_is_cut_and_reported() -> None:
    day = service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 86400}})
    plan = plan_service(SETTINGS, day, [])
    assert next(iter(balancers(plan).values())).spec.affinity_seconds == 65535
    assert [one.reason for one in plan.problems] == ["AffinityTooLong"]


def test_a_protocol_that_nobody_knows_is_reported_and_costs_that_port_only() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "odd", "port": 81, "protocol": "DCCP"}]
    plan = plan_service(SETTINGS, service(ports=ports), [endpoints(endpoint("10.1.0.1"))])
    assert rows(plan) == {"service-v4.shop.web": {"10.96.0.10:80": "10.1.0.1:8080"}}
    assert plan.problems == (("Unsupported", "Service shop/web: port 81: protocol 'DCCP' cannot be balanced"),)


def at(node: str, ip: str, **conditions: bool) -> Json:
    return {**endpoint(ip, **conditions), "nodeName": node}


def test_with_an_internal_traffic_policy_each_node_chooses_of_its_own_endpoints() -> None:
    given = [
        at("n1", "10.1.1.1"),
        at("n1", "10.1.1.2", ready=False, serving=True, terminating=True),
        at("n2", "10.1.2.1", ready=False, serving=True, terminating=True),
        at("n3", "10.1.3.1", ready=False),
        endpoint("10.1.4.1"),
    ]
    plan = plan_service(SETTINGS, service(internalTrafficPolicy="Local"), [endpoints(*given)])
    assert plan.problems == ()
    [one] = balancers(plan).values()
    assert one.spec.internal_traffic_policy is InternalTrafficPolicy.LOCAL
    assert one.spec.endpoints == (Endpoint(ip="10.1.1.1", node="n1"), Endpoint(ip="10.1.2.1", node="n2"))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"sessionAffinity": "ClientIP"}, "OVN has no session affinity for one node"),
        (
            {"type": "NodePort"},
            "connections from outside go through its cluster IP: set externalTrafficPolicy Local as well",
        ),
    ],
)
def test_an_internal_traffic_policy_without_effect_is_reported(spec: Json, why: str) -> None:
    plan = plan_service(SETTINGS, service(internalTrafficPolicy="Local", **spec), [endpoints(at("n1", "10.1.0.1"))])
    said = f"Service shop/web: internalTrafficPolicy Local has no effect: {why}"
    assert plan.problems == (("NotLocal", said),)
    assert rows(plan) == {"service-v4.shop.web": {"10.96.0.10:80": "10.1.0.1:8080"}}


def test_sctp_is_balanced() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "SCTP"}]
    slices = [endpoints(endpoint("10.1.0.1"), ports=[{"name": "http", "protocol": "SCTP", "port": 9}])]
    [one] = balancers(plan_service(SETTINGS, service(ports=ports), slices)).values()
    assert one.spec.vips[0].protocol is Protocol.SCTP


# From outside.


def test_ports_of_nodes_are_those_of_the_vips() -> None:
    ports = [{"name": "http", "port": 80, "nodePort": 30080}]
    for kind, port in (("NodePort", 30080), ("LoadBalancer", 30080), ("ClusterIP", None)):
        [one] = balancers(plan_service(SETTINGS, service(ports=ports, type=kind), [])).values()
        assert one.spec.vips[0].node_port == port
        assert one.spec.external_traffic_policy == ("cluster" if port else None)


def test_addresses_outside_are_those_of_the_family_with_their_clients() -> None:
    ingress = [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "ipMode": "Proxy"}, {"hostname": "x"}, {"ip": "2001:db8::1"}]
    both = service(
        type="LoadBalancer",
        clusterIPs=["10.96.0.10", "fd96::10"],
        externalIPs=["198.51.100.1", "2001:db8::2"],
        loadBalancerSourceRanges=["203.0.113.9/24 "],
        externalTrafficPolicy="Local",
        status={"loadBalancer": {"ingress": ingress}},
    )
    found = balancers(plan_service(SETTINGS, both, []))
    assert {
        name: [(one.ip, one.source_ranges) for one in balancer.spec.external_addresses]
        for name, balancer in found.items()
    } == {
        "service-v4.shop.web": [("192.0.2.1", ("203.0.113.0/24",)), ("198.51.100.1", ())],
        "service-v6.shop.web": [("2001:db8::1", ("203.0.113.0/24",)), ("2001:db8::2", ())],
    }
    assert {one.spec.external_traffic_policy for one in found.values()} == {ExternalTrafficPolicy.LOCAL}


def test_source_ranges_that_cannot_be_read_let_nobody_in() -> None:
    odd = service(
        type="LoadBalancer",
        loadBalancerSourceRanges=["everyone"],
        status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    )
    plan = plan_service(SETTINGS, odd, [])
    assert [one.reason for one in plan.problems] == ["NotABlock"]
    assert [one.spec.external_addresses for one in balancers(plan).values()] == [()]


# Hints: endpoints that are near.

ZONES = {"n1": "a", "n2": "a", "n3": "b", "n4": ""}


def hinted(ip: str, zones: str = "", nodes: tuple[str, ...] = (), **conditions: bool) -> Json:
    hints = {"forZones": [{"name": one} for one in zones], "forNodes": [{"name": one} for one in nodes]}
    return {**endpoint(ip, **conditions), "hints": hints}


def near(*given: Json, zones: dict[str, str] = ZONES, **spec: Any) -> tuple[dict[str, set[str]], list[str]]:
    """Return the addresses that clients on each node use ("": on every node), and reasons of problems."""
    plan = plan_service(SETTINGS, service(**spec), [endpoints(*given)], zones)
    [one] = balancers(plan).values()
    found: dict[str, set[str]] = {}
    for each in one.spec.endpoints or ():
        found.setdefault(each.node, set()).add(each.ip.rpartition(".")[2])
    assert (one.spec.internal_traffic_policy is InternalTrafficPolicy.LOCAL) == ("" not in found)
    return found, [problem.reason for problem in plan.problems]


def test_a_node_uses_endpoints_of_its_zone_and_one_without_a_zone_uses_all() -> None:
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "b"), hinted("10.1.0.3", "ab")]
    expected = {"n1": {"1", "3"}, "n2": {"1", "3"}, "n3": {"2", "3"}, "n4": {"1", "2", "3"}}
    assert near(*given) == (expected, [])


def test_a_node_uses_its_own_endpoints_first_and_else_those_of_its_zone() -> None:
    given = [hinted("10.1.0.1", "a", ("n1",)), hinted("10.1.0.2", "b", ("n9",))]
    assert near(*given) == ({"n1": {"1"}, "n2": {"1"}, "n3": {"2"}, "n4": {"1", "2"}}, [])


def test_a_zone_without_an_endpoint_uses_all() -> None:
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "a"), hinted("10.1.0.3", "b")]
    zones = {"n1": "a", "n2": "b", "n3": "c"}
    assert near(*given, zones=zones) == ({"n1": {"1", "2"}, "n2": {"3"}, "n3": {"1", "2", "3"}}, [])


@pytest.mark.parametrize(
    "given",
    [
        [hinted("10.1.0.1", "a"), endpoint("10.1.0.2")],  # one without
        [hinted("10.1.0.1", "ab"), hinted("10.1.0.2", "ba")],  # no difference
    ],
    ids=["missing", "all"],
)
def test_hints_that_are_not_complete_or_make_no_difference_are_ignored(given: list[Json]) -> None:
    assert near(*given) == ({"": {"1", "2"}}, [])


def test_hints_by_which_an_endpoint_would_be_used_nowhere_are_ignored() -> None:
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "c")]
    assert near(*given, zones={"n1": "a", "n2": "a"}) == ({"": {"1", "2"}}, [])


def test_hints_are_about_ready_endpoints() -> None:
    going: dict[str, Any] = {"ready": False, "serving": True, "terminating": True}
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "b"), endpoint("10.1.0.3", **going)]
    assert near(*given)[0]["n3"] == {"2"}
    assert near(hinted("10.1.0.1", "a", **going), hinted("10.1.0.2", "b", **going)) == ({"": {"1", "2"}}, [])


def test_hints_that_cannot_be_followed_are_ignored_and_reported() -> None:
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "b")]
    assert near(*given, sessionAffinity="ClientIP") == ({"": {"1", "2"}}, ["HintsIgnored"])
    many = {f"n{number}": "ab"[number % 2] for number in range(8193)}
    assert near(*given, zones=many) == ({"": {"1", "2"}}, ["HintsIgnored"])


def test_an_internal_traffic_policy_is_stronger_than_hints() -> None:
    given = [{**hinted("10.1.0.1", "a"), "nodeName": "n3"}, {**hinted("10.1.0.2", "b"), "nodeName": "n3"}]
    assert near(*given, internalTrafficPolicy="Local") == ({"n3": {"1", "2"}}, [])


def test_a_service_with_hints_is_reached_from_outside_too() -> None:
    ports = [{"name": "http", "port": 80, "nodePort": 30080}]
    given = [hinted("10.1.0.1", "a"), hinted("10.1.0.2", "b")]
    found, problems = near(*given, ports=ports, type="NodePort")
    assert (found["n1"], found["n3"], problems) == ({"1"}, {"2"}, [])
