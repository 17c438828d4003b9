"""How much one server takes from the outside before it says no.

Every number here bounds memory or time that a client could otherwise choose. They are far above what kubectl, the
agents and the controllers need; who needs more passes another `Limits`.
"""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """The bounds of one server.  Sizes are bytes, times are seconds."""

    body: int = 3 * 1024 * 1024
    """As kube-apiserver's request limit."""
    bodies_per_identity: int = 32 * 1024 * 1024
    """Of all requests of one caller that are being answered."""
    batch: int = 256
    """Requests in one batch; together they are bounded by `body`."""
    headers: int = 64 * 1024
    """Request line and headers together."""
    url: int = 32 * 1024
    page: int = 10_000
    """A client's `limit` is cut to this."""
    connections: int = 20_000
    connections_per_client: int = 10_000
    """From one address; all clients of a proxy, and all programs of one machine, share one."""
    watches_per_identity: int = 100_000
    """Of some 6 kB each, where they share connections; those that do not are bounded by the connections."""
    watches_per_stream: int = 4_096
    """That share one connection."""
    handshake_seconds: float = 10.0
    headers_seconds: float = 20.0
    """From a request's first byte to the end of its headers."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body."""
    idle_seconds: float = 180.0
    """A connection without a request."""
    write_seconds: float = 30.0
    """How long a client may leave what we send unread."""
    request_seconds: float = 60.0
    """For everything but watches."""
    watch_seconds: float = 3600.0
    """The longest a watch lasts; one that names no time lasts between half of this and this."""
    bookmark_seconds: float = 60.0
    rights_seconds: float = 20.0
    """How often the rights of open watches are checked again: see rights.py; twice that must be less than a minute."""
    write_buffer: int = 64 * 1024
    """Bytes waiting for one client before its answers pause."""
    gzip_over: int = 128 * 1024
    """Answers above this are compressed for clients that accept it, as kube-apiserver does."""
    grace_seconds: float = 5.0
    """How long requests under way may take to end when the server stops."""
