"""What SecurityProfiles let pass between attachments.  Pure.

They are stateful: only the first packet of a connection is decided on. A rule for some ports is taken to let packets
pass, and to drop none.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.policy import Action, EgressRule, IngressRule, Peer, SecurityProfile
from netloom.plan.sandbox.blocks import Ip, containing
from netloom.plan.world.selector_matches import selector_in


class _Member(NamedTuple):
    """An attachment."""

    labels: Mapping[str, str]
    profiles: tuple[str, ...]
    sources: frozenset[Ip]


class Firewalls:
    """The SecurityProfiles of a namespace, by name."""

    def __init__(self, profiles: Mapping[str, SecurityProfile]) -> None:
        self._profiles = profiles
        self._members: list[_Member] = []
        self._allowed: dict[tuple[tuple[str, ...], bool, Ip], bool] = {}
        self._peers: dict[int, Callable[[Ip], bool]] = {}
        """By identity: a selector has no hash."""

    def add(self, one: NetworkAttachment, sources: frozenset[Ip]) -> tuple[str, ...]:
        """Add an attachment with the addresses that it may send from; return the profiles that apply to it."""
        labels = one.metadata.labels
        selecting = {
            name
            for name, profile in self._profiles.items()
            if profile.spec.selector is not None and selector_in("", profile.spec.selector).matches(labels)
        }
        names = tuple(sorted({*one.spec.security_profiles, *selecting}))
        self._members.append(_Member(labels, names, sources))
        return names

    def allow(self, profiles: tuple[str, ...], peer: Ip, *, egress: bool) -> bool:
        """Whether some profiles let a new connection to or from a peer pass."""
        key = profiles, egress, peer
        known = self._allowed.get(key)
        if known is None:
            known = self._allowed[key] = self._decide(profiles, peer, egress=egress)
        return known

    def _decide(self, profiles: tuple[str, ...], peer: Ip, *, egress: bool) -> bool:
        found = [self._profiles.get(name) for name in profiles]
        if None in found:
            return False  # A profile that does not exist drops everything.
        specs = [one.spec for one in found if one is not None]
        lists: list[tuple[EgressRule, ...] | tuple[IngressRule, ...] | None]
        lists = [spec.egress if egress else spec.ingress for spec in specs]
        rules = [rule for rules in lists if rules is not None for rule in rules]
        matching = [rule for rule in rules if self._matches(rule, peer)]
        if any(rule.action is not Action.ALLOW and not rule.ports for rule in matching):
            return False
        return all(one is None for one in lists) or any(rule.action is Action.ALLOW for rule in matching)

    def _matches(self, rule: EgressRule | IngressRule, ip: Ip) -> bool:
        peers = rule.to if isinstance(rule, EgressRule) else rule.from_
        return not peers or any(self._peer(one)(ip) for one in peers)

    def _peer(self, peer: Peer) -> Callable[[Ip], bool]:
        if id(peer) not in self._peers:
            self._peers[id(peer)] = self._new_peer(peer)
        return self._peers[id(peer)]

    def _new_peer(self, peer: Peer) -> Callable[[Ip], bool]:
        if peer.cidr:
            inside, outside = containing((peer.cidr,)), containing(peer.except_)
            return lambda ip: inside(ip) and not outside(ip)
        if peer.selector is not None:
            selector = selector_in("", peer.selector)
            chosen = [one for one in self._members if selector.matches(one.labels)]
        else:
            chosen = [one for one in self._members if peer.profile in one.profiles]
        return frozenset().union(*(one.sources for one in chosen)).__contains__
