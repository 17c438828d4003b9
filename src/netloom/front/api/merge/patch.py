"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386) on documents.

Both return a new document and do not modify their arguments. A patch that cannot be parsed is a `BadRequest`; one that
cannot be applied (a failing test, a missing path) is `Invalid`, as in the Kubernetes API. A JSON patch is a small
program from an untrusted client: the number of its operations, the total size of its copies and moves, and the depth of
the result are limited, so that a few kilobytes cannot become gigabytes or a stack overflow.
"""

from typing import Any

from netloom.errors import BadRequest, Invalid, TooLarge
from netloom.model.document import Document

Json = Any
"""Any JSON value."""

MAX_OPERATIONS = 10_000
MAX_CARRIED = 3 * 1024 * 1024
"""How many bytes of JSON the copies and moves of one patch may copy together."""
_VALUE_BYTES = 32
"""The weight of a value besides its text: copying a small value takes as long as copying a longer one."""
MAX_SHIFTED = 10_000_000
"""How many list items may be shifted by insertions and removals before them, in all operations together."""
MAX_DEPTH = 100

_NEEDS = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "test": ("path", "value"),
    "move": ("path", "from"),
    "copy": ("path", "from"),
}


def clone(value: Json) -> Json:
    """Return a deep copy of a JSON value; many times faster than `copy.deepcopy`, which handles any type."""
    if isinstance(value, dict):
        return {key: clone(member) for key, member in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def same(left: Json, right: Json) -> bool:
    """Whether two JSON values are equal.  For Python's `==`, true equals 1."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def merge_patch(document: Document, patch: Json) -> Document:
    """Return `document` with a merge patch applied."""
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be a JSON object")
    merged: Document = merge(document, patch)
    return merged


def merge(target: Json, patch: Json) -> Json:
    """Apply RFC 7386 to any two JSON values: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    kept = target if isinstance(target, dict) else {}
    merged = {key: clone(value) for key, value in kept.items() if key not in patch}
    for key, value in patch.items():
        if value is not None:
            merged[key] = merge(kept.get(key), value)
    return merged


def json_patch(document: Document, operations: Json) -> Document:
    """Return `document` with a JSON patch applied, all operations or none."""
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    for index, operation in enumerate(operations):
        _check(index, operation)
    root = _Root([clone(document)])
    carried = 0
    for operation in operations:
        carried += _perform(root, operation, MAX_CARRIED - carried)
    if not isinstance(root[0], dict):
        raise Invalid("the result of the patch is not an object")
    return root[0]


class _Root(list[Any]):
    """A list with the document as its only item, so that replacing the whole document is like replacing any part."""

    shifted = 0
    """How many list items were shifted."""

    def shift(self, number: int) -> None:
        """Count shifted list items; refuse too many."""
        self.shifted += number
        if self.shifted > MAX_SHIFTED:
            raise Invalid(f"the patch shifts more than {MAX_SHIFTED} list items: replace the whole list instead")


def _check(index: int, operation: Json) -> None:
    """Check one operation, before any is applied."""
    if not isinstance(operation, dict):
        raise BadRequest(f"operation {index} of the JSON patch must be an object")
    op = operation.get("op")
    if not isinstance(op, str) or op not in _NEEDS:
        raise BadRequest(
            f'operation {index} of the JSON patch: "op" must be one of {", ".join(_NEEDS)}, not {op!r:.50}'
        )
    for member in _NEEDS[op]:
        if member not in operation:
            raise BadRequest(f'operation {index} of the JSON patch: {op} requires "{member}"')
        if member != "value":
            _tokens(operation[member], index)


def _perform(root: _Root, operation: dict[str, Any], budget: int) -> int:
    """Apply one operation; return how many bytes it copied."""
    op, path = operation["op"], operation["path"]
    tokens = _tokens(path)
    match op:
        case "add":
            _add(root, tokens, _fitting(clone(operation["value"]), tokens, budget)[0], path)
        case "remove":
            _remove(root, tokens, path)
        case "replace":
            value, _ = _fitting(clone(operation["value"]), tokens, budget)
            container, key = _locate(root, tokens, path)
            container[key] = value
        case "test":
            container, key = _locate(root, tokens, path)
            if not same(container[key], operation["value"]):
                raise Invalid(f"testing value {path:.200} failed")
        case "copy":
            container, key = _locate(root, _tokens(operation["from"]), operation["from"])
            value, size = _fitting(container[key], tokens, budget)
            _add(root, tokens, clone(value), path)
            return size
        case _:
            return _move(root, operation, budget)
    return 0


def _move(root: _Root, operation: dict[str, Any], budget: int) -> int:
    path, origin = operation["path"], operation["from"]
    if path.startswith(f"{origin}/"):
        raise Invalid(f"cannot move {origin:.200} into itself, to {path:.200}")
    tokens = _tokens(path)
    value, size = _fitting(_remove(root, _tokens(origin), origin), tokens, budget)
    _add(root, tokens, value, path)
    return size


def _tokens(path: Json, index: int = 0) -> list[str]:
    """Return the parts of a JSON pointer, beginning with the document's place in `root`."""
    if not isinstance(path, str) or (path and path[0] != "/"):
        raise BadRequest(f'operation {index} of the JSON patch: {path!r:.50} is not a JSON pointer such as "/spec/mtu"')
    return ["0", *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])]


