"""Two plans beside each other: what comes, what changes, what goes; of many only what differs."""

from netloom.plan.ovn.comparison import Column, Kind, ports, rows
from netloom.plan.ovn.forecast import forecast
from netloom.plan.ovn.planner import Planner
from tests.plan.planning import planned, resources
from tests.plan.test_forecast import OLD, SETTLED, new

WORLD = SETTLED + "---" + OLD


def plan(text: str) -> Planner:
    return planned(*forecast(resources(text)).resources)


def test_a_plan_beside_itself_shows_nothing() -> None:
    assert rows(plan(WORLD).desired, plan(WORLD).desired) == []
    assert ports(resources(WORLD), resources(WORLD)) == []


def test_a_new_attachment_is_a_new_row_and_one_more_in_its_switch() -> None:
    found = rows(plan(WORLD).desired, plan(WORLD + new("web", ", ips: [10.1.0.5]")).desired)
    shown = {(one.kind, one.table, one.key): {c.name: c for c in one.columns} for one in found}
    assert shown[Kind.CHANGE, "Logical_Switch", "default/blue"] == {"ports": Column("ports", more=("default/web",))}
    created = shown[Kind.CREATE, "Logical_Switch_Port", "default/web"]
    assert created["addresses"].more == ("06:01:00:05:00:0a 10.1.0.5",)
    assert created["enabled"].new == "true"


def test_what_is_deleted_is_removed_and_less_of_what_it_was_in() -> None:
    found = rows(plan(WORLD).desired, plan(SETTLED).desired)
    kinds = {(one.kind, one.table) for one in found}
    assert (Kind.REMOVE, "Logical_Switch_Port") in kinds
    switch = next(one for one in found if one.table == "Logical_Switch")
    assert switch.columns == (Column("ports", less=("default/old",)),)
    assert {one.unit.name for one in found if one.kind is Kind.REMOVE} == {"old"}


def test_a_changed_column_shows_both() -> None:
    other = WORLD.replace("node: n1", "node: n2")
    [change] = rows(plan(WORLD).desired, plan(other).desired)
    assert change.columns == (Column("options", less=("requested-chassis=n1",), more=("requested-chassis=n2",)),)


def test_a_vlan_of_anothers_port_is_told_with_whose_and_which() -> None:
    child = new("in", ", ips: [10.1.0.6], port: {type: child, parent: web, vlan: 7}")
    before = forecast(resources(WORLD + new("web", ", ips: [10.1.0.5]"))).resources
    after = forecast(resources(WORLD + new("web", ", ips: [10.1.0.5]") + child)).resources
    [found] = ports(before, after)
    columns = {column.name: column.new for column in found.columns}
    assert (found.kind, found.unit.name) == (Kind.CREATE, "in")
    assert (columns["type"], columns["parent"], columns["vlan"]) == ("child", "web", "7")
    assert columns["device"] == "nl06010005000a"
    assert "addresses" not in columns


def test_ports_are_told_by_node() -> None:
    here = forecast(resources(WORLD + new("web", ", ips: [10.1.0.5]"))).resources
    there = forecast(resources(WORLD + new("web", ", ips: [10.1.0.5]").replace("n1", "n2"))).resources
    found = ports(here, there)
    assert [(one.kind, one.node, one.unit.name) for one in found] == [
        (Kind.REMOVE, "n1", "web"),
        (Kind.CREATE, "n2", "web"),
    ]
    columns = {column.name: column for column in found[1].columns}
    assert columns["device"].new == "nl06010005000a"
    assert columns["addresses"].more == ("10.1.0.5/29",)
    assert columns["type"].new == "internal"
