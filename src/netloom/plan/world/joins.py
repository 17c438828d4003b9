"""What an attachment joins by its labels: the profiles whose selectors select it, and the peers of rules.  Pure.

A cluster has thousands of attachments and of profiles, and a profile comes or goes every moment. So selectors are
grouped by a label that everything they select must have, and each group is a topic of its own (`tracking`): a profile
that changes has only those attachments planned again that have one of its labels. A change of its rules that leaves its
selectors alone has none planned again.

Two profiles with the same selector of peers share one set. The profile of the smallest name plans it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from netloom.model.kinds.policy import Peer, SecurityProfile
from netloom.plan.world.selector_matches import ANY, ScopedSelector, selector_in
from netloom.plan.world.tracking import Topic


class Join(NamedTuple):
    """What the attachments join that a selector selects."""

    selector: ScopedSelector
    profile: str
    """The profile that covers them; "": they are peers of rules."""


class JoinIndex:
    """The selectors of all profiles, by labels."""

    def __init__(self, touch: Callable[[Topic], None]) -> None:
        """`touch` is called with the topics whose results changed."""
        self._touch = touch
        self._by_label: dict[Topic, dict[Join, None]] = {}
        self._keys: dict[Topic, int] = {}
        """How many groups there are with a label key."""
        self._users: dict[ScopedSelector, set[str]] = {}
        """The profiles with a selector of peers."""
        self._named: dict[Topic, set[str]] = {}
        """The profiles with rules that name a profile."""

    def change(self, old: SecurityProfile | None, new: SecurityProfile | None) -> None:
        """Replace a profile; None: there is none."""
        before, after = _joins(old), _joins(new)
        for join in before.keys() - after.keys():
            self._leave(join, before[join])
        for join in after.keys() - before.keys():
            self._enter(join, after[join])
        was, now = _names(old), _names(new)
        for topic in now.keys() - was.keys():
            users = self._named.setdefault(topic, set())
            users.add(now[topic])
            if len(users) == 1:
                self._touch(topic)
        for topic in was.keys() - now.keys():
            self._named[topic].discard(was[topic])
            if not self._named[topic]:
                del self._named[topic]
                self._touch(topic)

    def _enter(self, join: Join, user: str) -> None:
        if not join.profile:
            users = self._users.setdefault(join.selector, set())
            leader = min(users, default="")
            users.add(user)
            self._led(join.selector, leader, min(users))
            if len(users) > 1:
                return
        for topic in _topics(join.selector):
            group = self._by_label.setdefault(topic, {})
            if not group:
                self._count(topic, 1)
            group[join] = None
            self._touch(topic)

    def _leave(self, join: Join, user: str) -> None:
        if not join.profile:
            users = self._users[join.selector]
            leader = min(users)
            users.discard(user)
            self._led(join.selector, leader, min(users, default=""))
            if users:
                return
            del self._users[join.selector]
        for topic in _topics(join.selector):
            del self._by_label[topic][join]
            if not self._by_label[topic]:
                del self._by_label[topic]
                self._count(topic, -1)
            self._touch(topic)

    def _led(self, selector: ScopedSelector, old: str, new: str) -> None:
        """Touch the profiles of which one plans a set instead of the other."""
        if old != new:
            self._touch(("leads", selector, old))
            self._touch(("leads", selector, new))

    def _count(self, topic: Topic, change: int) -> None:
        """Count the groups of a label key."""
        assert isinstance(topic, tuple)
        key = ("join_key", *topic[1:3])
        count = self._keys.get(key, 0) + change
        if count:
            self._keys[key] = count
        else:
            del self._keys[key]
        if (count == 1 and change > 0) or not count:
            self._touch(key)

    def matching(self, namespace: str, labels: Mapping[str, str], read: Callable[[Topic], None]) -> Iterator[Join]:
        """Yield what an attachment with these labels joins; `read` is called with the topics that were looked up."""
        yield from self._group(("joins", namespace, "", ""), labels, read)
        for key, value in labels.items():
            used = ("join_key", namespace, key)
            read(used)
            if used in self._keys:
                yield from self._group(("joins", namespace, key, value), labels, read)
                yield from self._group(("joins", namespace, key, ANY), labels, read)

    def _group(self, topic: Topic, labels: Mapping[str, str], read: Callable[[Topic], None]) -> Iterator[Join]:
        read(topic)
        for join in self._by_label.get(topic, ()):
            if join.selector.matches(labels):
                yield join

    def leads(self, selector: ScopedSelector, profile: str, read: Callable[[Topic], None]) -> bool:
        """Return whether it is this profile that plans the set of a selector of peers."""
        read(("leads", selector, profile))
        return min(self._users.get(selector, ()), default="") == profile

    def is_named(self, namespace: str, profile: str, read: Callable[[Topic], None]) -> bool:
        """Return whether a rule names a profile as its peer."""
        topic = ("named", namespace, profile)
        read(topic)
        return topic in self._named


def peers(profile: SecurityProfile) -> Iterator[Peer]:
    """Yield the peers of all rules of a profile."""
    for ingress in profile.spec.ingress or ():
        yield from ingress.from_
    for egress in profile.spec.egress or ():
        yield from egress.to


def _joins(profile: SecurityProfile | None) -> dict[Join, str]:
    if profile is None:
        return {}
    namespace, name = profile.metadata.namespace, profile.metadata.name
    found = {
        Join(selector_in(namespace, peer.selector), ""): name for peer in peers(profile) if peer.selector is not None
    }
    if profile.spec.selector is not None:
        found[Join(selector_in(namespace, profile.spec.selector), name)] = name
    return found


def _names(profile: SecurityProfile | None) -> dict[Topic, str]:
    if profile is None:
        return {}
    namespace, name = profile.metadata.namespace, profile.metadata.name
    return {("named", namespace, peer.profile): name for peer in peers(profile) if peer.profile}


def _topics(selector: ScopedSelector) -> Iterator[Topic]:
    anchors = selector.anchors()
    if not anchors:
        yield "joins", selector.namespace, "", ""
    for key, value in anchors:
        yield "joins", selector.namespace, key, value
