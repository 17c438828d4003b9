"""The Subnets as IPAM sees them: their addresses, worked out once for each version of a Subnet."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from netloom.control.ipam.reserved import Bespoken
from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Change, Key
from netloom.model.networks import Subnet
from netloom.plan.addresses.blocks import Address, Place, place


class Places:
    """All Subnets, by key and by Network."""

    def __init__(self, bespoken: Bespoken) -> None:
        self._bespoken = bespoken
        self._places: dict[Key, Place] = {}
        self._on: dict[Key, dict[str, Place]] = {}

    def get(self, subnet: Key) -> Place | None:
        """Return a Subnet's addresses."""
        return self._places.get(subnet)

    def on(self, namespace: str, network: str) -> Mapping[str, Place]:
        """Return the Subnets of a Network, by name."""
        return self._on.get(Key(namespace, network), {})

    def of(self, view: Attachment) -> Mapping[str, Place]:
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

    def _place(self, subnet: Subnet | None) -> Place | None:
        if subnet is None:
            return None
        found = _place(subnet)
        network = Key(subnet.metadata.namespace, found.network)
        return replace(found, bespoken=self._bespoken.numbers(network, found.version)) if found.version else found


def _place(subnet: Subnet) -> Place:
    """Return a Subnet's addresses; one that is malformed has none, and will not be validated."""
    spec = subnet.spec
    try:
        return place(
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
        return Place(subnet.metadata.name, spec.network, 0, 0, -1, 0, (), None, (), False, errors, spec.cidr)
