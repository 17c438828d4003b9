"""Connect to a server over TCP or TLS: its address, its certificates, and errors that say no server was reached."""

import asyncio
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from netloom.errors import BadRequest, Unreachable

P = TypeVar("P", bound="Opening")


class Refused(Unreachable):
    """No server took the request: it has certainly not been acted on."""


class Meter:
    """The number of bytes received over all connections of a client, counted inside TLS."""

    __slots__ = ("received",)

    def __init__(self) -> None:
        self.received = 0


class Opening(asyncio.Protocol, ABC):
    """A connection that is being made."""

    @abstractmethod
    async def ready(self) -> None:
        """Wait until requests can be sent; `OSError` if they never can."""

    @abstractmethod
    def abort(self) -> None:
        """Drop the connection."""


class Server:
    """The address of one server, and how to connect to it."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None, alpn: Sequence[str], name: str = "", timeout: float
    ) -> None:
        """Connect to `url` within `timeout` seconds; `tls` is for its connections alone, which offer `alpn`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequest(f"{url!r} is not an http:// or https:// address")
        self.scheme = parts.scheme
        self.authority = parts.netloc.rpartition("@")[2]
        self.path = parts.path.rstrip("/")
        self.tls = (tls or tls_context()) if parts.scheme == "https" else None
        if self.tls is not None:
            self.tls.set_alpn_protocols(alpn)
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._name = name or self._host
        self._timeout = timeout

    async def connect(self, protocol: Callable[[], P]) -> P:
        """Connect and return the protocol of the connection, ready for requests; `Refused` when that fails."""
        made: P | None = None
        try:
            async with asyncio.timeout(self._timeout):
                transport, made = await asyncio.get_running_loop().create_connection(
                    protocol,
                    self._host,
                    self._port,
                    ssl=self.tls,
                    server_hostname=self._name if self.tls else None,
                )
                _keep_alive(transport.get_extra_info("socket"))
                await made.ready()
        except BaseException as error:
            if made is not None:
                made.abort()
            if isinstance(error, OSError | TimeoutError):  # ssl.SSLError is an OSError.
                raise Refused(f"cannot connect to {self.authority}: {str(error) or 'timed out'}") from error
            raise
        return made


def tls_context(
    *, ca: bytes = b"", certificate: bytes = b"", key: bytes = b"", insecure: bool = False
) -> ssl.SSLContext:
    """Return a client's TLS context; all arguments are PEM.  Without `ca`, the system's authorities are trusted."""
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
        if ca:
            # Since Python 3.13 certificates without an Authority Key Identifier are refused. Those of private
            # authorities, made with openssl's defaults, often have none, and trust does not depend on it.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise BadRequest(f"the certificates cannot be used: {error}") from error
    if certificate:
        load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a client certificate (PEM) for connections from now on."""
    # OpenSSL wants a file. One in memory leaves no private key on a disk.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise BadRequest(f"the certificates cannot be used: {error}") from error
    finally:
        os.close(descriptor)


def _keep_alive(connection: socket.socket) -> None:
    """Enable TCP keep-alive: a watch may be silent for long, and only the kernel then notices a lost peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
