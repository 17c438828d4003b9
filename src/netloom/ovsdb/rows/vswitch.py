"""The rows of Open_vSwitch 8.3.1.  Written by tools/ovsdb-rows; do not edit."""

from msgspec import Struct

from netloom.ovsdb.notation import (
    ZERO,
    IntegerMap,
    Integers,
    IntegerToUuid,
    OptionalUuid,
    StringMap,
    Strings,
    StringToInteger,
    StringToUuid,
    Uuid,
    Uuids,
)

DATABASE = "Open_vSwitch"
VERSION = "8.3.1"


class AutoAttach(Struct, frozen=True, gc=False, kw_only=True):
    """One row of AutoAttach."""

    system_name: str = ""
    system_description: str = ""
    mappings: IntegerMap = {}
    _uuid: Uuid = ZERO


class Bridge(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Bridge."""

    name: str = ""
    datapath_type: str = ""
    datapath_version: str = ""
    datapath_id: str | None = None
    stp_enable: bool = False
    rstp_enable: bool = False
    mcast_snooping_enable: bool = False
    ports: Uuids = frozenset()
    mirrors: Uuids = frozenset()
    netflow: OptionalUuid = None
    sflow: OptionalUuid = None
    ipfix: OptionalUuid = None
    controller: Uuids = frozenset()
    protocols: Strings = frozenset()
    fail_mode: str | None = None
    status: StringMap = {}
    rstp_status: StringMap = {}
    other_config: StringMap = {}
    external_ids: StringMap = {}
    flood_vlans: Integers = frozenset()
    flow_tables: IntegerToUuid = {}
    auto_attach: OptionalUuid = None
    _uuid: Uuid = ZERO


class CTTimeoutPolicy(Struct, frozen=True, gc=False, kw_only=True):
    """One row of CT_Timeout_Policy."""

    timeouts: StringToInteger = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class CTZone(Struct, frozen=True, gc=False, kw_only=True):
    """One row of CT_Zone."""

    timeout_policy: OptionalUuid = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Controller(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Controller."""

    type: str | None = None
    target: str = ""
    max_backoff: int | None = None
    inactivity_probe: int | None = None
    connection_mode: str | None = None
    local_ip: str | None = None
    local_netmask: str | None = None
    local_gateway: str | None = None
    enable_async_messages: bool | None = None
    controller_queue_size: int | None = None
    controller_rate_limit: int | None = None
    controller_burst_limit: int | None = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    is_connected: bool = False
    role: str | None = None
    status: StringMap = {}
    _uuid: Uuid = ZERO


class Datapath(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Datapath."""

    datapath_version: str = ""
    ct_zones: IntegerToUuid = {}
    capabilities: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class FlowSampleCollectorSet(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Flow_Sample_Collector_Set."""

    id: int = 0
    bridge: Uuid = ZERO
    ipfix: OptionalUuid = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class FlowTable(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Flow_Table."""

    name: str | None = None
    flow_limit: int | None = None
    overflow_policy: str | None = None
    groups: Strings = frozenset()
    prefixes: Strings = frozenset()
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class IPFIX(Struct, frozen=True, gc=False, kw_only=True):
    """One row of IPFIX."""

    targets: Strings = frozenset()
    sampling: int | None = None
    obs_domain_id: int | None = None
    obs_point_id: int | None = None
    cache_active_timeout: int | None = None
    cache_max_flows: int | None = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Interface(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Interface."""

    name: str = ""
    type: str = ""
    options: StringMap = {}
    ingress_policing_rate: int = 0
    ingress_policing_burst: int = 0
    ingress_policing_kpkts_rate: int = 0
    ingress_policing_kpkts_burst: int = 0
    mac_in_use: str | None = None
    mac: str | None = None
    ifindex: int | None = None
    external_ids: StringMap = {}
    ofport: int | None = None
    ofport_request: int | None = None
    bfd: StringMap = {}
    bfd_status: StringMap = {}
    cfm_mpid: int | None = None
    cfm_remote_mpids: Integers = frozenset()
    cfm_flap_count: int | None = None
    cfm_fault: bool | None = None
    cfm_fault_status: Strings = frozenset()
    cfm_remote_opstate: str | None = None
    cfm_health: int | None = None
    lacp_current: bool | None = None
    lldp: StringMap = {}
    other_config: StringMap = {}
    statistics: StringToInteger = {}
    status: StringMap = {}
    admin_state: str | None = None
    link_state: str | None = None
    link_resets: int | None = None
    link_speed: int | None = None
    duplex: str | None = None
    mtu: int | None = None
    mtu_request: int | None = None
    error: str | None = None
    _uuid: Uuid = ZERO


class Manager(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Manager."""

    target: str = ""
    max_backoff: int | None = None
    inactivity_probe: int | None = None
    connection_mode: str | None = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    is_connected: bool = False
    status: StringMap = {}
    _uuid: Uuid = ZERO


class Mirror(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Mirror."""

    name: str = ""
    select_all: bool = False
    select_src_port: Uuids = frozenset()
    select_dst_port: Uuids = frozenset()
    select_vlan: Integers = frozenset()
    output_port: OptionalUuid = None
    output_vlan: int | None = None
    snaplen: int | None = None
    statistics: StringToInteger = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class NetFlow(Struct, frozen=True, gc=False, kw_only=True):
    """One row of NetFlow."""

    targets: Strings = frozenset({""})
    engine_type: int | None = None
    engine_id: int | None = None
    add_id_to_interface: bool = False
    active_timeout: int = 0
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class OpenVSwitch(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Open_vSwitch."""

    datapaths: StringToUuid = {}
    bridges: Uuids = frozenset()
    manager_options: Uuids = frozenset()
    ssl: OptionalUuid = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    next_cfg: int = 0
    cur_cfg: int = 0
    statistics: StringMap = {}
    ovs_version: str | None = None
    db_version: str | None = None
    system_type: str | None = None
    system_version: str | None = None
    datapath_types: Strings = frozenset()
    iface_types: Strings = frozenset()
    dpdk_initialized: bool = False
    dpdk_version: str | None = None
    _uuid: Uuid = ZERO


class Port(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Port."""

    name: str = ""
    interfaces: Uuids = frozenset({ZERO})
    trunks: Integers = frozenset()
    cvlans: Integers = frozenset()
    tag: int | None = None
    vlan_mode: str | None = None
    qos: OptionalUuid = None
    mac: str | None = None
    bond_mode: str | None = None
    lacp: str | None = None
    bond_updelay: int = 0
    bond_downdelay: int = 0
    bond_active_slave: str | None = None
    bond_fake_iface: bool = False
    fake_bridge: bool = False
    status: StringMap = {}
    rstp_status: StringMap = {}
    rstp_statistics: StringToInteger = {}
    statistics: StringToInteger = {}
    protected: bool = False
    other_config: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class QoS(Struct, frozen=True, gc=False, kw_only=True):
    """One row of QoS."""

    type: str = ""
    queues: IntegerToUuid = {}
    other_config: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class Queue(Struct, frozen=True, gc=False, kw_only=True):
    """One row of Queue."""

    dscp: int | None = None
    other_config: StringMap = {}
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class SSL(Struct, frozen=True, gc=False, kw_only=True):
    """One row of SSL."""

    private_key: str = ""
    certificate: str = ""
    ca_cert: str = ""
    bootstrap_ca_cert: bool = False
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


class SFlow(Struct, frozen=True, gc=False, kw_only=True):
    """One row of sFlow."""

    targets: Strings = frozenset({""})
    sampling: int | None = None
    polling: int | None = None
    header: int | None = None
    agent: str | None = None
    external_ids: StringMap = {}
    _uuid: Uuid = ZERO


TABLES: dict[str, type[Struct]] = {
    "AutoAttach": AutoAttach,
    "Bridge": Bridge,
    "CT_Timeout_Policy": CTTimeoutPolicy,
    "CT_Zone": CTZone,
    "Controller": Controller,
    "Datapath": Datapath,
    "Flow_Sample_Collector_Set": FlowSampleCollectorSet,
    "Flow_Table": FlowTable,
    "IPFIX": IPFIX,
    "Interface": Interface,
    "Manager": Manager,
    "Mirror": Mirror,
    "NetFlow": NetFlow,
    "Open_vSwitch": OpenVSwitch,
    "Port": Port,
    "QoS": QoS,
    "Queue": Queue,
    "SSL": SSL,
    "sFlow": SFlow,
}
