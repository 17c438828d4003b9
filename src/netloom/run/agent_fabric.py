"""The vxlan fabric of an agent, wired: where the switch is spoken to, and by whom."""

from pathlib import Path
from random import Random
from typing import NoReturn, Protocol

from netloom.control.node.attachments import AttachmentReconciler
from netloom.control.node.fabric import FabricReconciler
from netloom.control.node.views import NodeWatches, View
from netloom.control.runtime.cache import Cache
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vxlan.driver import Fabric
from netloom.openflow.io import Connection
from netloom.openflow.switch import Switch
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, METERS
from netloom.run.config import AgentSettings

RUN = "/run/openvswitch"


class Talk(Switch, Protocol):
    """A switch that is spoken to for as long as this runs."""

    async def run(self) -> NoReturn:
        """Be connected, until cancelled."""
        ...


def socket_path(settings: AgentSettings) -> str:
    """Return the socket by which the bridge's flows are written: beside the database's, unless it is given."""
    if settings.openflow:
        return settings.openflow.removeprefix("unix:")
    return str(run_folder(settings) / f"{VXLAN_BRIDGE}.mgmt")


def run_folder(settings: AgentSettings) -> Path:
    """Return where the switch has its sockets: beside its database's, if that is a file."""
    kind, _, path = settings.ovs.partition(":")
    return Path(path).parent if kind == "unix" else Path(RUN)


def keeper(
    settings: AgentSettings,
    *,
    underlay: str,
    datapath: str,
    attachments: Cache[View],
    neighbours: NodeWatches,
    switch: Vswitch,
    host: AttachmentReconciler,
    random: Random,
    flows: Talk | None = None,
) -> FabricReconciler:
    """Return who keeps this node's fabric."""
    connection: Talk = flows or Connection(socket_path(settings), random=random)

    def may() -> bool:
        # Without its database nobody can say whose switch it is: then it is whose it was.
        return switch.lock.held.is_set() or not switch.synced

    made = FabricReconciler(
        underlay=underlay,
        datapath=datapath,
        attachments=attachments,
        neighbours=neighbours,
        switch=switch,
        fabric=Fabric(connection, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=METERS, may=may),
        connect=connection.run,
        planned=host.planned,
        random=random,
    )
    made.listen()
    return made
