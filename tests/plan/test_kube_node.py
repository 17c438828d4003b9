"""The nftables table of a cluster's node: every Service is reachable by exactly its ports."""

import ipaddress
import random as randomness
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.nft.changes import applied, changes
from netloom.model.document import ObjectMeta
from netloom.model.kinds.attachments import (
    AttachmentPort,
    NetworkAttachment,
    NetworkAttachmentSpec,
    NetworkAttachmentStatus,
)
from netloom.model.kinds.networks import Route
from netloom.model.kinds.policy import (
    Endpoint,
    ExternalAddress,
    ExternalTrafficPolicy,
    LoadBalancer,
    LoadBalancerSpec,
    Protocol,
    Vip,
)
from netloom.plan.kube.node.nftables import Table, atom, disjoint, element
from netloom.plan.kube.node.table import ClusterNode, cluster_node, is_host, plan_table
from tests.plan.tables import Packet, receive

NODE = ClusterNode(
    pods=("10.244.0.0/16", "fd00:1::/48"),
    services=("10.96.0.0/12", "fd00:2::/108"),
    own=("10.244.1.0/24", "fd00:1:0:1::/64", "192.0.2.1/32"),
)
LOCAL = frozenset(("192.0.2.1", "2001:db8::1", "10.244.1.2", "fd00:1:0:1::2", "127.0.0.1", "::1"))
OUTSIDE, POD = "198.51.100.9", "10.244.1.10"
CLUSTER = ExternalTrafficPolicy.CLUSTER


def balancer(
    name: str,
    *vips: Vip,
    ends: Iterable[str] = (),
    policy: ExternalTrafficPolicy = CLUSTER,
    external: Iterable[ExternalAddress] = (),
    affinity: int = 0,
) -> LoadBalancer:
    """Return a LoadBalancer; an end is an address, or `[address]:port`."""
    endpoints = []
    for end in ends:
        ip, _, port = end.strip("[").partition("]:")
        endpoints.append(Endpoint(ip=ip, port=int(port) if port else None))
    return LoadBalancer(
        api_version="netloom.dev/v1alpha1",
        kind="LoadBalancer",
        metadata=ObjectMeta(name=name, namespace="netloom-pods"),
        spec=LoadBalancerSpec(
            networks=("pods",),
            vips=vips,
            endpoints=tuple(endpoints),
            external_addresses=tuple(external),
            external_traffic_policy=policy,
            affinity_seconds=affinity,
        ),
    )


def table(*balancers: LoadBalancer) -> Table:
    planned = plan_table(NODE, balancers)
    assert not planned.problems
    return planned.table


def outcome(
    of: Table, destination: str, port: int, *, device: str = "eth0", source: str = "", protocol: int = 6
) -> str:
    """Return where a first packet goes: an address and port, "drop", or "" if it is left alone."""
    source = source or (OUTSIDE if ":" not in destination else "2001:db8:1::9")
    packet = Packet(source, destination, protocol, port, device, local=destination in LOCAL)
    return receive(of, "output" if device == "" else "prerouting", packet, randomness.Random(1))


# Examples.


def test_a_node_port_leads_to_the_vip_from_everywhere() -> None:
    of = table(
        balancer(
            "a",
            Vip(ip="10.96.0.10", port=80, node_port=30080),
            Vip(ip="fd00:2::10", port=80, node_port=30080),
        )
    )
    for device in ("eth0", "nl-host", ""):
        assert outcome(of, "192.0.2.1", 30080, device=device) == "10.96.0.10 . 80"
        assert outcome(of, "2001:db8::1", 30080, device=device) == "fd00:2::10 . 80"
    assert outcome(of, "192.0.2.1", 30080, protocol=17) == ""
    assert outcome(of, "192.0.2.1", 80) == ""
    assert outcome(of, "192.0.2.77", 30080) == ""
    assert outcome(of, "127.0.0.1", 30080, device="") == ""
    assert outcome(of, "::1", 30080, device="") == ""


