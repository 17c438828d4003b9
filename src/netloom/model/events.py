"""Event: something people may want to know, as Kubernetes' core group has it."""

from typing import Annotated

from netloom.model.document import Resource, Value
from netloom.model.scalars import Int32, Line, Text, Timestamp, says

AGENT = "netloom-agent"
"""The component that nodes' agents name in their Events."""


class ObjectReference(Value, frozen=True, kw_only=True):
    """Which object."""

    kind: Line = ""
    namespace: Line = ""
    name: Line = ""
    uid: Line = ""
    api_version: Line = ""
    resource_version: Line = ""
    field_path: Line = ""


class EventSource(Value, frozen=True, kw_only=True):
    """Who says it, in the old style."""

    component: Line = ""
    host: Line = ""


class EventSeries(Value, frozen=True, kw_only=True):
    """How often it happened."""

    count: Int32 = 0
    last_observed_time: Timestamp | None = None


class Event(Resource, frozen=True, kw_only=True):
    """Something that happened to an object."""

    involved_object: Annotated[ObjectReference, says("What it happened to.")]
    reason: Annotated[Line, says("What happened, in one word.")] = ""
    message: Annotated[Text, says("What happened, for people.")] = ""
    type: Annotated[Line, says("Normal or Warning.")] = ""
    source: Annotated[EventSource | None, says("Who says it.")] = None
    first_timestamp: Annotated[Timestamp | None, says("When it first happened.")] = None
    last_timestamp: Annotated[Timestamp | None, says("When it last happened.")] = None
    count: Annotated[Int32, says("How often it happened.")] = 0
    event_time: Annotated[Timestamp | None, says("When it was first observed.")] = None
    series: Annotated[EventSeries | None, says("How often it happened, in the new style.")] = None
    action: Annotated[Line, says("What was done.")] = ""
    related: Annotated[ObjectReference | None, says("A second object it is about.")] = None
    reporting_component: Annotated[Line, says("Who says it.")] = ""
    reporting_instance: Annotated[Line, says("Which of them says it.")] = ""
