"""The walks over documents that implement server-side apply.

   all_paths(value)        all paths of a new document
   compare(old, new)        the paths removed, modified and added
   owned(value)             the paths that a configuration claims
   merged(live, config)     the configuration merged into the live object
   without(value, fields)   the document without some fields

The rules, with their corner cases (how an empty list counts, what null means, how lists keep their order), are those of
Kubernetes' structured merge; tests compare them with a real kube-apiserver.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from netloom.front.api.merge.fields import SELF, Fields, both, marked
from netloom.front.api.merge.patch import Json, same
from netloom.front.api.merge.shapes import UNKNOWN, Shape, ShapeKind

ABSENT: Any = object()
"""Stands for a missing value: null is a value."""
_SCALARS = frozenset((str, int, bool, float))


def all_paths(like: Shape, value: Json) -> Fields:
    """Return the paths of a value that is new (or removed): itself, and everything below it."""
    form = like.form(value)
    if form is ShapeKind.SCALAR or not value:
        return {}
    out: Fields = {SELF: {}}
    if form is ShapeKind.MAP:
        if like.map_atomic or not isinstance(value, dict):
            return {}
        known, other = like.fields, like.element or UNKNOWN
        for name, member in value.items():
            below = known.get(name) or other
            # Most members are scalars: checking that here is faster.
            out["f:" + name] = {} if type(member) in _SCALARS and below.scalar else all_paths(below, member)
        return out
    if like.list_type == "atomic" or not isinstance(value, list):
        return {}
    for key, items in _items(like, value).items():
        out[key] = all_paths(like.item or UNKNOWN, items[0]) if len(items) == 1 else {}
    return out


def _items(like: Shape, value: Json) -> dict[str, list[Any]]:
    """Return a list's items by their path elements; several items may share one."""
    out: dict[str, list[Any]] = {}
    for item in value if isinstance(value, list) else ():
        out.setdefault(like.key(item), []).append(item)
    return out


@dataclass(slots=True)
class Comparison:
    """The paths by which one value differs from another."""

    removed: Fields | None = None
    modified: Fields | None = None
    added: Fields | None = None

    def put(self, key: str, below: "Comparison") -> None:
        """Add the differences found below `key`."""
        if below.removed is not None:
            self.removed = self.removed or {}
            self.removed[key] = below.removed
        if below.modified is not None:
            self.modified = self.modified or {}
            self.modified[key] = below.modified
        if below.added is not None:
            self.added = self.added or {}
            self.added[key] = below.added


def compare(like: Shape, old: Json, new: Json) -> Comparison:
    """Return the changes from `old` to `new`, one of which may be ABSENT."""
    if old is new:
        return Comparison()
    if old is ABSENT:
        return Comparison(added=all_paths(like, new))
    if new is ABSENT:
        return Comparison(removed=all_paths(like, old))
    before, after = like.form(old), like.form(new)
    found = _compare(like, before, old, new)
    if before is after:
        return found
    # The type itself changed, if the schema allows that: the losses of one form and the gains of the other both count.
    other = _compare(like, after, old, new)
    return Comparison(
        _either(found.removed, other.removed),
        _either(found.modified, other.modified),
        _either(found.added, other.added),
    )


def _either(left: Fields | None, right: Fields | None) -> Fields | None:
    if left is None or right is None:
        return right if left is None else left
    return both(left, right)


def _compare(like: Shape, form: ShapeKind, old: Json, new: Json) -> Comparison:
    out = Comparison()
    if form is ShapeKind.MAP and not like.map_atomic:
        left, right = old if isinstance(old, dict) else {}, new if isinstance(new, dict) else {}
        if left or right:
            for name in left | right:
                out.put(f"f:{name}", compare(like.member(name), left.get(name, ABSENT), right.get(name, ABSENT)))
            return out
    if form is ShapeKind.LIST and like.list_type != "atomic":
        before, after = _items(like, old), _items(like, new)
        if before or after:
            for key in before | after:
                _compare_items(like, out, key, before.get(key, []), after.get(key, []))
            return out
    return out if same(old, new) else Comparison(modified={})


def _compare_items(like: Shape, out: Comparison, key: str, before: list[Any], after: list[Any]) -> None:
    """Compare the items of one path element; several together count as one field."""
    item = like.item or UNKNOWN
    if len(before) < 2 and len(after) < 2:
        out.put(key, compare(item, before[0] if before else ABSENT, after[0] if after else ABSENT))
    elif len(before) > 1 and len(after) > 1:
        if not same(before, after):
            out.put(key, Comparison(modified={}))
    elif len(before) > 1:
        out.put(key, Comparison(removed={}, added=all_paths(item, after[0]) if after else None))
    else:
        out.put(key, Comparison(added={}, removed=all_paths(item, before[0]) if before else None))


