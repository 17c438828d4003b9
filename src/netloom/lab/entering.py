"""How a program gets into a namespace of the network, and into a folder with other versions of OVS and OVN.

All by util-linux, which replaces itself by the program: the pid stays the same. A chroot gets a mount namespace of
its own, in which the lab's folder and the machine's devices are seen at their usual paths: the mounts go when the
process goes, however that happens, and no other process ever sees them.
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

# $1: the root, $2: the lab's folder; the rest is the command. Nothing is ever put into this text.
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
    """Make, in each root, the folder at which the lab's own is to be seen; return those made, the deepest first."""
    made: list[str] = []
    for root in set(roots):
        path = Path(root.rstrip("/") + str(folder.resolve()))
        missing = [one for one in (path, *path.parents) if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        made += map(str, missing)
    return made


def inside(netns: str, action: Callable[[], T]) -> T:
    """Return what `action` returns when a thread calls it inside a namespace; sockets it makes belong there."""
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
        except BaseException as error:  # noqa: BLE001  # raised again by whoever waits for the thread
            errors.append(error)

    # A thread has its own network namespace and takes it along when it ends.
    thread = threading.Thread(target=run, name=f"in-{netns}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
