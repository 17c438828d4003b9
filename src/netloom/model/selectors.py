"""Label and field selectors: parsed once, matched many times, printed back for a server that selects for us."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from netloom.errors import BadRequest


class Operator(StrEnum):
    """How a requirement compares."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


class Requirement(Struct, frozen=True):
    """One condition on one key."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, have: Mapping[str, str]) -> bool:
        """Whether `have` satisfies this.  As in Kubernetes, `notin` holds where the key is absent."""
        # Asked for every watcher of every change: no more is done than must be.
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
    """What a list or watch is restricted to: all requirements on labels and on fields hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Whether an object with these labels and selectable fields is selected."""
        for requirement in self.labels:
            if not requirement.matches(labels):
                return False
        for requirement in self.fields:  # noqa: SIM110  # a loop takes half the time
            if not requirement.matches(fields):
                return False
        return True

    def anchor(self) -> tuple[str, str] | None:
        """Return a (field, value) every selected object must have, if there is one: what a watch is indexed by."""
        for requirement in self.fields:
            if requirement.operator is Operator.IN and len(requirement.values) == 1:
                return requirement.key, min(requirement.values)
        return None

    @property
    def label_text(self) -> str:
        """The label part, as `labelSelector=` wants it."""
        return ",".join(map(str, self.labels))

    @property
    def field_text(self) -> str:
        """The field part, as `fieldSelector=` wants it."""
        return ",".join(_escaped(r) for r in self.fields)


EVERYTHING = Selector()


def selector(labels: str = "", fields: str = "", *, selectable: Iterable[str] = ()) -> Selector:
    """Return the selector two texts mean, or raise `BadRequest` saying what is wrong with them.

    `selectable` are the kind's fields besides metadata.name and metadata.namespace.
    """
    return Selector(_labels(labels), _fields(fields, {"metadata.name", "metadata.namespace", *selectable}))


_KEY = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SET = re.compile(r"(\S+?)\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(r"([^\s=!]+)\s*(==|=|!=)\s*(\S*)")


# A backslash takes the meaning from the next comma, equals sign or backslash.
_PART = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)
_FIELD = re.compile(r"([^=!\\]+?)(==|=|!=)((?:[^\\=]|\\[\\,=])*)", re.DOTALL)


def _labels(text: str) -> tuple[Requirement, ...]:
    return tuple(_label(part.strip(), text) for part in _split(text)) if text.strip() else ()


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    return re.split(r",(?![^()]*\))", text)


def _label(part: str, text: str) -> Requirement:
    if found := _SET.fullmatch(part):
        key, operator, values = found[1], Operator(found[2]), [v.strip() for v in found[3].split(",")]
    elif found := _EQUALITY.fullmatch(part):
        key, operator, values = found[1], Operator.NOT_IN if found[2] == "!=" else Operator.IN, [found[3]]
    else:
        key, operator, values = (
            part.removeprefix("!").strip(),
            Operator.ABSENT if part[:1] == "!" else Operator.EXISTS,
            [],
        )
    if not _KEY.fullmatch(key):
        raise BadRequest(f"unable to parse label selector {text!r}: {key!r} is not a label key")
    if wrong := next((v for v in values if not _VALUE.fullmatch(v)), None):
        raise BadRequest(f"unable to parse label selector {text!r}: {wrong!r} is not a label value")
    return Requirement(key, operator, frozenset(values))


def _fields(text: str, known: set[str]) -> tuple[Requirement, ...]:
    if not text.strip():
        return ()
    return tuple(_field(part, text, known) for part in _PART.findall(text) if part.strip())


def _field(part: str, text: str, known: set[str]) -> Requirement:
    found = _FIELD.fullmatch(part.strip())
    if not found:
        raise BadRequest(
            f"unable to parse field selector {text!r}: {part!r} is not FIELD=VALUE, FIELD==VALUE or FIELD!=VALUE"
        )
    key, operator, value = found[1].strip(), found[2], re.sub(r"\\([\\,=])", r"\1", found[3])
    if key not in known:
        raise BadRequest(f"field label not supported: {key}; supported: {', '.join(sorted(known))}")
    return Requirement(key, Operator.NOT_IN if operator == "!=" else Operator.IN, frozenset((value,)))


def _escaped(requirement: Requirement) -> str:
    value = re.sub(r"([\\,=])", r"\\\1", min(requirement.values))
    return f"{requirement.key}{'=' if requirement.operator is Operator.IN else '!='}{value}"
