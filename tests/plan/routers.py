"""A small world for the tests of routers: two networks behind r1, a way out, two nodes that can be the gateway."""

from typing import Any

import msgspec
import yaml

from netloom.model.document import Resource
from netloom.model.kinds.networks import Router
from netloom.model.registry import KINDS
from netloom.plan.ovn.layer3.routers import plan_router
from netloom.plan.ovn.planner import Planner
from netloom.plan.rows import Outcome, Ref

NODES = """
n1: {kind: Node, metadata: {labels: {rack: a}}, spec: {underlayIP: 172.31.0.1}}
n2: {kind: Node, metadata: {labels: {rack: a}}, spec: {underlayIP: 172.31.0.2}}
n3: {kind: Node, metadata: {labels: {rack: b}}, spec: {underlayIP: 172.31.0.3}}
"""
NETWORKS = """
blue: {kind: Network, spec: {}}
red: {kind: Network, spec: {}}
outside: {kind: Network, spec: {provider: {physicalNetwork: physnet1, nodes: {matchLabels: {rack: a}}}}}
blue-v4: {kind: Subnet, spec: {network: blue, cidr: 10.10.0.0/24}, status: {validated: true}}
blue-v6: {kind: Subnet, spec: {network: blue, cidr: "fd00:10::/64"}, status: {validated: true}}
red-v4: {kind: Subnet, spec: {network: red, cidr: 10.20.0.0/24, gateway: 10.20.0.254}, status: {validated: true}}
"""
ROUTER = """
networks: [{network: blue}, {network: red}]
gateway: {network: outside, ips: [192.0.2.10/24, "2001:db8:ff::10/64"], nextHop: 192.0.2.1, nodes: [n1, n2]}
"""


def resource(name: str, document: dict[str, Any]) -> Resource:
    """Return a resource; all but Nodes are in namespace ns."""
    namespace = {} if document["kind"] == "Node" else {"namespace": "ns"}
    metadata = {"name": name, **namespace, **document.get("metadata", {})}
    kind = next(kind for kind in KINDS if kind.name == document["kind"])
    whole = {"apiVersion": "netloom.dev/v1alpha1", **document, "metadata": metadata}
    value = msgspec.convert(whole, kind.type)
    assert isinstance(value, Resource)
    return value


def planner(*changes: str) -> Planner:
    """Return a planner of the small world, with these changes (YAML, by name); null takes something away."""
    documents: dict[str, Any] = yaml.safe_load(NODES) | yaml.safe_load(NETWORKS)
    for change in changes:
        documents |= yaml.safe_load(change)
    made = Planner()
    for name, document in documents.items():
        if document is not None:
            made.put(resource(name, document))
    return made


def routed(spec: str = ROUTER, *changes: str, name: str = "r1") -> Outcome:
    """Return what a Router of this spec comes to in the small world."""
    router = resource(name, {"kind": "Router", "spec": yaml.safe_load(spec)})
    assert isinstance(router, Router)
    made = planner(*changes)
    made.put(router)
    made.flush()
    return plan_router(made.world, router)


def rows(outcome: Outcome, table: str) -> dict[str, Any]:
    """Return the columns of all rows of a table, by key."""
    return {row.key: row.columns for row in outcome.rows if row.table == table}


def members(outcome: Outcome, column: str) -> set[tuple[Ref, Any]]:
    """Return who is a member of which rows' column."""
    return {(one.row, one.value) for one in outcome.members if one.column == column}


def reasons(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the problems: the reason, and the field."""
    return [(one.reason, one.message.partition(": ")[0]) for one in outcome.problems]


def translations(outcome: Outcome) -> set[tuple[Any, Any, Any]]:
    """Return the translations: type, external and logical address."""
    return {(one["type"], one["external_ip"], one["logical_ip"]) for one in rows(outcome, "NAT").values()}
