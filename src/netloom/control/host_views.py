"""What an agent knows: its node's attachments; and of each Network it has one in, that Network and its Subnets.

    attachments (spec.node=NODE) ──► which Networks concern us ──► Network (metadata.name=…), Subnets (spec.network=…)
                                 └─► which namespaces do       ──► Mirrors

Watches come and go with the attachments: a node is never told what it does not need, and its credential may read no
more. A watch that has lost its reason may be refused before it is ended here; that costs a line in the log.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, cast

from msgspec import Struct

from netloom.control.cache import Change, Key
from netloom.control.informer import Informer, informer
from netloom.model.attachments import NetworkAttachment
from netloom.model.networks import Network, Subnet
from netloom.model.paths import Mirror
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.model.selectors import Operator, Requirement, Selector
from netloom.store.base import Store, Stored


class View(Struct, frozen=True, eq=False):
    """An attachment, and its document as the store has it: what we do not know of its status must not be lost."""

    value: NetworkAttachment
    stored: Stored

    @property
    def network(self) -> Key:
        """The Network it is in."""
        return Key(self.stored.namespace, self.value.spec.network)

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
        indexes={"network": lambda view: (str(view.network),), "namespace": lambda view: (view.stored.namespace,)},
    )


def where(name: str, value: str) -> Selector:
    """Return the selector of objects whose field has this value."""
    return Selector((), (Requirement(name, Operator.IN, frozenset((value,))),))


@dataclass(slots=True)
class _Followed:
    """One thing that is followed, while somebody needs it."""

    informers: tuple[Informer[Any], ...]
    known: Callable[[], None]
    """Called when all of it is known: a list that is empty is no change, and still news."""
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list)

    @property
    def synced(self) -> bool:
        return all(one.synced.is_set() for one in self.informers)

    async def announce(self) -> None:
        for one in self.informers:
            await one.synced.wait()
        self.known()


class Neighbourhood:
    """The Networks, Subnets and Mirrors that concern this node."""

    def __init__(self, store: Store, attachments: Informer[View], *, random: Random) -> None:
        self.wake: Callable[[Iterable[Key]], None] = lambda keys: None
        """Told whose Network or Subnets changed."""
        self.mirrored: Callable[[str], None] = lambda namespace: None
        """Told in which namespace Mirrors, or attachments, changed."""
        self._store = store
        self._random = random
        self._attachments = attachments
        self._networks: dict[Key, _Followed] = {}
        self._mirrors: dict[str, _Followed] = {}
        self._counts: dict[Key, int] = {}
        """How many attachments each Network has here."""
        self._changed = asyncio.Event()
        attachments.on_change(self._attachment_changed)

    def network(self, key: Key) -> tuple[Network, list[Subnet]] | None:
        """Return a Network and its Subnets, or None where it is not known (yet)."""
        followed = self._networks.get(key)
        if followed is None or not followed.synced:
            return None
        networks, subnets = followed.informers
        found = networks.cache.get(*key)
        return None if found is None else (found, [one for one in subnets.cache if one.spec.network == key.name])

    def mirrors(self, namespace: str) -> list[Mirror] | None:
        """Return the Mirrors of a namespace, or None where they are not known (yet)."""
        followed = self._mirrors.get(namespace)
        if followed is None or not followed.synced:
            return None
        return [one for one in followed.informers[0].cache if one.metadata.namespace == namespace]

    def namespaces(self) -> list[str]:
        """Return the namespaces that concern us."""
        return list(self._mirrors)

    @property
    def synced(self) -> bool:
        """Whether all of it is known."""
        return all(one.synced for one in (*self._networks.values(), *self._mirrors.values()))

    async def run(self) -> NoReturn:
        """Follow what concerns us until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._choose()
                for followed in (*self._networks.values(), *self._mirrors.values()):
                    if not followed.tasks:
                        followed.tasks += [group.create_task(one.run()) for one in followed.informers]
                        followed.tasks.append(group.create_task(followed.announce()))
        raise AssertionError  # The group ends only by being cancelled.

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
        if not after:
            del self._counts[network]
        if not before or not after:
            self._changed.set()

    def _choose(self) -> None:
        """Begin to follow what concerns us now, and end what does no longer."""
        networks = set(self._counts)
        namespaces = {key.namespace for key in networks}
        for key in networks - self._networks.keys():
            self._networks[key] = self._network(key)
        for namespace in namespaces - self._mirrors.keys():
            self._mirrors[namespace] = self._namespace(namespace)
        gone = [self._networks.pop(key) for key in self._networks.keys() - networks]
        gone += [self._mirrors.pop(namespace) for namespace in self._mirrors.keys() - namespaces]
        for followed in gone:
            for task in followed.tasks:
                task.cancel()

    def _network(self, key: Key) -> _Followed:
        selector = where("metadata.name", key.name)
        networks = informer(self._store, Network, random=self._random, namespace=key.namespace, selector=selector)
        selector = where("spec.network", key.name)
        subnets = informer(self._store, Subnet, random=self._random, namespace=key.namespace, selector=selector)

        def changed() -> None:
            self.wake([Key(view.stored.namespace, view.stored.name) for view in self._in(key)])

        def maybe(change: Change[Network] | Change[Subnet]) -> None:
            if _matters(change.old) != _matters(change.new):
                changed()

        networks.on_change(maybe)
        subnets.on_change(maybe)
        return _Followed((networks, subnets), changed)

    def _namespace(self, namespace: str) -> _Followed:
        mirrors = informer(self._store, Mirror, random=self._random, namespace=namespace)
        mirrors.on_change(lambda _: self.mirrored(namespace))
        return _Followed((mirrors,), lambda: self.mirrored(namespace))

    def _in(self, key: Key) -> list[View]:
        return self._attachments.cache.indexed("network", str(key))


def _matters(value: Network | Subnet | None) -> object:
    """Return what ports are planned from: not how many addresses of a Subnet are in use."""
    if isinstance(value, Subnet):
        return value.spec, value.status.validated
    return value and value.spec
