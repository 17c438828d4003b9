"""The ports of a node that lead to its pods: from the pod to the node's table."""

import random as randomness
from typing import Any

import pytest

from netloom.model.document import ObjectMeta
from netloom.model.kinds.attachments import (
    AttachmentPort,
    NetworkAttachment,
    NetworkAttachmentSpec,
    NetworkAttachmentStatus,
    PortType,
)
from netloom.model.kinds.policy import Vip
from netloom.plan.kube import names
from netloom.plan.kube.node.host_ports import annotation, host_ports
from netloom.plan.kube.node.nftables import Table
from netloom.plan.kube.node.table import plan_table
from tests.plan.kube_objects import pod
from tests.plan.tables import Packet, receive
from tests.plan.test_kube_node import LOCAL, NODE, OUTSIDE, balancer

TCP, UDP = 6, 17
V4, V6 = "10.244.1.20", "fd00:1:0:1::20"


def attachment(text: str, *, name: str = "pod.default.a", ips: tuple[str, ...] = (V4, V6)) -> NetworkAttachment:
    return NetworkAttachment(
        api_version="netloom.dev/v1alpha1",
        kind="NetworkAttachment",
        metadata=ObjectMeta(name=name, namespace="netloom-pods", annotations={names.HOST_PORTS: text}),
        spec=NetworkAttachmentSpec(node="n1", network="pods", port=AttachmentPort(type=PortType.POD)),
        status=NetworkAttachmentStatus(ips=tuple(f"{ip}/{64 if ':' in ip else 24}" for ip in ips)),
    )


def table(*attachments: NetworkAttachment) -> Table:
    return plan_table(NODE, (), host_ports(attachments)).table


def outcome(of: Table, destination: str, port: int, *, protocol: int = TCP, device: str = "eth0") -> str:
    source = OUTSIDE if ":" not in destination else "2001:db8:1::9"
    packet = Packet(source, destination, protocol, port, device, local=destination in LOCAL)
    return receive(of, "prerouting" if device else "output", packet, randomness.Random(1))


@pytest.mark.parametrize(
    ("port", "text"),
    [
        ({"containerPort": 80}, ""),
        ({"containerPort": 80, "hostPort": 8080}, "tcp * 8080 80"),
        ({"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "192.0.2.1"}, "udp 192.0.2.1 53 53"),
        ({"containerPort": 53, "hostPort": 53, "hostIP": "fd00::1"}, "tcp fd00::1 53 53"),
        ({"containerPort": 80, "hostPort": 65536}, ""),
        ({"containerPort": 80, "hostPort": 80, "hostIP": "here, tcp * 22 22"}, ""),
        ({"containerPort": 80, "hostPort": 80, "protocol": "ICMP"}, ""),
    ],
)
def test_the_attachment_of_a_pod_names_its_ports_of_the_node(port: dict[str, Any], text: str) -> None:
    assert annotation(pod("a", ports=[port, port])).get(names.HOST_PORTS, "") == text


def test_a_port_leads_to_the_pod_from_outside_and_from_the_node() -> None:
    of = table(attachment("tcp * 8080 80"))
    for device in ("eth0", ""):
        assert outcome(of, "192.0.2.1", 8080, device=device) == f"{V4} . 80"
        assert outcome(of, "2001:db8::1", 8080, device=device) == f"{V6} . 80"
        assert outcome(of, "192.0.2.1", 8080, protocol=UDP, device=device) == ""
        assert outcome(of, "192.0.2.1", 80, device=device) == ""
    assert outcome(of, "198.51.100.7", 8080) == ""


def test_ports_of_different_addresses_lead_to_different_pods() -> None:
    of = table(
        attachment("tcp 127.0.0.1 54323 8080"),
        attachment("tcp 192.0.2.1 54323 8080", name="pod.default.b", ips=("10.244.1.21",)),
        attachment("udp 192.0.2.1 54323 8080", name="pod.default.c", ips=("10.244.1.22",)),
        attachment("tcp 0.0.0.0 54323 8080", name="pod.default.d", ips=("10.244.1.23", V6)),
    )
    assert outcome(of, "127.0.0.1", 54323, device="") == f"{V4} . 8080"
    assert outcome(of, "192.0.2.1", 54323) == "10.244.1.21 . 8080"
    assert outcome(of, "192.0.2.1", 54323, protocol=UDP) == "10.244.1.22 . 8080"
    assert outcome(of, "10.244.1.2", 54323) == "10.244.1.23 . 8080"
    assert outcome(of, "2001:db8::1", 54323) == ""


def test_a_port_of_an_address_that_the_node_does_not_have_leads_nowhere() -> None:
    of = table(attachment("tcp 198.51.100.7 443 8443, tcp 10.96.0.1 443 8443"))
    assert outcome(of, "198.51.100.7", 443) == outcome(of, "10.96.0.1", 443, device="nl-host") == ""


def test_a_service_precedes_and_what_is_malformed_is_left_out() -> None:
    service = balancer("a", Vip(ip="10.96.0.10", port=80, node_port=30080))
    text = "tcp * 30080 80, tcp *, x * 1 1, tcp nowhere 2 2, tcp * 3 99999, tcp * \u0663 3, tcp * 4 4"
    of = plan_table(NODE, (service,), host_ports([attachment(text)])).table
    assert outcome(of, "192.0.2.1", 30080) == "10.96.0.10 . 80"
    assert outcome(of, "192.0.2.1", 4) == f"{V4} . 4"
    assert [one.port for one in host_ports([attachment(text, ips=(V4,))])] == [30080, 4]
    assert list(host_ports([attachment(text, ips=())])) == []
