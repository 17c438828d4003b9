"""The lab that the tests of one test process share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.lab import Lab
from netloom.lab.kube import binaries
from tests.lab import labs
from tests.support import kube as kube_support


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


@pytest.fixture(
    scope="session",
    params=[kube_support.CURRENT, pytest.param(kube_support.OLDER, marks=pytest.mark.versions)],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Three nodes of a Kubernetes whose network is Netloom, and an outside; mark its tests `kube`.

    Leave it as you found it.  With the folder of such a lab in $NETLOOM_TEST_KUBE_LAB, that one is used, and stays.
    """
    if folder := os.environ.get("NETLOOM_TEST_KUBE_LAB"):
        yield Lab(Path(folder))
        return
    for program in binaries.BUILT:
        kube_support.kube_program(program, request.param)
    with labs.running(nodes=3, kube=request.param, outside=True) as running:
        yield running
        running.down()
        assert labs.left_of(running.layout.folder) == []
