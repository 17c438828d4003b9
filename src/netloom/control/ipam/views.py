"""The parts of attachments and locks that the controllers keep in memory: there may be fifty thousand of each.

A view is decoded directly from the stored bytes. It has the `metadata` that the garbage collector reads and the fields
that OVN's planner reads, so that all controllers share one informer of each kind, and one copy.
"""

from collections.abc import Iterable, Mapping
from random import Random

import msgspec
from msgspec import Struct

from netloom.control.runtime.cache import Key
from netloom.control.runtime.gc import INDEXES, ItemMeta
from netloom.control.runtime.informer import Informer
from netloom.model.conditions import ADDRESSED, PLUGGED, PROGRAMMED
from netloom.model.document import OwnerReference
from netloom.model.kinds.attachments import PortType
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.plan.addresses.blocks import Address, address, lock_name
from netloom.plan.pools import LABEL
from netloom.store.base import Store, Stored

BY_NETWORK = "network"
BY_SUBNET = "subnet"
BY_POOL = "pool"
"""The index of attachments by the label of their PortPool."""
QUARANTINE = "netloom.dev/quarantine"
"""The finalizer that keeps a freed address in quarantine."""
DECIDED = "netloom.dev/decided-at"
"""The annotation of a lock with the revision of the attachment at which it was decided on."""


class Meta(ItemMeta, frozen=True, kw_only=True):
    """The metadata of a view."""

    creation_timestamp: str = ""
    generation: int = 0

    @property
    def revision(self) -> int:
        """`resourceVersion` as a number."""
        return int(self.resource_version or 0)


