"""What is wanted and what is seen, and what is to be written: on plain values."""

from hypothesis import given
from hypothesis import strategies as st

from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Outcome, Ref, Row
from tests.drivers.northbound_world import (
    BLUE,
    PORT,
    SWITCH,
    WEB,
    Plain,
    attachment,
    port,
    switch,
    wanted,
)


def test_a_switch_and_its_port_are_inserted_and_nothing_is_left_to_do() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web", addresses=frozenset({"02:00:00:00:00:01 10.0.0.2"})))
    bundles = database.apply(desired, desired.take())
    assert [one.unit for one in bundles] == [BLUE, WEB]
    [lsw] = database.of("Logical_Switch").values()
    [(uuid, lsp)] = database.of("Logical_Switch_Port").items()
    assert lsw.ports == {uuid}
    assert lsp.external_ids == {
        "netloom-owner": "netloom",
        "netloom-key": "ns1/web",
        "netloom-of": "NetworkAttachment/ns1/web",
    }
    assert database.look(desired) == []


def test_a_switch_that_is_there_is_filled_by_a_mutation_and_not_written_again() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web"))
    database.apply(desired, desired.take())
    desired.replace(attachment("db"), port("db"))
    [bundle] = database.look(desired, desired.take())
    assert bundle.unit == attachment("db")
    assert [one.ref.key for one in bundle.inserts] == ["ns1/db"]
    assert [(one.ref, one.column) for one in bundle.joins] == [(SWITCH, "ports")]
    assert not bundle.updates


def test_only_the_columns_that_differ_are_changed() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web", type="", addresses=frozenset({"a"})))
    database.apply(desired, desired.take())
    desired.replace(WEB, port("web", type="", addresses=frozenset({"b"})))
    [bundle] = database.apply(desired, desired.take())
    [change] = bundle.updates
    assert change.columns == {"addresses": frozenset({"b"})}
    assert change.seen == {"addresses": frozenset({"a"})}
    assert bundle.size == 1
    assert database.look(desired) == []


def test_a_port_that_is_not_wanted_any_more_is_taken_out_of_its_switch() -> None:
    database = Plain()
    group = Ref("Port_Group", "pg")
    desired = wanted(blue=switch(), web=port("web", Member(group, "ports", PORT)))
    profile = Unit("SecurityProfile", "ns1", "fw")
    desired.replace(profile, Outcome(rows=[Row(*group, {"name": "pg"})]))
    database.apply(desired, desired.take())
    assert len(next(iter(database.of("Port_Group").values())).ports) == 1
    desired.replace(WEB, None)
    [bundle] = database.apply(desired, desired.take())
    assert bundle.unit == WEB
    assert [one.ref for one in bundle.leaves] == [SWITCH], "the group's weak reference goes by itself"
    assert not database.of("Logical_Switch_Port")
    assert not next(iter(database.of("Port_Group").values())).ports
    assert database.look(desired) == []


def test_a_row_of_another_owner_or_of_nobody_is_not_seen() -> None:
    database = Plain()
    database.add("Logical_Switch", name="theirs")
    database.add("Logical_Switch", name="others", external_ids={"netloom-owner": "other", "netloom-key": "ns1/blue"})
    assert database.look(DesiredRows()) == []
    assert not database.seen.uuids


def test_a_foreign_port_in_our_switch_stays() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web"))
    database.apply(desired, desired.take())
    foreign = database.add("Logical_Switch_Port", name="stranger")
    uuid = database.seen.uuids[SWITCH]
    database.change("Logical_Switch", uuid, ports=database.rows["Logical_Switch", uuid].ports | {foreign})
    assert database.look(desired) == []
    desired.replace(WEB, None)
    database.apply(desired, desired.take())
    assert database.rows["Logical_Switch", uuid].ports == {foreign}


def test_a_name_that_a_stranger_has_costs_the_resource_that_wants_it_only() -> None:
    database = Plain()
    taken = database.add("Logical_Switch", name="x", ports=frozenset())
    stranger = database.add("Logical_Switch_Port", name="ns1/web")
    database.change("Logical_Switch", taken, ports=frozenset({stranger}))
    desired = wanted(blue=switch(), web=port("web"), db=port("db"))
    bundles = database.apply(desired)
    assert {one.unit for one in bundles} == {BLUE, attachment("db")}
    problem = database.last.problems[WEB]
    assert problem.reason == "NameTaken"
    assert "'ns1/web'" in problem.message
    database.change("Logical_Switch_Port", stranger, name="ns1/moved")
    assert [one.unit for one in database.apply(desired)] == [WEB]


def test_of_two_rows_of_one_key_the_smallest_uuid_stays() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web"))
    database.apply(desired, desired.take())
    keep = database.seen.uuids[PORT]
    row = database.rows["Logical_Switch_Port", keep]
    second = database.add("Logical_Switch_Port", name="copy", external_ids=row.external_ids)
    uuid = database.seen.uuids[SWITCH]
    database.change("Logical_Switch", uuid, ports=frozenset({keep, second}))
    database.add("Logical_Switch", name="copy", external_ids=database.rows["Logical_Switch", uuid].external_ids)
    database.apply(desired)
    assert list(database.of("Logical_Switch_Port")) == [keep]
    assert list(database.of("Logical_Switch")) == [uuid]
    assert database.look(desired) == []


