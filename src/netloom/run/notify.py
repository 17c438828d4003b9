"""Notify systemd of the process's state, if it asks for that (sd_notify(3))."""

import os
import socket
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send `state` (READY=1, STOPPING=1) to $NOTIFY_SOCKET; without one, do nothing."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)
