"""Ownership of fields: managedFields on every write, and server-side apply.

`updated` is called for every create, replace and patch, after defaulting: the manager that changed a field becomes its
only owner. `applied` merges a configuration into the live object: fields that this manager applied before, does not
apply any more, and that no other manager owns are removed; changing the fields of others is a conflict, unless forced.
Both return a new document for the store and do not modify their arguments; the caller validates it.

The server's own fields (name, uid, resourceVersion, …) have no owner; neither has status on a write to the main
resource, nor anything but status on a write to the status sub-resource. The behaviour is that of kube-apiserver for
custom resources, and tests compare the two.
"""

from typing import Any

import msgspec

from netloom.errors import BadRequest, Cause, Conflict, first, shortened
from netloom.front.api.merge import documents, fields
from netloom.front.api.merge.fields import Fields
from netloom.front.api.merge.managers import MAX_MANAGERS, Owner, Share, Shares, capped, current, with_shares
from netloom.front.api.merge.patch import same
from netloom.front.api.merge.shapes import Shape, check, shape
from netloom.model.document import Document
from netloom.model.kind import Kind

MAX_ANNOTATIONS_BYTES = 256 * 1024
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NOBODYS = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "clusterName",
        "managedFields",
    )
)
"""Members of metadata that the server sets."""


