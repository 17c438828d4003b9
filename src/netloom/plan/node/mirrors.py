"""Plans the mirrors of a node: those whose source and destination are both plugged there.  Pure.

OVN makes the mirrors between nodes (`plan/ovn/layer2`).
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from netloom.model.kinds.paths import Mirror, MirrorDirection
from netloom.plan.problem import Unit


class MirrorPlan(Struct, frozen=True):
    """One mirror, by device names."""

    source: str
    destination: str
    sent: bool
    """Whether packets that the source sends are copied."""
    received: bool


def plan_mirrors(mirrors: Iterable[Mirror], device: Callable[[str, str], str]) -> dict[Unit, MirrorPlan]:
    """Return the mirrors of a node.

    `device` returns the device on the switch of an attachment, by namespace and name; "" if there is none.
    """
    found = {}
    for mirror in mirrors:
        namespace, spec = mirror.metadata.namespace, mirror.spec
        source, destination = device(namespace, spec.source.attachment), device(namespace, spec.destination.attachment)
        if source and destination and not mirror.metadata.deletion_timestamp:
            found[Unit(mirror.kind, namespace, mirror.metadata.name)] = MirrorPlan(
                source,
                destination,
                spec.direction is not MirrorDirection.INGRESS,
                spec.direction is not MirrorDirection.EGRESS,
            )
    return found
