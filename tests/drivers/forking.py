"""A program that keeps on forking, for tests of how it is ended.  It is bounded by itself, whatever the test does.

    forking.py chain FILE     each process has one successor, in a session of its own, and goes: two at a time
    forking.py respawn FILE   a process with 4 children in sessions of their own, of which each has 2: 13 at a time; who
                              dies is replaced at once
    forking.py wide FILE      a process with 12 children, which do nothing
    forking.py family FILE    a process with a child, and an orphan in a session of its own; it says that it began
    forking.py leave FILE     a process that leaves such an orphan, and ends with status 4

All ignore SIGTERM. Every process writes its number into FILE, in 8 bytes, and none is started once there are 400 of
them; and an alarm ends each of them 15 seconds after the first began.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

IN_ALL = 400
END = time.monotonic() + 15
PAUSE = 0.01


def fork(book: int) -> int:
    """Fork, unless there were enough."""
    if os.fstat(book).st_size >= IN_ALL * 8:
        os._exit(3)
    pid = os.fork()
    if not pid:
        note(book)
    return pid


def note(book: int) -> None:
    """Be one of the processes."""
    signal.alarm(max(1, round(END - time.monotonic())))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(book, f"{os.getpid():7}\n".encode())


def begin(book: int, action: Callable[[], object]) -> None:
    """Start one more process."""
    if not fork(book):
        action()
        os._exit(0)


def chain(book: int) -> None:
    """Start one that goes on in others."""
    begin(book, lambda: links(book))
    signal.pause()


def links(book: int) -> None:
    """Go on in another process, again and again, each once the one before is gone."""
    while True:
        before = os.getpid()
        if fork(book):
            return
        os.setsid()
        while os.getppid() == before:
            time.sleep(PAUSE)


def respawn(book: int, widths: tuple[int, ...] = (4, 2)) -> None:
    """Have so many children, and others when they die."""
    if os.getpid() != os.getsid(0):
        os.setsid()
    for _ in range(widths[0] if widths else 0):
        begin(book, lambda: respawn(book, widths[1:]))
    while True:
        time.sleep(PAUSE)
        while widths and os.waitpid(-1, os.WNOHANG)[0]:
            begin(book, lambda: respawn(book, widths[1:]))


def wide(book: int) -> None:
    """Have many children."""
    for _ in range(12):
        begin(book, signal.pause)
    signal.pause()


def family(book: int) -> None:
    """Have a child, and an orphan."""
    os.write(1, b"begun\n")
    begin(book, signal.pause)
    begin(book, lambda: orphan(book))
    signal.pause()


def leave(book: int) -> None:
    """Leave an orphan behind."""
    begin(book, lambda: orphan(book))
    while os.fstat(book).st_size < 3 * 8:
        time.sleep(PAUSE)
    os._exit(4)


def orphan(book: int) -> None:
    """Have one in a session of its own whose parent is gone."""
    os.setsid()
    begin(book, signal.pause)


def main() -> None:
    """Fork."""
    book = os.open(sys.argv[2], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    ways = {"chain": chain, "respawn": respawn, "wide": wide, "family": family, "leave": leave}
    note(book)
    ways[sys.argv[1]](book)


if __name__ == "__main__":
    main()
