"""The MACs in use in each Network, and which attachment has precedence for one.

Every process decides precedence in the same way: an attachment whose status has the MAC comes before one that only
wants it, one that requests it by name before one to which it would be assigned, the older before the younger. A MAC
that this process is about to write counts from then on, until the informer has seen the write.
"""

from collections.abc import Callable
from typing import NamedTuple

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Key
from netloom.plan.addresses import macs

_Network = tuple[str, str]


class Precedence(NamedTuple):
    """The order of attachments that want one MAC; the smallest gets it."""

    has_not: bool
    unrequested: bool
    age: tuple[str, str]


class MacTable:
    """The MACs of all Networks."""

    def __init__(self, find: Callable[[str, str], Attachment | None]) -> None:
        """`find` returns an attachment as the informer has it."""
        self._find = find
        self._users: dict[_Network, dict[int, Key | list[Key]]] = {}
        """Most MACs have one user, stored without a list: fifty thousand lists would need more memory than the rest."""
        self._claims: dict[Key, tuple[_Network, str]] = {}

    def attachment_changed(self, key: Key, old: Attachment | None, new: Attachment | None) -> list[Key]:
        """Apply a change that the informer reports; return the attachments that may get a freed MAC."""
        before = {(_network(old), number) for number in _numbers(old)} if old else set()
        now = {(_network(new), number) for number in _numbers(new)} if new else set()
        for network, number in now - before:
            self._add(network, number, key)
        claim = self._claims.get(key)
        return [other for gone in before - now if gone != _claimed(claim) for other in self._remove(*gone, key)]

    def claim(self, view: Attachment, mac: str) -> None:
        """Assign a MAC to an attachment before its status has it."""
        self.unclaim(view.key)
        self._claims[view.key] = (_network(view), mac)
        self._add(_network(view), macs.number(mac), view.key)

    def unclaim(self, key: Key) -> list[Key]:
        """Use what the informer has again; return the attachments that may get a freed MAC."""
        claim = self._claims.pop(key, None)
        view = self._find(*key)
        if claim is None or (
            view is not None and _network(view) == claim[0] and macs.number(claim[1]) in _numbers(view)
        ):
            return []
        return self._remove(claim[0], macs.number(claim[1]), key)

    def rival(self, view: Attachment, mac: str) -> Key | None:
        """Return the attachment that has precedence over this one for a MAC, or None."""
        users = self._users.get(_network(view), {}).get(macs.number(mac))
        if users is None or users == view.key:
            return None
        own = self._precedence(view, mac)
        others = [
            (self._precedence(other, mac), key)
            for key in ([users] if isinstance(users, Key) else users)
            if key != view.key and (other := self._find(*key)) is not None
        ]
        first = min(others, default=None)
        return first[1] if first is not None and first[0] < own else None

    def _precedence(self, view: Attachment, mac: str) -> Precedence:
        claim = self._claims.get(view.key)
        has = claim[1] if claim is not None else view.has_mac
        return Precedence(has != mac, view.mac != mac, view.age)

    def _add(self, network: _Network, number: int, key: Key) -> None:
        users = self._users.setdefault(network, {})
        there = users.setdefault(number, key)
        if isinstance(there, list):
            if key not in there:
                there.append(key)
        elif there != key:
            users[number] = [there, key]

    def _remove(self, network: _Network, number: int, key: Key) -> list[Key]:
        """Remove one user of a MAC; return the others."""
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
