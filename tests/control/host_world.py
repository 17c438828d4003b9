"""A node in memory: a switch's database that executes, devices, and what vswitchd and ovn-controller do with them.

Everything lives on the simulated loop, so that a seed decides who comes first, and an hour takes no time.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, cast

from netloom.drivers.link.codec import Link, Neighbour
from netloom.drivers.link.worker import LinkCounters, Links, use
from netloom.drivers.programs.programs import Ended
from netloom.drivers.vswitch.driver import DATABASE, Vswitch
from netloom.errors import Conflict
from netloom.model.kinds.attachments import PortType
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.openflow.memory import Memory
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.memory.serving import Pipe, dial
from netloom.ovsdb.operations import Mutate, Operation, Update, is_uuid
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan import names
from netloom.plan.node.hooks import OVERDUE
from netloom.plan.node.ports import PortPlan
from netloom.plan.policy.impairment import NONE, Impairment, PortImpairment
from netloom.plan.problem import ProblemError
from netloom.run.config import AgentSettings
from netloom.run.node.agent import Agent
from netloom.signals import Signal
from netloom.sim import loop as sim
from netloom.store.base import Store
from tests.control.helpers import document

if TYPE_CHECKING:
    from netloom.control.node.cluster import ClusterDrivers

SCHEMA: dict[str, Any] = json.loads(Path("/usr/share/openvswitch/vswitch.ovsschema").read_text())
REMOTE = "unix:/db"
TUN = "tun"
BRIDGES = ("br-int", "br-vxlan")
GRANTS: Mapping[str, Any] = {
    "netns_folders": ("*=/ns",),
    "internal_routes": ("*=0.0.0.0/0", "*=::/0"),
    "internal_names": ("*=*",),
    "existing_devices": ("*=*:used",),
}


@dataclass(eq=False)
class Device:
    index: int
    name: str
    kind: str
    mac: str = ""
    mtu: int = 1500
    up: bool = False
    alias: str = ""
    held: bool = False
    """Whether a switch takes its packets."""
    peer: "Device | None" = None
    master: "Device | None" = None
    addresses: set[str] = field(default_factory=set)
    routes: set[tuple[str, str]] = field(default_factory=set)
    netem: Impairment = NONE

    def link(self) -> Link:
        peer = self.peer.index if self.peer else 0
        master = self.master.index if self.master else 0
        return Link(self.index, self.name, self.mac, self.mtu, self.up, self.kind, peer, master, self.alias, self.held)


class Machine:
    """The devices of a node's namespaces; "" is the node's own."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[str, Device]] = {"": {}}
        self.changed = asyncio.Event()
        self.uplinked = True
        """Whether some device has the underlay's address."""
        self.resolved: list[str] = []
        """The addresses towards which the next hop was asked for, in order."""
        self.netem = False
        """Whether the kernel has netem."""
        self.relays: dict[str, tuple[str, tuple[int, int], PortImpairment]] = {}
        """The processes between two devices, by the near one."""
        self.identities: dict[str, str] = {}
        """Of the namespaces that were created by an agent."""
        self._indexes = itertools.count(10)

    def next_identity(self) -> str:
        return f"netns-{next(self._indexes)}"

    def add_space(self, path: str, identity: str = "") -> None:
        self.spaces[path] = {}
        if identity:
            self.identities[path] = identity

    def identity(self, path: str) -> str:
        """Return what tells a namespace from others; "": there is none."""
        return self.identities.get(path, "foreign") if path in self.spaces else ""

    @property
    def node(self) -> dict[str, Device]:
        return self.spaces[""]

    def add(self, space: str, name: str, kind: str, **more: Any) -> Device:
        made = self.spaces[space][name] = Device(next(self._indexes), name, kind, **more)
        self.changed.set()
        return made

    def set_up(self, device: Device, *, up: bool) -> None:
        device.up = up
        self.changed.set()

    def remove(self, device: Device) -> None:
        for space in self.spaces.values():
            for name in [name for name, one in space.items() if one is device or one is device.peer]:
                del space[name]
        alive = {one.index for one in self.node.values()}
        self.relays = {near: one for near, one in self.relays.items() if alive.issuperset(one[1])}
        self.changed.set()

    def remove_space(self, path: str) -> None:
        for device in list(self.spaces.get(path, {}).values()):
            self.remove(device)
        self.spaces.pop(path, None)
        self.identities.pop(path, None)


