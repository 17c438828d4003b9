"""`netloom agent` on a real Open vSwitch with a real ovn-controller: what is plugged works, what goes is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.agents import Json, Site, attachment, mirror, network, site, subnet, veth
from tests.support.process import Program, scratch, wait_until

pytestmark = [pytest.mark.ovn, pytest.mark.lab, pytest.mark.root]


@pytest.fixture(scope="module")
def here() -> Iterator[Site]:
    with scratch("agent") as folder, site(folder, "nlt-ag-run") as made:
        made.start_agent()
        made.apply(network(), subnet("v4", "10.10.0.0/24"), subnet("v6", "fd10::/64"))
        yield made


def interface(here: Site, name: str) -> str:
    return here.node.vsctl("--columns=external_ids,type,ofport,error", "list", "interface", name, check=False)


def device(here: Site, name: str) -> str:
    found: str = here.status(name)["ifcName"]
    return found


def pings(here: Site, netns: str, to: str) -> bool:
    return ", 0% packet loss" in here.inside(netns, "ping", "-c", "2", "-i", "0.2", "-W", "2", to, check=False)


def test_an_internal_port_and_a_veth_speak_both_families(here: Site) -> None:
    inner = here.new_namespace("speak")
    here.plug(attachment("speak-a"), veth("speak-b", inner, defaultRoute=True))
    a, b = here.status("speak-a"), here.status("speak-b")
    assert a["hostIP"] == b["hostIP"] == "172.31.0.1"
    assert a["ifcName"] == "nl" + a["mac"].replace(":", "")
    for ip in a["ips"]:
        wait_until(lambda ip=ip: pings(here, inner, ip.partition("/")[0]), what=f"{ip} to answer")  # type: ignore[misc]
    assert f"link/ether {b['mac']}" in here.inside(inner, "ip", "link", "show", "eth0")
    assert "mtu 1442" in here.inside(inner, "ip", "link", "show", "eth0")
    assert "default via 10.10.0.1 dev eth0" in here.inside(inner, "ip", "route")
    assert "default via fd10::1 dev eth0" in here.inside(inner, "ip", "-6", "route")
    assert "tx-checksumming: off" in here.inside(inner, "ethtool", "-k", "eth0")
    assert 'iface-id="default/speak-b"' in interface(here, b["ifcName"])
    assert f"uid={here.get('NetworkAttachment', 'speak-b')['metadata']['uid']}" in interface(
        here, b["ifcName"]
    ).replace('"', "")


def test_what_is_deleted_is_removed_from_switch_and_kernel(here: Site) -> None:
    inner = here.new_namespace("gone")
    here.plug(attachment("gone-a"), veth("gone-b", inner))
    devices = device(here, "gone-a"), device(here, "gone-b")
    here.delete("NetworkAttachment", "gone-a", "gone-b")
    for name in devices:
        wait_until(lambda name=name: not interface(here, name), what=f"{name} to be off the switch")  # type: ignore[misc]
        wait_until(lambda name=name: name not in here.node.exec("ip", "-br", "link"), what=f"{name} to go")  # type: ignore[misc]
    assert "eth0" not in here.inside(inner, "ip", "-br", "link")


def test_addresses_and_routes_follow_the_wish_and_those_of_others_stay(here: Site) -> None:
    inner = here.new_namespace("follow")
    mac = "02:00:00:00:00:90"
    first: Json = {"ips": ["10.10.0.90"], "routes": [{"to": "10.77.0.0/16", "via": "10.10.0.1"}]}
    here.plug(veth("follow", inner, mac=mac, **first))
    here.inside(inner, "ip", "addr", "add", "192.0.2.7/24", "dev", "eth0")
    assert "10.77.0.0/16 via 10.10.0.1" in here.inside(inner, "ip", "route")
    second: Json = {"ips": ["10.10.0.91"], "routes": [{"to": "10.78.0.0/16", "via": "10.10.0.1"}]}
    here.apply(veth("follow", inner, mac=mac, **second))
    wait_until(lambda: "10.10.0.91/24" in here.inside(inner, "ip", "addr"), what="the new address")
    wait_until(lambda: "10.78.0.0/16" in here.inside(inner, "ip", "route"), what="the new route")
    shown = here.inside(inner, "ip", "addr"), here.inside(inner, "ip", "route")
    assert "10.10.0.90/24" not in shown[0]
    assert "192.0.2.7/24" in shown[0]
    assert "10.77.0.0/16" not in shown[1]


def test_a_namespace_that_is_missing_is_said_and_healed_when_it_comes_and_comes_again(here: Site) -> None:
    path = here.new_namespace("later")
    here.node.exec("ip", "netns", "del", Path(path).name)
    here.apply(veth("later", path))
    here.wait_condition("later", "False", "NamespaceMissing")
    assert here.status("later")["errors"]["host"] == [f"there is no network namespace at {path}"]
    here.new_namespace("later")
    here.logical_port("later")
    here.wait_ready("later")
    assert "host" not in here.status("later").get("errors", {})
    here.node.exec("ip", "netns", "del", Path(path).name)
    here.wait_condition("later", "False", "NamespaceMissing")
    here.new_namespace("later")
    here.wait_ready("later")
    address = here.status("later")["ips"][0]
    assert address in here.inside(path, "ip", "addr", "show", "eth0")


def test_another_namespace_takes_the_veth_there(here: Site) -> None:
    first, second = here.new_namespace("from"), here.new_namespace("to")
    here.plug(veth("moving", first))
    here.apply(veth("moving", second, "net1"))
    wait_until(lambda: "net1" in here.inside(second, "ip", "-br", "link"), what="the device in its new place")
    assert "eth0" not in here.inside(first, "ip", "-br", "link")
    here.wait_ready("moving")


def test_a_port_of_another_kind_takes_the_place_of_the_first(here: Site) -> None:
    inner = here.new_namespace("kind")
    here.plug(veth("kind", inner))
    here.apply(attachment("kind"))
    name = device(here, "kind")
    wait_until(lambda: "internal" in interface(here, name), what="the internal port")
    wait_until(lambda: here.status("kind")["ips"][0] in here.node.exec("ip", "addr", "show", name), what="its address")
    here.wait_ready("kind")
    assert "eth0" not in here.inside(inner, "ip", "-br", "link")


def test_a_physical_network_that_gets_its_bridge_heals(here: Site) -> None:
    here.apply(network("phys", provider={"physicalNetwork": "physnet9"}), subnet("phys", "10.40.0.0/24", "phys"))
    here.apply(attachment("phys", "phys"))
    here.wait_condition("phys", "False", "PhysicalNetworkMissing")
    here.node.vsctl("set", "open", ".", "external_ids:ovn-bridge-mappings=physnet9:br-phys")
    here.logical_port("phys", "phys")
    here.wait_ready("phys")


def test_a_taken_name_is_said_and_nothing_of_others_is_touched(here: Site) -> None:
    here.node.exec("ip", "link", "add", "mine", "type", "bridge")
    here.apply(attachment("taken", port={"type": "internal", "name": "mine"}))
    here.wait_condition("taken", "False", "NameTaken")
    assert "mine" in here.node.exec("ip", "-br", "link", "show", "type", "bridge")
    here.node.vsctl("add-port", "br-int", "foreign", "--", "set", "interface", "foreign", "type=internal")
    here.apply(attachment("taken-too", port={"type": "internal", "name": "foreign"}))
    here.wait_condition("taken-too", "False", "NameTaken")
    here.delete("NetworkAttachment", "taken-too")
    here.node.exec("ip", "link", "del", "mine")
    here.logical_port("taken")
    here.wait_ready("taken")
    assert interface(here, "foreign")


def test_a_linux_network_has_a_bridge_while_it_has_a_port(here: Site) -> None:
    here.apply(network("tunnel", fabric="linux", vni=7099), subnet("tunnel", "10.30.0.0/24", "tunnel"))
    here.apply(attachment("other", "tunnel"))
    here.wait_ready("other")
    assert "br-nl7099" in here.node.vsctl("list-br").split()
    here.delete("NetworkAttachment", "other")
    wait_until(lambda: "br-nl7099" not in here.node.vsctl("list-br").split(), what="the bridge to be gone")


def test_a_device_is_taken_from_its_linux_bridge_and_given_back(here: Site) -> None:
    here.node.exec("ip", "link", "add", "br-lin", "type", "bridge")
    here.apply(attachment("nic", port={"type": "existing", "device": "nic0"}))
    here.wait_condition("nic", "False", "DeviceMissing")
    here.node.exec("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "far0")
    here.node.exec("ip", "link", "set", "nic0", "master", "br-lin")
    here.logical_port("nic")
    here.wait_ready("nic")
    assert "br-lin" not in here.node.exec("ip", "link", "show", "nic0")
    assert here.status("nic")["ifcName"] == "nic0"
    here.delete("NetworkAttachment", "nic")
    wait_until(lambda: "master br-lin" in here.node.exec("ip", "link", "show", "nic0"), what="nic0 to be given back")
    assert not interface(here, "nic0")
    wait_until(lambda: "owed" not in here.node.vsctl("get", "bridge", "br-int", "external_ids"), what="no debt")


def test_a_device_is_taken_from_its_ovs_bridge_and_given_back_with_all_it_had(here: Site) -> None:
    here.node.exec("ip", "link", "add", "nic1", "type", "veth", "peer", "name", "far1")
    here.node.vsctl("add-br", "br-old", "--", "set", "bridge", "br-old", "datapath_type=netdev")
    here.node.vsctl("add-port", "br-old", "nic1", "tag=7", "--", "set", "interface", "nic1", "external_ids:keep=me")
    here.plug(attachment("nic-ovs", port={"type": "existing", "device": "nic1"}))
    assert here.node.vsctl("port-to-br", "nic1").strip() == "br-int"
    here.delete("NetworkAttachment", "nic-ovs")
    wait_until(lambda: here.node.vsctl("port-to-br", "nic1").strip() == "br-old", what="nic1 to be given back")
    assert here.node.vsctl("get", "port", "nic1", "tag").strip() == "7"
    assert here.node.vsctl("get", "interface", "nic1", "external_ids").strip() == "{keep=me}"


def test_the_nodes_own_way_to_others_is_not_to_be_taken(here: Site) -> None:
    here.node.exec("ip", "link", "add", "up0", "type", "veth", "peer", "name", "far2")
    here.node.vsctl("add-port", "br-phys", "up0")
    here.apply(attachment("greedy", port={"type": "existing", "device": "up0"}))
    here.wait_condition("greedy", "False", "DeviceInUse")
    here.apply(attachment("greedier", port={"type": "existing", "device": "br-phys"}))
    here.wait_condition("greedier", "False", "DeviceInUse")
    assert here.node.vsctl("port-to-br", "up0").strip() == "br-phys"
    here.delete("NetworkAttachment", "greedy", "greedier")


def test_a_mirror_copies_to_a_tap_and_goes_with_it(here: Site) -> None:
    one, two, tap = here.new_namespace("m1"), here.new_namespace("m2"), here.new_namespace("tap")
    here.plug(veth("m-one", one), veth("m-two", two), veth("m-tap", tap))
    here.apply(mirror("copy", "m-one", "m-tap"))
    wait_until(lambda: "default/copy" in here.node.vsctl("list", "mirror"), what="the mirror")
    out = here.folder / "tap.txt"
    argv = ["ip", "netns", "exec", Path(tap).name, "tcpdump", "-lni", "eth0", "-c", "4", "icmp"]
    with Program(argv, log=here.folder / "tap.log", out=out) as watching:
        address = here.status("m-two")["ips"][0].partition("/")[0]

        def copied() -> bool:
            pings(here, one, address)
            return watching.returncode is not None

        wait_until(copied, what="copies at the tap")
    assert "ICMP echo request" in out.read_text()
    assert "ICMP echo reply" in out.read_text()
    here.delete("NetworkAttachment", "m-tap")
    wait_until(lambda: "default/copy" not in here.node.vsctl("list", "mirror"), what="the mirror to go")
    here.delete("Mirror", "copy")


def test_the_node_is_made_and_says_what_it_can_do(here: Site) -> None:
    here.wait_condition("n1", "True", kind="Ready", of="Node")
    node = here.get("Node", "n1")
    assert node["spec"] == {"underlayIP": "172.31.0.1"}
    assert node["status"]["datapath"] == "userspace"
    assert node["status"]["capabilities"]["geneve"] is True
    assert "netem" in node["status"]["capabilities"]
    assert node["status"]["lastHeartbeat"]


def test_a_southbound_reached_in_the_clear_is_warned_of_until_it_is_not(here: Site) -> None:
    before = here.node.vsctl("get", "Open_vSwitch", ".", "external_ids:ovn-remote").strip().strip('"')

    def reached_by(remote: str) -> None:
        here.node.vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-remote="{remote}"')

    reached_by(f"{before},tcp:192.0.2.5:6642")
    found = here.wait_condition("n1", "False", "PlainTCP", kind="OVNConnectionSecure", of="Node")
    said = "ovn-remote is tcp:192.0.2.5:6642, neither encrypted nor authenticated: use ssl: and OVN's RBAC"
    assert found["message"] == said
    here.wait_condition("n1", "True", kind="Ready", of="Node")
    assert (here.folder / "agent.log").read_text().count(said) == 1
    reached_by(before)
    here.wait_condition("n1", "True", "Secured", kind="OVNConnectionSecure", of="Node")


def test_a_second_agent_says_so_and_goes(here: Site) -> None:
    second = here.start_agent("--health-listen", "", wait=False)
    try:
        assert second.wait() == 1
    finally:
        second.stop()
    assert "another agent works on the switch" in second.tail()


def test_its_numbers_tell_how_long_a_wish_took_and_what_concerns_it(here: Site) -> None:
    before = here.metrics()
    here.plug(attachment("measured"))
    plugged = 'wish_to_interface_seconds_count{since="created"}'
    wait_until(lambda: here.metrics().get(plugged, 0) > before.get(plugged, 0), what="it to be counted")
    after = here.metrics()
    words = '{operation="plug",outcome="ok"}'
    assert after[f"fabric_duration_seconds_count{words}"] == before.get(f"fabric_duration_seconds_count{words}", 0) + 1
    assert after['wish_to_ready_seconds_sum{since="created"}'] > 0
    assert after['networks{state="relevant"}'] == after['networks{state="known"}'] >= 1
    assert after['watches{resource="networkattachments"}'] == 1
    assert after["address_to_interface_seconds_count"] >= 1
