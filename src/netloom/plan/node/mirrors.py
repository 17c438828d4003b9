"""Plans the mirrors of a node: those with a source or the destination plugged there.  Pure.

    on the destination's node    sources ──mirror──► destination
    on every other node          sources ──mirror──► GRE port ─ ─ ─ ─► GRE port ──mirror──► destination

The controller writes the ways between nodes into the status of a Mirror (`plan/ovn/layer2`): an agent does not know the
attachments of other nodes. OVN has no flows for the GRE ports: what arrives there is copied and dropped.
"""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from netloom.model.kinds.paths import Mirror, MirrorDirection, MirrorTunnel
from netloom.plan import names
from netloom.plan.problem import Unit


class GrePort(Struct, frozen=True):
    """A GRE port that carries copies from node to node."""

    name: str
    options: dict[str, str]


class MirrorPlan(Struct, frozen=True, kw_only=True):
    """One mirror, by names of ports."""

    destination: str
    sent: frozenset[str] = frozenset()
    """The ports of which packets are copied that their machines send, or that arrive there through a tunnel."""
    received: frozenset[str] = frozenset()
    """The ports of which packets are copied that their machines receive."""
    tunnels: tuple[GrePort, ...] = ()
    """Those of the ports that lead to another node, or from there."""


def plan_mirrors(
    mirrors: Iterable[Mirror],
    underlay: str,
    device: Callable[[str, str], str],
    devices: Callable[[str, str], Collection[str]],
) -> dict[Unit, MirrorPlan]:
    """Return the mirrors of the node with this underlay address.

    `device` returns the device on the switch of an attachment, by namespace and name; "" if there is none. `devices`
    returns those of a Network.
    """
    found = {}
    for mirror in mirrors:
        namespace, spec = mirror.metadata.namespace, mirror.spec
        destination, source = device(namespace, spec.destination.attachment), spec.source
        one = device(namespace, source.attachment) if source.attachment else ""
        several = {one} if source.attachment else set(devices(namespace, source.network))
        plan = None
        if not mirror.metadata.deletion_timestamp:
            plan = _plan(mirror, underlay, frozenset(several - {"", destination}), destination)
        if plan is not None:
            found[Unit(mirror.kind, namespace, mirror.metadata.name)] = plan
    return found


def _plan(mirror: Mirror, underlay: str, sources: frozenset[str], destination: str) -> MirrorPlan | None:
    """Return the mirror of a node that has these devices; None: it has nothing to copy, or does not know where to."""
    direction, ways = mirror.spec.direction, mirror.status.tunnels
    none = frozenset[str]()
    sent = sources if direction is not MirrorDirection.INGRESS else none
    received = sources if direction is not MirrorDirection.EGRESS else none
    if destination:
        ports = tuple(_gre_port(way, way.destination_ip, way.source_ip) for way in ways)
        arriving = {port.name for port in ports}
        if not sources and not arriving:
            return None
        return MirrorPlan(destination=destination, sent=sent | arriving, received=received, tunnels=ports)
    mine = [way for way in ways if way.source_ip == underlay]
    if not sources or not mine:
        return None
    port = _gre_port(mine[0], mine[0].source_ip, mine[0].destination_ip)
    return MirrorPlan(destination=port.name, sent=sent, received=received, tunnels=(port,))


def _gre_port(way: MirrorTunnel, local: str, remote: str) -> GrePort:
    return GrePort(names.mirror_tunnel(way.key), {"local_ip": local, "remote_ip": remote, "key": str(way.key)})
