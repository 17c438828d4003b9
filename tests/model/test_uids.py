from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from netloom.model.values import uids


@given(st.floats(0, 2**33), st.integers(0, 2**62 - 1))
def test_a_uid_is_a_uuid_of_version_7_and_says_when_it_was_made(seconds: float, chance: int) -> None:
    uid = uids.mint(seconds, chance)
    read = UUID(uid)
    assert (str(read), read.version, read.variant) == (uid, 7, "specified in RFC 4122")
    assert read.int & (2**62 - 1) == chance
    made = uids.made(uid)
    assert made is not None
    assert abs(seconds - made) <= 0.000_002


@given(st.lists(st.floats(0, 2**32), min_size=2))
def test_uids_are_in_the_order_of_their_times(times: list[float]) -> None:
    made = [uids.mint(time, 5) for time in sorted(times)]
    assert made == sorted(made)


def test_other_uids_say_nothing() -> None:
    for uid in (
        "",
        "7",
        "0f0c7a4e-3b1c-4d9e-8a52-0d9c5a2f1b3c",
        "0190163d-8694-739b-0fa5-0d9c5a2f1b3c",
        "0190163d-8694-739b-9fa5-0d9c5a2f1b3c0",
        "0190163d.8694.739b.9fa5.0d9c5a2f1b3c",
        "zz90163d-8694-739b-9fa5-0d9c5a2f1b3c",
    ):
        assert uids.made(uid) is None
    assert uids.made("0190163d-8694-739b-aea5-966c26f8ad91") is not None


@given(st.text())
def test_no_text_upsets_it(text: str) -> None:
    uids.made(text)
