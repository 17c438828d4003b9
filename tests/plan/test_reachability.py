"""Who reaches whom in a Sandbox: as declared, whatever the topology, and leaks and gaps with their paths."""

from ipaddress import ip_address, ip_interface, ip_network
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import PolicyAction, SecurityProfile
from netloom.model.registry import KINDS
from netloom.plan.sandbox.objects import plan_sandbox
from netloom.plan.sandbox.reachability import MOST, USERS, Kind, Verification, cut_pairs, verify
from tests.plan.test_sandbox import planned, sandbox

RANGE: dict[str, Any] = {
    "name": "range",
    "hosts": [{"name": "attacker"}, {"name": "server", "block_internet": True}, {"name": "vault"}, {"name": "lonely"}],
    "routers": [{"name": "r1"}, {"name": "r2"}],
    "networks": [
        {"name": "homes", "cidr": "10.1.0.0/24"},
        {"name": "office", "cidr": "10.2.0.0/24"},
        {"name": "store", "cidr": "10.3.0.0/24", "accessible_by_user": False},
        {"name": "lone", "cidr": "10.4.0.0/24"},
    ],
    "net_mappings": [
        {"host": "attacker", "network": "homes", "ip": "10.1.0.5"},
        {"host": "server", "network": "office", "ip": "10.2.0.5"},
        {"host": "vault", "network": "store", "ip": "10.3.0.5"},
        {"host": "lonely", "network": "lone", "ip": "10.4.0.5"},
    ],
    "router_mappings": [
        {"router": "r1", "network": "homes", "ip": "10.1.0.1"},
        {"router": "r2", "network": "office", "ip": "10.2.0.1"},
        {"router": "r2", "network": "store", "ip": "10.3.0.1"},
    ],
}


def made(kind: type[Any], name: str, spec: dict[str, Any], **metadata: Any) -> Any:
    found = KINDS.of(kind)
    meta = {"name": name, "namespace": "ns1", **metadata}
    document = {"apiVersion": found.api_version, "kind": found.name, "metadata": meta, "spec": spec}
    return msgspec.convert(document, kind)


def attached(name: str, network: str, ip: str, **spec: Any) -> NetworkAttachment:
    port = {"type": "veth", "netns": f"/run/netns/{name}", "name": "eth9"}
    found: NetworkAttachment = made(
        NetworkAttachment, name, {"node": "n1", "network": network, "ips": [ip], "port": port, **spec}
    )
    return found


def checked(topology: dict[str, Any], *more: Resource) -> Verification:
    return verify(sandbox(topology), [*planned(topology).objects, *more])


def lines(found: Verification) -> list[str]:
    return [str(one) for one in found.differences]


def test_a_plan_reaches_as_declared() -> None:
    found = checked(RANGE)
    assert (found.differences, found.warnings) == ((), ())
    assert found.matrix == {
        "attacker": {"lonely 10.4.0.5": False, "server 10.2.0.5": True, "vault 10.3.0.5": False},
        "lonely": {"attacker 10.1.0.5": False, "server 10.2.0.5": False, "vault 10.3.0.5": False},
        "server": {"attacker 10.1.0.5": True, "lonely 10.4.0.5": False, "vault 10.3.0.5": True},
        "vault": {"attacker 10.1.0.5": False, "lonely 10.4.0.5": False, "server 10.2.0.5": True},
        USERS: {
            "attacker 10.1.0.5": True,
            "lonely 10.4.0.5": False,
            "server 10.2.0.5": True,
            "vault 10.3.0.5": False,
        },
    }
    assert (found.reached, found.blocked) == (6, 10 + 4)  # And four hosts that do not reach the outside.


