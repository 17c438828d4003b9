"""What a switch is to those who write to it: a Protocol, with two that keep it, `io.Connection` and `memory.Memory`."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from netloom import errors
from netloom.errors import Unreachable
from netloom.openflow.flows import Drop, Flow, MeterSpec, Mod, Put
from netloom.signals import Signal

__all__ = ["Counters", "Drop", "MeterSpec", "Mod", "Put", "Refused", "Switch", "Unreachable"]


class Counters(Struct):
    """What happened so far."""

    connects: int = 0
    failures: int = 0
    """Attempts to connect that came to nothing."""
    bundles: int = 0
    """Changes that were asked for, each one bundle."""
    mods: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    refusals: int = 0
    unanswered: int = 0
    """Changes of which it is not known whether they were done."""


class Refused(errors.Invalid):
    """The switch will not make a change; nothing of it was done."""

    def __init__(self, error: str, *, mod: Mod | None = None, index: int | None = None) -> None:
        super().__init__(f"{error}: {_words(mod.flow)}" if mod is not None else error)
        self.error = error
        """What is wrong, in OpenFlow's words, as "bad match: bad prerequisite"."""
        self.mod = mod
        """Which of the mods it is; None: it is none of them alone."""
        self.index = index
        """At which place of those given it stands."""


def _words(flow: Flow) -> str:
    try:
        return str(flow)
    except (LookupError, ValueError, OverflowError):  # It is refused because there is no such field or value.
        return repr(flow)


class Switch(Protocol):
    """A switch whose flows can be read and changed."""

    @property
    def on_connect(self) -> Signal[[]]:
        """Sent when a connection was made."""
        ...

    @property
    def connected(self) -> asyncio.Event:
        """Set while it can be spoken to."""
        ...

    @property
    def generation(self) -> int:
        """One more for each connection: what was known of the switch before may no longer be so."""
        ...

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        ...

    async def flows(self, cookie: int = 0, cookie_mask: int = 0) -> list[Flow]:
        """Return the flows whose cookies are `cookie` in the bits of the mask."""
        ...

    async def count(self, cookie: int = 0, cookie_mask: int = 0) -> int:
        """Return how many flows there are whose cookies are so."""
        ...

    async def change(self, mods: Sequence[Mod]) -> None:
        """Do all of this, or nothing, in this order.

        `Refused`: the switch will not. `Unreachable`: there is no connection, or it went, and it is not known whether
        it was done.
        """
        ...

    async def meters(self) -> dict[int, MeterSpec]:
        """Return the meters by number."""
        ...

    async def set_meter(self, meter: int, rate_kbps: int, burst: int) -> None:
        """Let there be such a meter, whatever it was."""
        ...

    async def remove_meter(self, meter: int) -> None:
        """Let there be no such meter, and none of the flows that use it."""
        ...
