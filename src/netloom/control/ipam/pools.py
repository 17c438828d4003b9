"""What is spoken for without a lock, by Network: kept up to date by what changes, so that choosing only looks it up.

Where a LoadBalancer's VIPs are answered for follows from its Routers as well: a Router that changes has those of its
LoadBalancers looked at again.

The Subnets as IPAM sees them: their addresses, worked out once for each version of a Subnet.

How many addresses of a Subnet are used, in its status: counted at once, written now and then.

While addresses come and go a Subnet's status is written about once a second, and once more when it is quiet: filling a
/20 writes it a few times, not four thousand. Addresses in quarantine count as used, because nobody can have them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from netloom.control.ipam.ledger import Books
from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.errors import NotFound
from netloom.model.networks import Network, Router, Subnet
from netloom.model.policy import LoadBalancer
from netloom.plan.addresses.blocks import MOST, Address, AddressSet, Pool, pool
from netloom.plan.addresses.reserved import Reservation, of_attachment, of_balancer, of_router

Source = tuple[str, Key]
"""Who claims: a kind and which of it."""
Claimed = tuple[Key, Address]
"""An address in a Network."""


class Bespoken:
    """All claims, by who makes them and by address."""

    def __init__(self) -> None:
        self._claims: dict[Source, dict[Claimed, str]] = {}
        self._by: dict[Claimed, dict[Source, str]] = {}
        self._numbers: dict[tuple[Key, int], AddressSet] = {}
        self._routers: dict[Key, Router] = {}
        self._balancers: dict[Key, LoadBalancer] = {}
        self._balanced: dict[Key, dict[Key, None]] = {}
        """The LoadBalancers that name a Router."""

    def numbers(self, network: Key, version: int) -> AddressSet:
        """Return the addresses of a Network that are spoken for: always the same set, which goes on changing."""
        return self._numbers.setdefault((network, version), AddressSet())

    def owner(self, network: Key, one: Address) -> str | None:
        """Return whose an address is, for people; None where it may be asked for."""
        return min(filter(None, self._by.get((network, one), {}).values()), default=None)

    # What changed. Each returns the addresses that somebody claims or unclaims by it.

    def attachment_changed(self, change: Change[Attachment]) -> list[Claimed]:
        """Follow an attachment's allowed addresses."""
        old, new = change.old, change.new
        if not (old is not None and old.allowed) and not (new is not None and new.allowed):
            return []  # Nearly all.
        claims = of_attachment(new.network, new.allowed) if new is not None else ()
        return self._claim(("NetworkAttachment", change.key), claims)

    def router_changed(self, change: Change[Router]) -> list[Claimed]:
        """Follow a Router, and where the VIPs it serves are claimed."""
        key, new = change.key, change.new
        if new is None:
            self._routers.pop(key, None)
        else:
            self._routers[key] = new
        found = self._claim(("Router", key), of_router(new) if new is not None else ())
        for balancer in self._balanced.get(key, ()):
            found += self._balance(balancer)
        return found

    def balancer_changed(self, change: Change[LoadBalancer]) -> list[Claimed]:
        """Follow a LoadBalancer."""
        key, old, new = change.key, self._balancers.pop(change.key, None), change.new
        for router in _routers(key, old):
            self._balanced[router].pop(key, None)
            if not self._balanced[router]:
                del self._balanced[router]
        if new is not None:
            self._balancers[key] = new
        for router in _routers(key, new):
            self._balanced.setdefault(router, {})[key] = None
        return self._balance(key)

    def _balance(self, key: Key) -> list[Claimed]:
        found = self._balancers.get(key)

        def router(name: str) -> Router | None:
            return self._routers.get(Key(key.namespace, name))

        return self._claim(("LoadBalancer", key), of_balancer(found, router) if found is not None else ())

    def _claim(self, source: Source, claims: Iterable[Reservation]) -> list[Claimed]:
        """Let somebody claim these addresses and no others."""
        namespace = source[1].namespace
        before = self._claims.pop(source, {})
        now = {(Key(namespace, one.network), one.address): one.by for one in claims}
        if now:
            self._claims[source] = now
        for claimed, by in now.items():
            self._by.setdefault(claimed, {})[source] = by
            network, one = claimed
            self.numbers(network, one.version).add(one.number)
        for claimed in before.keys() - now.keys():
            self._unclaim(source, claimed)
        return sorted(before.keys() ^ now.keys())

    def _unclaim(self, source: Source, claimed: Claimed) -> None:
        claimants = self._by[claimed]
        del claimants[source]
        if not claimants:
            del self._by[claimed]
            network, one = claimed
            self.numbers(network, one.version).discard(one.number)


