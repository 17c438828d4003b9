"""The addresses at which Services of type LoadBalancer are reached from outside: who has which.  Pure.

    setting kubeLoadBalancerPools ──► pools ──────────────┐
    spec of a Service ──► request: families, wanted ones ─┴─► ServiceAddresses.allocate ──► status.loadBalancer.ingress

The statuses of the Services are the only record. `ServiceAddresses` follows them, and so knows after a restart what is
in use, once all Services were read. What it allocates counts as in use at once, before the status is written.

An address that two Services have all the same (somebody wrote it, or a write of a former leader was late) stays with
the one whose status has it; if both have it, with the older one. A status with an address of no pool is another
program's: it is never changed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from netloom.model.kinds.kubernetes import Service
from netloom.plan.addresses.blocks import Address, AddressSet, address
from netloom.plan.kube import names
from netloom.plan.kube.services.load_balancers import cluster_ips
from netloom.plan.kube.services.pools import Pool
from netloom.plan.problem import Problem


class Holder(NamedTuple):
    """A Service: its namespace and its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Request(NamedTuple):
    """What a Service asks for."""

    families: tuple[int, ...]
    wanted: dict[int, Address]
    """By family; of another family any address will do."""
    required: frozenset[int]
    """The families in which having no address is a problem even where there is no pool."""
    problems: tuple[Problem, ...] = ()
    """Why it is not clear what is wanted: the Service keeps what it has."""


class Allocation(NamedTuple):
    """The addresses that a Service shall have, and why it has no others."""

    ips: tuple[str, ...] | None = ()
    """None: those that it has, which are not ours to change."""
    problems: tuple[Problem, ...] = ()


_AS_IT_IS = Allocation(None)


def request(service: Service) -> Request | None:
    """Return what a Service asks for; None: nothing, or of another program."""
    spec = service.spec
    if spec.type != "LoadBalancer" or spec.load_balancer_class not in ("", names.LOAD_BALANCER_CLASS):
        return None
    families = tuple(reversed(cluster_ips(service)))  # In the Service's order.
    if not families:
        return None
    wanted: dict[int, Address] = {}
    problems: list[Problem] = []
    annotated = service.metadata.annotations.get(names.LOAD_BALANCER_IPS, "")
    text = annotated or spec.load_balancer_ip
    for one in text.split(",", len(families)) if text else ():
        found = address(one.strip())
        if found is None or found.version not in families or found.version in wanted:
            field = f"annotation {names.LOAD_BALANCER_IPS}" if annotated else "spec.loadBalancerIP"
            said = f"{field}: {one.strip()!r:.64} cannot be had: name one address of each of the Service's families"
            problems.append(Problem("AddressMalformed", said))
        else:
            wanted[found.version] = found
    if problems:
        wanted = {}
    required = families[:1] if spec.ip_family_policy == "PreferDualStack" else families
    return Request(families, wanted, frozenset((*required, *wanted)), tuple(problems))


