"""The little Kubernetes protobuf that cannot be avoided: the questions kubectl's typed clients ask about oneself.

Since 1.35 or so `kubectl auth can-i` and `whoami` send protobuf and do not fall back to JSON. The envelope is the four
bytes `k8s\\0` and a runtime.Unknown; only the fields of the two reviews are known here, everything else is skipped.

    Unknown                 1 typeMeta {1 apiVersion, 2 kind}   2 raw
    SelfSubjectAccessReview 1 metadata   2 spec   3 status
    spec                    1 resourceAttributes   2 nonResourceAttributes {1 path, 2 verb}
    resourceAttributes      1 namespace 2 verb 3 group 4 version 5 resource 6 subresource 7 name
                            8 fieldSelector {1 rawSelector} 9 labelSelector {1 rawSelector}
"""

from collections.abc import Iterator, Mapping
from typing import Union

from netloom.errors import BadRequest
from netloom.model.document import Document

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

Shape = Mapping[int, tuple[str, Union["Shape", None]]]
"""By field number: its name, and what is inside (None: text)."""

_SELECTOR: Shape = {1: ("rawSelector", None)}
_RESOURCE: Shape = {
    1: ("namespace", None),
    2: ("verb", None),
    3: ("group", None),
    4: ("version", None),
    5: ("resource", None),
    6: ("subresource", None),
    7: ("name", None),
    8: ("fieldSelector", _SELECTOR),
    9: ("labelSelector", _SELECTOR),
}
_REVIEW: Shape = {
    2: (
        "spec",
        {1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", {1: ("path", None), 2: ("verb", None)})},
    )
}


def review(data: bytes) -> Document:
    """Return a review as the document it stands for."""
    if not data.startswith(_MAGIC):
        raise BadRequest("not Kubernetes' protobuf: it begins with k8s and a zero byte")
    envelope = dict(_fields(data[len(_MAGIC) :]))
    known = _message(envelope.get(1, b""), {1: ("apiVersion", None), 2: ("kind", None)})
    return known | _message(envelope.get(2, b""), _REVIEW)


def _message(data: bytes, shape: Shape) -> Document:
    found: Document = {}
    for number, value in _fields(data):
        if number not in shape:
            continue
        name, inside = shape[number]
        if inside is not None:
            found[name] = _message(value, inside)
            continue
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            raise _broken() from None
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and contents of the fields that have contents; numbers are skipped."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:  # A number.
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:  # Bytes, text or a message.
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise _broken()
                yield tag >> 3, data[at : at + size]
                at += size
            case _:
                raise _broken()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise _broken()
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _broken()


def _broken() -> BadRequest:
    return BadRequest("the body is not the protobuf it says it is")
