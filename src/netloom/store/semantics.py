"""The semantics of writes: documents in, documents out, exactly as in the Kubernetes API server.

Pure: the time, the uid and the random suffix are arguments. It does not depend on where objects are stored: all our own
stores call it to decide what a create, an update or a delete makes of the stored object.

    create   document                 -> the document to store
    update   old, new                 -> WRITE the document | REMOVE it | SAME: nothing changed
    delete   old, preconditions       -> WRITE it, marked    | REMOVE it | SAME: already marked

Stored bytes have one shape, `{"apiVersion":…,"kind":…,"metadata":{"resourceVersion":"N",…`, so that the revision, which
is known last, is put in without encoding twice (`encode`, then `stamp`).
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from netloom.errors import AlreadyExists, BadRequest, Cause, Conflict, Invalid, NotFound, TooLarge
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import NAMESPACE_FINALIZER, NAMESPACE_LABEL, Phase
from netloom.store.base import Propagation, Stored

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own: no vowels, so no words; no digits that look like letters."""
SUFFIX_LENGTH = 5
_REVISION = b'"resourceVersion":"%d",'
OBJECT_LIMIT = 1536 * 1024
"""The most bytes of an object as JSON: what etcd takes in one request by default."""
_LONGEST_GENERATED = 63 - SUFFIX_LENGTH

_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"
_SERVERS_OWN = ("uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Verdict(Enum):
    """The effect on the stored object."""

    WRITE = "write"
    REMOVE = "remove"
    SAME = "same"


class WriteOutcome(Struct, frozen=True):
    """The outcome of a write; `document` is returned to the caller with its new revision."""

    verdict: Verdict
    document: Document
    limited: bool = False
    """Whether the size of the object is limited: not when it is marked for deletion, which must always work."""


def prepare_create(kind: Kind, document: Document, *, now: float, uid: str, suffix: str) -> Document:
    """Return what creating `document` stores."""
    metadata = dict(document.get("metadata") or {})
    check_creatable(kind, metadata)
    if not metadata.get("name"):
        metadata["name"] = _generated(kind, metadata, suffix)
    if not kind.namespaced:
        metadata.pop("namespace", None)
    for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    metadata |= {"uid": uid, "creationTimestamp": timestamp(now), "generation": 1}
    made = {**document, "metadata": metadata}
    if kind.has_status:
        made.pop("status", None)
    if kind.holds_objects:
        made |= {"spec": {"finalizers": [NAMESPACE_FINALIZER]}, "status": {"phase": Phase.ACTIVE.value}}
        _label(metadata)
    return made


def check_creatable(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """Refuse to create a document that has a resourceVersion, or lacks a namespace."""
    if metadata.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    if kind.namespaced and not metadata.get("namespace"):
        raise BadRequest("an empty namespace may not be set during creation")


def prepare_update(kind: Kind, old: Document, new: Document, *, subresource: str = "") -> WriteOutcome:
    """Return the outcome of replacing `old` by `new`."""
    if subresource and subresource not in kind.subresources:
        raise NotFound("the server could not find the requested resource")
    have, given = old["metadata"], dict(new["metadata"])
    _check_revision(kind, have, given)
    if given.get("uid") not in (None, "", have["uid"]):
        text = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {have['uid']}"
        raise conflict(kind, have["name"], text)
    if subresource == "finalize":
        merged = {**old, "spec": {"finalizers": list((new.get("spec") or {}).get("finalizers") or ())}}
    elif subresource:
        merged = _with_status(old, new)
        if kind.holds_objects:
            merged["status"] = {**(merged.get("status") or {}), "phase": old["status"]["phase"]}
    else:
        merged = {**new, "metadata": _updated_metadata(kind, have, given)}
        if kind.has_status:
            merged.pop("status", None)
            merged |= {"status": old["status"]} if "status" in old else {}
        if kind.holds_objects:
            merged["spec"] = old["spec"]
            _label(merged["metadata"])
        if not _same(_spec(kind, old), _spec(kind, merged)):
            merged["metadata"]["generation"] += 1
    merged |= {"apiVersion": kind.api_version, "kind": kind.name}
    if merged["metadata"].get("deletionTimestamp") and not held(kind, merged):
        return WriteOutcome(Verdict.REMOVE, merged)
    return WriteOutcome(Verdict.SAME if _same(old, merged) else Verdict.WRITE, merged, limited=True)


def prepare_delete(
    kind: Kind, old: Document, *, propagation: Propagation, uid: str = "", revision: int | None = None, now: float
) -> WriteOutcome:
    """Return the outcome of deleting `old`."""
    have = old["metadata"]
    if uid and uid != have["uid"]:
        raise conflict(
            kind,
            have["name"],
            f"the UID in the precondition ({uid}) does not match the UID in record ({have['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if revision is not None and revision != int(have["resourceVersion"]):
        raise conflict(
            kind,
            have["name"],
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({have['resourceVersion']}). The object might have been modified",
        )
    finalizers = _finalizers(have.get("finalizers") or [], propagation)
    if not held(kind, {**old, "metadata": {"finalizers": finalizers}}):
        return WriteOutcome(Verdict.REMOVE, old)
    metadata = {**have, "finalizers": finalizers}
    if not finalizers:
        del metadata["finalizers"]
    if not have.get("deletionTimestamp"):
        metadata |= {
            "deletionTimestamp": timestamp(now),
            "deletionGracePeriodSeconds": 0,
            "generation": have.get("generation", 0) + 1,
        }
    marked = {**old, "metadata": metadata}
    if kind.holds_objects:
        marked["status"] = {**old["status"], "phase": Phase.TERMINATING.value}
    return WriteOutcome(Verdict.SAME if _same(old, marked) else Verdict.WRITE, marked)


def _label(metadata: dict[str, Any]) -> None:
    """Add the label by which selectors find a Namespace by its name."""
    metadata["labels"] = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: metadata["name"]}


def held(kind: Kind, document: Document) -> bool:
    """Whether finalizers keep an object that is deleted: its own, or those of what is in it."""
    if document["metadata"].get("finalizers"):
        return True
    return kind.holds_objects and bool(document["spec"].get("finalizers"))


def encode(kind: Kind, document: Document) -> bytes:
    """Return `document` as bytes that `stamp` can put a revision into."""
    metadata = {k: v for k, v in document["metadata"].items() if k != "resourceVersion"}
    rest = {k: v for k, v in document.items() if k not in ("apiVersion", "kind", "metadata")}
    # The metadata comes third, so `stamp` knows its offset.
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **rest})


