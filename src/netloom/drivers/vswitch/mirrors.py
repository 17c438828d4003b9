"""Mirrors on the node's switch, and the GRE ports of those between nodes: our rows, compared with the desired ones.

OVS 3.1 does not revalidate its cached flows when a mirror is added, changed or removed: packets of an existing
connection would be copied, or not, for as long as it lasts. It does revalidate when a port changes. So each change of a
mirror also toggles `protected` of its output port, which affects bridges that learn MAC addresses, and not OVN's.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from netloom.drivers.vswitch.driver import OF, OWNER, Vswitch
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, is_uuid
from netloom.ovsdb.rows.vswitch import Bridge, Interface, Mirror, Port
from netloom.plan.node.mirrors import MirrorPlan
from netloom.plan.problem import Unit

KIND = "Mirror"
TYPE = "gre"


class Mirrors:
    """Our mirrors, as a `ReconciledSet` of each namespace."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch

    def namespaces(self) -> set[str]:
        """Return the namespaces that have mirrors on this switch."""
        return {of.namespace for of, _ in self._seen()}

    async def apply(self, namespace: str, wanted: Mapping[str, MirrorPlan]) -> int:
        """Make these, by name, the mirrors of a namespace; return how many were changed."""
        bridge = self._switch.bridge()
        if bridge is None:
            return 0
        seen = {of.name: row for of, row in self._seen() if of.namespace == namespace}
        operations, tunnels = self._tunnels(namespace, wanted, bridge)
        gone = {row._uuid: row for name, row in seen.items() if name not in wanted}
        outputs = {port for row in gone.values() if (port := row.output_port) is not None}
        if gone:
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [("mirrors", "delete", frozenset(gone))]))
        changed = len(gone)
        for at, (name, plan) in enumerate(sorted(wanted.items())):
            of = str(Unit(KIND, namespace, name))
            columns = self._columns(plan, of, tunnels)
            row = seen.get(name)
            if columns is None or (row is not None and all(getattr(row, key) == columns[key] for key in columns)):
                continue
            changed += 1
            outputs.add(cast("Uuid", columns["output_port"]))
            if row is not None:
                operations.append(Update("Mirror", is_uuid(row._uuid), columns))
                continue
            ids = {OWNER: self._switch.owner, OF: of}
            made = NamedUuid(f"m{at}_{len(operations)}")
            operations.append(
                Insert("Mirror", {"name": f"{namespace}/{name}", "external_ids": ids, **columns}, made.name)
            )
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [("mirrors", "insert", frozenset({made}))]))
        if operations:
            await self._switch.writer.commit([*operations, *self._revalidated(outputs)])
        return changed

    def _tunnels(
        self, namespace: str, wanted: Mapping[str, MirrorPlan], bridge: Bridge
    ) -> tuple[list[Operation], dict[str, NamedUuid]]:
        """Return the operations that make the GRE ports those of a namespace, and the new ports by name."""
        operations: list[Operation] = []
        made: dict[str, NamedUuid] = {}
        plans = {port.name: (name, port) for name, plan in wanted.items() for port in plan.tunnels}
        for row in self._gre_ports(namespace):
            port = self._switch.port_of(row)
            if row.name not in plans and port is not None:
                delete = ("ports", "delete", frozenset({port._uuid}))
                operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [delete]))
        for number, (name, (mirror, plan)) in enumerate(sorted(plans.items())):
            present = self._switch.interface(name)
            of = str(Unit(KIND, namespace, mirror))
            if present is None:
                ids = {OWNER: self._switch.owner, OF: of}
                made[name] = NamedUuid(f"t{number}")
                inner = NamedUuid(f"g{number}")
                row_of: dict[str, Any] = {"name": name, "type": TYPE, "options": plan.options, "external_ids": ids}
                operations += [
                    Insert("Interface", row_of, inner.name),
                    Insert("Port", {"name": name, "interfaces": frozenset({inner})}, made[name].name),
                    Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "insert", frozenset({made[name]}))]),
                ]
            elif self._belongs(present, of) and (present.type, present.options) != (TYPE, plan.options):
                columns: dict[str, Any] = {"type": TYPE, "options": plan.options}
                operations.append(Update("Interface", is_uuid(present._uuid), columns))
        return operations, made

    def _gre_ports(self, namespace: str) -> list[Interface]:
        rows = [cast("Interface", row) for row in self._switch.client.cache.rows("Interface").values()]
        found = [(Unit.parse(row.external_ids.get(OF, "")), row) for row in rows if self._switch.is_ours(row)]
        return [row for of, row in found if of is not None and (of.kind, of.namespace) == (KIND, namespace)]

    def _revalidated(self, outputs: Iterable[Uuid]) -> Iterator[Operation]:
        """Yield the operations that make the switch revalidate its cached flows."""
        ports = self._switch.client.cache.rows("Port")
        for output in sorted(outputs, key=str):  # A port that is inserted with them has no row yet.
            if (port := ports.get(output)) is not None:
                yield Update("Port", is_uuid(output), {"protected": not cast("Port", port).protected})

    def _belongs(self, row: Interface, of: str) -> bool:
        """Whether a port is that of a Mirror: another one may have the same key."""
        return self._switch.is_ours(row) and row.external_ids.get(OF) == of

    def _columns(self, plan: MirrorPlan, of: str, made: Mapping[str, NamedUuid]) -> dict[str, Any] | None:
        """Return the columns, or None while there is nothing to copy from, or to; `made` are of the same transaction.

        A source that is not on the switch yet, or not of this Mirror, is left out.
        """
        foreign = {one.name for one in plan.tunnels if one.name not in made and not self._is_own(one.name, of)}
        destination = (
            None if plan.destination in foreign else made.get(plan.destination) or self._port(plan.destination)
        )
        ports = {name: made.get(name) or self._port(name) for name in (plan.sent | plan.received) - foreign}
        if destination is None or not any(ports.values()):
            return None
        return {
            "select_src_port": frozenset(port for name in plan.sent if (port := ports.get(name)) is not None),
            "select_dst_port": frozenset(port for name in plan.received if (port := ports.get(name)) is not None),
            "output_port": destination,
        }

    def _is_own(self, name: str, of: str) -> bool:
        row = self._switch.interface(name)
        return row is not None and self._belongs(row, of)

    def _port(self, device: str) -> Uuid | None:
        """Return a device's port, if it is on OVN's bridge, where mirrors are."""
        interface, bridge = self._switch.interface(device), self._switch.bridge()
        port = self._switch.port_of(interface) if interface is not None else None
        return port._uuid if port is not None and bridge is not None and port._uuid in bridge.ports else None

    def _seen(self) -> list[tuple[Unit, Mirror]]:
        rows = [cast("Mirror", row) for row in self._switch.client.cache.rows("Mirror").values()]
        found = [(Unit.parse(row.external_ids.get(OF, "")), row) for row in rows if self._switch.is_ours(row)]
        return [(of, row) for of, row in found if of is not None and of.kind == KIND and of.namespace]
