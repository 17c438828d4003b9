"""Policies of a router, with real packets: what is dropped, what is exempted, what goes by way of somebody else."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.lab import Lab
from tests.lab.capturing import Wire, capturing
from tests.lab.worlds import Way, World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

RED = {4: "10.64.0.0/24", 6: "fd64::/64"}
BLUE = {4: "10.65.0.0/24", 6: "fd65::/64"}
SENDER = {4: "10.64.0.11", 6: "fd64::11"}
OTHER = {4: "10.64.0.12", 6: "fd64::12"}
TARGET = {4: "10.65.0.12", 6: "fd65::12"}
BOX = {4: "10.65.0.7", 6: "fd65::7"}
BOX_2 = {4: "10.65.0.8", 6: "fd65::8"}
FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])


@pytest.fixture(scope="module")
def policies(lab: Lab) -> Iterator[World]:
    """Two networks, a router without policies, and two boxes that forward."""
    with world(lab, "policies") as made:
        for name in ("red-1", "blue-2"):
            made.listen(name, 7100, 7200, "udp/7100")
        for box in ("box", "box-2"):
            switches = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            subprocess.run(["ip", "netns", "exec", made.netns(box), "sysctl", "-qw", *switches], check=True)
        yield made


NETWORKS = [{"network": "red"}, {"network": "blue"}]


def set_policies(policies: World, *listed: dict[str, Any], **more: Any) -> None:
    """Have the router do what these policies say, and return when it is Ready and every node knows."""
    policies.put("Router", "r1", {"networks": NETWORKS, "policies": list(listed), **more})
    policies.becomes("Router", "r1", "True", "Programmed")
    policies.lab.exec("central", ["ovn-nbctl", "--timeout=120", "--wait=hv", "sync"])


@pytest.fixture
def plain(policies: World) -> Iterator[World]:
    """Give the world with no policy yet, and leave it so."""
    set_policies(policies)
    assert all(policies.reaches([("red-1", TARGET[family], 7100) for family in (4, 6)]).values())
    yield policies
    set_policies(policies)


@FAMILIES
def test_a_policy_drops_what_would_be_routed_and_a_higher_one_exempts_a_port(plain: World, family: int) -> None:
    drop = {"priority": 100, "from": [RED[family]], "to": [f"{TARGET[family]}/{32 if family == 4 else 128}"]}
    set_policies(plain, {**drop, "action": "drop"})
    ways: list[Way] = [("red-1", TARGET[family], how) for how in (7100, 7200, "udp/7100", "ping")]
    plain.blocked(*ways)
    others: list[Way] = [("red-1", TARGET[10 - family], 7100), ("red-1", BOX[family], "ping")]
    assert all(plain.reaches(others).values()), "neither the other family nor the other machine is meant"
    set_policies(plain, {**drop, "action": "drop"}, {**drop, "priority": 101, "ports": [{"port": 7200}]})
    assert plain.answers("red-1", TARGET[family], 7200) == f"blue-2 {SENDER[family]}"
    plain.blocked(*[way for way in ways if way[2] != 7200])
    set_policies(plain)
    assert all(plain.reaches(ways).values())


def test_a_policy_that_names_no_address_holds_for_both_families(plain: World) -> None:
    set_policies(plain, {"priority": 1, "ports": [{"port": 7200}], "action": "drop"})
    plain.blocked(*[("red-1", TARGET[family], 7200) for family in (4, 6)])
    assert all(plain.reaches([("red-1", TARGET[family], 7100) for family in (4, 6)]).values())


def passed(wire: Wire, source: str, target: str) -> int:
    """Return how many packets a box was seen to get or send on."""
    return len(wire.seen(source, target))


@FAMILIES
def test_a_reroute_sends_packets_by_way_of_a_box_until_it_is_gone(plain: World, family: int) -> None:
    way = SENDER[family], TARGET[family]
    reroute = {"priority": 100, "from": [f"{SENDER[family]}/{32 if family == 4 else 128}"], "action": "reroute"}
    with capturing(plain.netns("box"), "eth0") as wire:
        assert plain.answers("red-1", TARGET[family], 7100)
        assert passed(wire, *way) == 0, "the direct way"
        set_policies(plain, {**reroute, "via": [BOX[family]]})
        wait_until(lambda: plain.ping("red-1", way[1]) and passed(wire, *way) > 0, what="the way by the box")
        assert plain.answers("red-1", TARGET[family], 7100) == f"blue-2 {SENDER[family]}"
        assert passed(wire, *way) >= 2, "what it gets it sends on"
        assert plain.answers("red-2", TARGET[family], 7100) == f"blue-2 {OTHER[family]}"
        assert passed(wire, OTHER[family], TARGET[family]) == 0, "others go directly"
        set_policies(plain)

        def directly() -> bool:
            before = passed(wire, *way)
            return plain.ping("red-1", TARGET[family]) and passed(wire, *way) == before

        wait_until(directly, what="the direct way again")
        before = passed(wire, *way)
        assert plain.answers("red-1", TARGET[family], 7100) == f"blue-2 {SENDER[family]}"
        assert passed(wire, *way) == before


@FAMILIES
def test_several_next_hops_share_the_load(plain: World, family: int) -> None:
    way = SENDER[family], TARGET[family]
    reroute = {"priority": 100, "to": [BLUE[family]], "ports": [{"port": 7100}], "action": "reroute"}
    with capturing(plain.netns("box"), "eth0") as one, capturing(plain.netns("box-2"), "eth0") as other:
        set_policies(plain, {**reroute, "via": [BOX[family], BOX_2[family]]})

        def both() -> bool:
            answered = plain.tries([("red-1", TARGET[family], 7100)])
            return all(answered.values()) and bool(one.seen(*way)) and bool(other.seen(*way))

        wait_until(both, what="packets at both boxes")


def test_a_policy_whose_next_hop_is_nowhere_costs_itself_only(plain: World) -> None:
    drop = {"priority": 100, "ports": [{"port": 7200}], "action": "drop"}
    lost = {"priority": 100, "action": "reroute", "via": ["10.99.0.7"]}
    plain.put("Router", "r1", {"networks": NETWORKS, "policies": [lost, drop]})
    said = plain.becomes("Router", "r1", "False", "NextHopFar")
    assert said.startswith("spec.policies[0].via[0]: 10.99.0.7 is in no network of the router")
    plain.blocked(("red-1", TARGET[4], 7200))
    assert plain.answers("red-1", TARGET[4], 7100)


def test_what_no_route_leads_to_is_not_rerouted_until_one_does(plain: World) -> None:
    reroute = {"priority": 100, "to": ["203.0.113.0/24"], "action": "reroute", "via": [BOX[4]]}
    with capturing(plain.netns("box"), "eth0") as wire:
        plain.put("Router", "r1", {"networks": NETWORKS, "policies": [reroute]})
        said = plain.becomes("Router", "r1", "False", "RouteMissing")
        assert said.startswith("spec.policies[0].to[0]: the router has no route to 203.0.113.0/24")
        plain.lab.exec("central", ["ovn-nbctl", "--timeout=120", "--wait=hv", "sync"])
        assert not plain.ping("red-1", "203.0.113.9")
        assert passed(wire, SENDER[4], "203.0.113.9") == 0
        set_policies(plain, reroute, routes=[{"to": "203.0.113.0/24", "via": BOX_2[4]}])
        wait_until(
            lambda: plain.ping("red-1", "203.0.113.9") or passed(wire, SENDER[4], "203.0.113.9") > 0,
            what="a packet at the box, where the policy sends it, and not the route",
        )


def test_trace_and_explain_tell_of_policies(plain: World) -> None:
    set_policies(
        plain,
        {"priority": 100, "ports": [{"port": 7200}], "action": "drop"},
        {"priority": 90, "to": [BLUE[4]], "action": "reroute", "via": [BOX[4]]},
        {"priority": 90, "to": [BLUE[6]], "action": "reroute", "via": [BOX[6], BOX_2[6]]},
    )
    assert "Logical_Router_Policy policies/r1:policy:100:" in look(plain, "explain", "router/r1")
    dropped = look(plain, "trace", "red-1", "blue-2", "--tcp", "7200", check=False)
    assert "router r1     policy with priority 100: dropped" in dropped
    assert dropped.endswith("dropped by Router policies/r1: policy with priority 100\n")
    rerouted = look(plain, "trace", "red-1", "blue-2", "--tcp", "7100", check=False)
    assert "policy with priority 90: rerouted to 10.65.0.7 on network blue" in rerouted
    spread = look(plain, "trace", "red-1", "blue-2", "--tcp", "7100", "-6", check=False)
    assert "policy with priority 90: rerouted to fd65::" in spread
    set_policies(plain, {"priority": 100, "ports": [{"port": 7200}]})
    assert "policy with priority 100: allowed" in look(plain, "trace", "red-1", "blue-2", "--tcp", "7200")


def look(world: World, *args: str, check: bool = True) -> str:
    """Return what a command that looks at OVN says."""
    return world.cli(*args, "--lab", str(world.lab.layout.folder), check=check).out
