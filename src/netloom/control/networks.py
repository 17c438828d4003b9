"""VNIs: each Network gets one, and no two have the same, over all namespaces.

The VNILock is the hard state, as the IPLock is that of an address: its name is the VNI, so it is created once. A
Network that names its VNI gets that or none; to others one is given from the configured range. What a Network has is
what its `status.vni` says, and that is written only after its lock is there.

A VNI is free again when its Network is gone, which only a live read can say, and no address of it is locked any more:
names of IPLocks are unique in a namespace only, so another namespace must not get a VNI whose addresses are in use. A
lock made by hand, which lacks the controllers' label, keeps a VNI from being given for good.
"""

from collections.abc import Callable, Iterable

import msgspec

from netloom.control.cache import Cache, Change, Key
from netloom.control.client import Client
from netloom.control.clock import Clock
from netloom.control.clock import now as time_of_day
from netloom.control.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.events import Recorder
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.document import Condition, ObjectMeta
from netloom.model.networks import Network, NetworkStatus, VNIHolder, VNILock, VNILockSpec
from netloom.model.registry import IP_LOCK, VNI_LOCK
from netloom.model.selectors import selector
from netloom.plan.addressing import vni_lock_name
from netloom.plan.audit import MANAGED_BY, MANAGER

LEAST, MOST = 4096, 2**24 - 1
BY_HOLDER = "holder"
SOON = 2.0
ANY = 0
"""What is waited for by who would take any VNI."""
ATTEMPTS = 8


def by_holder(lock: VNILock) -> Iterable[str]:
    """Return the index entry of a VNILock: its Network's uid."""
    return (lock.spec.network.uid,)


