"""Changes of a Sandbox's objects in the words of its topology."""

from typing import Any

from hypothesis import given

from netloom.plan.sandbox.changes import changes
from netloom.plan.sandbox.differences import Action, Field, ObjectChange, differences
from tests.plan.test_reachability import topologies
from tests.plan.test_sandbox import SMALL, edited, planned

LINK = {"host": "home", "network": "home-switch"}


def between(old: dict[str, Any] | None, new: dict[str, Any], *, before: Any = (), after: Any = (), **spec: Any) -> Any:
    was = planned(old, links=list(before)).objects if old is not None else ()
    wanted = changes(planned(new, links=list(after), **spec).objects, was)
    return differences("s1", wanted, {(one.kind, one.metadata.name): one for one in was})


def test_the_quality_of_a_link_is_named_by_host_and_network() -> None:
    found = between(SMALL, SMALL, before=[{**LINK, "rate": "10mbit"}], after=[{**LINK, "rate": "20mbit"}])
    assert found == (
        ObjectChange(
            action=Action.CHANGE,
            kind="Shaping",
            name="s1-home-home-switch",
            part="host home: link to home-switch: quality",
            fields=(Field(name="rate", old="10mbit", new="20mbit"),),
        ),
    )


def test_every_kind_is_a_part_of_the_topology() -> None:
    hosts = [{"name": "server", "block_internet": True}, {"name": "home"}]
    parts = {one.part for one in between(None, edited(hosts=hosts), after=[{**LINK, "rate": "1mbit"}])}
    assert parts == {
        "block-internet",
        "host home: link to home-switch",
        "host home: link to home-switch: quality",
        "host server: link to server-switch",
        "network home-switch",
        "network server-switch",
        "network wan",
        "router home-router",
        "router man",
        "router server-router",
    }


def test_an_immutable_field_makes_an_object_again() -> None:
    moved = {"hosts": {"home": "n2", "server": "n1"}}
    old = planned(SMALL, placement={"hosts": {"home": "n1", "server": "n1"}}).objects
    wanted = changes(planned(SMALL, placement=moved).objects, old)
    (found,) = differences("s1", wanted, {(one.kind, one.metadata.name): one for one in old})
    assert (found.action, found.fields) == (Action.REPLACE, (Field(name="node", old="n1", new="n2"),))


def test_lists_show_what_leaves_and_what_joins() -> None:
    more = [*SMALL["router_mappings"], {"router": "home-router", "network": "server-switch", "ip": "10.10.20.2"}]
    found = {one.part: one for one in between(SMALL, edited(router_mappings=more))}
    assert found["router home-router"].fields == (
        Field(name="networks", new="network s1-server-switch ips 10.10.20.2/24"),
    )


@given(topologies(), topologies())
def test_every_change_has_an_action_and_a_reason(old: dict[str, Any], new: dict[str, Any]) -> None:
    for one in between(old, new):
        assert bool(one.fields) == (one.action in (Action.CHANGE, Action.REPLACE)), one
    assert between(new, new) == ()
