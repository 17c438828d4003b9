"""`netloom bench` against a real `netloom serve`, with simulated agents."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.run.serving import NETLOOM, Answer, Serving, environment, netloom, serving
from tests.support.process import Program

pytestmark = pytest.mark.slow

SMALL = ("--simulated-agents", "3", "--networks", "2", "--top-size", "4", "--fabric", "vxlan", "--rate", "20")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of these tests alone: a run makes Nodes, and those are seen from every namespace."""
    with serving(tmp_path_factory.mktemp("bench")) as running:
        yield running


def made(server: Serving, run: str) -> str:
    kinds = "networks,subnets,networkattachments"
    labels = f"netloom.dev/bench-run={run}"
    found = server.cli("get", kinds, "-A", "-l", labels, "-o", "name").out
    return found + server.cli("get", "nodes", "-l", labels, "-o", "name").out


def test_a_run_measures_writes_and_leaves_nothing(server: Serving, tmp_path: Path) -> None:
    files = ("--output", str(tmp_path / "run.json"), "--plot", str(tmp_path / "run.svg"))
    answer = server.cli("bench", "attachments", *SMALL, "--run", "whole", "--cruise", "1s", "--histogram", *files)
    assert "create to Ready " in answer.out
    assert "addresses to last agent " in answer.out
    assert "create to Ready:\n  up to " in answer.out
    assert "s  cruise: " in answer.err
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["errors"] == {}
    assert all(one["ready"] is not None for one in written["attachments"])
    assert ElementTree.parse(tmp_path / "run.svg").getroot().tag.endswith("svg")
    assert made(server, "whole") == ""


def test_two_processes_of_agents_and_a_table_of_times(server: Serving, tmp_path: Path) -> None:
    words = ("--agent-processes", "2", "--cruise", "0s", "--output", str(tmp_path / "run.csv"), "--arrivals", "poisson")
    server.cli("bench", "attachments", *SMALL, "--run", "two", *words)
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert lines[0].startswith("name,slot,network,node,phase,due,")
    assert len(lines) == 1 + 4 + 2
    assert {line.split(",")[3] for line in lines[1:]} <= {"sim-0001", "sim-0002", "sim-0003"}


def test_an_interrupted_run_is_gone_and_a_killed_one_can_be_cleaned(server: Serving, tmp_path: Path) -> None:
    words = (*SMALL, "--cruise", "10m", "--kubeconfig", str(server.kubeconfig))
    command = [*NETLOOM, "bench", "attachments", *words]
    log = tmp_path / "log"
    with Program([*command, "--run", "stopped"], log=log, env=environment()) as program:
        program.wait_for("cruise")
        assert made(server, "stopped")
        program._child.send_signal(signal.SIGINT)
        assert program.wait() == 130
    assert "the objects of the run are removed" in log.read_text()
    assert made(server, "stopped") == ""
    with Program([*command, "--run", "killed"], log=tmp_path / "other", env=environment()) as program:
        program.wait_for("s  cruise")
        program.kill()
    assert made(server, "killed")
    assert server.cli("bench", "clean", "--run", "killed").out.startswith("Removed ")
    assert made(server, "killed") == ""


def test_what_breaks_is_counted_and_fails_the_run(server: Serving) -> None:
    alone = ("--networks", "1", "--top-size", "1", "--cruise", "0s", "--pending-wait", "1s")
    server.cli("apply", "-f", "-", stdin=NODE)
    answer = server.cli("bench", "attachments", *alone, "--node", "nobody", check=False)
    assert answer.rc == 1
    assert "never Ready" in answer.out.partition("ERROR")[2]


NODE = '{"apiVersion": "netloom.dev/v1alpha1", "kind": "Node", "metadata": {"name": "nobody"}, "spec": {"underlayIP": "192.0.2.9"}}'  # noqa: E501


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--networks", "0"), "--networks"),
        (("--base-address", "nowhere"), "'nowhere' is not an IP address"),
        (("--base-address", "10.0.0.0", "--base-address", "10.1.0.0"), "at most one IPv4 and one IPv6"),
        (("--test-share", "0.5"), "requires --lab"),
        (("--simulated-agents", "2", "--node", "n1"), "omit --node"),
        (("--node", "n1", "--node-selector", "a=b"), "exclude each other"),
        (("--run", "No Name"), "lower-case letters"),
        (("--output", "run.txt"), "must end in .json or .csv"),
        (("--plot", "/nowhere/run.svg"), "directory /nowhere does not exist"),
        (("--cruise", "soon"), "is not a duration"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_a_wrong_flag_is_named(flags: tuple[str, ...], said: str) -> None:
    answer: Answer = netloom("bench", "attachments", *flags, check=False)
    assert answer.rc == 2
    assert said in answer.err


def test_an_estimate_needs_no_server() -> None:
    answer = netloom("bench", "attachments", "--estimate", "--run", "small", "--networks", "2", "--top-size", "10")
    assert answer.out.splitlines()[-1] == "15 attachments in 2 Networks, 7.3 peers each on average."


def test_without_a_node_that_is_ready_there_is_no_run(server: Serving) -> None:
    answer = server.cli("bench", "attachments", "--node-selector", "no=such", check=False)
    assert (answer.rc, "no Node with the labels no=such is Ready" in answer.err) == (1, True)