def test_with_policy_local_only_connections_from_outside_stay_on_the_node() -> None:
    vip = Vip(ip="10.96.0.10", port=80, node_port=30080, target_port=8080)
    of = table(
        balancer(
            "a",
            vip,
            ends=("10.244.1.7", "10.244.2.7", "[10.244.1.8]:81", "192.0.2.1"),
            policy=ExternalTrafficPolicy.LOCAL,
        )
    )
    seen = {
        receive(of, "prerouting", Packet(OUTSIDE, "192.0.2.1", 6, 30080, "eth0", local=True), randomness.Random(seed))
        for seed in range(64)
    }
    assert seen == {"10.244.1.7 . 8080", "10.244.1.8 . 81", "192.0.2.1 . 8080"}
    assert outcome(of, "192.0.2.1", 30080, device="nl-host", source=POD) == "10.96.0.10 . 80"
    assert outcome(of, "192.0.2.1", 30080, device="") == "10.96.0.10 . 80"


def test_with_policy_local_and_no_endpoint_here_connections_from_outside_are_dropped() -> None:
    vip = Vip(ip="10.96.0.10", port=80, node_port=30080)
    external = (ExternalAddress(ip="203.0.113.5"),)
    of = table(balancer("a", vip, ends=("10.244.2.7",), policy=ExternalTrafficPolicy.LOCAL, external=external))
    assert outcome(of, "192.0.2.1", 30080) == "drop"
    assert outcome(of, "203.0.113.5", 80) == "drop"
    assert outcome(of, "203.0.113.5", 80, device="") == "10.96.0.10 . 80"


def test_with_affinity_a_client_keeps_its_endpoint_and_clients_are_spread() -> None:
    vip = Vip(ip="10.96.0.10", port=80, node_port=30080)
    ends = ("10.244.1.7", "10.244.1.8", "10.244.1.9")
    of = table(balancer("a", vip, ends=ends, policy=ExternalTrafficPolicy.LOCAL, affinity=10800))

    def chosen(client: str, seed: int) -> str:
        packet = Packet(client, "192.0.2.1", 6, 30080, "eth0", local=True)
        return receive(of, "prerouting", packet, randomness.Random(seed))

    clients = [f"198.51.100.{number}" for number in range(100)]
    assert all(chosen(client, 1) == chosen(client, 2) for client in clients)
    assert {chosen(client, 1) for client in clients} == {f"{end} . 80" for end in ends}


def test_clients_outside_of_the_ranges_of_an_external_address_are_dropped() -> None:
    vip = Vip(ip="10.96.0.10", port=80)
    ranges = ("198.51.100.0/24", "198.51.100.128/25", "198.51.101.0/24", "2001:db8:1::/64")
    of = table(
        balancer(
            "a",
            vip,
            external=(ExternalAddress(ip="203.0.113.5", source_ranges=ranges), ExternalAddress(ip="203.0.113.6")),
        )
    )
    assert of.sets["permitted4"].elements.keys() == {"203.0.113.5 . 6 . 80 . 198.51.100.0/23"}
    assert outcome(of, "203.0.113.5", 80, source="198.51.101.7") == "10.96.0.10 . 80"
    assert outcome(of, "203.0.113.5", 80, source="198.51.102.7") == "drop"
    assert outcome(of, "203.0.113.5", 81, source="198.51.102.7") == ""
    assert outcome(of, "203.0.113.6", 80, source="198.51.102.7") == "10.96.0.10 . 80"
    assert outcome(of, "203.0.113.5", 80, source=POD, device="nl-host") == "10.96.0.10 . 80"


def test_an_external_address_that_ovn_serves_too_leads_to_the_other_vip() -> None:
    vips = (Vip(ip="10.96.0.10", port=80, node_port=30080), Vip(ip="203.0.113.5", port=80, node_port=30080))
    of = table(balancer("a", *vips, external=(ExternalAddress(ip="203.0.113.5"),)))
    assert outcome(of, "203.0.113.5", 80) == "10.96.0.10 . 80"
    assert outcome(of, "192.0.2.1", 30080) == "10.96.0.10 . 80"


