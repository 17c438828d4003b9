"""The bridges of linux Networks: where their VXLAN ports lead, what they refuse, and what others see of them."""

from typing import Any

import pytest

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan import names
from netloom.plan.node.bridges import plan_tunnels, restricted
from netloom.plan.problem import Problem, Unit
from tests.plan.planning import planned, resources


def attachment(name: str = "a", *, labels: str = "{}", spec: str = "", **status: Any) -> NetworkAttachment:
    text = f"{{kind: NetworkAttachment, metadata: {{name: {name}, labels: {labels}}}, status: {status},"
    [one] = resources(f"{text} spec: {{node: n2, network: hall{spec}}}}}")
    assert isinstance(one, NetworkAttachment)
    return one


def profile(name: str, spec: str) -> SecurityProfile:
    [one] = resources(f"{{kind: SecurityProfile, metadata: {{name: {name}}}, spec: {spec}}}")
    assert isinstance(one, SecurityProfile)
    return one


def test_a_port_leads_to_each_other_node_once_and_not_to_this_one() -> None:
    others = [
        attachment("b", hostIP="172.31.0.2", vni=10),
        attachment("c", hostIP="172.31.0.2", vni=10),
        attachment("d", hostIP="172.31.0.3", vni=10),
        attachment("here", hostIP="172.31.0.1", vni=10),
        attachment("earlier", hostIP="172.31.0.4", vni=9),
        attachment("nowhere", vni=10),
    ]
    common = {"key": "10", "local_ip": "172.31.0.1"}
    assert plan_tunnels(10, "172.31.0.1", others) == {
        "nlx_10_172.31.0.2": {**common, "remote_ip": "172.31.0.2"},
        "nlx_10_172.31.0.3": {**common, "remote_ip": "172.31.0.3"},
    }
    assert plan_tunnels(10, "172.31.0.1", []) == {}


def test_the_name_of_a_bridge_is_that_of_its_vni_and_fits_a_device() -> None:
    for vni in (1, 4096, 2**24 - 1):
        assert names.vni_of_bridge(names.bridge(vni)) == vni
        assert len(names.bridge(vni)) <= 15
    assert [names.vni_of_bridge(name) for name in ("br-nl", "br-nlx", "7011", "br-nl999999999", "br-int")] == [None] * 5


RULES = "ingress: [{from: [{cidr: 10.0.0.0/8}]}]"


@pytest.mark.parametrize(
    ("profiles", "spec", "labels", "named"),
    [
        ({}, "", "{}", ""),
        ({"web": f"{{selector: {{matchLabels: {{app: web}}}}, {RULES}}}"}, "", "{}", ""),
        ({"web": f"{{selector: {{matchLabels: {{app: web}}}}, {RULES}}}"}, "", "{app: web}", "web"),
        ({"web": "{selector: {matchLabels: {app: web}}}"}, "", "{app: web}", ""),
        ({"web": "{egress: []}"}, ", securityProfiles: [web]", "{}", "web"),
        ({"web": "{}"}, ", securityProfiles: [web]", "{}", ""),
        ({"web": "{}"}, ", securityProfiles: [web, gone]", "{}", "gone"),
        ({"b": "{selector: {}, egress: []}", "a": "{selector: {}, ingress: []}"}, "", "{}", "a"),
    ],
    ids=["none", "of others", "selected", "without rules", "named", "named without rules", "missing", "several"],
)
def test_a_machine_that_a_profile_restricts_is_refused(
    profiles: dict[str, str], spec: str, labels: str, named: str
) -> None:
    every = [profile(name, text) for name, text in profiles.items()]
    problem = restricted(attachment(labels=labels, spec=spec), every)
    text = f"SecurityProfile {named} restricts a, and Network hall of fabric linux has no filters"
    advice = "use fabric ovn or vxlan, or remove the profile"
    assert problem == (Problem("ProfilesUnsupported", f"{text}: {advice}") if named else None)


LINUX = "{kind: Network, metadata: {name: hall}, spec: {fabric: linux}, status: {vni: 10}}"


def test_a_rate_and_dhcp_that_the_fabric_does_not_have_are_reported() -> None:
    planner = planned(
        LINUX,
        "{kind: Subnet, metadata: {name: hall}, spec: {network: hall, cidr: 10.0.0.0/24, dhcp: {}}, "
        "status: {validated: true}}",
        attachment(ips=["10.0.0.9/24"], mac="02:00:00:00:00:09", vni=10),
        "{kind: Shaping, metadata: {name: one}, spec: {from: {attachment: a}, rate: 10mbit}}",
        "{kind: Shaping, metadata: {name: all}, spec: {from: {network: hall}, rate: 10mbit}}",
    )
    planner.flush()
    said = {unit: [one.message for one in problems] for unit, problems in planner.desired.problems.items()}
    rate = "spec.rate: Network hall of fabric linux has no meters: use fabric ovn or vxlan"
    dhcp = "spec.dhcp: Network hall is of fabric linux, which has no DHCP: the agent sets the addresses of ports"
    assert said == {
        Unit("Shaping", "default", "one"): [rate],
        Unit("Shaping", "default", "all"): [rate],
        Unit("Subnet", "default", "hall"): [dhcp],
    }
