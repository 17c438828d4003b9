"""Leader election by a Lease, as the components of Kubernetes do it (client-go's leaderelection).

The lease names its holder, which renews it (writes it again) before it expires. Why no two processes lead at one time:

- A candidate takes a lease only after it has seen it unchanged for the whole duration that the lease states. It
  measures this by its own clock, from when it saw the last change; clocks of different machines are never compared.
- The holder is certain to lead only until `deadline` after it *sent* its last successful renewal, by its own clock.
  Other candidates see that renewal after it was sent, and wait longer than the deadline. So the certainty ends before
  another candidate can take the lease, by `duration - deadline`, and in that time the work is stopped.
- Every write of the lease carries the resourceVersion that it is based on. The store refuses a renewal that was delayed
  and arrives after another candidate took the lease.

`certain()` compares times when it is called. It does not depend on a timer: a process that was stopped and continues
much later is uncertain at its first instruction. On a graceful stop the process keeps and renews the lease until all
work has ended, and then releases it, so that the next leader need not wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

import msgspec
from msgspec import Struct

from netloom.control.runtime.clock import Clock, micro
from netloom.control.runtime.clock import now as time_of_day
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.document import ObjectMeta
from netloom.model.kinds.cluster import Lease, LeaseSpec
from netloom.model.registry import LEASE
from netloom.store.base import Store, Stored

logger = logging.getLogger(__name__)


class Durations(Struct, frozen=True, kw_only=True):
    """The durations of an election, in seconds.  With the defaults, a dead leader is replaced within 5 s."""

    duration: int = 4
    """How long other candidates wait after they saw the lease change."""
    deadline: float = 3.0
    """How long after sending a renewal the leader is certain; the rest of `duration` is for stopping."""
    renew: float = 1.0
    """How long the leader waits between renewals."""
    retry: float = 0.25
    """How long a candidate waits after an attempt that failed."""

    def __post_init__(self) -> None:
        if not 0 < self.retry <= self.renew < self.deadline < self.duration:
            raise ValueError("the durations of a lease must satisfy 0 < retry <= renew < deadline < duration")


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
            raise ValueError("a candidate needs an identity")
        self.identity = identity
        self.transitions = 0
        """How often this candidate became the leader."""
        self._store = store
        self._name = name
        self._namespace = namespace
        self._random = random
        self._durations = durations or Durations()
        self._clock = clock
        self._lease: Lease | None = None
        self._seen_at = 0.0
        """When `_lease` was first read in its current version, by the clock of the event loop."""
        self._doubtful = True
        """Whether `_lease` must be read again before it is written."""
        self._certain_until = 0.0
        self._logged = ""

    def certain(self) -> bool:
        """Whether this candidate is certain to lead now."""
        return asyncio.get_running_loop().time() < self._certain_until

    @property
    def holder(self) -> str:
        """The holder of the lease when it was last read."""
        return self._lease.spec.holder_identity if self._lease else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Participate until cancelled or until `lead` returns; `lead` is cancelled when the lease is lost."""
        while True:
            if not await self._attempt():
                await asyncio.sleep(self._delay())
                continue
            self.transitions += 1
            logger.info("%s is the leader (%s/%s)", self.identity, self._namespace, self._name)
            if not await self._hold(lead):
                return
            logger.warning("%s is no longer the leader (%s/%s)", self.identity, self._namespace, self._name)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead` as long as the lease can be renewed, then release it; return whether it was lost."""
        try:
            async with asyncio.TaskGroup() as group:
                # The deadline is a timeout around the work that each renewal extends: it works even if a renewal hangs.
                scope = asyncio.timeout_at(self._certain_until)
                try:
                    async with scope:
                        renewing = group.create_task(self._renew(scope))
                        await lead()
                except TimeoutError:
                    if not scope.expired():
                        raise
                finally:
                    # Not earlier: the lease is renewed also while the work is being stopped.
                    renewing.cancel()
        finally:
            await self._release()
        return scope.expired()

    async def _renew(self, scope: asyncio.Timeout) -> None:
        """Extend the deadline `scope` until it expires or another candidate holds the lease."""
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
        """Take or renew the lease if it is ours, free or expired, in bounded time; return whether it is ours now."""
        try:
            async with asyncio.timeout(self._durations.renew):
                if self._doubtful:
                    await self._read()
                if self._held_by_another() and asyncio.get_running_loop().time() < self._free_at():
                    return False
                self._doubtful = True  # Until the answer arrives, the outcome is unknown.
                sent_at = asyncio.get_running_loop().time()
                self._saw(await self._write(self._lease))
        except TimeoutError:
            return False
        except NetloomError as error:
            self._log(error)
            return False
        self._doubtful = False
        self._logged = ""
        self._certain_until = sent_at + self._durations.deadline
        return True

    def _log(self, error: NetloomError) -> None:
        """Log once an error that does not pass by itself: a missing namespace, a missing permission."""
        level = logging.DEBUG if error.retry or isinstance(error, AlreadyExists) else logging.WARNING
        if level == logging.WARNING and str(error) == self._logged:
            return
        self._logged = str(error) if level == logging.WARNING else self._logged
        hint = " (does the namespace exist?)" if isinstance(error, NotFound) else ""
        logger.log(level, "cannot take the Lease %s/%s: %s%s", self._namespace, self._name, error, hint)

    async def _read(self) -> None:
        """Read the lease."""
        try:
            self._saw(await self._store.get(LEASE, self._namespace, self._name))
        except NotFound:
            self._lease = None

    def _saw(self, stored: Stored) -> None:
        """Keep the lease, and the time at which this version was first seen."""
        lease = stored.value()
        assert isinstance(lease, Lease)
        if self._lease is None or self._lease.metadata.revision != lease.metadata.revision:
            self._seen_at = asyncio.get_running_loop().time()
        self._lease = lease

    def _delay(self) -> float:
        """Return how long to wait before the next attempt: until the lease may expire, if that is soon."""
        delay = self._durations.retry * self._random.uniform(0.75, 1.0)
        if self._held_by_another():
            delay = min(delay, self._free_at() - asyncio.get_running_loop().time())
        return max(delay, 0.01)

    async def _write(self, lease: Lease | None) -> Stored:
        """Create the lease, or update it with this candidate as the holder."""
        spec = lease.spec if lease else LeaseSpec()
        now = micro(self._clock())
        if now == spec.renew_time:  # A renewal must change the lease, even if the clock does not.
            now = micro(self._clock() + timedelta(microseconds=1))
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

    async def _release(self) -> None:
        """Release the lease if it is ours; if that fails, it expires."""
        certain, self._certain_until = self.certain(), 0.0
        if not certain:
            return
        try:
            async with asyncio.timeout(self._durations.renew):
                # More than once: a renewal that was in flight when the work ended may arrive first.
                while not await self._released():
                    self._doubtful = True
        except (TimeoutError, NetloomError) as error:
            logger.info("the lease was not released and will expire: %s", error)
        self._doubtful = True

    async def _released(self) -> bool:
        if self._doubtful:
            await self._read()
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

    def _free_at(self) -> float:
        """When the lease expires, if it does not change before."""
        assert self._lease is not None
        return self._seen_at + (self._lease.spec.lease_duration_seconds or self._durations.duration)


class JointElection:
    """A candidate that leads while it holds two leases: `outer`, which it takes first, and `inner`.

    For an upgrade that changes the lease. A candidate that uses only one of the two leases never leads at the same time
    as one that holds both. So candidates of the old lease can be replaced by candidates of both, and when none is left,
    those by candidates of the new lease.
    """

    def __init__(self, outer: Election, inner: Election) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def holder(self) -> str:
        """The holder of the inner lease when it was last read."""
        return self._inner.holder

    def certain(self) -> bool:
        """Whether this candidate is certain to hold both leases now."""
        return self._outer.certain() and self._inner.certain()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Participate until cancelled or until `lead` returns; `lead` runs while both leases are held."""
        await self._outer.run(lambda: self._inner.run(lead))


Candidate = Election | JointElection
"""A participant in an election."""
