"""A lab's end, whatever came before: nothing is left on the machine, and nobody else's is touched."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netloom.errors import Conflict, NotFound
from netloom.lab import Lab, down
from netloom.lab.daemons.entering import NETNS
from netloom.lab.daemons.processes import of_lab, read_pid
from netloom.lab.daemons.programs import RAFT_PORTS
from netloom.lab.layout import NODES_PORT, NORTHBOUND_PORT, SOUTHBOUND_PORT
from tests.lab import labs
from tests.run.serving import environment
from tests.support.process import Program, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


def test_a_lab_goes_down_and_comes_up_again_with_its_data() -> None:
    with labs.folder() as data:
        lab = Lab.up(data, nodes=1)
        port = lab.layout.state.port
        lab.exec("central", ["ovn-nbctl", "ls-add", "kept"])
        lab.exec("n1", ["ovs-vsctl", "add-br", "br-kept", "--", "set", "Bridge", "br-kept", "datapath_type=netdev"])
        lab.down()
        assert labs.left_of(data) == []
        assert list((data / "pids").iterdir()) == []
        with pytest.raises(Conflict, match="--ovn 1"):
            Lab.up(data, nodes=1, ovn=3)
        lab = Lab.up(data, nodes=2)
        assert lab.layout.state.port == port
        assert "kept" in lab.exec("central", ["ovn-nbctl", "ls-list"]).stdout
        assert "br-kept" in lab.exec("n1", ["ovs-vsctl", "list-br"]).stdout
        lab.down(delete=True)
        assert not data.exists()
        assert labs.left_of(data) == []


def test_two_labs_live_beside_each_other_and_one_ends_alone() -> None:
    with labs.running(nodes=1, ovn=0) as one, labs.running(nodes=1, ovn=0) as other:
        assert one.netns("n1") != other.netns("n1")
        assert one.layout.state.port != other.layout.state.port
        theirs = {path.name: other.pid(path.name) for path in other.layout.pids.iterdir()}
        one.down()
        assert labs.left_of(one.layout.folder) == []
        assert all(theirs.values())
        assert {name: other.pid(name) for name in theirs} == theirs
        assert other.exec("n1", ["ovs-vsctl", "br-exists", "br-phys"]).returncode == 0


def test_a_cluster_of_three_elects_a_leader_again_when_it_is_killed() -> None:
    with labs.running(nodes=1, ovn=3) as lab:
        pids = {path.name for path in lab.layout.pids.iterdir()}
        assert {f"ovn-{kind}{suffix}" for kind in ("nb", "sb", "northd") for suffix in ("", "-2", "-3")} <= pids
        wait_until(lambda: _leaders(lab), what="a leader")
        _of_their_own(lab)
        leader = _leaders(lab)[0]
        lab.kill(leader)
        write = ["ovn-nbctl", "--timeout=10", "--may-exist", "ls-add", "written-meanwhile"]
        wait_until(lambda: not lab.exec("central", write, check=False).returncode, what="another leader")
        wait_until(lambda: labs.is_ready(lab, leader), what=f"{leader} to be started again")


def test_nothing_is_started_again_when_that_is_not_wanted() -> None:
    with labs.running(nodes=1, ovn=0, restart=False) as lab:
        lab.kill("ovs-vswitchd-n1")
        log = lab.layout.log / "supervisor"
        wait_until(lambda: "ended by SIGKILL" in log.read_text(), what="the supervisor to notice")
        assert not lab.pid("ovs-vswitchd-n1")
        assert "NOT RUNNING" in labs.command("status", "--data", lab.layout.folder).stdout


@pytest.mark.parametrize("also", [[], ["supervisor"], ["supervisor", "keeper"]], ids=["up", "supervisor", "both"])
def test_an_up_that_is_killed_half_way_is_cleaned_up_by_down(also: list[str]) -> None:
    with labs.folder() as data, _coming_up(data) as program:
        wait_until(lambda: read_pid(data / "pids", "supervisor"), what="the supervisor")
        program.kill()
        wait_until(lambda: all(read_pid(data / "pids", name) for name in also), what=f"{also}")
        for pid in [read_pid(data / "pids", name) for name in also]:
            os.kill(pid, signal.SIGKILL)
        assert labs.left_of(data) != []
        assert labs.command("down", "--data", data).returncode == 0
        assert labs.left_of(data) == []


def test_an_up_that_was_killed_is_cleaned_up_by_the_next_up() -> None:
    with labs.folder() as data:
        with _coming_up(data) as program:
            wait_until(lambda: (data / "pids" / "supervisor").exists(), what="the supervisor")
            program.kill()
        lab = Lab.up(data, nodes=1)
        assert len([found for found in of_lab(lab.layout.id, ()) if found.name == "ovsdb-server-n1"]) == 1
        lab.down()
        assert labs.left_of(data) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_up_that_is_interrupted_leaves_nothing(number: signal.Signals) -> None:
    with labs.folder() as data, _coming_up(data) as program:
        wait_until(lambda: (data / "pids" / "supervisor").exists(), what="the supervisor")
        os.kill(program.pid, number)
        assert program.wait() == 130
        assert labs.left_of(data) == []
        assert not data.exists()


def test_a_lab_whose_folder_was_removed_is_ended_by_the_next_up_of_any_lab() -> None:
    with labs.folder() as removed, labs.folder() as data:
        Lab.up(removed, nodes=1, ovn=0)
        shutil.rmtree(removed)
        assert labs.left_of(removed) != []
        said: list[str] = []
        Lab.up(data, nodes=1, ovn=0, say=said.append)
        assert labs.left_of(removed) == []
        assert any(str(removed) in line for line in said)


def test_a_lab_whose_folder_was_removed_is_ended_by_down() -> None:
    with labs.folder() as data:
        Lab.up(data, nodes=1, ovn=0)
        shutil.rmtree(data)
        down(data)
        assert labs.left_of(data) == []
        with pytest.raises(NotFound, match="no lab in"):
            down(data)


def test_down_ends_what_users_run_on_the_nodes_and_nothing_else() -> None:
    with labs.running(nodes=1, ovn=0) as lab:
        inside = subprocess.Popen(lab.command("n1", ["sleep", "600"]), env=environment())
        bystander = subprocess.Popen(["sleep", "600"], env=environment(NETLOOM_LAB="ffffffff"))
        try:
            wait_until(lambda: _namespace(inside.pid) == (NETNS / lab.netns("n1")).stat().st_ino, what="sleep on n1")
            lab.down()
            assert inside.wait(120) == -signal.SIGKILL
            assert bystander.poll() is None
        finally:
            for process in (inside, bystander):
                process.kill()
                process.wait()


def test_two_commands_do_not_work_on_one_lab_at_once() -> None:
    with labs.folder() as data, _coming_up(data):
        wait_until(lambda: (data / "lab.json").exists(), what="the first")
        ended = labs.command("down", "--data", data)
        assert ended.returncode == 1
        assert "another netloom lab command is running" in ended.stderr


@contextmanager
def _coming_up(data: Path) -> Iterator[Program]:
    argv = [*labs.NETLOOM, "lab", "up", "--nodes", "2", "--data", str(data)]
    with Program(argv, log=data.parent / "up.log", env=environment()) as program:
        yield program


def _leaders(lab: Lab) -> list[str]:
    found = []
    for name in ("nb", "nb-2", "nb-3"):
        asked = ["ovs-appctl", "-t", str(lab.layout.ovn / f"{name}.ctl"), "cluster/status", "OVN_Northbound"]
        if "Role: leader" in lab.exec("central", asked, check=False).stdout:
            found.append(f"ovn-{name}")
    return found


def _namespace(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _of_their_own(lab: Lab) -> None:
    """See that the servers talk to each other by TLS on a network that no node gets into, whatever its routes are."""
    asked = ["ovs-appctl", "-t", str(lab.layout.ovn / "sb-2.ctl"), "cluster/status", "OVN_Southbound"]
    assert "Address: ssl:172.29.0.2:6644" in lab.exec("central", asked).stdout
    lab.exec("n1", ["ip", "route", "add", "172.29.0.0/24", "via", lab.layout.management_ip("central")])
    lab.exec("central-2", ["nc", "-z", "-w", "2", "172.29.0.1", str(SOUTHBOUND_PORT)])
    lab.exec("n1", ["nc", "-z", "-w", "2", lab.layout.management_ip("central"), str(NODES_PORT)])
    for address in ("172.29.0.1", lab.layout.management_ip("central")):
        for port in (NORTHBOUND_PORT, SOUTHBOUND_PORT, *RAFT_PORTS.values()):
            assert lab.exec("n1", ["nc", "-z", "-w", "1", address, str(port)], check=False).returncode, (address, port)
