"""Labs of several sites: what joins them, what one site is on its own, and their end, whatever came before."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import Conflict, NotFound
from netloom.lab import Lab, checks, down, lab, peering, probes, sites, state
from netloom.lab.daemons.processes import read_pid
from netloom.lab.daemons.programs import programs
from netloom.lab.layout import Layout, gateway_ip, router_ip
from netloom.lab.state import State
from netloom.model.schemas.validation import admit
from tests.lab import labs
from tests.run.serving import environment, netloom
from tests.support.datacentre import data_centre
from tests.support.process import Program, wait_until


def left_of(data: Path) -> list[str]:
    """Return what is on this machine of a lab and its sites."""
    folders = [data, *(state.site(data, number) for number in range(1, state.MOST_SITES + 1))]
    return [one for folder in folders for one in labs.left_of(folder)]


# What there is to be.


@pytest.mark.parametrize("reflector", ["none", "netloom", "frr"])
def test_every_session_has_two_ends_that_agree(tmp_path: Path, reflector: state.Reflector) -> None:
    reflected = reflector != "none"
    layouts = {
        gateway_ip(number): Layout(state.site(tmp_path, number), State(nodes=2, port=1, site=number))
        for number in (1, 2, 3)
    }
    router = Layout(tmp_path, State(nodes=2, port=1, sites=3, reflector=reflector))
    found = {}
    for address, layout in layouts.items():
        (_, speaker), *peers = peering.objects(layout, 3, reflected=reflected)
        assert (speaker["spec"]["routerID"], speaker["spec"]["node"]) == (address, "n1")
        assert layout.underlay_ip("n1") == address
        for _, peer in peers:
            found[address, peer["spec"]["address"]] = (speaker["spec"]["asn"], peer["spec"]["remoteASN"])
    if reflected:
        (_, speaker), *peers = peering.objects(router, 3, reflected=True)
        assert speaker["spec"]["node"] == "router"
        for number, (_, peer) in enumerate(peers, start=1):
            ends = (router_ip(number), peer["spec"]["address"])
            found[ends] = (speaker["spec"]["asn"], peer["spec"]["remoteASN"])
        assert all(f"neighbor {address} remote-as" in peering.frr_configuration(router) for address in layouts)
    assert len(found) == 6
    assert all(found[there, here] == (theirs, ours) for (here, there), (ours, theirs) in found.items())


def test_the_objects_of_a_site_are_valid(tmp_path: Path) -> None:
    for layout in (Layout(tmp_path, State(nodes=1, port=1, site=1)), Layout(tmp_path, State(nodes=1, port=1, sites=2))):
        for kind, document in peering.objects(layout, 2, reflected=False):
            document["metadata"]["namespace"] = "default"
            admit(kind, document)


@pytest.mark.parametrize("reflector", ["none", "netloom", "frr"])
def test_between_sites_there_is_only_what_reflects_routes(tmp_path: Path, reflector: state.Reflector) -> None:
    layout = Layout(tmp_path / ("long" * 40), State(nodes=2, port=1, sites=2, reflector=reflector))
    wanted = {"none": [], "netloom": ["serve", "speaker", "keeper"], "frr": ["bgpd", "keeper"]}
    assert [program.name for program in programs(layout)] == wanted[reflector]
    assert all(len(program.socket) < 108 for program in programs(layout))
    assert (layout.nodes, layout.places) == ([], ["router"])


def test_a_missing_reflector_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BGPD", "/nowhere/bgpd")
    with pytest.raises(NotFound, match="/nowhere/bgpd: install it, as with apt-get install frr"):
        checks.reflector("frr")
    checks.reflector("netloom")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--sites", "1"], "1 is not in the range"),
        (["--sites", "10"], "10 is not in the range"),
        (["--reflector", "frr"], "--reflector needs --sites"),
        (["--sites", "2", "--reflector", "bird"], "'bird' is not one of"),
        (["--sites", "2", "--kubeconfig", "/nowhere"], "each site has its own API server"),
        (["--sites", "2", "--agents", "/nowhere"], "each site has its own API server"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, args: list[str], says: str) -> None:
    ended = labs.command("up", "--data", tmp_path / "lab", *args)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert not (tmp_path / "lab").exists()


# Two sites that are up.


@pytest.fixture(scope="module")
def two() -> Iterator[list[Lab]]:
    with labs.folder() as data:
        yield sites.up(data, sites=2, nodes=2, ovn=0)
    assert left_of(data) == []


def data_of(two: list[Lab]) -> Path:
    return two[0].layout.folder.parent


@pytest.mark.lab
@pytest.mark.root
def test_every_node_reaches_the_underlay_of_the_other_site(two: list[Lab]) -> None:
    whole = ["-c", "1", "-W", "2", "-M", "do", "-s", "1472"]
    for here, there in (two, two[::-1]):
        for node in here.nodes:
            for other in there.nodes:
                here.exec(node, ["ping", *whole, there.underlay_ip(other)])
    assert two[0].underlay_ip("n2") == "172.31.1.2"
    assert two[1].underlay_ip("n2") == "172.31.2.2"


@pytest.mark.lab
@pytest.mark.root
def test_a_tunnel_of_userspace_switches_leads_from_site_to_site(two: list[Lab]) -> None:
    for number, (here, there) in enumerate((two, two[::-1]), start=1):
        target = there.underlay_ip("n2" if number == 1 else "n1")
        node = "n1" if number == 1 else "n2"
        here.exec(node, ["ovs-vsctl", "add-br", "br-try", "--", "set", "Bridge", "br-try", "datapath_type=netdev",
                         "--", "add-port", "br-try", "try0", "--", "set", "Interface", "try0", "type=vxlan",
                         f"options:remote_ip={target}", "options:key=77"])  # fmt: skip
        here.exec(node, ["ethtool", "-K", "br-try", "tx", "off"])
        here.exec(node, ["ip", "address", "add", f"10.77.0.{number}/24", "dev", "br-try"])
        here.exec(node, ["ip", "link", "set", "br-try", "up"])
    try:
        # The whole MTU of a network of fabric vxlan, which is more than that of one of fabric ovn.
        ping = ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", str(1450 - 28), "10.77.0.2"]
        wait_until(lambda: not two[0].exec("n1", ping, check=False).returncode, what="10.77.0.2 to answer")
    finally:
        for here, node in zip(two, ("n1", "n2"), strict=True):
            here.exec(node, ["ovs-vsctl", "--if-exists", "del-br", "br-try"])


@pytest.mark.lab
@pytest.mark.root
def test_the_way_to_the_other_site_comes_back_with_a_switch(two: list[Lab]) -> None:
    labs.killed_comes_back(two[0], "ovs-vswitchd-n2")
    wait_until(lambda: labs.pings(two[0], "n2", two[1].underlay_ip("n1")), what="the other site to answer")


@pytest.mark.lab
@pytest.mark.root
def test_each_site_has_its_own_api_with_a_speaker_and_peers(two: list[Lab]) -> None:
    for number, site in enumerate(two, start=1):
        other = 3 - number
        [speaker] = items(site, "bgpspeakers")
        assert speaker["metadata"]["name"] == "gateway"
        assert speaker["spec"]["asn"] == 65000 + number
        assert speaker["spec"]["listen"] == {"address": site.underlay_ip("n1"), "port": 179}
        [peer] = items(site, "bgppeers")
        assert peer["metadata"]["name"] == f"site{other}"
        assert (peer["spec"]["address"], peer["spec"]["remoteASN"]) == (gateway_ip(other), 65000 + other)
        assert {node["spec"]["underlayIP"] for node in items(site, "nodes")} == {
            f"172.31.{number}.1",
            f"172.31.{number}.2",
        }


def items(site: Lab, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(netloom("get", kind, "-o", "json", kubeconfig=site.kubeconfig).out)[
        "items"
    ]
    return found


@pytest.mark.lab
@pytest.mark.root
def test_commands_choose_a_site(two: list[Lab]) -> None:
    data = data_of(two)
    shown = labs.command("exec", "--data", data, "--site", "2", "n1", "--", "sh", "-c", "echo $KUBECONFIG; ip -br a")
    assert shown.stdout.splitlines()[0] == str(two[1].kubeconfig)
    assert "172.31.2.1/24" in shown.stdout
    assert "172.31.1.254/24" in labs.command("exec", "--data", data, "router", "--", "ip", "-br", "a").stdout
    wrong = labs.command("exec", "--data", data, "n1", "--", "true")
    assert (wrong.returncode, "use one of router, or choose a site with --site" in wrong.stderr) == (1, True)
    wrong = labs.command("exec", "--data", data, "--site", "3", "n1", "--", "true")
    assert (wrong.returncode, "has no site 3: use one of 1 to 2" in wrong.stderr) == (2, True)
    wrong = labs.command("exec", "--data", two[0].layout.folder, "--site", "1", "n1", "--", "true")
    assert (wrong.returncode, "has no site 1: start it with --sites to have several" in wrong.stderr) == (2, True)
    made = labs.command("workload", "--data", data, "--site", "1", "somebody").stdout.strip()
    assert made == f"/run/netns/{two[0].layout.prefix}somebody"
    assert labs.command("off", "--data", data, "--site", "2", "n2").stdout == "n2 is off.\n"
    assert labs.command("on", "--data", data, "--site", "2", "n2").stdout == "n2 is on and Ready.\n"
    wait_until(lambda: labs.pings(two[0], "n1", two[1].underlay_ip("n2")), what="it to answer again")


@pytest.mark.lab
@pytest.mark.root
def test_status_shows_the_router_and_every_site(two: list[Lab]) -> None:
    data = data_of(two)
    ended = labs.command("status", "--data", data)
    assert ended.returncode == 0, ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[0] == f"{data}  (lab {state.identity(data)}: up, 2 of 2 sites up)"
    assert lines[1] == "└─ router  172.31.1.254, 172.31.2.254"
    for site in two:
        assert f"{site.layout.folder}  (lab {site.layout.id}: up, 2 of 2 nodes Ready)" in lines
    whole = json.loads(labs.command("status", "--data", data, "-o", "json").stdout)
    assert whole["well"] is True
    assert [site["folder"] for site in whole["sites"]] == [str(site.layout.folder) for site in two]
    one = labs.command("status", "--data", data, "--site", "2").stdout
    assert one.startswith(f"{two[1].layout.folder}  (lab ")
    everything = labs.command("status").stdout.splitlines()
    assert sum(line.startswith(f"{two[0].layout.folder}  ") for line in everything) == 1
    assert labs.command("status", "--site", "1").returncode == 2


@pytest.mark.lab
@pytest.mark.root
def test_what_is_up_is_refused_and_so_are_other_options(two: list[Lab]) -> None:
    data = data_of(two)
    with pytest.raises(Conflict, match=r"all sites of the lab in .* are up"):
        sites.up(data, sites=2, nodes=2, ovn=0)
    with pytest.raises(Conflict, match="was created with --sites 2 --reflector none: use the same options"):
        sites.up(data, sites=3, nodes=2, ovn=0)
    with pytest.raises(Conflict, match="was created with --sites 2 --reflector none: use the same options"):
        Lab.up(data, nodes=2, ovn=0)
    with pytest.raises(Conflict, match="is a site: run `netloom lab up --sites"):
        Lab.up(two[0].layout.folder, nodes=2, ovn=0)


@pytest.mark.lab
@pytest.mark.root
def test_one_site_goes_down_and_comes_up_again_with_its_data(two: list[Lab]) -> None:
    data = data_of(two)
    before = {name: two[0].pid(name) for name in ("serve", "agent-n1", "ovs-vswitchd-n1")}
    ended = labs.command("down", "--data", data, "--site", "2")
    assert (ended.returncode, ended.stdout) == (0, f"The lab in {two[1].layout.folder} is down.\n")
    assert labs.left_of(two[1].layout.folder) == []
    assert "1 of 2 sites up" in labs.command("status", "--data", data).stdout
    netloom("delete", "bgppeer", "site2", kubeconfig=two[0].kubeconfig)
    sites.up(data, sites=2, nodes=2, ovn=0)
    assert {name: two[0].pid(name) for name in before} == before
    assert [peer["metadata"]["name"] for peer in items(two[0], "bgppeers")] == ["site2"]
    assert [peer["metadata"]["name"] for peer in items(two[1], "bgppeers")] == ["site1"]
    wait_until(lambda: labs.pings(two[0], "n1", two[1].underlay_ip("n1")), what="the other site to answer")


# The reflector.


@pytest.mark.lab
@pytest.mark.root
def test_frr_between_the_sites_passes_routes_on_with_their_next_hops() -> None:
    """In the place of the sites are data centres with FRR, so that only the reflector is tried."""
    with labs.folder() as data:
        wanted = State(nodes=1, ovn=0, port=0, sites=2, reflector="frr")
        data.mkdir(mode=0o700)
        lab.start(data, None, wanted, timeout=lab.UP_SECONDS, say=lambda text: None)
        router = Lab(data)
        with (
            data_centre(f"{gateway_ip(1)}/24", asn=65000, peers={router_ip(1): 65000}) as one,
            data_centre(f"{gateway_ip(2)}/24", asn=65000, peers={router_ip(2): 65000}) as other,
        ):
            for number, centre in enumerate((one, other), start=1):
                centre.connect(router.netns("router"), gateway=f"{router_ip(number)}/24")
                centre.add_host("host", [f"10.10.0.{number}/24", f"fd10::{number}/64"])
            there = other.hosts["host"]
            wait_until(lambda: one.remote_macs(10) == {there.mac}, what="the other's host")
            assert one.macs(10)[there.mac]["remoteVtep"] == other.address
            paths = [path for route, path in one.routes().items() if there.mac in route]
            assert {path["path"] for path in paths} == {""}, "nothing is between clients of a route reflector"
            assert probes.ping(one.hosts["host"].netns, "10.10.0.2", count=3)
            assert probes.ping(one.hosts["host"].netns, "fd10::2", count=3)
            labs.killed_comes_back(router, "bgpd")
            one.wait_established(router_ip(1))
            wait_until(lambda: one.remote_macs(10) == {there.mac}, what="the other's host again")
        assert labs.command("status", "--data", data).returncode == 0
        router.down()
        assert left_of(data) == []


# The end.


@contextmanager
def coming_up(data: Path) -> Iterator[Program]:
    argv = [*labs.NETLOOM, "lab", "up", "--sites", "2", "--nodes", "1", "--ovn", "none", "--data", str(data)]
    with Program(argv, log=data.parent / "up.log", env=environment()) as program:
        yield program


def stage(data: Path, name: str) -> bool:
    """Whether a lab that comes up has come so far."""
    if name == "router":
        return (data / state.FILE).exists()
    return bool(read_pid(data / name / "pids", "supervisor"))


@pytest.mark.lab
@pytest.mark.root
@pytest.mark.parametrize("so_far", ["router", "site1", "site2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_up_that_is_interrupted_leaves_nothing(number: signal.Signals, so_far: str) -> None:
    with labs.folder() as data, coming_up(data) as program:
        wait_until(lambda: stage(data, so_far), what=so_far, interval=0.01)
        os.kill(program.pid, number)
        assert program.wait() == 130
        assert left_of(data) == []
        assert not data.exists()


@pytest.mark.lab
@pytest.mark.root
@pytest.mark.parametrize("so_far", ["router", "site1", "site2"])
def test_an_up_that_is_killed_is_cleaned_up_by_down(so_far: str) -> None:
    with labs.folder() as data, coming_up(data) as program:
        wait_until(lambda: stage(data, so_far), what=so_far, interval=0.01)
        program.kill()
        assert labs.command("down", "--data", data).returncode == 0
        assert left_of(data) == []


@pytest.mark.lab
@pytest.mark.root
def test_an_up_that_was_killed_is_cleaned_up_by_the_next_up() -> None:
    with labs.folder() as data:
        with coming_up(data) as program:
            wait_until(lambda: stage(data, "site2"), what="the second site")
            program.kill()
        sites.up(data, sites=2, nodes=1, ovn=0)
        assert labs.command("status", "--data", data).returncode == 0
        assert labs.command("down", "--delete", "--data", data).returncode == 0
        assert left_of(data) == []
        assert not data.exists()


@pytest.mark.lab
@pytest.mark.root
def test_sites_whose_folder_was_removed_are_ended() -> None:
    with labs.folder() as removed, labs.folder() as data:
        sites.up(removed, sites=2, nodes=1, ovn=0)
        shutil.rmtree(removed)
        assert left_of(removed) != []
        down(removed)
        assert left_of(removed) == []
        sites.up(removed, sites=2, nodes=1, ovn=0)
        shutil.rmtree(removed)
        Lab.up(data, nodes=1, ovn=0)
        assert left_of(removed) == []
