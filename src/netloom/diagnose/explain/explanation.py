"""`netloom explain KIND/NAME`: what came of an object, step by step, from the wish to the device.

    wish ─► conditions ─► northbound rows ─► southbound ports and flows ─► the node's switch and devices

What it needs besides the API is found as `diagnose/access.py` says; what cannot be reached is said. Where a step
is missing, the last lines say where to look next. `--timeline` says instead when each step was taken.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from msgspec import Struct

from netloom.cli.diagnosis import timeline as explain_timeline
from netloom.cli.diagnosis.explain import lines
from netloom.cli.options import Session
from netloom.cli.shell_completion import complete_targets
from netloom.client import lists as reading
from netloom.client.lists import Scope
from netloom.client.resources import Target, targets
from netloom.client.suggestions import known_or_suggested
from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import NO_NORTHBOUND, NO_SOUTHBOUND, Access, accessing, no_switch
from netloom.diagnose.explain import ovn as explain_ovn
from netloom.diagnose.explain.ovn import Asked, RowView, South
from netloom.diagnose.explain.port import Port, read_port
from netloom.errors import NetloomError
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Condition, Document, Resource
from netloom.model.networks import Fabric, Network
from netloom.model.registry import KINDS, NETWORK_ATTACHMENT
from netloom.plan import names
from netloom.plan.ovn.desired import Wanted
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.ovn.planner import UNITS
from netloom.plan.problem import Unit


class Explanation(Struct, kw_only=True):
    """All that was found."""

    unit: Unit
    wish: dict[str, Any]
    conditions: tuple[Condition, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it, or a part of it, is not planned."""
    planned: tuple[str, ...] = ()
    """The rows it should have."""
    rows: tuple[RowView, ...] | None = None
    """None: not looked at."""
    south: South | None = None
    port: Port | None = None
    unseen: list[str] = []
    next: list[str] = []


@click.command()
@click.argument("words", nargs=-1, metavar="KIND NAME | KIND/NAME", shell_complete=complete_targets)
@click.option("--flows", is_flag=True, help="List the logical flows, not only how many there are.")
@click.option("--timeline", is_flag=True, help="Of a NetworkAttachment: what happened when, and what is waited for.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it.")
@accessing
def explain(session: Session, access: Access, words: tuple[str, ...], flows: bool, timeline: bool, output: str) -> int:
    """Show what came of an object: its conditions, its rows in OVN, its port on the node, and where to look next."""
    found = targets(session.client, words)
    if len(found) != 1 or not found[0].name:
        raise click.UsageError("Name one object, as `network/blue` or `networkattachment alice`.")
    with known_or_suggested(session, found[0]):
        document = reading.one(session.client, found[0], Scope(session.namespace))
    if timeline:
        if found[0].resource.kind != NETWORK_ATTACHMENT.name:
            raise click.UsageError("A timeline is that of a networkattachment.")
        explain_timeline.show(session, document, output)
        return 0
    explanation = _explained(session, access, found[0], document)
    if output == "json":
        whole = {**msgspec.to_builtins(explanation), "unit": str(explanation.unit)}
        click.echo(json.dumps(whole, indent=4, ensure_ascii=False))
    else:
        click.echo("\n".join(lines(explanation, flows=flows)))
    return 0


def _explained(session: Session, access: Access, target: Target, document: Document) -> Explanation:
    kind = next((k for k in KINDS if (k.group, k.name) == (target.resource.group, target.resource.kind)), None)
    metadata = document["metadata"]
    unit = Unit(target.resource.kind, str(metadata.get("namespace") or ""), metadata["name"])
    status = document.get("status") or {}
    found = Explanation(
        unit=unit,
        wish=document.get("spec") or {},
        conditions=msgspec.convert(status.get("conditions") or (), tuple[Condition, ...]),
    )
    if kind is None or (unit.kind not in UNITS and unit.kind != "Node"):
        found.next.append(f"Nothing in OVN or on a node comes of a {unit.kind} by itself.")
        return found
    resources = everything.load(session.client)
    resource = everything.value(document, kind.type)
    wanted = everything.planned(resources).wanted
    found.problems = tuple(problem.message for problem in wanted.problems.get(unit, ()))
    found.planned = tuple(f"{ref.table} {ref.key}" for ref in sorted(wanted.of) if wanted.of[ref] == unit)
    if not _has_own_fabric(resource, resources):
        _north(access, found, resource)
        _south(access, found, resource, wanted)
    if isinstance(resource, NetworkAttachment):
        _node(access, found, resource, resources)
    found.next += _advice(found, resource)
    return found


