"""The node's switch as a whole: prepares it if asked to, and reports its state.

A node may have OVN (`br-int`, and a `system-id` that is the node's name, by which OVN knows the node), or the vxlan
fabric (`br-vxlan`), or both. Either of them makes the node Ready; a port needs the one of its own fabric. With
--prepare, and no OVN in the settings or in the switch's database, the node is prepared for vxlan alone.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from netloom.control.node.node import Facts
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vswitch.prepare import (
    MAPPINGS,
    Preparation,
    ensure_mappings,
    identify,
    prepare,
    read_mappings,
)
from netloom.drivers.vxlan.bridge import ensure_bridge
from netloom.model.kinds.cluster import Datapath
from netloom.model.kinds.networks import Fabric
from netloom.ovsdb.reconnect import is_exposed
from netloom.ovsdb.rows.vswitch import OpenVSwitch
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Problem, ProblemError

log = logging.getLogger(__name__)


class SwitchSettings(Struct, frozen=True, kw_only=True):
    """What the operator of the node set for its switch."""

    node: str
    ovs: str
    """Where the switch's database is."""
    ovn_remote: str = ""
    encap: str = "geneve"
    datapath: str = "auto"
    prepare: bool = False
    mappings: Mapping[str, str] = {}
    """Physical networks and their bridges."""


class NodeSwitch:
    """The switch of one node."""

    def __init__(self, switch: Vswitch, settings: SwitchSettings, *, capabilities: Mapping[str, bool]) -> None:
        """`capabilities` is what the kernel can do."""
        self._switch = switch
        self._settings = settings
        self._capabilities = capabilities
        self._warned = ""

    async def prepare(self, underlay: str) -> bool:
        """Prepare the switch as the settings say; return whether that changed its fabrics."""
        made = False
        has_ovn = self._settings.ovn_remote or self._switch.root().external_ids.get("ovn-remote")
        if self._settings.prepare and has_ovn:
            wanted = Preparation(
                node=self._settings.node,
                ovn_remote=self._settings.ovn_remote,
                encap_type=self._settings.encap,
                encap_ip=underlay,
                datapath=self.datapath,
            )
            made = await prepare(self._switch, wanted)
        elif self._settings.prepare:
            named = await identify(self._switch, self._settings.node)
            made = await ensure_bridge(self._switch, underlay=underlay, datapath=self.datapath) or named
        await ensure_mappings(self._switch, self._settings.mappings, self.datapath)
        return made

    @property
    def datapath(self) -> str:
        """The datapath type of new bridges."""
        if self._settings.datapath != "auto":
            return self._settings.datapath
        return "system" if Path("/sys/module/openvswitch").exists() else "netdev"

    @property
    def userspace(self) -> bool:
        """Whether packets are forwarded in userspace."""
        return self._switch.datapath(self.datapath) == "netdev"

    @property
    def physical_networks(self) -> frozenset[str]:
        """The physical networks that have a bridge, by our settings or by the switch's database."""
        root = next(iter(self._switch.client.cache.rows("Open_vSwitch").values()), None)
        found = read_mappings(root.external_ids.get(MAPPINGS, "")) if isinstance(root, OpenVSwitch) else []
        return frozenset({*self._settings.mappings, *dict(found)})

    def bridges(self) -> tuple[str | None, str | None]:
        """Return the uuids of the bridges that ports are on: a bridge that is made again has another uuid."""
        both = self._switch.bridge(), self._switch.bridge(VXLAN_BRIDGE)
        return (None if both[0] is None else both[0]._uuid), (None if both[1] is None else both[1]._uuid)

    def facts(self, remark: str = "") -> Facts:
        """Return the present state of the node; `remark` goes to users while there is no problem."""
        problem = self._unusable()
        if problem is not None:
            return Facts(capabilities=self._capabilities, problem=problem)
        problem = self._no_ovn()
        if self._switch.bridge() is None and self._switch.bridge(VXLAN_BRIDGE) is not None:
            problem = None
        userspace = self.userspace
        types = self._switch.root().iface_types
        geneve = self._capabilities.get("geneve", False) or (userspace and "geneve" in types)
        return Facts(
            datapath=Datapath.USERSPACE if userspace else Datapath.KERNEL,
            capabilities={**self._capabilities, "geneve": geneve},
            problem=problem,
            remark=remark,
            exposed=self._exposed(),
        )

    def obstacle(self, plan: PortPlan) -> Problem | None:
        """Return what prevents a port, and every other of its fabric, from being plugged; None: nothing."""
        problem = self._unusable()
        if problem is None:
            problem = self._no_ovn() if plan.fabric is Fabric.OVN else self._tunnel_taken()
        return problem

    def _exposed(self) -> str:
        """Return why the connection of ovn-controller to the southbound is not secure; log it once."""
        remotes = self._switch.root().external_ids.get("ovn-remote", "")
        found = [remote for remote in map(str.strip, remotes.split(",")) if is_exposed(remote)]
        if not found:
            return ""
        text = f"ovn-remote is {', '.join(found)}, neither encrypted nor authenticated: use ssl: and OVN's RBAC"
        if text != self._warned:
            self._warned = text
            log.warning("%s", text)
        return text

    def _unusable(self) -> Problem | None:
        if not self._switch.synced:
            return Problem("SwitchUnreachable", f"the switch's database at {self._settings.ovs} does not answer")
        try:
            self._switch.root()
        except ProblemError as error:
            return error.problem
        return None

    def _tunnel_taken(self) -> Problem | None:
        """Return what prevents ports of vxlan and linux Networks from being plugged."""
        if "vxlan" not in self._switch.root().external_ids.get("ovn-encap-type", "").split(","):
            return None
        # OVN's tunnel ports name the other node; that of vxlan takes it from the flows. Open vSwitch hands a packet to
        # the more specific port, so packets of the vxlan fabric would arrive at OVN's port, and some of OVN's packets
        # at the ports of linux Networks, which name a VNI as well.
        return Problem("TunnelTaken", "OVN's own tunnels on this node use VXLAN: set ovn-encap-type to geneve")

    def _no_ovn(self) -> Problem | None:
        """Return what prevents ports of OVN's Networks from being plugged."""
        if self._switch.bridge() is None:
            return Problem("SwitchNotPrepared", f"there is no bridge {self._switch.bridge_name}: see --prepare")
        name = self._switch.root().external_ids.get("system-id", "")
        if name != self._settings.node:
            return Problem("SwitchNotPrepared", f"the switch's system-id is {name!r}, and must be the node's name")
        return None
