"""What an agent knows: its node's attachments, and of each Network it has one in what that takes, and no more.

    attachments (spec.node=NODE) ─┬─► which Networks concern us ──► Network (metadata.name=…), Subnets (spec.network=…)
                                  │      of fabric vxlan        ──► the others in it (spec.network=…,spec.node!=NODE)
                                  └─► which namespaces do       ──► Mirrors
                                         by a vxlan Network     ──► SecurityProfiles, Shapings

So a node holds 1+R watches of attachments, where R is how many Networks of fabric vxlan concern it; on the others OVN
knows who is where. Watches come and go with the attachments, each by itself: when one Network begins or ceases to
concern us, what is followed of the rest is neither read again nor interrupted. A node is never told what it does not
need, and its credential may read no more. A watch that has lost its reason may be refused before it is ended here; that
costs a line in the log. The Network and its Subnets, which seldom change, are followed for some seconds more: where
attachments come and go, the next one in it finds them known.

Whether a Network is one of vxlan is known only when it is read, and only then the others in it are asked for. To ask at
once would save that one answer's time for the first attachment of a Network, and cost every node of an OVN Network a
list of all that is in it.

Of the others only those are asked for that have a host: where the rest is, nobody knows yet. What has not been plugged
anywhere is no business of this node's. They are kept without their bytes: nothing of them is written back.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any, NoReturn, cast

from msgspec import Struct, structs

from netloom.control.node.lifetimes import Lifetimes
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.following import Followed, follow, pass_on
from netloom.control.runtime.informer import Informer, informer, lean
from netloom.model.attachments import NetworkAttachment
from netloom.model.networks import Fabric, Network, Subnet
from netloom.model.paths import Mirror, Shaping
from netloom.model.policy import SecurityProfile
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.selectors import Operator, Requirement, Selector
from netloom.store.base import Store, Stored

LINGER = 10.0
"""For how many seconds a Network is followed after the last attachment in it is gone from here."""
TICK = 0.01
"""How much later than it is due it is looked whether that time is over: a timer may be early by a clock's tick."""


class View(Struct, frozen=True, eq=False):
    """An attachment, and its document as the store has it: what we do not know of its status must not be lost."""

    value: NetworkAttachment
    stored: Stored
    """Of another node's attachment without its bytes; the revision says which of two views is the newer."""

    @property
    def network(self) -> Key:
        """The Network it is in."""
        return Key(self.stored.namespace, self.value.spec.network)

    @property
    def parent(self) -> Key | None:
        """The attachment of whose port it is a VLAN, if it is one."""
        name = self.value.spec.port.parent
        return Key(self.stored.namespace, name) if name else None

    @property
    def way(self) -> str:
        """Of which port it is which VLAN: at most one can be."""
        return f"{self.parent}/{self.value.spec.port.vlan}"

    @property
    def going(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.value.metadata.deletion_timestamp)


def attachment_informer(store: Store, node: str, *, random: Random) -> Informer[View]:
    """Return an informer of one node's attachments."""
    return Informer(
        store,
        NETWORK_ATTACHMENT,
        lambda stored: View(cast("NetworkAttachment", stored.value()), stored),
        random=random,
        selector=where("spec.node", node),
        indexes={
            "network": lambda view: (str(view.network),),
            "namespace": lambda view: (view.stored.namespace,),
            "parent": lambda view: (str(view.parent),) if view.parent else (),
            "way": lambda view: (view.way,) if view.parent else (),
        },
    )


def others_informer(store: Store, node: str, network: Key, *, random: Random) -> Informer[View]:
    """Return an informer of the attachments that a Network has on all nodes but one, once they have a host."""

    def view(stored: Stored) -> View:
        return View(cast("NetworkAttachment", lean(stored.value())), structs.replace(stored, raw=b"", _facets=None))

    wanted = (
        _requires("spec.network", Operator.IN, network.name),
        _requires("spec.node", Operator.NOT_IN, node),
        _requires("status.hostIP", Operator.NOT_IN, ""),
    )
    return Informer(
        store, NETWORK_ATTACHMENT, view, random=random, namespace=network.namespace, selector=Selector((), wanted)
    )


def where(name: str, value: str) -> Selector:
    """Return the selector of objects whose field has this value."""
    return Selector((), (_requires(name, Operator.IN, value),))


def _requires(name: str, operator: Operator, value: str) -> Requirement:
    return Requirement(name, operator, frozenset((value,)))


