"""All operations on one object: get, create, update, patch, delete; single requests and batches both use them.

    decode -> agrees with the URL -> valid (model/validation) -> field managers (apply) -> admission -> store

A patch is a read, a change and a conditional write, which is retried on a conflict unless the patch itself names a
revision. Server-side apply of a missing object creates it, which requires the right to create. The rules for objects
are elsewhere.
"""

import time
from collections.abc import Sequence

from netloom.errors import BadRequest, Cause, Conflict, Invalid, NotFound, UnsupportedMediaType
from netloom.front.api.admission.admission import Admission, Write, WriteOperation
from netloom.front.api.admission.namespaces import NamespaceLifecycle
from netloom.front.api.auth.identity import Attributes, Authorizer, Identity, forbidden, namespace_of
from netloom.front.api.http.paths import Request, Verb
from netloom.front.api.merge import apply, patch, shapes, strategic
from netloom.front.api.verbs.calls import Call, CallResult
from netloom.front.api.verbs.deletes import Deletes
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, GROUP
from netloom.model.schemas import validation
from netloom.store.base import Store, Stored
from netloom.store.semantics import timestamp

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
ON_ONE = frozenset((Verb.GET, Verb.CREATE, Verb.UPDATE, Verb.PATCH, Verb.DELETE))
"""The verbs about one object."""
_ATTEMPTS = 5
_EMPTY = frozenset(("labels", "annotations", "finalizers", "ownerReferences", "generateName", "name"))


