"""The node's switch as its agent finds it: made ready if told to, and what is true of it.

There may be OVN on the node (`br-int`, and a `system-id` that is the node's name, by which OVN knows it), or the vxlan
fabric (`br-vxlan`), or both. One of them makes the node Ready; what a port needs is its own fabric's. With --prepare
and no OVN anywhere, neither told nor known to the switch, the node is made ready for vxlan alone.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from netloom.control.node.node import Facts
from netloom.drivers.errors import ProblemError
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vswitch.prepare import MAPPINGS, Preparation, identify, keep_mappings, prepare, read_mappings
from netloom.drivers.vxlan.bridge import keep_bridge, underlay_of
from netloom.model.cluster import Datapath
from netloom.model.networks import Fabric
from netloom.ovsdb.reconnect import is_exposed
from netloom.ovsdb.rows.vswitch import OpenVSwitch
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Problem
from netloom.run.config import AgentSettings

log = logging.getLogger(__name__)


class NodeSwitch:
    """What an agent does to, and knows of, its switch as a whole."""

    def __init__(self, settings: AgentSettings, switch: Vswitch, mappings: Mapping[str, str]) -> None:
        self.capabilities: Mapping[str, bool] = {}
        self.remark = ""
        """What is strange about this node, and keeps no port from being plugged."""
        self._warned = ""
        self._settings = settings
        self._switch = switch
        self._mappings = mappings

    async def prepare(self, underlay: str) -> bool:
        """Have the switch as the settings say; whether it was made ready for something now."""
        made = False
        if self._settings.prepare and self._has_ovn():
            told = Preparation(
                node=self._settings.node,
                ovn_remote=self._settings.ovn_remote,
                encap_type=self._settings.encap,
                encap_ip=underlay,
                datapath=self.datapath,
            )
            made = await prepare(self._switch, told)
        elif self._settings.prepare:
            named = await identify(self._switch, self._settings.node)
            made = await keep_bridge(self._switch, underlay=underlay, datapath=self.datapath) or named
        await keep_mappings(self._switch, self._mappings, self.datapath)
        return made

    @property
    def datapath(self) -> str:
        """Where new bridges forward."""
        if self._settings.datapath != "auto":
            return self._settings.datapath
        return "system" if Path("/sys/module/openvswitch").exists() else "netdev"

    @property
    def userspace(self) -> bool:
        """Whether packets are forwarded in userspace."""
        bridge = self._switch.bridge() or self._switch.bridge(VXLAN_BRIDGE)
        return (bridge.datapath_type if bridge is not None else self.datapath) == "netdev"

    @property
    def underlay(self) -> str:
        """The node's own address as the switch knows it: of several, the first; "" where it knows none."""
        told = self._switch.root().external_ids.get("ovn-encap-ip", "")
        return told.partition(",")[0].strip() or underlay_of(self._switch)

    @property
    def physical_networks(self) -> frozenset[str]:
        """Those there are bridges for, whoever said so."""
        root = next(iter(self._switch.client.cache.rows("Open_vSwitch").values()), None)
        found = read_mappings(root.external_ids.get(MAPPINGS, "")) if isinstance(root, OpenVSwitch) else []
        return frozenset({*self._mappings, *dict(found)})

    def bridges(self) -> tuple[str | None, str | None]:
        """Return which bridges ports are on, by uuid: one that is made again has another."""
        both = self._switch.bridge(), self._switch.bridge(VXLAN_BRIDGE)
        return (None if both[0] is None else both[0]._uuid), (None if both[1] is None else both[1]._uuid)

    def facts(self) -> Facts:
        """Say what is true of this node now."""
        problem = self._unusable()
        if problem is not None:
            return Facts(capabilities=self.capabilities, problem=problem)
        problem = self._no_ovn()
        if self._switch.bridge() is None and self._switch.bridge(VXLAN_BRIDGE) is not None:
            problem = None
        userspace = self.userspace
        types = self._switch.root().iface_types
        geneve = self.capabilities.get("geneve", False) or (userspace and "geneve" in types)
        return Facts(
            datapath=Datapath.USERSPACE if userspace else Datapath.KERNEL,
            capabilities={**self.capabilities, "geneve": geneve},
            problem=problem,
            remark=self.remark,
            exposed=self._exposed(),
        )

    def amiss(self, plan: PortPlan) -> Problem | None:
        """Return what keeps a port, and every other of its fabric, from being plugged; None: nothing."""
        problem = self._unusable()
        if problem is None:
            problem = self._taken() if plan.fabric is Fabric.VXLAN else self._no_ovn()
        return problem

    def _has_ovn(self) -> bool:
        return bool(self._settings.ovn_remote or self._switch.root().external_ids.get("ovn-remote"))

    def _exposed(self) -> str:
        """Say that ovn-controller reaches the southbound in the clear; once in the log too."""
        told = self._switch.root().external_ids.get("ovn-remote", "")
        found = [remote for remote in map(str.strip, told.split(",")) if is_exposed(remote)]
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

    def _taken(self) -> Problem | None:
        """Return what keeps ports of vxlan Networks from being plugged."""
        if "vxlan" not in self._switch.root().external_ids.get("ovn-encap-type", "").split(","):
            return None
        # Theirs name the other node, and ours leaves that to the flows: what arrives is taken to be theirs.
        return Problem("TunnelTaken", "OVN's own tunnels are of VXLAN on this node (ovn-encap-type): give it geneve")

    def _no_ovn(self) -> Problem | None:
        """Return what keeps OVN's ports from being plugged."""
        if self._switch.bridge() is None:
            return Problem("SwitchNotPrepared", f"there is no bridge {self._switch.bridge_name}: see --prepare")
        name = self._switch.root().external_ids.get("system-id", "")
        if name != self._settings.node:
            return Problem("SwitchNotPrepared", f"the switch's system-id is {name!r}, and must be the node's name")
        return None
