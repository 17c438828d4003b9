"""The objects of a Sandbox: complete, valid, with names of their own, and the same for any order of the lists."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netloom.model.document import ObjectMeta, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Route, Router, Subnet
from netloom.model.kinds.paths import Mirror, Place, Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import KINDS as REGISTRY
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import admit
from netloom.plan.sandbox.changes import changes
from netloom.plan.sandbox.names import LONGEST, Part, assign, label_value
from netloom.plan.sandbox.objects import SandboxPlan, plan_sandbox

SMALL: dict[str, Any] = {
    "name": "small-sandbox",
    "hosts": [{"name": "server", "hidden": True}, {"name": "home"}],
    "routers": [{"name": "server-router"}, {"name": "home-router"}],
    "networks": [
        {"name": "server-switch", "cidr": "10.10.20.0/24", "accessible_by_user": False},
        {"name": "home-switch", "cidr": "10.10.30.0/24"},
    ],
    "net_mappings": [
        {"host": "server", "network": "server-switch", "ip": "10.10.20.5"},
        {"host": "home", "network": "home-switch", "ip": "10.10.30.5"},
    ],
    "router_mappings": [
        {"router": "server-router", "network": "server-switch", "ip": "10.10.20.1"},
        {"router": "home-router", "network": "home-switch", "ip": "10.10.30.1"},
    ],
    "groups": [{"name": "custom-group", "nodes": ["home", "server-router"]}],
}
NODES = ("n1", "n2")


def sandbox(topology: dict[str, Any], *, name: str = "s1", **spec: Any) -> Sandbox:
    document = {
        "apiVersion": SANDBOX.api_version,
        "kind": "Sandbox",
        "metadata": {"name": name, "namespace": "ns1", "uid": "u1"},
        "spec": {"topology": topology, **spec},
    }
    return msgspec.convert(document, Sandbox)


def planned(topology: dict[str, Any], nodes: Iterable[str] = NODES, **spec: Any) -> SandboxPlan:
    return plan_sandbox(sandbox(topology, **spec), frozenset(nodes))


def of(plan: SandboxPlan, kind: type[Any]) -> dict[str, Any]:
    return {one.metadata.name: one for one in plan.objects if isinstance(one, kind)}


def edited(**changes: Any) -> dict[str, Any]:
    return {**SMALL, **changes}


def messages(plan: SandboxPlan) -> list[str]:
    return [one.message for one in plan.problems]


def test_a_topology_becomes_networks_routers_and_attachments() -> None:
    plan = planned(SMALL)
    assert plan.problems == ()
    assert set(of(plan, Network)) == set(of(plan, Subnet)) == {"s1-server-switch", "s1-home-switch", "s1-wan"}
    assert set(of(plan, Router)) == {"s1-server-router", "s1-home-router", "s1-man"}
    assert set(of(plan, NetworkAttachment)) == {"s1-server-server-switch", "s1-home-home-switch"}
    attachments = {"home": "s1-home-home-switch", "server": "s1-server-server-switch"}
    assert plan.hosts == {host: (("NetworkAttachment", name),) for host, name in attachments.items()}


def test_every_object_has_the_owner_and_the_label_of_its_sandbox() -> None:
    for one in planned(SMALL, links=[{"host": "home", "network": "home-switch", "rate": "1mbit"}]).objects:
        assert one.metadata.namespace == "ns1"
        assert one.metadata.labels["netloom.dev/sandbox"] == "s1"
        (owner,) = one.metadata.owner_references
        assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Sandbox", "s1", "u1", True)


def test_the_gateway_of_a_network_is_its_router_and_dhcp_is_on() -> None:
    subnet = of(planned(SMALL), Subnet)["s1-server-switch"].spec
    assert (subnet.cidr, subnet.gateway, subnet.dhcp.enabled) == ("10.10.20.0/24", "10.10.20.1", True)


def test_addresses_on_the_wan_follow_the_order_of_routers_behind_man() -> None:
    routers = of(planned(SMALL), Router)
    wan = {name: port.ips for name, one in routers.items() for port in one.spec.networks if port.network == "s1-wan"}
    assert wan == {
        "s1-man": ("100.100.100.1/24",),
        "s1-server-router": ("100.100.100.2/24",),
        "s1-home-router": ("100.100.100.3/24",),
    }


def test_packets_between_routers_pass_man() -> None:
    routers = of(planned(SMALL), Router)
    assert routers["s1-home-router"].spec.routes == (Route(to="0.0.0.0/0", via="100.100.100.1"),)
    assert set(routers["s1-man"].spec.routes) == {
        Route(to="10.10.20.0/24", via="100.100.100.2"),
        Route(to="10.10.30.0/24", via="100.100.100.3"),
    }


def test_of_two_routers_on_a_network_man_and_hosts_use_the_first_by_name() -> None:
    both = [*SMALL["router_mappings"], {"router": "home-router", "network": "server-switch", "ip": "10.10.20.2"}]
    plan = planned(edited(router_mappings=both))
    routes = {route.to: route.via for route in of(plan, Router)["s1-man"].spec.routes}
    assert routes["10.10.20.0/24"] == "100.100.100.3"
    assert of(plan, Subnet)["s1-server-switch"].spec.gateway == "10.10.20.2"


def test_a_network_that_users_cannot_access_is_closed_at_man() -> None:
    (policy,) = of(planned(SMALL), Router)["s1-man"].spec.policies
    assert (policy.action, policy.to) == ("drop", ("10.10.20.0/24",))


def test_man_has_the_way_out() -> None:
    gateway = {"network": "world", "ips": ["192.0.2.9/24"], "nextHop": "192.0.2.1"}
    plan = planned(SMALL, gateway=gateway)
    found = {one.metadata.name: one.spec.gateway for one in plan.objects if isinstance(one, Router)}
    assert {name: one.network for name, one in found.items() if one} == {"s1-man": "world"}
    lone = {key: [] if "router" in key else value for key, value in SMALL.items() if key != "groups"}
    assert [one.message for one in planned(lone, gateway=gateway).problems] == [
        "spec.gateway: the topology has no router, so there is no way to it: add a router to its networks"
    ]
    assert not planned(lone).problems


def test_a_topology_without_routers_has_no_wan() -> None:
    plan = planned(edited(routers=[], router_mappings=[], groups=[]))
    assert of(plan, Router) == {}
    assert "s1-wan" not in of(plan, Network)
    assert not any(one.spec.default_route for one in of(plan, NetworkAttachment).values())


def test_a_network_without_a_router_loses_no_address_of_its_hosts() -> None:
    hosts = [{"name": f"h{n}"} for n in range(1, 7)]
    links = [{"host": f"h{n}", "network": "lan", "ip": f"10.0.0.{n}"} for n in range(1, 7)]
    topology = {"name": "t", "hosts": hosts, "networks": [{"name": "lan", "cidr": "10.0.0.0/29"}]}
    full = planned({**topology, "net_mappings": links})
    assert of(full, Subnet)["s1-lan"].spec.gateway == "10.0.0.7"  # Broadcast: no host can have it.
    assert of(full, Subnet)["s1-lan"].spec.dhcp is None
    assert len(of(full, NetworkAttachment)) == 6
    assert full.problems == ()
    less = planned({**topology, "net_mappings": [*links[:4], links[5]]})
    assert of(less, Subnet)["s1-lan"].spec.gateway == "10.0.0.5"


def test_the_first_network_of_a_host_has_the_default_route() -> None:
    more = [*SMALL["net_mappings"], {"host": "server", "network": "home-switch", "ip": "10.10.30.6"}]
    attachments = of(planned(edited(net_mappings=more), run=True), NetworkAttachment)
    first, second = attachments["s1-server-server-switch"].spec, attachments["s1-server-home-switch"].spec
    assert (first.default_route, second.default_route) == (True, False)
    assert (first.port.name, second.port.name) == ("eth0", "eth1")
    assert first.port.netns == second.port.netns == "/run/netns/s1-server"
    assert first.port.create_netns
    assert (first.ips, second.ips) == (("10.10.20.5",), ("10.10.30.6",))


def test_without_run_no_namespace_is_created() -> None:
    assert not any(one.spec.port.create_netns for one in of(planned(SMALL), NetworkAttachment).values())


def test_groups_are_labels_of_attachments() -> None:
    attachments = of(planned(SMALL), NetworkAttachment)
    labels = attachments["s1-home-home-switch"].metadata.labels
    assert labels == {
        "netloom.dev/sandbox": "s1",
        "netloom.dev/sandbox-host": "home",
        "group.netloom.dev/custom-group": "true",
    }
    assert "group.netloom.dev/custom-group" not in attachments["s1-server-server-switch"].metadata.labels


def test_hosts_without_internet_reach_the_blocks_of_the_sandbox_only() -> None:
    plan = planned(edited(hosts=[{"name": "server", "block_internet": True}, {"name": "home"}]))
    (profile,) = of(plan, SecurityProfile).values()
    (rule,) = profile.spec.egress
    assert {peer.cidr for peer in rule.to} == {"10.10.20.0/24", "10.10.30.0/24", "100.100.100.0/24"}
    assert profile.spec.ingress is None
    attachments = of(plan, NetworkAttachment)
    assert attachments["s1-server-server-switch"].spec.security_profiles == ("s1-block-internet",)
    assert attachments["s1-home-home-switch"].spec.security_profiles == ()


def test_links_are_shapings_of_attachments_and_router_ports_in_both_directions() -> None:
    links = [
        {"host": "home", "network": "home-switch", "rate": "10mbit", "delay": "20ms", "impairment": "auto"},
        {"host": "home-router", "network": "home-switch", "rate": "1mbit"},
        {"host": "home-router", "network": "wan", "rate": "2mbit"},
    ]
    plan = planned(SMALL, links=links)
    shapings = of(plan, Shaping)
    host = shapings["s1-home-home-switch"].spec
    assert host.from_ == Place(attachment="s1-home-home-switch")
    assert (host.rate, host.delay, host.direction, host.impairment) == ("10mbit", "20ms", "both", "auto")
    router = shapings["s1-home-router-home-switch"].spec
    assert router.from_ == Place(network="s1-home-switch", router="s1-home-router")
    assert (router.rate, router.direction) == ("1mbit", "both")
    assert shapings["s1-home-router-wan"].spec.from_ == Place(network="s1-wan", router="s1-home-router")
    assert len(shapings) == 3
    assert plan.problems == ()


def test_a_router_delays_nothing_and_a_link_that_is_none_is_named() -> None:
    links = [
        {"host": "home-router", "network": "home-switch", "rate": "1mbit", "delay": "20ms"},
        {"host": "server-router", "network": "server-switch", "loss": "1%"},
        {"host": "home", "network": "server-switch", "rate": "1mbit"},
    ]
    plan = planned(SMALL, links=links)
    (shaping,) = of(plan, Shaping).values()
    assert (shaping.spec.rate, shaping.spec.delay) == ("1mbit", "")
    assert {one.reason for one in plan.problems} == {"LinkUnsupported"}
    assert [one.message for one in plan.problems] == [
        "spec.links: home has no link to server-switch: name a host or router, and one of its networks",
        "spec.links: home-router is a router, which cannot delay or lose packets: impair the links of hosts",
        "spec.links: server-router is a router, which cannot delay or lose packets: impair the links of hosts",
    ]


FORWARDING: dict[str, Any] = {
    "sources": [{"host": "server", "network": "server-switch"}],
    "destination": {"host": "home", "network": "home-switch"},
    "direction": "in",
}


@pytest.mark.parametrize("hosts", [{}, {"home": "n2"}], ids=["one-node", "two-nodes"])
def test_forwarding_is_a_mirror(hosts: dict[str, str]) -> None:
    plan = planned(edited(network_forwarding=FORWARDING), placement={"default": "n1", "hosts": hosts})
    (mirror,) = of(plan, Mirror).values()
    assert mirror.spec.source.attachment == "s1-server-server-switch"
    assert mirror.spec.destination.attachment == "s1-home-home-switch"
    assert mirror.spec.direction == "ingress"
    assert plan.problems == ()


def test_forwarding_from_a_router_is_a_mirror_of_its_network_from_the_other_point_of_view() -> None:
    sources = [{"host": "server-router", "network": "server-switch"}, {"host": "home-router", "network": "wan"}]
    plan = planned(edited(network_forwarding={**FORWARDING, "sources": sources}))
    (mirror,) = of(plan, Mirror).values()
    assert (mirror.spec.source.network, mirror.spec.direction) == ("s1-server-switch", "egress")
    assert [one.message for one in plan.problems] == [
        "spec.topology.network_forwarding.sources: home-router has no link to wan: name one of its networks, other "
        "than the WAN"
    ]


def test_hosts_are_placed_as_declared_and_the_others_are_spread() -> None:
    hosts = [{"name": f"h{n}"} for n in range(6)]
    links = [{"host": f"h{n}", "network": "lan", "ip": f"10.0.0.{n + 10}"} for n in range(6)]
    topology = {
        "name": "t",
        "hosts": hosts,
        "networks": [{"name": "lan", "cidr": "10.0.0.0/24"}],
        "net_mappings": links,
    }

    def nodes(plan: SandboxPlan) -> dict[str, str]:
        return {name[3:5]: one.spec.node for name, one in of(plan, NetworkAttachment).items()}

    spread = nodes(planned(topology, nodes=("n1", "n2", "n3")))
    assert sorted(spread.values()) == ["n1", "n1", "n2", "n2", "n3", "n3"]
    fixed = nodes(planned(topology, placement={"hosts": {"h1": "n2"}, "default": "n1"}))
    assert fixed == {"h0": "n1", "h1": "n2", "h2": "n1", "h3": "n1", "h4": "n1", "h5": "n1"}
    more = plan_sandbox(sandbox(topology), {"n1", "n2", "n3", "n4"}, spread)
    assert nodes(more) == spread  # A Node that joins moves no host.
    less = nodes(plan_sandbox(sandbox(topology), {"n1", "n2"}, spread))
    assert {host: node for host, node in less.items() if spread[host] != "n3"} == {
        host: node for host, node in spread.items() if node != "n3"
    }


def test_without_nodes_hosts_wait_and_an_unknown_node_is_named() -> None:
    waiting = planned(SMALL, nodes=())
    assert of(waiting, NetworkAttachment) == {}
    assert messages(waiting) == ["there is no Node for host home and 1 more: start an agent"]
    unknown = planned(SMALL, placement={"default": "n9"})
    assert messages(unknown) == ["spec.placement: there is no Node n9: start its agent, or name another Node"]
    assert len(of(unknown, NetworkAttachment)) == 2


@pytest.mark.parametrize(
    ("change", "lost", "message"),
    [
        (
            {"net_mappings": [*SMALL["net_mappings"], {"host": "x", "network": "home-switch", "ip": "10.10.30.9"}]},
            (),
            'Cannot find host with name "x".',
        ),
        (
            {"net_mappings": [*SMALL["net_mappings"], {"host": "home", "network": "x", "ip": "10.10.30.9"}]},
            (),
            'Cannot find network with name "x".',
        ),
        (
            {"net_mappings": [SMALL["net_mappings"][0], {"host": "home", "network": "home-switch", "ip": "10.9.9.9"}]},
            ("s1-home-home-switch",),
            'IP address "10.9.9.9" is not valid host address of "10.10.30.0/24".',
        ),
        (
            {
                "net_mappings": [
                    SMALL["net_mappings"][0],
                    {"host": "home", "network": "home-switch", "ip": "10.10.30.1"},
                ]
            },
            ("s1-home-home-switch",),
            "another machine has 10.10.30.1 as well",
        ),
        (
            {"networks": [{"name": "server-switch", "cidr": "10.10.0.0/16"}, SMALL["networks"][1]]},
            ("s1-home-home-switch", "s1-home-switch"),
            'Network "home-switch" overlaps with network "server-switch".',
        ),
        (
            {"networks": [{"name": "server-switch", "cidr": "100.100.0.0/16"}, SMALL["networks"][1]]},
            ("s1-server-server-switch", "s1-server-switch"),
            'Network "server-switch" overlaps with network "wan".',
        ),
        ({"wan": {"cidr": "100.100.100.0/30"}}, (), "has no address left for router home-router"),
        ({"routers": [*SMALL["routers"], {"name": "home-router"}]}, (), "home-router is declared twice"),
        ({"hosts": [*SMALL["hosts"], {"name": "home", "flavor": "x"}]}, (), "home is declared twice"),
        ({"networks": [*SMALL["networks"], {"name": "odd", "cidr": "nonsense"}]}, (), "'nonsense' is not an address"),
    ],
)
def test_a_wrong_part_costs_itself_alone(change: dict[str, Any], lost: tuple[str, ...], message: str) -> None:
    plan, whole = planned(edited(**change)), planned(SMALL)
    assert any(message in one for one in messages(plan)), messages(plan)
    assert {one.metadata.name for one in whole.objects} - {one.metadata.name for one in plan.objects} == set(lost)


def test_names_that_collide_or_do_not_fit_get_a_digest() -> None:
    parts = [Part(("a", "b-c")), Part(("a-b", "c")), Part(("A", "b-c")), Part(("x-",)), Part(("y" * 250,))]
    names = assign("s", parts)
    assert len(set(names.values())) == len(parts)
    assert sorted(names.values()).count("s-a-b-c") == 1
    assert all(len(name) <= LONGEST for name in names.values())
    assert names == assign("s", reversed(parts))
    assert label_value("x" * 80) != label_value("x" * 81)


WORDS = st.sampled_from(["a", "b", "a-b", "man", "wan", "A", "x-", "block-internet", "lan-" + "l" * 58])
TEXTS = st.one_of(
    st.sampled_from(["10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/16", "fd00::/64", "10.0.0.8/30", "192.0.2.0/31"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.255", "10.0.1.1", "fd00::1", "10.0.0.9", "nonsense", ""]),
)


def _lists(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(fields), max_size=5)


TOPOLOGIES = st.fixed_dictionaries(
    {
        "name": WORDS,
        "hosts": _lists(name=WORDS, block_internet=st.booleans()),
        "routers": _lists(name=WORDS),
        "networks": _lists(name=WORDS, cidr=TEXTS, accessible_by_user=st.booleans()),
        "net_mappings": _lists(host=WORDS, network=WORDS, ip=TEXTS),
        "router_mappings": _lists(router=WORDS, network=WORDS, ip=TEXTS),
        "groups": _lists(name=st.text(max_size=70), nodes=st.lists(WORDS, max_size=3)),
    },
    optional={
        "wan": st.fixed_dictionaries({"name": WORDS, "cidr": TEXTS}),
        "network_forwarding": st.fixed_dictionaries(
            {
                "sources": _lists(host=WORDS, network=WORDS),
                "destination": st.fixed_dictionaries({"host": WORDS, "network": WORDS}),
            }
        ),
    },
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "run": st.booleans(),
        "links": _lists(host=WORDS, network=WORDS, rate=st.just("1mbit")),
        "placement": st.fixed_dictionaries({}, optional={"default": st.sampled_from(["n1", "n9"])}),
    },
)


@given(TOPOLOGIES, SPECS, st.sampled_from([(), ("n1",), ("n1", "n2")]))
def test_any_topology_is_planned_and_its_objects_are_valid_with_names_of_their_own(
    topology: dict[str, Any], spec: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    plan = planned(topology, nodes, **spec)
    names = [(one.kind, one.metadata.name) for one in plan.objects]
    assert len(set(names)) == len(names)
    for one in plan.objects:
        kind = REGISTRY.of(one)
        admit(kind, kind.document(one))


@given(TOPOLOGIES, SPECS, st.randoms(use_true_random=False))
def test_the_order_of_lists_does_not_matter(topology: dict[str, Any], spec: dict[str, Any], random: Any) -> None:
    mixed = dict(topology)
    for field in ("hosts", "networks", "router_mappings", "groups"):
        mixed[field] = random.sample(topology[field], len(topology[field]))
    by_host: dict[str, list[Any]] = {}
    for one in topology["net_mappings"]:
        by_host.setdefault(one["host"], []).append(one)
    # Only the order among the links of one host has a meaning.
    mixed["net_mappings"] = [one for host in sorted(by_host, reverse=True) for one in by_host[host]]
    links = spec.get("links", [])
    assert planned(topology, **spec) == planned(mixed, nodes=("n2", "n1"), **{**spec, "links": links[::-1]})


def _observed(objects: Iterable[Resource]) -> list[Resource]:
    """Return objects as a store has them."""
    return [replace(one, metadata=replace(one.metadata, uid=one.metadata.name)) for one in objects]


def test_what_is_as_planned_is_not_written() -> None:
    objects = planned(SMALL).objects
    found = changes(objects, _observed(objects))
    assert (found.create, found.update, found.remove) == ((), (), ())


def test_an_edit_changes_only_what_differs() -> None:
    before = _observed(planned(SMALL).objects)
    closed = [SMALL["networks"][0], {**SMALL["networks"][1], "accessible_by_user": False}]
    found = changes(planned(edited(networks=closed)).objects, before)
    assert [one.metadata.name for one in found.update] == ["s1-man"]
    assert (found.create, found.remove) == ((), ())
    moved = changes(planned(SMALL, placement={"hosts": {"home": "n2", "server": "n2"}}).objects, before)
    assert moved.update == ()
    names = ["s1-home-home-switch"]
    assert [one.metadata.name for one in moved.remove] == [one.metadata.name for one in moved.create] == names


def test_labels_of_others_stay_and_those_of_groups_go() -> None:
    objects = planned(SMALL).objects
    before = [
        replace(one, metadata=ObjectMeta(name=one.metadata.name, labels={**one.metadata.labels, "team": "red"}))
        for one in objects
    ]
    assert changes(objects, before).update == ()
    without = planned(edited(groups=[])).objects
    assert [one.metadata.name for one in changes(without, before).update] == ["s1-home-home-switch"]


def test_a_network_that_the_wan_cannot_carry_is_named() -> None:
    networks = [*SMALL["networks"], {"name": "six", "cidr": "fd00::/64", "accessible_by_user": False}]
    mappings = [*SMALL["router_mappings"], {"router": "home-router", "network": "six", "ip": "fd00::1"}]
    plan = planned(edited(networks=networks, router_mappings=mappings))
    assert messages(plan) == [
        "spec.topology.networks: six: the WAN 100.100.100.0/24 cannot carry packets of fd00::/64: choose blocks of one"
        " address family"
    ]
    assert len(of(plan, Router)["s1-man"].spec.routes) == 2


def test_limits_of_a_router_are_problems() -> None:
    many = [{"name": f"n{number}", "cidr": f"10.{number}.0.0/24"} for number in range(130)]
    ports = [{"router": "r", "network": one["name"], "ip": one["cidr"].replace("0/24", "1")} for one in many]
    more = [{"router": "r", "network": "n0", "ip": f"10.0.0.{number}"} for number in range(2, 19)]
    rival = {"router": "q", "network": "n0", "ip": "10.0.0.1"}
    routers = [{"name": "r"}, {"name": "q"}]
    plan = planned({"name": "t", "routers": routers, "networks": many, "router_mappings": [*ports, *more, rival]})
    router = of(plan, Router)["s1-r"]
    assert len(router.spec.networks) == 128
    assert max(len(port.ips) for port in router.spec.networks) == 16
    said = "\n".join(messages(plan))
    assert said.count("a router joins at most 127 networks: use another router") == 3
    assert "a router has at most 16 addresses in a network" in said
    assert "router q has 10.0.0.1 as well: choose another address" in said
    for one in plan.objects:
        admit(REGISTRY.of(one), REGISTRY.of(one).document(one))