class FakeRelays:
    """What `Relays` does: processes that end with the devices of a `Machine`, and outlive the agent."""

    def __init__(self, machine: Machine) -> None:
        self.on_end: Signal[[str]] = Signal()
        self._machine = machine

    def close(self) -> None:
        pass

    async def ensure(self, near: str, far: str, wanted: PortImpairment) -> None:
        machine = self._machine
        devices = machine.node[near].index, machine.node[far].index
        machine.relays[near] = far, devices, wanted

    def kill(self, near: str) -> None:
        """End a relay."""
        del self._machine.relays[near]
        self.on_end(near)


class FakeLinks:
    """What `Links` does, done to a `Machine`."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.counters = LinkCounters()
        self.userspace = True
        self._machine = machine
        self._random = random

    def close(self) -> None:
        pass

    async def _rest(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.01))

    async def probe(self) -> dict[str, bool]:
        return {"netem": self._machine.netem, "packet": True}

    async def resolve(self, ips: Collection[str]) -> None:
        await self._rest()
        self._machine.resolved.extend(sorted(ips))

    async def neighbours(self, ips: Collection[str]) -> dict[str, Neighbour]:
        await self._rest()
        return {}

    async def holder(self, ip: str) -> Link | None:
        return Link(2, "uplink", "", 1500, True) if self._machine.uplinked else None

    async def device(self, name: str) -> Link | None:
        await self._rest()
        found = self._machine.node.get(name)
        return found.link() if found else None

    async def bridge_of(self, device: Link) -> str:
        await self._rest()
        bridges = (one for one in self._machine.node.values() if one.kind == "bridge")
        return next((one.name for one in bridges if one.index == device.master), "")

    async def in_use(self, device: Link, *, switched: bool) -> str:
        await self._rest()
        found = self._machine.node[device.name]
        return use(device, found.addresses, [one.link() for one in self._machine.node.values()], switched=switched)

    async def enslave(self, name: str, master: str) -> None:
        await self._rest()
        device, bridge = self._machine.node[name], self._machine.node[master] if master else None
        if device.master is not bridge:
            self.counters.writes += 1
            device.master = bridge

    async def set_up(self, name: str, *, up: bool) -> None:
        await self._rest()
        if self._machine.node[name].up != up:
            self.counters.writes += 1
            self._machine.set_up(self._machine.node[name], up=up)

    async def pair(self, plan: PortPlan, given: Collection[str]) -> Link:
        await self._rest()
        return self._pair(plan, given)

    async def same_pair(self, plan: PortPlan, given: Collection[str]) -> Link | None:
        await self._rest()
        self._move_staged(plan)
        outer, there = self._machine.node.get(plan.outer), self._machine.spaces.get(plan.netns)
        if there is not None and (outer is None or there.get(plan.inner) is not outer.peer):
            return None
        if plan.relayed and plan.device not in self._machine.node:
            return None
        return self._pair(plan, given)

    def _move_staged(self, plan: PortPlan) -> None:
        """Move the inner end of a port that was made ahead into its namespace."""
        machine = self._machine
        name, there = names.inner(plan.mac), machine.spaces.get(plan.netns)
        outer, inner = machine.node.get(plan.outer), machine.node.get(name)
        if plan.staged or plan.type is not PortType.POD or there is None or plan.inner in there:
            return
        if outer is None or inner is None or outer.peer is not inner or outer.alias != plan.uid:
            return
        if plan.netns_identity and machine.identity(plan.netns) != plan.netns_identity:
            return
        there[plan.inner] = machine.node.pop(name)
        self.counters.writes += 1

    def _pair(self, plan: PortPlan, given: Collection[str]) -> Link:
        self._move_staged(plan)
        machine = self._machine
        if plan.netns not in machine.spaces:
            raise ProblemError("NamespaceMissing", f"there is no network namespace at {plan.netns}")
        if plan.netns_identity and machine.identity(plan.netns) != plan.netns_identity:
            raise ProblemError("NamespaceMissing", f"the network namespace at {plan.netns} is another")
        outer = machine.node.get(plan.outer)
        if outer and outer.alias != plan.uid:
            raise ProblemError("NameTaken", "taken")
        if outer and machine.spaces[plan.netns].get(plan.inner) is not outer.peer:
            machine.remove(outer)
            outer = None
        if outer is None:
            if plan.inner in machine.spaces[plan.netns]:
                raise ProblemError("NameTaken", "taken inside")
            outer = machine.add("", plan.outer, "veth", alias=plan.uid, up=True)
            outer.peer = machine.add(plan.netns, plan.inner, "veth", mac=plan.mac, mtu=plan.mtu, peer=outer)
            self.counters.writes += 1
        assert outer.peer is not None
        if outer.up == plan.link_down:
            self.counters.writes += 1
            machine.set_up(outer, up=not plan.link_down)
        self._configure(outer.peer, plan, given)
        wanted = PortImpairment() if plan.impairment is None or plan.relayed else plan.impairment
        for device, asked in ((outer.peer, wanted.sent), (outer, wanted.received)):
            self.counters.writes += device.netem != asked
            device.netem = asked
        return self._relayed(plan) if plan.relayed else outer.link()

    def _relayed(self, plan: PortPlan) -> Link:
        machine, (name, peer) = self._machine, names.relay(plan.mac)
        if name not in machine.node:
            end = machine.add("", name, "veth", alias=plan.uid, up=True)
            end.peer = machine.add("", peer, "veth", peer=end, up=True)
            self.counters.writes += 1
        return machine.node[name].link()

    async def inner(self, plan: PortPlan, given: Collection[str]) -> Link:
        await self._rest()
        found = self._machine.node.get(plan.inner)
        if found is None:
            raise ProblemError("DeviceMissing", "no device")
        self._configure(found, plan, given)
        return found.link()

    async def faults(self, plan: PortPlan, given: Collection[str]) -> list[str]:
        await self._rest()
        outer, there = self._machine.node.get(plan.outer), self._machine.spaces.get(plan.netns, {})
        inner = there.get(plan.inner)
        if outer is None or inner is None or outer.peer is not inner:
            return ["no pair"]
        return [] if inner.addresses == set(plan.addresses) else ["other addresses"]

    async def remove_pair(self, name: str) -> None:
        await self._rest()
        found = self._machine.node.get(name)
        if found and found.kind == "veth" and found.alias:
            self.counters.writes += 1
            self._machine.remove(found)

    async def namespace(self, path: str, root: str) -> str:
        await self._rest()
        return self._machine.identity(path)

    async def create_namespace(self, path: str, root: str, record: Callable[[str], Awaitable[None]]) -> None:
        await self._rest()
        identity = self._machine.next_identity()
        await record(identity)
        await self._rest()
        assert path not in self._machine.spaces, "a namespace is there already"
        self._machine.add_space(path, identity)

    async def remove_namespace(self, path: str, root: str, identity: str) -> None:
        await self._rest()
        if self._machine.identities.get(path) == identity:
            self._machine.remove_space(path)

    async def pairs(self) -> dict[str, str]:
        await self._rest()
        return {name: one.alias for name, one in self._machine.node.items() if one.alias}

    def _configure(self, device: Device, plan: PortPlan, given: Collection[str]) -> None:
        if plan.staged:
            device.up = False
            return
        addresses = (device.addresses - set(given)) | set(plan.addresses)
        up = not plan.link_down or plan.inner != plan.device
        routes = {(one.to, one.via) for one in plan.routes if up}
        wanted = (plan.mac, plan.mtu, up, addresses, routes)
        if (device.mac, device.mtu, device.up, device.addresses, device.routes) != wanted:
            self.counters.writes += 1
            device.mac, device.mtu, device.up, device.addresses, device.routes = wanted
            self._machine.changed.set()


class FakePrograms:
    """The node's programs: each writes down that it ran, takes its time, and prints whether its device is there."""

    ALLOWED = ("/bin/note", "/bin/slow", "/bin/fail", "/bin/hang")

    def __init__(self, machine: Machine) -> None:
        self.written: list[tuple[str, ...]] = []
        """What they wrote down, with their arguments; it outlives agents."""
        self.running = 0
        self.most = 0
        self._machine = machine

    async def run(self, command: Sequence[str]) -> Ended:
        name, *arguments = command
        self.written.append((name, *arguments))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep({"/bin/note": 0.01, "/bin/slow": 40.0, "/bin/fail": 0.5, "/bin/hang": 60.0}[name])
        finally:
            self.running -= 1
        if name == "/bin/hang":
            return Ended(exit_status=OVERDUE, stderr="[ended after 60 s: see --exec-timeout]")
        there = any(argument in self._machine.node for argument in arguments)
        return Ended(exit_status=3 if name == "/bin/fail" else 0, stdout="there\n" if there else "not there\n")


