"""What the commands that look behind the API show of a lab, held against what its packets do."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.lab import Lab
from tests.lab.worlds import MANIFESTS, World, document, world
from tests.run.serving import Answer, netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]
NAMESPACE = "diagnosis"


@pytest.fixture(scope="module")
def diagnosis(lab: Lab) -> Iterator[World]:
    with world(lab, NAMESPACE) as made:
        made.listen("web", 80, 81)
        yield made


def run(diagnosis: World, *args: str, check: bool = True) -> Answer:
    """Run a command with nothing but the lab's folder to go by."""
    return netloom(*args, "-n", NAMESPACE, "--lab", diagnosis.lab.layout.folder, check=check)


def doctor(diagnosis: World, *flags: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what the doctor says of this namespace, or of nobody's: the findings, and the repaired ones."""
    found = json.loads(run(diagnosis, "doctor", "-o", "json", *flags, check=False).out)

    def ours(key: str) -> list[dict[str, Any]]:
        every = [one for chapter in found["chapters"] for one in chapter.get(key, ())]
        return [one for one in every if one.get("namespace", "") in ("", NAMESPACE)]

    assert all(not chapter.get("unseen") for chapter in found["chapters"]), found
    return ours("complaints"), ours("mended")


# How packets go.


@pytest.mark.parametrize(
    ("start", "end", "flags", "how"),
    [
        ("alice", "web", ("--tcp", "80"), 80),
        ("alice", "web", ("--tcp", "81"), 81),
        ("alice", "web", ("--icmp",), "ping"),
        ("alice", "web", ("-6",), "ping"),
        ("alice", "10.72.0.100", ("--tcp", "8080"), 8080),
        ("alice", "tap", (), "ping"),
    ],
)
def test_a_trace_says_what_real_packets_do(
    diagnosis: World, start: str, end: str, flags: tuple[str, ...], how: int | str
) -> None:
    addresses = {"web": "10.72.0.11", "tap": "10.72.0.12"}
    address = "fd72::11" if "-6" in flags else addresses.get(end, end)
    answer = run(diagnosis, "trace", start, end, *flags, check=False)
    arrives = answer.out.splitlines()[-1].startswith("delivered to ")
    assert answer.rc == (0 if arrives else 1)
    if arrives and end != "tap":  # The tap answers nobody elsewhere: it has no route back.
        assert diagnosis.answers(start, address, how), answer.out
    elif not arrives:
        assert diagnosis.reaches([("alice", "10.72.0.11", 80)]), "the way there"
        assert not diagnosis.ask(start, address, how), answer.out


def test_a_trace_names_the_rule_that_decides_the_balancer_and_the_tunnel(diagnosis: World) -> None:
    dropped = run(diagnosis, "trace", "alice", "web", "--tcp", "81", check=False).out
    assert "router middle     route 10.72.0.0/24 to network servers" in dropped
    assert dropped.endswith(f"dropped by SecurityProfile {NAMESPACE}/web: no ingress rule allows it\n")
    allowed = run(diagnosis, "trace", "alice", "web", "--tcp", "80").out
    assert "SecurityProfile web, ingress[0]: allowed" in allowed
    assert f"node n1           through the tunnel to n2 ({diagnosis.lab.underlay_ip('n2')})" in allowed
    balanced = run(diagnosis, "trace", "alice", "10.72.0.100", "--tcp", "8080").out
    assert "LoadBalancer shop: sends it to one of 10.72.0.11:80" in balanced
    raw = run(diagnosis, "trace", "alice", "web", "--tcp", "80", "--raw").out
    assert "ls_in_l2_lkup" in raw
    assert "Datapath actions:" in raw


# What there is, and what came of it.


def test_explain_follows_an_attachment_from_the_wish_to_the_device(diagnosis: World) -> None:
    text = run(diagnosis, "explain", "networkattachment/web").out
    assert f"  Logical_Switch_Port {NAMESPACE}/web" in text
    assert f"in Port_Group {NAMESPACE}/web (ports)" in text
    assert f"Port_Binding {NAMESPACE}/web: on chassis n2, up" in text
    assert "logical flows (--flows lists them)" in text
    assert "ovn-installed true" in text
    assert "10.72.0.11/24, fd72::11/64, 0.0.0.0/0 via 10.72.0.1, ::/0 via fd72::1" in text
    assert "MISSING" not in text
    assert "Not checked" not in text
    assert "Where to look next" not in text


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("network/servers", "Ports of diagnosis/servers: 2 on n2"),
        ("router/middle", "Logical_Router_Port diagnosis/middle:office"),
        ("securityprofile/web", "ACL diagnosis/web:ingress[0]"),
        ("loadbalancer/shop", "vips: 10.72.0.100:8080=10.72.0.11:80"),
        ("node/n1", "Chassis n1: host n1, geneve 172.31.0.1"),
    ],
)
def test_explain_of_everything_else(diagnosis: World, what: str, said: str) -> None:
    text = run(diagnosis, "explain", what).out
    assert said in text
    assert "MISSING" not in text


def test_explain_says_where_to_look_when_a_step_is_missing(diagnosis: World) -> None:
    port = {"type": "veth", "netns": "/run/netns/nl-nowhere-diagnosis", "name": "eth0"}
    diagnosis.put("NetworkAttachment", "lost", {"node": "n1", "network": "office", "port": port})
    diagnosis.becomes("NetworkAttachment", "lost", "False", "NamespaceMissing", condition="Plugged")
    try:
        text = run(diagnosis, "explain", "na/lost").out
        assert "there is no network namespace at /run/netns/nl-nowhere-diagnosis" in text
        assert "MISSING: port diagnosis/lost is not bound to a chassis" in text
        assert "Read the log of the agent of n1" in text
        answer = run_status(diagnosis)
        assert (answer.rc, "lost: there is no network namespace at" in answer.out) == (1, True)
    finally:
        diagnosis.delete("networkattachment/lost")


