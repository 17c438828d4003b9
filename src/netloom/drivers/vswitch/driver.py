"""The node's own Open vSwitch: which interfaces are ours, and the changes to them, through its OVSDB.

What is seen is the client's copy of the database, kept by its watch; nothing is asked for and nothing is polled: that a
device is there (`ofport`), or that OVN has installed its flows (`ovn-installed`), is told. An interface is ours by its
`external_ids`:

    netloom-owner   who: the owner setting
    netloom-of      what for: NetworkAttachment/NAMESPACE/NAME
    netloom-uid     the attachment's uid
    netloom-given   the addresses the device was given, so that later only those are taken away
    netloom-from    of an existing device: where it was before, so that it can go back
    netloom-exec, netloom-after: programs that run when it is made, and when it is gone (`plan/node/hooks.py`)
    iface-id, attached-mac, iface-status: what ovn-controller reads

A port of a Network that VXLAN carries is on a bridge of ours, `br-vxlan`, and has no iface-id; the rest is the same.

Changes made at the same time travel as one transaction (`drivers/vswitch/writer.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, cast

from netloom.drivers.link.trouble import Trouble
from netloom.drivers.vswitch.writer import Writer
from netloom.model.addresses import is_ip
from netloom.model.attachments import PortType
from netloom.model.networks import Fabric
from netloom.ovsdb.io import Dial, OvsdbClient
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Assert, Insert, Mutate, NamedUuid, Operation, Update, is_uuid, uuid_name
from netloom.ovsdb.rows.vswitch import Bridge, Interface, OpenVSwitch, Port
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, EXEC, After
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Unit

DATABASE = "Open_vSwitch"
INTEGRATION = "br-int"
VXLAN_BRIDGE = "br-vxlan"
"""Where the ports of vxlan Networks are, and `VTEP`, which `drivers/vxlan/bridge.py` makes."""
VTEP = "nl-vtep"
REMOTE_IP = "remote_ip"
LOCK = "netloom_agent"
"""The database's lock that every write depends on: one agent works on a switch."""
OWNER, OF, UID, GIVEN, FROM = "netloom-owner", "netloom-of", "netloom-uid", "netloom-given", "netloom-from"
OWED, ASKED = "netloom-owed-", "netloom-asked"
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

