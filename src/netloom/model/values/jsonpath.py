r"""JSONPath as kubectl has it: `-o jsonpath=`, `--for=jsonpath=` and the columns of tables.  Pure.

    template    text {expression} text …                 what is outside of braces is printed as it is
    expression  path | "literal" | 'literal' | range path | end
    path        .name  .*  ..  [0]  [-1]  [1:5:2]  [*]  ['a.b/c']  [0,2]  ['a','b']  [?(filter)]
    filter      @.path | @.path OPERATOR value           == != < <= > >=; a value is quoted, bare, or a @.path

`{range .items[*]}{.metadata.name}{"\n"}{end}` prints its body once for each value. As in kubectl, `$` and `@` both are
the current object, `..` yields every object and list at any depth, a dot in a name is written `\.`, and the values of a
path are joined by spaces. In place of kubectl's errors, a path that leads nowhere finds nothing, and slices are cut to
the length of the list. A name in brackets may hold plain dots: `['a.b']` is the key `a.b` where an object has it, and
otherwise the path `.a.b`, which is how kubectl reads it.

Parsing takes time linear in the text. Evaluation visits at most `VISITS` values and prints at most `OUTPUT` characters,
so that `..` or ranges within ranges on a large document end with an error and not with the memory of the machine.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest

VISITS = 10_000_000
OUTPUT = 1 << 28
_DEPTH = 16
"""How deep filters and ranges nest."""

Step = str | Callable[[list[Any], "_Budget"], list[Any]]
"""A name, or a function from the values before the step to those after it."""

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"""(?:[^\s.\[\](){},'"$@?=<>!*\\]|\\.)+""")
_INDEX = re.compile(r"-?\d{1,9}")
_SLICE = re.compile(r"(-?\d{1,9})?:(-?\d{1,9})?(?::(\d{1,9})?)?")
_QUOTED = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)\'""", re.DOTALL)
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_BARE = re.compile(r"[\w.+-]+")
_KEYWORD = re.compile(r"(range|end)(?![\w.\[-])")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class JSONPath:
    """One path."""

    def __init__(self, text: str) -> None:
        """Parse a path, with or without braces and a leading dot; `BadRequest` where it is none."""
        inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
        self._path = _Parser(text, inner).whole()

    def find(self, document: object) -> list[Any]:
        """Return every value the path leads to."""
        path = self._path
        return path.follow(document) if path.plain else path.find(document, _Budget(path.text))


class Template:
    """Text with paths in braces, and ranges; a text without braces is one path."""

    def __init__(self, text: str) -> None:
        """Parse a template; `BadRequest` where it is none."""
        self._text = text
        self._nodes: list[_Node] = []
        if "{" not in text:
            self._nodes.append(_Parser(text, text).whole())
            return
        parser = _Parser(text, text)
        open_: list[list[_Node]] = [self._nodes]
        while parser.at < len(text):
            if parser.take("{"):
                parser.expression(open_)
                continue
            end = text.find("{", parser.at)
            end = len(text) if end < 0 else end
            open_[-1].append(text[parser.at : end])
            parser.at = end
        if len(open_) > 1:
            raise BadRequest(f"cannot read the JSONPath {text!r}: {{range}} without {{end}}")

    def render(self, document: object) -> str:
        """Return what the template prints of a document."""
        budget = _Budget(self._text)
        parts: list[str] = []
        _render(self._nodes, document, parts, budget)
        return "".join(parts)


def shown(value: object) -> str:
    """Return a value as JSONPath prints it: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _Budget:
    """How many more values one evaluation may visit, and how many more characters it may print."""

    __slots__ = ("_output", "_text", "_visits")

    def __init__(self, text: str) -> None:
        self._text, self._visits, self._output = text, VISITS, OUTPUT

    def visit(self, count: int) -> None:
        self._visits -= count
        if self._visits < 0:
            raise BadRequest(f"the JSONPath {self._text!r} visits more than {VISITS:,} values of this document")

    def print(self, text: str) -> str:
        self._output -= len(text)
        if self._output < 0:
            raise BadRequest(f"the JSONPath {self._text!r} prints more than {OUTPUT:,} characters")
        return text


class _Path(Struct):
    """The steps of a path."""

    text: str
    steps: list[Step]
    plain: bool = False
    """Whether all steps are names: most paths are such."""

    def __post_init__(self) -> None:
        self.plain = all(isinstance(step, str) for step in self.steps)

    def follow(self, value: object) -> list[Any]:
        """Return the value that the names of a plain path lead to."""
        for name in self.steps:
            if not isinstance(value, dict) or name not in value:
                return []
            value = value[name]
        return [value]

    def find(self, document: object, budget: _Budget) -> list[Any]:
        if self.plain:
            budget.visit(1)
            return self.follow(document)
        values = [document]
        for step in self.steps:
            budget.visit(len(values))
            if isinstance(step, str):
                values = [value[step] for value in values if isinstance(value, dict) and step in value]
            else:
                values = step(values, budget)
        return values


class _Range(Struct):
    """A path, and what is printed for each of its values."""

    path: _Path
    body: "list[_Node]" = []


_Node = str | _Path | _Range


def _render(nodes: list[_Node], document: object, parts: list[str], budget: _Budget) -> None:
    for node in nodes:
        if isinstance(node, str):
            parts.append(budget.print(node))
        elif isinstance(node, _Path):
            parts.append(" ".join(budget.print(shown(value)) for value in node.find(document, budget)))
        else:
            for value in node.path.find(document, budget):
                _render(node.body, value, parts, budget)


class _Parser:
    """A text, and how far it is read."""

    def __init__(self, whole: str, text: str) -> None:
        self._whole = whole
        self._text = text
        self._depth = 0
        self.at = 0

    def error(self, wanted: str) -> BadRequest:
        rest = self._text[self.at : self.at + 40]
        return BadRequest(f"cannot read the JSONPath {self._whole!r} from {rest!r} on: expected {wanted}")

    def take(self, text: str) -> bool:
        """Skip a text that is next, and return whether it is."""
        if not self._text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def space(self) -> None:
        self._match(_SPACE)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _expect(self, text: str) -> None:
        if not self.take(text):
            raise self.error(repr(text))

    def whole(self) -> _Path:
        """Read a text that is one path."""
        self.space()
        path = self.path(relaxed=True)
        self.space()
        if self.at < len(self._text):
            raise self.error("a step of a path")
        return path

    def expression(self, open_: "list[list[_Node]]") -> None:
        """Read what follows an opening brace, up to the closing one, into the innermost range."""
        self.space()
        start = self.at
        keyword = self._match(_KEYWORD)
        if keyword is not None and keyword[1] == "end":
            if len(open_) == 1:
                self.at = start
                raise self.error("an expression: there is no {range} to end")
            open_.pop()
        elif keyword is not None:
            if len(open_) > _DEPTH:
                raise self.error(f"at most {_DEPTH} ranges within each other")
            self.space()
            made = _Range(self.path())
            open_[-1].append(made)
            open_.append(made.body)
        elif self._text.startswith(('"', "'"), self.at):
            open_[-1].append(_unescape(self._quoted()))
        else:
            open_[-1].append(self.path(relaxed=True))
        self.space()
        self._expect("}")

    def path(self, *, relaxed: bool = False) -> _Path:
        """Read a path; a relaxed one may begin with a name."""
        steps: list[Step] = []
        start = self.at
        rooted = self.take("$") or self.take("@")
        if relaxed and not rooted and (found := self._match(_NAME)):
            steps.append(_unescaped_name(found[0]))
        while self._text.startswith((".", "["), self.at):
            if self.take("["):
                steps.append(self._brackets())
                continue
            if self.take(".."):
                steps.append(_descend)
            else:
                self.at += 1
            if self.take("*"):
                steps.append(_all)
            elif found := self._match(_NAME):
                steps.append(_unescaped_name(found[0]))
            elif self._text.startswith(".", self.at):
                raise self.error("a name")
        if self.at == start:
            raise self.error("a path")
        return _Path(self._whole, steps)

    def _brackets(self) -> Step:
        self.space()
        if self.take("?"):
            return self._filter()
        members: list[Step] = []
        while True:
            self.space()
            members.append(self._member())
            self.space()
            if not self.take(","):
                break
        self._expect("]")
        return members[0] if len(members) == 1 else _union(members)

    def _member(self) -> Step:
        if self.take("*"):
            return _all
        if self._text.startswith(('"', "'"), self.at):
            return _key(self._quoted())
        if found := self._match(_SLICE):
            first, last, by = (int(one) if one else None for one in found.groups())
            if by == 0:
                raise self.error("a slice whose step is not 0")
            return _slice(slice(first, last, by))
        if found := self._match(_INDEX):
            return _index(int(found[0]))
        raise self.error("an index, a slice, *, a name in quotes or a filter")

    def _quoted(self) -> str:
        found = self._match(_QUOTED)
        if found is None:
            raise self.error("a closing quote")
        return found[1] if found[1] is not None else found[2]

    def _filter(self) -> Step:
        self._depth += 1
        if self._depth > _DEPTH:
            raise self.error(f"at most {_DEPTH} filters within each other")
        self._expect("(")
        self.space()
        left = self.path(relaxed=True)
        self.space()
        sign = self._match(_OPERATOR)
        right: str | _Path = ""
        if sign is not None:
            self.space()
            right = self._operand()
            self.space()
        self._expect(")")
        self.space()
        self._expect("]")
        self._depth -= 1
        return _filter(left, sign[0] if sign is not None else "", right)

    def _operand(self) -> str | _Path:
        if self._text.startswith(('"', "'"), self.at):
            return _unescape(self._quoted())
        if self._text.startswith(("@", "$"), self.at):
            return self.path()
        if found := self._match(_BARE):
            return found[0]
        raise self.error("a value")


def _unescaped_name(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    if code:
        return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= int(code, 16) < 0xE000 else chr(int(code, 16))
    return _ESCAPES.get(found[3], found[3])


# Steps.


def _members(value: object, budget: _Budget) -> Collection[Any]:
    members: Collection[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    budget.visit(len(members))
    return members


def _all(values: list[Any], budget: _Budget) -> list[Any]:
    return [member for value in values for member in _members(value, budget)]


def _descend(values: list[Any], budget: _Budget) -> list[Any]:
    """Return the objects and lists at any depth that are not empty, each before those in it."""
    found = []
    stack = values[::-1]
    while stack:
        value = stack.pop()
        if members := _members(value, budget):
            found.append(value)
            stack += [*members][::-1]
    return found


def _key(text: str) -> Step:
    """Return the step to a name in brackets: one key, or where an object does not have it, the path that it spells."""
    name = _unescaped_name(text)
    names = [_unescaped_name(part) for part in re.findall(r"(?:[^.\\]|\\.)+", text)]
    if names in ([], [name]):
        return name
    spelled = _Path(text, [*names])

    def step(values: list[Any], budget: _Budget) -> list[Any]:
        found = []
        for value in values:
            if isinstance(value, dict) and name in value:
                found.append(value[name])
            else:
                found += spelled.find(value, budget)
        return found

    return step


def _index(index: int) -> Step:
    return lambda values, _: [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]


def _slice(which: slice) -> Step:
    def step(values: list[Any], budget: _Budget) -> list[Any]:
        return [
            member for value in values if isinstance(value, list) and _members(value, budget) for member in value[which]
        ]

    return step


def _union(members: list[Step]) -> Step:
    paths = [_Path("", [member]) for member in members]
    return lambda values, budget: [found for path in paths for value in values for found in path.find(value, budget)]


def _filter(left: _Path, sign: str, right: str | _Path) -> Step:
    def holds(item: object, budget: _Budget) -> bool:
        found = left.find(item, budget)
        if not sign:
            return bool(found)
        wanted = right.find(item, budget) if isinstance(right, _Path) else [right]
        return len(found) == len(wanted) == 1 and _compare(found[0], sign, wanted[0])

    def step(values: list[Any], budget: _Budget) -> list[Any]:
        return [member for value in values for member in _members(value, budget) if holds(member, budget)]

    return step


def _compare(left: object, sign: str, right: object) -> bool:
    """Compare as text for equality, and by order where both are numbers or both are texts."""
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return (left == right) == (sign == "==") and sign in ("==", "!=")
    if sign in ("==", "!="):
        return (shown(left) == shown(right)) == (sign == "==")
    if isinstance(left, int | float) and isinstance(right, str):
        try:
            right = float(right)
        except ValueError:
            return False
    if isinstance(left, str) != isinstance(right, str) or not isinstance(left, str | int | float):
        return False
    return isinstance(right, str | int | float) and _COMPARE[sign](left, right)
