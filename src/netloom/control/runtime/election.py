"""Who leads: one of many, by a Lease, as Kubernetes' own components do it (client-go's leaderelection).

The lease names its holder, who writes it again (renews it) before it runs out. Why no two lead at one instant:

- Who wants to take a lease waits until it has seen it unchanged for the whole duration the lease states. That is
  measured by its own clock, from its own sight of the last change; clocks of different machines are never compared.
- The holder is certain only until `deadline` after it *sent* its last successful renewal, by its own clock. Anybody
  else saw that renewal after it was sent, and waits longer than the deadline. So certainty ends before a taking can
  begin, by `duration - deadline`, and in that time work is stopped.
- Every write of the lease carries the resourceVersion it was decided on. A renewal that was delayed on its way, and
  comes after somebody else took the lease, is refused.

`certain()` compares times when it is asked. It does not rely on a timer having run: a process that was stopped and goes
on much later is uncertain at its first instruction. On a graceful stop the lease is kept, and renewed, until all work
ended, and then given back, so that the next one need not wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Protocol

import msgspec
from msgspec import Struct

from netloom.control.runtime.clock import Clock, micro
from netloom.control.runtime.clock import now as time_of_day
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.cluster import Lease, LeaseSpec
from netloom.model.document import ObjectMeta
from netloom.model.registry import LEASE
from netloom.store.base import Store, Stored

logger = logging.getLogger(__name__)


class Durations(Struct, frozen=True, kw_only=True):
    """How long things take, in seconds.  With these, a dead leader is replaced within 5 s."""

    duration: int = 4
    """How long others wait after they saw the lease change."""
    deadline: float = 3.0
    """How long after sending a renewal the leader is certain; the rest of `duration` is for stopping."""
    renew: float = 1.0
    """How long the leader rests between renewals."""
    retry: float = 0.25
    """How long anybody rests after an attempt that did not work out."""

    def __post_init__(self) -> None:
        if not 0 < self.retry <= self.renew < self.deadline < self.duration:
            raise ValueError("a lease needs 0 < retry <= renew < deadline < duration")


class Candidate(Protocol):
    """Takes part in an election."""

    @property
    def holder(self) -> str:
        """Who led when the lease was last seen."""

    def certain(self) -> bool:
        """Whether this candidate leads, for certain, now."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Take part until cancelled or until `lead` ends, which runs while this candidate leads."""