def test_a_plan_that_forgets_a_policy_leaks_and_says_where() -> None:
    objects = [
        replace(one, spec=replace(one.spec, policies=())) if isinstance(one, Router) else one
        for one in planned(RANGE).objects
    ]
    found = verify(sandbox(RANGE), objects)
    assert lines(found) == [
        "leak: attacker 10.1.0.5 -> router r1 -> man -> router r2 -> vault 10.3.0.5",
        "leak: users -> man -> router r2 -> vault 10.3.0.5",
        "leak: vault 10.3.0.5 -> router r2 -> man -> router r1 -> attacker 10.1.0.5",
    ]


def test_a_plan_that_forgets_a_route_has_gaps_and_says_where() -> None:
    objects = [
        replace(one, spec=replace(one.spec, routes=one.spec.routes[:1]))
        if isinstance(one, Router) and one.metadata.name == "s1-man"
        else one
        for one in planned(RANGE).objects
    ]
    assert lines(verify(sandbox(RANGE), objects)) == [
        "gap: attacker 10.1.0.5 -> router r1 -> man: server 10.2.0.5 is not reached: s1-man has no route",
        "gap: server 10.2.0.5 -> router r2 -> man -> router r1 -> attacker 10.1.0.5: attacker 10.1.0.5 is not reached: "
        "no answer: s1-man has no route",
        "gap: users -> man: server 10.2.0.5 is not reached: s1-man has no route",
    ]


def test_a_host_without_attachments_is_a_gap() -> None:
    objects = [one for one in planned(RANGE).objects if one.metadata.name != "s1-server-office"]
    found = {one.source: one for one in verify(sandbox(RANGE), objects).differences if one.target == "vault 10.3.0.5"}
    assert found["server"].reason == "vault 10.3.0.5 is not reached: host server has no attachment"


def test_users_of_a_vpn_whose_routes_lead_to_a_closed_network_leak_into_it() -> None:
    vpn = {"entrypoints": [{"name": "server", "routes": ["10.0.0.0/8"]}, {"name": "r2", "routes": ["10.3.0.0/24"]}]}
    text = "vault 10.3.0.5: vpn.entrypoints lets users in, and store is not accessible_by_user"
    assert lines(checked({**RANGE, "vpn": vpn})) == [
        f"leak: users -> vpn r2 -> router r2 -> {text}",
        f"leak: users -> vpn server -> router r2 -> {text}",
    ]
    closed = {"entrypoints": [{"name": "attacker", "routes": ["10.3.0.0/24"]}]}
    assert checked({**RANGE, "vpn": closed}).differences == ()


def test_an_attachment_of_another_that_joins_a_host_to_a_network_leaks() -> None:
    port = {"type": "veth", "netns": "/run/netns/s1-vault", "name": "eth9"}
    node = next(one for one in planned(RANGE).objects if one.metadata.name == "s1-vault-store").spec.node  # type: ignore[attr-defined]
    found = checked(RANGE, attached("bridge", "s1-homes", "10.1.0.99", port=port, node=node))
    assert lines(found) == [
        "leak: NetworkAttachment bridge -> network homes: it is not of the Sandbox",
        "leak: vault 10.1.0.99 -> attacker 10.1.0.5",
    ]


def test_a_machine_of_another_on_a_network_leaks() -> None:
    found = checked(RANGE, attached("spy", "s1-homes", "10.1.0.99"))
    assert "leak: NetworkAttachment spy -> network homes: it is not of the Sandbox" in lines(found)
    assert "leak: attacker 10.1.0.5 -> NetworkAttachment spy 10.1.0.99" in lines(found)
    assert {one.source for one in found.differences} == {"attacker", "NetworkAttachment spy"}
    assert found.strangers == ("NetworkAttachment spy 10.1.0.99",)


