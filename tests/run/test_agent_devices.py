"""A real switch holds on to the device it first opened: what `netloom agent` does when another one takes its place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.agents import Json, Site, attachment, network, site, subnet, veth
from tests.support.ovn import run
from tests.support.process import scratch, wait_until

pytestmark = [pytest.mark.ovn, pytest.mark.lab, pytest.mark.root]


@pytest.fixture(scope="module")
def here() -> Iterator[Site]:
    with scratch("agent") as folder, site(folder, "nlt-ag-dev") as made:
        made.start_agent()
        made.apply(network(), subnet("v4", "10.10.0.0/24"))
        made.plug(veth("far", made.new_namespace("far")))
        yield made


def pings(here: Site, netns: str) -> bool:
    address = here.status("far")["ips"][0].partition("/")[0]
    return ", 0% packet loss" in here.inside(netns, "ping", "-c", "1", "-W", "1", address, check=False)


def make_again(netns: str) -> None:
    run("ip", "netns", "del", Path(netns).name)
    run("ip", "netns", "add", Path(netns).name)


def test_a_namespace_that_is_made_again_has_its_packets_again(here: Site) -> None:
    netns = here.new_namespace("again")
    here.plug(veth("again", netns))
    for turn in range(3):
        wait_until(lambda: pings(here, netns), what=f"packets to flow, turn {turn}")
        make_again(netns)
    wait_until(lambda: pings(here, netns), what="packets to flow")
    here.wait_ready("again")


def test_a_namespace_that_is_made_again_while_no_agent_runs_has_its_packets_again(here: Site) -> None:
    netns = here.new_namespace("unseen")
    here.plug(veth("unseen", netns))
    assert here.agent is not None
    here.agent.kill()
    make_again(netns)
    here.start_agent()
    wait_until(lambda: pings(here, netns), what="packets to flow")


def test_a_device_that_comes_again_by_the_same_name_is_taken_again(here: Site) -> None:
    netns = here.new_namespace("card")

    def card() -> None:
        here.node.exec("ip", "link", "add", "card0", "type", "veth", "peer", "name", "eth0", "netns", Path(netns).name)
        here.inside(netns, "ip", "address", "add", "10.10.0.70/24", "dev", "eth0")
        here.inside(netns, "ip", "link", "set", "eth0", "up", "address", "02:00:00:00:00:70")
        for name, place in (("card0", Path(here.node.netns)), ("eth0", Path(netns))):
            here.inside(str(place), "ethtool", "-K", name, "tx", "off")

    card()
    spec: Json = {"ips": ["10.10.0.70"], "mac": "02:00:00:00:00:70", "port": {"type": "existing", "device": "card0"}}
    here.plug(attachment("card", **spec))
    wait_until(lambda: pings(here, netns), what="packets to flow")
    here.node.exec("ip", "link", "del", "card0")
    here.wait_condition("card", "False", "DeviceMissing")
    card()
    wait_until(lambda: pings(here, netns), what="packets to flow")
    here.wait_ready("card")


@pytest.mark.parametrize("kind", ["veth", "internal"])
def test_a_device_that_somebody_sets_down_is_set_up_again(here: Site, kind: str) -> None:
    name = f"down-{kind}"
    here.plug(veth(name, here.new_namespace(name)) if kind == "veth" else attachment(name))
    device = here.status(name)["ifcName"]
    here.node.exec("ip", "link", "set", device, "down")
    wait_until(
        lambda: here.node.vsctl("get", "interface", device, "admin_state").strip() == "up",
        what="the device to be up again",
    )
    here.wait_ready(name)
    assert ",UP" in here.node.exec("ip", "link", "show", device)


def test_a_switch_that_starts_while_namespaces_are_made_again_has_all_their_packets(here: Site) -> None:
    spaces = [here.new_namespace(f"race{number}") for number in range(3)]
    here.plug(*(veth(f"race{number}", netns) for number, netns in enumerate(spaces)))
    assert here.node.vswitchd is not None
    here.node.vswitchd.kill()
    for netns in spaces[:2]:
        make_again(netns)
    here.node.start_vswitchd()
    make_again(spaces[2])
    for netns in spaces:
        wait_until(lambda netns=netns: pings(here, netns), what=f"packets to flow from {netns}")  # type: ignore[misc]
    here.wait_ready(*(f"race{number}" for number in range(3)))
