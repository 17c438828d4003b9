"""OVSDB's notation of remotes.  Pure."""

from collections.abc import Collection
from ipaddress import ip_address


def split_host(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, [V6]:PORT or HOST, with OVSDB's default port."""
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        return text.strip("[]"), 6640
    return host.strip("[]"), int(port)


def is_remote(text: str, methods: Collection[str] = ("unix", "tcp", "ssl")) -> bool:
    """Whether this is unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT."""
    method, _, rest = text.partition(":")
    if method not in methods or not rest:
        return False
    if method == "unix":
        return True
    try:
        host, port = split_host(rest)
    except ValueError:
        return False
    return bool(host) and 0 < port < 1 << 16


def is_exposed(remote: str) -> bool:
    """Whether a remote is tcp: to another host: anyone on the path can read and change the data."""
    method, _, rest = remote.partition(":")
    if method != "tcp":
        return False
    try:
        host = split_host(rest)[0]
    except ValueError:
        return True
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
