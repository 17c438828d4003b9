"""Tests with real packets: ping, TCP, UDP, DHCP, and throughput.

Each probe runs in a network namespace, given by its name, and returns what it observed. Listeners send a name to every
client, so that the client knows which one answered. A thread of this process makes the sockets inside the namespace: a
matrix of a hundred connections starts no program.
"""

import contextlib
import json
import selectors
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from netloom.errors import Internal
from netloom.lab.daemons.entering import inside

SECONDS = 1.0
MOST = 256
PAGE_BYTES = 1 << 20
LEASE_SECONDS = 10
# Prints what was leased instead of configuring anything.
LEASE_SCRIPT = '#!/bin/sh\n[ "$1" = bound ] && echo "$ip/$mask $router" >"$LEASE"\nexit 0\n'

_PKTINFO = struct.Struct("16sI")

Protocol = Literal["tcp", "udp"]


def ping(netns: str, address: str, *, count: int = 1, source: str = "") -> bool:
    """Whether an address answers a ping."""
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-W", f"{SECONDS:g}"]
    argv += ["-I", source] if source else []
    return _run(netns, [*argv, address]).returncode == 0


def reach(netns: str, address: str, port: int, *, protocol: Protocol = "tcp", timeout: float = SECONDS) -> str:
    """Return the name that answers at a port and our address as it sees it, as "web-1 10.1.0.2"; "" if none does."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM

    def asked() -> str:
        with socket.socket(family, kind) as client:
            client.settimeout(timeout)
            try:
                client.connect((address, port))
                client.sendall(b"who?\n")
                return client.recv(MOST).decode(errors="replace").strip()
            except OSError:
                return ""

    return inside(netns, asked)


def connects(netns: str, address: str, port: int, *, timeout: float = SECONDS) -> str:
    """Return why a TCP connection cannot be made, as the system says it; "" if it can."""

    def tried() -> str:
        try:
            socket.create_connection((address, port), timeout).close()
        except OSError as error:
            return error.strerror or "timed out"
        return ""

    return inside(netns, tried)


def fetches(netns: str, address: str, port: int, url: str, text: str, *, timeout: float = 5 * SECONDS) -> str:
    """Return why the page of a URL, served at an address, does not contain a text; "" if it does."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # only few topologies have pages
    from ssl import CERT_NONE, create_default_context
    from urllib.parse import urlsplit

    parts = urlsplit(url)

    def fetched() -> str:
        connection = HTTPConnection(address, port, timeout=timeout)
        if parts.scheme == "https":
            context = create_default_context()
            # Machines of an exercise have certificates of their own making.
            context.check_hostname, context.verify_mode = False, CERT_NONE
            connection = HTTPSConnection(address, port, timeout=timeout, context=context)
        with contextlib.closing(connection):
            try:
                target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
                connection.request("GET", target, headers={"Host": parts.netloc})
                answer = connection.getresponse()
                page = answer.read(PAGE_BYTES).decode(errors="replace")
            except (OSError, HTTPException, ValueError) as error:
                return str(getattr(error, "strerror", "") or error) or type(error).__name__
        if answer.status >= 400:
            return f"status {answer.status}"
        return "" if text in page else f"the page does not contain {text!r}"

    return inside(netns, fetched)


