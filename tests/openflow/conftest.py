"""One real switch for the tests of this folder; each begins by forgetting its flows and meters."""

from collections.abc import Iterator

import pytest

from tests.openflow.real import Real, real_switch


@pytest.fixture(scope="session")
def one_switch() -> Iterator[Real]:
    with real_switch() as switch:
        yield switch


@pytest.fixture
def switch(one_switch: Real) -> Real:
    one_switch.ofctl("del-flows")
    one_switch.ofctl("del-meters")
    return one_switch
