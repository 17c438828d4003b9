"""`netloom trace FROM TO`: how a packet goes, hop by hop, and who stops it.

OVN is asked by `ovn-trace`, the sender's own switch by `ofproto/trace`; both work out what would happen, and send
nothing. Where VXLAN carries a Network, `trace_vxlan.py` does the same with the flows of the nodes. The first packet of
a connection is traced: what is let pass has its answers let pass too. Exit status 0: it arrives; 1: it does not.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click
import msgspec
from msgspec import Struct

from netloom.cli.options import Session
from netloom.cli.shell_completion import names as completed
from netloom.cli.tables import align, clean, safe
from netloom.cli.terminal import paint
from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import NO_SOUTHBOUND, Access, Switch, accessing, following, no_switch
from netloom.diagnose.node.inspection import NodeLook, on_node
from netloom.diagnose.trace import vxlan as trace_vxlan
from netloom.diagnose.trace.output import GATEWAY, Flow, Hop, Origin, Way, deciding, on_switch, parse, way
from netloom.diagnose.trace.packet import Packet, Place, packet, place
from netloom.drivers.northbound import driver as northbound
from netloom.drivers.northbound.observed import KEY, OF, OWNER
from netloom.drivers.vswitch.control import control_socket
from netloom.errors import Invalid, NetloomError, Unreachable
from netloom.model.cluster import Node
from netloom.model.networks import Router
from netloom.plan.problem import Unit

SECONDS = 30.0
LOOKS = 12
"""How often connection tracking may be asked: each time it says that the connection is new."""


class Result(Struct, frozen=True, kw_only=True):
    """What came of it."""

    packet: Packet
    hops: tuple[Hop, ...]
    delivered: bool
    verdict: str
    unseen: tuple[str, ...] = ()


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in completed(ctx, "networkattachments") if name.startswith(incomplete)]


@click.command()
@click.argument("start", metavar="FROM", shell_complete=_complete)
@click.argument("end", metavar="TO", shell_complete=_complete)
@click.option("--tcp", type=click.IntRange(1, 65535), metavar="PORT", help="A TCP packet to this port.")
@click.option("--udp", type=click.IntRange(1, 65535), metavar="PORT", help="A UDP packet to this port.")
@click.option("--icmp", is_flag=True, help="A ping; so unless something else is said.")
@click.option("-6", "--ipv6", "v6", is_flag=True, help="IPv6, where both ends have both.")
@click.option("--raw", is_flag=True, help="Print what ovn-trace and ofproto/trace say, as they say it.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it.")
@accessing
def trace(
    session: Session,
    access: Access,
    start: str,
    end: str,
    tcp: int | None,
    udp: int | None,
    icmp: bool,
    v6: bool,
    raw: bool,
    output: str,
) -> int:
    """Show how a packet goes from one attachment or address to another, and who stops it.

    FROM and TO are names of attachments, as alice or other/alice, or addresses.
    """
    if sum((tcp is not None, udp is not None, icmp)) > 1:
        raise click.UsageError("One packet has one protocol: say --tcp PORT, --udp PORT or --icmp.")
    if not access.ovn.sb and not access.switches:
        raise Unreachable(f"not to be traced without the {NO_SOUTHBOUND}")
    protocol = "tcp" if tcp else "udp" if udp else "icmp"
    tracer = _Tracer(session, access)
    one, other = tracer.place(start), tracer.place(end)
    if trace_vxlan.is_carried(one, tracer.resources):
        result = tracer.carried(one, other, protocol=protocol, number=tcp or udp or 0, v6=v6)
        raw = False
    elif not access.ovn.sb:
        raise Unreachable(f"not to be traced without the {NO_SOUTHBOUND}")
    else:
        sent = tracer.packet(one, other, protocol=protocol, number=tcp or udp or 0, v6=v6)
        text, switched = tracer.ask(one, sent)
        if raw:
            click.echo(safe("\n\n".join(filter(None, (text, switched)))))
        result = tracer.told(one, other, sent, text, switched)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(result), indent=4, ensure_ascii=False))
    elif not raw:
        click.echo("\n".join(_lines(one, other, result)))
    return 0 if result.delivered else 1


class _Tracer:
    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access
        self.resources = everything.load(session.client)
        self._wanted = everything.planned(self.resources).wanted
        self._unseen: list[str] = []
        self._devices: dict[int, str] = {}

    def place(self, text: str) -> Place:
        return place(text, self._session.namespace, self.resources)

    def packet(self, start: Place, end: Place, *, protocol: str, number: int, v6: bool) -> Packet:
        return packet(start, end, self.resources, self._wanted, protocol=protocol, number=number, v6=v6)

    def carried(self, start: Place, end: Place, *, protocol: str, number: int, v6: bool) -> Result:
        """Return what becomes of a packet in a Network that VXLAN carries."""
        end = trace_vxlan.target(start, end, self.resources)
        sent = trace_vxlan.packet(start, end, protocol=protocol, number=number, v6=v6)
        hops, delivered, verdict = trace_vxlan.traced(
            partial(trace_vxlan.on_switch, self._access), start, sent, self.resources
        )
        return Result(packet=sent, hops=tuple(hops), delivered=delivered, verdict=verdict)

    def ask(self, start: Place, sent: Packet) -> tuple[str, str]:
        """Return what ovn-trace, and the switch of the sender's node, say."""
        flags = ["--no-leader-only", *["--ct=new"] * LOOKS]
        text = _run(self._access.command("ovn-trace", *flags, sent.datapath, sent.microflow), self._unseen)
        if start.attachment is None:
            return text, ""
        node = start.attachment.spec.node
        for switch in self._access.switches:
            if switch.node not in ("", node):
                continue
            try:
                device, self._devices = on_node(switch, self._access.owner, _ports(start))
                return text, self._switched(switch, device, sent) if device else ""
            except NetloomError as error:
                self._unseen.append(f"switch of node {node}: {error.message}")
                return text, ""
        self._unseen.append(no_switch(node))
        return text, ""

    def _switched(self, switch: Switch, device: str, sent: Packet) -> str:
        socket = control_socket(switch.folder)
        asked = ["ofproto/trace", "br-int", sent.openflow(device), *["--ct-next", "trk,new"] * LOOKS]
        return _run(["ovs-appctl", "-t", str(socket), *asked], self._unseen)

    def told(self, start: Place, end: Place, sent: Packet, text: str, switched: str) -> Result:
        """Return what the originals mean."""
        flows = list(parse(text))
        found = way(flows, self._origins(flows), self._name)
        hops = [self._with_gateway(hop) for hop in found.hops]
        if switched:
            nodes = {node.spec.underlay_ip: node.metadata.name for node in everything.of_type(self.resources, Node)}
            assert start.attachment is not None
            hops.append(Hop(f"node {start.attachment.spec.node}", on_switch(switched, self._devices, nodes)))
        delivered, verdict = self._verdict(end, found)
        return Result(packet=sent, hops=tuple(hops), delivered=delivered, verdict=verdict, unseen=tuple(self._unseen))

    def _with_gateway(self, hop: Hop) -> Hop:
        """Say which node is the gateway node."""
        routers = {
            f"router {self._name(everything.key(one))}": one for one in everything.of_type(self.resources, Router)
        }
        router = routers.get(hop.place)
        if router is None or hop.what != GATEWAY:
            return hop
        return Hop(hop.place, f"{GATEWAY} {router.status.gateway_node or '(which is none now)'}")

    def _verdict(self, end: Place, found: Way) -> tuple[bool, str]:
        if found.stopped:
            return False, found.stopped
        if found.answered:
            return True, f"delivered to {found.answered}, which answers"
        ports = [port for port, _ in found.outputs]
        if end.port and end.port in ports:
            return True, f"delivered to {self._name(end.port)}"
        outside = [port for port, kind in found.outputs if kind == "localnet"]
        if end.port and end.ip == "":
            where = f"at {', '.join(map(self._name, ports))}" if ports else "nowhere"
            return False, f"not delivered to {self._name(end.port)}: it comes out {where}"
        if outside and not [port for port in ports if port not in outside]:
            return True, f"delivered to {self._name(outside[0])}"
        if ports:
            return True, f"delivered to {', '.join(dict.fromkeys(map(self._name, ports)))}"
        return False, "dropped: it comes out nowhere"

    def _name(self, name: str) -> str:
        """Return what people call a port, a switch or a router."""
        short = name.removeprefix("cr-").removeprefix(f"{self._session.namespace}/")
        base, colon, rest = short.partition(":")
        if not colon:
            return short
        if rest == "localnet":
            return f"the physical network of {base}"
        return f"router {base}" if rest.endswith(":plug") else f"network {rest}"

    def _origins(self, flows: list[Flow]) -> Mapping[str, Origin]:
        """Return what the flows that decide came of, as far as the databases can be asked."""
        uuids = deciding(flows)
        if not uuids or not self._access.ovn.nb:
            self._unseen += ["northbound database: whose rules decide is not known without it"] * bool(uuids)
            return {}
        try:
            return asyncio.run(_origins(self._access, uuids))
        except NetloomError as error:
            self._unseen.append(f"northbound or southbound database: {error.message}")
            return {}