def _fitting(value: Json, tokens: list[str], budget: int) -> tuple[Any, int]:
    """Return the value and its size; refuse a value that is too large or too deep."""
    size, depth = _weigh(value)
    if size > budget:
        raise Invalid(f"the copies and moves of the patch exceed {MAX_CARRIED} bytes")
    if len(tokens) + depth > MAX_DEPTH:
        raise Invalid(f"the patch nests values deeper than {MAX_DEPTH} levels")
    return value, size


def _weigh(value: Json) -> tuple[int, int]:
    """Return the approximate size of a JSON value in bytes, and its depth."""
    if isinstance(value, dict):
        size, depth = _VALUE_BYTES, 0
        for key, member in value.items():
            inner_size, inner_depth = _weigh(member)
            size, depth = size + len(key) + 4 + inner_size, max(depth, inner_depth)
        return size, depth + 1
    if isinstance(value, list):
        size, depth = _VALUE_BYTES, 0
        for item in value:
            inner_size, inner_depth = _weigh(item)
            size, depth = size + 1 + inner_size, max(depth, inner_depth)
        return size, depth + 1
    return (len(value) if isinstance(value, str) else 0) + _VALUE_BYTES, 0


def _locate(root: list[Any], tokens: list[str], path: str) -> tuple[Any, Any]:
    """Return the container and the key of an existing value."""
    container, key = _parent(root, tokens, path)
    if isinstance(container, dict):
        if key not in container:
            raise Invalid(f"no value at {path:.200}")
        return container, key
    return container, _index(key, len(container) - 1, path)


def _parent(root: list[Any], tokens: list[str], path: str) -> tuple[Any, str]:
    """Return the container of the existing or new value at `path`."""
    container: Any = root
    for token in tokens[:-1]:
        if isinstance(container, dict) and token in container:
            container = container[token]
        elif isinstance(container, list):
            container = container[_index(token, len(container) - 1, path)]
        else:
            raise Invalid(f"no value at {path:.200}")
    if not isinstance(container, dict | list):
        raise Invalid(f"no value at {path:.200}")
    return container, tokens[-1]


def _index(token: str, last: int, path: str) -> int:
    # "01", "+1", "-1" and digits of other scripts are no array indexes; the length is checked before int() parses them.
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1):
        raise Invalid(f"{token!r:.50} in {path:.200} is not a list index")
    if len(token) > 9 or int(token) > last:
        raise Invalid(f"index {token:.50} is out of range for the list at {path:.200}")
    return int(token)


def _add(root: _Root, tokens: list[str], value: Json, path: str) -> None:
    container, key = _parent(root, tokens, path)
    if isinstance(container, dict):
        container[key] = value
    elif container is root:
        root[0] = value
    elif key == "-":
        container.append(value)
    else:
        index = _index(key, len(container), path)
        root.shift(len(container) - index)
        container.insert(index, value)


def _remove(root: _Root, tokens: list[str], path: str) -> Json:
    container, key = _locate(root, tokens, path)
    if container is root:
        raise Invalid("the whole document cannot be removed")
    if isinstance(container, list):
        root.shift(len(container) - key)
    return container.pop(key)