class NodeWatches:
    """All that concerns this node, but for its attachments.

    What is followed no longer is told of as if it were deleted, one by one: to this node that is what became of it.
    """

    def __init__(
        self,
        store: Store,
        attachments: Informer[View],
        *,
        node: str,
        random: Random,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.lifetimes = lifetimes or Lifetimes()
        self.wake: Callable[[Iterable[Key]], None] = lambda keys: None
        """Told whose Network or Subnets changed."""
        self.mirrored: Callable[[str], None] = lambda namespace: None
        """Told in which namespace Mirrors, or attachments, changed."""
        self.other_changed: Callable[[Change[View]], None] = lambda change: None
        """Told what became of an attachment on another node."""
        self.others_known: Callable[[Key], None] = lambda network: None
        """Told that all others of a Network are known."""
        self.profile_changed: Callable[[Change[SecurityProfile]], None] = lambda change: None
        self.shaping_changed: Callable[[Change[Shaping]], None] = lambda change: None
        self.policies_known: Callable[[str], None] = lambda namespace: None
        """Told that all SecurityProfiles and Shapings of a namespace are known."""
        self._store = store
        self._node = node
        self._random = random
        self._attachments = attachments
        self._networks: dict[Key, Followed] = {}
        self._others: dict[Key, Followed] = {}
        self._mirrors: dict[str, Followed] = {}
        self._policies: dict[str, Followed] = {}
        self._leaving: dict[Key, float] = {}
        """The Networks that concern us no longer, and are followed for a while: until when."""
        self._counts: dict[Key, int] = {}
        """How many attachments each Network has here."""
        self._changed = asyncio.Event()
        attachments.on_change(self._attachment_changed)

    def network(self, key: Key) -> tuple[Network, list[Subnet]] | None:
        """Return a Network and its Subnets, or None where it is not known (yet)."""
        followed = self._networks.get(key)
        if followed is None or not followed.synced or key in self._leaving:
            return None
        networks, subnets = followed.informers
        found = networks.cache.get(*key)
        return None if found is None else (found, [one for one in subnets.cache if one.spec.network == key.name])

    def relevant(self) -> list[Key]:
        """Return the Networks that concern us."""
        return list(self._counts)

    def others(self, key: Key) -> Cache[View] | None:
        """Return the attachments a Network has on other nodes, or None where they are not known (yet), or needed."""
        followed = self._others.get(key)
        return None if followed is None or not followed.synced else followed.informers[0].cache

    def others_followed(self) -> list[Key]:
        """Return the Networks whose others are followed: R of them."""
        return list(self._others)

    def mirrors(self, namespace: str) -> list[Mirror] | None:
        """Return the Mirrors of a namespace, or None where they are not known (yet)."""
        return _all(self._mirrors.get(namespace), 0)

    def profiles(self, namespace: str) -> list[SecurityProfile] | None:
        """Return the SecurityProfiles of a namespace, or None where they are not known (yet), or needed."""
        return _all(self._policies.get(namespace), 0)

    def unread_profiles(self, namespace: str) -> Collection[Key]:
        """Return the SecurityProfiles of a namespace that cannot be decoded: what they forbid is not known."""
        followed = self._policies.get(namespace)
        return () if followed is None else followed.informers[0].cache.undecodable.keys()

    def shapings(self, namespace: str) -> list[Shaping] | None:
        """Return the Shapings of a namespace, or None where they are not known (yet), or needed."""
        return _all(self._policies.get(namespace), 1)

    def namespaces(self) -> list[str]:
        """Return the namespaces that concern us."""
        return list(self._mirrors)

    @property
    def synced(self) -> bool:
        """Whether all of it is known."""
        return not self._changed.is_set() and all(one.synced for one in self._everything())

    async def run(self) -> NoReturn:
        """Follow what concerns us until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._choose()
                for followed in self._everything():
                    if not followed.tasks:
                        followed.tasks += [group.create_task(one.run()) for one in followed.informers]
                        followed.tasks.append(group.create_task(followed.announce()))
        raise AssertionError  # The group ends only by being cancelled.

    def _everything(self) -> list[Followed]:
        parts = (self._networks, self._others, self._mirrors, self._policies)
        return [followed for part in parts for followed in part.values()]

    def _attachment_changed(self, change: Change[View]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.network == new.network:
            return
        # An attachment stays in its Network; but one that was deleted and made again while nobody listened may come as
        # one change, and be in another.
        if old is not None:
            self._count(old.network, -1)
        if new is not None:
            self._count(new.network, 1)

    def _count(self, network: Key, more: int) -> None:
        before = self._counts.get(network, 0)
        after = self._counts[network] = before + more
        if not before:
            self.lifetimes.relevant(network)
        if not after:
            del self._counts[network]
            self.lifetimes.irrelevant(network)
        if not before or not after:
            self._changed.set()

    def _choose(self) -> None:
        """Begin to follow what concerns us now, and end what does no longer."""
        networks = set(self._counts)
        self._linger(networks)
        follow(self._networks, networks | self._leaving.keys(), self._network)
        vxlan = {key for key in networks if self._is_vxlan(key)}
        follow(self._others, vxlan, self._others_in)
        follow(self._mirrors, {key.namespace for key in networks}, self._mirrors_in)
        follow(self._policies, {key.namespace for key in vxlan}, self._policies_in)

    def _linger(self, networks: set[Key]) -> None:
        """Let what concerns us no longer be followed for a while, and have it back where it concerns us again."""
        loop = asyncio.get_running_loop()
        for key, until in list(self._leaving.items()):
            if key in networks and self._networks[key].following:
                del self._leaving[key]
                self._networks[key].want(True)
                loop.call_soon(self._networks[key].known)
            elif key in networks or until <= loop.time():
                del self._leaving[key]
                self._networks.pop(key).end()  # Where it concerns us again, what it knows may be old.
        for key in sorted(self._networks.keys() - networks - self._leaving.keys()):
            if self._networks[key].following:
                self._networks[key].want(False)
                self._leaving[key] = until = loop.time() + LINGER
                loop.call_at(until + TICK, self._changed.set)

    def _is_vxlan(self, key: Key) -> bool:
        found = self._networks[key].informers[0].cache.get(*key)
        return isinstance(found, Network) and found.spec.fabric is Fabric.VXLAN

    def _network(self, key: Key) -> Followed:
        selector = where("metadata.name", key.name)
        networks = informer(self._store, Network, random=self._random, namespace=key.namespace, selector=selector)
        selector = where("spec.network", key.name)
        subnets = informer(self._store, Subnet, random=self._random, namespace=key.namespace, selector=selector)

        def changed() -> None:
            self.wake([Key(view.stored.namespace, view.stored.name) for view in self._in(key)])

        def maybe(change: Change[Network] | Change[Subnet]) -> None:
            if _matters(change.old) != _matters(change.new):
                changed()

        def fabric(change: Change[Network]) -> None:
            if _fabric(change.old) is not _fabric(change.new):
                self._changed.set()

        networks.on_change(fabric)
        networks.on_change(maybe)
        subnets.on_change(maybe)

        def known() -> None:
            changed()
            self._measure(key)

        return Followed((networks, subnets), known)

    def _others_in(self, key: Key) -> Followed:
        others = others_informer(self._store, self._node, key, random=self._random)

        def known() -> None:
            self.others_known(key)
            self._measure(key)

        followed = Followed((others,), known)
        pass_on(followed, others, lambda change: self.other_changed(change))
        return followed

    def _mirrors_in(self, namespace: str) -> Followed:
        mirrors = informer(self._store, Mirror, random=self._random, namespace=namespace)
        mirrors.on_change(lambda _: self.mirrored(namespace))
        return Followed((mirrors,), lambda: self.mirrored(namespace))

    def _policies_in(self, namespace: str) -> Followed:
        profiles = informer(self._store, SecurityProfile, random=self._random, namespace=namespace)
        shapings = informer(self._store, Shaping, random=self._random, namespace=namespace)
        followed = Followed((profiles, shapings), lambda: self.policies_known(namespace))
        pass_on(followed, profiles, lambda change: self.profile_changed(change))
        pass_on(followed, shapings, lambda change: self.shaping_changed(change))
        return followed

    def informers(self) -> list[Informer[Any]]:
        """Return all that is followed."""
        return [informer for followed in self._everything() for informer in followed.informers]

    def _measure(self, key: Key) -> None:
        """Note how long it took until a Network was wholly known, if it is."""
        if self.network(key) is not None and (not self._is_vxlan(key) or self.others(key) is not None):
            self.lifetimes.known(key)

    def _in(self, key: Key) -> list[View]:
        return self._attachments.cache.indexed("network", str(key))


def _all(followed: Followed | None, which: int) -> list[Any] | None:
    return None if followed is None or not followed.synced else list(followed.informers[which].cache)


def _fabric(value: Network | None) -> Fabric | None:
    return value.spec.fabric if value is not None else None


def _matters(value: Network | Subnet | None) -> object:
    """Return what ports are planned from: not how many addresses of a Subnet are in use."""
    if isinstance(value, Subnet):
        return value.spec, value.status.validated
    return value and value.spec