async def _origins(access: Access, uuids: set[str]) -> dict[str, Origin]:
    """Follow flows to the northbound rows they came of: a flow carries the beginning of the row's uuid."""
    north = access.north()
    async with (
        following(access.south({"Logical_Flow": ("external_ids",)})) as south,
        following(north.client) as client,
    ):
        flows: list[tuple[str, Any]] = list(south.cache.rows("Logical_Flow").items())
        hints: dict[str, list[str]] = {}
        for uuid, row in flows:
            if uuid[:8] in uuids and (hint := row.external_ids.get("stage-hint")):
                hints.setdefault(hint, []).append(uuid[:8])  # A row may decide in several steps.
        found: dict[str, Origin] = {}
        for table in northbound.TABLES:
            for uuid, row in client.cache.rows(table).items():
                ids = getattr(row, "external_ids", {})
                if uuid[:8] in hints and ids.get(OWNER) == access.owner:
                    kind, _, rest = ids.get(OF, "").partition("/")
                    namespace, _, name = rest.rpartition("/")
                    origin = Origin(Unit(kind, namespace, name), table, ids.get(KEY, ""))
                    found |= dict.fromkeys(hints[uuid[:8]], origin)
        return found


def _ports(start: Place) -> Callable[[NodeLook], Any]:
    """Return what finds the sender's device, and all devices of its bridge by their numbers."""

    async def work(look: NodeLook) -> tuple[str, dict[int, str]]:
        assert start.attachment is not None
        metadata, parent = start.attachment.metadata, start.attachment.spec.port.parent
        mine = look.switch.interfaces((metadata.namespace, parent or metadata.name))
        return (mine[0].name if mine else ""), look.numbers()

    return work


