"""The program of the backend `linux` on three real hosts: packets, repetition, changes, kills, and complete removal."""

import ast
import ipaddress
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.link import codec
from netloom.drivers.linux import applier, prober
from netloom.model.document import Document
from netloom.plan.linux.documents import plan_documents
from tests.plan.test_sandbox import sandbox
from tests.support.bare_hosts import APPLIER, BareHost, bare_hosts
from tests.support.process import wait_until

OWNER = "ns1.school"
NAMES = ("n1", "n2", "n3")
NODES = {name: f"192.0.2.{number}" for number, name in enumerate(NAMES, 1)}
KILLS = int(os.environ.get("NETLOOM_TEST_KILLS", "20"))

TOPOLOGY: dict[str, Any] = {
    "name": "school",
    "hosts": [{"name": "server", "block_internet": True}, {"name": "desk"}, {"name": "vault"}, {"name": "home"}],
    "routers": [{"name": "office-router"}, {"name": "home-router"}],
    "networks": [
        {"name": "office", "cidr": "10.10.20.0/24"},
        {"name": "store", "cidr": "10.10.40.0/24", "accessible_by_user": False},
        {"name": "homes", "cidr": "10.10.30.0/24"},
        {"name": "six", "cidr": "fd00:5::/64"},
    ],
    "net_mappings": [
        {"host": "server", "network": "office", "ip": "10.10.20.5"},
        {"host": "desk", "network": "office", "ip": "10.10.20.6"},
        {"host": "desk", "network": "six", "ip": "fd00:5::1"},
        {"host": "vault", "network": "store", "ip": "10.10.40.5"},
        {"host": "home", "network": "homes", "ip": "10.10.30.5"},
        {"host": "home", "network": "six", "ip": "fd00:5::2"},
    ],
    "router_mappings": [
        {"router": "office-router", "network": "office", "ip": "10.10.20.1"},
        {"router": "office-router", "network": "store", "ip": "10.10.40.1"},
        {"router": "home-router", "network": "homes", "ip": "10.10.30.254"},
    ],
}
ADDRESSES = {"server": "10.10.20.5", "desk": "10.10.20.6", "vault": "10.10.40.5", "home": "10.10.30.5"}
WHERE = {"server": "n1", "desk": "n2", "vault": "n1", "home": "n3"}
SHAPED = [{"host": "desk", "network": "office", "rate": "10mbit"}]