def test_a_router_of_another_is_used_by_a_host_that_sets_its_own_routes() -> None:
    ports = [{"network": "s1-homes", "ips": ["10.1.0.200/24"]}, {"network": "s1-store", "ips": ["10.3.0.200/24"]}]
    routes = [{"to": "10.3.0.0/24", "via": "10.3.0.1"}]
    # The answer of vault goes to r2, man and r1: a policy of man drops only what enters `store`.
    found = checked(RANGE, made(Router, "hole", {"networks": ports, "routes": routes}))
    assert "leak: attacker 10.1.0.5 -> Router hole (not of the Sandbox) -> vault 10.3.0.5" in lines(found)
    assert "leak: Router hole -> network homes: it is not of the Sandbox" in lines(found)


def test_a_gateway_of_another_is_a_way_out() -> None:
    outer = {"network": "uplink", "ips": ["192.0.2.9/24"], "nextHop": "192.0.2.1"}
    hole = made(Router, "hole", {"networks": [{"network": "s1-lone", "ips": ["10.4.0.1/24"]}], "gateway": outer})
    uplink = made(Network, "uplink", {"provider": {"physicalNetwork": "physnet1"}})
    found = checked(RANGE, hole, uplink)
    assert "leak: lonely 10.4.0.5 -> Router hole (not of the Sandbox) -> outside" in lines(found)
    assert not any(one.source == "server" for one in found.differences)


def test_a_gateway_of_the_sandbox_is_no_leak_but_for_hosts_without_internet() -> None:
    outer = {"network": "uplink", "ips": ["192.0.2.9/24"], "nextHop": "192.0.2.1"}
    gateway = made(Router, "x", {"gateway": outer}).spec.gateway

    def opened(*, profile: bool) -> Verification:
        objects = [
            replace(one, spec=replace(one.spec, gateway=gateway, routes=one.spec.routes))
            if isinstance(one, Router) and one.metadata.name == "s1-man"
            else one
            for one in planned(RANGE).objects
            if profile or not isinstance(one, SecurityProfile)
        ]
        if not profile:
            objects = [
                replace(one, spec=replace(one.spec, security_profiles=()))
                if isinstance(one, NetworkAttachment)
                else one
                for one in objects
            ]
        uplink = made(Network, "uplink", {"provider": {"physicalNetwork": "physnet1"}})
        return verify(sandbox(RANGE), [*objects, uplink])

    assert opened(profile=True).differences == ()
    assert lines(opened(profile=False)) == ["leak: server 10.2.0.5 -> router r2 -> man -> outside"]


@pytest.mark.parametrize(
    ("policy", "reaches"),
    [
        ({"priority": 2000, "from": ["10.1.0.0/24"], "action": "drop"}, False),
        ({"priority": 2000, "from": ["10.9.0.0/24"], "action": "drop"}, True),
        ({"priority": 2000, "ports": [{"port": 22}], "action": "drop"}, True),
        ({"priority": 2000, "to": ["10.2.0.0/24"], "action": "reroute", "via": ["100.100.100.9"]}, False),
        ({"priority": 2000, "to": ["10.2.0.0/24"], "action": "reroute", "via": ["100.100.100.3"]}, True),
        ({"priority": 2000, "to": ["10.2.0.0/24"], "action": "reroute", "via": ["192.0.2.1"]}, False),
    ],
)
def test_policies_of_routers_are_followed(policy: dict[str, Any], reaches: bool) -> None:
    (made_policy,) = made(Router, "x", {"policies": [policy]}).spec.policies
    objects = [
        replace(one, spec=replace(one.spec, policies=(*one.spec.policies, made_policy)))
        if isinstance(one, Router) and one.metadata.name == "s1-man"
        else one
        for one in planned(RANGE).objects
    ]
    assert verify(sandbox(RANGE), objects).matrix["attacker"]["server 10.2.0.5"] == reaches


def test_an_allow_policy_above_a_drop_policy_leaks() -> None:
    (allow,) = made(Router, "x", {"policies": [{"priority": 2000, "ports": [{"port": 22}]}]}).spec.policies
    objects = [
        replace(one, spec=replace(one.spec, policies=(*one.spec.policies, allow)))
        if isinstance(one, Router) and one.metadata.name == "s1-man"
        else one
        for one in planned(RANGE).objects
    ]
    assert "leak: users -> man -> router r2 -> vault 10.3.0.5" in lines(verify(sandbox(RANGE), objects))


