"""One EVPNNetwork of a speaker: attachments become routes, routes of other sites become RemoteVTEPs.

    attachments, clients, Routers ──► Exports ──► Speaker.originate, retract ──► peers
    peers ──► Instance ──► Imports ──► RemoteVTEPs (`names` says which have changed)

A machine that is attached here is never imported. If another site announces it too, it is announced with a higher
sequence; after five times within three minutes it is left as it is for nine minutes, then it is announced again
(`recover`). It is a duplicate then, and also when the other site's route stays for some seconds: both may not have
counted five. What the other site withdraws in between counts, too: RFC 7432 has it withdraw a route that lost.

After a restart of the speaker, what was written before counts until all peers have sent their routes: only then is
removed what nobody has announced again (`settle`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address, ip_network
from itertools import islice

from netloom.bgp.attributes import Attributes
from netloom.bgp.evi import Instance, MacEntry, MoveCounter
from netloom.bgp.nlri import EVPN, MULTICAST, Address, Routes, decode_evpn
from netloom.bgp.rib import Relation
from netloom.bgp.speaker import Speaker
from netloom.control.runtime.cache import Change
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Fabric
from netloom.plan.evpn.evi import Evi
from netloom.plan.evpn.exports import Exports, Machine, Prefix
from netloom.plan.evpn.imports import Imports, Place, ips_of_machine, ips_of_route, is_unicast, mac_text, place_of

CLAIM_SECONDS = 5.0
"""How long another site may announce a machine that is attached here before it is a duplicate."""
SLICE = 2000
"""How many machines to import at once, before other tasks get their turn."""


class Stretched:
    """One EVPNNetwork."""

    def __init__(
        self,
        network: EVPNNetwork,
        evi: Evi,
        fabric: Fabric,
        node: str,
        *,
        speaker: Speaker,
        on_routes: Callable[[], None],
    ) -> None:
        """`on_routes` is called when the speaker has routes to send."""
        self.evi = evi
        self.fabric = fabric
        self.instance = Instance(network.metadata.uid, evi.imports)
        self.exports = Exports(evi, speaker.cache, [evi.vtep] if fabric is Fabric.OVN else [])
        vtep = str(evi.vtep) if fabric is Fabric.OVN else ""
        self.imports = Imports(
            network.metadata.name, network.spec.network, node, evi.vni, vtep, most=network.spec.max_vteps
        )
        self.moves = MoveCounter()
        self.is_forwarding = False
        self._claimed: dict[bytes, float] = {}
        """The machines attached here that other sites announce too, and since when."""
        self._speaker = speaker
        self._on_routes = on_routes
        self._is_settled = False

    # Our own machines.

    def put_attachment(self, change: Change[NetworkAttachment]) -> None:
        """Apply a change of an attachment."""
        machine = None if change.new is None else self._machine(change.new)
        self.exports.put(f"attachment {change.key}", machine)

    def put_others(self, network: EVPNNetwork) -> None:
        """Set the configured machines, and the Routers with Subnets behind them."""
        wanted = {
            f"client {one.mac}": Machine(_mac(one.mac), (ip_address(one.ip),) if one.ip else (), self.evi.vtep)
            for one in network.spec.clients
        }
        gateways: dict[str, set[str]] = {}
        for subnet in network.status.subnets:
            gateways.setdefault(subnet.mac, set()).add(subnet.gateway)
        for mac, ips in gateways.items():
            wanted[f"router {mac}"] = Machine(_mac(mac), tuple(map(ip_address, sorted(ips))), self.evi.vtep)
        for owner in self.exports.owners():
            if owner.startswith(("client ", "router ")) and owner not in wanted:
                self.exports.put(owner, None)
        for owner, machine in wanted.items():
            self.exports.put(owner, machine)
        prefixes = (
            Prefix(ip_network(one.cidr), ip_address(one.gateway), self.evi.vtep) for one in network.status.subnets
        )
        self.exports.put_prefixes(frozenset(prefixes))
        self.exports.begin_turn(network.status.turn)
        self.imports.admit(network.spec.max_vteps)

    def forward(self, is_forwarding: bool) -> bool:
        """Announce our machines, or withdraw them; return whether that is a change."""
        if is_forwarding == self.is_forwarding:
            return False
        self.is_forwarding = is_forwarding
        everything = self.exports.everything()
        if is_forwarding:
            self._send(everything, ())
        else:
            self._send({}, everything.values())
        return True

    def export(self, now: float) -> None:
        """Announce and withdraw what has changed."""
        while True:
            flush = self.exports.flush()
            if self.is_forwarding:
                self._send(flush.announced, (flush.withdrawn,))
            if not flush.macs:
                return
            for mac in flush.macs:  # Another site may have announced it before.
                self._import(mac, now)

    def _send(self, announced: Mapping[Attributes, Routes], withdrawn: Iterable[Routes]) -> None:
        for routes in withdrawn:
            if routes:
                self._speaker.retract(EVPN, routes)
        for attributes, routes in announced.items():
            self._speaker.originate(EVPN, attributes, routes)
        self._on_routes()

    def _machine(self, value: NetworkAttachment) -> Machine | None:
        """Return the machine of an attachment; None while it is not plugged, or when it goes."""
        status = value.status
        if value.metadata.deletion_timestamp or not (status.mac and status.host_ip):
            return None
        locked = {one.ip for one in status.locks}
        ips = tuple(ip_address(ip) for ip in (one.partition("/")[0] for one in status.ips) if ip in locked)
        vtep: Address = self.evi.vtep if self.fabric is Fabric.OVN else ip_address(status.host_ip)
        return Machine(_mac(status.mac), ips, vtep)

    # Machines of other sites.

    def adopt(self, found: Iterable[RemoteVTEP]) -> None:
        """Adopt the RemoteVTEPs that were written before."""
        for one in found:
            self.imports.adopt(one.metadata.name, one.spec)

    async def take_up(self, now: float) -> None:
        """Import the routes that have changed."""
        macs, others = self.instance.take_changes()
        changed = iter(macs)
        while some := list(islice(changed, SLICE)):
            self._import_some(some, now)
            await asyncio.sleep(0)
        if others:
            self._flood()
        self.export(now)  # What is contested.

    def settle(self) -> None:
        """Remove what was written before and no peer has announced again."""
        if self._is_settled:
            return
        self._is_settled = True
        for text in self.imports.known():
            mac = _mac(text)
            if mac in self.exports or not self._remote(mac):
                self.imports.put(text, None)
        self._flood()

    def duplicates(self, now: float) -> list[str]:
        """Return the machines that are attached here and at another site."""
        claimed = {mac for mac, since in self._claimed.items() if now - since >= CLAIM_SECONDS}
        return sorted(map(mac_text, claimed | (self.moves.duplicates() & self._claimed.keys())))

    def recover(self, now: float) -> None:
        """Announce machines again that are no longer duplicates."""
        if over := self.moves.expire(now):
            for mac in over:
                self._import(mac, now)
            self.export(now)

    def is_contested(self, mac: bytes) -> bool:
        """Whether a machine is attached here, and another site announces it too."""
        return mac in self._claimed

    def _remote(self, mac: bytes) -> MacEntry | None:
        """Return where a machine of another site is."""
        entry = self.instance.mac(mac)
        return None if entry is None or entry.local else entry

    def _import_some(self, macs: Iterable[bytes], now: float) -> None:
        """Import machines: those with one route, or none any more, which most have, all at once."""
        single, none, others = self.instance.sort(macs)
        if self._is_settled:
            own = set() if self._is_foreign(none) else {mac for mac in none if not self._is_foreign((mac,))}
            self.imports.remove_all(map(mac_text, [mac for mac in none if mac not in own] if own else none))
            none = list(own)
        for mac in (*none, *others):
            self._import(mac, now)
        found: dict[Place, dict[str, tuple[str, ...]]] = {}
        known: dict[tuple[int, bytes, bytes], dict[str, tuple[str, ...]] | None] = {}
        is_foreign = self._is_foreign([mac for mac, _ in single])
        for mac, path in single:
            route = path.route
            # Of a route, the place depends on these alone, beside its attributes, which many routes share.
            kind = (id(path.attributes), route[2:24], route[32 + route[31] // 8 :])
            machines = known.get(kind)
            if machines is None:
                place = place_of(decode_evpn(route), path)
                machines = known[kind] = None if place is None else found.setdefault(place, {})
            if machines is None or not (is_foreign or self._is_foreign((mac,))) or not is_unicast(mac):
                self._import(mac, now)
            else:
                machines[mac.hex(":")] = ips_of_route(route)
        for place, machines in found.items():
            self.imports.put_all(place, machines)

    def _is_foreign(self, macs: Collection[bytes]) -> bool:
        """Whether none of these machines is attached here, and none was when another site announced it."""
        return self.exports.isdisjoint(macs) and self._claimed.keys().isdisjoint(macs)

    def _import(self, mac: bytes, now: float) -> None:
        if mac in self.exports:
            self.imports.put(mac_text(mac), None)
            self._contest(mac, now)
            return
        self._claimed.pop(mac, None)
        entry = self._remote(mac)
        place = None
        if entry is not None and is_unicast(mac):
            first = entry.paths[0]
            place = place_of(decode_evpn(first.route), first)
        if place is not None and entry is not None:
            self.imports.put(mac_text(mac), place, ips_of_machine(entry.ips))
        elif self._is_settled or entry is not None:
            self.imports.put(mac_text(mac), None)

    def _contest(self, mac: bytes, now: float) -> None:
        entry = self.instance.mac(mac)
        claims = [] if entry is None else [one for one in entry.paths if one.source.relation is not Relation.LOCAL]
        if not claims:
            self._claimed.pop(mac, None)
            return
        self._claimed.setdefault(mac, now)
        most = claims[0].attributes.mobility  # The one that counts: a sticky one, or the one that has moved most often.
        mine = self.exports.sequence(mac)
        if (most.sticky or most.sequence >= mine) and not self.moves.moved(mac, now) and not most.sticky:
            self.exports.contest(mac, most.sequence + 1)

    def _flood(self) -> None:
        found = (place_of(route, path) for route, path in self.instance.remote(MULTICAST))
        places = {place for place in found if place is not None}
        if not self._is_settled:
            places |= self.imports.flooded
        self.imports.flood(places)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