def test_what_somebody_changed_in_our_rows_is_put_back() -> None:
    database = Plain()
    desired = wanted(blue=switch(other_config={"mcast_snoop": "false"}), web=port("web"))
    addresses = Ref("Address_Set", "as")
    desired.replace(Unit("SecurityProfile", "ns1", "fw"), Outcome(rows=[Row(*addresses, {"name": "as"})]))
    database.apply(desired, desired.take())
    uuid = database.seen.uuids[SWITCH]
    ids = {**database.rows["Logical_Switch", uuid].external_ids, "theirs": "note", "netloom-junk": "x"}
    database.change("Logical_Switch", uuid, other_config={"x": "y"}, external_ids=ids)
    database.change("Address_Set", database.seen.uuids[addresses], addresses=frozenset({"6.6.6.6"}))
    database.apply(desired)
    assert database.rows["Logical_Switch", uuid].other_config == {"mcast_snoop": "false"}
    assert "netloom-junk" not in database.rows["Logical_Switch", uuid].external_ids
    assert database.rows["Logical_Switch", uuid].external_ids["theirs"] == "note"
    assert not database.rows["Address_Set", database.seen.uuids[addresses]].addresses
    assert database.look(desired) == []


def test_a_value_of_a_map_changes_by_going_and_coming() -> None:
    database = Plain()
    dns = Ref("DNS", "ns1/blue")
    desired = wanted(blue=Outcome(rows=[Row(*dns, {})], members=[Member(dns, "records", "10.0.0.1", "web")]))
    database.apply(desired, desired.take())
    desired.replace(BLUE, Outcome(rows=[Row(*dns, {})], members=[Member(dns, "records", "10.0.0.2", "web")]))
    [bundle] = database.apply(desired, desired.take())
    assert len(bundle.leaves) == len(bundle.joins) == 1
    assert next(iter(database.of("DNS").values())).records == {"web": "10.0.0.2"}
    assert database.look(desired) == []


def test_a_port_whose_switch_is_not_planned_waits_and_comes_with_it() -> None:
    database = Plain()
    desired = wanted(web=port("web"))
    assert database.apply(desired, desired.take()) == []
    assert database.look(desired) == []
    desired.replace(BLUE, switch())
    assert {one.unit for one in database.apply(desired, desired.take())} == {BLUE, WEB}
    assert database.look(desired) == []


def test_nothing_is_written_for_what_is_held_nor_for_what_needs_it() -> None:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web"), red=switch("red"))
    assert [one.unit for one in database.look(desired, held=[BLUE])] == [attachment("red")]


def test_rows_that_need_each_other_go_together() -> None:
    database = Plain()
    one, two = attachment("one"), attachment("two")
    port_one, port_two = Ref("Logical_Router_Port", "one"), Ref("HA_Chassis_Group", "two")
    desired = DesiredRows()
    router = Ref("Logical_Router", "one")
    desired.replace(
        one,
        Outcome(
            rows=[
                Row(*router, {"name": "one", "ports": frozenset({port_one})}),
                Row(*port_one, {"name": "one", "ha_chassis_group": port_two}),
            ]
        ),
    )
    chassis = Ref("HA_Chassis", "c")
    desired.replace(
        two,
        Outcome(
            rows=[Row(*port_two, {"name": "two", "ha_chassis": frozenset({chassis})}), Row(*chassis, {"priority": 1})],
            members=[Member(router, "ports", port_one)],
        ),
    )
    bundles = database.apply(desired)
    assert [one.unit for one in bundles] == [two, one]
    assert database.look(desired) == []


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["switch", "port", "group", "gone", "flush", "lose"]),
        NAMES,
        NAMES,
        st.sampled_from(["x", "y"]),
    ),
    max_size=25,
)


def _step(desired: DesiredRows, what: str, name: str, other: str, value: str) -> None:
    group = Ref("Port_Group", other)
    if what == "switch":
        desired.replace(Unit("Network", "ns1", name), switch(name, other_config={"v": value}))
    elif what == "port":
        ref = Ref("Logical_Switch_Port", f"ns1/{name}")
        joins = [
            Member(group, "ports", ref),
            Member(Ref("Address_Set", other), "addresses", value),
            Member(Ref("DNS", other), "records", value, name),
        ]
        desired.replace(attachment(name), port(name, *joins, on=other, type=value))
    elif what == "group":
        acl = Ref("ACL", f"{other}/{value}")
        rows = [
            Row(*group, {"name": other, "acls": frozenset({acl})}),
            Row(*acl, {"match": value}),
            Row("Address_Set", other, {"name": other}),
            Row("DNS", other, {}),
        ]
        desired.replace(Unit("SecurityProfile", "ns1", other), Outcome(rows=rows))
    elif what == "gone":
        for kind in ("Network", "NetworkAttachment"):
            desired.replace(Unit(kind, "ns1", name), None)
        desired.replace(Unit("SecurityProfile", "ns1", other), None)


@given(STEPS)
def test_deltas_one_after_another_come_to_the_same_as_one_look_at_everything(
    steps: list[tuple[str, str, str, str]],
) -> None:
    desired, database = DesiredRows(), Plain()
    for what, name, other, value in steps:
        if what == "flush":
            database.apply(desired, desired.take())
            assert database.look(desired) == []
        elif what == "lose":  # A write that nobody knows the fate of, and a restart.
            desired.take()
            database.apply(desired)
        else:
            _step(desired, what, name, other, value)
    database.apply(desired, desired.take())
    assert database.look(desired) == []
    fresh = Plain()
    fresh.apply(desired)
    assert fresh.look(desired) == []
    assert fresh.seen.uuids.keys() == database.seen.uuids.keys()
    database.apply(DesiredRows())
    assert not database.rows
