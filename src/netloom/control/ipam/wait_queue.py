"""What room there is, who waits for some, and whom to wake when there is more.

Whoever finds its Subnet full waits in line, in the order of age, and is woken when an address is freed, a Subnet is
added, validated or changed, or somebody leaves the line. Who is not in line gets an address only if there are more than
those in line before it will take.
"""

from collections.abc import Iterable

from netloom.control.ipam.ledger import Books, Lines
from netloom.control.ipam.pools import Places
from netloom.control.ipam.reserved import Bespoken, Claimed
from netloom.control.ipam.views import Lock
from netloom.control.runtime.cache import Cache, Key
from netloom.model.networks import Network
from netloom.plan.addresses.blocks import Address, lock_name
from netloom.signals import Signal


class Room:
    """The books, the places and the lines, together."""

    def __init__(self, *, locks: Cache[Lock], networks: Cache[Network], quarantine: float) -> None:
        self.books = Books(locks, self._freed, quarantine=quarantine)
        self.lines = Lines()
        self.bespoken = Bespoken()
        self.places = Places(self.bespoken)
        self.wake: Signal[[Iterable[Key]]] = Signal()
        """Have attachments looked at: the controller's queue."""
        self.used: Signal[[Key]] = Signal()
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
