"""`netloom evpn`: what the BGP speakers of a node know now, from their control socket.

It needs no API server. The socket is beside that of the node's Open vSwitch; `--socket` names another one, and
`--lab DIR` stands for the sockets of all nodes of a lab.
"""

import functools
import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, BinaryIO, TypeVar

import click

from netloom.cli import options
from netloom.cli.diagnosis.options import OVS, given_switches, lab_switches
from netloom.cli.shell_completion import ANSWER_SECONDS as COMPLETION_SECONDS
from netloom.cli.tables import Aligner, align, clean
from netloom.cli.terminal import counted, paint, print_json
from netloom.control.evpn.answers import Request, parse_mac
from netloom.diagnose import evpn as live
from netloom.diagnose.evpn import Answer, Item
from netloom.errors import BadRequest, NetloomError, Unreachable
from netloom.model import codec
from netloom.model.values.ages import age

F = TypeVar("F", bound=Callable[..., Any])
ROWS = 1000
"""How many rows of a table are aligned at once."""
TYPES = {1: "ead", 2: "macip", 3: "multicast", 4: "es", 5: "prefix"}
"""The types of routes, as FRR names them."""
COLOURS = {"duplicate": "red", "contested": "yellow", "stale": "yellow"}
Columns = dict[str, Callable[[Item], object]]
Ask = Callable[..., Answer]


def _complete_peers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _completed(ctx, "summary", lambda item: item["address"] if item["kind"] == "peer" else "", incomplete)


def _complete_networks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _completed(
        ctx,
        "summary",
        lambda item: item["evpnNetwork"].partition("/")[2] if item["kind"] == "network" else "",
        incomplete,
    )


def _complete_macs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _completed(ctx, "macs", lambda item: item["mac"], incomplete)


def _completed(ctx: click.Context, command: str, word: Callable[[Item], str], incomplete: str) -> list[str]:
    """Return the words that a speaker knows and that begin with `incomplete`; none if no speaker answers."""
    try:
        with ctx.scope(cleanup=False):
            switches, sockets = ctx.params.get("switches") or (), ctx.params.get("sockets") or ()
            found = _ask(Request(command), switches, sockets, seconds=COMPLETION_SECONDS)
        words = (word(item) for item in found)
        return sorted({one for one in words if one and one.startswith(incomplete.lower())})
    except (NetloomError, click.ClickException, OSError, KeyError, ValueError):
        return []


