"""The description of a kind, from which routes, tables, selectors, OpenAPI and CRDs are derived."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from msgspec import Struct

from netloom.errors import NotFound
from netloom.model.document import Document, Resource

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_VERBS = ("get", "list", "watch")


class Column(Struct, frozen=True):
    """One column of `kubectl get`.

    `path` is a JSONPath as in a CRD's additionalPrinterColumns (`.spec.node`, `.spec.vips[*].ip`,
    `.status.conditions[?(@.type=="Ready")].status`); for Event, which has no CRD, also a text with paths in braces.
    """

    name: str
    path: str
    type: str = "string"
    """string, integer, boolean or date."""
    wide: bool = False
    """Whether only `-o wide` shows the column."""
    description: str = ""


class Plan(StrEnum):
    """How plans use the objects of a kind."""

    NONE = ""
    """Nothing is planned from them."""
    INPUT = "input"
    """The plans of other objects read them."""
    ASIDE = "aside"
    """They are planned, and their condition `Ready` is another controller's: `Programmed` reports problems."""
    READY = "ready"
    """They are planned, and their condition `Ready` says whether the plan is in force."""


class Kind(Struct, frozen=True, kw_only=True, eq=False):
    """A kind of resource.  Compared by identity: the registry has one `Kind` value per kind."""

    group: str
    """Empty for the core group."""
    version: str
    name: str
    """The value of `kind:`."""
    plural: str
    singular: str
    type: type[Resource]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    has_status: bool = True
    """Whether the kind has a status sub-resource."""
    holds_objects: bool = False
    """Whether objects of this kind contain other objects, as a Namespace does.  Such a kind has `spec.finalizers`, a
    sub-resource `finalize` that changes them, and `status.phase`; deletion waits until spec.finalizers is empty."""
    verbs: tuple[str, ...] = VERBS
    """The verbs that the API supports for this kind."""
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    """Fields, such as `spec.node`, that a field selector may use besides metadata.name and metadata.namespace."""
    description: str = ""
    plan: Plan = Plan.NONE
    needs_ovn: bool = False
    """Whether only OVN implements it."""
    refers_to_attachments: bool = False
    """Whether its spec names or selects attachments, so that their plans decide about its status."""
    read_by_nodes: bool = False
    """Whether the agents of nodes read objects of this kind, besides Nodes and Events."""
    controllers_only: bool = False
    """Whether only controllers and administrators write objects of this kind: editors only read them."""

    @property
    def subresources(self) -> dict[str, tuple[str, ...]]:
        """The sub-resources, and the verbs of each."""
        found: dict[str, tuple[str, ...]] = {"finalize": ("update",)} if self.holds_objects else {}
        return found | {"status": ("get", "patch", "update")} if self.has_status else found

    @property
    def api_version(self) -> str:
        """The value of `apiVersion:`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages and CRDs, such as `networks.netloom.dev`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of this kind, of one object, or of its sub-resource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "/" + "/".join(part for part in (self.plural, name, subresource) if part)

    def decode(self, raw: bytes) -> Resource:
        """Decode bytes from a store to the typed value of this kind.  Stored objects are not validated again."""
        return msgspec.json.decode(raw, type=self.type)

    def document(self, value: Resource) -> Document:
        """Return a typed value as a document."""
        # Not to_builtins, which leaves tuples as they are: a document's lists are lists.
        built: Document = msgspec.json.decode(msgspec.json.encode(value))
        return built


class Registry:
    """All kinds, with lookup by any of their names."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = tuple(kinds)
        self._by_resource = {(k.group, k.version, k.plural): k for k in self._kinds}
        self._by_kind = {(k.api_version, k.name): k for k in self._kinds}
        self._by_type = {k.type: k for k in self._kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def resource(self, group: str, version: str, plural: str) -> Kind:
        """Return the kind served at /apis/GROUP/VERSION/PLURAL."""
        try:
            return self._by_resource[group, version, plural]
        except KeyError:
            raise NotFound("the server could not find the requested resource") from None

    def kind(self, api_version: str, name: str) -> Kind:
        """Return the kind with this apiVersion and name."""
        try:
            return self._by_kind[api_version, name]
        except KeyError:
            raise NotFound(f'no kind "{name}" in {api_version or "the core group"}') from None

    def of(self, value: Resource | type[Resource]) -> Kind:
        """Return the kind of a typed value, or of its type."""
        return self._by_type[value if isinstance(value, type) else type(value)]

    def named(self, word: str) -> Kind:
        """Return the kind that a user named: by plural, singular, short name or kind, with or without the group."""
        name, _, group = word.lower().partition(".")
        for kind in self._kinds:
            names = (kind.plural, kind.singular, kind.name.lower(), *kind.short_names)
            if name in names and (not group or group in (kind.group, f"{kind.version}.{kind.group}")):
                return kind
        raise NotFound(f'the server doesn\'t have a resource type "{word}"')
