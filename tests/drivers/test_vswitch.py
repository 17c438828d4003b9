"""Our rows in a real Open_vSwitch database: only ours are changed, together, and nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from netloom.drivers.vswitch.driver import Vswitch, given
from netloom.drivers.vswitch.mirrors import Mirrors
from netloom.drivers.vswitch.prepare import Preparation, ensure_mappings, prepare, read_mappings
from netloom.drivers.vswitch.writer import GROUP, GroupWriter
from netloom.errors import Unreachable
from netloom.model.kinds.attachments import PortType
from netloom.ovsdb.errors import TransactionRefused
from netloom.ovsdb.operations import Comment
from netloom.plan.node.mirrors import GrePort, MirrorPlan
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import ProblemError
from tests.support.ovn import OVS_SHARE, Database, run
from tests.support.process import scratch

ONE = frozenset(("one",))
PLAN = PortPlan(
    uid="u1", namespace="ns1", name="a", type=PortType.INTERNAL, device="nl1", inner="nl1", netns="",
    mac="02:00:00:00:00:09", mtu=1442, addresses=("10.0.0.9/24", "fd00::9/64"),
)  # fmt: skip
TOLD = Preparation(node="n1", ovn_remote="tcp:192.0.2.1:6642", encap_ip="172.31.0.1")


@pytest.fixture
def database() -> Iterator[Database]:
    with scratch("vswitch") as folder:
        made = Database(folder, "db", OVS_SHARE / "vswitch.ovsschema")
        made.start()
        run("ovs-vsctl", f"--db={made.remote}", "--no-wait", "init")
        try:
            yield made
        finally:
            made.stop()


def vsctl(database: Database, *argv: str) -> str:
    return run("ovs-vsctl", f"--db={database.remote}", "--no-wait", *argv)


def working(database: Database, main: Callable[[Vswitch], Awaitable[None]], owner: str = "netloom") -> None:
    async def there() -> None:
        switch = Vswitch([database.remote], owner=owner, random=Random(1))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(switch.client.run()), group.create_task(switch.writer.run())]
            async with asyncio.timeout(120):
                await switch.client.synced.wait()
                await switch.lock.held.wait()
                await main(switch)
            for task in tasks:
                task.cancel()

    asyncio.run(there())


@pytest.mark.ovn
@pytest.mark.parametrize("chosen", ["", "9000"])
def test_flows_stay_until_new_ones_are_computed_for_as_long_as_somebody_chose(database: Database, chosen: str) -> None:
    key = "ovn-ofctrl-wait-before-clear"
    if chosen:
        vsctl(database, "set", "open", ".", f"external_ids:{key}={chosen}")

    async def main(switch: Vswitch) -> None:
        assert await prepare(switch, TOLD)
        assert switch.root().external_ids[key] == (chosen or "1000")
        assert not await prepare(switch, TOLD)

    working(database, main)


@pytest.mark.ovn
def test_a_bare_switch_is_prepared_once_and_what_is_others_stays(database: Database) -> None:
    vsctl(database, "set", "open", ".", "external_ids:mine=1", "external_ids:ovn-bridge-mappings=other:br-o")

    async def main(switch: Vswitch) -> None:
        assert await prepare(switch, TOLD)
        assert await ensure_mappings(switch, {"physnet1": "br-ex"}, "netdev")
        assert not await prepare(switch, TOLD)
        assert not await ensure_mappings(switch, {"physnet1": "br-ex"}, "netdev")

    working(database, main)
    ids = vsctl(database, "get", "open", ".", "external_ids")
    for entry in ('mine="1"', "system-id=n1", 'ovn-encap-ip="172.31.0.1"', '"other:br-o,physnet1:br-ex"'):
        assert entry in ids
    assert vsctl(database, "list-br").split() == ["br-ex", "br-int"]
    assert vsctl(database, "get", "bridge", "br-int", "fail_mode", "datapath_type").split() == ["secure", "netdev"]
    assert vsctl(database, "list-ports", "br-int").split() == []


@pytest.mark.ovn
def test_a_port_is_plugged_corrected_and_unplugged(database: Database) -> None:
    async def main(switch: Vswitch) -> None:
        with pytest.raises(ProblemError, match="--prepare"):
            await switch.plug(PLAN)
        await prepare(switch, TOLD)
        await switch.plug(PLAN)
        (row,) = switch.interfaces(("ns1", "a"))
        assert (row.name, row.mac, row.mtu_request, given(row)) == ("nl1", PLAN.mac, 1442, PLAN.addresses)
        assert switch.attachments() == {("ns1", "a")}
        assert not await switch.correct(row, PLAN)
        assert await switch.correct(row, replace(PLAN, mtu=1300, addresses=()))
        (row,) = switch.interfaces(("ns1", "a"))
        assert (row.mtu_request, given(row)) == (1300, ())
        assert row.external_ids["iface-id"] == "ns1/a"
        await switch.unplug(row)
        assert switch.interface("nl1") is None

    working(database, main)


@pytest.mark.ovn
def test_another_owners_ports_are_not_seen_as_ours(database: Database) -> None:
    async def theirs(switch: Vswitch) -> None:
        await prepare(switch, TOLD)
        await switch.plug(PLAN)

    async def ours(switch: Vswitch) -> None:
        assert switch.interfaces(("ns1", "a")) == []
        assert switch.attachments() == set()
        row = switch.interface("nl1")
        assert row is not None
        with pytest.raises(ProblemError, match="in use"):
            await switch.move(row, replace(PLAN, uid="u2"))

    working(database, theirs, owner="somebody")
    working(database, ours)


@pytest.mark.ovn
def test_a_taken_name_costs_its_own_port_only(database: Database) -> None:
    async def main(switch: Vswitch) -> None:
        await prepare(switch, TOLD)
        await switch.plug(PLAN)
        before = switch.writer.counters.transactions
        others = [switch.plug(replace(PLAN, name=f"b{i}", device=f"nlb{i}")) for i in range(5)]
        results = await asyncio.gather(switch.plug(replace(PLAN, name="c")), *others, return_exceptions=True)
        assert isinstance(results[0], TransactionRefused)
        assert results[1:] == [None] * 5
        assert len(switch.attachments()) == 6
        assert switch.writer.counters.transactions == before + 7

    working(database, main)


@pytest.mark.ovn
def test_mirrors_are_made_changed_and_removed_and_others_stay(database: Database) -> None:
    async def main(switch: Vswitch) -> None:
        await prepare(switch, TOLD)
        for name in ("one", "two"):
            await switch.plug(replace(PLAN, name=name, device=name))
        vsctl(
            database, "--", "--id=@m", "create", "mirror", "name=theirs", "--", "set", "bridge", "br-int", "mirrors=@m"
        )
        mirrors = Mirrors(switch)
        plan = MirrorPlan(destination="two", sent=ONE, received=ONE)
        waits = replace(plan, destination="absent")

        def stirred() -> bool:
            tap = switch.interface("two")
            assert tap is not None
            port = switch.port_of(tap)
            assert port is not None
            return port.protected

        assert await mirrors.apply("ns1", {"m": plan, "waits": waits}) == 1
        assert stirred()
        assert await mirrors.apply("ns1", {"m": plan}) == 0
        assert stirred()
        more = replace(plan, sent=frozenset(("one", "absent")))
        assert await mirrors.apply("ns1", {"m": more}) == 0, "a source that is not there yet"
        assert await mirrors.apply("ns1", {"m": replace(plan, received=frozenset())}) == 1
        assert not stirred()
        assert await mirrors.apply("ns2", {}) == 0
        assert mirrors.namespaces() == {"ns1"}
        assert await mirrors.apply("ns1", {}) == 1
        assert stirred()

    working(database, main)
    assert "theirs" in vsctl(database, "list", "mirror")
    assert "ns1/m" not in vsctl(database, "list", "mirror")


@pytest.mark.ovn
def test_the_gre_port_of_a_mirror_comes_and_goes_with_it_and_serves_no_other(database: Database) -> None:
    def through(remote: str) -> MirrorPlan:
        port = GrePort("mirror_0000000a", {"local_ip": "192.0.2.1", "remote_ip": remote, "key": "10"})
        return MirrorPlan(destination=port.name, sent=ONE, received=ONE, tunnels=(port,))

    async def main(switch: Vswitch) -> None:
        await prepare(switch, TOLD)
        await switch.plug(replace(PLAN, name="one", device="one"))
        mirrors = Mirrors(switch)

        def leads() -> str:
            found = switch.interface("mirror_0000000a")
            return "" if found is None else f"{found.type} {found.options['remote_ip']}"

        assert await mirrors.apply("ns1", {"m": through("192.0.2.2")}) == 1
        assert leads() == "gre 192.0.2.2"
        assert await mirrors.apply("ns1", {"m": through("192.0.2.2")}) == 0
        assert await mirrors.apply("ns2", {"same-key": through("192.0.2.9")}) == 0
        assert (leads(), mirrors.namespaces()) == ("gre 192.0.2.2", {"ns1"})
        await mirrors.apply("ns1", {"m": through("192.0.2.3")})
        assert leads() == "gre 192.0.2.3"
        assert await mirrors.apply("ns2", {}) == 0
        assert leads()
        assert await mirrors.apply("ns1", {}) == 1
        assert (leads(), mirrors.namespaces()) == ("", set())

    working(database, main)


@pytest.mark.ovn
def test_the_lock_is_had_by_one(database: Database) -> None:
    async def main(switch: Vswitch) -> None:
        second = Vswitch([database.remote], owner="netloom", random=Random(2))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(second.client.run())
            await second.client.synced.wait()
            assert not second.lock.held.is_set()
            task.cancel()

    working(database, main)


def run_writer(
    main: Callable[[GroupWriter], Coroutine[Any, Any, None]], transact: Callable[..., Awaitable[Any]]
) -> None:
    async def there() -> None:
        writer = GroupWriter(transact)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writer.run())
            await main(writer)
            task.cancel()

    asyncio.run(there())


def test_changes_that_come_together_travel_together() -> None:
    sizes: list[int] = []

    async def transact(operations: list[Any]) -> None:
        sizes.append(len(operations))
        await asyncio.sleep(0)

    async def main(writer: GroupWriter) -> None:
        await asyncio.gather(*(writer.commit([Comment("x")]) for _ in range(GROUP * 2 + 3)))
        assert writer.counters.changes == GROUP * 2 + 3

    run_writer(main, transact)
    assert sizes == [GROUP, GROUP, 3]


def test_a_database_that_is_away_fails_all_who_wait_and_nobody_is_forgotten() -> None:
    async def transact(operations: list[Any]) -> None:
        raise Unreachable("away")

    async def main(writer: GroupWriter) -> None:
        results = await asyncio.gather(*(writer.commit([Comment("x")]) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in results] == [Unreachable] * 3

    run_writer(main, transact)


def test_mappings_are_read_as_ovn_reads_them() -> None:
    assert read_mappings("a:br-a, b:br-b,,nonsense,:x,y:") == [("a", "br-a"), ("b", "br-b")]