class NetworkKeeper:
    """Reconciles Networks, and VNILocks: their keys have no namespace."""

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
        in_use: Callable[[str, int], bool] = lambda _namespace, _vni: False,
    ) -> None:
        """`locks` has the index `BY_HOLDER`; `in_use` says whether addresses of a VNI are known to be locked."""
        self._client = client
        self._networks = networks
        self._locks = locks
        self._recorder = recorder
        self._clock = clock
        self._first, self._last = first, last
        self._cursor = first
        self._in_use = in_use
        self._waiting: dict[int, dict[Key, None]] = {}
        self._written: dict[Key, int] = {}

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return whom a change of a Network concerns: itself, and, where it went, its locks."""
        old, new = change.old, change.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            yield from self._locks_of(old)
        if new is not None:
            yield change.key
            yield from self._locks_of(new)

    def lock_changed(self, change: Change[VNILock]) -> Iterable[Key]:
        """Return whom a change of a VNILock concerns: itself, its Network, and who waits for it to go."""
        for lock in (change.old, change.new):
            if lock is not None:
                yield Key(lock.spec.network.namespace, lock.spec.network.name)
        if change.new is not None:
            yield change.key
        elif change.old is not None:
            yield from self._waiting.pop(change.old.spec.vni, ())
            yield from self._waiting.pop(ANY, ())

    def _locks_of(self, network: Network) -> list[Key]:
        return [Key("", lock.metadata.name) for lock in self._locks.indexed(BY_HOLDER, network.metadata.uid)]

    def everything(self) -> Iterable[Key]:
        """Return all keys."""
        return [key for key, _ in self._networks.items()] + [key for key, _ in self._locks.items()]

    def about(self, key: Key) -> Network | VNILock | None:
        """Return what a key means, for Events."""
        return self._networks.get(*key) if key.namespace else self._locks.get(*key)

    async def reconcile(self, key: Key) -> float | None:
        """Give a Network its VNI, or let go of a lock whose Network does not have it any more."""
        if not key.namespace:
            lock = self._locks.get(*key)
            return await self._tidy(lock) if lock is not None else None
        network = self._networks.get(*key)
        if network is None or network.metadata.deletion_timestamp:
            self._written.pop(key, None)
            return None
        if self._written.get(key, 0) > network.metadata.revision:
            return None  # The informer will tell of our own write.
        self._written.pop(key, None)
        await self._number(key, network)
        return None

    async def _number(self, key: Key, network: Network) -> None:
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
        """Claim the next free VNI of the range; None: there is none."""
        if own := self._locks.indexed(BY_HOLDER, network.metadata.uid):
            return own[0].spec.vni  # Made before a crash, or the status was lost.
        for _ in range(self._last - self._first + 1):
            vni = self._cursor
            self._cursor = vni + 1 if vni < self._last else self._first
            if self._locks.get("", vni_lock_name(vni)) is None and await self._claim(network, vni) is None:
                return vni
        return None

    async def _claim(self, network: Network, vni: int) -> str | None:
        """Lock a VNI for a Network; None: it has it; else who does."""
        name, uid = vni_lock_name(vni), network.metadata.uid
        cached = self._locks.get("", name)
        if cached is not None and cached.spec.network.uid == uid:
            return None
        for _ in range(ATTEMPTS):
            try:
                await self._client.create(_lock(network, vni))
                return None
            except AlreadyExists:
                lock = await self._client.find(VNILock, "", name)
            if lock is None:
                continue
            if lock.spec.network.uid == uid:
                return None
            holder = lock.spec.network
            if not await self._gone(lock) or (
                holder.namespace != network.metadata.namespace and await self._addressed(holder.namespace, vni)
            ):
                return f"VNI {vni} is taken by {holder.namespace}/{holder.name}"
            await self._client.delete(VNI_LOCK, "", name, uid=lock.metadata.uid)
        raise Conflict(f"{name} comes and goes")

    async def _gone(self, lock: VNILock) -> bool:
        """Whether the Network a lock is for is gone, for certain; a lock made by hand is never let go."""
        if lock.metadata.labels.get(MANAGED_BY) != MANAGER:
            return False
        live = await self._client.find(Network, lock.spec.network.namespace, lock.spec.network.name)
        return live is None or live.metadata.uid != lock.spec.network.uid

    async def _addressed(self, namespace: str, vni: int) -> bool:
        """Whether any address of a VNI is locked in a namespace, for certain."""
        if self._in_use(namespace, vni):
            return True
        which = selector(fields=f"spec.vni={vni}", selectable=IP_LOCK.selectable)
        return bool(list(await self._client.stored(IP_LOCK, namespace, selector=which)))

    async def _tidy(self, lock: VNILock) -> float | None:
        """Delete a lock that is nobody's any more."""
        holder, vni = lock.spec.network, lock.spec.vni
        if lock.metadata.labels.get(MANAGED_BY) != MANAGER:
            return None
        if not _idle(self._networks.get(holder.namespace, holder.name), lock):
            return None
        if not _idle(await self._client.find(Network, holder.namespace, holder.name), lock):
            return SOON  # The informer is behind.
        if await self._addressed(holder.namespace, vni):
            return SOON
        await self._client.delete(VNI_LOCK, "", lock.metadata.name, uid=lock.metadata.uid)
        return None

    async def _write(self, key: Key, network: Network, vni: int | None, *, taken: str = "") -> None:
        before = network.status
        generation = network.metadata.generation
        ready = Condition(
            type=READY,
            status=FALSE if taken else TRUE,
            observed_generation=generation,
            reason="VNITaken" if taken else "VNIAssigned",
            message=taken,
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
            return  # The informer will tell, and its locks go.
        self._written[key] = written.metadata.revision
        if vni and vni != before.vni:
            self._recorder.normal(network, "VNIAssigned", f"VNI {vni}")
        was = before.condition(READY)
        if taken and (was is None or was.message != taken):
            self._recorder.warning(network, "VNITaken", taken)


def _idle(network: Network | None, lock: VNILock) -> bool:
    """Whether a lock is for a Network that is gone, or has another VNI."""
    if network is None or network.metadata.uid != lock.spec.network.uid:
        return True
    return network.status.vni is not None and lock.spec.vni not in (network.status.vni, network.spec.vni)


def _lock(network: Network, vni: int) -> VNILock:
    meta = network.metadata
    return VNILock(
        api_version=VNI_LOCK.api_version,
        kind=VNI_LOCK.name,
        metadata=ObjectMeta(name=vni_lock_name(vni), labels={MANAGED_BY: MANAGER}),
        spec=VNILockSpec(vni=vni, network=VNIHolder(namespace=meta.namespace, name=meta.name, uid=meta.uid)),
    )
