"""The links of a Sandbox: rates, delay and loss by real packets, kills, and a port as it was after a Shaping."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, probes, wiring
from tests.lab import labs
from tests.lab.worlds import World, document, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

TRIES = 5
TOPOLOGY: dict[str, Any] = {
    "name": "links",
    "hosts": [{"name": name} for name in ("slow", "late", "free", "far")],
    "routers": [{"name": "hall"}],
    "networks": [{"name": "left", "cidr": "10.11.0.0/24"}, {"name": "right", "cidr": "10.12.0.0/24"}],
    "net_mappings": [
        {"host": "slow", "network": "left", "ip": "10.11.0.5"},
        {"host": "late", "network": "left", "ip": "10.11.0.6"},
        {"host": "free", "network": "left", "ip": "10.11.0.7"},
        {"host": "far", "network": "right", "ip": "10.12.0.5"},
    ],
    "router_mappings": [
        {"router": "hall", "network": "left", "ip": "10.11.0.1"},
        {"router": "hall", "network": "right", "ip": "10.12.0.1"},
    ],
}
LATE: dict[str, Any] = {"host": "late", "network": "left", "delay": "50ms", "loss": "10%", "impairment": "userspace"}
LINKS = [
    {"host": "slow", "network": "left", "rate": "10mbit"},
    {"host": "hall", "network": "right", "rate": "4mbit"},
    LATE,
]
SPEC: dict[str, Any] = {
    "run": True,
    "placement": {"default": "n1", "hosts": {"free": "n2", "far": "n2"}},
    "topology": TOPOLOGY,
    "links": LINKS,
}


class Links:
    """A Sandbox with shaped links."""

    def __init__(self, made: World, name: str) -> None:
        self.world, self.name = made, name

    def netns(self, host: str) -> str:
        return f"{self.name}-{host}"

    def put(self, links: list[dict[str, Any]]) -> None:
        self.world.put("Sandbox", self.name, {**SPEC, "links": links})

    def ready(self) -> None:
        self.world.becomes("sandbox", self.name, "True", "Ready")

    def measured(self, *link: str) -> list[dict[str, Any]]:
        """Return the findings of a link; measured again when the machine may have been too busy."""
        found: list[dict[str, Any]] = []
        for _ in range(TRIES):
            answer = self.world.cli("sandbox", "measure", "--name", self.name, *link, "-o", "json", check=False)
            found = json.loads(answer.out)
            assert answer.rc == (0 if all(one["ok"] for one in found) else 1), answer.err
            if not answer.rc:
                break
        return found

    def loses(self, host: str, address: str) -> bool:
        return not probes.ping(self.netns(host), address, count=3)

    def device(self, host: str) -> str:
        """Return what identifies a host's device: that of a new one differs."""
        return wiring.run(["ip", "-n", self.netns(host), "-o", "link", "show", "eth0"]).split(":")[0]

    def relay(self, host: str = "late", network: str = "left") -> int | None:
        """Return the process of a host's relay."""
        mac = self.world.get("networkattachment", f"{self.name}-{host}-{network}")["status"]["mac"]
        name = "nl" + mac.replace(":", "")
        pids = wiring.run(["ip", "netns", "pids", self.world.lab.netns("n1")]).split()
        for pid in map(int, pids):
            try:
                if f"relay/{name}" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
            except OSError:
                continue
        return None

    def interfaces(self) -> str:
        """Return the devices of node n1."""
        return wiring.run(["ip", "-n", self.world.lab.netns("n1"), "-br", "link"])


@pytest.fixture(scope="module")
def links(lab: Lab) -> Iterator[Links]:
    """A Sandbox with three shaped links."""
    name = f"k{lab.layout.id}"
    with world(lab, "links", json.dumps(document("Sandbox", name, SPEC))) as made:
        yield Links(made, name)


def test_a_link_of_10_mbit_measures_10_mbit_in_both_directions(links: Links) -> None:
    found = links.measured("slow", "left")
    assert [one["quantity"] for one in found] == ["rate sent", "rate received"]
    assert [one["measured"] for one in found] == pytest.approx([10, 10], rel=0.15)
    assert all(one["ok"] for one in found)


def test_the_link_of_a_router_has_its_rate(links: Links) -> None:
    found = links.measured("hall", "right")
    assert [one["measured"] for one in found] == pytest.approx([4, 4], rel=0.15)


