"""Kubernetes' strategic merge patch, which its clients send for its own kinds; here for Event, Lease and Namespace.

It is a merge patch with rules for lists: lists that are maps are merged item by item, by their keys; sets are united;
all others are replaced. The shapes of server-side apply say which is which. Directives are members of the patch whose
names begin with "$":

    $patch                          in an object: merge, replace or delete; in an item of a list: of this item, and
                                   replace for the whole list
   $retainKeys                     the members of the object that stay
   $deleteFromPrimitiveList/NAME   values to remove from the set NAME
   $setElementOrder/NAME           the order of the list NAME; items that it does not name come last
"""

from netloom.errors import BadRequest
from netloom.front.api.merge.patch import Json, clone
from netloom.front.api.merge.shapes import UNKNOWN, Shape
from netloom.model.document import Document

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def strategic_merge_patch(shape: Shape, document: Document, patch: Json) -> Document:
    """Return `document` with a strategic merge patch applied."""
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be a JSON object")
    return _object(shape, clone(document), patch)


def _object(shape: Shape, target: Document, patch: Document) -> Document:
    match patch.get(_PATCH, "merge"):
        case "replace":
            return {name: clone(value) for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case "merge":
            pass
        case other:
            raise BadRequest(f"{_PATCH} must be merge, replace or delete, not {str(other)[:64]!r}")
    if _RETAIN in patch:
        kept = {name for name in _list_of(patch, _RETAIN) if isinstance(name, str)}
        target = {name: value for name, value in target.items() if name in kept}
    for name, change in patch.items():
        if name.startswith("$"):
            continue
        if change is None:
            target.pop(name, None)
        else:
            target[name] = _value(shape.member(name), target.get(name), change)
    for name in patch:
        if name.startswith("$") and name not in (_PATCH, _RETAIN):
            _direct(shape, target, patch, name)
    return target


def _value(shape: Shape, target: Json, change: Json) -> Json:
    if isinstance(change, dict):
        return _object(shape, target if isinstance(target, dict) else {}, change)
    if isinstance(change, list) and shape.list and shape.list_type != "atomic":
        return _list(shape, target if isinstance(target, list) else [], change)
    return clone(change)


def _list(shape: Shape, target: list[Json], change: list[Json]) -> list[Json]:
    """Merge a list that is a set or a map."""
    if shape.list_type == "map":
        for item in change:
            if not isinstance(item, dict) or not (_PATCH in item or all(key in item for key in shape.keys)):
                raise BadRequest(f"an item of this list must have its keys: {', '.join(shape.keys)}")
        if any(item.get(_PATCH) == "replace" for item in change):
            return [clone(item) for item in change if _PATCH not in item]
    found = {shape.key(item): item for item in target}
    for item in change:
        key = shape.key(item)
        if shape.list_type != "map":
            found.setdefault(key, item)
        elif item.get(_PATCH) == "delete":
            found.pop(key, None)
        else:
            before = found.get(key)
            found[key] = _object(shape.item or UNKNOWN, before if isinstance(before, dict) else {}, item)
    return list(found.values())


def _direct(shape: Shape, target: Document, patch: Document, name: str) -> None:
    """Apply a directive about a list."""
    prefix = next((prefix for prefix in (_DELETE, _ORDER) if name.startswith(prefix)), None)
    if prefix is None:
        raise BadRequest(f"{name[:64]!r} is not a directive of a strategic merge patch")
    member = name.removeprefix(prefix)
    like, items, given = shape.member(member), target.get(member), _list_of(patch, name)
    if not isinstance(items, list):
        return
    keys = [like.key(item) for item in given]
    if prefix == _DELETE:
        gone = set(keys)
        target[member] = [item for item in items if like.key(item) not in gone]
    else:
        places = {key: place for place, key in enumerate(keys)}
        target[member] = sorted(items, key=lambda item: places.get(like.key(item), len(places)))


def _list_of(patch: Document, name: str) -> list[Json]:
    value = patch[name]
    if not isinstance(value, list):
        raise BadRequest(f"{name[:64]} must be a list")
    return value
