"""The rows of OVN_Northbound 7.0.0.  Written by tools/ovsdb-rows; do not edit."""

from msgspec import Struct

from netloom.ovsdb.notation import (
    ZERO,
    OptionalUuid,
    StringMap,
    Strings,
    StringToInteger,
    Uuid,
    Uuids,
)

DATABASE = "OVN_Northbound"
VERSION = "7.0.0"


class ACL(Struct, frozen=True, gc=False, kw_only=True):
    """One row of ACL."""

    name: str | None = None
    priority: int = 0
    direction: str = ""
    match: str = ""
    action: str = ""
    log: bool = False
    severity: str | None = None
    meter: str | None = None
    label: int = 0
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class AddressSet(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Address_Set."""

    name: str = ""
    addresses: Strings = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class BFD(Struct, frozen=True, gc=False, kw_only=True):
    """One row of BFD."""

    logical_port: str = ""
    dst_ip: str = ""
    min_tx: int | None = None
    min_rx: int | None = None
    detect_mult: int | None = None
    status: str | None = None
    external_ids: StringMap = {}
    options: StringMap = {}
    _uuid: Uuid = ZERO


class ChassisTemplateVar(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Chassis_Template_Var."""

    chassis: str = ""
    variables: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Connection(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Connection."""

    target: str = ""
    max_backoff: int | None = None
    inactivity_probe: int | None = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    is_connected: bool = False
    status: StringMap = {}
    _uuid: Uuid = ZERO


class Copp(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Copp."""

    name: str = ""
    meters: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class DHCPOptions(Struct, frozen=True, gc=False, kw_only=True):
    """One row of DHCP_Options."""

    cidr: str = ""
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class DNS(Struct, frozen=True, gc=False, kw_only=True):
    """One row of DNS."""

    records: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class ForwardingGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Forwarding_Group."""

    name: str = ""
    vip: str = ""
    vmac: str = ""
    liveness: bool = False
    external_ids: StringMap = {}
    child_port: Strings = frozenset({""})
    _uuid: Uuid = ZERO


class GatewayChassis(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Gateway_Chassis."""

    name: str = ""
    chassis_name: str = ""
    priority: int = 0
    external_ids: StringMap = {}
    options: StringMap = {}
    _uuid: Uuid = ZERO


class HAChassis(Struct, frozen=True, gc=False, kw_only=True):
    """One row of HA_Chassis."""

    chassis_name: str = ""
    priority: int = 0
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class HAChassisGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of HA_Chassis_Group."""

    name: str = ""
    ha_chassis: Uuids = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LoadBalancer(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Load_Balancer."""

    name: str = ""
    vips: StringMap = {}
    protocol: str | None = None
    health_check: Uuids = frozenset()
    ip_port_mappings: StringMap = {}
    selection_fields: Strings = frozenset()
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LoadBalancerGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Load_Balancer_Group."""

    name: str = ""
    load_balancer: Uuids = frozenset()
    _uuid: Uuid = ZERO


class LoadBalancerHealthCheck(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Load_Balancer_Health_Check."""

    vip: str = ""
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalRouter(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Router."""

    name: str = ""
    ports: Uuids = frozenset()
    static_routes: Uuids = frozenset()
    policies: Uuids = frozenset()
    enabled: bool | None = None
    nat: Uuids = frozenset()
    load_balancer: Uuids = frozenset()
    load_balancer_group: Uuids = frozenset()
    copp: OptionalUuid = None
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalRouterPolicy(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Router_Policy."""

    priority: int = 0
    match: str = ""
    action: str = ""
    nexthop: str | None = None
    nexthops: Strings = frozenset()
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalRouterPort(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Router_Port."""

    name: str = ""
    gateway_chassis: Uuids = frozenset()
    ha_chassis_group: OptionalUuid = None
    options: StringMap = {}
    networks: Strings = frozenset({""})
    mac: str = ""
    peer: str | None = None
    enabled: bool | None = None
    ipv6_ra_configs: StringMap = {}
    ipv6_prefix: Strings = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalRouterStaticRoute(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Router_Static_Route."""

    route_table: str = ""
    ip_prefix: str = ""
    policy: str | None = None
    nexthop: str = ""
    output_port: str | None = None
    bfd: OptionalUuid = None
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class LogicalSwitch(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Switch."""

    name: str = ""
    ports: Uuids = frozenset()
    acls: Uuids = frozenset()
    qos_rules: Uuids = frozenset()
    load_balancer: Uuids = frozenset()
    load_balancer_group: Uuids = frozenset()
    dns_records: Uuids = frozenset()
    copp: OptionalUuid = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    forwarding_groups: Uuids = frozenset()
    _uuid: Uuid = ZERO


class LogicalSwitchPort(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Logical_Switch_Port."""

    name: str = ""
    type: str = ""
    options: StringMap = {}
    parent_name: str | None = None
    tag_request: int | None = None
    tag: int | None = None
    addresses: Strings = frozenset()
    dynamic_addresses: str | None = None
    port_security: Strings = frozenset()
    up: bool | None = None
    enabled: bool | None = None
    dhcpv4_options: OptionalUuid = None
    dhcpv6_options: OptionalUuid = None
    mirror_rules: Uuids = frozenset()
    ha_chassis_group: OptionalUuid = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Meter(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Meter."""

    name: str = ""
    unit: str = ""
    bands: Uuids = frozenset({ZERO})
    fair: bool | None = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class MeterBand(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Meter_Band."""

    action: str = ""
    rate: int = 0
    burst_size: int = 0
    external_ids: StringMap = {}
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


class NAT(Struct, frozen=True, gc=False, kw_only=True):
    """One row of NAT."""

    external_ip: str = ""
    external_mac: str | None = None
    external_port_range: str = ""
    logical_ip: str = ""
    logical_port: str | None = None
    type: str = ""
    allowed_ext_ips: OptionalUuid = None
    exempted_ext_ips: OptionalUuid = None
    gateway_port: OptionalUuid = None
    options: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class NBGlobal(Struct, frozen=True, gc=False, kw_only=True):
    """One row of NB_Global."""

    name: str = ""
    nb_cfg: int = 0
    nb_cfg_timestamp: int = 0
    sb_cfg: int = 0
    sb_cfg_timestamp: int = 0
    hv_cfg: int = 0
    hv_cfg_timestamp: int = 0
    external_ids: StringMap = {}
    connections: Uuids = frozenset()
    ssl: OptionalUuid = None
    options: StringMap = {}
    ipsec: bool = False
    _uuid: Uuid = ZERO


class PortGroup(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Port_Group."""

    name: str = ""
    ports: Uuids = frozenset()
    acls: Uuids = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class QoS(Struct, frozen=True, gc=False, kw_only=True):
    """One row of QoS."""

    priority: int = 0
    direction: str = ""
    match: str = ""
    action: StringToInteger = {}
    bandwidth: StringToInteger = {}
    external_ids: StringMap = {}
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


class StaticMACBinding(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Static_MAC_Binding."""

    logical_port: str = ""
    ip: str = ""
    mac: str = ""
    override_dynamic_mac: bool = False
    _uuid: Uuid = ZERO


TABLES: dict[str, type[Struct]] = {
    "ACL": ACL,
    "Address_Set": AddressSet,
    "BFD": BFD,
    "Chassis_Template_Var": ChassisTemplateVar,
    "Connection": Connection,
    "Copp": Copp,
    "DHCP_Options": DHCPOptions,
    "DNS": DNS,
    "Forwarding_Group": ForwardingGroup,
    "Gateway_Chassis": GatewayChassis,
    "HA_Chassis": HAChassis,
    "HA_Chassis_Group": HAChassisGroup,
    "Load_Balancer": LoadBalancer,
    "Load_Balancer_Group": LoadBalancerGroup,
    "Load_Balancer_Health_Check": LoadBalancerHealthCheck,
    "Logical_Router": LogicalRouter,
    "Logical_Router_Policy": LogicalRouterPolicy,
    "Logical_Router_Port": LogicalRouterPort,
    "Logical_Router_Static_Route": LogicalRouterStaticRoute,
    "Logical_Switch": LogicalSwitch,
    "Logical_Switch_Port": LogicalSwitchPort,
    "Meter": Meter,
    "Meter_Band": MeterBand,
    "Mirror": Mirror,
    "NAT": NAT,
    "NB_Global": NBGlobal,
    "Port_Group": PortGroup,
    "QoS": QoS,
    "SSL": SSL,
    "Static_MAC_Binding": StaticMACBinding,
}
