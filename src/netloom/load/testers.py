"""Tests of attachments with real packets, in a lab: each in its own network namespace, which is made in advance.

    half test   the device is in the namespace, with its addresses
   full test   another attachment of the same Subnet answers a ping

Elsewhere nothing can be tested: a namespace of another machine is not accessible.
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
    """The place in which one attachment is tested."""

    netns: str
    port: Document
    """The port in the attachment's spec."""


class Tester(Protocol):
    """Tests attachments with real packets."""

    async def begin(self, slot: Slot) -> Trial | None:
        """Make a place for an attachment; None if it is not tested."""

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Whether the device exists, with its addresses."""

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Whether all these addresses answer."""

    async def end(self, trial: Trial) -> None:
        """Release the place of a deleted attachment."""

    async def close(self) -> None:
        """Remove all places."""


class LabTester:
    """Tests in the namespaces of a lab."""

    def __init__(self, lab: Lab, run: str, *, pings: int) -> None:
        self._lab = lab
        self._prefix = f"{PREFIX}{run}-"
        self._pings = pings
        self._free: list[Trial] = []
        self._made = 0

    async def begin(self, slot: Slot) -> Trial:
        """Return an unused namespace, or a new one."""
        if self._free:
            return self._free.pop()
        self._made += 1
        name = f"{self._prefix}{self._made:04}"
        path = await asyncio.to_thread(self._lab.workload, name)
        return Trial(path.name, {"type": "veth", "netns": str(path), "name": DEVICE})

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Whether the device has the addresses."""
        return set(ips) <= set(await asyncio.to_thread(_addresses, trial.netns))

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        """Ping the addresses one after another."""
        for ip in ips:
            if not await asyncio.to_thread(_ping, trial.netns, ip.partition("/")[0], self._pings):
                return False
        return True

    async def end(self, trial: Trial) -> None:
        """Keep the namespace for another attachment."""
        self._free.append(trial)

    async def close(self) -> None:
        """Remove the namespaces."""
        await asyncio.to_thread(remove_places, self._lab, self._prefix)


def remove_places(lab: Lab, prefix: str) -> int:
    """Remove the namespaces of a run from a lab; return how many there were."""
    if not prefix.startswith(PREFIX):
        raise Invalid(f"{prefix!r} is not the prefix of a run's namespaces")
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
    # With -w it continues until so many answers arrived, or the time is over: losing the first one costs no second.
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-w", f"{PING_SECONDS:g}", address]
    whole = ["ip", "netns", "exec", netns, *argv]
    return subprocess.run(whole, capture_output=True, timeout=2 * PING_SECONDS, check=False).returncode == 0
