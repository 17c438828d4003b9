"""The pools of Subnets: which addresses each one has, which of them other objects reserve, and how many are used.

`SubnetPools` and `ReservedAddresses` follow the informers, so that choosing an address only looks them up.

`UsageReconciler` writes `status.used` of Subnets. While addresses come and go it writes about once a second, and once
more when that ends: filling a /20 causes a few writes, not four thousand. Addresses in quarantine count as used,
because no attachment can get them.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from netloom.control.ipam.ledger import AddressLedger
from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.errors import NotFound
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import LoadBalancer
from netloom.plan.addresses.blocks import MOST, Address, AddressSet, Pool, pool
from netloom.plan.addresses.reserved import Reservation, of_attachment, of_balancer, of_router

EVERY = 1.0
"""How long a change of a Subnet's usage waits for others before it is written, in seconds."""
Source = tuple[str, Key]
"""The object that reserves: its kind and key."""
NetworkAddress = tuple[Key, Address]
"""An address in a Network."""


class ReservedAddresses:
    """The addresses that objects reserve without a lock, by object and by address.

    The Networks in which a LoadBalancer reserves its VIPs depend on its Routers: when a Router changes, those of its
    LoadBalancers are computed again.
    """

    def __init__(self) -> None:
        self._by_source: dict[Source, dict[NetworkAddress, str]] = {}
        self._by_address: dict[NetworkAddress, dict[Source, str]] = {}
        self._numbers: dict[tuple[Key, int], AddressSet] = {}
        self._routers: dict[Key, Router] = {}
        self._balancers: dict[Key, LoadBalancer] = {}
        self._balancers_of: dict[Key, dict[Key, None]] = {}
        """The LoadBalancers that name a Router."""

    def numbers(self, network: Key, version: int) -> AddressSet:
        """Return the reserved addresses of a Network: always the same set, which later changes update."""
        return self._numbers.setdefault((network, version), AddressSet())

    def owner(self, network: Key, one: Address) -> str | None:
        """Return who has an address, for messages; None if an attachment may request it."""
        return min(filter(None, self._by_address.get((network, one), {}).values()), default=None)

    # Changes. Each returns the addresses that are reserved, or not reserved any more, because of it.

    def attachment_changed(self, change: Change[Attachment]) -> list[NetworkAddress]:
        """Update what an attachment's allowed addresses reserve."""
        old, new = change.old, change.new
        if not (old is not None and old.allowed) and not (new is not None and new.allowed):
            return []  # Most attachments have none.
        reservations = of_attachment(new.network, new.allowed) if new is not None else ()
        return self._replace(("NetworkAttachment", change.key), reservations)

    def router_changed(self, change: Change[Router]) -> list[NetworkAddress]:
        """Update what a Router reserves, and the LoadBalancers that name it."""
        key, new = change.key, change.new
        if new is None:
            self._routers.pop(key, None)
        else:
            self._routers[key] = new
        found = self._replace(("Router", key), of_router(new) if new is not None else ())
        for balancer in self._balancers_of.get(key, ()):
            found += self._update_balancer(balancer)
        return found

    def balancer_changed(self, change: Change[LoadBalancer]) -> list[NetworkAddress]:
        """Update what a LoadBalancer reserves."""
        key, old, new = change.key, self._balancers.pop(change.key, None), change.new
        for router in _routers(key, old):
            self._balancers_of[router].pop(key, None)
            if not self._balancers_of[router]:
                del self._balancers_of[router]
        if new is not None:
            self._balancers[key] = new
        for router in _routers(key, new):
            self._balancers_of.setdefault(router, {})[key] = None
        return self._update_balancer(key)

    def _update_balancer(self, key: Key) -> list[NetworkAddress]:
        found = self._balancers.get(key)

        def router(name: str) -> Router | None:
            return self._routers.get(Key(key.namespace, name))

        return self._replace(("LoadBalancer", key), of_balancer(found, router) if found is not None else ())

    def _replace(self, source: Source, reservations: Iterable[Reservation]) -> list[NetworkAddress]:
        """Replace all reservations of an object; return the addresses that differ."""
        namespace = source[1].namespace
        before = self._by_source.pop(source, {})
        now = {(Key(namespace, one.network), one.address): one.by for one in reservations}
        if now:
            self._by_source[source] = now
        for reserved, by in now.items():
            self._by_address.setdefault(reserved, {})[source] = by
            network, one = reserved
            self.numbers(network, one.version).add(one.number)
        for reserved in before.keys() - now.keys():
            self._remove(source, reserved)
        return sorted(before.keys() ^ now.keys())

    def _remove(self, source: Source, reserved: NetworkAddress) -> None:
        sources = self._by_address[reserved]
        del sources[source]
        if not sources:
            del self._by_address[reserved]
            network, one = reserved
            self.numbers(network, one.version).discard(one.number)


