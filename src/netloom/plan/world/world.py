"""The planner inputs of all resources, with queries that record which unit makes them.  Pure.

Every query made while a unit is planned is recorded. When a resource changes, the units whose queries may have another
result are dirty. So a planning function queries what it needs and never declares dependencies. All results are sorted
and immutable: do not modify them.

Where many units need the same computation, `shared` does it once: `world.shared(function, *arguments)` is
`function(world, *arguments)`, computed again when something that it read has changed. Its readers are planned again
only if the result differs. The function must be pure and return a comparable value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import structs

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import InternalTrafficPolicy, LoadBalancer, LoadBalancerSpec, SecurityProfile, Tier
from netloom.model.selection import LabelSelector
from netloom.model.values.addresses import canonical
from netloom.plan import names
from netloom.plan.node.grants import ALL_PROVIDERS, NOT_GRANTED, ProviderRefusal
from netloom.plan.problem import Problem, Unit
from netloom.plan.world.inputs import ATTACHMENT, Pool, Port, planner_input
from netloom.plan.world.joins import Join, JoinIndex
from netloom.plan.world.selector_matches import ScopedSelector, SelectorMatches, selector_in
from netloom.plan.world.tracking import NOTHING, Answer, Topic, Tracker

__all__ = ["Port", "World"]

SPARE = 4096
"""How many values more than can be in use a pool may hold before it is replaced."""

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
P = ParamSpec("P")


class World:
    """All planner inputs.  `put` and `remove` change them, the other methods query."""

    def __init__(self, refusal: ProviderRefusal = ALL_PROVIDERS.refusal) -> None:
        """`refusal` returns why a Network may not join its physical network, from the spec alone."""
        self._refusal = refusal
        self._tracker = Tracker()
        self._pool = Pool()
        self._ports: dict[Unit, Port] = {}
        self._resources: dict[Unit, Resource] = {}
        self._groups: dict[Topic, dict[Unit, Any]] = {}
        """The results of queries for several objects: by topic, then by unit."""
        self._answers: dict[Topic, Any] = {}
        """Sorted results, until the topic is touched."""
        self._shared: dict[tuple[Callable[..., Any], tuple[Any, ...]], Answer] = {}
        self._matches = SelectorMatches()
        self._joins = JoinIndex(self._tracker.touch)
        self._followed: set[Topic] = set()

    # Changes.

    def put(self, resource: Resource | Port) -> None:
        """Add or replace a resource."""
        if isinstance(resource, NetworkAttachment):
            if len(self._pool) > 2 * len(self._ports) + SPARE:
                self._pool = Pool()
            resource = self._pool.port(resource)
        if isinstance(resource, Port):
            self._put_port(resource)
            return
        new = planner_input(resource)
        if new is not None:
            self._change(Unit(new.kind, new.metadata.namespace, new.metadata.name), new)

    def remove(self, unit: Unit) -> None:
        """Remove a resource."""
        if unit.kind != ATTACHMENT:
            self._change(unit, None)
        elif (old := self._ports.pop(unit, None)) is not None:
            self._moved(unit, old, None)

    def _put_port(self, new: Port) -> None:
        unit = Unit(ATTACHMENT, new.namespace, new.name)
        old = self._ports.get(unit)
        if old == new:
            return
        self._ports[unit] = new
        self._moved(unit, old, new)

    def _moved(self, unit: Unit, old: Port | None, new: Port | None) -> None:
        touch = self._touch
        self._tracker.dirty.add(unit)
        touch(("port", unit.namespace, unit.name))
        if old is not None and (new is None or new.network != old.network):
            topic = ("ports", old.namespace, old.network)
            _leave(self._groups, topic, unit)
            touch(topic)
        if new is not None:
            topic = ("ports", new.namespace, new.network)
            _enter(self._groups, topic, unit, new)
            touch(topic)
        if (old is not None and old.parent) or (new is not None and new.parent):
            self._regroup(unit, _child_topics(old), _child_topics(new), new)
        if self._followed:
            self._regroup(unit, self._places(old), self._places(new), new)
        for scoped in self._matches.change(old, new):
            touch(("selected", scoped))

    def _regroup(self, unit: Unit, before: Iterable[Topic], after: Iterable[Topic], new: object) -> None:
        """Move a unit from some groups to others."""
        left, entered = set(before), set(after)
        for topic in left - entered:
            _leave(self._groups, topic, unit)
        for topic in entered:
            _enter(self._groups, topic, unit, new)
        for topic in left | entered:
            self._touch(topic)

    def _places(self, port: Port | None) -> Iterator[Topic]:
        """Yield the groups of a port that were queried once: attachments by address or MAC in a Network."""
        if port is None:
            return
        if ("held", port.namespace, port.network) in self._followed:
            for ip in port.ips:
                yield "held", port.namespace, port.network, ip.partition("/")[0]
            if port.mac:
                yield "held", port.namespace, port.network, port.mac

    def _change(self, unit: Unit, new: Resource | None) -> None:
        old = self._resources.get(unit)
        if old == new:
            return
        if new is None:
            del self._resources[unit]
        else:
            self._resources[unit] = new
        self._tracker.dirty.add(unit)
        self._touch(("one", *unit))
        self._regroup(unit, _groups(old), _groups(new), new)
        if unit.kind == LoadBalancer.__name__:
            self._place(unit, cast("LoadBalancer | None", old), cast("LoadBalancer | None", new))
        elif unit.kind == SecurityProfile.__name__:
            self._joins.change(cast("SecurityProfile | None", old), cast("SecurityProfile | None", new))

    def _place(self, unit: Unit, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Group a LoadBalancer by what its VIPs are and where: not touched when only its endpoints change."""
        before, now = _placement(old), _placement(new)
        if before != now:
            self._regroup(unit, _places_of(before), _places_of(now), now)

    def _touch(self, topic: Topic) -> None:
        self._answers.pop(topic, None)
        self._tracker.touch(topic)

    # Queries.

    def get(self, of: type[R], namespace: str, name: str) -> R | None:
        """Return one resource, or None."""
        unit = Unit(of.__name__, namespace, name)
        if of is NetworkAttachment:
            raise TypeError("use port() for attachments: only their planner input is stored")
        self._read(("one", *unit))
        return cast("R | None", self._resources.get(unit))

    def all(self, of: type[R], namespace: str = "") -> tuple[R, ...]:
        """Return all resources of a kind, in a namespace or everywhere."""
        if of is NetworkAttachment:
            raise TypeError("use port() for attachments: only their planner input is stored")
        return self._many(("all", of.__name__, namespace))

    def port(self, namespace: str, name: str) -> Port | None:
        """Return the planner input of an attachment, or None."""
        self._read(("port", namespace, name))
        return self._ports.get(Unit(ATTACHMENT, namespace, name))

    def ports(self, namespace: str, network: str) -> tuple[Port, ...]:
        """Return the attachments in a Network."""
        return self._many(("ports", namespace, network))

    def children(self, namespace: str, parent: str, vlan: int | None) -> tuple[Port, ...]:
        """Return the attachments with this VLAN of a parent port: one, or none."""
        return self._many(("children", namespace, parent, vlan))

    def holders(self, namespace: str, network: str, address: str) -> tuple[Port, ...]:
        """Return the attachments with an IP address or a MAC in a Network: one, or none.  It is in their notation."""
        self._follow(("held", namespace, network), self._groups.get(("ports", namespace, network), {}).values())
        return self._many(("held", namespace, network, address))

    def _follow(self, asked: Topic, ports: Iterable[Port]) -> None:
        """Group ports by a query from its first use on."""
        if asked in self._followed:
            return
        self._followed.add(asked)
        for port in ports:
            for topic in self._places(port):
                _enter(self._groups, topic, Unit(ATTACHMENT, port.namespace, port.name), port)

    def selected(self, namespace: str, selector: LabelSelector) -> tuple[Port, ...]:
        """Return the attachments of a namespace that a selector selects."""
        scoped = selector_in(namespace, selector)
        topic = ("selected", scoped)
        if self._tracker.reading is None and scoped not in self._matches:
            found = (port for port in self._of(namespace) if scoped.matches(port.labels))
            return tuple(sorted(found, key=lambda port: port.name))
        self._read(topic)
        answer: tuple[Port, ...] | None = self._answers.get(topic)
        if answer is None:
            if scoped not in self._matches:
                self._matches.add(scoped, self._of(namespace))
            ports = self._matches[scoped]
            answer = self._answers[topic] = tuple(ports[name] for name in sorted(ports))
        return answer

    def subnets(self, namespace: str, network: str) -> tuple[Subnet, ...]:
        """Return the validated Subnets of a Network."""
        return self._many(("subnets", namespace, network))

    def routers(self, namespace: str, network: str) -> tuple[Router, ...]:
        """Return the Routers with a port or the gateway in a Network."""
        return self._many(("routers", namespace, network))

    def joins(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Join]:
        """Yield the profiles that cover an attachment with these labels, and the peers of rules that it is one of."""
        return self._joins.matching(namespace, labels, self._read)

    def leads(self, selector: ScopedSelector, profile: str) -> bool:
        """Return whether it is this profile that plans the set of a selector of peers."""
        return self._joins.leads(selector, profile, self._read)

    def is_named(self, namespace: str, profile: str) -> bool:
        """Return whether a rule names a profile as its peer."""
        return self._joins.is_named(namespace, profile, self._read)

    def tiered(self, namespace: str) -> tuple[SecurityProfile, ...]:
        """Return the SecurityProfiles of the tiers admin and baseline."""
        return self._many(("tiered", namespace))

    def balancers(self, namespace: str) -> tuple[LoadBalancer, ...]:
        """Return the LoadBalancers of a namespace, with their VIPs and where these are served, and nothing else."""
        return self._many(("balancers", namespace))

    def balancers_of(self, namespace: str, ip: str, port: int, protocol: str) -> tuple[LoadBalancer, ...]:
        """Return the LoadBalancers with a VIP, as `balancers` does.  The address is in canonical form."""
        return self._many(("balancers_of", namespace, ip, port, protocol))

    def local_balancers(self) -> tuple[LoadBalancer, ...]:
        """Return the LoadBalancers, of all namespaces, with other endpoints on each node."""
        return self._many(("local_balancers",))

    def evpn_networks(self, namespace: str, network: str) -> tuple[EVPNNetwork, ...]:
        """Return the EVPNNetworks of a Network."""
        return self._many(("evpn_networks", namespace, network))

    def remote_vteps(self, port: str) -> tuple[RemoteVTEP, ...]:
        """Return the RemoteVTEPs, of all namespaces, whose port has a name."""
        return self._many(("remote_vteps", port))

    def remote_vteps_of(self, namespace: str, network: str) -> tuple[RemoteVTEP, ...]:
        """Return the RemoteVTEPs of a Network."""
        return self._many(("remote_vteps_of", namespace, network))

    def ungranted(self, network: Network) -> Problem | None:
        """Return why a Network is not planned whose namespace is not granted its physical network; None if it is."""
        said = self._refusal(network) if network.spec.provider is not None else ""
        return Problem(NOT_GRANTED, said) if said else None

    def shared(self, function: Callable[Concatenate["World", P], T], *arguments: P.args, **none: P.kwargs) -> T:
        """Return `function(world, *arguments)`, computed once for all readers."""
        assert not none, "only positional arguments are part of the topic"
        tracker = self._tracker
        if tracker.stale and tracker.reading is None:
            self._refresh()
        answer = self._shared.get((function, arguments))
        if answer is None or (tracker.stale and answer in tracker.stale):
            answer = self._compute(answer or Answer(function, arguments))
        if tracker.reading is not None:
            tracker.reading.add(answer)
        return cast("T", answer.value)

    def _compute(self, answer: Answer) -> Answer:
        tracker = self._tracker
        outer, tracker.reading = tracker.reading, set()
        tracker.stale.discard(answer)
        try:
            value = answer.function(self, *answer.arguments)
        except BaseException:
            self._drop(answer)
            if outer is not None:
                outer |= tracker.reading  # The reader fails because of what was read: plan it again when that changes.
            raise
        finally:
            read, tracker.reading = tracker.reading, outer
        self._shared[answer.function, answer.arguments] = answer
        self._forget(tracker.note_answer(answer, read))
        old, answer.value = answer.value, value
        if old is not NOTHING and old != value:
            tracker.touch(answer)
        return answer

    def _drop(self, answer: Answer) -> None:
        self._tracker.touch(answer)
        self._shared.pop((answer.function, answer.arguments), None)
        self._forget(self._tracker.forget_answer(answer))

    def _read(self, topic: Topic) -> None:
        reading = self._tracker.reading
        if reading is not None:
            reading.add(topic)

    def _many(self, topic: Topic) -> tuple[Any, ...]:
        reading = self._tracker.reading
        if reading is not None:
            reading.add(topic)
        answer: tuple[Any, ...] | None = self._answers.get(topic)
        if answer is None:
            group = self._groups.get(topic)
            if not group:
                return ()
            answer = self._answers[topic] = tuple(group[unit] for unit in sorted(group))
        return answer

    def _of(self, namespace: str) -> Iterator[Port]:
        return (port for port in self._ports.values() if port.namespace == namespace)

    # For the planner.

    def resource(self, unit: Unit) -> Resource | Port | None:
        """Return what a unit is planned from, without recording a query."""
        return self._ports.get(unit) if unit.kind == ATTACHMENT else self._resources.get(unit)

    def watched(self, unit: Unit, plan: Callable[["World", Any], T], resource: Resource | Port) -> T:
        """Return `plan(world, resource)` and record its queries as the unit's, also when it fails."""
        tracker = self._tracker
        reading: set[Topic] = set()
        tracker.reading = reading
        try:
            return plan(self, resource)
        finally:
            tracker.reading = None
            if unread := tracker.note(unit, reading):
                self._forget(unread)

    def forget(self, unit: Unit) -> None:
        """Forget the queries of a unit that was removed."""
        self._forget(self._tracker.forget(unit))

    def drain(self) -> set[Unit]:
        """Return the units to plan again, and reset them."""
        tracker = self._tracker
        self._refresh()
        dirty, tracker.dirty = tracker.dirty, set()
        return dirty

    def _refresh(self) -> None:
        """Compute stale shared answers until all are current: one may read others."""
        tracker = self._tracker
        while tracker.stale:
            answer = next(iter(tracker.stale))
            if not tracker.is_read(answer):
                self._drop(answer)
                continue
            with suppress(Exception):  # It fails again for each reader, which reports it.
                self._compute(answer)

    def _forget(self, unread: Iterable[Topic]) -> None:
        for topic in unread:
            if isinstance(topic, Answer):
                self._drop(topic)
            elif topic[0] == "selected":
                scoped = cast("ScopedSelector", topic[1])
                if scoped in self._matches:
                    self._matches.drop(scoped)
                self._answers.pop(topic, None)


