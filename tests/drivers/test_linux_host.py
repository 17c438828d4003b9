"""The agent's runs of the program of the backend `linux`, on a real host of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.drivers.linux.host import APPLIER
from netloom.model.document import Document
from netloom.plan.linux.documents import plan_documents
from tests.drivers.test_linux import TOPOLOGY
from tests.plan.test_sandbox import sandbox
from tests.support.bare_hosts import BareHost, bare_hosts
from tests.support.process import wait_until

pytestmark = [pytest.mark.root]

STATE = "/run/netloom/sandboxes"
ASK = f"""
import asyncio, json, sys
from netloom.drivers.linux.host import LinuxHost
host = LinuxHost({STATE!r}, seconds=float(sys.argv[3]))
arguments = [sys.stdin.buffer.read()] if sys.argv[1] == "apply" else []
result = asyncio.run(getattr(host, sys.argv[1])(sys.argv[2], *arguments))
print(json.dumps([result.changes, result.error, list(result.problems), sorted(host.owners())]))
"""


def documents(name: str) -> Document:
    value = sandbox(TOPOLOGY, name=name, run=True, placement={"default": "n1"})
    return plan_documents(value, {"n1": "192.0.2.1"}).documents["n1"]


@pytest.fixture(scope="module")
def host() -> Iterator[BareHost]:
    with bare_hosts(["n1"]) as hosts:
        yield hosts["n1"]


def asked(host: BareHost, verb: str, owner: str, document: Document | None = None, seconds: float = 60) -> list[object]:
    """Return changes, error, problems and owners after a run."""
    argv = (sys.executable, "-c", ASK, verb, owner, str(seconds))
    found: list[object] = json.loads(host.run(*argv, text=json.dumps(document) if document else ""))
    return found


def test_what_is_applied_can_be_removed_and_a_second_run_changes_nothing(host: BareHost) -> None:
    before = host.snapshot()
    wanted = documents("school")
    changes, *others = asked(host, "apply", "ns1.school-n1", wanted)
    assert isinstance(changes, int)
    assert changes > 20
    assert others == ["", [], ["ns1.school-n1"]]
    assert asked(host, "apply", "ns1.school-n1", wanted) == [0, "", [], ["ns1.school-n1"]]
    assert host.pings("school-desk", "10.10.20.5")
    assert asked(host, "remove", "ns1.school-n1")[1:] == ["", [], []]
    assert host.snapshot() == before


def test_what_others_have_applied_is_not_the_agents(host: BareHost) -> None:
    _, result = host.apply("apply", "ns1.school-n1", documents("theirs"))
    assert result["result"] == "done"
    try:
        assert asked(host, "remove", "ns1.school-n1") == [0, "", [], []]
        assert host.pings("theirs-desk", "10.10.20.5")
        # Not even by the names of its namespaces.
        error = asked(host, "apply", "ns1.other", documents("theirs"))[1]
        assert "exists and is not of this owner" in str(error)
        assert host.pings("theirs-desk", "10.10.20.5")
    finally:
        host.apply("remove", "ns1.school-n1")


def test_a_document_that_is_not_valid_is_refused_with_its_field(host: BareHost) -> None:
    assert "document.version: 7 is not valid" in str(asked(host, "apply", "ns1.odd", {**documents("s"), "version": 7}))
    assert "the owner '../odd' is not a name" in str(asked(host, "apply", "../odd", documents("s")))


def test_a_run_that_takes_too_long_is_ended_and_the_next_one_completes_it(host: BareHost) -> None:
    wanted = documents("slow")
    found = asked(host, "apply", "ns1.slow", wanted, seconds=0.2)
    assert "did not end within 0.2 s and was killed" in str(found[1])
    assert asked(host, "apply", "ns1.slow", wanted)[1] == ""
    assert host.pings("slow-desk", "10.10.20.5")
    assert asked(host, "remove", "ns1.slow")[1:] == ["", [], []]


def test_a_run_ends_with_the_agent_that_is_killed_and_the_next_agent_completes_it(host: BareHost) -> None:
    wanted = json.dumps(documents("killed"))
    argv = host.argv(sys.executable, "-c", ASK, "apply", "ns1.killed", "60")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as agent:
        assert agent.stdin is not None
        agent.stdin.write(wanted)
        agent.stdin.close()
        (run,) = wait_until(lambda: _runs("ns1.killed"), what="a run")
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
        wait_until(lambda: run not in _runs("ns1.killed"), what="the run to end")
    assert asked(host, "apply", "ns1.killed", json.loads(wanted))[1] == ""
    assert asked(host, "remove", "ns1.killed")[1:] == ["", [], []]


def _runs(owner: str) -> list[int]:
    """Return the processes that apply something of an owner."""
    wanted = [str(APPLIER), "apply", owner]
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().decode().split("\0")[3:6] == wanted:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
