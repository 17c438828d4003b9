"""A state machine of one connection: when to connect, to which remote, when to probe it, when to give it up.  Pure.

   state        meaning                                   transition
   IDLE         nothing: between two attempts             at `deadline()`: connect
   CONNECTING   a connection is being made                `connected`, `failed`, or at `deadline()`: give up
   ACTIVE       data arrived within the probe interval    at `deadline()`: send an echo, go to PROBING
   PROBING      an echo was sent                          `activity`, or at `deadline()`: give up

Each remote is tried once without waiting; then the wait doubles up to a limit, with jitter, so that the clients of a
restarted server do not reconnect all at once. A useful connection resets the wait. But if a connection becomes useful
and ends at once, as with a server that fails on the next message, it is not reconnected in a tight loop. Time is an
argument throughout, and nothing here opens a socket.
"""

from collections.abc import Sequence
from enum import Enum
from random import Random

CONNECT_TIMEOUT = 8.0
SHORTEST, LONGEST = 0.25, 8.0


class State(Enum):
    """The state of a connection."""

    IDLE = "idle"
    CONNECTING = "connecting"
    ACTIVE = "active"
    PROBING = "probing"


class Action(Enum):
    """What the caller has to do now."""

    CONNECT = "connect"
    PROBE = "probe"
    DISCONNECT = "disconnect"


class Reconnect:
    """The life of one connection."""

    def __init__(self, remotes: Sequence[str], random: Random, *, probe: float = 5.0, longest: float = LONGEST) -> None:
        if not remotes:
            raise ValueError("no remotes")
        self.state = State.IDLE
        self._remotes = list(remotes)
        random.shuffle(self._remotes)
        self._random = random
        self._probe = probe
        self._longest = longest
        self._at = 0
        self._failures = 0
        self._since = 0.0
        self._heard = 0.0
        self._wait = 0.0
        self._made: float | None = None
        """When the current connection was made."""
        self._proved = False
        """Whether the current connection was useful."""

    @property
    def remote(self) -> str:
        """The remote to connect to, or that is connected."""
        return self._remotes[self._at % len(self._remotes)]

    def deadline(self) -> float | None:
        """Return when to call `run` at the latest; None: never."""
        match self.state:
            case State.IDLE:
                return self._since + self._wait
            case State.CONNECTING:
                return self._since + CONNECT_TIMEOUT
            case State.ACTIVE:
                return self._heard + self._probe if self._probe else None
            case State.PROBING:
                return self._since + self._probe

    def run(self, now: float) -> Action | None:
        """Return what to do now."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return None
        match self.state:
            case State.IDLE:
                self._enter(State.CONNECTING, now)
                return Action.CONNECT
            case State.ACTIVE:
                self._enter(State.PROBING, now)
                return Action.PROBE
            case _:
                return Action.DISCONNECT

    def connected(self, now: float) -> None:
        """Note that the connection was made."""
        self._heard = self._made = now
        self._proved = False
        self._enter(State.ACTIVE, now)

    def activity(self, now: float) -> None:
        """Note that data arrived."""
        self._heard = now
        if self.state is State.PROBING:
            self._enter(State.ACTIVE, now)

    def useful(self) -> None:
        """Note that the connection serves its purpose: the next failure starts the waits from the beginning."""
        self._failures = 0
        self._proved = True

    def disconnected(self, now: float, *, elsewhere: bool = True) -> None:
        """Note that the connection ended or was never made; with `elsewhere`, try the next remote."""
        tried_all = self._failures >= len(self._remotes)
        if tried_all:
            longest = min(self._longest, SHORTEST * 2 ** min(self._failures - len(self._remotes), 16))
            self._wait = longest * (0.5 + self._random.random() / 2)
        else:
            self._wait = 0.0
        if self._proved and self._made is not None:
            self._wait = max(self._wait, self._made + SHORTEST - now)
        self._made = None
        self._failures += 1
        if elsewhere:
            self._at += 1
        self._enter(State.IDLE, now)

    def _enter(self, state: State, now: float) -> None:
        self.state, self._since = state, now
