"""The northbound driver on a real ovsdb-server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.drivers.northbound.driver import DATABASE, TABLES, Northbound
from netloom.errors import Unreachable
from netloom.model.document import Resource
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.operations import Comment
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.problem import Unit
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from tests.drivers.northbound_world import BLUE, PORT, SWITCH, WEB, attachment, port, switch, wanted
from tests.plan.routers import planner, resource
from tests.support.ovn import OVN_SHARE, Database, run

pytestmark = pytest.mark.ovn


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path, "nb", OVN_SHARE / "ovn-nb.ovsschema")
    try:
        database.start()
        yield database
    finally:
        database.stop()


def nbctl(server: Database, *argv: str) -> str:
    return run("ovn-nbctl", "--timeout=120", f"--db={server.remote}", *argv)


@asynccontextmanager
async def driver(server: Database, owner: str = "netloom", **more: Any) -> AsyncIterator[Northbound]:
    def connect(changed: Callable[[Any], None]) -> OvsdbClient:
        return OvsdbClient([server.remote], DATABASE, tables=TABLES, random=Random(1), changed=changed)

    north = Northbound(connect, owner, random=Random(2), **more)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_run(north))
        await asyncio.wait_for(north.client.synced.wait(), 120)
        try:
            yield north
        finally:
            task.cancel()


async def _run(north: Northbound) -> None:
    client = north.client
    assert isinstance(client, OvsdbClient)
    await client.run()


async def caught_up(north: Northbound) -> None:
    """Wait until the driver knows what others did: the server tells of changes before it answers."""
    await north.client.transact([Comment("caught up?")])


def play(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 120))


def company() -> DesiredRows:
    """Return a desired with most shapes in it: members of sets and maps, weak and strong references, rows in rows."""
    desired = wanted(blue=switch(other_config={"mcast_snoop": "false"}))
    dhcp = Ref("DHCP_Options", "ns1/blue-v4")
    desired.replace(Unit("Subnet", "ns1", "blue-v4"), Outcome(rows=[Row(*dhcp, {"cidr": "10.0.0.0/24"})]))
    group, addresses, acl = Ref("Port_Group", "pg"), Ref("Address_Set", "as"), Ref("ACL", "pg/1")
    columns: dict[str, Column] = {"priority": 1000, "direction": "to-lport", "match": "ip", "action": "drop"}
    rows = [Row(*group, {"name": "pg", "acls": frozenset({acl})}), Row(*acl, columns), Row(*addresses, {"name": "as"})]
    desired.replace(Unit("SecurityProfile", "ns1", "fw"), Outcome(rows=rows))
    dns = Ref("DNS", "ns1/blue")
    blue = switch(other_config={"mcast_snoop": "false"})
    blue.rows.append(Row(*dns, {}))
    blue.members.append(Member(SWITCH, "dns_records", dns))
    desired.replace(BLUE, blue)
    for i in range(5):
        name = f"p{i}"
        ref = Ref("Logical_Switch_Port", f"ns1/{name}")
        members = [
            Member(group, "ports", ref),
            Member(addresses, "addresses", f"10.0.0.{i}"),
            Member(dns, "records", f"10.0.0.{i}", name),
        ]
        one = port(name, *members, addresses=frozenset({f"02:00:00:00:00:0{i} 10.0.0.{i}"}), dhcpv4_options=dhcp)
        desired.replace(attachment(name), one)
    return desired


def test_what_is_applied_twice_is_written_once(server: Database) -> None:
    async def main() -> None:
        async with driver(server) as north:
            desired = company()
            first = await north.apply(desired, desired.take())
            assert first.transactions == 1
            assert not north.problems
            assert (await north.apply(desired)).written == 0
            assert north.seen() == desired.rows.keys()
        async with driver(server) as north:
            again = await north.apply(desired)
            assert (again.written, again.transactions) == (0, 0)
        assert nbctl(server, "get", "Address_Set", "as", "addresses").count("10.0.0.") == 5
        assert nbctl(server, "lsp-list", "ns1/blue").count("ns1/p") == 5

    play(main)


def test_a_changed_port_costs_one_transaction(server: Database) -> None:
    async def main() -> None:
        async with driver(server) as north:
            desired = company()
            await north.apply(desired, desired.take())
            desired.replace(attachment("p3"), port("p3", addresses=frozenset({"02:00:00:00:00:03 10.0.0.33"})))
            applied = await north.apply(desired, desired.take())
            assert applied.transactions == 1
            assert (await north.apply(desired)).written == 0
            desired.replace(attachment("p3"), None)
            assert (await north.apply(desired, desired.take())).transactions == 1
            assert (await north.apply(desired)).written == 0
        assert "ns1/p3" not in nbctl(server, "lsp-list", "ns1/blue")

    play(main)


def test_a_policy_that_changes_is_the_same_row_and_those_of_others_in_the_router_stay(server: Database) -> None:
    def router(*policies: dict[str, Any]) -> Resource:
        networks = [{"network": "blue"}, {"network": "red"}]
        return resource("r1", {"kind": "Router", "spec": {"networks": networks, "policies": list(policies)}})

    def ours() -> list[str]:
        wanted = ("--bare", "--columns=_uuid,priority,action,nexthops", "find", "Logical_Router_Policy")
        found = nbctl(server, *wanted, "external_ids:netloom-owner=netloom").split("\n\n")
        return sorted(" ".join(one.split()) for one in found if one.strip())

    async def main() -> None:
        made = planner()
        made.put(router({"priority": 7, "action": "drop"}, {"priority": 9, "to": ["10.20.0.0/24"], "action": "drop"}))
        async with driver(server) as north:
            await north.apply(made.desired, made.flush())
            nbctl(server, "lr-policy-add", "ns/r1", "8", "ip4", "drop")
            nbctl(server, "lr-policy-add", "ns/r1", "9", "ip4.dst == 10.9.0.0/16", "reroute", "10.20.0.7")
            await caught_up(north)
            (drop,) = [one for one in ours() if " 9 " in one]
            via = ["10.20.0.8", "10.20.0.7"]
            made.put(router({"priority": 9, "to": ["10.20.0.0/24"], "action": "reroute", "via": via}))
            assert (await north.apply(made.desired, made.flush())).transactions == 1
            assert ours() == [f"{drop.split()[0]} 9 reroute 10.20.0.7 10.20.0.8"]
            nbctl(server, "set", "Logical_Router_Policy", drop.split()[0], "action=drop", "nexthop=10.20.0.9")
            await caught_up(north)
            assert (await north.apply(made.desired)).written == 1
            assert ours() == [f"{drop.split()[0]} 9 reroute 10.20.0.7 10.20.0.8"]
            assert nbctl(server, "get", "Logical_Router_Policy", drop.split()[0], "nexthop") == "[]\n"
            made.put(router())
            await north.apply(made.desired, made.flush())
            assert (await north.apply(made.desired)).written == 0
        assert ours() == []
        left = nbctl(server, "lr-policy-list", "ns/r1")
        assert "10.9.0.0/16" in left
        assert len([line for line in left.splitlines() if line.startswith("  ")]) == 2

    play(main)


def test_foreign_rows_are_untouched_by_apply_delete_and_sweep(server: Database) -> None:
    for argv in (
        ("ls-add", "theirs"),
        ("lsp-add", "theirs", "their-port"),
        ("acl-add", "theirs", "to-lport", "100", "ip", "drop"),
        ("lr-add", "their-router"),
        ("lb-add", "their-lb", "10.0.0.1:80", "10.0.0.2:80"),
        ("create", "Address_Set", "name=their_set", "addresses=1.2.3.4"),
        ("pg-add", "their_group", "their-port"),
        ("create", "DHCP_Options", "cidr=10.9.0.0/24"),
    ):
        nbctl(server, *argv)
    before = dump(server)

    async def main() -> None:
        async with driver(server) as north, driver(server, owner="another") as other:
            theirs = wanted(blue=switch(), web=port("theirs"))
            theirs.replace(BLUE, switch("of-another"))
            theirs.replace(WEB, port("of-another", on="of-another"))
            await other.apply(theirs)
            desired = company()
            await north.apply(desired, desired.take())
            nbctl(server, "lsp-add", "ns1/blue", "stranger")
            await caught_up(north)
            await north.apply(desired, repairing=True)
            assert "stranger" in nbctl(server, "lsp-list", "ns1/blue")
            nbctl(server, "lsp-del", "stranger")
            await north.apply(DesiredRows())
            assert not north.seen()
            assert len(other.seen()) == 2
            await other.apply(DesiredRows())

    play(main)
    assert dump(server) == before


def dump(server: Database) -> str:
    text = run("ovsdb-client", "--timeout=120", "-f", "csv", "dump", server.remote, DATABASE)
    return "\n".join(sorted(text.splitlines()))


def test_what_somebody_changed_is_put_back_and_told(server: Database) -> None:
    async def main() -> None:
        async with driver(server) as north:
            desired = company()
            await north.apply(desired, desired.take())
            before = dump(server)
            nbctl(server, "lsp-set-addresses", "ns1/p1", "unknown")
            nbctl(server, "add", "Address_Set", "as", "addresses", '"6.6.6.6"')
            nbctl(server, "lsp-del", "ns1/p2")
            await caught_up(north)
            applied = await north.apply(desired, repairing=True)
            assert applied.repaired.keys() == {
                attachment("p1"),
                attachment("p2"),
                Unit("SecurityProfile", "ns1", "fw"),
            }
            assert "Logical_Switch_Port ns1/p1: addresses" in applied.repaired[attachment("p1")]
            assert north.counters.repaired["Logical_Switch_Port"] == 2
            assert (await north.apply(desired, repairing=True)).repaired == {}
            without = [line for line in before.splitlines() if "ns1/p2" not in line and "ns1/blue" not in line]
            assert set(without) - {line for line in without if ",pg," in line} <= set(dump(server).splitlines())

    play(main)


def test_one_bad_resource_costs_that_resource(server: Database) -> None:
    async def main() -> None:
        async with driver(server) as north:
            desired = company()
            bad = Unit("Shaping", "ns1", "bad")
            qos = Ref("QoS", "bad")
            columns: dict[str, Column] = {"priority": 1_000_000, "direction": "from-lport", "match": "ip"}
            columns["action"] = {"dscp": 1}
            desired.replace(bad, Outcome(rows=[Row(*qos, columns)], members=[Member(SWITCH, "qos_rules", qos)]))
            applied = await north.apply(desired, desired.take())
            assert applied.units == {bad}
            assert north.problems[bad].reason == "Refused"
            assert north.seen() == desired.rows.keys() - {qos}
            assert (await north.apply(desired)).units == set()
            desired.replace(
                bad, Outcome(rows=[Row(*qos, {**columns, "priority": 1})], members=[Member(SWITCH, "qos_rules", qos)])
            )
            applied = await north.apply(desired, desired.take())
            assert applied.units == {bad}
            assert not north.problems
            assert north.seen() == desired.rows.keys()

    play(main)


def test_two_writers_who_start_at_once_leave_one_row_of_each(server: Database) -> None:
    async def main() -> None:
        async with driver(server) as one, driver(server) as two:
            desired = company()
            await asyncio.gather(one.apply(desired), two.apply(desired))
            await one.apply(desired)
            assert one.seen() == desired.rows.keys()
            assert (await two.apply(desired)).written == 0
            assert one.counters.conflicts + two.counters.conflicts + one.counters.refused + two.counters.refused > 0
        assert nbctl(server, "--bare", "--columns=name", "list", "Logical_Switch").split() == ["ns1/blue"]

    play(main)


def test_a_name_that_a_stranger_has_is_not_stolen_and_used_once_it_is_free(server: Database) -> None:
    nbctl(server, "ls-add", "theirs")
    nbctl(server, "lsp-add", "theirs", "ns1/p1")

    async def main() -> None:
        async with driver(server) as north:
            outdated = asyncio.Event()
            north.on_problem.connect(outdated.set)
            desired = company()
            await north.apply(desired, desired.take())
            assert north.problems.keys() == {attachment("p1")}
            assert north.problems[attachment("p1")].reason == "NameTaken"
            assert PORT not in north.seen()
            outdated.clear()
            nbctl(server, "lsp-del", "ns1/p1")
            await outdated.wait()
            assert (await north.apply(desired)).units == {attachment("p1")}
            assert not north.problems

    play(main)


def test_nothing_is_written_without_the_right_to(server: Database) -> None:
    async def main() -> None:
        async with driver(server, fence=partial(bool, 0)) as north:
            with pytest.raises(Unreachable):
                await north.apply(company())
            assert not north.seen()

    play(main)