class Election:
    """One candidate for one lease."""

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        namespace: str,
        identity: str,
        random: Random,
        durations: Durations | None = None,
        clock: Clock = time_of_day,
    ) -> None:
        if not identity:
            raise ValueError("a candidate needs an identity of its own")
        self.identity = identity
        self.transitions = 0
        """How often this candidate began to lead."""
        self._store = store
        self._name = name
        self._namespace = namespace
        self._random = random
        self._durations = durations or Durations()
        self._clock = clock
        self._lease: Lease | None = None
        self._seen_at = 0.0
        """When the lease was first seen as it is in `_lease`, by the loop's clock."""
        self._doubtful = True
        """Whether `_lease` must be read again before it is written."""
        self._certain_until = 0.0
        self._complaint = ""

    def certain(self) -> bool:
        """Whether this candidate leads, for certain, now."""
        return asyncio.get_running_loop().time() < self._certain_until

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen."""
        return self._lease.spec.holder_identity if self._lease else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Take part until cancelled or until `lead` ends, which runs while this candidate leads, else is cancelled."""
        while True:
            if not await self._attempt():
                await asyncio.sleep(self._rest())
                continue
            self.transitions += 1
            logger.info("%s leads (%s/%s)", self.identity, self._namespace, self._name)
            if not await self._hold(lead):
                return
            logger.warning("%s no longer leads (%s/%s)", self.identity, self._namespace, self._name)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead` for as long as the lease can be renewed, then give it back; say whether it was lost."""
        try:
            async with asyncio.TaskGroup() as group:
                # The deadline is a timeout around the work, moved on by renewals: it strikes even if renewing hangs.
                scope = asyncio.timeout_at(self._certain_until)
                try:
                    async with scope:
                        renewing = group.create_task(self._renew(scope))
                        await lead()
                except TimeoutError:
                    if not scope.expired():
                        raise
                finally:
                    # Not before: the lease is renewed while the work is being stopped, too.
                    renewing.cancel()
        finally:
            await self._release()
        return scope.expired()

    async def _renew(self, scope: asyncio.Timeout) -> None:
        """Move the deadline `scope` on, until it struck or somebody else holds the lease."""
        renewed = True
        while True:
            await asyncio.sleep(self._durations.renew if renewed else self._durations.retry)
            renewed = await self._attempt()
            if scope.expired():
                return
            if renewed:
                scope.reschedule(self._certain_until)
            elif self._held_by_another():
                self._certain_until = 0.0
                scope.reschedule(asyncio.get_running_loop().time())
                return

    async def _attempt(self) -> bool:
        """Write the lease as ours if it is ours, free or run out, in bounded time; say whether it is ours now."""
        try:
            async with asyncio.timeout(self._durations.renew):
                if self._doubtful:
                    await self._look()
                if self._held_by_another() and not self._run_out():
                    return False
                self._doubtful = True  # Until the answer is here, who knows.
                sent_at = asyncio.get_running_loop().time()
                self._saw(await self._write(self._lease))
        except TimeoutError:
            return False
        except NetloomError as error:
            self._complain(error)
            return False
        self._doubtful = False
        self._complaint = ""
        self._certain_until = sent_at + self._durations.deadline
        return True

    def _complain(self, error: NetloomError) -> None:
        """Say once what will not pass by itself: a namespace that is not there, a right that is missing."""
        level = logging.DEBUG if error.retry or isinstance(error, AlreadyExists) else logging.WARNING
        if level == logging.WARNING and str(error) == self._complaint:
            return
        self._complaint = str(error) if level == logging.WARNING else self._complaint
        hint = " (does the namespace exist?)" if isinstance(error, NotFound) else ""
        logger.log(level, "cannot hold the Lease %s/%s: %s%s", self._namespace, self._name, error, hint)

    async def _look(self) -> None:
        """Read the lease."""
        try:
            self._saw(await self._store.get(LEASE, self._namespace, self._name))
        except NotFound:
            self._lease = None

    def _saw(self, stored: Stored) -> None:
        """Keep the lease, and since when it is like this."""
        lease = stored.value()
        assert isinstance(lease, Lease)
        if self._lease is None or self._lease.metadata.revision != lease.metadata.revision:
            self._seen_at = asyncio.get_running_loop().time()
        self._lease = lease

    def _rest(self) -> float:
        """Return how long to wait for the lease: until it may run out, if that is soon."""
        rest = self._durations.retry * self._random.uniform(0.75, 1.0)
        if self._held_by_another():
            rest = min(rest, self._free_at() - asyncio.get_running_loop().time())
        return max(rest, 0.01)

    async def _write(self, lease: Lease | None) -> Stored:
        """Create the lease, or write it as ours."""
        spec = lease.spec if lease else LeaseSpec()
        now = self._now_other_than(spec.renew_time)
        ours = spec.holder_identity == self.identity
        spec = msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=self._durations.duration,
            acquire_time=spec.acquire_time if ours and spec.acquire_time else now,
            renew_time=now,
            lease_transitions=(spec.lease_transitions or 0) + (1 if lease and not ours else 0),
        )
        if lease is None:
            new = Lease(
                api_version=LEASE.api_version,
                kind=LEASE.name,
                metadata=ObjectMeta(name=self._name, namespace=self._namespace),
                spec=spec,
            )
            return await self._store.create(LEASE, LEASE.document(new))
        return await self._store.update(LEASE, LEASE.document(msgspec.structs.replace(lease, spec=spec)))

    def _now_other_than(self, before: str | None) -> str:
        """Return the time of day; a renewal that changed nothing would be none, should the clock stand or go back."""
        now = self._clock()
        return micro(now) if micro(now) != before else micro(now + timedelta(microseconds=1))

    async def _release(self) -> None:
        """Give the lease back, if it is ours; nobody depends on that working."""
        certain, self._certain_until = self.certain(), 0.0
        if not certain:
            return
        try:
            async with asyncio.timeout(self._durations.renew):
                # More than once: a renewal may have been on its way when the work ended, and arrives before us.
                while not await self._given_back():
                    self._doubtful = True
        except (TimeoutError, NetloomError) as error:
            logger.info("the lease was not given back and will run out: %s", error)
        self._doubtful = True

    async def _given_back(self) -> bool:
        if self._doubtful:
            await self._look()
        if self._lease is None or self.holder != self.identity:
            return True
        now = micro(self._clock())
        spec = msgspec.structs.replace(
            self._lease.spec, holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now
        )
        lease = msgspec.structs.replace(self._lease, spec=spec)
        try:
            self._saw(await self._store.update(LEASE, LEASE.document(lease)))
        except Conflict:
            return False
        return True

    def _held_by_another(self) -> bool:
        return self.holder not in ("", self.identity)

    def _run_out(self) -> bool:
        return asyncio.get_running_loop().time() >= self._free_at()

    def _free_at(self) -> float:
        """When the lease, if it does not change until then, has run out."""
        assert self._lease is not None
        return self._seen_at + (self._lease.spec.lease_duration_seconds or self._durations.duration)


class JointElection:
    """A candidate that leads while it holds two leases: `outer`, which it takes first, and `inner`.

    For changing which lease decides. Candidates that know only the outer one, and candidates that know only the inner
    one, never lead beside one that holds both. So those of the first kind can be replaced by those that hold both, and
    when none is left, these by those of the second kind.
    """

    def __init__(self, outer: Election, inner: Election) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def holder(self) -> str:
        """Who held the inner lease when it was last seen."""
        return self._inner.holder

    def certain(self) -> bool:
        """Whether both leases are held, for certain, now."""
        return self._outer.certain() and self._inner.certain()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Take part until cancelled or until `lead` ends, which runs while both leases are held."""
        await self._outer.run(lambda: self._inner.run(lead))
