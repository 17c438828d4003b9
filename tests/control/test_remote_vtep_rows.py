"""RemoteVTEPs in OVN's northbound: one machine more is one value more, and problems stand at the EVPNNetwork."""

from typing import Any

from netloom.model.registry import BGP_SPEAKER
from tests.control.helpers import run
from tests.control.ovn_world import Site

PORT = "vxlan_192.0.2.1_10"
VTEP = {
    "evpnNetwork": "blue", "network": "blue", "node": "n1", "address": "192.0.2.1", "vni": 10, "localVNI": 10,
    "flood": True, "macs": [{"mac": "02:00:00:00:0b:01", "ips": ["10.0.0.99"]}],
}  # fmt: skip


async def extended(site: Site) -> None:
    """Have a speaker on n1 that forwards for blue."""
    await site.put_blue(1)
    await site.put("node", "n1", {"underlayIP": "172.31.0.1"}, namespace="")
    speaker = {"asn": 65001, "routerID": "172.31.0.1", "node": "n1"}
    made = (await site.put("bgpspeaker", "main", speaker)).document()
    made["status"] = {"lastHeartbeat": "2099-01-01T00:00:00Z"}
    await site.store.update(BGP_SPEAKER, made, subresource="status")
    await site.put("evpnnetwork", "blue", {"network": "blue", "speaker": "main"})
    await site.settle()
    assert (await site.status("evpnnetwork", "blue"))["forwarding"]


def port(site: Site) -> dict[str, Any]:
    """Return the row of the port that is ours; {}: there is none."""
    rows = [row for row in site.rows("Logical_Switch_Port") if row["name"] == PORT]
    return next((row for row in rows if "netloom-owner" in dict(row["external_ids"][1])), {})


def values(site: Site, column: str) -> set[str]:
    found = port(site)[column]
    return set(found[1]) if isinstance(found, list) else {found}


def test_addresses_come_and_go_and_leave_nothing() -> None:
    async def main() -> None:
        site = Site()
        async with site.running() as manager:
            await extended(site)
            before = site.ours()
            await site.put("remotevtep", "blue.192-0-2-1.10.0", VTEP)
            await site.settle()
            assert values(site, "addresses") == {"02:00:00:00:0b:01 10.0.0.99"}
            more = [{"mac": "02:00:00:00:0b:02", "ips": ["10.0.0.98"]}]
            await site.put("remotevtep", "blue.192-0-2-1.10.1", VTEP | {"macs": more})
            await site.settle()
            assert values(site, "addresses") == {"02:00:00:00:0b:01 10.0.0.99", "02:00:00:00:0b:02 10.0.0.98"}
            assert site.ours() == set((await site.planned()).desired.rows)
            await site.delete("remotevtep", "blue.192-0-2-1.10.1")
            await site.settle()
            assert values(site, "addresses") == {"02:00:00:00:0b:01 10.0.0.99"}
            assert manager.northbound is not None
            transactions = manager.northbound.counters.transactions
            await site.settle(1000.0)
            assert manager.northbound.counters.transactions == transactions
            await site.delete("remotevtep", "blue.192-0-2-1.10.0")
            await site.settle()
            assert site.ours() == before
            assert await site.condition("evpnnetwork", "blue", "Programmed") == ("", "")

    run(main())


def test_a_problem_of_a_remote_vtep_stands_at_its_evpn_network_until_it_is_gone() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await extended(site)
            port_row = {"op": "insert", "table": "Logical_Switch_Port", "row": {"name": PORT}, "uuid-name": "p"}
            switch = {"name": "theirs", "ports": ["named-uuid", "p"]}
            site.transact(port_row, {"op": "insert", "table": "Logical_Switch", "row": switch})
            await site.put("remotevtep", "blue.192-0-2-1.10.0", VTEP)
            await site.put("remotevtep", "blue.172-31-0-1.10.0", VTEP | {"address": "172.31.0.1"})
            await site.settle()
            assert port(site) == {}
            status = await site.status("evpnnetwork", "blue")
            [told] = [one for one in status["conditions"] if one["type"] == "Programmed"]
            assert told["status"] == "False"
            assert "172.31.0.1 is that of Node n1" in told["message"]
            assert PORT in told["message"]
            await site.delete("remotevtep", "blue.172-31-0-1.10.0")
            await site.settle()
            assert await site.condition("evpnnetwork", "blue", "Programmed") == ("False", "NameTaken")
            site.transact({"op": "delete", "table": "Logical_Switch", "where": [["name", "==", "theirs"]]})
            await site.settle(60.0)
            assert values(site, "addresses") == {"02:00:00:00:0b:01 10.0.0.99"}
            assert await site.condition("evpnnetwork", "blue", "Programmed") == ("", "")

    run(main())
