"""How many addresses of a Subnet are used, in its status: counted at once, written now and then.

While addresses come and go a Subnet's status is written about once a second, and once more when it is quiet: filling a
/20 writes it a few times, not four thousand. Addresses in quarantine count as used, because nobody can have them.
"""

from collections.abc import Callable, Iterable

import msgspec

from netloom.control.ipam import capacity
from netloom.control.ipam.ledger import Books
from netloom.control.runtime.cache import Cache, Key
from netloom.control.runtime.client import Client
from netloom.errors import NotFound
from netloom.model.networks import Network, Subnet
from netloom.plan.addresses.blocks import Place

EVERY = 1.0


class UseKeeper:
    """Reconciles the use that stands in Subnets' statuses.  The keys are Subnets' keys."""

    def __init__(
        self,
        client: Client,
        *,
        subnets: Cache[Subnet],
        networks: Cache[Network],
        books: Books,
        place: Callable[[Key], Place | None],
    ) -> None:
        self._client = client
        self._subnets = subnets
        self._networks = networks
        self._books = books
        self._place = place

    def everything(self) -> Iterable[Key]:
        """Return all keys."""
        return [key for key, _ in self._subnets.items()]

    async def reconcile(self, key: Key) -> float | None:
        """Write how many addresses of a Subnet are used, if that is news."""
        subnet, place = self._subnets.get(*key), self._place(key)
        if subnet is None or place is None or subnet.metadata.deletion_timestamp or not subnet.status.validated:
            return None
        network = self._networks.get(key.namespace, subnet.spec.network)
        vni = network.status.vni if network is not None else None
        used = place.used(self._books.book(key.namespace, vni).of(place.version)) if vni else 0
        if subnet.status.used != used:
            status = msgspec.structs.replace(subnet.status, used=min(capacity.MOST, used))
            try:
                await self._client.update_status(subnet, status)
            except NotFound:
                return None  # The informer will tell.
        return None
