"""Decoding of JSON and YAML to documents, and encoding of documents as YAML.  No other module does either.

msgspec decodes JSON. YAML is decoded from PyYAML's events, not by its constructors, for three reasons: untrusted YAML
must not nest without limit nor expand a few lines into gigabytes (aliases); a duplicate key is an error; and plain
scalars must mean what they mean to kubectl. To kubectl `yes` and `on` are true, but a date is a string, and so is a MAC
address, which PyYAML may take for a number in base 60.
"""

import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec
import yaml
from msgspec import Raw, Struct

from netloom.errors import BadRequest, TooLarge, UnsupportedMediaType, shortened
from netloom.model.document import Document, Json

SIZE_LIMIT = 3 * 1024 * 1024
DEPTH_LIMIT = 64
NODE_LIMIT = 200_000
"""The maximum number of values in a YAML file after the expansion of aliases."""
BODY_NODE_LIMIT = 20_000
"""The maximum number of values in a YAML body: decoding a value takes fifty times as long as in JSON."""
VALUE_LIMIT = 100_000
"""The maximum number of values in a JSON body, estimated from its commas and brackets."""


class Malformed(BadRequest):
    """A text that is no YAML, or more than we decode; `line` and `column` are 0 where no place is to blame."""

    def __init__(self, detail: str, *, line: int = 0, column: int = 0, message: str = "") -> None:
        super().__init__(message or (f"line {line}: {detail}" if line else detail))
        self.detail = detail
        self.line = line
        self.column = column


class Spot(Struct, frozen=True):
    """Where a value is written: line and column from 1, its key's, and the spots of what it contains."""

    line: int
    column: int
    key: tuple[int, int] = (0, 0)
    """Line and column of the key, in a mapping."""
    inner: "dict[str, Spot] | list[Spot] | None" = None


class Located(Struct, frozen=True):
    """A value, the place of each of its parts, and the keys that are there twice: the last one of each counts."""

    value: Json
    spot: Spot
    repeated: tuple[tuple[int, int, str], ...] = ()


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def decode(data: bytes, content_type: str = "application/json", *, limit: int = SIZE_LIMIT) -> Document:
    """Decode one object, or raise `BadRequest`, `TooLarge` or `UnsupportedMediaType`."""
    value = decode_value(data, content_type, limit=limit)
    if type(value) is not dict:
        raise BadRequest(f"the body must be an object, not {_what(value)}")
    return value


def decode_value(data: bytes, content_type: str = "application/json", *, limit: int = SIZE_LIMIT) -> Json:
    """Decode any value, such as a JSON patch, which is a list."""
    if len(data) > limit:
        raise TooLarge(f"the body is {len(data)} bytes; at most {limit} are allowed")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith("json") or not media_type:
        return _json(data)
    if media_type.endswith("yaml"):
        found = list(_any(data, BODY_NODE_LIMIT))  # kubectl's server-side apply calls its JSON YAML.
        if len(found) != 1:
            raise BadRequest(f"the body must be one YAML document, not {len(found)}")
        return found[0]
    raise UnsupportedMediaType(f"the body is {media_type:.64}; only JSON and YAML are supported")


def documents(text: str | bytes, *, limit: int = SIZE_LIMIT) -> list[Document]:
    """Decode all documents of a YAML or JSON file.  A `List` is replaced by its items."""
    data = text.encode() if isinstance(text, str) else text
    if len(data) > limit:
        raise TooLarge(f"the text is {len(data)} bytes; at most {limit} are allowed")
    found: list[Document] = []
    for value in _any(data, NODE_LIMIT):
        if type(value) is not dict:
            raise BadRequest(f"a document must be an object, not {_what(value)}")
        if value.get("kind") == "List" and value.get("apiVersion") == "v1" and type(value.get("items")) is list:
            if wrong := next((item for item in value["items"] if type(item) is not dict), None):
                raise BadRequest(f"an item of a List must be an object, not {_what(wrong)}")
            found += value["items"]
        else:
            found.append(value)
    return found


