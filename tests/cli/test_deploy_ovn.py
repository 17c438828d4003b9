"""`netloom sandbox deploy-ovn` on hosts with a real sshd, Open vSwitch and OVN, over TLS."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from netloom.drivers.remote import ovn
from tests.support.ovn import run
from tests.support.process import Program, wait_until
from tests.support.ssh_hosts import SshHost, SshHosts, programs, ssh_hosts, wait_until_quiet

pytestmark = [pytest.mark.root, pytest.mark.ovn, pytest.mark.slow]

UNDERLAY = {"h2": "10.98.0.2", "h3": "10.98.0.3"}
MACHINES = {"h2": ("vm1", "10.5.0.1"), "h3": ("vm2", "10.5.0.2")}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SshHosts]:
    """A master and two network hosts; each of these has an underlay NIC, and a machine behind the bridge br0."""
    with ssh_hosts(3, tmp_path) as made:
        run("ip", "-n", made.netns, "link", "add", "under", "type", "bridge")
        run("ip", "-n", made.netns, "link", "set", "under", "up")
        for name in UNDERLAY:
            _cable(made, made[name])
            _machine(made[name], *MACHINES[name])
        yield made


def _cable(hosts: SshHosts, host: SshHost) -> None:
    far = ("peer", "name", f"under-{host.name}", "netns", hosts.netns)
    run("ip", "link", "add", "under", "netns", host.netns, "type", "veth", *far)
    run("ip", "-n", hosts.netns, "link", "set", f"under-{host.name}", "master", "under", "up")
    run("ip", "-n", host.netns, "link", "set", "under", "up")


def _machine(host: SshHost, name: str, address: str) -> None:
    commands = (
        "ip netns add vm",
        "ip link add nic type veth peer name eth0 netns vm",
        "ip link add br0 type bridge",
        "ip link set br0 up",
        "ip link set nic master br0 up",
        f"ip -n vm address add {address}/24 dev eth0",
        f"ip -n vm link set eth0 address 02:00:00:00:00:0{address[-1]} up",
    )
    assert name
    for command in commands:
        host.run(*command.split())


def arguments(hosts: SshHosts, *more: str) -> list[str]:
    nodes = [word for name, address in UNDERLAY.items() for word in ("--node", f"{name}={address}")]
    return [
        "sandbox", "deploy-ovn", "--ssh-config", str(hosts.config), "--master", "h1", "--data", f"{hosts.folder}/pki",
        *nodes, "--datapath", "netdev", *more,
    ]  # fmt: skip


def deploy(hosts: SshHosts, *more: str) -> CompletedProcess[str]:
    return hosts.netloom(*arguments(hosts, *more))


def kill_after(hosts: SshHosts, steps: int, *more: str) -> None:
    """Kill the command, and the programs on the hosts, when some steps are done."""
    log = hosts.folder / f"log{steps}{len(more)}"
    with Program(hosts.command(*arguments(hosts, *more)), log=log) as running:
        wait_until(lambda: len(running.output().splitlines()) >= steps or running.returncode is not None, what="steps")
        running.kill()
    for host in hosts.hosts.values():
        if steps % 2:
            for pid in programs(host):
                host.run("kill", "-9", str(pid), check=False)
        wait_until_quiet(host)


def moves(option: str) -> list[str]:
    named = [f"{host}:nic" + (f"={name}" if option == "--move-nic" else "") for host, (name, _) in MACHINES.items()]
    return [word for one in [*named, "h2:under", "h3:under"] for word in (option, one)]


def master_of(host: SshHost, nic: str) -> str:
    link = json.loads(host.run("ip", "-j", "link", "show", nic))[0]
    return str(link.get("master", ""))


def test_hosts_become_chassis_over_tls_and_machines_reach_each_other_through_ovn(hosts: SshHosts) -> None:
    dry = deploy(hosts, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "h1: ovn-central started (dry run)" in dry.stdout
    assert "h2: external-ids:ovn-remote=ssl:10.99.0.1:6642 (dry run)" in dry.stdout
    assert not hosts["h1"].run("sh", "-c", "ls /etc/netloom 2>/dev/null || true")

    ended = deploy(hosts)
    assert ended.returncode == 0, ended.stderr
    chassis = json.loads(hosts["h1"].run("ovn-sbctl", "-f", "json", "--columns=name", "list", "Chassis"))["data"]
    assert sorted(row[0] for row in chassis) == ["h2", "h3"]
    assert hosts["h1"].run("ovn-sbctl", "get-connection").split()[-1] == "pssl:6642:10.99.0.1"
    _check_that_keys_stay_private(hosts, ended.stdout + ended.stderr + dry.stdout)

    again = deploy(hosts)
    assert again.returncode == 0, again.stderr
    connected = [f"{name}: connected to the southbound" for name in UNDERLAY]
    assert sorted(again.stdout.splitlines()) == sorted([*connected, *(f"h{number}: unchanged" for number in (1, 2, 3))])

    moved = deploy(hosts, *moves("--move-nic"))
    assert moved.returncode == 0, moved.stderr
    for name, address in UNDERLAY.items():
        host, (port, _) = hosts[name], MACHINES[name]
        assert host.run("ovs-vsctl", "port-to-br", "nic") == "br-int\n"
        ids = host.run("ovs-vsctl", "get", "Interface", "nic", "external_ids")
        assert f"iface-id={port}" in ids
        assert "attached-mac=" in ids
        host.run("ip", "address", "add", f"{address}/24", "dev", "br-ex")
        host.run("ip", "link", "set", "br-ex", "up")
    nbctl = ["ovn-nbctl", "ls-add", "lan"]
    for port, address in MACHINES.values():
        nbctl += [
            "--",
            "lsp-add",
            "lan",
            port,
            "--",
            "lsp-set-addresses",
            port,
            f"02:00:00:00:00:0{address[-1]} {address}",
        ]
    hosts["h1"].run(*nbctl)
    ping = "ip netns exec vm ping -c 1 -W 1 10.5.0.2 >/dev/null && echo yes || true"
    wait_until(lambda: hosts["h2"].run("sh", "-c", ping) == "yes\n", what="vm1 to reach vm2 through OVN")

    back = deploy(hosts, *moves("--move-back"))
    assert back.returncode == 0, back.stderr
    for name in UNDERLAY:
        assert master_of(hosts[name], "nic") == "br0"
        assert master_of(hosts[name], "under") == ""
        assert hosts[name].run("ovs-vsctl", "list-br") == "br-int\n", "br-ex was made for the NIC alone"


def _check_that_keys_stay_private(hosts: SshHosts, printed: str) -> None:
    for name in ("h1", "h2"):
        key = (hosts.folder / "pki" / "hosts" / f"{name}.key").read_text()
        assert hosts[name].run("cat", "/etc/netloom/ovn/key.pem") == key
        assert hosts[name].run("stat", "-c", "%a", "/etc/netloom/ovn/key.pem") == "600\n"
        assert key.splitlines()[1] not in printed
        assert key.splitlines()[1] not in hosts[name].run("sh", "-c", "cat /proc/[0-9]*/cmdline")
    assert (hosts.folder / "pki").stat().st_mode & 0o77 == 0


def test_a_nic_that_carries_the_connection_or_does_not_exist_is_refused(hosts: SshHosts) -> None:
    ended = deploy(hosts, "--move-nic", "h2:mgmt", "--move-nic", "h3:nosuch")
    assert ended.returncode == 1
    assert "h2: failed: NIC mgmt has the address 10.99.0.2, which would stop working" in ended.stderr
    assert "h3: failed: there is no NIC nosuch" in ended.stderr
    assert hosts["h2"].run("ovs-vsctl", "--if-exists", "get", "Port", "mgmt", "name", check=False).strip() in ("", '""')


def test_a_deployment_that_is_killed_half_way_is_completed_by_the_next(hosts: SshHosts) -> None:
    for steps in (1, 6, 15, 24, 29):
        kill_after(hosts, steps, *moves("--move-nic"))
    ended = deploy(hosts, *moves("--move-nic"))
    assert ended.returncode == 0, ended.stderr
    for name in UNDERLAY:
        assert hosts[name].run("ovs-vsctl", "port-to-br", "nic") == "br-int\n"
        assert hosts[name].run("ovs-vsctl", "port-to-br", "under") == "br-ex\n"
    for steps in (1, 2, 3):
        kill_after(hosts, steps, *moves("--move-back"))
    ended = deploy(hosts, *moves("--move-back"))
    assert ended.returncode == 0, ended.stderr
    for name in UNDERLAY:
        assert master_of(hosts[name], "nic") == "br0"
        assert master_of(hosts[name], "under") == ""
        assert hosts[name].run("sh", "-c", "cat /var/lib/netloom/nics.json") == "{}"


def test_a_nic_that_its_own_bridge_took_back_at_boot_is_moved_again(hosts: SshHosts) -> None:
    host = hosts["h2"]
    assert deploy(hosts, "--move-nic", "h2:nic=vm1").returncode == 0
    host.run("ip", "link", "set", "nic", "master", "br0")
    ended = deploy(hosts, "--move-nic", "h2:nic=vm1")
    assert "h2: NIC nic moved to br-int" in ended.stderr
    assert master_of(host, "nic") == ""


def test_a_nic_of_another_switch_goes_back_there_with_its_ids(hosts: SshHosts) -> None:
    assert deploy(hosts).returncode == 0
    host = hosts["h2"]
    host.run("ovs-vsctl", "add-br", "br-own", "--", "set", "Bridge", "br-own", "datapath_type=netdev")
    host.run("ip", "link", "set", "nic", "nomaster")
    host.run("ovs-vsctl", "add-port", "br-own", "nic", "--", "set", "Interface", "nic", "external_ids:mine=yes")
    assert deploy(hosts, "--move-nic", "h2:nic=vm1").returncode == 0
    assert host.run("ovs-vsctl", "port-to-br", "nic") == "br-int\n"
    assert deploy(hosts, "--move-back", "h2:nic").returncode == 0
    assert host.run("ovs-vsctl", "port-to-br", "nic") == "br-own\n"
    assert host.run("ovs-vsctl", "get", "Interface", "nic", "external_ids") == "{mine=yes}\n"


def test_a_host_with_other_tls_settings_or_listeners_is_refused(hosts: SshHosts) -> None:
    assert deploy(hosts).returncode == 0
    hosts["h1"].run("ovn-nbctl", "set-connection", "ptcp:6641:127.0.0.1")
    hosts["h2"].run("ovs-vsctl", "set-ssl", "/etc/own.key", "/etc/own.crt", "/etc/own-ca.crt")
    ended = deploy(hosts)
    assert ended.returncode == 1
    assert "h1: failed: ovn-nbctl get-connection shows ptcp:6641:127.0.0.1: remove it" in ended.stderr
    assert "h2: failed: ovs-vsctl get-ssl shows another key, /etc/own.key: remove it" in ended.stderr
    assert "h3: unchanged" in ended.stdout


def test_a_nic_whose_bridge_has_the_address_of_the_connection_is_refused(hosts: SshHosts) -> None:
    host = hosts["h2"]
    script = "ip address del 10.99.0.2/24 dev mgmt; ip link add br1 type bridge; ip link set br1 up; "
    script += "ip link set mgmt master br1; ip address add 10.99.0.2/24 dev br1"
    host.run("sh", "-c", script)
    ended = deploy(hosts, "--move-nic", "h2:mgmt=vm1")
    assert "h2: failed: NIC mgmt carries this connection (10.99.0.2 is on br1): choose another NIC" in ended.stderr
    assert master_of(host, "mgmt") == "br1"


NETDEV = "datapath_type=netdev"
WAYS = {
    "br1": f"ovs-vsctl add-br br1 -- set Bridge br1 {NETDEV} -- add-port br1 wire",
    "br2": f"ovs-vsctl add-br br1 -- set Bridge br1 {NETDEV} -- add-port br1 wire -- add-br br2 "
    f"-- set Bridge br2 {NETDEV} -- add-port br1 p1 -- set Interface p1 type=patch options:peer=p2 "
    "-- add-port br2 p2 -- set Interface p2 type=patch options:peer=p1",
    "tagged": "ip link add link wire name tagged type macvlan mode bridge",
    "over": "ip link add br3 type bridge; ip link set wire master br3; ip link set br3 up; "
    "ip link add link br3 name over type macvlan mode bridge",
    "lo": "ip link add br3 type bridge; ip link set wire master br3; ip link set br3 up; "
    "ip route add 10.97.0.0/24 dev br3",
}
"""By the device with the address of the connection: how it came to be above the NIC `wire`."""
CLEAN = "ovs-vsctl --if-exists del-br br2 -- --if-exists del-br br1; ip link del br3; ip link del wire; "
CLEAN += "ip address del 10.97.0.2/32 dev lo; true"


def test_a_nic_that_carries_the_connection_in_a_roundabout_way_is_refused(hosts: SshHosts) -> None:
    assert deploy(hosts).returncode == 0
    host = hosts["h2"]
    move = {"nic": "wire", "bridge": "br-int", "external_ids": {}, "datapath": ""}
    text = json.dumps({"files": {}, "nics": [move], "back": []})
    program = Path(ovn.__file__)
    for holder, prepare in WAYS.items():
        host.run("sh", "-c", f"ip link add wire type veth peer name end && ip link set wire up && {prepare}")
        host.run("ip", "link", "set", holder, "up")
        host.run("ip", "address", "add", "10.97.0.2/32", "dev", holder)
        script = f"echo '{text}' | SSH_CONNECTION='10.97.0.9 1 10.97.0.2 22' python3 -I {program} apply ovn || true"
        (answer,) = map(json.loads, host.run("sh", "-c", script).splitlines())
        how = "10.97.0.9 is reached by br3" if holder == "lo" else f"10.97.0.2 is on {holder}"
        assert answer["error"] == f"NIC wire carries this connection ({how}): choose another NIC"
        host.run("sh", "-c", f"({CLEAN}) 2>/dev/null")


def test_two_deployments_at_once_do_not_disturb_each_other(hosts: SshHosts) -> None:
    with Program(hosts.command(*arguments(hosts)), log=hosts.folder / "first") as first:
        first.wait_for("h1: ")
        second = deploy(hosts)
        assert first.wait() == 0, first.tail()
    assert second.returncode == 0, second.stderr
    assert deploy(hosts).stdout.count("unchanged") == 3


def test_options_that_name_no_host_are_refused(hosts: SshHosts, tmp_path: Path) -> None:
    hosts.write(extra="Host ../h1\n  HostName 10.99.0.1\n")
    config = ("--ssh-config", str(hosts.config), "--data", str(tmp_path / "pki"))
    for words, expected in (
        (["--master", "h9"], "it has no Host h9"),
        (["--master", "h1", "--move-nic", "h9:nic"], "is not HOST:NIC with a host of this deployment"),
        (["--master", "h1", "--node", "h2=here"], "is not NAME or NAME=ADDRESS"),
        (["--master", "../h1"], "'../h1' cannot be the name of a chassis"),
        (["--master", "h1", "--move-back", "nic"], "is not HOST:NIC with a host of this deployment"),
    ):
        ended = hosts.netloom("sandbox", "deploy-ovn", *config, *words)
        assert ended.returncode == 1
        assert expected in ended.stderr
    assert not (tmp_path / "pki").exists()


PACKAGES = ("openvswitch-common", "openvswitch-switch", "ovn-common", "ovn-central", "ovn-host")


@pytest.mark.versions  # It fetches packages, as the other versions of OVN are fetched.
def test_packages_that_are_missing_are_installed_by_apt(tmp_path: Path) -> None:
    debs = tmp_path / "debs"
    debs.mkdir()
    run("sh", "-c", f"cd {debs} && apt-get -q download {' '.join(PACKAGES)}")
    index = ""
    for file in sorted(debs.glob("*.deb")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        fields = run("dpkg-deb", "-f", file).strip()
        index += f"{fields}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n\n"
    (debs / "Packages").write_text(index)
    source = "deb [trusted=yes] file:/run/debs ./"
    with ssh_hosts(2, tmp_path) as hosts:
        for host in hosts.hosts.values():
            host.run("dpkg", "--purge", *reversed(PACKAGES))
            host.run("cp", "-r", str(debs), "/run/debs")
            host.run("sh", "-c", f"rm -f /etc/apt/sources.list.d/*; echo '{source}' >/etc/apt/sources.list")
            assert host.run("sh", "-c", "command -v ovs-vsctl ovn-nbctl ovn-controller || true") == ""
        # An installation that was killed when it had unpacked one package.
        hosts["h2"].run("sh", "-c", "dpkg --force-depends --unpack /run/debs/ovn-common_*.deb")
        words = ("--ssh-config", hosts.config, "--master", "h1", "--data", tmp_path / "pki", "--datapath", "netdev")
        dry = hosts.netloom("sandbox", "deploy-ovn", *words, "--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert "h2: openvswitch-switch ovn-host installed (dry run)" in dry.stdout
        ended = hosts.netloom("sandbox", "deploy-ovn", *words)
        assert ended.returncode == 0, ended.stderr
        assert "h1: openvswitch-switch ovn-central installed" in ended.stderr
        assert hosts["h1"].run("ovn-sbctl", "--bare", "--columns=name", "list", "Chassis") == "h2\n"
        assert "h2: unchanged" in hosts.netloom("sandbox", "deploy-ovn", *words).stdout
