"""Protobuf as Kubernetes writes it: against what Go writes, by properties, and what hostile bytes cost.

`protobuf.jsonl` has objects as JSON, and as Go's own Protobuf: printed by `clientgo vectors` (tests/e2e/clientgo).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom import protobuf
from netloom.errors import BadRequest
from netloom.front.api.output import protobuf_kinds
from netloom.front.api.output.protobuf import FIELD_LIMIT
from netloom.front.api.output.protobuf_kinds import LIST_META, MESSAGES, PARTIAL

VECTORS = [msgspec.json.decode(line) for line in Path(__file__).with_name("protobuf.jsonl").read_bytes().splitlines()]
LEASE = "coordination.k8s.io/v1", "Lease"


def encoded(document: dict[str, Any]) -> bytes:
    """Return a document, list or metadata as we send it."""
    version, kind = document["apiVersion"], document["kind"]
    if kind.endswith("List"):
        item = kind.removesuffix("List")
        parts = [protobuf.bytes_field(2, MESSAGES[item].encode(one)) for one in document["items"]]
        first = protobuf.bytes_field(1, LIST_META.encode(document["metadata"]))
        return protobuf_kinds.envelope(version, kind, first + b"".join(parts))
    if kind in ("PartialObjectMetadata", "DeleteOptions"):
        return protobuf_kinds.envelope(version, kind, MESSAGES[kind].encode(document))
    return protobuf_kinds.encode(document)


def pruned(value: Any) -> Any:
    """Return a document without what is null or the zero value of a plain field, which Go's JSON has in places."""
    if isinstance(value, list):
        return [pruned(item) for item in value]
    if isinstance(value, dict):
        return {key: pruned(inner) for key, inner in value.items() if inner not in (None, {}) or key == "f:labels"}
    return value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["object"]["kind"])
def test_what_is_written_is_what_go_writes(vector: dict[str, Any]) -> None:
    made = encoded(vector["object"])
    assert made.hex() == vector["protobuf"]
    assert protobuf_kinds.event("MODIFIED", made).hex() == vector["event"]


@pytest.mark.parametrize(
    "vector",
    [one for one in VECTORS if not one["object"]["kind"].endswith(("List", "Metadata", "Options"))],
    ids=lambda vector: vector["object"]["kind"],
)
def test_what_go_writes_is_read(vector: dict[str, Any]) -> None:
    wanted = vector["object"]
    found = protobuf_kinds.decode(bytes.fromhex(vector["protobuf"]), wanted["apiVersion"], wanted["kind"])
    for key in ("reportingComponent", "reportingInstance"):  # Go's JSON has them though they are empty.
        if wanted.get(key) == "":
            del wanted[key]
    if wanted["kind"] == "Event":
        wanted = {key: value for key, value in wanted.items() if value is not None}
    assert pruned(found) == pruned(wanted)


def test_options_of_a_deletion_may_be_of_any_group() -> None:
    vector = next(one for one in VECTORS if one["object"]["kind"] == "DeleteOptions")
    wanted = {key: value for key, value in vector["object"].items() if key not in ("apiVersion", "kind")}
    assert protobuf_kinds.delete_options(bytes.fromhex(vector["protobuf"])) == wanted
    with pytest.raises(BadRequest, match="not 'Lease'"):
        protobuf_kinds.delete_options(protobuf_kinds.encode({"apiVersion": LEASE[0], "kind": LEASE[1]}))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMES = st.datetimes().map(lambda at: f"{at:%m-%dT%H:%M:%S}").map(lambda rest: f"2026-{rest}Z")
MICRO = st.datetimes(timezones=st.none()).map(lambda at: f"{at.year:04}-{at:%m-%dT%H:%M:%S.%f}Z")
META = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXT,
        "generation": st.integers(1, 2**63 - 1),
        "creationTimestamp": TIMES,
        "deletionGracePeriodSeconds": st.integers(-(2**63), 2**63 - 1),
        "labels": st.dictionaries(TEXT, st.one_of(TEXT, st.just("")), min_size=1),
        "finalizers": st.lists(TEXT, min_size=1),
        "ownerReferences": st.lists(
            st.fixed_dictionaries(
                {"apiVersion": TEXT, "kind": TEXT, "name": st.just(""), "uid": TEXT},
                optional={"controller": st.booleans()},
            ),
            min_size=1,
        ),
        "managedFields": st.lists(
            st.fixed_dictionaries({"manager": TEXT, "fieldsV1": st.dictionaries(TEXT, st.just({}), min_size=1)}),
            min_size=1,
        ),
    },
)
LEASES = st.fixed_dictionaries(
    {
        "apiVersion": st.just(LEASE[0]),
        "kind": st.just(LEASE[1]),
        "metadata": META,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "holderIdentity": st.one_of(TEXT, st.just("")),
                "leaseDurationSeconds": st.integers(-(2**31), 2**31 - 1),
                "renewTime": MICRO.filter(lambda at: not at.startswith("0001-01-01T00:00:00")),
            },
        ),
    }
)


