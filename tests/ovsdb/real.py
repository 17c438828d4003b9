"""Real ovsdb-servers, alone or as a cluster, and a plain JSON-RPC client to ask them without our library."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.process import Program, find_program, free_port, scratch, wait_until

INSTALL = "apt-get install openvswitch-common ovn-common"
NORTHBOUND = Path("/usr/share/ovn/ovn-nb.ovsschema")


def tool(*arguments: str | Path) -> str:
    """Run ovsdb-tool."""
    program = find_program("ovsdb-tool", install=INSTALL)
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


class Standalone:
    """One ovsdb-server with one database in a file."""

    def __init__(self, folder: Path, schema: Path, *, name: str = "db", options: Sequence[str] = ()) -> None:
        self.folder, self.name, self.options = folder, name, list(options)
        self.file, self.socket, self.control = folder / f"{name}.db", folder / f"{name}.sock", folder / f"{name}.ctl"
        self.remote = f"unix:{self.socket}"
        if not self.file.exists():
            tool("create", self.file, schema)
        self.program: Program | None = None

    def start(self) -> None:
        self.program = Program(
            [
                find_program("ovsdb-server", install=INSTALL),
                "--no-chdir",
                f"--unixctl={self.control}",
                f"--remote=punix:{self.socket}",
                *self.options,
                str(self.file),
            ],
            log=self.folder / f"{self.name}.log",
        )
        self.program.wait_ready(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), Plain(self.socket) as plain:
            return "_Server" in plain.call("list_dbs", [])
        return False

    def stop(self) -> None:
        if self.program is not None:
            self.program.stop()

    def kill(self) -> None:
        assert self.program is not None
        self.program.kill()
        self.socket.unlink(missing_ok=True)
        self.control.unlink(missing_ok=True)

    def control_command(self, *arguments: str) -> str:
        program = find_program("ovs-appctl", install=INSTALL)
        done = subprocess.run(
            [program, "-t", str(self.control), *arguments], check=True, capture_output=True, text=True, timeout=120
        )
        return done.stdout

    def __enter__(self) -> "Standalone":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def standalone(schema: Path | Mapping[str, Any] = NORTHBOUND, *, options: Sequence[str] = ()) -> Iterator[Standalone]:
    """Give one server with a fresh database."""
    with scratch("ovsdb") as folder:
        if not isinstance(schema, Path):
            (folder / "schema").write_text(json.dumps(schema))
            schema = folder / "schema"
        with Standalone(folder, schema, options=options) as server:
            yield server


class Member(Standalone):
    """One server of a cluster; its Raft port is on loopback."""

    def __init__(self, folder: Path, database: str, schema: Path, number: int, ports: Sequence[int]) -> None:
        mine = f"tcp:127.0.0.1:{ports[number]}"
        file = folder / f"m{number}.db"
        if number == 0:
            tool("create-cluster", file, schema, mine)
        else:
            tool("join-cluster", file, database, mine, f"tcp:127.0.0.1:{ports[0]}")
        super().__init__(folder, schema, name=f"m{number}")
        self.database = database

    def leads(self) -> bool:
        with contextlib.suppress(subprocess.SubprocessError):
            return "\nRole: leader" in self.control_command("cluster/status", self.database)
        return False

    def joined(self) -> bool:
        with contextlib.suppress(subprocess.SubprocessError):
            return "\nStatus: cluster member" in self.control_command("cluster/status", self.database)
        return False


@contextlib.contextmanager
def cluster(number: int, *, database: str = "OVN_Northbound", schema: Path = NORTHBOUND) -> Iterator[list[Member]]:
    """Give a cluster whose members have all joined."""
    ports: list[int] = []
    while len(ports) < number:
        if (port := free_port()) not in ports:
            ports.append(port)
    with scratch("raft") as folder, contextlib.ExitStack() as stack:
        members: list[Member] = []
        for at in range(number):
            member = Member(folder, database, schema, at, ports)
            stack.enter_context(member)
            members.append(member)
            wait_until(member.joined, what=f"member {at} to join", timeout=120)
        yield members


class Plain:
    """A blocking JSON-RPC connection of a few lines."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._text = ""
        self._next = 0
        self.told: list[tuple[str, Any]] = []
        """Notifications that came."""

    def call(self, method: str, params: Any) -> Any:
        message = self.answer(method, params)
        if message["error"] is not None:
            raise RuntimeError(message["error"])
        return message["result"]

    def answer(self, method: str, params: Any) -> dict[str, Any]:
        """Return the whole answer, errors too."""
        self._next += 1
        self._socket.sendall(json.dumps({"id": self._next, "method": method, "params": params}).encode())
        while True:
            message = self._read()
            if message.get("method") == "echo":
                self._socket.sendall(json.dumps({"id": message["id"], "result": [], "error": None}).encode())
            elif "method" in message:
                self.told.append((message["method"], message["params"]))
            elif message["id"] == self._next:
                return message

    def _read(self) -> dict[str, Any]:
        decoder = json.JSONDecoder()
        while True:
            with contextlib.suppress(ValueError):
                message, end = decoder.raw_decode(self._text)
                self._text = self._text[end:].lstrip()
                assert isinstance(message, dict)
                return message
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError
            self._text += data.decode()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
