"""A gateway's node is lost, with all that runs on it: the next one takes over within seconds, and gives it back."""

import itertools
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from netloom.lab import Lab
from tests.lab.worlds import World, world
from tests.support.process import Program, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

LIMIT = 5.0
INTERVAL = "0.1"
_ANSWER = re.compile(r"^\[([0-9.]+)\] \d+ bytes from", re.MULTILINE)
WAYS = {
    "out": ("client", "198.51.100.1"),
    "out-v6": ("client", "2001:db8:ffff::1"),
    "in": ("outside", "192.0.2.72"),
}
NEIGHBOUR = [("client", "10.73.0.13"), ("client", "fd73::13"), ("neighbour", "198.51.100.1")]


@pytest.fixture
def failover(lab: Lab) -> Iterator[World]:
    """A router with two gateways."""
    with world(lab, "failover") as made:
        yield made


def test_the_next_node_takes_over_when_the_gateways_is_killed(failover: World, tmp_path: Path) -> None:
    lab = failover.lab
    becomes_gateway(failover, "n1")
    ways = [(*way, "ping") for way in (*WAYS.values(), *NEIGHBOUR)]
    assert all(failover.reaches(ways).values())
    wait_until(lambda: watched(lab, "n2") and watched(lab, "n3"), what="the nodes to watch each other")
    with pinging(failover, tmp_path) as pings:
        lab.off("n1")
        try:
            after = {name: len(ping.times()) for name, ping in pings.items()}
            becomes_gateway(failover, "n2")
            wait_until(lambda: all(len(ping.times()) > after[n] + 10 for n, ping in pings.items()), what="the pings")
            gaps = {name: ping.gap() for name, ping in pings.items()}
        finally:
            lab.on("n1")
    assert max(gaps.values()) < LIMIT, gaps
    becomes_gateway(failover, "n1")
    assert [way for way, seen in failover.reaches(ways).items() if not seen] == []


class Ping:
    """A ping that goes on."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def times(self) -> list[float]:
        """Return when answers came."""
        return [float(found) for found in _ANSWER.findall(self._program.output())]

    def gap(self) -> float:
        """Return the longest time without an answer."""
        return max(after - before for before, after in itertools.pairwise(self.times()))


@contextmanager
def pinging(made: World, folder: Path) -> Iterator[dict[str, Ping]]:
    """Ping all ways until the end."""
    with ExitStack() as stack:
        pings = {}
        for name, (source, address) in WAYS.items():
            argv = ["ip", "netns", "exec", made.netns(source), "ping", "-n", "-D", "-i", INTERVAL, address]
            pings[name] = Ping(stack.enter_context(Program(argv, log=folder / f"ping-{name}")))
        wait_until(lambda: all(len(ping.times()) > 5 for ping in pings.values()), what="the pings to begin")
        yield pings


def watched(lab: Lab, node: str) -> bool:
    """Whether a node watches both others, in a quick step; they begin in a slow one."""
    shown = lab.exec(node, ["ovs-appctl", "bfd/show"]).stdout
    return shown.count("Remote Session State: up") == 2 and "Approx 1000ms" not in shown


def becomes_gateway(made: World, node: str) -> None:
    """Wait until the status names a gateway node."""
    wait_until(
        lambda: made.get("router", "r1")["status"].get("gatewayNode") == node,
        what=f"{node} as the gateway",
        interval=0.3,
    )
