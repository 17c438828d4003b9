"""EVPNNetworks, in the controller: which are accepted, with which VNI, and whose speaker forwards.

    Network, BGPSpeaker, other EVPNNetworks ──► Accepted, vni
    heartbeats of BGPSpeakers ────────────────► forwarding: of several EVPNNetworks of a Network, one
    Accepted, Advertised (the speaker's) ─────► Ready

Of several, the one that forwards stays, as long as its speaker sends heartbeats; then the next by name is chosen. So
two speakers never announce one Network, or carry its frames, at the same time. Each time that another one is chosen
begins a turn, with a higher number: peers that keep routes of the earlier one must prefer those of the new one.

A route distinguisher `routerID:n` has a number of 16 bits. It is the VNI, or for a larger VNI a free number: two
speakers of one AS would otherwise have the same distinguisher, and a route reflector would pass on one of them only.
A RemoteVTEP that no speaker of its
EVPNNetwork can have written is deleted.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, TRUE, UNKNOWN, summary, with_condition
from netloom.control.runtime.events import Recorder
from netloom.model.document import Condition, Resource
from netloom.model.kinds.bgp import SPEAKER_SILENT_SECONDS, AdvertisedSubnet, BGPSpeaker, EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Fabric, Network, Router, Subnet
from netloom.model.registry import REMOTE_VTEP
from netloom.plan.ovn.layer3.advertised import advertised_subnets
from netloom.plan.problem import Problem, Unit

ACCEPTED, ADVERTISED = "Accepted", "Advertised"
LAST_RD_NUMBER = 0xFFFF
BY_NETWORK, BY_SPEAKER, BY_EVPN_NETWORK = "network", "speaker", "evpnNetwork"
_NETWORK, _SPEAKER, _REMOTE = "EVPNNetwork", "BGPSpeaker", "RemoteVTEP"


def by_network(value: EVPNNetwork) -> tuple[str, ...]:
    """Index an EVPNNetwork by its Network."""
    return (f"{value.metadata.namespace}/{value.spec.network}",)


def by_speaker(value: EVPNNetwork) -> tuple[str, ...]:
    """Index an EVPNNetwork by its speaker."""
    return (f"{value.metadata.namespace}/{value.spec.speaker}",)


def by_evpn_network(value: RemoteVTEP) -> tuple[str, ...]:
    """Index a RemoteVTEP by its EVPNNetwork."""
    return (f"{value.metadata.namespace}/{value.spec.evpn_network}",)


class EvpnReconciler:
    """Reconciles EVPNNetworks, silent BGPSpeakers, and RemoteVTEPs that no speaker can have written."""

    def __init__(
        self,
        client: Client,
        *,
        evpn_networks: Cache[EVPNNetwork],
        speakers: Cache[BGPSpeaker],
        networks: Cache[Network],
        remote: Cache[RemoteVTEP],
        routers: Cache[Router],
        subnets: Cache[Subnet],
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        """`evpn_networks` is indexed BY_NETWORK and BY_SPEAKER, `remote` BY_EVPN_NETWORK."""
        self._client = client
        self._evpn_networks = evpn_networks
        self._speakers = speakers
        self._networks = networks
        self._remote = remote
        self._routers = routers
        self._subnets = subnets
        self._recorder = recorder
        self._clock = clock
        self._heard: dict[Key, tuple[str, float]] = {}
        """The last heartbeat of a speaker, and when it was seen, by this process's clock."""

    def all_keys(self) -> Iterable[Unit]:
        """Return all keys."""
        caches: dict[str, Cache[EVPNNetwork] | Cache[BGPSpeaker] | Cache[RemoteVTEP]] = {
            _NETWORK: self._evpn_networks,
            _SPEAKER: self._speakers,
            _REMOTE: self._remote,
        }
        return [Unit(kind, *key) for kind, cache in caches.items() for key, _ in cache.items()]

    def event_target(self, unit: Unit) -> Resource | None:
        """Return the object of a key, for Events."""
        if unit.kind == _NETWORK:
            return self._evpn_networks.get(unit.namespace, unit.name)
        return self._speakers.get(unit.namespace, unit.name) if unit.kind == _SPEAKER else None

    def evpn_changed(self, change: Change[EVPNNetwork]) -> Iterable[Unit]:
        """Return the keys that a change of an EVPNNetwork concerns."""
        units = {Unit(_NETWORK, *change.key)}
        if change.old is not None and change.new is not None and _matters(change.old) == _matters(change.new):
            return units
        for one in (change.old, change.new):
            if one is not None:
                units |= set(self._of(BY_NETWORK, one.metadata.namespace, one.spec.network))
                units |= set(self._of(BY_SPEAKER, one.metadata.namespace, one.spec.speaker))
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            units |= set(self._remotes(change.key))
        return units

    def speaker_changed(self, change: Change[BGPSpeaker]) -> Iterable[Unit]:
        """Return the keys that a change of a speaker concerns."""
        found = [Unit(_SPEAKER, *change.key)]
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            users = list(self._of(BY_SPEAKER, *change.key))
            found += users
            found += [remote for user in users for remote in self._remotes(Key(user.namespace, user.name))]
        return found

    def network_changed(self, change: Change[Network]) -> Iterable[Unit]:
        """Return the keys that a change of a Network concerns."""
        return self._of(BY_NETWORK, *change.key)

    def routed_changed(self, change: Change[Router] | Change[Subnet]) -> Iterable[Unit]:
        """Return the keys that a change of a Router or a Subnet concerns: those that advertise Subnets."""
        if change.old is not None and change.new is not None and _routed(change.old) == _routed(change.new):
            return ()
        return [
            Unit(_NETWORK, *key)
            for key, one in self._evpn_networks.items()
            if one.spec.advertise_subnets and key.namespace == change.key.namespace
        ]

    def remote_changed(self, change: Change[RemoteVTEP]) -> Iterable[Unit]:
        """Return the key of a RemoteVTEP that was created."""
        return () if change.new is None else (Unit(_REMOTE, *change.key),)

    def _of(self, index: str, namespace: str, name: str) -> list[Unit]:
        return [
            Unit(_NETWORK, one.metadata.namespace, one.metadata.name)
            for one in self._evpn_networks.indexed(index, f"{namespace}/{name}")
        ]

    def _remotes(self, evpn: Key) -> list[Unit]:
        return [
            Unit(_REMOTE, one.metadata.namespace, one.metadata.name)
            for one in self._remote.indexed(BY_EVPN_NETWORK, str(evpn))
        ]

    async def reconcile(self, unit: Unit) -> float | None:
        """Reconcile one object; return after how many seconds to reconcile it again."""
        key = Key(unit.namespace, unit.name)
        match unit.kind:
            case "BGPSpeaker":
                return await self._speaker(key)
            case "RemoteVTEP":
                await self._remove(key)
            case _:
                return await self._evpn(key)
        return None

    # Speakers.

    async def _speaker(self, key: Key) -> float | None:
        speaker = self._speakers.get(*key)
        if speaker is None:
            self._heard.pop(key, None)
            return None
        left = self._until_silent(key, speaker)
        if left > 0:
            return left
        text = (
            f"no heartbeat for {SPEAKER_SILENT_SECONDS:g} seconds: check that `netloom agent` or `netloom speaker` "
            f"runs on node {speaker.spec.node}"
        )
        ready = speaker.status.condition(READY)
        if ready is None or ready.status == TRUE:
            silent = Condition(
                type=READY,
                status=UNKNOWN,
                observed_generation=speaker.metadata.generation,
                reason="SpeakerSilent",
                message=text,
            )
            conditions = with_condition(speaker.status.conditions, silent, self._clock())
            await self._client.update_status(speaker, msgspec.structs.replace(speaker.status, conditions=conditions))
            self._recorder.warning(speaker, "SpeakerSilent", text)
        return None

    def _until_silent(self, key: Key, speaker: BGPSpeaker) -> float:
        """Return for how many seconds a speaker may still be silent; 0: it is."""
        now = asyncio.get_running_loop().time()
        beat, since = self._heard.get(key, ("", now))
        if key not in self._heard or beat != speaker.status.last_heartbeat:
            since = now
            self._heard[key] = (speaker.status.last_heartbeat, now)
        return max(0.0, SPEAKER_SILENT_SECONDS - (now - since))

    def _is_alive(self, one: EVPNNetwork) -> bool:
        key = Key(one.metadata.namespace, one.spec.speaker)
        speaker = self._speakers.get(*key)
        if speaker is None or not speaker.status.last_heartbeat or not self._until_silent(key, speaker):
            return False
        ready = speaker.status.condition(READY)
        return ready is None or ready.status != FALSE

    # EVPNNetworks.

    async def _evpn(self, key: Key) -> float | None:
        value = self._evpn_networks.get(*key)
        if value is None or value.metadata.deletion_timestamp:
            return None
        network = self._networks.get(key.namespace, value.spec.network)
        problem, vni = self._judge(value, network)
        others = [
            one
            for one in self._evpn_networks.indexed(BY_NETWORK, f"{key.namespace}/{value.spec.network}")
            if not one.metadata.deletion_timestamp and self._judge(one, network)[0] is None
        ]
        forwarding = problem is None and self._forwarder(others) == key.name
        if forwarding and any(one.status.forwarding for one in others if one.metadata.name != key.name):
            return 0.1  # The other one stops first.
        number = self._rd_number(value, vni) if problem is None else None
        generation = value.metadata.generation
        speaker = self._speakers.get(key.namespace, value.spec.speaker)
        accepted = Condition(
            type=ACCEPTED,
            status=TRUE if problem is None else FALSE,
            observed_generation=generation,
            reason=ACCEPTED if problem is None else problem.reason,
            message="" if problem is None else problem.message,
        )
        now = self._clock()
        conditions = with_condition(value.status.conditions, accepted, now)
        conditions = with_condition(conditions, summary(conditions, (ACCEPTED, ADVERTISED), generation), now)
        status = msgspec.structs.replace(
            value.status,
            vni=vni if problem is None else None,
            rd_number=number,
            forwarding=forwarding,
            turn=_turn(value, others) if forwarding else value.status.turn,
            subnets=self._advertised(value) if problem is None else (),
            node="" if problem is not None or speaker is None else speaker.spec.node,
            observed_generation=generation,
            conditions=conditions,
        )
        await self._client.update_status(value, status)
        # A heartbeat that does not come is no change: look again while there is a choice.
        return SPEAKER_SILENT_SECONDS / 3 if len(others) > 1 or not forwarding else None

    def _advertised(self, value: EVPNNetwork) -> tuple[AdvertisedSubnet, ...]:
        if not value.spec.advertise_subnets:
            return ()
        namespace = value.metadata.namespace
        routers = [one for one in self._routers if one.metadata.namespace == namespace]
        subnets = [one for one in self._subnets if one.metadata.namespace == namespace]
        return tuple(advertised_subnets(value.spec.network, routers, subnets))

    def _forwarder(self, candidates: list[EVPNNetwork]) -> str:
        """Return the name of the one that forwards; "": none."""
        # Without a live speaker, the last one's routes and RemoteVTEPs stay as they are.
        best = min(
            candidates,
            key=lambda one: (not self._is_alive(one), not one.status.forwarding, one.metadata.name),
            default=None,
        )
        return best.metadata.name if best is not None else ""

    def _judge(self, value: EVPNNetwork, network: Network | None) -> tuple[Problem | None, int]:
        """Return why an EVPNNetwork is not accepted, and its VNI."""
        namespace, spec = value.metadata.namespace, value.spec
        if network is None:
            return Problem("NetworkMissing", f"spec.network: there is no Network {spec.network}: create it"), 0
        if self._speakers.get(namespace, spec.speaker) is None:
            return Problem("SpeakerMissing", f"spec.speaker: there is no BGPSpeaker {spec.speaker}: create it"), 0
        own = network.status.vni
        vni = spec.vni or own
        if vni is None:
            return Problem("NetworkWithoutVNI", f"spec.network: Network {spec.network} has no VNI yet"), 0
        if network.spec.fabric is Fabric.VXLAN and own is not None and vni != own:
            text = f"spec.vni: a Network of fabric vxlan is extended with its own VNI, {own}: remove the field"
            return Problem("OtherVNI", text), 0
        if network.spec.fabric is Fabric.LINUX:
            return Problem("FabricUnsupported", "spec.network: a Network of fabric linux cannot be extended"), 0
        for other in self._evpn_networks.indexed(BY_SPEAKER, f"{namespace}/{spec.speaker}"):
            if other.metadata.name != value.metadata.name and self._is_before(other, value):
                if other.spec.network == spec.network:
                    named = f"EVPNNetwork {other.metadata.name}"
                    text = f"spec.network: {named} extends it by the same speaker: delete one of them"
                    return Problem("AlreadyExtended", text), 0
                if other.status.vni == vni:
                    text = (
                        f"spec.vni: EVPNNetwork {other.metadata.name} of the same speaker has VNI {vni}: choose another"
                    )
                    return Problem("VNIInUse", text), 0
        return None, vni

    def _rd_number(self, value: EVPNNetwork, vni: int) -> int | None:
        """Return the number in the route distinguisher; None if all are taken."""
        if vni <= LAST_RD_NUMBER:
            return vni
        namespace, spec = value.metadata.namespace, value.spec
        others = [
            other
            for other in self._evpn_networks.indexed(BY_SPEAKER, f"{namespace}/{spec.speaker}")
            if other.metadata.name != value.metadata.name and other.status.rd_number is not None
        ]
        known = value.status.rd_number
        # A number that two have chosen at the same time is the earlier one's; a VNI that fits is never another's.
        rivals = (one for one in others if (one.status.vni or 0) <= LAST_RD_NUMBER or self._is_before(one, value))
        if known is not None and value.status.vni == vni and all(one.status.rd_number != known for one in rivals):
            return known
        taken = {one.status.rd_number for one in others}
        first = vni & LAST_RD_NUMBER
        numbers = ((first + step) % LAST_RD_NUMBER + 1 for step in range(LAST_RD_NUMBER))
        return next((number for number in numbers if number not in taken), None)

    @staticmethod
    def _is_before(one: EVPNNetwork, other: EVPNNetwork) -> bool:
        def age(value: EVPNNetwork) -> tuple[bool, str, str]:
            return (value.status.vni is None, value.metadata.creation_timestamp or "", value.metadata.name)

        return not one.metadata.deletion_timestamp and age(one) < age(other)

    # RemoteVTEPs.

    async def _remove(self, key: Key) -> None:
        """Delete a RemoteVTEP unless a speaker of its EVPNNetwork can have written it."""
        remote = self._remote.get(*key)
        if remote is None:
            return
        spec = remote.spec
        evpn = self._evpn_networks.get(key.namespace, spec.evpn_network)
        speaker = None if evpn is None else self._speakers.get(key.namespace, evpn.spec.speaker)
        if evpn is None or speaker is None or (speaker.spec.node, evpn.spec.network) != (spec.node, spec.network):
            await self._client.delete(REMOTE_VTEP, *key, uid=remote.metadata.uid)


def _turn(value: EVPNNetwork, candidates: Iterable[EVPNNetwork]) -> int:
    """Return the turn of the EVPNNetwork that forwards: a higher one than those of others."""
    last = max((one.status.turn for one in candidates if one.metadata.name != value.metadata.name), default=0)
    return value.status.turn if value.status.turn > last else last + 1


def _routed(value: Router | Subnet) -> object:
    """Return what advertised Subnets depend on."""
    return value.spec, value.status.validated if isinstance(value, Subnet) else None


def _matters(value: EVPNNetwork) -> object:
    """Return what other EVPNNetworks depend on."""
    status = value.status
    return value.spec, value.metadata.deletion_timestamp, status.vni, status.rd_number, status.forwarding, status.turn
