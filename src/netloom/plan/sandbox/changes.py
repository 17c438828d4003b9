"""How the objects of a Sandbox differ from those planned: labels and annotations that others added stay.  Pure."""

from collections.abc import Iterable

from netloom.model.document import ObjectMeta, Resource
from netloom.plan.object_changes import Changes, compare, immutables, spec
from netloom.plan.sandbox.names import FAULT_PREFIX, GROUP_PREFIX, HOST_LABEL, SANDBOX_LABEL


def changes(desired: Iterable[Resource], observed: Iterable[Resource]) -> Changes:
    """Return what turns the observed objects, all of one Sandbox, into the desired ones."""
    return compare(desired, observed, must_be_made_again=must_be_made_again, differs=differs)


def must_be_made_again(wanted: Resource, found: Resource) -> bool:
    """Whether an object differs from the desired one in an immutable field."""
    return immutables(found) != immutables(wanted)


def differs(wanted: Resource, found: Resource) -> bool:
    """Whether an object must be changed to be as desired."""
    return spec(found) != spec(wanted) or labels(wanted, found.metadata) != found.metadata.labels


def labels(wanted: Resource, metadata: ObjectMeta) -> dict[str, str]:
    """Return the labels that an object gets: those desired, and those of others that it has."""
    return {key: value for key, value in metadata.labels.items() if not _is_ours(key)} | wanted.metadata.labels


def owner_uid(metadata: ObjectMeta) -> str:
    """Return the uid of the object that controls another one; "": none does."""
    return next((one.uid for one in metadata.owner_references if one.controller), "")


def _is_ours(key: str) -> bool:
    return key in (SANDBOX_LABEL, HOST_LABEL) or key.startswith((GROUP_PREFIX, FAULT_PREFIX))
