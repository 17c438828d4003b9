"""The statuses of a speaker's objects: BGPSpeaker, BGPPeers, EVPNNetworks.

A session that comes up or ends is written at once, counts at most once a second, the heartbeat every five. The
controller of EVPNNetworks writes `Ready`, `vni` and `forwarding` of an EVPNNetwork; the rest is written here.
"""

import asyncio
from typing import TYPE_CHECKING, NoReturn

import msgspec

from netloom.bgp.fsm import Established, State
from netloom.bgp.speaker import SessionEvent
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import stamp
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.queue import Backoff, Pace
from netloom.model.document import Condition
from netloom.model.kinds.bgp import SPEAKER_HEARTBEAT_SECONDS, BGPState, EVPNNetwork
from netloom.plan.problem import Unit

if TYPE_CHECKING:
    from netloom.control.evpn.speaker import RunningSpeaker, SpeakerServices

COUNTS_SECONDS = 1.0
ADVERTISED = "Advertised"
"""The condition that a Network is announced to at least one peer."""
MOST_LISTED = 4096
BACKOFF = Backoff(unreachable=Pace(0.2, 5.0))


class StatusWriter:
    """Writes the statuses."""

    def __init__(self, running: "RunningSpeaker", services: "SpeakerServices") -> None:
        self._running = running
        self._services = services
        self._since: dict[str, str] = {}
        """When the session of a peer, by address, last came up or ended."""
        self._beat = ""
        self._errors: dict[str, str] = {}
        """Why a session last ended, by address."""
        self._duplicates: dict[str, frozenset[str]] = {}
        self._controller: Controller[Unit] = Controller(
            "speaker-statuses", self._reconcile, random=services.random, workers=4, backoff=BACKOFF
        )

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._count())
            group.create_task(self._beats())

    def enqueue_all(self) -> None:
        """Enqueue all statuses."""
        running = self._running
        queue = self._controller.queue
        queue.add(Unit("BGPSpeaker", *running.key))
        queue.update(Unit("BGPPeer", *key) for key, _ in running.peers.cache.items())
        queue.update(Unit("EVPNNetwork", *key) for key, _ in running.networks.cache.items())

    def session_changed(self, event: SessionEvent) -> None:
        """Report that a session came up or ended."""
        running = self._running
        self._since[event.peer] = stamp(self._services.clock())
        name = running.peer_name(event.peer)
        peer = running.peers.cache.get(running.key.namespace, name) if name else None
        if not event.is_up:
            self._errors[event.peer] = event.why
        if peer is not None:
            if event.is_up:
                self._services.recorder.normal(peer, "SessionUp", f"the session with {event.peer} is established")
            else:
                self._services.recorder.warning(
                    peer, "SessionDown", f"the session with {event.peer} ended: {event.why}"
                )
        self.enqueue_all()

    def since(self, address: str) -> str:
        """Return when the session of a peer last came up or ended; "": it was never up."""
        return self._since.get(address, "")

    async def _count(self) -> NoReturn:
        while True:
            await asyncio.sleep(COUNTS_SECONDS)
            self.enqueue_all()

    async def _beats(self) -> NoReturn:
        while True:
            self._beat = stamp(self._services.clock())
            await asyncio.sleep(SPEAKER_HEARTBEAT_SECONDS)

    async def _reconcile(self, unit: Unit) -> None:
        match unit.kind:
            case "BGPSpeaker":
                await self._speaker()
            case "BGPPeer":
                await self._peer(unit)
            case _:
                await self._network(unit)

    async def _speaker(self) -> None:
        running = self._running
        value = running.value
        error = running.error
        ready = Condition(
            type=READY,
            status=FALSE if error else TRUE,
            observed_generation=value.metadata.generation,
            reason="ListenFailed" if error else READY,
            message=error,
        )
        speaker = running.speaker
        status = msgspec.structs.replace(
            value.status,
            peers=len(speaker.configs()),
            established=sum(speaker.neighbor(name).up is not None for name in speaker.configs()),
            last_heartbeat=self._beat,
            conditions=with_condition(value.status.conditions, ready, self._services.clock()),
        )
        await self._services.client.update_status(value, status)

    async def _peer(self, unit: Unit) -> None:
        running = self._running
        value = running.peers.cache.get(unit.namespace, unit.name)
        if value is None:
            return
        address, generation = value.spec.address, value.metadata.generation
        problem = running.peer_errors.get(unit.name, "")
        neighbor = None
        if running.peer_name(address) == unit.name:
            neighbor = running.speaker.neighbor(address)
        up = neighbor.up if neighbor is not None else None
        state = neighbor.peer.state if neighbor is not None else State.IDLE
        error = problem or (neighbor.last_error if neighbor is not None else "") or self._errors.get(address, "")
        ready = Condition(
            type=READY,
            status=TRUE if up is not None else FALSE,
            observed_generation=generation,
            reason="Established" if up is not None else "InvalidPeer" if problem else "NotEstablished",
            message="" if up is not None else error,
        )
        status = msgspec.structs.replace(
            value.status,
            state=_STATES[state],
            received=running.speaker.received(address),
            sent=neighbor.out.count() if neighbor is not None and neighbor.out is not None else 0,
            since=self._since.get(address, ""),
            capabilities=_capabilities(up),
            last_error=error[:1024],
            observed_generation=generation,
            conditions=with_condition(value.status.conditions, ready, self._services.clock()),
        )
        await self._services.client.update_status(value, status)

    async def _network(self, unit: Unit) -> None:
        running = self._running
        value = running.networks.cache.get(unit.namespace, unit.name)
        evpn = running.evpns.get(Key(unit.namespace, unit.name))
        if value is None or evpn is None:
            return
        generation, stretched = value.metadata.generation, evpn.stretched
        status = value.status
        sessions = sum(running.speaker.neighbor(name).up is not None for name in running.speaker.configs())
        if stretched is not None:
            duplicates = stretched.duplicates(asyncio.get_running_loop().time())
            self._report_duplicates(value, duplicates)
            status = msgspec.structs.replace(
                status,
                remote_vteps=tuple(sorted({place.address for place in stretched.imports.places()}))[:MOST_LISTED],
                remote_macs=stretched.imports.macs,
                local_macs=len(stretched.exports) if stretched.is_forwarding else 0,
                duplicate_macs=tuple(duplicates)[:MOST_LISTED],
            )
        forwards = stretched is not None and stretched.is_forwarding
        holds, reason, message = _advertised(evpn.problem, forwards, sessions)
        advertised = Condition(
            type=ADVERTISED,
            status=holds,
            observed_generation=generation,
            reason=reason,
            message=message,
        )
        conditions = with_condition(status.conditions, advertised, self._services.clock())
        await self._services.client.update_status(value, msgspec.structs.replace(status, conditions=conditions))

    def _report_duplicates(self, value: EVPNNetwork, duplicates: list[str]) -> None:
        before = self._duplicates.get(value.metadata.uid, frozenset())
        for mac in duplicates:
            if mac not in before:
                text = f"{mac} is attached here, and another site announces it too: detach one of the two"
                self._services.recorder.warning(value, "DuplicateMAC", text)
        self._duplicates[value.metadata.uid] = frozenset(duplicates)


_STATES = {state: BGPState(state.value) for state in State}


def _advertised(problem: str, forwarding: bool, sessions: int) -> tuple[str, str, str]:
    """Return the status, the reason and the message of the condition."""
    if problem:
        return FALSE, "NotExtended", problem
    if not sessions:
        return FALSE, "NoSession", "no session is established: see the BGPPeers of the speaker"
    if not forwarding:
        return TRUE, "Standby", "another speaker forwards for this Network"
    return TRUE, ADVERTISED, ""


def _capabilities(up: Established | None) -> tuple[str, ...]:
    """Return what both sides have agreed on, as FRR names it."""
    if up is None:
        return ()
    theirs = up.peer.capabilities
    words = {
        "route refresh": theirs.refresh,
        "enhanced route refresh": theirs.enhanced_refresh,
        "extended messages": theirs.extended_messages,
        "graceful restart": theirs.graceful_restart is not None,
        "4-octet AS": theirs.asn is not None,
    }
    return tuple(sorted([*map(str, up.families), *(word for word, has in words.items() if has)]))
