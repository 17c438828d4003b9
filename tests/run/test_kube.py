"""The settings of a cluster's network: what is refused, and what is said about it."""

from typing import Any

import pytest

from netloom.errors import Invalid
from netloom.run.cluster import manifests
from netloom.run.config import ControllerSettings
from netloom.run.controllers import options_of
from tests.run.serving import netloom

PODS, SERVICES = ("10.128.0.0/14", "fd10::/48"), ("10.96.0.0/12", "fd96::/112")
Case = tuple[dict[str, Any], str, str]


def settings(**changed: Any) -> ControllerSettings:
    given: dict[str, Any] = {"kube": True, "kube_pod_cidrs": PODS, "kube_service_cidrs": SERVICES}
    return ControllerSettings(**given | changed)


def test_a_cluster_is_connected_only_if_asked_for() -> None:
    assert options_of(settings(kube=False, kube_pod_cidrs=())).kube is None
    found = options_of(settings(kube_mtu=1400)).kube
    assert found is not None
    assert (found.namespace, found.pod_blocks, found.service_blocks, found.mtu) == (
        "netloom-pods",
        PODS,
        SERVICES,
        1400,
    )
    unset = options_of(settings()).kube
    assert unset is not None
    assert unset.mtu is None


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"kube_pod_cidrs": ()}, "kubePodCidrs", "at least one block"),
        ({"kube_service_cidrs": ()}, "kubeServiceCidrs", "at least one block"),
        ({"kube_pod_cidrs": ("10.128.0.1/14",)}, "kubePodCidrs", "is not an address block"),
        ({"kube_pod_cidrs": ("pods",)}, "kubePodCidrs", "is not an address block"),
        ({"kube_service_cidrs": ("10.129.0.0/16",)}, "kubeServiceCidrs", "overlaps 10.128.0.0/14"),
        ({"kube_pod_cidrs": (*PODS, "10.130.0.0/16")}, "kubePodCidrs", "overlaps"),
        ({"kube_pod_cidrs": ("10.128.0.0/14",)}, "kubeServiceCidrs", "family that pods do not have"),
        ({"kube_pod_cidrs": tuple(f"10.{n}.0.0/16" for n in range(17))}, "kubePodCidrs", "too many"),
        ({"kube_mtu": 1000}, "kubeMtu", "at least 1280"),
        ({"kube_load_balancer_pools": ("192.0.2.1/28",)}, "kubeLoadBalancerPools", "is no pool"),
        ({"kube_load_balancer_pools": ("A=192.0.2.0/28",)}, "kubeLoadBalancerPools", "'A' is not the name"),
        (
            {"kube_load_balancer_pools": ("192.0.2.0/28", "a=192.0.2.15-192.0.2.20")},
            "kubeLoadBalancerPools",
            "a=192.0.2.15-192.0.2.20 overlaps 192.0.2.0/28",
        ),
        ({"kube_load_balancer_pools": ("10.128.9.0/24",)}, "kubeLoadBalancerPools", "overlaps 10.128.0.0/14"),
        (
            {"kube_load_balancer_pools": tuple(f"192.0.2.{n}" for n in range(65))},
            "kubeLoadBalancerPools",
            "too many",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_setting(changed: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        options_of(settings(**changed))
    assert [one.field for one in refused.value.causes] == [field]
    assert said in refused.value.causes[0].message


def test_all_blocks_that_are_wrong_are_named_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        options_of(settings(kube_pod_cidrs=("a", "b"), kube_service_cidrs=()))
    assert len(refused.value.causes) == 3


def test_serve_needs_the_cluster_because_its_own_api_has_no_pods() -> None:
    blocks = ("--kube-pod-cidrs", "10.128.0.0/14", "--kube-service-cidrs", "10.96.0.0/12")
    answer = netloom("serve", "--data", "d", "--kube", *blocks, check=False)
    assert answer.rc != 0
    assert "kubeCluster" in answer.err


def test_pools_of_addresses_are_read() -> None:
    found = options_of(settings(kube_load_balancer_pools=("192.0.2.0/28", "shop=2001:db8::8-2001:db8::9"))).kube
    assert found is not None
    assert [(one.namespace, one.version, one.last - one.first) for one in found.load_balancer_pools] == [
        ("", 4, 15),
        ("shop", 6, 1),
    ]


def test_the_controller_writes_nothing_of_the_cluster_but_statuses_of_nodes_and_services() -> None:
    [role] = [one for one in manifests.pod_network() if one["kind"] == "ClusterRole"]
    writes = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in manifests.READS
    }
    assert {resource for resource, _ in writes} == {"nodes/status", "services/status"}
    assert "secrets" not in str(role)


def test_the_rights_for_pods_are_printed_only_if_asked_for() -> None:
    with_pods, without = (netloom("crds", "--with-roles", *flag).out for flag in (("--with-kube",), ()))
    assert "netloom:pod-network" in with_pods
    assert "name: netloom-pods" in with_pods
    assert "netloom:pod-network" not in without
