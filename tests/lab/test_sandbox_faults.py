"""Deliberate faults of a Sandbox under running pings: what must stop stops, and nothing else loses a packet."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netloom.lab import Lab, wiring
from tests.lab import labs
from tests.lab.labs import NETLOOM
from tests.lab.pinging import Pings, pinging
from tests.lab.test_sandbox import ADDRESSES, TOPOLOGY, Range, deployed
from tests.run.serving import environment
from tests.support.process import Program, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

LONE = "10.10.50.1"
"""The address of `desk` in the network `lone`, which no router joins."""
Way = tuple[str, str]


@pytest.fixture(scope="module")
def school(lab: Lab) -> Iterator[Range]:
    """A Sandbox on three nodes."""
    with deployed(lab, "faults", "-f") as made:
        yield made


def fault(made: Range, *args: str) -> str:
    return made.world.cli("sandbox", "fault", made.name, *args).out


def conditions(made: Range) -> dict[str, tuple[str, str]]:
    found = made.world.get("sandbox", made.name)["status"]["conditions"]
    return {one["type"]: (one["status"], one.get("message", "")) for one in found}


@contextmanager
def watching(
    made: Range, folder: Path, *, cut: dict[str, Way], kept: dict[str, Way]
) -> Iterator[tuple[Pings, Callable[[], None]]]:
    """Ping on some ways that a fault cuts and on others that must lose nothing, from then until the end.

    Give the first ones, and what returns when none of them is answered any more.
    """

    def named(ways: dict[str, Way]) -> dict[str, Way]:
        return {name: (made.netns(host), address) for name, (host, address) in ways.items()}

    with pinging(named(kept), folder) as others, pinging(named(cut), folder) as pings:
        pings.settle()
        since = others.settle()

        def stopped() -> None:
            def silent() -> bool:
                before = pings.mark()
                others.go_on()
                return pings.mark() == before

            wait_until(silent, what=f"{', '.join(cut)} to stop")

        yield pings, stopped
        others.go_on()
        assert others.lost(since) == {}


def test_a_link_that_is_down_has_no_carrier_and_stays_down_through_restarts(
    lab: Lab, school: Range, tmp_path: Path
) -> None:
    kept = {"routed": ("home", ADDRESSES["desk"]), "near": ("server", ADDRESSES["desk"])}
    with watching(school, tmp_path, cut={"lone": ("home", LONE)}, kept=kept) as (pings, stopped):
        out = fault(school, "link-down", "home", "lone")
        assert out == "link-down-home-lone created: the link of home to lone is down\n"
        stopped()
        assert "NO-CARRIER" in wiring.run(["ip", "-n", school.netns("home"), "link", "show", "eth1"])
        assert "LOWER_UP" in wiring.run(["ip", "-n", school.netns("home"), "link", "show", "eth0"])
        text = "link-down-home-lone: the link of home to lone is down"
        assert conditions(school)["Faulty"] == ("True", text)
        assert conditions(school)["Ready"] == ("True", f"with deliberate faults: {text}")
        lab.kill("agent-n3")
        labs.killed_comes_back(lab, "serve")
        school.ready()
        stopped()
        # An apply of the file, which has no faults, keeps them.
        school.put(TOPOLOGY)
        assert "link-down-home-lone" in fault(school, "list")
        assert fault(school, "restore", "link-down-home-lone") == "link-down-home-lone restored\n"
        pings.settle()
        assert "LOWER_UP" in wiring.run(["ip", "-n", school.netns("home"), "link", "show", "eth1"])
        assert conditions(school)["Faulty"] == ("False", "")
    assert fault(school, "list") == "No faults found.\n"


def test_a_router_without_a_link_cuts_its_network_off(school: Range, tmp_path: Path) -> None:
    kept = {"lone": ("home", LONE), "near": ("server", ADDRESSES["desk"]), "store": ("desk", ADDRESSES["vault"])}
    cut = {"out": ("home", ADDRESSES["desk"]), "in": ("server", ADDRESSES["home"])}
    for at, link in enumerate((("home-router", "homes"), ("home-router", "wan"))):
        folder = tmp_path / str(at)
        folder.mkdir()
        with watching(school, folder, cut=cut, kept=kept) as (pings, stopped):
            fault(school, "link-down", *link)
            stopped()
            assert fault(school, "restore") == f"link-down-{'-'.join(link)} restored\n"
            pings.settle()


def test_a_partition_separates_its_sides_and_nobody_else(school: Range, tmp_path: Path) -> None:
    kept = {"out": ("home", ADDRESSES["desk"]), "near": ("desk", ADDRESSES["server"]), "lone": ("home", LONE)}
    cut = {"to": ("home", ADDRESSES["server"]), "back": ("server", ADDRESSES["home"])}
    with watching(school, tmp_path, cut=cut, kept=kept) as (pings, stopped):
        out = fault(school, "partition", "home", "--from", "server")
        assert out.startswith("partition-home-from-server created: home and server cannot reach each other")
        stopped()
        fault(school, "restore")
        pings.settle()


def test_neighbours_in_a_network_are_separated_too(school: Range, tmp_path: Path) -> None:
    kept = {"lone": ("home", LONE), "store": ("server", ADDRESSES["vault"]), "out": ("home", ADDRESSES["server"])}
    cut = {"near": ("desk", ADDRESSES["server"]), "back": ("server", ADDRESSES["desk"])}
    with watching(school, tmp_path, cut=cut, kept=kept) as (pings, stopped):
        fault(school, "partition", "server", "--from", "desk", "--name", "quarrel")
        stopped()
        assert fault(school, "restore") == "quarrel restored\n"
        pings.settle()


@contextmanager
def flapping(made: Range, folder: Path) -> Iterator[Program]:
    argv = [*NETLOOM, "-n", made.world.name, "sandbox", "fault", made.name, "flap", "home", "lone", "--every", "1s"]
    env = environment(KUBECONFIG=str(made.world.lab.kubeconfig))
    with Program(argv, log=folder / "flap.log", env=env) as program:
        yield program


def test_a_flapping_link_goes_down_and_up_and_is_up_in_the_end(school: Range, tmp_path: Path) -> None:
    kept = {"routed": ("home", ADDRESSES["desk"])}
    with watching(school, tmp_path, cut={"lone": ("home", LONE)}, kept=kept) as (pings, _):
        since = pings.mark()
        with flapping(school, tmp_path) as program:
            wait_until(lambda: program.output().count("is up") >= 2, what="the link to be up twice", timeout=60)
            wait_until(lambda: pings.lost(since), what="a lost packet", timeout=60)
            wait_until(lambda: program.output().rstrip().endswith("is down"), what="the link to be down", interval=0.01)
            assert program.stop() == 0
        pings.settle()
        assert fault(school, "list") == "No faults found.\n"


def test_a_flap_that_is_killed_is_named_and_ended_by_restore(school: Range, tmp_path: Path) -> None:
    kept = {"routed": ("home", ADDRESSES["desk"])}
    with watching(school, tmp_path, cut={"lone": ("home", LONE)}, kept=kept) as (pings, stopped):
        with flapping(school, tmp_path) as program:
            wait_until(lambda: program.output().rstrip().endswith("is down"), what="the link to be down", interval=0.01)
            program.kill()
        stopped()
        assert conditions(school)["Faulty"][1] == "flap-home-lone: the link of home to lone is down"
        assert json.loads(fault(school, "list", "-o", "json")) == [
            {"name": "flap-home-lone", "linkDown": {"host": "home", "network": "lone"}}
        ]
        assert fault(school, "restore") == "flap-home-lone restored\n"
        pings.settle()
