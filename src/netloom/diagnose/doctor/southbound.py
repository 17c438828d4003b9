"""The doctor's section on the southbound: every port is bound to the chassis of its node, and every node has a chassis.

The southbound belongs to OVN: nothing is written to it, and problems are solved at their source.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.access import NO_SOUTHBOUND, Access, following
from netloom.diagnose.doctor.report import Report, complaint, confirmed
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Router
from netloom.plan import names
from netloom.plan.audit.finding import Check, Finding
from netloom.plan.audit.ovn import ExpectedBinding, audit_nodes, audit_southbound
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.rows import Ref

SECTION = "southbound"
TABLES = {"Port_Binding": ("logical_port", "chassis", "type", "up"), "Chassis": ("name", "hostname")}
_NODE = (
    "Check that ovn-controller runs on the node and reaches the southbound database"
    " (`ovs-vsctl get open . external_ids`)."
)
ADVICE = {
    Check.PORT_UNKNOWN: "Check that ovn-northd runs and reaches both databases.",
    Check.PORT_UNBOUND: f"The node's agent plugs it, and its ovn-controller binds it. {_NODE}",
    Check.PORT_ELSEWHERE: "An interface on another node carries its iface-id: run `netloom explain` on both nodes.",
    Check.GATEWAY_UNBOUND: f"None of its gateway chassis is alive. {_NODE}",
    Check.CHASSIS_WITHOUT_NODE: (
        "If the machine is gone for good, run `ovn-sbctl chassis-del NAME`. If it is not Netloom's, ignore this."
    ),
    Check.NODE_WITHOUT_CHASSIS: _NODE,
    Check.NODE_NOT_READY: "Check that `netloom agent` runs on it, and read its log.",
}


class SouthboundSection:
    """The section."""

    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access
        self._counts: dict[str, int] = {}
        self._unseen: tuple[str, ...] = ()

    def examine(self) -> Report:
        """Check twice; there is nothing to repair here."""
        found = confirmed(self._check)
        complaints = tuple(complaint(one, ADVICE[one.check]) for one in found)
        return Report(section=SECTION, checked=self._counts, complaints=complaints, unseen=self._unseen)

    def _check(self) -> list[Finding]:
        resources = snapshot.load(self._session.client)
        nodes = snapshot.of_type(resources, Node)
        self._counts = {"Nodes": len(nodes)}
        found = audit_nodes(nodes, datetime.now(UTC))
        if not self._access.sb:
            self._unseen = (NO_SOUTHBOUND,)
            return found
        try:
            bound, chassis = asyncio.run(self._read())
        except NetloomError as error:
            self._unseen = (f"southbound database: {error.message}",)
            return found
        self._counts |= {"chassis": len(chassis), "ports": len(bound)}
        wanted = snapshot.planned(resources).desired
        return found + audit_southbound(expected(resources, wanted), bound, chassis, nodes)

    async def _read(self) -> tuple[dict[str, str], set[str]]:
        async with following(self._access.south(TABLES)) as client:
            chassis: list[tuple[str, Any]] = list(client.cache.rows("Chassis").items())
            ports: list[Any] = list(client.cache.rows("Port_Binding").values())
            named = {uuid: str(row.name) for uuid, row in chassis}
            return {row.logical_port: named.get(row.chassis, "") for row in ports}, set(named.values())


def expected(resources: list[Resource], wanted: DesiredRows) -> Iterator[ExpectedBinding]:
    """Yield the planned ports, which the southbound should have."""
    for one in resources:
        if one.metadata.deletion_timestamp:
            continue
        unit = snapshot.unit(one)
        if isinstance(one, NetworkAttachment):
            port = names.port(one.metadata.namespace, one.metadata.name)
            if Ref("Logical_Switch_Port", port) in wanted.rows:
                yield ExpectedBinding(unit, port, one.spec.node)
        if isinstance(one, Router) and (port := redirect_port(one)):
            row = wanted.rows.get(Ref("Logical_Router_Port", port.removeprefix("cr-")))
            if row is not None and row.columns.get("ha_chassis_group"):
                yield ExpectedBinding(unit, port)
