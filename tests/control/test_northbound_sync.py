"""Wishes become rows in OVN's northbound, and what became of them stands in their statuses."""

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest

from netloom.control.ovn.northbound_sync import NorthboundSync
from netloom.control.ovn.plan_feed import PlanFeed
from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.election import Election
from netloom.drivers.northbound.driver import Applied
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import ObjectMeta
from netloom.model.kinds.policy import SecurityProfile, SecurityProfileSpec
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.node.grants import provider_grants
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from netloom.signals import Signal
from tests.control.helpers import run
from tests.control.ovn_world import NB, Site

PORT = "Logical_Switch_Port"


def names(site: Site, table: str) -> set[str]:
    return {row["name"] for row in site.rows(table)}


def test_networks_and_attachments_become_switches_and_ports_and_go_again() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(2)
            await site.settle()
            assert names(site, "Logical_Switch") == {"ns1/blue"}
            assert names(site, PORT) == {"ns1/a0", "ns1/a1"}
            assert site.ours() == set((await site.planned()).desired.rows)
            await site.delete("networkattachment", "a0")
            await site.settle()
            assert names(site, PORT) == {"ns1/a1"}
            await site.delete("networkattachment", "a1")
            await site.delete("subnet", "blue-v4")
            await site.delete("network", "blue")
            await site.settle()
            assert site.ours() == set()

    run(main())


def test_a_provider_network_is_in_ovn_only_while_its_namespace_is_granted_it() -> None:
    async def main() -> None:
        site = Site()
        await site.put("network", "blue", {"provider": {"physicalNetwork": "physnet1", "vlan": 100}})
        await site.put("subnet", "blue-v4", {"network": "blue", "cidr": "192.0.2.0/24", "dhcp": {"enabled": True}})
        await site.attach("a0")
        for grants, granted in (((), False), (("ns1=physnet1:100-199",), True), (("ns2=physnet1",), False)):
            async with site.running(providers=provider_grants(grants)):
                status = await site.status("network", "blue")
                ready = next(one for one in status["conditions"] if one["type"] == "Ready")
                told = await site.condition("networkattachment", "a0", "Programmed")
                if granted:
                    assert names(site, "Logical_Switch") == {"ns1/blue"}
                    assert "ns1/a0" in names(site, PORT)
                    assert (ready["status"], told) == ("True", ("", ""))
                    continue
                assert site.ours() == set()
                assert (ready["status"], ready["reason"]) == ("False", "NotGranted")
                assert "setting providerGrants: ns1=physnet1:100" in ready["message"]
                assert told == ("False", "NotGranted")

    run(main())


def test_nothing_is_written_to_the_store_for_what_is_well_nor_to_the_database_for_what_stays() -> None:
    async def main() -> None:
        site = Site()
        async with site.running() as manager:
            await site.put_blue(3)
            await site.put("router", "r1", {"networks": [{"network": "blue"}]})
            await site.put("securityprofile", "fw", {"ingress": []})
            await site.settle()
            assert manager.northbound is not None
            assert manager.plans is not None
            revision, transactions = await site.store.revision(), manager.northbound.counters.transactions
            await asyncio.sleep(3000)  # Sweeps included.
            assert manager.plans.sweeps > 3
            assert await site.store.revision() == revision
            assert manager.northbound.counters.transactions == transactions
            for i in range(3):
                assert await site.condition("networkattachment", f"a{i}", "Programmed") == ("", "")

    run(main())


def test_what_is_deleted_while_it_is_written_is_not_taken_to_be_in_the_database() -> None:
    class North:
        """A database that takes its time."""

        def __init__(self) -> None:
            self.client = self
            self.synced, self.turns = asyncio.Event(), asyncio.Semaphore(0)
            self.synced.set()
            self.asked = 0
            self.on_problem: Signal[[]] = Signal()

        async def apply(self, *_: object, **__: object) -> Applied:
            self.asked += 1
            await self.turns.acquire()
            return Applied()

    async def main() -> None:
        north: Any = North()
        recorder: Any = None
        feed = PlanFeed(NorthboundSync(north, recorder=recorder), random=Random(0))
        task = asyncio.create_task(feed.run())
        key, unit = Key("ns1", "fw"), Unit("SecurityProfile", "ns1", "fw")
        meta = ObjectMeta(name="fw", namespace="ns1", generation=1)
        spec = SecurityProfileSpec()
        one = SecurityProfile(api_version="netloom.dev/v1alpha1", kind="SecurityProfile", metadata=meta, spec=spec)
        feed.changed("SecurityProfile", Change(key, None, one))
        await asyncio.sleep(1)
        assert north.asked == 1
        feed.changed("SecurityProfile", Change(key, one, None))
        feed.changed("SecurityProfile", Change(key, None, one))
        north.turns.release()
        await asyncio.sleep(1)
        assert north.asked == 2
        assert unit not in feed.programmed
        north.turns.release()
        await asyncio.sleep(1)
        assert feed.programmed == {unit: 1}
        task.cancel()

    run(main())