def _has_own_fabric(resource: Resource, resources: list[Resource]) -> bool:
    """Whether OVN has no part in something: a Network that VXLAN carries, and who is in it."""
    if isinstance(resource, NetworkAttachment):
        name = f"{resource.metadata.namespace}/{resource.spec.network}"
        resource = next(
            (one for one in everything.of_type(resources, Network) if everything.key(one) == name), resource
        )
    return isinstance(resource, Network) and resource.spec.fabric is Fabric.VXLAN


def _north(access: Access, found: Explanation, resource: Resource) -> None:
    if found.unit.kind not in UNITS:
        return
    if not access.ovn.nb:
        found.unseen.append(NO_NORTHBOUND)
        return
    try:
        ips = [ip.partition("/")[0] for ip in resource.status.ips] if isinstance(resource, NetworkAttachment) else ()
        found.rows = tuple(asyncio.run(explain_ovn.read_north(access, found.unit, ips)))
    except NetloomError as error:
        found.unseen.append(f"northbound database: {error.message}")


def _south(access: Access, found: Explanation, resource: Resource, wanted: Wanted) -> None:
    if not access.ovn.sb:
        found.unseen.append(NO_SOUTHBOUND)
        return
    namespace, name = resource.metadata.namespace, resource.metadata.name
    rows = found.rows or ()
    asked = Asked(rows=rows)
    match resource.kind:
        case "NetworkAttachment" if found.planned:
            asked = Asked(ports=(names.port(namespace, name),), rows=rows)
        case "Network" if found.planned:
            asked = Asked(datapath=names.switch(namespace, name), rows=rows)
        case "Router" if found.planned:
            port = redirect_port(resource)  # type: ignore[arg-type]  # a Router
            asked = Asked(datapath=names.router(namespace, name), ports=(port,) if port else (), rows=rows)
        case "LoadBalancer":
            asked = Asked(monitored=tuple(_monitored(found.unit, wanted)), rows=rows)
        case "Node":
            asked = Asked(chassis=name)
    try:
        found.south = asyncio.run(explain_ovn.read_south(access, asked))
    except NetloomError as error:
        found.unseen.append(f"southbound database: {error.message}")


def _monitored(unit: Unit, wanted: Wanted) -> Iterator[str]:
    """Give the ports whose endpoints a balancer watches."""
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
    """Say where to look next, at the first step that is missing."""
    if found.problems:
        yield "It, or a part of it, cannot be planned: put right what the problems say."
    if isinstance(resource, NetworkAttachment) and not resource.status.ips:
        yield "It has no address: its condition Addressed says why; `netloom doctor --chapter addresses`."
        return
    missing = [row for row in found.planned if found.rows is not None and row not in _have(found.rows)]
    if missing:
        yield f"Not in the northbound: {', '.join(missing)}. Look at the controller's log; `netloom doctor --repair`."
    elif found.south is not None and found.south.missing:
        yield from (f"{words[:1].upper()}{words[1:]}." for words in found.south.missing)
        yield "Look at ovn-northd's log, and at ovn-controller's on the node."
    if found.port is not None and found.port.missing:
        yield from (f"On {found.port.node}: {words}." for words in found.port.missing)
        yield f"Look at the log of the agent of {found.port.node}; `netloom doctor --chapter nodes`."


def _have(rows: tuple[RowView, ...]) -> set[str]:
    return {f"{row.table} {row.key}" for row in rows}
