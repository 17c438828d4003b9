"""Agents without a machine: they receive real data from the API, and keep the result in memory.

    attachments of its node ──► Plugged, Ready, hostIP                     (the status as the agent writes it)
    NodeWatches ──► attachments of its Networks ──► known: uid and node  (the fabric: a table, instead of a switch)

They run the agent's own code up to the fabric: the same informers, the same selection of relevant objects, a client for
each agent, so a thousand of them send the same requests as a thousand nodes. The time at which each agent receives an
attachment of another node is recorded, with a clock that all processes of a machine share.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn

from msgspec import Struct

from netloom.control.node.local_ports.status import PlugResult, document, settled
from netloom.control.node.node import Facts, NodeReconciler
from netloom.control.node.views import AttachmentView, NodeWatches, attachment_informer
from netloom.control.runtime import clock
from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.client import Client
from netloom.errors import NetloomError, NotFound
from netloom.model.conditions import ADDRESSED
from netloom.model.kinds.cluster import Datapath
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan import names
from netloom.store.base import Store

AGAIN = 0.2
"""Seconds before a failed status write is retried."""


class Knowledge(Struct, frozen=True):
    """What an agent knows of one Network: the number of remote attachments, and a digest of their uids."""

    count: int
    digest: int


def digest(uids: Iterable[str]) -> Knowledge:
    """Return the knowledge of these attachments; the order does not matter."""
    count = found = 0
    for uid in uids:
        count += 1
        found ^= int(uid.replace("-", "")[-16:], 16)
    return Knowledge(count, found)


@dataclass(slots=True)
class Receipts:
    """When the last agent received each attachment, by its uid."""

    last: dict[str, float] = field(default_factory=dict)
    times: int = 0

    def add(self, uid: str, at: float) -> None:
        """Note that one more agent received it."""
        self.times += 1
        self.last[uid] = at  # The clock is monotonic.


class SimulatedAgent:
    """The agent of a node without a machine."""

    def __init__(self, store: Store, node: str, host_ip: str, *, receipts: Receipts, random: Random) -> None:
        self.node = node
        self.written = 0
        self._store = store
        self._client = Client(store)
        self._host_ip = host_ip
        self._receipts = receipts
        self._attachments = attachment_informer(store, node, random=random)
        self._watches = NodeWatches(store, self._attachments, node=node, random=random)
        facts = Facts(datapath=Datapath.USERSPACE)
        self._reconciler = NodeReconciler(
            self._client, node, host_ip, facts=lambda: facts, clock=clock.now, random=random
        )
        self._remotes: dict[Key, dict[str, str]] = {}
        """The node of each attachment, by Network and uid."""
        self._todo: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._attachments.on_change(self._attachment_changed)
        self._watches.on_remote.connect(self._remote_changed)

    @property
    def synced(self) -> bool:
        """Whether it knows all that concerns it now."""
        return self._attachments.synced.is_set() and self._watches.synced and not self._todo

    def knows(self) -> dict[str, Knowledge]:
        """Return what it knows of the Networks that concern it."""
        return {str(key): digest(self._remotes.get(key, ())) for key in self._watches.networks_with_remotes()}

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        await self._reconciler.register()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run())
            group.create_task(self._attachments.run())
            group.create_task(self._watches.run())
            group.create_task(self._plug())
        raise AssertionError  # The group ends only by cancellation.

    def _attachment_changed(self, change: Change[AttachmentView]) -> None:
        view = change.new
        if view is None or settled(view.value, _found(view), self._host_ip):
            self._todo.pop(change.key, None)
            return
        condition = view.value.status.condition(ADDRESSED)
        if condition is not None and condition.status == "True":
            self._todo[change.key] = None
            self._woken.set()

    def _remote_changed(self, change: Change[AttachmentView]) -> None:
        view = change.new or change.old
        assert view is not None
        known = self._remotes.setdefault(view.network, {})
        if change.new is None:
            known.pop(view.value.metadata.uid, None)
            return
        if change.old is not None and change.old.value.metadata.uid != view.value.metadata.uid:
            known.pop(change.old.value.metadata.uid, None)
        uid = view.value.metadata.uid
        if uid not in known and self._watches.remotes(view.network) is not None:
            # A new attachment: those that exist when a Network becomes relevant are listed, however old they are.
            self._receipts.add(uid, asyncio.get_running_loop().time())
        known[uid] = view.value.status.host_ip

    async def _plug(self) -> NoReturn:
        """Write the condition Plugged of each attachment that has its addresses."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.gather(*(self._say(key) for key in list(self._todo)))
            if self._todo:
                await asyncio.sleep(AGAIN)
                self._woken.set()

    async def _say(self, key: Key) -> None:
        view = self._attachments.cache.get(*key)
        self._todo.pop(key, None)
        if view is None or settled(view.value, _found(view), self._host_ip):
            return
        try:
            sent = document(view, _found(view), self._host_ip, clock.now())
            await self._client.replace_status(NETWORK_ATTACHMENT, sent)
            self.written += 1
        except NotFound:
            pass
        except NetloomError:  # It changed meanwhile, and the event is on its way, or the server is down.
            self._todo[key] = None


def _found(view: AttachmentView) -> PlugResult:
    """Return what a node would find: a device, and that all is well."""
    return PlugResult(device=names.interface(view.value.status.mac), installed=True)
