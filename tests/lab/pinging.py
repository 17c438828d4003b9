"""Pings that go on and on, and which of them were not answered.

    with pinging({"routed": (netns, "10.1.0.2")}, folder) as pings:
        since = pings.mark()
        ...
        assert pings.lost(since) == {}

Each is one real `ping`, twenty times a second. A packet counts as lost when one sent after it was answered and it was
not, so nothing depends on how fast the machine is.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.process import Program, wait_until

INTERVAL = "0.05"
_ANSWER = re.compile(r"bytes from .* icmp_seq=(\d+) ")

Marks = Mapping[str, int]


class Pings:
    """Some pings that are going on."""

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self._programs = programs

    def answered(self, name: str) -> set[int]:
        """Return the numbers of the packets that were answered."""
        return {int(found) for found in _ANSWER.findall(self._programs[name].output())}

    def mark(self) -> Marks:
        """Return how far each is: the last packet that was answered."""
        return {name: max(self.answered(name), default=0) for name in self._programs}

    def go_on(self, *, timeout: float = 120.0) -> Marks:
        """Return when each was answered some more times, with how far each is then."""
        before = self.mark()

        def further() -> bool:
            return all(now > before[name] + 2 for name, now in self.mark().items())

        try:
            wait_until(further, what="all pings to go on", timeout=timeout, interval=0.05)
        except AssertionError as error:
            silent = [name for name, now in self.mark().items() if now <= before[name] + 2]
            raise AssertionError(f"{error}: nobody answers {', '.join(silent)}") from None
        return self.mark()

    def settle(self, *, timeout: float = 120.0) -> Marks:
        """Return when each was answered a second long without a gap, with how far each is then."""
        marks = self.mark()

        def steady() -> bool:
            nonlocal marks
            lost = self.lost(marks)
            now = self.mark()
            marks = {name: now[name] if name in lost else mark for name, mark in marks.items()}
            return all(now[name] >= mark + 20 for name, mark in marks.items())

        try:
            wait_until(steady, what="all pings to be answered steadily", timeout=timeout, interval=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {marks}, now {self.mark()}") from None
        return self.mark()

    def lost(self, since: Marks) -> dict[str, list[int]]:
        """Return which packets were lost since a mark, of those that lost any."""
        found = {}
        for name, mark in since.items():
            answered = self.answered(name)
            missing = sorted(set(range(mark, max(answered, default=0))) - answered)
            if missing:
                found[name] = missing
        return found


@contextmanager
def pinging(ways: Mapping[str, tuple[str, str]], folder: Path) -> Iterator[Pings]:
    """Ping from namespaces, by name or by path, to addresses, from when each was answered until the end."""
    with ExitStack() as stack:
        programs = {}
        for name, (netns, address) in ways.items():
            enter = ["nsenter", f"--net={netns}"] if "/" in netns else ["ip", "netns", "exec", netns]
            argv = [*enter, "ping", "-n", "-i", INTERVAL, address]
            programs[name] = stack.enter_context(Program(argv, log=folder / f"ping-{name}"))
        pings = Pings(programs)
        pings.go_on()
        yield pings


def answers(netns: str, addresses: list[str]) -> dict[str, bool]:
    """Ping many once each, at the same time, and return who answered."""
    asked = [
        subprocess.Popen(
            ["ip", "netns", "exec", netns, "ping", "-n", "-q", "-c", "1", "-W", "2", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for address in addresses
    ]
    return {address: not one.wait() for address, one in zip(addresses, asked, strict=True)}
