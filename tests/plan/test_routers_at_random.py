"""Routers of all sorts, good and bad: planning never fails, what is planned holds together, and order means nothing."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from netloom.model.values import addresses
from netloom.plan.addresses.blocks import overlap
from netloom.plan.problem import Unit
from tests.plan.acls import Packet, Reader
from tests.plan.planning import offences, rendered
from tests.plan.routers import planner, resource

NETWORKS = st.sampled_from(["blue", "red", "outside", "dmz", "linux", "gone"])
V4 = ["10.10.0.1/24", "10.10.0.7/24", "10.20.0.254/24", "10.0.0.1/8", "192.0.2.10/24", "192.0.2.0/24", "10.30.0.1/24"]
V6 = ["fd00:10::1/64", "fd00:77::1/64", "fe80::1/64", "2001:db8:ff::10/64"]
IPS = st.sampled_from([*V4, *V6, "10.10.0.1"])
HOSTS = st.sampled_from(["10.10.0.7", "10.20.0.7", "192.0.2.1", "192.0.2.10", "192.0.2.20", "10.99.0.9", "fd00:10::9"])
BLOCKS = st.sampled_from(["0.0.0.0/0", "::/0", "10.99.0.0/16", "10.10.0.0/24", "10.10.0.7", "fd00:10::/64"])
ROUTER_PORTS = st.lists(
    st.fixed_dictionaries({"network": NETWORKS}, optional={"ips": st.lists(IPS, max_size=3)}),
    max_size=4,
    unique_by=lambda port: str(port["network"]),
)
POLICIES = st.lists(
    st.fixed_dictionaries(
        {"priority": st.sampled_from([100, 200])},
        optional={
            "from": st.lists(BLOCKS, max_size=2),
            "to": st.lists(BLOCKS, max_size=2),
            "ports": st.sampled_from([[{"protocol": "tcp", "port": 80}], [{"protocol": "icmp"}, {"protocol": "udp"}]]),
            "action": st.sampled_from(["allow", "drop", "reroute", "reroute"]),
            "via": st.lists(HOSTS, max_size=2),
        },
    ),
    max_size=5,
)
ROUTERS = st.fixed_dictionaries(
    {"networks": ROUTER_PORTS},
    optional={
        "routes": st.lists(st.fixed_dictionaries({"to": BLOCKS, "via": HOSTS}), max_size=4),
        "policies": POLICIES,
        "gateway": st.fixed_dictionaries(
            {"network": NETWORKS, "ips": st.lists(IPS, min_size=1, max_size=3)},
            optional={
                "nextHop": HOSTS,
                "nodes": st.lists(st.sampled_from(["n1", "n2", "n3", "gone"]), max_size=3, unique=True),
                "snat": st.booleans(),
            },
        ),
        "nat": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["snat", "dnat", "dnat_and_snat"]), "external": HOSTS, "logical": BLOCKS}
            ),
            max_size=4,
        ),
    },
)
MORE = """
linux: {kind: Network, spec: {fabric: linux}}
dmz: {kind: Network, spec: {mtu: 1500, provider: {physicalNetwork: physnet1, vlan: 7}}}
dmz-v4: {kind: Subnet, spec: {network: dmz, cidr: 10.30.0.0/24}, status: {validated: true}}
"""


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), ROUTERS, min_size=1), st.integers())
def test_every_plan_is_consistent(specs: dict[str, dict[str, Any]], seed: int) -> None:
    made = planner(MORE)
    routers = [resource(name, {"kind": "Router", "spec": spec}) for name, spec in specs.items()]
    for router in routers:
        made.put(router)
    made.flush()
    assert list(offences(made.desired)) == []
    assert not [one for problems in made.desired.problems.values() for one in problems if one.reason == "Internal"]
    _each_address_is_one_routers(made.desired.rows)
    _policies_can_be(made.desired.rows)
    for name in specs:
        _no_block_is_on_two_ports(made.desired.rows, f"ns/{name}:")
    again, random = planner(MORE), Random(seed)
    for _ in range(2):
        random.shuffle(routers)
        for router in routers:
            again.put(router)
            again.flush()
        again.remove(Unit("Router", "ns", routers[0].metadata.name))
        again.flush()
        again.put(routers[0])
    again.flush()
    assert rendered(again.desired) == rendered(made.desired)


@given(ROUTER_PORTS, POLICIES, st.integers())
def test_the_order_of_policies_changes_no_row(ports: list[Any], policies: list[dict[str, Any]], seed: int) -> None:
    shuffled = [*policies, *policies[:1]]
    Random(seed).shuffle(shuffled)
    found = []
    for listed in (policies, shuffled):
        made = planner(MORE)
        made.put(resource("a", {"kind": "Router", "spec": {"networks": ports, "policies": listed}}))
        made.flush()
        found.append(rendered(made.desired)["rows"])
    assert found[0] == found[1]


ENDS = {
    4: ["10.10.0.5", "10.10.0.200", "10.20.0.5", "198.51.100.1"],
    6: ["fd00:10::5", "fd00:10::ff", "fd00:99::1"],
}
WHOLE = {4: ["10.10.0.0/24", "10.10.0.128/25", "10.20.0.5/32", "0.0.0.0/0"], 6: ["fd00:10::/64", "fd00:10::5/128"]}
HOPS = {4: ["10.20.0.7", "10.20.0.8"], 6: ["fd00:10::7"]}
PACKETS = st.sampled_from([4, 6]).flatmap(
    lambda family: st.builds(
        Packet,
        src=st.sampled_from(ENDS[family]),
        dst=st.sampled_from(ENDS[family]),
        protocol=st.sampled_from(["tcp", "udp", "icmp", "gre"]),
        dport=st.sampled_from([79, 80, 85, 90, 91]),
    )
)


@st.composite
def good_policies(draw: st.DrawFn) -> dict[str, Any]:
    """A policy that can be."""
    family = draw(st.sampled_from([4, 6]))
    policy: dict[str, Any] = {"priority": draw(st.integers(1, 3)), "action": draw(st.sampled_from(["allow", "drop"]))}
    for end in ("from", "to"):
        policy[end] = draw(st.lists(st.sampled_from(WHOLE[family]), max_size=2))
    udp_or_icmp = [{"protocol": "udp"}, {"protocol": "icmp"}]
    policy["ports"] = draw(st.sampled_from([[], [{"port": 80, "endPort": 90}], udp_or_icmp, [{"port": 91}]]))
    if draw(st.booleans()):
        policy |= {"action": "reroute", "via": draw(st.lists(st.sampled_from(HOPS[family]), min_size=1, unique=True))}
    return policy


@given(st.lists(good_policies(), max_size=6), st.lists(PACKETS, min_size=1, max_size=6))
def test_what_is_done_with_a_packet_is_what_the_highest_policy_that_fits_it_says(
    policies: list[dict[str, Any]], packets: list[Packet]
) -> None:
    made = planner()
    networks = [{"network": "blue"}, {"network": "red"}]
    gateway = {"network": "outside", "ips": ["192.0.2.10/24"], "nextHop": "192.0.2.1"}
    spec = {"networks": networks, "gateway": gateway, "policies": policies}
    made.put(resource("a", {"kind": "Router", "spec": spec}))
    made.flush()
    reader = Reader(made.desired)
    rows = [row.columns for ref, row in made.desired.rows.items() if ref.table == "Logical_Router_Policy"]
    for packet in packets:
        done = _highest(
            (int(str(row["priority"])), str(row["action"]), _hops(row["nexthops"]))
            for row in rows
            if reader.matches(row["match"], packet)
        )
        expected = _highest(
            (policy["priority"], policy["action"], _hops(policy.get("via", ())))
            for policy in policies
            if _fits(policy, packet)
        )
        assert done <= expected, packet
        assert bool(done) == bool(expected), packet


def _hops(listed: Any) -> frozenset[str]:
    return frozenset(listed)


def _highest(found: Iterable[tuple[int, str, frozenset[str]]]) -> set[tuple[int, str, frozenset[str]]]:
    every = set(found)
    return {one for one in every if one[0] == max(other[0] for other in every)}


def _fits(policy: dict[str, Any], packet: Packet) -> bool:
    """Whether a policy is for a packet, as the words say it."""
    for blocks, ip in ((policy["from"], packet.src), (policy["to"], packet.dst)):
        if blocks and not any(addresses.within(ip, block) for block in blocks):
            return False
    if any(addresses.family(hop) != addresses.family(packet.src) for hop in policy.get("via", ())):
        return False
    return not policy["ports"] or any(
        packet.protocol == one.get("protocol", "tcp")
        and ("port" not in one or one["port"] <= packet.dport <= one.get("endPort", one["port"]))
        for one in policy["ports"]
    )


def _policies_can_be(planned: Any) -> None:
    """No two of a router are of one priority and match, and a way is in a network of the router, of its family."""
    known: set[tuple[str, int, str]] = set()
    for ref, row in planned.items():
        if ref.table != "Logical_Router_Policy":
            continue
        router, columns = ref.key.partition(":")[0], row.columns
        key = (router, columns["priority"], columns["match"])
        assert key not in known
        known.add(key)
        assert bool(columns["nexthops"]) == (columns["action"] == "reroute")
        ports = [row for ref, row in planned.items() if ref.table == "Logical_Router_Port" and router in ref.key]
        for hop in columns["nexthops"]:
            assert any(addresses.within(hop, ip) for port in ports for ip in port.columns["networks"])
            assert f"ip{addresses.family(hop)}" in columns["match"]


def _each_address_is_one_routers(planned: Any) -> None:
    """In a Network; link-local ones are nobody's in particular."""
    claimed: Counter[tuple[str, str]] = Counter()
    for ref, row in planned.items():
        if ref.table == "Logical_Router_Port":
            network = ref.key.rpartition(":")[2]
            claimed.update((network, ip.partition("/")[0]) for ip in row.columns["networks"])
    assert [one for one, times in claimed.items() if times > 1] == []


def _no_block_is_on_two_ports(planned: Any, prefix: str) -> None:
    ports = [row for ref, row in planned.items() if ref.table == "Logical_Router_Port" and ref.key.startswith(prefix)]
    for one, other in combinations(ports, 2):
        for mine in map(addresses.interface, one.columns["networks"]):
            for theirs in map(addresses.interface, other.columns["networks"]):
                assert mine.ip.is_link_local or not overlap(mine.network, theirs.network)
