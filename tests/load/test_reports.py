"""What a run adds up to, and how it is told."""

import csv
import io
import json
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.load import reports, svg
from netloom.load.plan import Load, Phase
from netloom.load.records import MEASURES, Life, RunResult, percentile, summary

TIMES = st.lists(st.floats(1e-4, 100), min_size=1, max_size=200).map(sorted)


def lived(number: int, *, phase: Phase = Phase.WARM_UP, ready: float = 0.05, due: float | None = None) -> Life:
    """Return a life of which everything is known."""
    at = 1000.0 + number if due is None else due
    life = Life(f"r1-{number:05}-0", number, "r1-001", "n1", phase, due=at, asked=at + 0.001, answered=at + 0.004)
    life.addressed, life.ready = at + ready / 2, at + 0.001 + ready
    life.ending, life.ended, life.gone = at + 10, at + 10.003, at + 10.004
    life.ips, life.uid = ("172.24.0.2/24",), f"uid-{number}"
    return life


def outcome(count: int) -> RunResult:
    made = RunResult("r1", seconds=12.0)
    made.lives = [lived(n, phase=Phase.CRUISE if n > count // 2 else Phase.WARM_UP) for n in range(count)]
    return made


@given(TIMES)
def test_a_summary_is_in_order_and_its_percentiles_are_among_the_times(ordered: list[float]) -> None:
    found = summary(ordered)
    assert found is not None
    assert found.least <= found.p50 <= found.p90 <= found.p99 <= found.most
    assert {found.p50, found.p90, found.p99} <= set(ordered)
    assert found.least - 1e-9 <= found.mean <= found.most + 1e-9


@given(TIMES, st.floats(0.01, 1))
def test_a_percentile_has_so_many_at_or_below_it_and_no_more_than_needed(ordered: list[float], share: float) -> None:
    found = percentile(ordered, share)
    assert sum(one <= found for one in ordered) >= share * len(ordered) - 1e-9
    assert sum(one < found for one in ordered) < share * len(ordered) + 1e-9


def test_nothing_measured_is_no_summary() -> None:
    assert summary([]) is None
    assert RunResult("r1").summaries() == {}


@given(TIMES)
def test_buckets_hold_every_time_once_and_end_where_times_end(ordered: list[float]) -> None:
    found = reports.buckets(ordered)
    assert sum(count for _, count in found) == len(ordered)
    bounds = [bound for bound, _ in found]
    assert bounds == sorted(bounds)
    assert bounds[-1] >= ordered[-1] - 1e-12
    assert found[0][1]
    assert found[-1][1]


def test_each_measure_is_from_its_own_beginning() -> None:
    life = lived(0, ready=0.05)
    took = {measure: life.took(measure) for measure in MEASURES}
    assert took["ready"] == pytest.approx(0.05)
    assert took["create"] == pytest.approx(0.003)
    assert took["lag"] == pytest.approx(0.001)
    assert took["delete"] == pytest.approx(0.003)
    assert took["gone"] == pytest.approx(0.004)
    assert math.isnan(took["tested"])
    with pytest.raises(KeyError, match="colour"):
        life.took("colour")


def test_the_table_shows_what_was_measured_and_leaves_out_what_was_not() -> None:
    table = reports.rows(outcome(10).summaries())
    assert [row[0] for row in table] == [
        "LATENCY (ms)",
        "delay of the driver",
        "create to its answer",
        "create to addresses",
        "create to Ready",
        "delete to its answer",
        "delete to gone",
    ]
    ready = dict(zip(table[0], table[4], strict=True))
    assert (ready["COUNT"], ready["P50"], ready["MAX"]) == ("10", "50.0", "50.0")


def test_a_histogram_is_drawn_in_bars_and_says_nothing_of_nothing() -> None:
    made = outcome(3)
    made.lives.append(lived(3, ready=0.9))
    lines = reports.histogram(made, "ready", width=8)
    assert lines[0] == "create to Ready:"
    assert lines[1].split() == ["up", "to", "50", "ms", "3", "████████"]
    assert lines[-1].split()[2:] == ["1000", "ms", "1", "██▋"]
    assert reports.histogram(made, "tested") == []
    assert reports.bar(0, 8) == ""
    assert reports.bar(0.0001, 8) == "▏"


def test_a_run_as_json_has_every_time_from_the_beginning_on() -> None:
    made = outcome(4)
    made.broke("ping failed", "no answer", made.lives[2])
    whole = json.loads(reports.as_json(Load(run="r1"), made))
    assert whole["load"]["fabric"] == "ovn"
    assert whole["errors"] == {"ping failed": 1}
    assert whole["summaries"]["ready"]["count"] == 4
    third = whole["attachments"][2]
    assert (third["due"], third["tested"], third["errors"]) == (2.0, None, ["ping failed"])
    assert third["ready"] == pytest.approx(2.051)


def test_a_run_as_csv_has_a_line_for_each_attachment() -> None:
    rows = list(csv.DictReader(io.StringIO(reports.as_csv(outcome(3)).decode())))
    assert [row["name"] for row in rows] == ["r1-00000-0", "r1-00001-0", "r1-00002-0"]
    assert (rows[1]["due"], rows[1]["tested"], rows[1]["ips"]) == ("1.0", "", "172.24.0.2/24")


@given(st.lists(st.tuples(st.floats(1e-4, 500), st.floats(0, 1e4)), max_size=60))
def test_a_plot_is_well_formed_whatever_was_measured_and_draws_within_its_frame(
    pairs: list[tuple[float, float]],
) -> None:
    made = RunResult("r1")
    made.lives = [lived(n, ready=ready, due=due) for n, (ready, due) in enumerate(pairs)]
    root = ElementTree.fromstring(svg.plot(made, title="A < B & C", subtitle="x"))
    dots = root.findall(".//{*}circle")
    assert len(dots) == len(pairs)
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= svg.WIDTH
        assert 0 <= float(dot.attrib["cy"]) <= svg.HEIGHT
    texts = [text.text for text in root.findall(".//{*}text")]
    assert texts[0] == "A < B & C"
    assert ("Nothing was measured." in texts) == (not pairs)


def test_a_plot_of_very_many_draws_some_of_them() -> None:
    made = outcome(svg.DOTS * 2 + 1)
    root = ElementTree.fromstring(svg.plot(made, title="many"))
    assert svg.DOTS / 2 < len(root.findall(".//{*}circle")) <= svg.DOTS
