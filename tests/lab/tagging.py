"""A device for one VLAN of another device, as the kernel's own, where the kernel has none.

with tagged(machine, "eth0", 7, within=container, name="eth0", mac="02:00:00:00:00:07"):
    ...

It is a tap in the namespace `within`: what is sent by it leaves the machine's device with the VLAN's tag, and what
arrives there with that tag comes out of it, without.
"""

import fcntl
import os
import selectors
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from netloom.lab.daemons.entering import inside
from tests.lab import capturing

_TUNSETIFF = 0x400454CA
_TAP, _NO_HEADER = 0x0002, 0x1000
_OUTGOING = 4


@contextmanager
def tagged(netns: str, device: str, vlan: int, *, within: str, name: str, mac: str, mtu: int) -> Iterator[None]:
    """Have the device until the end."""
    tap = inside(within, lambda: _tap(name))
    for argv in (
        ["address", mac, "mtu", str(mtu)],
        ["up"],
    ):  # Before anything comes: it takes nothing while it is down.
        subprocess.run(["ip", "-n", within, "link", "set", name, *argv], check=True)
    stop, stopped = socket.socketpair()
    with inside(netns, lambda: capturing.opened(device)) as wire, stop, stopped:
        carrying = threading.Thread(target=_carry, args=(tap, wire, stopped, vlan), name=f"vlan-{vlan}")
        carrying.start()
        try:
            yield
        finally:
            stop.close()
            carrying.join()
            os.close(tap)


def _tap(name: str) -> int:
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    return made


def _carry(tap: int, wire: socket.socket, stopped: socket.socket, vlan: int) -> None:
    with selectors.DefaultSelector() as waiting:
        for one in (tap, wire, stopped):
            waiting.register(one, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in waiting.select()]
            if stopped in ready:
                return
            if tap in ready:
                data = os.read(tap, 65536)
                wire.send(data[:12] + struct.pack("!HH", capturing.VLAN, vlan) + data[12:])
            if wire in ready:
                data, beside, _, where = wire.recvmsg(65536, capturing.BESIDE)
                frame = capturing.frame(data, beside)
                if frame.vlan == vlan and where[2] != _OUTGOING:
                    os.write(tap, frame.data)
