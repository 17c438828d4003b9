"""OVN's southbound database, read only: which chassis is the gateway now, which endpoints answer health checks.

Only the rows that are needed are monitored: of the port bindings those of gateways. `on_change` names the resources
that a change concerns; the listeners then query again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.monitor import Change
from netloom.ovsdb.operations import Condition
from netloom.plan.problem import Unit
from netloom.signals import Signal

DATABASE = "OVN_Southbound"
TABLES: dict[str, Sequence[str] | None] = {
    "Port_Binding": ["logical_port", "type", "chassis"],
    "Chassis": ["name"],
    "Service_Monitor": ["ip", "port", "protocol", "logical_port", "status"],
}
CONDITIONS: dict[str, Sequence[Condition | bool]] = {"Port_Binding": [("type", "==", "chassisredirect")]}
REDIRECT = "cr-"


class Southbound:
    """Queries of a southbound database."""

    def __init__(self, connect: Callable[[Callable[[Sequence[Change]], None]], OvsdbClient]) -> None:
        """`connect` makes the connection, given the callback for changes."""
        self.on_change: Signal[[Iterable[Unit]]] = Signal()
        """Sent with the Routers that a change concerns; a Unit without a name is all LoadBalancers of a namespace."""
        self.client = connect(self._changed)
        cache = self.client.cache
        self._ports = cache.indexed("Port_Binding", "logical_port")
        self._monitors = cache.indexed("Service_Monitor", "logical_port", "ip", "port")
        self._chassis = cache.rows("Chassis")

    def gateway_node(self, port: str) -> str:
        """Return the chassis that has claimed a gateway's port (`gateways.redirect_port`), "" if none has."""
        row = self._ports.one(port)
        if row is None or row.chassis is None:
            return ""
        chassis = self._chassis.get(row.chassis)
        return "" if chassis is None else str(chassis.name)

    def answers(self, port: str, ip: str, number: int) -> bool | None:
        """Return whether an endpoint behind a logical port answers its health check; None: not known."""
        row = self._monitors.one(port, ip, number)
        status = None if row is None else row.status
        return None if not status else status == "online"

    def _changed(self, changes: Sequence[Change]) -> None:
        concerned: dict[Unit, None] = {}
        for table, _, old, new in changes:
            row: Any = new if new is not None else old
            if table == "Port_Binding":
                namespace, _, rest = row.logical_port.removeprefix(REDIRECT).partition("/")
                concerned[Unit("Router", namespace, rest.partition(":")[0])] = None
            elif table == "Service_Monitor":
                concerned[Unit("LoadBalancer", row.logical_port.partition("/")[0], "")] = None
        if concerned:
            self.on_change(concerned)
