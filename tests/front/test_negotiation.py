"""What a client wants to be answered in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import NotAcceptable
from netloom.front.api.http.negotiation import (
    OF_MESSAGES,
    OF_METADATA,
    Form,
    Media,
    Output,
    negotiate,
    negotiate_status,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "output"),
    [
        ("", Output()),
        ("*/*", Output()),
        ("application/json", Output()),
        ("application/json;stream=watch", Output()),
        ("application/vnd.kubernetes.protobuf, */*", Output()),
        ("application/vnd.kubernetes.protobuf,application/json", Output()),
        ("application/yaml", Output(Media.YAML)),
        ("application/yaml;q=0.1, application/json", Output()),
        (f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Output(form=Form.TABLE)),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Output(form=Form.TABLE, version="v1beta1")),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", Output(form=Form.TABLE)),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Output(form=Form.METADATA)),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Output(form=Form.METADATA_LIST)),
        ("application/json;as=Graph;v=v1;g=meta.k8s.io,application/json", Output()),
        ("application/json;q=nonsense", Output()),
    ],
)
def test_the_first_answer_we_can_give_is_given(accept: str, output: Output) -> None:
    assert negotiate(accept) == output


@pytest.mark.parametrize(
    "accept",
    [
        "image/png",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Graph;v=v1;g=meta.k8s.io",
        "application/json;q=0",
    ],
)
def test_what_we_cannot_give_is_said(accept: str) -> None:
    if accept.endswith("q=0"):
        assert negotiate(accept) == Output()  # Nothing is left: anything will do.
        return
    with pytest.raises(NotAcceptable):
        negotiate(accept)


PROTOBUF = "application/vnd.kubernetes.protobuf"
OF_CLIENT_GO = f"{PROTOBUF},application/json"
METADATA = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "built_in", "ours", "error"),
    [
        (PROTOBUF, Output(Media.PROTOBUF), None, Media.PROTOBUF),
        (OF_CLIENT_GO, Output(Media.PROTOBUF), Output(), Media.PROTOBUF),
        (f"{PROTOBUF};stream=watch,application/json;stream=watch", Output(Media.PROTOBUF), Output(), Media.PROTOBUF),
        (f"{PROTOBUF};q=0.5,application/json", Output(), Output(), Media.JSON),
        ("*/*", Output(), Output(), Media.JSON),
        ("application/*", Output(), Output(), Media.JSON),
        (f"{METADATA},application/json", *[Output(Media.PROTOBUF, Form.METADATA)] * 2, Media.JSON),
        (METADATA, *[Output(Media.PROTOBUF, Form.METADATA)] * 2, Media.JSON),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{TABLE}", *[Output(form=Form.TABLE)] * 2, Media.JSON),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", None, None, Media.JSON),
    ],
)
def test_protobuf_is_for_built_in_kinds_and_for_metadata(
    accept: str, built_in: Output | None, ours: Output | None, error: Media
) -> None:
    for forms, wanted in ((OF_MESSAGES, built_in), (OF_METADATA, ours)):
        try:
            assert negotiate(accept, forms) == wanted
        except NotAcceptable:
            assert wanted is None
    assert negotiate_status(accept) is error


@given(st.text())
def test_any_header_is_understood_or_refused(accept: str) -> None:
    try:
        assert isinstance(negotiate(accept), Output)
    except NotAcceptable:
        return
