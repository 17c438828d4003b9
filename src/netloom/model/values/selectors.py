"""Label and field selectors: parsing, matching, and formatting for requests to another API server."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from netloom.errors import BadRequest


class Operator(StrEnum):
    """The operator of a requirement."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


class Requirement(Struct, frozen=True):
    """A condition on one key."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, have: Mapping[str, str]) -> bool:
        """Whether `have` satisfies the requirement.  As in Kubernetes, `notin` holds if the key is absent."""
        # Called for every watcher of every change, so it is written for speed.
        value = have.get(self.key)
        operator = self.operator
        if operator is Operator.IN:
            return value is not None and value in self.values
        if operator is Operator.NOT_IN:
            return value is None or value not in self.values
        return (value is not None) is (operator is Operator.EXISTS)

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator is Operator.IN else '!='}{min(self.values)}"
            case _:
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"


class Selector(Struct, frozen=True):
    """The restriction of a list or watch: all requirements on labels and fields must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Whether the selector selects an object with these labels and selectable fields."""
        for requirement in self.labels:
            if not requirement.matches(labels):
                return False
        for requirement in self.fields:  # noqa: SIM110  # a loop takes half the time
            if not requirement.matches(fields):
                return False
        return True

    def anchor(self) -> tuple[str, str] | None:
        """Return a (field, value) that every selected object has, or None.  Watches are indexed by it."""
        for requirement in self.fields:
            if requirement.operator is Operator.IN and len(requirement.values) == 1:
                return requirement.key, min(requirement.values)
        return None

    @property
    def label_text(self) -> str:
        """The requirements on labels, in the format of `labelSelector=`."""
        return ",".join(map(str, self.labels))

    @property
    def field_text(self) -> str:
        """The requirements on fields, in the format of `fieldSelector=`."""
        return ",".join(_escaped(r) for r in self.fields)


EVERYTHING = Selector()

LENGTH_LIMIT = 8 * 1024
"""The maximum length of a selector, in characters."""
REQUIREMENT_LIMIT = 32
"""The maximum number of requirements: each is tested against every object of a list."""
VALUE_LIMIT = 512
"""The maximum number of values of all requirements together."""


def selector(labels: str = "", fields: str = "", *, selectable: Iterable[str] = ()) -> Selector:
    """Parse a label selector and a field selector, or raise `BadRequest`.

    `selectable` are the selectable fields of the kind besides metadata.name and metadata.namespace.
    """
    return Selector(label_requirements(labels), field_requirements(fields, selectable=selectable))


_KEY = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_TOKEN = re.compile(r"[^\s,()=!]+|==|!=|[,()=!]")
_WORD = re.compile(r"[^\s,()=!]+")

# A backslash escapes the next comma, equals sign or backslash.
_PART = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)
_FIELD = re.compile(r"([^=!\\]+?)(==|=|!=)((?:[^\\=]|\\[\\,=])*)", re.DOTALL)


def label_requirements(text: str) -> tuple[Requirement, ...]:
    """Return the requirements of a label selector."""
    _check_length(text, "label")
    return _Labels(text).requirements() if text.strip() else ()


def field_requirements(text: str, *, selectable: Iterable[str] = ()) -> tuple[Requirement, ...]:
    """Return the requirements of a field selector."""
    _check_length(text, "field")
    known = {"metadata.name", "metadata.namespace", *selectable}
    found: list[Requirement] = []
    for match in _PART.finditer(text):
        if match[0].strip():
            _check_number(found, "field")
            found.append(_field(match[0], text, known))
    return tuple(found)


class _Labels:
    """The text of a label selector, read once from left to right, one token at a time.

    selector     requirement ["," requirement]...
    requirement  ["!"] key  |  key ("=" | "==" | "!=") [value]  |  key ("in" | "notin") "(" [value] ["," [value]]... ")"
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._rest = _TOKEN.finditer(text)
        self._values = 0
        self._current = ""
        """The token under consideration; "" at the end."""
        self._advance()

    def requirements(self) -> tuple[Requirement, ...]:
        found = [self._requirement()]
        while self._current == ",":
            _check_number(found, "label")
            self._advance()
            found.append(self._requirement())
        if self._current:
            raise self._refusal(f"{_shown(self._current)} is unexpected after a requirement")
        return tuple(found)

    def _advance(self) -> str:
        """Go to the next token and return the previous one."""
        before = self._current
        found = next(self._rest, None)
        self._current = found[0] if found is not None else ""
        return before

    def _requirement(self) -> Requirement:
        if self._current == "!":
            self._advance()
            return Requirement(self._key(), Operator.ABSENT)
        key = self._key()
        match self._current:
            case "=" | "==" | "!=":
                operator = Operator.NOT_IN if self._advance() == "!=" else Operator.IN
                return Requirement(key, operator, frozenset((self._value(),)))
            case "in" | "notin":
                operator = Operator(self._advance())
                return Requirement(key, operator, self._set())
            case _:
                return Requirement(key, Operator.EXISTS)

    def _key(self) -> str:
        key = self._word()
        if not _KEY.fullmatch(key):
            raise self._refusal(f"{_shown(key or self._current)} is not a label key")
        return key

    def _set(self) -> frozenset[str]:
        self._take("(")
        values = {self._value()}
        while self._current == ",":
            self._advance()
            values.add(self._value())
        self._take(")")
        return frozenset(values)

    def _value(self) -> str:
        value = self._word()
        self._values += 1
        if self._values > VALUE_LIMIT:
            raise BadRequest(f"unable to parse label selector: it has more than {VALUE_LIMIT} values")
        if not _VALUE.fullmatch(value):
            raise self._refusal(f"{_shown(value)} is not a label value")
        return value

    def _word(self) -> str:
        """Return the current token and advance, if it is a word; else return ""."""
        return self._advance() if _WORD.match(self._current) else ""

    def _take(self, wanted: str) -> None:
        if self._current != wanted:
            raise self._refusal(f"expected {wanted!r}, got {_shown(self._current)}")
        self._advance()

    def _refusal(self, why: str) -> BadRequest:
        return BadRequest(f"unable to parse label selector {_shown(self._text)}: {why}")