class ServiceAddresses:
    """Who has which address of the pools."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        # Those of one namespace come first: no other can use their addresses.
        self._pools = sorted(pools, key=lambda one: not one.namespace)
        self._used = {4: AddressSet(), 6: AddressSet()}
        self._holders: dict[Address, set[Holder]] = {}
        self._observed: dict[Holder, tuple[Address, ...]] = {}
        """What the statuses say."""
        self._allocated: dict[Holder, dict[int, Address]] = {}
        """What was allocated here, by family."""
        self._created: dict[Holder, str] = {}
        self._waiting: dict[Holder, None] = {}
        """Who has less than was asked for."""

    def __bool__(self) -> bool:
        """Whether there are pools."""
        return bool(self._pools)

    def put(self, holder: Holder, service: Service | None) -> set[Holder]:
        """Observe a Service, or with None that it is gone; return those that may get other addresses by this."""
        before = self._claims(holder)
        old = self._observed.pop(holder, ())
        seen = () if service is None else tuple(one for one in _ingress(service) if one and self._pool_of(one))
        if seen:
            self._observed[holder] = seen
        if service is None or request(service) is None:
            self._allocated.pop(holder, None)
            self._waiting.pop(holder, None)
        elif seen != old and holder in self._allocated and set(seen) != set(self._allocated[holder].values()):
            del self._allocated[holder]  # Another has decided meanwhile: a new leader, or an administrator.
        if service is None:
            self._created.pop(holder, None)
        else:
            self._created[holder] = str(service.metadata.creation_timestamp or "")
        return self._claimed(holder, before)

    def allocate(self, holder: Holder, service: Service) -> Allocation:
        """Return the addresses that a Service shall have.  It must have been observed, as must all other Services."""
        asked = request(service)
        if asked is None and service.spec.type == "LoadBalancer":
            return _AS_IT_IS
        for one in service.status.load_balancer.ingress:
            found = address(one.ip)
            if found is None or not self._pool_of(found):
                said = f"status.loadBalancer has {one.ip or one.hostname!r:.64}, which is in no pool: it stays"
                problem = Problem("AddressNotInPool", f"{said}. Clear the status for another address")
                return _AS_IT_IS if asked is None else Allocation(None, (problem,))
        if asked is None:
            return Allocation()
        before = self._claims(holder)
        chosen: dict[int, Address] = {}
        problems = list(asked.problems)
        for version in asked.families:
            choice = self._choose(holder, version, asked)
            if isinstance(choice, Problem):
                problems.append(choice)
            elif choice is not None:
                chosen[version] = choice
        self._allocated[holder] = chosen
        self._claimed(holder, before)
        if problems:
            self._waiting[holder] = None
        else:
            self._waiting.pop(holder, None)
        return Allocation(tuple(str(one) for one in chosen.values()), tuple(problems))

    def _choose(self, holder: Holder, version: int, asked: Request) -> Address | Problem | None:
        """Return the address of a family that a Service shall have, or why it has none."""
        pools = [one for one in self._pools if one.version == version and one.is_for(holder.namespace)]
        if (wanted := asked.wanted.get(version)) is not None:
            if not any(one.holds(wanted) for one in pools):
                said = f"{wanted} is wanted, and in no pool for namespace {holder.namespace}: choose another address"
                return Problem("AddressNotInPool", said)
            if self._is_free(wanted, holder):
                return wanted
            said = f"{wanted} is wanted, and another Service has it: choose another, or delete that Service"
            return Problem("AddressInUse", said)
        has = (self._allocated.get(holder, {}).get(version), *self._observed.get(holder, ()))
        for old in has:
            if old and any(pool.holds(old) for pool in pools) and self._is_free(old, holder):
                return old
        if asked.problems:
            return None
        for pool in pools:
            if (number := self._used[version].gap(pool.first, pool.last)) is not None:
                return Address(version, number)
        if not pools and version not in asked.required:
            return None
        said = f"no address of IPv{version} is free in the pools for namespace {holder.namespace}"
        return Problem("NoAddressFree", f"{said}: add a pool to kubeLoadBalancerPools, or delete a Service")

    def _is_free(self, one: Address, holder: Holder) -> bool:
        """Whether a Service may have an address: nobody has it, or who comes first of those who do is the Service."""
        holders = self._holders.get(one, set()) | {holder}
        return holder == min(holders, key=lambda each: self._rank(each, one))

    def _rank(self, holder: Holder, one: Address) -> tuple[object, ...]:
        """Return where a Service comes among those that have or want an address; the least one gets it."""
        has = one not in self._observed.get(holder, ()), one not in self._claims(holder)
        return (*has, self._created.get(holder, ""), holder)

    def _pool_of(self, one: Address) -> Pool | None:
        return next((pool for pool in self._pools if pool.holds(one)), None)

    def _claims(self, holder: Holder) -> set[Address]:
        return {*self._observed.get(holder, ()), *self._allocated.get(holder, {}).values()}

    def _claimed(self, holder: Holder, before: set[Address]) -> set[Holder]:
        """Update who has what after a change of one Service; return the others that this concerns."""
        now = self._claims(holder)
        concerned: set[Holder] = set()
        for one in now - before:
            holders = self._holders.setdefault(one, set())
            concerned |= holders
            holders.add(holder)
            self._used[one.version].add(one.number)
        for one in before - now:
            holders = self._holders[one]
            holders.discard(holder)
            concerned |= holders
            if not holders:
                del self._holders[one]
                self._used[one.version].discard(one.number)
                concerned.update(self._waiting)
        return concerned - {holder}


def _ingress(service: Service) -> list[Address | None]:
    """Return the addresses of a Service's status; None for what is none."""
    return [address(one.ip) for one in service.status.load_balancer.ingress]