def owned(like: Shape, value: Json) -> Fields | None:
    """Return the paths that a configuration claims: its leaves, items and members of maps; None if there are none."""
    form = like.form(value)
    if (
        form is ShapeKind.SCALAR
        or (form is ShapeKind.MAP and like.map_atomic)
        or (form is ShapeKind.LIST and like.list_type == "atomic")
    ):
        return {}
    out: Fields = {}
    if form is ShapeKind.LIST:
        for key, items in _items(like, value).items():
            out[key] = marked(owned(like.item or UNKNOWN, items[0])) if len(items) == 1 else {}
    elif isinstance(value, dict):
        for name, member in value.items():
            below = owned(like.member(name), member)
            if member is None or member == {} or name not in like.fields:
                below = marked(below)
            if below is not None:
                out[f"f:{name}"] = below
    return out or None


def with_named(like: Shape, fields: Fields) -> Fields:
    """Return the set with every member that the schema names in it, if anything below that member is in the set."""
    out: Fields = {}
    for key, below in fields.items():
        name = key[2:]
        inner = UNKNOWN
        if key[0] == "f" and like.map:
            inner = like.member(name)
        elif key[0] == "k" and like.list:
            inner = like.item or UNKNOWN
        out[key] = with_named(inner, below)
        if below and key[0] == "f" and like.map and name in like.fields:
            out[key] = marked(out[key])
    return out


def without(like: Shape, value: Json, fields: Fields) -> Json:
    """Return the value without the paths of a set.

    A remaining value that loses all its members becomes empty. This is the only difference from Kubernetes, which
    leaves null behind and then refuses the object because of it.
    """
    form = like.form(value)
    if form is ShapeKind.SCALAR:
        return value
    if form is ShapeKind.MAP:
        if like.map_atomic or not isinstance(value, dict):
            return value
        members = {}
        for name, member in value.items():
            below = fields.get(f"f:{name}")
            if below is None:
                members[name] = member
            elif below and SELF not in below:
                members[name] = without(like.member(name), member, below)
        return members
    if like.list_type == "atomic" or not isinstance(value, list):
        return value
    items = []
    for item in value:
        below = fields.get(like.key(item))
        if below is None:
            items.append(item)
        elif below and SELF not in below:
            items.append(without(like.item or UNKNOWN, item, below))
    return items


def merged(like: Shape, live: Json, config: Json) -> Json:
    """Return the configuration merged into the live value, one of which may be ABSENT."""
    if config is ABSENT:
        return live
    form = like.form(config)
    if form is ShapeKind.MAP and not like.map_atomic:
        left = live if isinstance(live, dict) else {}
        right = config if isinstance(config, dict) else {}
        if left or right:
            return {
                name: merged(like.member(name), left.get(name, ABSENT), right.get(name, ABSENT))
                for name in left | right
            }
    if form is ShapeKind.LIST and like.list_type != "atomic":
        before = live if isinstance(live, list) else []
        after = config if isinstance(config, list) else []
        if before or after:
            return _merged_items(like, before, after)
    return config


def _merged_items(like: Shape, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge two lists: items of both are merged in the configuration's order, the others keep their places."""
    mine, theirs = [like.key(value) for value in live], [like.key(value) for value in config]
    found: dict[str, Any] = {}
    for key, value in zip(mine, live, strict=True):
        found[key] = None if key in found else value  # Duplicates are not merged with anything.
    wanted = dict(zip(theirs, config, strict=True))
    shared = deque(key for key in theirs if key in found)
    out: list[Any] = []
    done: set[str] = set()
    left = right = 0
    while left < len(mine) or right < len(theirs):
        if left < len(mine):
            key = mine[left]
            if key not in wanted:
                out.append(live[left])
                left += 1
                continue
            # Already merged, or merged later at its place in the configuration.
            elsewhere = right < len(theirs) and key != theirs[right] and shared and shared[0] != key
            if key in done or elsewhere:
                left += 1
                continue
        key = theirs[right]
        out.append(merged(like.item or UNKNOWN, found.get(key, ABSENT), wanted[key]))
        done.add(key)
        right += 1
        if shared and shared[0] == key:
            shared.popleft()
    return out
