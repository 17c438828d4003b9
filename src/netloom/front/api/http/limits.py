"""The limits of one server on what clients may use.

Every number here bounds memory or time that a client could otherwise choose. They are far above what kubectl, the
agents and the controllers need; pass another `Limits` to change them.
"""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """The bounds of one server.  Sizes are bytes, times are seconds."""

    body: int = 3 * 1024 * 1024
    """The same as kube-apiserver's request limit."""
    bodies_per_identity: int = 32 * 1024 * 1024
    """All requests of one client that are in progress."""
    batch: int = 256
    """Requests in one batch; `body` limits their size together."""
    headers: int = 64 * 1024
    """Request line and headers together."""
    url: int = 32 * 1024
    page: int = 10_000
    """The largest `limit` of a client."""
    connections: int = 20_000
    connections_per_client: int = 10_000
    """From one address; all clients of a proxy, and all programs of one machine, share one."""
    watches_per_identity: int = 100_000
    """About 6 kB each, if they share connections; others are limited by the connections."""
    watches_per_stream: int = 4_096
    """Watches that share one connection."""
    handshake_seconds: float = 10.0
    headers_seconds: float = 20.0
    """From a request's first byte to the end of its headers."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body."""
    idle_seconds: float = 180.0
    """A connection without a request."""
    write_seconds: float = 30.0
    """How long a client may leave sent data unread."""
    request_seconds: float = 60.0
    """For all requests but watches."""
    watch_seconds: float = 3600.0
    """The longest watch; one without a timeout lasts between half of this and this."""
    bookmark_seconds: float = 60.0
    rights_seconds: float = 20.0
    """How often the rights of open watches are checked: see watch_rights.py; twice that must be less than a minute."""
    write_buffer: int = 64 * 1024
    """Unsent bytes for one client before its answers pause."""
    gzip_over: int = 128 * 1024
    """Larger answers are compressed for clients that accept it, as kube-apiserver does."""
    grace_seconds: float = 5.0
    """How long requests in progress may take when the server stops."""
