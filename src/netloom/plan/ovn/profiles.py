"""SecurityProfiles as port groups, address sets and stateful ACLs.  Pure.

A profile is one port group, and its rules are ACLs of that group, however many ports there are. The peers of a rule are
address sets. Each attachment plans its own memberships in groups and sets (`port_groups.memberships`), so adding or
removing one costs no more than its own members.

The semantics of a profile:

- A port covered by a profile with an ingress list receives only what such a profile allows; egress likewise. A
  direction for which no profile of a port has a list is open.
- A rule that drops or rejects wins over all rules that allow, in this profile or in another that covers the port: what
  is forbidden explicitly stays forbidden. Of the two, drop wins. So the order of rules and of profiles has no meaning.
- Replies, and ICMP errors about allowed traffic, always pass: ACLs allow connections, not packets.
- ARP, neighbour discovery, router solicitations and DHCP always work. OVN lets its own replies (DHCP, router
  advertisements, health checks) pass by flows of its own.
- Everything else that no rule allows is dropped, including traffic that is neither IPv4 nor IPv6.
- Egress rules apply after load balancing: the peer of traffic to a VIP of the Network is the endpoint.
- A machine reaches itself, also by a VIP of which it is an endpoint: OVN sends such a packet back where it came from,
  with the VIP as its source and before egress rules. `flags.loopback` marks what OVN sends back.

A peer that is an unknown profile matches nothing, never everything. A port that names an unknown profile is closed
until the profile exists.

OVN (23.03) lets one thing pass all ingress rules: UDP from port 53, on a switch with DNS records. Only Networks with a
domain have them.

Of the tiers, `plan/policy/tiers.py` has the order, and how a rule passes. The priorities:

    30000  always   traffic that always works
    29999  admin    a priority for each rule that decides, and a band for rules that pass, with what follows from here:
    20001  default  rules that drop; with log one more
    19001             reject
    10001             allow
     1000             drop the rest, where the profile has a list
      999  baseline a priority for each rule
      100  open     allow the rest: without an ACL that allows, OVN would not track connections, and replies to them
                    would be dropped in the other direction
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.networks import Subnet
from netloom.model.kinds.policy import Action, EgressRule, IngressRule, Peer, SecurityProfile, Tier
from netloom.plan import names
from netloom.plan.addresses.blocks import Address, pool, text
from netloom.plan.policy import matches
from netloom.plan.policy.port_groups import group, peer_set, sets_of
from netloom.plan.policy.tiers import CLOSED, Levels, Place, Tiers, listed, tiers
from netloom.plan.rows import Column, Outcome, Row
from netloom.plan.world.world import World

ALWAYS = 30_000

_ACTIONS = {
    Action.ALLOW: "allow-related",
    Action.REJECT: "reject",
    Action.DROP: "drop",
    Action.PASS: "allow-related",  # Nothing of the tiers below drops it.
}

LOGS_PER_SECOND = 100
"""For each profile: a port scan must not fill a node's disk."""


class Way(Struct, frozen=True):
    """One of the two directions."""

    field: str
    """The profile's list."""
    peers: str
    """A rule's list of peers."""
    direction: str
    port: str
    end: str
    """Which address of a packet is the peer's."""
    options: dict[str, str]


INGRESS = Way("ingress", "from", "to-lport", "outport", "src", {})
EGRESS = Way("egress", "to", "from-lport", "inport", "dst", {"apply-after-lb": "true"})


class Match(NamedTuple):
    """What a rule matches, in one address family or, with None, in both."""

    version: int | None
    terms: tuple[str, ...]

    @property
    def suffix(self) -> str:
        """A suffix for the name of a row."""
        return f":v{self.version}" if self.version else ""


class Band(NamedTuple):
    """Where the rules of the tiers default and baseline are, for the traffic that a pass matches, or for all."""

    levels: Levels
    guard: Match
    name: str = ""


MAIN = Band(Levels(), Match(None, ()))


