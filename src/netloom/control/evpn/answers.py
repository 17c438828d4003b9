"""What the speakers of a node know now, item by item, for `netloom evpn`.

Each command is a generator of items. `None` in between means: let other tasks run. It follows every `SLICE` routes or
objects that were examined, whether they became items or not, so that no answer delays the sessions. What an
answer walks through is copied as keys only, and may change meanwhile; large answers are sorted by a heap, because a
sort of all keys at once would take too long.
"""

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop
from ipaddress import IPv4Address, ip_address
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from netloom.bgp import mrt
from netloom.bgp.communities import community_text, route_distinguisher_text
from netloom.bgp.evi import MacEntry
from netloom.bgp.fsm import State
from netloom.bgp.nlri import EVPN, EthernetAd, EthernetSegment, IpPrefix, MacIp, Multicast, decode_evpn, split
from netloom.bgp.rib import Path, Relation, preference
from netloom.errors import BadRequest, NotFound
from netloom.model.kinds.networks import Fabric
from netloom.plan import names
from netloom.plan.evpn.imports import Place, mac_text, vni_of
from netloom.plan.vxlan.layout import ELSEWHERE

if TYPE_CHECKING:
    from netloom.control.evpn.speaker import RunningSpeaker
    from netloom.control.evpn.stretched import Stretched
    from netloom.control.runtime.cache import Key

SLICE = 100
"""How many routes or objects to examine before other tasks run."""
MOST_ROUTES = 100
"""How many routes for one MAC address are explained."""
MOST_NAMED = 10
"""How many names an error lists."""
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}|([0-9a-f]{2}-){5}[0-9a-f]{2}|([0-9a-f]{4}\.){2}[0-9a-f]{4}")
Item = dict[str, Any]
Items = Iterator[Item | None]