def test_an_external_address_of_the_node_precedes_a_node_port() -> None:
    own = balancer("a", Vip(ip="10.96.0.10", port=30080), external=(ExternalAddress(ip="192.0.2.1"),))
    other = balancer(
        "b",
        Vip(ip="10.96.0.11", port=80, node_port=30080),
        ends=("10.244.1.7",),
        policy=ExternalTrafficPolicy.LOCAL,
    )
    of = table(own, other)
    assert outcome(of, "192.0.2.1", 30080) == "10.96.0.10 . 30080"
    assert outcome(of, "10.244.1.2", 30080) == "10.244.1.7 . 80"


def test_a_port_belongs_to_the_first_by_name_and_the_others_are_told() -> None:
    first = balancer("a", Vip(ip="10.96.0.10", port=80, node_port=30080))
    second = balancer(
        "b", Vip(ip="10.96.0.11", port=80, node_port=30080), Vip(ip="10.96.0.12", port=80, node_port=30080)
    )
    planned = plan_table(NODE, (second, first))
    assert outcome(planned.table, "192.0.2.1", 30080) == "10.96.0.10 . 80"
    assert [(str(unit), problem.message) for unit, problem in planned.problems] == [
        ("LoadBalancer/netloom-pods/b", "nodePort 30080/tcp belongs to LoadBalancer a: choose another")
    ] * 2
    [(_, twice)] = plan_table(NODE, (balancer("b", *second.spec.vips),)).problems
    assert twice.message == "nodePort 30080/tcp belongs to another VIP of it: choose another"


def test_pods_are_masqueraded_on_their_way_out_and_nobody_else_is() -> None:
    of = table()

    def masqueraded(source: str, destination: str, device: str) -> bool:
        return (
            receive(of, "postrouting", Packet(source, destination, 6, 80, device), randomness.Random(1)) == "masquerade"
        )

    assert masqueraded(POD, OUTSIDE, "eth0")
    assert masqueraded("fd00:1:0:1::7", "2001:db8:1::9", "eth0")
    assert not masqueraded(POD, OUTSIDE, "nl-host")
    assert not masqueraded(POD, "10.244.2.7", "eth0")
    assert not masqueraded(POD, "10.96.0.10", "eth0")
    assert not masqueraded("192.0.2.1", OUTSIDE, "eth0")
    assert not masqueraded(OUTSIDE, POD, "nl-host")
    assert not masqueraded("10.244.1.2", "192.0.2.1", "lo")
    assert masqueraded("192.0.2.1", "10.96.0.10", "nl-host")
    assert masqueraded(OUTSIDE, "fd00:2::10".replace("fd00:2::10", "10.96.0.10"), "nl-host")


def test_a_cluster_of_one_family_has_nothing_of_the_other() -> None:
    node = ClusterNode(pods=("10.244.0.0/16",), services=("10.96.0.0/12",), own=("10.244.1.0/24",))
    vips = (Vip(ip="10.96.0.10", port=80, node_port=30080), Vip(ip="fd00:2::10", port=80, node_port=30080))
    planned = plan_table(node, (balancer("a", *vips),))
    assert not planned.problems
    assert not [name for name in planned.table.sets if name.endswith("6")]
    assert not [line for chain in planned.table.chains.values() for line in chain.rules if "ip6" in line.text]


# The node's attachment.


def attachment(ips: tuple[str, ...], *routes: str, label: str = "true", name: str = "nl-host") -> NetworkAttachment:
    return NetworkAttachment(
        api_version="netloom.dev/v1alpha1",
        kind="NetworkAttachment",
        metadata=ObjectMeta(name="node.n1", namespace="netloom-pods", labels={"kube.netloom.dev/host": label}),
        spec=NetworkAttachmentSpec(
            node="n1",
            network="pods",
            port=AttachmentPort(name=name),
            routes=tuple(Route(to=to, via="fd00:1:0:1::1" if ":" in to else "10.244.1.1") for to in routes),
        ),
        status=NetworkAttachmentStatus(ips=ips),
    )