@pytest.mark.parametrize("joined", ["provider", "evpn"])
def test_a_network_that_reaches_beyond_the_sandbox_leaks(joined: str) -> None:
    objects = list(planned(RANGE).objects)
    if joined == "provider":
        provider = made(Network, "x", {"provider": {"physicalNetwork": "physnet1"}}).spec.provider
        objects = [
            replace(one, spec=replace(one.spec, provider=provider))
            if isinstance(one, Network) and one.metadata.name == "s1-lone"
            else one
            for one in objects
        ]
    else:
        objects.append(made(EVPNNetwork, "stretched", {"network": "s1-lone", "speaker": "x"}))
    text = "leak: network lone -> outside: it is connected to a physical network, or to other sites"
    assert text in lines(verify(sandbox(RANGE), objects))


def test_an_object_that_claims_to_be_of_the_sandbox_and_is_not_planned_leaks() -> None:
    plan = planned(RANGE).objects
    spy = attached("spy", "s1-homes", "10.1.0.99")
    claimed = replace(spy, metadata=replace(spy.metadata, owner_references=plan[0].metadata.owner_references))
    found = verify(sandbox(RANGE), [*plan, claimed], plan)
    assert "leak: NetworkAttachment spy -> network homes: it is not in the plan" in lines(found)


def test_objects_of_other_namespaces_and_networks_are_no_leak() -> None:
    stranger = attached("spy", "s1-homes", "10.1.0.99")
    elsewhere = replace(stranger, metadata=replace(stranger.metadata, namespace="ns2"))
    own = [made(Network, "mine", {}), made(Subnet, "mine", {"network": "mine", "cidr": "10.9.0.0/24"})]
    found = checked(RANGE, elsewhere, *own, attached("free", "mine", "10.9.0.5"))
    assert found.differences == ()


def test_a_host_on_networks_that_no_router_joins_is_a_warning() -> None:
    both = {**RANGE, "net_mappings": [*RANGE["net_mappings"], {"host": "server", "network": "lone", "ip": "10.4.0.6"}]}
    found = checked(both)
    assert found.differences == ()
    assert found.warnings == (
        "host server is on lone and office, which no router joins: whoever controls it reaches both",
    )
    assert found.matrix["lonely"]["server 10.4.0.6"]
    assert not found.matrix["lonely"]["server 10.2.0.5"]


def test_a_network_of_another_family_than_the_wan_is_not_declared_beyond_its_router() -> None:
    six = {
        **RANGE,
        "networks": [*RANGE["networks"], {"name": "six", "cidr": "fd00:6::/64"}],
        "hosts": [*RANGE["hosts"], {"name": "modern"}],
        "net_mappings": [*RANGE["net_mappings"], {"host": "modern", "network": "six", "ip": "fd00:6::5"}],
        "router_mappings": [*RANGE["router_mappings"], {"router": "r1", "network": "six", "ip": "fd00:6::1"}],
    }
    found = checked(six)
    assert found.differences == ()
    assert not any(found.matrix["modern"].values())


def test_thousands_of_differences_are_counted_and_some_are_kept() -> None:
    names = [f"h{n}" for n in range(30)]
    topology = {
        "name": "big",
        "hosts": [{"name": name} for name in names],
        "networks": [{"name": "lan", "cidr": "10.0.0.0/24"}],
        "net_mappings": [{"host": name, "network": "lan", "ip": f"10.0.0.{n + 5}"} for n, name in enumerate(names)],
    }
    found = verify(sandbox(topology), ())
    assert len(found.differences) == MOST
    assert found.more == 30 * 29 - MOST


# Any topology.


