"""Devices, addresses and routes of the kernel, in any network namespace.

A netlink socket belongs to the namespace it was made in, wherever it is used later. So a visit to a namespace is: move
the worker's thread there, make the sockets, move it back, use them. No process is started, and since nothing else runs
in that thread, nothing else is ever in the wrong namespace.

Everything here blocks, for microseconds or, when a device is removed, for the kernel's grace period;
`drivers/link/worker.py` runs it in its thread.
"""

import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from netloom.drivers.link import codec
from netloom.drivers.link.codec import DeviceRoute, Link, Neighbour, NextHop, Qdisc
from netloom.plan.node import grants
from netloom.plan.policy.impairment import PACKET
from netloom.plan.problem import ProblemError

OWN = "/proc/thread-self/ns/net"
MISSING = "NamespaceMissing"
_NEW_NET = 0x40000000
_BIND, _DETACH, _NO_FOLLOW = 0x1000, 0x2, 0x8
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIBC = ctypes.CDLL(None, use_errno=True)
_SOL_NETLINK, _STRICT = 270, 12
_RECEIVE = 1 << 16
_SIOCETHTOOL, _GET_TX, _SET_TX = 0x8946, 0x16, 0x17


class Step(NamedTuple):
    """One change, and its name for error messages."""

    message: bytes
    what: str
    spared: int = 0
    """The errno of a refusal that is ignored."""


class NetlinkRefusal(ProblemError):
    """The kernel refused a change."""

    def __init__(self, number: int, what: str, where: str) -> None:
        super().__init__("KernelRefused", f"{what} in {where}: {os.strerror(number)}")
        self.errno = number


