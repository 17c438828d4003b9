"""Traces a packet through OVN and the nodes, without sending it.

`ovn-trace` computes the path in the logical network, `ofproto/trace` that in the switch of the sender's node. For the
vxlan fabric, `trace/vxlan.py` runs the packet through the flows of the nodes. It is the first packet of a connection:
if it passes, the replies pass too.
"""

import asyncio
import subprocess
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.access import NO_SOUTHBOUND, Access, following, no_switch
from netloom.diagnose.node.inspection import NodeInspection, on_node, unit_of
from netloom.diagnose.trace import vxlan
from netloom.diagnose.trace.output import GATEWAY, Flow, Hop, Origin, Path, deciding, on_switch, parse, path
from netloom.diagnose.trace.packet import Endpoint, Packet, endpoint, packet
from netloom.drivers.northbound import driver as northbound
from netloom.drivers.northbound.observed import KEY, OF, OWNER
from netloom.drivers.vswitch.control import control_socket
from netloom.errors import Invalid, NetloomError, Unreachable
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Router

SECONDS = 30.0
LOOKUPS = 12
"""How many lookups in connection tracking a trace may have: each finds a new connection."""


class Result(Struct, frozen=True, kw_only=True):
    """The path of a packet."""

    start: str
    end: str
    packet: Packet
    hops: tuple[Hop, ...]
    delivered: bool
    verdict: str
    unseen: tuple[str, ...] = ()
    """What could not be checked, and why."""
    raw: tuple[str, ...] = ()
    """The output of ovn-trace and ofproto/trace."""


class Tracer:
    """Traces packets between the resources of one moment."""

    def __init__(self, session: Session, access: Access) -> None:
        """Read all resources; raise `Unreachable` if neither the southbound nor a switch is configured."""
        if not access.sb and not access.switches:
            raise Unreachable(NO_SOUTHBOUND)
        self._session = session
        self._access = access
        self._resources = snapshot.load(session.client)
        self._wanted = snapshot.planned(self._resources).desired
        self._unseen: list[str] = []
        self._devices: dict[int, str] = {}

    def trace(self, start: str, end: str, *, protocol: str, number: int = 0, v6: bool = False) -> Result:
        """Return the path of a packet of `protocol` to the port `number`, from one attachment or address to another."""
        namespace = self._session.namespace
        one, other = (endpoint(text, namespace, self._resources) for text in (start, end))
        fabric = snapshot.fabric_of(one.attachment, self._resources)
        if fabric is Fabric.VXLAN:
            return self._through_vxlan(one, other, protocol=protocol, number=number, v6=v6)
        if fabric is Fabric.LINUX:
            raise Invalid(f"{one.text} is in a Network of fabric linux: its bridges learn, and have no flows to trace")
        if not self._access.sb:
            raise Unreachable(NO_SOUTHBOUND)
        sent = packet(one, other, self._resources, self._wanted, protocol=protocol, number=number, v6=v6)
        text, switched = self._outputs(one, sent)
        return self._result(one, other, sent, text, switched)

    def _through_vxlan(self, start: Endpoint, end: Endpoint, *, protocol: str, number: int, v6: bool) -> Result:
        """Return the path of a packet in a Network of the vxlan fabric."""
        end = vxlan.target(start, end, self._resources)
        sent = vxlan.packet(start, end, protocol=protocol, number=number, v6=v6)
        hops, delivered, verdict = vxlan.trace(partial(vxlan.read_switch, self._access), start, sent, self._resources)
        return Result(
            start=start.text, end=end.text, packet=sent, hops=tuple(hops), delivered=delivered, verdict=verdict
        )

    def _outputs(self, start: Endpoint, sent: Packet) -> tuple[str, str]:
        """Return the output of ovn-trace, and of ofproto/trace on the sender's node."""
        flags = ["--no-leader-only", *["--ct=new"] * LOOKUPS]
        command = self._access.ovn_command(["ovn-trace", *flags, sent.datapath, sent.microflow])
        text = _run(command, self._unseen)
        if start.attachment is None:
            return text, ""
        metadata, spec = start.attachment.metadata, start.attachment.spec
        node = spec.node

        async def devices(there: NodeInspection) -> tuple[str, dict[int, str]]:
            mine = there.switch.interfaces((metadata.namespace, spec.port.parent or metadata.name))
            return (mine[0].name if mine else ""), there.devices_by_ofport()

        for switch in self._access.switches:
            if switch.node not in ("", node):
                continue
            try:
                device, self._devices = on_node(switch, self._access.owner, devices)
                asked = ["ofproto/trace", "br-int", sent.openflow(device), *["--ct-next", "trk,new"] * LOOKUPS]
                argv = ["ovs-appctl", "-t", str(control_socket(switch.folder)), *asked]
                return text, _run(argv, self._unseen) if device else ""
            except NetloomError as error:
                self._unseen.append(f"switch of node {node}: {error.message}")
                return text, ""
        self._unseen.append(no_switch(node))
        return text, ""

    def _result(self, start: Endpoint, end: Endpoint, sent: Packet, text: str, switched: str) -> Result:
        """Return the path that both outputs describe."""
        flows = list(parse(text))
        found = path(flows, self._origins(flows), self._name)
        hops = [self._with_gateway(hop) for hop in found.hops]
        if switched:
            nodes = {node.spec.underlay_ip: node.metadata.name for node in snapshot.of_type(self._resources, Node)}
            assert start.attachment is not None
            hops.append(Hop(f"node {start.attachment.spec.node}", on_switch(switched, self._devices, nodes)))
        delivered, verdict = self._verdict(end, found)
        return Result(
            start=start.text,
            end=end.text,
            packet=sent,
            hops=tuple(hops),
            delivered=delivered,
            verdict=verdict,
            unseen=tuple(self._unseen),
            raw=tuple(filter(None, (text, switched))),
        )

    def _with_gateway(self, hop: Hop) -> Hop:
        """Return a hop, with the name of the gateway node if it is about that."""
        routers = {f"router {self._name(snapshot.key(one))}": one for one in snapshot.of_type(self._resources, Router)}
        router = routers.get(hop.place)
        if router is None or hop.what != GATEWAY:
            return hop
        return Hop(hop.place, f"{GATEWAY} {router.status.gateway_node or '(no node at present)'}")

    def _verdict(self, end: Endpoint, found: Path) -> tuple[bool, str]:
        """Return whether the packet is delivered, and the outcome in words."""
        if found.stopped:
            return False, found.stopped
        if found.answered:
            return True, f"delivered to {found.answered}, which replies"
        ports = [port for port, _ in found.outputs]
        if end.port and end.port in ports:
            return True, f"delivered to {self._name(end.port)}"
        outside = [port for port, kind in found.outputs if kind == "localnet"]
        if end.port and end.ip == "":
            where = f"is output to {', '.join(map(self._name, ports))}" if ports else "is not output"
            return False, f"not delivered to {self._name(end.port)}: it {where}"
        if outside and not [port for port in ports if port not in outside]:
            return True, f"delivered to {self._name(outside[0])}"
        if ports:
            return True, f"delivered to {', '.join(dict.fromkeys(map(self._name, ports)))}"
        return False, "dropped: it is not output to any port"

    def _name(self, name: str) -> str:
        """Return the name of the resource of a logical port, switch or router."""
        short = name.removeprefix("cr-").removeprefix(f"{self._session.namespace}/")
        base, colon, rest = short.partition(":")
        if not colon:
            return short
        if rest == "localnet":
            return f"the physical network of {base}"
        return f"router {base}" if rest.endswith(":plug") else f"network {rest}"

    def _origins(self, flows: list[Flow]) -> Mapping[str, Origin]:
        """Return the origins of the flows that decide on the packet, as far as the databases can be read."""
        uuids = deciding(flows)
        if not uuids or not self._access.nb:
            self._unseen += ["northbound database: without it, the rules behind the flows are not known"] * bool(uuids)
            return {}
        try:
            return asyncio.run(_origins(self._access, uuids))
        except NetloomError as error:
            self._unseen.append(f"northbound or southbound database: {error.message}")
            return {}