def plan_profile(world: World, profile: SecurityProfile) -> Outcome:
    """Plan a profile's port group, its ACLs, and the address sets they name."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    outcome = Outcome()
    acls = [*_always(world, profile)]
    logs = False
    for way in (INGRESS, EGRESS):
        rules = listed(profile, way.field)
        matches_of = [list(_matches(world, profile, way, n, rule, outcome)) for n, rule in enumerate(rules or ())]
        found = list(zip(rules or (), matches_of, strict=True))
        logs = logs or any(rule.log for rule in rules or ())
        order = world.shared(tiers, namespace, way.field)
        if name in order.closed:
            said = f"spec.{way.field}: tier {profile.spec.tier} has too many rules: the last drop everything instead"
            outcome.report("TooManyRules", f"{said}: use fewer rules, and fewer that pass between others")
        if profile.spec.tier is Tier.ADMIN:
            acls += _admin(profile, way, found, order)
            continue
        for band in (MAIN, *_bands(world, profile, way, order)):
            if profile.spec.tier is Tier.BASELINE:
                acls += _baseline(profile, way, found, order, band)
            elif rules is not None:
                acls += _default(profile, way, found, band)
        if rules is None:
            acls.append(_open(profile, way))
    if logs:
        outcome.rows += _meter(profile)
    for one in sets_of(world, profile):
        outcome.rows += one.rows()
    columns: dict[str, Column] = {"name": _symbol(profile), "acls": frozenset(acl.ref for acl in acls)}
    outcome.rows += [*acls, Row(*group(namespace, name), columns)]
    return outcome


Found = Sequence[tuple[IngressRule | EgressRule, Sequence[Match]]]
"""The rules of a profile, with what they match."""


def _default(profile: SecurityProfile, way: Way, found: Found, band: Band) -> Iterator[Row]:
    """Yield the ACLs of a profile of tier default: drops win over rejections, and these over what is allowed."""
    levels = {Action.DROP: band.levels.drop, Action.REJECT: band.levels.reject, Action.ALLOW: band.levels.allow}
    for position, (rule, some) in enumerate(found):
        priority = levels[rule.action] + rule.log  # Of two with the same match, the one that logs applies.
        yield from _rule_acls(profile, way, position, rule, some, priority, band)
    where = f"{way.field}:default"
    yield _acl(profile, way, where, "drop", band.levels.default, band.guard.terms, suffix=band.name)


def _admin(profile: SecurityProfile, way: Way, found: Found, order: Tiers) -> Iterator[Row]:
    """Yield the ACLs of a profile of tier admin; a pass ends with what is allowed if the tiers below decide nothing."""
    name = profile.metadata.name
    bands = {one.place: one.levels for one in order.passes}
    for position, (rule, some) in enumerate(found):
        place = Place(name, position)
        if place in order.admin:
            yield from _rule_acls(profile, way, position, rule, some, order.admin[place], MAIN)
        elif place in bands:
            yield from _rule_acls(profile, way, position, rule, some, bands[place].open, MAIN)
    if name in order.closed:
        yield _acl(profile, way, f"{way.field}:closed", "drop", CLOSED, ())
    yield _open(profile, way)


def _baseline(profile: SecurityProfile, way: Way, found: Found, order: Tiers, band: Band) -> Iterator[Row]:
    """Yield the ACLs of a profile of tier baseline."""
    name = profile.metadata.name
    for position, (rule, some) in enumerate(found):
        number = order.baseline.get(Place(name, position))
        if number is not None:
            yield from _rule_acls(profile, way, position, rule, some, band.levels.baseline - number, band)
    if name in order.closed:
        where = f"{way.field}:closed"
        yield _acl(profile, way, where, "drop", band.levels.closed, band.guard.terms, suffix=band.name)
    if band is MAIN:
        yield _open(profile, way)


def _bands(world: World, profile: SecurityProfile, way: Way, order: Tiers) -> Iterator[Band]:
    """Yield the bands of all rules of tier admin that pass."""
    namespace = profile.metadata.namespace
    for one in order.passes:
        # What is wrong with the rule is reported for its own profile.
        for match in _matches(world, profile, way, one.place.position, one.rule, Outcome()):
            name = f":pass:{one.place.profile}:{one.place.position}{match.suffix}"
            ours = f"{way.port} == @{names.symbol('pg', namespace, one.place.profile)}"
            yield Band(one.levels, Match(match.version, (ours, *match.terms)), name)


def _rule_acls(
    profile: SecurityProfile,
    way: Way,
    position: int,
    rule: IngressRule | EgressRule,
    found: Sequence[Match],
    priority: int,
    band: Band,
) -> Iterator[Row]:
    """Yield the ACLs of a rule: one for each family of its peers, or one for both if it has no peers."""
    log = names.symbol("log", profile.metadata.namespace, profile.metadata.name) if rule.log else None
    for one in found:
        if one.version is None or band.guard.version in (None, one.version):
            terms = (*band.guard.terms, *one.terms)
            suffix = one.suffix + band.name
            where = f"{way.field}[{position}]"
            yield _acl(profile, way, where, _ACTIONS[rule.action], priority, terms, suffix=suffix, log=log)


def _matches(
    world: World, profile: SecurityProfile, way: Way, position: int, rule: IngressRule | EgressRule, outcome: Outcome
) -> Iterator[Match]:
    """Yield what a rule matches: for each family of its peers, or for both if it has no peers."""
    peers = rule.from_ if isinstance(rule, IngressRule) else rule.to
    if not peers:
        yield Match(None, (matches.carried(rule.ports),) if rule.ports else ())
        return
    ends = _ends(world, profile, peers, f"spec.{way.field}[{position}].{way.peers}", outcome)
    for version in (4, 6):
        if not ends[version]:
            continue
        terms = [matches.addressed(version, way.end, sorted(set(ends[version])))]
        if rule.ports:
            terms.append(matches.carried(rule.ports, version))
        yield Match(version, tuple(terms))


def _ends(
    world: World, profile: SecurityProfile, peers: Sequence[Peer], at: str, outcome: Outcome
) -> dict[int, list[str]]:
    """Return the peers of a rule: blocks and address sets of each family."""
    namespace = profile.metadata.namespace
    found: dict[int, list[str]] = {4: [], 6: []}
    for position, peer in enumerate(peers):
        if peer.cidr:
            found[6 if ":" in peer.cidr else 4] += matches.left(peer.cidr, peer.except_)
            continue
        if peer.profile and world.get(SecurityProfile, namespace, peer.profile) is None:
            said = f"SecurityProfile {peer.profile} does not exist: create it, or name another"
            outcome.report("ProfileMissing", f"{at}[{position}].profile: {said}")
            continue
        members = peer_set(profile, peer)
        for version in (4, 6):
            found[version].append(f"${members.name(version)}")
    return found


def _open(profile: SecurityProfile, way: Way) -> Row:
    return _acl(profile, way, f"{way.field}:open", "allow-related", MAIN.levels.open, ("ip",))


def _always(world: World, profile: SecurityProfile) -> Iterator[Row]:
    """Yield the ACLs for what works although no rule allows it."""
    if profile.spec.ingress is not None:
        yield _acl(profile, INGRESS, "ingress:always", "allow", ALWAYS, ("(arp || nd || nd_ra)",))
        yield _acl(profile, INGRESS, "ingress:itself", "allow-related", ALWAYS, ("flags.loopback == 1", "ip"))
    if profile.spec.egress is not None:
        servers = ["255.255.255.255", *world.shared(_dhcp_servers, profile.metadata.namespace)]
        dhcp = f"({matches.one_of('ip4.dst', servers)} && udp.src == 68 && udp.dst == 67)"
        known = "arp || nd || nd_rs || eth.dst == $svc_monitor_mac"  # The last is the source of OVN's health checks.
        dhcp6 = "(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547)"
        yield _acl(profile, EGRESS, "egress:always", "allow", ALWAYS, (f"({known} || {dhcp} || {dhcp6})",))


def _acl(
    profile: SecurityProfile,
    way: Way,
    where: str,
    action: str,
    priority: int,
    terms: tuple[str, ...],
    *,
    suffix: str = "",
    log: str | None = None,
) -> Row:
    ours = f"{way.port} == @{_symbol(profile)}"
    of = f"{profile.metadata.namespace}/{profile.metadata.name}"
    columns: dict[str, Column] = {
        "name": _title(of, where),
        "direction": way.direction,
        "priority": priority,
        "match": " && ".join((ours, *terms)),
        "action": action,
        "log": log is not None,
        "severity": "info" if log else None,
        "meter": log,
        "options": way.options,
    }
    return Row("ACL", f"{of}:{where}{suffix}", columns)


def _title(of: str, where: str) -> str:
    """Return the name of a rule in logs: at most 63 characters, always with its position."""
    room = 62 - len(where)
    return f"{of if len(of) <= room else of[: room - 1] + '~'}:{where}"


def _meter(profile: SecurityProfile) -> tuple[Row, Row]:
    """Return the meter that limits the log messages of a profile, separately for each of its rules."""
    namespace, name = profile.metadata.namespace, profile.metadata.name
    key = f"{namespace}/{name}"
    band = Row("Meter_Band", key, {"action": "drop", "rate": LOGS_PER_SECOND, "burst_size": LOGS_PER_SECOND})
    columns: dict[str, Column] = {
        "name": names.symbol("log", namespace, name),
        "unit": "pktps",
        "fair": True,
        "bands": frozenset((band.ref,)),
    }
    return band, Row("Meter", key, columns)


def _symbol(profile: SecurityProfile) -> str:
    return names.symbol("pg", profile.metadata.namespace, profile.metadata.name)


def _dhcp_servers(world: World, namespace: str) -> tuple[str, ...]:
    """Return the DHCP servers of a namespace: clients renew a lease with the server that gave it."""
    found = set()
    for subnet in world.all(Subnet, namespace):
        dhcp = subnet.spec.dhcp
        if dhcp is None or not dhcp.enabled or ":" in subnet.spec.cidr:
            continue
        block = pool(subnet.metadata.name, subnet.spec.network, subnet.spec.cidr, gateway=subnet.spec.gateway)
        found.add(text(Address(4, block.first if block.gateway is None else block.gateway)))
    return tuple(sorted(found))
