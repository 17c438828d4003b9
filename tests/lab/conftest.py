"""The lab that the tests of one test process share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.lab import Lab
from tests.lab import labs


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Three nodes, one OVN central, an outside router.  Leave it as you found it; names of your own for what you make.

    With the folder of a lab that is up in $NETLOOM_TEST_LAB, that one is used, and stays.
    """
    if folder := os.environ.get("NETLOOM_TEST_LAB"):
        yield Lab(Path(folder))
        return
    with labs.running(nodes=3, outside=True) as running:
        yield running


@pytest.fixture(scope="session")
def plain() -> Iterator[Lab]:
    """Three nodes without any OVN.  Leave it as you found it; names of your own for what you make.

    With the folder of such a lab in $NETLOOM_TEST_PLAIN_LAB, that one is used, and stays.
    """
    if folder := os.environ.get("NETLOOM_TEST_PLAIN_LAB"):
        yield Lab(Path(folder))
        return
    with labs.running(nodes=3, ovn=0) as running:
        yield running
