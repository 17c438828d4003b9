import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.values.ages import age

# As k8s.io/apimachinery's duration.HumanDuration has them.
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
AGES = [
    (-5, "<invalid>"),
    (-1, "0s"),
    (0.9, "0s"),
    (1, "1s"),
    (70, "70s"),
    (119, "119s"),
    (120, "2m"),
    (121, "2m1s"),
    (10 * MINUTE - 1, "9m59s"),
    (10 * MINUTE, "10m"),
    (3 * HOUR - 1, "179m"),
    (3 * HOUR, "3h"),
    (3 * HOUR + MINUTE, "3h1m"),
    (8 * HOUR - 1, "7h59m"),
    (8 * HOUR, "8h"),
    (48 * HOUR - 1, "47h"),
    (48 * HOUR, "2d"),
    (48 * HOUR + HOUR, "2d1h"),
    (8 * DAY, "8d"),
    (2 * YEAR - 1, "729d"),
    (2 * YEAR, "2y"),
    (2 * YEAR + DAY, "2y1d"),
    (8 * YEAR, "8y"),
    (9 * YEAR + DAY, "9y"),
]


@pytest.mark.parametrize(("seconds", "words"), AGES)
def test_ages_read_as_kubectl_writes_them(seconds: float, words: str) -> None:
    assert age(seconds) == words


@given(st.floats(-10, 1e10))
def test_any_age_has_words(seconds: float) -> None:
    assert len(age(seconds)) <= len("<invalid>")
