"""Which flows of UDP the connection tracker forgets, and that no message of the kernel can break the decoder."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.nft.tracking import Flow, decode, stale, targets
from netloom.model.kinds.policy import ExternalTrafficPolicy, Protocol, Vip
from netloom.plan.kube.node.table import plan_table
from tests.drivers.nft_world import NODE
from tests.plan.test_kube_node import balancer

VIP = Vip(ip="10.96.0.10", port=53, protocol=Protocol.UDP, node_port=30053)
LOCAL = targets(
    plan_table(
        NODE,
        [
            balancer("dns", VIP, ends=("10.244.1.7", "10.244.1.8"), policy=ExternalTrafficPolicy.LOCAL),
            balancer("web", Vip(ip="10.96.0.11", port=80, node_port=30080)),
        ],
    ).table
)
NODE_PORT = "4:17 . 30053"


def flow(to: str, port: int, *, destination: str = "192.0.2.1", protocol: int = 17, at: int = 30053) -> Flow:
    return Flow(socket.AF_INET, protocol, destination, at, to, port)


def test_targets_are_those_of_udp_alone() -> None:
    assert {NODE_PORT: frozenset(("10.96.0.10 . 53", "10.244.1.7 . 53", "10.244.1.8 . 53"))} == LOCAL
    assert targets(None) == {}


@pytest.mark.parametrize(
    ("seen", "gone"),
    [
        (flow("10.244.1.7", 53), False),
        (flow("10.96.0.10", 53), False),
        (flow("10.244.1.9", 53), True),
        (flow("10.244.1.7", 54), True),
        (flow("192.0.2.1", 30053), True),
        (flow("198.51.100.1", 30053, destination="198.51.100.1"), False),
        (flow("10.244.1.9", 53, protocol=6), False),
        (flow("10.244.1.9", 53, at=30054), False),
    ],
)
def test_a_flow_is_stale_if_its_port_leads_elsewhere_now(seen: Flow, gone: bool) -> None:
    assert stale(seen, LOCAL, {}, is_local=lambda ip: ip == "192.0.2.1") is gone


def test_a_flow_of_a_port_that_is_gone_is_stale_if_it_was_ours() -> None:
    def gone(seen: Flow) -> bool:
        return stale(seen, {}, LOCAL, is_local=lambda _: True)

    assert gone(flow("10.244.1.7", 53))
    assert not gone(flow("10.9.9.9", 53))
    assert not gone(flow("192.0.2.1", 30053))


ATTRIBUTES: st.SearchStrategy[bytes] = st.recursive(
    st.binary(max_size=17),
    lambda inner: st.lists(st.tuples(st.integers(0, 4), inner)).map(
        lambda found: b"".join(_attribute(kind, body) for kind, body in found)
    ),
    max_leaves=12,
)


@given(st.binary(max_size=200) | ATTRIBUTES)
def test_no_message_breaks_the_decoder(body: bytes) -> None:
    decode(bytes((2, 0, 0, 0)) + body)
    decode(body)


def test_a_message_of_the_kernel_is_decoded() -> None:
    """As Linux sends it: 192.0.2.9:4000 > 192.0.2.1:30053, translated to 10.244.1.7:53."""
    forth = _ends("192.0.2.9", "192.0.2.1", 4000, 30053)
    back = _ends("10.244.1.7", "192.0.2.9", 53, 4000)
    body = bytes((2, 0, 0, 0)) + _attribute(0x8001, forth) + _attribute(0x8002, back) + _attribute(18, b"\0\5")
    assert decode(body) == Flow(2, 17, "192.0.2.1", 30053, "10.244.1.7", 53, forth, b"\0\5")


def _ends(source: str, destination: str, from_port: int, to_port: int) -> bytes:
    ips = _attribute(1, socket.inet_aton(source)) + _attribute(2, socket.inet_aton(destination))
    ports = (
        _attribute(1, b"\x11") + _attribute(2, from_port.to_bytes(2, "big")) + _attribute(3, to_port.to_bytes(2, "big"))
    )
    return _attribute(0x8001, ips) + _attribute(0x8002, ports)


def _attribute(kind: int, body: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)
