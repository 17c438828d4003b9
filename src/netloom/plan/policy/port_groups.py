"""The port groups and address sets of SecurityProfiles, and the attachments in them.  Pure.

A profile's port group contains the attachments it covers. The peers of its rules are address sets, one for each family:
the members of a profile that a rule names, and what a selector selects, which all profiles of a namespace share. Each
attachment plans its own memberships: those of its labels (`plan/world/joins.py`), and of the profiles that it names. So
a change of a rule's ports replans no attachment, and a new profile those that have one of its labels.

On fabric vxlan, an agent computes what a whole namespace joins (`Scheme`): it has few attachments.

Additional addresses that an attachment may send from (`allowedAddresses`) count as its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.policy import Peer, SecurityProfile
from netloom.plan import names
from netloom.plan.problem import Problem
from netloom.plan.rows import Member, Ref, Row
from netloom.plan.world.joins import peers
from netloom.plan.world.selector_index import SelectorIndex, index_by_selector
from netloom.plan.world.selector_matches import ScopedSelector, selector_in
from netloom.plan.world.world import Port, World


class Set(NamedTuple):
    """The addresses of some attachments, as two address sets."""

    key: str

    def ref(self, version: int) -> Ref:
        """Return the set of a family."""
        return Ref("Address_Set", f"{self.key}:v{version}")

    def name(self, version: int) -> str:
        """Return its name in a match."""
        return names.symbol(f"v{version}", self.key)

    def rows(self) -> Iterator[Row]:
        """Yield the sets, without their members."""
        for version in (4, 6):
            yield Row("Address_Set", self.ref(version).key, {"name": self.name(version)})


def group(namespace: str, profile: str) -> Ref:
    """Return which row is a profile's port group."""
    return Ref("Port_Group", f"{namespace}/{profile}")


def members_set(namespace: str, profile: str) -> Set:
    """Return the set of the attachments that a profile covers."""
    return Set(f"{namespace}/{profile}:members")


def _selector_set(scoped: ScopedSelector) -> Set:
    return Set(f"{scoped.namespace}:{names.symbol('selector', *_text(scoped))}")


def _text(scoped: ScopedSelector) -> tuple[str, ...]:
    # Not repr: the order of sets differs between processes, and names must stay the same.
    return (*(f"{key}={value}" for key, value in scoped.labels), *map(str, scoped.requirements))


def peer_set(profile: SecurityProfile, peer: Peer) -> Set:
    """Return the set of a rule's peer: another profile or a selector."""
    namespace = profile.metadata.namespace
    if peer.selector is None:
        return members_set(namespace, peer.profile)
    return _selector_set(selector_in(namespace, peer.selector))


def sets_of(world: World, profile: SecurityProfile) -> list[Set]:
    """Return the sets that a profile plans: those of its selectors, and its members' if a rule names the profile.

    The set of a selector that several profiles have is planned by the one of the smallest name.
    """
    namespace, name = profile.metadata.namespace, profile.metadata.name
    found = [_selector_set(scoped) for scoped in _peer_selectors(profile) if world.leads(scoped, name)]
    if world.is_named(namespace, name):
        found.append(members_set(namespace, name))
    return found


def _peer_selectors(profile: SecurityProfile) -> list[ScopedSelector]:
    namespace = profile.metadata.namespace
    scoped = {selector_in(namespace, peer.selector) for peer in peers(profile) if peer.selector is not None}
    return sorted(scoped, key=_text)


def _all_peers(world: World, namespace: str) -> frozenset[str]:
    """Return the profiles that rules name as peers."""
    return frozenset(
        peer.profile for profile in world.all(SecurityProfile, namespace) for peer in peers(profile) if peer.profile
    )


class Joins(NamedTuple):
    """What an attachment joins by a label, or by naming a profile."""

    group: Ref | None
    sets: tuple[Set, ...]


class Scheme(Struct, frozen=True):
    """The memberships of a namespace: the same for all its attachments, and for all rules with the same peers."""

    named: dict[str, Joins]
    selected: SelectorIndex[Joins]


def memberships(world: World, port: Port) -> list[Member]:
    """Return the port groups and address sets an attachment is a member of."""
    namespace = port.namespace
    covering = {name for name in port.profiles if world.shared(_exists, namespace, name)}
    sets: set[Set] = set()
    for join in world.joins(namespace, port.labels):
        if join.profile:
            covering.add(join.profile)
        else:
            sets.add(_selector_set(join.selector))
    groups = {group(namespace, name) for name in covering}
    sets |= {members_set(namespace, name) for name in covering if world.is_named(namespace, name)}
    ref = Ref("Logical_Switch_Port", names.port(port.namespace, port.name))
    found = [Member(one, "ports", ref) for one in sorted(groups)]
    for one in sorted(sets):
        for ip in (*port.ips, *port.allowed_addresses):
            address = ip.partition("/")[0]
            found.append(Member(one.ref(6 if ":" in address else 4), "addresses", address))
    return found


def unknown(world: World, port: Port) -> list[Problem]:
    """Return a problem for each profile that an attachment names and that does not exist."""
    text = "spec.securityProfiles: SecurityProfile {} does not exist: the port is closed until it does"
    missing = (name for name in port.profiles if not world.shared(_exists, port.namespace, name))
    return [Problem("ProfileMissing", text.format(name)) for name in missing]


def _exists(world: World, namespace: str, name: str) -> bool:
    return world.get(SecurityProfile, namespace, name) is not None


def joined(scheme: Scheme, profiles: Iterable[str], labels: Mapping[str, str]) -> Iterator[Joins]:
    """Yield what an attachment with these profiles and labels joins."""
    for name in profiles:
        if (joins := scheme.named.get(name)) is not None:
            yield joins
    yield from scheme.selected.matching(labels)


def joining(world: World, namespace: str) -> Scheme:
    """Return the memberships of a namespace."""
    names_of_peers = _all_peers(world, namespace)
    named: dict[str, Joins] = {}
    selected: list[tuple[ScopedSelector, Joins]] = []
    shared: dict[ScopedSelector, Joins] = {}
    for profile in world.all(SecurityProfile, namespace):
        name = profile.metadata.name
        named[name] = Joins(group(namespace, name), (members_set(namespace, name),) if name in names_of_peers else ())
        if profile.spec.selector is not None:
            selected.append((selector_in(namespace, profile.spec.selector), named[name]))
        shared |= {scoped: Joins(None, (_selector_set(scoped),)) for scoped in _peer_selectors(profile)}
    return Scheme(named, index_by_selector([*selected, *shared.items()]))


def covered(world: World, profile: SecurityProfile, fabric: Fabric = Fabric.OVN) -> tuple[Port, ...]:
    """Return the attachments a profile covers, those that name it or have its labels, in the Networks of a fabric."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    selector = profile.spec.selector
    scoped = None if selector is None else selector_in(namespace, selector)
    networks = {one.metadata.name for one in world.all(Network, namespace) if one.spec.fabric is fabric}
    return tuple(
        port
        for network in sorted(networks)
        for port in world.ports(namespace, network)
        if name in port.profiles or (scoped is not None and scoped.matches(port.labels))
    )
