"""One program on one host, over SSH.

The hosts are those of an OpenSSH client config: HostName, Port, User, IdentityFile, UserKnownHostsFile, ProxyJump and
whatever else asyncssh knows of it. Keys and the agent log in; nothing asks for a password. A host whose key is not
known, or differs, is refused, whatever the config says: StrictHostKeyChecking has no effect.

Only this module imports asyncssh, which `netloom[ssh]` installs.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from netloom.drivers.remote import protocol
from netloom.drivers.remote.protocol import Result, TooMuchOutput, Transcript
from netloom.errors import BadRequest, NotFound, Unreachable

try:
    import asyncssh
except ImportError as error:
    raise NotFound(f"SSH needs asyncssh: install netloom[ssh] ({error})") from None

MOST_JUMPS = 8


class Access(Struct, frozen=True, kw_only=True):
    """How hosts are reached."""

    config: Path
    """An OpenSSH client config."""
    connect_timeout: float = 20.0
    timeout: float | None = 300.0
    """Seconds for a program on one host, with the connection; None: no limit."""


async def run(access: Access, host: str, request: bytes, on_step: Callable[[str], None]) -> Result:
    """Run a program on a host and return how it ended; every failure of the host is a Result too."""
    try:
        async with asyncio.timeout(access.timeout), contextlib.AsyncExitStack() as stack:
            connection = await _connect(access, host, stack)
            return await _run(connection, request, on_step)
    except TimeoutError:
        return Result(error=f"it was not done within {access.timeout:g} s: look at the host, or raise --timeout")
    except TooMuchOutput as error:
        return Result(error=f"{error}: the connection was closed")
    except (Unreachable, BadRequest) as error:
        return Result(error=error.message)
    except (OSError, asyncssh.Error) as error:
        return Result(error=f"the connection was lost: {_reason(error)}")


async def address(access: Access, host: str) -> str:
    """Return the address of a host, as its HostName says or resolves to here."""
    name = str((await _options(access, host, "", "")).host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise BadRequest(
            f"{access.config}: the HostName of {host}, {name!r}, has no address: use --node {host}=ADDRESS"
        ) from None
    return str(found[0][4][0])


async def _run(connection: asyncssh.SSHClientConnection, request: bytes, on_step: Callable[[str], None]) -> Result:
    session = _Session(on_step)
    channel, _ = await connection.create_session(lambda: session, protocol.command(), encoding=None)
    # No end of file: the program reads it as the end of this client.
    channel.write(request)
    await session.ended
    return session.transcript.ended(session.status)


class _Session(asyncssh.SSHClientSession[bytes]):
    """The channel of a program.

    It ends with the result and the exit status, and not with the output: a daemon that the program started may keep
    that open.
    """

    def __init__(self, on_step: Callable[[str], None]) -> None:
        self.transcript = Transcript()
        self.status: int | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_step = on_step

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.ended.done():
            return
        try:
            if datatype == asyncssh.EXTENDED_DATA_STDERR:
                self.transcript.feed_errors(data)
                return
            for step in self.transcript.feed(data):
                self._on_step(step)
        except TooMuchOutput as error:
            self.ended.set_exception(error)
        self._end()

    def exit_status_received(self, status: int) -> None:
        self.status = status
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        if exc is not None:
            self.ended.set_exception(exc)
        else:
            self.ended.set_result(None)

    def _end(self) -> None:
        # The exit status may arrive before the last output.
        if self.status is not None and self.transcript.result is not None and not self.ended.done():
            self.ended.set_result(None)


async def _connect(access: Access, host: str, stack: contextlib.AsyncExitStack) -> asyncssh.SSHClientConnection:
    """Connect to a host, through its jump hosts; the stack closes all connections."""
    try:
        return await _hop(access, host, None, stack, depth=0)
    except asyncssh.HostKeyNotVerifiable as error:
        raise Unreachable(_key_refused(access, host, error)) from None
    except asyncssh.PermissionDenied:
        raise Unreachable(
            "it accepts no key of ours: set IdentityFile in the SSH config, or add the key to the agent"
        ) from None
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise Unreachable(f"cannot connect: {_reason(error)}") from None


async def _hop(
    access: Access, spec: str, tunnel: asyncssh.SSHClientConnection | None, stack: contextlib.AsyncExitStack, depth: int
) -> asyncssh.SSHClientConnection:
    """Connect to `[USER@]HOST[:PORT]`.

    asyncssh could follow ProxyJump itself, but then a config with `UserKnownHostsFile none` would have the key of a
    jump host accepted without a check.
    """
    if depth > MOST_JUMPS:
        raise BadRequest(f"ProxyJump leads through more than {MOST_JUMPS} hosts")
    user, _, rest = spec.rpartition("@")
    name, _, port = rest.partition(":") if rest.count(":") == 1 else (rest, "", "")
    options = await _options(access, name, user, port)
    if tunnel is None and isinstance(options.tunnel, str):
        for jump in options.tunnel.split(","):
            tunnel = await _hop(access, jump.strip(), tunnel, stack, depth + 1)
    connecting = asyncssh.connect(
        name, options=options, config=None, tunnel=tunnel, known_hosts=_known_hosts(options.known_hosts)
    )
    connection = await connecting
    stack.callback(connection.abort)
    return connection


async def _options(access: Access, name: str, user: str, port: str) -> asyncssh.SSHClientConnectionOptions:
    chosen: dict[str, Any] = {}
    if user:
        chosen["username"] = user
    try:
        if port:
            chosen["port"] = _port(port)
        options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
            config=[str(access.config)],
            host=name,
            preferred_auth="publickey",
            connect_timeout=access.connect_timeout,
            login_timeout=access.connect_timeout,
            keepalive_interval=15,
            keepalive_count_max=4,
            **chosen,
        )
        return options
    except (OSError, ValueError) as error:
        raise BadRequest(f"{access.config}: {error}") from None


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 65536:
        raise ValueError(f"{text:.20} is no port, in a ProxyJump")
    return int(text)


def _known_hosts(configured: object) -> list[str]:
    """Return the files with known keys; never None, which would switch the check off."""
    if not isinstance(configured, list | tuple) or not configured:
        return []  # asyncssh reads ~/.ssh/known_hosts
    files = [Path(str(one)).expanduser() for one in configured]
    return [str(file) for file in files if file.exists() and not file.is_dir()] or ["/dev/null"]


def _key_refused(access: Access, host: str, error: asyncssh.HostKeyNotVerifiable) -> str:
    return (
        f"its host key is not the known one, or none is known ({error.reason}): compare the key with that of the host, "
        f"then `ssh -F {access.config} {host}` adds it, or `ssh-keygen -R` removes an old one"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncssh.DisconnectError):
        return error.reason
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, socket.gaierror):
        return f"its HostName has no address ({error.strerror})"
    return str(error) or type(error).__name__
