"""The lab that the tests of one test process share."""

from collections.abc import Iterator

import pytest

from netloom.lab import Lab
from tests.lab import labs


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two nodes, one OVN central, an outside router.  Leave it as you found it; names of your own for what you make."""
    with labs.running(nodes=2, outside=True) as running:
        yield running