def test_delay_and_loss_are_those_of_the_relay_and_the_status_says_so(links: Links) -> None:
    assert {one["quantity"]: one["ok"] for one in links.measured("late", "left")} == {"round trip": True, "loss": True}
    status = links.world.get("shaping", f"{links.name}-late-left")["status"]
    assert status["applied"] == {"delay": "50ms", "loss": "10%"}
    assert "unsupported" not in status


def test_a_relay_outlives_its_agent_and_is_started_again_when_it_is_killed(links: Links) -> None:
    before, device = links.relay(), links.device("late")
    assert before is not None
    labs.killed_comes_back(links.world.lab, "agent-n1")
    wait_until(lambda: probes.ping(links.netns("late"), "10.11.0.7"), what="packets")
    assert links.relay() == before
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: links.relay() not in (None, before), what="another relay")
    wait_until(lambda: probes.ping(links.netns("late"), "10.11.0.7"), what="packets")
    # Both at once: the next agent repairs it.
    after = links.relay()
    assert after is not None
    links.world.lab.kill("agent-n1")
    os.kill(after, signal.SIGKILL)
    wait_until(lambda: links.relay() not in (None, after), what="another relay")
    wait_until(lambda: probes.ping(links.netns("late"), "10.11.0.7"), what="packets")
    assert links.device("late") == device


def test_a_link_that_is_shaped_no_more_is_as_it_was(links: Links) -> None:
    device = links.device("late")
    try:
        links.put(LINKS[:1])
        links.ready()
        wait_until(lambda: links.relay() is None, what="the relay to go")
        wait_until(lambda: " nr" not in links.interfaces().replace("\n", " "), what="its devices to go")
        wait_until(lambda: probes.ping(links.netns("late"), "10.11.0.7", count=20), what="every packet to arrive")
        assert links.device("late") == device
        assert links.measured("slow", "left")[0]["ok"]
    finally:
        links.put(LINKS)
        links.ready()


def test_what_the_kernel_cannot_do_is_a_condition_with_the_remedy(links: Links) -> None:
    able = links.world.cli("get", "node/n1", "-o", "jsonpath={.status.capabilities.netem}").out == "true"
    try:
        links.put([*LINKS[:2], {**LATE, "impairment": "kernel"}])
        name = f"{links.name}-late-left"
        if able:
            links.ready()
            return
        said = links.world.becomes("shaping", name, "False", "ImpairmentUnsupported")
        assert "the kernel of Node n1 has no netem: load the module sch_netem there" in said
        wait_until(
            lambda: "no netem" in links.world.condition("sandbox", links.name).get("message", ""),
            what="the Sandbox to say so",
        )
    finally:
        links.put(LINKS)
        links.ready()


VXLAN = """
{apiVersion: netloom.dev/v1alpha1, kind: Network, metadata: {name: red}, spec: {fabric: vxlan}}
---
{apiVersion: netloom.dev/v1alpha1, kind: Subnet, metadata: {name: red}, spec: {network: red, cidr: 10.13.0.0/24}}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: a}
spec: {node: n1, network: red, ips: [10.13.0.5], port: {type: veth, netns: /run/netns/a, name: eth0}}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: b}
spec: {node: n2, network: red, ips: [10.13.0.6], port: {type: veth, netns: /run/netns/b, name: eth0}}
"""


def test_a_port_of_the_vxlan_fabric_gets_a_relay_and_loses_it(lab: Lab) -> None:
    with world(lab, "links-vxlan", VXLAN) as made:
        wait_until(lambda: probes.ping(made.netns("a"), "10.13.0.6"), what="an answer")
        device = made.get("networkattachment", "a")["status"]["ifcName"]
        made.put("Shaping", "lost", {"from": {"attachment": "a"}, "loss": "100%", "impairment": "userspace"})
        made.becomes("shaping", "lost", "True", "Programmed")
        wait_until(lambda: not probes.ping(made.netns("a"), "10.13.0.6"), what="silence")
        wait_until(
            lambda: made.get("networkattachment", "a")["status"]["ifcName"] == "nr" + device[2:],
            what="the relay's device in the status",
        )
        made.delete("shaping/lost")
        wait_until(lambda: probes.ping(made.netns("a"), "10.13.0.6", count=10), what="every packet to arrive")
        made.becomes("networkattachment", "a", "True", "Ready")
        assert made.get("networkattachment", "a")["status"]["ifcName"] == device
