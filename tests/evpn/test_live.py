"""The control socket of a node's speakers: who may open it."""

import asyncio
import os
import stat
from pathlib import Path

from netloom.control.evpn.live import ControlSocket


def test_sockets_are_for_their_owner_and_the_process_keeps_its_umask(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.sock" for number in range(3)]

    async def serve() -> None:
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            serving = [group.create_task(ControlSocket(str(path), {}).serve()) for path in paths]
            while not all(path.exists() for path in paths):  # noqa: ASYNC110  # nothing tells it
                await asyncio.sleep(0.01)
            for path in paths:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for task in serving:
                task.cancel()

    before = os.umask(0o022)
    try:
        asyncio.run(serve())
        assert os.umask(0o022) == 0o022, "several that begin at once do not change it for each other"
    finally:
        os.umask(before)
    assert not any(path.exists() for path in paths)
