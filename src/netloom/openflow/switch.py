"""The Protocol of a switch, with two implementations: `io.Connection` and `memory.Memory`."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from netloom import errors
from netloom.errors import Unreachable
from netloom.openflow.flows import Drop, Flow, MeterSpec, Mod, Put
from netloom.signals import Signal

__all__ = ["ChangeRefused", "Counters", "Drop", "MeterSpec", "Mod", "Put", "Switch", "Unreachable"]


class Counters(Struct):
    """Counts of what happened so far."""

    connects: int = 0
    failures: int = 0
    """Failed attempts to connect."""
    bundles: int = 0
    """Requested changes, each one bundle."""
    mods: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    refusals: int = 0
    unanswered: int = 0
    """Changes that may or may not have been applied."""


class ChangeRefused(errors.Invalid):
    """The switch refused a change; nothing of it was applied."""

    def __init__(self, error: str, *, mod: Mod | None = None, index: int | None = None) -> None:
        super().__init__(f"{error}: {_words(mod.flow)}" if mod is not None else error)
        self.error = error
        """The error in OpenFlow's words, such as "bad match: bad prerequisite"."""
        self.mod = mod
        """The refused mod; None if no single mod is at fault."""
        self.index = index
        """Its index in the change."""


def _words(flow: Flow) -> str:
    try:
        return str(flow)
    except (LookupError, ValueError, OverflowError):  # It is refused because a field or value is invalid.
        return repr(flow)


class Switch(Protocol):
    """A switch whose flows can be read and changed."""

    @property
    def on_connect(self) -> Signal[[]]:
        """Sent when a connection was made."""
        ...

    @property
    def connected(self) -> asyncio.Event:
        """Set while it is connected."""
        ...

    @property
    def generation(self) -> int:
        """Incremented with each connection: earlier knowledge of the switch may be out of date."""
        ...

    @property
    def counters(self) -> Counters:
        """Counts of what happened so far."""
        ...

    async def flows(self, cookie: int = 0, cookie_mask: int = 0) -> list[Flow]:
        """Return the flows whose cookies equal `cookie` in the bits of the mask."""
        ...

    async def count(self, cookie: int = 0, cookie_mask: int = 0) -> int:
        """Return the number of flows with matching cookies."""
        ...

    async def change(self, mods: Sequence[Mod]) -> None:
        """Apply all of these changes, or none, in this order.

        `ChangeRefused`: the switch refuses. `Unreachable`: there is no connection, or it ended, and the changes may or
        may not have been applied.
        """
        ...

    async def meters(self) -> dict[int, MeterSpec]:
        """Return the meters by number."""
        ...

    async def set_meter(self, meter: int, rate_kbps: int, burst: int) -> None:
        """Create a meter, or change it."""
        ...

    async def remove_meter(self, meter: int) -> None:
        """Remove a meter, and the flows that use it."""
        ...
