"""A real etcd on free loopback ports.

    with etcd() as running:
        store = await EtcdStore.open(running.urls)

`running.kill()` and `running.start()` crash it and bring it back on the same ports with the same data.
"""

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path

from tests.support.process import Program, find_program, free_port, scratch

INSTALL = "apt-get install etcd-server (or make setup)"


class Etcd:
    """One single-member etcd; `urls` are its client addresses."""

    def __init__(self, folder: Path) -> None:
        """Choose ports for an etcd whose data is in `folder`; `start` starts it."""
        self._folder = folder
        self._client = free_port()
        self._peer = free_port()
        self._program: Program | None = None
        self.urls = [f"http://127.0.0.1:{self._client}"]

    @property
    def url(self) -> str:
        """The one client address."""
        return self.urls[0]

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._program is not None, "etcd is not running"
        return self._program.pid

    def start(self, *, timeout: float = 60.0) -> None:
        """Start it and wait until it answers that it is healthy."""
        peer = f"http://127.0.0.1:{self._peer}"
        self._program = Program(
            [
                find_program("etcd", install=INSTALL),
                "--name=test",
                f"--data-dir={self._folder / 'data'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=test={peer}",
                "--logger=zap",
                "--log-level=warn",
            ],
            log=self._folder / "etcd.log",
        )
        self._program.wait_ready(self._healthy, timeout=timeout)

    def stop(self) -> None:
        """Stop it in an orderly way."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def kill(self) -> None:
        """Stop it as a crash would."""
        if self._program is not None:
            self._program.kill()
            self._program = None

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._client, timeout=2)
        try:
            connection.request("GET", "/health")
            return b'"true"' in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextlib.contextmanager
def etcd() -> Iterator[Etcd]:
    """Give a running etcd with no data, and stop it afterwards."""
    with scratch("etcd") as folder:
        server = Etcd(folder)
        try:
            server.start()
            yield server
        finally:
            server.kill()  # Nobody reads its data again, so an orderly end would only take time.
