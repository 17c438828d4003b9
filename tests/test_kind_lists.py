"""Lists of kinds that are not made from the registry agree with it: each test names the list that a new kind needs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netloom.cli.objects.manifests import ORDER
from netloom.diagnose.status import Item, overview
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.model.kind import Kind, Plan
from netloom.model.references import REFERENCES
from netloom.model.registry import EVENT, GROUP, KINDS, NODE, NOT_IMPLEMENTED, PLANNED, SANDBOX
from netloom.model.schemas.schema import Schema, schema
from netloom.plan.ovn.planner import UNITS
from tests.control.helpers import memory, run
from tests.plan.planning import resources

GOLDEN = Path(__file__).parent / "golden"
ACTED_ON = [kind for kind in KINDS if kind.group == GROUP and kind not in NOT_IMPLEMENTED]
NAMED = {
    **{name: kind for kind in KINDS if kind.group == GROUP for name in (kind.singular, kind.plural)},
    "profile": KINDS.named("securityprofile"),
    "speaker": KINDS.named("bgpspeaker"),
    "attachment": KINDS.named("networkattachment"),
}
"""What a field of a spec is called that names an object."""
HARMLESS = {
    ("HostDocument", "spec.node"),
    ("IPLock", "spec.network"),
    ("LoadBalancer", "spec.endpoints[*].node"),
    ("RemoteVTEP", "spec.evpnNetwork"),
    ("RemoteVTEP", "spec.network"),
    ("RemoteVTEP", "spec.node"),
    ("Mirror", "spec.destination.attachment"),
    ("Mirror", "spec.source.attachment"),
    ("Shaping", "spec.from.attachment"),
    ("Shaping", "spec.to.attachment"),
}
"""Fields that keep nothing from being deleted: `model/references.py` says why; an IPLock, too, goes with its owner."""
OF_TOPOLOGY = ("spec.topology.", "spec.links[*].", "spec.macs[*].", "spec.faults[*].")
"""What the fields of a Sandbox below these paths name are parts of its topology, not objects."""


def test_each_kind_that_is_planned_has_a_function_in_planner_units() -> None:
    assert set(UNITS) == {kind.name for kind in PLANNED if kind.plan is not Plan.INPUT}


def test_each_kind_that_agents_read_has_a_rule_in_roles_reads() -> None:
    async def main() -> None:
        rules = RoleAuthorizer(memory())._node_reads
        assert set(rules) == {kind for kind in KINDS if kind.read_by_nodes} | {NODE, EVENT}

    run(main())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.group == GROUP], ids=lambda kind: kind.name)
def test_each_kind_is_in_the_order_of_manifests_behind_the_kinds_it_names(kind: Kind) -> None:
    assert kind.name in ORDER
    named = {one.target.name for one in REFERENCES if one.holder is kind} - {kind.name}
    assert all(ORDER.index(name) < ORDER.index(kind.name) for name in named)


def test_each_kind_that_is_planned_is_in_the_overview_of_status_view() -> None:
    every = [one for path in sorted(GOLDEN.glob("*/resources.yaml")) for one in resources(path.read_text())]
    assert {type(one) for one in every} >= {kind.type for kind in PLANNED}
    found = overview(every, datetime(2026, 1, 1, tzinfo=UTC))
    sections = [section for several in found.namespaces.values() for section in several]
    shown = {item.kind for section in sections for one in section.items for item in _all(one)}
    assert shown | {item.kind for item in found.nodes} >= {kind.name for kind in PLANNED}


def _all(item: Item) -> Iterator[Item]:
    yield item
    for one in item.items:
        yield from _all(one)


@pytest.mark.parametrize("kind", ACTED_ON, ids=lambda kind: kind.name)
def test_each_field_that_names_an_object_is_in_references(kind: Kind) -> None:
    listed = {(one.path, one.target.name) for one in REFERENCES if one.holder is kind}
    spec = schema(kind)["properties"]["spec"]
    found = {
        (path, target.name)
        for path, name in _strings(spec, "spec")
        if not (kind is SANDBOX and path.startswith(OF_TOPOLOGY))
        if (target := NAMED.get(name.lower())) is not None and (kind.name, path) not in HARMLESS
    }
    assert found <= listed


def _strings(node: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Give the paths of all fields that hold a text, and what they are called."""
    if node.get("type") == "string":
        yield path, path.rpartition(".")[2].removesuffix("[*]")
    for name, child in node.get("properties", {}).items():
        yield from _strings(child, f"{path}.{name}")
    for inside in ("items", "additionalProperties"):
        if isinstance(node.get(inside), dict):
            yield from _strings(node[inside], f"{path}[*]")
