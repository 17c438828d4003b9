"""Validation of documents before they are stored: `admit`.

The rules are those of the CRDs in a Kubernetes API server; the tests run a table of examples through both. An error
lists all problems at once, each with its field and what would be valid.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import NoReturn

from msgspec import Struct

from netloom.errors import BadRequest, Cause, Invalid, first, shortened
from netloom.model import metadata
from netloom.model.document import Document, Json
from netloom.model.kind import Kind
from netloom.model.registry import EVENT
from netloom.model.schemas import checks
from netloom.model.schemas.checks import Check, UnknownField, under
from netloom.model.schemas.rules import Rule
from netloom.model.schemas.schema import Schema, tree

SUGGESTIONS = 8
"""The maximum number of unknown fields for which an error suggests a known one."""
FIELD_LENGTH = 256
"""The maximum number of characters of a field's path in an error."""


class Unknown(StrEnum):
    """How to treat unknown fields; the values are those of the parameter `fieldValidation`."""

    REFUSE = "Strict"
    WARN = "Warn"
    """Drop them, and warn the client."""
    IGNORE = "Ignore"
    """Drop them."""


def admit(
    kind: Kind,
    document: Document,
    *,
    old: Document | None = None,
    subresource: str = "",
    unknown: Unknown = Unknown.REFUSE,
) -> list[str]:
    """Validate a document and prepare it for storage, in place; return warnings.

    Fills in defaults, and drops nulls and unknown fields. Parts that are not stored are not validated: the status of a
    kind with a status sub-resource, or, with subresource="status", the spec. `old` is the stored document: changes of
    immutable fields are refused.

    Raises `BadRequest` if the document is of another kind or has unknown fields, and `Invalid` if it violates a rule.
    """
    _identify(kind, document)
    gate = _gate(kind)
    problems = gate.metadata(document, old)
    for name in [name for name, value in document.items() if value is None]:
        del document[name]
    for name in list(document):
        part = gate.parts.get(name)
        if part is None:
            if name not in ("apiVersion", "kind", "metadata"):
                problems.append(UnknownField(f".{name}", name, known=gate.parts))
                del document[name]
            continue
        found = part(document[name])
        if found is None:
            continue
        if kind.has_status and (name == "status") != (subresource == "status"):
            found = [problem for problem in found if isinstance(problem, UnknownField)]
        problems += under(f".{name}", found)
    if subresource != "status" or not kind.has_status:
        problems += [
            Cause(f".{name}", "Required value", checks.REQUIRED) for name in gate.required if name not in document
        ]
    if not checks.broken(problems):
        problems += gate.changes(document, old, subresource)
    if not problems:
        return []
    return _judge(kind, document, problems, unknown)


def _identify(kind: Kind, document: Document) -> None:
    """Raise if the value is not a document of this kind."""
    if type(document) is not dict:
        raise BadRequest(f"a {kind.name} must be an object, not {checks.quoted(document)}")
    wanted = {"apiVersion": kind.api_version, "kind": kind.name}
    wrong = [
        Cause(name, f"Invalid value: {checks.quoted(document.get(name))}: must be {value}")
        for name, value in wanted.items()
        if document.get(name) != value
    ]
    if wrong:
        raise BadRequest(f"this is not a {kind.name}: {', '.join(map(str, wrong))}", causes=wrong)


class _Gate(Struct, frozen=True):
    """The compiled checks of a kind."""

    kind: Kind
    parts: dict[str, Check]
    required: tuple[str, ...]
    transitions: dict[str, tuple[Rule, ...]]

    def metadata(self, document: Document, old: Document | None) -> list[Cause]:
        """Return the problems of metadata."""
        found = document.get("metadata")
        if found is None:
            found = document["metadata"] = {}
        if crowded := metadata.too_many(found):
            return under(".metadata", crowded)
        wrong = metadata.shape()(found)
        if wrong is not None and checks.broken(wrong):
            return under(".metadata", wrong)
        wrong = [*(wrong or ()), *metadata.problems(self.kind, found, old and old.get("metadata"))]
        if self.kind is EVENT and not wrong:
            wrong += _event_namespace(document)
        return under(".metadata", wrong)

    def changes(self, document: Document, old: Document | None, subresource: str) -> list[Cause]:
        """Return the problems of the change from `old`."""
        found: list[Cause] = []
        if old is None:
            return found
        for name, rules in self.transitions.items():
            new, was = document.get(name), old.get(name)
            judged = not self.kind.has_status or (name == "status") == (subresource == "status")
            if judged and new is not None and was is not None:
                broken = [checks.failed(rule, new) for rule in rules if not rule.check(new, was)]
                found += under(f".{name}", broken)
        return found


@cache
def _gate(kind: Kind) -> _Gate:
    parts: Schema = {
        name: part for name, part in tree(kind)["properties"].items() if name not in ("apiVersion", "kind", "metadata")
    }
    return _Gate(
        kind,
        {name: checks.compiled(part) for name, part in parts.items()},
        tuple(tree(kind).get("required", ())),
        {
            name: rules
            for name, part in parts.items()
            if (rules := tuple(rule for rule in part.get("rules", ()) if rule.transition))
        },
    )


def _event_namespace(document: Document) -> list[Cause]:
    """An Event is in the namespace of its object; Events of cluster-scoped objects are in default."""
    about = document.get("involvedObject")
    wanted = about.get("namespace") if isinstance(about, dict) else None
    if document["metadata"].get("namespace") == (wanted or "default"):
        return []
    words = f"must be the involvedObject's namespace, {checks.quoted(wanted or 'default')}"
    return [Cause(".namespace", f"Invalid value: {checks.quoted(document['metadata'].get('namespace'))}: {words}")]


def _judge(kind: Kind, document: Document, problems: list[Cause], unknown: Unknown) -> list[str]:
    """Raise an error for the problems, or return them as warnings."""
    for problem in problems:
        path = problem.field[1:]
        problem.field = path if len(path) <= FIELD_LENGTH else f"{path[:FIELD_LENGTH]}…"
    strange = [problem for problem in problems if isinstance(problem, UnknownField)]
    wrong = [problem for problem in problems if not isinstance(problem, UnknownField)]
    texts = []
    for number, problem in enumerate(strange):
        # A suggestion takes as long as checking a thousand bytes, and many unknown fields are no typos.
        hint = checks.nearest(problem.message, problem.known) if number < SUGGESTIONS else ""
        problem.message = f"unknown field{hint}"
        texts.append(f'unknown field "{problem.field}"{hint}')
    if strange and unknown is Unknown.REFUSE:
        # Kubernetes reports the other problems only after this one is fixed; the user wants all of them at once.
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            f"strict decoding error: {', '.join(shortened([*texts, *map(str, wrong)]))}",
            causes=first([*strange, *wrong]),
        )
    if wrong:
        refuse(kind, document["metadata"], wrong)
    return list(shortened(texts)) if unknown is Unknown.WARN else []


def refuse(kind: Kind, meta: Json, causes: Sequence[Cause]) -> NoReturn:
    """Raise `Invalid` with a message in the format of Kubernetes."""
    name = (meta.get("name") or meta.get("generateName") or "") if isinstance(meta, dict) else ""
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = first(causes)
    said = ", ".join(map(str, causes))
    raise Invalid(
        f"{qualified} {checks.quoted(name)} is invalid: {said if len(causes) == 1 else f'[{said}]'}", causes=causes
    )
