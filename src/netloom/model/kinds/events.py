"""Event: a report about an object, as in the core group of Kubernetes."""

from typing import Annotated

from netloom.model.document import Resource, Value
from netloom.model.values.scalars import Int32, Line, Text, Timestamp, meta

AGENT = "netloom-agent"
"""The component name in the Events of agents."""


class ObjectReference(Value, frozen=True, kw_only=True):
    """A reference to an object."""

    kind: Line = ""
    namespace: Line = ""
    name: Line = ""
    uid: Line = ""
    api_version: Line = ""
    resource_version: Line = ""
    field_path: Line = ""


class EventSource(Value, frozen=True, kw_only=True):
    """The reporter of an Event, in the older format."""

    component: Line = ""
    host: Line = ""


class EventSeries(Value, frozen=True, kw_only=True):
    """How often an Event occurred."""

    count: Int32 = 0
    last_observed_time: Timestamp | None = None


class Event(Resource, frozen=True, kw_only=True):
    """A report of something that happened to an object."""

    involved_object: Annotated[ObjectReference, meta("The object of the event.")]
    reason: Annotated[Line, meta("What happened, in one CamelCase word.")] = ""
    message: Annotated[Text, meta("What happened, in a sentence.")] = ""
    type: Annotated[Line, meta("Normal or Warning.")] = ""
    source: Annotated[EventSource | None, meta("The component that reports the event.")] = None
    first_timestamp: Annotated[Timestamp | None, meta("When the event first occurred.")] = None
    last_timestamp: Annotated[Timestamp | None, meta("When the event last occurred.")] = None
    count: Annotated[Int32, meta("How often the event occurred.")] = 0
    event_time: Annotated[Timestamp | None, meta("When the event was first observed.")] = None
    series: Annotated[EventSeries | None, meta("How often the event occurred, in the newer format.")] = None
    action: Annotated[Line, meta("The action that was taken.")] = ""
    related: Annotated[ObjectReference | None, meta("A second object that the event is about.")] = None
    reporting_component: Annotated[Line, meta("The component that reports the event.")] = ""
    reporting_instance: Annotated[Line, meta("The instance of the component that reports the event.")] = ""
