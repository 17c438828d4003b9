"""A forecast of what controllers will allocate to new resources: VNIs, validity, addresses.  Pure.

A Network that does not exist yet has no VNI, its Subnets are not validated, its attachments have no addresses; so
nothing would be planned for them. The forecast fills these in. A value that the spec requests is the real one. For a
value that a controller will choose there is a placeholder: `placeholders` lists their texts, and what to show instead.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from netloom.model.conditions import ADDRESSED
from netloom.model.document import Condition, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import LoadBalancer
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import Decision, Held, Request, Slot, decide
from netloom.plan.addresses.blocks import Address, AddressSet, Pool, overlap, pool
from netloom.plan.addresses.reserved import Reservation, of_balancer, of_router
from netloom.plan.problem import Unit

LAST_VNI = 0xFFFFFF
LAST_MAC = 0x0200FFFFFFFF
MOST = 65536
"""How many addresses of a block to try."""
Key = tuple[str, str]


class Forecast(Struct):
    """Resources as they will be, once controllers have processed them."""

    resources: list[Resource] = []
    placeholders: dict[str, str] = {}
    """The text of each placeholder, and what to show instead."""
    notes: dict[Unit, tuple[str, ...]] = {}
    """What resources will not get, and why."""
    chosen: dict[tuple[Unit, str], int] = {}
    """The placeholders, so that a later forecast uses the same."""


def forecast(resources: Iterable[Resource], earlier: Forecast | None = None) -> Forecast:
    """Return resources as they will be once controllers have processed them.

    Placeholders of an `earlier` forecast are used again, so that the two can be compared.
    """
    return _Forecaster(list(resources), earlier or Forecast()).forecast()


class _Forecaster:
    def __init__(self, resources: list[Resource], earlier: Forecast) -> None:
        self._resources = resources
        self._found = Forecast()
        self._earlier = earlier.chosen
        self._literal = b" ".join(map(encode, (one for one in resources if not isinstance(one, NetworkAttachment))))
        """A text that a resource contains cannot be a placeholder."""
        self._networks: dict[Key, Network] = {}
        self._subnets: dict[Key, Subnet] = {}
        self._places: dict[Key, dict[str, Pool]] = {}
        self._taken: dict[int, dict[int, AddressSet]] = {}
        """By VNI and family."""
        self._holders: dict[tuple[int, Address], str] = {}
        self._reserved = _reserved(resources)
        self._count = 0
        self._kept = set(earlier.chosen.values())
        self._from: dict[tuple[int, str, int], int] = {}
        """Where to continue, in a range of a Subnet, the search for a placeholder: those above are used."""

    def forecast(self) -> Forecast:
        for one in sorted(self._resources, key=_rank):
            match one:
                case Network():
                    one = self._network(one)
                    self._networks[_key(one)] = one
                case Subnet():
                    one = self._subnet(one)
                    self._subnets[_key(one)] = one
                    siblings = self._places.setdefault((one.metadata.namespace, one.spec.network), {})
                    siblings[one.metadata.name] = _place(one)
                case NetworkAttachment():
                    continue
            self._found.resources.append(one)
        attachments = sorted((one for one in self._resources if isinstance(one, NetworkAttachment)), key=_rank)
        for attachment in attachments:
            for lock in attachment.status.locks:
                self._take(attachment.status.vni or 0, _address(lock.ip), _name(attachment))
        # Attachments that request addresses come first.
        for attachment in sorted(attachments, key=lambda one: not one.spec.ips):
            self._found.resources.append(self._attachment(attachment))
        return self._found

    def _network(self, one: Network) -> Network:
        if one.status.vni is not None:
            return one
        vni = one.spec.vni
        if vni is None:
            vni = LAST_VNI - self._number(one, "vni")
            self._found.placeholders[str(vni)] = "(a VNI)"
        return replace(one, status=replace(one.status, vni=vni))

    def _subnet(self, one: Subnet) -> Subnet:
        if one.status.validated or one.status.errors:
            return one
        namespace, network = one.metadata.namespace, one.spec.network
        if (namespace, network) not in self._networks:
            self._say(one, f"Network {network} does not exist")
            return one
        mine = addresses.block(one.spec.cidr)
        for other in self._subnets.values():
            if (other.metadata.namespace, other.spec.network) != (namespace, network):
                continue
            if overlap(mine, addresses.block(other.spec.cidr)):
                self._say(one, f"it will not be valid: it overlaps {other.metadata.name} ({other.spec.cidr})")
                return one
        return replace(one, status=replace(one.status, validated=True))

    def _take(self, vni: int, one: Address, who: str) -> None:
        self._holders[vni, one] = who
        self._used(vni, one.version).add(one.number)

    def _used(self, vni: int, version: int) -> AddressSet:
        return self._taken.setdefault(vni, {}).setdefault(version, AddressSet())

    def _attachment(self, one: NetworkAttachment) -> NetworkAttachment:
        key = (one.metadata.namespace, one.spec.network)
        network = self._networks.get(key)
        vni = None if network is None else network.status.vni
        decision = decide(
            Request(*key, one.spec.subnets, one.spec.ips, tuple(lock.uid for lock in one.status.locks)),
            vni,
            self._around(one),
            [Held(_address(lock.ip), one.status.vni or 0, lock.uid) for lock in one.status.locks],
            lambda asked: self._holder(vni or 0, asked, _name(one)) or self._reserved.get((*key, asked)),
            network=network is not None,
        )
        if decision.refusals:
            self._say(one, *(refusal.message for refusal in decision.refusals))
            return one
        if vni is None or not (decision.take or decision.choose or decision.release):
            return one
        return self._given(one, vni, decision)

    def _holder(self, vni: int, asked: Address, who: str) -> str | None:
        holder = self._holders.get((vni, asked))
        return None if holder in (None, who) else f"taken by {holder}"

    def _around(self, one: NetworkAttachment) -> Mapping[str, Pool]:
        namespace = one.metadata.namespace
        if not one.spec.subnets:
            return self._places.get((namespace, one.spec.network), {})
        named = ((name, self._subnets.get((namespace, name))) for name in one.spec.subnets)
        return {name: _place(subnet) for name, subnet in named if subnet is not None}

    def _given(self, one: NetworkAttachment, vni: int, decision: Decision) -> NetworkAttachment:
        """Return an attachment with the addresses that it keeps, requests, and will be allocated."""
        around = list(self._around(one).values())
        have = [held.address for held in decision.keep] + decision.take
        for address in decision.take:
            self._take(vni, address, _name(one))
        known = bool(have) or not decision.choose
        for slot in decision.choose:
            chosen = self._chosen(one, vni, slot)
            if chosen is None:
                return one
            have.append(chosen)
        ips = tuple(f"{address}/{_length(around, address)}" for address in have)
        mac = one.spec.mac or one.status.mac or self._mac(one, vni, have[0] if known else None)
        conditions = tuple(found for found in one.status.conditions if found.type != ADDRESSED)
        addressed = Condition(type=ADDRESSED, status="True", observed_generation=one.metadata.generation)
        status = replace(one.status, ips=ips, mac=mac, vni=vni, conditions=(*conditions, addressed))
        return replace(one, status=status)

    def _chosen(self, one: NetworkAttachment, vni: int, slot: Slot) -> Address | None:
        """Return a placeholder for an address that will be chosen; None: no address is free."""
        for where in slot.pools:
            number = self._free(one, vni, where)
            if number is None:
                continue
            found = Address(where.version, number)
            self._take(vni, found, _name(one))
            self._found.chosen[_unit(one), where.name] = number
            self._found.placeholders[str(found)] = f"(an address of {where.name})"
            return found
        listed = ", ".join(where.name for where in slot.pools)
        self._say(one, f"no address is free in Subnet {listed}: it will wait")
        return None

    def _free(self, one: NetworkAttachment, vni: int, where: Pool) -> int | None:
        """Return a free address that no resource mentions: the earlier placeholder, or one at the end of the block."""
        used = self._used(vni, where.version)
        earlier = self._earlier.get((_unit(one), where.name))
        if earlier is not None and earlier not in used:
            return earlier
        for low, high in reversed(where.ranges):
            place = (vni, where.name, high)
            for number in range(self._from.get(place, high), max(low, high - MOST) - 1, -1):
                literal = str(Address(where.version, number)).encode() in self._literal
                if number not in used and number not in self._kept and not literal:
                    self._from[place] = number - 1
                    return number
            self._from[place] = low - 1
        return None

    def _mac(self, one: NetworkAttachment, vni: int, first: Address | None) -> str:
        """Return the MAC of an address, or a placeholder where it cannot be known."""
        if first is not None and str(vni) not in self._found.placeholders:
            return next(macs.candidates(vni, first))
        text = (LAST_MAC - self._number(one, "mac")).to_bytes(6, "big").hex(":")
        device = names.interface(text)
        self._found.placeholders |= {text: "(a MAC)", device: "(a device)", "ni" + device[2:]: "(a device)"}
        return text

    def _number(self, one: Resource, what: str) -> int:
        """Return the number of a placeholder, the same as before."""
        number = self._earlier.get((_unit(one), what))
        if number is None:
            self._count += 1
            number = self._count + len(self._earlier)
        self._found.chosen[_unit(one), what] = number
        return number

    def _say(self, one: Resource, *words: str) -> None:
        self._found.notes[_unit(one)] = words


def _reserved(resources: Iterable[Resource]) -> dict[tuple[str, str, Address], str]:
    """Return the holders of reserved addresses, which have no lock, by namespace, Network and address."""
    routers: dict[str, dict[str, Router]] = {}
    for one in resources:
        if isinstance(one, Router):
            routers.setdefault(one.metadata.namespace, {})[one.metadata.name] = one
    found: dict[tuple[str, str, Address], str] = {}
    for one in resources:
        namespace = one.metadata.namespace
        claims: Iterable[Reservation] = ()
        if isinstance(one, Router):
            claims = of_router(one)
        elif isinstance(one, LoadBalancer):
            claims = of_balancer(one, routers.get(namespace, {}).get)
        found |= {(namespace, claim.network, claim.address): claim.by for claim in claims}
    return found


def _key(one: Resource) -> Key:
    return one.metadata.namespace, one.metadata.name


def _unit(one: Resource) -> Unit:
    return Unit(one.kind, *_key(one))


def _name(one: Resource) -> str:
    return f"{one.metadata.namespace}/{one.metadata.name}"


def _rank(one: Resource) -> tuple[int, bool, str, str]:
    """Return the sort key: Networks first, then Subnets, validated ones before others."""
    order = 0 if isinstance(one, Network) else 1 if isinstance(one, Subnet) else 2
    return (order, isinstance(one, Subnet) and not one.status.validated, *_key(one))


def _address(written: str) -> Address:
    found = addresses.address(written)
    return Address(found.version, int(found))


def _place(subnet: Subnet) -> Pool:
    spec, status = subnet.spec, subnet.status
    return pool(
        subnet.metadata.name,
        spec.network,
        spec.cidr,
        gateway=spec.gateway,
        exclude=spec.exclude,
        validated=status.validated,
        errors=() if status.validated else status.errors or ("it is not validated yet",),
    )


def _length(places: Iterable[Pool], one: Address) -> int:
    return next((where.prefix for where in places if where.holds(one)), 32 if one.version == 4 else 128)
