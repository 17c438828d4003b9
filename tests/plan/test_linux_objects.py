"""The HostDocuments of Sandboxes: valid objects, stable when planned again, and where what exists is."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.document import Document
from netloom.model.kinds.sandbox import HostDocument
from netloom.model.registry import HOST_DOCUMENT
from netloom.model.schemas.validation import admit
from netloom.plan.linux.objects import places_of, plan_host_documents, vnis_of
from netloom.plan.sandbox.objects import SandboxPlan
from tests.plan.test_linux import NODES
from tests.plan.test_sandbox import SMALL, SPECS, TOPOLOGIES, edited, of, sandbox


def planned(
    topology: dict[str, Any], nodes: dict[str, str], before: SandboxPlan | None = None, **spec: Any
) -> SandboxPlan:
    observed = () if before is None else tuple(of(before, HostDocument).values())
    return plan_host_documents(sandbox(topology, backend="linux", **spec), nodes, observed)


@given(TOPOLOGIES, SPECS, st.sampled_from([{}, {"n1": "192.0.2.1"}, NODES, {**NODES, "n3": "192.0.2.3"}]))
def test_any_topology_becomes_valid_objects_that_stay_as_they_are_when_planned_again(
    topology: dict[str, Any], spec: dict[str, Any], nodes: dict[str, str]
) -> None:
    plan = planned(topology, nodes, **spec)
    for one in plan.objects:
        document = HOST_DOCUMENT.document(one)
        document.pop("status", None)
        admit(HOST_DOCUMENT, document)
    assert planned(topology, nodes, plan, **spec) == plan
    made = {(one.kind, one.metadata.name) for one in plan.objects}
    parts = (plan.networks, plan.routers, plan.hosts)
    assert {key for part in parts for keys in part.values() for key in keys} == made


def test_a_node_that_joins_gets_no_part_of_what_is_there() -> None:
    before = planned(SMALL, NODES)
    assert planned(SMALL, {"a0": "192.0.2.100", **NODES}, before).objects == before.objects


def test_a_node_that_left_has_its_hosts_placed_anew_and_others_stay() -> None:
    before = planned(SMALL, NODES)
    after = planned(SMALL, {"n2": NODES["n2"], "n3": "192.0.2.3"}, before)
    kept, now = (places_of(of(plan, HostDocument).values()) for plan in (before, after))
    assert set(now.values()) == {"n2", "n3"}
    hosts = {space for space, node in kept.items() if node == "n2" and "fabric" not in space}
    assert all(now[space] == "n2" for space in hosts)


def test_only_the_nodes_of_a_default_placement_matter() -> None:
    nodes = {**NODES, "n6": "2001:db8::6"}
    assert [one.reason for one in planned(SMALL, nodes).problems] == ["NodeInvalid"]
    plan = planned(SMALL, nodes, placement={"default": "n1", "hosts": {"home": "n2"}})
    assert plan.problems == ()
    assert set(of(plan, HostDocument)) == {"s1-n1", "s1-n2"}


def test_a_host_without_a_link_and_a_sandbox_without_nodes_need_nothing() -> None:
    alone: Document = edited(net_mappings=[SMALL["net_mappings"][0]])
    assert set(planned(alone, NODES).hosts) == {"server"}
    nowhere = planned(SMALL, {})
    assert (nowhere.objects, nowhere.hosts) == ((), {})
    assert [one.reason for one in nowhere.problems] == ["NodeMissing"]


@given(
    st.dictionaries(st.sampled_from(["tunnels", "namespaces", "x"]), st.sampled_from([1, [], [1], [{}], [{"vni": ""}]]))
)
def test_documents_that_somebody_wrote_by_hand_are_read_without_harm(document: Document) -> None:
    spec = {"node": "n1", "document": document}
    whole = {"apiVersion": HOST_DOCUMENT.api_version, "kind": HOST_DOCUMENT.name, "metadata": {}, "spec": spec}
    made = msgspec.convert(whole, HostDocument)
    assert vnis_of(made) == frozenset()
    assert places_of([made]) == {}