def locate(data: bytes, *, limit: int = SIZE_LIMIT) -> Located:
    """Decode one YAML or JSON document with the place of every value, or raise `Malformed` or `TooLarge`.

    An alias is where it is written, and what it contains is where its anchor is; the same holds for merged keys.
    """
    if len(data) > limit:
        raise TooLarge(f"the text is {len(data)} bytes; at most {limit} are allowed")
    places = _Places()
    try:
        found = [(value, places.root) for value in _yaml(data, NODE_LIMIT, places)]
    except Malformed:
        if data.lstrip()[:1] != b"{":
            raise
        # Not all JSON is YAML (surrogate pairs): what remains JSON has no places.
        try:
            msgspec.json.decode(data, type=Raw)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return Located(_json(data), Spot(1, 1))
        raise
    found = [(value, spot) for value, spot in found if value is not None]
    if len(found) != 1:
        line, column = (found[1][1].line, found[1][1].column) if found else (1, 1)
        raise Malformed(f"the text must be one document, not {len(found)}", line=line, column=column)
    return Located(*found[0], tuple(places.repeated))


def encode_yaml(document: Json) -> str:
    """Encode a document as YAML that all parsers, including kubectl's, decode to the same document."""
    written: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return written


def _any(data: bytes, nodes: int) -> Iterator[Json]:
    if data.lstrip()[:1] == b"{":
        try:
            msgspec.json.decode(data, type=Raw)
        except (msgspec.DecodeError, RecursionError):
            pass  # Flow-style YAML also begins with a brace, and its parser has the better error messages.
        else:
            return iter((_json(data),))
    return (value for value in _yaml(data, nodes) if value is not None)


def _what(value: Json) -> str:
    names = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return names.get(type(value), "nothing")


# JSON


def _json(data: bytes) -> Json:
    brackets = data.count(b"{") + data.count(b"[")
    # Checked before decoding: an empty list takes 2 bytes of text and 56 of memory.
    if brackets + data.count(b",") > VALUE_LIMIT:
        raise TooLarge(f"the body has more than {VALUE_LIMIT} commas and brackets: split it")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest(f"the body nests deeper than {DEPTH_LIMIT} levels") from None
    if brackets > DEPTH_LIMIT:
        _refuse_depth(value)
    # Decoding drops a duplicate key with its quotes, so their number differs. Only the quote \u0022 is not counted.
    if b"\\u" in data or msgspec.json.encode(value).count(b'"') != data.count(b'"'):
        _refuse_duplicates(data)
    return value


def _refuse_depth(value: Json) -> None:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer if type(outer) is list else ())
        ]
        if not level:
            return
    raise BadRequest(f"the body nests deeper than {DEPTH_LIMIT} levels")


def _refuse_duplicates(data: bytes) -> None:
    import json  # Rarely needed, and slow to import.

    repeated: list[str] = []

    def pairs(found: list[tuple[str, Json]]) -> None:
        keys = set()
        for key, _ in found:
            if key in keys:
                repeated.append(key)
            keys.add(key)

    json.loads(data, object_pairs_hook=pairs)
    if repeated:
        said = ", ".join(shortened([f'duplicate field "{key:.64}"' for key in dict.fromkeys(repeated)]))
        raise BadRequest(f"strict decoding error: {said}")


