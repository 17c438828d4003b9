"""The bridge of the vxlan fabric in a real Open_vSwitch database: made once, put right, and nobody else's touched."""

import pytest
from msgspec.structs import replace

from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vxlan.bridge import ensure_bridge, is_bridge_ready, tunnel_ofport, underlay_address
from netloom.model.kinds.networks import Fabric
from netloom.plan.problem import ProblemError
from tests.drivers.test_vswitch import PLAN, database, vsctl, working
from tests.support.ovn import Database

__all__ = ["database"]

MINE = "172.31.0.1"


@pytest.mark.ovn
def test_bridge_and_tunnel_are_made_once_and_put_right(database: Database) -> None:
    vsctl(database, "add-br", "br-other", "--", "set", "bridge", "br-other", "fail_mode=standalone")
    before = vsctl(database, "list", "bridge", "br-other")

    async def main(switch: Vswitch) -> None:
        assert not is_bridge_ready(switch, MINE)
        assert await ensure_bridge(switch, underlay=MINE, datapath="netdev")
        assert not await ensure_bridge(switch, underlay=MINE, datapath="netdev")
        assert is_bridge_ready(switch, MINE)
        assert (underlay_address(switch), tunnel_ofport(switch)) == (MINE, None)
        assert await ensure_bridge(switch, underlay="172.31.0.9", datapath="netdev")
        assert underlay_address(switch) == "172.31.0.9"

    working(database, main)
    assert vsctl(database, "get", "bridge", "br-vxlan", "fail_mode", "datapath_type").split() == ["secure", "netdev"]
    assert vsctl(database, "list-ports", "br-vxlan").split() == ["nl-vtep"]
    options = vsctl(database, "get", "interface", "nl-vtep", "type", "options")
    assert options.split("\n")[:2] == ["vxlan", '{key=flow, local_ip="172.31.0.9", remote_ip=flow}']
    assert vsctl(database, "list", "bridge", "br-other") == before
    vsctl(database, "set", "bridge", "br-vxlan", "fail_mode=standalone", "--", "del-port", "nl-vtep")

    async def again(switch: Vswitch) -> None:
        assert await ensure_bridge(switch, underlay=MINE, datapath="netdev")
        assert is_bridge_ready(switch, MINE)

    working(database, again)


@pytest.mark.ovn
@pytest.mark.parametrize("argv", [["add-br", "br-vxlan"], ["add-br", "b", "--", "add-port", "b", "nl-vtep"]])
def test_what_has_the_name_and_is_not_ours_is_left(database: Database, argv: list[str]) -> None:
    vsctl(database, *argv)

    async def main(switch: Vswitch) -> None:
        with pytest.raises(ProblemError, match="not ours"):
            await ensure_bridge(switch, underlay=MINE, datapath="netdev")

    working(database, main)


@pytest.mark.ovn
def test_a_port_of_a_vxlan_network_is_on_that_bridge_and_says_nothing_to_ovn(database: Database) -> None:
    plan = replace(PLAN, fabric=Fabric.VXLAN, vni=10)

    async def main(switch: Vswitch) -> None:
        with pytest.raises(ProblemError, match="br-vxlan"):
            await switch.plug(plan)
        await ensure_bridge(switch, underlay=MINE, datapath="netdev")
        await switch.plug(plan)
        (row,) = switch.interfaces(("ns1", "a"))
        assert switch.bridge_name_of("nl1") == "br-vxlan"
        assert "iface-id" not in row.external_ids
        assert not await switch.correct(row, plan)
        await switch.unplug(row)
        assert switch.interface("nl1") is None

    working(database, main)


@pytest.mark.ovn
def test_a_device_that_is_owed_to_a_linux_bridge_is_remembered_there_too(database: Database) -> None:
    plan = replace(PLAN, fabric=Fabric.VXLAN, vni=10)

    async def main(switch: Vswitch) -> None:
        await ensure_bridge(switch, underlay=MINE, datapath="netdev")
        await switch.plug(plan, origin="linux:br0")
        assert switch.owed() == {"nl1": "br0"}
        await switch.returned("nl1")
        assert switch.owed() == {}

    working(database, main)
