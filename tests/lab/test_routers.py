"""Routers: between networks, and to the outside and back, under the right addresses."""

import subprocess
from collections.abc import Iterator

import pytest

from netloom.lab import Lab
from tests.lab.worlds import Way, World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

HOW: tuple[int | str, ...] = ("ping", 7100, "udp/7100")
V4 = {"red-1": "10.61.0.11", "red-3": "10.61.0.13", "blue-2": "10.62.0.12", "blue-3": "10.62.0.13"}
V6 = {"red-1": "fd61::11", "red-3": "fd61::13", "blue-2": "fd62::12", "blue-3": "fd62::13"}
WORLD = {4: "198.51.100.1", 6: "2001:db8:ffff::1"}


@pytest.fixture(scope="module")
def routers(lab: Lab) -> Iterator[World]:
    """Two networks, a router, and the outside."""
    with world(lab, "routers") as made:
        for name in (*V4, "outside"):
            made.listen(name, 7100, "udp/7100")
        subprocess.run(["ip", "-n", made.netns("blue-3"), "address", "add", "10.63.0.1/32", "dev", "lo"], check=True)
        yield made


@pytest.mark.parametrize("addresses", [V4, V6], ids=["v4", "v6"])
def test_machines_of_two_networks_reach_each_other_by_the_router(routers: World, addresses: dict[str, str]) -> None:
    pairs = [(one, other) for one in addresses for other in addresses if one[:3] != other[:3]]
    seen = routers.reaches([(one, addresses[other], how) for one, other in pairs for how in HOW])
    for (one, target, how), answer in seen.items():
        other = next(name for name, address in addresses.items() if address == target)
        assert answer == ("pong" if how == "ping" else f"{other} {addresses[one]}"), (one, target, how)


def test_a_static_route_of_the_router_leads_to_whom_it_names(routers: World) -> None:
    seen = routers.reaches([(name, "10.63.0.1", 7100) for name in ("red-1", "red-3")])
    assert set(seen.values()) == {"blue-3 10.61.0.11", "blue-3 10.61.0.13"}


@pytest.mark.parametrize(("family", "source"), [(4, "192.0.2.31"), (6, "2001:db8::31")], ids=["v4", "v6"])
def test_the_world_sees_whoever_goes_out_as_the_gateway(routers: World, family: int, source: str) -> None:
    seen = routers.reaches([(name, WORLD[family], how) for name in ("red-1", "red-3") for how in HOW])
    assert {answer for (_, _, how), answer in seen.items() if how == "ping"} == {"pong"}
    assert {answer for (_, _, how), answer in seen.items() if how != "ping"} == {f"outside {source}"}


@pytest.mark.parametrize(("family", "floating"), [(4, "192.0.2.32"), (6, "2001:db8::32")], ids=["v4", "v6"])
def test_a_floating_address_is_one_machine_in_and_out(routers: World, family: int, floating: str) -> None:
    router = {4: "192.0.2.1", 6: "2001:db8::1"}[family]
    inward = routers.reaches([("outside", floating, how) for how in HOW])
    assert list(inward.values()) == ["pong", f"blue-2 {router}", f"blue-2 {router}"]
    outward = routers.reaches([("blue-2", WORLD[family], how) for how in HOW])
    assert list(outward.values()) == ["pong", f"outside {floating}", f"outside {floating}"]


def test_a_translation_inward_only_changes_nothing_outward(routers: World) -> None:
    assert routers.answers("outside", "192.0.2.33", 7100) == "red-1 192.0.2.1"
    assert routers.answers("red-1", WORLD[4], 7100) == "outside 192.0.2.31"


def test_who_has_no_default_route_does_not_get_out(routers: World) -> None:
    assert routers.answers("red-1", WORLD[4], "ping")
    assert not routers.ping("blue-3", WORLD[4])


def test_the_status_names_the_gateway_node(routers: World) -> None:
    wait_until(
        lambda: routers.get("router", "r1")["status"].get("gatewayNode") == "n3", what="the gateway node", interval=0.2
    )


def test_policies_see_a_packet_as_it_is_inside(routers: World) -> None:
    """What comes in is translated before they are asked, what goes out afterwards."""
    spec = routers.get("router", "r1")["spec"]
    floating: list[Way] = [("outside", "192.0.2.32", 7100), ("outside", "2001:db8::32", 7100)]
    out: list[Way] = [("red-1", WORLD[4], "ping"), ("red-1", WORLD[6], "ping")]
    stay: list[Way] = [("red-3", WORLD[4], "ping"), ("red-1", V4["blue-3"], "ping"), ("outside", "192.0.2.33", 7100)]
    assert all(routers.reaches([*floating, *out, *stay]).values())
    outside = ["192.0.2.32/32", "192.0.2.33/32"]
    dropped = [["10.62.0.12/32"], ["fd62::12/128"], outside]
    to = [{"priority": 100, "to": blocks, "ports": [{"port": 7100}], "action": "drop"} for blocks in dropped]
    froms = [(["10.61.0.11/32"], ["198.51.100.0/24"]), (["fd61::11/128"], ["2001:db8:ffff::/64"])]
    out_of = [{"priority": 100, "from": one, "to": other, "action": "drop"} for one, other in froms]
    try:
        routers.put("Router", "r1", {**spec, "policies": [*to, *out_of]})
        routers.blocked(*floating, *out)
        assert all(routers.reaches(stay).values())
    finally:
        routers.put("Router", "r1", spec)
    assert all(routers.reaches([*floating, *out]).values())


def test_a_network_leaves_the_router_and_comes_back(routers: World) -> None:
    ways = [("red-1", V4["blue-2"], "ping"), ("red-1", V6["blue-2"], "ping")]
    assert all(routers.reaches(ways).values())
    spec = routers.get("router", "r1")["spec"]
    without = {**spec, "networks": [{"network": "red"}], "routes": spec["routes"][:1], "nat": spec["nat"][2:]}
    try:
        routers.put("Router", "r1", without)
        routers.blocked(*ways)
        assert routers.answers("red-1", WORLD[4], "ping"), "the rest goes on"
    finally:
        routers.put("Router", "r1", spec)
    assert all(routers.reaches(ways).values())
