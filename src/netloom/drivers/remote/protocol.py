"""What is sent to a program on a host, and what the host answers: JSON lines, bounded, from a host that may be hostile.

    {"step": "bridge nl-1 created"}         for each change
    {"problem": "no netem in its kernel"}   what the host cannot do; the rest is done
    {"show": {"document": {}}}              for the verb `show`: what was applied, or null, and what else it tells
    {"result": "done", "changes": 1}        the last line; or "failed", with "error"

Other lines are ignored: shells and tools print what they like. A program without a result has failed.
"""

import shlex
from collections.abc import Sequence
from importlib import resources

import msgspec
from msgspec import Struct, structs

LINE_LIMIT = 4 << 20
OUTPUT_LIMIT = 16 << 20
TEXT_LIMIT = 2000
"""How many characters of a step or an error are kept."""
MOST_PROBLEMS = 100
_TAIL = 2000


class TooMuchOutput(Exception):
    """The host sends more than any program of ours prints."""


class Shown(Struct, frozen=True, kw_only=True):
    """What a host says of itself for the verb `show`."""

    document: msgspec.Raw = msgspec.Raw()
    """What was applied."""
    unfinished: bool = False
    """Whether a run was killed, so that there may be more."""
    taken: tuple[int, ...] = ()
    """VNIs that are not of this owner."""
    mtus: dict[str, int] = {}
    """The MTU at each of its addresses."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the owner is there."""
        return not self.unfinished and bytes(self.document) in (b"", b"null")


class Result(Struct, frozen=True, kw_only=True):
    """How a program ended on a host."""

    changes: int = 0
    error: str = ""
    """Why it failed; "" if it did not."""
    problems: tuple[str, ...] = ()
    """What the host cannot do."""
    shown: Shown | None = None
    """What the verb `show` returned."""


class _Line(Struct, frozen=True, kw_only=True):
    step: str = ""
    problem: str = ""
    result: str = ""
    changes: int = 0
    error: str = ""
    show: Shown | None = None


_decoder = msgspec.json.Decoder(_Line)


def source(module: str) -> bytes:
    """Return the source text of a module in this project that runs on hosts, such as `netloom.drivers.remote.ovn`."""
    package, _, name = module.rpartition(".")
    return resources.files(package).joinpath(f"{name}.py").read_bytes()


def command() -> str:
    """Return the shell command that starts the bootstrap on a host, as root."""
    python = f"python3 -I -c {shlex.quote(source('netloom.drivers.remote.bootstrap').decode())} $SSH_CONNECTION"
    return f'if [ "$(id -u)" = 0 ]; then exec {python}; else exec sudo -n {python}; fi'


def request(program: bytes, argv: Sequence[str], document: bytes) -> bytes:
    """Return the standard input of the bootstrap."""
    header = msgspec.json.encode({"argv": list(argv), "program": len(program), "document": len(document)})
    return header + b"\n" + program + document


class Transcript:
    """What a program has printed so far."""

    __slots__ = ("_errors", "_partial", "_problems", "_shown", "_total", "result")

    def __init__(self) -> None:
        self.result: Result | None = None
        self._partial = bytearray()
        self._problems: list[str] = []
        self._shown: Shown | None = None
        self._errors = b""
        self._total = 0

    def feed(self, data: bytes) -> list[str]:
        """Take standard output; return its new steps."""
        self._count(data)
        start = len(self._partial)
        self._partial += data
        if self._partial.find(b"\n", start) < 0:
            if len(self._partial) > LINE_LIMIT:
                raise TooMuchOutput(f"it sends a line of more than {LINE_LIMIT >> 20} MiB")
            return []
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        return [step for line in lines if (step := self._line(line))]

    def feed_errors(self, data: bytes) -> None:
        """Take standard error, of which the end is kept."""
        self._count(data)
        self._errors = (self._errors + data)[-_TAIL:]

    def ended(self, status: int | None) -> Result:
        """Return how the program ended, with its exit status (None: unknown)."""
        if self.result is not None and (status == 0 or self.result.error):
            return self.result
        if self.result is not None:
            return Result(changes=self.result.changes, error=f"it reported success and ended with status {status}")
        last = self._errors.decode(errors="replace").strip().splitlines()
        said = f": {last[-1].strip()}" if last else ""
        if "sudo:" in said:
            return Result(error=f"root is required{said}: log in as root, or allow sudo without a password")
        if status == 127 or "python3: not found" in said:
            return Result(error=f"python3 is not installed there: install it{said}")
        return Result(error=f"the program ended without a result, with status {status}{said}")

    def _count(self, data: bytes) -> None:
        self._total += len(data)
        if self._total > OUTPUT_LIMIT:
            raise TooMuchOutput(f"it sends more than {OUTPUT_LIMIT >> 20} MiB")

    def _line(self, line: bytes) -> str:
        try:
            read = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        if read.problem and len(self._problems) < MOST_PROBLEMS:
            self._problems.append(read.problem[:TEXT_LIMIT])
        if read.show is not None:
            self._shown = structs.replace(read.show, document=read.show.document.copy())
        if read.result:
            why = read.error[:TEXT_LIMIT] or f"it reported {read.result[:64]!r}"
            error = "" if read.result == "done" else why
            self.result = Result(changes=read.changes, error=error, problems=tuple(self._problems), shown=self._shown)
        return read.step[:TEXT_LIMIT]
