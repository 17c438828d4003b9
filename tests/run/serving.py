"""A real `netloom serve`, and the `netloom` command, as the tests use them.

with serving(folder) as server:
    server.cli("get", "networks")
"""

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from netloom.store.kube import kubeconfig as kubeconfigs
from tests.support.process import Program, free_port

NETLOOM = [sys.executable, "-m", "netloom.cli.main"]


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it printed."""

    rc: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return an environment without the settings of whoever runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NETLOOM_") and k != "KUBECONFIG"}
    return {**kept, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **more}


def netloom(
    *args: str | Path,
    kubeconfig: Path | None = None,
    stdin: str = "",
    check: bool = True,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Run one command to its end; with `check` it must succeed."""
    extra = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
    ended = subprocess.run(
        [*NETLOOM, *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**extra, **(env or {})),
        check=False,
    )
    answer = Answer(ended.returncode, ended.stdout, ended.stderr)
    assert not check or answer.rc == 0, f"netloom {args} ended with {answer.rc}\n{answer.out}\n{answer.err}"
    assert "Traceback" not in answer.err, answer.err
    return answer


class Serving:
    """One `netloom serve` on one folder, that can be killed and started again."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.data = folder / "data"
        self.log = folder / "serve.log"
        self.kubeconfig = self.data / "admin.kubeconfig"
        self.port = free_port()
        self._args = args
        self.program: Program | None = None

    def start(self, *, timeout: float = 120.0) -> None:
        """Start it and wait until it is ready."""
        self.spawn().wait_ready(self.ready, timeout=timeout)

    def spawn(self) -> Program:
        """Start it without waiting."""
        listen = f"127.0.0.1:{self.port}"
        self.program = Program(
            [*NETLOOM, "serve", "--data", self.data, "--listen", listen, *self._args], log=self.log, env=environment()
        )
        return self.program

    def stop(self) -> int:
        """Stop it gracefully and return its exit status."""
        assert self.program is not None
        return self.program.stop(grace=20)

    def kill(self) -> None:
        """Stop it as a crash would."""
        assert self.program is not None
        self.program.kill()

    def cli(self, *args: str | Path, stdin: str = "", check: bool = True) -> Answer:
        """Run a command against it as the administrator."""
        return netloom(*args, kubeconfig=self.kubeconfig, stdin=stdin, check=check)

    def request(
        self, method: str, path: str, body: object = None, *, kubeconfig: Path | None = None
    ) -> tuple[int, bytes]:
        """Send one request, as the administrator or as another kubeconfig has it."""
        connection, headers = self.connect(kubeconfig)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connect(self, kubeconfig: Path | None = None) -> tuple[http.client.HTTPSConnection, dict[str, str]]:
        """Return a connection and the headers that say who asks."""
        cluster = kubeconfigs.load(str(kubeconfig or self.kubeconfig))
        url = urlsplit(cluster.server)
        assert url.hostname
        connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=cluster.tls())
        return connection, cluster.headers()

    def ready(self) -> bool:
        """Whether it says that it is ready."""
        if not self.kubeconfig.exists():
            return False
        try:
            return self.request("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException, ssl.SSLError):
            return False


@contextlib.contextmanager
def serving(folder: Path, *args: str) -> Iterator[Serving]:
    """Give a running `netloom serve`, and stop it afterwards."""
    server = Serving(folder, *args)
    server.start()
    try:
        yield server
    finally:
        if server.program is not None:
            server.kill()
