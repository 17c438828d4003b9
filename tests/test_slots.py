"""No callback is assigned after construction: what a part calls is an argument of its constructor, or a `Signal`.

A slot is an attribute that begins as a lambda, as None, or as a mere annotation of a Callable, and is assigned from
outside its class. It has room for one listener, and nothing complains when it is left empty. The test reads the source
and matches attributes by name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "netloom"
SCOPED = {
    "on_lost": "front/api: belongs to the request under way, which resets it",
    "close": "front/api: uvicorn fixes the arguments of the constructor",
}
"""Names of attributes that are assigned from outside on purpose, and why."""


def _is_callable(annotation: ast.expr | None) -> bool:
    nodes = () if annotation is None else ast.walk(annotation)
    return any(isinstance(node, ast.Name) and node.id == "Callable" for node in nodes)


def _may_be_slot(value: ast.expr | None, annotation: ast.expr | None) -> bool:
    if isinstance(value, ast.Lambda):
        return True
    empty = value is None or (isinstance(value, ast.Constant) and value.value is None)
    return empty and _is_callable(annotation)


def _own(target: ast.expr) -> str | None:
    """Return the attribute's name in `self.name`, or the field's in a class body."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        return target.attr
    return None


def declared(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes of classes that begin as a slot does."""
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for field in owner.body:  # Of a Protocol, a dataclass or a Struct.
            if isinstance(field, ast.AnnAssign) and _may_be_slot(field.value, field.annotation):
                yield from [field.target.id] if isinstance(field.target, ast.Name) else []
        for node in ast.walk(owner):
            if isinstance(node, ast.AnnAssign) and (name := _own(node.target)):
                if _may_be_slot(node.value, node.annotation):
                    yield name
            elif isinstance(node, ast.Assign):
                names = [name for target in node.targets if (name := _own(target))]
                if isinstance(node.value, ast.Lambda):
                    yield from names


def assigned(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the attributes that are assigned through something else than `self`, with their lines."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        for target in parts:
            if isinstance(target, ast.Attribute) and _own(target) is None:
                yield target.attr, target.lineno


def slots(folder: Path) -> list[str]:
    """Return the assignments to slots, as `FILE:LINE NAME`."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    names = {name for tree in trees.values() for name in declared(tree)}
    return [
        f"{path.relative_to(folder)}:{line} {name}"
        for path, tree in trees.items()
        for name, line in assigned(tree)
        if name in names
    ]


def test_no_callback_is_assigned_after_construction() -> None:
    assert [slot for slot in slots(SOURCE) if slot.split()[1] not in SCOPED] == []


@pytest.mark.parametrize(
    "declaration",
    [
        "def __init__(self):\n        self.wake: Callable[[str], None] = lambda key: None",
        "def __init__(self):\n        self.wake = lambda key: None",
        "def __init__(self):\n        self.wake: Callable[[str], None] | None = None",
        "wake: Callable[[str], None]",
        "wake: Callable[[str], None] = lambda key: None",
    ],
)
@pytest.mark.parametrize("assignment", ["part.wake = print", "self.part.wake = print", "a.other = part.wake = print"])
def test_a_slot_is_found(tmp_path: Path, declaration: str, assignment: str) -> None:
    (tmp_path / "part.py").write_text(f"class Part:\n    {declaration}\n")
    (tmp_path / "main.py").write_text(f"{assignment}\n")
    assert slots(tmp_path) == ["main.py:1 wake"]


def test_what_a_class_assigns_itself_is_no_slot(tmp_path: Path) -> None:
    text = "class Part:\n    def run(self, wake):\n        self.wake = lambda: None\n        self.wake = wake\n"
    (tmp_path / "part.py").write_text(text)
    assert slots(tmp_path) == []
