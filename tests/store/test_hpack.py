"""Header compression: RFC 7541's own examples, and whatever a stranger may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.store.http import hpack
from netloom.store.http.hpack import Decoder, HpackError, encode

REQUESTS = [
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]


@pytest.mark.parametrize(
    "blocks",
    [
        (  # RFC 7541, C.3: without Huffman coding.
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (  # C.4: with it.
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
)
def test_the_examples_of_the_rfc_are_read(blocks: tuple[str, ...]) -> None:
    decoder = Decoder()
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == REQUESTS


def test_the_static_table_is_the_rfcs() -> None:
    table = hpack._STATIC
    assert len(table) == 61
    assert (table[0], table[30], table[60]) == ((":authority", ""), ("content-type", ""), ("www-authenticate", ""))


@given(st.lists(st.tuples(st.text("abc-:", min_size=1), st.text(st.characters(max_codepoint=255)))))
def test_what_is_written_is_read(headers: list[tuple[str, str]]) -> None:
    plain = [(name, value) for name, value in headers if value.isascii()]
    assert Decoder().decode(encode(plain)) == plain


def test_long_words_are_written_with_their_length() -> None:
    headers = [("grpc-message", "x" * 5000)]
    assert Decoder().decode(encode(headers)) == headers


def test_old_entries_leave_the_table_when_it_is_full() -> None:
    decoder = Decoder()
    for number in range(100):
        name = f"name-{number:03}".encode()
        decoder.decode(b"\x40" + bytes((len(name),)) + name + b"\x64" + b"v" * 100)
    assert decoder.decode(b"\xbe") == [("name-099", "v" * 100)]
    with pytest.raises(HpackError):
        decoder.decode(bytes((0x80 | 62 + 60,)))
    assert decoder.decode(b"\x20") == []  # The table is to be empty from now on.
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")


@pytest.mark.parametrize(
    "block",
    [
        "80",  # Header 0.
        "be",  # One that is not in the table.
        "3fe21f",  # A table larger than agreed.
        "00",  # Cut off.
        "0005616263",
        "7fffffffffff7f",  # A number without end.
        "00016181ff",  # A Huffman word of nothing but padding.
        "000161820000"[:10],
    ],
)
def test_what_is_no_block_is_refused(block: str) -> None:
    with pytest.raises(HpackError):
        Decoder().decode(bytes.fromhex(block))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_a_stranger_can_only_be_refused(blocks: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for block in blocks:
            decoder.decode(block)
    except HpackError:
        pass
