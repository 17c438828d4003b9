"""Choosing an address: one the attachment had, if that is to be had, else the next that is free.

Next is after the one chosen before, and from the beginning behind the last: so a freed address is not given again at
once, and of many workers each tries another.

What room there is, who waits for some, and whom to wake when there is more.

Whoever finds its Subnet full waits in line, in the order of age, and is woken when an address is freed, a Subnet is
added, validated or changed, or somebody leaves the line. Who is not in line gets an address only if there are more than
those in line before it will take.
"""

from collections.abc import Callable, Iterable, Iterator

from netloom.control.ipam.ledger import Books
from netloom.control.ipam.locks import Locksmith
from netloom.control.ipam.pools import Bespoken, Claimed, Places
from netloom.control.ipam.telemetry import Teller
from netloom.control.ipam.views import Attachment, Lock
from netloom.control.runtime.cache import Cache, Key
from netloom.errors import Unreachable
from netloom.model.networks import Network
from netloom.plan.addresses.allocation import Slot
from netloom.plan.addresses.blocks import Address, address, lock_name


class Lines:
    """Who waits for an address: in line at each full Subnet, oldest first; or for one certain address."""

    def __init__(self) -> None:
        self._lines: dict[Key, dict[Key, tuple[str, str]]] = {}
        self._places: dict[Key, tuple[Key, ...]] = {}
        self._asking: dict[Key, dict[Key, None]] = {}
        self._asks: dict[Key, tuple[Key, ...]] = {}

    def __len__(self) -> int:
        """Return how many attachments wait."""
        return len(self._places.keys() | self._asks.keys())

    def wait(
        self, attachment: Key, age: tuple[str, str], subnets: Iterable[Key], asked: Iterable[Key]
    ) -> tuple[Key, ...]:
        """Let an attachment wait at these Subnets and for these locks, and nowhere else; return the lines it left."""
        now, before = tuple(dict.fromkeys(subnets)), self._places.get(attachment, ())
        left = tuple(one for one in before if one not in now)
        for one in left:
            line = self._lines[one]
            del line[attachment]
            if not line:
                del self._lines[one]
        for one in now:
            self._lines.setdefault(one, {})[attachment] = age
        _set(self._places, attachment, now)
        for one in self._asks.get(attachment, ()):
            self._asking[one].pop(attachment, None)
            if not self._asking[one]:
                del self._asking[one]
        asks = tuple(asked)
        for one in asks:
            self._asking.setdefault(one, {})[attachment] = None
        _set(self._asks, attachment, asks)
        return left

    def waits(self, attachment: Key) -> bool:
        """Whether an attachment is in any line."""
        return attachment in self._places or attachment in self._asks

    def older(self, subnet: Key, attachment: Key, age: tuple[str, str]) -> int:
        """Return how many wait at a Subnet that came before `age`."""
        line = self._lines.get(subnet)
        return sum(other < age for one, other in line.items() if one != attachment) if line else 0

    def first(self, subnet: Key, most: int) -> list[Key]:
        """Return those who wait at a Subnet, oldest first, and no more than `most`."""
        line = self._lines.get(subnet)
        return sorted(line, key=line.__getitem__)[:most] if line else []

    def asking(self, lock: Key) -> list[Key]:
        """Return who waits for this very address."""
        return list(self._asking.get(lock, ()))

    def any(self, subnet: Key) -> bool:
        """Whether anybody waits at a Subnet."""
        return subnet in self._lines


def _set(table: dict[Key, tuple[Key, ...]], key: Key, value: tuple[Key, ...]) -> None:
    if value:
        table[key] = value
    else:
        table.pop(key, None)


