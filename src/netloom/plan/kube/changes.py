"""How the objects that are made for one object of the cluster differ from those planned.  Pure.

Labels are compared as a whole: policies select by them, so none that somebody adds may stay. Annotations of others
stay. An object that was made for a pod of the same name that is gone is made again.
"""

from collections.abc import Iterable, Mapping

from netloom.model.document import Resource
from netloom.plan.kube.names import POD_UID, PREFIX
from netloom.plan.object_changes import Changes, compare, immutables, spec


def changes(desired: Iterable[Resource], observed: Iterable[Resource]) -> Changes:
    """Return what turns the observed objects, all made for one object of the cluster, into the desired ones."""
    return compare(desired, observed, must_be_made_again=must_be_made_again, differs=differs)


def must_be_made_again(wanted: Resource, found: Resource) -> bool:
    """Whether an object differs from the desired one in what cannot be changed."""
    return immutables(found) != immutables(wanted) or _pod(found) != _pod(wanted)


def differs(wanted: Resource, found: Resource) -> bool:
    """Whether an object must be changed to be as desired."""
    return (
        spec(found) != spec(wanted)
        or found.metadata.labels != wanted.metadata.labels
        or ours(found.metadata.annotations) != ours(wanted.metadata.annotations)
    )


def ours(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return those annotations that only this controller sets."""
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}


def _pod(value: Resource) -> str:
    return value.metadata.labels.get(POD_UID, "")