class Kernel:
    """The devices of one namespace, through sockets that were made in it."""

    def __init__(self, where: str = "") -> None:
        """Open sockets in this thread's present namespace; `where` is its name in error messages."""
        self.where = where or "the node's own namespace"
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._netlink.bind((0, 0))
        self._netlink.settimeout(5.0)
        try:  # Dump one device only; a kernel before 4.20 dumps all, and we filter.
            self._netlink.setsockopt(_SOL_NETLINK, _STRICT, 1)
        except OSError:
            pass
        self._sequence = 0

    def close(self) -> None:
        """Close the sockets."""
        self._netlink.close()
        self._plain.close()

    def link(self, name: str) -> Link | None:
        """Return the device of this name."""
        found = self._find(codec.get_link(name), errno.ENODEV)
        return codec.link(found) if found is not None else None

    def links(self) -> list[Link]:
        """Return all devices."""
        return [codec.link(body) for body in self._ask(codec.get_link())]

    def addresses(self, index: int) -> set[str]:
        """Return the addresses of a device."""
        return {text for of, text in self.all_addresses(index) if of == index}

    def all_addresses(self, index: int = 0) -> list[tuple[int, str]]:
        """Return the addresses of all devices, each with its device's index; or of one, where the kernel can filter."""
        return [codec.read_address(body) for body in self._ask(codec.get_addresses(index))]

    def routes(self, index: int) -> set[DeviceRoute]:
        """Return our routes over a device."""
        bodies = [body for family in (codec.INET, codec.INET6) for body in self._ask(codec.get_routes(family))]
        found = [one for body in bodies if (one := codec.read_route(body))]
        return {route for of, route in found if of == index}

    def qdisc(self, index: int) -> Qdisc | None:
        """Return the root qdisc of a device; None if it has none."""
        found = [one for body in self._ask(codec.get_qdiscs()) if (one := codec.read_qdisc(body))]
        return next((qdisc for of, qdisc in found if of == index), None)

    def resolve(self, ip: str) -> None:
        """Start resolving the next hop towards an address, even if it is resolved.

        A resolved neighbour is probed, which leaves its entry usable; a static one is left alone.
        """
        hop = self._next_hop(ip)
        if hop is None:
            return
        state, _ = self._neighbour(hop)
        if state & codec.FIXED:
            return
        if state & codec.RESOLVED:
            self._probe(hop)
        else:
            self.change([Step(codec.resolve(hop), f"resolving {hop.ip}")])

    def neighbour(self, ip: str) -> Neighbour | None:
        """Return the next hop towards an address, if it has answered since it was asked, or is static.

        One that has not answered, but has sent a packet meanwhile, is probed: the kernel no longer asks for it.
        """
        hop = self._next_hop(ip)
        if hop is None:
            return None
        state, mac = self._neighbour(hop)
        if state & codec.UNCONFIRMED:
            self._probe(hop)
        if not state & (codec.REACHABLE | codec.FIXED) or not mac:
            return None
        return Neighbour(hop.ip, socket.if_indextoname(hop.device), mac)

    def _probe(self, hop: NextHop) -> None:
        # The entry may have expired since.
        self.change([Step(codec.probe(hop), f"probing {hop.ip}", errno.EINVAL)])

    def _next_hop(self, ip: str) -> NextHop | None:
        found = self._find(codec.get_next_hop(ip), errno.ENETUNREACH, errno.EHOSTUNREACH)
        return codec.read_next_hop(found) if found is not None else None

    def _neighbour(self, hop: NextHop) -> tuple[int, str]:
        entry = self._find(codec.get_neighbour(hop), errno.ENOENT)
        return codec.read_neighbour(entry) if entry is not None else (0, "")

    def _find(self, message: bytes, *missing: int) -> bytes | None:
        """Return the only answer; None if the kernel refuses with one of the `missing` numbers."""
        try:
            found = self._ask(message)
        except OSError as error:
            if error.errno in missing:
                return None
            raise
        return found[0] if found else None

    def change(self, steps: Sequence[Step]) -> None:
        """Make all these changes, in order, by one call; raise `NetlinkRefusal` for the first that was refused.

        The kernel makes them before the call returns, so a crash cannot separate them. A change that is refused does
        not prevent the others.
        """
        if not steps:
            return
        first = self._sequence + 1
        self._sequence += len(steps)
        self._netlink.send(b"".join(codec.numbered(one.message, first + at) for at, one in enumerate(steps)))
        waiting = {first + at: step for at, step in enumerate(steps)}
        refused: dict[int, int] = {}
        while waiting:
            for message in codec.messages(self._netlink.recv(_RECEIVE)):
                if message.type != codec.ERROR or (step := waiting.pop(message.sequence, None)) is None:
                    continue
                number = codec.error(message.body)
                if number not in (0, step.spared):
                    refused[message.sequence] = number
        if refused:
            at = min(refused)
            raise NetlinkRefusal(refused[at], steps[at - first].what, self.where)

    def supports(self, message: bytes) -> bool:
        """Send a change and return whether the kernel accepts it."""
        try:
            self.change([Step(message, "probing")])
        except (NetlinkRefusal, OSError):
            return False
        return True

    def tx_checksums(self, name: str, *, on: bool) -> bool:
        """Set whether a device computes transmit checksums itself; return whether that changed it.

        A userspace switch forwards packets as they are: the receiver drops a packet whose checksum was left to a device
        that never computes it.
        """
        if bool(self._ethtool(name, _GET_TX, 0)) == on:
            return False
        self._ethtool(name, _SET_TX, int(on))
        return True

    def _ethtool(self, name: str, command: int, value: int) -> int:
        buffer = bytearray(struct.pack("=II", command, value))
        held = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        request = struct.pack("16sP", name.encode(), ctypes.addressof(held))
        fcntl.ioctl(self._plain.fileno(), _SIOCETHTOOL, request.ljust(40, b"\0"))
        return int(struct.unpack("=II", bytes(held))[1])

    def _ask(self, message: bytes) -> list[bytes]:
        self._sequence += 1
        sequence = self._sequence
        self._netlink.send(codec.numbered(message, sequence))
        found: list[bytes] = []
        while True:
            for one in codec.messages(self._netlink.recv(_RECEIVE)):
                if one.sequence != sequence:
                    continue
                if one.type == codec.DONE:
                    return found
                if one.type == codec.ERROR:
                    number = codec.error(one.body)
                    raise OSError(number, os.strerror(number))
                found.append(one.body)
                if not one.flags & codec.MULTI:
                    return found


