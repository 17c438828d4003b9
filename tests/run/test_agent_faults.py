"""What dies comes back, and `netloom agent` finds its own again: kills, restarts, and a bare node."""

from collections.abc import Iterator

import pytest

from tests.run.agents import Site, attachment, network, site, subnet, veth
from tests.support.process import scratch, wait_until

pytestmark = [pytest.mark.ovn, pytest.mark.lab, pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def here() -> Iterator[Site]:
    with scratch("agent") as folder, site(folder, "nlt-ag-flt") as made:
        made.start_agent()
        made.apply(network(), subnet("v4", "10.10.0.0/24"), subnet("v6", "fd10::/64"))
        inner = made.new_namespace("w")
        made.plug(attachment("a"), veth("b", inner, defaultRoute=True))
        yield made


def inner(here: Site) -> str:
    return f"/run/netns/{here.node.netns}-w"


def pings(here: Site) -> bool:
    to = here.status("a")["ips"][0].partition("/")[0]
    return ", 0% packet loss" in here.inside(inner(here), "ping", "-c", "2", "-i", "0.2", "-W", "2", to, check=False)


def on_switch(here: Site, name: str) -> bool:
    return bool(here.node.vsctl("list", "interface", name, check=False))


def revisions(here: Site) -> list[str]:
    return [here.get("NetworkAttachment", name)["metadata"]["resourceVersion"] for name in ("a", "b")]


def test_a_restart_with_nothing_changed_writes_nothing(here: Site) -> None:
    before = revisions(here)
    rows = here.node.vsctl("--columns=_uuid,external_ids,ofport", "list", "interface")
    assert here.agent is not None
    here.agent.kill()
    here.start_agent()

    def looked() -> bool:
        numbers = here.metrics()
        return numbers.get("looked", 0) >= 2

    wait_until(looked, what="the agent to have looked at everything")
    numbers = here.metrics()
    assert (numbers["switch_transactions"], numbers["link_writes"], numbers["statuses"]) == (0, 0, 0)
    assert revisions(here) == before
    assert here.node.vsctl("--columns=_uuid,external_ids,ofport", "list", "interface") == rows
    assert pings(here)


def test_what_happened_while_the_agent_was_dead_is_made_up_for(here: Site) -> None:
    assert here.agent is not None
    old = here.status("a")["ifcName"], here.status("b")["ifcName"]
    here.agent.kill()
    here.delete("NetworkAttachment", "a", "b")
    here.apply(attachment("c"), veth("b", inner(here), ips=["10.10.0.77"]))
    here.logical_port("c")
    here.logical_port("b")
    here.start_agent()
    here.wait_ready("b", "c")
    for name in old:
        assert not on_switch(here, name)
        assert name not in here.node.exec("ip", "-br", "link")
    assert "10.10.0.77/24" in here.inside(inner(here), "ip", "addr", "show", "eth0")


def test_a_pair_that_a_crash_left_behind_is_removed_and_others_pairs_are_not(here: Site) -> None:
    assert here.agent is not None
    here.agent.kill()
    here.node.exec("ip", "link", "add", "nl0200000000aa", "type", "veth", "peer", "name", "left0")
    here.node.exec("ip", "link", "set", "nl0200000000aa", "alias", "netloom/netloom/some-uid")
    here.node.exec("ip", "link", "add", "nl0200000000bb", "type", "veth", "peer", "name", "mine0")
    here.start_agent()
    wait_until(lambda: "left0" not in here.node.exec("ip", "-br", "link"), what="the pair to go")
    assert "nl0200000000bb" in here.node.exec("ip", "-br", "link")


def test_a_switch_that_is_killed_and_started_again_has_its_ports_and_addresses_again(here: Site) -> None:
    assert here.node.vswitchd is not None
    here.node.vswitchd.kill()
    here.node.start_vswitchd()
    address = here.status("a")["ips"][0]
    wait_until(
        lambda: address in here.node.exec("ip", "addr", "show", here.status("a")["ifcName"], check=False),
        what="the address to be back",
    )
    wait_until(lambda: pings(here), what="packets to flow")
    here.wait_ready("a", "b")


def test_a_database_that_is_killed_is_waited_for_and_what_worked_stays_ready(here: Site) -> None:
    before = revisions(here)
    here.node.database.kill()
    here.wait_condition("n1", "False", "SwitchUnreachable", kind="Ready", of="Node")
    here.apply(attachment("c"))
    here.wait_condition("c", "False", "SwitchUnreachable")
    assert revisions(here) == before
    here.node.database.start()
    here.logical_port("c")
    here.wait_ready("c")
    here.wait_condition("n1", "True", kind="Ready", of="Node")
    assert revisions(here) == before


def test_an_api_that_is_killed_is_waited_for(here: Site) -> None:
    assert here.serve is not None
    here.serve.kill()
    here.close()
    assert on_switch(here, "nl060a00021000")
    here.start_serve()
    here.plug(attachment("c"))
    assert pings(here)


def test_a_port_that_somebody_removed_from_the_switch_is_put_back(here: Site) -> None:
    name = here.status("a")["ifcName"]
    here.node.vsctl("del-port", "br-int", name)
    wait_until(lambda: on_switch(here, name), what="the port to be back")
    wait_until(lambda: pings(here), what="packets to flow")
    here.wait_ready("a")


def test_a_port_that_somebody_renamed_is_put_right(here: Site) -> None:
    name = here.status("b")["ifcName"]
    here.node.vsctl("set", "interface", name, "external_ids:iface-id=wrong")
    wait_until(
        lambda: here.node.vsctl("get", "interface", name, "external_ids:iface-id").strip() == '"default/b"',
        what="the name to be right",
    )
    wait_until(lambda: pings(here), what="packets to flow")


def test_a_bridge_that_is_deleted_and_made_again_has_its_ports_again(here: Site) -> None:
    names = here.status("a")["ifcName"], here.status("b")["ifcName"]
    here.node.vsctl("del-br", "br-int")
    here.node.prepare(here.central)
    wait_until(lambda: all(on_switch(here, name) for name in names), what="the ports to be back")
    wait_until(lambda: pings(here), what="packets to flow")
    here.wait_ready("a", "b")


def test_a_bare_switch_is_prepared_when_told_and_only_then() -> None:
    with scratch("agent") as folder, site(folder, "nlt-ag-bare", prepared=False) as here:
        here.start_agent()
        here.wait_condition("n1", "False", "SwitchNotPrepared", kind="Ready", of="Node")
        here.apply(network(), subnet("v4", "10.10.0.0/24"), attachment("a"))
        here.wait_condition("a", "False", "SwitchNotPrepared")
        assert not on_switch(here, "nl060a00021000")
        assert "system-id" not in here.node.vsctl("get", "open", ".", "external_ids")
        assert here.agent is not None
        here.agent.stop()
        told = ("--prepare", "--ovn-remote", here.central.southbound.remote, "--bridge-mappings", "physnet1:br-ex")
        here.node.vsctl("set", "open", ".", "external_ids:ovn-bridge-mappings=other:br-other")
        here.start_agent(*told)
        here.wait_condition("n1", "True", kind="Ready", of="Node")
        here.logical_port("a")
        here.wait_ready("a")
        ids = here.node.vsctl("get", "open", ".", "external_ids")
        assert "system-id=n1" in ids
        assert "other:br-other,physnet1:br-ex" in ids
        assert "br-ex" in here.node.vsctl("list-br")
        here.agent.stop()
        here.start_agent(*told)
        wait_until(lambda: here.metrics().get("looked", 0) >= 1, what="the agent to have looked")
        assert here.metrics()["switch_transactions"] == 0
