"""A real `netloom vtep` on a real `netloom serve`, asked with the real curl."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.run.serving import NETLOOM, Serving, environment
from tests.support.process import Program, find_program, free_port

SESSION = json.loads((Path(__file__).parent / "vtep-session.json").read_text())


def curl(*args: str | Path) -> tuple[int, str]:
    """Run curl, and return the code and the body of the answer."""
    program = find_program("curl", install="tools/system-packages test")
    done = subprocess.run(
        [program, "-sS", "-m", "120", "-w", "\n%{http_code}", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body


class Vtep:
    """A running `netloom vtep`."""

    def __init__(self, folder: Path, server: Serving, *args: str, name: str = "vtep", secure: bool = False) -> None:
        """Start it; `secure` with the certificates and tokens of the server, otherwise with --insecure."""
        self.server = server
        self.secure = secure
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self.url = f"{'https' if secure else 'http'}://127.0.0.1:{self.port}"
        self._args = args
        self.program = self._start()

    def _start(self) -> Program:
        access = ["--data", str(self.server.data)] if self.secure else ["--insecure"]
        argv = [*NETLOOM, "vtep", "--listen", f"127.0.0.1:{self.port}", "--kubeconfig", str(self.server.kubeconfig)]
        program = Program([*argv, *access, *self._args], log=self.log, env=environment())
        program.wait_ready(lambda: '"ready"' in program.output(), timeout=120)
        return program

    def restart(self) -> None:
        """Kill it and start it again."""
        self.program.kill()
        self.log.unlink()
        self.program = self._start()

    def request(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """Send a request as the old clients do; with `token`, as a new one."""
        args: list[str | Path] = ["-X", method, f"{self.url}{path}"]
        if self.secure:
            args += ["--cacert", self.server.data / "ca.crt"]
        if token:
            args += ["-H", f"Authorization: Bearer {token}"]
        if body is not None:
            args += ["-d", json.dumps(body)]  # As application/x-www-form-urlencoded, which ryu's users do.
        code, text = curl(*args)
        return code, json.loads(text)


def replay(sides: Mapping[str, Vtep], steps: Sequence[Any] = SESSION["steps"]) -> Iterator[Any]:
    """Send the requests of the session, each to its side, and check the answers; yield each step when it is done.

    A caller may check between the steps what they have caused elsewhere.
    """
    for step in steps:
        answer = sides[step["side"]].request(step["method"], step["path"], step.get("body"))
        assert answer == (200, step["response"]), step
        yield step


def undo(side: Vtep, steps: Sequence[Any]) -> Iterator[str]:
    """Delete what the steps made, the last first, each by its own path; yield each path when it is done."""
    for step in reversed(steps):
        path = step["path"]
        if path != "/vtep/speakers":
            path += "/" + str(step["body"].get("mac") or step["body"].get("vni") or step["body"].get("address"))
        assert side.request("DELETE", path)[0] == 200, path
        yield path


@contextlib.contextmanager
def vtep(folder: Path, server: Serving, *args: str, name: str = "vtep", secure: bool = False) -> Iterator[Vtep]:
    """Give a running `netloom vtep`, and stop it afterwards."""
    running = Vtep(folder, server, *args, name=name, secure=secure)
    try:
        yield running
    finally:
        running.program.kill()
