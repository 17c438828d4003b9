"""Gives pods the free ports of PortPools, in place of attachments of their own.

    pod without an attachment ──► a free port of its node, with the profiles of the pod ──► taken by one update
                                  none: the pod gets an attachment that is made for it

A port is given only if it is installed, and if exactly those SecurityProfiles apply to it that apply to the pod: they
are in the node's flows already, so a policy holds from a pod's first packet. Everything else of the pod, its labels
first, is set by the update.

A pod must not get a second port while the cache does not show the first. So what is given is kept in memory until it
does; and where memory is new, because this process has just begun to lead, it is read from the store before the first
port is given. An update whose outcome is unknown is repeated for the same port.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from netloom.control.ipam.views import BY_POOL, Attachment
from netloom.control.kube.views import MANAGED, source_of
from netloom.control.pools import BY_PLACE, by_label
from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import Client
from netloom.control.runtime.documents import document_of
from netloom.errors import Conflict, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment, PortPool
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.registry import NETWORK_ATTACHMENT, PORT_POOL
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.plan.kube import names
from netloom.plan.object_changes import Changes
from netloom.plan.pools import LABEL, is_free, is_pooled, owner_of
from netloom.plan.problem import Unit
from netloom.plan.world.joins import JoinIndex

ATTEMPTS = 5
"""How often a port is tried again that changes at the same moment."""
GIVEN = Selector(labels=(*MANAGED.labels, Requirement(LABEL, Operator.EXISTS)))


class PooledPorts:
    """The ports of pools that pods have, or may get."""

    def __init__(
        self, client: Client, *, namespace: str, pools: Cache[PortPool], attachments: Cache[Attachment]
    ) -> None:
        """`pools` are indexed BY_PLACE, `attachments` BY_POOL; `namespace` has the attachments of pods."""
        self._client = client
        self._namespace = namespace
        self._pools = pools
        self._attachments = attachments
        self._joins = JoinIndex(lambda _: None)
        self._given: dict[Unit, str] = {}
        """The ports that pods have been given, or are being given, and that the cache may not show yet."""
        self._recalled = False
        self._recalling = asyncio.Lock()

    def profile_changed(self, change: Change[SecurityProfile]) -> None:
        """Follow which profiles apply to which labels."""
        self._joins.change(change.old, change.new)

    def doubt(self) -> None:
        """Read from the store what is given, before more is: another process may have given ports until now."""
        self._recalled = False

    def placed(
        self, key: Unit, desired: Iterable[Resource], observed: Mapping[tuple[str, str], Resource]
    ) -> list[Resource]:
        """Return the desired objects of a pod; its attachment as the port of a pool that it has, if it has one."""
        found = [_renamed(one, observed.values()) if isinstance(one, NetworkAttachment) else one for one in desired]
        # A pod that needs none any more: a port that it was given shows up as its object, and is removed as such.
        if not found or (NETWORK_ATTACHMENT.name, self._given.get(key)) in observed:
            self._given.pop(key, None)
        return found

    async def take(self, key: Unit, wanted: Changes) -> Changes:
        """Give a port to the pod that needs a new attachment, if there is one for it; return what is left to write."""
        for one in wanted.create:
            if isinstance(one, NetworkAttachment) and await self._take(key, one):
                return structs.replace(wanted, create=tuple(other for other in wanted.create if other is not one))
        return wanted

    async def _take(self, key: Unit, wanted: NetworkAttachment) -> bool:
        await self._recall()
        refused: set[str] = set()
        while (name := self._given.get(key) or self._choose(wanted, refused)) is not None:
            self._given[key] = name
            if await self._give(key, name, wanted):
                return True
            refused.add(name)
            del self._given[key]
        return False

    async def _recall(self) -> None:
        async with self._recalling:
            if self._recalled:
                return
            for stored in await self._client.stored(NETWORK_ATTACHMENT, self._namespace, selector=GIVEN):
                self._given.setdefault(source_of(stored.value()), stored.name)
            self._recalled = True

    def _choose(self, wanted: NetworkAttachment, refused: set[str]) -> str | None:
        """Return a free port that can become the wanted attachment, the oldest first."""
        spec = wanted.spec
        taken = refused.union(self._given.values())
        profiles: frozenset[str] | None = None
        for pool in self._pools.indexed(BY_PLACE, f"{self._namespace}/{spec.node}/{spec.network}"):
            if pool.metadata.deletion_timestamp or pool.spec.default_route is not spec.default_route:
                continue
            found = [
                one
                for one in self._attachments.indexed(BY_POOL, *by_label(pool))
                if is_free(one.metadata) and one.plugged and one.subnets == spec.subnets
            ]
            for one in sorted(found, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name)):
                if one.metadata.name in taken:
                    continue
                if profiles is None:
                    profiles = self._profiles(wanted.metadata.labels, spec.security_profiles)
                if self._profiles(one.labels, one.profiles) == profiles:
                    return one.metadata.name
        return None

    def _profiles(self, labels: Mapping[str, str], named: Sequence[str]) -> frozenset[str]:
        """Return the profiles that apply to an attachment."""
        joins = self._joins.matching(self._namespace, labels, lambda _: None)
        return frozenset(named).union(join.profile for join in joins if join.profile)

    async def _give(self, key: Unit, name: str, wanted: NetworkAttachment) -> bool:
        """Turn a free port into the wanted attachment; return whether the pod has it now."""
        for _ in range(ATTEMPTS):
            try:
                stored = await self._client.read(NETWORK_ATTACHMENT, self._namespace, name)
            except NotFound:
                return False
            live = stored.value()
            assert isinstance(live, NetworkAttachment)
            if source_of(live) == key and _pod(live) == _pod(wanted) and owner_of(live.metadata) is None:
                return not live.metadata.deletion_timestamp
            if not is_free(live.metadata):
                return False
            document, desired = stored.document(), document_of(wanted)
            document["spec"] = desired["spec"]
            metadata = document["metadata"]
            metadata["labels"] = {**wanted.metadata.labels, LABEL: live.metadata.labels.get(LABEL, "")}
            metadata["annotations"] = {**live.metadata.annotations, **wanted.metadata.annotations}
            others = [one for one in metadata["ownerReferences"] if one["kind"] != PORT_POOL.name]
            metadata["ownerReferences"] = others
            try:
                await self._client.replace(NETWORK_ATTACHMENT, document)
            except Conflict:
                continue  # Most likely its status changed.
            return True
        return False


def _renamed(wanted: NetworkAttachment, observed: Iterable[Resource]) -> NetworkAttachment:
    """Return a pod's attachment by the name that it has.

    Were there two for one pod, the first by name would stay: it is the one that the agent uses, too.
    """
    uid = _pod(wanted)
    own = [
        one
        for one in observed
        if isinstance(one, NetworkAttachment)
        and not one.metadata.deletion_timestamp
        and _pod(one) == uid
        and (one.metadata.name == wanted.metadata.name or (uid and is_pooled(one.metadata.labels)))
    ]
    found = min(own, key=lambda one: one.metadata.name, default=wanted)
    if found.metadata.name == wanted.metadata.name:
        return wanted
    labels = {**wanted.metadata.labels, LABEL: found.metadata.labels[LABEL]}
    return structs.replace(wanted, metadata=structs.replace(wanted.metadata, name=found.metadata.name, labels=labels))


def _pod(one: NetworkAttachment) -> str:
    return one.metadata.labels.get(names.POD_UID, "")
