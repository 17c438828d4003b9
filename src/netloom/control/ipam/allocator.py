"""Choosing an address: one the attachment had, if that is to be had, else the next that is free.

Next is after the one chosen before, and from the beginning behind the last: so a freed address is not given again at
once, and of many workers each tries another.
"""

from collections.abc import Iterator

from netloom.control.ipam.ledger import Books, Lines
from netloom.control.ipam.lock_client import Locksmith
from netloom.control.ipam.telemetry import Teller
from netloom.control.ipam.views import Attachment, Lock
from netloom.control.runtime.cache import Key
from netloom.errors import Unreachable
from netloom.plan.addresses.allocation import Slot
from netloom.plan.addresses.blocks import Address, address, lock_name


class Chooser:
    """Gets addresses for attachments."""

    def __init__(self, books: Books, lines: Lines, smith: Locksmith, teller: Teller) -> None:
        self.smith = smith
        self._books = books
        self._lines = lines
        self._teller = teller
        self._cursors: dict[Key, int] = {}
        self._attempts: dict[Key, tuple[Address, ...]] = {}
        """Addresses whose locks may have been made: the store did not say."""

    def forget(self, key: Key) -> None:
        """Know that an attachment is gone."""
        self._attempts.pop(key, None)

    async def choose(self, view: Attachment, vni: int, slot: Slot) -> Lock | None:
        """Lock one address for a slot: one it had, if that is to be had, else the next that is free."""
        for one in self._preferred(view, vni, slot):
            lock = await self.take(view, vni, one)
            if self.smith.is_mine(view, lock):
                return lock
        while (number := self._pick(view, vni, slot)) is not None:
            lock = await self.take(view, vni, Address(slot.version, number))
            if self.smith.is_mine(view, lock):
                return lock
        return None

    async def take(self, view: Attachment, vni: int, one: Address) -> Lock:
        """Lock an address, or return whose it is; remember it where that is not known."""
        try:
            lock = await self.smith.take(view, vni, one)
        except Unreachable:
            self._attempts[view.key] = tuple({*self._attempts.get(view.key, ()), one})
            raise
        self._attempts.pop(view.key, None)
        if not self.smith.is_mine(view, lock):
            self._teller.retried("Taken")
        return lock

    def _preferred(self, view: Attachment, vni: int, slot: Slot) -> Iterator[Address]:
        """Give addresses of a slot that the attachment had or may have, as far as they are to be had."""
        had = [lock.address for lock in self._books.former(view.key) if lock.vni == vni]
        had += [one for ip, _ in view.locks if view.vni == vni and (one := address(ip)) is not None]
        for one in dict.fromkeys((*self._attempts.get(view.key, ()), *had)):
            if not any(where.holds(one) and where.gives(one) for where in slot.places):
                continue
            name = lock_name(vni, one)
            lock = self._books.lock(view.metadata.namespace, name) or self._books.resting(view.metadata.namespace, name)
            if lock is None or self.smith.may_have(view, lock):
                yield one

    def _pick(self, view: Attachment, vni: int, slot: Slot) -> int | None:
        """Return a free address that nobody before us in line will take."""
        used = self._books.book(view.metadata.namespace, vni).of(slot.version)
        for one in slot.places:
            subnet = Key(view.metadata.namespace, one.name)
            if self._lines.any(subnet):
                free = one.free(used)
                if free == 0 or free <= self._lines.older(subnet, view.key, view.age):
                    continue
            number = one.choose(used, self._cursors.get(subnet, 0))
            if number is not None:
                self._cursors[subnet] = number + 1
                return number
        return None
