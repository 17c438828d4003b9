"""The table of a node in nftables, as a `ReconciledSet` (drivers/shapes.py).

    compare   nft -j list table inet netloom ─► changes ─► nft -f -     once for each start, and in every sweep
    apply                         what is known ─► changes ─► nft -f -     for each change of the desired table

A transaction of nft is applied as a whole or not at all. It is prepared in an anonymous file and not sent through a
pipe: if this process is killed meanwhile, nft has read all of it or was not started. An nft that outlives it by some
milliseconds finishes its transaction; the comparison of the next process, or its next sweep, finds the result.

If nft refuses a transaction, somebody else has changed the table: the next step is a comparison. Only our table is read
and written. If nft prints a chain in another form than is expected of it, as another version may, the form that it
prints right after we wrote the chain is accepted for it from then on.
"""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from netloom.drivers.nft.changes import Changes, applied, changes
from netloom.drivers.nft.listing import SeenTable, table
from netloom.plan.kube.node.nftables import Table
from netloom.plan.problem import ProblemError
from netloom.signals import Signal

log = logging.getLogger(__name__)

NFT = "nft"
PACKAGE = "nftables"
SECONDS = 30.0
"""After this time nft is killed."""
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/",
}
MISSING = "No such file or directory"


class NftTable:
    """Our table."""

    def __init__(self, name: str, *, program: Sequence[str] = (NFT,)) -> None:
        self.on_outdated: Signal[[]] = Signal()
        self.current = False
        self.refused: dict[str, str] = {}
        self.refusals = 0
        self.transactions = 0
        self.elements = 0
        self.comparisons = 0
        self._name = name
        self._program = tuple(program)
        self._seen: SeenTable | None = None
        self._connected = True
        self._accepted: dict[str, tuple[object, object]] = {}
        """By chain or set: the planned form, and how nft prints it."""

    @property
    def connected(self) -> bool:
        """Whether nft could be run."""
        return self._connected

    @property
    def seen(self) -> Mapping[str, str]:
        """The observed elements: `SET/KEY` and value."""
        sets = {} if self._seen is None else self._seen.sets
        return {f"{name}/{key}": value for name, one in sets.items() for key, value in one.elements.items()}

    def invalidate(self) -> None:
        """Read the table back before the next change."""
        self.current = False

    async def recount(self) -> None:
        """Invalidate what is known if the table is not as known."""
        if self.current and await self._read() != self._seen:
            self.current = False
            self.on_outdated()

    async def compare(self, desired: Table | None, *, remove: bool = True) -> None:
        """Read the table back and make it the desired one; None: no table.  `remove` is always true of a table."""
        self.current = False
        self.comparisons += 1
        self._seen = await self._read()
        if made := changes(self._name, self._seen, desired, self._same):
            await self._write(made, desired)
            if desired is not None and made.written:
                self._learn(await self._read(), made)
        self.current = True

    async def apply(self, delta: Table | None) -> None:
        """Make the table the desired one: `delta` is the whole table, of which only differences are written."""
        if not self.current:
            await self.compare(delta)
        elif made := changes(self._name, self._seen, delta, self._same):
            await self._write(made, delta)

    def numbers(self) -> Mapping[str, float]:
        """Return the values of the driver's metrics."""
        return {
            "nft_transactions": self.transactions,
            "nft_elements": self.elements,
            "nft_comparisons": self.comparisons,
            "nft_refused": self.refusals,
        }

    def _same(self, name: str, planned: object, seen: object) -> bool:
        return planned == seen or self._accepted.get(name) == (planned, seen)

    def _learn(self, found: SeenTable | None, made: Changes) -> None:
        """Accept how nft prints what was just written."""
        if found is None:
            return
        printed = {name: chain.form() for name, chain in found.chains.items()}
        printed |= {name: one.declaration for name, one in found.sets.items()}
        for name, planned in made.written.items():
            if name in printed and printed[name] != planned and self._accepted.get(name) != (planned, printed[name]):
                log.info("nft prints %s in a form of its own", name, extra={"form": repr(printed[name])})
                self._accepted[name] = (planned, printed[name])

    async def _read(self) -> SeenTable | None:
        status, out, error = await self._run(["-j", "list", "table", "inet", self._name])
        if status == 0:
            try:
                return table(msgspec.json.decode(out), self._name)
            except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as bad:
                raise ProblemError("NftFailed", f"nft -j list table inet {self._name}: {bad}") from bad
        if MISSING in error:
            return None
        raise ProblemError("NftFailed", f"nft cannot list table inet {self._name}: {_first(error)}")

    async def _write(self, made: Changes, desired: Table | None) -> None:
        self.current = False  # Until nft has answered, nobody knows.
        status, _, error = await self._run(["-f", "-"], made.text)
        if status:
            self.refused = {self._name: _first(error)}
            self.refusals += 1
            self.on_outdated()
            raise ProblemError("NftFailed", f"nft refused a change of table inet {self._name}: {_first(error)}")
        self.refused = {}
        self.transactions += 1
        self.elements += made.elements
        self._seen = applied(desired)
        self.current = True

    async def _run(self, arguments: Sequence[str], text: str = "") -> tuple[int, bytes, str]:
        """Run nft with a text as its input; return its status and outputs."""
        source = _prepared(text)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._program,
                *arguments,
                stdin=source,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
            )
        except OSError as error:
            self._connected = False
            said = f"{self._program[0]} cannot be run ({error.strerror}): install the package {PACKAGE}"
            raise ProblemError("NftMissing", said) from error
        finally:
            os.close(source)
        self._connected = True
        try:
            async with asyncio.timeout(SECONDS):
                out, told = await process.communicate()
        except TimeoutError:
            raise ProblemError("NftFailed", f"nft did not end within {SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return process.returncode or 0, out, told.decode(errors="replace")


def _prepared(text: str) -> int:
    """Return an anonymous file with a text."""
    source = os.memfd_create("netloom-nft")
    with open(source, "wb", closefd=False) as file:
        file.write(text.encode())
    os.lseek(source, 0, os.SEEK_SET)
    return source


def _first(error: str) -> str:
    """Return the first line of an error."""
    return next(iter(error.strip().splitlines()), "no reason given")[:512]