def documents(topology: dict[str, Any] = TOPOLOGY, where: dict[str, str] = WHERE, **spec: Any) -> dict[str, Document]:
    placement = {"hosts": {**where, "office-router": "n1"}}
    value = sandbox(topology, name="school", **{"run": True, "placement": placement, "links": SHAPED, **spec})
    return plan_documents(value, NODES).documents


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["; rm", "-x", "a b", "../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


class Rack:
    """A Sandbox on hosts."""

    def __init__(self, hosts: dict[str, BareHost]) -> None:
        self.hosts = hosts

    def apply(self, wanted: dict[str, Document]) -> dict[str, list[str]]:
        """Turn all hosts into their documents; return the steps of each."""
        found = {}
        for name, host in self.hosts.items():
            steps, result = host.apply("apply", OWNER, wanted[name]) if name in wanted else host.apply("remove", OWNER)
            assert result["result"] == "done", result
            assert result["changes"] == len(steps)
            found[name] = steps
        return found

    def pings(self, host: str, address: str, *options: str, where: dict[str, str] = WHERE) -> bool:
        return self.hosts[where[host]].pings(f"school-{host}", address, *options)

    def reaches(self, host: str, address: str, where: dict[str, str] = WHERE) -> None:
        wait_until(lambda: self.pings(host, address, where=where), what=f"{address} to answer to {host}", timeout=60)

    def snapshot(self) -> dict[str, Any]:
        return {name: host.snapshot() for name, host in self.hosts.items()}


@contextmanager
def racks() -> Iterator[Rack]:
    with bare_hosts(NAMES) as hosts:
        yield Rack(hosts)


@pytest.fixture(scope="module")
def school() -> Iterator[Rack]:
    """A Sandbox that is deployed."""
    with racks() as made:
        made.apply(documents())
        yield made


@pytest.fixture
def rack() -> Iterator[Rack]:
    """Hosts on which nothing is deployed."""
    with racks() as made:
        yield made


@pytest.mark.root
def test_hosts_reach_each_other_as_declared(school: Rack) -> None:
    pairs = [(host, peer) for host in ADDRESSES for peer in ADDRESSES if host != peer]
    for host, peer in pairs:
        if {host, peer} != {"home", "vault"}:
            school.reaches(host, ADDRESSES[peer])
    school.reaches("desk", "fd00:5::2")
    # Nothing enters `store` through man: neither what home sends, nor answers to vault.
    assert not school.pings("home", ADDRESSES["vault"])
    assert not school.pings("vault", ADDRESSES["home"])


@pytest.mark.root
def test_each_router_on_the_way_is_a_hop(school: Rack) -> None:
    hops = []
    for limit in range(1, 5):
        argv = ("ping", "-n", "-c1", "-W2", "-t", str(limit), ADDRESSES["server"])
        text = school.hosts["n3"].run(*argv, netns="school-home", check=False)
        found = re.search(r"from ([0-9.]+)", text, re.IGNORECASE)
        hops.append(found[1] if found else "")
    assert hops == ["10.10.30.254", "100.100.100.1", "100.100.100.2", "10.10.20.5"]


@pytest.mark.root
def test_a_second_run_and_a_dry_run_change_nothing(school: Rack) -> None:
    before = school.snapshot()
    wanted = documents()
    for name, host in school.hosts.items():
        for verb in ("plan", "apply", "plan"):
            assert host.apply(verb, OWNER, wanted[name]) == (
                [],
                {"result": "done", "changes": 0, "error": "", "problems": []},
            )
    assert school.snapshot() == before


@pytest.mark.root
def test_dhcp_serves_a_real_client(school: Rack, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\n[ "$1" = bound ] && echo "$ip/$mask $router" >"$LEASE"\nexit 0\n')
    script.chmod(0o755)
    lease = tmp_path / "lease"
    argv = ["env", f"LEASE={lease}", "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "10", "-T", "1", "-s", str(script)]
    school.hosts["n2"].run(*argv, netns="school-desk")
    assert lease.read_text() == "10.10.20.6/24 10.10.20.1\n"


@pytest.mark.root
def test_a_host_without_internet_reaches_the_sandbox_only(school: Rack) -> None:
    man = school.hosts[next(name for name, one in documents().items() if "school-man" in json.dumps(one["namespaces"]))]
    man.run("ip", "addr", "add", "203.0.113.9/32", "dev", "lo", netns="school-man")
    school.reaches("desk", "203.0.113.9")
    assert not school.pings("server", "203.0.113.9")
    school.reaches("server", ADDRESSES["home"])
    man.run("ip", "addr", "del", "203.0.113.9/32", "dev", "lo", netns="school-man")


@pytest.mark.root
@pytest.mark.parametrize(("client", "server"), [("desk", "server"), ("server", "desk")])
def test_a_shaped_link_has_its_rate_in_both_directions(school: Rack, client: str, server: str) -> None:
    here, there = school.hosts[WHERE[client]], school.hosts[WHERE[server]]
    argv = there.argv("iperf3", "--server", netns=f"school-{server}")
    listener = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_used() -> bool:
        argv = ["iperf3", "--client", ADDRESSES[server], "--json", "--time", "3", "--omit", "1"]
        report = json.loads(here.run(*argv, netns=f"school-{client}"))
        rate = report["end"]["sum_received"]["bits_per_second"]
        assert rate < 11.5e6
        return bool(rate > 8.5e6)

    try:
        wait_until(lambda: "5201" in there.run("ss", "-Hltn", netns=f"school-{server}"), what="iperf3 to listen")
        # On a busy machine a sender may not use all that it gets.
        wait_until(is_used, what="10 Mbit/s")
    finally:
        listener.kill()
        listener.wait()


@pytest.mark.root
def test_deliberate_faults_cut_links_and_part_hosts_until_they_are_removed(school: Rack) -> None:
    school.reaches("home", ADDRESSES["server"])
    down = {"name": "down", "linkDown": {"host": "home", "network": "homes"}}
    cut = {"name": "cut", "partition": {"members": ["desk"], "from": ["server", "homes"]}}
    wanted = documents(faults=[down, cut])
    steps = school.apply(wanted)
    assert "m-home-homes down, MTU 1450" in steps["n3"]
    assert set(map(tuple, school.apply(wanted).values())) == {()}
    for host, peer in (("home", "server"), ("desk", "server"), ("server", "desk")):
        assert not school.pings(host, ADDRESSES[peer])
    # The same hosts by networks that no fault is about.
    school.reaches("desk", "fd00:5::2")
    school.reaches("desk", ADDRESSES["vault"])
    school.hosts["n2"].run("nft", "delete", "table", "netdev", "netloom", netns="school-n2-fabric")
    assert school.apply(wanted)["n2"] == ["partitions of school-n2-fabric set"]
    assert not school.pings("desk", ADDRESSES["server"])
    school.apply(documents())
    for host, peer in (("home", "server"), ("desk", "server"), ("server", "desk")):
        school.reaches(host, ADDRESSES[peer])
    assert "netdev" not in school.hosts["n2"].run("nft", "list", "ruleset", netns="school-n2-fabric")
    assert set(map(tuple, school.apply(documents()).values())) == {()}


@pytest.mark.root
def test_a_mac_that_is_given_is_set_and_known_to_the_other_hosts(school: Rack) -> None:
    mac = "02:00:00:aa:bb:01"
    school.apply(documents(macs=[{"host": "desk", "network": "office", "mac": mac}]))
    assert mac in school.hosts["n2"].run("ip", "link", "show", "eth0", netns="school-desk")
    assert f"{mac} dev x-office dst 192.0.2.2" in school.hosts["n1"].run("bridge", "fdb", netns="school-n1-fabric")
    school.apply(documents())
    assert f"{mac} dev x-office dst" not in school.hosts["n1"].run("bridge", "fdb", netns="school-n1-fabric")


@pytest.mark.root
def test_what_others_break_is_repaired(school: Rack) -> None:
    one, two = school.hosts["n1"], school.hosts["n2"]
    two.run("ip", "-n", "school-desk", "addr", "flush", "dev", "eth0")
    two.run("ip", "-n", "school-n2-fabric", "link", "del", "x-office")
    two.run("tc", "-n", "school-n2-fabric", "qdisc", "del", "dev", "m-desk-office", "root")
    one.run("nft", "flush", "chain", "inet", "netloom", "forward", netns="school-office-router")
    one.run("sysctl", "-q", "net.ipv4.ip_forward=0", netns="school-office-router")
    one.run("ip", "netns", "del", "school-vault")
    steps = school.apply(documents())
    assert steps["n3"] == []
    assert "filter of school-office-router set" in steps["n1"]
    assert "tunnel x-office created" in steps["n2"]
    for peer in ("desk", "vault", "home"):
        school.reaches("server", ADDRESSES[peer])
    assert set(map(tuple, school.apply(documents()).values())) == {()}


@pytest.mark.root
def test_a_dhcp_server_that_died_is_started_again(school: Rack) -> None:
    host = school.hosts["n3"]
    lines = [json.loads(line) for line in host.run("python3", "-I", str(APPLIER), "show", OWNER).splitlines()]
    (pid,) = lines[0]["show"]["dhcp"].values()
    host.run("kill", "-9", str(pid))
    assert school.apply(documents())["n3"] == ["DHCP server school-homes-dhcp started"]
    processes = host.snapshot()["processes"]
    host.run("ip", "netns", "del", "school-homes-dhcp")
    assert "DHCP server school-homes-dhcp stopped" in school.apply(documents())["n3"]
    assert host.snapshot()["processes"] == processes


@pytest.mark.root
def test_an_edit_touches_only_what_differs(rack: Rack) -> None:
    rack.apply(documents())
    rack.reaches("home", ADDRESSES["server"])
    moved = {**WHERE, "desk": "n3"}
    steps = rack.apply(documents(where=moved, links=[]))
    assert all("school-server" not in step and "school-home " not in step for step in steps["n1"])
    assert not rack.hosts["n2"].pings("school-desk", ADDRESSES["server"])
    for peer in ("server", "vault", "home"):
        rack.reaches("desk", ADDRESSES[peer], where=moved)
    # Another address, and a network less.
    topology = deepcopy(TOPOLOGY)
    topology["net_mappings"][0]["ip"] = "10.10.20.77"
    topology["networks"].pop()
    topology["net_mappings"] = [one for one in topology["net_mappings"] if one["network"] != "six"]
    rack.apply(documents(topology, moved, links=[]))
    rack.reaches("home", "10.10.20.77")
    assert not rack.pings("home", "10.10.20.5")
    assert "fd00:5::" not in rack.hosts["n3"].run("ip", "-n", "school-home", "addr")
    assert set(map(tuple, rack.apply(documents(topology, moved, links=[])).values())) == {()}


@pytest.mark.root
@pytest.mark.parametrize("where", [WHERE, {**WHERE, "desk": "n3"}], ids=["two hosts", "one host"])
def test_frames_are_copied_to_the_destination(rack: Rack, where: dict[str, str]) -> None:
    topology = deepcopy(TOPOLOGY)
    topology["network_forwarding"] = {
        "sources": [{"host": "desk", "network": "office"}],
        "destination": {"host": "home", "network": "six"},
    }
    wanted = documents(topology, where)
    rack.apply(wanted)
    assert set(map(tuple, rack.apply(wanted).values())) == {()}
    rack.reaches("desk", ADDRESSES["server"], where=where)
    home = rack.hosts[where["home"]]
    argv = ["tcpdump", "-n", "-U", "-l", "-c", "4", "-i", "eth1", "icmp", "and", "host", ADDRESSES["server"]]
    with subprocess.Popen(
        home.argv(*argv, netns="school-home"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as seen:
        assert seen.stderr is not None
        assert seen.stdout is not None
        while b"listening on" not in seen.stderr.readline():
            assert seen.poll() is None
        for _ in range(2):
            assert rack.pings("desk", ADDRESSES["server"], where=where)
        text = seen.stdout.read().decode()
    assert text.count("echo request") == text.count("echo reply") == 2
    rack.apply(documents(where=where))
    for name, host in rack.hosts.items():
        assert "clsact" not in host.run("tc", "-n", f"school-{name}-fabric", "qdisc", "show", check=False)


@pytest.mark.root
def test_a_machine_between_a_closed_network_and_another_answers_to_nobody_through_man(rack: Rack) -> None:
    topology = deepcopy(TOPOLOGY)
    topology["net_mappings"].append({"host": "home", "network": "store", "ip": "10.10.40.9"})
    wanted = documents(topology)
    rack.apply(wanted)
    rack.reaches("vault", "10.10.40.9")
    # It would answer by its own link to the store.
    assert not rack.pings("vault", ADDRESSES["home"])
    rack.reaches("vault", ADDRESSES["server"])


@pytest.mark.root
def test_removal_leaves_the_hosts_as_they_were(rack: Rack) -> None:
    before = rack.snapshot()
    rack.apply(documents())
    rack.reaches("home", ADDRESSES["server"])
    assert rack.snapshot() != before
    rack.apply({})
    assert rack.snapshot() == before
    assert rack.hosts["n1"].apply("remove", OWNER)[1]["changes"] == 0


@pytest.mark.root
@pytest.mark.parametrize("first", ["school", "twin"])
def test_of_two_sandboxes_the_last_that_goes_leaves_the_host_as_it_was(first: str) -> None:
    one = documents(where=dict.fromkeys(WHERE, "n1"), placement={"default": "n1"})["n1"]
    twin = plan_documents(sandbox(TOPOLOGY, name="twin", run=True, placement={"default": "n1"}), NODES)
    owners = {"school": (OWNER, one), "twin": (twin.owner, twin.documents["n1"])}
    second = next(name for name in owners if name != first)
    with bare_hosts(["n1"]) as hosts:
        host = hosts["n1"]
        before = host.snapshot()
        for owner, document in owners.values():
            assert host.apply("apply", owner, document)[1]["result"] == "done"
        for name in (first, second):
            assert host.apply("remove", owners[name][0])[1]["result"] == "done"
        assert host.snapshot() == before


@pytest.mark.root
def test_a_host_tells_the_vnis_of_other_owners_and_its_mtus(school: Rack) -> None:
    host = school.hosts["n1"]
    tunnels = documents()["n1"]["tunnels"]
    for owner, taken in ((OWNER, []), ("ns1.other", sorted(one["vni"] for one in tunnels))):
        first, _ = map(json.loads, host.run("python3", "-I", str(APPLIER), "show", owner).splitlines())
        assert first["show"]["taken"] == taken
        assert first["show"]["mtus"][host.ip] == 1500
        assert "127.0.0.1" not in first["show"]["mtus"]


# Runs the program, and kills it before it executes its nth line; with 0 it prints how many it executes.
KILLER = """
import os, signal, sys
path, kill_at, executed = sys.argv[1], int(sys.argv[2]), 0

def trace(frame, event, argument):
    global executed
    if frame.f_code.co_filename != path:
        return None
    executed += event == "line"
    if event == "line" and executed == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return trace

with open(path) as file:
    program = compile(file.read(), path, "exec")
sys.argv[:3] = [path]
sys.settrace(trace)
try:
    exec(program, {"__name__": "__main__"})
finally:
    sys.settrace(None)
    print(executed, file=sys.stderr)
"""


def killed(host: BareHost, verb: str, document: Document, line: int) -> int:
    """Run the program, and kill it before one of its lines; return how many it executed, if it was not."""
    argv = host.argv("python3", "-I", "-c", KILLER, str(APPLIER), str(line), verb, OWNER)
    done = subprocess.run(argv, input=json.dumps(document), capture_output=True, text=True, check=False, timeout=300)
    return int(done.stderr or 0)


@pytest.mark.root
def test_a_server_that_is_ending_is_not_taken_for_one_that_runs(rack: Rack) -> None:
    rack.apply(documents())
    host = rack.hosts["n1"]
    path, *_ = sorted(host.run("find", "/run/netloom/linux", "-name", "*.conf").split())
    host.run("rm", path)  # As a run that was killed after it had begun to stop the server.
    steps = rack.apply(documents())["n1"]
    assert [step.split()[-1] for step in steps] == ["stopped", "started"]
    assert set(map(tuple, rack.apply(documents()).values())) == {()}


@pytest.mark.root
@pytest.mark.slow
def test_after_kills_at_any_line_it_converges(rack: Rack) -> None:
    before = rack.snapshot()
    moved = {**WHERE, "vault": "n2", "home": "n1"}
    one, other = documents(), documents(where=moved, links=[])
    # What comes before the first change needs no kills.
    first = killed(rack.hosts["n1"], "plan", one["n1"], 0) // 4
    every = killed(rack.hosts["n1"], "apply", one["n1"], 0)
    assert every > first > 0
    chance = random.Random(14)
    deaths = 0
    for number in range(KILLS):
        host = rack.hosts[chance.choice(NAMES)]
        verb = chance.choice(("apply", "apply", "remove"))
        document = chance.choice((one, other)).get(host.name)
        deaths += killed(host, verb if document else "remove", document or {}, chance.randrange(first, every)) == 0
        if number % 4 == 3:
            wanted, where = (one, WHERE) if number % 8 == 3 else (other, moved)
            rack.apply(wanted)
            assert set(map(tuple, rack.apply(wanted).values())) == {()}
            for peer in ("desk", "vault", "home"):
                rack.reaches("server", ADDRESSES[peer], where=where)
    assert deaths > KILLS // 4
    for host in rack.hosts.values():
        killed(host, "remove", {}, chance.randrange(every // 4))
    rack.apply({})
    assert rack.snapshot() == before


@pytest.mark.root
def test_what_a_killed_run_has_made_is_removed_by_a_run_for_another_document(rack: Rack) -> None:
    host, wanted = rack.hosts["n2"], documents(links=[])["n2"]
    more = deepcopy(documents()["n2"])
    member = next(one for one in more["members"] if one["interface"] == "eth0")
    member["addresses"].append("10.99.0.1/24")
    more["routes"].append({"namespace": "school-desk", "to": "10.98.0.0/24", "via": "10.99.0.2", "metric": 100})
    host.apply("apply", OWNER, wanted)
    every = killed(host, "apply", more, 0)
    host.apply("apply", OWNER, wanted)
    before = [host.run(*line.split()) for line in INTERIOR]
    # Before it records the end.
    assert killed(host, "apply", more, every - 15) == 0
    during = [host.run(*line.split()) for line in INTERIOR]
    assert all(one != other for one, other in zip(before, during, strict=True))
    killed(host, "apply", documents(run=False, links=[])["n2"], every // 3)
    host.apply("apply", OWNER, wanted)
    assert [host.run(*line.split()) for line in INTERIOR] == before


INTERIOR = (
    "ip -n school-desk -br addr show dev eth0",
    "ip -n school-desk route show",
    "tc -n school-desk qdisc show dev eth0",
)


@pytest.mark.root
def test_what_fails_half_way_is_rolled_back(rack: Rack) -> None:
    host, wanted = rack.hosts["n1"], documents()["n1"]
    vni = wanted["tunnels"][0]["vni"]
    host.run(*f"ip link add rival type vxlan id {vni} dstport {wanted['port']} local {host.ip}".split())
    before = host.snapshot()
    _, result = host.apply("apply", OWNER, wanted)
    assert result["result"] == "failed"
    assert "tunnel x-homes created" in result["error"] or "tunnel" in result["error"]
    assert result["error"].endswith("; rolled back")
    assert host.snapshot() == before
    less = {**wanted, "tunnels": []}
    assert host.apply("apply", OWNER, less)[1]["result"] == "done"
    assert host.apply("apply", OWNER, wanted)[1]["result"] == "failed"
    assert host.apply("apply", OWNER, less) == ([], {"result": "done", "changes": 0, "error": "", "problems": []})


@pytest.mark.root
def test_hosts_may_reach_each_other_over_ipv6(rack: Rack) -> None:
    nodes = {name: f"2001:db8::{number}" for number, name in enumerate(NAMES, 1)}
    for name, host in rack.hosts.items():
        host.run("ip", "addr", "add", f"{nodes[name]}/64", "dev", "eth0", "nodad")
    value = sandbox(TOPOLOGY, name="school", run=True, placement={"hosts": WHERE})
    wanted = plan_documents(value, nodes).documents
    rack.apply(wanted)
    rack.reaches("home", ADDRESSES["server"])
    # The largest packet that the interfaces take arrives in one piece.
    assert rack.pings("home", ADDRESSES["server"], "-M", "do", "-s", str(1430 - 28))
    assert set(map(tuple, rack.apply(wanted).values())) == {()}


@pytest.mark.root
def test_runs_at_the_same_time_wait_for_each_other(rack: Rack) -> None:
    host, data = rack.hosts["n1"], json.dumps(documents()["n1"])
    running = [
        subprocess.Popen(host.applier(verb, OWNER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for verb in ("apply", "remove", "apply", "apply")
    ]
    for one in running:
        assert one.stdin is not None
        one.stdin.write(data)
        one.stdin.close()
    for one in running:
        with one:
            assert one.stdout is not None
            assert json.loads(one.stdout.read().splitlines()[-1])["result"] == "done"
    host.apply("apply", OWNER, documents()["n1"])
    assert host.apply("apply", OWNER, documents()["n1"])[1]["changes"] == 0


@pytest.mark.root
def test_copies_of_a_sandbox_on_the_same_hosts_are_isolated(rack: Rack) -> None:
    rack.apply(documents())
    spec = {"run": True, "placement": {"hosts": WHERE}}
    twin = plan_documents(sandbox(TOPOLOGY, name="twin", **spec), NODES)
    for name, host in rack.hosts.items():
        assert host.apply("apply", twin.owner, twin.documents[name])[1]["result"] == "done"
    home = rack.hosts["n3"]
    wait_until(lambda: home.pings("twin-home", ADDRESSES["server"]), what="the copy to answer", timeout=60)
    rack.reaches("home", ADDRESSES["server"])
    rack.hosts["n1"].run("ip", "-n", "twin-server", "link", "set", "eth0", "down")
    rack.reaches("home", ADDRESSES["server"])
    assert not home.pings("twin-home", ADDRESSES["server"])
    for host in rack.hosts.values():
        assert host.apply("remove", twin.owner)[1]["result"] == "done"
    assert set(map(tuple, rack.apply(documents()).values())) == {()}
    rack.reaches("home", ADDRESSES["server"])


@pytest.mark.root
def test_a_namespace_of_somebody_else_is_not_touched(rack: Rack) -> None:
    host = rack.hosts["n1"]
    host.run("ip", "netns", "add", "school-server")
    before = host.snapshot()
    _, result = host.apply("apply", OWNER, documents()["n1"])
    text = "namespace school-server exists and is not of this owner: remove it, or choose another name; rolled back"
    assert result["error"] == text
    host.apply("remove", OWNER)
    assert host.snapshot() == before


@pytest.mark.root
def test_without_run_an_interface_waits_for_its_namespace(rack: Rack) -> None:
    host, wanted = rack.hosts["n2"], documents(run=False)["n2"]
    problem = "namespace school-desk does not exist: create it, then apply again"
    assert host.apply("apply", OWNER, wanted)[1]["problems"] == [problem]
    host.run("ip", "netns", "add", "school-desk")
    before = host.run("ip", "-n", "school-desk", "-j", "addr")
    assert host.apply("apply", OWNER, wanted)[1]["problems"] == []
    assert "10.10.20.6/24" in host.run("ip", "-n", "school-desk", "addr")
    host.apply("remove", OWNER)
    assert host.run("ip", "-n", "school-desk", "-j", "addr") == before


@pytest.mark.root
def test_missing_tools_are_named_with_their_packages(rack: Rack) -> None:
    host = rack.hosts["n1"]
    host.run("mkdir", "/run/mount")  # As mount does.
    before = host.snapshot()
    for tool in ("nft", "dnsmasq"):
        host.run("mount", "--bind", "/dev/null", f"/usr/sbin/{tool}")
    _, result = host.apply("apply", OWNER, documents()["n1"])
    assert result["error"] == ("this host lacks dnsmasq, nft: run apt-get install dnsmasq-base nftables; rolled back")
    for tool in ("nft", "dnsmasq"):
        host.run("umount", f"/usr/sbin/{tool}")
    assert host.snapshot() == before


@pytest.mark.root
def test_delay_and_loss_are_applied_or_the_reason_is_said(rack: Rack) -> None:
    links = [{"host": "desk", "network": "office", "delay": "20ms", "loss": "1%", "rate": "10mbit"}]
    host = rack.hosts["n2"]
    argv = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    has_netem = subprocess.run(argv, capture_output=True, check=False).returncode == 0
    wanted = documents(links=links)["n2"]
    for _ in range(2):
        _, result = host.apply("apply", OWNER, wanted)
        assert result["result"] == "done"
        assert bool(result["problems"]) is not has_netem
    assert result["changes"] == 0
    queues = host.run("tc", "-n", "school-desk", "qdisc", "show", "dev", "eth0")
    assert "tbf" in queues
    assert ("netem" in queues) is has_netem


@pytest.mark.root
def test_pings_from_many_namespaces_say_who_answers(school: Rack) -> None:
    school.reaches("desk", "fd00:5::2")
    pairs = [
        ["school-desk", "fd00:5::2"], ["school-desk", "10.10.20.5"], ["school-desk", "10.10.20.99"],
        ["school-gone", "10.10.20.5"], ["school-desk", "10.10.30.5"],
    ]  # fmt: skip
    school.reaches("desk", ADDRESSES["home"])
    host, data = school.hosts["n2"], json.dumps({"pairs": pairs, "rounds": 2})
    text = host.run("python3", "-I", str(Path(prober.__file__)), "ping", OWNER, text=data)
    problem, shown, result = map(json.loads, text.splitlines())
    assert problem == {"problem": "namespace school-gone does not exist: nothing is probed from there"}
    assert shown == {"show": {"document": "c8"}}, "the first, the second and the last"
    assert result["result"] == "done"


@given(st.binary(max_size=100) | st.builds(lambda value: json.dumps(value).encode(), JSON))
def test_what_is_not_a_list_of_pairs_is_not_probed(data: bytes) -> None:
    with pytest.raises(prober.Failure):
        prober.parse(data)


@given(st.text(max_size=20), st.text(max_size=20))
def test_only_names_and_addresses_are_probed(space: str, address: str) -> None:
    try:
        ((name, ip),), _ = prober.parse(json.dumps({"pairs": [[space, address]], "rounds": 1}).encode())
    except prober.Failure:
        return
    assert "/" not in name
    assert str(ipaddress.ip_address(ip))


def test_netem_holds_as_many_packets_as_the_one_of_agents() -> None:
    shape = {"rate": 0, "burst": 0, "delay": 20000, "jitter": 0, "loss": 0.5}
    assert applier.NETEM_LIMIT == codec.NETEM_LIMIT
    (line,) = applier._queue(shape, "eth0", netem=True)
    assert " netem limit 10000 delay 20000us " in line


def test_the_program_is_of_python_39_and_imports_nothing_of_others() -> None:
    tree = ast.parse(APPLIER.read_text(), feature_version=(3, 9))
    modules = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    modules |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "netloom" not in modules
    assert "msgspec" not in modules


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the ways to all parts of a JSON value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*at, key))


GOOD = documents()["n1"]
PATHS = list(paths(GOOD))


@given(st.sampled_from(PATHS[1:]), JSON)
def test_a_document_is_taken_as_it_is_or_refused_with_its_field(path: tuple[Any, ...], value: Any) -> None:
    document = deepcopy(GOOD)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    data, refusal = json.dumps(document).encode(), ""
    try:
        taken = applier.parse(data)
    except applier.Failure as failure:
        refusal = str(failure)
    assert refusal.startswith("document") if refusal else taken == json.loads(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    with pytest.raises(applier.Failure):
        applier.parse(data)
