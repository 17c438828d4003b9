"""kill -9 of everything in a lab of three nodes, one after another, during churn and while machines ping each other.

Packets do not care for the control plane: while it dies, none of a ping that goes on is lost. They do care for
ovs-vswitchd, which carries them: then they are lost, and come back. Afterwards everything is as the API says, everybody
answers, and `netloom doctor` finds nothing.

Each kind of process once; with NETLOOM_TEST_KILLS=3 every process of every node, three times over, in random order.
"""

import logging
import os
from pathlib import Path
from random import Random

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.churning import Churn, churning
from tests.lab.pinging import Pings, pinging
from tests.lab.resting import at_rest, healthy
from tests.lab.worlds import World, world
from tests.support.process import wait_until

ROUNDS = int(os.environ.get("NETLOOM_TEST_KILLS", "0"))
pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 300 * ROUNDS),
]

CENTRAL = ("serve", "ovn-nb", "ovn-sb", "ovn-northd", "supervisor", "keeper")
OF_A_NODE = ("agent", "ovsdb-server", "ovn-controller", "ovs-vswitchd")
GATEWAYS = ("ovsdb-server-n2", "ovsdb-server-n1")
"""Where the way out is, and where it may go.

What BFD says of the other gateways is in the database of the node's switch, and not kept when its server dies: until
the switch has written it again, OVN takes the node to be cut off, or the others to be dead, and moves the way out for
an instant. No other way is concerned.
"""
WITHIN = {
    "within-n1": ("red-1", "10.82.0.11"),
    "within-n2": ("red-2", "10.82.0.12"),
    "outward-n2": ("red-2", "198.51.100.1"),
    "inward": ("outside", "192.0.2.82"),
}
"""Ways that stay on a node."""
BETWEEN = {
    "between": ("red-1", "10.81.0.12"),
    "between-v6": ("red-1", "fd81::12"),
    "routed": ("red-1", "10.82.0.12"),
    "outward": ("red-1", "198.51.100.1"),
    "to-a-switch": ("red-1", "10.81.0.13"),
}
"""Ways from node to node, by a tunnel."""

log = logging.getLogger(__name__)


def victims(lab: Lab, random: Random) -> tuple[list[str], list[str]]:
    """Return whom to kill, in order, while ports come and go on n3 only, and while they do so everywhere."""
    if not ROUNDS:
        # n2 is the gateway; n1 is where they ping.
        far = ["serve", "agent-n1", "ovn-controller-n2", "ovn-northd", "ovn-sb", "ovsdb-server-n2", "ovn-nb",
               "supervisor", "keeper", "ovn-controller-n1"]  # fmt: skip
        return far, ["agent-n2", "ovsdb-server-n1", "ovs-vswitchd-n2"]
    found: tuple[list[str], list[str]] = [], []
    for _ in range(ROUNDS):
        for some in found:
            everybody = [*CENTRAL, *(f"{program}-{node}" for program in OF_A_NODE for node in lab.nodes)]
            random.shuffle(everybody)
            some += everybody
    return found


def test_whatever_is_killed_packets_flow_and_everything_converges(lab: Lab, tmp_path: Path) -> None:
    with world(lab, "faults") as faults, churning(lab) as churn:
        churn.nodes = ["n3"]
        ways = {name: (faults.netns(source), address) for name, (source, address) in {**WITHIN, **BETWEEN}.items()}
        with pinging(ways, tmp_path) as pings:
            far, near = victims(lab, Random(ROUNDS))
            for name in far:
                _kill(lab, name, churn, pings, strict=[*WITHIN, *BETWEEN])
            # A switch in userspace may lose a packet to a tunnel whenever a port of its own comes or goes.
            churn.nodes = lab.nodes
            for name in near:
                _kill(lab, name, churn, pings, strict=list(WITHIN))
            churn.stop()
            assert not churn.problems, churn.problems
            since = pings.settle()
            faults.cli("wait", "networkattachments", "--all", "--timeout", "60s")
            at_rest(lab, churn)
            pings.go_on()
            assert pings.lost(since) == {}, "coming to rest costs no packet"
        log.info("%s", dict(churn.done))
        _vip_answers(faults)
        churn.clear()
        healthy(lab)


def _kill(lab: Lab, name: str, churn: Churn, pings: Pings, *, strict: list[str]) -> None:
    """Kill a process; when everything works again, see what it cost."""
    since = pings.go_on()
    before = lab.kill(name)
    wait_until(
        lambda: lab.pid(name) not in (0, before) and (name == "supervisor" or labs.is_ready(lab, name)),
        what=f"{name} to be started again",
    )
    churn.more(20)
    try:
        pings.go_on()
    except AssertionError as error:
        raise AssertionError(f"{name} was killed: {error}") from None
    lost = pings.lost(since)
    log.info("%s was killed: lost %s", name, {way: len(missing) for way, missing in lost.items()})
    if name.startswith("ovs-vswitchd"):
        pings.settle()
        return
    if name in GATEWAYS:
        strict = [way for way in strict if "ward" not in way]
    assert {way: missing for way, missing in lost.items() if way in strict} == {}, f"{name} was killed"
    if name in GATEWAYS:
        pings.settle()


def _vip_answers(faults: World) -> None:
    for name in ("blue-1", "blue-2"):
        faults.listen(name, 8080)
    assert faults.answers("red-1", "10.82.0.100", 80)
