"""The doctor's chapter on the southbound: has OVN taken every port to where it belongs, and are all nodes there?

The southbound is OVN's own: nothing is ever written to it, and what is amiss is mended where it comes from.
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from netloom.cli.diagnosis.doctor import Complaint, Report
from netloom.cli.options import Session
from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import NO_SOUTHBOUND, Access, following
from netloom.diagnose.doctor.confirmation import Settle, believed
from netloom.errors import NetloomError
from netloom.model.attachments import NetworkAttachment
from netloom.model.cluster import Node
from netloom.model.document import Resource
from netloom.model.networks import Router
from netloom.plan import names
from netloom.plan.audit.ovn import Bound, Check, Expected, Finding, audit_nodes, audit_southbound
from netloom.plan.ovn.desired import Wanted
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.rows import Ref

CHAPTER = "southbound"
TABLES = {"Port_Binding": ("logical_port", "chassis", "type", "up"), "Chassis": ("name", "hostname")}
_NODE = (
    "See that ovn-controller runs on the node and reaches the southbound database; `ovs-vsctl get open . external_ids`."
)
ADVICE = {
    Check.PORT_UNKNOWN: "See that ovn-northd runs and reaches both databases.",
    Check.PORT_UNBOUND: f"The node's agent plugs it, and its ovn-controller takes it. {_NODE}",
    Check.PORT_ELSEWHERE: "An interface elsewhere carries its iface-id: `netloom explain` it on both nodes.",
    Check.GATEWAY_UNBOUND: f"None of its gateway nodes is alive. {_NODE}",
    Check.CHASSIS_WITHOUT_NODE: (
        "If the machine is gone for good: `ovn-sbctl chassis-del NAME`. If it is not Netloom's, nothing need be done."
    ),
    Check.NODE_WITHOUT_CHASSIS: _NODE,
    Check.NODE_NOT_READY: "See that `netloom agent` runs on it, and what its log says.",
}


class SouthboundChapter:
    """The chapter."""

    def __init__(self, access: Access, *, settle: Settle = time.sleep) -> None:
        self._access = access
        self._settle = settle
        self._counts: dict[str, int] = {}
        self._unseen: tuple[str, ...] = ()

    def examine(self, session: Session, *, repair: bool) -> Report:  # nothing here is ours to mend
        """Look twice."""
        found = believed(lambda: self._look(session), self._settle)
        complaints = tuple(complaint(one, ADVICE[one.check]) for one in found)
        return Report(chapter=CHAPTER, looked_at=self._counts, complaints=complaints, unseen=self._unseen)

    def _look(self, session: Session) -> list[Finding]:
        resources = everything.load(session.client)
        nodes = everything.of_type(resources, Node)
        self._counts = {"Nodes": len(nodes)}
        found = audit_nodes(nodes, datetime.now(UTC))
        if not self._access.ovn.sb:
            self._unseen = (NO_SOUTHBOUND,)
            return found
        try:
            bound, chassis = asyncio.run(self._read())
        except NetloomError as error:
            self._unseen = (f"southbound database: {error.message}",)
            return found
        self._counts |= {"chassis": len(chassis), "ports": len(bound)}
        wanted = everything.planned(resources).wanted
        return found + audit_southbound(expected(resources, wanted), bound, chassis, nodes)

    async def _read(self) -> tuple[dict[str, Bound], set[str]]:
        async with following(self._access.south(TABLES)) as client:
            chassis: dict[str, Any] = {uuid: row for uuid, row in client.cache.rows("Chassis").items()}  # noqa: C416
            ports: list[Any] = list(client.cache.rows("Port_Binding").values())
            named = {uuid: str(row.name) for uuid, row in chassis.items()}
            return {row.logical_port: Bound(named.get(row.chassis, "")) for row in ports}, set(named.values())


def expected(resources: list[Resource], wanted: Wanted) -> Iterator[Expected]:
    """Give the ports the southbound should have: those that are planned."""
    for one in resources:
        if one.metadata.deletion_timestamp:
            continue
        unit = everything.unit(one)
        if isinstance(one, NetworkAttachment):
            port = names.port(one.metadata.namespace, one.metadata.name)
            if Ref("Logical_Switch_Port", port) in wanted.rows:
                yield Expected(unit, port, one.spec.node)
        if isinstance(one, Router) and (port := redirect_port(one)):
            row = wanted.rows.get(Ref("Logical_Router_Port", port.removeprefix("cr-")))
            if row is not None and row.columns.get("ha_chassis_group"):
                yield Expected(unit, port)


def complaint(finding: Finding, advice: str, repair: str = "") -> Complaint:
    """Return a finding as the doctor tells it."""
    return Complaint(
        check=finding.check.value,
        kind=finding.kind,
        namespace=finding.namespace,
        name=finding.name,
        message=finding.message,
        advice=advice,
        repair=repair,
    )
