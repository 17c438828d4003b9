"""One address for many: balanced over nodes, from wherever one asks, without those that do not answer."""

from collections.abc import Iterator
from functools import partial

import pytest

from netloom.lab import Lab
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

WEBS = {"web-1", "web-2", "web-3"}
VIPS: list[tuple[str, int | str]] = [("10.67.0.100", 80), ("10.67.0.100", "udp/53"), ("fd67::100", 80)]


@pytest.fixture(scope="module")
def balancers(lab: Lab) -> Iterator[World]:
    """Three web servers."""
    with world(lab, "balancers") as made:
        for name in sorted(WEBS):
            made.listen(name, 8080, "udp/5300")
        yield made


@pytest.mark.parametrize(("vip", "how"), VIPS, ids=["tcp", "udp", "tcp-v6"])
@pytest.mark.parametrize("who", ["near", "far"])
def test_a_vip_is_answered_by_endpoints_on_all_nodes(balancers: World, who: str, vip: str, how: int | str) -> None:
    wait_until(lambda: answering(balancers, who, vip, how) == WEBS, what="all three to answer")


def test_a_vip_is_reached_from_outside(balancers: World) -> None:
    wait_until(lambda: answering(balancers, "outside", "192.0.2.42", 80) == WEBS, what="all three to answer")


@pytest.mark.parametrize(("vip", "how"), VIPS, ids=["tcp", "udp", "tcp-v6"])
def test_an_endpoint_may_be_its_own_client(balancers: World, vip: str, how: int | str) -> None:
    wait_until(lambda: "web-1" in answering(balancers, "web-1", vip, how), what="web-1 to answer itself")


def test_who_has_affinity_stays_with_one(balancers: World) -> None:
    assert balancers.answers("near", "10.67.0.101", 80)
    assert len(answering(balancers, "near", "10.67.0.101", 80)) == 1


def test_a_vip_without_endpoints_refuses_at_once(balancers: World) -> None:
    wait_until(lambda: answering(balancers, "near", "10.67.0.100", 80) == WEBS, what="the others to work")
    assert balancers.refusal("near", "10.67.0.102", 80) == "ConnectionRefusedError"


@pytest.mark.parametrize("vip", ["10.67.0.100", "fd67::100"], ids=["v4", "v6"])
def test_a_dead_endpoint_gets_nothing_until_it_lives_again(balancers: World, vip: str) -> None:
    def left(who: str) -> bool:
        return answering(balancers, who, vip, 80) == WEBS - {"web-2"}

    wait_until(lambda: answering(balancers, "far", vip, 80) == WEBS, what="all three to answer")
    wait_until(lambda: down(balancers) == 0, what="nobody to be down", interval=0.3)
    balancers.listeners.remove(balancers.netns("web-2"), 8080)
    try:
        # Each look is a dozen connections: none lost means that nothing is sent there any more.
        for who in ("far", "near"):
            wait_until(partial(left, who), what="web-2 to be left out")
        wait_until(lambda: down(balancers) == 2, what="the status to say so", interval=0.3)
    finally:
        balancers.listen("web-2", 8080)
    wait_until(lambda: answering(balancers, "far", vip, 80) == WEBS, what="web-2 to be back")
    wait_until(lambda: down(balancers) == 0, what="the status to say so", interval=0.3)


def test_labels_decide_who_is_an_endpoint(balancers: World) -> None:
    spec = balancers.get("networkattachment", "web-3")["spec"]

    def left(who: str, vip: str) -> bool:
        return answering(balancers, who, vip, 80) == WEBS - {"web-3"}

    try:
        balancers.put("NetworkAttachment", "web-3", spec, labels={"app": "other"})
        for who, vip in (("near", "10.67.0.100"), ("far", "fd67::100"), ("outside", "192.0.2.42")):
            wait_until(partial(left, who, vip), what="two to be left")
    finally:
        balancers.put("NetworkAttachment", "web-3", spec, labels={"app": "web"})
    wait_until(lambda: answering(balancers, "near", "10.67.0.100", 80) == WEBS, what="all three to answer")


def answering(made: World, who: str, vip: str, how: int | str) -> set[str]:
    """Ask a dozen times and return who answered; "" for a time nobody did."""
    return {made.ask(who, vip, how).partition(" ")[0] for _ in range(12)}


def down(made: World) -> int:
    """Return how many endpoints the status says are down."""
    return int(made.get("loadbalancer", "shop")["status"].get("endpointsDown", 0))
