"""Messages are found in a stream, however it is cut."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.framing import Framer

TEXT = st.text(alphabet=st.sampled_from('ab"\\{}[]:, ü\n'), max_size=12)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.builds(
    lambda number, params: {"id": number, "method": "m", "params": [params]}, st.integers(0, 9), VALUES
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(
    st.lists(MESSAGES, max_size=4),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.sampled_from(["", " ", "\n"]),
    st.booleans(),
)
def test_messages_come_out_whole_however_the_stream_is_cut(
    messages: list[Any], cuts: list[int], between: str, ascii_only: bool
) -> None:
    framer = Framer()
    data = between.join(json.dumps(one, ensure_ascii=ascii_only) for one in messages).encode()
    found = [message for chunk in chunks(data, cuts) for message in framer.receive(chunk)]
    assert [json.loads(bytes(one.params)) for one in found] == [one["params"] for one in messages]
    assert [one.id for one in found] == [one["id"] for one in messages]
    assert len(framer) == 0


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_messages_come_out_as_soon_as_they_end(messages: list[Any]) -> None:
    framer, count = Framer(), 0
    for number, one in enumerate(messages):
        for byte in json.dumps(one).encode():
            count += len(framer.receive(bytes([byte])))
        assert count == number + 1


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_what_is_not_json_is_refused_or_waited_for(data: bytes, cuts: list[int]) -> None:
    framer = Framer()
    try:
        for chunk in chunks(b'{"id":1,' + data, cuts):
            framer.receive(chunk)
    except RemoteError:
        return


def test_a_message_that_does_not_end_is_refused_at_the_limit() -> None:
    framer = Framer(limit=1000)
    framer.receive(b'{"id":"' + b"x" * 900)
    with pytest.raises(RemoteError, match="exceeds 1000 bytes"):
        framer.receive(b"x" * 100)


def test_several_messages_may_together_be_larger_than_the_limit() -> None:
    framer = Framer(limit=100)
    assert len(framer.receive(b'{"id":1}' * 50 + b'{"id"')) == 50


@pytest.mark.parametrize(
    "data", [b"x", b"[]", b"}", b'{"id":1}x{}', b'{"id":1}}', b'{"id":1} [{}]{}', b'{"id":01}', b"\xff"]
)
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        Framer().receive(data)


def test_a_large_message_in_small_pieces_with_braces_in_its_strings_is_walked_once() -> None:
    rows = {f"r{n}": {"name": "a}{b" if n % 7 else '"}\\', "map": ["map", [["k{", "v"]]]} for n in range(3000)}
    data = msgspec.json.encode({"id": None, "method": "update", "params": [rows]})
    framer = Framer()
    found = [one for at in range(0, len(data), 97) for one in framer.receive(data[at : at + 97])]
    assert json.loads(bytes(found[0].params)) == [rows]


def test_white_space_alone_is_nothing() -> None:
    assert Framer().receive(b" \n") == []
