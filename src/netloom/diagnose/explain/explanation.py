"""The state of one object, step by step from its spec to the device.

    spec ─► conditions ─► northbound rows ─► southbound ports and flows ─► the node's switch and devices

Parts of the system that cannot be reached are listed as unseen. If a step is missing, `next` says where to look.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.access import NO_NORTHBOUND, NO_SOUTHBOUND, Access, no_switch
from netloom.diagnose.explain import ovn, speakers
from netloom.diagnose.explain.ovn import Query, RowView, South
from netloom.diagnose.explain.port import Port, read_port
from netloom.errors import NetloomError
from netloom.model.document import Condition, Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import KINDS
from netloom.plan import names
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.ovn.planner import UNITS
from netloom.plan.problem import Unit


class Explanation(Struct, kw_only=True):
    """The state of one object in every part of the system that was reached."""

    unit: Unit
    spec: dict[str, Any]
    conditions: tuple[Condition, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it, or a part of it, is not planned."""
    planned: tuple[str, ...] = ()
    """The rows that it should have."""
    rows: tuple[RowView, ...] | None = None
    """The rows that it has; None: not read."""
    south: South | None = None
    port: Port | None = None
    unseen: list[str] = []
    """What could not be read, and why."""
    next: list[str] = []
    """Where to look next."""

    @property
    def missing_rows(self) -> list[str]:
        """The planned rows that the northbound does not have."""
        if self.rows is None:
            return []
        have = {f"{row.table} {row.key}" for row in self.rows}
        return [row for row in self.planned if row not in have]


def explain(session: Session, access: Access, target: Target, document: Document) -> Explanation:
    """Return the state of an object, given as a document."""
    kind = next((k for k in KINDS if (k.group, k.name) == (target.resource.group, target.resource.kind)), None)
    metadata = document["metadata"]
    unit = Unit(target.resource.kind, str(metadata.get("namespace") or ""), metadata["name"])
    status = document.get("status") or {}
    found = Explanation(
        unit=unit,
        spec=document.get("spec") or {},
        conditions=msgspec.convert(status.get("conditions") or (), tuple[Condition, ...]),
    )
    if unit.kind in speakers.KINDS:
        _speaker(session, access, found, document)
    if kind is None or (unit.kind not in UNITS and unit.kind not in ("Node", *speakers.KINDS)):
        found.next.append(f"A {unit.kind} alone has no effect in OVN or on a node.")
        return found
    if unit.kind not in UNITS and unit.kind in speakers.KINDS:
        return found
    resources = snapshot.load(session.client)
    resource = snapshot.value(document, kind.type)
    wanted = snapshot.planned(resources).desired
    found.problems = tuple(problem.message for problem in wanted.problems.get(unit, ()))
    found.planned = tuple(f"{ref.table} {ref.key}" for ref in sorted(wanted.of) if wanted.of[ref] == unit)
    if snapshot.fabric_of(resource, resources) not in (Fabric.VXLAN, Fabric.LINUX):
        _north(access, found, resource)
        _south(access, found, resource, wanted)
    if isinstance(resource, NetworkAttachment):
        _node(access, found, resource, resources)
    found.next += _advice(found, resource)
    return found


def _speaker(session: Session, access: Access, found: Explanation, document: Document) -> None:
    """Add what the speaker of an object of EVPN knows of it."""
    node = speakers.node_of(session, found.unit, document)
    if node:
        found.port, unseen = speakers.read_speaker(access, found.unit, document, node)
        found.unseen += [unseen] if unseen else []
    else:
        found.next.append(f"There is no BGPSpeaker {(document.get('spec') or {}).get('speaker')}: create it.")
    found.next += speakers.next_steps(found.unit, document, node)


def _north(access: Access, found: Explanation, resource: Resource) -> None:
    if found.unit.kind not in UNITS:
        return
    if not access.nb:
        found.unseen.append(NO_NORTHBOUND)
        return
    try:
        ips = [ip.partition("/")[0] for ip in resource.status.ips] if isinstance(resource, NetworkAttachment) else ()
        found.rows = tuple(asyncio.run(ovn.read_north(access, found.unit, ips)))
    except NetloomError as error:
        found.unseen.append(f"northbound database: {error.message}")


def _south(access: Access, found: Explanation, resource: Resource, wanted: DesiredRows) -> None:
    if not access.sb:
        found.unseen.append(NO_SOUTHBOUND)
        return
    namespace, name = resource.metadata.namespace, resource.metadata.name
    rows = found.rows or ()
    query = Query(rows=rows)
    match resource.kind:
        case "NetworkAttachment" if found.planned:
            query = Query(ports=(names.port(namespace, name),), rows=rows)
        case "Network" if found.planned:
            query = Query(datapath=names.switch(namespace, name), rows=rows)
        case "Router" if found.planned:
            port = redirect_port(resource)  # type: ignore[arg-type]  # a Router
            query = Query(datapath=names.router(namespace, name), ports=(port,) if port else (), rows=rows)
        case "LoadBalancer":
            query = Query(monitored=tuple(_monitored(found.unit, wanted)), rows=rows)
        case "Node":
            query = Query(chassis=name)
    try:
        found.south = asyncio.run(ovn.read_south(access, query))
    except NetloomError as error:
        found.unseen.append(f"southbound database: {error.message}")


def _monitored(unit: Unit, wanted: DesiredRows) -> Iterator[str]:
    """Yield the ports whose endpoints a load balancer monitors."""
    for ref, row in wanted.rows.items():
        mappings = row.columns.get("ip_port_mappings")
        if wanted.of[ref] == unit and isinstance(mappings, dict):
            yield from (
                value.rpartition(":")[0] if value.count(":") == 1 else value.split(":")[0]
                for value in mappings.values()
            )


def _node(access: Access, found: Explanation, resource: NetworkAttachment, resources: list[Resource]) -> None:
    node = resource.spec.node
    for switch in access.switches:
        if switch.node not in ("", node):
            continue
        try:
            found.port = read_port(switch, access.owner, found.unit, resources)
        except NetloomError as error:
            found.unseen.append(f"switch of node {node}: {error.message}")
            return
        if found.port is not None:
            return
    found.unseen.append(no_switch(node))


def _advice(found: Explanation, resource: Resource) -> Iterator[str]:
    """Yield where to look next, at the first step that is missing."""
    if found.problems:
        yield "It, or a part of it, cannot be planned: correct the problems above."
    if isinstance(resource, NetworkAttachment) and not resource.status.ips:
        yield "It has no address: see its condition Addressed, and run `netloom doctor --section addresses`."
        return
    if missing := found.missing_rows:
        yield f"The northbound lacks {', '.join(missing)}: read the controller's log, or run `netloom doctor --repair`."
    elif found.south is not None and found.south.missing:
        yield from (f"{words[:1].upper()}{words[1:]}." for words in found.south.missing)
        yield "Read the logs of ovn-northd, and of ovn-controller on the node."
    if isinstance(resource, NetworkAttachment) and found.port is not None and found.port.missing:
        yield from (f"On {found.port.node}: {words}." for words in found.port.missing)
        yield f"Read the log of the agent of {found.port.node}, and run `netloom doctor --section nodes`."