@st.composite
def topologies(draw: st.DrawFn) -> dict[str, Any]:
    """Valid topologies, with networks of several routers and hosts on several networks."""
    random = draw(st.randoms(use_true_random=False))
    networks = [f"n{n}" for n in range(random.randint(1, 5))]
    routers = [f"r{n}" for n in range(random.randint(0, 4))]
    hosts = [f"h{n}" for n in range(random.randint(1, 5))]
    router_mappings = [
        {"router": router, "network": network, "ip": f"10.{at}.0.{number + 1}"}
        for number, router in enumerate(routers)
        for at, network in enumerate(networks)
        if random.random() < 0.4
    ]
    net_mappings = [
        {"host": host, "network": f"n{at}", "ip": f"10.{at}.0.{100 + number * 10 + position}"}
        for number, host in enumerate(hosts)
        for position, at in enumerate(random.choices(range(len(networks)), k=random.choice((1, 1, 1, 2, 3))))
    ]
    return {
        "name": "any",
        "hosts": [{"name": name, "block_internet": random.random() < 0.3} for name in hosts],
        "routers": [{"name": name} for name in routers],
        "networks": [
            {"name": name, "cidr": f"10.{at}.0.0/24", "accessible_by_user": random.random() < 0.7}
            for at, name in enumerate(networks)
        ],
        "net_mappings": net_mappings,
        "router_mappings": router_mappings,
    }


@settings(max_examples=300)
@given(topologies())
def test_every_plan_reaches_as_its_topology_declares(topology: dict[str, Any]) -> None:
    assert checked(topology).differences == ()


@settings(max_examples=60)
@given(topologies(), st.randoms(use_true_random=False))
def test_the_order_of_lists_and_objects_changes_nothing(topology: dict[str, Any], random: Random) -> None:
    shuffled = {
        **topology,
        **{key: random.sample(topology[key], len(topology[key])) for key in ("hosts", "networks", "router_mappings")},
    }
    objects = list(planned(topology).objects)
    random.shuffle(objects)
    assert verify(sandbox(shuffled), objects) == checked(topology)


@settings(max_examples=150)
@given(topologies(), st.randoms(use_true_random=False))
def test_packets_take_the_ways_that_a_simulation_finds(topology: dict[str, Any], random: Random) -> None:
    objects = list(planned(topology).objects)
    # Damage: routes, policies and routers that are missing.
    objects = [one for one in objects if not isinstance(one, Router) or random.random() < 0.9]
    objects = [
        replace(
            one, spec=replace(one.spec, policies=(), routes=tuple(r for r in one.spec.routes if random.random() < 0.8))
        )
        if isinstance(one, Router) and random.random() < 0.5
        else one
        for one in objects
    ]
    found = verify(sandbox(topology), objects).matrix
    oracle = Oracle(objects)
    addresses = {(one["host"], one["ip"]) for one in topology["net_mappings"]}
    for host in {one["name"] for one in topology["hosts"]}:
        for peer, ip in addresses:
            if peer != host:
                assert found[host][f"{peer} {ip}"] == oracle.answers(f"/run/netns/s1-{host}", ip), (host, peer, ip)


@settings(max_examples=60)
@given(topologies())
def test_hosts_with_one_link_reach_each_other_or_not(topology: dict[str, Any]) -> None:
    hosts = [one["host"] for one in topology["net_mappings"]]
    single = {one["host"]: one["ip"] for one in topology["net_mappings"] if hosts.count(one["host"]) == 1}
    matrix = checked(topology).matrix
    for one in single:
        for other in single:
            if one != other:
                assert matrix[one][f"{other} {single[other]}"] == matrix[other][f"{one} {single[one]}"]