@contextmanager
def entered(path: str, *, root: str = "", own: str = "") -> Iterator[int]:
    """Move this thread into the namespace at `path`, and back; yield a file descriptor of it.

    For a thread that does nothing else. If the thread cannot be moved back it must not go on: that raises SystemError.
    `root` and `own` as in `opened`.
    """
    target = opened(path, root=root, own=own)
    try:
        with _returning():
            _setns(target, path)
            yield target
    finally:
        os.close(target)


@contextmanager
def _returning() -> Iterator[None]:
    """Move this thread back into its own namespace at the end."""
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        failed = _LIBC.setns(home, _NEW_NET)
        os.close(home)
        if failed:
            raise SystemError("cannot return to the node's own network namespace")


@contextmanager
def own_namespace() -> Iterator[int]:
    """Yield a file descriptor of this thread's own namespace."""
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield home
    finally:
        os.close(home)


@contextmanager
def visit(path: str, *, root: str, own: str = "", known: str = "") -> Iterator[tuple[Kernel, int]]:
    """Yield the kernel of the namespace at `path` and a file descriptor of it, with this thread back in its own.

    `root` and `own` as in `opened`; with `known`, only the namespace of this identity will do.
    """
    with entered(path, root=root, own=own) as target:
        if known and _identity(target) != known:
            raise ProblemError(MISSING, f"the network namespace at {path} is not the one that it was")
        kernel = Kernel(path)
        held = os.dup(target)
    try:
        yield kernel, held
    finally:
        os.close(held)
        kernel.close()


def opened(path: str, *, root: str = "", own: str = "") -> int:
    """Return a file descriptor of a namespace, or raise `ProblemError`.

    A tenant chose the path, and may own the folder it leads to. Only a namespace is opened: opening a device may act on
    it, as it starts a watchdog, and opening a pipe would block. Below `root`, if given, no symbolic link is followed:
    each folder is opened relative to the one before, so no folder can be exchanged in between, and the result is in the
    granted folder. `own` says why it may not be the node's own namespace; "": it may.
    """
    try:
        place = _reached(path, root)
        try:
            mine, found = os.stat(OWN), os.fstat(place)
            # All namespaces are on one file system of the kernel.
            if found.st_dev != mine.st_dev:
                # `ip netns` leaves a plain file behind when the mount on it is gone.
                raise ProblemError(MISSING, f"{path} is not a network namespace")
            if own and found.st_ino == mine.st_ino:
                raise ProblemError(*grants.own_namespace(path, own))
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(place)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise ProblemError(MISSING, f"there is no network namespace at {path}") from None
        raise ProblemError(MISSING, f"the namespace at {path} cannot be opened: {error.strerror}") from None


def _reached(path: str, root: str) -> int:
    """Return a descriptor of a file, not opened for reading, that is reached by no symbolic link below `root`."""
    if not root:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.removeprefix(root).strip("/").split("/"):
        try:
            if part in ("", ".", ".."):  # No plan has such a path.
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            there = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)
        here = there
        if stat.S_ISLNK(os.fstat(here).st_mode):
            os.close(here)
            raise ProblemError(*grants.symbolic_link(path, part))
    return here


def identity(path: str, *, root: str) -> str:
    """Return what tells the namespace at a path from all others, also of earlier boots; "": there is none."""
    try:
        found = opened(path, root=root)
    except ProblemError as error:
        if error.problem.reason == MISSING:
            return ""
        raise
    try:
        return _identity(found)
    finally:
        os.close(found)


def _identity(namespace: int) -> str:
    return f"{_BOOT.read_text().strip()}/{os.fstat(namespace).st_ino}"


