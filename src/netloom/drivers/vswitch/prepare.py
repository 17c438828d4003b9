"""A bare node's Open vSwitch made ready for OVN, and the bridges of physical networks.

What is ours in the switch's own row is single entries of its `external_ids`; the rest of it, and entries of
`ovn-bridge-mappings` for other physical networks, stay as they are. Nothing that is right already is written.
"""

from collections.abc import Mapping

from msgspec import Struct

from netloom.drivers.vswitch.driver import OWNER, Vswitch
from netloom.ovsdb.notation import Value
from netloom.ovsdb.operations import Insert, Mutate, Mutation, NamedUuid, Operation, Update, is_uuid, uuid_name

MAPPINGS = "ovn-bridge-mappings"


class Preparation(Struct, frozen=True, kw_only=True):
    """What a node's switch is told."""

    node: str
    ovn_remote: str = ""
    encap_type: str = "geneve"
    encap_ip: str = ""
    datapath: str = "netdev"
    """netdev or system."""

    @property
    def entries(self) -> dict[str, str]:
        """What ovn-controller reads."""
        return {
            "system-id": self.node,
            "hostname": self.node,
            "ovn-encap-type": self.encap_type,
            "ovn-encap-ip": self.encap_ip,
            "ovn-bridge-datapath-type": self.datapath,
            **({"ovn-remote": self.ovn_remote} if self.ovn_remote else {}),
        }

    @property
    def suggestions(self) -> dict[str, str]:
        """What ovn-controller reads too, where nobody has said otherwise.

        Without it, an ovn-controller that is started again removes all flows and only then computes the new ones:
        packets would be lost whenever it is restarted. Its price is paid by a switch that is started again, which has
        no flows for so much longer. Many thousands of ports may want more of it.
        """
        return {"ovn-ofctrl-wait-before-clear": "1000"}


async def prepare(switch: Vswitch, told: Preparation) -> bool:
    """Have the switch say who it is and where OVN is, and have OVN's bridge; whether anything was written."""
    has = switch.root().external_ids
    missing = {key: value for key, value in told.suggestions.items() if key not in has}
    operations = _entries(switch, {**told.entries, **missing})
    bridge = switch.bridge()
    if bridge is None:
        more: dict[str, Value] = {"fail_mode": "secure", "other_config": {"disable-in-band": "true"}}
        operations += new_bridge(switch, switch.bridge_name, told.datapath, more)
    elif bridge.datapath_type != told.datapath or bridge.fail_mode != "secure":
        row = {"datapath_type": told.datapath, "fail_mode": "secure"}
        operations.append(Update("Bridge", is_uuid(bridge._uuid), row))
    if operations:
        await switch.writer.commit(operations)
    return bool(operations)


async def identify(switch: Vswitch, node: str) -> bool:
    """Have the switch say whose it is; whether anything was written."""
    operations = _entries(switch, {"system-id": node, "hostname": node})
    if operations:
        await switch.writer.commit(operations)
    return bool(operations)


async def keep_mappings(switch: Vswitch, mappings: Mapping[str, str], datapath: str) -> bool:
    """Have a bridge for each physical network, and OVN know it; whether anything was written."""
    if not mappings:
        return False
    has = dict(read_mappings(switch.root().external_ids.get(MAPPINGS, "")))
    wanted = ",".join(f"{network}:{bridge}" for network, bridge in sorted({**has, **mappings}.items()))
    operations = _entries(switch, {MAPPINGS: wanted}) if has | dict(mappings) != has else []
    for bridge in sorted(set(mappings.values())):
        if switch.bridge(bridge) is None:
            operations += new_bridge(switch, bridge, datapath, {})
    if operations:
        await switch.writer.commit(operations)
    return bool(operations)


def read_mappings(text: str) -> list[tuple[str, str]]:
    """Return physical networks and their bridges, as `physnet1:br-ex,physnet2:br-two` has them."""
    pairs = [entry.strip().partition(":") for entry in text.split(",")]
    return [(network, bridge) for network, colon, bridge in pairs if network and colon and bridge]


def _entries(switch: Vswitch, wanted: Mapping[str, str]) -> list[Operation]:
    root = switch.root()
    changed = {key: value for key, value in wanted.items() if root.external_ids.get(key) != value}
    if not changed:
        return []
    mutations: list[Mutation] = [
        ("external_ids", "delete", frozenset(changed)),
        ("external_ids", "insert", changed),
    ]
    return [Mutate("Open_vSwitch", is_uuid(root._uuid), mutations)]


def new_bridge(switch: Vswitch, name: str, datapath: str, more: Mapping[str, Value]) -> list[Operation]:
    """Return what makes a bridge of ours: it has a port and an interface of its own name."""
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
