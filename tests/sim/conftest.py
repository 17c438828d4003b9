"""Histories by the thousand: coverage looks at those of the first block, and the others run at full speed."""

from collections.abc import Iterator

import pytest

from tests.support.tracing import untraced


@pytest.fixture(autouse=True)
def _untraced(request: pytest.FixtureRequest) -> Iterator[None]:
    call = getattr(request.node, "callspec", None)
    if call is None or not call.params.get("block"):
        yield
        return
    with untraced():
        yield
