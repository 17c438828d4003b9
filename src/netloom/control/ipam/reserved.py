"""What is spoken for without a lock, by Network: kept up to date by what changes, so that choosing only looks it up.

Where a LoadBalancer's VIPs are answered for follows from its Routers as well: a Router that changes has those of its
LoadBalancers looked at again.
"""

from collections.abc import Iterable, Iterator

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Change, Key
from netloom.model.networks import Router
from netloom.model.policy import LoadBalancer
from netloom.plan.addresses.blocks import Address, AddressSet
from netloom.plan.addresses.reserved import Claim, of_attachment, of_balancer, of_router

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

    def _claim(self, source: Source, claims: Iterable[Claim]) -> list[Claimed]:
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
