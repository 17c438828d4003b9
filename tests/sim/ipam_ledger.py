"""A store that looks, at every write, whether IPAM kept its promises; it knows nothing of how IPAM works.

What must hold at every instant, whatever crashes:

- one address of a VNI has one lock at most, over all namespaces, and the lock's name is made of VNI and address (a late
  lock in another namespace, for an attachment that is gone already, can never be named; it only has to go);
- of the attachments there are, no two show one address of a VNI in their status;
- what an attachment shows is locked for it: the lock it names is there, is its own, and is not on its way out;
- an address that was in use (some status showed it) and is freed is given to nobody of another name until the
  quarantine is over, by the world's own clock;
- no two Networks show one VNI.

A broken promise is kept in `broken`, and raised, by whoever runs the world: a controller must not get to handle it.
"""

from collections.abc import Callable
from ipaddress import ip_address, ip_interface
from random import Random
from typing import NamedTuple, TypeVar

from netloom.model.kind import Kind
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network
from netloom.sim import loop as sim
from netloom.store.base import Stored
from netloom.store.engine import Write
from netloom.store.memory import MemoryStore
from netloom.store.semantics import key_of

T = TypeVar("T")
Ask = Callable[[IPLock], str]
EPOCH = 1_893_456_000


class Address(NamedTuple):
    """One address on one segment."""

    vni: int
    ip: str

    def __str__(self) -> str:
        return f"{self.ip} of VNI {self.vni}"


class Freed(NamedTuple):
    """When an address was let go, and by whom."""

    at: float
    holder: str


def lock_name(address: Address) -> str:
    """Return what the lock of an address is called."""
    ip = ip_address(address.ip)
    groups = str(ip).split(".") if ip.version == 4 else [f"{int(g, 16):x}" for g in ip.exploded.split(":")]
    return f"v1-{address.vni}-" + "-".join(groups)


def holder(lock: IPLock) -> str:
    """Return NAMESPACE/NAME of the attachment a lock is, or was, for."""
    return f"{lock.metadata.namespace}/{lock.metadata.owner_references[0].name}"


def shown(attachment: NetworkAttachment) -> list[Address]:
    """Return the addresses an attachment shows to the world."""
    vni = attachment.status.vni or 0
    return [Address(vni, str(ip_interface(text).ip)) for text in attachment.status.ips]


