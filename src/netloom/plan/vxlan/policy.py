"""SecurityProfiles as flows, with the switch's own connection tracker. Pure.

`plan/ovn/profiles.py` defines what a profile means.

    a port's packet ──► OUT, IN: the class of the other end's address, and whether it is a reply (tracker)
                    ──► JUDGE: for each profile of the port with a list for this direction ──► RULES ──► bits of VERDICT
                    ──► VERDICT: some rule allows it and none forbids it: pass, and commit the connection

A profile's rules are flows of their own, once, however many ports the profile covers; a port names its profiles in one
flow for each direction. The other ends of a rule are not in its flows: an address has the class of all sets it is in,
and the rule refers to classes. A rule with other ends and with ports is a conjunction of the two. So the number of
flows grows with ports, with members and with rules, and never with the product of two of them.

A matching rule sets a bit; drop and reject forbid, in whatever order the rules are. In the tiers admin and baseline
(`plan/policy/tiers.py`) rules are in order: those of one profile by the priorities of their flows, and the flows match
only while no bit of their tier is set. An established connection is
evaluated again with each packet of its initiator: when a rule changes, connections that it no longer allows end, with
their replies.

Two things differ from OVN. Reject means drop: the switch could answer only by sending each such packet to a controller.
And nothing is logged.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.policy import (
    Action,
    EgressRule,
    IngressRule,
    Peer,
    PortRange,
    RuleProtocol,
    SecurityProfile,
    Tier,
)
from netloom.model.values import addresses
from netloom.openflow.flows import Action as Act
from netloom.openflow.flows import Conjunction, Ct, Flow, Goto, Resubmit, SetField
from netloom.plan.policy import matches
from netloom.plan.policy.port_groups import peer_set
from netloom.plan.vxlan.layout import (
    ALLOWED,
    CLASS,
    CLOSED,
    DELIVER,
    EST,
    HERE,
    ICMP,
    ICMP6,
    IN,
    IN_JUDGE,
    IN_PEER,
    IN_RATE,
    IN_RULES,
    IN_VERDICT,
    IPV4,
    IPV6,
    NEW,
    OUT,
    OUT_JUDGE,
    OUT_PEER,
    OUT_RATE,
    OUT_RULES,
    OUT_VERDICT,
    PROFILE,
    REL,
    RPL,
    SCTP,
    TCP,
    TO_PORT,
    TRK,
    UDP,
    VERDICT,
    flow,
    identity,
    mark,
    zone,
)

Set = str
"""A set of attachments that rules refer to, by its key in `plan/policy/port_groups.py`."""
Class = frozenset[Set]
"""All sets that an address is in."""
Number = tuple[int, int]
"""The number of a profile or a class, in two registers."""
Fields = dict[str, int | tuple[int, int]]

_KINDS = {4: IPV4, 6: IPV6}
_BITS = {Action.ALLOW: ALLOWED, Action.REJECT: 2, Action.DROP: 4, Action.PASS: 8}
_SHIFTS = {Tier.DEFAULT: 0, Tier.ADMIN: 4, Tier.BASELINE: 8}
"""Where the bits of a tier are."""
_PRIORITIES = {Action.ALLOW: 100, Action.REJECT: 200, Action.DROP: 300}
_FIRST = 200
"""The priority of the first rule of a profile whose rules are in order."""
_PROTOCOLS = {RuleProtocol.TCP: TCP, RuleProtocol.UDP: UDP, RuleProtocol.SCTP: SCTP}


class Way(NamedTuple):
    """One of the two directions, and its tables."""

    port: str
    """The field with the port whose profiles apply."""
    end: str
    """Which end of a packet the other end is."""
    entry: int
    judge: int
    peer: int
    rules: int
    verdict: int
    rate: int
    onward: int
    """The next table."""


EGRESS = Way("in_port", "dst", OUT, OUT_JUDGE, OUT_PEER, OUT_RULES, OUT_VERDICT, OUT_RATE, HERE)
INGRESS = Way(TO_PORT, "src", IN, IN_JUDGE, IN_PEER, IN_RULES, IN_VERDICT, IN_RATE, DELIVER)
WAYS = (EGRESS, INGRESS)


class Rule(Struct, frozen=True):
    """A rule of a profile for one address family, as flows need it."""

    way: Way
    action: Action
    number: int
    """The number of the conjunction, within the profile and direction."""
    kind: int
    """The Ethernet type of the family; 0: all packets, where neither other ends nor ports are given."""
    blocks: tuple[tuple[int, int], ...] | None
    """The blocks of the other end; None: any."""
    sets: frozenset[Set]
    services: tuple[Fields, ...] | None
    """Protocol and ports; None: any."""
    tier: Tier
    priority: int
    """Of the flows."""

    @property
    def undecided(self) -> Fields:
        """What a flow matches besides: in tiers with an order, that no rule before it has decided."""
        return {} if self.tier is Tier.DEFAULT else {VERDICT: (0, 15 << _SHIFTS[self.tier])}


def has_list(profile: SecurityProfile, way: Way) -> bool:
    """Whether a profile has a list of rules for a direction."""
    return _listed(profile, way) is not None


def _listed(profile: SecurityProfile, way: Way) -> Sequence[IngressRule | EgressRule] | None:
    return profile.spec.egress if way is EGRESS else profile.spec.ingress


def rules(profile: SecurityProfile, known: Callable[[str], bool]) -> tuple[Rule, ...]:
    """Return a profile's rules; `known` says whether a profile of a name exists in its namespace."""
    found: list[Rule] = []
    for way in WAYS:
        for position, rule in enumerate(_listed(profile, way) or ()):
            found += _read(profile, way, position, rule, known)
    return tuple(found)


