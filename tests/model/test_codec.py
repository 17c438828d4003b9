"""The decoding door: what comes in, what stays out, and that what is written is read back."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest, TooLarge, UnsupportedMediaType
from netloom.model import codec

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXT, inner, max_size=5)),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(TEXT, JSON, max_size=5)
WORDS = """y n yes no on off true null ~ 1 010 0o7 0x1f 1e3 .5 1_000 +1 .inf .nan 2026-01-01 10:20:30
    << = - : # & * ! | > %"""
SHAPES = [
    "",
    " ",
    "a\n",
    "\n",
    "a: b",
    "- a",
    "a\nb\n",
    "  a\n b",
    "a \nb",
    "\t",
    "'",
    '"',
    "\\",
    "é",
    "\x85",
    "\u2028",
]
AMBIGUOUS = st.sampled_from([*WORDS.split(), *SHAPES])


@given(DOCUMENTS)
def test_json_is_read_back(document: dict[str, Any]) -> None:
    assert codec.decode(msgspec.json.encode(document)) == document
    assert codec.decode(json.dumps(document).encode(), "application/json; charset=utf-8") == document


@given(st.one_of(DOCUMENTS, st.dictionaries(AMBIGUOUS, st.lists(AMBIGUOUS, max_size=3), min_size=1)))
def test_yaml_is_read_back(document: dict[str, Any]) -> None:
    assert codec.documents(codec.encode_yaml(document)) == [document]
    assert codec.decode(codec.encode_yaml(document).encode(), "application/yaml") == document


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/yaml"]))
def test_any_bytes_are_a_document_or_refused(data: bytes, content_type: str) -> None:
    with contextlib.suppress(BadRequest):
        codec.decode(data, content_type)


@given(st.text(alphabet="ab01:-{}[]&*<>!|#\"'\n ,%?yes.", max_size=60))
def test_any_text_is_documents_or_refused(text: str) -> None:
    with contextlib.suppress(BadRequest):
        codec.documents(text)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=5), st.booleans())
def test_a_key_written_twice_is_refused_wherever_it_is(pairs: list[tuple[str, int]], escaped: bool) -> None:
    inner = ",".join(f'"{key}":{value}' for key, value in pairs)
    escape = ',"e":"\\u00e9\\""' if escaped else ""
    data = ('{"x":[{"y":{' + inner + "}}]" + escape + "}").encode()
    repeated = len({key for key, _ in pairs}) < len(pairs)
    expected = pytest.raises(BadRequest, match="duplicate field") if repeated else contextlib.nullcontext()
    with expected:
        codec.decode(data)
    with expected:
        codec.documents(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1} x', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":1e999}', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b"[1]", "must be an object, not a list"),
        (b"null", "must be an object, not nothing"),
        (b'"a"', "must be an object, not a string"),
        (b'{"a":' + b"1" * 9000 + b"}", "not JSON"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "deeper than 64"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64"),
        (b'{"a":' + b'{"b":' * 70 + b"1" + b"}" * 71, "deeper than 64"),
    ],
)
def test_json_that_is_wrong_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        codec.decode(data)


def test_a_wide_document_is_not_a_deep_one() -> None:
    wide = {"a": [{"b": [1]} for _ in range(100)]}
    assert codec.decode(msgspec.json.encode(wide)) == wide


def test_a_body_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        codec.decode(b'{"a":"' + b"x" * codec.SIZE_LIMIT + b'"}')
    with pytest.raises(TooLarge):
        codec.documents("a: b", limit=3)


def test_a_format_nobody_reads_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType, match="protobuf"):
        codec.decode(b"k8s\0", "application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "application/merge-patch+json", "application/apply-patch+yaml", "text/yaml"],
)
def test_json_is_read_under_many_names(content_type: str) -> None:
    assert codec.decode(b'{"a": 1}', content_type) == {"a": 1}


