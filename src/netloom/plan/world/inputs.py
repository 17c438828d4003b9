"""The face of a resource: the part of it that can change what is planned.  Pure.

Heartbeats, conditions, annotations and managed fields come and go all day; a resource whose face stays the same is not
planned again. An attachment's face is a `Port`, small enough to hold tens of thousands: texts that many ports have in
common are held once.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from netloom.model.attachments import NetworkAttachment
from netloom.model.cluster import Node, NodeStatus
from netloom.model.document import ObjectMeta, Resource
from netloom.model.networks import Network, NetworkStatus, Router, RouterStatus, Subnet, SubnetStatus
from netloom.model.paths import Mirror, Shaping, ShapingStatus
from netloom.model.policy import LoadBalancer, LoadBalancerStatus, SecurityProfile, SecurityProfileStatus
from netloom.model.status import Status

ATTACHMENT = "NetworkAttachment"


class Port(Struct, frozen=True, gc=False):
    """An attachment, as far as the plan goes."""

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
    """The attachment of whose port it is a VLAN; "": it is a port of its own."""
    vlan: int | None = None


class Pool:
    """Holds equal values once.  It forgets none: who keeps one drops it when it has grown."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._texts) + len(self._labels) + len(self._lists)

    def port(self, attachment: NetworkAttachment) -> Port:
        """Return the face of an attachment."""
        metadata, spec, status = attachment.metadata, attachment.spec, attachment.status
        text = self._texts.setdefault
        labels = metadata.labels
        return Port(
            text(metadata.namespace, metadata.namespace),
            metadata.name,
            text(spec.node, spec.node),
            text(spec.network, spec.network),
            status.ips,
            status.mac,
            status.vni,
            self._labels.setdefault(tuple(sorted(labels.items())), labels) if labels else _NO_LABELS,
            self._lists.setdefault(spec.security_profiles, spec.security_profiles),
            spec.allowed_addresses,
            spec.port.parent,
            spec.port.vlan,
        )


def face(resource: Resource) -> Resource | None:
    """Return a resource with only what matters to the plan, or None where nothing of its kind does.

    Not for attachments: theirs is a `Port`.
    """
    slim = _STATUS.get(type(resource))
    if slim is None:
        return None
    given = resource.metadata
    metadata = ObjectMeta(name=given.name, namespace=given.namespace, labels=given.labels)
    return structs.replace(resource, metadata=metadata, status=slim(resource))


def _network(resource: Resource) -> Status:
    assert isinstance(resource, Network)
    return NetworkStatus(vni=resource.status.vni)


def _subnet(resource: Resource) -> Status:
    assert isinstance(resource, Subnet)
    return SubnetStatus(validated=resource.status.validated)


_NO_LABELS: Mapping[str, str] = {}
_STATUS: dict[type[Resource], Callable[[Resource], Status]] = {
    Network: _network,
    Subnet: _subnet,
    Node: lambda _: NodeStatus(),
    Router: lambda _: RouterStatus(),
    SecurityProfile: lambda _: SecurityProfileStatus(),
    LoadBalancer: lambda _: LoadBalancerStatus(),
    Shaping: lambda _: ShapingStatus(),
    Mirror: lambda _: Status(),
}