class Daemons:
    """ovs-vswitchd and ovn-controller: rows become devices, and devices are reported.

    A port's device is opened when the port is first seen, and held for as long as the port is there: one of the same
    name that comes in its place is reported, and gets no packets. Opening it reads the device's flags and writes them
    back, whatever happened to them in between. Numbers of ports that are gone are given again.
    """

    def __init__(self, machine: Machine, server: Server, database: Database, random: Random) -> None:
        self._machine = machine
        self._random = random
        self._database = database
        self._tables = {
            "Interface": ("name", "type", "mac", "mtu_request", "external_ids", "ofport", "ifindex", "error",
                          "admin_state"),
            "Open_vSwitch": ("external_ids",),
        }  # fmt: skip
        self._wake = machine.changed
        self._client = OvsdbClient(
            [REMOTE], DATABASE, tables=self._tables, leader_only=False, random=random, dial=dial({REMOTE: server}),
            changed=lambda _: self._wake.set(),
        )  # fmt: skip
        self._numbers: dict[str, int] = {}
        self.held: dict[str, Device] = {}
        self._silent: dict[str, object] = {}

    def fall_silent(self, name: str) -> None:
        """Take back that an interface is installed; nothing is said of it until the switch as a whole changes."""
        self._silent[name] = self._whole()
        for row in cast("list[Interface]", list(self._client.cache.rows("Interface").values())):
            if row.name == name:
                gone = ["external_ids", "delete", ["set", ["ovn-installed"]]]
                where = [["_uuid", "==", ["uuid", row._uuid]]]
                self._database.transact([{"op": "mutate", "table": "Interface", "where": where, "mutations": [gone]}])

    def _whole(self) -> object:
        return [dict(cast("Any", row).external_ids) for row in self._client.cache.rows("Open_vSwitch").values()]

    def crash(self, *, renumber: bool = False) -> None:
        """End vswitchd: its devices go with it; it is started again at once, and may number its ports anew."""
        self.held.clear()
        if renumber:
            names = sorted(self._numbers)
            self._random.shuffle(names)
            self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._wake.set()
        for device in [one for one in self._machine.node.values() if one.kind == TUN]:
            self._machine.remove(device)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._client.run())
            while True:
                await self._client.synced.wait()
                await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(self._random.uniform(0, 0.03))
                try:
                    await self._look()
                except Conflict:
                    self._wake.set()

    async def _look(self) -> None:
        rows = {row.name: row for row in cast("list[Interface]", list(self._client.cache.rows("Interface").values()))}
        for name in [name for name, one in self._machine.node.items() if one.kind == TUN and name not in rows]:
            self._machine.remove(self._machine.node[name])
        for name in self.held.keys() - rows.keys():
            self.held.pop(name).held = False
        for name in self._numbers.keys() - rows.keys():
            del self._numbers[name]
        operations: list[Operation] = []
        for name, row in rows.items():
            if _is_bridge(name):
                continue
            if row.type == "vxlan":
                operations += _numbered(row, self._number(name))
                continue
            device = self._machine.node.get(name)
            if row.type == "internal" and device is None:
                device = self._machine.add("", name, TUN, mac=row.mac or "", mtu=row.mtu_request or 1500)
            if device is not None and name not in self.held:
                await self._hold(device)
            operations += self._report(row, device)
        if operations:
            await self._client.transact(operations)

    def _number(self, name: str) -> int:
        """Return a port's number: the one it has, or the first that is free."""
        if name not in self._numbers:
            taken = set(self._numbers.values())
            self._numbers[name] = next(number for number in itertools.count(1) if number not in taken)
        return self._numbers[name]

    async def _hold(self, device: Device) -> None:
        self.held[device.name] = device
        up = device.up
        await asyncio.sleep(self._random.choice((0, 0, 0.02)))
        device.held = True
        self._machine.set_up(device, up=up)

    def _report(self, row: Interface, device: Device | None) -> list[Operation]:
        found: list[Operation] = []
        number = self._number(row.name)
        seen: tuple[object, ...]
        if row.type == "vxlan":
            seen = (number, 0, None, "up")
        elif device is not None:
            seen = (number, device.index, None, "up" if device.up else "down")
        elif row.name in self.held:
            seen = (number, 0, None, "down")
        else:
            seen = (-1, None, "could not open network device", None)
        if (row.ofport, row.ifindex, row.error, row.admin_state) != seen:
            columns = dict(zip(("ofport", "ifindex", "error", "admin_state"), seen, strict=True))
            found.append(Update("Interface", is_uuid(row._uuid), columns))
        installed = row.external_ids.get("ovn-installed") == "true"
        if self._silent.get(row.name) == self._whole():
            return found
        self._silent.pop(row.name, None)
        if row.ofport == number and "iface-id" in row.external_ids and not installed:
            entry = {"ovn-installed": "true", "ovn-installed-ts": str(sim.current().time())}
            said = [("external_ids", "delete", frozenset(entry))]
            found.append(Mutate("Interface", is_uuid(row._uuid), [*said, ("external_ids", "insert", entry)]))
        if seen[0] == -1 and installed:
            gone = frozenset({"ovn-installed"})
            found.append(Mutate("Interface", is_uuid(row._uuid), [("external_ids", "delete", gone)]))
        return found


