"""What the agent of a node watches: its attachments, and what the Networks of these attachments need.

    attachments (spec.node=NODE) ─┬─► their Networks    ──► Network (metadata.name=…), Subnets (spec.network=…)
                                  │      of fabric vxlan ──► remotes: spec.network=…,spec.node!=NODE
                                  └─► their namespaces  ──► Mirrors
                                         with a vxlan Network ──► SecurityProfiles, Shapings

A Network is *relevant* to a node while the node has an attachment in it. A node holds 1+R watches of attachments, where
R is the number of relevant Networks of fabric vxlan; OVN distributes the locations of ports in the others. Each watch
starts and ends on its own: when one Network becomes relevant or ceases to be, the watches of the others are neither
listed again nor interrupted. A node reads nothing that it does not need, and its credential may read no more. The
server may refuse a watch that is no longer relevant before this end stops it; that costs a line in the log. A Network
and its Subnets, which change seldom, are watched for some seconds longer: where attachments come and go, the next one
finds them in the cache.

Whether a Network is of fabric vxlan is known only after it was read, and only then its remotes are listed. To list them
at once would save one round trip for the first attachment of a Network, and cost every node of an OVN Network a list of
all attachments in it.

Only remotes that have a host are listed: the location of the others is not known yet. They are cached without their
bytes, because the agent does not write them.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Struct, structs

from netloom.control.node.lifetimes import Lifetimes
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.informer import Informer, informer, lean
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Fabric, Network, Subnet
from netloom.model.kinds.paths import Mirror, Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.signals import Signal
from netloom.store.base import Store, Stored

K = TypeVar("K", Key, str)
V = TypeVar("V")
LINGER = 10.0
"""Seconds for which a Network is watched after its last attachment on this node is gone."""
TICK = 0.01
"""Seconds that are added to LINGER before it is checked: a timer may fire early by a tick of the clock."""


class AttachmentView(Struct, frozen=True, eq=False):
    """An attachment, and its document as the store has it: fields that this version does not know must not be lost."""

    value: NetworkAttachment
    stored: Stored
    """Without its bytes for an attachment of another node; the revision says which of two views is newer."""

    @property
    def network(self) -> Key:
        """The Network it is in."""
        return Key(self.stored.namespace, self.value.spec.network)

    @property
    def parent(self) -> Key | None:
        """The attachment whose port carries it as a VLAN, if it is a child."""
        name = self.value.spec.port.parent
        return Key(self.stored.namespace, name) if name else None

    @property
    def parent_vlan(self) -> str:
        """Its parent and its VLAN there: at most one attachment may have a given pair."""
        return f"{self.parent}/{self.value.spec.port.vlan}"

    @property
    def going(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.value.metadata.deletion_timestamp)


def attachment_informer(store: Store, node: str, *, random: Random) -> Informer[AttachmentView]:
    """Return an informer of one node's attachments."""
    return Informer(
        store,
        NETWORK_ATTACHMENT,
        lambda stored: AttachmentView(cast("NetworkAttachment", stored.value()), stored),
        random=random,
        selector=where("spec.node", node),
        indexes={
            "network": lambda view: (str(view.network),),
            "namespace": lambda view: (view.stored.namespace,),
            "parent": lambda view: (str(view.parent),) if view.parent else (),
            "parent_vlan": lambda view: (view.parent_vlan,) if view.parent else (),
        },
    )


def remotes_informer(store: Store, node: str, network: Key, *, random: Random) -> Informer[AttachmentView]:
    """Return an informer of the attachments of a Network that have a host and are not on `node`."""

    def view(stored: Stored) -> AttachmentView:
        return AttachmentView(
            cast("NetworkAttachment", lean(stored.value())), structs.replace(stored, raw=b"", _facets=None)
        )

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


