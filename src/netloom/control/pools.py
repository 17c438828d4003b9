"""Makes the ports of PortPools, and deletes those that are not needed: see `plan/pools.py`.

    PortPool, attachments of its label ──► free ports against the target ──► create, delete; status

A change of a port waits `EVERY` seconds for others: so a storm of pods, which empties a pool, costs the pool one round
of writes after it, and not one in the middle of it for each pod.

A port is deleted at the revision at which it was seen to be free. One that was taken since then has another revision,
and stays; one that is deleted cannot be taken. A pool that is gone has its free ports deleted by the garbage collector,
in the same way, because it owns them; those that were taken have no such owner.

The names of ports follow from those that are there (`free_names`): what an earlier attempt has made, and the cache does
not have yet, is there under the name that is tried next, and is not made twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from netloom.control.ipam.views import BY_POOL, Attachment
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.documents import document_of
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import Condition
from netloom.model.kinds.attachments import PortPool, PortType
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan import pools
from netloom.plan.pools import Demand, free_names, is_free, is_pooled, label_of, owner_of, port

EVERY = 2.0
"""How long a change of a port waits for others, in seconds."""
AGAIN = 60.0
"""Seconds between two looks at a pool that may shrink."""
BY_LABEL, BY_PLACE = "label", "place"
"""The indexes of PortPools: by the label of their ports, and by node and Network."""


def by_label(pool: PortPool) -> Iterable[str]:
    """Return the index entry of a pool: the label of its ports."""
    return (f"{pool.metadata.namespace}/{label_of(pool.metadata.name)}",)


def by_place(pool: PortPool) -> Iterable[str]:
    """Return the index entry of a pool: its node and its Network."""
    return (_place(pool.metadata.namespace, pool.spec.node, pool.spec.network),)


class PoolReconciler:
    """Reconciles PortPools.  The keys are theirs."""

    def __init__(
        self,
        client: Client,
        *,
        pools: Cache[PortPool],
        attachments: Cache[Attachment],
        enqueue_after: Callable[[Key, float], None],
        clock: Clock,
    ) -> None:
        """`pools` are indexed BY_LABEL and BY_PLACE, `attachments` BY_POOL."""
        self._client = client
        self._pools = pools
        self._attachments = attachments
        self._enqueue_after = enqueue_after
        self._clock = clock
        self._demand: dict[Key, Demand] = {}
        """Of the pools that were reconciled: what was there before is no demand."""

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all pools."""
        return [key for key, _ in self._pools.items()]

    def event_target(self, key: Key) -> PortPool | None:
        """Return the object of an Event about a key."""
        return self._pools.get(*key)

    def pool_changed(self, change: Change[PortPool]) -> Iterable[Key]:
        """Return the pool, unless only its status changed."""
        old, new = change.old, change.new
        if old is not None and new is not None and _generation(old) == _generation(new):
            return ()
        return (change.key,)

    def attachment_changed(self, change: Change[Attachment]) -> Iterable[Key]:
        """Have the pools that an attachment concerns looked at soon, and count what their node needs."""
        old, new = change.old, change.new
        one = new or old
        if one is None or one.type is not PortType.POD:
            return ()
        if not is_pooled(one.labels):
            if old is None:
                self._count(one)
            return ()
        if old is not None and new is not None and is_free(old.metadata) and not _is_spare(new):
            self._count(new)
        for pool in self._pools.indexed(BY_LABEL, _label(one)):
            self._enqueue_after(_key(pool), EVERY)
        return ()

    def _count(self, one: Attachment) -> None:
        """Count an attachment that the node needs; made for somebody at once, or taken from a pool."""
        now = asyncio.get_running_loop().time()
        for pool in self._pools.indexed(BY_PLACE, _place(one.metadata.namespace, one.node, one.network)):
            if (demand := self._demand.get(_key(pool))) is not None:
                demand.add(now)
                if pool.spec.max_size is not None:
                    self._enqueue_after(_key(pool), EVERY)

    async def reconcile(self, key: Key) -> float | None:
        """Make or delete ports of a pool, and write its status; return when to look again."""
        pool = self._pools.get(*key)
        if pool is None or pool.metadata.deletion_timestamp:
            self._demand.pop(key, None)
            return None
        ports = [one for one in self._attachments.indexed(BY_POOL, *by_label(pool)) if not _is_going(one)]
        own = [one for one in ports if _is_owned(one, pool)]
        free = [one for one in own if _fits(one, pool)]
        now = asyncio.get_running_loop().time()
        # What a process before this one has made for the demand of its time is not deleted at once.
        demand = self._demand.setdefault(key, Demand(now, len(free)))
        target = demand.target(pool, now)
        await self._delete([one for one in own if not _fits(one, pool)])
        await self._delete(sorted(free, key=_spared)[: max(0, len(free) - target)])
        await self._create(pool, target - len(free))
        await self._write(pool, target, free, used=sum(owner_of(one.metadata) is None for one in ports))
        return AGAIN if target > pool.spec.size else None

    async def _create(self, pool: PortPool, number: int) -> None:
        namespace = pool.metadata.namespace
        there = {name for (within, name), _ in self._attachments.items() if within == namespace} if number > 0 else ()
        for name, _ in zip(free_names(pool.metadata.name, there), range(number), strict=False):
            try:
                await self._client.create_document(NETWORK_ATTACHMENT, document_of(port(pool, name)))
            except AlreadyExists:
                continue  # The cache is about to have it.

    async def _delete(self, ports: Iterable[Attachment]) -> None:
        for one in ports:
            meta = one.metadata
            try:
                await self._client.delete(
                    NETWORK_ATTACHMENT, meta.namespace, meta.name, uid=meta.uid, revision=meta.revision
                )
            except Conflict:
                continue  # It has changed, and was perhaps taken: the change enqueues the pool.

    async def _write(self, pool: PortPool, target: int, free: Sequence[Attachment], *, used: int) -> None:
        ready = sum(one.plugged for one in free)
        condition = _condition(pool, target, free, ready)
        conditions = with_condition(pool.status.conditions, condition, self._clock())
        generation = pool.metadata.generation
        status = structs.replace(
            pool.status, free=ready, used=used, conditions=conditions, observed_generation=generation
        )
        try:
            await self._client.update_status(pool, status)
        except NotFound:
            return  # The informer will report that it is gone.


