"""Runs a program in a network namespace, and in a root folder with other versions of OVS and OVN.

It uses util-linux, which replaces itself by the program: the pid stays the same. A chroot gets its own mount namespace,
in which the lab's folder and the machine's devices have their usual paths: the mounts end with the process, however it
ends, and no other process sees them.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NETNS = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

# $1: the root, $2: the lab's folder; the rest is the command. No value is interpolated into this text.
_CHROOT = (
    'root=$1 lab=$2; shift 2; mount --bind "$lab" "$root$lab" '
    '&& for kept in proc dev sys; do mount --rbind "/$kept" "$root/$kept" || exit; done && exec chroot "$root" "$@"'
)


def entered(argv: Sequence[str], *, netns: str = "", root: str = "", folder: Path) -> list[str]:
    """Return the command that runs `argv` in a namespace and a root; "" is the machine's own."""
    inner = list(argv)
    if root:
        unshare = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _CHROOT, "netloom-lab"]
        inner = [*unshare, root.rstrip("/"), str(folder.resolve()), *inner]
    if netns:
        inner = ["nsenter", f"--net={NETNS / netns}", "--", *inner]
    return inner


def mountpoints(folder: Path, roots: Iterable[str]) -> list[str]:
    """Create, in each root, the mount point of the lab's folder; return the created ones, the deepest first."""
    made: list[str] = []
    for root in set(roots):
        path = Path(root.rstrip("/") + str(folder.resolve()))
        missing = [one for one in (path, *path.parents) if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        made += map(str, missing)
    return made


def inside(netns: str, action: Callable[[], T]) -> T:
    """Return the result of `action`, run by a thread inside a namespace; its sockets belong to that namespace."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            descriptor = os.open(NETNS / netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.setns(descriptor, _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), netns)
            finally:
                os.close(descriptor)
            results.append(action())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            errors.append(error)

    # A thread has its own network namespace, which ends with it.
    thread = threading.Thread(target=run, name=f"in-{netns}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
