"""Which MACs are in use on each Network, and who has the better right to one.

The right is decided alike wherever it is looked at: who has the MAC in its status comes before who only wants it, who
asks for it by name before who would get it by chance, the older before the younger. A MAC we are about to write counts
from then on, until the informer has seen the write.
"""

from collections.abc import Callable
from typing import NamedTuple

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Key
from netloom.plan.addresses import macs

_Network = tuple[str, str]


class Rank(NamedTuple):
    """Who comes first; smaller is better."""

    wants: bool
    unasked: bool
    age: tuple[str, str]


class Macs:
    """The MACs of all Networks."""

    def __init__(self, find: Callable[[str, str], Attachment | None]) -> None:
        """`find` gives an attachment as the informer knows it."""
        self._find = find
        self._users: dict[_Network, dict[int, Key | list[Key]]] = {}
        """Most MACs have one user: fifty thousand lists would cost more than all the rest."""
        self._claims: dict[Key, tuple[_Network, str]] = {}

    def changed(self, key: Key, old: Attachment | None, new: Attachment | None) -> list[Key]:
        """Follow the informer; return who may get what was given up."""
        before = {(_network(old), number) for number in _numbers(old)} if old else set()
        now = {(_network(new), number) for number in _numbers(new)} if new else set()
        for network, number in now - before:
            self._add(network, number, key)
        claim = self._claims.get(key)
        return [other for gone in before - now if gone != _claimed(claim) for other in self._remove(*gone, key)]

    def claim(self, view: Attachment, mac: str) -> None:
        """Let an attachment have a MAC that its status does not say yet."""
        self.unclaim(view.key)
        self._claims[view.key] = (_network(view), mac)
        self._add(_network(view), macs.number(mac), view.key)

    def unclaim(self, key: Key) -> list[Key]:
        """Let the informer's word count again; return who may get what was given up."""
        claim = self._claims.pop(key, None)
        view = self._find(*key)
        if claim is None or (
            view is not None and _network(view) == claim[0] and macs.number(claim[1]) in _numbers(view)
        ):
            return []
        return self._remove(claim[0], macs.number(claim[1]), key)

    def rival(self, view: Attachment, mac: str) -> Key | None:
        """Return who has a better right to a MAC than this attachment, if anybody."""
        users = self._users.get(_network(view), {}).get(macs.number(mac))
        if users is None or users == view.key:
            return None
        own = self._rank(view, mac)
        better = [
            (self._rank(other, mac), key)
            for key in ([users] if isinstance(users, Key) else users)
            if key != view.key and (other := self._find(*key)) is not None
        ]
        best = min(better, default=None)
        return best[1] if best is not None and best[0] < own else None

    def _rank(self, view: Attachment, mac: str) -> Rank:
        claim = self._claims.get(view.key)
        has = claim[1] if claim is not None else view.has_mac
        return Rank(has != mac, view.mac != mac, view.age)

    def _add(self, network: _Network, number: int, key: Key) -> None:
        users = self._users.setdefault(network, {})
        there = users.setdefault(number, key)
        if isinstance(there, list):
            if key not in there:
                there.append(key)
        elif there != key:
            users[number] = [there, key]

    def _remove(self, network: _Network, number: int, key: Key) -> list[Key]:
        """Take one user of a MAC away; return the others."""
        users = self._users.get(network, {})
        there = users.get(number)
        if isinstance(there, list) and key in there:
            there.remove(key)
            others = list(there)
            if len(there) == 1:
                users[number] = there[0]
            return others
        if there == key:
            del users[number]
            if not users:
                del self._users[network]
        return []


def _network(view: Attachment) -> _Network:
    return view.metadata.namespace, view.network


def _numbers(view: Attachment) -> set[int]:
    return {macs.number(mac) for mac in (view.mac, view.has_mac) if mac}


def _claimed(claim: tuple[_Network, str] | None) -> tuple[_Network, int] | None:
    return (claim[0], macs.number(claim[1])) if claim else None
