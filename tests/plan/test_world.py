"""The world: what is answered, who must look again when something changes, and who need not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from netloom.model.document import ObjectMeta, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import LoadBalancer, SecurityProfile
from netloom.model.selection import LabelRequirement, LabelSelector, SelectorOperator
from netloom.plan.problem import Unit
from netloom.plan.world.selector_matches import selector_in
from netloom.plan.world.world import SPARE, Port, World
from tests.plan.planning import resources

ME, YOU = Unit("Router", "default", "me"), Unit("Router", "default", "you")


def one(text: str) -> Resource:
    (found,) = resources(text)
    return found


def network(name: str = "blue", **spec: Any) -> Resource:
    return one(f"{{kind: Network, metadata: {{name: {name}}}, spec: {spec}}}")


def subnet(name: str, of: str = "blue", validated: bool = True, used: int = 0) -> Resource:
    spec = f"{{network: {of}, cidr: 10.0.0.0/24}}"
    status = f"{{validated: {str(validated).lower()}, used: {used}}}"
    return one(f"{{kind: Subnet, metadata: {{name: {name}}}, spec: {spec}, status: {status}}}")


def port(name: str, of: str = "blue", **labels: str) -> Port:
    return Port("default", name, "n1", of, labels=labels)


def reads(world: World, read: Callable[[World], Any], unit: Unit = ME) -> Any:
    """Ask as a unit that is planned does."""
    return world.watched(unit, lambda asked, _: read(asked), port("any"))


def dirty(world: World, *changes: Resource | Port | Unit) -> set[Unit]:
    """Return which of the two readers must look again after some changes."""
    world.drain()
    for change in changes:
        if isinstance(change, Unit):
            world.remove(change)
        else:
            world.put(change)
    return world.drain() & {ME, YOU}


def test_who_read_a_resource_looks_again_when_it_comes_changes_or_goes() -> None:
    world = World()
    assert reads(world, lambda w: w.get(Network, "default", "blue")) is None
    assert dirty(world, network("red")) == set()
    assert dirty(world, network("blue")) == {ME}
    found = reads(world, lambda w: w.get(Network, "default", "blue"))
    assert found.metadata.name == "blue"
    assert dirty(world, network("blue")) == set()
    assert dirty(world, network("blue", mtu=1400)) == {ME}
    assert dirty(world, Unit("Network", "default", "blue")) == {ME}
    assert dirty(world, Unit("Network", "default", "blue")) == set()


def test_who_looks_at_something_else_now_is_left_in_peace() -> None:
    world = World()
    reads(world, lambda w: w.get(Network, "default", "blue"))
    reads(world, lambda w: w.get(Network, "default", "blue"), YOU)
    reads(world, lambda w: w.get(Network, "default", "red"))
    assert dirty(world, network("blue")) == {YOU}
    world.forget(YOU)
    world.forget(YOU)
    assert dirty(world, network("blue", mtu=1400)) == set()


def test_heartbeats_conditions_and_counts_concern_nobody() -> None:
    world = World()
    node = one("{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}")
    beats = one(
        "{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1},"
        " status: {lastHeartbeat: '2026-11-15T12:00:00Z'}}"
    )
    world.put(node)
    world.put(subnet("a"))
    reads(world, lambda w: (w.all(Node), w.get(Node, "", "n1"), w.subnets("default", "blue"), w.all(Subnet)))
    assert dirty(world, beats, subnet("a", used=7)) == set()
    assert world.all(Node)[0] == node
    assert dirty(world, one("{kind: Node, metadata: {name: n1, labels: {a: b}}, spec: {underlayIP: 172.31.0.1}}"))


def test_only_validated_subnets_are_answered() -> None:
    world = World()
    world.put(subnet("b"))
    world.put(subnet("a", validated=False))
    world.put(subnet("c", of="red"))

    def found() -> list[str]:
        return [s.metadata.name for s in reads(world, lambda w: w.subnets("default", "blue"))]

    assert found() == ["b"]
    assert dirty(world, subnet("a")) == {ME}
    assert found() == ["a", "b"]
    assert dirty(world, subnet("d", of="red")) == set()
    assert dirty(world, Unit("Subnet", "default", "b")) == {ME}
    assert found() == ["a"]


def test_routers_are_found_by_ports_and_gateway() -> None:
    world = World()
    world.put(one("{kind: Router, metadata: {name: r1}, spec: {networks: [{network: blue}]}}"))
    world.put(
        one("{kind: Router, metadata: {name: r2}, spec: {gateway: {network: blue, ips: [192.0.2.1/24]}}}"),
    )
    assert [r.metadata.name for r in reads(world, lambda w: w.routers("default", "blue"))] == ["r1", "r2"]
    away = one("{kind: Router, metadata: {name: r2}, spec: {networks: [{network: red}]}}")
    assert dirty(world, away) == {ME}
    assert [r.metadata.name for r in world.routers("default", "blue")] == ["r1"]
    assert [r.metadata.name for r in world.routers("default", "red")] == ["r2"]
    assert [r.metadata.name for r in world.all(Router)] == ["r1", "r2"]
    assert world.all(LoadBalancer, "default") == ()


def test_all_is_of_a_namespace_or_of_everywhere() -> None:
    world = World()
    world.put(one("{kind: SecurityProfile, metadata: {name: web}, spec: {}}"))
    world.put(one("{kind: SecurityProfile, metadata: {name: web, namespace: other}, spec: {}}"))
    assert [p.metadata.namespace for p in world.all(SecurityProfile, "other")] == ["other"]
    assert [p.metadata.namespace for p in world.all(SecurityProfile)] == ["default", "other"]


def test_ports_are_found_by_name_network_and_labels() -> None:
    world = World()
    chosen = LabelSelector(match_labels={"app": "web"})
    world.put(port("b", app="web"))
    world.put(port("a", app="web"))
    world.put(port("c", "red", app="db"))
    assert world.port("default", "a") == port("a", app="web")
    assert [p.name for p in world.ports("default", "blue")] == ["a", "b"]
    assert [p.name for p in world.selected("default", chosen)] == ["a", "b"]
    assert world.selected("other", chosen) == ()
    reads(world, lambda w: w.selected("default", chosen))
    reads(world, lambda w: w.ports("default", "red"), YOU)
    assert dirty(world, port("c", "red", app="cache")) == {YOU}
    assert dirty(world, port("c", "red", app="web")) == {ME, YOU}
    assert [p.name for p in world.selected("default", chosen)] == ["a", "b", "c"]
    assert dirty(world, port("c", "blue", app="web")) == {ME, YOU}
    assert dirty(world, port("a", app="db")) == {ME}
    assert dirty(world, port("a", app="db")) == set()
    assert dirty(world, Unit("NetworkAttachment", "default", "b")) == {ME}
    assert dirty(world, Unit("NetworkAttachment", "default", "b")) == set()
    assert [p.name for p in world.selected("default", chosen)] == ["c"]


def test_holders_of_an_address_are_followed_once_queried() -> None:
    world = World()
    first, second = (structs.replace(port(name), ips=("10.0.0.9/24", "fd00::9/64")) for name in "ab")
    world.put(second)
    assert reads(world, lambda w: w.holders("default", "blue", "10.0.0.9")) == (second,)
    assert dirty(world, port("c")) == set()
    assert dirty(world, first) == {ME}
    assert world.holders("default", "blue", "10.0.0.9") == (first, second)
    assert world.holders("default", "blue", "fd00::9") == (first, second)
    assert world.holders("default", "red", "10.0.0.9") == ()
    moved = structs.replace(first, node="n2", network="red")
    assert dirty(world, moved) == {ME}
    assert world.holders("default", "red", "10.0.0.9") == (moved,)
    assert dirty(world, Unit("NetworkAttachment", "default", "b")) == {ME}
    assert dirty(world, Unit("NetworkAttachment", "default", "a")) == set()
    assert world.holders("default", "red", "10.0.0.9") == ()


def test_an_attachment_is_its_face() -> None:
    world = World()
    text = """
    kind: NetworkAttachment
    metadata: {{name: web, labels: {{app: web}}, annotations: {annotations}}}
    spec: {{node: n1, network: blue, securityProfiles: [p], allowedAddresses: [10.0.0.7]}}
    status: {{ips: [10.0.0.9/24], mac: "02:00:00:00:00:09", vni: 10, ifcName: {name}}}
    """
    world.put(one(text.format(annotations="{}", name="nl0")))
    assert reads(world, lambda w: w.port("default", "web")) == Port(
        "default", "web", "n1", "blue", ("10.0.0.9/24",), "02:00:00:00:00:09", 10, {"app": "web"}, ("p",), ("10.0.0.7",)
    )
    assert dirty(world, one(text.format(annotations="{a: b}", name="nl1"))) == set()
    with pytest.raises(TypeError):
        world.get(NetworkAttachment, "default", "web")
    with pytest.raises(TypeError):
        world.all(NetworkAttachment)


def test_equal_labels_are_held_once_and_not_for_ever() -> None:
    world = World()
    text = "{{kind: NetworkAttachment, metadata: {{name: web, labels: {{a: v{}}}}}, spec: {{node: n1, network: blue}}}}"
    for number in range(2 * SPARE):
        world.put(structs.replace(one(text.format(0)), metadata=ObjectMeta(name="w", labels={"a": f"{number}"})))
    assert len(world._pool) <= SPARE + 10
    (first, second) = (one(text.format(1)), one(text.format(1)))
    world.put(first)
    held = world.port("default", "web")
    world.put(structs.replace(second, metadata=structs.replace(second.metadata, name="other")))
    other = world.port("default", "other")
    assert held is not None
    assert other is not None
    assert held.labels is other.labels


def test_kinds_that_nothing_is_planned_from_are_ignored() -> None:
    world = World()
    world.put(one("{kind: IPLock, metadata: {name: v1-10-10-0-0-9}, spec: {network: blue, vni: 10, ip: 10.0.0.9}}"))
    assert world.drain() == set()


# Shared answers.


def names(world: World, of: str) -> list[str]:
    return [found.metadata.name for found in world.subnets("default", of)]


def count(world: World, of: str) -> int:
    return len(world.shared(names, of))


def test_a_shared_answer_is_worked_out_once_and_again_when_it_must() -> None:
    world, calls = World(), []

    def first(world: World) -> str:
        calls.append(1)
        return ",".join(names(world, "blue"))[:1]

    for unit in (ME, YOU):
        assert reads(world, lambda w: w.shared(first), unit) == ""
    assert len(calls) == 1
    assert dirty(world, subnet("b")) == {ME, YOU}
    assert len(calls) == 2
    assert dirty(world, subnet("c")) == set()
    assert len(calls) == 3
    assert world.shared(first) == "b"
    assert len(calls) == 3


def test_answers_may_be_made_of_answers() -> None:
    world = World()
    assert reads(world, lambda w: w.shared(count, "blue")) == 0
    assert dirty(world, subnet("a")) == {ME}
    assert reads(world, lambda w: w.shared(count, "blue")) == 1
    assert dirty(world, Unit("Subnet", "default", "a"), subnet("b")) == set()
    world.put(subnet("c"))
    assert world.shared(count, "blue") == 2
    assert world.drain() >= {ME}


def test_an_answer_nobody_reads_any_more_is_let_go() -> None:
    world, calls = World(), []
    chosen = LabelSelector(match_labels={"app": "web"})

    def selected(world: World) -> int:
        calls.append(1)
        return len(world.selected("default", chosen))

    reads(world, lambda w: w.shared(selected))
    reads(world, lambda w: None)
    assert dirty(world, port("a", app="web")) == set()
    assert len(calls) == 1
    world.shared(selected)
    assert dirty(world, port("b", app="web")) == set()
    assert len(calls) == 2


def test_a_failing_answer_fails_for_who_asks_until_what_it_read_changes() -> None:
    world = World()

    def picky(world: World) -> int:
        if (found := len(world.shared(names, "blue"))) == 1:
            raise ValueError(found)
        return found

    assert reads(world, lambda w: w.shared(picky)) == 0
    assert dirty(world, subnet("a")) == {ME}
    with pytest.raises(ValueError):
        reads(world, lambda w: w.shared(picky))
    with pytest.raises(ValueError):
        world.shared(picky)
    assert dirty(world, subnet("b")) == {ME}
    assert reads(world, lambda w: w.shared(picky)) == 2


# Selectors.

KEYS, VALUES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


@st.composite
def selectors(draw: st.DrawFn) -> LabelSelector:
    requirements = []
    for _ in range(draw(st.integers(0, 2))):
        operator = draw(st.sampled_from(list(SelectorOperator)))
        values = draw(st.lists(VALUES, min_size=1, max_size=2)) if operator in ("In", "NotIn") else []
        requirements.append(LabelRequirement(key=draw(KEYS), operator=operator, values=tuple(values)))
    return LabelSelector(match_labels=draw(LABELS), match_expressions=tuple(requirements))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(selectors(), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from("pqr"), st.one_of(st.none(), LABELS)), max_size=8),
)
def test_selections_followed_are_those_looked_up(
    chosen: list[LabelSelector], changes: list[tuple[str, dict[str, str] | None]]
) -> None:
    world = World()
    units = [Unit("SecurityProfile", "default", str(number)) for number in range(len(chosen))]
    seen: dict[Unit, tuple[Port, ...]] = {}
    for name, labels in [("p", None), *changes]:
        if labels is None:
            world.remove(Unit("NetworkAttachment", "default", name))
        else:
            world.put(structs.replace(port(name), labels=labels))
        must = world.drain()
        for unit, selector in zip(units, chosen, strict=True):
            wanted = selector_in("default", selector)
            ports = tuple(p for p in world.ports("default", "blue") if wanted.matches(p.labels))
            assert unit in must or seen.get(unit, ports) == ports
            seen[unit] = reads(world, lambda w, s=selector: w.selected("default", s), unit)  # type: ignore[misc]
            assert seen[unit] == ports
    for unit in units:
        world.forget(unit)
    assert world.selected("default", chosen[0]) == seen[units[0]]
