"""What one attachment means on its node."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.networks import Fabric, Network, Subnet
from netloom.plan.kube.names import POD_UID
from netloom.plan.node.grants import EVERYTHING, NOT_GRANTED, node_grants
from netloom.plan.node.pods import PodSandbox, is_for, read_sandbox, written
from netloom.plan.node.ports import NO_SANDBOX, Host, PlannedRoute, PortPlan, gateway, plan_port, plan_ports
from netloom.plan.problem import Problem

HOST = Host(underlay_mtu=1500, grants=EVERYTHING)


def thing(kind: type[Any], name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> Any:
    metadata = {"name": name, "namespace": "ns1", "uid": f"uid-{name}"}
    document = {"apiVersion": "v", "kind": kind.__name__, "metadata": metadata, "spec": spec, "status": status or {}}
    return msgspec.convert(document, kind)


def attached(*ips: str, addressed: str = "True", **spec: Any) -> NetworkAttachment:
    conditions = [{"type": "Addressed", "status": addressed}]
    status = {"ips": ips, "mac": "02:00:00:00:00:09", "vni": 10, "conditions": conditions}
    found: NetworkAttachment = thing(NetworkAttachment, "a", {"node": "n1", "network": "blue", **spec}, status)
    return found


def blue(**spec: Any) -> Network:
    found: Network = thing(Network, "blue", spec)
    return found


def block(cidr: str, validated: bool = True, **spec: Any) -> Subnet:
    name = "s" + cidr.replace(".", "-").replace(":", "-").replace("/", "-")
    found: Subnet = thing(Subnet, name, {"network": "blue", "cidr": cidr, **spec}, {"validated": validated})
    return found


def planned(attachment: NetworkAttachment, network: Network | None = None, *subnets: Subnet) -> PortPlan:
    plan = plan_port(attachment, network or blue(), subnets, HOST)
    assert isinstance(plan, PortPlan)
    return plan


def test_an_internal_port_is_a_device_of_the_node() -> None:
    plan = planned(attached("10.0.0.9/24"))
    assert (plan.type, plan.device, plan.inner, plan.netns) == (
        PortType.INTERNAL, "nl020000000009", "nl020000000009", "",
    )  # fmt: skip
    assert (plan.iface_id, plan.mtu, plan.addresses) == ("ns1/a", 1442, ("10.0.0.9/24",))
    assert plan.generated
    named = planned(attached("10.0.0.9/24", port={"type": "internal", "name": "web0"}))
    assert named.device == named.inner == "web0"
    assert not named.generated


@pytest.mark.parametrize("name", ["lo", "ovs-system", "ovn-n2-0", "genev_sys_6081", "br-int", "nl02000000000a"])
def test_a_name_that_the_switch_or_another_port_may_need_is_refused(name: str) -> None:
    spec = attached("10.0.0.9/24", port={"type": "internal", "name": name})
    plan = plan_port(spec, blue(), (), HOST)
    assert isinstance(plan, Problem)
    assert plan.reason == "NameReserved"


@pytest.mark.parametrize("name", ["log", "overview", "nlx", "nl020000000009"])
def test_any_other_name_will_do(name: str) -> None:
    assert planned(attached("10.0.0.9/24", port={"type": "internal", "name": name})).device == name


def test_a_veths_outer_end_has_the_generated_name_and_its_inner_end_the_asked_one() -> None:
    plan = planned(attached("10.0.0.9/24", port={"type": "veth", "netns": "/run/netns/w", "name": "eth0"}))
    assert (plan.device, plan.inner, plan.netns) == ("nl020000000009", "eth0", "/run/netns/w")
    plan = planned(attached("10.0.0.9/24", port={"type": "veth", "netns": "/run/netns/w"}))
    assert plan.inner not in ("", plan.device)
    assert len(plan.inner) <= 15


SANDBOX = PodSandbox(
    namespace="ns1", name="a", uid="p", container="c", device="eth0", netns="/run/netns/p", identity="boot/7"
)
SANDBOX_OF_ANY = replace(SANDBOX, uid="")


def test_a_pods_port_waits_for_its_sandbox_and_then_is_a_pair_into_it() -> None:
    pod = attached("10.0.0.9/24", port={"type": "pod"}, defaultRoute=True)
    assert plan_port(pod, blue(), (block("10.0.0.0/24"),), HOST) == NO_SANDBOX
    plan = plan_port(pod, blue(), (block("10.0.0.0/24"),), Host(grants=node_grants()), sandbox=SANDBOX)
    assert isinstance(plan, PortPlan)
    assert (plan.device, plan.inner, plan.netns) == ("nl020000000009", "eth0", "/run/netns/p")
    assert (plan.netns_identity, plan.routes) == ("boot/7", (PlannedRoute("0.0.0.0/0", "10.0.0.1", False),))


def test_a_pods_port_without_addresses_has_no_plan_whatever_the_runtime_says() -> None:
    pod = attached(port={"type": "pod"})
    assert plan_port(pod, blue(), (), HOST, sandbox=SANDBOX) is None


@pytest.mark.parametrize("fabric", ["ovn", "vxlan"])
def test_a_pods_port_is_planned_on_both_fabrics(fabric: str) -> None:
    plan = plan_port(attached("10.0.0.9/24", port={"type": "pod"}), blue(fabric=fabric), (), HOST, sandbox=SANDBOX)
    assert isinstance(plan, PortPlan)
    assert plan.fabric is Fabric(fabric)


@pytest.mark.parametrize(
    ("uid", "label", "fits"), [("p", "p", True), ("p", "q", False), ("", "q", True), ("p", "", False)]
)
def test_a_sandbox_is_for_the_attachment_of_its_own_pod(uid: str, label: str, fits: bool) -> None:
    pod = attached("10.0.0.9/24", port={"type": "pod"})
    pod = replace(pod, metadata=replace(pod.metadata, labels={POD_UID: label} if label else {}))
    assert is_for(replace(SANDBOX, uid=uid), pod) is fits
    planned = plan_ports([blue(), pod], HOST, [replace(SANDBOX, uid=uid)])["ns1", "a"]
    assert isinstance(planned, PortPlan) is fits


def test_a_child_of_a_pod_waits_with_it() -> None:
    pod = attached("10.0.0.9/24", port={"type": "pod"})
    child = thing(
        NetworkAttachment,
        "child",
        {"node": "n1", "network": "blue", "port": {"type": "child", "parent": "a", "vlan": 7}},
        msgspec.to_builtins(pod.status),
    )
    assert plan_ports([blue(), pod, child], HOST)["ns1", "child"] == NO_SANDBOX
    assert isinstance(plan_ports([blue(), pod, child], HOST, [SANDBOX_OF_ANY])["ns1", "child"], PortPlan)


def test_a_record_is_read_as_it_was_written_and_rubbish_is_none() -> None:
    assert read_sandbox(written(SANDBOX)) == SANDBOX
    assert read_sandbox("{") is None
    assert read_sandbox('{"namespace": 1}') is None


@pytest.mark.parametrize(
    ("netns", "fine"),
    [
        ("/run/netns/w", True),
        ("/var/netns/deep/w", True),
        ("/proc/1/ns/net", False),
        ("/run/netns/../../proc/1/ns/net", False),
        ("/run/netns2/w", False),
    ],
)
def test_only_namespaces_in_the_folders_of_the_agents_settings_may_be_named(netns: str, fine: bool) -> None:
    host = Host(grants=node_grants(netns_folders=("*=/run/netns", "*=/var/netns/")))
    plan = plan_port(attached("10.0.0.9/24", port={"type": "veth", "netns": netns}), blue(), (), host)
    assert isinstance(plan, PortPlan) is fine
    assert fine or (isinstance(plan, Problem) and plan.reason == NOT_GRANTED and netns in plan.message)


def test_an_existing_device_is_given_nothing_but_its_place() -> None:
    port = {"type": "existing", "device": "eth3"}
    plan = planned(attached("10.0.0.9/24", port=port, defaultRoute=True), None, block("10.0.0.0/24"))
    assert (plan.device, plan.inner, plan.addresses, plan.routes) == ("eth3", "eth3", (), ())


@pytest.mark.parametrize(
    ("ips", "spec", "alone"),
    [
        (("10.0.0.9/24",), {}, True),
        (("10.0.0.9/24",), {"allowedAddresses": ["10.0.0.1"]}, True),
        (("10.0.0.9/24",), {"allowedAddresses": ["fd00::1"]}, False),
        (("10.0.0.9/24", "fd00::9/64"), {}, False),
        (("10.0.0.9/24",), {"port": {"type": "existing", "device": "tap0"}}, False),
    ],
)
def test_a_port_is_of_ipv4_alone_if_it_may_say_nothing_over_ipv6(ips: Any, spec: dict[str, Any], alone: bool) -> None:
    assert planned(attached(*ips, **spec)).four_only is alone


def test_the_default_route_goes_to_the_gateways_of_the_subnets_the_addresses_are_from() -> None:
    subnets = block("10.0.0.0/24"), block("10.0.1.0/24"), block("fd00::/64", gateway="fd00::fe")
    plan = planned(attached("10.0.0.9/24", "fd00::9/64", defaultRoute=True), None, *subnets)
    assert plan.routes == (PlannedRoute("0.0.0.0/0", "10.0.0.1", False), PlannedRoute("::/0", "fd00::fe", False))
    assert planned(attached("10.0.0.9/24"), None, *subnets).routes == ()


def test_a_subnet_that_is_not_validated_gives_no_gateway_and_the_gateway_itself_gets_no_route() -> None:
    assert planned(attached("10.0.0.9/24", defaultRoute=True), None, block("10.0.0.0/24", False)).routes == ()
    assert planned(attached("10.0.0.1/24", defaultRoute=True), None, block("10.0.0.0/24")).routes == ()


def test_a_route_through_a_stranger_is_on_link_and_a_given_default_wins() -> None:
    routes = [{"to": "10.9.0.0/16", "via": "172.16.0.1"}, {"to": "0.0.0.0/0", "via": "10.0.0.7"}]
    plan = planned(attached("10.0.0.9/24", routes=routes, defaultRoute=True), None, block("10.0.0.0/24"))
    assert plan.routes == (
        PlannedRoute("0.0.0.0/0", "10.0.0.7", False),
        PlannedRoute("10.9.0.0/16", "172.16.0.1", True),
    )


@pytest.mark.parametrize(
    ("spec", "host", "mtu"),
    [
        ({"mtu": 1300}, HOST, 1300),
        ({}, Host(underlay_mtu=9000, grants=EVERYTHING), 8942),
        ({}, Host(underlay_mtu=1500, underlay_v6=True, grants=EVERYTHING), 1422),
        ({}, Host(underlay_mtu=1280, grants=EVERYTHING), 1280),
        ({"fabric": "vxlan"}, Host(underlay_mtu=1500, grants=EVERYTHING), 1450),
        ({"fabric": "vxlan"}, Host(underlay_mtu=1500, underlay_v6=True, grants=EVERYTHING), 1430),
        (
            {"provider": {"physicalNetwork": "p"}},
            Host(underlay_mtu=1500, physical_networks=frozenset("p"), grants=EVERYTHING),
            1500,
        ),
    ],
)
def test_the_mtu_is_the_networks_or_what_the_underlay_leaves(spec: dict[str, Any], host: Host, mtu: int) -> None:
    plan = plan_port(attached("10.0.0.9/24"), blue(**spec), (), host)
    assert isinstance(plan, PortPlan)
    assert plan.mtu == mtu


def test_a_port_of_a_vxlan_network_has_its_number_and_none_of_ovns() -> None:
    plan = planned(attached("10.0.0.9/24"), blue(fabric="vxlan"))
    assert (plan.fabric, plan.vni) == (Fabric.VXLAN, 10)
    assert planned(attached("10.0.0.9/24")).vni == 0
    unnumbered = replace(attached("10.0.0.9/24"), status=replace(attached("10.0.0.9/24").status, vni=None))
    assert plan_port(unnumbered, blue(fabric="vxlan"), (), HOST) is None


def test_nothing_is_planned_before_it_is_addressed_or_its_network_known() -> None:
    assert plan_port(attached("10.0.0.9/24"), None, (), HOST) is None
    assert plan_port(attached(), blue(), (), HOST) is None
    assert plan_port(attached("10.0.0.9/24", addressed="False"), blue(), (), HOST) is None


def test_a_missing_physical_network_is_a_problem() -> None:
    missing = plan_port(attached("10.0.0.9/24"), blue(provider={"physicalNetwork": "p"}), (), HOST)
    assert isinstance(missing, Problem)
    assert missing.reason == "PhysicalNetworkMissing"


def test_a_port_of_a_linux_network_has_the_vni_of_its_bridge_and_room_for_vxlan() -> None:
    plan = planned(attached("10.0.0.9/24"), blue(fabric="linux"))
    assert (plan.vni, plan.mtu, plan.addresses) == (10, 1450, ("10.0.0.9/24",))
    taken = plan_port(attached("10.0.0.9/24", port={"type": "internal", "name": "br-nl10"}), blue(), (), HOST)
    assert isinstance(taken, Problem)
    assert taken.reason == "NameReserved"


def test_a_block_without_room_has_no_gateway() -> None:
    assert gateway(block("10.0.0.0/31")) == ""
    assert gateway(block("10.0.0.0/30")) == "10.0.0.1"
    assert gateway(block("fd00::/64")) == "fd00::1"