class Request(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request."""

    command: str
    peer: str = ""
    """Only what this peer has sent: the address, or the name of the BGPPeer."""
    network: str = ""
    """Only of this EVPNNetwork or Network: NAME or NAMESPACE/NAME."""
    mac: str = ""


def answer(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    """Return the items of an answer."""
    command = _COMMANDS.get(request.command)
    if command is None:
        raise BadRequest(f"{request.command[:64]!r} is not one of {', '.join(_COMMANDS)}")
    return command(running, request)


def parse_mac(text: str) -> bytes:
    """Return the MAC address in a text; raise `BadRequest` if it is not one."""
    if not MAC.fullmatch(text.lower()):
        raise BadRequest(f"{text[:64]!r} is not a MAC address, such as 02:00:00:00:00:01")
    return bytes.fromhex(re.sub("[:.-]", "", text))


# The commands.


def _summary(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    for key, one, address in _speakers(running, request):
        speaker = one.speaker
        found = speaker.configs()
        yield {
            "kind": "speaker",
            "speaker": str(key),
            "asn": speaker.rib.asn,
            "routerID": str(speaker.rib.router_id),
            "listening": one.io.port,
            "routes": len(speaker.rib.best.get(EVPN, {})),
            "refused": speaker.rib.refused,
            "peers": len(found),
            "established": sum(speaker.neighbor(name).up is not None for name in found),
            "error": one.error,
        }
        for count, name in enumerate(sorted(found, key=_order), 1):
            if name in speaker.configs() and address in ("", name):
                yield {"kind": "peer", "speaker": str(key), **_peer(one, name)}
            if count % SLICE == 0:
                yield None
        for name, error in sorted(one.peer_errors.items()):
            if not address:
                yield {"kind": "peer", "speaker": str(key), "name": name, **_UNCONFIGURED, "lastError": error}
        now = asyncio.get_running_loop().time()
        for count, (found_key, evpn) in enumerate(sorted(one.evpns.items(), key=itemgetter(0)), 1):
            if _is_wanted(request.network, found_key, evpn.value.spec.network):
                common = {"kind": "network", "speaker": str(key), "evpnNetwork": str(found_key)}
                yield common | {"network": evpn.value.spec.network, **_network(evpn.stretched, evpn.problem, now)}
            if count % SLICE == 0:
                yield None


def _routes(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    wanted = {id(found.stretched) for found in _networks(running, request)} if request.network else None
    for key, one, address in _speakers(running, request):
        rib, routes = one.speaker.rib, list(one.speaker.rib.best.get(EVPN, {}))
        heapify(routes)
        count = 0
        while routes:
            route, count = heappop(routes), count + 1
            importers = [
                (str(name), evpn.stretched)
                for name, evpn in one.evpns.items()
                if evpn.stretched is not None and route in evpn.stretched.instance.paths
            ]
            if wanted is None or any(id(stretched) in wanted for _, stretched in importers):
                names = [name for name, _ in importers]
                for number, path in enumerate(rib.paths(EVPN, route)):
                    if address in ("", path.source.name):
                        yield {"speaker": str(key), "best": number == 0, **route_item(path), "evpnNetworks": names}
            if count % SLICE == 0:
                yield None


def _macs(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    for found in _networks(running, request):
        stretched, address = found.stretched, found.address
        duplicates = set(stretched.duplicates(asyncio.get_running_loop().time()))
        macs = list(stretched.instance.macs())
        if len(macs) < stretched.imports.macs + len(stretched.exports):
            known = set(macs)
            known.update(stretched.exports.macs(), map(_packed, stretched.imports.known()))
            macs = list(known)
        heapify(macs)
        count = 0
        while macs:
            mac, count = heappop(macs), count + 1
            entry = stretched.instance.mac(mac)
            if not address or (entry is not None and entry.paths[0].source.name == address):
                item = _mac(stretched, mac, entry)
                if item is not None:
                    yield found.common | item | {"duplicate": item["mac"] in duplicates}
            if count % SLICE == 0:
                yield None


def _vteps(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    for found in _networks(running, request):
        imports, senders = found.stretched.imports, dict[str, set[str]]()
        yield from _read_senders(found.stretched, senders)
        for count, place in enumerate(sorted(imports.places(), key=lambda one: (_order(one.address), one.vni)), 1):
            peers = sorted(senders.get(place.address, ()), key=_order)
            if not found.address or found.address in peers:
                yield found.common | {
                    "address": place.address,
                    "vni": place.vni,
                    "macs": imports.machines(place),
                    "flood": place in imports.flooded,
                    "peers": peers,
                    "objects": imports.names_of(place),
                    "port": names.remote_vtep(place.address, place.vni) if found.stretched.fabric is Fabric.OVN else "",
                }
            if count % SLICE == 0:
                yield None


def _read_senders(stretched: "Stretched", senders: dict[str, set[str]]) -> Iterator[None]:
    """Find the peers that have sent routes of each VTEP."""
    paths = stretched.instance.paths
    for count, key in enumerate(list(paths), 1):
        path = paths.get(key)
        if path is not None and path.source.relation is not Relation.LOCAL:
            senders.setdefault(str(path.attributes.next_hop), set()).add(path.source.name)
        if count % (SLICE * 10) == 0:  # A route costs little here.
            yield None


def _explain(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    """Yield, for each network that knows a MAC address, its routes in the order of preference, and what they became."""
    mac = parse_mac(request.mac)
    is_known = False
    for found in _networks(running, request):
        stretched, address = found.stretched, found.address
        entry = stretched.instance.mac(mac)
        item = _mac(stretched, mac, entry)
        routes = [] if entry is None else _explained(found.one, entry)
        if item is None or (address and not any(route["peer"] == address for route in routes)):
            continue
        is_known = True
        duplicates = stretched.duplicates(asyncio.get_running_loop().time())
        yield {
            **found.common,
            **item,
            "fabric": stretched.fabric.value,
            "localVNI": stretched.evi.vni,
            "forwarding": stretched.is_forwarding,
            "duplicate": item["mac"] in duplicates,
            "attachedAs": stretched.exports.owners_of(mac),
            "routes": routes[:MOST_ROUTES],
            "moreRoutes": max(0, len(routes) - MOST_ROUTES),
            **_became(found, item, is_announced=entry is not None),
        }
    if not is_known:
        of = f" of peer {request.peer}" if request.peer else ""
        raise NotFound(
            f"no EVPNNetwork has a route{of} for {mac_text(mac)}: `netloom evpn macs` lists those that are known"
        )


def _mrt(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Items:
    """Yield the RIB of each speaker as an MRT dump, some records at a time."""
    for key, one, _ in _speakers(running, request):
        records = mrt.table(one.speaker.rib, time.time(), view=str(key))
        while some := b"".join(islice(records, SLICE)):
            yield {"speaker": str(key), "mrt": b64encode(some).decode()}
            yield None


_COMMANDS: "dict[str, Callable[[Mapping[Key, RunningSpeaker], Request], Items]]" = {
    "summary": _summary,
    "routes": _routes,
    "macs": _macs,
    "vteps": _vteps,
    "explain": _explain,
    "mrt": _mrt,
}


# Which speakers and networks.


def _speakers(running: "Mapping[Key, RunningSpeaker]", request: Request) -> "list[tuple[Key, RunningSpeaker, str]]":
    """Return the speakers, and the address of the peer that is asked for; "": of all peers."""
    if not request.peer:
        return [(key, one, "") for key, one in sorted(running.items(), key=itemgetter(0))]
    found = [(key, one, one.peer_address(request.peer)) for key, one in sorted(running.items(), key=itemgetter(0))]
    if not any(address for _, _, address in found):
        known = sorted({name for one in running.values() for name in one.speaker.configs()}, key=_order)
        raise NotFound(f"no speaker of this node has a peer {request.peer[:64]!r}: {_listed('it has', known)}")
    return [(key, one, address) for key, one, address in found if address]


class _Found(NamedTuple):
    """An EVPNNetwork that is asked for, and runs."""

    one: "RunningSpeaker"
    key: "Key"
    stretched: "Stretched"
    address: str
    """The peer that is asked for; "": all."""
    common: Item


def _networks(running: "Mapping[Key, RunningSpeaker]", request: Request) -> Iterator[_Found]:
    """Yield the EVPNNetworks that are asked for and run."""
    every = [
        (key, one, address, *found)
        for key, one, address in _speakers(running, request)
        for found in sorted(one.evpns.items(), key=itemgetter(0))
    ]
    wanted = [one for one in every if _is_wanted(request.network, one[3], one[4].value.spec.network)]
    if request.network and not wanted:
        known = _listed("EVPNNetworks are", sorted({str(name) for *_, name, _ in every}))
        raise NotFound(f"no speaker of this node extends a Network {request.network[:64]!r}: {known}")
    for key, one, address, name, evpn in wanted:
        if evpn.stretched is not None:
            common = {"speaker": str(key), "evpnNetwork": str(name), "network": evpn.value.spec.network}
            yield _Found(one, name, evpn.stretched, address, common)


def _is_wanted(wanted: str, evpn: "Key", network: str) -> bool:
    return wanted in ("", evpn.name, network, str(evpn), f"{evpn.namespace}/{network}")


def _listed(words: str, names: list[str]) -> str:
    if not names:
        return "there is none"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{words} {', '.join(names[:MOST_NAMED])}{more}"


def _order(address: str) -> tuple[int, int]:
    found = ip_address(address)
    return found.version, int(found)


# The items.


_UNCONFIGURED: Item = {
    "address": "",
    "remoteASN": None,
    "state": State.IDLE.value,
    "since": "",
    "received": 0,
    "sent": 0,
    "updates": 0,
    "malformed": 0,
    "flaps": 0,
}
"""A BGPPeer for which there is no session."""


def _peer(one: "RunningSpeaker", name: str) -> Item:
    neighbor = one.speaker.neighbor(name)
    return {
        "name": one.peer_name(name),
        "address": name,
        "remoteASN": neighbor.config.remote_asn,
        "state": neighbor.peer.state.value,
        "since": one.statuses.since(name),
        "received": one.speaker.received(name),
        "sent": neighbor.out.count() if neighbor.out is not None else 0,
        "updates": neighbor.updates,
        "malformed": neighbor.malformed,
        "bytesIn": neighbor.bytes_in,
        "bytesOut": neighbor.bytes_out,
        "messagesOut": neighbor.messages_out,
        "flaps": one.counters.flaps[name],
        "lastError": neighbor.last_error,
    }


def _network(stretched: "Stretched | None", problem: str, now: float) -> Item:
    if stretched is None:
        return {
            "vni": None,
            "forwarding": False,
            "local": 0,
            "remote": 0,
            "vteps": 0,
            "duplicates": 0,
            "error": problem,
        }
    return {
        "vni": stretched.evi.vni,
        "forwarding": stretched.is_forwarding,
        "local": len(stretched.exports),
        "remote": stretched.imports.macs,
        "vteps": len(stretched.imports.places()),
        "duplicates": len(stretched.duplicates(now)),
        "error": problem,
    }


def _mac(stretched: "Stretched", mac: bytes, entry: MacEntry | None) -> Item | None:
    """Return the item of a MAC address; None if it is no longer known."""
    text = mac_text(mac)
    machine, first = stretched.exports.machine(mac), entry.paths[0] if entry is not None else None
    ips: Iterable[object]
    if machine is not None:
        place, ips = Place(str(machine.vtep), stretched.evi.vni), machine.ips
    elif entry is not None and first is not None:
        place, ips = Place(str(entry.vtep), vni_of(decode_evpn(first.route), first)), entry.ips
    else:
        before = stretched.imports.place(text)
        if before is None:
            return None
        place, ips = before, stretched.imports.ips(text)
    return {
        "mac": text,
        "ips": list(map(str, ips)),
        "vtep": place.address,
        "vni": place.vni,
        "local": machine is not None,
        "contested": stretched.is_contested(mac),
        "stale": entry is None and machine is None,
        "sequence": entry.mobility.sequence if entry is not None else 0,
        "sticky": entry is not None and entry.mobility.sticky,
        "peer": "" if first is None or first.source.relation is Relation.LOCAL else first.source.name,
        "object": stretched.imports.where(text),
    }


def route_item(path: Path) -> Item:
    """Return a route as an item."""
    route = decode_evpn(path.route)
    item: Item = {"type": path.route[0], "rd": route_distinguisher_text(route.rd)}
    match route:
        case MacIp():
            item |= {"mac": mac_text(route.mac), "ip": str(route.ip or ""), "vni": route.label, "tag": route.tag}
        case Multicast():
            item |= {"originator": str(route.originator), "tag": route.tag}
        case IpPrefix():
            item |= {"prefix": f"{route.address}/{route.length}", "gateway": str(route.gateway), "vni": route.label}
        case EthernetAd() | EthernetSegment():
            item |= {"esi": route.esi.hex(":")}
    attributes, pmsi = path.attributes, path.attributes.pmsi
    return item | {
        "nextHop": str(attributes.next_hop),
        "peer": "" if path.source.relation is Relation.LOCAL else path.source.name,
        "asPath": [asn for _, asns in attributes.as_path for asn in asns],
        "communities": [community_text(one) for one in attributes.extended],
        **({"pmsi": {"tunnel": pmsi.tunnel, "label": pmsi.label}} if pmsi is not None else {}),
    }


# Explanations.


def _became(found: _Found, item: Item, *, is_announced: bool) -> Item:
    """Return what follows from the best route: object, logical port and interface, or flow; else why there is none."""
    stretched, name = found.stretched, item["object"]
    if not name or not stretched.is_forwarding:
        return {"object": "", "written": False, "port": "", "flow": "", "why": _why_not(stretched, item)}
    ovn = stretched.fabric is Fabric.OVN
    return {
        "written": found.one.is_written(found.key, name),
        "port": names.remote_vtep(item["vtep"], item["vni"]) if ovn else "",
        "flow": "" if ovn else f"table={ELSEWHERE},tun_id={stretched.evi.vni:#x},dl_dst={item['mac']}",
        "why": "" if is_announced else "written before the speaker started: no peer has announced it since",
    }


def _why_not(stretched: "Stretched", item: Item) -> str:
    if item["local"]:
        return "it is attached here: routes of other sites for it are not imported"
    if not stretched.is_forwarding:
        return "another speaker forwards for this Network, or none was chosen yet: nothing is written"
    if not item["vni"]:
        return "its route has no VNI: neither in the label, nor in the tag, the route target or the route distinguisher"
    most = stretched.imports.most
    return f"the Network has {most} VTEPs already: routes of others are not imported (spec.maxVTEPs)"


def _explained(one: "RunningSpeaker", entry: MacEntry) -> list[Item]:
    """Return all routes for a MAC address, and why each is or is not the best."""
    best, found = entry.paths[0], list[Item]()
    for path in entry.paths:
        why = "the best" if path is best else _lost_claim(best, path)
        used = path.attributes.next_hop == best.attributes.next_hop
        found.append(route_item(path) | {"best": path is best, "used": used, "why": why})
        for other in one.speaker.rib.paths(EVPN, next(iter(split(EVPN, path.route)))):
            if other is not path:
                why = f"the route of {path.source.name} is preferred: {_lost_preference(path, other)}"
                found.append(route_item(other) | {"best": False, "used": False, "why": why})
    return found


def _lost_claim(best: Path, other: Path) -> str:
    """Return why a route for a MAC address, with another route distinguisher or IP address, is not the best."""
    mine, its = best.attributes.mobility, other.attributes.mobility
    if mine.sticky != its.sticky:
        return "the best route is sticky, and this one is not"
    if mine.sequence != its.sequence:
        return f"its mobility sequence {its.sequence} is lower than {mine.sequence}"
    if best.attributes.next_hop != other.attributes.next_hop:
        return f"at the same mobility sequence the lower VTEP wins: {best.attributes.next_hop}"
    return "it has the same VTEP as the best: both are used"


def _number(value: object) -> str:
    return str(abs(int(value)))  # type: ignore[call-overload]  # a number, negated where less is better


_STEPS: tuple[tuple[str, Callable[[object], str] | None], ...] = (
    ("a sticky address or the higher mobility sequence wins", None),
    ("a route of our own wins", None),
    ("the higher local preference wins", _number),
    ("the shorter AS path wins", _number),
    ("the lower origin wins", _number),
    ("the lower MED wins", _number),
    ("a route of an external peer wins", None),
    ("the lower router ID wins", lambda value: str(IPv4Address(int(_number(value))))),
    ("the shorter cluster list wins", _number),
    ("the lower neighbour AS wins", _number),
    ("the peer with the higher address, compared as text, wins", None),
)
"""The steps of `preference`, and how to show their values."""


def _lost_preference(best: Path, other: Path) -> str:
    """Return why one of two paths to the same route is preferred."""
    for (step, shown), one, two in zip(_STEPS, preference(best), preference(other), strict=True):
        if one != two:
            return step if shown is None else f"{step}, {shown(one)} against {shown(two)}"
    return "it was received first"


def _packed(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
