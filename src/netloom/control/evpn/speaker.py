"""One BGPSpeaker: its peers, its EVPNNetworks, and their statuses.

    BGPPeers (spec.speaker=NAME) ─────► sessions (`bgp/io.py`)
    EVPNNetworks (spec.speaker=NAME) ─► Network, attachments (spec.network=…) ─► `Stretched` ─► routes
    routes of peers ──► `Stretched` ──► RemoteVTEPs (a controller writes those that changed)

What a speaker learns is written as RemoteVTEPs and survives it. A speaker that finds some starts as one that has
restarted: peers keep its routes meanwhile, and it keeps theirs until they have sent all again (RFC 4724).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from netloom.bgp.attributes import Attributes
from netloom.bgp.evi import Instances
from netloom.bgp.io import Changes, Endpoint, SpeakerIO
from netloom.bgp.nlri import EVPN, IPV4, IPV6, ROUTE_TARGETS, split
from netloom.bgp.speaker import PeerConfig, SessionEvent, Speaker
from netloom.control.evpn import statuses
from netloom.control.evpn.pace import WritePace
from netloom.control.evpn.stretched import Stretched
from netloom.control.node.views import Followed, follow, pass_on, where
from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.counters import Histogram
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer, informer
from netloom.control.runtime.queue import Backoff, Pace
from netloom.model.document import ObjectMeta, OwnerReference
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import (
    AddressFamily,
    BGPPeer,
    BGPPeerSpec,
    BGPSpeaker,
    EVPNNetwork,
    RemoteVTEP,
    RemoteVTEPSpec,
)
from netloom.model.kinds.networks import Network
from netloom.model.registry import EVPN_NETWORK, REMOTE_VTEP
from netloom.plan.evpn.evi import Evi, evi_of, memberships
from netloom.store.base import Store

log = logging.getLogger(__name__)

SETTLE_SECONDS = 60.0
"""How long after a start what was written before counts, if a peer does not come back."""
COMPLETE_SECONDS = 30.0
"""How long peers wait at most for End-of-RIB."""
RETRY_SECONDS = 5.0
RECOVER_SECONDS = 5.0
"""How often to look for duplicates whose time is over."""
SETTLED_SECONDS = 0.2
"""How often to look whether all peers have sent their routes."""
BACKOFF = Backoff(unreachable=Pace(0.2, 5.0))
LONGEST_PASSWORD = 80
"""The longest key of a TCP-MD5 signature, in bytes."""
_FAMILIES = {
    AddressFamily.IPV4: IPV4,
    AddressFamily.IPV6: IPV6,
    AddressFamily.ROUTE_TARGETS: ROUTE_TARGETS,
}


class SpeakerServices(Struct, frozen=True, kw_only=True):
    """What the speakers of a node share."""

    store: Store
    client: Client
    recorder: Recorder
    node: str
    clock: Clock
    random: Random
    password_folder: Path
    """The folder of files with passwords: others are not read."""


@dataclass(slots=True)
class _Evpn:
    """An EVPNNetwork that is followed."""

    value: EVPNNetwork
    followed: Followed
    stretched: Stretched | None = None
    problem: str = ""
    """Why it is not stretched."""
    is_known: bool = False
    """Whether all attachments of its Network were known when it was last reconciled."""


@dataclass(slots=True)
class SpeakerCounters:
    """What a speaker has done."""

    flaps: Counter[str] = field(default_factory=Counter)
    """How often an established session has ended, by address of the peer."""
    writes: Counter[str] = field(default_factory=Counter)
    """RemoteVTEPs written: `create`, `update`, `delete`."""
    import_lag: Histogram = field(default_factory=Histogram)
    """From routes of a peer to the RemoteVTEPs that follow from them."""


class RunningSpeaker:
    """One speaker, while it runs."""

    def __init__(self, value: BGPSpeaker, services: SpeakerServices, remote: Informer[RemoteVTEP]) -> None:
        """`remote` has the RemoteVTEPs of this node, and is filled."""
        self.value = value
        self.started = asyncio.get_running_loop().time()
        self._error = ""
        self.counters = SpeakerCounters()
        self._services = services
        self._remote = remote
        namespace, name = value.metadata.namespace, value.metadata.name
        random, store = services.random, services.store
        self.key = Key(namespace, name)
        self._is_restart = any(one.metadata.namespace == namespace for one in remote.cache)
        self.speaker = Speaker(
            value.spec.asn, IPv4Address(value.spec.router_id), random=random, restarting=self._is_restart
        )
        self.instances = Instances()
        listen = value.spec.listen
        self.io = SpeakerIO(
            self.speaker,
            listen=None if listen is None else (listen.address, listen.port),
            on_changes=self._on_changes,
            on_event=self._on_event,
        )
        mine = where("spec.speaker", name)
        self.peers = informer(store, BGPPeer, random=random, namespace=namespace, selector=mine)
        self.networks = informer(store, EVPNNetwork, random=random, namespace=namespace, selector=mine)
        self.evpns: dict[Key, _Evpn] = {}
        self._memberships: frozenset[bytes] = frozenset()
        """The routes by which peers are asked for route targets."""
        self._followed: dict[Key, Followed] = {}
        self._specs: dict[str, tuple[str, BGPPeerSpec]] = {}
        """The configured peers, by address: the name of the BGPPeer, and its spec."""
        self.peer_errors: dict[str, str] = {}
        """Why a BGPPeer is not configured, by name."""
        self._changed, self._learned = asyncio.Event(), asyncio.Event()
        self._learned_at: float | None = None
        """When the first of the routes came that are not imported yet."""
        self._due: dict[tuple[Key, str], float] = {}
        """The RemoteVTEPs to write that follow from routes of peers, and when those came."""
        self._export_due = False
        self._pace = WritePace[tuple[Key, str]]()
        self.writer: Controller[tuple[Key, str]] = Controller(
            "remote-vteps",
            self._write,
            random=random,
            workers=4,
            backoff=BACKOFF,
            recorder=services.recorder,
            event_target=lambda what: self.networks.cache.get(*what[0]),
        )
        self.statuses = statuses.StatusWriter(self, services)
        self._look: set[Key] = set()
        """The EVPNNetworks that have changed."""
        self.peers.on_change(self._peer_changed)
        self.networks.on_change(self._network_changed)

    @property
    def error(self) -> str:
        """Why it does not listen."""
        return "" if self.io.port else self._error

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in (self.peers, self.networks):
                group.create_task(one.run())
            group.create_task(self.statuses.run())
            for one in (self.peers, self.networks):
                await one.synced.wait()
            group.create_task(self._follow())
            group.create_task(self._import())
            group.create_task(self.writer.run())
            group.create_task(self._complete())
            group.create_task(self._settle())
            group.create_task(self._recover())
            await self._serve()

    async def _serve(self) -> None:
        """Run the sockets; an address that cannot be listened on is tried again."""
        while True:
            try:
                await self.io.run()
            except OSError as error:
                listen = self.value.spec.listen
                at = "" if listen is None else f"{listen.address or 'all addresses'}, port {listen.port}"
                self._error = f"spec.listen: cannot listen on {at}: {error.strerror or error}"
                log.warning("speaker %s: %s", self.key, self.error)
                self.statuses.enqueue_all()
                await asyncio.sleep(RETRY_SECONDS)

    # Peers and networks.

    def _peer_changed(self, change: Change[BGPPeer]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._changed.set()

    def _network_changed(self, change: Change[EVPNNetwork]) -> None:
        if change.old is None or change.new is None or _matters(change.old) != _matters(change.new):
            self._look_at(change.key)

    def _look_at(self, key: Key) -> None:
        self._look.add(key)
        self._changed.set()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._configure_peers()
                wanted = {key for key, _ in self.networks.cache.items()}
                follow(self._followed, wanted, self._begin)
                for key in self.evpns.keys() - wanted:
                    self._end(self.evpns[key])
                    del self.evpns[key]
                for followed in self._followed.values():
                    if not followed.tasks:
                        followed.tasks += [group.create_task(one.run()) for one in followed.informers]
                        followed.tasks.append(group.create_task(followed.announce()))
                look, self._look = self._look, set()
                for key in look & wanted:
                    self._stretch(key)
                self._request_targets()
                self.statuses.enqueue_all()
                with contextlib.suppress(TimeoutError):
                    # A password that could not be read may be there by then.
                    async with asyncio.timeout(RETRY_SECONDS if self.peer_errors else None):
                        await self._changed.wait()
                self._changed.clear()

    def _request_targets(self) -> None:
        """Ask peers that have route target constraint for the routes that are imported or passed on."""
        instances = (one.stretched.evi for one in self.evpns.values() if one.stretched is not None)
        wanted = memberships(self.value.spec.asn, (spec for _, spec in self._specs.values()), instances)
        if gone := self._memberships - wanted:
            self.speaker.retract(ROUTE_TARGETS, split(ROUTE_TARGETS, b"".join(gone)))
        if new := wanted - self._memberships:
            attributes = Attributes(next_hop=IPv4Address(self.value.spec.router_id))
            self.speaker.originate(ROUTE_TARGETS, attributes, split(ROUTE_TARGETS, b"".join(new)))
        if gone or new:
            self._memberships = wanted
            self.io.wake()

    def _configure_peers(self) -> None:
        wanted: dict[str, tuple[str, BGPPeerSpec]] = {}
        self.peer_errors = {}
        for key, peer in sorted(self.peers.cache.items()):
            holder = wanted.setdefault(str(ip_address(peer.spec.address)), (key.name, peer.spec))
            if holder[0] != key.name:
                self.peer_errors[key.name] = (
                    f"spec.address: BGPPeer {holder[0]} has the same address: delete one of them"
                )
        for address in self._specs.keys() - wanted.keys():
            self._remove_peer(address)
        for address, (name, spec) in wanted.items():
            if self._specs.get(address) == (name, spec):
                continue
            if address in self._specs:
                self._remove_peer(address)
            self._add_peer(address, name, spec)

    def _add_peer(self, address: str, name: str, spec: BGPPeerSpec) -> None:
        listen = self.value.spec.listen
        config = PeerConfig(
            address,
            spec.remote_asn,
            hold=spec.hold_seconds,
            passive=spec.passive,
            client=spec.route_reflector_client,
            max_prefixes=spec.max_prefixes,
            families=(EVPN, *(_FAMILIES[one] for one in spec.additional_families)),
        )
        local = listen.address if listen is not None and (":" in listen.address) == (":" in address) else ""
        try:
            password = b"" if spec.password_from is None else self._password(spec.password_from.file)
            self.io.add_peer(config, Endpoint(address, spec.port, local, password, spec.ttl_security))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.peer_errors[name] = f"spec.passwordFrom.file: {why}"
            return
        self._specs[address] = (name, spec)

    def _remove_peer(self, address: str) -> None:
        del self._specs[address]
        self.counters.flaps.pop(address, None)
        self.io.remove_peer(address)

    def _password(self, file: str) -> bytes:
        folder = self._services.password_folder.resolve()
        path = Path(file).resolve()
        if not path.is_relative_to(folder):
            raise ValueError(f"passwords are read from {folder} only: move {file} there")
        is_short = path.is_file() and path.stat().st_size <= LONGEST_PASSWORD + 1
        password = path.read_bytes().rstrip(b"\n") if is_short else b""
        if not is_short or len(password) > LONGEST_PASSWORD:
            raise ValueError(f"{file} is not a file of at most {LONGEST_PASSWORD} bytes")
        if not password:
            raise ValueError(f"{file} is empty: write the password into it")
        return password

    def peer_name(self, address: str) -> str:
        """Return the name of the BGPPeer with this address; "": none."""
        return self._specs.get(address, ("",))[0]

    def peer_address(self, text: str) -> str:
        """Return the address of a peer, which is given by its address or the name of its BGPPeer; "": there is none."""
        with contextlib.suppress(ValueError):
            text = str(ip_address(text))
        return text if text in self._specs else next((a for a, (name, _) in self._specs.items() if name == text), "")

    def is_written(self, key: Key, name: str) -> bool:
        """Whether a RemoteVTEP of an EVPNNetwork is up to date, according to the cache."""
        have = self._remote.cache.get(key.namespace, name)
        stretched = self.evpns[key].stretched
        return have is not None and stretched is not None and have.spec == stretched.imports.spec(name)

    def _begin(self, key: Key) -> Followed:
        """Follow the Network of an EVPNNetwork, and its attachments."""
        value = self.networks.cache.get(*key)
        assert value is not None
        store, random, name = self._services.store, self._services.random, value.spec.network
        networks = informer(
            store, Network, random=random, namespace=key.namespace, selector=where("metadata.name", name)
        )
        attachments = informer(
            store, NetworkAttachment, random=random, namespace=key.namespace, selector=where("spec.network", name)
        )
        followed = Followed((networks, attachments), lambda: self._look_at(key))
        networks.on_change(lambda _: self._look_at(key))
        pass_on(followed, attachments, lambda change: self._attachment_changed(key, change))
        self.evpns[key] = _Evpn(value, followed)
        return followed

    def _stretch(self, key: Key) -> None:
        """Bring one EVPNNetwork up to date."""
        value = self.networks.cache.get(*key)
        if value is None:
            return
        evpn = self.evpns[key]
        if evpn.value.spec.network != value.spec.network or evpn.value.metadata.uid != value.metadata.uid:
            self._end(evpn)
            self._followed.pop(key).end()
            self._followed[key] = self._begin(key)
            self._look_at(key)
            return
        evpn.value = value
        if not evpn.followed.synced:
            return
        evpn.is_known = True
        network: Network | None = evpn.followed.informers[0].cache.get(key.namespace, value.spec.network)
        evi, evpn.problem = self._evi(value, network)
        was = evpn.stretched
        if was is not None and (evi != was.evi or network is None or network.spec.fabric is not was.fabric):
            self._end(evpn)
        if evi is None or network is None:
            return
        if evpn.stretched is None:
            self._start(key, evpn, evi, network)
        assert evpn.stretched is not None
        evpn.stretched.put_others(value)
        evpn.stretched.export(asyncio.get_running_loop().time())
        if evpn.stretched.forward(value.status.forwarding):
            self._enqueue_all(key, evpn.stretched)
        self._enqueue(key, evpn.stretched)

    def _evi(self, value: EVPNNetwork, network: Network | None) -> tuple[Evi | None, str]:
        if network is None:
            return None, f"spec.network: there is no Network {value.spec.network}: create it"
        if value.status.vni is None:
            return None, "it is not accepted"
        try:
            return evi_of(self.value, value, value.status.vni), ""
        except ValueError as error:
            return None, str(error)

    def _start(self, key: Key, evpn: _Evpn, evi: Evi, network: Network) -> None:
        stretched = evpn.stretched = Stretched(
            evpn.value,
            evi,
            network.spec.fabric,
            self._services.node,
            speaker=self.speaker,
            on_routes=self.io.wake,
        )
        self.instances.add(stretched.instance, self.speaker.rib.best.get(EVPN, {}))
        stretched.adopt(self._written(key))
        for found, attachment in evpn.followed.informers[1].cache.items():
            stretched.put_attachment(Change(found, None, attachment))
        if self.is_settled:
            stretched.settle()
        self._learned.set()

    def shut_down(self) -> None:
        """End all sessions for good: peers remove our routes."""
        for address in list(self._specs):
            self._remove_peer(address)

    def _end(self, evpn: _Evpn) -> None:
        if (stretched := evpn.stretched) is None:
            return
        evpn.stretched = None
        stretched.forward(False)
        self.instances.remove(stretched.instance.name)
        for one in self._remote.cache:
            self._look_again(one)

    def _attachment_changed(self, key: Key, change: Change[NetworkAttachment]) -> None:
        evpn = self.evpns.get(key)
        if evpn is None or evpn.stretched is None:
            return
        evpn.stretched.put_attachment(change)
        if not self._export_due:
            self._export_due = True
            asyncio.get_running_loop().call_soon(self._export)

    def _export(self) -> None:
        """Announce what has changed since the last turn of the event loop."""
        self._export_due = False
        now = asyncio.get_running_loop().time()
        for key, evpn in self.evpns.items():
            if evpn.stretched is not None:
                evpn.stretched.export(now)
                self._enqueue(key, evpn.stretched)

    # Routes of peers.

    def _on_changes(self, changes: Changes) -> None:
        self.instances.apply(changes.get(EVPN, {}))
        if self._learned_at is None:
            self._learned_at = asyncio.get_running_loop().time()
        self._learned.set()

    def _on_event(self, event: SessionEvent) -> None:
        if not event.is_up and event.peer in self._specs:
            self.counters.flaps[event.peer] += 1
        self.statuses.session_changed(event)

    async def _import(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._learned.wait()
            self._learned.clear()
            learned, self._learned_at = self._learned_at, None
            for key, evpn in list(self.evpns.items()):
                if (stretched := evpn.stretched) is not None:
                    await stretched.take_up(loop.time())
                    self._enqueue(key, stretched, learned)

    def _enqueue(self, key: Key, stretched: Stretched, learned: float | None = None) -> None:
        """Write what has changed; `learned` is when the routes came from which it follows."""
        changed = stretched.imports.take()
        if not stretched.is_forwarding:
            for name in changed:
                stretched.imports.forget(name)
            return
        names = {(key, name) for name in changed}
        if learned is not None:
            for one in names:
                self._due.setdefault(one, learned)
        self.writer.queue.update(names)

    def _enqueue_all(self, key: Key, stretched: Stretched) -> None:
        """Compare what is written with what must exist: nothing was written while another speaker forwarded."""
        names = stretched.imports.names() | {one.metadata.name for one in self._written(key)}
        self.writer.queue.update((key, name) for name in names)

    def _written(self, key: Key) -> list[RemoteVTEP]:
        """Return the RemoteVTEPs of an EVPNNetwork that are there."""
        every = self._remote.cache
        return [one for one in every if (one.metadata.namespace, one.spec.evpn_network) == key]

    @property
    def is_settled(self) -> bool:
        """Whether all peers have sent their routes since the start, or the time to wait for them is over."""
        waited = asyncio.get_running_loop().time() - self.started > SETTLE_SECONDS
        return waited or not self._is_restart or all(self._has_sent_all(one) for one in self.peers.cache)

    def _has_sent_all(self, peer: BGPPeer) -> bool:
        """Whether a peer has sent all of its routes; one that is not configured for now may yet do so."""
        address = str(ip_address(peer.spec.address))
        neighbor = self.speaker.neighbor(address) if address in self._specs else None
        return neighbor is not None and neighbor.up is not None and neighbor.ended.issuperset(neighbor.up.families)

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(SETTLED_SECONDS)
            for key, evpn in self.evpns.items():
                if (stretched := evpn.stretched) is not None and self.is_settled:
                    stretched.settle()
                    self._enqueue(key, stretched)

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(RECOVER_SECONDS)
            for key, evpn in self.evpns.items():
                if (stretched := evpn.stretched) is not None:
                    stretched.recover(asyncio.get_running_loop().time())
                    self._enqueue(key, stretched)

    async def _complete(self) -> None:
        """Send End-of-RIB to peers, once all attachments are known."""
        deadline = self.started + COMPLETE_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            known = {key for key, _ in self.networks.cache.items()}
            if known <= self.evpns.keys() and all(one.is_known for one in self.evpns.values()):
                break
            await asyncio.sleep(0.02)
        self.speaker.complete()
        self.io.wake()

    # RemoteVTEPs.

    async def _write(self, what: tuple[Key, str]) -> float | None:
        """Bring one RemoteVTEP of an EVPNNetwork up to date; return when to look again if it changes too often."""
        clock = asyncio.get_running_loop().time
        if wait := self._pace.wait(what, clock()):
            return wait
        done = await self._wrote(*what)
        learned = self._due.pop(what, None)
        if done:
            self._pace.note(what, clock())
            self.counters.writes[done] += 1
            if learned is not None:
                self.counters.import_lag.observe(clock() - learned)
        return None

    async def _wrote(self, key: Key, name: str) -> str:
        """Create, change or delete a RemoteVTEP; return what was done."""
        have = self._remote.cache.get(key.namespace, name)
        evpn = self.evpns.get(key)
        stretched = evpn.stretched if evpn is not None else None
        if stretched is not None and not stretched.is_forwarding:
            return ""  # Nodes need what is there until another speaker has written its own.
        spec = stretched.imports.spec(name) if stretched is not None else None
        client = self._services.client
        if spec is None or evpn is None:
            if have is not None:
                await client.delete(REMOTE_VTEP, key.namespace, name, uid=have.metadata.uid)
                return "delete"
            if stretched is not None:
                stretched.imports.forget(name)
                self._enqueue(key, stretched)  # What was refused, and has room now.
            return ""
        if have is None:
            await client.create(_made(name, evpn.value, spec))
            return "create"
        if have.spec == spec:
            return ""
        if _identity(have.spec) != _identity(spec):
            await client.delete(REMOTE_VTEP, key.namespace, name, uid=have.metadata.uid)
            return "delete"
        await client.update(msgspec.structs.replace(have, spec=spec))
        return "update"

    def remote_changed(self, change: Change[RemoteVTEP]) -> None:
        """Reconcile a RemoteVTEP that this speaker or another client has changed."""
        for one in (change.old, change.new):
            if one is not None:
                self._look_again(one)

    def _look_again(self, one: RemoteVTEP) -> None:
        key = Key(one.metadata.namespace, one.spec.evpn_network)
        if key in self.evpns:
            self.writer.queue.add((key, one.metadata.name))


def _matters(value: EVPNNetwork) -> object:
    """Return what routes depend on: not the counts that the speaker writes itself."""
    status = value.status
    return value.metadata.uid, value.spec, status.vni, status.rd_number, status.forwarding, status.turn, status.subnets


def _identity(spec: RemoteVTEPSpec) -> tuple[object, ...]:
    return (spec.evpn_network, spec.network, spec.node, spec.address, spec.vni, spec.local_vni)


def _made(name: str, owner: EVPNNetwork, spec: RemoteVTEPSpec) -> RemoteVTEP:
    reference = OwnerReference(
        api_version=EVPN_NETWORK.api_version,
        kind=EVPN_NETWORK.name,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
    )
    metadata = ObjectMeta(name=name, namespace=owner.metadata.namespace, owner_references=(reference,))
    return RemoteVTEP(api_version=REMOTE_VTEP.api_version, kind=REMOTE_VTEP.name, metadata=metadata, spec=spec)
