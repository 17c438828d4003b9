"""The rights of open watches, which are checked again while the watches last.

   WatchSession  one connection: its credentials, and the identity they proved
     └── Right  one watch of it: what it watches, and what ends it when the right is gone

A watch may last an hour; meanwhile a token is revoked, a role changes, a node loses its last attachment in a Network.
Every twenty seconds (limits.py) each session is authenticated again, which costs a look-up. Its watches are authorized
again only where the answer can have changed: the identity differs, or the authorizer's `version` of it does. So tens of
thousands of watches cost tens of thousands of comparisons, not requests. An authorizer without versions, such as a
cluster, is asked each time, through its cache; at most `WORKERS` questions are in flight at a time, and the rounds are
further apart (run/apiserver.py).

An invalid credential ends its watches at once (401). A lost right ends its watch (403): at once where there is no
version, otherwise when the right is found lost twice, because an agent itself ends a watch some seconds after its last
attachment is gone, and needs no error for that. While no answer is available the watch continues for
`UNANSWERED_SECONDS`, so that a short outage does not end all watches.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NoReturn

from netloom.errors import NetloomError, Unauthorized
from netloom.front.api.auth.identity import Attributes, Authenticator, Authorizer, Credentials, Identity, forbidden

log = logging.getLogger(__name__)

UNANSWERED_SECONDS = 300.0
WORKERS = 8
_TURN = 64
"""How many sessions to check before other tasks get their turn."""


class Right:
    """One watch's right to continue."""

    __slots__ = ("_on_lost", "allowed", "doubted", "lost", "what")

    def __init__(self, what: Attributes) -> None:
        self.what = what
        self._on_lost: Callable[[], None] = _nothing
        self.lost: NetloomError | None = None
        """Why the watch must end."""
        self.doubted = False
        """Whether the last answer was no."""
        self.allowed: tuple[Identity, object] | None = None
        """The identity that was last allowed, and its version then."""

    @contextmanager
    def calling(self, on_lost: Callable[[], None]) -> Iterator[None]:
        """Call `on_lost` when the right is lost during the block.  It may be lost already: see `lost`."""
        self._on_lost = on_lost
        try:
            yield
        finally:
            self._on_lost = _nothing

    def lose(self, error: NetloomError) -> None:
        """End the watch."""
        if self.lost is None:
            self.lost = error
            self._on_lost()

    def holds(self, who: Identity, version: object | None) -> bool:
        """Whether an earlier answer still holds."""
        if self.allowed is None or version is None or self.what.name:
            # A node's right to watch one object depends on the contents of that object, which no version covers.
            return False
        return self.allowed[1] is version and (self.allowed[0] is who or self.allowed[0] == who)


class WatchSession:
    """One connection's identity and the watches that depend on it."""

    __slots__ = ("_rights", "_sessions", "answered", "offered", "who")

    def __init__(self, sessions: dict["WatchSession", None], offered: Credentials, who: Identity) -> None:
        self.offered = offered
        self.who = who
        self.answered = asyncio.get_running_loop().time()
        """When identity and rights were last known for certain."""
        self._sessions = sessions
        self._rights: dict[Right, None] = {}

    def __iter__(self) -> Iterator[Right]:
        return iter(list(self._rights))

    def __len__(self) -> int:
        return len(self._rights)

    @contextmanager
    def watching(self, what: Attributes) -> Iterator[Right]:
        """Check a right during the block."""
        right = Right(what)
        self._rights[right] = None
        self._sessions[self] = None
        try:
            yield right
        finally:
            del self._rights[right]
            if not self._rights:
                self._sessions.pop(self, None)


class Rights:
    """All sessions of one server that have watches."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._sessions: dict[WatchSession, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions))

    def session(self, offered: Credentials, who: Identity) -> WatchSession:
        """Return a session for an identity that was just authenticated."""
        return WatchSession(self._sessions, offered, who)

    async def authenticate(self, offered: Credentials) -> Identity:
        """Return the current identity of these credentials; `Unauthorized` if there is none."""
        who = await self._authenticator.authenticate(offered)
        if who is None:
            raise Unauthorized("Unauthorized")
        return who

    async def run(self, every: float) -> NoReturn:
        """Check all rights every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.check()

    async def check(self) -> None:
        """Check the rights of all open watches once."""
        waiting = iter(list(self._sessions))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(WORKERS, len(self._sessions))):
                group.create_task(self._work(waiting))

    async def _work(self, waiting: Iterator[WatchSession]) -> None:
        while turn := list(islice(waiting, _TURN)):
            for session in turn:
                await self._check(session)
            await asyncio.sleep(0)

    async def _check(self, session: WatchSession) -> None:
        now = asyncio.get_running_loop().time()
        try:
            session.who = await self.authenticate(session.offered)
            for right in session:
                await self._check_right(session.who, right)
        except Unauthorized as error:
            _end(session, error)
        except NetloomError as error:
            # No answer is available. That is no reason to end all watches, unless it lasts.
            if now - session.answered > UNANSWERED_SECONDS:
                _end(session, error)
        else:
            session.answered = now

    async def _check_right(self, who: Identity, right: Right) -> None:
        # Before the question: a change during the question makes another version.
        version = self._authorizer.version(who)
        if right.holds(who, version):
            return
        allowed = await self._authorizer.allows(who, right.what)
        if not allowed and (right.doubted or version is None):
            watched = right.what.kind.qualified if right.what.kind is not None else right.what.path
            log.info("ending a watch of %s by %s: no longer authorized", watched, who.name)
            right.lose(forbidden(who, right.what))
        right.doubted = not allowed
        right.allowed = (who, version) if allowed else None


def _end(session: WatchSession, error: NetloomError) -> None:
    log.info("ending %d watches of %s: %s", len(session), session.who.name, error.message)
    for right in session:
        right.lose(error)


def _nothing() -> None:
    pass
