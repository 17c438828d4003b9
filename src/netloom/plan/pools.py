"""The ports of PortPools: attachments that are made ahead of need, and who gets them.  Pure.

    PortPool ──► attachments POOL.0, POOL.1, …   free: owned by the pool, addressed, in OVN, and plugged by the agent
                      │ taken                    used: without that owner; only a label says where it is from
                      ▼
                 its user's, who deletes it; the pool makes another

A port has `port.type: pod`: what its user brings is the network namespace of the workload. It is taken by one update
that removes the owner and sets what the user wants to, at the revision at which it was free; so of several users one
gets it, and a pool that is deleted or shrinks at the same moment either deletes it before or leaves it alone.

How many free ports there are follows how many the node needs in a minute (`Demand`).
"""

import hashlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Protocol

from netloom.model.document import ObjectMeta, OwnerReference
from netloom.model.kinds.attachments import (
    AttachmentPort,
    NetworkAttachment,
    NetworkAttachmentSpec,
    PortPool,
    PortType,
)
from netloom.model.registry import NETWORK_ATTACHMENT, PORT_POOL

LABEL = "netloom.dev/port-pool"
"""The label of all ports of pools, free or used; its value is `label_of` the pool."""
WINDOW = 60.0
"""Seconds over which demand is counted."""
HOLD = 600.0
"""Seconds that a pool stays as large as it has become; so it shrinks at most once in this time."""
_LONGEST_LABEL = 63
_LONGEST_NAME = 240


class Metadata(Protocol):
    """The metadata of an attachment, in whatever view."""

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """Its owners."""
        ...

    @property
    def deletion_timestamp(self) -> str | None:
        """When it was deleted, if it was."""
        ...


def owner_of(metadata: Metadata) -> OwnerReference | None:
    """Return the pool that owns an attachment; None: none does."""
    return next((one for one in metadata.owner_references if one.kind == PORT_POOL.name and one.controller), None)


def is_free(metadata: Metadata) -> bool:
    """Whether an attachment is a port that nobody has taken from its pool."""
    return owner_of(metadata) is not None and not metadata.deletion_timestamp


def is_pooled(labels: Mapping[str, str]) -> bool:
    """Whether an attachment with these labels was made for a pool."""
    return LABEL in labels


def label_of(pool: str) -> str:
    """Return the value of the label of a pool's ports; a name that is too long ends with a digest of itself."""
    if len(pool) <= _LONGEST_LABEL:
        return pool
    digest = hashlib.sha256(pool.encode()).hexdigest()[:16]
    return pool[: _LONGEST_LABEL - len(digest) - 1].rstrip("-.") + "-" + digest


def port(pool: PortPool, name: str) -> NetworkAttachment:
    """Return a free port of a pool."""
    meta, spec = pool.metadata, pool.spec
    owner = OwnerReference(
        api_version=PORT_POOL.api_version,
        kind=PORT_POOL.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
    )
    return NetworkAttachment(
        api_version=NETWORK_ATTACHMENT.api_version,
        kind=NETWORK_ATTACHMENT.name,
        metadata=ObjectMeta(
            name=name, namespace=meta.namespace, labels={LABEL: label_of(meta.name)}, owner_references=(owner,)
        ),
        spec=NetworkAttachmentSpec(
            node=spec.node,
            network=spec.network,
            subnets=spec.subnets,
            port=AttachmentPort(type=PortType.POD),
            security_profiles=spec.security_profiles,
            default_route=spec.default_route,
        ),
    )


def free_names(pool: str, taken: Collection[str]) -> Iterator[str]:
    """Yield names for ports, in an order that is always the same: who makes a port twice, makes it once."""
    start = pool[:_LONGEST_NAME].rstrip("-.")
    for number in count():
        if (name := f"{start}.{number}") not in taken:
            yield name


class Demand:
    """How many ports a node needs in a minute, and how many to keep because of that.

    The number grows at once with the demand, and stays for `HOLD` seconds after the last peak: a pool that breathed
    with its node would be deleting what it makes.
    """

    def __init__(self, now: float, level: int = 0) -> None:
        """`level` is the number that is kept until now."""
        self._needed: deque[float] = deque()
        self._level = level
        self._since = now

    def add(self, now: float) -> None:
        """Note that a port was needed."""
        self._needed.append(now)

    def target(self, pool: PortPool, now: float) -> int:
        """Return how many free ports to keep."""
        while self._needed and self._needed[0] <= now - WINDOW:
            self._needed.popleft()
        least = pool.spec.size
        most = max(least, pool.spec.max_size or 0)
        wanted = min(max(len(self._needed), least), most)
        if wanted >= self._level or now - self._since >= HOLD:
            self._level, self._since = wanted, now
        return min(max(self._level, least), most)
