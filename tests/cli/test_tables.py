from hypothesis import given
from hypothesis import strategies as st

from netloom.cli.tables import Aligner, align, clean, rows, safe

TABLE = {
    "columnDefinitions": [
        {"name": "Name", "priority": 0},
        {"name": "VNI", "priority": 0},
        {"name": "MTU", "priority": 1},
    ],
    "rows": [
        {"cells": ["blue", 10, 1400], "object": {"metadata": {"namespace": "a", "labels": {"x": "1"}}}},
        {"cells": ["red", None, None], "object": {"metadata": {"namespace": "b"}}},
    ],
}


def test_columns_line_up_and_the_last_is_not_padded() -> None:
    assert (
        align([["NAME", "VNI"], ["blue", 10], ["a-long-name", ""]])
        == "NAME          VNI\nblue          10\na-long-name"
    )


def test_rows_printed_later_stay_under_the_earlier_ones() -> None:
    aligner = Aligner()
    assert aligner.lines([["NAME", "VNI"]]) == ["NAME   VNI"]
    assert aligner.lines([["a-long-name", "1"]]) == ["a-long-name   1"]
    assert aligner.lines([["x", "2"]]) == ["x             2"]


def test_a_table_shows_wide_columns_only_when_asked() -> None:
    assert list(rows(TABLE, wide=False, header=True, namespaces=False)) == [
        ["NAME", "VNI"],
        ["blue", 10],
        ["red", None],
    ]
    assert next(rows(TABLE, wide=True, header=True, namespaces=False)) == ["NAME", "VNI", "MTU"]


def test_a_table_of_all_namespaces_names_them_and_labels_when_asked() -> None:
    assert list(rows(TABLE, wide=False, header=True, namespaces=True, labels=True, prefix="network/")) == [
        ["NAMESPACE", "NAME", "VNI", "LABELS"],
        ["a", "network/blue", 10, "x=1"],
        ["b", "network/red", None, "<none>"],
    ]


@given(st.text())
def test_no_cell_can_move_the_cursor_or_break_the_line(text: str) -> None:
    shown = clean(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert "\x1b" not in safe(text)