def test_the_blocks_of_a_cluster_are_those_that_are_routed_to_it() -> None:
    routes = ("10.244.0.0/16", "10.96.0.0/12", "fd00:2::/108", "fd00:1::/48")
    found = cluster_node(attachment(("10.244.1.2/24", "fd00:1:0:1::2/64"), *routes), "192.0.2.1")
    assert found == NODE
    assert found is not None
    assert found.families == (4, 6)
    assert cluster_node(attachment((), *routes), "192.0.2.1") is None


def test_a_default_route_is_no_block_of_services_and_a_slice_needs_no_route() -> None:
    found = cluster_node(attachment(("10.244.1.2/24",), "0.0.0.0/0", "10.96.0.0/12", name="x"), "192.0.2.1")
    assert found is not None
    assert (found.pods, found.services, found.device) == (("10.244.1.0/24",), ("10.96.0.0/12",), "x")


@pytest.mark.parametrize(("label", "host"), [("true", True), ("false", False), ("", False)])
def test_only_a_label_makes_an_attachment_that_of_a_node(label: str, host: bool) -> None:
    assert is_host(attachment((), label=label)) is host


# Properties.

PORTS = st.integers(30000, 30006)
BLOCKS = st.lists(st.sampled_from(("198.51.100.0/24", "198.51.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/32")))


@st.composite
def balancers(draw: st.DrawFn) -> list[LoadBalancer]:
    made = []
    for number in range(draw(st.integers(0, 6))):
        ports = draw(st.lists(st.tuples(st.sampled_from(Protocol), st.integers(80, 82)), max_size=3, unique=True))
        vips = [
            Vip(ip=ip, port=port, protocol=protocol, node_port=draw(st.none() | PORTS))
            for protocol, port in ports or [(Protocol.TCP, 80)]
            for ip in (f"10.96.0.{number}", f"fd00:2::{number:x}")
        ]
        ends = draw(st.lists(st.integers(1, 9), max_size=12))
        external = draw(st.lists(st.integers(1, 4), max_size=2, unique=True))
        made.append(
            balancer(
                f"s{number}",
                *vips,
                ends=[f"10.244.{1 + end % 2}.{end}" for end in ends]
                + [f"fd00:1:0:{1 + end % 2}::{end}" for end in ends],
                policy=draw(st.sampled_from(ExternalTrafficPolicy)),
                external=[
                    ExternalAddress(ip=f"203.0.113.{one}", source_ranges=tuple(draw(BLOCKS))) for one in external
                ],
                affinity=draw(st.sampled_from((0, 10800))),
            )
        )
    return made


@given(balancers(), st.randoms(use_true_random=False))
def test_the_order_of_services_does_not_matter(wanted: list[LoadBalancer], random: randomness.Random) -> None:
    shuffled = list(wanted)
    random.shuffle(shuffled)
    assert plan_table(NODE, shuffled) == plan_table(NODE, wanted)


@given(balancers(), st.integers(0, 1000), st.sampled_from(("eth0", "nl-host", "")), st.sampled_from(Protocol))
def test_every_service_is_reachable_by_exactly_its_ports(
    wanted: list[LoadBalancer], seed: int, device: str, protocol: Protocol
) -> None:
    """Said a second time, and differently: by a search through the objects for each packet."""
    of = plan_table(NODE, wanted).table
    ordered = sorted(wanted, key=lambda one: one.metadata.name)
    number = {"tcp": 6, "udp": 17, "sctp": 132}[protocol]

    def found(address: str, port: int) -> str:
        source = OUTSIDE if ":" not in address else "2001:db8:1::9"
        packet = Packet(source, address, number, port, device, local=address in LOCAL)
        return receive(of, "prerouting" if device else "output", packet, randomness.Random(seed))

    vips = [
        (one, vip)
        for one in ordered
        for vip in sorted(one.spec.vips, key=lambda vip: (vip.ip, vip.port, vip.protocol))
        if vip.protocol is protocol
    ]
    for address in ("192.0.2.1", "2001:db8::1", "192.0.2.99"):
        for port in range(30000, 30007):
            holders = (pair for pair in vips if pair[1].node_port == port and (":" in pair[1].ip) == (":" in address))
            holder = next(holders, None) if address in LOCAL else None
            assert found(address, port) in expected(holder, device, set())
    for address in (f"203.0.113.{last}" for last in range(5)):
        for port in range(79, 84):
            outward = (pair for pair in vips if pair[1].port == port and ":" not in pair[1].ip)
            holder = next((pair for pair in outward if address in _external(pair[0])), None)
            ranges = set() if holder is None else _external(holder[0])[address]
            assert found(address, port) in expected(holder, device, ranges)


