"""A real etcd on free loopback ports: with one member, or with three.

    with etcd() as running:
        store = await EtcdStore.open(running.urls)

`running.kill()` and `running.start()` crash it and restart it on the same ports with the same data. The members of a
`cluster()` reach each other through relays of the test, so that one can be isolated from the others while its clients
still reach it.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.process import Program, find_program, free_port, scratch, wait_until

INSTALL = "apt-get install etcd-server (or make setup)"
NEWER = ("3.5.35", "3.7.3")
"""In addition to the distribution's 3.4: the tests with them are marked `versions`."""
_BUILD = Path(__file__).parents[2] / "tools" / "etcd" / "build"


def program(version: str) -> Path:
    """Return the program of a version; "" is the distribution's."""
    if not version:
        return find_program("etcd", install=INSTALL)
    built = subprocess.run([_BUILD, version], check=True, capture_output=True, text=True)
    return Path(built.stdout.strip())


class Etcd:
    """One etcd; `urls` are its client addresses."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str = "",
        flags: Sequence[str] = (),
        name: str = "test",
        peer: int = 0,
        advertised: str = "",
        members: str = "",
    ) -> None:
        """Choose ports for an etcd whose data is in `folder`; `start` starts it.

        It is a cluster of its own, unless `members` are given; these reach its port `peer` at `advertised`.
        """
        self._folder = folder
        self._path = program(version)
        self._flags = flags
        self._client = free_port()
        listens = f"http://127.0.0.1:{peer or free_port()}"
        self._peering = [
            f"--name={name}",
            f"--listen-peer-urls={listens}",
            f"--initial-advertise-peer-urls={advertised or listens}",
            f"--initial-cluster={members or f'{name}={listens}'}",
        ]
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

    def start(self, *, timeout: float = 120.0) -> None:
        """Start it and wait until it is healthy."""
        self.launch()
        self.wait(timeout=timeout)

    def launch(self) -> None:
        """Start it."""
        self._program = Program(
            [
                self._path,
                f"--data-dir={self._folder / 'data'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                *self._peering,
                "--logger=zap",
                "--log-level=warn",
                *self._flags,
            ],
            log=self._folder / "etcd.log",
        )

    def wait(self, *, timeout: float = 120.0) -> None:
        """Wait until it is healthy."""
        assert self._program is not None, "etcd is not running"
        self._program.wait_ready(self._healthy, timeout=timeout)

    def stop(self) -> None:
        """Stop it gracefully."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def kill(self) -> None:
        """Stop it like a crash."""
        if self._program is not None:
            self._program.kill()
            self._program = None

    def hang(self) -> None:
        """Stop it from running: its connections stay open, and it sends nothing."""
        os.kill(self.pid, signal.SIGSTOP)

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
def etcd(*, version: str = "", flags: Sequence[str] = ()) -> Iterator[Etcd]:
    """Yield a running etcd with no data, and stop it afterwards."""
    with scratch("etcd") as folder:
        server = Etcd(folder, version=version, flags=flags)
        try:
            server.start()
            yield server
        finally:
            server.kill()  # Its data is not read again, so a graceful end would only take time.


class Relay:
    """A relay between a member and the others: it listens at `url` and forwards to `port`, until it is cut.

    The header with the address of an etcd member identifies the sender.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._open: dict[socket.socket, bytes] = {}
        """Both ends of each connection, and its first bytes."""
        self._refused: set[str] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, from_url: str = "") -> None:
        """Break the connections from a member, or all of them, and refuse new ones."""
        with self._lock:
            self._refused.add(from_url)
            for end, began in list(self._open.items()):
                if from_url.encode() in began:
                    _shut(end)

    def close(self) -> None:
        """Stop."""
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            began = client.recv(65536)
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                with self._lock:
                    if any(url.encode() in began for url in self._refused):
                        return
                    self._open |= {client: began, server: began}
                server.sendall(began)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()
                with self._lock:
                    del self._open[client], self._open[server]


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _shut(source)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Cluster:
    """Three members."""

    def __init__(self, folder: Path, *, version: str = "", flags: Sequence[str] = ()) -> None:
        ports = [free_port() for _ in range(3)]
        self._relays = [Relay(port) for port in ports]
        members = ",".join(f"m{number}={relay.url}" for number, relay in enumerate(self._relays))
        self.members: list[Etcd] = []
        for number, (port, relay) in enumerate(zip(ports, self._relays, strict=True)):
            own = folder / str(number)
            own.mkdir()
            advertised = {"name": f"m{number}", "advertised": relay.url, "members": members}
            self.members.append(Etcd(own, version=version, flags=flags, peer=port, **advertised))

    @property
    def urls(self) -> list[str]:
        """The client addresses of all members."""
        return [member.url for member in self.members]

    def start(self) -> None:
        """Start all members, and wait until they form a cluster."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait()

    def cut_off(self, number: int) -> None:
        """Isolate a member from the others; its clients still reach it."""
        self._relays[number].cut()
        for relay in self._relays:
            relay.cut(from_url=self._relays[number].url)
        self.wait_unhealthy(number)
        self.wait_without(number)

    def wait_unhealthy(self, number: int) -> None:
        """Wait until a member has no leader."""
        wait_until(lambda: not self.members[number]._healthy(), what=f"member {number} to have no leader")

    def wait_without(self, number: int) -> None:
        """Wait until the other members have a leader among them."""
        for member in self.members:
            if member is not self.members[number]:
                member.wait()

    def kill(self) -> None:
        """Stop all members like a crash."""
        for member in self.members:
            member.kill()
        for relay in self._relays:
            relay.close()


@contextlib.contextmanager
def cluster(*, version: str = "", flags: Sequence[str] = ()) -> Iterator[Cluster]:
    """Yield a running cluster with no data, and stop it afterwards."""
    with scratch("etcd") as folder:
        members = Cluster(folder, version=version, flags=flags)
        try:
            members.start()
            yield members
        finally:
            members.kill()