async def _origins(access: Access, uuids: set[str]) -> dict[str, Origin]:
    """Return the northbound rows of flows: a flow carries the first digits of its row's uuid."""
    north = access.north()
    async with (
        following(access.south({"Logical_Flow": ("external_ids",)})) as south,
        following(north.client) as client,
    ):
        flows: list[tuple[str, Any]] = list(south.cache.rows("Logical_Flow").items())
        hints: dict[str, list[str]] = {}
        for uuid, row in flows:
            if uuid[:8] in uuids and (hint := row.external_ids.get("stage-hint")):
                hints.setdefault(hint, []).append(uuid[:8])  # A row may lead to flows in several stages.
        found: dict[str, Origin] = {}
        for table in northbound.TABLES:
            for uuid, row in client.cache.rows(table).items():
                ids = getattr(row, "external_ids", {})
                unit = unit_of(ids.get(OF, ""))
                if uuid[:8] in hints and ids.get(OWNER) == access.owner and unit is not None:
                    found |= dict.fromkeys(hints[uuid[:8]], Origin(unit, table, ids.get(KEY, "")))
        return found


def _run(argv: list[str], remarks: list[str]) -> str:
    """Return what a program printed; add a remark if that is not reliable."""
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise Unreachable(f"{argv[0]} is not installed on this machine: it is a part of OVN") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{argv[0]} did not exit within {SECONDS:.0f} seconds") from None
    if ended.returncode:
        raise Invalid(f"{argv[0]} failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
    if "parsing actions failed" in ended.stderr or "parsing expression failed" in ended.stderr:
        remarks.append(f"some flows: this {argv[0]} is of another version than OVN and cannot parse them")
    return ended.stdout
