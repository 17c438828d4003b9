"""The little protobuf that is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.front.api.protobuf import review

# What kubectl 1.36 sends for `kubectl -n team auth can-i create networks.netloom.dev`.
CAN_I = bytes.fromhex(
    "6b387300"
    "0a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577"
    "124b0a100a0012001a0022002a003200380042001"
    "22d0a2b0a047465616d12066372656174651a0b6e65746c6f6f6d2e64657622002a086e6574776f726b7332003a001a08080012001a002000"
    "1a002200"
)


def test_a_question_is_read() -> None:
    assert review(CAN_I) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": "team",
                "verb": "create",
                "group": "netloom.dev",
                "version": "",
                "resource": "networks",
                "subresource": "",
                "name": "",
            }
        },
    }


def test_what_nobody_knows_is_skipped() -> None:
    numbers = b"\x08\x96\x01" + b"\x11" + b"8bytes.." + b"\x1d" + b"four"
    assert review(b"k8s\x00" + numbers) == {}


@pytest.mark.parametrize("cut", range(0, len(CAN_I) - 12, 7))
def test_what_is_cut_off_is_refused_or_less(cut: int) -> None:
    try:
        found = review(CAN_I[:cut])
    except BadRequest:
        return
    assert "resourceAttributes" not in found.get("spec", {})


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for text in (data, b"k8s\x00" + data):
        try:
            assert isinstance(review(text), dict)
        except BadRequest:
            continue
