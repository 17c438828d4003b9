"""Keeps the bridges of this node's linux Networks, and connects them to those of the other nodes.

    own attachments ───────────────────────► their bridges: br-nlVNI
    remotes of each relevant linux Network ► VXLAN ports of these bridges (plan/node/bridges.py)

There is one key. A bridge is created when the first port of its Network is made (`prepare`), and removed when nothing
is left on it. The VXLAN ports of a bridge change only while all remotes of its Network are known: until then, packets
flow as they did under an earlier agent. A port is installed when its bridge is connected.
"""

import logging
from collections.abc import Collection, Iterable

from netloom.control.node.views import AttachmentView, NodeWatches
from netloom.control.runtime.cache import Cache, Key
from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vswitch.network_bridges import NetworkBridges
from netloom.model.kinds.networks import Fabric
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.node.bridges import plan_tunnels
from netloom.plan.node.ports import PortPlan
from netloom.signals import Signal

log = logging.getLogger(__name__)

KEY = "linux networks"
AGAIN = 5.0
"""Seconds after which something that nothing announces is checked again."""


class BridgeReconciler:
    """The bridges of this node's linux Networks.  They have one key."""

    def __init__(
        self,
        *,
        underlay: str,
        datapath: str,
        attachments: Cache[AttachmentView],
        watches: NodeWatches,
        switch: Vswitch,
    ) -> None:
        self.on_programmed: Signal[[Iterable[Key]]] = Signal()
        """Sent with the attachments whose bridges were connected, or cannot be."""
        self._underlay = underlay
        self._attachments = attachments
        self._watches = watches
        self._switch = switch
        self._bridges = NetworkBridges(switch, datapath=datapath)
        self._connected: set[int] = set()
        """The VNIs of the bridges whose VXLAN ports are those that are needed."""

    # For ports.

    @property
    def connected(self) -> bool:
        """Whether bridges can be changed."""
        return self._switch.synced

    async def prepare(self, plan: PortPlan) -> None:
        """Create the bridge of a port, unless it exists."""
        if await self._bridges.ensure(plan.vni):
            log.info("the bridge of VNI %d was created or corrected", plan.vni)

    def carries(self, plan: PortPlan, row: Interface) -> bool:
        """Whether a port can reach the others of its Network."""
        return plan.vni in self._connected and (row.ofport or 0) > 0

    def refusal(self, plan: PortPlan) -> str:  # other fabrics have flows, which a switch may refuse
        """Return nothing: there are no flows."""
        return ""

    def error(self, plan: PortPlan) -> str:
        """Return what is wrong with the VXLAN ports of a port's bridge; "": nothing."""
        return self._bridges.error(plan.vni)

    # Reconciling.

    def all_keys(self) -> Collection[str]:
        """Return the one key."""
        return (KEY,)

    async def reconcile(self, key: str) -> float | None:
        """Connect the bridges that there are, and remove those that nothing needs; return when to look again."""
        if not self._switch.synced:
            return AGAIN
        networks = self._networks()
        present = self._switch.network_bridges()
        self._connected &= present.keys()
        for vni, network in sorted(networks.items()):
            others = self._watches.remotes(network)
            if vni not in present or others is None or others.undecodable:
                continue
            tunnels = plan_tunnels(vni, self._underlay, (one.value for one in others))
            if await self._bridges.connect(vni, network, tunnels):
                log.info("the bridge of VNI %d leads to %d other nodes", vni, len(tunnels))
            self._announce(vni, network)
        left = () if self._attachments.undecodable else sorted(present.keys() - networks.keys())
        removed = [await self._bridges.remove(vni) for vni in left]
        return None if all(removed) else AGAIN  # A port, or a record, is about to go.

    def _announce(self, vni: int, network: Key) -> None:
        """Announce the attachments of a bridge whose VXLAN ports have begun to work, or ceased to."""
        works = not self._bridges.error(vni)
        if works is (vni in self._connected):
            return
        if works:
            self._connected.add(vni)
        else:
            self._connected.discard(vni)
        views = self._attachments.indexed("network", str(network))
        self.on_programmed([Key(one.stored.namespace, one.stored.name) for one in views])

    def _networks(self) -> dict[int, Key]:
        """Return the Networks of this node's attachments that have, or may have, a bridge here, by VNI."""
        found: dict[int, Key] = {}
        for view in self._attachments:
            vni = view.value.status.vni
            if vni is not None and self._watches.fabric(view.network) in (Fabric.LINUX, None):
                found[vni] = view.network
        return found
