"""What every resource has, whatever its kind.

A *document* is a resource as JSON has it: a plain dict. Stores and the API carry documents, because what a user wrote
must come back as it was written; the typed values of this package are what the rest of Netloom reads, decoded from a
document by `Kind.decode`.
"""

from typing import Annotated, Any

from msgspec import Struct, field

from netloom.model.scalars import Count, Line, Text, Timestamp, Word, says

Document = dict[str, Any]
Json = Any
"""Anything JSON can say."""


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The base of all typed values: frozen, keyword-only, camelCase outside and snake_case inside."""


class OwnerReference(Value, frozen=True, kw_only=True):
    """The object this one exists for; when all owners are gone, so is this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFields(Value, frozen=True, kw_only=True):
    """Which fields one manager owns, as server-side apply keeps it."""

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
        """`resourceVersion` as the number it is."""
        return int(self.resource_version or 0)


class Condition(Value, frozen=True, kw_only=True):
    """One observation about an object, for people and for `wait --for=condition`."""

    type: Annotated[Word, says("What it is about, as Ready.", minLength=1)]
    status: Annotated[str, says("Whether it holds.", enum=["True", "False", "Unknown"])]
    observed_generation: Annotated[Count, says("The generation it was observed of.")] = 0
    last_transition_time: Annotated[Timestamp, says("When status last changed.")] = ""
    reason: Annotated[Line, says("Why, in one word.")] = ""
    message: Annotated[Text, says("Why, for people.")] = ""


class Resource(Value, frozen=True, kw_only=True):
    """The base of every kind's type."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