def test_what_cannot_be_read_is_not_taken_to_be_gone() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(2)
            await site.put("router", "r1", {"networks": [{"network": "blue"}]})
            await site.settle()
            there = site.ours()
            await site.edit("router", "r1", networks="as a later version may write it")
            await site.settle()
            assert site.ours() == there
            await site.delete("networkattachment", "a0")
            await site.settle()
            assert names(site, PORT) == {"ns1/a1", "ns1/r1:blue:plug"}
        there = site.ours()
        await site.delete("networkattachment", "a1")
        async with site.running():
            await site.settle()
            assert site.ours() == there
            await site.edit("router", "r1", networks=[])
            await asyncio.sleep(1000)  # With a sweep.
            assert names(site, PORT) == set()
            assert names(site, "Logical_Router") == {"ns1/r1"}

    run(main())


def test_what_ovn_has_is_ready_and_says_why_if_not() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put("router", "r1", {"networks": [{"network": "blue"}]})
            await site.settle()
            assert await site.condition("router", "r1") == ("False", "NetworkMissing")
            assert "NetworkMissing" in await site.reasons("r1")
            await site.put_blue(0)
            await site.settle()
            assert await site.condition("router", "r1") == ("True", "Programmed")
            assert (await site.status("router", "r1"))["observedGeneration"] == 1
            await site.edit("router", "r1", routes=[{"to": "10.9.0.0/16", "via": "10.0.0.9"}])
            await site.settle()
            assert (await site.status("router", "r1"))["observedGeneration"] == 2

    run(main())


def test_a_profile_says_how_many_ports_it_covers() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(1)
            await site.attach("named", securityProfiles=["fw"])
            await site.attach("labelled", labels={"app": "web"})
            spec = {"selector": {"matchLabels": {"app": "web"}}, "ingress": []}
            await site.put("securityprofile", "fw", spec)
            await site.settle()
            assert (await site.status("securityprofile", "fw"))["ports"] == 2
            await site.delete("networkattachment", "labelled")
            await site.settle()
            assert (await site.status("securityprofile", "fw"))["ports"] == 1

    run(main())


def test_a_shaping_says_what_of_it_is_in_force() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(1)
            await site.put("shaping", "slow", {"from": {"attachment": "a0"}, "rate": "10mbit", "delay": "20ms"})
            await site.settle()
            status = await site.status("shaping", "slow")
            assert status["applied"]["rate"] == "10mbit"
            assert [one["field"] for one in status["unsupported"]] == ["delay"]
            assert await site.condition("shaping", "slow") == ("False", "ImpairmentUnsupported")
            await site.delete("shaping", "slow")
            await site.put("shaping", "slow", {"from": {"attachment": "a0"}, "rate": "10mbit"})
            await site.settle()
            assert await site.condition("shaping", "slow") == ("True", "Programmed")

    run(main())


def test_an_attachment_whose_name_a_stranger_has_says_so_until_it_is_free() -> None:
    async def main() -> None:
        site = Site()
        marks: dict[str, Any] = {"op": "insert", "table": PORT, "row": {"name": "ns1/a0"}, "uuid-name": "p"}
        holder = {"name": "theirs", "ports": ["named-uuid", "p"]}
        site.transact(marks, {"op": "insert", "table": "Logical_Switch", "row": holder})
        async with site.running():
            await site.put_blue(2)
            await site.settle()
            assert await site.condition("networkattachment", "a0", "Programmed") == ("False", "NameTaken")
            assert await site.condition("networkattachment", "a1", "Programmed") == ("", "")
            assert Ref(PORT, "ns1/a1") in site.ours()
            assert "NameTaken" in await site.reasons("a0")
            site.transact({"op": "delete", "table": "Logical_Switch", "where": [["name", "==", "theirs"]]})
            await site.settle()
            assert Ref(PORT, "ns1/a0") in site.ours()
            assert await site.condition("networkattachment", "a0", "Programmed") == ("", "")

    run(main())


