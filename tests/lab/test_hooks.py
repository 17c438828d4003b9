"""Programs at the interfaces of a host without OVN, run by a real agent, which is killed around their runs.

Every program ends by itself within 20 seconds, and is four processes at most. The default is 3 kills at moments of
chance; NETLOOM_TEST_KILLS=50 makes them 50.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.lab import Lab
from netloom.lab.daemons.programs import GRANTS
from netloom.plan.node.hooks import INTERRUPTED, OVERDUE, REFUSED
from tests.drivers.test_programs import FORKING, alive, is_whole
from tests.lab.labs import NETLOOM, running
from tests.lab.worlds import World, document
from tests.support.process import Program, wait_until

NODE = "n1"
KILLS = int(os.environ.get("NETLOOM_TEST_KILLS", "3"))
NOTE = """#!/bin/sh
echo "$1 $2" >> {folder}/book
for turn in $(seq 150); do [ -e {folder}/shut ] || exit 0; sleep 0.1; done
"""
SECONDS = 3

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@dataclass
class Host:
    """The lab's one host, and its agent, which the test starts and ends."""

    lab: Lab
    world: World
    folder: Path
    agent: Program | None = None

    @property
    def note(self) -> str:
        """A program that writes down what it is given, and goes unless it is to stay."""
        return str(self.folder / "note")

    def start(self) -> Program:
        """Start the agent, and return when it works."""
        own = self.lab.layout
        argv = [*NETLOOM, "agent", "--kubeconfig", str(own.agent_kubeconfig(NODE)), "--node", NODE]
        argv += ["--ovs", f"unix:{own.switch_socket(NODE)}", "--underlay-ip", own.underlay_ip(NODE)]
        argv += ["--datapath", "netdev", "--exec-timeout", str(SECONDS), "--log-format", "text"]
        argv += GRANTS
        argv += ["--allowed-programs", f"{self.note},{sys.executable},/bin/false,/bin/sh"]
        log = self.folder / "agent.log"
        before = len(log.read_text()) if log.exists() else 0
        self.agent = Program(self.lab.command(NODE, argv), log=log, env=self.lab.environment(NODE))
        self.agent.wait_ready(lambda: " ready" in log.read_text()[before:])
        return self.agent

    def kill(self) -> None:
        """Kill the agent with -9."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def shut(self, *, so: bool) -> None:
        """Have `note` stay for a while, or go at once."""
        if so:
            (self.folder / "shut").touch()
        else:
            (self.folder / "shut").unlink(missing_ok=True)

    def book(self) -> list[str]:
        """Return what was written down."""
        path = self.folder / "book"
        return path.read_text().splitlines() if path.exists() else []

    def attach(self, *names: str, made: list[str] | None = None, gone: list[str] | None = None) -> None:
        """Wish for attachments with programs."""
        spec = {"node": NODE, "network": "hooks", "port": {"type": "internal"}}
        objects = [
            document(
                "NetworkAttachment", name,
                spec | ({"postCreateExec": [*made]} if made else {}) | ({"postDeleteExec": [*gone]} if gone else {}),
            )
            for name in names
        ]  # fmt: skip
        self.world.apply("\n---\n".join(json.dumps(one).replace("{name}", one["metadata"]["name"]) for one in objects))

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the statuses of all attachments."""
        found = json.loads(self.world.cli("get", "networkattachments", "-o", "json").out)["items"]
        return {one["metadata"]["name"]: one.get("status", {}) for one in found}

    def reported(self, *names: str) -> list[dict[str, Any]]:
        """Return the reports of attachments, once they have them."""

        def found() -> list[dict[str, Any]] | None:
            statuses = self.statuses()
            reports = [statuses[name].get("postCreateExecReport") for name in names]
            return [one for one in reports if one] if all(reports) else None

        return wait_until(found, what=f"reports of {names}", interval=0.2)

    def told(self, what: str, *names: str) -> list[tuple[str, str]]:
        """Return the reasons and the words of Events about programs, once there are some."""

        def found() -> list[tuple[str, str]] | None:
            events = json.loads(self.world.cli("get", "events", "-o", "json").out)["items"]
            said = {
                one["involvedObject"]["name"]: (one["reason"], one["message"])
                for one in events
                if one["message"].startswith(what)
            }
            return [said[name] for name in names] if said.keys() >= set(names) else None

        return wait_until(found, what=f"Events about {what} of {names}", interval=0.2)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "note").write_text(NOTE.replace("{folder}", str(folder)))
    (folder / "note").chmod(0o755)
    with running(nodes=1, ovn=0, restart=False) as lab:
        lab.kill(f"agent-{NODE}")
        made = Host(lab, World(lab, "hooks"), folder)
        try:
            made.start()
            put(made.world, "Network", {"fabric": "vxlan"})
            put(made.world, "Subnet", {"network": "hooks", "cidr": "10.77.0.0/24"})
            yield made
        finally:
            if made.agent is not None:
                made.agent.stop()


def put(world: World, kind: str, spec: Mapping[str, Any]) -> None:
    world.put(kind, "hooks", spec)


