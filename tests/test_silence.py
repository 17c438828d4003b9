"""No test passes without having looked: one that does not apply is not collected, and nothing is skipped."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SKIPPING = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif", "unittest.skip"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def silences(tree: ast.AST) -> Iterator[str]:
    """Give what would let a test of a module pass unseen: an early way out at its beginning, or a skip."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in SKIPPING:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, Function) and node.name.startswith("test"):
            for inner in _own(node):
                if isinstance(inner, ast.If) and all(isinstance(one, ast.Return | ast.Pass) for one in inner.body):
                    yield f"line {inner.lineno}: {node.name} returns if {ast.unparse(inner.test)}"


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Give what a function does itself, without the functions it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.Lambda):
            yield child
            yield from _own(child)


def test_no_test_returns_before_it_looked_or_is_skipped() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {silence}"
        for path in sorted(TESTS.rglob("*.py"))
        for silence in silences(ast.parse(path.read_text(), str(path)))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        "async def test_a(w):\n    if w.away:\n        return\n    assert w",
        "def test_a(w):\n    with w:\n        if not w:\n            return\n        assert w",
        "def test_a():\n    pytest.skip('no such program')",
        "@pytest.mark.skipif(away)\ndef test_a(): ...",
    ],
)
def test_a_planted_silence_is_heard(planted: str) -> None:
    assert list(silences(ast.parse(planted)))


def test_what_looks_first_is_not_taken_for_silence() -> None:
    inner = "    def stop():\n        if w:\n            return\n"
    planted = f"def test_a(w):\n{inner}    if w:\n        assert w\n        return"
    assert not list(silences(ast.parse(planted)))
