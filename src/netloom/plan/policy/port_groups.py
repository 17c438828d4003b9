"""Who joins what because of SecurityProfiles: port groups and address sets, and the attachments in them.  Pure.

A profile's port group holds who it covers. The other ends its rules name are address sets, one for each family: the
members of a profile somebody names, and, for each profile by itself, whom its selectors select. An attachment joins by
itself; what it needs to know for that (`Scheme`) is worked out once for a namespace, and stays the same when rules
change but not whom they are about. So a change of a rule's ports plans no attachment again.

Addresses an attachment may send from besides its own count as its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.model.networks import Fabric, Network
from netloom.model.policy import Peer, SecurityProfile
from netloom.plan import names
from netloom.plan.problem import Problem
from netloom.plan.rows import Member, Ref, Row
from netloom.plan.world.selector_index import SelectorIndex, index_by_selector
from netloom.plan.world.selector_matches import ScopedSelector, selector_in
from netloom.plan.world.world import Port, World


class Set(NamedTuple):
    """Attachments whose addresses somebody's rules are about: two address sets."""

    key: str

    def ref(self, version: int) -> Ref:
        """Return the set for a family."""
        return Ref("Address_Set", f"{self.key}:v{version}")

    def name(self, version: int) -> str:
        """Return what it is called in a match."""
        return names.symbol(f"v{version}", self.key)

    def rows(self) -> Iterator[Row]:
        """Give the sets, without their members."""
        for version in (4, 6):
            yield Row("Address_Set", self.ref(version).key, {"name": self.name(version)})


def group(namespace: str, profile: str) -> Ref:
    """Return which row is a profile's port group."""
    return Ref("Port_Group", f"{namespace}/{profile}")


def members_set(namespace: str, profile: str) -> Set:
    """Return the set of those a profile covers."""
    return Set(f"{namespace}/{profile}:members")


def _selector_set(namespace: str, profile: str, chosen: ScopedSelector) -> Set:
    return Set(f"{namespace}/{profile}:{names.symbol('selector', *_text(chosen))}")


def _text(chosen: ScopedSelector) -> tuple[str, ...]:
    # Not repr: sets come in another order in each process, and names must stay the same.
    return (*(f"{key}={value}" for key, value in chosen.labels), *map(str, chosen.requirements))


def peer_set(profile: SecurityProfile, peer: Peer) -> Set:
    """Return the set of those a rule of a profile names, by another profile or by a selector."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    if peer.selector is None:
        return members_set(namespace, peer.profile)
    return _selector_set(namespace, name, selector_in(namespace, peer.selector))


def sets_of(world: World, profile: SecurityProfile) -> list[Set]:
    """Return the sets a profile's unit plans: those of the selectors it names, and its members' if anybody names it."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    found = [_selector_set(namespace, name, chosen) for chosen in _peer_selectors(profile)]
    if world.shared(_is_peer, namespace, name):
        found.append(members_set(namespace, name))
    return found


def _peers(profile: SecurityProfile) -> Iterator[Peer]:
    for ingress in profile.spec.ingress or ():
        yield from ingress.from_
    for egress in profile.spec.egress or ():
        yield from egress.to


def _peer_selectors(profile: SecurityProfile) -> list[ScopedSelector]:
    namespace = profile.metadata.namespace
    chosen = {selector_in(namespace, peer.selector) for peer in _peers(profile) if peer.selector is not None}
    return sorted(chosen, key=_text)


def _is_peer(world: World, namespace: str, name: str) -> bool:
    return name in world.shared(_all_peers, namespace)


def _all_peers(world: World, namespace: str) -> frozenset[str]:
    """Return the profiles that rules name as the other end."""
    return frozenset(peer.profile for profile in world.profiles(namespace) for peer in _peers(profile) if peer.profile)


class Joins(NamedTuple):
    """What an attachment joins by a label, or by naming a profile."""

    group: Ref | None
    sets: tuple[Set, ...]


class Scheme(Struct, frozen=True):
    """Who joins what in a namespace: the same for all its attachments, and for all rules that name the same ends."""

    named: dict[str, Joins]
    selected: SelectorIndex[Joins]


def memberships(world: World, port: Port) -> list[Member]:
    """Return the port groups and address sets an attachment is a member of."""
    scheme = world.shared(joining, port.namespace)
    groups: set[Ref] = set()
    sets: set[Set] = set()
    for joins in joined(scheme, port.profiles, port.labels):
        if joins.group is not None:
            groups.add(joins.group)
        sets.update(joins.sets)
    ref = Ref("Logical_Switch_Port", names.port(port.namespace, port.name))
    found = [Member(one, "ports", ref) for one in sorted(groups)]
    for one in sorted(sets):
        for ip in (*port.ips, *port.allowed_addresses):
            address = ip.partition("/")[0]
            found.append(Member(one.ref(6 if ":" in address else 4), "addresses", address))
    return found


def unknown(world: World, port: Port) -> list[Problem]:
    """Return what is wrong with the profiles an attachment names."""
    named = world.shared(joining, port.namespace).named
    text = "spec.securityProfiles: SecurityProfile {} does not exist: the port is closed until it does"
    return [Problem("ProfileMissing", text.format(name)) for name in port.profiles if name not in named]


def joined(scheme: Scheme, profiles: Iterable[str], labels: Mapping[str, str]) -> Iterator[Joins]:
    """Give what an attachment joins that names some profiles and has some labels."""
    for name in profiles:
        if (joins := scheme.named.get(name)) is not None:
            yield joins
    yield from scheme.selected.matching(labels)


def joining(world: World, namespace: str) -> Scheme:
    """Return who joins what in a namespace."""
    named: dict[str, Joins] = {}
    entries = [entry for profile in world.profiles(namespace) for entry in _entries(world, profile, named)]
    return Scheme(named, index_by_selector(entries))


def _entries(world: World, profile: SecurityProfile, named: dict[str, Joins]) -> Iterator[tuple[ScopedSelector, Joins]]:
    """Give what is joined by labels because of a profile; what is joined by its name goes to `named`."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    is_peer = name in world.shared(_all_peers, namespace)
    own = named[name] = Joins(group(namespace, name), (members_set(namespace, name),) if is_peer else ())
    if profile.spec.selector is not None:
        yield selector_in(namespace, profile.spec.selector), own
    for chosen in _peer_selectors(profile):
        yield chosen, Joins(None, (_selector_set(namespace, name, chosen),))


def covered(world: World, profile: SecurityProfile, fabric: Fabric = Fabric.OVN) -> tuple[Port, ...]:
    """Return the attachments a profile covers, those that name it or have its labels, in the Networks of a fabric."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    wish = profile.spec.selector
    chosen = None if wish is None else selector_in(namespace, wish)
    networks = {one.metadata.name for one in world.all(Network, namespace) if one.spec.fabric is fabric}
    return tuple(
        port
        for network in sorted(networks)
        for port in world.ports(namespace, network)
        if name in port.profiles or (chosen is not None and chosen.matches(port.labels))
    )