def _field(part: str, text: str, known: set[str]) -> Requirement:
    found = _FIELD.fullmatch(part.strip())
    if not found:
        raise BadRequest(
            f"unable to parse field selector {_shown(text)}: {_shown(part)} is not FIELD=VALUE, FIELD==VALUE or "
            "FIELD!=VALUE"
        )
    key, operator, value = found[1].strip(), found[2], re.sub(r"\\([\\,=])", r"\1", found[3])
    if key not in known:
        raise BadRequest(f"field label not supported: {key:.64}; supported: {', '.join(sorted(known))}")
    return Requirement(key, Operator.NOT_IN if operator == "!=" else Operator.IN, frozenset((value,)))


def _check_length(text: str, what: str) -> None:
    if len(text) > LENGTH_LIMIT:
        raise BadRequest(
            f"unable to parse {what} selector: it has {len(text)} characters; at most {LENGTH_LIMIT} are allowed"
        )


def _check_number(found: list[Requirement], what: str) -> None:
    """Raise if one more requirement would exceed the limit."""
    if len(found) >= REQUIREMENT_LIMIT:
        raise BadRequest(f"unable to parse {what} selector: it has more than {REQUIREMENT_LIMIT} requirements")


def _shown(text: str) -> str:
    """Return a quoted text for a message, shortened."""
    return repr(text) if len(text) <= 64 else f"{text[:64]!r}..."


def _escaped(requirement: Requirement) -> str:
    value = re.sub(r"([\\,=])", r"\\\1", min(requirement.values))
    return f"{requirement.key}{'=' if requirement.operator is Operator.IN else '!='}{value}"