def _is_bridge(name: str) -> bool:
    return name in BRIDGES or names.vni_of_bridge(name) is not None


def _numbered(row: Interface, number: int) -> list[Operation]:
    """Return what reports a port that needs no device."""
    return [] if row.ofport == number else [Update("Interface", is_uuid(row._uuid), {"ofport": number})]


class Flows(Memory):
    """The flows of the node's switch: they stay when an agent goes."""

    async def run(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError


class World:
    """A node, its agent and a store."""

    def __init__(self, store: Store, random: Random) -> None:
        self.store = store
        self.random = random
        self.machine = Machine()
        self.database = Database(SCHEMA, Random(random.random()))
        self.server = Server([self.database])
        self.reachable = {REMOTE: self.server}
        self.pipes: list[Pipe] = []
        self.daemons = Daemons(self.machine, self.server, self.database, random)
        self.flows = Flows()
        self.programs = FakePrograms(self.machine)
        self.ovn_remote = "tcp:192.0.2.1:6642"
        self.grants: dict[str, Any] = dict(GRANTS)
        """What the node's operator grants; a test may take it back before the agent starts again."""
        self.cluster: ClusterDrivers | None = None
        self.agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None
        self.database.transact([{"op": "insert", "table": "Open_vSwitch", "row": {}}])

    def start(self, group: asyncio.TaskGroup) -> Agent:
        """Start the agent."""
        settings = AgentSettings(
            node="n1", ovs=REMOTE, underlay_ip="172.31.0.1", prepare=True, ovn_remote=self.ovn_remote,
            datapath="netdev", allowed_programs=FakePrograms.ALLOWED, **self.grants,
        )  # fmt: skip
        # Random(…) below: one for each life, as a process has.
        switch = Vswitch(
            [REMOTE], owner="netloom", random=Random(self.random.random()), dial=dial(self.reachable, self.pipes)
        )
        links = FakeLinks(self.machine, self.random)
        self.relays = FakeRelays(self.machine)
        self.agent = Agent(
            settings,
            self.store,
            random=Random(self.random.random()),
            clock=lambda: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=sim.current().time()),
            switch=switch,
            links=cast("Links", links),
            relays=self.relays,
            flows=self.flows,
            programs=self.programs,
            cluster=self.cluster,
        )
        self._task = group.create_task(self.agent.run())
        return self.agent

    async def kill(self) -> None:
        """End the agent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def cut(self) -> None:
        """Break the connections to the switch's database."""
        for pipe in self.pipes:
            pipe.cut()
        self.pipes.clear()

    def crash_switch(self) -> None:
        """End vswitchd: its devices go with it; it is started again at once."""
        self.daemons.crash()
        self.flows.restart()

    async def attach(
        self,
        name: str,
        number: int,
        port: Mapping[str, str],
        *,
        network: str = "blue",
        node: str = "n1",
        spec: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        owners: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> None:
        """Make an attachment and give it an address, as IPAM does; `spec` is of its spec, `more` of its status."""
        spec = {"node": node, "network": network, "port": port, "defaultRoute": True, **(spec or {})}
        metadata: dict[str, Any] = {"labels": dict(labels)} if labels else {}
        metadata |= {"ownerReferences": list(owners)} if owners else {}
        await self.store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, spec, **metadata))
        while True:
            made = (await self.store.get(NETWORK_ATTACHMENT, "ns1", name)).document()
            made["status"] = {
                **made.get("status", {}),
                "ips": [f"10.0.0.{number}/24"],
                "locks": [{"ip": f"10.0.0.{number}", "uid": f"lock-{number}"}],
                "mac": f"02:00:00:00:00:{number:02x}",
                "vni": 10,
                "conditions": [{"type": "Addressed", "status": "True", "observedGeneration": 1}],
                **more,
            }
            try:
                await self.store.update(NETWORK_ATTACHMENT, made, subresource="status")
                return
            except Conflict:
                continue

    async def attachments(self) -> dict[str, dict[str, Any]]:
        page = await self.store.list(NETWORK_ATTACHMENT)
        return {one.name: one.document() for one in page.items}

    def interfaces(self) -> dict[str, dict[str, Any]]:
        """Return the switch's interfaces, but for the bridge's own."""
        found = {row["name"]: {**row, "external_ids": dict(row["external_ids"][1])} for row in self.select("Interface")}
        return {name: row for name, row in found.items() if name != "nl-vtep" and not _is_bridge(name)}

    def select(self, table: str, *where: Any) -> list[dict[str, Any]]:
        """Return rows of the switch's database."""
        answer = self.database.transact([{"op": "select", "table": table, "where": list(where)}])
        rows: list[dict[str, Any]] = cast("Any", answer).results[0]["rows"]
        return rows

    def add_port(self, bridge: str, name: str, **columns: Any) -> None:
        """Do what `ovs-vsctl add-port` does; `columns` are of the interface."""
        ports = ["ports", "insert", ["set", [["named-uuid", "p"]]]]
        self.database.transact(
            [
                {"op": "insert", "table": "Interface", "row": {"name": name, **columns}, "uuid-name": "i"},
                {"op": "insert", "table": "Port", "row": {"name": name, "interfaces": ["named-uuid", "i"]},
                 "uuid-name": "p"},
                {"op": "mutate", "table": "Bridge", "where": [["name", "==", bridge]], "mutations": [ports]},
            ]
        )  # fmt: skip

    def remove_port(self, name: str) -> None:
        """Do what `ovs-vsctl del-port` does."""
        for row in self.select("Port", ["name", "==", name]):
            gone = ["ports", "delete", ["set", [row["_uuid"]]]]
            self.database.transact([{"op": "mutate", "table": "Bridge", "where": [], "mutations": [gone]}])
