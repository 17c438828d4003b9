"""Commands to a running ovs-vswitchd, as `ovs-appctl` gives them: for what its database has no table.

The daemon listens beside its database, at a socket that has its process number in its name, and speaks JSON-RPC.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from netloom.drivers.link.codec import Neighbour
from netloom.errors import Unreachable
from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.framing import Framer, RpcMessage

LIMIT = 1 << 20
"""The longest answer that is read, in bytes."""
TIMEOUT = 5.0
"""Seconds the daemon has to answer."""


def control_socket(folder: Path) -> Path:
    """Return the control socket of the ovs-vswitchd whose files are in `folder`."""
    try:
        number = (folder / "ovs-vswitchd.pid").read_text().strip()
    except OSError:
        raise Unreachable(f"there is no ovs-vswitchd.pid in {folder}") from None
    return folder / f"ovs-vswitchd.{number}.ctl"


class SwitchControl:
    """The control socket of the ovs-vswitchd whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def set_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Add next hops to the neighbour table of tunnels, where they expire after 15 minutes."""
        await self.call([("tnl/neigh/set", one.device, one.ip, one.mac) for one in neighbours])

    async def call(self, commands: Sequence[Sequence[str]]) -> list[str]:
        """Run commands and return the reply to each; raise `Unreachable`, also if the daemon refuses one."""
        if not commands:
            return []
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._call(control_socket(self._folder), commands)
        except (OSError, RemoteError) as error:  # TimeoutError is an OSError.
            raise Unreachable(
                f"the control socket of ovs-vswitchd in {self._folder}: {str(error) or 'no answer'}"
            ) from error

    async def _call(self, path: Path, commands: Sequence[Sequence[str]]) -> list[str]:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            for number, (method, *params) in enumerate(commands):
                writer.write(msgspec.json.encode({"id": number, "method": method, "params": params}))
            await writer.drain()
            framer, answers = Framer(LIMIT), list[str]()
            while len(answers) < len(commands):
                received = await reader.read(1 << 16)
                if not received:
                    raise ConnectionResetError("closed before it answered")
                answers += map(_result, framer.receive(received))
            return answers
        finally:
            writer.close()


def _result(message: RpcMessage) -> str:
    try:
        refusal = msgspec.json.decode(message.error, type=str | None) if message.error else None
        if refusal is not None:
            raise RemoteError(refusal.strip())
        return msgspec.json.decode(message.result, type=str | None) or ""
    except msgspec.MsgspecError as error:
        raise RemoteError(f"not an answer: {error}") from error