def run_status(diagnosis: World) -> Answer:
    return diagnosis.cli("status", check=False)


def test_status_is_a_tree_of_it_all(diagnosis: World) -> None:
    wait_until(lambda: run_status(diagnosis).rc == 0, what="no findings")
    text = run_status(diagnosis).out
    assert "No problems found." in text
    assert "└─ alice  10.71.0.11 fd71::11, nl" in text
    assert "└─ middle  joins office, servers" in text
    assert "└─ web  covers 1 port, ingress 2 rules, egress open" in text
    assert "└─ shop  10.72.0.100:8080/tcp, 1 endpoints up, 0 down, in servers, middle" in text


def test_a_plan_is_what_then_happens(diagnosis: World) -> None:
    manifest = json.dumps(
        document("NetworkAttachment", "carol", {"node": "n2", "network": "office", "ips": ["10.71.0.77"]})
    )
    found = json.loads(diagnosis.cli("plan", "-f", "-", "-o", "json", stdin=manifest).out)
    planned = {row["key"] for row in found["rows"] if row["kind"] == "create"}
    assert planned == {f"{NAMESPACE}/carol"}
    diagnosis.apply(manifest)
    diagnosis.ready(manifest)
    assert "Nothing would change" in diagnosis.cli("plan", "-f", "-", stdin=manifest).out
    rows = json.loads(run(diagnosis, "explain", "na/carol", "-o", "json").out)["rows"]
    assert {row["key"] for row in rows} == planned
    assert diagnosis.cli("plan", "--delete", "-f", "-", stdin=manifest).out.count(
        f"- Logical_Switch_Port {NAMESPACE}/carol"
    )
    diagnosis.delete("networkattachment/carol")
    # The machines of the file are elsewhere in the lab: on the nodes that is another place, to OVN it is the same.
    text = diagnosis.cli("plan", "-f", str(MANIFESTS / "diagnosis.yaml")).out
    assert "-> /run/netns/alice" in text
    assert "Rows in OVN: 0 to create, 0 to change, 0 to remove. Ports on nodes: 0 to create, 3 to change" in text


# Findings.


def test_the_doctor_finds_nothing_where_nothing_is(diagnosis: World) -> None:
    assert doctor(diagnosis) == ([], [])


def test_the_doctor_mends_what_was_done_to_a_workload_and_leaves_strangers_alone(diagnosis: World) -> None:
    lab = diagnosis.lab
    lab.exec("diagnosis-alice", ["ip", "address", "del", "10.71.0.11/24", "dev", "eth0"])
    own = "external_ids:netloom-owner=netloom"
    lab.exec("n1", ["ovs-vsctl", "add-port", "br-int", "diagnosis-stray", "--", "set", "Interface", "diagnosis-stray",
                    "type=internal", own])  # fmt: skip
    lab.exec("n1", ["ovs-vsctl", "add-port", "br-int", "diagnosis-guest", "--", "set", "Interface", "diagnosis-guest",
                    "type=internal"])  # fmt: skip
    lab.exec("n1", ["ip", "link", "add", "nllooking", "type", "veth", "peer", "name", "nlgnikool"])
    lab.exec("n1", ["ip", "link", "set", "nllooking", "alias", "netloom/netloom/a-uid-of-nobody"])
    of = f"external_ids:netloom-of=Mirror/{NAMESPACE}/gone"
    lab.exec("n1", ["ovs-vsctl", "--", "--id=@m", "create", "Mirror", "name=diagnosis", own, of,
                    "--", "add", "Bridge", "br-int", "mirrors", "@m"])  # fmt: skip
    try:
        findings, _ = doctor(diagnosis)
        assert {(one["check"], one["name"]) for one in findings} == {
            ("wrong-device", "alice"),
            ("leftover-interface", "diagnosis-stray"),
            ("leftover-device", "nllooking"),
            ("leftover-mirror", "gone"),
        }
        findings, repaired = doctor(diagnosis, "--repair")
        assert (findings, len(repaired)) == ([], 4)
        assert doctor(diagnosis) == ([], [])
        assert diagnosis.answers("alice", "10.72.0.11", 80)
        ports = lab.exec("n1", ["ovs-vsctl", "list-ports", "br-int"]).stdout.split()
        assert "diagnosis-guest" in ports
        assert "diagnosis-stray" not in ports
    finally:
        for port in ("diagnosis-guest", "diagnosis-stray"):
            lab.exec("n1", ["ovs-vsctl", "--if-exists", "del-port", "br-int", port])
        lab.exec("n1", ["ip", "link", "del", "nllooking"], check=False)


def test_the_doctor_does_what_an_agent_that_does_not_run_would(diagnosis: World) -> None:
    """The agent is stopped, not killed: the lab would start another."""
    lab = diagnosis.lab
    device = json.loads(run(diagnosis, "explain", "na/web", "-o", "json").out)["port"]["lines"][0].split()[1]
    pid = lab.kill("agent-n2", signal.SIGSTOP)
    try:
        lab.exec("n2", ["ovs-vsctl", "del-port", "br-int", device])
        findings, _ = doctor(diagnosis, "--chapter", "nodes")
        assert [(one["check"], one["name"]) for one in findings] == [("missing-interface", "web")]
        findings, repaired = doctor(diagnosis, "--chapter", "nodes", "--repair")
        assert (findings, [one["name"] for one in repaired]) == ([], ["web"])
        assert diagnosis.answers("alice", "10.72.0.11", 80)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: doctor(diagnosis) == ([], []), what="no findings", interval=1.0)
