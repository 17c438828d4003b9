"""Validation of metadata, as in Kubernetes.  It is the same for every kind."""

from functools import cache

from netloom.errors import Cause
from netloom.model.document import Document, Json
from netloom.model.kind import Kind
from netloom.model.schemas.checks import (
    FORBIDDEN,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    Check,
    compiled,
    fullmatch,
    quoted,
)
from netloom.model.schemas.rules import LABEL_PATTERN, LABEL_VALUE_PATTERN, SUBDOMAIN_PATTERN
from netloom.model.schemas.schema import metadata_tree

NAME = "must be lower case letters, digits, '-' and '.', and start and end with a letter or digit (at most 253)"
KEY = "must be letters, digits, '-', '_' and '.', at most 63, after an optional DNS name and '/'"

_is_label = fullmatch(LABEL_PATTERN)
_is_subdomain = fullmatch(SUBDOMAIN_PATTERN)
_is_value = fullmatch(LABEL_VALUE_PATTERN)
_is_word = fullmatch(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")

ANNOTATIONS_SIZE = 256 * 1024
ENTRY_LIMIT = 1024
"""The maximum number of labels, annotations, owners and finalizers of an object, each.  Kubernetes has no limit."""


@cache
def shape() -> Check:
    """Return the check for the types and field names of metadata, from its schema."""
    return compiled(metadata_tree())


def problems(kind: Kind, metadata: Document, old: Document | None) -> list[Cause]:
    """Return the problems of well-formed metadata, and of the change from `old`."""
    if not kind.namespaced:
        metadata.pop("namespace", None)  # As Kubernetes does.
    found = [*_names(kind, metadata)]
    if labels := metadata.get("labels"):
        found += _labels(labels)
    if annotations := metadata.get("annotations"):
        found += _annotations(annotations)
    if owners := metadata.get("ownerReferences"):
        found += _owners(owners)
    if finalizers := metadata.get("finalizers"):
        found += _finalizers(finalizers, old)
    return found


def is_name(text: str) -> bool:
    """Whether `text` is a DNS-1123 subdomain, as required of object names."""
    return len(text) <= 253 and bool(_is_subdomain(text))


def is_key(text: str) -> bool:
    """Whether `text` is a qualified name, as required of labels, annotations and finalizers."""
    prefix, slash, word = text.rpartition("/")
    return bool(_is_word(word)) and (not slash or is_name(prefix))


def _names(kind: Kind, metadata: Document) -> list[Cause]:
    found = []
    name, prefix, namespace = (metadata.get(key) or "" for key in ("name", "generateName", "namespace"))
    if not name and not prefix:
        found.append(Cause(".name", "Required value: name or generateName is required", REQUIRED))
    label = "must be lower case letters, digits and '-', and start and end with a letter or digit (at most 63)"
    if name and kind.holds_objects and (len(name) > 63 or not _is_label(name)):
        found.append(Cause(".name", f"Invalid value: {quoted(name)}: {label}"))
    elif name and not is_name(name):
        found.append(Cause(".name", f"Invalid value: {quoted(name)}: {NAME}"))
    # The server appends a random suffix, so a trailing dash is allowed.
    if prefix and not is_name(prefix[:-1] + "a" if prefix.endswith("-") else prefix):
        found.append(Cause(".generateName", f"Invalid value: {quoted(prefix)}: {NAME}"))
    if kind.namespaced and not namespace:
        found.append(Cause(".namespace", "Required value", REQUIRED))
    if kind.namespaced and namespace and (len(namespace) > 63 or not _is_label(namespace)):
        found.append(Cause(".namespace", f"Invalid value: {quoted(namespace)}: {label}"))
    return found


def too_many(metadata: Json) -> list[Cause]:
    """Return the parts of metadata with too many entries.  Call it before anything iterates over them."""
    if not isinstance(metadata, dict):
        return []
    return [
        Cause(f".{name}", f"Too many: {number}: must have at most {ENTRY_LIMIT} entries", TOO_MANY)
        for name in ("labels", "annotations", "ownerReferences", "finalizers")
        if isinstance(entries := metadata.get(name), dict | list) and (number := len(entries)) > ENTRY_LIMIT
    ]


def _labels(labels: Document) -> list[Cause]:
    found = []
    for key, value in labels.items():
        if not is_key(key):
            found.append(Cause(".labels", f"Invalid value: {quoted(key)}: a label's name {KEY}"))
        if len(value) > 63 or not _is_value(value):
            words = "a label's value must be at most 63 letters, digits, '-', '_' and '.'"
            found.append(Cause(".labels", f"Invalid value: {quoted(value)}: {words}"))
    return found


def _annotations(annotations: Document) -> list[Cause]:
    wrong = [key for key in annotations if not is_key(key.lower())]
    found = [Cause(".annotations", f"Invalid value: {quoted(key)}: an annotation's name {KEY}") for key in wrong]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_SIZE:
        found.append(Cause(".annotations", f"Too long: may not be more than {ANNOTATIONS_SIZE} bytes", TOO_LONG))
    return found


def _owners(owners: list[Document]) -> list[Cause]:
    found = []
    for i, owner in enumerate(owners):
        at = f".ownerReferences[{i}]"
        found += [
            Cause(f"{at}.{name}", 'Invalid value: "": must not be empty')
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner[name]
        ]
        if owner["apiVersion"].count("/") > 1 or owner["apiVersion"].endswith("/"):
            words = "must be VERSION or GROUP/VERSION"
            found.append(Cause(f"{at}.apiVersion", f"Invalid value: {quoted(owner['apiVersion'])}: {words}"))
        if (owner["apiVersion"], owner["kind"]) == ("v1", "Event"):
            found.append(Cause(at, f"Invalid value: {quoted(owner)}: an Event cannot be an owner"))
    controllers = [f"{owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        words = f"only one owner can be the controller, not both {controllers[0]} and {controllers[1]}"
        found.append(Cause(".ownerReferences", f"Invalid value: {quoted(owners)}: {words}"))
    return found


def _finalizers(finalizers: list[str], old: Document | None) -> list[Cause]:
    wrong = [word for word in finalizers if not is_key(word)]
    found = [Cause(".finalizers", f"Invalid value: {quoted(word)}: a finalizer {KEY}") for word in wrong]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        words = "orphan and foregroundDeletion cannot be both set"
        found.append(Cause(".finalizers", f"Invalid value: {quoted(finalizers)}: {words}"))
    if old is None or old.get("deletionTimestamp") is None:
        return found
    if new := sorted(set(finalizers) - set(old.get("finalizers", ()))):
        words = f"no new finalizers can be added while the object is being deleted: {', '.join(new)}"
        found.append(Cause(".finalizers", f"Forbidden: {words}", FORBIDDEN))
    return found