def encode_new(kind: Kind, document: Document) -> bytes:
    """Return a document that is created as bytes, or raise `TooLarge`."""
    body = encode(kind, document)
    _check_size(kind, body, 0)
    return body


def encode_outcome(outcome: WriteOutcome, old: Stored) -> bytes:
    """Return what `old` is replaced by as bytes, or raise `TooLarge`."""
    body = encode(old.kind, outcome.document)
    if outcome.limited:
        _check_size(old.kind, body, len(old.raw) - len(_REVISION % old.revision))
    return body


def _check_size(kind: Kind, body: bytes, before: int) -> None:
    """Refuse an object that is too large, unless it was larger `before`: it may always shrink."""
    if len(body) > OBJECT_LIMIT and len(body) >= before:
        raise TooLarge(
            f"Request entity too large: the {kind.name} has {len(body)} bytes as JSON; limit is {OBJECT_LIMIT}: remove "
            "labels, annotations or other contents"
        )


def stamp(kind: Kind, namespace: str, name: str, revision: int, body: bytes) -> Stored:
    """Return encoded bytes with the revision filled in."""
    cut = len(_opening(kind))
    return Stored(kind, namespace, name, revision, body[:cut] + _REVISION % revision + body[cut:])


def is_encoded(kind: Kind, body: bytes) -> bool:
    """Return whether bytes begin as those of `encode`: `stamp` and `restamp` rely on it."""
    return body.startswith(_opening(kind))


def restamp(stored: Stored, revision: int) -> Stored:
    """Return the same state at another revision: what a DELETED event shows.  At 0: with none."""
    cut = len(_opening(stored.kind))
    begin = stored.raw.index(b'",', cut + len(b'"resourceVersion":"')) + len(b'",')
    body = stored.raw[:cut] + stored.raw[begin:]
    if revision == 0:
        return Stored(stored.kind, stored.namespace, stored.name, 0, body)
    return stamp(stored.kind, stored.namespace, stored.name, revision, body)


