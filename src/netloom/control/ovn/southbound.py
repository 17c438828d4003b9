"""What OVN says of itself, in its southbound database: which node is a gateway now, which endpoints answer.

Read only, and only what is asked for here: of ports those that stand for gateways. Whoever wants to know is told which
resources a change concerns, and asks again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.monitor import Change
from netloom.ovsdb.operations import Condition
from netloom.plan.problem import Unit

DATABASE = "OVN_Southbound"
TABLES: dict[str, Sequence[str] | None] = {
    "Port_Binding": ["logical_port", "type", "chassis"],
    "Chassis": ["name"],
    "Service_Monitor": ["ip", "port", "protocol", "logical_port", "status"],
}
CONDITIONS: dict[str, Sequence[Condition | bool]] = {"Port_Binding": [("type", "==", "chassisredirect")]}
REDIRECT = "cr-"


class Southbound:
    """Answers from a southbound database."""

    def __init__(self, connect: Callable[[Callable[[Sequence[Change]], None]], OvsdbClient]) -> None:
        """`connect` makes the connection, given whom to tell of changes."""
        self.told: Callable[[Iterable[Unit]], None] = lambda _units: None
        """Told which Routers a change concerns, and, by a Unit without a name, in which namespaces LoadBalancers."""
        self.client = connect(self._changed)
        cache = self.client.cache
        self._ports = cache.indexed("Port_Binding", "logical_port")
        self._monitors = cache.indexed("Service_Monitor", "logical_port", "ip", "port")
        self._chassis = cache.rows("Chassis")

    def gateway_node(self, port: str) -> str:
        """Return the node that carries a gateway's port (`gateways.redirect_port`) now, "" if none does."""
        row = self._ports.one(port)
        if row is None or row.chassis is None:
            return ""
        chassis = self._chassis.get(row.chassis)
        return "" if chassis is None else str(chassis.name)

    def answers(self, port: str, ip: str, number: int) -> bool | None:
        """Whether an endpoint behind a logical port answers; None: nobody has found out."""
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
            self.told(concerned)
