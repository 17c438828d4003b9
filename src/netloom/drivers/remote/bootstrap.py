"""Run a program that arrives on standard input: the argument of `python3 -I -c` on a host.

The first line is a JSON header with the arguments and two lengths, then come the program and its document. The input
stays open while the program runs: its end means that the client is gone, and interrupts the program. Standard library
only, Python 3.9 and later. The host has no other part of this project.
"""

import json
import os
import signal
import sys
import threading


def _interrupt_at_the_end(fd: int) -> None:
    while os.read(fd, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def _run() -> int:
    # Programs that `main` starts inherit neither the input, which they would read, nor the output, which they would
    # keep open.
    channel = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # sudo removes it, and a program that changes the network must know what it is reached by.
    os.environ["SSH_CONNECTION"] = " ".join(sys.argv[1:])
    header = json.loads(channel.readline())
    program, document = channel.read(header["program"]), channel.read(header["document"])
    if len(program) != header["program"] or len(document) != header["document"]:
        return 1  # The client was gone before it had sent everything: nothing has happened yet.
    threading.Thread(target=_interrupt_at_the_end, args=(channel.fileno(),), daemon=True).start()
    names = {"__name__": "netloom_program"}
    exec(compile(program, "<netloom>", "exec"), names)  # noqa: S102  # the purpose of this module
    status: int = names["main"](header["argv"], document)  # type: ignore[operator]  # it is a function
    return status


if __name__ == "__main__":
    try:
        ended = _run()
    except (KeyboardInterrupt, BrokenPipeError):
        ended = 130
    # At once: a flush of the output could fail, and the thread still reads.
    try:
        sys.stdout.flush()
    except OSError:
        pass
    os._exit(ended)
