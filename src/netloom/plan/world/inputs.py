"""Planner inputs: the part of each resource that a plan reads.  Pure.

Heartbeats, conditions, annotations and managed fields change all the time; a resource whose planner input is unchanged
is not planned again. The planner input of an attachment is a `Port`, small enough for tens of thousands: strings that
many ports have in common are stored once.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from netloom.model.document import ObjectMeta, Resource
from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.registry import NETWORK_ATTACHMENT, PLANNED
from netloom.model.status import Status

ATTACHMENT = NETWORK_ATTACHMENT.name


class Port(Struct, frozen=True, gc=False):
    """The planner input of an attachment."""

    namespace: str
    name: str
    node: str
    network: str
    ips: tuple[str, ...] = ()
    """The addresses it has, with their prefix length: `10.1.0.9/24`."""
    mac: str = ""
    vni: int | None = None
    labels: Mapping[str, str] = {}
    profiles: tuple[str, ...] = ()
    """The SecurityProfiles it names."""
    allowed_addresses: tuple[str, ...] = ()
    parent: str = ""
    """The attachment whose port carries it as a VLAN; "": it has a port of its own."""
    vlan: int | None = None
    forwarding: bool = False
    link_down: bool = False
    type: PortType = PortType.INTERNAL


class Pool:
    """Stores equal values once.  It never forgets one: its owner replaces it when it has grown."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._texts) + len(self._labels) + len(self._lists)

    def port(self, attachment: NetworkAttachment) -> Port:
        """Return the planner input of an attachment."""
        metadata, spec, status = attachment.metadata, attachment.spec, attachment.status
        text = self._texts.setdefault
        labels = metadata.labels
        return Port(
            namespace=text(metadata.namespace, metadata.namespace),
            name=metadata.name,
            node=text(spec.node, spec.node),
            network=text(spec.network, spec.network),
            ips=status.ips,
            mac=status.mac,
            vni=status.vni,
            labels=self._labels.setdefault(tuple(sorted(labels.items())), labels) if labels else _NO_LABELS,
            profiles=self._lists.setdefault(spec.security_profiles, spec.security_profiles),
            allowed_addresses=spec.allowed_addresses,
            parent=spec.port.parent,
            vlan=spec.port.vlan,
            forwarding=spec.forwarding,
            link_down=spec.link_down,
            type=spec.port.type,
        )


def planner_input(resource: Resource) -> Resource | None:
    """Return a resource with only the fields that a plan reads, or None where nothing is planned from its kind.

    Not for attachments: theirs is a `Port`.
    """
    if type(resource) not in _PLANNED:
        return None
    given = resource.metadata
    metadata = ObjectMeta(name=given.name, namespace=given.namespace, labels=given.labels)
    return structs.replace(resource, metadata=metadata, status=_status(resource))


def _status(resource: Any) -> Status:  # noqa: ANN401  # of any planned kind
    """Return what a plan reads of a status: of most kinds nothing."""
    empty: Status = type(resource.status)()
    match resource:
        case Network():
            return structs.replace(empty, vni=resource.status.vni)
        case Subnet():
            return structs.replace(empty, validated=resource.status.validated)
        case Node():
            return structs.replace(empty, capabilities=resource.status.capabilities)
        case EVPNNetwork():
            return structs.replace(empty, forwarding=resource.status.forwarding)
    return empty


_NO_LABELS: Mapping[str, str] = {}
_PLANNED = frozenset(kind.type for kind in PLANNED if kind is not NETWORK_ATTACHMENT)
