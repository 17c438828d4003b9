"""`netloom sandbox apply --over-ssh`: hosts with a real sshd, without Netloom and without an API server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.drivers.linux import applier
from tests.support.process import Program, wait_until
from tests.support.ssh_hosts import SshHosts, differences, programs, ssh_hosts, wait_until_quiet

pytestmark = pytest.mark.root

COUNT = 8
TOPOLOGY: dict[str, Any] = {
    "name": "range",
    "hosts": [{"name": f"pc{number}"} for number in range(1, COUNT + 1)],
    "routers": [{"name": "left-router"}, {"name": "right-router"}],
    "networks": [{"name": "left", "cidr": "10.1.0.0/24"}, {"name": "right", "cidr": "10.2.0.0/24"}],
    "net_mappings": [
        {
            "host": f"pc{number}",
            "network": "left" if number % 2 else "right",
            "ip": f"10.{2 - number % 2}.0.{10 + number}",
        }
        for number in range(1, COUNT + 1)
    ],
    "router_mappings": [
        {"router": "left-router", "network": "left", "ip": "10.1.0.1"},
        {"router": "right-router", "network": "right", "ip": "10.2.0.1"},
    ],
}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(COUNT, tmp_path_factory.mktemp("ssh")) as hosts:
        (hosts.folder / "range.yml").write_text(json.dumps(TOPOLOGY))
        yield hosts


BEHIND = "".join(f"Host range-pc{number}\n  ProxyJump h{number}\n" for number in range(1, COUNT + 1))
"""Machine N is behind the host N: that is where it is placed."""


@pytest.fixture
def resting(eight: SshHosts) -> SshHosts:
    """All hosts, for tests that deploy nothing."""
    eight.write(extra=BEHIND)
    return eight


@pytest.fixture
def hosts(eight: SshHosts) -> Iterator[SshHosts]:
    """All hosts; whatever a test deploys is removed, and must leave no trace."""
    eight.write(extra=BEHIND)
    before = {name: host.traces() for name, host in eight.hosts.items()}
    yield eight
    eight.write(extra=BEHIND)
    for host in eight.hosts.values():
        wait_until_quiet(host)
    ended = sandbox(eight, "destroy")
    assert ended.returncode == 0, ended.stderr
    for name, host in eight.hosts.items():
        assert differences(before[name], host.traces()) == [], name


def arguments(hosts: SshHosts, verb: str, *more: str) -> list[str]:
    run = ["--run"] if verb == "apply" else []
    return [
        "sandbox",
        verb,
        str(hosts.folder / "range.yml"),
        "--over-ssh",
        "--ssh-config",
        str(hosts.config),
        *run,
        *more,
    ]


def sandbox(hosts: SshHosts, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    return hosts.netloom(*arguments(hosts, verb, *more))


def pings(hosts: SshHosts, number: int, address: str) -> bool:
    command = f"ip netns exec range-pc{number} ping -c 1 -W 1 {address} >/dev/null && echo yes || true"
    return hosts[f"h{number}"].run("sh", "-c", command) == "yes\n"


def wait_until_all_reach(hosts: SshHosts) -> None:
    addresses = [one["ip"] for one in TOPOLOGY["net_mappings"]]
    for number in range(1, COUNT + 1):
        for address in addresses:
            wait_until(lambda n=number, a=address: pings(hosts, n, a), what=f"pc{number} to reach {address}")  # type: ignore[misc]


def test_eight_hosts_become_a_sandbox_whose_machines_reach_each_other(hosts: SshHosts) -> None:
    dry = sandbox(hosts, "apply", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "h1: namespace range-pc1 created (dry run)" in dry.stdout
    assert "range-pc1" not in hosts["h1"].run("sh", "-c", "ls /run/netns 2>&1 || true")
    ended = sandbox(hosts, "apply")
    assert ended.returncode == 0, ended.stderr
    lines = sorted(ended.stdout.splitlines())
    assert [line.partition(":")[0] for line in lines] == [f"h{number}" for number in range(1, COUNT + 1)]
    assert all(line.endswith(" changes") for line in lines)
    assert "h1: namespace range-pc1 created" in ended.stderr
    wait_until_all_reach(hosts)
    verified = hosts.netloom(*arguments(hosts, "verify", "-o", "json"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    report = json.loads(verified.stdout)
    assert report["probes"]["reached"] == COUNT * (COUNT - 1)
    assert report["live"]["reached"] == report["plan"]["reached"]
    assert report["probes"]["elsewhere"] == []
    words = ["--over-ssh", "--ssh-config", str(hosts.config), "-f", str(hosts.folder / "range.yml")]
    shown = hosts.netloom("sandbox", "exec", *words, "pc3", "--", "sh", "-c", "ip -br address show eth0; exit 7")
    assert (shown.returncode, "10.1.0.13/24" in shown.stdout) == (7, True), shown.stderr
    assert "no host pc9" in hosts.netloom("sandbox", "exec", *words, "pc9").stderr
    again = sandbox(hosts, "apply", "--rollback")
    assert sorted(again.stdout.splitlines()) == [f"h{number}: unchanged" for number in range(1, COUNT + 1)]
    removal = sandbox(hosts, "destroy", "--dry-run")
    assert "h1: namespace range-pc1 removed (dry run)" in removal.stdout
    assert pings(hosts, 1, "10.1.0.1")


def test_a_host_with_another_key_fails_alone_and_by_name(hosts: SshHosts) -> None:
    lines = hosts.known.read_text().splitlines(keepends=True)
    hosts.known.write_text("".join(line for line in lines if not line.startswith("10.99.0.3 ")))
    ended = sandbox(hosts, "apply")
    assert ended.returncode == 1
    failed = [line for line in ended.stderr.splitlines() if "failed" in line]
    assert len(failed) == 1
    assert failed[0].startswith("h3: failed: its host key is not the known one, or none is known")
    assert len(ended.stdout.splitlines()) == COUNT - 1
    assert pings(hosts, 1, "10.1.0.15")


def test_with_rollback_nothing_stays_if_one_host_fails(hosts: SshHosts) -> None:
    # A namespace of somebody else has the name of one of ours.
    hosts["h5"].run("ip", "netns", "add", "range-pc5")
    ended = sandbox(hosts, "apply", "--rollback")
    hosts["h5"].run("ip", "netns", "del", "range-pc5")
    hosts["h5"].run("umount", "-n", "/run/netns")
    hosts["h5"].run("rmdir", "/run/netns")
    assert ended.returncode == 1
    assert "h5: failed: namespace range-pc5 exists" in ended.stderr
    assert "h1: failed: undone, because h5 failed" in ended.stderr
    assert "range-pc1" not in hosts["h1"].run("sh", "-c", "ls /run/netns 2>&1 || true")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_half_way_is_completed_by_the_next(hosts: SshHosts, tmp_path: Path, number: int) -> None:
    for attempt in range(4):
        env = {**os.environ, "HOME": str(tmp_path)}
        with Program(hosts.command(*arguments(hosts, "apply")), log=tmp_path / f"log{attempt}", env=env) as running:
            # The steps are printed while they happen: end the run at another one each time.
            wait_until(
                lambda: running.output().count(" created") > 10 * attempt or running.returncode is not None,  # noqa: B023
                what="some steps",
            )
            if running.returncode is None:
                os.kill(running.pid, number)
                assert running.wait() == (130 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGKILL and attempt == 0:
            for host in hosts.hosts.values():
                for pid in programs(host):
                    host.run("kill", "-9", str(pid), check=False)
    ended = sandbox(hosts, "apply")
    assert ended.returncode == 0, ended.stderr
    wait_until_all_reach(hosts)


def test_machines_are_spread_over_the_hosts_that_are_chosen(hosts: SshHosts) -> None:
    hosts.write(extra="Host h[12]*\n  Compression no\nHost *\n  Compression no\n")
    ended = sandbox(hosts, "apply", "--node", "h1", "--node", "h2=10.99.0.2", "--parallel", "1")
    assert ended.returncode == 0, ended.stderr
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == ["h1", "h2"]
    spaces = [set(hosts[name].run("ls", "/run/netns").split()) for name in ("h1", "h2")]
    assert [len([space for space in one if "-pc" in space]) for one in spaces] == [4, 4]


def test_a_part_that_moved_to_another_host_is_removed_from_the_first(hosts: SshHosts) -> None:
    hosts.write()
    assert sandbox(hosts, "apply", "--node", "h1", "--node", "h2").returncode == 0
    hosts.write(extra="".join(f"Host range-pc{number}\n  ProxyJump h2\n" for number in range(1, COUNT + 1)))
    ended = sandbox(hosts, "apply", "--node", "h1", "--node", "h2")
    assert ended.returncode == 0, ended.stderr
    assert "h1: namespace range-pc1 removed" in ended.stderr
    assert "range-" not in hosts["h1"].run("sh", "-c", "ls /run/netns 2>&1 || true")


def test_what_a_file_no_longer_has_is_removed_from_hosts_that_are_not_used_any_more(hosts: SshHosts) -> None:
    assert sandbox(hosts, "apply").returncode == 0
    less = hosts.folder / "less.yml"
    kept = {"pc1", "pc2", "pc3"}
    links = [one for one in TOPOLOGY["net_mappings"] if one["host"] in kept]
    edited = {**TOPOLOGY, "hosts": [{"name": name} for name in sorted(kept)], "net_mappings": links}
    less.write_text(json.dumps(edited))
    words = ["--over-ssh", "--ssh-config", str(hosts.config)]
    dry = hosts.netloom("sandbox", "apply", str(less), "--run", *words, "--dry-run")
    assert "h4: namespace range-pc4 removed (dry run)" in dry.stdout, dry.stderr
    # Without the key of h5, nobody knows what it has.
    lines = hosts.known.read_text().splitlines(keepends=True)
    hosts.known.write_text("".join(line for line in lines if not line.startswith("10.99.0.5 ")))
    ended = hosts.netloom("sandbox", "apply", str(less), "--run", *words)
    assert ended.returncode == 0, ended.stderr
    assert "h5: warning: whether it has a part of the Sandbox is unknown: its host key" in ended.stderr
    assert {line.partition(":")[0] for line in ended.stdout.splitlines()} == {"h1", "h2", "h3", "h4", "h6", "h7", "h8"}
    for number in (4, 6, 7, 8):
        assert "range" not in hosts[f"h{number}"].run("sh", "-c", "ls /run/netns 2>&1 || true")
    hosts.known.write_text("".join(lines))
    ended = hosts.netloom("sandbox", "destroy", str(less), *words)
    assert ended.returncode == 0, ended.stderr
    for number in (1, 2, 3, 5):
        assert "range" not in hosts[f"h{number}"].run("sh", "-c", "ls /run/netns 2>&1 || true")


def places(hosts: SshHosts, *names: str) -> dict[str, str]:
    return {
        space: name for name in names for space in hosts[name].run("ls", "/run/netns").split() if "fabric" not in space
    }


def test_a_new_machine_moves_no_other_and_a_host_that_is_down_keeps_its_own(hosts: SshHosts) -> None:
    hosts.write()
    nodes = ["--node", "h1", "--node", "h2", "--node", "h3"]
    file = hosts.folder / "growing.yml"
    words = ["--over-ssh", "--ssh-config", str(hosts.config), *nodes]

    def apply(*names: str) -> subprocess.CompletedProcess[str]:
        links = [{"host": name, "network": "left", "ip": f"10.1.0.{ord(name[0])}"} for name in names]
        topology = {
            "name": "range",
            "hosts": [{"name": name} for name in names],
            "routers": [{"name": "left-router"}],
            "networks": TOPOLOGY["networks"][:1],
            "net_mappings": links,
            "router_mappings": TOPOLOGY["router_mappings"][:1],
        }
        file.write_text(json.dumps(topology))
        return hosts.netloom("sandbox", "apply", str(file), "--run", *words)

    assert apply("b", "c", "d").returncode == 0
    before = places(hosts, "h1", "h2", "h3")
    ended = apply("a", "b", "c", "d")
    assert ended.returncode == 0, ended.stderr
    after = places(hosts, "h1", "h2", "h3")
    assert {space: after.get(space) for space in before} == before
    assert set(after) - set(before) == {"range-a"}
    # The documents of the others know what is behind a host that does not answer.
    hosts["h3"].stop()
    ended = apply("a", "b", "c", "d", "e")
    hosts["h3"].start()
    assert ended.returncode == 1
    assert "h3: failed: cannot connect" in ended.stderr
    there = places(hosts, "h1", "h2")
    assert {space: there.get(space) for space in before if before[space] != "h3"} == {
        space: name for space, name in before.items() if name != "h3"
    }
    assert not {space for space in before if before[space] == "h3"} & set(there)


def test_a_host_without_an_address_fails_alone_and_by_name(hosts: SshHosts) -> None:
    hosts.write(
        h2={"HostName": "nowhere.invalid"},
        extra="".join(f"Host range-pc{number}\n  ProxyJump h{1 + number % 2}\n" for number in range(1, COUNT + 1)),
    )
    ended = sandbox(hosts, "apply")
    assert ended.returncode == 1
    assert "h2: failed: " in ended.stderr
    assert "the HostName of h2, 'nowhere.invalid', has no address" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout.startswith("h1: ")
    hosts["h1"].run("ip", "netns", "exec", "range-pc2", "ping", "-c", "1", "-W", "5", "10.2.0.18")


def test_a_sandbox_with_problems_is_not_applied_at_all(resting: SshHosts) -> None:
    file = resting.folder / "way-out.yml"
    spec = {"topology": TOPOLOGY, "gateway": {"network": "out", "ips": ["198.51.100.9/24"]}}
    wanted = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": "range"}, "spec": spec}
    file.write_text(json.dumps(wanted))
    ended = resting.netloom("sandbox", "apply", str(file), "--run", "--over-ssh", "--ssh-config", str(resting.config))
    assert ended.returncode == 1
    assert "nothing is applied:\n  GatewayUnsupported: spec.gateway: " in ended.stderr
    assert "range" not in resting["h1"].run("sh", "-c", "ls /run/netns 2>&1 || true")


def test_tunnels_fit_the_least_mtu_between_the_hosts(hosts: SshHosts) -> None:
    hosts["h2"].run("ip", "link", "set", "mgmt", "mtu", "1400")
    try:
        assert sandbox(hosts, "apply").returncode == 0
    finally:
        hosts["h2"].run("ip", "link", "set", "mgmt", "mtu", "1500")
    assert "mtu 1350" in hosts["h1"].run("ip", "-n", "range-pc1", "link", "show", "eth0")


def test_an_ssh_config_is_enough_where_no_api_server_is_configured(resting: SshHosts) -> None:
    file, config = str(resting.folder / "range.yml"), str(resting.config)
    dry = resting.netloom("sandbox", "apply", file, "--run", "--ssh-config", config, "--dry-run")
    assert "h1: namespace range-pc1 created (dry run)" in dry.stdout, dry.stderr
    removal = resting.netloom("sandbox", "destroy", file, "--ssh-config", config, "--dry-run")
    assert "h1: unchanged (dry run)" in removal.stdout, removal.stderr
    # With a server, it is where hosts are placed, as --placement; a Sandbox of the backend linux is pushed.
    server = resting.folder / "kubeconfig"
    cluster = {"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "a", "context": {"cluster": "a"}}
    server.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "a"}))
    words = ("--kubeconfig", str(server), "--ssh-config", config)
    ended = resting.netloom("sandbox", "apply", file, *words)
    assert "places hosts on Nodes, as --placement does; --over-ssh deploys on its hosts" in ended.stderr
    assert "127.0.0.1:9" in ended.stderr
    assert "--ssh-config needs --over-ssh" in resting.netloom("sandbox", "destroy", file, *words).stderr
    linux = resting.folder / "linux.yml"
    spec = {"topology": TOPOLOGY, "backend": "linux"}
    wanted = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": "range"}, "spec": spec}
    linux.write_text(json.dumps(wanted))
    dry = resting.netloom("sandbox", "apply", str(linux), "--run", *words, "--dry-run")
    assert "h1: namespace range-pc1 created (dry run)" in dry.stdout, dry.stderr


def test_a_leak_that_somebody_made_on_a_host_is_found_by_packets_and_one_in_its_document_by_name(
    hosts: SshHosts,
) -> None:
    file = hosts.folder / "closed.yml"
    networks = [{**one, "accessible_by_user": False} for one in TOPOLOGY["networks"]]
    file.write_text(json.dumps({**TOPOLOGY, "networks": networks}))
    words = [str(file), "--over-ssh", "--ssh-config", str(hosts.config)]
    assert hosts.netloom("sandbox", "apply", *words, "--run").returncode == 0
    good = hosts.netloom("sandbox", "verify", *words)
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.splitlines()[1].startswith("on the hosts: 24 pairs reach as declared")
    man = next(name for name in hosts.hosts if "range-man" in hosts[name].run("ls", "/run/netns"))
    hosts[man].run("ip", "netns", "exec", "range-man", "nft", "flush", "ruleset")
    bad = hosts.netloom("sandbox", "verify", *words, "--rounds", "5")
    assert bad.returncode == 1
    assert "leak: pc1 -> pc2 10.2.0.12: it answers a ping" in bad.stdout
    # A host that has lost its part, and one that does not answer.
    hosts["h1"].run("python3", "-I", str(Path(applier.__file__)), "remove", "default.range")
    lines = hosts.known.read_text().splitlines(keepends=True)
    hosts.known.write_text("".join(line for line in lines if not line.startswith("10.99.0.3 ")))
    worse = hosts.netloom("sandbox", "verify", *words, "--no-probe")
    assert worse.returncode == 1
    assert "h3: failed: its host key" in worse.stdout
    assert "gap: pc1: pc5 10.1.0.15 is not reached: pc1 is on no host" in worse.stdout


def test_another_ssh_config_may_place_the_machines(resting: SshHosts) -> None:
    other = resting.folder / "placement"
    other.write_text("".join(f"Host pc{number}\n  ProxyJump h2\nHost h2\n" for number in range(1, COUNT + 1)))
    resting.write()
    dry = sandbox(resting, "apply", "--placement", str(other), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("h2: namespace range-pc") == COUNT
    assert "h1: namespace" not in dry.stdout


def test_options_that_do_not_fit_are_refused(resting: SshHosts) -> None:
    file = str(resting.folder / "range.yml")
    for words, expected in (
        (["apply", file, "--over-ssh"], "--over-ssh needs --ssh-config"),
        (["apply", file, "--dry-run"], "--dry-run needs --over-ssh"),
        (["apply", file, "--rollback"], "--rollback needs --over-ssh"),
        (["destroy", file, "--node", "h1"], "--node needs --over-ssh"),
        ([*arguments(resting, "apply", "--node", "h77")[1:]], "it has no Host h77"),
        ([*arguments(resting, "apply", "--node", "=1")[1:]], "is not NAME or NAME=ADDRESS"),
        (["apply", file, "--over-ssh", "--ssh-config", "/dev/null"], ""),
    ):
        ended = resting.netloom("sandbox", *words)
        assert ended.returncode in (1, 2)
        assert expected in ended.stderr


def test_without_the_library_the_command_names_what_installs_it(resting: SshHosts) -> None:
    words = arguments(resting, "apply")
    script = f"import sys; sys.modules['asyncssh'] = None; from netloom.cli.main import run; sys.exit(run({words!r}))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "SSH needs asyncssh: install netloom[ssh]" in ended.stderr
