"""The network of a cluster: slices, the nodes' own attachments, the ways of packets, and the attachments of pods."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.kubernetes import (
    ClusterNode,
    EndpointSlice,
    NetworkPolicy,
    NetworkPolicyIngressRule,
    Pod,
    PodMeta,
    Service,
    decode,
)
from netloom.model.kinds.networks import Router, Subnet
from netloom.model.kinds.policy import RouterPolicy
from netloom.model.kubernetes import KUBERNETES_KINDS
from netloom.model.registry import KINDS
from netloom.model.schemas.validation import admit
from netloom.model.values import addresses
from netloom.plan.kube import names
from netloom.plan.kube.changes import changes
from netloom.plan.kube.cluster import plan_network, plan_node, slices
from netloom.plan.kube.planned import Planned
from netloom.plan.kube.pods import plan_pod
from tests.plan.kube_objects import FOUR, SETTINGS, node, pod, pod_document

N1 = node("n1", "10.128.0.0/24", "fd10:128:0:1::/64")
N2 = node("n2", "10.128.1.0/24", "fd10:128:0:2::/64")


def of(plan: Planned, kind: type[Any]) -> Any:
    (found,) = [one for one in plan.objects if isinstance(one, kind)]
    return found


def router(*nodes: ClusterNode) -> Router:
    found: Router = of(plan_network(SETTINGS, nodes), Router)
    return found


def decision(policies: tuple[RouterPolicy, ...], source: str, target: str) -> str:
    """Return what becomes of a packet, as OVN evaluates policies."""
    version = addresses.family(source)

    def matches(one: RouterPolicy) -> bool:
        families = {addresses.family(block) for block in (*one.from_, *one.to, *one.via)}
        return (
            families <= {version}
            and (not one.from_ or any(addresses.within(source, block) for block in one.from_))
            and (not one.to or any(addresses.within(target, block) for block in one.to))
        )

    best = max((one for one in policies if matches(one)), key=lambda one: one.priority)
    return f"to {best.via[0]}" if best.via else best.action.value


def admitted(plan: Planned) -> list[Resource]:
    """Return planned objects as the store has them: valid, and with defaults."""
    found = []
    for one in plan.objects:
        kind = KINDS.of(one)
        document = kind.document(one)
        document.pop("status", None)
        admit(kind, document)
        found.append(kind.decode(msgspec.json.encode(document)))
    return found


def test_a_node_has_a_subnet_for_each_of_its_blocks_and_an_attachment_with_the_second_addresses() -> None:
    plan = plan_node(SETTINGS, N1)
    assert not plan.problems
    subnets = [one.spec for one in plan.objects if isinstance(one, Subnet)]
    assert [(one.cidr, one.gateway) for one in subnets] == [
        ("10.128.0.0/24", "10.128.0.1"),
        ("fd10:128:0:1::/64", "fd10:128:0:1::1"),
    ]
    host: NetworkAttachment = of(plan, NetworkAttachment)
    assert host.metadata.name == "node.n1"
    assert host.metadata.labels == {names.MANAGED: "true", names.HOST: "true"}
    assert host.spec.ips == ("10.128.0.2", "fd10:128:0:1::2")
    assert host.spec.port.name == "nl-host"
    assert host.spec.forwarding
    assert {(one.to, one.via) for one in host.spec.routes} == {
        ("10.128.0.0/14", "10.128.0.1"),
        ("10.96.0.0/12", "10.128.0.1"),
        ("fd10:128::/48", "fd10:128:0:1::1"),
        ("fd10:96::/112", "fd10:128:0:1::1"),
    }


@pytest.mark.parametrize(
    ("source", "target", "what"),
    [
        ("10.128.0.9", "10.128.1.9", "allow"),
        ("10.128.0.9", "10.128.0.2", "allow"),
        ("10.128.0.9", "192.0.2.1", "to 10.128.0.2"),
        ("10.128.1.9", "192.0.2.1", "to 10.128.1.2"),
        ("10.128.0.9", "10.131.0.1", "drop"),
        ("10.128.0.9", "10.96.0.10", "drop"),
        ("192.0.2.1", "10.128.0.9", "allow"),
        ("192.0.2.1", "198.51.100.1", "drop"),
        ("fd10:128:0:1::9", "fd10:128:0:2::9", "allow"),
        ("fd10:128:0:2::9", "2001:db8::1", "to fd10:128:0:2::2"),
        ("2001:db8::1", "2001:db8::2", "drop"),
    ],
)
def test_a_packet_of_a_pod_goes_to_a_pod_or_out_through_its_own_node(source: str, target: str, what: str) -> None:
    assert decision(router(N1, N2).spec.policies, source, target) == what


def test_a_cluster_without_nodes_has_a_network_and_a_router_without_ports() -> None:
    plan = plan_network(SETTINGS, ())
    assert len(admitted(plan)) == 2
    spec = router().spec
    assert (spec.networks, spec.policies, spec.routes) == ((), (), ())


def test_the_default_route_leads_to_the_first_node_whichever_joined_first() -> None:
    assert [one.via for one in router(N2, N1).spec.routes] == ["10.128.0.2", "fd10:128:0:1::2"]
    assert router(N2, N1) == router(N1, N2)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("192.168.0.0/24", "PodCIDROutside"),
        ("10.0.0.0/8", "PodCIDROutside"),
        ("10.128.0.0/30", "PodCIDRTooSmall"),
        ("nonsense", "PodCIDRMalformed"),
        ("fd10:129::/64", "PodCIDROutside"),
    ],
)
def test_a_block_that_cannot_be_used_is_a_problem_of_its_node_only(block: str, reason: str) -> None:
    bad = node("bad", block)
    plan = plan_node(SETTINGS, bad)
    assert not plan.objects
    assert [one.reason for one in plan.problems] == [reason]
    assert router(N1, bad) == router(N1)


def test_a_block_with_host_bits_and_two_blocks_of_a_family_are_taken_as_the_first_block() -> None:
    found, problems = slices(SETTINGS, node("n1", "10.128.0.7/24", "10.128.9.0/24"))
    assert not problems
    assert [one.block for one in found] == ["10.128.0.0/24"]


def test_a_thousand_nodes_of_two_families_make_a_router_that_is_valid() -> None:
    nodes = [node(f"n{n}", f"10.{128 + n // 256}.{n % 256}.0/24", f"fd10:128:0:{n:x}::/64") for n in range(1000)]
    plan = plan_network(SETTINGS, nodes)
    admitted(plan)
    spec = of(plan, Router).spec
    assert decision(spec.policies, "10.131.100.9", "192.0.2.1") == "to 10.131.100.2"
    assert decision(spec.policies, "10.131.100.9", "10.129.3.7") == "allow"


NUMBERS = st.lists(st.integers(0, 1023), min_size=1, max_size=70, unique=True)


@given(numbers=NUMBERS, random=st.randoms(use_true_random=False), outside=st.ip_addresses(v=4))
def test_every_pod_leaves_through_its_own_node_in_whatever_order_nodes_joined(
    numbers: list[int], random: Random, outside: Any
) -> None:
    nodes = [node(f"n{n}", f"10.{128 + n // 256}.{n % 256}.0/24") for n in numbers]
    spec = router(*nodes).spec
    shuffled = random.sample(nodes, len(nodes))
    assert router(*shuffled).spec == spec
    source, target = random.choice(numbers), random.randrange(1024)
    address = f"10.{128 + source // 256}.{source % 256}.9"
    peer = f"10.{128 + target // 256}.{target % 256}.9"
    assert decision(spec.policies, address, peer) == ("allow" if target in numbers else "drop")
    if not any(addresses.within(str(outside), block) for block in ("10.128.0.0/14", "10.96.0.0/12")):
        own = f"10.{128 + source // 256}.{source % 256}.2"
        assert decision(spec.policies, address, str(outside)) == f"to {own}"
        assert decision(spec.policies, str(outside), address) == "allow"


# Pods.


def test_a_pod_has_the_labels_that_policies_select_by_and_none_that_it_forges() -> None:
    forged = {names.HOST: "true", names.OF_NAMESPACE: "kube-system", names.MANAGED: "false", names.PORT + "tcp-x": "1"}
    mine = pod("web", namespace="shop", uid="u1", labels={"app": "web", **forged})
    one: NetworkAttachment = of(plan_pod(FOUR, mine, slices(FOUR, N1)[0]), NetworkAttachment)
    assert one.metadata.labels == {
        "app": "web",
        names.MANAGED: "true",
        names.OF_NAMESPACE: "shop",
        names.POD_UID: "u1",
    }
    assert one.metadata.name == "pod.shop.web"
    assert (one.spec.node, one.spec.subnets, one.spec.default_route) == ("n1", ("slice-v4.n1",), True)


@pytest.mark.parametrize(
    "other",
    [pod("p", ""), pod("p", host=True), pod("p", phase="Succeeded"), pod("p", phase="Failed")],
    ids=["unscheduled", "host", "succeeded", "failed"],
)
def test_a_pod_that_needs_no_network_has_no_attachment(other: Pod) -> None:
    assert plan_pod(FOUR, other, slices(FOUR, N1)[0]) == Planned()


def test_a_pod_on_a_node_without_a_block_is_a_problem() -> None:
    assert [one.reason for one in plan_pod(FOUR, pod("p"), ()).problems] == ["NodeWithoutPodCIDR"]


def test_the_longest_names_make_valid_attachments_that_differ() -> None:
    long = "a" * 252
    found = {}
    for name in (long + "b", long + "c"):
        mine = pod(name, namespace="n" * 63, uid="u")
        (one,) = admitted(plan_pod(FOUR, mine, slices(FOUR, N1)[0]))
        found[one.metadata.name] = one.metadata.annotations[names.POD_NAME]
    assert sorted(found.values()) == [long + "b", long + "c"]


def test_what_the_store_has_is_what_is_planned() -> None:
    plans = [plan_network(SETTINGS, [N1, N2]), plan_node(SETTINGS, N1), plan_pod(FOUR, pod("p"), slices(FOUR, N1)[0])]
    for plan in plans:
        assert not changes(plan.objects, admitted(plan))


def test_a_pod_of_the_same_name_gets_another_attachment() -> None:
    own = slices(FOUR, N1)[0]
    (first,) = plan_pod(FOUR, pod("p", uid="u1"), own).objects
    (second,) = plan_pod(FOUR, pod("p", uid="u2"), own).objects
    found = changes([second], [first])
    assert (found.remove, found.create, found.update) == ((first,), (second,), ())


def test_labels_that_somebody_added_are_removed_and_annotations_stay() -> None:
    (wanted,) = plan_pod(FOUR, pod("p"), slices(FOUR, N1)[0]).objects
    meta = wanted.metadata
    noted = structs.replace(meta, annotations=meta.annotations | {"note": "mine"})
    marked = structs.replace(meta, labels=meta.labels | {"app": "db"})
    assert not changes([wanted], [structs.replace(wanted, metadata=noted)])
    assert changes([wanted], [structs.replace(wanted, metadata=marked)]).update == (wanted,)


# Views.


def test_a_null_is_an_absent_value() -> None:
    raw = b'{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s","labels":null},'
    found = decode(
        raw + b'"addressType":"IPv9","endpoints":null,"ports":[null,{"port":null,"name":null}]}', EndpointSlice
    )
    assert (found.endpoints, found.address_type, found.metadata.labels) == ((), "IPv9", {})
    assert [one.port for one in found.ports] == [None]


def test_what_is_not_read_is_not_kept() -> None:
    meta = {"name": "p", "annotations": {"a": "x" * 1000}, "managedFields": [{"manager": "m"}], "ownerReferences": [{}]}
    found = decode(msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": meta}), Pod)
    assert found.metadata == PodMeta(name="p")


def test_ports_and_values_that_this_version_does_not_know_are_read() -> None:
    text = (
        '{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"Later","ports":'
        '[{"port":80,"targetPort":"http"},{"port":81,"targetPort":8081}],"ipFamilyPolicy":"X"}}'
    )
    found = decode(text.encode(), Service)
    assert [one.target_port for one in found.spec.ports] == ["http", 8081]
    rule = decode(b'{"apiVersion":"n","kind":"NetworkPolicy","spec":{"ingress":[{}]}}', NetworkPolicy).spec.ingress
    assert rule == (NetworkPolicyIngressRule(),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(kind=st.sampled_from(tuple(KUBERNETES_KINDS)), spec=JSON, status=JSON)
def test_an_object_is_read_or_refused_as_undecodable(kind: Any, spec: Any, status: Any) -> None:
    raw = msgspec.json.encode({"apiVersion": "v1", "kind": kind.name, "spec": spec, "status": status})
    try:
        assert isinstance(decode(raw, kind.type), kind.type)
    except msgspec.ValidationError:
        pass


@given(seed=st.integers(0, 2**32))
def test_a_pod_with_nulls_anywhere_is_planned_as_without_them(seed: int) -> None:
    random = Random(seed)

    def with_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            found = {key: with_nulls(one) for key, one in value.items()}
            return found | {"more": None, "initContainers": None} if random.random() < 0.5 else found
        return [with_nulls(one) for one in value] if isinstance(value, list) else value

    plain = pod_document("p", ports=[{"name": "http", "containerPort": 8080}])
    nulled = decode(msgspec.json.encode(with_nulls(plain)), Pod)
    own = slices(FOUR, N1)[0]
    found, expected = plan_pod(FOUR, nulled, own), plan_pod(FOUR, decode(msgspec.json.encode(plain), Pod), own)
    assert found.objects[0].metadata.labels.items() >= expected.objects[0].metadata.labels.items()
