"""A lab that is up: what is in it, and what comes back when it is killed."""

import json
import os
import re
from pathlib import Path

import pytest

from netloom.lab import CommandFailed, Lab
from netloom.lab.daemons import processes
from tests.lab import labs
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


def test_every_process_has_a_pid_file_with_its_name(lab: Lab) -> None:
    names = {path.name for path in lab.layout.pids.iterdir()}
    of_a_node = ("agent", "ovs-vswitchd", "ovsdb-server", "ovn-controller")
    wanted = {"serve", "supervisor", "keeper", "ovn-northd", "ovn-nb", "ovn-sb"}
    assert names == wanted | {f"{program}-{node}" for program in of_a_node for node in lab.nodes}
    for name in names:
        assert Path(f"/proc/{(lab.layout.pids / name).read_text().strip()}").exists(), name
        assert lab.pid(name), name


def test_the_databases_are_where_the_page_says(lab: Lab) -> None:
    for database in ("nb", "sb"):
        assert (lab.layout.folder / "ovn" / f"{database}.sock").is_socket()
    assert (lab.layout.folder / "admin.kubeconfig").stat().st_mode & 0o777 == 0o600


def test_a_command_runs_on_its_node_and_finds_its_switch(lab: Lab) -> None:
    for number, node in enumerate(lab.nodes, start=1):
        assert f"172.31.0.{number}/16" in lab.exec(node, ["ip", "address", "show", "br-phys"]).stdout
        shown = lab.exec(node, ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:system-id"]).stdout
        assert shown.strip() == node
    with pytest.raises(CommandFailed, match=r"n1: ls /nowhere failed with status 2: .*No such file"):
        lab.exec("n1", ["ls", "/nowhere"])


def test_lab_exec_ends_as_the_command_ends(lab: Lab) -> None:
    ended = labs.command("exec", "--data", lab.layout.folder, "n2", "--", "sh", "-c", "echo $OVS_RUNDIR; exit 7")
    assert (ended.returncode, ended.stdout) == (7, f"{lab.layout.node('n2')}\n")
    ended = labs.command("exec", "--data", lab.layout.folder, "n9", "--", "true")
    assert ended.returncode == 1
    assert "use one of underlay, central, outside, n1, n2" in ended.stderr


def test_the_nodes_reach_each_other_and_the_outside_is_there(lab: Lab) -> None:
    assert labs.pings(lab, "n1", lab.underlay_ip("n2"))
    assert labs.pings(lab, "outside", "198.51.100.1")
    assert not labs.pings(lab, "n1", "192.0.2.1"), "the physical network is not the underlay"


def test_logical_ports_on_two_nodes_reach_each_other_through_a_tunnel(lab: Lab) -> None:
    labs.logical_switch(lab, "by-hand", {"hand1": 1, "hand2": 2})
    labs.switch_port(lab, "n1", "hand1", number=1)
    labs.switch_port(lab, "n2", "hand2", number=2)
    try:
        wait_until(lambda: labs.pings(lab, "n1", "10.9.0.2"), what="10.9.0.2 to answer")
        # A switch that is killed takes its devices along; its address is given to it again.
        labs.killed_comes_back(lab, "ovs-vswitchd-n2")
        lab.exec("n2", ["sh", "-c", "ip address replace 10.9.0.2/24 dev hand2; ip link set hand2 up"])
        wait_until(lambda: labs.pings(lab, "n1", "10.9.0.2"), what="10.9.0.2 to answer again")
    finally:
        lab.exec("central", ["ovn-nbctl", "--if-exists", "ls-del", "by-hand"])
        for number, node in enumerate(("n1", "n2"), start=1):
            lab.exec(node, ["ovs-vsctl", "--if-exists", "del-port", f"hand{number}"])


def test_the_api_is_on_every_nodes_loopback(lab: Lab) -> None:
    with pytest.raises(CommandFailed):
        lab.exec("underlay", ["nc", "-z", "127.0.0.1", str(lab.layout.state.port)])
    for node in lab.nodes:
        lab.exec(node, ["nc", "-z", "127.0.0.1", str(lab.layout.state.port)])


@pytest.mark.parametrize(
    "name", ["ovsdb-server-n1", "ovn-controller-n1", "ovn-nb", "ovn-sb", "ovn-northd", "serve", "agent-n2", "keeper"]
)
def test_what_is_killed_is_started_again_and_nobody_else(lab: Lab, name: str) -> None:
    others = {path.name: lab.pid(path.name) for path in lab.layout.pids.iterdir() if path.name != name}
    labs.killed_comes_back(lab, name)
    assert {other: lab.pid(other) for other in others} == others


def test_an_api_server_that_is_ready_again_answers(lab: Lab) -> None:
    labs.killed_comes_back(lab, "serve")
    netloom("get", "nodes", kubeconfig=lab.kubeconfig)


def test_a_supervisor_that_is_killed_comes_back_and_disturbs_nobody(lab: Lab) -> None:
    others = {path.name: lab.pid(path.name) for path in lab.layout.pids.iterdir() if path.name != "supervisor"}
    before = lab.kill("supervisor")
    wait_until(lambda: lab.pid("supervisor") not in (0, before), what="another supervisor")
    assert {other: lab.pid(other) for other in others} == others
    labs.killed_comes_back(lab, "ovn-northd")
    wait_until(lambda: _relayed(lab), what="the API to be relayed again")


def test_status_shows_a_tree_and_fails_when_something_is_amiss(lab: Lab) -> None:
    wait_until(lambda: labs.command("status", "--data", lab.layout.folder).returncode == 0, what="all to be well")
    ended = labs.command("status", "--data", lab.layout.folder)
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(f"{lab.layout.folder}  (lab {lab.layout.id}: up, 3 of 3 nodes Ready")
    assert any(line.startswith("├─ n1  172.31.0.1, OVS ") for line in lines)
    assert any("ovn-controller-n1" in line for line in lines)
    whole = json.loads(labs.command("status", "--data", lab.layout.folder, "-o", "json").stdout)
    assert whole["well"] is True
    assert str(lab.layout.folder) in labs.command("status").stdout


def test_a_host_whose_plug_is_pulled_is_gone_until_it_is_put_in_again(lab: Lab) -> None:
    of_n2 = ("agent-n2", "ovs-vswitchd-n2", "ovsdb-server-n2", "ovn-controller-n2")
    assert labs.command("off", "--data", lab.layout.folder, "n2").returncode == 0
    try:
        # Whoever starts again what died would have done so with the others, which are killed later.
        labs.killed_comes_back(lab, "ovn-controller-n1")
        assert [lab.pid(name) for name in of_n2] == [0, 0, 0, 0]
        assert not labs.pings(lab, "n1", lab.underlay_ip("n2"))
        assert re.search(
            r"n2  172\.31\.0\.2, OVS [0-9.]+, OFF", labs.command("status", "--data", lab.layout.folder).stdout
        )
    finally:
        ended = labs.command("on", "--data", lab.layout.folder, "n2")
    assert ended.stdout == "n2 is on and Ready.\n", ended.stderr
    assert all(lab.pid(name) for name in of_n2)
    wait_until(lambda: labs.pings(lab, "n1", lab.underlay_ip("n2")), what="n2 to answer again")
    assert "is not a host: use one of n1, n2" in labs.command("off", "--data", lab.layout.folder, "central").stderr


def test_a_lab_that_is_up_is_not_brought_up_again(lab: Lab) -> None:
    ended = labs.command("up", "--data", lab.layout.folder)
    assert ended.returncode == 1
    assert f"`netloom lab down --data {lab.layout.folder}` first" in ended.stderr
    assert lab.pid("supervisor")


def test_a_pid_that_belongs_to_somebody_else_is_not_taken_for_ours(lab: Lab) -> None:
    assert not processes.is_of(os.getpid(), lab.layout.id, "serve")
    assert not processes.is_of(lab.pid("serve"), lab.layout.id, "ovn-nb")
    assert not processes.is_of(lab.pid("serve"), "00000000", "serve")


def _relayed(lab: Lab) -> bool:
    return lab.exec("n1", ["nc", "-z", "127.0.0.1", str(lab.layout.state.port)], check=False).returncode == 0
