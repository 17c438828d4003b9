"""`netloom sandbox verify` and `exec` on real packets: what is declared passes, and what others open is caught."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, probes
from netloom.lab.echoes import Pair, pings
from tests.lab.test_sandbox import ADDRESSES, TOPOLOGY, Range, deployed
from tests.run.serving import Answer, netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@pytest.fixture(scope="module")
def school(lab: Lab) -> Iterator[Range]:
    """A Sandbox on three nodes, with hosts on two networks."""
    with deployed(lab, "verified", "-v") as made:
        yield made


def verified(school: Range, *args: str) -> tuple[int, dict[str, Any]]:
    answer = school.world.cli("sandbox", "verify", "--name", school.name, "-o", "json", *args, check=False)
    found: dict[str, Any] = json.loads(answer.out)
    return answer.rc, found


def run(school: Range, *args: str, stdin: str = "") -> Answer:
    made = school.world
    options = ("-n", made.name, "sandbox", "exec", "--name", school.name)
    return netloom(*options, *args, kubeconfig=made.lab.kubeconfig, stdin=stdin, check=False)


def paths(part: dict[str, Any]) -> list[str]:
    return [" -> ".join(one["path"]) for one in part["differences"]]


def test_every_pair_reaches_as_declared(school: Range) -> None:
    code, found = verified(school)
    assert code == 0, found
    probed = found["probes"]
    # Of four hosts with six addresses: vault and home do not reach each other, nor do others reach `lone`.
    assert (probed["reached"], probed["blocked"], probed["elsewhere"]) == (12, 6, [])
    declared = {host: row for host, row in found["plan"]["matrix"].items() if host != "users"}
    assert probed["reached"] == sum(value for row in declared.values() for value in row.values())
    assert found["live"]["matrix"] == found["plan"]["matrix"]


def test_an_attachment_of_another_is_caught_by_live_objects_and_by_probes(school: Range) -> None:
    port = {"type": "veth", "netns": f"/run/netns/{school.netns('vault')}", "name": "eth9"}
    spec = {"node": "n1", "network": f"{school.name}-homes", "ips": ["10.10.30.99"], "port": port}
    backdoor = json.dumps(
        {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "metadata": {"name": "backdoor"},
         "spec": spec}
    )  # fmt: skip
    school.world.cli("apply", "-f", "-", stdin=backdoor)
    try:
        school.world.becomes("networkattachment", "backdoor", "True", "Ready")
        school.reaches("vault", ADDRESSES["home"])
        code, found = verified(school)
        assert code == 1
        leak = f"vault 10.10.30.99 -> home {ADDRESSES['home']}"
        assert leak in paths(found["live"])
        assert leak in paths(found["probes"])
        assert "NetworkAttachment backdoor -> network homes" in paths(found["live"])
        assert found["plan"]["differences"] == []
    finally:
        school.world.delete("networkattachment/backdoor")
    wait_until(lambda: verified(school)[0] == 0, what="the leak to be closed")


def test_a_machine_of_another_in_a_network_answers_and_is_caught(school: Range) -> None:
    made = school.world
    port = {"type": "veth", "netns": "/run/netns/spy", "name": "eth0"}
    network = f"{school.name}-homes"
    made.put("NetworkAttachment", "spy", {"node": "n2", "network": network, "ips": ["10.10.30.66"], "port": port})
    try:
        made.becomes("networkattachment", "spy", "True", "Ready")
        school.reaches("home", "10.10.30.66")
        code, found = verified(school)
        assert code == 1
        assert found["live"]["strangers"] == ["NetworkAttachment spy 10.10.30.66"]
        assert f"home {ADDRESSES['home']} -> NetworkAttachment spy 10.10.30.66" in paths(found["probes"])
    finally:
        made.delete("networkattachment/spy")


def test_a_host_that_does_not_answer_is_a_gap(school: Range) -> None:
    run(school, "server", "ip", "link", "set", "eth0", "down")
    try:
        code, found = verified(school, "--rounds", "2")
        assert code == 1
        assert f"desk -> server {ADDRESSES['server']}" in paths(found["probes"])
        assert found["live"]["differences"] == []
    finally:
        run(school, "server", "ip", "link", "set", "eth0", "up")
        run(school, "server", "ip", "route", "replace", "default", "via", "10.10.20.1")
    school.reaches("home", ADDRESSES["server"])


def test_a_program_runs_on_a_host_with_its_input_output_and_status(school: Range) -> None:
    assert "10.10.30.5/24" in run(school, "home", "--", "ip", "-4", "-br", "address", "show", "eth0").out
    assert run(school, "home", "sh", "-c", "exit 7").rc == 7
    # Without a command, a shell.
    shell = run(school, "desk", stdin="echo $((6*7)); ip -br link show eth1")
    assert shell.out.splitlines()[0] == "42"
    assert "eth1" in shell.out


def test_monitoring_targets_are_asked_by_a_host_that_reaches_them(school: Range, tmp_path: Path) -> None:
    monitoring = {
        "icmp": [
            {"node": "server", "targets": [{"interface": "eth0"}]},
            {"node": "home-router", "targets": [{"address": "10.10.30.254"}]},
        ],
        "tcp": [{"node": "server", "targets": [{"port": 80, "interface": "eth0"}, {"port": 81, "interface": "eth0"}]}],
        "http": {"targets": [{"url": "http://server/", "check_string": "anything"}]},
    }
    file = tmp_path / "watched.json"
    file.write_text(json.dumps({**TOPOLOGY, "monitoring_targets": monitoring}))
    with probes.Listeners() as listeners:
        listeners.add(school.netns("server"), 80, name="server")
        answer = school.world.cli("sandbox", "verify", str(file), "--name", school.name, "-o", "json", check=False)
    found = {one["target"]: (one["source"], one["answer"]) for one in json.loads(answer.out)["monitoring"]}
    assert found["icmp server 10.10.20.5"] == ("desk", "")
    assert found["icmp home-router 10.10.30.254"] == ("home", "")
    assert found["tcp server 10.10.20.5:80"] == ("desk", "")
    assert found["tcp server 10.10.20.5:81"] == ("desk", "Connection refused")
    assert found["http http://server/"][1]  # It does not speak HTTP.


def test_a_leaky_topology_is_caught_by_its_plan_and_by_probes(school: Range, tmp_path: Path) -> None:
    vpn = {"entrypoints": [{"name": "desk", "routes": ["10.10.40.0/24"]}]}
    file = tmp_path / "leaky.json"
    file.write_text(json.dumps({**TOPOLOGY, "vpn": vpn}))
    answer = school.world.cli("sandbox", "verify", str(file), "--name", school.name, "-o", "json", check=False)
    found = json.loads(answer.out)
    assert (answer.rc, found["verified"]) == (1, False)
    leak = f"users -> vpn desk -> router office-router -> vault {ADDRESSES['vault']}"
    assert paths(found["plan"]) == paths(found["probes"]) == [leak]


def test_a_leak_that_is_deployed_all_the_same_is_caught_by_the_plan_and_by_real_packets(
    school: Range, tmp_path: Path
) -> None:
    """One mapping of a router too many joins `store`, which is not accessible by users, with the homes."""
    name = f"{school.name}-leaky"
    mapping = {"router": "home-router", "network": "store", "ip": "10.10.40.254"}
    leaky, meant = tmp_path / "leaky.json", tmp_path / "meant.json"
    leaky.write_text(json.dumps({**TOPOLOGY, "router_mappings": [*TOPOLOGY["router_mappings"], mapping]}))
    meant.write_text(json.dumps(TOPOLOGY))
    made = Range(school.world, name)
    # What is deployed says that they are joined. What was meant does not, and names the way.
    made.world.cli("sandbox", "apply", str(leaky), "--name", name, "--run", "--no-verify")
    try:
        made.ready()
        made.reaches("home", ADDRESSES["vault"])
        answer = made.world.cli("sandbox", "verify", str(meant), "--name", name, "-o", "json", check=False)
        found = json.loads(answer.out)
        assert (answer.rc, found["verified"]) == (1, False)
        leak = f"home {ADDRESSES['home']} -> router home-router -> vault {ADDRESSES['vault']}"
        assert leak in paths(found["live"])
        assert leak in paths(found["probes"])
    finally:
        made.world.delete(f"sandbox/{name}")


def test_pings_of_many_pairs_tell_who_answers(school: Range) -> None:
    good = {Pair(school.netns("desk"), ADDRESSES["server"]), Pair(school.netns("desk"), ADDRESSES["home"])}
    bad = {Pair(school.netns("desk"), "10.10.20.77"), Pair(school.netns("vault"), ADDRESSES["home"])}
    wait_until(lambda: pings(good, rounds=3) == good, what="both to answer")
    told: list[int] = []
    assert pings(good | bad, rounds=2, on_answer=told.append) == good
    assert sum(told) == 2
    assert pings((), rounds=2) == set()
