"""VXLAN ports to the VTEPs of other sites, on OVN's bridge: our interfaces, compared with the desired ones.

Open vSwitch limits the names of devices, not those of tunnel ports: `vxlan_2001:db8::1_16777215` is one.
"""

from collections.abc import Mapping
from typing import Any, cast

from netloom.drivers.vswitch.driver import IFACE_ID, OF, OWNER, Vswitch
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.node.remote_vteps import VxlanPort
from netloom.plan.problem import Unit

KIND = "RemoteVTEP"
TYPE = "vxlan"


class VxlanPorts:
    """Our VXLAN ports to the VTEPs of other sites."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch

    async def apply(self, wanted: Mapping[str, VxlanPort], *, keep: bool = False) -> list[str]:
        """Make these our ports, by name; with `keep`, remove none.  Return the names that are not ours to use."""
        bridge = self._switch.bridge()
        if bridge is None:
            return []
        operations: list[Operation] = []
        for name, row in self._seen().items():
            port = self._switch.port_of(row)
            on = self._switch.bridge_of(port) if port is not None else None
            if name not in wanted and not keep and port is not None and on is not None:
                operations.append(Mutate("Bridge", is_uuid(on._uuid), [("ports", "delete", frozenset({port._uuid}))]))
        taken = []
        for at, (name, plan) in enumerate(sorted(wanted.items())):
            ids = {OWNER: self._switch.owner, OF: str(Unit(KIND, plan.of.namespace, plan.of.name)), IFACE_ID: name}
            present = self._switch.interface(name)
            if present is None:
                tag = f"{at}{uuid_name(name)}"
                row_of: dict[str, Any] = {"name": name, "type": TYPE, "options": plan.options, "external_ids": ids}
                made = NamedUuid(f"p{tag}")
                operations += [
                    Insert("Interface", row_of, f"i{tag}"),
                    Insert("Port", {"name": name, "interfaces": frozenset({NamedUuid(f"i{tag}")})}, made.name),
                    Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "insert", frozenset({made}))]),
                ]
            elif not self._is_ours(present):
                taken.append(name)
            else:
                operations += self._corrections(present, plan, ids)
        await self._switch.writer.commit(operations)
        return taken

    @staticmethod
    def _corrections(row: Interface, plan: VxlanPort, ids: Mapping[str, str]) -> list[Operation]:
        operations: list[Operation] = []
        if (row.type, row.options) != (TYPE, plan.options):
            operations.append(Update("Interface", is_uuid(row._uuid), {"type": TYPE, "options": plan.options}))
        changed = {key: value for key, value in ids.items() if row.external_ids.get(key) != value}
        if changed:
            gone = ("external_ids", "delete", frozenset(changed))
            operations.append(Mutate("Interface", is_uuid(row._uuid), [gone, ("external_ids", "insert", changed)]))
        return operations

    def _seen(self) -> dict[str, Interface]:
        rows = [cast("Interface", row) for row in self._switch.client.cache.rows("Interface").values()]
        return {row.name: row for row in rows if self._is_ours(row)}

    def _is_ours(self, row: Interface) -> bool:
        of = Unit.parse(row.external_ids.get(OF, ""))
        return self._switch.is_ours(row) and of is not None and of.kind == KIND
