"""The bridges of linux Networks on the node's switch, and their VXLAN ports to other nodes.

    br-nlVNI      fail_mode standalone: a switch that learns
    nlx_VNI_IP    type vxlan, protected: to the node IP

Both have our owner; a bridge or a port of such a name with another owner is not touched. What is already correct is not
written. A bridge goes when nothing of ours needs it: it has no other ports, and no record of what outlives a port.
"""

from collections.abc import Mapping
from typing import Any, cast

from netloom.drivers.vswitch.driver import OF, OWNER, Vswitch
from netloom.drivers.vswitch.prepare import new_bridge
from netloom.ovsdb.notation import Value
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Bridge, Interface, Port
from netloom.plan import names
from netloom.plan.problem import ProblemError, Unit

TYPE, NETWORK = "vxlan", "Network"
STANDALONE = "standalone"
LEARNING: Mapping[str, Value] = {
    "fail_mode": STANDALONE,
    # A machine that moves to another node is found there after a minute, even if it never says a word.
    "other_config": {"disable-in-band": "true", "mac-aging-time": "60"},
}


class NetworkBridges:
    """The bridges of linux Networks."""

    def __init__(self, switch: Vswitch, *, datapath: str) -> None:
        self._switch = switch
        self._datapath = datapath

    async def ensure(self, vni: int) -> bool:
        """Create or correct the bridge of a Network; return whether anything was written."""
        name = names.bridge(vni)
        bridge = self._switch.bridge(name)
        if bridge is None:
            datapath = self._switch.datapath(self._datapath)
            return await self._switch.writer.commit(new_bridge(self._switch, name, datapath, LEARNING))
        if not self._switch.is_ours(bridge):
            raise ProblemError("NameTaken", f"bridge {name} exists on the switch and is not ours")
        if bridge.fail_mode == STANDALONE:
            return False
        return await self._switch.writer.commit([Update("Bridge", is_uuid(bridge._uuid), {"fail_mode": STANDALONE})])

    async def connect(self, vni: int, network: tuple[str, str], tunnels: Mapping[str, Mapping[str, str]]) -> bool:
        """Make these the VXLAN ports of a bridge, by name with their options; return whether anything was written."""
        bridge = self._switch.network_bridges().get(vni)
        if bridge is None:
            return False
        ids = {OWNER: self._switch.owner, OF: str(Unit(NETWORK, *network))}
        seen = self._tunnels(bridge)
        operations: list[Operation] = []
        for name, (port, row) in seen.items():
            if name not in tunnels:
                operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [_leaving(port)]))
            elif row.options != tunnels[name]:
                operations.append(Update("Interface", is_uuid(row._uuid), {"options": dict(tunnels[name])}))
            if name in tunnels and not port.protected:
                operations.append(Update("Port", is_uuid(port._uuid), {"protected": True}))
        for at, name in enumerate(sorted(tunnels.keys() - seen.keys())):
            if self._switch.interface(name) is not None:
                raise ProblemError("NameTaken", f"interface {name} exists on the switch and is not ours")
            tag = f"{at}{uuid_name(name)}"
            row_of: dict[str, Any] = {"name": name, "type": TYPE, "options": dict(tunnels[name]), "external_ids": ids}
            port_of: dict[str, Any] = {"name": name, "interfaces": frozenset({NamedUuid(f"i{tag}")}), "protected": True}
            operations += [
                Insert("Interface", row_of, f"i{tag}"),
                Insert("Port", port_of, f"p{tag}"),
                Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "insert", frozenset({NamedUuid(f"p{tag}")}))]),
            ]
        return await self._switch.writer.commit(operations)

    def tunnels(self, vni: int) -> dict[str, dict[str, str]]:
        """Return the options of the VXLAN ports of a bridge, by name."""
        bridge = self._switch.network_bridges().get(vni)
        return {} if bridge is None else {name: dict(row.options) for name, (_, row) in self._tunnels(bridge).items()}

    def error(self, vni: int) -> str:
        """Return what the switch reports to be wrong with the VXLAN ports of a bridge; "": nothing."""
        bridge = self._switch.network_bridges().get(vni)
        rows = [] if bridge is None else [row for _, row in self._tunnels(bridge).values()]
        return next((f"{row.name}: {row.error}" for row in rows if row.error), "")

    async def remove(self, vni: int) -> bool:
        """Remove a bridge, unless something of ours needs it; return whether it was removed."""
        bridge = self._switch.network_bridges().get(vni)
        if bridge is None or bridge.external_ids.keys() != {OWNER}:
            return False
        tunnels = {port._uuid for port, _ in self._tunnels(bridge).values()}
        others = [port for port in self._ports(bridge) if port._uuid not in tunnels and port.name != bridge.name]
        if others:
            return False
        gone = [("bridges", "delete", frozenset({bridge._uuid}))]
        return await self._switch.writer.commit([Mutate("Open_vSwitch", is_uuid(self._switch.root()._uuid), gone)])

    def _ports(self, bridge: Bridge) -> list[Port]:
        rows = self._switch.client.cache.rows("Port")
        return [cast("Port", rows[uuid]) for uuid in bridge.ports if uuid in rows]

    def _tunnels(self, bridge: Bridge) -> dict[str, tuple[Port, Interface]]:
        """Return our VXLAN ports on a bridge, with their interfaces, by name."""
        found = {}
        for port in self._ports(bridge):
            row = self._switch.interface(port.name)
            if row is not None and row.type == TYPE and self._switch.is_ours(row) and row._uuid in port.interfaces:
                found[port.name] = port, row
        return found


def _leaving(port: Port) -> tuple[str, str, frozenset[str]]:
    return "ports", "delete", frozenset({port._uuid})
