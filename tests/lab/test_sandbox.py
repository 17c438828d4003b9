"""Sandboxes with hosts that run: reachability and hops, copies side by side, edits, and complete removal."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, probes, wiring
from tests.lab import labs
from tests.lab.capturing import capturing
from tests.lab.pinging import pinging
from tests.lab.test_mirrors import pings
from tests.lab.worlds import World, document, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

TOPOLOGY: dict[str, Any] = {
    "name": "range",
    "hosts": [{"name": "server", "block_internet": True}, {"name": "desk"}, {"name": "vault"}, {"name": "home"}],
    "routers": [{"name": "office-router"}, {"name": "home-router"}],
    "networks": [
        {"name": "office", "cidr": "10.10.20.0/24"},
        {"name": "store", "cidr": "10.10.40.0/24", "accessible_by_user": False},
        {"name": "homes", "cidr": "10.10.30.0/24"},
        {"name": "lone", "cidr": "10.10.50.0/29"},
    ],
    "net_mappings": [
        {"host": "server", "network": "office", "ip": "10.10.20.5"},
        {"host": "desk", "network": "office", "ip": "10.10.20.6"},
        {"host": "desk", "network": "lone", "ip": "10.10.50.1"},
        {"host": "vault", "network": "store", "ip": "10.10.40.5"},
        {"host": "home", "network": "homes", "ip": "10.10.30.5"},
        {"host": "home", "network": "lone", "ip": "10.10.50.2"},
    ],
    "router_mappings": [
        {"router": "office-router", "network": "office", "ip": "10.10.20.1"},
        {"router": "office-router", "network": "store", "ip": "10.10.40.1"},
        {"router": "home-router", "network": "homes", "ip": "10.10.30.254"},
    ],
}
ADDRESSES = {"server": "10.10.20.5", "desk": "10.10.20.6", "vault": "10.10.40.5", "home": "10.10.30.5"}
PLACEMENT = {"default": "n1", "hosts": {"desk": "n2", "home": "n3"}}


class Range:
    """A Sandbox in a lab."""

    def __init__(self, made: World, name: str) -> None:
        self.world, self.name = made, name

    def netns(self, host: str) -> str:
        return f"{self.name}-{host}"

    def ping(self, host: str, address: str) -> bool:
        return probes.ping(self.netns(host), address)

    def reaches(self, host: str, address: str) -> None:
        """Return when an address answers to a host."""
        wait_until(lambda: self.ping(host, address), what=f"{address} to answer to {host}", timeout=60)

    def asks(self, host: str, address: str) -> str:
        """Return who answers to a host at an address, when somebody does."""
        return wait_until(lambda: probes.reach(self.netns(host), address, 80), what="an answer")

    def put(self, topology: dict[str, Any], **spec: Any) -> None:
        self.world.put("Sandbox", self.name, {"run": True, "placement": PLACEMENT, "topology": topology, **spec})

    def ready(self) -> None:
        self.world.becomes("sandbox", self.name, "True", "Ready")

    def hops(self, host: str, address: str) -> list[str]:
        """Return the addresses of the hops on the way, the last one included."""
        found: list[str] = []
        while not found or found[-1] != address:
            assert len(found) < 8, found
            found.append(wait_until(lambda: self._hop(host, address, len(found) + 1), what=f"a hop after {found}"))
        return found

    def _hop(self, host: str, address: str, limit: int) -> str:
        argv = ["ip", "netns", "exec", self.netns(host), "ping", "-n", "-c1", "-W2", "-t", str(limit), address]
        text = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10).stdout
        answer = re.search(r"from ([0-9.]+)", text, re.IGNORECASE)
        return answer[1] if answer else ""


@contextmanager
def deployed(lab: Lab, name: str, suffix: str = "") -> Iterator[Range]:
    """Give a Sandbox that is Ready; its name is of this lab only, for so are its network namespaces."""
    sandbox = f"r{lab.layout.id}{suffix}"
    spec = {"run": True, "placement": PLACEMENT, "topology": TOPOLOGY}
    with world(lab, name, json.dumps(document("Sandbox", sandbox, spec))) as made:
        yield Range(made, sandbox)


@pytest.fixture(scope="module")
def school(lab: Lab) -> Iterator[Range]:
    """A Sandbox on three nodes."""
    with deployed(lab, "range") as made:
        yield made


def spaces(name: str) -> list[str]:
    """Return the network namespaces of a Sandbox's hosts."""
    return sorted(one.name for one in Path("/run/netns").iterdir() if one.name.startswith(f"{name}-"))