def _child_topics(port: Port | None) -> Iterator[Topic]:
    if port is not None and port.parent:
        yield "children", port.namespace, port.parent, port.vlan


def _groups(resource: Resource | None) -> Iterator[Topic]:
    """Yield the queries for several objects whose results contain a resource."""
    if resource is None:
        return
    namespace = resource.metadata.namespace
    yield "all", resource.kind, ""
    if namespace:
        yield "all", resource.kind, namespace
    if isinstance(resource, Subnet) and resource.status.validated:
        yield "subnets", namespace, resource.spec.network
    if isinstance(resource, Router):
        for port in resource.spec.networks:
            yield "routers", namespace, port.network
        if resource.spec.gateway is not None:
            yield "routers", namespace, resource.spec.gateway.network
    if isinstance(resource, LoadBalancer) and resource.spec.internal_traffic_policy is InternalTrafficPolicy.LOCAL:
        yield ("local_balancers",)
    if isinstance(resource, SecurityProfile) and resource.spec.tier is not Tier.DEFAULT:
        yield "tiered", namespace
    if isinstance(resource, EVPNNetwork):
        yield "evpn_networks", namespace, resource.spec.network
    if isinstance(resource, RemoteVTEP):
        yield "remote_vteps_of", namespace, resource.spec.network
        yield "remote_vteps", names.remote_vtep(resource.spec.address, resource.spec.vni)


def _placement(balancer: LoadBalancer | None) -> LoadBalancer | None:
    """Return a LoadBalancer without its endpoints and how it treats them."""
    if balancer is None:
        return None
    spec = balancer.spec
    spec = LoadBalancerSpec(networks=spec.networks, routers=spec.routers, vips=spec.vips)
    return structs.replace(balancer, spec=spec)


def _places_of(balancer: LoadBalancer | None) -> Iterator[Topic]:
    if balancer is None:
        return
    namespace = balancer.metadata.namespace
    yield "balancers", namespace
    for vip in balancer.spec.vips:
        yield "balancers_of", namespace, canonical(vip.ip), vip.port, str(vip.protocol)


def _enter(groups: dict[Topic, dict[Unit, Any]], topic: Topic, unit: Unit, value: object) -> None:
    group = groups.get(topic)
    if group is None:
        group = groups[topic] = {}
    group[unit] = value


def _leave(groups: dict[Topic, dict[Unit, Any]], topic: Topic, unit: Unit) -> None:
    group = groups[topic]
    del group[unit]
    if not group:
        del groups[topic]
