"""The bridge of the vxlan fabric on the node's switch, and the one port by which it reaches all other nodes.

    br-vxlan   fail_mode secure: what no flow of ours carries goes nowhere
    nl-vtep    type vxlan, key and remote_ip by flow: a flow says with which VNI, and to which node, a packet leaves

Both carry our owner. They are made when a Network needs them, or by --prepare where there is no OVN, and stay; a bridge
of that name that is somebody else's is not touched. Nothing that is right already is written.
"""

from collections.abc import Mapping

from netloom.drivers.errors import ProblemError
from netloom.drivers.vswitch.driver import OWNER, VTEP, VXLAN_BRIDGE, Vswitch
from netloom.drivers.vswitch.prepare import new_bridge
from netloom.ovsdb.notation import Value
from netloom.ovsdb.operations import Insert, Mutate, NamedUuid, Operation, Update, eq, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Interface

SECURE: Mapping[str, Value] = {"fail_mode": "secure", "other_config": {"disable-in-band": "true"}}
TYPE = "vxlan"
LOCAL_IP = "local_ip"


async def keep_bridge(switch: Vswitch, *, underlay: str, datapath: str) -> bool:
    """Have the bridge and its tunnel port; whether anything was written."""
    bridge = switch.bridge(VXLAN_BRIDGE)
    if bridge is not None and not switch.is_ours(bridge):
        raise ProblemError("NameTaken", f"there is a bridge {VXLAN_BRIDGE} already on the switch, and it is not ours")
    tunnel = switch.interface(VTEP)
    if tunnel is not None and not switch.is_ours(tunnel):
        raise ProblemError("NameTaken", f"there is an interface {VTEP} already on the switch, and it is not ours")
    operations: list[Operation] = []
    if bridge is None:
        operations += new_bridge(switch, VXLAN_BRIDGE, datapath, SECURE)
    elif bridge.fail_mode != "secure":
        operations.append(Update("Bridge", is_uuid(bridge._uuid), {"fail_mode": "secure"}))
    if tunnel is None:
        operations += _new_tunnel(switch, underlay)
    elif _is_wrong(tunnel, underlay):
        operations.append(Update("Interface", is_uuid(tunnel._uuid), {"type": TYPE, "options": _options(underlay)}))
    if operations:
        await switch.writer.commit(operations)
    return bool(operations)


def bridge_is_there(switch: Vswitch, underlay: str) -> bool:
    """Whether the bridge and its tunnel port are as they should be, as far as the database says."""
    bridge, tunnel = switch.bridge(VXLAN_BRIDGE), switch.interface(VTEP)
    if bridge is None or tunnel is None or not switch.is_ours(bridge) or not switch.is_ours(tunnel):
        return False
    return bridge.fail_mode == "secure" and not _is_wrong(tunnel, underlay)


def tunnel_number(switch: Vswitch, before: int | None = None) -> int | None:
    """Return the tunnel port's number on the bridge; None while it has none.

    While the switch has not said which it is, it is the one that it was `before`.
    """
    tunnel = switch.interface(VTEP)
    if tunnel is None or not switch.is_ours(tunnel):
        return None
    number = before if tunnel.ofport is None else tunnel.ofport
    return number if number is not None and number > 0 else None


def underlay_of(switch: Vswitch) -> str:
    """Return the node's own address as the tunnel port has it; "" where there is none."""
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
        # By its name: it may be made in this very transaction.
        Mutate("Bridge", eq("name", VXLAN_BRIDGE), [("ports", "insert", frozenset({NamedUuid(f"p{tag}")}))]),
    ]