def traces(lab: Lab, name: str) -> list[str]:
    """Return what the northbound and the switches still have of a Sandbox."""
    found = [lab.exec("central", ["ovn-nbctl", "show"]).stdout]
    found += [
        lab.exec(node, ["ovs-vsctl", "list", table]).stdout for node in lab.nodes for table in ("Interface", "Bridge")
    ]
    # ovn-controller keeps the zones of conntrack that it had given.
    kept = re.sub(r'"ct-zone-[^"]*"', "", "".join(found))
    return [line for line in kept.splitlines() if name in line]


def test_hosts_reach_each_other_as_declared(school: Range) -> None:
    pairs = [(host, peer) for host in ADDRESSES for peer in ADDRESSES if host != peer]
    for host, peer in pairs:
        if {host, peer} != {"home", "vault"}:
            school.reaches(host, ADDRESSES[peer])
    # Nothing enters `store` through man: neither what home sends, nor answers to vault.
    assert not school.ping("home", ADDRESSES["vault"])
    assert not school.ping("vault", ADDRESSES["home"])
    school.reaches("desk", "10.10.50.2")


def test_each_router_on_the_way_is_a_hop(school: Range) -> None:
    assert school.hops("home", ADDRESSES["desk"]) == [
        "10.10.30.254",
        "100.100.100.1",
        "100.100.100.2",
        ADDRESSES["desk"],
    ]
    assert school.hops("desk", ADDRESSES["vault"]) == ["10.10.20.1", ADDRESSES["vault"]]
    assert school.hops("desk", ADDRESSES["server"]) == [ADDRESSES["server"]]


def test_a_host_has_its_interfaces_in_order_and_its_loopback_up(school: Range) -> None:
    def shown(*argv: str) -> str:
        return wiring.run(["ip", "-n", school.netns("home"), *argv])

    assert "10.10.30.5/24" in shown("address", "show", "eth0")
    assert "10.10.50.2/29" in shown("address", "show", "eth1")
    assert "default via 10.10.30.254 dev eth0" in shown("route")
    assert "LOOPBACK,UP" in shown("link", "show", "lo")


def test_a_host_gets_its_address_and_its_router_by_dhcp(school: Range) -> None:
    assert probes.lease(school.netns("home"), "eth0") == "10.10.30.5/24 10.10.30.254"
    assert probes.lease(school.netns("desk"), "eth1").startswith("10.10.50.1/29")


def test_a_host_without_internet_sends_to_the_blocks_of_the_sandbox_only(school: Range) -> None:
    network = f"{school.name}-office"
    made = school.world
    made.put("Subnet", "beyond", {"network": network, "cidr": "198.51.100.0/24"})
    port = {"type": "veth", "netns": "/run/netns/beyond", "name": "eth0"}
    made.put("NetworkAttachment", "beyond", {"node": "n1", "network": network, "ips": ["198.51.100.9"], "port": port})
    try:
        made.becomes("networkattachment", "beyond", "True", "Ready")
        wiring.run(["ip", "-n", made.netns("beyond"), "route", "add", "10.10.20.0/24", "dev", "eth0"])
        for host in ("server", "desk"):
            wiring.run(["ip", "-n", school.netns(host), "route", "add", "198.51.100.0/24", "dev", "eth0"])
        wait_until(lambda: school.ping("desk", "198.51.100.9"), what="desk to reach the outside")
        assert not school.ping("server", "198.51.100.9")
        assert school.ping("server", ADDRESSES["desk"])
    finally:
        made.delete("networkattachment/beyond")
        made.delete("subnet/beyond")
        for host in ("server", "desk"):
            wiring.run(["ip", "-n", school.netns(host), "route", "del", "198.51.100.0/24"])


def test_an_edit_loses_no_packet_on_links_that_did_not_change(school: Range, tmp_path: Path) -> None:
    more = deepcopy(TOPOLOGY)
    more["hosts"].append({"name": "guest"})
    more["net_mappings"].append({"host": "guest", "network": "homes", "ip": "10.10.30.7"})
    ways = {"near": (school.netns("desk"), ADDRESSES["server"]), "far": (school.netns("home"), ADDRESSES["desk"])}
    try:
        with pinging(ways, tmp_path) as pings:
            pings.settle()
            # An added port may cost packets of a userspace switch of its own node; these nodes get none.
            marks = pings.mark()
            school.put(more, placement={**PLACEMENT, "default": "n1"})
            wait_until(lambda: school.netns("guest") in spaces(school.name), what="the new host")
            school.ready()
            wait_until(lambda: school.ping("guest", ADDRESSES["desk"]), what="the new host to reach others")
            pings.go_on()
            assert pings.lost(marks) == {}
    finally:
        school.put(TOPOLOGY)
        wait_until(lambda: school.netns("guest") not in spaces(school.name), what="the host to go")
        school.ready()