class MacType(click.ParamType[str]):
    """A MAC address."""

    name = "mac"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the address in lower case, with colons."""
        try:
            return parse_mac(str(value)).hex(":")
        except BadRequest as error:
            self.fail(f"{error.message}.", param, ctx)


def asking(command: F) -> F:
    """Add the options that select what to show, and pass `ask`, which queries the speakers."""

    @click.option(
        "--peer",
        default="",
        metavar="ADDRESS",
        shell_complete=_complete_peers,
        help="Show only what this peer has sent: its address, or the name of its BGPPeer.",
    )
    @click.option(
        "--network",
        default="",
        metavar="NAME",
        shell_complete=_complete_networks,
        help="Show only this EVPNNetwork or Network: NAME or NAMESPACE/NAME.",
    )
    @click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help="Output format.",
    )
    @reaching
    @functools.wraps(command)
    def wrapped(ask: Ask, peer: str, network: str, **rest: object) -> object:
        return command(ask=functools.partial(ask, peer=peer, network=network), **rest)

    return wrapped  # type: ignore[return-value]  # click takes it as the callable it is


def reaching(command: F) -> F:
    """Add the options that select the speakers, and pass `ask`, which queries them."""

    @click.option(
        "--socket", "sockets", multiple=True, metavar="PATH", help="Control socket of the speakers of a node."
    )
    @OVS
    @options.lab_option("Ask the speakers of all nodes of the lab in DIR.")
    @functools.wraps(command)
    def wrapped(lab: object, switches: tuple[str, ...], sockets: tuple[str, ...], **rest: object) -> object:
        def ask(name: str, mac: str = "", *, peer: str = "", network: str = "") -> Answer:
            found = _ask(Request(name, peer=peer, network=network, mac=mac), switches, sockets)
            for text in found.silent:
                click.echo(f"Warning: {text}", err=True)
            return found

        try:
            return command(ask=ask, **rest)
        except KeyError as missing:
            raise Unreachable(
                f"the answer of the speaker has no {missing}: update netloom here or on that node"
            ) from None

    return wrapped  # type: ignore[return-value]  # as above


def _ask(
    request: Request, switches: Sequence[str], sockets: Sequence[str], *, seconds: float = live.ANSWER_SECONDS
) -> Answer:
    found = given_switches(switches)
    lab = options.given("lab")
    if lab is not None:
        found += lab_switches(options.layout(lab))
    return live.ask(live.places(found, sockets), request, seconds=seconds)


@click.group()
def evpn() -> None:
    """Show what the BGP speakers know now: peers, routes, MAC addresses, VTEPs.

    Run it on the node of a BGPSpeaker, or with --lab. `netloom get bgppeers,evpnnetworks,remotevteps` shows what the
    speakers have written into objects.
    """


@evpn.command()
@asking
def summary(ask: Ask, output: str) -> None:
    """Show the speakers, their peers and their networks."""
    found = live.summary(ask("summary"))
    if output == "json":
        print_json(found)
    elif output == "yaml":
        click.echo(codec.encode_yaml(found), nl=False)
    else:
        click.echo("\n".join(_summary(found, datetime.now(UTC), wide=output == "wide")))


@evpn.command()
@asking
def routes(ask: Ask, output: str) -> None:
    """Show all EVPN routes; `>` marks the best path of each."""
    _print(ask("routes"), output, ROUTES, WIDE_ROUTES, "No routes found.")


@evpn.command()
@asking
def macs(ask: Ask, output: str) -> None:
    """Show all MAC addresses, and where they are."""
    _print(ask("macs"), output, MACS, WIDE_MACS, "No MAC addresses found.")


@evpn.command()
@asking
def vteps(ask: Ask, output: str) -> None:
    """Show the VTEPs of other sites."""
    _print(ask("vteps"), output, VTEPS, WIDE_VTEPS, "No VTEPs found.")


@evpn.command()
@click.argument("mac", type=MacType(), shell_complete=_complete_macs)
@asking
def explain(ask: Ask, mac: str, output: str) -> None:
    """Explain where a MAC address is.

    Show its routes, which of them is the best and why, and the objects, ports and flows that follow from it.
    """
    found = [{**item, "next": live.next_steps(item)} for item in ask("explain", mac)]
    if output == "json":
        print_json(found)
    elif output == "yaml":
        click.echo(codec.encode_yaml(found), nl=False)
    else:
        click.echo("\n\n".join("\n".join(_explanation(item)) for item in found))


@evpn.command()
@click.option(
    "--mrt",
    "file",
    required=True,
    type=click.File("wb", lazy=True),
    metavar="FILE",
    help="Write the dump to FILE, or to stdout if FILE is `-`.",
)
@reaching
def dump(ask: Ask, file: BinaryIO) -> None:
    """Write the routes of all peers as an MRT dump (RFC 6396)."""
    file.writelines(b64decode(item["mrt"]) for item in ask("mrt"))


# Tables.


def _state(item: Item) -> str:
    for word in ("duplicate", "contested", "stale", "local"):
        if item[word]:
            return word
    return "remote"


def _first(words: Sequence[str]) -> str:
    return words[0] + (f" (+{len(words) - 1})" if len(words) > 1 else "") if words else ""


def _route(item: Item) -> str:
    for name in ("prefix", "originator", "esi"):
        if name in item:
            return str(item[name])
    return f"{item.get('mac', '')} {item.get('ip', '')}".strip()


def _vni(item: Item) -> object:
    return item["pmsi"]["label"] if "pmsi" in item else item.get("vni", "")


ROUTES: Columns = {
    "": lambda item: ">" if item["best"] else "",
    "TYPE": lambda item: TYPES.get(item["type"], item["type"]),
    "RD": lambda item: item["rd"],
    "ROUTE": _route,
    "VNI": _vni,
    "NEXT HOP": lambda item: item["nextHop"],
    "PEER": lambda item: item["peer"] or "local",
}
WIDE_ROUTES: Columns = {
    "AS PATH": lambda item: " ".join(map(str, item["asPath"])),
    "IMPORTED BY": lambda item: ",".join(item["evpnNetworks"]),
    "SPEAKER": lambda item: item["speaker"],
    "COMMUNITIES": lambda item: " ".join(item["communities"]),
}
MACS: Columns = {
    "MAC": lambda item: item["mac"],
    "IPS": lambda item: _first(item["ips"]),
    "STATE": _state,
    "VTEP": lambda item: item["vtep"],
    "VNI": lambda item: item["vni"],
    "SEQ": lambda item: f"{item['sequence']}{'s' if item['sticky'] else ''}",
    "NETWORK": lambda item: item["evpnNetwork"],
}
WIDE_MACS: Columns = {
    "PEER": lambda item: item["peer"],
    "SPEAKER": lambda item: item["speaker"],
    "OBJECT": lambda item: item["object"],
}
VTEPS: Columns = {
    "ADDRESS": lambda item: item["address"],
    "VNI": lambda item: item["vni"],
    "MACS": lambda item: item["macs"],
    "FLOOD": lambda item: item["flood"],
    "PEERS": lambda item: _first(item["peers"]),
    "PORT": lambda item: item["port"],
    "NETWORK": lambda item: item["evpnNetwork"],
}
WIDE_VTEPS: Columns = {
    "SPEAKER": lambda item: item["speaker"],
    "OBJECTS": lambda item: _first(item["objects"]),
}
PEERS: Columns = {
    "PEER": lambda item: item["name"],
    "ADDRESS": lambda item: item["address"],
    "ASN": lambda item: item["remoteASN"],
    "STATE": lambda item: item["state"],
    "SINCE": lambda item: item["age"],
    "RECEIVED": lambda item: item["received"],
    "SENT": lambda item: item["sent"],
    "FLAPS": lambda item: item["flaps"],
    "ERROR": lambda item: item["lastError"],
}
WIDE_PEERS: Columns = {"UPDATES": lambda item: item["updates"], "MALFORMED": lambda item: item["malformed"]}
NETWORKS: Columns = {
    "EVPNNETWORK": lambda item: item["evpnNetwork"],
    "NETWORK": lambda item: item["network"],
    "VNI": lambda item: item["vni"],
    "FORWARDING": lambda item: item["forwarding"],
    "LOCAL": lambda item: item["local"],
    "REMOTE": lambda item: item["remote"],
    "VTEPS": lambda item: item["vteps"],
    "DUPLICATES": lambda item: item["duplicates"],
    "ERROR": lambda item: item["error"],
}


def _print(found: Answer, output: str, columns: Columns, more: Columns, nothing: str) -> None:
    """Print items, some at a time."""
    if output == "json":
        _echo(_json(found))
    elif output == "yaml":
        _echo(codec.encode_yaml([item]).removesuffix("\n") for item in found) if len(found) else click.echo("[]")
    elif not len(found):
        click.echo(nothing, err=True)
    else:
        node: Columns = {"NODE": lambda item: item["node"]} if len(found.nodes) > 1 else {}
        _echo(_table(found, columns | node | (more if output == "wide" else {})))


def _json(found: Answer) -> Iterator[str]:
    """Yield a JSON list with an item on each line."""
    yield "["
    for number, item in enumerate(found, 1):
        yield json.dumps(item, ensure_ascii=False) + ("," if number < len(found) else "")
    yield "]"


def _echo(lines: Iterable[str]) -> None:
    every = iter(lines)
    while some := list(islice(every, ROWS)):
        click.echo("\n".join(some))


def _table(items: Iterable[Item], columns: Columns) -> Iterator[str]:
    """Yield a table, aligned some rows at a time."""
    aligner, header, every = Aligner(), [list(columns)], iter(items)
    while some := list(islice(every, ROWS)):
        yield from aligner.lines([*header, *([cell(item) for cell in columns.values()] for item in some)])
        header = []


def _summary(found: dict[str, list[Item]], now: datetime, *, wide: bool) -> Iterator[str]:
    if not found["speakers"]:
        yield "No BGPSpeaker runs on this node: create one with spec.node, in a namespace of its speakerNamespaces."
        return
    for number, speaker in enumerate(found["speakers"]):
        mine = (speaker.get("node"), speaker["speaker"])
        peers = [one for one in found["peers"] if (one.get("node"), one["speaker"]) == mine]
        networks = [one for one in found["networks"] if (one.get("node"), one["speaker"]) == mine]
        yield from ("",) if number else ()
        on = f" on {mine[0]}" if mine[0] else ""
        listening = f"listening on port {speaker['listening']}" if speaker["listening"] else "not listening"
        about = (
            f"AS {speaker['asn']}, router ID {speaker['routerID']}, {listening}, {counted(speaker['routes'], 'route')}"
        )
        yield paint(clean(f"BGPSpeaker {mine[1]}{on}"), "cyan", bold=True) + clean(f": {about}")
        if speaker["error"]:
            yield paint(clean(f"  {speaker['error']}"), "red")
        for one in peers:
            one["age"] = _age(one["since"], now)
        # The text of an error is as long as it likes: it is the last column.
        columns = PEERS | (WIDE_PEERS if wide else {})
        columns["ERROR"] = columns.pop("ERROR")
        yield from (f"  {line}" for line in _table(peers, columns)) if peers else ("  No BGPPeer names it.",)
        yield from (f"  {line}" for line in _table(networks, NETWORKS)) if networks else ("  No EVPNNetwork names it.",)


def _age(stamp: str, now: datetime) -> str:
    try:
        return age((now - datetime.fromisoformat(stamp)).total_seconds())
    except ValueError:
        return stamp or "never"


# An explanation.


def _explanation(item: Item) -> Iterator[str]:
    on = f" on {item['node']}" if item.get("node") else ""
    yield paint(clean(f"{item['mac']} in EVPNNetwork {item['evpnNetwork']}"), "cyan", bold=True) + clean(
        f": Network {item['network']}, fabric {item['fabric']}, VNI {item['localVNI']}, speaker {item['speaker']}{on}"
    )
    state = _state(item)
    yield paint(clean(f"  {_WORDS[state]}"), COLOURS.get(state, "green"))
    if item["attachedAs"]:
        yield clean(f"  attached here as: {', '.join(item['attachedAs'])}")
    sticky = ", sticky" if item["sticky"] else ""
    yield clean(f"  VTEP {item['vtep']}, VNI {item['vni']}, mobility sequence {item['sequence']}{sticky}")
    if item["ips"]:
        yield clean(f"  addresses: {', '.join(item['ips'])}")
    if item["routes"]:
        yield "Routes"
        rows = [[cell(route) for cell in ROUTES.values()] + [route["why"]] for route in item["routes"]]
        yield align([[*ROUTES, "WHY"], *rows], indent="  ")
        if item["moreRoutes"]:
            yield f"  and {item['moreRoutes']} more"
    yield "What it became"
    if item["object"]:
        written = "" if item["written"] else ", not written yet"
        yield clean(f"  RemoteVTEP {item['evpnNetwork'].partition('/')[0]}/{item['object']}{written}")
    if item["port"]:
        namespace = item["evpnNetwork"].partition("/")[0]
        yield clean(f"  logical port {item['port']} of logical switch {namespace}/{item['network']}")
        yield clean(f"  interface {item['port']} on the switch of the speaker's node")
    if item["flow"]:
        yield clean(f"  flow {item['flow']} on br-vxlan of each node with an attachment in Network {item['network']}")
    if item["why"]:
        yield clean(f"  {'nothing: ' if not item['object'] else ''}{item['why']}")
    yield "Where to look next"
    yield from (clean(f"  {step}") for step in item["next"])


_WORDS = {
    "duplicate": "Duplicate: it is attached here, and another site announces it too. Detach one of the two.",
    "contested": "Contested: it is attached here, and another site announces it too; it may just have moved.",
    "stale": "Stale: it was written before the speaker started, and no peer has announced it since.",
    "local": "Local: it is attached here.",
    "remote": "Remote: it is at another site.",
}
