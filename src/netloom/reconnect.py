"""When to connect, to which remote, when to ask whether the other side is alive, and when to give it up.  Pure.

    state        what is going on                          leaves it
    IDLE         nothing: between two attempts             at `deadline()`: connect
    CONNECTING   a connection is being made                `connected`, `failed`, or at `deadline()`: give up
    ACTIVE       the other side spoke within the probe     at `deadline()`: send an echo, go to PROBING
    PROBING      an echo was sent                          `activity`, or at `deadline()`: give up

Each remote is tried once without waiting, then the wait doubles up to a limit, with some chance in it so that many
clients of a server that comes back do not come all at once. A connection that proved good resets that; but one that
proves good and ends at once, as where a server chokes on what comes next, is not made again as fast as the machine can.
Time is an argument throughout, and nothing here opens a socket.
"""

from collections.abc import Sequence
from enum import Enum
from random import Random

CONNECT_TIMEOUT = 8.0
SHORTEST, LONGEST = 0.25, 8.0


class State(Enum):
    """Where a connection is."""

    IDLE = "idle"
    CONNECTING = "connecting"
    ACTIVE = "active"
    PROBING = "probing"


class Action(Enum):
    """What is to be done now."""

    CONNECT = "connect"
    PROBE = "probe"
    DISCONNECT = "disconnect"


class Reconnect:
    """One connection's life."""

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
        """When the connection there is was made."""
        self._proved = False
        """Whether it proved good."""

    @property
    def remote(self) -> str:
        """The remote to connect to, or that is connected to."""
        return self._remotes[self._at % len(self._remotes)]

    def deadline(self) -> float | None:
        """Return when `run` has something to say, at the latest; None: never."""
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
        """Return what is to be done now."""
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
        """Note that the other side said something."""
        self._heard = now
        if self.state is State.PROBING:
            self._enter(State.ACTIVE, now)

    def useful(self) -> None:
        """Note that the connection does what it was made for: the next trouble is a new one."""
        self._failures = 0
        self._proved = True

    def disconnected(self, now: float, *, elsewhere: bool = True) -> None:
        """Note that there is no connection any more, or never was; `elsewhere`: the next remote is better."""
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
