"""The parts that resources of all kinds have in common.

A *document* is a resource as decoded JSON: a plain dict. Stores and the API carry documents, because a client must get
back exactly what it wrote. The rest of Netloom reads the typed values of this package, which `Kind.decode` makes from a
document.
"""

from typing import Annotated, Any

from msgspec import Struct, field

from netloom.model.values.scalars import Count, Line, Text, Timestamp, Word, meta

Document = dict[str, Any]
Json = Any
"""Any JSON value."""


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The base of all typed values: frozen, keyword-only, camelCase outside and snake_case inside."""


class OwnerReference(Value, frozen=True, kw_only=True):
    """An owner of an object.  When all owners are deleted, the garbage collector deletes the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFields(Value, frozen=True, kw_only=True):
    """The fields that one field manager owns, for server-side apply."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str = ""
    fields_type: str = ""
    fields_v1: dict[str, Any] = field(name="fieldsV1", default_factory=dict)
    subresource: str = ""


class ObjectMeta(Value, frozen=True, kw_only=True):
    """Kubernetes' ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()
    self_link: str = ""

    @property
    def revision(self) -> int:
        """`resourceVersion` as a number."""
        return int(self.resource_version or 0)


class Condition(Value, frozen=True, kw_only=True):
    """An observation about an object, for users and for `kubectl wait --for=condition`."""

    type: Annotated[Word, meta("The type of the condition, such as Ready.", minLength=1)]
    status: Annotated[str, meta("The status of the condition.", enum=["True", "False", "Unknown"])]
    observed_generation: Annotated[Count, meta("The generation of the object when the condition was observed.")] = 0
    last_transition_time: Annotated[Timestamp, meta("When the status of the condition last changed.")] = ""
    reason: Annotated[Line, meta("The reason in one CamelCase word, for programs.")] = ""
    message: Annotated[Text, meta("The reason in a sentence, for people.")] = ""


class Resource(Value, frozen=True, kw_only=True):
    """The base of every kind's type."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