def test_a_patch_may_be_a_list() -> None:
    assert codec.decode_value(b"[1]", "application/json-patch+json") == [1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", True),
        ("a: Off", False),
        ("a: y", True),
        ("a: ~", None),
        ("a:", None),
        ("a: 2026-11-15", "2026-11-15"),
        ("a: 2026-11-15T09:00:00Z", "2026-11-15T09:00:00Z"),
        ("a: 10:20:30:40:50:52", "10:20:30:40:50:52"),
        ("a: 0x1F", 31),
        ("a: 0b11", 3),
        ("a: 010", 8),
        ("a: 0o17", 15),
        ("a: 0x_", "0x_"),
        ("a: 089", 89.0),
        ("a: 1_000", 1000),
        ("a: -7", -7),
        ("a: 1e3", 1000.0),
        ("a: .5", 0.5),
        ("a: +", "+"),
        ("a: 10mbit", "10mbit"),
        ("a: '1'", "1"),
        ("a: !!str 1", "1"),
        ("a: ! 1", "1"),
        ("a: !!int 1", 1),
        ("a: !!float 1", 1),
        ("a: !!bool yes", True),
        ("a: !!null ~", None),
        ("a: !!map {b: 1}", {"b": 1}),
        ("a: !!seq [1]", [1]),
        ("a:\n- ::1\n- 1.2.3.4", ["::1", "1.2.3.4"]),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("? a\n: b", "b"),
    ],
)
def test_words_mean_what_they_mean_to_kubectl(text: str, value: object) -> None:
    ((document),) = codec.documents(text)
    assert document == {"a": value}
    assert type(document["a"]) is type(value)


def test_a_key_is_what_is_written() -> None:
    assert codec.documents("on: 1\n1: 2\nnull: 3\n") == [{"on": 1, "1": 2, "null": 3}]


def test_aliases_and_merges_are_unfolded_into_copies() -> None:
    (document,) = codec.documents(
        "a: &x {b: [1]}\nc: *x\nd: {<<: *x, e: 2}\nf: {<<: [*x, {g: 3}], b: 4}\nh: &k key\n*k : 5"
    )
    assert document == {
        "a": {"b": [1]},
        "c": {"b": [1]},
        "d": {"e": 2, "b": [1]},
        "f": {"b": 4, "g": 3},
        "h": "key",
        "key": 5,
    }
    assert document["a"] is not document["c"]


def test_a_number_can_be_an_alias_and_a_key() -> None:
    assert codec.documents("a: &n 5\n*n : 6") == [{"a": 5, "5": 6}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", 'line 3: duplicate field "a"'),
        ("a: [1, 2", "not YAML.* on line"),
        ("a: 'x", "not YAML.* on line"),
        ("\t", "not YAML.* on line 1"),
        ("a: \x00", "not YAML"),
        ("- 1", "a document must be an object, not a list"),
        ("just words", "a document must be an object, not a string"),
        ("a: *b", "line 1: unknown anchor &b"),
        ("a: &a [*a]", "line 1: unknown anchor &a"),
        ("a: .inf", "line 1: .inf is not a number in JSON"),
        ("a: -.INF", "is not a number in JSON"),
        ("a: 1e999", "is too large"),
        ("a: " + "1" * 400, "is too large"),
        ("a: 0x" + "f" * 400, "is too large"),
        ("a: !!binary aGk=", "the tag .*binary is not supported"),
        ("a: !!int x", "the tag .*int is not supported"),
        ("a: !!python/object:os.system x", "is not supported"),
        ("a: !!set {b}", "is not supported"),
        ("? [a]\n: b", "a key must be a scalar"),
        ("a: &x [1]\n*x : 2", "a key must be a scalar"),
        ("a: {<<: [1]}", "<< needs a mapping"),
        ("a: {<<: b}", "<< needs a mapping"),
        ("a: " + "[" * 70, "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
        (
            "a: &x " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*x" + "]" * 40,
            "line 2: the text nests deeper than 64",
        ),
        ("apiVersion: v1\nkind: List\nitems: [1]", "an item of a List must be an object, not a number"),
    ],
)
def test_yaml_that_is_wrong_is_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        codec.documents(text)


