"""The changes of a Sandbox's objects in the words of its topology, field by field.  Pure."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

from netloom.model.document import Json, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.paths import Mirror, Shaping
from netloom.model.kinds.sandbox import HostDocument
from netloom.model.registry import KINDS
from netloom.plan.object_changes import Changes
from netloom.plan.sandbox.names import HOST_LABEL


class Action(StrEnum):
    """What becomes of an object."""

    CREATE = "create"
    CHANGE = "change"
    REPLACE = "replace"
    """It is deleted and created again: a field that differs is immutable."""
    DELETE = "delete"


class Field(Struct, frozen=True, kw_only=True):
    """A field that differs; in a list, what leaves it and what joins it."""

    name: str
    old: str = ""
    new: str = ""


class ObjectChange(Struct, frozen=True, kw_only=True):
    """The change of one object."""

    action: Action
    kind: str
    name: str
    part: str
    """The part of the topology, as `host web: link to dmz`."""
    fields: tuple[Field, ...] = ()


def differences(
    sandbox: str, wanted: Changes, observed: Mapping[tuple[str, str], Resource]
) -> tuple[ObjectChange, ...]:
    """Return the changes of objects of a Sandbox; `observed` are those that exist, by kind and name."""
    links = {
        one.metadata.name: one
        for one in (*observed.values(), *wanted.create, *wanted.update)
        if isinstance(one, NetworkAttachment)
    }

    def change(action: Action, one: Resource) -> ObjectChange:
        old = observed.get((one.kind, one.metadata.name))
        both = action in (Action.CHANGE, Action.REPLACE) and old is not None
        fields = tuple(_fields("", _content(old), _content(one))) if both and old is not None else ()
        part = _part(f"{sandbox}-", one, links)
        return ObjectChange(action=action, kind=one.kind, name=one.metadata.name, part=part, fields=fields)

    removed = {(one.kind, one.metadata.name) for one in wanted.remove}
    created = {(one.kind, one.metadata.name) for one in wanted.create}
    return (
        *(
            change(Action.REPLACE if (one.kind, one.metadata.name) in removed else Action.CREATE, one)
            for one in wanted.create
        ),
        *(change(Action.CHANGE, one) for one in wanted.update),
        *(change(Action.DELETE, one) for one in wanted.remove if (one.kind, one.metadata.name) not in created),
    )


def _part(prefix: str, one: Resource, links: Mapping[str, NetworkAttachment]) -> str:
    """Return the part of a topology that an object is of."""
    name = one.metadata.name.removeprefix(prefix)
    match one:
        case Network() | Subnet():
            return f"network {name}"
        case Router():
            return f"router {name}"
        case NetworkAttachment():
            return f"host {one.metadata.labels.get(HOST_LABEL, '')}: link to {one.spec.network.removeprefix(prefix)}"
        case Shaping():
            link = links.get(one.spec.from_.attachment)
            return f"{_part(prefix, link, links) if link is not None else name}: quality"
        case Mirror():
            return f"copies {name}"
        case HostDocument():
            return f"node {one.spec.node}"
        case _:
            return name


def _content(one: Resource) -> Json:
    document = KINDS.of(one).document(one)
    return {**document.get("spec", {}), "labels": document["metadata"].get("labels", {})}


def _fields(path: str, old: Json, new: Json) -> Iterator[Field]:
    """Yield the fields in which two values differ."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _fields(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        less = [_text(one) for one in old if one not in new]
        more = [_text(one) for one in new if one not in old]
        yield Field(name=path, old=", ".join(less), new=", ".join(more))
    else:
        yield Field(name=path, old=_text(old), new=_text(new))


def _text(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
