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
from netloom.ovsdb.framing import Framer, Message

LIMIT = 1 << 20
"""The longest answer that is read, in bytes."""
PATIENCE = 5.0
"""How many seconds the daemon has to answer."""


class SwitchControl:
    """The control socket of the ovs-vswitchd whose files are in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def set_neighbours(self, neighbours: Iterable[Neighbour]) -> None:
        """Have tunnels know these next hops.  The switch forgets them after 15 minutes."""
        await self.call([("tnl/neigh/set", one.device, one.ip, one.mac) for one in neighbours])

    async def call(self, commands: Sequence[Sequence[str]]) -> list[str]:
        """Give commands and return what is answered to each; raises `Unreachable`, also if one is refused."""
        if not commands:
            return []
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._call(self._socket(), commands)
        except (OSError, RemoteError) as error:  # TimeoutError is an OSError.
            raise Unreachable(
                f"the control socket of ovs-vswitchd in {self._folder}: {str(error) or 'no answer'}"
            ) from error

    def _socket(self) -> str:
        number = (self._folder / "ovs-vswitchd.pid").read_text().strip()
        return str(self._folder / f"ovs-vswitchd.{number}.ctl")

    async def _call(self, path: str, commands: Sequence[Sequence[str]]) -> list[str]:
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


def _result(message: Message) -> str:
    try:
        refusal = msgspec.json.decode(message.error, type=str | None) if message.error else None
        if refusal is not None:
            raise RemoteError(refusal.strip())
        return msgspec.json.decode(message.result, type=str | None) or ""
    except msgspec.MsgspecError as error:
        raise RemoteError(f"not an answer: {error}") from error
