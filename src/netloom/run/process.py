"""How every process runs and ends.

The first SIGTERM or SIGINT cancels the main task: everything below it is a tree of tasks, and each has time to end
within its own limits. The second signal ends the process at once. A graceful end is exit status 0, a failure 1.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress

from netloom.errors import NetloomError
from netloom.run.notify import notify

log = logging.getLogger(__name__)


def run(main: Coroutine[None, None, None]) -> int:
    """Run `main` until it ends, fails (which is raised) or a signal stops it; return the exit status."""
    _allow_connections()
    _tune_gc()
    return asyncio.run(_supervised(main))


def _allow_connections() -> None:
    """Raise the soft limit of file descriptors to the hard limit: each watcher needs one, and the default is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_gc() -> None:
    """Run the cyclic garbage collector rarely: it finds little, and costs a sixth of a busy process's time.

    Objects made by imports live as long as the process and are excluded.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    # A thread that has waited for the disk should not wait long for its turn as well.
    sys.setswitchinterval(0.001)


async def _supervised(main: Coroutine[None, None, None]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    asked = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        log.info("stopping; repeat the signal to stop at once", extra={"signal": number.name})
        notify("STOPPING=1")
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await main
    except asyncio.CancelledError:
        if not asked:
            raise
        log.info("stopped")
    except Exception as error:
        # The operator must fix a file that cannot be read or written: the message names it.
        if not isinstance(error, NetloomError) and not (isinstance(error, OSError) and error.filename):
            log.critical("internal error", exc_info=error)
        raise
    return 0
