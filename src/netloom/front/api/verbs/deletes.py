"""delete and deletecollection.

Options for dependents and preconditions come in a DeleteOptions body, in the query, or in both.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from netloom.errors import BadRequest, Cause, Conflict, Invalid, NotFound
from netloom.front.api.admission.admission import Admission, Write, WriteOperation
from netloom.front.api.auth.identity import Identity
from netloom.front.api.http.exchange import Exchange
from netloom.front.api.http.paths import Request
from netloom.front.api.output import protobuf_kinds, statuses
from netloom.front.api.verbs import lists
from netloom.front.api.verbs.calls import Call, CallResult, is_protobuf
from netloom.model import codec
from netloom.model.document import Document
from netloom.store.base import Page, Precondition, PreconditionFailed, Propagation, Store, Stored
from netloom.store.damage import Unreadable
from netloom.store.semantics import held

_ATTEMPTS = 5
_TOGETHER = 64


class Deletion(Struct, frozen=True, kw_only=True):
    """The options of a deletion."""

    propagation: Propagation = Propagation.BACKGROUND
    uid: str = ""
    revision: int | None = None
    dry_run: bool = False
    cascades: bool = False
    """Whether the client sent `orphanDependents=false`, the deprecated form of Background."""


class Deletes:
    """The verbs that delete."""

    def __init__(self, store: Store, admissions: Sequence[Admission]) -> None:
        self._store = store
        self._admissions = admissions

    async def delete(self, call: Call) -> CallResult:
        """Delete one object; return a Status, or the object while finalizers block its deletion."""
        request = call.request
        how = _deletion(call)
        stored = await self._delete(request, call.who, request.namespace, request.name, how)
        document = stored.document()
        if held(request.kind, document):
            return CallResult(202 if how.cascades else 200, stored)
        return CallResult(200, status=statuses.success(request.kind, stored.name, document["metadata"]["uid"]))

    async def delete_collection(self, exchange: Exchange, call: Call) -> None:
        """Delete all objects that a list would return; answer with that list.  A refusal does not stop the others."""
        request, who = call.request, call.who
        view = exchange.view(request)
        how = _deletion(call)
        page = await lists.read(request, self._store, exchange.limits)
        gone: list[Stored] = []
        refused: list[Conflict] = []
        for start in range(0, len(page.items), _TOGETHER):
            batch = page.items[start : start + _TOGETHER]
            # Concurrently, because a store makes many writes durable as fast as one.
            done = await asyncio.gather(
                *(self._delete(request, who, found.namespace, found.name, how) for found in batch),
                return_exceptions=True,
            )
            for result in done:
                if isinstance(result, Stored):
                    gone.append(result)
                elif isinstance(result, Conflict):
                    refused.append(result)
                elif not isinstance(result, NotFound):
                    raise result
        if refused:
            raise refused[0]
        await lists.reply_page(exchange, view, Page(gone, page.revision, page.token, page.remaining))

    async def _delete(self, request: Request, who: Identity, namespace: str, name: str, how: Deletion) -> Stored:
        for attempt in range(_ATTEMPTS):
            old: Stored | None = None
            try:
                old = await self._store.get(request.kind, namespace, name)
            except Unreadable:
                if how.uid or how.revision is not None:
                    raise  # A precondition on an object that cannot be decoded cannot be checked.
            write = Write(
                operation=WriteOperation.DELETE,
                kind=request.kind,
                namespace=namespace,
                name=name,
                who=who,
                old=old,
                propagation=how.propagation,
                dry_run=how.dry_run,
            )
            unless: Precondition | None = None
            for admission in self._admissions:
                unless = await admission.review(write, self._store) or unless
            if old is None:  # It cannot be decoded. Its users already work without it, so they do not block this.
                return await self._store.delete(request.kind, namespace, name, dry_run=how.dry_run)
            try:
                return await self._store.delete(
                    request.kind,
                    namespace,
                    name,
                    propagation=how.propagation,
                    # Delete the object that was reviewed, not another one of the same name.
                    uid=how.uid or old.document()["metadata"]["uid"],
                    revision=how.revision,
                    unless=unless,
                    dry_run=how.dry_run,
                )
            except PreconditionFailed:
                if attempt == _ATTEMPTS - 1:
                    raise
            except Conflict:
                if how.uid or how.revision is not None or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")


def _deletion(call: Call) -> Deletion:
    asked = call.request.options
    given = _options(call)
    propagation = _read(given, "propagationPolicy", str) or (asked.propagation and str(asked.propagation)) or ""
    orphan = _read(given, "orphanDependents", bool)
    orphan = asked.orphan if orphan is None else orphan
    if propagation and orphan is not None:
        raise _invalid("propagationPolicy", "orphanDependents and deletionPropagation cannot be both set")
    preconditions = _read(given, "preconditions", dict) or {}
    dry_run = _read(given, "dryRun", list) or []
    if any(value != "All" for value in dry_run):
        raise _invalid("dryRun", 'Unsupported value: supported values: "All"', "FieldValueNotSupported")
    revision = _read(preconditions, "resourceVersion", str)
    if revision and not (revision.isascii() and revision.isdigit() and len(revision) < 20):
        raise _invalid("preconditions.resourceVersion", f"Invalid value: {revision[:64]!r}: not a resourceVersion")
    return Deletion(
        propagation=Propagation.ORPHAN if orphan else _propagation(propagation),
        uid=_read(preconditions, "uid", str) or "",
        revision=int(revision) if revision else None,
        dry_run=asked.dry_run or bool(dry_run),
        cascades=orphan is False,
    )


def _options(call: Call) -> Document:
    if not call.body:
        return {}
    return protobuf_kinds.delete_options(call.body) if is_protobuf(call.media) else codec.decode(call.body, call.media)


def _propagation(text: str) -> Propagation:
    try:
        return Propagation(text) if text else Propagation.BACKGROUND
    except ValueError:
        known = ", ".join(f'"{value}"' for value in Propagation)
        message = f'Unsupported value: "{text[:64]}": supported values: {known}'
        raise _invalid("propagationPolicy", message, "FieldValueNotSupported") from None


def _read(given: Document, key: str, wanted: type[Any]) -> Any:  # noqa: ANN401 - of type `wanted`, or None.
    value = given.get(key)
    if value is not None and not isinstance(value, wanted):
        raise BadRequest(f"DeleteOptions: {key} must be of type {wanted.__name__}")
    return value


def _invalid(field: str, message: str, reason: str = "FieldValueInvalid") -> Invalid:
    cause = Cause(field, message, reason)
    return Invalid(f'DeleteOptions.meta.k8s.io "" is invalid: {cause}', causes=[cause])