def test_what_somebody_changed_is_put_back_by_the_sweep_and_told() -> None:
    async def main() -> None:
        site = Site()
        async with site.running() as manager:
            await site.put_blue(2)
            await site.settle()
            where = [["name", "==", "ns1/a0"]]
            site.transact({"op": "update", "table": PORT, "where": where, "row": {"addresses": "unknown"}})
            await asyncio.sleep(600)
            [row] = [row for row in site.rows(PORT) if row["name"] == "ns1/a0"]
            assert row["addresses"] != "unknown"
            assert await site.reasons("a0") >= {"Repaired"}
            assert manager.northbound is not None
            assert manager.northbound.counters.repaired == {PORT: 1}

    run(main())


def test_wishes_wait_for_a_database_that_is_away() -> None:
    async def main() -> None:
        site = Site()
        with site.away():
            async with site.running() as manager:
                await site.put_blue(2)
                await site.settle(60)
                assert not manager.ready
                assert manager.plans is not None
                assert not manager.plans.in_step
        async with site.running() as manager:
            assert manager.ready
            assert site.ours() == set((await site.planned()).desired.rows)
            with site.away():
                await site.delete("networkattachment", "a0")
                await site.attach("late")
                await site.settle(60)
            await site.settle(30)
            assert names(site, PORT) == {"ns1/a1", "ns1/late"}

    run(main())


def test_rows_of_what_was_deleted_while_nobody_looked_are_removed() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(3)
            await site.put("securityprofile", "fw", {"ingress": []})
            await site.settle()
        await site.delete("networkattachment", "a1")
        await site.delete("securityprofile", "fw")
        async with site.running():
            assert names(site, PORT) == {"ns1/a0", "ns1/a2"}
            assert site.ours() == set((await site.planned()).desired.rows)

    run(main())


def test_a_restart_with_nothing_changed_writes_nothing() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(5)
            await site.put("router", "r1", {"networks": [{"network": "blue"}]})
            await site.settle()
        revision = await site.store.revision()
        async with site.running() as manager:
            await site.settle()
            assert manager.northbound is not None
            assert manager.northbound.counters.transactions == 0
            assert await site.store.revision() == revision

    run(main())


def test_who_stands_by_writes_nothing_and_takes_over() -> None:
    async def main() -> None:
        site = Site()
        managers = []
        async with asyncio.TaskGroup() as group:
            tasks = []
            for name in ("one", "two"):
                election = Election(site.store, name="lead", namespace="default", identity=name, random=site.random)
                manager = site.assemble(election)
                managers.append(manager)
                tasks.append(group.create_task(manager.run()))
                await site.settle(2)
            await site.put_blue(3)
            await site.settle()
            first, second = (one.northbound for one in managers)
            assert first is not None
            assert second is not None
            assert first.counters.transactions > 0
            assert second.counters.transactions == 0
            assert managers[1].ready
            tasks[0].cancel()
            await site.settle(10)
            await site.attach("late")
            await site.settle()
            assert second.counters.transactions > 0
            assert site.ours() == set((await site.planned()).desired.rows)
            tasks[1].cancel()

    run(main())


def test_a_router_names_the_node_that_is_its_gateway_now() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put("network", "outside", {"provider": {"physicalNetwork": "physnet1"}})
            await site.put_blue(0)
            for node in ("gw1", "gw2"):
                await site.put("node", node, {"underlayIP": "172.31.0.1"}, "")
            gateway = {"network": "outside", "ips": ["192.0.2.10/24"], "nodes": ["gw1", "gw2"]}
            await site.put("router", "r1", {"networks": [{"network": "blue"}], "gateway": gateway})
            await site.settle()
            assert await site.condition("router", "r1") == ("True", "Programmed")
            bound(site, "cr-ns1/r1:outside", "gw1")
            await site.settle()
            assert (await site.status("router", "r1"))["gatewayNode"] == "gw1"
            chassis(site, "gw2")
            where = [["logical_port", "==", "cr-ns1/r1:outside"]]
            [there] = [row["_uuid"] for row in site.rows("Chassis", site.sb) if row["name"] == "gw2"]
            moved = {"op": "update", "table": "Port_Binding", "where": where, "row": {"chassis": there}}
            site.transact(moved, database=site.sb)
            await site.settle()
            assert (await site.status("router", "r1"))["gatewayNode"] == "gw2"

    run(main())


