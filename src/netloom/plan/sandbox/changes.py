"""What to write so that the objects of a Sandbox are as planned.  Pure.

Labels and annotations that others added stay. An object that differs in an immutable field is made again; all others
are changed in place, or not written at all.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from netloom.model.document import ObjectMeta, Resource
from netloom.model.registry import HOST_DOCUMENT, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.plan.sandbox.names import FAULT_PREFIX, GROUP_PREFIX, HOST_LABEL, SANDBOX_LABEL

_IMMUTABLE = {
    NETWORK.name: ("fabric",),
    SUBNET.name: ("network", "cidr"),
    NETWORK_ATTACHMENT.name: ("node", "network"),
    HOST_DOCUMENT.name: ("node",),
}


class Changes(Struct, frozen=True, kw_only=True):
    """The differences between desired and observed objects, each in the order of the desired ones."""

    create: tuple[Resource, ...] = ()
    update: tuple[Resource, ...] = ()
    """As desired."""
    remove: tuple[Resource, ...] = ()
    """As observed: those that are not desired, and those that are made again."""


def changes(desired: Iterable[Resource], observed: Iterable[Resource]) -> Changes:
    """Return what turns the observed objects, all of one Sandbox, into the desired ones."""
    seen = {(one.kind, one.metadata.name): one for one in observed}
    create, update, remove = [], [], []
    for wanted in desired:
        found = seen.pop((wanted.kind, wanted.metadata.name), None)
        if found is None:
            create.append(wanted)
        elif found.metadata.deletion_timestamp:
            continue  # It is made again when it is gone.
        elif must_be_made_again(wanted, found):
            create.append(wanted)
            remove.append(found)
        elif differs(wanted, found):
            update.append(wanted)
    remove += [one for one in seen.values() if not one.metadata.deletion_timestamp]
    return Changes(create=tuple(create), update=tuple(update), remove=tuple(remove))


def must_be_made_again(wanted: Resource, found: Resource) -> bool:
    """Whether an object differs from the desired one in an immutable field."""
    return _immutables(found) != _immutables(wanted)


def differs(wanted: Resource, found: Resource) -> bool:
    """Whether an object must be changed to be as desired."""
    return _spec(found) != _spec(wanted) or labels(wanted, found.metadata) != found.metadata.labels


def labels(wanted: Resource, metadata: ObjectMeta) -> dict[str, str]:
    """Return the labels that an object gets: those desired, and those of others that it has."""
    return {key: value for key, value in metadata.labels.items() if not _is_ours(key)} | wanted.metadata.labels


def owner_uid(metadata: ObjectMeta) -> str:
    """Return the uid of the object that controls another one; "": none does."""
    return next((one.uid for one in metadata.owner_references if one.controller), "")


def _is_ours(key: str) -> bool:
    return key in (SANDBOX_LABEL, HOST_LABEL) or key.startswith((GROUP_PREFIX, FAULT_PREFIX))


def _spec(value: Resource) -> Any:  # noqa: ANN401  # the spec of any kind
    return getattr(value, "spec", None)


def _immutables(value: Resource) -> list[object]:
    return [getattr(_spec(value), field) for field in _IMMUTABLE.get(value.kind, ())]