# YAML

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_BASED = re.compile(r"([-+]?)0(?:x([0-9a-fA-F_]+)|b([01_]+)|o?([0-7_]+))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_TAGS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}


def _yaml(data: bytes, nodes: int, places: "_Places | None" = None) -> Iterator[Json]:
    """Yield all documents.  `places` gets every event that the builder has accepted, and the repeated keys."""
    builder = _Builder(nodes, allow_repeated=places is not None)
    try:
        for event in yaml.parse(data, Loader=_Loader):
            is_complete = builder.take(event)
            if places is not None:
                places.take(event)
            if is_complete:
                yield builder.root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        detail = f"the text is not YAML: {error.problem or error.context}"
        if mark is None:
            raise Malformed(detail) from None
        line = mark.line + 1
        raise Malformed(detail, line=line, column=mark.column + 1, message=f"{detail} on line {line}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Malformed(f"the text is not YAML: {' '.join(str(error).split())}") from None


def plain(text: str) -> Json:
    """Return the value of a plain (unquoted) scalar."""
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", "")[:64])
    if found := _BASED.fullmatch(text):
        digits, base = next((d, b) for d, b in zip(found.groups()[1:], (16, 2, 8), strict=True) if d is not None)
        digits = digits.replace("_", "")
        return int(found[1] + digits[:128], base) if digits else text
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _is_too_large(value: Json) -> bool:
    if type(value) is int:
        return not -(2**63) <= value < 2**64
    return type(value) is float and value in (float("inf"), float("-inf"))


class _Open:
    """A list or mapping whose items are being read."""

    __slots__ = ("anchor", "key", "keys", "merges", "merging", "start", "value")

    def __init__(self, value: Json, anchor: str | None, start: int) -> None:
        self.value = value
        self.anchor = anchor
        self.start = start
        self.key: str | None = None
        self.keys: set[str] = set()
        self.merges: list[Json] = []
        self.merging = False


class _Builder:
    """Builds values from events, and counts them."""

    def __init__(self, limit: int, *, allow_repeated: bool = False) -> None:
        self.root: Json = None
        self._limit = limit
        self._allow_repeated = allow_repeated
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._count = 0

    def take(self, event: yaml.Event) -> bool:
        """Process an event.  Return whether a document is complete; it is in `root`."""
        match event:
            case yaml.ScalarEvent():
                self._add(event, self._scalar(event), event.anchor, 1)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._open(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(event)
            case yaml.DocumentStartEvent():
                self.root, self._anchors = None, {}
                self._spend(event, 1)
            case yaml.DocumentEndEvent():
                return True
        return False

    def _refuse(self, event: yaml.Event, message: str) -> NoReturn:
        mark = event.start_mark
        raise Malformed(message, line=mark.line + 1 if mark else 0, column=mark.column + 1 if mark else 0)

    def _spend(self, event: yaml.Event, number: int) -> None:
        self._count += number
        if self._count > self._limit:
            self._refuse(event, f"the text expands to more than {self._limit} values: write it as JSON")

    def _scalar(self, event: yaml.ScalarEvent) -> Json:
        if self._awaits_key():
            return event.value
        tag = (event.tag or "").removeprefix(_TAG)
        if event.tag in (None, "!") and not (event.implicit[0] and event.tag is None):
            return event.value
        value = event.value if tag == "str" else plain(event.value)
        if isinstance(value, str) and tag != "str" and _NOT_JSON.fullmatch(value):
            self._refuse(event, f"{value} is not a number in JSON")
        if _is_too_large(value):
            self._refuse(event, f"{event.value[:64]} is too large")
        if tag and type(value) not in _TAGS.get(tag, ()):
            self._refuse(event, f"the tag {event.tag:.64} is not supported")
        return value

    def _awaits_key(self) -> bool:
        return bool(self._stack) and type(self._stack[-1].value) is dict and self._stack[-1].key is None

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._stack) >= DEPTH_LIMIT:
            self._refuse(event, f"the text nests deeper than {DEPTH_LIMIT} levels")
        if self._awaits_key():
            self._refuse(event, "a key must be a scalar, not a list or mapping")
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'map' if mapping else 'seq'}"):
            self._refuse(event, f"the tag {event.tag:.64} is not supported")
        self._spend(event, 1)
        self._stack.append(_Open({} if mapping else [], event.anchor, self._count))

    def _close(self, event: yaml.Event) -> None:
        done = self._stack.pop()
        for merged in done.merges:
            for key, value in merged.items():
                done.value.setdefault(key, value)
        self._add(event, done.value, done.anchor, self._count - done.start + 1)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            self._refuse(event, f"unknown anchor &{event.anchor:.64}")
        value, size = self._anchors[event.anchor]
        self._spend(event, size)
        if self._awaits_key() and type(value) in (dict, list):
            self._refuse(event, "a key must be a scalar, not a list or mapping")
        self._add(event, self._copy(event, value, len(self._stack)), None, size)

    def _copy(self, event: yaml.Event, value: Json, depth: int) -> Json:
        if depth > DEPTH_LIMIT:
            self._refuse(event, f"the text nests deeper than {DEPTH_LIMIT} levels")
        if type(value) is dict:
            return {key: self._copy(event, inner, depth + 1) for key, inner in value.items()}
        if type(value) is list:
            return [self._copy(event, inner, depth + 1) for inner in value]
        return value

    def _add(self, event: yaml.Event, value: Json, anchor: str | None, size: int) -> None:
        """Add a complete value to the list or mapping that contains it."""
        if isinstance(event, yaml.ScalarEvent):
            self._spend(event, 1)
        if anchor:
            self._anchors[anchor] = value, size
        if not self._stack:
            self.root = value
            return
        place = self._stack[-1]
        if type(place.value) is list:
            place.value.append(value)
        elif place.key is None:
            self._take_key(event, place, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        elif place.merging:
            self._merge(event, place, value)
        else:
            place.value[place.key] = value
            place.key = None

    def _take_key(self, event: yaml.Event, place: _Open, key: str) -> None:
        if key in place.keys and not self._allow_repeated:
            self._refuse(event, f'duplicate field "{key:.64}"')
        place.keys.add(key)
        place.key = key
        place.merging = key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]

    def _merge(self, event: yaml.Event, place: _Open, value: Json) -> None:
        merged = value if type(value) is list else [value]
        if any(type(part) is not dict for part in merged):
            self._refuse(event, "<< needs a mapping or a list of mappings")
        place.merges += merged
        place.key, place.merging = None, False


class _Place:
    """A list or mapping whose items are being located."""

    __slots__ = ("anchor", "at", "inner", "key", "key_at", "keys", "merged", "merging")

    def __init__(self, at: tuple[int, int], anchor: str | None, inner: dict[str, Spot] | list[Spot]) -> None:
        self.at = at
        self.anchor = anchor
        self.inner = inner
        self.key: str | None = None
        self.key_at = (0, 0)
        self.keys: set[str] = set()
        self.merged: list[Spot] = []
        self.merging = False


class _Places:
    """Builds the spots of values from events that `_Builder` has accepted.

    The spots inside of an alias are those of its anchor, not copies: they take no more memory than the text does.
    """

    def __init__(self) -> None:
        self.root = Spot(1, 1)
        self.repeated: list[tuple[int, int, str]] = []
        self._stack: list[_Place] = []
        self._anchors: dict[str, tuple[Spot, str]] = {}
        """The spot of each anchor and, for a scalar, its text, which may be a key."""

    def take(self, event: yaml.Event) -> None:
        """Process an event."""
        mark = event.start_mark
        at = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        match event:
            case yaml.ScalarEvent():
                plain_merge = event.value == "<<" and event.implicit[0]
                self._add(Spot(*at), event.anchor, event.value, is_merge=plain_merge)
            case yaml.AliasEvent():
                spot, text = self._anchors[event.anchor or ""]
                self._add(Spot(*at, inner=spot.inner), None, text)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                inner: dict[str, Spot] | list[Spot] = {} if isinstance(event, yaml.MappingStartEvent) else []
                self._stack.append(_Place(at, event.anchor, inner))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._stack.pop()
                for merged in done.merged:
                    for key, spot in merged.inner.items() if isinstance(merged.inner, dict) else ():
                        assert isinstance(done.inner, dict)
                        done.inner.setdefault(key, spot)
                self._add(Spot(*done.at, inner=done.inner), done.anchor, "")
            case yaml.DocumentStartEvent():
                self._anchors = {}

    def _add(self, spot: Spot, anchor: str | None, text: str, *, is_merge: bool = False) -> None:
        if anchor:
            self._anchors[anchor] = spot, text
        if not self._stack:
            self.root = spot
            return
        place = self._stack[-1]
        if isinstance(place.inner, list):
            place.inner.append(spot)
        elif place.key is None:
            place.key, place.key_at, place.merging = text, (spot.line, spot.column), is_merge
            if text in place.keys:
                self.repeated.append((spot.line, spot.column, text))
            place.keys.add(text)
        elif place.merging:
            place.merged += spot.inner if isinstance(spot.inner, list) else [spot]
            place.key = None
        else:
            place.inner[place.key] = Spot(spot.line, spot.column, place.key_at, spot.inner)
            place.key = None


class Dumper(_Dumper):  # type: ignore[misc, valid-type]
    """PyYAML's dumper without aliases, with quotes around ambiguous scalars."""

    def ignore_aliases(self, data: Json) -> bool:
        """Write repeated values in full."""
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.Node:
    ambiguous = not isinstance(plain(text), str) or _NOT_JSON.fullmatch(text)
    block = "\n" in text and not ambiguous and " \n" not in text
    style = '"' if ambiguous else "|" if block else None
    node: yaml.Node = dumper.represent_scalar(f"{_TAG}str", text, style=style)
    return node


Dumper.add_representer(str, _represent_text)
