"""Plans the mirrors of a node: those with an end that is plugged there.  Pure.

    both ends here          source ──mirror──► destination
    ends on two nodes       source ──mirror──► GRE port ─ ─ ─ ─► GRE port ──mirror──► destination

The controller writes the way between nodes into the status of a Mirror (`plan/ovn/layer2`): an agent does not know the
attachments of other nodes. OVN has no flows for the GRE ports: what arrives there is copied and dropped.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from netloom.model.kinds.paths import Mirror, MirrorDirection
from netloom.plan import names
from netloom.plan.problem import Unit


class GrePort(Struct, frozen=True):
    """The GRE port that carries copies from node to node."""

    name: str
    options: dict[str, str]


class MirrorPlan(Struct, frozen=True):
    """One mirror, by names of ports."""

    source: str
    destination: str
    sent: bool
    """Whether packets that the source sends are copied."""
    received: bool
    tunnel: GrePort | None = None
    """The end that leads to another node, or from there."""


def plan_mirrors(mirrors: Iterable[Mirror], device: Callable[[str, str], str]) -> dict[Unit, MirrorPlan]:
    """Return the mirrors of a node.

    `device` returns the device on the switch of an attachment, by namespace and name; "" if there is none.
    """
    found = {}
    for mirror in mirrors:
        namespace, spec = mirror.metadata.namespace, mirror.spec
        source, destination = device(namespace, spec.source.attachment), device(namespace, spec.destination.attachment)
        plan = None if mirror.metadata.deletion_timestamp else _plan(mirror, source, destination)
        if plan is not None:
            found[Unit(mirror.kind, namespace, mirror.metadata.name)] = plan
    return found


def _plan(mirror: Mirror, source: str, destination: str) -> MirrorPlan | None:
    """Return the mirror of a node that has these devices; None: it has none of the ends, or the other is nowhere."""
    direction, way = mirror.spec.direction, mirror.status.tunnel
    sent, received = direction is not MirrorDirection.INGRESS, direction is not MirrorDirection.EGRESS
    if source and destination:
        return MirrorPlan(source, destination, sent, received)
    if way is None or not (source or destination):
        return None
    name = names.mirror_tunnel(way.key)
    local, remote = (way.source_ip, way.destination_ip) if source else (way.destination_ip, way.source_ip)
    port = GrePort(name, {"local_ip": local, "remote_ip": remote, "key": str(way.key)})
    if source:
        return MirrorPlan(source, name, sent, received, port)
    return MirrorPlan(name, destination, sent=True, received=False, tunnel=port)
