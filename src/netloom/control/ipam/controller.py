"""IPAM: gives each attachment its addresses and its MAC, and takes them back.

    attachment ──► decide (plan/wishes) ──► create IPLocks ──► write the status that names them ──► delete spare IPLocks

The IPLock is the hard state. Its name is made of VNI and address, and a store creates a name once: whoever made the
lock has the address, whatever anybody's cache says. Its owner is the attachment, so it goes with it.

Why an address is never given twice, and none that is in use is taken away, although two processes may believe to lead,
caches be stale and requests arrive late:

- A lock is *named* in a status only by a write that carries the revision of the attachment the decision was made by; so
  of two deciders one succeeds, and the other decides again.
- A lock says at which revision of its attachment it was decided on. It may be named without further ado only at that
  revision. To name it later it is *touched* first: updated to say the new revision, which changes its own revision.
- A lock is deleted (released) only by who has seen its attachment at a later revision that does not name it, and the
  deletion carries the revision of the lock. So whoever decided on it before can no longer name it, because the
  attachment has moved on; and whoever decides now touches it, so that either the touch or the deletion fails.
- Everybody prefers a lock the status names, then the oldest: see `plan/wishes`.

A crash between any two steps leaves a lock that its attachment owns and does not name: it is used, or released, when
the attachment is looked at again.

A freed address rests in quarantine: the lock's finalizer keeps its name from being created again (`locks`). An
attachment made anew under the same name takes such an address back at once.

An attachment whose Subnets are full waits in their queue (`wait_queue`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from netloom.control.ipam.allocator import Chooser
from netloom.control.ipam.lock_client import Locksmith
from netloom.control.ipam.macs import Macs
from netloom.control.ipam.status import FULL, Result, settled
from netloom.control.ipam.status_writer import Scribe
from netloom.control.ipam.telemetry import Teller, reference_to
from netloom.control.ipam.views import ADDRESSED, BY_NETWORK, BY_SUBNET, Attachment, Lock, Seen
from netloom.control.ipam.wait_queue import Room
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.gc import BY_UID
from netloom.errors import NetloomError
from netloom.model.events import ObjectReference
from netloom.model.networks import Network, Router, Subnet
from netloom.model.policy import LoadBalancer
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import Decision, Held, Refusal, Slot, Wish, decide
from netloom.plan.addresses.blocks import Address, Place, address, lock_name

WORKERS = 256


@dataclass(slots=True)
class _Found:
    """What came of trying to fulfil a decision."""

    locks: list[Lock] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    full: list[Key] = field(default_factory=list)
    """The Subnets to wait at."""
    blocked: list[Address] = field(default_factory=list)


class Ipam:
    """Reconciles attachments.  The keys are attachments' keys."""

    def __init__(
        self,
        client: Client,
        *,
        attachments: Cache[Attachment],
        locks: Cache[Lock],
        networks: Cache[Network],
        recorder: Recorder,
        clock: Clock = time_of_day,
        quarantine: float = 5.0,
    ) -> None:
        """`attachments` and `locks` are the caches of `views`' informers."""
        self._teller = Teller(recorder, clock=clock)
        self.counters = self._teller.counters
        self.room = Room(locks=locks, networks=networks, quarantine=quarantine)
        self.books, self.lines, self.places = self.room.books, self.room.lines, self.room.places
        self._attachments = attachments
        self._locks = locks
        self._networks = networks
        self._smith = Locksmith(client, self.books, quarantine=quarantine)
        self._chooser = Chooser(self.books, self.lines, self._smith, self._teller)
        self._macs = Macs(attachments.get)
        self._scribe = Scribe(client, self._macs, clock=clock)
        self._written: dict[Key, int] = {}
        """The revisions we wrote that the informer has not seen."""
        self._again: set[Key] = set()
        """Who was to be looked at while the informer was behind."""

    # What changed, and whom it concerns.

    def attachment_changed(self, change: Change[Attachment]) -> Iterable[Key]:
        """Return whom a change of an attachment concerns: itself, and who waits for a MAC it gave up."""
        key, old, new = change.key, change.old, change.new
        self.room.bespeak(self.room.bespoken.attachment_changed(change))
        yield from self._macs.changed(key, old, new)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._forget(key)
            for ip, _ in old.locks:
                if (one := address(ip)) is not None:
                    self.books.left_behind(key, Key(key.namespace, lock_name(old.vni, one)))
        if new is None:
            yield from self._macs.unclaim(key)
            return
        if old is None and not new.locks:
            self._teller.seen(key)
        written = self._written.get(key)
        if written is not None and new.metadata.revision >= written:
            del self._written[key]
            yield from self._macs.unclaim(key)
            if new.metadata.revision == written and key not in self._again:
                return  # Our own write, after which there was nothing to do.
        self._again.discard(key)
        yield key

    def lock_changed(self, change: Change[Lock]) -> Iterable[Key]:
        """Return whom a change of a lock concerns: its owner; and wake who waits if it is gone."""
        old, new = change.old, change.new
        ours = new is not None and self._smith.made(new)
        self.books.changed(change)
        self.books.settle()
        if old is None and new is not None:
            for subnet in self.places.around(change.key.namespace, new.network, new.address):
                self.room.used(subnet)
        owners = {owner.name for one in (old, new) if one is not None and (owner := one.owner)}
        if new is not None and (owner := new.owner) is not None:
            namesake = self._attachments.get(change.key.namespace, owner.name)
            if namesake is not None and namesake.metadata.uid != owner.uid:
                self.books.left_behind(Key(change.key.namespace, owner.name), change.key)
        if not ours:
            yield from (Key(change.key.namespace, name) for name in owners)

    def network_changed(self, change: Change[Network]) -> Iterable[Key]:
        """Return whom a change of a Network concerns: its attachments, if its VNI did."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.status.vni == new.status.vni:
            return []
        for name in self.places.on(*change.key):
            self.room.used(Key(change.key.namespace, name))
        return self._in_order(self._attachments.indexed(BY_NETWORK, str(change.key)))

    def subnet_changed(self, change: Change[Subnet]) -> Iterable[Key]:
        """Return whom a change of a Subnet concerns: who is on its Network or names it, if its addresses changed."""
        self.room.used(change.key)  # Always: what its status says may be older than what was counted.
        networks = self.places.changed(change)
        if not networks:
            return []
        concerned = {one.key: one for one in self._attachments.indexed(BY_SUBNET, str(change.key))}
        for network in networks:
            found = self._attachments.indexed(BY_NETWORK, str(Key(change.key.namespace, network)))
            concerned |= {one.key: one for one in found}
        return self._in_order(concerned.values())

    def router_changed(self, change: Change[Router]) -> Iterable[Key]:
        """Know which addresses a Router has, and wake who waits for one it gave up."""
        self.room.bespeak(self.room.bespoken.router_changed(change))
        return ()

    def balancer_changed(self, change: Change[LoadBalancer]) -> Iterable[Key]:
        """Know which VIPs a LoadBalancer has, and wake who waits for one it gave up."""
        self.room.bespeak(self.room.bespoken.balancer_changed(change))
        return ()

    def everything(self) -> Iterable[Key]:
        """Return all keys: who has waited before first, and of these the oldest."""
        for key, lock in self._locks.items():
            owner = lock.owner
            if owner is not None and not self._attachments.indexed(BY_UID, owner.uid):
                self.books.left_behind(Key(key.namespace, owner.name), key)
        return self._in_order(self._attachments)

    def about(self, key: Key) -> ObjectReference | None:
        """Return the attachment a key means, for Events."""
        view = self._attachments.get(*key)
        return reference_to(view) if view is not None else None

    @property
    def locks(self) -> int:
        """How many addresses are locked."""
        return len(self._locks)

    # Looking at one attachment.

    async def reconcile(self, key: Key) -> float | None:
        """Give one attachment what it is to have."""
        view = self._attachments.get(*key)
        if view is None or view.metadata.deletion_timestamp:
            self.room.leave(key)  # What it has goes with it.
            return None
        if self._written.get(key, 0) > view.metadata.revision:
            self._again.add(key)
            return None
        if self._served(view):
            return None
        try:
            await self._look(view)
        except NetloomError as error:
            self._teller.retried(type(error).__name__)
            raise
        return None

    async def _look(self, view: Attachment) -> None:
        self.books.settle()
        network = self._networks.get(view.metadata.namespace, view.network)
        vni = network.status.vni if network is not None else None
        places = self.places.of(view)
        decision = self._decide(view, vni, places, there=network is not None)
        try:
            found = await self._fulfil(view, vni or 0, decision)
        except NetloomError as error:
            if error.retry:  # It keeps its place in line while it rests.
                subnets = [Key(view.metadata.namespace, one.name) for slot in decision.choose for one in slot.places]
                self.room.wait(view.key, view.age, subnets, ())
            raise
        if decision.pending and not (decision.refusals or found.refusals or found.locks or view.locks):
            return  # Nothing is known yet.
        result = self._scribe.result(view, vni, places, decision, locks=found.locks, refusals=found.refusals)
        revision = await self._publish(view, result, decision.release)
        for held in decision.release:
            if held.decided < revision:
                await self._smith.release(view, held)
                self.counters.released += 1

    def _served(self, view: Attachment) -> bool:
        """Whether an attachment without particular requests has what its locks say: said quickly, as most have.

        The status is compared with the locks exactly, also where a controller wrote it: what differs is put back.
        """
        if view.subnets or view.ips or view.mac or view.errors or not view.has_mac or self.lines.waits(view.key):
            return False
        network = self._networks.get(view.metadata.namespace, view.network)
        if network is None or network.status.vni != view.vni or not _says_so(view):
            return False
        around = self.places.on(view.metadata.namespace, view.network)
        places = {one.version: one for one in around.values() if one.validated}
        if len(places) != len(around) or len(view.locks) != len(view.has_ips):
            return False  # Several Subnets of a family, or one that is not valid: that takes a closer look.
        owned = {lock.metadata.uid: lock for lock in self.books.owned(view.metadata.uid)}
        first: Address | None = None
        for (locked, uid), ip in zip(view.locks, view.has_ips, strict=True):
            lock = owned.pop(uid, None)
            place = places.pop(lock.version, None) if lock is not None else None
            if lock is None or place is None or lock.vni != view.vni or not place.holds(lock.address):
                return False
            if locked != str(lock.address) or ip != f"{locked}/{place.prefix}":
                return False
            first = first or lock.address
        if owned or places or first is None or view.has_mac not in macs.candidates(view.vni, first):
            return False
        return self._macs.rival(view, view.has_mac) is None

    def _decide(self, view: Attachment, vni: int | None, places: Mapping[str, Place], *, there: bool) -> Decision:
        meta = view.metadata
        wish = Wish(meta.namespace, view.network, view.subnets, view.ips, tuple(uid for _, uid in view.locks))
        held = [_held(one) for one in self.books.owned(meta.uid)]

        def taken(one: Address) -> str | None:
            name = lock_name(vni or 0, one)
            lock = self.books.lock(meta.namespace, name) or self.books.resting(meta.namespace, name)
            if lock is None or self._smith.may_have(view, lock):
                return self.room.bespoken.owner(Key(meta.namespace, view.network), one)
            return _had(lock)

        return decide(wish, vni, places, held, taken, network=there)

    async def _fulfil(self, view: Attachment, vni: int, decision: Decision) -> _Found:
        """Get the locks that are missing; what cannot be had is waited for."""
        found = _Found(blocked=list(decision.blocked))
        namespace = view.metadata.namespace
        named = {uid for _, uid in view.locks}
        for held in decision.keep:
            if held.uid not in named:
                found.locks.append(await self._smith.adopt(view, held))
        for one in decision.take:
            lock = await self._chooser.take(view, vni, one)
            if self._smith.is_mine(view, lock):
                found.locks.append(lock)
            else:
                found.refusals.append(Refusal("Taken", f"{one} is {_had(lock)}"))
                found.blocked.append(one)
        for slot in decision.choose:
            chosen = await self._chooser.choose(view, vni, slot)
            if chosen is not None:
                found.locks.append(chosen)
            else:
                found.refusals.append(_full(slot))
                found.full += [Key(namespace, one.name) for one in slot.places]
        asked = {Key(namespace, lock_name(vni, one)): one for one in found.blocked}
        self.room.wait(view.key, view.age, found.full, asked)
        # What was freed while we were at other parts of the wish was not waited for yet.
        for subnet in found.full:
            self.room.wake_line(subnet)
        on = Key(namespace, view.network)
        if any(self.room.is_free(key, on, one) for key, one in asked.items()):
            self.room.wake([view.key])
        if found.locks:
            self._teller.locked(view)
        return found

    # Saying it.

    async def _publish(self, view: Attachment, result: Result, spare: Iterable[Held]) -> int:
        """Write the status if it says anything new; return the attachment's revision, as far as we know."""
        revision = view.metadata.revision
        if settled(view, result):
            fresh = [held for held in spare if held.decided >= revision]
            if not fresh:
                return revision
            # Somebody may be about to name these at this very revision. A write ends that; the next look undoes it.
            words = f"gives back {', '.join(str(held.address) for held in fresh)}"
            result = Result(result.ips, result.mac, result.vni, result.locks, result.refusals, result.pending, words)
        if result.mac and result.mac != view.has_mac:
            self._macs.claim(view, result.mac)
        try:
            revision = await self._scribe.write(view, result)
        except BaseException:
            self.room.wake(self._macs.unclaim(view.key))
            raise
        cached = self._attachments.get(*view.key)
        if cached is not None and cached.metadata.revision < revision:
            self._written[view.key] = revision
        else:
            self.room.wake(self._macs.unclaim(view.key))
        self._teller.tell(view, result)
        return revision

    def _forget(self, key: Key) -> None:
        self._written.pop(key, None)
        self._again.discard(key)
        self._teller.forget(key)
        self._chooser.forget(key)
        self.room.leave(key)

    def _in_order(self, views: Iterable[Attachment]) -> list[Key]:
        return [one.key for one in sorted(views, key=lambda one: (not one.errors, one.age))]


def _says_so(view: Attachment) -> bool:
    """Whether the status says that all is well with the wish as it is now."""
    seen = view.addressed
    generation = view.metadata.generation
    return seen is not None and seen == Seen(TRUE, ADDRESSED, "", generation) and view.observed == generation


def _held(lock: Lock) -> Held:
    meta = lock.metadata
    vni = lock.vni if lock.version else -1  # A lock under a wrong name locks nothing.
    created = meta.creation_timestamp
    return Held(lock.address, vni, meta.uid, created, meta.name, meta.revision, lock.decided)


def _had(lock: Lock) -> str:
    """Say who has an address, or had it."""
    return f"in quarantine, after {lock.holder}" if lock.going else f"taken by {lock.holder}"


def _full(slot: Slot) -> Refusal:
    names = ", ".join(one.name for one in slot.places)
    return Refusal(FULL, f"Subnet {names} is full" if len(slot.places) == 1 else f"Subnets {names} are full")