def _read(
    profile: SecurityProfile, way: Way, position: int, rule: IngressRule | EgressRule, known: Callable[[str], bool]
) -> Iterator[Rule]:
    peers = rule.from_ if isinstance(rule, IngressRule) else rule.to
    tier = profile.spec.tier
    at = tier, _PRIORITIES[rule.action] if tier is Tier.DEFAULT else _FIRST - position
    if not peers and not rule.ports:
        yield Rule(way, rule.action, 0, 0, None, frozenset(), None, *at)
        return
    # An unknown profile has no members.
    members = [peer for peer in peers if not peer.cidr and (not peer.profile or known(peer.profile))]
    sets = frozenset(peer_set(profile, peer).key for peer in members)
    for version, kind in _KINDS.items():
        blocks = tuple(_blocks(peers, version)) if peers else None
        services = tuple(_services(rule.ports, version)) if rule.ports else None
        if blocks is None or blocks or sets:
            yield Rule(way, rule.action, 2 * position + version // 5 + 1, kind, blocks, sets, services, *at)


def _blocks(peers: Iterable[Peer], version: int) -> Iterator[tuple[int, int]]:
    for peer in peers:
        if peer.cidr and addresses.family(peer.cidr) == version:
            for text in matches.left(peer.cidr, peer.except_):
                block = addresses.block(text)
                yield int(block.network_address), int(block.netmask)


def _services(ports: Sequence[PortRange], version: int) -> Iterator[Fields]:
    for protocol in RuleProtocol:
        chosen = [one for one in ports if one.protocol is protocol]
        if not chosen:
            continue
        if protocol is RuleProtocol.ICMP:
            yield {"nw_proto": ICMP if version == 4 else ICMP6}
        elif any(one.port is None for one in chosen):
            yield {"nw_proto": _PROTOCOLS[protocol]}
        else:
            for first, last in matches.spans(chosen):
                for masked in _prefixes(first, last):
                    yield {"nw_proto": _PROTOCOLS[protocol], f"{protocol}_dst": masked}


def _prefixes(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield values and masks that together match a range of numbers."""
    while first <= last:
        size = first & -first or 1 << 16
        while first + size - 1 > last:
            size >>= 1
        yield first, 0xFFFF & ~(size - 1)
        first += size


# The flows of a profile.


class _Gathered:
    """Flows of several rules: two that match the same packets are one flow."""

    def __init__(self, profile: SecurityProfile) -> None:
        self._profile = dict(zip(PROFILE, number(profile), strict=True))
        self._flows: dict[tuple[int, int, tuple[tuple[str, int | tuple[int, int]], ...]], set[Act]] = {}

    def add(self, rule: Rule, fields: Fields, act: Act) -> None:
        key = rule.way.rules, rule.priority, tuple(sorted((fields | rule.undecided).items()))
        self._flows.setdefault(key, set()).add(act)

    def flows(self) -> Iterator[Flow]:
        for (table, priority, fields), acts in self._flows.items():
            # All flows of one priority set the same bit, so an unconditional one makes the conjunctions superfluous.
            plain = [act for act in acts if isinstance(act, SetField)]
            joint = sorted((act for act in acts if isinstance(act, Conjunction)), key=lambda act: (act.id, act.clause))
            yield flow(table, priority, tuple(plain or joint), **self._profile, **dict(fields))


def number(profile: SecurityProfile) -> Number:
    """Return a profile's number."""
    return identity("profile", profile.metadata.namespace, profile.metadata.name)


def class_number(one: Class) -> Number:
    """Return a class's number."""
    return identity("class", *sorted(one)) if one else (0, 0)


def profile_flows(profile: SecurityProfile, of: Iterable[Rule]) -> tuple[Flow, ...]:
    """Return the flows of a profile's rules that do not refer to members."""
    gathered = _Gathered(profile)
    for rule in of:
        found, services = _found(rule), rule.services
        kind: Fields = {"dl_type": rule.kind} if rule.kind else {}
        if rule.blocks is None:
            for service in ({},) if services is None else services:
                gathered.add(rule, kind | service, found)
            continue
        act: Act = found if services is None else Conjunction(rule.number, 1, 2)
        for block in rule.blocks:
            gathered.add(rule, kind | {_address(rule): block}, act)
        if services is not None:
            for service in services:
                gathered.add(rule, kind | service, Conjunction(rule.number, 2, 2))
            gathered.add(rule, {"conj_id": rule.number}, found)
    return tuple(gathered.flows())


def class_flows(profile: SecurityProfile, of: Iterable[Rule], one: Class) -> tuple[Flow, ...]:
    """Return the flows of a profile's rules for one class."""
    gathered = _Gathered(profile)
    ends = dict(zip(CLASS, class_number(one), strict=True))
    for rule in of:
        if not rule.sets.isdisjoint(one):
            act: Act = _found(rule) if rule.services is None else Conjunction(rule.number, 1, 2)
            gathered.add(rule, {"dl_type": rule.kind, **ends}, act)
    return tuple(gathered.flows())


def _found(rule: Rule) -> SetField:
    bit = _BITS[rule.action] << _SHIFTS[rule.tier]
    return SetField(VERDICT, bit, bit)


def _address(rule: Rule) -> str:
    return f"{'nw' if rule.kind == IPV4 else 'ipv6'}_{rule.way.end}"


# The flows of a port, and of an address.

_FORBIDDEN = _BITS[Action.REJECT] | _BITS[Action.DROP]
_ADMIN_ALLOWS = ALLOWED << _SHIFTS[Tier.ADMIN]
_PASSING = (
    (_ADMIN_ALLOWS, _ADMIN_ALLOWS),
    (
        ALLOWED,
        ALLOWED | _ADMIN_ALLOWS | _FORBIDDEN | _FORBIDDEN << _SHIFTS[Tier.ADMIN] | _FORBIDDEN << _SHIFTS[Tier.BASELINE],
    ),
)
"""The verdicts with which packets pass: tier admin allows it; or no tier forbids it, and tier default allows it."""


class Lists(NamedTuple):
    """The numbers of the profiles that are evaluated for a direction, by tier."""

    admin: tuple[Number, ...] = ()
    default: tuple[Number, ...] = ()
    baseline: tuple[Number, ...] = ()


class Cover(Struct, frozen=True):
    """The effect of profiles on a port."""

    profiles: tuple[tuple[str, str], ...] = ()
    """The profiles with a list that cover the port, by namespace and name."""
    listed: tuple[Lists, ...] = (Lists(), Lists())
    """For each direction, the profiles with a list for it."""
    missing: tuple[str, ...] = ()
    """The profiles that the port names and that do not exist: the port is closed."""
    sets: Class = frozenset()
    """The sets that the rules refer to."""


def port_flows(ofport: int, uid: str, cover: Cover, *, peers: bool) -> Iterator[Flow]:
    """Yield the flows that evaluate a port's packets; `peers`: the class of the other end matters."""
    tracked = bool(cover.profiles)
    for way, listed in zip(WAYS, cover.listed, strict=True) if tracked or peers else ():
        on: Fields = {way.port: ofport}
        classify: list[Act] = [*(SetField(field, 0) for field in CLASS), Resubmit(way.peer)] if peers else []
        after: Act = Ct(zone(ofport), table=way.judge) if tracked else Goto(way.rate)
        for kind in _KINDS.values():
            yield flow(way.entry, 100, (*classify, after), **on, dl_type=kind)
        if not tracked:
            continue
        yield flow(way.entry, 90, (Goto(way.judge),), **on)
        acts: list[Act] = [SetField(VERDICT, 0 if listed.default else ALLOWED)]
        for profile in (*listed.admin, *listed.default, *listed.baseline):
            acts += [SetField(field, value) for field, value in zip(PROFILE, profile, strict=True)]
            acts.append(Resubmit(way.rules))
        yield flow(way.judge, 100, (*acts, Goto(way.verdict)), **on)
        yield from _replies(way, on, mark(uid))
        yield from _verdicts(way, on, zone(ofport), mark(uid), tiered=bool(listed.admin or listed.baseline))


def _replies(way: Way, on: Fields, own: int) -> Iterator[Flow]:
    """Yield the flows that let replies and errors pass, except those of closed connections."""
    answer, error = (TRK | EST | RPL, TRK | EST | RPL | NEW), (TRK | REL, TRK | REL | EST | NEW)
    for state in (answer, error):
        yield flow(way.judge, 200, (Goto(way.rate),), **on, ct_state=state, ct_mark=own)
        yield flow(way.judge, 200, (), **on, ct_state=state, ct_mark=own | CLOSED)


def _verdicts(way: Way, on: Fields, of_zone: int, own: int, *, tiered: bool) -> Iterator[Flow]:
    """Yield the flows that pass allowed connections, and close those that are no longer allowed."""
    commit = Ct(of_zone, commit=True, exec=(SetField("ct_mark", own),))
    close = Ct(of_zone, commit=True, exec=(SetField("ct_mark", own | CLOSED),))
    for verdict in _PASSING if tiered else (ALLOWED,):
        allowed: Fields = {**on, VERDICT: verdict}
        yield flow(way.verdict, 100, (Goto(way.rate),), **allowed, ct_state=(TRK, TRK | NEW), ct_mark=own)
        for kind in _KINDS.values():  # A switch accepts connection tracking only in a flow that matches IP.
            may = {**allowed, "dl_type": kind}
            yield flow(way.verdict, 100, (commit, Goto(way.rate)), **may, ct_state=(TRK | NEW, TRK | NEW))
            yield flow(way.verdict, 90, (commit, Goto(way.rate)), **may, ct_state=(TRK, TRK | NEW))
    for kind in _KINDS.values():
        yield flow(way.verdict, 50, (close,), **on, dl_type=kind, ct_state=(TRK | EST, TRK | EST), ct_mark=own)


def peer_flows(vni: int, version: int, ip: int, one: Class) -> Iterator[Flow]:
    """Yield the flows that set the class of an address."""
    acts = tuple(SetField(field, value) for field, value in zip(CLASS, class_number(one), strict=True))
    for way in WAYS:
        field = f"{'nw' if version == 4 else 'ipv6'}_{way.end}"
        yield flow(way.peer, 100, acts, tun_id=vni, dl_type=_KINDS[version], **{field: ip})