def test_a_load_balancer_counts_the_endpoints_that_answer() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(0)
            for i in range(3):
                await site.attach(f"web{i}", labels={"app": "web"}, ips=[f"10.0.0.{10 + i}"])
            spec = {
                "networks": ["blue"],
                "vips": [{"ip": "10.0.0.100", "port": 80}],
                "selector": {"matchLabels": {"app": "web"}},
                "healthCheck": {},
            }
            await site.put("loadbalancer", "lb", spec)
            await site.settle()
            assert (await site.status("loadbalancer", "lb"))["endpointsUp"] == 3
            for i, word in enumerate(("online", "offline", "error")):
                row = {
                    "ip": f"10.0.0.{10 + i}",
                    "port": 80,
                    "protocol": "tcp",
                    "logical_port": f"ns1/web{i}",
                    "status": word,
                    "src_mac": "",
                    "src_ip": "",
                }
                site.transact({"op": "insert", "table": "Service_Monitor", "row": row}, database=site.sb)
            await site.settle()
            status = await site.status("loadbalancer", "lb")
            assert (status["endpointsUp"], status["endpointsDown"]) == (1, 2)

    run(main())


def chassis(site: Site, name: str) -> None:
    encap = {
        "op": "insert",
        "table": "Encap",
        "row": {"type": "geneve", "ip": f"172.31.0.{name[-1]}"},
        "uuid-name": "e",
    }
    encap["row"]["chassis_name"] = name  # type: ignore[index]
    row = {"name": name, "encaps": ["named-uuid", "e"]}
    site.transact(encap, {"op": "insert", "table": "Chassis", "row": row}, database=site.sb)


def bound(site: Site, port: str, node: str) -> None:
    chassis(site, node)
    [there] = [row["_uuid"] for row in site.rows("Chassis", site.sb) if row["name"] == node]
    datapath = {"op": "insert", "table": "Datapath_Binding", "row": {"tunnel_key": 1}, "uuid-name": "d"}
    row = {
        "logical_port": port,
        "type": "chassisredirect",
        "chassis": there,
        "datapath": ["named-uuid", "d"],
        "tunnel_key": 1,
    }
    site.transact(datapath, {"op": "insert", "table": "Port_Binding", "row": row}, database=site.sb)


async def churn(site: Site, steps: int) -> None:
    """Make, change and remove things at random."""
    random = site.random
    for _ in range(steps):
        name = f"x{random.randrange(6)}"
        with contextlib.suppress(AlreadyExists, NotFound, Conflict):
            match random.randrange(6):
                case 0 | 1:
                    await site.attach(name, securityProfiles=random.choice([[], ["fw"]]))
                case 2:
                    await site.delete("networkattachment", name)
                case 3:
                    await site.edit(
                        "networkattachment", name, allowedAddresses=[f"10.0.0.{random.randrange(200, 250)}"]
                    )
                case 4:
                    await site.put("securityprofile", "fw", {"ingress": []})
                case 5:
                    await site.delete("securityprofile", "fw")
        await asyncio.sleep(random.expovariate(20))


async def killed_and_cut() -> None:
    """Kill the controllers and cut connections at any moment, during churn; then let it converge."""
    site = Site()
    await site.put_blue(2)
    random = site.random
    for _ in range(3):
        manager = site.assemble()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(manager.run())
            changing = group.create_task(churn(site, 15))
            for _ in range(random.randrange(4)):
                await asyncio.sleep(random.expovariate(4))
                site.cut()
            await asyncio.sleep(random.expovariate(1))
            task.cancel()
            await changing
    async with site.running() as manager:
        await site.settle(60)
        planner = await site.planned()
        assert site.ours() == set(planner.desired.rows)
        assert manager.northbound is not None
        applied = await manager.northbound.apply(planner.desired)
        assert applied.written == 0


@pytest.mark.slow
def test_killed_at_any_point_and_started_again_it_converges() -> None:
    for seed in range(40):
        try:
            run(killed_and_cut(), seed)
        except BaseException as error:
            error.add_note(f"replay with: run(killed_and_cut(), {seed})")
            raise


def test_a_database_that_was_emptied_is_filled_again() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put_blue(3)
            await site.settle()
            with site.away():
                site.transact({"op": "delete", "table": "Logical_Switch", "where": []})
                site.transact({"op": "delete", "table": "DNS", "where": []})
                await site.settle()
            await site.settle(30)
            assert site.ours() == set((await site.planned()).desired.rows)
            assert NB in site.servers

    run(main())


def test_an_attachment_of_another_kind_of_network_is_nothing_to_ovn() -> None:
    async def main() -> None:
        site = Site()
        async with site.running():
            await site.put("network", "far", {"fabric": "vxlan"})
            await site.put("subnet", "far-v4", {"network": "far", "cidr": "10.7.0.0/24"})
            await site.attach("a", network="far")
            await site.settle()
            assert site.ours() == set()
            stored = await site.store.get(NETWORK_ATTACHMENT, "ns1", "a")
            assert stored.document()["status"]["ips"]

    run(main())