def _condition(pool: PortPool, target: int, free: Sequence[Attachment], ready: int) -> Condition:
    """Return the condition Ready: whether there is a port to be taken."""
    status, reason, message = TRUE, "Filled", ""
    if ready < min(target, len(free)) or len(free) < target:
        status, reason = (TRUE, "Filling") if ready else (FALSE, "Empty")
        message = f"{ready} of {target} ports are ready"
        waiting = min((one for one in free if not one.plugged), key=lambda one: one.metadata.name, default=None)
        if waiting is not None:
            state = waiting.addressed
            why = state.message if state is not None and state.status != TRUE else ""
            why = why or f"waiting for the agent of Node {pool.spec.node}"
            message += f": NetworkAttachment {waiting.metadata.name}: {why}"
    return Condition(
        type=READY,
        status=status,
        observed_generation=pool.metadata.generation,
        reason=reason,
        message=message[:1024],
    )


def _spared(one: Attachment) -> tuple[bool, tuple[int, str]]:
    """Return the order in which a pool gives its ports up: those that are not ready first."""
    return one.plugged, (-len(one.metadata.name), one.metadata.name)


def _is_going(one: Attachment) -> bool:
    return bool(one.metadata.deletion_timestamp)


def _is_spare(one: Attachment) -> bool:
    """Whether nobody has taken a port, or will."""
    return is_free(one.metadata) or _is_going(one)


def _is_owned(one: Attachment, pool: PortPool) -> bool:
    owner = owner_of(one.metadata)
    return owner is not None and owner.uid == pool.metadata.uid


def _fits(one: Attachment, pool: PortPool) -> bool:
    """Whether a port is as the pool wants it now."""
    return one.subnets == pool.spec.subnets and one.profiles == pool.spec.security_profiles


def _generation(pool: PortPool) -> object:
    meta = pool.metadata
    return meta.uid, meta.generation, meta.deletion_timestamp


def _key(pool: PortPool) -> Key:
    return Key(pool.metadata.namespace, pool.metadata.name)


def _label(one: Attachment) -> str:
    return f"{one.metadata.namespace}/{one.labels[pools.LABEL]}"


def _place(namespace: str, node: str, network: str) -> str:
    return f"{namespace}/{node}/{network}"