def updated(
    kind: Kind,
    live: Document | None,
    new: Document,
    *,
    manager: str,
    now: str,
    subresource: str = "",
    like: Shape | None = None,
) -> Document:
    """Return `new` with the managedFields that follow from writing it over `live` (None: creating it).

    `new` has its defaults; `now` is as in creationTimestamp; `like` overrides how objects merge by their schema.
    """
    like = like or shape(kind)
    given = new["metadata"].get("managedFields")
    me = Owner(manager, "Update", kind.api_version, subresource)
    if live is None and not given:
        first = _all_paths(like, new, _ignored(kind, subresource))
        return with_shares(new, {me: Share(first, now)} if first else {}, kind)
    before = live or {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    shares = current(kind, before, given, subresource)
    if live is not None and not shares:
        return with_shares(new, {}, kind)  # This object is not tracked so far, and stays so until a manager applies.
    change = _compare(like, before, new, _ignored(kind, subresource))
    return with_shares(new, _taken(shares, change, me, now), kind)


def applied(
    kind: Kind,
    live: Document | None,
    configuration: Document,
    *,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
    like: Shape | None = None,
) -> Document:
    """Return the live object (None: there is none yet) with a configuration applied.

    Raises `Conflict`, with one cause for each field, if the configuration changes what others own, unless `force`.
    Applying the same configuration again returns the live object.
    """
    like = like or shape(kind)
    _check(kind, like, live, configuration)
    ignored = _ignored(kind, subresource)
    before: Document = live or {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    config = _relevant(configuration, subresource, ignored)
    shares = current(kind, before, None, "")
    if live is not None and not shares and (first := _all_paths(like, live, ignored)):
        shares = {Owner("before-first-apply", "Update", kind.api_version, subresource): Share(first, now)}
    me = Owner(manager, "Apply", "", subresource)
    if me not in shares and len(shares) >= MAX_MANAGERS:
        raise BadRequest(f"the object already has {len(shares)} field managers: apply as one of them")
    claimed = documents.owned(like, config) or {}
    result = documents.merged(like, before, config)
    others = {owner: share for owner, share in shares.items() if owner != me}
    if me in shares:
        result = _pruned(like, result, shares[me].fields, claimed, others)
    change = _compare(like, before, result, ignored)
    changed = fields.union(change.modified or {}, change.added or {})
    conflicts = {owner: both for owner, share in others.items() if (both := fields.intersection(share.fields, changed))}
    if conflicts and not force:
        _refuse(conflicts, _forgiven(like, before) if manager == "kubectl" else {})
    last = shares.get(me)
    shares = _taken(others, change, None, now)
    if mine := _stripped(claimed):
        untouched = last and last.fields == mine and same(_unmanaged(before), _unmanaged(result))
        shares[me] = last if last and untouched else Share(mine, now)
    if manager == "kubectl":
        result = _noted(result, configuration)
    return with_shares(result, shares, kind)


def _ignored(kind: Kind, subresource: str) -> frozenset[str]:
    """Return the top-level members that a write does not touch."""
    if subresource:
        return frozenset(("apiVersion", "kind", "metadata", "spec"))
    return frozenset(("apiVersion", "kind", "status") if kind.has_status else ("apiVersion", "kind"))


def _all_paths(like: Shape, document: Document, ignored: frozenset[str]) -> Fields:
    """Return all fields that a new document owns."""
    out: Fields = {}
    known = like.fields
    for name, value in document.items():
        if name in ignored:
            continue
        if name != "metadata":
            out[f"f:{name}"] = documents.all_paths(like.member(name), value)
            continue
        meta = known["metadata"].fields
        members = {
            f"f:{key}": documents.all_paths(meta[key], member)
            for key, member in value.items()
            if key not in NOBODYS and key in meta
        }
        if members:
            out["f:metadata"] = members
    return out


def _compare(like: Shape, old: Document, new: Document, ignored: frozenset[str]) -> documents.Comparison:
    """Return the changes of a write, without fields that have no owner."""
    out = documents.Comparison()
    for name in old | new:
        if name in ignored:
            continue
        before, after = old.get(name, documents.ABSENT), new.get(name, documents.ABSENT)
        if name == "metadata":
            before, after = _owned_metadata(old), _owned_metadata(new)
        out.put(f"f:{name}", documents.compare(like.member(name), before, after))
    return out


def _owned_metadata(document: Document) -> Document:
    return {key: value for key, value in document["metadata"].items() if key not in NOBODYS}


def _unmanaged(document: Document) -> Document:
    return document | {"metadata": {k: v for k, v in document["metadata"].items() if k != "managedFields"}}


def _stripped(owned: Fields) -> Fields:
    """Return a set without fields that have no owner."""
    out = {key: below for key, below in owned.items() if key not in ("f:apiVersion", "f:kind", "f:metadata")}
    below = {k: v for k, v in owned.get("f:metadata", {}).items() if k[2:] not in NOBODYS and k != fields.SELF}
    return out | {"f:metadata": below} if below else out


def _taken(shares: Shares, change: documents.Comparison, me: Owner | None, now: str) -> Shares:
    """Return the shares after a change: removed and changed fields lose their owners; `me` owns the changed ones."""
    changed = fields.union(change.modified or {}, change.added or {})
    out: Shares = {}
    for owner, share in shares.items():
        left = fields.difference(fields.difference(share.fields, changed), change.removed or {})
        if left:
            out[owner] = share if left == share.fields else Share(left, share.time)
    if me is not None and changed:
        out[me] = Share(fields.union(out[me].fields, changed) if me in out else changed, now)
        return capped(out)
    return out


def _check(kind: Kind, like: Shape, live: Document | None, configuration: Document) -> None:
    if (configuration.get("apiVersion"), configuration.get("kind")) != (kind.api_version, kind.name):
        raise BadRequest(
            f"Incorrect version specified in apply patch. Specified patch version: "
            f"{configuration.get('apiVersion')}, {configuration.get('kind')}, expected: {kind.api_version}, {kind.name}"
        )
    metadata = configuration.get("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest(".metadata: expected an object")
    check(like, configuration)
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    if live is None and metadata.get("uid"):
        raise Conflict(
            f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        )


def _relevant(configuration: Document, subresource: str, ignored: frozenset[str]) -> Document:
    """Return the configuration without what this write does not touch; its identity stays."""
    config = {k: v for k, v in configuration.items() if k not in ignored or k in ("apiVersion", "kind")}
    metadata = configuration.get("metadata", {})
    if subresource:
        metadata = {k: v for k, v in metadata.items() if k in NOBODYS}
    return config | {"metadata": metadata}


def _pruned(like: Shape, result: Document, last: Fields, claimed: Fields, others: Shares) -> Document:
    """Return the merged object without fields that only this applier owned and does not apply any more."""
    kept = fields.gathered([claimed, *(share.fields for share in others.values())])
    all_owned = documents.with_named(like, documents.owned(like, result) or {})
    last = documents.with_named(like, last)

    pruned = documents.without(like, result, last)
    left = documents.with_named(like, documents.owned(like, pruned) or {})
    gone = fields.difference(all_owned, fields.union(left, documents.with_named(like, kept)))
    pruned = documents.without(like, result, gone)
    # Fields that were removed with their parent, and were never this applier's, are restored.
    left = documents.with_named(like, documents.owned(like, pruned) or {})
    gone = fields.intersection(fields.difference(all_owned, left), last)
    kept_document: Document = documents.without(like, result, gone)
    return kept_document


def _refuse(conflicts: dict[Owner, Fields], forgiven: Fields) -> None:
    """Raise `Conflict` with one cause for each field, unless all are forgiven."""
    causes: list[Cause] = []
    lines: list[str] = []
    for owner, taken in sorted(conflicts.items(), key=lambda c: (c[0].manager, c[0].operation, c[0].subresource)):
        named = list(fields.paths(fields.difference(taken, forgiven)))
        causes += [Cause(path, f"conflict with {owner}", "FieldManagerConflict") for path in named]
        lines += [f"conflicts with {owner}:", *(f"- {path}" for path in named)] if named else []
    if len(causes) == 1:
        cause = causes[0]
        raise Conflict(f"Apply failed with 1 conflict: {cause.message}: {cause.field}", causes=causes)
    if causes:
        listed = "\n".join(shortened(lines))
        raise Conflict(f"Apply failed with {len(causes)} conflicts: {listed}", causes=first(causes))


def _forgiven(like: Shape, live: Document) -> Fields:
    """Return the unchanged fields of kubectl's client-side apply: kubectl may take them over."""
    try:
        last: Any = msgspec.json.decode((live["metadata"].get("annotations") or {}).get(LAST_APPLIED, ""))
        if last["apiVersion"] != live["apiVersion"]:
            return {}
        check(like, last)
    except (msgspec.DecodeError, BadRequest, KeyError, TypeError):
        return {}
    change = documents.compare(like, last, live)
    owned = documents.owned(like, last) or {}
    for part in (change.modified, change.added, change.removed):
        owned = fields.difference(owned, part or {})
    return owned


def _noted(result: Document, configuration: Document) -> Document:
    """Update the last-applied annotation of client-side apply, if there is one, to match server-side apply."""
    annotations = result["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return result
    metadata = dict(configuration.get("metadata", {}))
    if metadata.get("annotations"):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != LAST_APPLIED}
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    note = msgspec.json.encode(configuration | {"metadata": metadata}, order="sorted").decode() + "\n"
    annotations = annotations | {LAST_APPLIED: note}
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS_BYTES:
        del annotations[LAST_APPLIED]
    return result | {"metadata": result["metadata"] | {"annotations": annotations}}
