import asyncio
from collections.abc import Iterator

import pytest

from tests.front.vtep.rest import SPEAKER, Rest


@pytest.fixture
def bare() -> Iterator[Rest]:
    """An empty namespace."""
    with asyncio.Runner() as runner:
        yield Rest(runner)


@pytest.fixture
def rest(bare: Rest) -> Rest:
    """A namespace with a speaker."""
    bare.post("/vtep/speakers", SPEAKER)
    return bare
