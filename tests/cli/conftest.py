from collections.abc import Iterator

import pytest

from tests.run.serving import Serving, serving


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One `netloom serve` for all tests of the command line; each test uses a namespace of its own."""
    with serving(tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def ns(request: pytest.FixtureRequest) -> str:
    """A namespace nobody else uses: the server has them all."""
    import hashlib

    return "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
