"""What the API's tests share: one set of credentials for all of them, one server for each that asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.front.serving import Serving, make_credentials, serving


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("credentials")
    make_credentials(folder)
    return folder


@pytest.fixture
def server(credentials: Path) -> Iterator[Serving]:
    with serving(credentials) as running:
        yield running
