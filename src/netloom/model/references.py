"""The table of references: which field of which kind names an object of which other kind.

An object that others name is *in use*. The admission that refuses to delete objects in use, the commands that show
related objects, and the controllers that requeue an object when another changes all read this table; a new field that
names an object needs a line here. A name refers to an object in the same namespace, or to a cluster-scoped object.

The table leaves out the attachments that a Shaping, a Mirror or a child port names: deleting such an attachment is
never refused, and nothing else is lost with it. It also leaves out what a RemoteVTEP names: the object is deleted with
the EVPNNetwork that owns it. And it leaves out the Node of a HostDocument: deleting a Node that is gone for good is how
its HostDocuments end.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVPN_NETWORK,
    LOAD_BALANCER,
    MIRROR,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    NOT_IMPLEMENTED,
    PORT_POOL,
    ROUTER,
    SANDBOX,
    SECURITY_PROFILE,
    SERVICE_CHAIN,
    SHAPING,
    SUBNET,
)


class Reference(Struct, frozen=True):
    """A field that names objects: the field `path` of `holder` names a `target`."""

    holder: Kind
    path: str
    """Such as `spec.network`, or `spec.networks[*].network` for all items of a list or values of a map."""
    target: Kind

    @property
    def selectable(self) -> bool:
        """Whether a field selector may use the field."""
        return self.path in self.holder.selectable

    def names(self, document: Document) -> list[str]:
        """Return the names in the field of a document of kind `holder`."""
        found: list[Any] = [document]
        for step in self.path.split("."):
            name, each, _ = step.partition("[*]")
            found = [at[name] for at in found if isinstance(at, dict) and name in at]
            if each:
                found = [member for at in found for member in _members(at)]
        return [name for name in found if isinstance(name, str)]


def _members(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _all() -> Iterator[Reference]:
    for target, holders in _TABLE.items():
        for holder, paths in holders.items():
            for path in paths:
                yield Reference(holder, path, target)


_TABLE: dict[Kind, dict[Kind, tuple[str, ...]]] = {
    NODE: {
        NETWORK_ATTACHMENT: ("spec.node",),
        PORT_POOL: ("spec.node",),
        ROUTER: ("spec.gateway.nodes[*]",),
        BGP_SPEAKER: ("spec.node",),
        SHAPING: ("spec.from.node", "spec.to.node"),
        SANDBOX: ("spec.placement.default", "spec.placement.hosts[*]", "spec.gateway.nodes[*]"),
    },
    NETWORK: {
        SUBNET: ("spec.network",),
        NETWORK_ATTACHMENT: ("spec.network",),
        ROUTER: ("spec.networks[*].network", "spec.gateway.network"),
        LOAD_BALANCER: ("spec.networks[*]",),
        SHAPING: ("spec.from.network", "spec.to.network"),
        MIRROR: ("spec.source.network",),
        SERVICE_CHAIN: ("spec.left[*].network", "spec.right[*].network"),
        PORT_POOL: ("spec.network",),
        EVPN_NETWORK: ("spec.network",),
        SANDBOX: ("spec.gateway.network",),
    },
    SUBNET: {
        NETWORK_ATTACHMENT: ("spec.subnets[*]",),
        PORT_POOL: ("spec.subnets[*]",),
    },
    ROUTER: {
        LOAD_BALANCER: ("spec.routers[*]",),
        SHAPING: ("spec.from.router", "spec.to.router"),
    },
    SECURITY_PROFILE: {
        NETWORK_ATTACHMENT: ("spec.securityProfiles[*]",),
        PORT_POOL: ("spec.securityProfiles[*]",),
        SECURITY_PROFILE: ("spec.ingress[*].from[*].profile", "spec.egress[*].to[*].profile"),
    },
    BGP_SPEAKER: {
        BGP_PEER: ("spec.speaker",),
        EVPN_NETWORK: ("spec.speaker",),
    },
}

REFERENCES: tuple[Reference, ...] = tuple(_all())


@cache
def references_to(target: Kind) -> tuple[Reference, ...]:
    """Return the fields that name objects of a kind.  Kinds that are not implemented use nothing."""
    return tuple(one for one in REFERENCES if one.target is target and one.holder not in NOT_IMPLEMENTED)


@cache
def deletion_order(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Return the kinds in the order of deletion: a kind that names others before the kinds it names."""
    ordered: list[Kind] = []
    left = list(kinds)
    while left:
        named = {one.target for one in REFERENCES if one.holder in left and one.target is not one.holder}
        # No order is correct for kinds that name each other in a cycle.
        free = [kind for kind in left if kind not in named] or left
        ordered += free
        left = [kind for kind in left if kind not in free]
    return tuple(ordered)
