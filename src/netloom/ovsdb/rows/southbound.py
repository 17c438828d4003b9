"""The rows of OVN_Southbound 20.27.0.  Written by tools/ovsdb-rows; do not edit."""

from msgspec import Struct

from netloom.ovsdb.notation import (
    ZERO,
    OptionalUuid,
    StringMap,
    Strings,
    StringToUuid,
    Uuid,
    Uuids,
)

DATABASE = "OVN_Southbound"
VERSION = "20.27.0"


class AddressSet(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Address_Set."""

    name: str = ""
    addresses: Strings = frozenset()
    _uuid: Uuid = ZERO


class BFD(Struct, frozen=True, gc=False, kw_only=True):
    """One row of BFD."""

    src_port: int = 0
    disc: int = 0
    logical_port: str = ""
    dst_ip: str = ""
    min_tx: int = 0
    min_rx: int = 0
    detect_mult: int = 0
    status: str = ""
    external_ids: StringMap = {}
    options: StringMap = {}
    _uuid: Uuid = ZERO


class Chassis(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Chassis."""

    name: str = ""
    hostname: str = ""
    encaps: Uuids = frozenset({ZERO})
    vtep_logical_switches: Strings = frozenset()
    nb_cfg: int = 0
    external_ids: StringMap = {}
    other_config: StringMap = {}
    transport_zones: Strings = frozenset()
    _uuid: Uuid = ZERO


class ChassisPrivate(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Chassis_Private."""

    name: str = ""
    chassis: OptionalUuid = None
    nb_cfg: int = 0
    nb_cfg_timestamp: int = 0
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class ChassisTemplateVar(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Chassis_Template_Var."""

    chassis: str = ""
    variables: StringMap = {}
    _uuid: Uuid = ZERO


class Connection(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Connection."""

    target: str = ""
    max_backoff: int | None = None
    inactivity_probe: int | None = None
    read_only: bool = False
    role: str = ""
    other_config: StringMap = {}
    external_ids: StringMap = {}
    is_connected: bool = False
    status: StringMap = {}
    _uuid: Uuid = ZERO


class ControllerEvent(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Controller_Event."""

    event_type: str = ""
    event_info: StringMap = {}
    chassis: OptionalUuid = None
    seq_num: int = 0
    _uuid: Uuid = ZERO


class DHCPOptions(Struct, frozen=True, gc=False, kw_only=True):
    """One row of DHCP_Options."""

    name: str = ""
    code: int = 0
    type: str = ""
    _uuid: Uuid = ZERO


class DHCPv6Options(Struct, frozen=True, gc=False, kw_only=True):
    """One row of DHCPv6_Options."""

    name: str = ""
    code: int = 0
    type: str = ""
    _uuid: Uuid = ZERO


class DNS(Struct, frozen=True, gc=False, kw_only=True):
    """One row of DNS."""

    records: StringMap = {}
    datapaths: Uuids = frozenset({ZERO})
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class DatapathBinding(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Datapath_Binding."""

    tunnel_key: int = 0
    load_balancers: Uuids = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Encap(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Encap."""

    type: str = ""
    options: StringMap = {}
    ip: str = ""
    chassis_name: str = ""
    _uuid: Uuid = ZERO


class FDB(Struct, frozen=True, gc=False, kw_only=True):
    """One row of FDB."""

    mac: str = ""
    dp_key: int = 0
    port_key: int = 0
    _uuid: Uuid = ZERO


class GatewayChassis(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Gateway_Chassis."""

    name: str = ""
    chassis: OptionalUuid = None
    priority: int = 0
    external_ids: StringMap = {}
    options: StringMap = {}
    _uuid: Uuid = ZERO


class HAChassis(Struct, frozen=True, gc=False, kw_only=True):
    """One row of HA_Chassis."""

    chassis: OptionalUuid = None
    priority: int = 0
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class HAChassisGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of HA_Chassis_Group."""

    name: str = ""
    ha_chassis: Uuids = frozenset()
    ref_chassis: Uuids = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class IGMPGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of IGMP_Group."""

    address: str = ""
    datapath: OptionalUuid = None
    chassis: OptionalUuid = None
    ports: Uuids = frozenset()
    _uuid: Uuid = ZERO


class IPMulticast(Struct, frozen=True, gc=False, kw_only=True):
    """One row of IP_Multicast."""

    datapath: Uuid = ZERO
    enabled: bool | None = None
    querier: bool | None = None
    eth_src: str = ""
    ip4_src: str = ""
    ip6_src: str = ""
    table_size: int | None = None
    idle_timeout: int | None = None
    query_interval: int | None = None
    query_max_resp: int | None = None
    seq_no: int = 0
    _uuid: Uuid = ZERO


class LoadBalancer(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Load_Balancer."""

    name: str = ""
    vips: StringMap = {}
    protocol: str | None = None
    datapaths: Uuids = frozenset()
    datapath_group: OptionalUuid = None
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalDPGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_DP_Group."""

    datapaths: Uuids = frozenset()
    _uuid: Uuid = ZERO


class LogicalFlow(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Flow."""

    logical_datapath: OptionalUuid = None
    logical_dp_group: OptionalUuid = None
    pipeline: str = ""
    table_id: int = 0
    priority: int = 0
    match: str = ""
    actions: str = ""
    tags: StringMap = {}
    controller_meter: str | None = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class MACBinding(Struct, frozen=True, gc=False, kw_only=True):
    """One row of MAC_Binding."""

    logical_port: str = ""
    ip: str = ""
    mac: str = ""
    timestamp: int = 0
    datapath: Uuid = ZERO
    _uuid: Uuid = ZERO


class Meter(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Meter."""

    name: str = ""
    unit: str = ""
    bands: Uuids = frozenset({ZERO})
    _uuid: Uuid = ZERO


class MeterBand(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Meter_Band."""

    action: str = ""
    rate: int = 0
    burst_size: int = 0
    _uuid: Uuid = ZERO


class Mirror(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Mirror."""

    name: str = ""
    filter: str = ""
    sink: str = ""
    type: str = ""
    index: int = 0
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class MulticastGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Multicast_Group."""

    datapath: Uuid = ZERO
    name: str = ""
    tunnel_key: int = 0
    ports: Uuids = frozenset()
    _uuid: Uuid = ZERO


class PortBinding(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Port_Binding."""

    logical_port: str = ""
    type: str = ""
    gateway_chassis: Uuids = frozenset()
    ha_chassis_group: OptionalUuid = None
    options: StringMap = {}
    datapath: Uuid = ZERO
    tunnel_key: int = 0
    parent_port: str | None = None
    tag: int | None = None
    virtual_parent: str | None = None
    chassis: OptionalUuid = None
    additional_chassis: Uuids = frozenset()
    encap: OptionalUuid = None
    additional_encap: Uuids = frozenset()
    mirror_rules: Uuids = frozenset()
    mac: Strings = frozenset()
    port_security: Strings = frozenset()
    nat_addresses: Strings = frozenset()
    up: bool | None = None
    external_ids: StringMap = {}
    requested_chassis: OptionalUuid = None
    requested_additional_chassis: Uuids = frozenset()
    _uuid: Uuid = ZERO


class PortGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Port_Group."""

    name: str = ""
    ports: Strings = frozenset()
    _uuid: Uuid = ZERO


class RBACPermission(Struct, frozen=True, gc=False, kw_only=True):
    """One row of RBAC_Permission."""

    table: str = ""
    authorization: Strings = frozenset()
    insert_delete: bool = False
    update: Strings = frozenset()
    _uuid: Uuid = ZERO


class RBACRole(Struct, frozen=True, gc=False, kw_only=True):
    """One row of RBAC_Role."""

    name: str = ""
    permissions: StringToUuid = {}
    _uuid: Uuid = ZERO


class SBGlobal(Struct, frozen=True, gc=False, kw_only=True):
    """One row of SB_Global."""

    nb_cfg: int = 0
    external_ids: StringMap = {}
    connections: Uuids = frozenset()
    ssl: OptionalUuid = None
    options: StringMap = {}
    ipsec: bool = False
    _uuid: Uuid = ZERO


class SSL(Struct, frozen=True, gc=False, kw_only=True):
    """One row of SSL."""

    private_key: str = ""
    certificate: str = ""
    ca_cert: str = ""
    bootstrap_ca_cert: bool = False
    ssl_protocols: str = ""
    ssl_ciphers: str = ""
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class ServiceMonitor(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Service_Monitor."""

    ip: str = ""
    protocol: str | None = None
    port: int = 0
    logical_port: str = ""
    src_mac: str = ""
    src_ip: str = ""
    status: str | None = None
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class StaticMACBinding(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Static_MAC_Binding."""

    logical_port: str = ""
    ip: str = ""
    mac: str = ""
    override_dynamic_mac: bool = False
    datapath: Uuid = ZERO
    _uuid: Uuid = ZERO


TABLES: dict[str, type[Struct]] = {
    "Address_Set": AddressSet,
    "BFD": BFD,
    "Chassis": Chassis,
    "Chassis_Private": ChassisPrivate,
    "Chassis_Template_Var": ChassisTemplateVar,
    "Connection": Connection,
    "Controller_Event": ControllerEvent,
    "DHCP_Options": DHCPOptions,
    "DHCPv6_Options": DHCPv6Options,
    "DNS": DNS,
    "Datapath_Binding": DatapathBinding,
    "Encap": Encap,
    "FDB": FDB,
    "Gateway_Chassis": GatewayChassis,
    "HA_Chassis": HAChassis,
    "HA_Chassis_Group": HAChassisGroup,
    "IGMP_Group": IGMPGroup,
    "IP_Multicast": IPMulticast,
    "Load_Balancer": LoadBalancer,
    "Logical_DP_Group": LogicalDPGroup,
    "Logical_Flow": LogicalFlow,
    "MAC_Binding": MACBinding,
    "Meter": Meter,
    "Meter_Band": MeterBand,
    "Mirror": Mirror,
    "Multicast_Group": MulticastGroup,
    "Port_Binding": PortBinding,
    "Port_Group": PortGroup,
    "RBAC_Permission": RBACPermission,
    "RBAC_Role": RBACRole,
    "SB_Global": SBGlobal,
    "SSL": SSL,
    "Service_Monitor": ServiceMonitor,
    "Static_MAC_Binding": StaticMACBinding,
}