def _run(argv: list[str], remarks: list[str]) -> str:
    """Run a program to its end and return what it printed; what makes that doubtful is a remark."""
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise Unreachable(f"{argv[0]} is not installed here: it comes with OVN") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{argv[0]} does not come to an end") from None
    if ended.returncode:
        raise Invalid(f"{argv[0]} failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
    if "parsing actions failed" in ended.stderr or "parsing expression failed" in ended.stderr:
        remarks.append(f"all flows: this {argv[0]} is of another version than OVN, and does not understand some")
    return ended.stdout


def _lines(start: Place, end: Place, result: Result) -> list[str]:
    sent = result.packet
    what = f"{sent.protocol} {sent.number}" if sent.number else "ping"
    ends = [one.text if one.text == ip else f"{one.text} ({ip})" for one, ip in ((start, sent.src), (end, sent.dst))]
    found = [clean(f"{ends[0]} to {ends[1]}, {what}")]
    found += [clean(f"  note: {sent.remark}")] if sent.remark else []
    found += align([(hop.place, hop.what) for hop in result.hops], indent="  ").splitlines()
    found += [clean(f"  not looked at: {unseen}") for unseen in result.unseen]
    found.append(paint(clean(result.verdict), "green" if result.delivered else "red", bold=True))
    return found