@given(LEASES)
def test_what_is_written_is_read_again(lease: dict[str, Any]) -> None:
    assert protobuf_kinds.decode(protobuf_kinds.encode(lease), *LEASE) == lease


@given(LEASES, st.data())
def test_what_is_cut_off_is_refused_or_less(lease: dict[str, Any], data: st.DataObject) -> None:
    whole = PARTIAL.encode(lease)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        found = PARTIAL.decode(cut)
    except BadRequest:
        return
    assert set(found) <= {"metadata"}


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for text in (data, protobuf_kinds.MAGIC + data, protobuf_kinds.envelope("v1", "Event", data)):
        try:
            assert isinstance(protobuf_kinds.decode(text, "v1", "Event"), dict)
        except BadRequest:
            continue


def field(number: int, wire: int, value: bytes = b"") -> bytes:
    return protobuf.varint(number << 3 | wire) + value


@pytest.mark.parametrize(
    "unknown",
    [
        field(99, 0, b"\x96\x01"),
        field(99, 1, b"8bytes.."),
        field(99, 2, b"\x03abc"),
        field(99, 5, b"four"),
        field(99, 3) + field(3, 3) + field(1, 0, b"\x01") + field(3, 4) + field(99, 4),
    ],
)
def test_unknown_fields_are_skipped(unknown: bytes) -> None:
    name = protobuf.bytes_field(1, b"blue")
    assert MESSAGES["ObjectMeta"].decode(unknown + name + unknown) == {"name": "blue"}


def test_the_last_value_counts_and_messages_merge() -> None:
    spec, twice = MESSAGES["LeaseSpec"].encode, protobuf.bytes_field
    halves = twice(2, spec({"holderIdentity": "a", "leaseTransitions": 1})) + twice(2, spec({"holderIdentity": "b"}))
    assert MESSAGES["Lease"].decode(halves)["spec"] == {"holderIdentity": "b", "leaseTransitions": 1}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"", "begins with k8s"),
        (b"{}", "begins with k8s"),
        (protobuf_kinds.envelope(*LEASE, field(1, 0, b"\x01")), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, field(2, 2, b"\x05")), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, field(99, 4)), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, field(99, 3)), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, field(99, 7)), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, b"\x00\x01"), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, b"\xff" * 11), "not the Protobuf message"),
        (protobuf_kinds.envelope(*LEASE, protobuf.bytes_field(1, protobuf.bytes_field(1, b"\xff"))), "not UTF-8"),
        (
            protobuf_kinds.envelope(
                *LEASE,
                protobuf.bytes_field(2, protobuf.bytes_field(3, protobuf.whole_field(1, 1 << 60))),
            ),
            "years 1 to 9999",
        ),
        (protobuf_kinds.envelope("v1", "Pod", b""), "'Pod' in 'v1' and does not match the expected 'Lease'"),
        (
            protobuf_kinds.envelope(
                *LEASE,
                protobuf.bytes_field(
                    1, protobuf.bytes_field(17, protobuf.bytes_field(7, protobuf.bytes_field(1, b"[" * 100)))
                ),
            ),
            "not JSON|deeper",
        ),
    ],
)
def test_what_is_no_message_is_refused(bad: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        protobuf_kinds.decode(bad, *LEASE)


@pytest.mark.parametrize(
    "shape",
    [
        lambda n: field(99, 0, b"\x00") * n,
        lambda n: field(99, 3) * n,
        lambda n: protobuf.bytes_field(13, b"") * n,
        lambda n: protobuf.bytes_field(14, b"") * n,
        lambda n: protobuf.bytes_field(11, b"") * n,
        lambda n: protobuf.bytes_field(17, protobuf.bytes_field(7, b"")) * n,
    ],
)
def test_a_body_of_many_fields_is_refused(shape: Callable[[int], bytes]) -> None:
    with pytest.raises(BadRequest, match="more than 50000 fields"):
        MESSAGES["ObjectMeta"].decode(shape(FIELD_LIMIT + 1))


def test_a_time_that_is_in_no_calendar_is_no_error() -> None:
    spec = MESSAGES["LeaseSpec"]
    assert spec.decode(spec.encode({"renewTime": "0000-01-01T00:00:00Z"})) == {}
    assert spec.decode(spec.encode({"renewTime": "2026-01-01t00:00:00.1234567z"})) == {
        "renewTime": "2026-01-01T00:00:00.123456Z"
    }
