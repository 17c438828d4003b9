"""What the API's tests share: one set of credentials for all of them, one server for each that asks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.front.serving import Serving


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.front.serving import make_credentials

    folder = tmp_path_factory.mktemp("credentials")
    make_credentials(folder)
    return folder


@pytest.fixture
def server(credentials: Path) -> "Iterator[Serving]":
    from tests.front.serving import serving

    with serving(credentials) as running:
        yield running
