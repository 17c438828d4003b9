"""VNIs: each Network gets one, unique over all namespaces.

The VNILock is the hard state, as the IPLock is that of an address: its name is the VNI, so a store creates it once. A
Network whose spec has a VNI gets that one or none; the others get one from the configured range. The VNI of a Network
is the one in its `status.vni`, which is written only after the lock exists.

A VNI is free again when its Network is gone, which only a live read can confirm, and no address of it is locked any
more: names of IPLocks are unique in a namespace only, so another namespace must not get a VNI whose addresses are in
use.

Even then it is not free at once: where nothing prevents the deletion of a Network in use, a controller that has not
seen the deletion may lock one more address of it. So the VNI is in quarantine first. As with an address, the deleted
lock stays as long as it has its finalizer, and a restart does not lose it. The quarantine lasts from the moment this
process saw the deletion, and starts again if an address is locked meanwhile. The namespace that had the VNI may take it
back without a quarantine, because there the name of a late lock prevents a second one.

A lock that a person created, which does not have the controllers' label, excludes a VNI permanently.

A Network that may not join its physical network (`plan/node/grants.py`) keeps its VNI and is not Ready.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from netloom.control.ipam.views import QUARANTINE
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.events import Recorder
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import Condition, ObjectMeta
from netloom.model.kinds.networks import Fabric, Network, NetworkStatus, VNIHolder, VNILock, VNILockSpec
from netloom.model.registry import IP_LOCK, VNI_LOCK
from netloom.model.values.selectors import selector
from netloom.plan.addresses.blocks import vni_lock_name
from netloom.plan.audit.addresses import MANAGED_BY, MANAGER
from netloom.plan.node.grants import NO_PROVIDERS, NOT_GRANTED, ProviderRefusal

LEAST, MOST = 4096, 2**24 - 1
BY_HOLDER = "holder"
SOON = 2.0
ANY = 0
"""The key of the Networks that wait for any VNI."""
ATTEMPTS = 8


def by_holder(lock: VNILock) -> Iterable[str]:
    """Return the index entry of a VNILock: the uid of its Network."""
    return (lock.spec.network.uid,)


class NetworkReconciler:
    """Reconciles Networks and VNILocks.  The keys of VNILocks have no namespace."""

    def __init__(
        self,
        client: Client,
        *,
        networks: Cache[Network],
        locks: Cache[VNILock],
        recorder: Recorder,
        clock: Clock = time_of_day,
        first: int = LEAST,
        last: int = MOST,
        rest: float = 30.0,
        in_use: Callable[[str, int], bool] = lambda _namespace, _vni: False,
        refusal: ProviderRefusal = NO_PROVIDERS.refusal,
        remark: str = "",
    ) -> None:
        """`locks` has the index `BY_HOLDER`; `in_use` returns whether addresses of a VNI are known to be locked.

        `rest` is the quarantine in seconds, in which a VNI is given to no other namespace. `refusal` returns why a
        Network may not join its physical network. `remark` is a warning for the message of `Ready` of every Network of
        fabric `ovn`.
        """
        self._client = client
        self._networks = networks
        self._locks = locks
        self._recorder = recorder
        self._clock = clock
        self._first, self._last = first, last
        self._cursor = first
        self._rest = rest
        self._since: dict[str, float] = {}
        """When the quarantine of locks began, by uid."""
        self._taking: dict[int, str] = {}
        """VNIs that are being taken over, and by which Network: no other may lock them in between."""
        self._in_use = in_use
        self._refusal = refusal
        self._remark = remark
        self._waiting: dict[int, dict[Key, None]] = {}
        self._written: dict[Key, int] = {}

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return the Network and its locks."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            yield from self._locks_of(old)
        if new is not None:
            yield change.key
            yield from self._locks_of(new)

    def lock_changed(self, change: Change[VNILock]) -> Iterable[Key]:
        """Return the VNILock, its Network, and the Networks that wait for its VNI."""
        old, new = change.old, change.new
        for lock in (old, new):
            if lock is not None:
                yield Key(lock.spec.network.namespace, lock.spec.network.name)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._since.pop(old.metadata.uid, None)
        if new is not None:
            yield change.key
            if new.metadata.deletion_timestamp:  # Its own namespace may take it now.
                yield from self._waiting.pop(new.spec.vni, ())
        elif old is not None:
            yield from self._waiting.pop(old.spec.vni, ())
            yield from self._waiting.pop(ANY, ())

    def _locks_of(self, network: Network) -> list[Key]:
        return [Key("", lock.metadata.name) for lock in self._locks.indexed(BY_HOLDER, network.metadata.uid)]

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all Networks and VNILocks."""
        return [key for key, _ in self._networks.items()] + [key for key, _ in self._locks.items()]

    def event_target(self, key: Key) -> Network | VNILock | None:
        """Return the object of a key, for Events."""
        return self._networks.get(*key) if key.namespace else self._locks.get(*key)

    async def reconcile(self, key: Key) -> float | None:
        """Assign a VNI to a Network, or release a lock whose Network does not use it any more."""
        if not key.namespace:
            lock = self._locks.get(*key)
            return await self._release_if_unused(lock) if lock is not None else None
        network = self._networks.get(*key)
        if network is None or network.metadata.deletion_timestamp:
            self._written.pop(key, None)
            return None
        if self._written.get(key, 0) > network.metadata.revision:
            return None  # The informer will report our own write.
        self._written.pop(key, None)
        await self._assign(key, network)
        return None

    async def _assign(self, key: Key, network: Network) -> None:
        wanted = network.spec.vni or network.status.vni
        holder = await self._claim(network, wanted) if wanted else ""
        if holder is None:
            await self._write(key, network, wanted)
        elif network.spec.vni:
            self._waiting.setdefault(network.spec.vni, {})[key] = None
            await self._write(key, network, network.status.vni, taken=holder)
        else:
            vni = await self._choose(network)
            if vni is None:
                self._waiting.setdefault(ANY, {})[key] = None
            text = f"no VNI is free between {self._first} and {self._last}"
            await self._write(key, network, vni, taken="" if vni else text)

    async def _choose(self, network: Network) -> int | None:
        """Lock the next free VNI of the range; return None if there is none."""
        own = [one for one in self._locks.indexed(BY_HOLDER, network.metadata.uid) if _holds(network, one)]
        if own:
            return own[0].spec.vni  # Locked before a crash, or the status was lost.
        for _ in range(self._last - self._first + 1):
            vni = self._cursor
            self._cursor = vni + 1 if vni < self._last else self._first
            if self._locks.get("", vni_lock_name(vni)) is None and await self._claim(network, vni) is None:
                return vni
        return None

    async def _claim(self, network: Network, vni: int) -> str | None:
        """Lock a VNI for a Network; return None if it has it now, else why not."""
        name = vni_lock_name(vni)
        cached = self._locks.get("", name)
        if cached is not None and _holds(network, cached):
            return None
        uid = network.metadata.uid
        if self._taking.get(vni, uid) != uid:
            raise Conflict(f"VNILock {name} is being taken over by another Network")
        try:
            for _ in range(ATTEMPTS):
                try:
                    await self._client.create(_lock(network, vni, finalizers=(QUARANTINE,) if self._rest else ()))
                    return None
                except AlreadyExists:
                    lock = await self._client.find(VNILock, "", name)
                if lock is None:
                    continue
                if _holds(network, lock):
                    return None
                if refused := await self._refusal_of(network, lock):
                    return refused
                if self._taking.setdefault(vni, uid) != uid:
                    break
                meta = network.metadata
                live = await self._client.find(Network, meta.namespace, meta.name)
                if live is None or live.metadata.uid != uid or live.metadata.deletion_timestamp:
                    raise Conflict(f"Network {meta.namespace}/{meta.name} is gone")
                if not lock.metadata.deletion_timestamp:
                    await self._client.delete(VNI_LOCK, "", name, uid=lock.metadata.uid)
                await self._end_quarantine(lock)
            raise Conflict(f"VNILock {name} was created and deleted {ATTEMPTS} times by others")
        finally:
            if self._taking.get(vni) == uid:
                del self._taking[vni]

    async def _refusal_of(self, network: Network, lock: VNILock) -> str:
        """Return why a Network cannot have a locked VNI; "" if it can, as soon as that lock is deleted."""
        holder, vni = lock.spec.network, lock.spec.vni
        if holder.uid == network.metadata.uid:
            return ""  # Its own lock, which a user deleted.
        if not await self._gone(lock):
            return f"VNI {vni} is taken by {holder.namespace}/{holder.name}"
        if holder.namespace == network.metadata.namespace:
            return ""
        if self._rest or await self._has_locks(holder.namespace, vni):
            return f"VNI {vni} is in quarantine: {holder.namespace}/{holder.name} had it before, in another namespace"
        return ""

    async def _gone(self, lock: VNILock) -> bool:
        """Whether a live read confirms that the Network of a lock is gone; False for a lock that a person created."""
        if lock.metadata.labels.get(MANAGED_BY) != MANAGER:
            return False
        live = await self._client.find(Network, lock.spec.network.namespace, lock.spec.network.name)
        return live is None or live.metadata.uid != lock.spec.network.uid

    async def _has_locks(self, namespace: str, vni: int) -> bool:
        """Whether any address of a VNI is locked in a namespace, by a live list."""
        if self._in_use(namespace, vni):
            return True
        which = selector(fields=f"spec.vni={vni}", selectable=IP_LOCK.selectable)
        return bool(list(await self._client.stored(IP_LOCK, namespace, selector=which)))

    async def _release_if_unused(self, lock: VNILock) -> float | None:
        """Delete a lock that no Network uses, and remove its finalizer after the quarantine."""
        holder, vni = lock.spec.network, lock.spec.vni
        if lock.metadata.labels.get(MANAGED_BY) != MANAGER:
            return None
        if not _is_unused(self._networks.get(holder.namespace, holder.name), lock):
            return None
        if not _is_unused(await self._client.find(Network, holder.namespace, holder.name), lock):
            return SOON  # The cache is behind.
        if await self._has_locks(holder.namespace, vni):
            self._since.pop(lock.metadata.uid, None)
            return SOON
        meta = lock.metadata
        if not meta.deletion_timestamp:
            if self._rest and QUARANTINE not in meta.finalizers:  # Created by an older version, or by `netloom doctor`.
                await self._set_finalizers(lock, (*meta.finalizers, QUARANTINE))
            await self._client.delete(VNI_LOCK, "", meta.name, uid=meta.uid)
            return None
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault(lock.metadata.uid, now) + self._rest - now
        if left > 0:
            return left
        await self._end_quarantine(lock)
        return None

    async def _end_quarantine(self, lock: VNILock) -> None:
        """Remove the finalizer from a deleted lock, so that the store removes it."""
        live = await self._client.find(VNILock, "", lock.metadata.name)
        if live is not None and live.metadata.uid == lock.metadata.uid and QUARANTINE in live.metadata.finalizers:
            await self._set_finalizers(live, tuple(name for name in live.metadata.finalizers if name != QUARANTINE))

    async def _set_finalizers(self, lock: VNILock, finalizers: tuple[str, ...]) -> None:
        """Write the finalizers of a lock."""
        meta = msgspec.structs.replace(lock.metadata, finalizers=finalizers)
        try:
            await self._client.update(msgspec.structs.replace(lock, metadata=meta))
        except NotFound:
            pass  # Another process was faster.

    async def _write(self, key: Key, network: Network, vni: int | None, *, taken: str = "") -> None:
        before = network.status
        generation = network.metadata.generation
        refused = taken or self._refusal(network)
        reason = "VNITaken" if taken else NOT_GRANTED if refused else "VNIAssigned"
        ready = Condition(
            type=READY,
            status=FALSE if refused else TRUE,
            observed_generation=generation,
            reason=reason,
            message=refused or (self._remark if network.spec.fabric is Fabric.OVN else ""),
        )
        status: NetworkStatus = msgspec.structs.replace(
            before,
            vni=vni,
            observed_generation=generation,
            conditions=with_condition(before.conditions, ready, self._clock()),
        )
        try:
            written = await self._client.update_status(network, status)
        except NotFound:
            return  # The informer will report that it is gone, and its locks are released.
        self._written[key] = written.metadata.revision
        if vni and vni != before.vni:
            self._recorder.normal(network, "VNIAssigned", f"VNI {vni}")
        was = before.condition(READY)
        if refused and (was is None or was.message != refused):
            self._recorder.warning(network, reason, refused)


def _is_unused(network: Network | None, lock: VNILock) -> bool:
    """Whether the Network of a lock is gone or has another VNI."""
    if network is None or network.metadata.uid != lock.spec.network.uid:
        return True
    return network.status.vni is not None and lock.spec.vni not in (network.status.vni, network.spec.vni)


def _holds(network: Network, lock: VNILock) -> bool:
    """Whether a Network holds a lock that is not deleted."""
    return lock.spec.network.uid == network.metadata.uid and not lock.metadata.deletion_timestamp


def _lock(network: Network, vni: int, *, finalizers: tuple[str, ...]) -> VNILock:
    meta = network.metadata
    return VNILock(
        api_version=VNI_LOCK.api_version,
        kind=VNI_LOCK.name,
        metadata=ObjectMeta(name=vni_lock_name(vni), labels={MANAGED_BY: MANAGER}, finalizers=finalizers),
        spec=VNILockSpec(vni=vni, network=VNIHolder(namespace=meta.namespace, name=meta.name, uid=meta.uid)),
    )