def new_namespace() -> tuple[int, str]:
    """Return a file descriptor of a new namespace, and its identity.  Its loopback is up; it has no path.

    Call it in a thread that does nothing else. The namespace ends with the descriptor.
    """
    with _returning():
        if _LIBC.unshare(_NEW_NET):
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        made = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        kernel = Kernel("a new namespace")
    try:
        loopback = kernel.link("lo")
        if loopback is not None:
            kernel.change([Step(codec.set_link(loopback.index, up=True), "setting lo up")])
        return made, _identity(made)
    except BaseException:
        os.close(made)
        raise
    finally:
        kernel.close()


def give_path(namespace: int, path: str, *, root: str) -> None:
    """Mount a namespace at a path, as `ip netns add` does; `root` as in `opened`."""
    with _parent(path, root, make=True) as (folder, name):
        try:
            with suppress(FileExistsError):
                flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o444, dir_fd=folder))
            file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            text = f"the namespace at {path} cannot be created: {error.strerror}"
            raise ProblemError(MISSING, text) from None
        try:
            found = os.fstat(file)
            # `ip netns` leaves an empty file behind when the mount on it is gone.
            if not stat.S_ISREG(found.st_mode) or found.st_size:
                raise ProblemError(MISSING, f"{path} exists and is not a network namespace: remove it")
            _mount(namespace, file, path)
        finally:
            os.close(file)


def remove_path(path: str, known: str, *, root: str) -> None:
    """Unmount and remove the path of the namespace with the identity `known`; leave anything else alone."""
    if identity(path, root=root) != known:
        return
    with _parent(path, root, make=False) as (folder, name):
        _LIBC.umount2(f"/proc/self/fd/{folder}/{name}".encode(), _DETACH | _NO_FOLLOW)
        os.unlink(name, dir_fd=folder)


@contextmanager
def _parent(path: str, root: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder of a path, and the name in it; with `make`, a folder of the operator is made."""
    parent, _, name = path.rpartition("/")
    trusted = parent == root or not root
    if make and trusted:
        os.makedirs(parent or "/", mode=0o755, exist_ok=True)
    try:
        folder = os.open(parent or "/", os.O_PATH | os.O_CLOEXEC) if trusted else _reached(parent, root)
    except OSError as error:
        raise ProblemError(MISSING, f"the folder of {path} cannot be opened: {error.strerror}") from None
    try:
        yield folder, name
    finally:
        os.close(folder)


def _mount(namespace: int, file: int, path: str) -> None:
    source, target = (f"/proc/self/fd/{one}".encode() for one in (namespace, file))
    if _LIBC.mount(source, target, None, _BIND, None):
        raise ProblemError(MISSING, f"mounting the namespace at {path}: {os.strerror(ctypes.get_errno())}")


def _setns(target: int, path: str) -> None:
    if _LIBC.setns(target, _NEW_NET):
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            raise ProblemError(MISSING, f"{path} is not a network namespace")
        raise ProblemError(MISSING, f"the namespace at {path} cannot be entered: {os.strerror(number)}")


def _opens_packet_sockets() -> bool:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def probe() -> dict[str, bool]:
    """Return what this kernel supports, by trying each feature in a namespace that is removed afterwards.

    Call it in a thread that does nothing else. Only an attempt shows support: a module may be present and not loaded,
    or built in.
    """
    with _returning():
        if _LIBC.unshare(_NEW_NET):
            raise OSError(ctypes.get_errno(), "cannot make a network namespace to try things in")
        kernel = Kernel("a namespace for probes")
    try:
        found = {kind: kernel.supports(codec.new_device(kind)) for kind in codec.PROBED_DEVICES}
        found |= {kind: kernel.supports(codec.new_qdisc(kind)) for kind in codec.PROBED_QDISCS}
        return found | {PACKET: _opens_packet_sockets()}
    finally:
        kernel.close()
