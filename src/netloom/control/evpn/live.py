"""The control socket of a node's speakers: what they know now, for `netloom evpn`.

A request is a line, `{"command": "macs", …}`; the answer is a line for each item, and a last one: `{"end": true}`, with
`error` and `reason` if it failed. Only the owner of the socket file may open it. The process that holds the socket's
lock runs the speakers of the node. A client that does not read is disconnected after some seconds; until then it costs
a slice of its answer.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from netloom.control.evpn.answers import Request, answer
from netloom.errors import BadRequest, NetloomError, TooManyRequests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netloom.control.evpn.speaker import RunningSpeaker
    from netloom.control.runtime.cache import Key

log = logging.getLogger(__name__)

SOCKET = "netloom-speaker.sock"
"""The name of the socket, beside the one of the node's Open vSwitch."""
LONGEST_REQUEST = 4096
MOST_CLIENTS = 16
REQUEST_SECONDS = 5.0
STALLED_SECONDS = 30.0
"""How long a client may read nothing."""
WAIT_SECONDS = 2.0


class ControlSocket:
    """The control socket of a node's speakers."""

    def __init__(self, path: str, running: "Mapping[Key, RunningSpeaker]") -> None:
        self._path = Path(path)
        self._running = running
        self._lock: int | None = None
        self._clients = 0
        self._logged = ""

    async def take(self) -> None:
        """Wait until no other process has the socket, and take it.

        An error is logged, and ends neither this nor the agent: the speakers start when it is resolved.
        """
        while True:
            try:
                self._lock = self._locked()
            except BlockingIOError:
                self._log(logging.INFO, "another process runs the speakers of this node; waiting for it")
            except OSError as error:
                why = error.strerror or error
                self._log(logging.ERROR, f"cannot lock it, so no BGPSpeaker runs here: {why}: set speakerSocket")
            else:
                return
            await asyncio.sleep(WAIT_SECONDS)

    async def serve(self) -> None:
        """Answer until cancelled."""
        try:
            server = await self._listen()
            try:
                await server.serve_forever()
            finally:
                with contextlib.suppress(OSError):
                    self._path.unlink()
        finally:
            if self._lock is not None:
                os.close(self._lock)

    def _locked(self) -> int:
        """Return the file descriptor of the lock; raise `BlockingIOError` while another process has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(lock)
            raise
        return lock

    async def _listen(self) -> asyncio.Server:
        """Return a server, as soon as the socket can be made; the speakers run without it."""
        while True:
            try:
                self._path.unlink(missing_ok=True)
                sock = _bound(self._path)
                try:
                    return await asyncio.start_unix_server(self._answer, sock=sock, limit=LONGEST_REQUEST)
                except BaseException:
                    sock.close()
                    raise
            except OSError as error:
                why = error.strerror or error
                self._log(logging.ERROR, f"cannot listen, so netloom evpn gets no answer: {why}: set speakerSocket")
            await asyncio.sleep(WAIT_SECONDS)

    def _log(self, level: int, text: str) -> None:
        """Log a problem with the socket, once while it lasts."""
        if text != self._logged:
            log.log(level, "%s: %s", self._path, text)
            self._logged = text

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients > MOST_CLIENTS:
                raise TooManyRequests(f"the speaker answers {MOST_CLIENTS} clients already: try again later")
            lines: list[bytes] = []
            for item in answer(self._running, await _request(reader)):
                if item is not None:
                    lines.append(msgspec.json.encode(item))
                else:
                    await _send(writer, lines)
                    lines = []
            await _send(writer, [*lines, b'{"end":true}'])
        except NetloomError as error:
            writer.write(msgspec.json.encode({"end": True, "error": error.message, "reason": error.reason}) + b"\n")
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client is gone or does not read, or the process ends: what is left of the answer is dropped.
            writer.transport.abort()
        finally:
            self._clients -= 1
            writer.close()


def _bound(path: Path) -> socket.socket:
    """Return a socket at a path that only its owner may open.

    Nobody can connect before it listens, so its mode is set in time. The umask is that of the process, with all its
    tasks and threads: it stays as it is.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        sock.close()
        raise
    return sock


async def _request(reader: asyncio.StreamReader) -> Request:
    """Read a request."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            line = await reader.readline()
    except TimeoutError:
        raise BadRequest(f"no request was received within {REQUEST_SECONDS:g} s") from None
    except ValueError:
        raise BadRequest(f"the request is longer than {LONGEST_REQUEST} bytes") from None
    try:
        return msgspec.json.decode(line, type=Request)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the line is not a valid request: {error}") from None


async def _send(writer: asyncio.StreamWriter, lines: list[bytes]) -> None:
    """Send lines, wait until the client has read most of what was sent, and let other tasks run."""
    writer.writelines(line + b"\n" for line in lines)
    async with asyncio.timeout(STALLED_SECONDS):
        await writer.drain()
    await asyncio.sleep(0)