class Operations:
    """The verbs about one object, over one store."""

    def __init__(
        self,
        store: Store,
        authorizer: Authorizer,
        admissions: Sequence[Admission],
        *,
        namespaces: NamespaceLifecycle | None = None,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._admissions = admissions
        self._namespaces = namespaces
        self.deletes = Deletes(store, admissions)

    async def authorize(self, request: Request, who: Identity) -> None:
        """Raise `Forbidden` unless `who` may make this request."""
        what = request.attributes()
        if not await self._authorizer.allows(who, what):
            raise forbidden(who, what)

    async def run(self, call: Call) -> CallResult:
        """Run a request about one object that is already authorized."""
        request = call.request
        match request.verb:
            case Verb.CREATE:
                return await self.create(call)
            case Verb.UPDATE:
                return await self.replace(call)
            case Verb.PATCH:
                return await self.patch(call)
            case Verb.DELETE:
                return await self.deletes.delete(call)
            case _:
                return CallResult(200, await self._store.get(request.kind, request.namespace, request.name))

    async def create(self, call: Call) -> CallResult:
        """Create an object."""
        document = call.document()
        agree(document, call.request)
        return CallResult(201, await self._create(call, document))

    async def replace(self, call: Call) -> CallResult:
        """Replace an object, or its status."""
        request = call.request
        document = call.document()
        agree(document, request)
        given = document["metadata"].get("resourceVersion")
        # Of our kinds, Kubernetes allows only Events to be replaced at any revision.
        always = request.kind is EVENT and not given
        known = int(given) if isinstance(given, str) and given.isdecimal() and not request.options.dry_run else 0
        for attempt in range(_ATTEMPTS):
            live = await self._store.get(request.kind, request.namespace, request.name, known=known)
            if always:
                document["metadata"]["resourceVersion"] = str(live.revision)
            try:
                return CallResult(200, await self._update(call, live, document))
            except Conflict:
                if not always or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")

    async def patch(self, call: Call) -> CallResult:
        """Change an object with a patch of any type."""
        request = call.request
        media = call.media.partition(";")[0].strip().lower()
        accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        if request.served is not None:  # managedFields use the names of the stored version only.
            accepted.remove(APPLY_PATCH)
        if request.kind.group != GROUP:  # As kube-apiserver: for its own kinds, not for those of a CRD.
            accepted.append(STRATEGIC_PATCH)
        if media not in accepted:
            raise UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(accepted)
            )
        _check_options(request, media)
        change = _Patch(media, call.body, request, call.manager())
        for attempt in range(_ATTEMPTS):
            live = await self._live(request, media)
            try:
                return await self._patched(call, live, change)
            except Conflict:
                if change.names_revision or change.conflicted or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")

    async def _live(self, request: Request, media: str) -> Stored | None:
        try:
            return await self._store.get(request.kind, request.namespace, request.name)
        except NotFound:
            # Apply creates a missing object; its status cannot be applied before it exists.
            if media != APPLY_PATCH or request.subresource:
                raise
            return None

    async def _patched(self, call: Call, live: Stored | None, change: "_Patch") -> CallResult:
        request = call.request
        if live is None:
            # The right to patch covers existing objects only.
            namespace = namespace_of(request.kind, request.namespace, request.name)
            what = Attributes(Verb.CREATE, request.kind, namespace, request.name)
            if not await self._authorizer.allows(call.who, what):
                raise forbidden(call.who, what)
        old = None if live is None else live.document()
        new = change.applied_to(old, timestamp(time.time()))
        _keeps_identity(request, old, new)
        agree(new, request)
        if live is None:
            return CallResult(201, await self._create(call, new, managed=True))
        return CallResult(200, await self._update(call, live, new, managed=change.media == APPLY_PATCH))

    async def _create(self, call: Call, document: Document, *, managed: bool = False) -> Stored:
        """Store a new document; `managed` means that its managedFields are already set."""
        kind, asked = call.request.kind, call.request.options
        call.warnings += validation.admit(kind, document, unknown=asked.validation)
        if not managed:
            document = apply.updated(kind, None, document, manager=call.manager(), now=timestamp(time.time()))
        name = document["metadata"].get("name", "")
        write = Write(
            operation=WriteOperation.CREATE,
            kind=kind,
            namespace=call.request.namespace,
            name=name,
            who=call.who,
            new=document,
            dry_run=asked.dry_run,
        )
        for admission in self._admissions:
            await admission.review(write, self._store)
        if self._namespaces is not None:
            await self._namespaces.ensure(write)
        return await self._store.create(kind, document, dry_run=asked.dry_run)

    async def _update(self, call: Call, live: Stored, document: Document, *, managed: bool = False) -> Stored:
        """Store a document over the live one."""
        request = call.request
        kind, asked, subresource = request.kind, request.options, request.subresource
        _check_revision(kind, live, document)
        old = live.document()
        warnings = validation.admit(kind, document, old=old, subresource=subresource, unknown=asked.validation)
        if not managed:
            document = apply.updated(
                kind, old, document, manager=call.manager(), now=timestamp(time.time()), subresource=subresource
            )
        write = Write(
            operation=WriteOperation.UPDATE,
            kind=kind,
            namespace=live.namespace,
            name=live.name,
            who=call.who,
            subresource=subresource,
            old=live,
            new=document,
            dry_run=asked.dry_run,
        )
        for admission in self._admissions:
            await admission.review(write, self._store)
        stored = await self._store.update(kind, document, subresource=subresource, dry_run=asked.dry_run)
        call.warnings += warnings
        return stored


class _Patch:
    """A patch, parsed once and applied as often as needed."""

    def __init__(self, media: str, body: bytes, request: Request, manager: str) -> None:
        self.media = media
        self.conflicted = False
        """Whether a conflict is about the owner of a field: retrying does not help."""
        self._request = request
        self._manager = manager
        self._content = codec.decode_value(body, "application/yaml" if media == APPLY_PATCH else "application/json")

    @property
    def names_revision(self) -> bool:
        """Whether the patch applies to one revision only."""
        content = self._content
        if isinstance(content, dict):
            metadata = content.get("metadata")
            return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))
        return any(
            isinstance(operation, dict) and operation.get("path") == "/metadata/resourceVersion"
            for operation in content
            if isinstance(content, list)
        )

    def applied_to(self, old: Document | None, now: str) -> Document:
        """Return the patched document."""
        if self.media == APPLY_PATCH:
            if not isinstance(self._content, dict):
                raise BadRequest("an apply patch must be an object")
            agree(self._content, self._request)
            try:
                return apply.applied(
                    self._request.kind,
                    old,
                    self._content,
                    manager=self._manager,
                    now=now,
                    force=bool(self._request.options.force),
                    subresource=self._request.subresource,
                )
            except Conflict:
                self.conflicted = True
                raise
            except BadRequest:
                # A document that does not fit the schema cannot be merged by it. Validation reports all errors, with
                # spelling suggestions; the error of the merge stands if validation finds nothing.
                validation.admit(self._request.kind, patch.merge_patch(old or {}, self._content), old=old)
                raise
        assert old is not None
        served = self._request.served
        if served is not None:
            return served.stored(self._changed(served.shown(old)))
        return self._changed(old)

    def _changed(self, old: Document) -> Document:
        if self.media == JSON_PATCH:
            return patch.json_patch(old, self._content)
        if self.media == STRATEGIC_PATCH:
            return strategic.strategic_merge_patch(shapes.shape(self._request.kind), old, self._content)
        return patch.merge_patch(old, self._content)


