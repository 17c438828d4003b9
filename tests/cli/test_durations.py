import click
import pytest

from netloom.cli.durations import DURATION


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1m30s", 90), ("500ms", 0.5), ("2h", 7200), ("5", 5), ("-1s", -1), ("0", 0)]
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "5d", "1s1", "s", "1.2.3s"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert(text, None, None)