def _external(one: LoadBalancer) -> dict[str, set[str]]:
    return {external.ip: set(external.source_ranges) for external in one.spec.external_addresses}


def expected(holder: tuple[LoadBalancer, Vip] | None, device: str, ranges: set[str]) -> set[str]:
    if holder is None:
        return {""}
    one, vip = holder
    client = ipaddress.ip_address(OUTSIDE)
    if device == "eth0" and ranges and not any(client in ipaddress.ip_network(block) for block in ranges):
        return {"drop"}
    if device != "eth0" or one.spec.external_traffic_policy is CLUSTER:
        return {element(vip.ip, vip.port)}
    here = [end.ip for end in one.spec.endpoints or () if end.ip.startswith(("10.244.1.", "fd00:1:0:1:"))]
    return {element(ip, vip.port) for ip in here if (":" in ip) == (":" in vip.ip)} or {"drop"}


@given(balancers(), balancers())
def test_the_difference_leads_from_any_table_to_any_other(
    before: list[LoadBalancer], after: list[LoadBalancer]
) -> None:
    first, second = plan_table(NODE, before).table, plan_table(NODE, after).table
    assert not changes("t", applied(second), second)
    if not changes("t", applied(first), second):
        assert first == second


def test_one_service_of_a_thousand_is_one_small_transaction_and_no_rule() -> None:
    many = [
        balancer(f"s{number}", Vip(ip=f"10.96.{number // 250}.{number % 250}", port=80, node_port=30000 + number))
        for number in range(1000)
    ]
    before = table(*many)
    rules = sum(len(chain.rules) for chain in before.chains.values())
    assert rules == sum(len(chain.rules) for chain in table().chains.values())
    many[500] = balancer("s500", Vip(ip="10.97.0.1", port=80, node_port=30500))
    made = changes("t", applied(before), table(*many))
    assert (made.elements, made.chains, len(made.commands)) == (2, 0, 2)
    many[500] = balancer(
        "s500",
        Vip(ip="10.97.0.1", port=80, node_port=30500),
        ends=("10.244.1.7", "10.244.1.8"),
        policy=ExternalTrafficPolicy.LOCAL,
    )
    local = table(*many)
    many[500] = balancer(
        "s500",
        Vip(ip="10.97.0.1", port=80, node_port=30500),
        ends=("10.244.1.7", "10.244.1.9"),
        policy=ExternalTrafficPolicy.LOCAL,
    )
    made = changes("t", applied(local), table(*many))
    assert (made.elements, made.chains) == (2, 0)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32))))
def test_blocks_are_made_disjoint_and_cover_the_same(raw: list[tuple[int, int]]) -> None:
    blocks = [str(ipaddress.ip_network((value, length), strict=False)) for value, length in raw]
    found = [ipaddress.ip_network(one) for one in disjoint(blocks)]
    assert not any(one.overlaps(other) for one in found for other in found if one is not other)
    for text in blocks:
        assert any(ipaddress.ip_network(text).subnet_of(one) for one in found)  # type: ignore[arg-type]
    assert sum(one.num_addresses for one in found) <= sum(ipaddress.ip_network(one).num_addresses for one in blocks)


def test_elements_have_one_text_each() -> None:
    assert element("tcp", 80) == element(6, 80) == "6 . 80"
    assert [atom(text) for text in ("FD00::0001", "10.0.0.1/32", "10.0.0.0/8", "eth0")] == [
        "fd00::1", "10.0.0.1", "10.0.0.0/8", "eth0",
    ]  # fmt: skip