class Lock(Struct, frozen=True, gc=False):
    """An IPLock."""

    metadata: Meta
    network: str
    vni: int
    version: int
    """0 if the name of the lock does not match its address: it locks nothing."""
    number: int
    decided: int = 0

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def address(self) -> Address:
        """The locked address."""
        return Address(self.version, self.number)

    @property
    def owner(self) -> OwnerReference | None:
        """The attachment that it was created for; None if a person created it."""
        for one in self.metadata.owner_references:
            if one.kind == NETWORK_ATTACHMENT.name:
                return one
        return None

    @property
    def terminating(self) -> bool:
        """Whether it is deleted, and only kept for the quarantine."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def holder(self) -> str:
        """Its owner, for messages."""
        owner = self.owner
        return f"{self.metadata.namespace}/{owner.name}" if owner else f"IPLock {self.key}"


class ConditionState(Struct, frozen=True, gc=False):
    """The condition `Addressed`, without its time."""

    status: str
    reason: str
    message: str
    generation: int


class Attachment(Struct, frozen=True, gc=False):
    """A NetworkAttachment."""

    metadata: Meta
    network: str
    subnets: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    mac: str = ""
    fresh: bool = True
    """It has no status yet."""
    has_ips: tuple[str, ...] = ()
    has_mac: str = ""
    vni: int = 0
    locks: tuple[tuple[str, str], ...] = ()
    """(address, uid of the lock) as the status has them."""
    errors: tuple[str, ...] = ()
    observed: int = 0
    addressed: ConditionState | None = None
    node: str = ""
    labels: Mapping[str, str] = {}
    profiles: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    forwarding: bool = False
    link_down: bool = False
    unprogrammed: bool = False
    """Its status has the condition `Programmed`, which says that OVN does not have all of it."""
    parent: str = ""
    """The attachment whose port carries this one as a VLAN."""
    vlan: int | None = None
    type: PortType = PortType.INTERNAL
    plugged: bool = False
    """Its port is on the switch, and installed."""

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def age(self) -> tuple[str, str]:
        """The order in which attachments are served."""
        return self.metadata.creation_timestamp, self.metadata.uid


class _Annotations(Struct, frozen=True):
    decided: str = msgspec.field(name=DECIDED, default="")


class _LockMeta(Meta, frozen=True, kw_only=True):
    annotations: _Annotations = _Annotations()


class _LockSpec(Struct, frozen=True):
    network: str
    vni: int
    ip: str


class _WireLock(Struct, frozen=True):
    metadata: _LockMeta
    spec: _LockSpec


class _Port(Struct, frozen=True):
    parent: str = ""
    vlan: int | None = None
    type: PortType = PortType.INTERNAL


class _Spec(Struct, frozen=True, rename="camel"):
    network: str
    node: str = ""
    subnets: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    mac: str = ""
    security_profiles: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()
    forwarding: bool = False
    link_down: bool = False
    port: _Port = _Port()


class _Named(Struct, frozen=True):
    ip: str
    uid: str


class _Condition(Struct, frozen=True, rename="camel"):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class _Errors(Struct, frozen=True):
    ipam: tuple[str, ...] = ()


class _Status(Struct, frozen=True, rename="camel"):
    ips: tuple[str, ...] = ()
    mac: str = ""
    vni: int = 0
    locks: tuple[_Named, ...] = ()
    errors: _Errors = _Errors()
    conditions: tuple[_Condition, ...] = ()
    observed_generation: int = 0


class _AttachmentMeta(Meta, frozen=True, kw_only=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _WireAttachment(Struct, frozen=True):
    metadata: _AttachmentMeta
    spec: _Spec
    status: _Status | None = None


_lock = msgspec.json.Decoder(_WireLock).decode
_attachment = msgspec.json.Decoder(_WireAttachment).decode
_strings: dict[str, str] = {}
_conditions: dict[tuple[str, str, str, int], ConditionState] = {}
_label_sets: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
_NO_LABELS: Mapping[str, str] = {}
_NO_STATUS = _Status()


def _intern(text: str) -> str:
    """Return the shared copy of a string that many objects have."""
    if len(_strings) > 65536:
        _strings.clear()
    return _strings.setdefault(text, text)


def lock_view(stored: Stored) -> Lock:
    """Return the view of an IPLock."""
    wire = _lock(stored.raw)
    meta, spec = wire.metadata, wire.spec
    one = address(spec.ip)
    if one is None or lock_name(spec.vni, one) != stored.name:
        one = Address(0, 0)
    decided = meta.annotations.decided
    owners = meta.owner_references
    if len(owners) == 1 and owners[0].kind == NETWORK_ATTACHMENT.name:
        owners = (_owner(owners[0].name, owners[0].uid),)
    return Lock(
        metadata=Meta(
            name=stored.name,
            namespace=_intern(stored.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=owners,
            finalizers=_QUARANTINED if meta.finalizers == _QUARANTINED else meta.finalizers,
            creation_timestamp=_intern(meta.creation_timestamp),
        ),
        network=_intern(spec.network),
        vni=spec.vni,
        version=one.version,
        number=one.number,
        decided=int(decided) if decided.isdecimal() else 0,
    )


_QUARANTINED = (QUARANTINE,)


def _owner(name: str, uid: str) -> OwnerReference:
    return OwnerReference(
        api_version=NETWORK_ATTACHMENT.api_version, kind=NETWORK_ATTACHMENT.name, name=name, uid=uid, controller=True
    )


def attachment_view(stored: Stored) -> Attachment:
    """Return the view of a NetworkAttachment."""
    wire = _attachment(stored.raw)
    given, spec, status = wire.metadata, wire.spec, wire.status or _NO_STATUS
    meta = Meta(
        name=stored.name,
        namespace=_intern(stored.namespace),
        uid=given.uid,
        resource_version=given.resource_version,
        deletion_timestamp=given.deletion_timestamp,
        owner_references=given.owner_references,
        finalizers=given.finalizers,
        creation_timestamp=_intern(given.creation_timestamp),
        generation=given.generation,
    )
    return Attachment(
        metadata=meta,
        network=_intern(spec.network),
        subnets=tuple(map(_intern, spec.subnets)) if spec.subnets else (),
        ips=spec.ips,
        mac=spec.mac.lower(),
        fresh=wire.status is None,
        has_ips=status.ips,
        has_mac=status.mac.lower(),
        vni=status.vni,
        locks=tuple((one.ip, one.uid) for one in status.locks),
        errors=status.errors.ipam,
        observed=status.observed_generation,
        addressed=_addressed(status.conditions),
        node=_intern(spec.node),
        labels=_labels(given.labels) if given.labels else _NO_LABELS,
        profiles=tuple(map(_intern, spec.security_profiles)) if spec.security_profiles else (),
        allowed=spec.allowed_addresses,
        forwarding=spec.forwarding,
        link_down=spec.link_down,
        unprogrammed=any(one.type == PROGRAMMED for one in status.conditions),
        parent=_intern(spec.port.parent),
        vlan=spec.port.vlan,
        type=spec.port.type,
        plugged=any(one.type == PLUGGED and one.status == "True" for one in status.conditions),
    )


def _labels(labels: dict[str, str]) -> Mapping[str, str]:
    """Return the shared copy of labels that many objects have."""
    if len(_label_sets) > 65536:
        _label_sets.clear()
    return _label_sets.setdefault(tuple(sorted(labels.items())), labels)


def _addressed(conditions: Iterable[_Condition]) -> ConditionState | None:
    for one in conditions:
        if one.type == ADDRESSED:
            key = (one.status, one.reason, one.message, one.observed_generation)
            if len(_conditions) > 4096:
                _conditions.clear()
            return _conditions.setdefault(key, ConditionState(*key))
    return None


def attachment_informer(store: Store, *, random: Random) -> Informer[Attachment]:
    """Return an informer of attachments with indexes by owner, uid, Network, Subnet and PortPool."""
    indexes = {
        **INDEXES,
        BY_NETWORK: lambda one: (_intern(f"{one.metadata.namespace}/{one.network}"),),
        BY_SUBNET: lambda one: [_intern(f"{one.metadata.namespace}/{name}") for name in one.subnets],
        BY_POOL: lambda one: (f"{one.metadata.namespace}/{one.labels[LABEL]}",) if LABEL in one.labels else (),
    }
    return Informer(store, NETWORK_ATTACHMENT, attachment_view, random=random, indexes=indexes)


def lock_informer(store: Store, *, random: Random) -> Informer[Lock]:
    """Return an informer of locks with indexes by owner and uid."""
    return Informer(store, IP_LOCK, lock_view, random=random, indexes=INDEXES)
