"""The order of the rules of SecurityProfiles in the tiers admin and baseline.  Pure.

    admin     rules in order: allow, drop and reject are final; pass, and no match, go on to the next tier
    default   drops and rejections win over what is allowed; what nothing allows is dropped, where a profile has a list
    baseline  rules in order, for ports and directions of which no profile of tier default has a list
    then      everything is allowed

Rules are in the order of their profiles' priorities, then of their profiles' names, then of the lists.

A pass leads to the tiers below, past the rest of its own. Where packets are evaluated by one list of priorities, as in
OVN, nothing can lead past rules that match: so the tiers below are repeated above these rules, each rule restricted to
the traffic that the pass matches. Passes that follow one another have one such *band*. A pass after which no other rule
follows needs none.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.policy import Action, EgressRule, IngressRule, SecurityProfile, Tier
from netloom.plan.world.world import World

FIRST, CLOSED = 29_999, 21_000
"""The priorities of tier admin; at the last, what has no other drops everything."""
MOST_BASELINE = 800
"""How many rules of tier baseline have priorities."""
_BAND = 9
"""The priorities of a band besides those of the rules of tier baseline."""


class Levels(Struct, frozen=True):
    """The priorities of the tiers default and baseline; a rule that logs has one more."""

    drop: int = 20_000
    reject: int = 19_000
    allow: int = 10_000
    default: int = 1_000
    baseline: int = 999
    """That of the first rule of tier baseline; the next one has one less."""
    closed: int = 101
    open: int = 100


class Place(NamedTuple):
    """A rule of a profile."""

    profile: str
    position: int


class Pass(Struct, frozen=True):
    """A rule that leads to the tiers below, and where its band repeats these."""

    place: Place
    rule: IngressRule | EgressRule
    levels: Levels


class Tiers(Struct, frozen=True):
    """The order of the rules of one direction."""

    admin: dict[Place, int]
    """The priorities of the rules of tier admin that decide."""
    passes: tuple[Pass, ...]
    """The rules that lead past others."""
    baseline: dict[Place, int]
    """The numbers of the rules of tier baseline, from 0."""
    closed: frozenset[str]
    """The profiles for whose last rules no priorities are left: these drop everything."""


def listed(profile: SecurityProfile, field: str) -> Sequence[IngressRule | EgressRule] | None:
    """Return the rules of a direction, `ingress` or `egress`; None: it has no list."""
    return profile.spec.ingress if field == "ingress" else profile.spec.egress


def in_order(profiles: Iterable[SecurityProfile], tier: Tier) -> list[SecurityProfile]:
    """Return the profiles of tier admin or baseline, in the order of their evaluation."""
    found = [one for one in profiles if one.spec.tier is tier]
    return sorted(found, key=lambda one: (one.spec.priority or 0, one.metadata.name))


def tiers(world: World, namespace: str, field: str) -> Tiers:
    """Return the order of the rules of a namespace for a direction."""
    profiles = world.tiered(namespace)
    baseline = list(_rules(profiles, Tier.BASELINE, field))
    closed = {place.profile for place, _ in baseline[MOST_BASELINE:]}
    del baseline[MOST_BASELINE:]
    admin = list(_rules(profiles, Tier.ADMIN, field))
    while admin and admin[-1][1].action is Action.PASS:
        admin.pop()
    priorities: dict[Place, int] = {}
    passes: list[Pass] = []
    level, band = FIRST, None
    for number, (place, rule) in enumerate(admin):
        takes = 1 if rule.action is not Action.PASS else 0 if band is not None else len(baseline) + _BAND
        if level - takes < CLOSED:
            closed |= {late.profile for late, _ in admin[number:]}
            break
        if rule.action is Action.PASS:
            band = band or _band(level, len(baseline))
            passes.append(Pass(place, rule, band))
        else:
            band = None
            priorities[place] = level
        level -= takes
    return Tiers(priorities, tuple(passes), {place: n for n, (place, _) in enumerate(baseline)}, frozenset(closed))


def _rules(
    profiles: Iterable[SecurityProfile], tier: Tier, field: str
) -> Iterator[tuple[Place, IngressRule | EgressRule]]:
    for profile in in_order(profiles, tier):
        for position, rule in enumerate(listed(profile, field) or ()):
            yield Place(profile.metadata.name, position), rule


def _band(first: int, baseline: int) -> Levels:
    """Return the priorities of a band from `first` downwards, with room for a number of rules of tier baseline."""
    last = first - baseline - _BAND + 1
    return Levels(first - 1, first - 3, first - 5, first - 6, first - 7, last + 1, last)
