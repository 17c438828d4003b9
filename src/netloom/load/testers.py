"""Tests of attachments by real packets, in a lab: each in a network namespace of its own, made ahead of it.

    half test   the device is in the namespace, with its addresses
    full test   and somebody else of the same Subnet answers a ping

Elsewhere nothing can be tested: who could look into a namespace of another machine?
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from netloom.errors import Invalid
from netloom.lab import Lab, wiring
from netloom.load.plan import Slot
from netloom.model.document import Document

DEVICE = "eth0"
PING_SECONDS = 10.0
PREFIX = "bench-"


class Trial(Struct, frozen=True):
    """Where one attachment is tested."""

    netns: str
    port: Document
    """What the attachment asks for."""


class Tester(Protocol):
    """Looks at attachments with its own eyes."""

    async def begin(self, slot: Slot) -> Trial | None:
        """Make a place for an attachment; None where there is none."""

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Whether the device is there, with its addresses."""

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Whether all these addresses answer."""

    async def end(self, trial: Trial) -> None:
        """Let go of a place whose attachment is gone."""

    async def close(self) -> None:
        """Remove all places."""


class NoTester:
    """Tests nothing."""

    async def begin(self, slot: Slot) -> Trial | None:
        """Have no place."""
        return None

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        """See nothing."""
        return False

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Reach nothing."""
        return False

    async def end(self, trial: Trial) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class LabTester:
    """Tests in the namespaces of a lab."""

    def __init__(self, lab: Lab, run: str, *, pings: int) -> None:
        self._lab = lab
        self._prefix = f"{PREFIX}{run}-"
        self._pings = pings
        self._free: list[Trial] = []
        self._made = 0

    async def begin(self, slot: Slot) -> Trial:
        """Give a namespace that nobody uses, or a new one."""
        if self._free:
            return self._free.pop()
        self._made += 1
        name = f"{self._prefix}{self._made:04}"
        path = await asyncio.to_thread(self._lab.workload, name)
        return Trial(path.name, {"type": "veth", "netns": str(path), "name": DEVICE})

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Look for the addresses on the device."""
        return set(ips) <= set(await asyncio.to_thread(_addresses, trial.netns))

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Ping them one after another."""
        for ip in ips:
            if not await asyncio.to_thread(_ping, trial.netns, ip.partition("/")[0], self._pings):
                return False
        return True

    async def end(self, trial: Trial) -> None:
        """Keep the namespace for the next."""
        self._free.append(trial)

    async def close(self) -> None:
        """Remove the namespaces."""
        await asyncio.to_thread(remove_places, self._lab, self._prefix)


def remove_places(lab: Lab, prefix: str) -> int:
    """Remove the namespaces of a run from a lab; return how many there were."""
    if not prefix.startswith(PREFIX):
        raise Invalid(f"{prefix!r} is not how the places of a run begin")
    found = [name for name in wiring.namespaces(lab.layout.id) if name.startswith(lab.layout.prefix + prefix)]
    for name in found:
        wiring.run(["ip", "netns", "delete", name])
    return len(found)


def _addresses(netns: str) -> list[str]:
    argv = ["ip", "-n", netns, "-json", "address", "show", "dev", DEVICE]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=PING_SECONDS, check=False)
    if ended.returncode:
        return []
    return [
        f"{one['local']}/{one['prefixlen']}" for link in json.loads(ended.stdout) for one in link.get("addr_info", ())
    ]


def _ping(netns: str, address: str, count: int) -> bool:
    # With -w it goes on until so many answers came, or the time is over: the first one lost costs no second.
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-w", f"{PING_SECONDS:g}", address]
    whole = ["ip", "netns", "exec", netns, *argv]
    return subprocess.run(whole, capture_output=True, timeout=2 * PING_SECONDS, check=False).returncode == 0