def test_a_program_runs_when_its_interface_is_made_and_one_when_it_is_gone(host: Host) -> None:
    host.attach("a", made=[host.note, "made", "${ifname}"], gone=[host.note, "gone", "${ipv4}"])
    (report,) = host.reported("a")
    status = host.statuses()["a"]
    device, ip = status["ifcName"], status["ips"][0].partition("/")[0]
    assert report["command"] == [host.note, "made", device]
    assert (report["exitStatus"], report["startTime"] <= report["stopTime"]) == (0, True)
    assert host.told("postCreateExec", "a") == [("ExecSucceeded", f"postCreateExec: {host.note} succeeded")]
    host.world.delete("networkattachment/a")
    assert host.told("postDeleteExec", "a") == [("ExecSucceeded", f"postDeleteExec: {host.note} succeeded")]
    assert [line for line in host.book() if device in line or ip in line] == [f"made {device}", f"gone {ip}"]


def test_what_is_not_allowed_or_fails_or_is_noisy_is_told_and_costs_the_interface_nothing(host: Host) -> None:
    names = ("refused", "failed", "noisy")
    host.attach("refused", made=["/bin/true"])
    host.attach("failed", made=["/bin/false"])
    host.attach("noisy", made=["/bin/sh", "-c", "echo first; head -c 1000000 /dev/zero; printf '\\377last'"])
    refused, failed, noisy = host.reported(*names)
    words = "postCreateExec: /bin/true is not among the programs this agent allows (--allowed-programs)"
    assert (refused["exitStatus"], refused["stdErr"]) == (REFUSED, words)
    assert failed["exitStatus"] == 1
    assert noisy["stdOut"].startswith("first\n")
    assert noisy["stdOut"].endswith("\ufffdlast")
    assert "bytes are left out]" in noisy["stdOut"]
    reasons = host.told("postCreateExec", *names)
    assert [reason for reason, _ in reasons] == ["ExecRefused", "ExecFailed", "ExecSucceeded"]
    statuses = host.statuses()
    assert statuses["refused"]["errors"]["host"] == [words]
    for name in names:
        assert {one["type"]: one["status"] for one in statuses[name]["conditions"]}["Ready"] == "True"


def test_a_program_that_forks_and_stays_is_ended_with_all_it_started_when_its_time_is_over(host: Host) -> None:
    pids = host.folder / "overdue"
    host.attach("slow", made=[*FORKING, "family", str(pids)])
    (report,) = host.reported("slow")
    assert (report["exitStatus"], report["stdOut"]) == (OVERDUE, "begun\n")
    assert report["stdErr"] == f"[ended after {SECONDS} s: see --exec-timeout]"
    assert is_whole(pids)
    assert alive(pids) == []
    assert host.told("postCreateExec", "slow")[0][0] == "ExecTimedOut"


def test_an_agent_that_is_stopped_ends_what_runs_and_says_so_when_it_is_back(host: Host) -> None:
    pids = host.folder / "stopped"
    host.attach("stopped", made=[*FORKING, "family", str(pids)])
    wait_until(lambda: is_whole(pids), what="the program to run")
    assert host.agent is not None
    host.agent.stop()
    assert alive(pids) == []
    host.start()
    assert host.reported("stopped")[0]["exitStatus"] == INTERRUPTED
    assert host.told("postCreateExec", "stopped")[0][0] == "ExecInterrupted"


def test_what_runs_when_the_agent_is_killed_is_reported_as_interrupted_and_never_runs_again(host: Host) -> None:
    host.shut(so=True)
    host.attach("k", made=[host.note, "made", "k"], gone=[host.note, "gone", "k"])
    wait_until(lambda: "made k" in host.book(), what="the program to run")
    host.kill()
    host.start()
    (report,) = host.reported("k")
    assert (report["exitStatus"], report.get("stopTime", "")) == (INTERRUPTED, "")
    host.world.delete("networkattachment/k")
    wait_until(lambda: "gone k" in host.book(), what="the program to run")
    host.kill()
    host.shut(so=False)
    host.start()
    assert host.told("postDeleteExec", "k")[0][0] == "ExecInterrupted"
    assert [line for line in host.book() if line.endswith(" k")] == ["made k", "gone k"]


def test_whenever_the_agent_is_killed_no_program_runs_twice_and_none_is_forgotten(host: Host) -> None:
    random = Random(KILLS)
    names = [f"r{number}" for number in range(2 * KILLS)]
    stages = ("on the switch", "begun", "over")
    for at in range(KILLS):
        host.attach(*names[2 * at : 2 * at + 2], made=[host.note, "made", "{name}"], gone=[host.note, "gone", "{name}"])
        if at:
            host.world.cli("delete", "--no-wait", f"networkattachment/{names[2 * at - 1]}")
        reached = stages[at] if at < len(stages) else random.choice(stages)
        wait_until(partial(_is, host, names[2 * at], reached), what=reached, interval=0.01)
        host.kill()
        host.start()
        host.reported(names[2 * at], names[2 * at + 1])
    left = names[0::2] + names[-1:]
    host.world.delete(*(f"networkattachment/{name}" for name in left))
    for name, (reason, _) in zip(names, host.told("postDeleteExec", *names), strict=True):
        runs = Counter(line for line in host.book() if line.split()[1] == name)
        assert runs[f"made {name}"] <= 1
        assert runs[f"gone {name}"] == 1 or (reason == "ExecInterrupted" and not runs[f"gone {name}"])


def _is(host: Host, name: str, reached: str) -> bool:
    """Whether an attachment is so far."""
    if reached == "on the switch":
        return f"hooks/{name}" in host.lab.exec(NODE, ["ovs-vsctl", "list", "Interface"]).stdout
    if reached == "begun":
        return f"made {name}" in host.book()
    return "postCreateExecReport" in host.statuses()[name]
