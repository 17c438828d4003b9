"""What to write so that the objects that are made for one object of the cluster are as planned.  Pure.

Labels are compared as a whole: policies select by them, so none that somebody adds may stay. Annotations of others
stay. An object that differs in an immutable field, or that was made for a pod of the same name that is gone, is made
again; all others are changed in place, or not written at all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from netloom.model.document import Resource
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.plan.kube.names import POD_UID, PREFIX

_IMMUTABLE = {
    NETWORK.name: ("fabric",),
    SUBNET.name: ("network", "cidr"),
    NETWORK_ATTACHMENT.name: ("node", "network"),
}


class Changes(Struct, frozen=True, kw_only=True):
    """The differences between desired and observed objects."""

    create: tuple[Resource, ...] = ()
    update: tuple[Resource, ...] = ()
    """As desired."""
    remove: tuple[Resource, ...] = ()
    """As observed: those that are not desired, and those that are made again."""

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.remove)


def changes(desired: Iterable[Resource], observed: Iterable[Resource]) -> Changes:
    """Return what turns the observed objects, all made for one object of the cluster, into the desired ones."""
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
    """Whether an object differs from the desired one in what cannot be changed."""
    return _immutables(found) != _immutables(wanted)


def differs(wanted: Resource, found: Resource) -> bool:
    """Whether an object must be changed to be as desired."""
    return (
        _spec(found) != _spec(wanted)
        or found.metadata.labels != wanted.metadata.labels
        or ours(found.metadata.annotations) != ours(wanted.metadata.annotations)
    )


def ours(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those annotations that only this controller sets."""
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}


def _spec(value: Resource) -> Any:  # noqa: ANN401  # the spec of any kind
    return getattr(value, "spec", None)


def _immutables(value: Resource) -> list[object]:
    pod = value.metadata.labels.get(POD_UID, "")
    return [pod, *(getattr(_spec(value), field) for field in _IMMUTABLE.get(value.kind, ()))]
