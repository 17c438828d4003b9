"""Edits, snapshots and restores of a running Sandbox: links that do not change lose no packet."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, wiring
from netloom.plan.sandbox.objects import KINDS
from tests.lab.pinging import pinging
from tests.lab.test_sandbox import ADDRESSES, TOPOLOGY, Range, deployed, spaces
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

WITH_GUEST = deepcopy(TOPOLOGY)
WITH_GUEST["hosts"].append({"name": "guest"})
WITH_GUEST["net_mappings"].append({"host": "guest", "network": "homes", "ip": "10.10.30.7"})
MOVED = deepcopy(TOPOLOGY)
MOVED["router_mappings"][1]["router"] = "home-router"

AWAY_FROM_N1 = {"far": ("home", ADDRESSES["desk"]), "lone": ("home", "10.10.50.1")}
"""Ways between hosts on n3 and n2."""


@pytest.fixture(scope="module")
def school(lab: Lab) -> Iterator[Range]:
    """A Sandbox on three nodes."""
    with deployed(lab, "changes", "-e") as made:
        yield made


@contextmanager
def without_loss(made: Range, folder: Path, **ways: tuple[str, str]) -> Iterator[None]:
    """Ping meanwhile: no packet is lost."""
    named = {name: (made.netns(host), address) for name, (host, address) in ways.items()}
    with pinging(named, folder) as pings:
        since = pings.settle()
        yield
        pings.go_on()
        assert pings.lost(since) == {}


@pytest.fixture
def put(school: Range) -> Iterator[Callable[..., None]]:
    """Give what changes the Sandbox; it is as before in the end."""

    def change(topology: dict[str, Any], **spec: Any) -> None:
        school.put(topology, **spec)
        school.ready()

    yield change
    change(TOPOLOGY)


def test_a_host_that_comes_and_goes_costs_others_no_packet(
    school: Range, put: Callable[..., None], tmp_path: Path
) -> None:
    # An added or removed port may cost packets of a userspace switch of its own node: the guest is on n1.
    with without_loss(school, tmp_path, **AWAY_FROM_N1):
        put(WITH_GUEST)
        wait_until(lambda: school.ping("guest", ADDRESSES["desk"]), what="the new host to reach others")
        put(TOPOLOGY)
        wait_until(lambda: school.netns("guest") not in spaces(school.name), what="the host to go")


def test_a_link_that_is_shaped_costs_no_packet_on_other_links(
    school: Range, put: Callable[..., None], tmp_path: Path
) -> None:
    ways = {"far": ("home", ADDRESSES["server"]), "lone": ("home", "10.10.50.1")}
    with without_loss(school, tmp_path, **ways):
        for rate in ("20mbit", "5mbit"):
            put(TOPOLOGY, links=[{"host": "desk", "network": "office", "rate": rate}])
        put(TOPOLOGY)


def test_a_network_that_moves_to_another_router_costs_no_packet_elsewhere(
    school: Range, put: Callable[..., None], tmp_path: Path
) -> None:
    ways = {"near": ("desk", ADDRESSES["server"]), "far": ("home", ADDRESSES["desk"]), "lone": ("home", "10.10.50.1")}
    with without_loss(school, tmp_path, **ways):
        school.reaches("desk", ADDRESSES["vault"])
        put(MOVED)
        # It is behind home-router now.
        school.reaches("home", ADDRESSES["vault"])
        assert school.hops("home", ADDRESSES["vault"]) == ["10.10.30.254", ADDRESSES["vault"]]
        put(TOPOLOGY)
        school.reaches("desk", ADDRESSES["vault"])


def objects(made: Range) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the specs, and of attachments addresses and MAC, of all objects of a Sandbox."""
    kinds = ",".join(kind.plural for kind in KINDS)
    items = json.loads(made.world.cli("get", kinds, "-o", "json").out)["items"]
    found = {}
    for one in items:
        status = {key: one.get("status", {}).get(key) for key in ("ips", "mac")}
        spec = {key: value for key, value in one["spec"].items() if key != "mac"}
        found[one["kind"], one["metadata"]["name"]] = {"spec": spec, **status}
    return found


def macs(made: Range) -> dict[str, str]:
    return {
        f"{host}/{device}": json.loads(wiring.run(["ip", "-n", made.netns(host), "-j", "link", "show", device]))[0][
            "address"
        ]
        for host, device in (("server", "eth0"), ("desk", "eth0"), ("desk", "eth1"), ("home", "eth0"), ("home", "eth1"))
    }


def test_a_snapshot_brings_everything_back(lab: Lab, tmp_path: Path) -> None:
    with deployed(lab, "changes-back", "-s") as made:
        file = tmp_path / "snapshot.yaml"
        # The placement of hosts is found out: the spec names only that of two.
        made.put(TOPOLOGY, placement={"hosts": {"desk": "n2", "home": "n3"}})
        made.ready()
        made.world.cli("sandbox", "snapshot", made.name, "-o", str(file))
        before, addresses = objects(made), macs(made)
        with without_loss(made, tmp_path, **AWAY_FROM_N1):
            out = made.world.cli("sandbox", "restore", str(file)).out
            assert out.splitlines()[0].endswith(" configured"), "Nodes and MAC addresses are requested now"
            assert objects(made) == before
            made.put(WITH_GUEST, links=[{"host": "vault", "network": "store", "rate": "20mbit"}])
            made.ready()
            made.world.cli("sandbox", "fault", made.name, "link-down", "vault")
            made.world.cli("sandbox", "restore", str(file))
            assert objects(made) == before
        assert macs(made) == addresses
        made.world.cli("delete", f"sandbox/{made.name}", "--timeout", "60s")
        wait_until(lambda: spaces(made.name) == [], what="the namespaces to go", timeout=60)
        out = made.world.cli("sandbox", "restore", str(file)).out
        assert out.splitlines()[0].endswith(" created")
        assert objects(made) == before
        assert macs(made) == addresses
        made.reaches("home", ADDRESSES["desk"])
        made.reaches("desk", ADDRESSES["server"])


def test_a_copy_has_the_same_addresses_on_the_same_nodes(lab: Lab, school: Range, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.yaml"
    school.world.cli("sandbox", "snapshot", school.name, "-o", str(file))
    copy = Range(school.world, f"{school.name}-copy")
    try:
        school.world.cli("sandbox", "restore", str(file), "--name", copy.name)
        for host, peer in (("home", "desk"), ("desk", "server"), ("server", "home")):
            copy.reaches(host, ADDRESSES[peer])
        items = json.loads(school.world.cli("get", "networkattachments", "-o", "json").out)["items"]
        ports = {one["metadata"]["name"]: (one["spec"]["node"], one["status"]["ips"]) for one in items}
        mine = {name.removeprefix(f"{copy.name}-"): port for name, port in ports.items() if name.startswith(copy.name)}
        theirs = {
            name.removeprefix(f"{school.name}-"): port for name, port in ports.items() if not name.startswith(copy.name)
        }
        assert mine == theirs
    finally:
        school.world.delete(f"sandbox/{copy.name}")
