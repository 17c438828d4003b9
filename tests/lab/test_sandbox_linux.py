"""Sandboxes with the backend `linux` on nodes without OVN: packets, edits, faults, kills, and complete removal."""

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.lab import Lab, probes, wiring
from netloom.lab.daemons.processes import of_lab
from netloom.model.registry import HOST_DOCUMENT
from tests.e2e.node_fields import MERGE, connected
from tests.lab import labs
from tests.lab.pinging import pinging
from tests.lab.test_sandbox import ADDRESSES, PLACEMENT, TOPOLOGY, Range, spaces
from tests.lab.worlds import World, document, world
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.root]

SPEC: dict[str, Any] = {
    "run": True,
    "backend": "linux",
    "placement": PLACEMENT,
    "topology": TOPOLOGY,
    "links": [{"host": "desk", "network": "office", "rate": "10mbit"}],
}
ROUNDS = int(os.environ.get("NETLOOM_TEST_KILLS", "1"))
UNREACHABLE = {"home", "vault"}


class LinuxRange(Range):
    """A Sandbox with the backend `linux` in a lab."""

    def put(self, topology: dict[str, Any], **spec: Any) -> None:
        self.world.put("Sandbox", self.name, {**SPEC, "topology": topology, **spec})

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return the HostDocuments, by Node."""
        found = json.loads(self.world.cli("get", "hostdocuments", "-o", "json").out)["items"]
        return {one["spec"]["node"]: one for one in found if one["metadata"]["name"].startswith(f"{self.name}-")}

    def reaches_as_declared(self) -> None:
        for host, peer in itertools.permutations(ADDRESSES, 2):
            if {host, peer} != UNREACHABLE:
                self.reaches(host, ADDRESSES[peer])
        assert not self.ping("home", ADDRESSES["vault"])

    def gone(self) -> None:
        """Return when nothing of it is left: objects, namespaces, DHCP servers, state."""
        lab = self.world.lab
        wait_until(lambda: not self.documents(), what="the HostDocuments to go")
        wait_until(lambda: spaces(self.name) == [], what="the namespaces to go")
        left = [path for node in lab.nodes for path in lab.layout.sandbox_state(node).glob(f"*.{self.name}-*")]
        assert left == []
        assert self.servers() == []

    def servers(self) -> list[int]:
        """Return the DHCP servers."""
        every = (one.pid for one in of_lab(self.world.lab.layout.id, ()))
        return [pid for pid in every if f".{self.name}-".encode() in _arguments(pid)]


def _arguments(pid: int) -> bytes:
    try:
        found = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
    return found if found.startswith(b"dnsmasq") else b""


@contextmanager
def deployed(lab: Lab, name: str) -> Iterator[LinuxRange]:
    sandbox = f"r{lab.layout.id}{name[-1]}"
    with world(lab, name, json.dumps(document("Sandbox", sandbox, SPEC))) as made:
        yield LinuxRange(made, sandbox)


@pytest.fixture(scope="module")
def school(plain: Lab) -> Iterator[LinuxRange]:
    """A Sandbox on three nodes without OVN."""
    with deployed(plain, "linux-s") as made:
        yield made


def test_hosts_reach_each_other_as_declared_over_the_routers_between_them(school: LinuxRange) -> None:
    school.reaches_as_declared()
    school.reaches("desk", "10.10.50.2")
    assert school.hops("home", ADDRESSES["desk"]) == [
        "10.10.30.254",
        "100.100.100.1",
        "100.100.100.2",
        ADDRESSES["desk"],
    ]
    status = school.world.get("sandbox", school.name)["status"]
    assert (status["networks"], status["routers"], status["hosts"]) == (5, 3, 4)


def test_commands_find_its_hosts(school: LinuxRange) -> None:
    done = json.loads(school.world.cli("sandbox", "measure", "--name", school.name, "desk", "-o", "json").out)
    assert [one["ok"] for one in done if one["quantity"].startswith("rate")] == [True, True]
    topology = json.dumps({**document("Sandbox", school.name, SPEC)})
    report = school.world.cli("sandbox", "verify", "-", "--rounds", "10", "-o", "json", stdin=topology)
    found = json.loads(report.out)
    assert found["verified"]
    assert (found["probes"]["elsewhere"], found["probes"]["differences"]) == ([], [])
    command = ("ip", "address", "show", "eth1")
    shown = netloom("sandbox", "exec", "-n", "linux-s", "home", *command, kubeconfig=school.world.lab.kubeconfig).out
    assert "10.10.50.2/29" in shown


def test_a_plan_shows_the_nodes_that_change(school: LinuxRange) -> None:
    more = deepcopy(TOPOLOGY)
    more["hosts"].append({"name": "guest"})
    more["net_mappings"].append({"host": "guest", "network": "lone", "ip": "10.10.50.3"})
    edited = json.dumps(document("Sandbox", school.name, {**SPEC, "topology": more}))
    found = json.loads(school.world.cli("sandbox", "plan", "-", "-o", "json", stdin=edited).out)
    assert [(one["action"], one["part"]) for one in found["changes"]] == [
        ("change", "node n1"),
        ("change", "node n2"),
        ("change", "node n3"),
    ]
    assert found["problems"] == []


def test_dhcp_serves_the_addresses_of_hosts(school: LinuxRange) -> None:
    assert probes.lease(school.netns("home"), "eth0") == "10.10.30.5/24 10.10.30.254"


def test_what_others_break_is_repaired_and_what_they_add_stays(school: LinuxRange) -> None:
    space = school.netns("vault")
    wiring.run(["ip", "-n", space, "address", "add", "192.0.2.77/32", "dev", "lo"])
    wiring.run(["ip", "-n", space, "address", "flush", "dev", "eth0"])
    # An agent that starts compares everything.
    labs.killed_comes_back(school.world.lab, "agent-n1")
    school.reaches("desk", ADDRESSES["vault"])
    assert "192.0.2.77" in wiring.run(["ip", "-n", space, "address", "show", "lo"])


def test_an_edit_loses_no_packet_on_links_that_did_not_change(school: LinuxRange, tmp_path: Path) -> None:
    more = deepcopy(TOPOLOGY)
    more["hosts"].append({"name": "guest"})
    more["net_mappings"].append({"host": "guest", "network": "homes", "ip": "10.10.30.7"})
    ways = {"near": (school.netns("desk"), ADDRESSES["server"]), "far": (school.netns("home"), ADDRESSES["desk"])}
    try:
        with pinging(ways, tmp_path) as pings:
            pings.settle()
            marks = pings.mark()
            school.put(more)
            wait_until(lambda: school.netns("guest") in spaces(school.name), what="the new host")
            school.ready()
            school.reaches("guest", ADDRESSES["desk"])
            pings.go_on()
            assert pings.lost(marks) == {}
    finally:
        school.put(TOPOLOGY)
        wait_until(lambda: school.netns("guest") not in spaces(school.name), what="the host to go")
        school.ready()


def test_a_link_that_is_down_by_a_fault_carries_nothing_until_it_is_restored(school: LinuxRange) -> None:
    school.world.cli("sandbox", "fault", school.name, "link-down", "home", "homes")
    wait_until(lambda: not school.ping("home", ADDRESSES["desk"]), what="the link to go down")
    assert school.ping("home", "10.10.50.1")
    school.world.becomes("sandbox", school.name, "True", "Ready")
    school.world.becomes("sandbox", school.name, "True", "Faulty", condition="Faulty")
    school.world.cli("sandbox", "fault", school.name, "restore")
    school.reaches("home", ADDRESSES["desk"])


def test_a_node_refuses_namespaces_that_it_does_not_grant_and_tells_which(plain: Lab) -> None:
    """Everything in the folder of namespaces is granted in a lab, so the name leads elsewhere."""
    made = World(plain, "linux-refused")
    try:
        spec = {"node": "n1", "document": {"version": 1, "namespaces": [{"name": "../elsewhere"}]}}
        made.put("HostDocument", "odd", spec)
        assert "../elsewhere" in made.becomes("hostdocument", "odd", "False", "NotGranted")
    finally:
        made.delete("hostdocument/odd")


@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_whatever_is_killed_a_sandbox_is_deployed_whole_and_removed_without_a_trace(plain: Lab) -> None:
    random = Random(ROUNDS)
    for number in range(ROUNDS):
        _deploy_and_remove(LinuxRange(World(plain, "linux-killed"), f"r{plain.layout.id}k{number}"), random)


def _deploy_and_remove(made: LinuxRange, random: Random) -> None:
    lab = made.world.lab
    # The controller places the hosts, on all nodes.
    made.put(TOPOLOGY, placement={})
    _kill(lab, random)
    made.ready()
    made.reaches_as_declared()
    made.world.cli("delete", f"sandbox/{made.name}", "--no-wait")
    _kill(lab, random)
    wait_until(made.world.is_answered, what="the API server")
    wait_until(lambda: made.name not in made.world.cli("get", "sandboxes").out, what="the Sandbox to go")
    made.gone()


def _kill(lab: Lab, random: Random) -> None:
    """Kill the controller and two agents, some time from now, and return when they run again."""
    for name in ("agent-n1", "serve", "agent-n2"):
        time.sleep(random.uniform(0, 0.4))
        labs.killed_comes_back(lab, name)


def test_what_an_agent_had_of_a_sandbox_that_went_meanwhile_is_removed_when_it_is_back(plain: Lab) -> None:
    with deployed(plain, "linux-m") as made:
        wait_until(lambda: made.documents()["n3"]["status"].get("appliedGeneration"), what="the part of n3")
        # By hand, as when a Node was deleted for good: nothing waits for the agent.
        path = HOST_DOCUMENT.path("linux-m", made.documents()["n3"]["metadata"]["name"])
        with connected(plain.kubeconfig) as ask:
            assert ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)[0] == 200
        made.world.cli("delete", f"sandbox/{made.name}", "--no-wait")
        made.gone()


def test_a_lab_that_ends_takes_its_hosts_along() -> None:
    with labs.running(nodes=1, ovn=0) as lab:
        made = LinuxRange(World(lab, "ending"), f"r{lab.layout.id}")
        made.put(TOPOLOGY, placement={})
        made.ready()
        assert len(spaces(made.name)) > 4
        lab.down()
        assert spaces(made.name) == []
        assert made.servers() == []