def agree(document: Document, request: Request) -> None:
    """Refuse a document that does not match the URL; fill in what only the URL has."""
    kind = request.kind
    if kind.group != GROUP:  # Documents of Kubernetes' own kinds may leave kind and apiVersion to the URL.
        document.setdefault("apiVersion", kind.api_version)
        document.setdefault("kind", kind.name)
    for key, wanted in (("kind", kind.name), ("apiVersion", kind.api_version)):
        given = document.get(key)
        if not given:
            raise BadRequest(f"Object '{key[0].upper()}{key[1:]}' is missing: it must be {wanted!r}")
        if given != wanted:
            what = "kind" if key == "kind" else "API version"
            raise BadRequest(
                f"the {what} in the data ({str(given)[:64]}) does not match the expected {what} ({wanted})"
            )
    metadata = document.get("metadata")
    if metadata is None:
        metadata = document["metadata"] = {}
    if not isinstance(metadata, dict):
        raise BadRequest("metadata must be an object")
    for key in _EMPTY & metadata.keys():
        if not metadata[key]:  # As in Kubernetes, an empty value is a missing value.
            del metadata[key]
    namespace = metadata.get("namespace") or ""
    if kind.namespaced and namespace not in ("", request.namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if request.namespace:
        metadata["namespace"] = request.namespace
    else:
        metadata.pop("namespace", None)
    if not request.name:
        return
    name = metadata.setdefault("name", request.name)
    if name != request.name:
        raise BadRequest(
            f"the name of the object ({str(name)[:64]}) does not match the name on the URL ({request.name})"
        )


def _check_options(request: Request, media: str) -> None:
    asked = request.options
    if media == APPLY_PATCH and not asked.manager:
        raise _invalid_options(
            Cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
        )
    if media != APPLY_PATCH and asked.force is not None:
        forbidden = "Forbidden: may not be specified for non-apply patch"
        raise _invalid_options(Cause("force", forbidden, "FieldValueForbidden"))


def _invalid_options(cause: Cause) -> Invalid:
    return Invalid(f'PatchOptions.meta.k8s.io "" is invalid: {cause}', causes=[cause])


def _keeps_identity(request: Request, old: Document | None, patched: Document) -> None:
    """Refuse a patch that removes name or uid: labels and finalizers would be lost with the name, by accident."""
    metadata = patched.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise BadRequest(f"the patch removes metadata.name, which must be {request.name!r}")
    if old is not None and metadata.get("uid") not in (None, "", old["metadata"]["uid"]):
        cause = Cause("metadata.uid", f"Invalid value: {str(metadata['uid'])[:64]!r}: field is immutable")
        raise Invalid(f'{request.kind.name} "{request.name}" is invalid: {cause}', causes=[cause])


def _check_revision(kind: Kind, live: Stored, document: Document) -> None:
    """Report a conflict before errors in the document, which may be right for the revision it was made from."""
    given = document["metadata"].get("resourceVersion")
    if isinstance(given, str) and given and given != str(live.revision):
        raise Conflict(
            f'Operation cannot be fulfilled on {kind.qualified} "{live.name}": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