class Ledger(MemoryStore):
    """A store in a simulation that keeps the books of who has which address."""

    def __init__(self, *, quarantine: float) -> None:
        self._loop = sim.current()
        random = Random(self._loop.random.random())
        super().__init__(clock=lambda: EPOCH + self._loop.time(), random=random)
        self.quarantine = quarantine
        self.broken: list[str] = []
        self.given: list[tuple[float, str, Address]] = []
        """Every lock that was created: when, for whom, for which address."""
        self.on_lock: list[Ask] = []
        """Asked about every new lock; what they say, if anything, is a broken promise."""
        self._locks: dict[str, IPLock] = {}
        self._attachments: dict[str, NetworkAttachment] = {}
        self._named: set[str] = set()
        """The uids of all locks that any status ever named."""
        self._newest: dict[str, str] = {}
        """The uid of the last attachment of each name."""
        self._networks: dict[str, Network] = {}
        self._freed: dict[Address, Freed] = {}

    def check(self) -> None:
        """Raise the first promise that was broken."""
        assert not self.broken, self.broken[0]

    @property
    def networks(self) -> list[Network]:
        """All Networks there are now."""
        return list(self._networks.values())

    @property
    def attachments(self) -> list[NetworkAttachment]:
        """All attachments there are now."""
        return list(self._attachments.values())

    @property
    def locks(self) -> list[IPLock]:
        """All IPLocks there are now."""
        return list(self._locks.values())

    def all(self, kind: Kind) -> list[Stored]:
        """Return the objects of a kind there are now."""
        return list(self._collection_at(kind, self._hub.revision).items.values())

    def lookup(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """Return one object as it is now, or None."""
        return self._lookup(kind, key_of(namespace, name))

    async def _submit(self, write: Write, *, dry_run: bool) -> Stored:
        before = self._hub.revision
        result = await super()._submit(write, dry_run=dry_run)
        if not dry_run and self._hub.revision != before:
            self._enter(result)
        return result

    def _enter(self, result: Stored) -> None:
        """Put a change into the books."""
        key = key_of(result.namespace, result.name)
        there = self._lookup(result.kind, key)
        value = there.value() if there is not None else None
        if result.kind.type is IPLock:
            assert value is None or isinstance(value, IPLock)
            self._enter_lock(key, value)
        elif result.kind.type is NetworkAttachment:
            assert value is None or isinstance(value, NetworkAttachment)
            self._enter_attachment(key, value)
        elif result.kind.type is Network:
            assert value is None or isinstance(value, Network)
            self._enter_network(key, value)

    def _enter_lock(self, key: str, lock: IPLock | None) -> None:
        old = _put(self._locks, key, lock)
        now = self._loop.time()
        going = lock is None or bool(lock.metadata.deletion_timestamp)
        if old is not None and not old.metadata.deletion_timestamp and going:
            if old.metadata.uid in self._named:
                self._freed[_address(old)] = Freed(now, holder(old))
            self._check_shown(_address(old))
        if old is not None and lock is None and self._came_back(old):
            # Who comes back under the same name takes the address back, in two steps. If it dies between them, or is
            # deleted, the address is free, and its quarantine was ended by who had the right to.
            self._freed.pop(_address(old), None)
        if old is not None or lock is None:
            return
        address = _address(lock)
        self.given.append((now, holder(lock), address))
        if lock.metadata.name != lock_name(address):
            self._break(f"the lock of {address} is called {lock.metadata.name}")
        rivals = [k for k, o in self._locks.items() if _address(o) == address and k != key and self._lives(o)]
        rivals = rivals if self._lives(lock) else []
        if rivals:
            self._break(f"two locks of {address}: {key} for {holder(lock)} and {', '.join(rivals)}")
        freed = self._freed.get(address)
        for promise in filter(None, (ask(lock) for ask in self.on_lock)):
            self._break(promise)
        if freed and freed.holder != holder(lock) and now - freed.at < self.quarantine:
            since = now - freed.at
            self._break(f"{address} is given to {holder(lock)} {since:.3f} s after {freed.holder} had it")

    def _lives(self, lock: IPLock) -> bool:
        """Whether the attachment of a lock is there: only then can the lock ever be named."""
        attachment = self._attachments.get(holder(lock))
        return attachment is not None and attachment.metadata.uid == lock.metadata.owner_references[0].uid

    def _came_back(self, lock: IPLock) -> bool:
        return self._newest.get(holder(lock)) != lock.metadata.owner_references[0].uid

    def _enter_attachment(self, key: str, attachment: NetworkAttachment | None) -> None:
        _put(self._attachments, key, attachment)
        if attachment is not None:
            self._newest[key] = attachment.metadata.uid
            self._named |= {named.uid for named in attachment.status.locks}
        for address in shown(attachment) if attachment else ():
            self._check_shown(address)

    def _enter_network(self, key: str, network: Network | None) -> None:
        _put(self._networks, key, network)
        if network is None or network.status.vni is None:
            return
        same = [k for k, other in self._networks.items() if other.status.vni == network.status.vni]
        if len(same) > 1:
            self._break(f"VNI {network.status.vni} is shown by {' and '.join(same)}")

    def _check_shown(self, address: Address) -> None:
        """Check that one attachment at most shows an address, and that it is locked for it."""
        showing = [(k, a) for k, a in self._attachments.items() if address in shown(a)]
        if len(showing) > 1:
            self._break(f"{address} is shown by {' and '.join(k for k, _ in showing)}")
        for key, attachment in showing:
            uids = {str(ip_address(named.ip)): named.uid for named in attachment.status.locks}
            lock = self._locks.get(key_of(attachment.metadata.namespace, lock_name(address)))
            if lock is None or lock.metadata.uid != uids.get(address.ip):
                self._break(f"{key} shows {address}, and the lock it names is not there")
            elif lock.metadata.owner_references[0].uid != attachment.metadata.uid:
                self._break(f"{key} shows {address}, which is locked for {holder(lock)}")
            elif lock.metadata.deletion_timestamp:
                self._break(f"{key} shows {address}, whose lock is on its way out")

    def _break(self, promise: str) -> None:
        self.broken.append(f"at {self._loop.time():.3f} s: {promise}")


def _address(lock: IPLock) -> Address:
    return Address(lock.spec.vni, str(ip_address(lock.spec.ip)))


def _put(into: dict[str, T], key: str, value: T | None) -> T | None:
    old = into.get(key)
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
    return old
