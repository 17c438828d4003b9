"""What the controllers keep of attachments and locks: of fifty thousand each, so only what they read.

The views are decoded straight from the stored bytes. They carry the `metadata` the collector wants and what the plan of
the logical network is made from, so all share one informer of each kind, and one copy.
"""

from collections.abc import Iterable, Mapping
from random import Random

import msgspec
from msgspec import Struct

from netloom.control.runtime.cache import Key
from netloom.control.runtime.gc import BY_OWNER, BY_UID, ItemMeta
from netloom.control.runtime.informer import Informer
from netloom.model.document import OwnerReference
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.plan.addresses.blocks import Address, address, lock_name
from netloom.store.base import Store, Stored

BY_NETWORK = "network"
BY_SUBNET = "subnet"
QUARANTINE = "netloom.dev/quarantine"
"""The finalizer that keeps a freed address from being given away at once."""
DECIDED = "netloom.dev/decided-at"
"""The annotation with the revision of the attachment at which its lock was decided on."""
ADDRESSED = "Addressed"
PROGRAMMED = "Programmed"


class Meta(ItemMeta, frozen=True, kw_only=True):
    """What is kept of the metadata."""

    creation_timestamp: str = ""
    generation: int = 0

    @property
    def revision(self) -> int:
        """`resourceVersion` as the number it is."""
        return int(self.resource_version or 0)


class Lock(Struct, frozen=True, gc=False):
    """An IPLock."""

    metadata: Meta
    network: str
    vni: int
    version: int
    """0: its name is not that of its address, so it locks nothing."""
    number: int
    decided: int = 0

    @property
    def key(self) -> Key:
        """Which lock it is."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def address(self) -> Address:
        """What is locked."""
        return Address(self.version, self.number)

    @property
    def owner(self) -> OwnerReference | None:
        """The attachment it is for; None where a person made it."""
        for one in self.metadata.owner_references:
            if one.kind == NETWORK_ATTACHMENT.name:
                return one
        return None

    @property
    def going(self) -> bool:
        """Whether it is freed, and only kept for the quarantine."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def holder(self) -> str:
        """Whose it is, for people."""
        owner = self.owner
        return f"{self.metadata.namespace}/{owner.name}" if owner else f"IPLock {self.key}"


class Seen(Struct, frozen=True, gc=False):
    """The Addressed condition, as it stands in the status."""

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
    """It has no status at all yet."""
    has_ips: tuple[str, ...] = ()
    has_mac: str = ""
    vni: int = 0
    locks: tuple[tuple[str, str], ...] = ()
    """(address, uid of the lock) as the status has them."""
    errors: tuple[str, ...] = ()
    observed: int = 0
    addressed: Seen | None = None
    node: str = ""
    labels: Mapping[str, str] = {}
    profiles: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    unprogrammed: bool = False
    """Its status says that OVN does not have it."""
    parent: str = ""
    """The attachment of whose port it is a VLAN."""
    vlan: int | None = None

    @property
    def key(self) -> Key:
        """Which attachment it is."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def age(self) -> tuple[str, str]:
        """What attachments are served in the order of."""
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


class _Spec(Struct, frozen=True, rename="camel"):
    network: str
    node: str = ""
    subnets: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    mac: str = ""
    security_profiles: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()
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
_words: dict[str, str] = {}
_conditions: dict[tuple[str, str, str, int], Seen] = {}
_label_sets: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
_NO_LABELS: Mapping[str, str] = {}
_NO_STATUS = _Status()


def _same(word: str) -> str:
    """Return the one copy of a word that many objects have."""
    if len(_words) > 65536:
        _words.clear()
    return _words.setdefault(word, word)


def lock_view(stored: Stored) -> Lock:
    """Return what is kept of an IPLock."""
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
        Meta(
            name=stored.name,
            namespace=_same(stored.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=owners,
            finalizers=_QUARANTINED if meta.finalizers == _QUARANTINED else meta.finalizers,
            creation_timestamp=_same(meta.creation_timestamp),
        ),
        _same(spec.network),
        spec.vni,
        one.version,
        one.number,
        int(decided) if decided.isdecimal() else 0,
    )


_QUARANTINED = (QUARANTINE,)


def _owner(name: str, uid: str) -> OwnerReference:
    return OwnerReference(
        api_version=NETWORK_ATTACHMENT.api_version, kind=NETWORK_ATTACHMENT.name, name=name, uid=uid, controller=True
    )


def attachment_view(stored: Stored) -> Attachment:
    """Return what is kept of a NetworkAttachment."""
    wire = _attachment(stored.raw)
    given, spec, status = wire.metadata, wire.spec, wire.status or _NO_STATUS
    meta = Meta(
        name=stored.name,
        namespace=_same(stored.namespace),
        uid=given.uid,
        resource_version=given.resource_version,
        deletion_timestamp=given.deletion_timestamp,
        owner_references=given.owner_references,
        finalizers=given.finalizers,
        creation_timestamp=_same(given.creation_timestamp),
        generation=given.generation,
    )
    return Attachment(
        meta,
        _same(spec.network),
        tuple(map(_same, spec.subnets)) if spec.subnets else (),
        spec.ips,
        spec.mac.lower(),
        wire.status is None,
        status.ips,
        status.mac.lower(),
        status.vni,
        tuple((one.ip, one.uid) for one in status.locks),
        status.errors.ipam,
        status.observed_generation,
        _seen(status.conditions),
        _same(spec.node),
        _labels(given.labels) if given.labels else _NO_LABELS,
        tuple(map(_same, spec.security_profiles)) if spec.security_profiles else (),
        spec.allowed_addresses,
        any(one.type == PROGRAMMED for one in status.conditions),
        _same(spec.port.parent),
        spec.port.vlan,
    )


def _labels(labels: dict[str, str]) -> Mapping[str, str]:
    """Return the one copy of labels that many objects have."""
    if len(_label_sets) > 65536:
        _label_sets.clear()
    return _label_sets.setdefault(tuple(sorted(labels.items())), labels)


def _seen(conditions: Iterable[_Condition]) -> Seen | None:
    for one in conditions:
        if one.type == ADDRESSED:
            key = (one.status, one.reason, one.message, one.observed_generation)
            if len(_conditions) > 4096:
                _conditions.clear()
            return _conditions.setdefault(key, Seen(*key))
    return None


def attachment_informer(store: Store, *, random: Random) -> Informer[Attachment]:
    """Return an informer of attachments, found by owner, uid, Network and Subnet."""
    indexes = {
        BY_OWNER: lambda one: [owner.uid for owner in one.metadata.owner_references],
        BY_UID: lambda one: (one.metadata.uid,),
        BY_NETWORK: lambda one: (_same(f"{one.metadata.namespace}/{one.network}"),),
        BY_SUBNET: lambda one: [_same(f"{one.metadata.namespace}/{name}") for name in one.subnets],
    }
    return Informer(store, NETWORK_ATTACHMENT, attachment_view, random=random, indexes=indexes)


def lock_informer(store: Store, *, random: Random) -> Informer[Lock]:
    """Return an informer of locks, found by owner and uid."""
    indexes = {
        BY_OWNER: lambda one: [owner.uid for owner in one.metadata.owner_references],
        BY_UID: lambda one: (one.metadata.uid,),
    }
    return Informer(store, IP_LOCK, lock_view, random=random, indexes=indexes)
