"""Starts and commands the relays of this node, one for each impaired port (`process.py`).

A relay is found by its control socket, also one that an earlier agent started. While it is connected its end is
noticed at once, and announced: whoever plans the port starts it again. Relays end by themselves with their devices, so
there is nothing to stop.
"""

import asyncio
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from netloom.drivers.programs.programs import ENVIRONMENT
from netloom.plan.policy.impairment import Impairment, PortImpairment
from netloom.plan.problem import ProblemError
from netloom.signals import Signal

PROCESS = Path(__file__).with_name("process.py")
SECONDS = 10.0
"""Seconds within which a relay starts, and answers."""
ENDING_SECONDS = 0.02
_CREDENTIALS = struct.Struct("=iII")


class RelayEnded(OSError):
    """The relay ended before it answered."""


class Relays:
    """The relays of a node."""

    def __init__(self, *, owner: str) -> None:
        self.on_end: Signal[[str]] = Signal()
        """Sent with the near device of a relay that ended, or does not answer any more."""
        self._owner = owner
        self._controls: dict[str, _Control] = {}

    def close(self) -> None:
        """Leave the relays to themselves."""
        for control in list(self._controls.values()):
            control.close()

    async def ensure(self, near: str, far: str, wanted: PortImpairment) -> None:
        """Have a relay between two devices do what is wanted; raise `ProblemError` if that is not possible."""
        control = self._controls.get(near)
        if control is not None and control.wanted == wanted:
            return
        try:
            async with asyncio.timeout(SECONDS):
                if control is None:
                    control = await self._living(near, wanted) or await self._started(near, far)
                if control.wanted != wanted:
                    await control.command(wanted)
        except (OSError, TimeoutError) as error:
            if control is not None:
                control.close()
            text = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise ProblemError("RelayFailed", f"the relay of {near}: {text}") from None

    async def _living(self, near: str, wanted: PortImpairment) -> "_Control | None":
        """Return the connection to the relay of a device; None if it has none, also when it has just ended.

        A process that ends closes its connections before the socket on which it accepts them.
        """
        while (control := await self._connected(near)) is not None:
            try:
                await control.command(wanted)
            except RelayEnded:
                await asyncio.sleep(ENDING_SECONDS)
            else:
                return control
        return None

    async def _started(self, near: str, far: str) -> "_Control":
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(PROCESS), near, far, self._name(near), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        _, said = await process.communicate()
        if process.returncode:
            raise OSError(said.decode(errors="replace").strip()[-200:] or f"exit status {process.returncode}")
        control = await self._connected(near)
        if control is None:
            raise OSError("it ended at once")
        return control

    async def _connected(self, near: str) -> "_Control | None":
        """Return the connection to the relay of a device; None if it has none."""
        control = _Control(lambda: self._ended(near))
        try:
            transport, _ = await asyncio.get_running_loop().create_unix_connection(
                lambda: control, f"\0{self._name(near)}"
            )
        except ConnectionRefusedError:
            return None
        peer = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] != os.geteuid():
            transport.close()
            raise OSError("another user's program has its control socket: end that program")
        self._controls[near] = control
        return control

    def _ended(self, near: str) -> None:
        if self._controls.pop(near, None) is not None:
            self.on_end(near)

    def _name(self, near: str) -> str:
        return f"netloom/{self._owner}/relay/{near}"


class _Control(asyncio.Protocol):
    """The connection to one relay."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self.wanted: PortImpairment | None = None
        """What it was told last, and has confirmed."""
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._asking = asyncio.Lock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\n") and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RelayEnded("it ended"))
        self._ended()

    def close(self) -> None:
        """Close the connection; the relay goes on."""
        if self._transport is not None:
            self._transport.abort()

    async def command(self, wanted: PortImpairment) -> None:
        """Tell the relay what is wanted, and wait until it has confirmed that."""
        async with self._asking:
            assert self._transport is not None
            if self._transport.is_closing():
                raise RelayEnded("it ended")
            self._answer = asyncio.get_running_loop().create_future()
            line = {"sent": _triple(wanted.sent), "received": _triple(wanted.received)}
            self._transport.write(json.dumps(line).encode() + b"\n")
            await self._answer
            self.wanted = wanted


def _triple(one: Impairment) -> list[float]:
    return [one.delay, one.jitter, one.loss]
