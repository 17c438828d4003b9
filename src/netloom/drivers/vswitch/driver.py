"""The node's own Open vSwitch: which interfaces are ours, and changes to them, by its OVSDB.

The observed state is the client's copy of the database, which its monitor keeps current; nothing is polled. A device
that the switch has opened (`ofport`) and flows that OVN has installed (`ovn-installed`) arrive as changes. An interface
is ours by its `external_ids`:

    netloom-owner   the owner setting
    netloom-of      the attachment: NetworkAttachment/NAMESPACE/NAME
    netloom-uid     the attachment's uid
    netloom-given   the addresses that the device was given, so that later only these are removed
    netloom-from    the bridge that an existing device was taken from, so that it can be returned
    netloom-exec, netloom-after: programs that run after it is made, and after it is removed (`plan/node/hooks.py`)
    iface-id, attached-mac, iface-status: for ovn-controller

A port of a vxlan Network is on a bridge of ours, `br-vxlan`, one of a linux Network on the Network's own, `br-nlVNI`.
Neither has an iface-id; the rest is the same.

Changes made at the same time share a transaction (`drivers/vswitch/writer.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, cast

from netloom.drivers.vswitch.writer import GroupWriter
from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.networks import Fabric
from netloom.model.values.addresses import is_ip
from netloom.ovsdb.io import Dial, OvsdbClient
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Assert, Insert, Mutate, NamedUuid, Operation, Update, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Bridge, Interface, OpenVSwitch, Port
from netloom.plan import names
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, EXEC, After
from netloom.plan.node.namespaces import NetnsRecord, read_record, written
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import ProblemError, Unit
from netloom.signals import Signal

DATABASE = "Open_vSwitch"
INTEGRATION = "br-int"
VXLAN_BRIDGE = "br-vxlan"
"""The bridge of vxlan Networks' ports, and of the tunnel port `VTEP` (`drivers/vxlan/bridge.py`)."""
VTEP = "nl-vtep"
REMOTE_IP = "remote_ip"
OVN_CHASSIS = "ovn-chassis-id"
"""Marks the ports that ovn-controller makes."""
LOCK = "netloom_agent"
"""The database lock that every write asserts: one agent works on a switch."""
OWNER, OF, UID, GIVEN, FROM = "netloom-owner", "netloom-of", "netloom-uid", "netloom-given", "netloom-from"
OWED, RECOMPUTE = "netloom-owed-", "netloom-asked"
NETNS = "netloom-netns"
"""The prefix of the records of network namespaces: NETNS/OWNER/PATH at a bridge of ours."""
IFACE_ID, MAC, STATUS = "iface-id", "attached-mac", "iface-status"
INSTALLED, INSTALLED_AT = "ovn-installed", "ovn-installed-ts"
OURS = (OWNER, OF, UID, GIVEN, FROM, EXEC, AFTER, IFACE_ID, MAC, STATUS, INSTALLED, INSTALLED_AT)
KIND = "NetworkAttachment"
TABLES: Mapping[str, Sequence[str]] = {
    "Open_vSwitch": ("bridges", "external_ids", "datapath_types", "iface_types", "ovs_version"),
    "Bridge": ("name", "ports", "mirrors", "datapath_type", "external_ids", "fail_mode"),
    "Port": ("name", "interfaces", "external_ids", "protected"),
    "Interface": (
        "name",
        "type",
        "external_ids",
        "ofport",
        "ifindex",
        "error",
        "mac",
        "mtu_request",
        "admin_state",
        "options",
    ),
    "Mirror": ("name", "select_src_port", "select_dst_port", "output_port", "external_ids"),
}

AttachmentName = tuple[str, str]
"""Namespace and name."""


