"""Resources as values."""

import pytest

from netloom.diagnose.snapshot import value
from netloom.errors import Invalid
from netloom.model.kinds.attachments import NetworkAttachment


def test_what_cannot_be_read_is_named() -> None:
    spec = {"node": "n1", "network": "blue", "port": {"type": "novel"}}
    document = {"apiVersion": "v", "kind": "NetworkAttachment", "metadata": {"namespace": "ns1", "name": "a"}}
    with pytest.raises(
        Invalid, match="NetworkAttachment ns1/a cannot be decoded by this version of netloom: Invalid enum"
    ):
        value({**document, "spec": spec}, NetworkAttachment)