def test_a_few_lines_cannot_unfold_into_gigabytes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(BadRequest, match="expands to more than"):
        codec.documents("\n".join(lines))


def test_more_than_one_document_is_not_a_body() -> None:
    with pytest.raises(BadRequest, match="one YAML document, not 2"):
        codec.decode(b"a: 1\n---\nb: 2", "application/yaml")


def test_many_documents_are_a_file_and_empty_ones_are_none() -> None:
    assert codec.documents("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n") == [{"a": 1}, {"b": 2}]
    assert codec.documents("") == []
    assert codec.documents(b'{"a": 1}') == [{"a": 1}]
    assert codec.documents("{a: 1}") == [{"a": 1}]


def test_a_list_is_its_items() -> None:
    assert codec.documents('{"apiVersion": "v1", "kind": "List", "items": [{"a": 1}, {"b": 2}]}') == [
        {"a": 1},
        {"b": 2},
    ]


def test_yaml_is_written_for_people() -> None:
    document = {"metadata": {"name": "blue"}, "spec": {"mac": "10:20:30:40:50:52", "text": "a\nb\n", "word": "yes"}}
    assert codec.encode_yaml(document) == (
        "metadata:\n  name: blue\nspec:\n  mac: '10:20:30:40:50:52'\n  text: |\n    a\n    b\n  word: \"yes\"\n"
    )


def test_what_is_there_twice_is_written_twice() -> None:
    shared = {"a": [1]}
    assert "&" not in codec.encode_yaml({"x": shared, "y": shared})


def places(spot: codec.Spot, text: str) -> list[str]:
    """Return what stands at the spots of all scalars, to the end of the line."""
    if spot.inner is None:
        return [text.split("\n")[spot.line - 1][spot.column - 1 :]]
    inner = spot.inner.values() if isinstance(spot.inner, dict) else spot.inner
    return [found for one in inner for found in places(one, text)]


def test_every_value_is_where_it_is_written() -> None:
    text = "a: 1\nb:\n  - x\n  - {c: z}\nd: >-\n  folded\n"
    located = codec.locate(text.encode())
    assert located.value == {"a": 1, "b": ["x", {"c": "z"}], "d": "folded"}
    assert places(located.spot, text) == ["1", "x", "z}", ">-"]
    assert isinstance(located.spot.inner, dict)
    assert [spot.key for spot in located.spot.inner.values()] == [(1, 1), (2, 1), (5, 1)]


def test_what_an_alias_contains_is_where_its_anchor_is() -> None:
    text = "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\nf: [*x]\ng:\n  <<: [*x, {h: 3}]\n"
    located = codec.locate(text.encode())
    assert located.value["d"] == {"b": 1, "e": 2}
    assert located.value["g"] == {"b": 1, "h": 3}
    assert places(located.spot, text) == ["1}", "1}", "2", "1}", "1}", "1}", "3}]"]
    assert isinstance(located.spot.inner, dict)
    assert (located.spot.inner["c"].line, located.spot.inner["c"].column) == (2, 4)


def test_repeated_keys_are_listed_with_their_places() -> None:
    located = codec.locate(b"a: 1\nb: {c: 1, c: 2, c: 3}\na: 2\n")
    assert located.repeated == ((2, 11, "c"), (2, 17, "c"), (3, 1, "a"))
    with pytest.raises(BadRequest, match='line 2: duplicate field "c"'):
        codec.documents("a: 1\nb: {c: 1, c: 2}\n")


@given(st.text(alphabet=":-&*ab<[]{}, \n\"'#", max_size=40))
def test_locating_gives_the_same_value_as_decoding(text: str) -> None:
    try:
        found = codec.locate(text.encode())
    except BadRequest:
        return
    if not found.repeated and isinstance(found.value, dict):
        assert codec.documents(text) == [found.value]


def test_a_malformed_text_has_its_place() -> None:
    with pytest.raises(codec.Malformed) as failure:
        codec.locate(b"a: 1\nb: *x\n")
    assert (failure.value.line, failure.value.column, failure.value.detail) == (2, 4, "unknown anchor &x")
