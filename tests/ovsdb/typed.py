"""Typed rows of the tests' schema, made by the tool that makes those of the real ones."""

import importlib.machinery
import importlib.util
import types
from pathlib import Path

from msgspec import Struct

from tests.ovsdb.histories import SCHEMA

TOOL = Path(__file__).resolve().parents[2] / "tools/ovsdb-rows"


def tool() -> types.ModuleType:
    """Return tools/ovsdb-rows as a module."""
    loader = importlib.machinery.SourceFileLoader("ovsdb_rows", str(TOOL))
    spec = importlib.util.spec_from_loader("ovsdb_rows", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _rows() -> dict[str, type[Struct]]:
    module = types.ModuleType("tests.ovsdb.test_rows")
    exec(tool().module(SCHEMA), module.__dict__)
    import sys

    sys.modules[module.__name__] = module  # Where msgspec looks for what annotations name.
    tables: dict[str, type[Struct]] = module.TABLES
    return tables


ROWS = _rows()
