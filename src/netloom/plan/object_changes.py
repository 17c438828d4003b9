"""What to write so that the objects that are made for another object are as planned.  Pure.

An object that differs in what cannot be changed is made again; all others are changed in place, or not written at all.
What counts as a difference depends on who else may write to the objects: `kube/changes.py`, `sandbox/changes.py`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from netloom.model.document import Resource
from netloom.model.registry import HOST_DOCUMENT, NETWORK, NETWORK_ATTACHMENT, PORT_POOL, SUBNET

_IMMUTABLE = {
    NETWORK.name: ("fabric",),
    SUBNET.name: ("network", "cidr"),
    NETWORK_ATTACHMENT.name: ("node", "network"),
    HOST_DOCUMENT.name: ("node",),
    PORT_POOL.name: ("node", "network"),
}

Compare = Callable[[Resource, Resource], bool]


class Changes(Struct, frozen=True, kw_only=True):
    """The differences between desired and observed objects, each in the order of the desired ones."""

    create: tuple[Resource, ...] = ()
    update: tuple[Resource, ...] = ()
    """As desired."""
    remove: tuple[Resource, ...] = ()
    """As observed: those that are not desired, and those that are made again."""

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.remove)


def compare(
    desired: Iterable[Resource], observed: Iterable[Resource], *, must_be_made_again: Compare, differs: Compare
) -> Changes:
    """Return what turns the observed objects, all made for one object, into the desired ones."""
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


def spec(value: Resource) -> Any:  # noqa: ANN401  # the spec of any kind
    """Return the spec of an object; None: its kind has none."""
    return getattr(value, "spec", None)


def immutables(value: Resource) -> list[object]:
    """Return the values of the fields that cannot be changed."""
    return [getattr(spec(value), field) for field in _IMMUTABLE.get(value.kind, ())]
