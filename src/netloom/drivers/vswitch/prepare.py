"""Prepares a node's Open vSwitch for OVN, and creates the bridges of physical networks.

Ours in the switch's own row are single entries of its `external_ids`; the others, and entries of `ovn-bridge-mappings`
for other physical networks, stay as they are. Nothing that is already correct is written.
"""

from collections.abc import Mapping

from msgspec import Struct

from netloom.drivers.vswitch.driver import OWNER, Vswitch
from netloom.ovsdb.notation import Value
from netloom.ovsdb.operations import Insert, Mutate, Mutation, NamedUuid, Operation, Update, is_uuid, uuid_name

MAPPINGS = "ovn-bridge-mappings"
SUGGESTIONS = {"ovn-ofctrl-wait-before-clear": "1000"}
"""Entries for ovn-controller that are set only where they are missing.

Without it, an ovn-controller that restarts removes all flows and only then computes the new ones: packets are lost at
each restart. The cost is that a switch that restarts has no flows for that much longer. With many thousands of ports a
larger value may be needed.
"""


class Preparation(Struct, frozen=True, kw_only=True):
    """The settings of a node's switch."""

    node: str
    ovn_remote: str = ""
    encap_type: str = "geneve"
    encap_ip: str = ""
    datapath: str = "netdev"
    """netdev or system."""

    @property
    def entries(self) -> dict[str, str]:
        """The entries for ovn-controller."""
        return {
            "system-id": self.node,
            "hostname": self.node,
            "ovn-encap-type": self.encap_type,
            "ovn-encap-ip": self.encap_ip,
            "ovn-bridge-datapath-type": self.datapath,
            **({"ovn-remote": self.ovn_remote} if self.ovn_remote else {}),
        }


async def prepare(switch: Vswitch, wanted: Preparation) -> bool:
    """Set the node's identity and OVN's address, and create OVN's bridge; return whether anything was written."""
    has = switch.root().external_ids
    missing = {key: value for key, value in SUGGESTIONS.items() if key not in has}
    operations = _entries(switch, {**wanted.entries, **missing})
    bridge = switch.bridge()
    if bridge is None:
        more: dict[str, Value] = {"fail_mode": "secure", "other_config": {"disable-in-band": "true"}}
        operations += new_bridge(switch, switch.bridge_name, wanted.datapath, more)
    elif bridge.datapath_type != wanted.datapath or bridge.fail_mode != "secure":
        row = {"datapath_type": wanted.datapath, "fail_mode": "secure"}
        operations.append(Update("Bridge", is_uuid(bridge._uuid), row))
    return await switch.writer.commit(operations)


async def identify(switch: Vswitch, node: str) -> bool:
    """Set the node's identity; return whether anything was written."""
    return await switch.writer.commit(_entries(switch, {"system-id": node, "hostname": node}))


async def ensure_mappings(switch: Vswitch, mappings: Mapping[str, str], datapath: str) -> bool:
    """Create the bridge of each physical network and map it for OVN; return whether anything was written."""
    if not mappings:
        return False
    has = dict(read_mappings(switch.root().external_ids.get(MAPPINGS, "")))
    wanted = ",".join(f"{network}:{bridge}" for network, bridge in sorted({**has, **mappings}.items()))
    operations = _entries(switch, {MAPPINGS: wanted}) if has | dict(mappings) != has else []
    for bridge in sorted(set(mappings.values())):
        if switch.bridge(bridge) is None:
            operations += new_bridge(switch, bridge, datapath, {})
    return await switch.writer.commit(operations)


def read_mappings(text: str) -> list[tuple[str, str]]:
    """Return the physical networks and bridges of a text like `physnet1:br-ex,physnet2:br-two`."""
    pairs = [entry.strip().partition(":") for entry in text.split(",")]
    return [(network, bridge) for network, colon, bridge in pairs if network and colon and bridge]


def _entries(switch: Vswitch, wanted: Mapping[str, str]) -> list[Operation]:
    root = switch.root()
    changed = {key: value for key, value in wanted.items() if root.external_ids.get(key) != value}
    if not changed:
        return []
    mutations: list[Mutation] = [("external_ids", "delete", frozenset(changed)), ("external_ids", "insert", changed)]
    return [Mutate("Open_vSwitch", is_uuid(root._uuid), mutations)]


def new_bridge(switch: Vswitch, name: str, datapath: str, more: Mapping[str, Value]) -> list[Operation]:
    """Return the operations that create a bridge of ours, with the port and interface of its own name."""
    tag = uuid_name(name)
    row: dict[str, Value] = {
        "name": name,
        "datapath_type": datapath,
        "ports": frozenset({NamedUuid(f"p{tag}")}),
        "external_ids": {OWNER: switch.owner},
        **more,
    }
    return [
        Insert("Interface", {"name": name, "type": "internal"}, f"i{tag}"),
        Insert("Port", {"name": name, "interfaces": frozenset({NamedUuid(f"i{tag}")})}, f"p{tag}"),
        Insert("Bridge", row, f"b{tag}"),
        Mutate(
            "Open_vSwitch",
            is_uuid(switch.root()._uuid),
            [("bridges", "insert", frozenset({NamedUuid(f"b{tag}")}))],
        ),
    ]
