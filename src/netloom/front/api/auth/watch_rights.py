"""The rights that watches depend on, asked about again while the watches last.

    Session  one connection: what it offered as proof of who it is, and who that was
      └── Right  one watch of it: what it watches, and what ends it when the right is gone

A watch may last an hour; a token is revoked, a role changes, a node loses its last attachment in a Network meanwhile.
Every twenty seconds (limits.py) each session is authenticated again, which costs a look-up. Its watches are authorized
again only where the answer can have changed: the identity is another one, or the authorizer's `version` of it is. So
tens of thousands of watches cost tens of thousands of comparisons, not requests. An authorizer that cannot tell when
its answers change, as a cluster, is asked each time, through what it remembers; `WORKERS` questions are under way at a
time, and the rounds are further apart (run/apiserver.py).

A credential that is no longer good ends its watches at once (401). A right that is gone ends its watch (403): at once
where there is no version, else when it is found gone twice, because an agent itself ends a watch some seconds after its
last attachment is gone, and needs no error for that. Where nobody can be asked the watch goes on for
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
"""How many sessions are looked at before others have their turn."""


class Right:
    """One watch's right to go on."""

    __slots__ = ("_on_lost", "allowed", "doubted", "lost", "what")

    def __init__(self, what: Attributes) -> None:
        self.what = what
        self._on_lost: Callable[[], None] = _nothing
        self.lost: NetloomError | None = None
        """Why the watch must end."""
        self.doubted = False
        """Whether the last answer was no."""
        self.allowed: tuple[Identity, object] | None = None
        """For whom the authorizer last said yes, and its version then."""

    @contextmanager
    def calling(self, on_lost: Callable[[], None]) -> Iterator[None]:
        """Call `on_lost` when the right is lost while the block lasts.  It may be lost already: see `lost`."""
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
        """Whether an answer of before still holds."""
        if self.allowed is None or version is None or self.what.name:
            # Whether a node may watch one object depends on what that object says, which no version tells.
            return False
        return self.allowed[1] is version and (self.allowed[0] is who or self.allowed[0] == who)


class Session:
    """One connection's identity and the watches that depend on it."""

    __slots__ = ("_rights", "_sessions", "answered", "offered", "who")

    def __init__(self, sessions: dict["Session", None], offered: Credentials, who: Identity) -> None:
        self.offered = offered
        self.who = who
        self.answered = asyncio.get_running_loop().time()
        """When it was last known for certain who this is and what they may."""
        self._sessions = sessions
        self._rights: dict[Right, None] = {}

    def __iter__(self) -> Iterator[Right]:
        return iter(list(self._rights))

    def __len__(self) -> int:
        return len(self._rights)

    @contextmanager
    def watching(self, what: Attributes) -> Iterator[Right]:
        """Check a right for as long as the block lasts."""
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
        self._sessions: dict[Session, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions))

    def session(self, offered: Credentials, who: Identity) -> Session:
        """Return a session of somebody who was just authenticated."""
        return Session(self._sessions, offered, who)

    async def authenticate(self, offered: Credentials) -> Identity:
        """Return who this is now; `Unauthorized` where it is nobody we know."""
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

    async def _work(self, waiting: Iterator[Session]) -> None:
        while turn := list(islice(waiting, _TURN)):
            for session in turn:
                await self._check(session)
            await asyncio.sleep(0)

    async def _check(self, session: Session) -> None:
        now = asyncio.get_running_loop().time()
        try:
            session.who = await self.authenticate(session.offered)
            for right in session:
                await self._check_right(session.who, right)
        except Unauthorized as error:
            _end(session, error)
        except NetloomError as error:
            # Nobody could be asked. That is no reason to end everybody's watches, unless it lasts.
            if now - session.answered > UNANSWERED_SECONDS:
                _end(session, error)
        else:
            session.answered = now

    async def _check_right(self, who: Identity, right: Right) -> None:
        # Before it is asked: what changes while it is asked makes another version.
        version = self._authorizer.version(who)
        if right.holds(who, version):
            return
        allowed = await self._authorizer.allows(who, right.what)
        if not allowed and (right.doubted or version is None):
            log.info("a watch of %s by %s ends: its right is gone", _resource(right.what), who.name)
            right.lose(forbidden(who, right.what))
        right.doubted = not allowed
        right.allowed = (who, version) if allowed else None


def _end(session: Session, error: NetloomError) -> None:
    log.info("%d watches of %s end: %s", len(session), session.who.name, error.message)
    for right in session:
        right.lose(error)


def _resource(what: Attributes) -> str:
    return what.kind.qualified if what.kind is not None else what.path


def _nothing() -> None:
    pass
