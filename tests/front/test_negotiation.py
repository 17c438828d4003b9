"""What a client wants to be answered in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import NotAcceptable
from netloom.front.api.negotiation import Form, Media, Output, negotiate

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


@given(st.text())
def test_any_header_is_understood_or_refused(accept: str) -> None:
    try:
        assert isinstance(negotiate(accept), Output)
    except NotAcceptable:
        return