class Vswitch:
    """The local Open vSwitch."""

    def __init__(
        self,
        remotes: Sequence[str],
        *,
        owner: str,
        random: Random,
        bridge: str = INTEGRATION,
        dial: Dial | None = None,
    ) -> None:
        self.owner = owner
        self.bridge_name = bridge
        self.on_interfaces: Signal[[set[AttachmentName]]] = Signal()
        """Sent when interfaces changed, with the attachments they belong to."""
        self.on_switch: Signal[[]] = Signal()
        """Sent when a bridge came or went, or the switch's own row or the tunnel port of vxlan changed."""
        self.on_tunnels: Signal[[]] = Signal()
        """Sent when tunnel ports changed."""
        self.client = OvsdbClient(
            remotes, DATABASE, tables=TABLES, leader_only=False, random=random, changed=self._changed, dial=dial
        )
        cache = self.client.cache
        self.lock = self.client.lock(LOCK)
        self.writer = GroupWriter(self.client.transact, [Assert(LOCK)])
        self._interfaces = cache.indexed("Interface", "name")
        self._of = cache.indexed("Interface", f"external_ids:{OF}")
        self._ports = cache.indexed("Port", "name")
        self._bridges = cache.indexed("Bridge", "name")

    @property
    def synced(self) -> bool:
        """Whether the copy of the database is current."""
        return self.client.synced.is_set()

    # The observed state.

    def root(self) -> OpenVSwitch:
        """Return the row of the switch itself."""
        rows = self.client.cache.rows("Open_vSwitch")
        if not rows:
            raise ProblemError("SwitchNotPrepared", "the switch's database is empty: run ovs-vsctl init")
        return cast("OpenVSwitch", next(iter(rows.values())))

    def bridge(self, name: str = "") -> Bridge | None:
        """Return a bridge, by default OVN's integration bridge."""
        return cast("Bridge | None", self._bridges.one(name or self.bridge_name))

    def datapath(self, default: str) -> str:
        """Return the datapath type of the node's bridges, or `default` if there are none."""
        bridge = self.bridge() or self.bridge(VXLAN_BRIDGE)
        return default if bridge is None else bridge.datapath_type

    def home(self, plan: PortPlan) -> str:
        """Return the name of the bridge that a port belongs on."""
        if plan.fabric is Fabric.LINUX:
            return names.bridge(plan.vni)
        return VXLAN_BRIDGE if plan.fabric is Fabric.VXLAN else self.bridge_name

    def interface(self, name: str) -> Interface | None:
        """Return the interface of this name, ours or not."""
        return cast("Interface | None", self._interfaces.one(name))

    def tunnel_remotes(self) -> set[str]:
        """Return the remote addresses of the tunnel ports: OVN makes one port for each other node."""
        rows = self.client.cache.rows("Interface").values()
        remotes = {cast("Interface", row).options.get(REMOTE_IP, "") for row in rows}
        return {remote for remote in remotes if is_ip(remote)}

    def node_tunnels(self) -> set[str]:
        """Return the remote addresses of OVN's tunnels: those of the other nodes."""
        cache = self.client.cache
        ports = [cast("Port", row) for row in cache.rows("Port").values()]
        uuids = {uuid for port in ports if OVN_CHASSIS in port.external_ids for uuid in port.interfaces}
        rows = [cast("Interface", row) for uuid, row in cache.rows("Interface").items() if uuid in uuids]
        return {row.options[REMOTE_IP] for row in rows if REMOTE_IP in row.options}

    def interfaces(self, name: AttachmentName) -> list[Interface]:
        """Return our interfaces of an attachment."""
        found = self._of.get(str(Unit(KIND, *name)))
        return [cast("Interface", row) for row in found.values() if self.is_ours(row)]

    def plugged(self, name: AttachmentName, uid: str, device: str = "") -> Interface | None:
        """Return our interface of the attachment that has this uid; with `device`, if that is its name."""
        rows = [row for row in self.interfaces(name) if row.external_ids.get(UID) == uid]
        return next((row for row in rows if row.name == (device or row.name)), None)

    def attachments(self) -> set[AttachmentName]:
        """Return the attachments that have interfaces of ours."""
        rows = self.client.cache.rows("Interface").values()
        return {name for row in rows if (name := self._attachment(row)) is not None}

    def is_ours(self, row: Any) -> bool:  # noqa: ANN401  # a row of any table with external_ids
        """Whether a row has our owner."""
        return bool(row.external_ids.get(OWNER) == self.owner)

    def port_of(self, interface: Interface) -> Port | None:
        """Return the port of an interface, which nearly always has the same name."""
        port = cast("Port | None", self._ports.one(interface.name))
        if port is not None and interface._uuid in port.interfaces:
            return port
        ports = self.client.cache.rows("Port").values()
        return next((cast("Port", one) for one in ports if interface._uuid in cast("Port", one).interfaces), None)

    def bridge_of(self, port: Port) -> Bridge | None:
        """Return the bridge a port is on."""
        bridges = self.client.cache.rows("Bridge").values()
        return next((cast("Bridge", one) for one in bridges if port._uuid in cast("Bridge", one).ports), None)

    def bridge_name_of(self, device: str) -> str:
        """Return the name of the bridge that an interface is on; "": none."""
        interface = self.interface(device)
        port = self.port_of(interface) if interface is not None else None
        bridge = self.bridge_of(port) if port is not None else None
        return bridge.name if bridge is not None else ""

    # Changes.

    async def plug(
        self, plan: PortPlan, *, origin: str = "", was: Interface | None = None, also: Sequence[Operation] = ()
    ) -> None:
        """Put a device on the switch; `was` is its interface until now, whose programs are not run again.

        The operations in `also` are part of the transaction.
        """
        bridge = self.home_row(plan)
        ids = self.ids(plan, origin) | (hooks.due(plan.runs.create) if was is None else hooks.kept(was.external_ids))
        row: dict[str, Any] = {"name": plan.device, "external_ids": ids}
        if plan.type is PortType.INTERNAL:
            row |= {"type": "internal", "mac": plan.mac, "mtu_request": plan.mtu}
        name = uuid_name(plan.device)
        operations: list[Operation] = [
            Insert("Interface", row, f"i{name}"),
            Insert("Port", {"name": plan.device, "interfaces": frozenset({NamedUuid(f"i{name}")})}, f"p{name}"),
            Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "insert", frozenset({NamedUuid(f"p{name}")}))]),
        ]
        kind, _, taken_from = origin.partition(":")
        if kind == "linux":
            owed = ("external_ids", "insert", {OWED + plan.device: taken_from})
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [owed]))
        await self.writer.commit([*operations, *also])

    async def correct(self, row: Interface, plan: PortPlan, *, origin: str = "") -> bool:
        """Change an interface of ours to match the plan, as far as possible; return whether anything was written."""
        operations = self._corrections(row, plan, origin)
        port, bridge = self.port_of(row), self.bridge(self.home(plan))
        if port is not None and bridge is not None and port._uuid not in bridge.ports:
            elsewhere = self.bridge_of(port)
            operations += self._moved(port, elsewhere, bridge) if elsewhere is not None else ()
        return await self.writer.commit(operations)

    async def move(self, row: Interface, plan: PortPlan) -> None:
        """Move a port from another bridge to ours, and record where it was."""
        port = self.port_of(row)
        bridge = self.bridge_of(port) if port is not None else None
        if port is None or bridge is None or bridge.name in (self.home(plan), port.name) or self._foreign(row, plan):
            raise ProblemError("DeviceInUse", f"device {plan.device} is in use on the switch and cannot be taken")
        if len(port.interfaces) > 1:
            raise ProblemError("DeviceInUse", f"device {plan.device} is part of bond {port.name}")
        await self.writer.commit(
            [
                *self._moved(port, bridge, self.home_row(plan)),
                *self._corrections(row, plan, f"ovs:{bridge.name}"),
            ]
        )

    async def unplug(self, row: Interface, *, gone: bool = False, also: Sequence[Operation] = ()) -> None:
        """Take an interface of ours off the switch; one that was on another bridge is returned to it.

        With `gone`, it is removed for good, and the program to run then is recorded. The operations in `also` are part
        of the transaction.
        """
        port = self.port_of(row)
        bridge = self.bridge_of(port) if port is not None else None
        if port is None or bridge is None:
            await self.writer.commit(also)
            return
        kind, _, name = row.external_ids.get(FROM, "").partition(":")
        home = self.bridge(name) if kind == "ovs" else None
        if home is None:
            operations = [_without(bridge, port)]  # The database removes rows that no bridge refers to.
        else:
            free = Mutate("Interface", is_uuid(row._uuid), [("external_ids", "delete", frozenset(OURS))])
            operations = [*self._moved(port, bridge, home), free]
        if gone and AFTER in row.external_ids:
            then = {f"{AFTER}/{self.owner}/{row._uuid}": row.external_ids[AFTER]}
            operations.append(Mutate("Bridge", is_uuid(bridge._uuid), [("external_ids", "insert", then)]))
        await self.writer.commit([*operations, *also])

    def owed(self) -> dict[str, str]:
        """Return the devices that were taken from a Linux bridge and not returned, each with that bridge.

        The record is at our bridge, not at the port: it survives when another program removes the port.
        """
        entries = [entry for bridge in self.bridges() for entry in bridge.external_ids.items()]
        return {key[len(OWED) :]: value for key, value in entries if key.startswith(OWED)}

    async def returned(self, device: str) -> None:
        """Remove the record of a device that was returned, or cannot be."""
        gone = [("external_ids", "delete", frozenset({OWED + device}))]
        await self.writer.commit(
            [
                Mutate("Bridge", is_uuid(bridge._uuid), gone)
                for bridge in self.bridges()
                if OWED + device in bridge.external_ids
            ]
        )

    def namespaces(self) -> dict[str, NetnsRecord]:
        """Return the network namespaces that were created, by path.

        As with `owed`, the record is at our bridge: it survives when another program removes the port.
        """
        prefix = f"{NETNS}/{self.owner}/"
        entries = [entry for bridge in self.bridges() for entry in bridge.external_ids.items()]
        found = {key[len(prefix) :]: read_record(value) for key, value in entries if key.startswith(prefix)}
        return {path: record for path, record in found.items() if record is not None}

    async def record_namespace(self, plan: PortPlan, record: NetnsRecord) -> None:
        """Record a network namespace before it gets its path."""
        key = f"{NETNS}/{self.owner}/{plan.netns}"
        await self.writer.commit([entry("Bridge", self.home_row(plan)._uuid, key, written(record))])

    async def forget_namespace(self, path: str) -> None:
        """Remove the record of a network namespace."""
        key = f"{NETNS}/{self.owner}/{path}"
        gone = [("external_ids", "delete", frozenset({key}))]
        with_record = [bridge for bridge in self.bridges() if key in bridge.external_ids]
        await self.writer.commit([Mutate("Bridge", is_uuid(bridge._uuid), gone) for bridge in with_record])

    async def request_recompute(self, about: str) -> None:
        """Make ovn-controller recompute everything: it does so when the switch's own row changes."""
        root = self.root()
        if root.external_ids.get(RECOMPUTE) != about:
            await self.writer.commit([entry("Open_vSwitch", root._uuid, RECOMPUTE, about)])

    def bridges(self) -> list[Bridge]:
        """Return our bridges, which have records of what outlives a port."""
        both = [bridge for name in (self.bridge_name, VXLAN_BRIDGE) if (bridge := self.bridge(name)) is not None]
        return [*both, *self.network_bridges().values()]

    def network_bridges(self) -> dict[int, Bridge]:
        """Return our bridges of linux Networks, by VNI."""
        rows = [cast("Bridge", row) for row in self.client.cache.rows("Bridge").values()]
        ours = [row for row in rows if self.is_ours(row)]
        return {vni: row for row in ours if (vni := names.vni_of_bridge(row.name)) is not None}

    def ids(self, plan: PortPlan, origin: str = "") -> dict[str, str]:
        """Return the external_ids of an interface."""
        found = {
            OWNER: self.owner,
            OF: str(Unit(KIND, plan.namespace, plan.name)),
            UID: plan.uid,
            MAC: plan.mac,
        }
        if plan.fabric is Fabric.OVN:
            found |= {IFACE_ID: plan.iface_id, STATUS: "active"}
        if plan.addresses:
            found[GIVEN] = " ".join(plan.addresses)
        if origin:
            found[FROM] = origin
        device = "" if plan.type is PortType.EXISTING else plan.outer
        return found | hooks.after(After(plan.namespace, plan.name, plan.uid, device, plan.runs.delete))

    def _corrections(self, row: Interface, plan: PortPlan, origin: str) -> list[Operation]:
        have = row.external_ids
        # The origin stays recorded and is not part of a plan. Taking a device counts as making the interface.
        wanted = self.ids(plan, origin) | (hooks.due(plan.runs.create) if origin else {})
        gone = {key for key in (GIVEN, AFTER) if key in have and key not in wanted}
        changed = {key: value for key, value in wanted.items() if have.get(key) != value}
        operations: list[Operation] = []
        if gone or changed:
            mutations = [("external_ids", "delete", frozenset(gone | changed.keys()))]
            operations.append(
                Mutate("Interface", is_uuid(row._uuid), [*mutations, ("external_ids", "insert", changed)])
            )
        if plan.type is PortType.INTERNAL and (row.mac != plan.mac or row.mtu_request != plan.mtu):
            operations.append(Update("Interface", is_uuid(row._uuid), {"mac": plan.mac, "mtu_request": plan.mtu}))
        return operations

    @staticmethod
    def _moved(port: Port, here: Bridge, there: Bridge) -> Iterable[Operation]:
        moved = frozenset({port._uuid})
        return (_without(here, port), Mutate("Bridge", is_uuid(there._uuid), [("ports", "insert", moved)]))

    def _foreign(self, row: Interface, plan: PortPlan) -> bool:
        """Whether an interface belongs to another owner, or to another attachment."""
        owner = row.external_ids.get(OWNER)
        return owner is not None and (owner != self.owner or row.external_ids.get(UID) != plan.uid)

    def home_row(self, plan: PortPlan) -> Bridge:
        """Return the bridge that a port belongs on, or raise `ProblemError`."""
        name = self.home(plan)
        bridge = self.bridge(name)
        if bridge is None:
            raise ProblemError("SwitchNotPrepared", f"there is no bridge {name}: start the agent once with --prepare")
        return bridge

    def _changed(self, changes: Sequence[Any]) -> None:
        names: set[AttachmentName] = set()
        other = tunnels = False
        for change in changes:
            if change.table != "Interface":
                born_or_gone = change.old is None or change.new is None
                other = other or change.table == "Open_vSwitch" or (change.table == "Bridge" and born_or_gone)
                continue
            tunnels = tunnels or any(row is not None and REMOTE_IP in row.options for row in (change.old, change.new))
            if change.old is None and change.new.ofport is None:
                continue  # We have just inserted it; the switch has not opened it yet.
            if _matters(change.old) != _matters(change.new):
                other = other or VTEP in (getattr(change.old, "name", ""), getattr(change.new, "name", ""))
                names.update(name for row in (change.old, change.new) if row and (name := self._attachment(row)))
        if names:
            self.on_interfaces(names)
        if other:
            self.on_switch()
        if tunnels:
            self.on_tunnels()

    def _attachment(self, row: Any) -> AttachmentName | None:  # noqa: ANN401  # an Interface
        if not self.is_ours(row):
            return None
        of = Unit.parse(row.external_ids.get(OF, ""))
        return of[1:] if of is not None and of.kind == KIND and of.namespace else None


def entry(table: str, uuid: str, key: str, value: str) -> Operation:
    """Return the operation that sets one entry of a row's external_ids."""
    replaced = ("external_ids", "delete", frozenset({key}))
    return Mutate(table, is_uuid(uuid), [replaced, ("external_ids", "insert", {key: value})])


def given(row: Interface) -> tuple[str, ...]:
    """Return the addresses that an interface's device was given."""
    return tuple(row.external_ids.get(GIVEN, "").split())


def _matters(row: Interface | None) -> object:
    """Return the columns of an interface that reconciling reads: OVN's timestamp is none of them."""
    if row is None:
        return None
    ids = {key: value for key, value in row.external_ids.items() if key != INSTALLED_AT}
    return row.ofport, row.ifindex, row.error, row.type, row.mac, row.mtu_request, row.admin_state, row.options, ids


def _without(bridge: Bridge, port: Port) -> Operation:
    return Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "delete", frozenset({Uuid(port._uuid)}))])
