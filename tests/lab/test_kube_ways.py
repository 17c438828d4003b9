"""The ways of packets in a cluster's network, as `plan/kube/cluster.py` plans it, with real packets.

The pods are workloads of the lab. What is outside is an address that one node has and no other: a pod reaches it if its
packets leave through that node, and if the replies, whose source is not the node's own, are let in.
"""

import json
import subprocess
from collections.abc import Iterator

import pytest
from msgspec import structs

from netloom.lab import Lab
from netloom.model.document import Document
from netloom.model.kinds.attachments import AttachmentPort, NetworkAttachment, PortType
from netloom.model.registry import KINDS
from netloom.plan.kube.cluster import plan_network, plan_node, slices
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.kube.pods import plan_pod
from tests.lab.worlds import World, world
from tests.plan.kube_objects import node, pod

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

SETTINGS = ClusterSettings(
    namespace="ways", pod_blocks=("10.144.0.0/14", "fd00:144::/48"), service_blocks=("10.104.0.0/16", "fd00:104::/112")
)
NODES = {name: node(name, f"10.144.{n}.0/24", f"fd00:144:0:{n}::/64") for n, name in enumerate(("n1", "n2"), 1)}
PODS = {"a": "n1", "b": "n1", "c": "n2"}
OUTSIDE = {"n1": ("203.0.113.101", "2001:db8:aa::1"), "n2": ("203.0.113.102", "2001:db8:aa::2")}
"""An address outside of each family that only this node has."""


def _objects() -> Iterator[Document]:
    plans = [plan_network(SETTINGS, NODES.values()), *(plan_node(SETTINGS, one) for one in NODES.values())]
    plans += (plan_pod(SETTINGS, pod(name, on, uid=name), slices(SETTINGS, NODES[on])[0]) for name, on in PODS.items())
    for one in (one for plan in plans for one in plan.objects):
        document = KINDS.of(one).document(one)
        if isinstance(one, NetworkAttachment) and one.spec.port.type is PortType.POD:
            # Without a container runtime, a pod is a namespace by its path.
            name = one.metadata.name.rpartition(".")[2]
            port = AttachmentPort(type=PortType.VETH, netns=f"/run/netns/{name}", name="eth0")
            document = KINDS.of(one).document(structs.replace(one, spec=structs.replace(one.spec, port=port)))
        document.pop("status", None)
        yield document


@pytest.fixture(scope="module")
def ways(lab: Lab) -> Iterator[World]:
    """Two nodes of a cluster, with pods."""
    with world(lab, "ways", "\n---\n".join(map(json.dumps, _objects()))) as made:
        for name, addresses in OUTSIDE.items():
            for address in addresses:
                subprocess.run(["ip", "-n", made.netns(name), "address", "add", address, "dev", "lo"], check=True)
        for name in (*OUTSIDE, *PODS):
            made.listen(name, 8100)
        try:
            yield made
        finally:
            for name, addresses in OUTSIDE.items():
                for address in addresses:
                    argv = [
                        "ip",
                        "-n",
                        made.netns(name),
                        "address",
                        "delete",
                        f"{address}/{_bits(address)}",
                        "dev",
                        "lo",
                    ]
                    subprocess.run(argv, check=True)


def _bits(address: str) -> int:
    return 128 if ":" in address else 32


def _addresses(ways: World, attachment: str) -> list[str]:
    return [one.partition("/")[0] for one in ways.get("networkattachment", attachment)["status"]["ips"]]


def test_a_node_has_its_second_address_and_its_pods_have_others(ways: World) -> None:
    assert _addresses(ways, "node.n1") == ["10.144.1.2", "fd00:144:0:1::2"]
    assert _addresses(ways, "node.n2") == ["10.144.2.2", "fd00:144:0:2::2"]
    assert len({one for name in PODS for one in _addresses(ways, f"pod.default.{name}")}) == 2 * len(PODS)


def test_pods_reach_each_other_on_a_node_and_across(ways: World) -> None:
    pairs = [(one, other) for one in PODS for other in PODS if one != other]
    seen = ways.reaches(
        [(one, address, 8100) for one, other in pairs for address in _addresses(ways, f"pod.default.{other}")]
    )
    own = {name: _addresses(ways, f"pod.default.{name}") for name in PODS}
    for (one, address, _), answer in seen.items():
        other = next(name for name, addresses in own.items() if address in addresses)
        assert answer == f"{other} {own[one][':' in address]}"


def test_a_node_reaches_pods_from_its_own_address(ways: World) -> None:
    seen = ways.reaches(
        [(name, address, 8100) for name in NODES for one in PODS for address in _addresses(ways, f"pod.default.{one}")]
    )
    for (name, address, _), answer in seen.items():
        assert answer.partition(" ")[2] == _addresses(ways, f"node.{name}")[":" in address], (name, address)


def test_a_pod_reaches_what_is_outside_through_its_own_node(ways: World) -> None:
    near = [(name, address, 8100) for name, on in PODS.items() for address in OUTSIDE[on]]
    own = {name: _addresses(ways, f"pod.default.{name}") for name in PODS}
    for (name, address, _), answer in ways.reaches(near).items():
        # Nobody translates here: the node's table does that.
        assert answer == f"{PODS[name]} {own[name][':' in address]}"
    ways.blocked(("a", OUTSIDE["n2"][0], 8100), ("c", OUTSIDE["n1"][0], 8100), ("c", OUTSIDE["n1"][1], 8100))


def test_a_packet_to_no_pod_and_to_no_service_is_dropped(ways: World) -> None:
    subprocess.run(["ip", "-n", ways.netns("n1"), "address", "add", "10.147.0.9", "dev", "lo"], check=True)
    try:
        assert ways.answers("a", OUTSIDE["n1"][0], "ping")
        ways.blocked(("a", "10.147.0.9", "ping"), ("a", "10.104.0.9", "ping"))
    finally:
        subprocess.run(["ip", "-n", ways.netns("n1"), "address", "delete", "10.147.0.9/32", "dev", "lo"], check=True)


def test_a_pod_cannot_send_from_another_address_as_a_node_can(ways: World) -> None:
    peer = _addresses(ways, "pod.default.c")[0]
    subprocess.run(["ip", "-n", ways.netns("a"), "address", "add", "10.144.1.77/32", "dev", "eth0"], check=True)
    assert ways.answers("a", peer, "ping")
    assert not ways.ping("a", peer, spoofed="10.144.1.77")