def test_copies_with_the_same_addresses_do_not_meet(lab: Lab, school: Range) -> None:
    with deployed(lab, "range-copy", "-b") as copy:
        listeners = probes.Listeners()
        try:
            for one in (school, copy):
                listeners.add(one.netns("home"), 80, name=one.name)
            for one in (school, copy):
                one.reaches("server", ADDRESSES["home"])
                assert one.asks("server", ADDRESSES["home"]).startswith(one.name + " ")
            listeners.remove(copy.netns("home"), 80)
            assert not probes.reach(copy.netns("server"), ADDRESSES["home"], 80)
            assert probes.reach(school.netns("server"), ADDRESSES["home"], 80)
        finally:
            listeners.close()
    assert spaces(copy.name) == []
    assert school.ping("server", ADDRESSES["home"])


def test_a_deleted_sandbox_leaves_nothing_even_if_agents_are_killed(lab: Lab) -> None:
    with deployed(lab, "range-end", "-end") as ending:
        assert len(spaces(ending.name)) == 4
        for agent in ("agent-n1", "agent-n2"):
            lab.kill(agent)
        ending.world.delete(f"sandbox/{ending.name}")
        kinds = "networks,subnets,routers,networkattachments,securityprofiles,shapings,mirrors"
        assert "items: []" in ending.world.cli("get", kinds, "-o", "yaml").out
        wait_until(lambda: spaces(ending.name) == [], what="the namespaces to go", timeout=60)
        wait_until(lambda: not traces(lab, ending.name), what="the rows to go", timeout=60)


def test_namespaces_are_found_again_after_a_reboot_of_their_node(lab: Lab) -> None:
    with deployed(lab, "range-boot", "-boot") as made:
        lab.kill("agent-n1")
        # What a reboot does to it, besides the rest: the namespace is gone.
        wiring.run(["ip", "netns", "delete", made.netns("vault")])
        wait_until(lambda: made.netns("vault") in spaces(made.name), what="the namespace to be created again")
        wait_until(lambda: made.ping("desk", ADDRESSES["vault"]), what="its host to answer")
    assert spaces(made.name) == []


def test_a_lab_that_ends_takes_its_hosts_along() -> None:
    with labs.running(nodes=1) as lab:
        made = World(lab, "ending")
        sandbox = f"r{lab.layout.id}"
        made.put("Sandbox", sandbox, {"run": True, "topology": TOPOLOGY})
        made.becomes("sandbox", sandbox, "True", "Ready")
        assert len(spaces(sandbox)) == 4
        lab.down()
        assert spaces(sandbox) == []


def test_links_have_their_quality_and_traffic_is_copied(lab: Lab) -> None:
    forwarding = {
        "sources": [
            {"host": "server", "network": "office"},
            {"host": "home", "network": "homes"},
            {"host": "office-router", "network": "office"},
        ],
        "destination": {"host": "vault", "network": "tap"},
        "direction": "both",
    }
    watched = {
        **TOPOLOGY,
        "networks": [*TOPOLOGY["networks"], {"name": "tap", "cidr": "10.10.60.0/29"}],
        "net_mappings": [*TOPOLOGY["net_mappings"], {"host": "vault", "network": "tap", "ip": "10.10.60.2"}],
        "network_forwarding": forwarding,
    }
    with deployed(lab, "range-copied", "-c") as made:
        made.put(watched, links=[{"host": "desk", "network": "office", "rate": "2mbit"}])
        made.world.becomes("sandbox", made.name, "True", "Ready")
        mirrors = json.loads(made.world.cli("get", "mirrors", "-o", "json").out)["items"]
        # `home`, and `desk` in the network of the router, are on other nodes.
        assert sorted("tunnels" in one["status"] for one in mirrors) == [False, True, True]
        with capturing(made.netns("vault"), "eth1") as wire:
            way = (ADDRESSES["desk"], ADDRESSES["server"])
            wait_until(
                lambda: made.ping("desk", way[1]) and pings(wire, *way),
                what="a copy",
            )
            way = (ADDRESSES["home"], ADDRESSES["server"])
            wait_until(
                lambda: made.ping("home", way[1]) and len(pings(wire, *way)) > 1,
                what="copies from both nodes",
            )
            for way in ((ADDRESSES["desk"], ADDRESSES["vault"]), (ADDRESSES["vault"], ADDRESSES["desk"])):
                wait_until(
                    lambda: made.ping("desk", ADDRESSES["vault"]) and pings(wire, *way),  # noqa: B023
                    what="copies of what passes the router, both ways",
                )
        with probes.iperf_server(made.netns("server")):
            assert 0.2 < probes.megabits(made.netns("desk"), ADDRESSES["server"]) < 4
