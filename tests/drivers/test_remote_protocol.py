"""What hosts answer: malformed, endless, in pieces of any size."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.remote.protocol import (
    LINE_LIMIT,
    MOST_PROBLEMS,
    OUTPUT_LIMIT,
    TEXT_LIMIT,
    Result,
    TooMuchOutput,
    Transcript,
)

STEPS = [{"step": "bridge nl-1 created"}, {"step": "größer"}, {"problem": "no netem"}]
DONE = b"".join(json.dumps(one).encode() + b"\n" for one in [*STEPS, {"result": "done", "changes": 2}])


def fed(*pieces: bytes) -> tuple[list[str], Transcript]:
    transcript = Transcript()
    return [step for piece in pieces for step in transcript.feed(piece)], transcript


@given(st.lists(st.integers(0, len(DONE)), max_size=12))
def test_output_means_the_same_in_whatever_pieces_it_arrives(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(DONE)]
    steps, transcript = fed(*(DONE[a:b] for a, b in pairwise(edges)))
    assert steps == ["bridge nl-1 created", "größer"]
    assert transcript.ended(0) == Result(changes=2, problems=("no netem",))


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_a_host_that_sends_anything_but_a_result_has_failed(pieces: list[bytes]) -> None:
    _, transcript = fed(*pieces)
    for piece in pieces:
        transcript.feed_errors(piece)
    assert transcript.result is None
    assert transcript.ended(0).error


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda v: (
            st.lists(v)
            | st.dictionaries(st.sampled_from(["step", "result", "changes", "error", "show", "document"]), v)
        ),
    )
)
def test_json_of_any_shape_is_a_step_a_result_or_nothing(value: object) -> None:
    steps, transcript = fed(json.dumps(value).encode() + b"\n")
    assert all(isinstance(step, str) for step in steps)
    assert transcript.ended(0).error or transcript.result


def test_noise_of_a_login_shell_is_ignored() -> None:
    steps, transcript = fed(b"Welcome to h1!\n[1, 2]\n{}\n", DONE)
    assert steps == ["bridge nl-1 created", "größer"]
    assert not transcript.ended(0).error


def test_endless_output_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(TooMuchOutput, match="16 MiB"):
        fed(*[b'{"step": "x"}\n' * 5000] * (OUTPUT_LIMIT // 70000 + 1))
    with pytest.raises(TooMuchOutput, match="a line of more than 4 MiB"):
        fed(*[b"x" * 65536] * (LINE_LIMIT // 65536 + 1))
    transcript = Transcript()
    for _ in range(OUTPUT_LIMIT // 65536):
        transcript.feed_errors(b"x" * 65536)
    with pytest.raises(TooMuchOutput):
        transcript.feed_errors(b"x")


def test_texts_and_problems_are_bounded() -> None:
    many = json.dumps({"problem": "p"}).encode() + b"\n"
    failed = json.dumps({"result": "failed", "error": "e" * 5000}).encode() + b"\n"
    steps, transcript = fed(json.dumps({"step": "s" * 5000}).encode() + b"\n", many * 500, failed)
    result = transcript.ended(1)
    assert len(steps[0]) == len(result.error) == TEXT_LIMIT
    assert len(result.problems) == MOST_PROBLEMS


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (127, b"sh: 1: exec: python3: not found\n", "python3 is not installed there: install it"),
        (1, b"sudo: a password is required\n", "log in as root, or allow sudo without a password"),
        (127, b"sh: 1: exec: sudo: not found\n", "log in as root, or allow sudo without a password"),
        (1, b"Traceback\nValueError: x\n", "ended without a result, with status 1: ValueError: x"),
        (None, b"", "ended without a result"),
    ],
)
def test_a_program_without_a_result_is_explained_by_its_last_line(status: int, said: bytes, expected: str) -> None:
    transcript = Transcript()
    transcript.feed_errors(said)
    assert expected in transcript.ended(status).error


def test_success_that_ends_with_a_status_is_a_failure() -> None:
    _, transcript = fed(DONE)
    assert transcript.ended(3) == Result(changes=2, error="it reported success and ended with status 3")