Place = tuple[str, str]
"""An attachment's namespace and name."""
Listener = Callable[[set[Place]], None]


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
        self.listener: Listener = lambda places: None
        """Told whose interfaces changed."""
        self.anything: Callable[[], None] = lambda: None
        """Told that there are other bridges, or that the switch as a whole, or its tunnel port, changed."""
        self.on_tunnels: Callable[[], None] = lambda: None
        """Called when the tunnel ports changed."""
        self.client = OvsdbClient(
            remotes, DATABASE, tables=TABLES, leader_only=False, random=random, changed=self._changed, dial=dial
        )
        cache = self.client.cache
        self.lock = self.client.lock(LOCK)
        self.writer = Writer(self.client.transact, [Assert(LOCK)])
        self._interfaces = cache.indexed("Interface", "name")
        self._of = cache.indexed("Interface", f"external_ids:{OF}")
        self._ports = cache.indexed("Port", "name")
        self._bridges = cache.indexed("Bridge", "name")

    @property
    def synced(self) -> bool:
        """Whether what is seen is what is there."""
        return self.client.synced.is_set()

    # What is seen.

    def root(self) -> OpenVSwitch:
        """Return the switch's one row."""
        rows = self.client.cache.rows("Open_vSwitch")
        if not rows:
            raise Trouble("SwitchNotPrepared", "the switch's database is empty: ovs-vsctl init")
        return cast("OpenVSwitch", next(iter(rows.values())))

    def bridge(self, name: str = "") -> Bridge | None:
        """Return a bridge; unless named, the one OVN works on."""
        return cast("Bridge | None", self._bridges.one(name or self.bridge_name))

    def home(self, plan: PortPlan) -> str:
        """Return the bridge a port belongs on."""
        return VXLAN_BRIDGE if plan.fabric is Fabric.VXLAN else self.bridge_name

    def interface(self, name: str) -> Interface | None:
        """Return the interface of this name, whoever it belongs to."""
        return cast("Interface | None", self._interfaces.one(name))

    def tunnel_remotes(self) -> set[str]:
        """Return the addresses at the other ends of the tunnel ports, such as OVN makes one for each other node."""
        rows = self.client.cache.rows("Interface").values()
        remotes = {cast("Interface", row).options.get(REMOTE_IP, "") for row in rows}
        return {remote for remote in remotes if is_ip(remote)}

    def interfaces(self, place: Place) -> list[Interface]:
        """Return our interfaces for an attachment."""
        found = self._of.get(str(Unit(KIND, *place)))
        return [cast("Interface", row) for row in found.values() if self.is_ours(row)]

    def places(self) -> set[Place]:
        """Return the attachments for which there are interfaces of ours."""
        rows = self.client.cache.rows("Interface").values()
        return {place for row in rows if (place := self._place(row)) is not None}

    def is_ours(self, row: Any) -> bool:  # noqa: ANN401  # a row of any table with external_ids
        """Whether a row carries our name."""
        return bool(row.external_ids.get(OWNER) == self.owner)

    def port_of(self, interface: Interface) -> Port | None:
        """Return the port an interface belongs to: nearly always the one of its name."""
        port = cast("Port | None", self._ports.one(interface.name))
        if port is not None and interface._uuid in port.interfaces:
            return port
        ports = self.client.cache.rows("Port").values()
        return next((cast("Port", one) for one in ports if interface._uuid in cast("Port", one).interfaces), None)

    def bridge_of(self, port: Port) -> Bridge | None:
        """Return the bridge a port is on."""
        bridges = self.client.cache.rows("Bridge").values()
        return next((cast("Bridge", one) for one in bridges if port._uuid in cast("Bridge", one).ports), None)

    def place_of(self, device: str) -> str:
        """Return the name of the bridge that an interface is on."""
        interface = self.interface(device)
        port = self.port_of(interface) if interface is not None else None
        bridge = self.bridge_of(port) if port is not None else None
        return bridge.name if bridge is not None else ""

    # What is changed.

    async def plug(self, plan: PortPlan, *, origin: str = "", was: Interface | None = None) -> None:
        """Put a device on the switch; `was`: as what it was there until now, so that what was run then is not again."""
        bridge = self._home(plan)
        ids = self.ids(plan, origin) | (hooks.due(plan.runs.create) if was is None else hooks.kept(was.external_ids))
        row: dict[str, Any] = {"name": plan.device, "external_ids": ids}
        if plan.type is PortType.INTERNAL:
            row |= {"type": "internal", "mac": plan.mac, "mtu_request": plan.mtu}
        name = uuid_name(plan.device)
        await self.writer.commit(
            [
                Insert("Interface", row, f"i{name}"),
                Insert("Port", {"name": plan.device, "interfaces": frozenset({NamedUuid(f"i{name}")})}, f"p{name}"),
                Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "insert", frozenset({NamedUuid(f"p{name}")}))]),
                *self._owing(bridge, plan.device, origin),
            ]
        )

    async def correct(self, row: Interface, plan: PortPlan, *, origin: str = "") -> bool:
        """Let an interface of ours be as the plan has it, in what can be changed; whether anything was written."""
        operations = self._corrections(row, plan, origin)
        port, bridge = self.port_of(row), self.bridge(self.home(plan))
        if port is not None and bridge is not None and port._uuid not in bridge.ports:
            elsewhere = self.bridge_of(port)
            operations += self._moved(port, elsewhere, bridge) if elsewhere is not None else ()
        if not operations:
            return False
        await self.writer.commit(operations)
        return True

    async def move(self, row: Interface, plan: PortPlan) -> None:
        """Take a port that is on another bridge, as it is, and remember where it was."""
        port = self.port_of(row)
        bridge = self.bridge_of(port) if port is not None else None
        if port is None or bridge is None or bridge.name in (self.home(plan), port.name) or self._foreign(row, plan):
            raise Trouble("DeviceInUse", f"device {plan.device} is in use on the switch and cannot be taken")
        if len(port.interfaces) > 1:
            raise Trouble("DeviceInUse", f"device {plan.device} is part of bond {port.name}")
        await self.writer.commit(
            [
                *self._moved(port, bridge, self._home(plan)),
                *self._corrections(row, plan, f"ovs:{bridge.name}"),
            ]
        )

    async def unplug(self, row: Interface, *, gone: bool = False) -> None:
        """Take an interface of ours off the switch; one that came from another bridge goes back to it.

        `gone`: for good, and what is to be run then is remembered.
        """
        port = self.port_of(row)
        bridge = self.bridge_of(port) if port is not None else None
        if port is None or bridge is None:
            return
        kind, _, name = row.external_ids.get(FROM, "").partition(":")
        home = self.bridge(name) if kind == "ovs" else None
        if home is None:
            # Whatever no bridge has, the database removes by itself.
            await self.writer.commit([_without(bridge, port), *(self._after(bridge, row) if gone else ())])
            return
        free = Mutate("Interface", is_uuid(row._uuid), [("external_ids", "delete", frozenset(OURS))])
        await self.writer.commit([*self._moved(port, bridge, home), free, *(self._after(bridge, row) if gone else ())])

    def _after(self, bridge: Bridge, row: Interface) -> list[Operation]:
        """Remember with its bridge what is to be run when an interface is gone: as what is owed, below."""
        if AFTER not in row.external_ids:
            return []
        entry = {f"{AFTER}/{self.owner}/{row._uuid}": row.external_ids[AFTER]}
        return [Mutate("Bridge", is_uuid(bridge._uuid), [("external_ids", "insert", entry)])]

    def owed(self) -> dict[str, str]:
        """Return devices that were taken from a Linux bridge and are not back, each with its bridge.

        That stands with our bridge, not with the port: whoever removes the port does not make us forget.
        """
        found = {}
        for bridge in self._owing_bridges():
            owed = {key[len(OWED) :]: value for key, value in bridge.external_ids.items() if key.startswith(OWED)}
            found.update(owed)
        return found

    async def returned(self, device: str) -> None:
        """Know that a device is back, or cannot go back."""
        gone = [("external_ids", "delete", frozenset({OWED + device}))]
        await self.writer.commit(
            [
                Mutate("Bridge", is_uuid(bridge._uuid), gone)
                for bridge in self._owing_bridges()
                if OWED + device in bridge.external_ids
            ]
        )

    async def ask_again(self, about: str) -> None:
        """Have ovn-controller look at everything anew: it does when something of the switch as a whole changes."""
        root = self.root()
        if root.external_ids.get(ASKED) != about:
            await self.writer.commit([entry("Open_vSwitch", root._uuid, ASKED, about)])

    def _owing_bridges(self) -> list[Bridge]:
        return [bridge for name in (self.bridge_name, VXLAN_BRIDGE) if (bridge := self.bridge(name)) is not None]

    @staticmethod
    def _owing(bridge: Bridge, device: str, origin: str) -> list[Operation]:
        kind, _, name = origin.partition(":")
        if kind != "linux":
            return []
        return [Mutate("Bridge", is_uuid(bridge._uuid), [("external_ids", "insert", {OWED + device: name})])]

    def ids(self, plan: PortPlan, origin: str = "") -> dict[str, str]:
        """Return what an interface carries."""
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
        device = "" if plan.type is PortType.EXISTING else plan.device
        return found | hooks.after(After(plan.namespace, plan.name, plan.uid, device, plan.runs.delete))

    def _corrections(self, row: Interface, plan: PortPlan, origin: str) -> list[Operation]:
        have = row.external_ids
        # Where it came from is remembered; it is not part of any plan. One that has just come is made.
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
        """Whether an interface is somebody's: of another owner, or of another attachment."""
        owner = row.external_ids.get(OWNER)
        return owner is not None and (owner != self.owner or row.external_ids.get(UID) != plan.uid)

    def _home(self, plan: PortPlan) -> Bridge:
        name = self.home(plan)
        bridge = self.bridge(name)
        if bridge is None:
            raise Trouble("SwitchNotPrepared", f"there is no bridge {name}: start the agent once with --prepare")
        return bridge

    def _changed(self, changes: Sequence[Any]) -> None:
        places: set[Place] = set()
        other = tunnels = False
        for change in changes:
            if change.table != "Interface":
                born_or_gone = change.old is None or change.new is None
                other = other or change.table == "Open_vSwitch" or (change.table == "Bridge" and born_or_gone)
                continue
            tunnels = tunnels or any(row is not None and REMOTE_IP in row.options for row in (change.old, change.new))
            if change.old is None and change.new.ofport is None:
                continue  # We put it there a moment ago; what the switch makes of it is still to come.
            if _matters(change.old) != _matters(change.new):
                other = other or VTEP in (getattr(change.old, "name", ""), getattr(change.new, "name", ""))
                places.update(place for row in (change.old, change.new) if row and (place := self._place(row)))
        if places:
            self.listener(places)
        if other:
            self.anything()
        if tunnels:
            self.on_tunnels()

    def _place(self, row: Any) -> Place | None:  # noqa: ANN401  # an Interface
        if not self.is_ours(row):
            return None
        kind, _, rest = row.external_ids.get(OF, "").partition("/")
        namespace, _, name = rest.partition("/")
        return (namespace, name) if kind == KIND and name else None


def entry(table: str, uuid: str, key: str, value: str) -> Operation:
    """Return what writes one entry of a row's external_ids, whatever stood there."""
    replaced = ("external_ids", "delete", frozenset({key}))
    return Mutate(table, is_uuid(uuid), [replaced, ("external_ids", "insert", {key: value})])


def given(row: Interface) -> tuple[str, ...]:
    """Return the addresses an interface's device was given."""
    return tuple(row.external_ids.get(GIVEN, "").split())


def _matters(row: Interface | None) -> object:
    """Return what a look at an interface sees: not when OVN said that it is installed."""
    if row is None:
        return None
    ids = {key: value for key, value in row.external_ids.items() if key != INSTALLED_AT}
    return row.ofport, row.ifindex, row.error, row.type, row.mac, row.mtu_request, row.admin_state, row.options, ids


def _without(bridge: Bridge, port: Port) -> Operation:
    return Mutate("Bridge", is_uuid(bridge._uuid), [("ports", "delete", frozenset({Uuid(port._uuid)}))])
