"""What happens between two data centres when processes are killed, and when a machine moves: packets flow.

The other one is FRR, which removes EVPN routes when the session ends, whatever was agreed on graceful restart: so the
speaker is killed between two sites of ours (test_two_sites.py).
"""

from pathlib import Path

import pytest

from netloom.lab import Lab
from tests.lab.labs import killed_comes_back
from tests.lab.pinging import Pings, pinging
from tests.lab.test_evpn_frr import HOST, VNI, A, B, joined, learned, macs, state
from tests.lab.worlds import World
from tests.support.datacentre import DataCentre
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


def ways(made: World, centre: DataCentre) -> dict[str, tuple[str, str]]:
    far = centre.hosts["far"].netns
    return {
        "out": (made.netns("b"), HOST[0]),
        "in": (far, B[0]),
        "in6": (far, A[1]),
    }


def survives(lab: Lab, name: str, made: World, centre: DataCentre, pings: Pings) -> None:
    """Kill a process; nothing is lost, and both sides know each other's machines again, and new ones."""
    since = pings.settle()
    killed_comes_back(lab, name)
    wait_until(lambda: state(made) == "Established", what="the session")
    wait_until(lambda: macs(made) <= centre.remote_macs(VNI), what="our machines at the data centre")
    assert centre.hosts["far"].mac in learned(made)
    late = centre.add_host("late", ["10.72.0.102/24"])
    wait_until(lambda: late.mac in learned(made), what="a new machine of the data centre")
    centre.remove_host("late")
    wait_until(lambda: late.mac not in learned(made), what="no new machine of the data centre")
    pings.go_on()
    assert pings.lost(since) == {}, f"after {name} was killed"


def test_nothing_is_lost_when_agent_or_controller_of_an_ovn_network_is_killed(lab: Lab, tmp_path: Path) -> None:
    with (
        joined(lab, "faults-ovn", "ovn", 65000) as (made, centre),
        pinging(ways(made, centre), tmp_path) as pings,
    ):
        for name in ("serve", "agent-n2"):
            survives(lab, name, made, centre, pings)


def test_nothing_is_lost_when_agent_or_controller_of_a_vxlan_network_is_killed(plain: Lab, tmp_path: Path) -> None:
    with (
        joined(plain, "faults", "vxlan", 65021) as (made, centre),
        pinging(ways(made, centre), tmp_path) as pings,
    ):
        for name in ("serve", "agent-n2"):
            survives(plain, name, made, centre, pings)
