"""The entries of metadata.managedFields: decoding, encoding, and limiting their number.

There is one entry per (manager, operation, apiVersion, sub-resource); an applier has one for all versions.
"""

from msgspec import Struct

from netloom.front.api.merge import fields
from netloom.front.api.merge.fields import Fields
from netloom.front.api.merge.patch import Json
from netloom.model.document import Document
from netloom.model.kind import Kind

MAX_UPDATE_MANAGERS = 10
MAX_MANAGERS = 100
"""How many appliers an object may have: each write reads the fields of all of them."""


class Owner(Struct, frozen=True):
    """The key of an entry."""

    manager: str
    operation: str
    api_version: str
    """"" for an applier: it is the same one in every version."""
    subresource: str

    def __str__(self) -> str:
        through = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == "Update" else ""
        return f'"{self.manager}"{through}{using}'


class Share(Struct, frozen=True):
    """The fields of one owner, and the time of its last write."""

    fields: Fields
    time: str = ""


Shares = dict[Owner, Share]


def current(kind: Kind, live: Document, given: Json, subresource: str) -> Shares:
    """Return the shares to start from: those in the request if they are valid, else those of the live object."""
    stored = live["metadata"].get("managedFields") or []
    if given is not None and not subresource and given != stored:
        if given == [{}]:
            return {}
        try:
            if shares := _decoded(given):
                return _of_version(kind, shares)
        except ValueError:
            pass  # The request's managedFields are not valid: ignore them.
    try:
        return _of_version(kind, _decoded(stored))
    except ValueError:
        return {}


def _of_version(kind: Kind, shares: dict[Owner, tuple[str, Share]]) -> Shares:
    """Return the shares of the current version; the fields of another have no meaning here."""
    return {owner: share for owner, (version, share) in shares.items() if version == kind.api_version}


def _decoded(entries: Json) -> dict[Owner, tuple[str, Share]]:
    """Return managedFields as shares with their versions, or raise `ValueError`."""
    out: dict[Owner, tuple[str, Share]] = {}
    if not isinstance(entries, list) or len(entries) > 2 * MAX_MANAGERS:
        raise ValueError(f"managedFields must be a list of at most {2 * MAX_MANAGERS} entries")
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError("managedFields must be a list of objects")
        words = [entry.get(key, "") for key in ("manager", "operation", "apiVersion", "subresource", "time")]
        if not all(isinstance(word, str) for word in words):
            raise ValueError("an entry of managedFields must have strings for its owner")
        manager, operation, version, subresource, time = words
        if operation not in ("Apply", "Update") or not version or entry.get("fieldsType") != "FieldsV1":
            raise ValueError("an entry of managedFields must have an operation, an apiVersion and FieldsV1")
        owner = Owner(manager, operation, "" if operation == "Apply" else version, subresource)
        out[owner] = version, Share(fields.decode(entry.get("fieldsV1") or {}), time)
    return out


def with_shares(document: Document, shares: Shares, kind: Kind) -> Document:
    """Return the document with these managedFields, in Kubernetes' order: appliers first, then by time and name."""
    metadata = dict(document["metadata"])
    metadata.pop("managedFields", None)
    if shares:
        ordered = sorted(
            shares.items(), key=lambda s: (s[0].operation, s[1].time, s[0].manager, s[0].api_version, s[0].subresource)
        )
        metadata["managedFields"] = [_entry(owner, share, kind) for owner, share in ordered]
    return document | {"metadata": metadata}


def _entry(owner: Owner, share: Share, kind: Kind) -> Document:
    entry: Document = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": kind.api_version,
        "time": share.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": share.fields,
    }
    if not share.time:
        del entry["time"]
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return entry


def capped(shares: Shares) -> Shares:
    """Return the shares with the oldest updaters of each version merged into one entry, if there are too many."""
    updaters = sorted((o for o in shares if o.operation == "Update"), key=lambda o: (shares[o].time, o.manager))
    excess = len(updaters) - MAX_UPDATE_MANAGERS
    out = dict(shares)
    first: dict[str, Owner] = {}
    parts: dict[Owner, list[Fields]] = {}
    for owner in updaters:
        if excess <= 0:
            break
        bucket = Owner("ancient-changes", "Update", owner.api_version, "")
        if owner.api_version not in first:
            first[owner.api_version] = owner
            continue
        if bucket not in out:
            out[bucket] = out.pop(first[owner.api_version])
        oldest = first[owner.api_version] if owner == bucket else owner
        share, into = out.pop(oldest), out[bucket]
        parts.setdefault(bucket, [into.fields]).append(share.fields)
        out[bucket] = Share(into.fields, max(share.time, into.time))
        excess -= 1
    return out | {owner: Share(fields.gathered(found), out[owner].time) for owner, found in parts.items()}