class Oracle:
    """Sends packets hop by hop, slowly, by the definitions."""

    def __init__(self, objects: list[Resource]) -> None:
        self.subnets = {one.spec.network: one.spec for one in objects if isinstance(one, Subnet)}
        self.routers = [one.spec for one in objects if isinstance(one, Router)]
        self.ports = sorted(
            (one.spec for one in objects if isinstance(one, NetworkAttachment)), key=lambda one: one.port.name
        )

    def answers(self, machine: str, ip: str) -> bool:
        """Whether a machine gets an answer from an address."""
        if not any(one.port.netns == machine for one in self.ports):
            return False
        source, arrived = self.send(machine, "", ip)
        if arrived is None:
            return False
        return self.send(arrived, ip, source)[1] == machine

    def send(self, machine: str, source: str, ip: str) -> tuple[str, str | None]:
        """Return the source address, and the machine that a packet arrives at."""
        mine = [one for one in self.ports if one.port.netns == machine]
        near = [one for one in mine if ip_address(ip) in ip_network(self.subnets[one.network].cidr)]
        ways = [(one, ip) for one in near] or [
            (one, self.subnets[one.network].gateway) for one in mine if one.default_route
        ]
        if not ways:
            return source, None
        port, hop = ways[0]
        if source and source not in port.ips:
            return source, None
        return source or port.ips[0], self.carry(port.network, hop, ip, 10)

    def carry(self, network: str, hop: str, ip: str, life: int) -> str | None:
        for one in self.ports:
            if one.network == network and hop in one.ips:
                return one.port.netns if hop == ip else None
        for router in self.routers:
            for port in router.networks:
                if port.network == network and hop in [text.partition("/")[0] for text in port.ips]:
                    return self.route(router, ip, life - 1)
        return None

    def route(self, router: Any, ip: str, life: int) -> str | None:
        ways = [
            (ip_interface(text).network.prefixlen, 1, port.network, ip)
            for port in router.networks
            for text in port.ips
            if ip_address(ip) in ip_interface(text).network
        ]
        for one in router.routes:
            via = [port.network for port in router.networks for text in port.ips
                   if ip_address(one.via) in ip_interface(text).network]  # fmt: skip
            if via and ip_address(ip) in ip_network(one.to):
                ways.append((ip_network(one.to).prefixlen, 0, via[0], one.via))
        drops = any(
            one.action is PolicyAction.DROP and any(ip_address(ip) in ip_network(block) for block in one.to)
            for one in router.policies
        )
        if not ways or drops or life == 0:
            return None
        _, _, network, hop = max(ways)
        return self.carry(network, hop, ip, life)


JUNK = ("", "x", "999.1.1.1", "10.1.0.5/99", "10.1.0.0/24", "fd00::1", "10.1.0.5", "0.0.0.0/0", "-1")


def damaged(value: Any, random: Random) -> Any:
    """Return a document in which some texts are replaced."""
    if isinstance(value, dict):
        kept = ("apiVersion", "kind", "metadata", "action", "type", "direction", "protocol", "backend")
        return {key: part if key in kept else damaged(part, random) for key, part in value.items()}
    if isinstance(value, list):
        return [damaged(part, random) for part in value]
    return random.choice(JUNK) if isinstance(value, str) and random.random() < 0.2 else value


@settings(max_examples=150)
@given(topologies(), st.randoms(use_true_random=False))
def test_objects_and_topologies_that_are_not_valid_are_no_error(topology: dict[str, Any], random: Random) -> None:
    documents = [KINDS.of(one).document(one) for one in planned(topology).objects]
    objects = [
        msgspec.convert(damaged(one, random), KINDS.kind(one["apiVersion"], one["kind"]).type) for one in documents
    ]
    assert verify(sandbox(topology), objects).matrix.keys() >= {one["name"] for one in topology["hosts"]}
    vpn = {"entrypoints": [{"name": "h0", "routes": ["10.0.0.0/8", "x"]}]}
    verify(sandbox(damaged({**topology, "vpn": vpn}, random)), objects)


# Firewalls.


def profiled(**spec: Any) -> Verification:
    """Verify with a SecurityProfile of another that applies to the attachments of server."""
    selector = {"matchLabels": {"netloom.dev/sandbox-host": "server"}}
    return checked(RANGE, made(SecurityProfile, "mine", {"selector": selector, **spec}))