def key_of(namespace: str, name: str) -> str:
    """Return what objects of one kind are found and ordered by; the order is that of Kubernetes' own keys."""
    return f"{namespace}/{name}"


def timestamp(now: float) -> str:
    """Return a Unix time as Kubernetes writes it."""
    return _timestamp(int(now))


def not_found(kind: Kind, name: str) -> NotFound:
    """Return the error for an object that is not there."""
    return NotFound(f'{kind.qualified} "{name}" not found')


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """Return the error for a name that is taken."""
    return AlreadyExists(f'{kind.qualified} "{name}" already exists')


def conflict(kind: Kind, name: str, why: str = "") -> Conflict:
    """Return the error for a write with a stale revision."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return Conflict(f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}')


def invalid(kind: Kind, name: str, causes: Iterable[Cause]) -> Invalid:
    """Return the error for an object with these causes."""
    causes = tuple(causes)
    texts = ", ".join(map(str, causes))
    what = f"{kind.name}.{kind.group}" if kind.group else kind.name
    return Invalid(f'{what} "{name}" is invalid: {texts if len(causes) == 1 else f"[{texts}]"}', causes=causes)


@lru_cache(maxsize=8)
def _timestamp(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=256)
def _opening(kind: Kind) -> bytes:
    return b'{"apiVersion":"%b","kind":"%b","metadata":{' % (kind.api_version.encode(), kind.name.encode())


def _generated(kind: Kind, metadata: dict[str, Any], suffix: str) -> str:
    base: str = metadata.get("generateName") or ""
    if not base:
        raise invalid(
            kind, "", [Cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")]
        )
    return base[:_LONGEST_GENERATED] + suffix


def _check_revision(kind: Kind, have: dict[str, Any], given: dict[str, Any]) -> None:
    revision = given.get("resourceVersion") or ""
    if not revision:
        cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise invalid(kind, have["name"], [cause])
    if revision != have["resourceVersion"]:
        raise conflict(kind, have["name"])


def _updated_metadata(kind: Kind, have: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the new metadata: fields set by the server stay, and an update cannot mark an object deleted."""
    causes = []
    given |= {name: have[name] for name in _SERVERS_OWN if name in have}
    given.setdefault("generation", 0)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        value = given.get(name)
        if value is not None and name not in have:
            shown = msgspec.json.encode(value).decode()
            causes.append(Cause(f"metadata.{name}", f"Invalid value: {shown}: field is immutable"))
    added = [f for f in given.get("finalizers") or [] if f not in (have.get("finalizers") or [])]
    if added and have.get("deletionTimestamp"):
        shown = ", ".join(f'"{f}"' for f in added)
        text = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        causes.append(Cause("metadata.finalizers", f"{text}[]string{{{shown}}}", "FieldValueForbidden"))
    if causes:
        raise invalid(kind, have["name"], causes)
    return given


def _with_status(old: Document, new: Document) -> Document:
    merged = {k: v for k, v in old.items() if k != "status"}
    if "status" in new:
        merged["status"] = new["status"]
    # The API sets the managers of status fields; all other metadata stays.
    if "managedFields" in new["metadata"]:
        merged["metadata"] = {**old["metadata"], "managedFields": new["metadata"]["managedFields"]}
    return merged


def _spec(kind: Kind, document: Document) -> Document:
    """Return the part of a document that generation counts changes of."""
    apart = {"apiVersion", "kind", "metadata", "status"} if kind.has_status else {"apiVersion", "kind", "metadata"}
    return {k: v for k, v in document.items() if k not in apart}


def _finalizers(have: list[str], propagation: Propagation) -> list[str]:
    kept = [f for f in have if f not in (_FOREGROUND, _ORPHAN)]
    if propagation is Propagation.FOREGROUND:
        kept.append(_FOREGROUND)
    if propagation is Propagation.ORPHAN:
        kept.append(_ORPHAN)
    # The same finalizers in the same order, so that deleting twice changes nothing.
    return have if sorted(have) == sorted(kept) else kept


def _same(one: Document, other: Document) -> bool:
    """Return whether two documents are the same JSON.  To Python, 1, 1.0 and true are equal."""
    return one == other and msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