def _routers(key: Key, balancer: LoadBalancer | None) -> Iterator[Key]:
    for name in balancer.spec.routers if balancer is not None else ():
        yield Key(key.namespace, name)


class Places:
    """All Subnets, by key and by Network."""

    def __init__(self, bespoken: Bespoken) -> None:
        self._bespoken = bespoken
        self._places: dict[Key, Pool] = {}
        self._on: dict[Key, dict[str, Pool]] = {}

    def get(self, subnet: Key) -> Pool | None:
        """Return a Subnet's addresses."""
        return self._places.get(subnet)

    def on(self, namespace: str, network: str) -> Mapping[str, Pool]:
        """Return the Subnets of a Network, by name."""
        return self._on.get(Key(namespace, network), {})

    def of(self, view: Attachment) -> Mapping[str, Pool]:
        """Return the Subnets an attachment names, as far as there are such, or those of its Network."""
        namespace = view.metadata.namespace
        if not view.subnets:
            return self.on(namespace, view.network)
        found = {name: self._places.get(Key(namespace, name)) for name in view.subnets}
        return {name: one for name, one in found.items() if one is not None}

    def around(self, namespace: str, network: str, one: Address) -> Iterator[Key]:
        """Give the Subnets of a Network that an address is in."""
        for where in self.on(namespace, network).values():
            if where.holds(one):
                yield Key(namespace, where.name)

    def changed(self, change: Change[Subnet]) -> set[str]:
        """Follow the informer; return the Networks whose addresses changed."""
        before, now = self._places.get(change.key), self._place(change.new)
        if before == now:
            return set()
        if before is not None:
            network = Key(change.key.namespace, before.network)
            del self._places[change.key], self._on[network][before.name]
            if not self._on[network]:
                del self._on[network]
        if now is not None:
            self._places[change.key] = now
            self._on.setdefault(Key(change.key.namespace, now.network), {})[now.name] = now
        return {one.network for one in (before, now) if one is not None}

    def _place(self, subnet: Subnet | None) -> Pool | None:
        if subnet is None:
            return None
        found = _place(subnet)
        network = Key(subnet.metadata.namespace, found.network)
        return replace(found, reserved=self._bespoken.numbers(network, found.version)) if found.version else found


def _place(subnet: Subnet) -> Pool:
    """Return a Subnet's addresses; one that is malformed has none, and will not be validated."""
    spec = subnet.spec
    try:
        return pool(
            subnet.metadata.name,
            spec.network,
            spec.cidr,
            gateway=spec.gateway,
            exclude=spec.exclude,
            validated=subnet.status.validated,
            errors=() if subnet.status.validated else subnet.status.errors,
        )
    except ValueError:
        errors = subnet.status.errors
        return Pool(subnet.metadata.name, spec.network, 0, 0, -1, 0, (), None, (), False, errors, spec.cidr)


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
        place: Callable[[Key], Pool | None],
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
            status = msgspec.structs.replace(subnet.status, used=min(MOST, used))
            try:
                await self._client.update_status(subnet, status)
            except NotFound:
                return None  # The informer will tell.
        return None