@pytest.mark.parametrize(
    ("spec", "reaches"),
    [
        ({"ingress": []}, False),
        ({"ingress": [{}]}, True),
        ({"ingress": [{"from": [{"cidr": "10.1.0.0/24"}]}]}, True),
        ({"ingress": [{"from": [{"cidr": "10.1.0.0/24", "except": ["10.1.0.5/32"]}]}]}, False),
        ({"ingress": [{"from": [{"selector": {"matchLabels": {"netloom.dev/sandbox-host": "attacker"}}}]}]}, True),
        ({"ingress": [{"from": [{"selector": {"matchLabels": {"netloom.dev/sandbox-host": "vault"}}}]}]}, False),
        ({"ingress": [{"from": [{"profile": "mine"}]}]}, False),
        ({"ingress": [{}, {"action": "drop", "from": [{"cidr": "10.1.0.0/16"}]}]}, False),
        # Not everything is dropped.
        ({"ingress": [{}, {"action": "drop", "ports": [{"port": 22}]}]}, True),
        ({"egress": []}, True),
    ],
)
def test_profiles_decide_on_new_connections(spec: dict[str, Any], reaches: bool) -> None:
    found = profiled(**spec)
    assert found.matrix["attacker"]["server 10.2.0.5"] == reaches
    assert any(one.source == "attacker" for one in found.differences) != reaches


def test_an_attachment_with_a_profile_that_does_not_exist_reaches_nothing() -> None:
    objects = [one for one in planned(RANGE).objects if not isinstance(one, SecurityProfile)]
    found = verify(sandbox(RANGE), objects)
    assert not any(found.matrix["server"].values())
    reason = "a SecurityProfile of s1-server-office drops it"
    assert found.differences[0].reason.endswith(reason)


FAULTS: list[tuple[dict[str, Any], set[tuple[str, str]]]] = [
    ({"linkDown": {"host": "web"}}, {("web", "db"), ("db", "web")}),
    ({"linkDown": {"host": "hall", "network": "right"}}, {("web", "db"), ("db", "web")}),
    ({"partition": {"members": ["web"]}}, {("web", "db"), ("db", "web")}),
]
ROOMS: dict[str, Any] = {
    "name": "rooms",
    "hosts": [{"name": "web"}, {"name": "db"}],
    "routers": [{"name": "hall"}],
    "networks": [{"name": "left", "cidr": "10.1.0.0/24"}, {"name": "right", "cidr": "10.2.0.0/24"}],
    "net_mappings": [
        {"host": "web", "network": "left", "ip": "10.1.0.5"},
        {"host": "db", "network": "right", "ip": "10.2.0.5"},
    ],
    "router_mappings": [
        {"router": "hall", "network": "left", "ip": "10.1.0.1"},
        {"router": "hall", "network": "right", "ip": "10.2.0.1"},
    ],
}


@pytest.mark.parametrize(("fault", "hosts"), FAULTS)
def test_what_faults_cut_is_no_gap_and_nothing_else_is_excused(
    fault: dict[str, Any], hosts: set[tuple[str, str]]
) -> None:
    whole = sandbox(ROOMS)
    broken = sandbox(ROOMS, faults=[{"name": "one", **fault}])
    healthy = verify(whole, plan_sandbox(whole, {"n1"}).objects)
    assert healthy.differences == ()
    objects = plan_sandbox(broken, {"n1"}).objects
    faulty = verify(broken, objects)
    assert {one.kind for one in faulty.differences} == {Kind.GAP}
    cut = cut_pairs(healthy, faulty)
    assert {(source, target.split()[0]) for source, target in cut if source != USERS} == hosts
    excused = verify(broken, objects, cut=cut)
    assert excused.differences == ()
    assert excused.cut == len(faulty.differences)