class Listeners:
    """Answers with a name, on any number of ports in any number of namespaces, until closed."""

    def __init__(self) -> None:
        """Start without any port."""
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._open: dict[tuple[str, int, str], socket.socket] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._answer, name="listeners", daemon=True)
        self._thread.start()

    def add(self, netns: str, port: int, *, name: str, protocol: Protocol = "tcp") -> None:
        """Answer at a port of a namespace, by IPv4 and IPv6."""
        kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM

        def bound() -> socket.socket:
            made = socket.socket(socket.AF_INET6, kind)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            made.bind(("::", port))
            if protocol == "tcp":
                made.listen(64)
            return made

        listener = inside(netns, bound)
        with self._lock:
            self._open[netns, port, protocol] = listener
            self._selector.register(listener, selectors.EVENT_READ, name)
        self._wake.send(b".")

    def remove(self, netns: str, port: int, *, protocol: Protocol = "tcp") -> None:
        """Stop answering there, as if the program had died."""
        with self._lock:
            listener = self._open.pop((netns, port, protocol))
            self._selector.unregister(listener)
        listener.close()

    def close(self) -> None:
        """Stop answering everywhere."""
        self._wake.close()
        self._thread.join()
        for listener in self._open.values():
            listener.close()
        self._selector.close()

    def __enter__(self) -> "Listeners":
        """Return the listeners."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering everywhere."""
        self.close()

    def _answer(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    if not self._woken.recv(64):
                        self._woken.close()
                        return
                    continue
                with self._lock, contextlib.suppress(OSError):
                    _say(key.fileobj, key.data)  # type: ignore[arg-type]  # only sockets are registered


def _say(listener: socket.socket, name: str) -> None:
    if listener.fileno() < 0:
        return
    if listener.type == socket.SOCK_DGRAM:
        _, ancillary, _, who = listener.recvmsg(MOST, socket.CMSG_SPACE(_PKTINFO.size))
        listener.sendmsg([_answer_to(who, name)], list(map(_source_address, ancillary)), 0, who)
        return
    connection, who = listener.accept()
    with connection:
        connection.settimeout(SECONDS)
        connection.sendall(_answer_to(who, name))
        # Wait until the client has read it: closing with unread bytes would reset the connection.
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(MOST):
            pass


def _source_address(ancillary: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    """Return the control message that sends an answer from the requested address, which may not be the device's."""
    level, kind, info = ancillary
    return level, kind, _PKTINFO.pack(_PKTINFO.unpack(info)[0], 0)


def _answer_to(who: tuple[str, int, int, int], name: str) -> bytes:
    return f"{name} {who[0].removeprefix('::ffff:')}\n".encode()


def lease(netns: str, device: str) -> str:
    """Request an address by DHCP with a real client; return it with the router, as "10.1.0.5/24 10.1.0.1", or ""."""
    with tempfile.TemporaryDirectory(prefix="netloom-dhcp-") as folder:
        script, answer = Path(folder, "script"), Path(folder, "lease")
        script.write_text(LEASE_SCRIPT)
        script.chmod(0o700)
        argv = ["env", f"LEASE={answer}", "udhcpc", "-i", device, "-f", "-n", "-q", "-t", "5", "-T", "1"]
        _run(netns, [*argv, "-s", str(script)], seconds=LEASE_SECONDS)
        return answer.read_text().strip() if answer.exists() else ""


@contextlib.contextmanager
def iperf_server(netns: str, *, port: int = 5201) -> Iterator[None]:
    """Run an iperf3 server during the block."""
    argv = ["ip", "netns", "exec", netns, "iperf3", "--server", "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _until_listening(netns, port)
            yield
        finally:
            server.kill()


def megabits(netns: str, address: str, *, seconds: float = 2, offered: float = 0, port: int = 5201) -> float:
    """Return the received Mbit/s at the server: TCP at full speed, or UDP at an `offered` rate."""
    argv = ["iperf3", "--client", address, "--port", str(port), "--json", "--time", f"{seconds:g}", "--omit", "1"]
    argv += ["--udp", "--length", "1200", "--bitrate", f"{offered:g}M"] if offered else []
    ended = _run(netns, argv, seconds=seconds + 20)
    try:
        # Not lost_percent: with --omit, iperf3 3.12 counts the omitted packets as lost.
        return float(json.loads(ended.stdout)["end"]["sum_received"]["bits_per_second"]) / 1e6
    except (ValueError, KeyError):
        return 0.0


def _until_listening(netns: str, port: int) -> None:
    def tried() -> bool:
        for _ in range(100):
            with socket.socket() as probe:
                probe.settimeout(SECONDS)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return True
            threading.Event().wait(0.02)
        return False

    if not inside(netns, tried):
        raise Internal(f"iperf3 does not listen on port {port} in {netns}")


def _run(netns: str, argv: list[str], *, seconds: float = 10.0) -> "subprocess.CompletedProcess[str]":
    whole = ["ip", "netns", "exec", netns, *argv]
    try:
        return subprocess.run(whole, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(whole, 124, "", "")