@dataclass(slots=True)
class Followed:
    """Informers that belong together, while something needs them."""

    informers: tuple[Informer[Any], ...]
    known: Callable[[], None]
    """Called when all caches are filled: an empty list is no change, and matters all the same."""
    on_end: Signal[[]] = field(default_factory=Signal)
    """Sent when it ends."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    ended: bool = False

    @property
    def synced(self) -> bool:
        """Whether all caches are filled."""
        return all(one.synced.is_set() for one in self.informers)

    @property
    def following(self) -> bool:
        """Whether all caches are filled and up to date."""
        return all(one.following for one in self.informers)

    def want(self, wanted: bool) -> None:
        """Set whether something needs it: while nothing does, no new watch is started."""
        for one in self.informers:
            if wanted:
                one.wanted.set()
            else:
                one.wanted.clear()

    async def announce(self) -> None:
        """Call `known` when all caches are filled."""
        for one in self.informers:
            await one.synced.wait()
        self.known()

    def end(self) -> None:
        """End it."""
        self.ended = True
        for task in self.tasks:
            task.cancel()
        self.on_end()


def follow(parts: dict[K, Followed], wanted: set[K], begin: Callable[[K], Followed]) -> None:
    """Start what is missing and end what is not wanted, so that exactly `wanted` is followed."""
    for key in sorted(parts.keys() - wanted):
        parts.pop(key).end()
    for key in sorted(wanted - parts.keys()):
        parts[key] = begin(key)


def pass_on(followed: Followed, source: Informer[V], handler: Callable[[Change[V]], None]) -> None:
    """Call `handler` with each change while this is followed, and with a deletion of every object when it ends."""

    def changed(change: Change[V]) -> None:
        if not followed.ended:
            handler(change)

    def end() -> None:
        for key, value in source.cache.items():
            handler(Change(key, value, None))

    followed.on_end.connect(end)
    source.on_change(changed)


class NodeWatches:
    """The watches of a node, besides the one of its attachments.

    When a watch ends, its objects are announced as deleted, one by one.
    """

    def __init__(
        self,
        store: Store,
        attachments: Informer[AttachmentView],
        *,
        node: str,
        random: Random,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.lifetimes = lifetimes or Lifetimes()
        self.on_network: Signal[[Collection[Key]]] = Signal()
        """Sent when a Network or its Subnets changed, with this node's attachments in it."""
        self.on_mirrors: Signal[[str]] = Signal()
        """Sent when Mirrors of a namespace changed, or are all known."""
        self.on_remote: Signal[[Change[AttachmentView]]] = Signal()
        """Sent when an attachment of another node changed."""
        self.on_remotes_synced: Signal[[Key]] = Signal()
        """Sent when all remotes of a Network are known."""
        self.on_profile: Signal[[Change[SecurityProfile]]] = Signal()
        self.on_shaping: Signal[[Change[Shaping]]] = Signal()
        self.on_policies_synced: Signal[[str]] = Signal()
        """Sent when all SecurityProfiles and Shapings of a namespace are known."""
        self._store = store
        self._node = node
        self._random = random
        self._attachments = attachments
        self._networks: dict[Key, Followed] = {}
        self._remotes: dict[Key, Followed] = {}
        self._mirrors: dict[str, Followed] = {}
        self._policies: dict[str, Followed] = {}
        self._leaving: dict[Key, float] = {}
        """The Networks that are no longer relevant and still watched, and until when."""
        self._counts: dict[Key, int] = {}
        """The number of attachments that each Network has on this node."""
        self._changed = asyncio.Event()
        attachments.on_change(self._attachment_changed)

    def network(self, key: Key) -> tuple[Network, list[Subnet]] | None:
        """Return a Network and its Subnets, or None while it is not known."""
        followed = self._networks.get(key)
        if followed is None or not followed.synced or key in self._leaving:
            return None
        networks, subnets = followed.informers
        found = networks.cache.get(*key)
        return None if found is None else (found, [one for one in subnets.cache if one.spec.network == key.name])

    def relevant(self) -> list[Key]:
        """Return the relevant Networks."""
        return list(self._counts)

    def remotes(self, key: Key) -> Cache[AttachmentView] | None:
        """Return the attachments of a Network on other nodes, or None while they are not known, or not watched."""
        followed = self._remotes.get(key)
        return None if followed is None or not followed.synced else followed.informers[0].cache

    def networks_with_remotes(self) -> list[Key]:
        """Return the Networks whose remotes are watched."""
        return list(self._remotes)

    def mirrors(self, namespace: str) -> list[Mirror] | None:
        """Return the Mirrors of a namespace, or None while they are not known."""
        return _all(self._mirrors.get(namespace))

    def profiles(self, namespace: str) -> list[SecurityProfile] | None:
        """Return the SecurityProfiles of a namespace, or None while they are not known, or not watched."""
        return _all(self._policies.get(namespace))

    def undecodable_profiles(self, namespace: str) -> Collection[Key]:
        """Return the SecurityProfiles of a namespace that cannot be decoded, so that their rules are not known."""
        followed = self._policies.get(namespace)
        return () if followed is None else followed.informers[0].cache.undecodable.keys()

    def namespaces(self) -> list[str]:
        """Return the namespaces of the relevant Networks."""
        return list(self._mirrors)

    @property
    def synced(self) -> bool:
        """Whether everything that is watched is known."""
        return not self._changed.is_set() and all(one.synced for one in self._all_followed())

    async def run(self) -> NoReturn:
        """Watch what is relevant until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._choose()
                for followed in self._all_followed():
                    if not followed.tasks:
                        followed.tasks += [group.create_task(one.run()) for one in followed.informers]
                        followed.tasks.append(group.create_task(followed.announce()))
        raise AssertionError  # The group ends only by being cancelled.

    def _all_followed(self) -> list[Followed]:
        parts = (self._networks, self._remotes, self._mirrors, self._policies)
        return [followed for part in parts for followed in part.values()]

    def _attachment_changed(self, change: Change[AttachmentView]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.network == new.network:
            return
        # The Network of an attachment does not change; but an attachment that was deleted and made again while the
        # watch was interrupted arrives as one change, and may be in another Network.
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
        """Start the watches that are needed now, and end those that are not."""
        networks = set(self._counts)
        self._linger(networks)
        follow(self._networks, networks | self._leaving.keys(), self._network)
        vxlan = {key for key in networks if self._is_vxlan(key)}
        follow(self._remotes, vxlan, self._remotes_in)
        follow(self._mirrors, {key.namespace for key in networks}, self._mirrors_in)
        follow(self._policies, {key.namespace for key in vxlan}, self._policies_in)

    def _linger(self, networks: set[Key]) -> None:
        """Keep watching Networks that are no longer relevant for a while, and reuse the watches if they are again."""
        loop = asyncio.get_running_loop()
        for key, until in list(self._leaving.items()):
            if key in networks and self._networks[key].following:
                del self._leaving[key]
                self._networks[key].want(True)
                loop.call_soon(self._networks[key].known)
            elif key in networks or until <= loop.time():
                del self._leaving[key]
                self._networks.pop(key).end()  # If it is relevant again, its cache may be stale.
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
            self.on_network([Key(view.stored.namespace, view.stored.name) for view in self._in(key)])

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

    def _remotes_in(self, key: Key) -> Followed:
        remotes = remotes_informer(self._store, self._node, key, random=self._random)

        def known() -> None:
            self.on_remotes_synced(key)
            self._measure(key)

        followed = Followed((remotes,), known)
        pass_on(followed, remotes, self.on_remote)
        return followed

    def _mirrors_in(self, namespace: str) -> Followed:
        mirrors = informer(self._store, Mirror, random=self._random, namespace=namespace)
        mirrors.on_change(lambda _: self.on_mirrors(namespace))
        return Followed((mirrors,), lambda: self.on_mirrors(namespace))

    def _policies_in(self, namespace: str) -> Followed:
        profiles = informer(self._store, SecurityProfile, random=self._random, namespace=namespace)
        shapings = informer(self._store, Shaping, random=self._random, namespace=namespace)
        followed = Followed((profiles, shapings), lambda: self.on_policies_synced(namespace))
        pass_on(followed, profiles, self.on_profile)
        pass_on(followed, shapings, self.on_shaping)
        return followed

    def informers(self) -> list[Informer[Any]]:
        """Return the informers of all watches."""
        return [informer for followed in self._all_followed() for informer in followed.informers]

    def _measure(self, key: Key) -> None:
        """Record how long it took until everything of a Network was known, if it is."""
        if self.network(key) is not None and (not self._is_vxlan(key) or self.remotes(key) is not None):
            self.lifetimes.known(key)

    def _in(self, key: Key) -> list[AttachmentView]:
        return self._attachments.cache.indexed("network", str(key))


def _all(followed: Followed | None) -> list[Any] | None:
    return None if followed is None or not followed.synced else list(followed.informers[0].cache)


def _fabric(value: Network | None) -> Fabric | None:
    return value.spec.fabric if value is not None else None


def _matters(value: Network | Subnet | None) -> object:
    """Return the fields that ports are planned from: the number of used addresses of a Subnet is none of them."""
    if isinstance(value, Subnet):
        return value.spec, value.status.validated
    return value and value.spec
