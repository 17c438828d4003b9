"""Mirrors on the node's switch: rows of ours, compared with what is wanted.

OVS 3.1 does not look again at the flows it has cached when a mirror comes, changes or goes: packets of a connection
that is going on would be copied, or not, for as long as it lasts. It does look when a port changes. So with each change
of a mirror its tap's `protected` is turned round, which means something to bridges that learn and nothing to OVN's.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from msgspec import Struct

from netloom.drivers.vswitch.driver import OF, OWNER, Vswitch
from netloom.ovsdb.notation import Uuid, Value
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, is_uuid
from netloom.ovsdb.rows.vswitch import Mirror, Port
from netloom.plan.problem import Unit

KIND = "Mirror"


class MirrorPlan(Struct, frozen=True):
    """One mirror, by the devices' names on the switch."""

    source: str
    destination: str
    sent: bool
    """Whether what the source sends is copied."""
    received: bool


class Mirrors:
    """The mirrors of ours."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch

    def namespaces(self) -> set[str]:
        """Return the namespaces that have mirrors here."""
        return {of.namespace for of, _ in self._seen()}

    async def apply(self, namespace: str, wanted: Mapping[str, MirrorPlan]) -> int:
        """Have these mirrors, by name, and no others of the namespace; return how many were changed."""
        bridge = self._switch.bridge()
        if bridge is None:
            return 0
        seen = {of.name: row for of, row in self._seen() if of.namespace == namespace}
        operations: list[Operation] = []
        gone = {row._uuid: row for name, row in seen.items() if name not in wanted}
        taps = {tap for row in gone.values() if (tap := row.output_port) is not None}
        if gone:
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [("mirrors", "delete", frozenset(gone))]))
        changed = len(gone)
        for at, (name, plan) in enumerate(sorted(wanted.items())):
            columns = self._columns(plan)
            row = seen.get(name)
            if columns is None or (row is not None and all(getattr(row, key) == columns[key] for key in columns)):
                continue
            changed += 1
            taps.add(cast("Uuid", columns["output_port"]))
            if row is not None:
                operations.append(Update("Mirror", is_uuid(row._uuid), columns))
                continue
            ids = {OWNER: self._switch.owner, OF: str(Unit(KIND, namespace, name))}
            made = NamedUuid(f"m{at}_{len(operations)}")
            operations.append(
                Insert("Mirror", {"name": f"{namespace}/{name}", "external_ids": ids, **columns}, made.name)
            )
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [("mirrors", "insert", frozenset({made}))]))
        if operations:
            await self._switch.writer.commit([*operations, *self._stirred(taps)])
        return changed

    def _stirred(self, taps: Iterable[Uuid]) -> Iterator[Operation]:
        """Give what has the switch look again at the flows it has."""
        ports = self._switch.client.cache.rows("Port")
        for tap in sorted(taps):
            if (port := ports.get(tap)) is not None:
                yield Update("Port", is_uuid(tap), {"protected": not cast("Port", port).protected})

    def _columns(self, plan: MirrorPlan) -> dict[str, Value] | None:
        """Return the columns, or None while one of the ports is not there."""
        source, destination = self._port(plan.source), self._port(plan.destination)
        if source is None or destination is None:
            return None
        ports, none = frozenset({source}), frozenset[Uuid]()
        return {
            "select_src_port": ports if plan.sent else none,
            "select_dst_port": ports if plan.received else none,
            "output_port": destination,
        }

    def _port(self, device: str) -> Uuid | None:
        """Return a device's port, if it is where mirrors are: on OVN's bridge, and on no other."""
        interface, bridge = self._switch.interface(device), self._switch.bridge()
        port = self._switch.port_of(interface) if interface is not None else None
        return port._uuid if port is not None and bridge is not None and port._uuid in bridge.ports else None

    def _seen(self) -> list[tuple[Unit, Mirror]]:
        rows = [cast("Mirror", row) for row in self._switch.client.cache.rows("Mirror").values()]
        found = []
        for row in rows:
            kind, _, rest = row.external_ids.get(OF, "").partition("/")
            namespace, _, name = rest.partition("/")
            if self._switch.is_ours(row) and kind == KIND and name:
                found.append((Unit(kind, namespace, name), row))
        return found
