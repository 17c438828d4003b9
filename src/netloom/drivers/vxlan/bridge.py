"""The bridge of the vxlan fabric on the node's switch, and the tunnel port to all other nodes.

    br-vxlan   fail_mode secure: packets that no flow of ours matches are dropped
    nl-vtep    type vxlan, key and remote_ip from flows: a flow sets the VNI and the destination node of a packet

Both have our owner. They are created when a Network needs them, or by --prepare where there is no OVN, and stay; a
bridge of that name with another owner is not touched. Nothing that is already correct is written.
"""

from collections.abc import Mapping

from netloom.drivers.vswitch.driver import OWNER, VTEP, VXLAN_BRIDGE, Vswitch
from netloom.drivers.vswitch.prepare import new_bridge
from netloom.ovsdb.notation import Value
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, eq, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.problem import ProblemError

SECURE: Mapping[str, Value] = {"fail_mode": "secure", "other_config": {"disable-in-band": "true"}}
TYPE = "vxlan"
LOCAL_IP = "local_ip"


async def ensure_bridge(switch: Vswitch, *, underlay: str, datapath: str) -> bool:
    """Create or correct the bridge and its tunnel port; return whether anything was written."""
    bridge = switch.bridge(VXLAN_BRIDGE)
    if bridge is not None and not switch.is_ours(bridge):
        raise ProblemError("NameTaken", f"bridge {VXLAN_BRIDGE} exists on the switch and is not ours")
    tunnel = switch.interface(VTEP)
    if tunnel is not None and not switch.is_ours(tunnel):
        raise ProblemError("NameTaken", f"interface {VTEP} exists on the switch and is not ours")
    operations: list[Operation] = []
    if bridge is None:
        operations += new_bridge(switch, VXLAN_BRIDGE, datapath, SECURE)
    elif bridge.fail_mode != "secure":
        operations.append(Update("Bridge", is_uuid(bridge._uuid), {"fail_mode": "secure"}))
    if tunnel is None:
        operations += _new_tunnel(switch, underlay)
    elif _is_wrong(tunnel, underlay):
        operations.append(Update("Interface", is_uuid(tunnel._uuid), {"type": TYPE, "options": _options(underlay)}))
    return await switch.writer.commit(operations)


def is_bridge_ready(switch: Vswitch, underlay: str) -> bool:
    """Whether the database has the bridge and its tunnel port, both correct."""
    bridge, tunnel = switch.bridge(VXLAN_BRIDGE), switch.interface(VTEP)
    if bridge is None or tunnel is None or not switch.is_ours(bridge) or not switch.is_ours(tunnel):
        return False
    return bridge.fail_mode == "secure" and not _is_wrong(tunnel, underlay)


def tunnel_ofport(switch: Vswitch, before: int | None = None) -> int | None:
    """Return the OpenFlow number of the tunnel port; None while it has none.

    While the switch has not reported it, it is the number of `before`.
    """
    tunnel = switch.interface(VTEP)
    if tunnel is None or not switch.is_ours(tunnel):
        return None
    number = before if tunnel.ofport is None else tunnel.ofport
    return number if number is not None and number > 0 else None


def underlay_address(switch: Vswitch) -> str:
    """Return the node's underlay address: OVN's tunnel address, the first of several, or our tunnel port's, or ""."""
    if address := switch.root().external_ids.get("ovn-encap-ip", "").partition(",")[0].strip():
        return address
    tunnel = switch.interface(VTEP)
    return tunnel.options.get(LOCAL_IP, "") if tunnel is not None and switch.is_ours(tunnel) else ""


def _options(underlay: str) -> dict[str, str]:
    return {"key": "flow", "remote_ip": "flow", LOCAL_IP: underlay}


def _is_wrong(tunnel: Interface, underlay: str) -> bool:
    return tunnel.type != TYPE or any(tunnel.options.get(key) != value for key, value in _options(underlay).items())


def _new_tunnel(switch: Vswitch, underlay: str) -> list[Operation]:
    tag = uuid_name(VTEP)
    ids = {OWNER: switch.owner}
    row: dict[str, Value] = {"name": VTEP, "type": TYPE, "options": _options(underlay), "external_ids": ids}
    return [
        Insert("Interface", row, f"i{tag}"),
        Insert("Port", {"name": VTEP, "interfaces": frozenset({NamedUuid(f"i{tag}")})}, f"p{tag}"),
        # By name: the bridge may be created in the same transaction.
        Mutate("Bridge", eq("name", VXLAN_BRIDGE), [("ports", "insert", frozenset({NamedUuid(f"p{tag}")}))]),
    ]
