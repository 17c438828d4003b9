"""The profiles that cover local ports, and their flows, one change at a time. Pure.

    profiles ──► memberships in a namespace (`plan/policy/port_groups.py`) ──► a port's profiles ──► its flows
                                                                   └─► profiles in use ──► their flows
    classes that are added or removed ──► flows of the profiles in use that refer to them

A profile that covers no local port has no flows. A profile with neither list has no effect: a port that only such
profiles cover is open. A port that names a profile that does not exist is closed, in both directions and for
everything.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from netloom.model.kinds.policy import SecurityProfile, Tier
from netloom.plan.policy.port_groups import Scheme, joined, joining
from netloom.plan.policy.tiers import in_order
from netloom.plan.problem import Unit
from netloom.plan.vxlan.flow_claims import FlowClaims
from netloom.plan.vxlan.policy import (
    WAYS,
    Class,
    Cover,
    Lists,
    Rule,
    Set,
    Way,
    class_flows,
    class_number,
    has_list,
    number,
    profile_flows,
    rules,
)
from netloom.plan.vxlan.ports import LocalPort, Remote
from netloom.plan.world.world import World

Name = tuple[str, str]
"""Namespace and name."""


OPEN = Cover()


class ProfileFlows:
    """The profiles, and the flows of the ports they cover."""

    def __init__(self, claims: FlowClaims) -> None:
        self._claims = claims
        self._world = World()
        self._profiles: dict[Name, SecurityProfile] = {}
        self._rules: dict[Name, tuple[Rule, ...]] = {}
        """The rules of profiles, as they are needed."""
        self._schemes: dict[str, Scheme] = {}
        self._ports: dict[str, dict[str, LocalPort]] = {}
        """The local ports, by namespace and owner."""
        self._homes: dict[str, str] = {}
        """The namespaces of the ports."""
        self._covers: dict[str, Cover] = {}
        self._uses: Counter[Name] = Counter()
        """The number of ports that a profile covers."""
        self._speaking: dict[Set, set[Name]] = {}
        """The profiles in use that refer to a set."""
        self._written: dict[Name, tuple[Class, frozenset[Class]]] = {}
        """The profiles that have flows: the sets they refer to, and the classes they have flows for."""
        self._changed_namespaces: dict[str, bool] = {}
        """Namespaces in which a profile changed; whether one was added or removed."""
        self._pending: set[Name] = set()
        """Profiles whose flows may have changed."""
        self._dirty: dict[str, LocalPort | None] = {}

    def put(self, profile: SecurityProfile) -> None:
        """Add or change a profile."""
        name = profile.metadata.namespace, profile.metadata.name
        old = self._profiles.get(name)
        if old is None or old.spec != profile.spec:
            self._profiles[name] = profile
            self._world.put(profile)
            self._changed(name, existence=old is None)

    def drop(self, name: Name) -> None:
        """Remove a profile."""
        if self._profiles.pop(name, None) is not None:
            self._world.remove(Unit("SecurityProfile", *name))
            self._changed(name, existence=True)

    def _changed(self, name: Name, *, existence: bool) -> None:
        self._pending.add(name)
        self._rules.pop(name, None)
        self._changed_namespaces[name[0]] = existence or self._changed_namespaces.get(name[0], False)

    def port(self, owner: str, port: LocalPort | None) -> None:
        """Add or change a local port; None: remove it."""
        old = self._homes.pop(owner, None)
        if old is not None:
            del self._ports[old][owner]
            if not self._ports[old]:
                del self._ports[old]
        if port is not None:
            self._homes[owner] = port.namespace
            self._ports.setdefault(port.namespace, {})[owner] = port
        self._dirty[owner] = port

    def cover(self, owner: str) -> Cover:
        """Return the effect of profiles on a port."""
        return self._covers.get(owner, OPEN)

    def joined(self, one: LocalPort | Remote) -> Class:
        """Return the sets that a port is in."""
        scheme = self._scheme(one.namespace)
        return frozenset([part.key for joins in joined(scheme, one.profiles, one.labels) for part in joins.sets])

    def settle(self) -> tuple[set[str], set[int]]:
        """Update which profiles cover which ports; return the owners of ports that changed.

        Also return the VNIs of Networks in which memberships may have changed.
        """
        rechecked: set[int] = set()
        for namespace, existence in self._changed_namespaces.items():
            if existence:  # Rules that refer to a profile that was missing have another meaning now.
                for name in [name for name in self._rules if name[0] == namespace]:
                    del self._rules[name]
                    self._pending.add(name)
            ports = self._ports.get(namespace, {})
            self._dirty.update(ports)
            if self._schemes.pop(namespace, None) != self._scheme(namespace):
                rechecked |= {port.vni for port in ports.values()}
        self._changed_namespaces = {}
        dirty, self._dirty = self._dirty, {}
        return {owner for owner, port in dirty.items() if self._settle(owner, port)}, rechecked

    def _settle(self, owner: str, port: LocalPort | None) -> bool:
        old, new = self.cover(owner), OPEN if port is None else self._cover(port)
        if old == new:
            return False
        self._covers[owner] = new
        if new == OPEN:
            del self._covers[owner]
        for name in new.profiles:
            self._uses[name] += 1
        for name in old.profiles:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
        self._pending.update(new.profiles, old.profiles)
        return True

    def _cover(self, port: LocalPort) -> Cover:
        scheme, namespace = self._scheme(port.namespace), port.namespace
        missing = tuple(sorted(name for name in port.profiles if name not in scheme.named))
        if missing:
            return Cover(missing=missing)
        joins = joined(scheme, port.profiles, port.labels)
        names = {one.group.key.partition("/")[2] for one in joins if one.group is not None}
        chosen = [self._profiles[namespace, name] for name in sorted(names)]
        found = [profile for profile in chosen if any(has_list(profile, way) for way in WAYS)]
        return Cover(
            tuple((namespace, profile.metadata.name) for profile in found),
            tuple(_lists(found, way) for way in WAYS),
            (),
            frozenset().union(*(self._sets((namespace, profile.metadata.name)) for profile in found)),
        )

    def fill(self, known: Collection[Class], changed: Collection[Class]) -> None:
        """Claim the flows of profiles in use for the present classes; `changed` were added or removed."""
        pending, self._pending = self._pending, set()
        for name in pending:
            self._write(name, known)
        for one in changed:
            for name in set[Name]().union(*(self._speaking.get(part, ()) for part in one)) - pending:
                sets, have = self._written[name]
                there = one in known
                self._write_class(name, one, there=there)
                self._written[name] = sets, have | {one} if there else have - {one}

    def _write(self, name: Name, known: Collection[Class]) -> None:
        """Claim the flows of a profile, or none if it is not in use."""
        profile = self._profiles.get(name) if name in self._uses else None
        sets = frozenset[Set]() if profile is None else self._sets(name)
        spoken, have = self._written.pop(name, (frozenset(), frozenset()))
        for part in spoken - sets:
            self._speaking[part].discard(name)
            if not self._speaking[part]:
                del self._speaking[part]
        for part in sets - spoken:
            self._speaking.setdefault(part, set()).add(name)
        wanted = frozenset(one for one in known if not sets.isdisjoint(one))
        for one in have | wanted:
            self._write_class(name, one, there=one in wanted)
        self._claims.replace(_owner(name), () if profile is None else profile_flows(profile, self._read(name)))
        if profile is not None:
            self._written[name] = sets, wanted

    def _write_class(self, name: Name, one: Class, *, there: bool) -> None:
        flows = class_flows(self._profiles[name], self._read(name), one) if there else ()
        self._claims.replace(f"{_owner(name)}/{class_number(one)}", flows)

    def _scheme(self, namespace: str) -> Scheme:
        scheme = self._schemes.get(namespace)
        if scheme is None:
            scheme = self._schemes[namespace] = joining(self._world, namespace)
        return scheme

    def _read(self, name: Name) -> tuple[Rule, ...]:
        found = self._rules.get(name)
        if found is None:
            namespace, _ = name
            profile = self._profiles[name]
            found = self._rules[name] = rules(profile, lambda other: (namespace, other) in self._profiles)
        return found

    def _sets(self, name: Name) -> Class:
        return frozenset().union(*(rule.sets for rule in self._read(name)))


def _lists(profiles: Sequence[SecurityProfile], way: Way) -> Lists:
    """Return the profiles that are evaluated for a direction; tier baseline only where tier default has none."""
    found = [one for one in profiles if has_list(one, way)]
    default = tuple(sorted(number(one) for one in found if one.spec.tier is Tier.DEFAULT))
    baseline = () if default else in_order(found, Tier.BASELINE)
    return Lists(tuple(map(number, in_order(found, Tier.ADMIN))), default, tuple(map(number, baseline)))


def _owner(name: Name) -> str:
    return "profile/{}/{}".format(*name)