class Room:
    """The books, the places and the lines, together."""

    def __init__(self, *, locks: Cache[Lock], networks: Cache[Network], quarantine: float) -> None:
        self.books = Books(locks, self._freed, quarantine=quarantine)
        self.lines = Lines()
        self.bespoken = Bespoken()
        self.places = Places(self.bespoken)
        self.wake: Callable[[Iterable[Key]], None] = lambda _keys: None
        """Have attachments looked at: the controller's queue."""
        self.used: Callable[[Key], None] = lambda _subnet: None
        """Told of each Subnet whose use changed."""
        self._networks = networks

    def wait(self, key: Key, age: tuple[str, str], subnets: Iterable[Key], asked: Iterable[Key]) -> None:
        """Let an attachment wait for room in these Subnets and for these locks to go, and for nothing else."""
        for subnet in self.lines.wait(key, age, subnets, asked):
            self.wake_line(subnet)

    def leave(self, key: Key) -> None:
        """Let an attachment wait for nothing."""
        self.wait(key, ("", ""), (), ())

    def wake_line(self, subnet: Key, *, but: Key | None = None) -> None:
        """Wake as many as there are free addresses."""
        one = self.places.get(subnet)
        if one is None or not self.lines.any(subnet):
            return
        network = self._networks.get(subnet.namespace, one.network)
        if network is not None and network.status.vni:
            used = self.books.book(subnet.namespace, network.status.vni).of(one.version)
            self.wake(key for key in self.lines.first(subnet, one.free(used)) if key != but)

    def bespeak(self, claimed: Iterable[Claimed]) -> None:
        """Know that somebody speaks for addresses, or has ceased to; whoever waits for one may have it then."""
        for on, one in claimed:
            network = self._networks.get(*on)
            if network is not None and network.status.vni and self.bespoken.owner(on, one) is None:
                self._freed(Key(on.namespace, lock_name(network.status.vni, one)), on.name, one, None)
            else:
                for subnet in self.places.around(*on, one):
                    self.used(subnet)

    def is_free(self, lock: Key, network: Key, one: Address) -> bool:
        """Whether nobody has an address, nor speaks for it."""
        if self.books.lock(*lock) is not None or self.books.resting(*lock) is not None:
            return False
        return self.bespoken.owner(network, one) is None

    def _freed(self, lock: Key, network: str, one: Address, by: Key | None) -> None:
        """Wake who waits for an address that is free now; not who just gave up on it, which tries again in its time."""
        self.wake(key for key in self.lines.asking(lock) if key != by)
        for subnet in self.places.around(lock.namespace, network, one):
            self.used(subnet)
            self.wake_line(subnet, but=by)


class Chooser:
    """Gets addresses for attachments."""

    def __init__(self, books: Books, lines: Lines, smith: Locksmith, teller: Teller) -> None:
        self.smith = smith
        self._books = books
        self._lines = lines
        self._teller = teller
        self._cursors: dict[Key, int] = {}
        self._attempts: dict[Key, tuple[Address, ...]] = {}
        """Addresses whose locks may have been made: the store did not say."""

    def forget(self, key: Key) -> None:
        """Know that an attachment is gone."""
        self._attempts.pop(key, None)

    async def choose(self, view: Attachment, vni: int, slot: Slot) -> Lock | None:
        """Lock one address for a slot: one it had, if that is to be had, else the next that is free."""
        for one in self._preferred(view, vni, slot):
            lock = await self.take(view, vni, one)
            if self.smith.is_mine(view, lock):
                return lock
        while (number := self._pick(view, vni, slot)) is not None:
            lock = await self.take(view, vni, Address(slot.version, number))
            if self.smith.is_mine(view, lock):
                return lock
        return None

    async def take(self, view: Attachment, vni: int, one: Address) -> Lock:
        """Lock an address, or return whose it is; remember it where that is not known."""
        try:
            lock = await self.smith.take(view, vni, one)
        except Unreachable:
            self._attempts[view.key] = tuple({*self._attempts.get(view.key, ()), one})
            raise
        self._attempts.pop(view.key, None)
        if not self.smith.is_mine(view, lock):
            self._teller.retried("Taken")
        return lock

    def _preferred(self, view: Attachment, vni: int, slot: Slot) -> Iterator[Address]:
        """Give addresses of a slot that the attachment had or may have, as far as they are to be had."""
        had = [lock.address for lock in self._books.former(view.key) if lock.vni == vni]
        had += [one for ip, _ in view.locks if view.vni == vni and (one := address(ip)) is not None]
        for one in dict.fromkeys((*self._attempts.get(view.key, ()), *had)):
            if not any(where.holds(one) and where.may_choose(one) for where in slot.pools):
                continue
            name = lock_name(vni, one)
            lock = self._books.lock(view.metadata.namespace, name) or self._books.resting(view.metadata.namespace, name)
            if lock is None or self.smith.may_have(view, lock):
                yield one

    def _pick(self, view: Attachment, vni: int, slot: Slot) -> int | None:
        """Return a free address that nobody before us in line will take."""
        used = self._books.book(view.metadata.namespace, vni).of(slot.version)
        for one in slot.pools:
            subnet = Key(view.metadata.namespace, one.name)
            if self._lines.any(subnet):
                free = one.free(used)
                if free == 0 or free <= self._lines.older(subnet, view.key, view.age):
                    continue
            number = one.choose(used, self._cursors.get(subnet, 0))
            if number is not None:
                self._cursors[subnet] = number + 1
                return number
        return None
