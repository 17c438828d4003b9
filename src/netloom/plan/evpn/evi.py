"""An EVPNNetwork as an EVPN instance: its VNI, its route distinguisher, its route targets.  Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Address

from msgspec import Struct

from netloom.bgp.communities import (
    auto_target,
    encapsulation,
    route_distinguisher,
    route_target,
)
from netloom.bgp.rib import membership
from netloom.model.kinds.bgp import AddressFamily, BGPPeerSpec, BGPSpeaker, EVPNNetwork

AUTO = "auto"
EVERY_TARGET = b"\0"
"""The route that asks for routes of all route targets (RFC 4684)."""


class Evi(Struct, frozen=True):
    """What the routes of an EVPNNetwork have in common."""

    vni: int
    rd: bytes
    imports: frozenset[bytes]
    exports: tuple[bytes, ...]
    """Route targets and the encapsulation, as extended communities."""
    vtep: IPv4Address
    """The address of the speaker."""


def evi_of(speaker: BGPSpeaker, network: EVPNNetwork, vni: int) -> Evi:
    """Return the instance of an EVPNNetwork; `ValueError` if the route distinguisher cannot be derived."""
    spec = network.spec

    def target(text: str) -> bytes:
        if text == AUTO:
            return auto_target(speaker.spec.asn, vni, rfc8365=spec.rfc8365_targets)
        return route_target(text)

    distinguisher = distinguisher_text(speaker, network, vni)
    if not distinguisher:
        raise ValueError(f"spec.rd: no number after {speaker.spec.router_id} is free: set the field")
    return Evi(
        vni=vni,
        rd=route_distinguisher(distinguisher),
        imports=frozenset(map(target, spec.import_targets)),
        exports=(*sorted(map(target, spec.export_targets)), encapsulation()),
        vtep=IPv4Address(speaker.spec.router_id),
    )


def distinguisher_text(speaker: BGPSpeaker, network: EVPNNetwork, vni: int) -> str:
    """Return the route distinguisher of an EVPNNetwork as text; "": it has none yet."""
    if network.spec.rd != AUTO:
        return network.spec.rd
    # A number after an address has 16 bits: beyond that, the controller has chosen one.
    number = vni if vni < 1 << 16 else network.status.rd_number
    return "" if number is None else f"{speaker.spec.router_id}:{number}"


def memberships(asn: int, peers: Iterable[BGPPeerSpec], instances: Iterable[Evi]) -> frozenset[bytes]:
    """Return the routes by which a speaker asks its peers for routes of the targets that it needs.

    A speaker that passes routes on between peers needs all of them: a peer does not get its own membership back from a
    reflector, so that it would not know of others with the same target.
    """
    every = list(peers)
    if not any(AddressFamily.ROUTE_TARGETS in one.additional_families for one in every):
        return frozenset()
    if len(every) > 1 and any(one.route_reflector_client or one.remote_asn != asn for one in every):
        return frozenset((EVERY_TARGET,))
    return frozenset(membership(asn, target) for one in instances for target in one.imports)
