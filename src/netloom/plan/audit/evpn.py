"""BGP speakers, their sessions and EVPNNetworks that do not work, from the objects alone.  Pure.

What has the same cause is reported once: not the peers of a speaker that is not there, and not an EVPNNetwork whose
speaker waits for another one that forwards.
"""

from collections.abc import Iterable, Iterator

from netloom.model.document import Condition, Resource
from netloom.model.kinds.bgp import BGPPeer, BGPSpeaker, BGPState, EVPNNetwork, RemoteVTEP
from netloom.plan.audit.finding import Check, Finding

KINDS: tuple[type[Resource], ...] = (BGPSpeaker, BGPPeer, EVPNNetwork, RemoteVTEP)
"""What is read."""
NO_SESSION = "NoSession"
"""The reason of an EVPNNetwork whose speaker has no established session."""
FEW = 5
"""How many duplicates are named."""

_Key = tuple[str, str]


def audit(resources: Iterable[Resource]) -> list[Finding]:
    """Return what does not work."""
    every = list(resources)
    speakers = {_key(one): one for one in every if isinstance(one, BGPSpeaker)}
    peers = [one for one in every if isinstance(one, BGPPeer)]
    networks = {_key(one): one for one in every if isinstance(one, EVPNNetwork)}
    peered = {(one.metadata.namespace, one.spec.speaker) for one in peers}
    found = [finding for one in speakers.values() for finding in _speaker(one)]
    found += [finding for one in peers for finding in _peer(one, speakers)]
    waiting = standby(networks.values())
    found += [finding for one in networks.values() for finding in _network(one, waiting, peered)]
    for one in every:
        if isinstance(one, RemoteVTEP) and (one.metadata.namespace, one.spec.evpn_network) not in networks:
            text = f"its EVPNNetwork {one.spec.evpn_network} does not exist"
            found.append(_finding(Check.ORPHANED_VTEP, one, text))
    return sorted(found)


def standby(networks: Iterable[EVPNNetwork]) -> set[_Key]:
    """Return the EVPNNetworks whose speaker would forward if that of another one, which does, were silent."""
    every = list(networks)
    forwarded = {(one.metadata.namespace, one.spec.network) for one in every if one.status.forwarding}
    return {
        _key(one)
        for one in every
        if not one.status.forwarding
        and one.status.vni is not None
        and (one.metadata.namespace, one.spec.network) in forwarded
    }


def _speaker(one: BGPSpeaker) -> Iterator[Finding]:
    ready = one.status.condition("Ready")
    if ready is None:
        yield _finding(Check.SPEAKER_NOT_READY, one, f"no process on node {one.spec.node} runs it")
    elif ready.status != "True":
        yield _finding(Check.SPEAKER_NOT_READY, one, _words(ready))


def _peer(one: BGPPeer, speakers: dict[_Key, BGPSpeaker]) -> Iterator[Finding]:
    speaker = speakers.get((one.metadata.namespace, one.spec.speaker))
    status = one.status
    if speaker is None:
        yield _finding(Check.PEER_NOT_ESTABLISHED, one, f"there is no BGPSpeaker {one.spec.speaker}")
    elif status.state is not BGPState.ESTABLISHED and not list(_speaker(speaker)):
        state = status.state.value if status.state is not None else "not started"
        why = f": {status.last_error}" if status.last_error else ""
        yield _finding(Check.PEER_NOT_ESTABLISHED, one, f"its session with {one.spec.address} is {state}{why}")


def _network(one: EVPNNetwork, waiting: set[_Key], peered: set[_Key]) -> Iterator[Finding]:
    ready, namespace = one.status.condition("Ready"), one.metadata.namespace
    if ready is None:
        yield _finding(Check.EVPN_NOT_READY, one, "no controller has processed it: check that one runs")
    elif ready.status != "True" and _key(one) not in waiting:
        text = _words(ready)
        if ready.reason == NO_SESSION and (namespace, one.spec.speaker) not in peered:
            text = f"no BGPPeer names its speaker {one.spec.speaker}"
        yield _finding(Check.EVPN_NOT_READY, one, text)
    if macs := one.status.duplicate_macs:
        more = f" and {len(macs) - FEW} more" if len(macs) > FEW else ""
        are = "are" if len(macs) > 1 else "is"
        text = f"{', '.join(macs[:FEW])}{more} {are} attached here, and announced by another site too"
        yield _finding(Check.DUPLICATE_EVPN_MAC, one, text)


def _words(condition: Condition) -> str:
    return condition.message or f"Ready is {condition.status} ({condition.reason})"


def _finding(check: Check, one: Resource, message: str) -> Finding:
    return Finding(check, one.kind, one.metadata.namespace, one.metadata.name, message, uid=one.metadata.uid)


def _key(one: Resource) -> _Key:
    return one.metadata.namespace, one.metadata.name