def _routers(key: Key, balancer: LoadBalancer | None) -> Iterator[Key]:
    for name in balancer.spec.routers if balancer is not None else ():
        yield Key(key.namespace, name)


class SubnetPools:
    """The pools of all Subnets, by key and by Network; computed once for each version of a Subnet."""

    def __init__(self, reserved: ReservedAddresses) -> None:
        self._reserved = reserved
        self._pools: dict[Key, Pool] = {}
        self._of_network: dict[Key, dict[str, Pool]] = {}

    def get(self, subnet: Key) -> Pool | None:
        """Return a Subnet's pool."""
        return self._pools.get(subnet)

    def of_network(self, namespace: str, network: str) -> Mapping[str, Pool]:
        """Return the pools of a Network, by the names of their Subnets."""
        return self._of_network.get(Key(namespace, network), {})

    def of_attachment(self, view: Attachment) -> Mapping[str, Pool]:
        """Return the pools of the Subnets that an attachment names, as far as they exist, or those of its Network."""
        namespace = view.metadata.namespace
        if not view.subnets:
            return self.of_network(namespace, view.network)
        found = {name: self._pools.get(Key(namespace, name)) for name in view.subnets}
        return {name: one for name, one in found.items() if one is not None}

    def subnets_with(self, namespace: str, network: str, one: Address) -> Iterator[Key]:
        """Return the Subnets of a Network that contain an address."""
        for found in self.of_network(namespace, network).values():
            if found.holds(one):
                yield Key(namespace, found.name)

    def subnet_changed(self, change: Change[Subnet]) -> set[str]:
        """Update a Subnet's pool; return the Networks whose pools changed."""
        before, now = self._pools.get(change.key), None if change.new is None else _pool(change.new)
        if now is not None and now.version:
            reserved = self._reserved.numbers(Key(change.key.namespace, now.network), now.version)
            now = replace(now, reserved=reserved)
        if before == now:
            return set()
        if before is not None:
            network = Key(change.key.namespace, before.network)
            del self._pools[change.key], self._of_network[network][before.name]
            if not self._of_network[network]:
                del self._of_network[network]
        if now is not None:
            self._pools[change.key] = now
            self._of_network.setdefault(Key(change.key.namespace, now.network), {})[now.name] = now
        return {one.network for one in (before, now) if one is not None}


def _pool(subnet: Subnet) -> Pool:
    """Return a Subnet's pool without reservations; that of a malformed Subnet is empty, and never validated."""
    spec, status = subnet.spec, subnet.status
    try:
        return pool(
            subnet.metadata.name,
            spec.network,
            spec.cidr,
            gateway=spec.gateway,
            exclude=spec.exclude,
            validated=status.validated,
            errors=() if status.validated else status.errors,
        )
    except ValueError:
        return Pool(
            name=subnet.metadata.name,
            network=spec.network,
            version=0,
            first=0,
            last=-1,
            prefix=0,
            ranges=(),
            gateway=None,
            excluded=(),
            validated=False,
            errors=status.errors,
            cidr=spec.cidr,
        )


class UsageReconciler:
    """Reconciles `status.used` of Subnets.  The keys are those of Subnets."""

    def __init__(
        self,
        client: Client,
        *,
        subnets: Cache[Subnet],
        networks: Cache[Network],
        ledger: AddressLedger,
        pools: SubnetPools,
    ) -> None:
        self._client = client
        self._subnets = subnets
        self._networks = networks
        self._ledger = ledger
        self._pools = pools

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all Subnets."""
        return [key for key, _ in self._subnets.items()]

    async def reconcile(self, key: Key) -> float | None:
        """Write how many addresses of a Subnet are used, if that has changed."""
        subnet, found = self._subnets.get(*key), self._pools.get(key)
        if subnet is None or found is None or subnet.metadata.deletion_timestamp or not subnet.status.validated:
            return None
        network = self._networks.get(key.namespace, subnet.spec.network)
        vni = network.status.vni if network is not None else None
        used = found.used(self._ledger.used(key.namespace, vni, found.version)) if vni else 0
        if subnet.status.used != used:
            status = msgspec.structs.replace(subnet.status, used=min(MOST, used))
            try:
                await self._client.update_status(subnet, status)
            except NotFound:
                return None  # The informer will report that it is gone.
        return None
