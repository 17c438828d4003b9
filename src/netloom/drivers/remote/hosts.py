"""One program on many hosts at once, and back again when one of them fails."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from netloom.drivers.remote import protocol
from netloom.drivers.remote.protocol import Result

Run = Callable[[str, bytes, Callable[[str], None]], Awaitable[Result]]
"""Run a request on a host: `ssh.run` with its `Access`."""


class Job(Struct, frozen=True):
    """What a program shall do on a host."""

    verb: str
    document: bytes = b"{}"


class Fleet:
    """Hosts, and a program for them."""

    def __init__(
        self, program: bytes, owner: str, run: Run, *, parallel: int, on_step: Callable[[str, str], None]
    ) -> None:
        self._program, self._owner, self._run = program, owner, run
        self._parallel, self._on_step = parallel, on_step

    async def do(self, jobs: Mapping[str, Job], on_end: Callable[[str, Result], None]) -> dict[str, Result]:
        """Do each job on its host, some at once; a host that fails costs itself alone."""
        ended: dict[str, Result] = {}
        limit = asyncio.Semaphore(self._parallel)

        async def one(host: str, job: Job) -> None:
            async with limit:
                request = protocol.request(self._program, [job.verb, self._owner], job.document)
                try:
                    ended[host] = await self._run(host, request, lambda step: self._on_step(host, step))
                except Exception as error:  # noqa: BLE001  # the end of a task: the others must go on
                    ended[host] = Result(error=f"{type(error).__name__}: {error}")
                on_end(host, ended[host])

        async with asyncio.TaskGroup() as group:
            for host, job in jobs.items():
                group.create_task(one(host, job))
        return {host: ended[host] for host in jobs}

    async def do_or_undo(
        self, jobs: Mapping[str, Job], on_end: Callable[[str, Result], None], before: Mapping[str, Result]
    ) -> dict[str, Result]:
        """Do each job; if a host fails, give the others back the document that they had before.

        `before` is what hosts answered to `show`. Nothing changes if one of them could not be asked.
        """
        failed = {host: result for host, result in before.items() if result.error}
        if failed:
            spared = Result(error=f"not changed, because {', '.join(sorted(failed))} failed")
            for host in jobs:
                on_end(host, spared)
            return dict.fromkeys(jobs, spared)
        results = await self.do(jobs, on_end)
        failed = {host: result for host, result in results.items() if result.error}
        changed = [host for host, result in results.items() if not result.error and result.changes]
        if not failed or not changed:
            return results
        back = {host: _restoring(before[host]) for host in changed}
        undone = await self.do(back, lambda *_: None)
        for host, result in undone.items():
            why = f"undone, because {', '.join(sorted(failed))} failed"
            results[host] = Result(error=f"could not be undone: {result.error}" if result.error else why)
            on_end(host, results[host])
        return results


def _restoring(before: Result) -> Job:
    """Return the job that makes a host what it was."""
    had = b"" if before.shown is None else bytes(before.shown.document)
    return Job("remove") if had in (b"", b"null") else Job("apply", had)
