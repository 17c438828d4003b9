"""What `kubectl get` shows, computed here."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from netloom.front.api.output import tables
from netloom.model.document import Document, Resource
from netloom.model.kind import Column, Kind
from netloom.model.registry import KINDS
from netloom.store.base import stored

NOW = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
KIND = Kind(
    group="netloom.dev",
    version="v1alpha1",
    name="Widget",
    plural="widgets",
    singular="widget",
    type=Resource,
    columns=(
        Column("Node", ".spec.node"),
        Column("MTU", ".spec.mtu", "integer", wide=True, description="Its MTU."),
        Column("Rate", ".spec.rate", "number"),
        Column("Up", ".status.up", "boolean"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("IPs", ".spec.ips[*]"),
        Column("All", ".spec.ips"),
        Column("First", ".spec.ips[0]"),
        Column("Label", ".metadata.labels['a.b/c']"),
        Column("Object", "{.spec.node}/{.spec.mtu}!"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
WIDGET: Document = {
    "apiVersion": "netloom.dev/v1alpha1",
    "kind": "Widget",
    "metadata": {
        "name": "w",
        "namespace": "default",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T23:59:00Z",
        "labels": {"a.b/c": "x"},
    },
    "spec": {"node": "n1", "mtu": 1400, "rate": 1, "ips": ["10.0.0.1", "10.0.0.2"]},
    "status": {"up": True, "conditions": [{"type": "Live", "status": "False"}, {"type": "Ready", "status": "True"}]},
}
CELLS = [
    "w",
    "n1",
    1400,
    1.0,
    True,
    "True",
    "10.0.0.1,10.0.0.2",
    "10.0.0.1,10.0.0.2",
    "10.0.0.1",
    "x",
    "n1/1400!",
    "60s",
]


def test_a_table_has_the_kinds_columns_and_typed_cells() -> None:
    shown = tables.table(KIND, [WIDGET], now=NOW, metadata={"resourceVersion": "9"})
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "9"},
    )
    assert [c["name"] for c in shown["columnDefinitions"]] == ["Name", *(c.name for c in KIND.columns)]
    assert shown["columnDefinitions"][2] == {
        "name": "MTU",
        "type": "integer",
        "format": "",
        "description": "Its MTU.",
        "priority": 1,
    }
    assert shown["rows"] == [
        {
            "cells": CELLS,
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": WIDGET["metadata"],
            },
        }
    ]


def test_stored_objects_are_rows_like_any_other() -> None:
    assert tables.table(KIND, [stored(KIND, WIDGET)], now=NOW)["rows"][0]["cells"] == CELLS


def test_rows_carry_what_was_asked_for() -> None:
    assert tables.table(KIND, [WIDGET], now=NOW, include="Object")["rows"][0]["object"] == WIDGET
    assert tables.table(KIND, [WIDGET], now=NOW, include="None")["rows"][0]["object"] is None
    old = tables.table(KIND, [WIDGET], now=NOW, as_version="v1beta1")
    assert (old["apiVersion"], old["rows"][0]["object"]["apiVersion"]) == ("meta.k8s.io/v1beta1",) * 2


def test_what_is_not_there_is_an_empty_cell() -> None:
    bare = {"metadata": {"name": "w"}}
    assert tables.table(KIND, [bare], now=NOW)["rows"][0]["cells"] == ["w", *[None] * len(KIND.columns)]
    odd = {
        "metadata": {"name": "w", "labels": "x", "creationTimestamp": 3},
        "spec": {"node": {"a": 1}, "mtu": "x", "rate": True, "ips": [{"a": 1}]},
        "status": {"up": "yes", "conditions": {"a": {"type": "Ready", "status": "Odd"}}},
    }
    assert tables.table(KIND, [odd], now=NOW)["rows"][0]["cells"] == [
        *["w", '{"a":1}', None, None, None, "Odd", '{"a":1}', '[{"a":1}]', '{"a":1}', None, '{"a":1}/x!', None]
    ]
    flat = {"metadata": {"name": "w"}, "spec": "x", "status": {"conditions": "x"}}
    assert tables.table(KIND, [flat], now=NOW)["rows"][0]["cells"] == ["w", *[None] * len(KIND.columns)]


@pytest.mark.parametrize("time", ["x", "2026-01-01", "2026-01-01T00:00:00"])
def test_a_date_that_is_none_is_invalid(time: str) -> None:
    dated = {"metadata": {"name": "w", "creationTimestamp": time}}
    assert tables.table(KIND, [dated], now=NOW)["rows"][0]["cells"][-1] == "<invalid>"


@pytest.mark.parametrize("text", ["spec", ".spec[", ".spec[?(@.a)]", ".a..b", ".spec[99999999999]"])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a supported JSONPath"):
        tables.path(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [(".spec.ips[-1]", ["10.0.0.2"]), (".spec.ips[5]", []), (".spec['node']", ["n1"]), ("", [WIDGET])],
)
def test_paths_find_what_they_name(text: str, found: list[Any]) -> None:
    assert tables.path(text)(WIDGET) == found


def test_every_kind_can_be_shown() -> None:
    for kind in KINDS:
        shown = tables.table(kind, [{"metadata": {"name": "x"}}], now=NOW)
        assert len(shown["rows"][0]["cells"]) == len(shown["columnDefinitions"])
        msgspec.json.encode(shown)
