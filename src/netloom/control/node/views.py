"""What the agent of a node watches: its attachments, and what the Networks of these attachments need.

    attachments (spec.node=NODE) ─┬─► their Networks    ──► Network (metadata.name=…), Subnets (spec.network=…)
                                  │      of fabric vxlan ──► remotes: spec.network=…,spec.node!=NODE
                                  │             or linux
                                  │      of fabric vxlan ──► EVPNNetworks: spec.network=…
                                  │      if there is one ──► RemoteVTEPs: spec.network=…
                                  └─► their namespaces  ──► Mirrors, Shapings
                                         with a vxlan or linux Network ──► SecurityProfiles

A Network is *relevant* to a node while the node has an attachment in it. A node holds 1+R watches of attachments, where
R is the number of relevant Networks that agents implement; OVN distributes the locations of ports in the others. Each
watch starts and ends on its own: when one Network becomes relevant or ceases to be, the watches of the others are
neither listed again nor interrupted. A node reads nothing that it does not need, and its credential may read no more.
The server may refuse a watch that is no longer relevant before this end stops it; that costs a line in the log. A
Network and its Subnets, which change seldom, are watched for some seconds longer: where attachments come and go, the
next one finds them in the cache.

The fabric of a Network is known only after it was read, and only then its remotes are listed. To list them at once
would save one round trip for the first attachment of a Network, and cost every node of an OVN Network a list of all
attachments in it.

A RemoteVTEP counts only if the node of the EVPNNetwork's speaker has written it (`counts` in plan/vxlan/inputs.py).
RemoteVTEPs are watched as long as the Network has an EVPNNetwork, whether that forwards or not. When a speaker ceases
to forward, its RemoteVTEPs count for some seconds more: another one takes over, and has to write its own. Nodes send to
other sites directly, so no packet is lost meanwhile.

Only remotes that have a host are listed: the location of the others is not known yet. They are cached without their
bytes, because the agent does not write them.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Struct, structs

from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.informer import Informer, informer, lean
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Fabric, Network, Subnet
from netloom.model.kinds.paths import Mirror, Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.plan.kube import names
from netloom.plan.pools import is_pooled
from netloom.plan.vxlan.inputs import counts
from netloom.signals import Signal
from netloom.store.base import Store, Stored

K = TypeVar("K", Key, str)
V = TypeVar("V")
R = TypeVar("R", bound=Resource)
LINGER = 10.0
"""Seconds for which a Network is watched after its last attachment on this node is gone."""
HOLD = 10.0
"""Seconds for which RemoteVTEPs count after their speaker has ceased to forward."""
NETNS = "netns"
"""The index of attachments by the network namespace that the agent creates for them."""
POD = "pod"
"""The index of attachments by the pod that a container runtime asks for."""
TICK = 0.01
"""Seconds that are added to LINGER and HOLD before they are checked: a timer may fire early by a tick of the clock."""


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
    def created_netns(self) -> str:
        """The network namespace that it needs the agent to create; "": none."""
        port = self.value.spec.port
        return port.netns if port.create_netns else ""

    @property
    def pod(self) -> str:
        """The name by which the attachment is asked for: its own, or that of the pod that took it from a PortPool."""
        meta = self.value.metadata
        namespace, name = meta.labels.get(names.OF_NAMESPACE), meta.annotations.get(names.POD_NAME)
        return names.pod(namespace, name) if namespace and name and is_pooled(meta.labels) else self.stored.name

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
            NETNS: lambda view: (view.created_netns,) if view.created_netns and not view.going else (),
            "parent": lambda view: (str(view.parent),) if view.parent else (),
            "parent_vlan": lambda view: (view.parent_vlan,) if view.parent else (),
            POD: lambda view: (f"{view.stored.namespace}/{view.pod}",),
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
        """Sent when an attachment of another node changed, in a Network of fabric vxlan."""
        self.on_peers: Signal[[]] = Signal()
        """Sent when attachments of other nodes changed in a Network of fabric linux, or one is no longer relevant."""
        self.on_remotes_synced: Signal[[Key]] = Signal()
        """Sent when all remotes of a Network are known."""
        self.on_vtep: Signal[[Change[RemoteVTEP]]] = Signal()
        """Sent when a RemoteVTEP changed, or whether it counts."""
        self.on_profile: Signal[[Change[SecurityProfile]]] = Signal()
        self.on_shaping: Signal[[Change[Shaping]]] = Signal()
        self.on_shapings_synced: Signal[[str]] = Signal()
        """Sent when all Shapings of a namespace are known."""
        self.on_policies_synced: Signal[[str]] = Signal()
        """Sent when all SecurityProfiles of a namespace are known."""
        self._store = store
        self._node = node
        self._random = random
        self._attachments = attachments
        self._networks: dict[Key, Followed] = {}
        self._remotes: dict[Key, Followed] = {}
        """The remotes of vxlan Networks."""
        self._peers: dict[Key, Followed] = {}
        """The remotes of linux Networks."""
        self._extended: dict[Key, Followed] = {}
        """The EVPNNetworks of vxlan Networks."""
        self._vteps: dict[Key, Followed] = {}
        self._held: dict[Key, float] = {}
        """The EVPNNetworks that have ceased to forward, and until when their RemoteVTEPs count."""
        self._mirrors: dict[str, Followed] = {}
        self._shapings: dict[str, Followed] = {}
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
        followed = self._remotes.get(key) or self._peers.get(key)
        return None if followed is None or not followed.synced else followed.informers[0].cache

    def networks_with_remotes(self) -> list[Key]:
        """Return the Networks whose remotes are watched."""
        return [*self._remotes, *self._peers]

    def counts(self, vtep: RemoteVTEP) -> bool:
        """Whether flows follow from a RemoteVTEP."""
        namespace, spec = vtep.metadata.namespace, vtep.spec
        key = Key(namespace, spec.network)
        network, extended = self._networks.get(key), self._extended.get(key)
        if network is None or extended is None:
            return False
        by = extended.informers[0].cache.get(namespace, spec.evpn_network)
        recently = self._held.get(Key(namespace, spec.evpn_network), 0.0) > asyncio.get_running_loop().time()
        return counts(vtep, network.informers[0].cache.get(*key), by, recently=recently)

    def mirrors(self, namespace: str) -> list[Mirror] | None:
        """Return the Mirrors of a namespace, or None while they are not known."""
        return _all(self._mirrors.get(namespace))

    def shapings(self, attachment: Key) -> list[Shaping] | None:
        """Return the Shapings that name an attachment as their start, or None while they are not known."""
        followed = self._shapings.get(attachment.namespace)
        if followed is None or not followed.synced:
            return None
        return followed.informers[0].cache.indexed("attachment", attachment.name)

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
        by_network = self._networks, self._remotes, self._peers, self._extended, self._vteps
        by_namespace = self._mirrors, self._shapings, self._policies
        return [followed for part in (*by_network, *by_namespace) for followed in part.values()]

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
        vxlan = {key for key in networks if self.fabric(key) is Fabric.VXLAN}
        linux = {key for key in networks if self.fabric(key) is Fabric.LINUX}
        follow(self._remotes, vxlan, self._remotes_in)
        follow(self._peers, linux, self._peers_in)
        follow(self._extended, vxlan, self._extended_in)
        follow(self._vteps, {key for key in vxlan if self._extended[key].informers[0].cache}, self._vteps_in)
        follow(self._mirrors, {key.namespace for key in networks}, self._mirrors_in)
        follow(self._shapings, {key.namespace for key in networks}, self._shapings_in)
        follow(self._policies, {key.namespace for key in vxlan | linux}, self._policies_in)

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

    def fabric(self, key: Key) -> Fabric | None:
        """Return the fabric of a Network, or None while it is not known."""
        followed = self._networks.get(key)
        return None if followed is None else _fabric(followed.informers[0].cache.get(*key))

    def _network(self, key: Key) -> Followed:
        selector = where("metadata.name", key.name)
        networks = informer(self._store, Network, random=self._random, namespace=key.namespace, selector=selector)
        subnets = self._of_network(Subnet, key)

        def changed() -> None:
            self.on_network([Key(view.stored.namespace, view.stored.name) for view in self._in(key)])

        def maybe(change: Change[Network] | Change[Subnet]) -> None:
            if _matters(change.old) != _matters(change.new):
                changed()

        def fabric(change: Change[Network]) -> None:
            if _fabric(change.old) is not _fabric(change.new):
                self._changed.set()
            if _vni(change.old) != _vni(change.new):
                self._recount(key)

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

    def _peers_in(self, key: Key) -> Followed:
        peers = remotes_informer(self._store, self._node, key, random=self._random)

        def known() -> None:
            self.on_peers()
            self._measure(key)

        followed = Followed((peers,), known)
        pass_on(followed, peers, lambda _: self.on_peers())
        followed.on_end.connect(self.on_peers)
        return followed

    def _extended_in(self, key: Key) -> Followed:
        extended = self._of_network(EVPNNetwork, key)

        def changed(change: Change[EVPNNetwork]) -> None:
            if change.old is None or change.new is None:
                self._changed.set()
            if _forwarding(change.old) != _forwarding(change.new):
                self._hold(key, change)
                self._recount(key)

        extended.on_change(changed)
        return Followed((extended,), _nothing)

    def _vteps_in(self, key: Key) -> Followed:
        vteps = self._of_network(RemoteVTEP, key)
        followed = Followed((vteps,), _nothing)
        pass_on(followed, vteps, self.on_vtep)
        return followed

    def _hold(self, network: Key, change: Change[EVPNNetwork]) -> None:
        """Let RemoteVTEPs count for a while if their EVPNNetwork has ceased to forward."""
        (was_forwarding, was_on), (is_forwarding, is_on) = _forwarding(change.old), _forwarding(change.new)
        if was_forwarding and not is_forwarding and was_on == is_on:
            loop = asyncio.get_running_loop()
            self._held[change.key] = until = loop.time() + HOLD
            loop.call_at(until + TICK, self._recount, network)
        else:
            self._held.pop(change.key, None)

    def _of_network(self, of: type[R], key: Key) -> Informer[R]:
        selector = where("spec.network", key.name)
        return informer(self._store, of, random=self._random, namespace=key.namespace, selector=selector)

    def _recount(self, key: Key) -> None:
        """Announce the RemoteVTEPs of a Network, because others may count now."""
        if followed := self._vteps.get(key):
            for vtep_key, vtep in followed.informers[0].cache.items():
                self.on_vtep(Change(vtep_key, vtep, vtep))

    def _mirrors_in(self, namespace: str) -> Followed:
        mirrors = informer(self._store, Mirror, random=self._random, namespace=namespace)
        mirrors.on_change(lambda _: self.on_mirrors(namespace))
        return Followed((mirrors,), lambda: self.on_mirrors(namespace))

    def _policies_in(self, namespace: str) -> Followed:
        profiles = informer(self._store, SecurityProfile, random=self._random, namespace=namespace)
        followed = Followed((profiles,), lambda: self.on_policies_synced(namespace))
        pass_on(followed, profiles, self.on_profile)
        return followed

    def _shapings_in(self, namespace: str) -> Followed:
        indexes = {"attachment": lambda one: (one.spec.from_.attachment,)}
        shapings = informer(self._store, Shaping, random=self._random, namespace=namespace, indexes=indexes)
        followed = Followed((shapings,), lambda: self.on_shapings_synced(namespace))
        pass_on(followed, shapings, self.on_shaping)
        return followed

    def informers(self) -> list[Informer[Any]]:
        """Return the informers of all watches."""
        return [informer for followed in self._all_followed() for informer in followed.informers]

    def _measure(self, key: Key) -> None:
        """Record how long it took until everything of a Network was known, if it is."""
        by_agents = self.fabric(key) in (Fabric.VXLAN, Fabric.LINUX)
        if self.network(key) is not None and (not by_agents or self.remotes(key) is not None):
            self.lifetimes.known(key)

    def _in(self, key: Key) -> list[AttachmentView]:
        return self._attachments.cache.indexed("network", str(key))


def _all(followed: Followed | None) -> list[Any] | None:
    return None if followed is None or not followed.synced else list(followed.informers[0].cache)


def _fabric(value: Network | None) -> Fabric | None:
    return value.spec.fabric if value is not None else None


def _nothing() -> None:
    pass


def _vni(value: Network | None) -> int | None:
    return value.status.vni if value is not None else None


def _forwarding(value: EVPNNetwork | None) -> tuple[bool, str]:
    """Return the fields that decide whether RemoteVTEPs count; counters in the status change often."""
    return (value.status.forwarding, value.status.node) if value is not None else (False, "")


def _matters(value: Network | Subnet | None) -> object:
    """Return the fields that ports are planned from: the number of used addresses of a Subnet is none of them."""
    if isinstance(value, Subnet):
        return value.spec, value.status.validated
    return value and value.spec
