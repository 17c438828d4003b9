"""The session of evpn-for-ovn's documents between two real sites: what OVN and Open vSwitch show after each step."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netloom.lab import Lab, sites
from tests.lab import labs
from tests.run.serving import netloom
from tests.run.vtep import SESSION, Vtep, replay, undo, vtep
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@pytest.fixture
def two() -> Iterator[list[Lab]]:
    """Two sites without speakers."""
    with labs.folder() as data:
        made = sites.up(data, sites=2, nodes=1)
        for site in made:
            netloom("delete", "bgppeers", "--all", kubeconfig=site.kubeconfig)
            netloom("delete", "bgpspeaker", "gateway", kubeconfig=site.kubeconfig)
        yield made


def session(ryu: str, evpn: str) -> list[Any]:
    """Return the steps with addresses of the sites; the number of a port is its name without a switch to ask."""
    text = json.dumps(SESSION["steps"]).replace("192.168.10.10", ryu).replace("192.168.10.20", evpn)
    found: list[Any] = json.loads(text.replace('"port": 1}', '"port": "s1-eth1"}'))
    return found


def logical_ports(site: Lab) -> dict[str, str]:
    """Return the logical ports to other sites, and their addresses."""
    rows = json.loads(site.exec("central", ["ovn-nbctl", "-f", "json", "list", "Logical_Switch_Port"]).stdout)
    name, addresses = (rows["headings"].index(column) for column in ("name", "addresses"))
    found = {row[name]: row[addresses] for row in rows["data"]}
    return {one: text if isinstance(text, str) else "" for one, text in found.items() if one.startswith("vxlan_")}


def tunnels(site: Lab) -> dict[str, dict[str, str]]:
    """Return the tunnel ports to other sites, and their options."""
    rows = json.loads(site.exec("n1", ["ovs-vsctl", "-f", "json", "list", "Interface"]).stdout)
    columns = {name: rows["headings"].index(name) for name in ("name", "type", "options", "external_ids")}
    found = {}
    for row in rows["data"]:
        name = row[columns["name"]]
        if name.startswith("vxlan_"):
            assert row[columns["type"]] == "vxlan"
            assert dict(row[columns["external_ids"]][1])["iface-id"] == name
            found[name] = dict(row[columns["options"]][1])
    return found


def switches(site: Lab) -> set[str]:
    return set(site.exec("central", ["ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Switch"]).stdout.split())


def test_the_documents_session_and_its_end(two: list[Lab], tmp_path: Path) -> None:
    ryu, evpn = (site.underlay_ip("n1") for site in two)
    steps = session(ryu, evpn)
    with started(two[0], tmp_path / "ryu") as one, started(two[1], tmp_path / "evpn") as other:
        for _ in replay({"ryu": one, "evpn": other}, steps):
            pass
        port = f"vxlan_{ryu}_10"
        wait_until(
            lambda: logical_ports(two[1]) == {port: "02:ac:10:ff:00:11 192.168.222.11"}, what="the port and its address"
        )
        assert any(name.endswith("/ls1") for name in switches(two[1]))
        wait_until(lambda: port in tunnels(two[1]), what="the tunnel port")
        options = tunnels(two[1])[port]
        assert (options["key"], options["remote_ip"], options["dst_port"]) == ("10", ryu, "4789")
        wait_until(lambda: up(one, evpn) and up(other, ryu), what="both sessions to be up")
        clients = other.request("GET", "/vtep/networks/10")[1]["10"]["EvpnNetwork"]["clients"]
        assert clients["02:ac:10:ff:00:11"]["EvpnClient"]["next_hop"] == ryu
        undone(two, one, other, steps)


def started(site: Lab, folder: Path) -> Any:
    folder.mkdir()
    server: Any = SimpleNamespace(kubeconfig=site.kubeconfig, data=site.kubeconfig.parent)
    return vtep(folder, server)


def up(side: Vtep, neighbour: str) -> bool:
    found = side.request("GET", f"/vtep/neighbors/{neighbour}")[1]
    return bool(found[neighbour]["EvpnNeighbor"]["state"] == "up")


def undone(two: list[Lab], one: Vtep, other: Vtep, steps: list[Any]) -> None:
    """Delete everything, first of one side, and see each effect go."""
    mine = [step for step in steps if step["side"] == "ryu"]
    for path in undo(one, mine):
        if path.startswith("/vtep/networks/10/clients/"):
            wait_until(lambda: list(logical_ports(two[1]).values()) == [""], what="no address")
        elif path.startswith("/vtep/networks/"):
            wait_until(lambda: logical_ports(two[1]) == {}, what="no logical port")
            wait_until(lambda: tunnels(two[1]) == {}, what="no tunnel port")
    for _ in undo(other, [step for step in steps if step["side"] == "evpn"]):
        pass
    for site in two:
        wait_until(lambda: switches(site) == set(), what="no switch")  # noqa: B023
        for kind in ("bgpspeakers", "bgppeers", "evpnnetworks", "remotevteps", "networks"):
            listed = netloom("get", kind, "-o", "json", kubeconfig=site.kubeconfig).out
            assert json.loads(listed)["items"] == [], kind
