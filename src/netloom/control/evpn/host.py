"""The speakers of a node: for each BGPSpeaker with `spec.node` of this node, one runs.

One process of a node runs its speakers: the agent, or `netloom speaker`. The process that holds the lock of the control
socket runs them; another one waits for the lock. A BGPSpeaker of a namespace that the node's operator has not granted
does not run: otherwise every user who may create one could make the node listen and connect.
"""

import asyncio
import logging
from fnmatch import fnmatchcase

import msgspec

from netloom.control.evpn.live import ControlSocket
from netloom.control.evpn.speaker import RunningSpeaker, SpeakerServices
from netloom.control.node.views import where
from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.clock import stamp
from netloom.control.runtime.conditions import FALSE, READY, with_condition
from netloom.control.runtime.informer import informer
from netloom.errors import NetloomError
from netloom.model.document import Condition
from netloom.model.kinds.bgp import BGPSpeaker, RemoteVTEP

log = logging.getLogger(__name__)


class SpeakerHost:
    """Runs the speakers of a node."""

    def __init__(self, services: SpeakerServices, *, socket: str, namespaces: tuple[str, ...]) -> None:
        """`namespaces` are patterns of those whose speakers may run here."""
        self._services = services
        self._namespaces = namespaces
        self.running: dict[Key, RunningSpeaker] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._socket = ControlSocket(socket, self.running)
        mine = where("spec.node", services.node)
        self.speakers = informer(services.store, BGPSpeaker, random=services.random, selector=mine)
        self.remote = informer(services.store, RemoteVTEP, random=services.random, selector=mine)
        self.speakers.on_change(lambda _: self._changed.set())
        self.remote.on_change(self._remote_changed)

    async def run(self) -> None:
        """Run until cancelled.  Sessions end as for a restart: peers keep our routes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.speakers.run())
            await self.speakers.synced.wait()
            while not len(self.speakers.cache):
                self._changed.clear()
                await self._changed.wait()
            await self._socket.take()  # Only where there is a speaker: most nodes have none.
            group.create_task(self._socket.serve())
            group.create_task(self.remote.run())
            await self.remote.synced.wait()
            while True:
                await self._choose(group)
                await self._changed.wait()
                self._changed.clear()

    async def _choose(self, group: asyncio.TaskGroup) -> None:
        """Start, replace and end speakers."""
        wanted = {key: value for key, value in self.speakers.cache.items() if not value.metadata.deletion_timestamp}
        for key, running in list(self.running.items()):
            value = wanted.get(key)
            if value is not None and value.spec == running.value.spec and self._is_granted(key):
                running.value = value
                continue
            running.shut_down()
            await asyncio.sleep(0)  # The NOTIFICATIONs are sent first.
            if self.running.get(key) is not running:
                continue  # It has failed meanwhile.
            del self.running[key]
            task = self._tasks.pop(key)
            task.cancel()
            await asyncio.wait([task])  # The next one may listen on the same port.
        for key, value in wanted.items():
            if not self._is_granted(key):
                await self._refuse(value)
            elif key not in self.running:
                running = self.running[key] = RunningSpeaker(value, self._services, self.remote)
                self._tasks[key] = group.create_task(self._run(key, running))

    async def _run(self, key: Key, running: RunningSpeaker) -> None:
        """Run one speaker; if it fails, the others keep running."""
        try:
            await running.run()
        except Exception:  # The task's edge: a bug in one speaker must not end the others.
            log.exception("speaker %s failed", key)
            await asyncio.sleep(5.0)
            if self.running.get(key) is running:
                del self.running[key], self._tasks[key]
                self._changed.set()

    def _is_granted(self, key: Key) -> bool:
        return any(fnmatchcase(key.namespace, pattern) for pattern in self._namespaces)

    async def _refuse(self, value: BGPSpeaker) -> None:
        text = (
            f"node {self._services.node} does not run speakers of namespace {value.metadata.namespace}: add it to the "
            "setting speakerNamespaces of the node's agent"
        )
        refused = Condition(
            type=READY,
            status=FALSE,
            observed_generation=value.metadata.generation,
            reason="NotGranted",
            message=text,
        )
        clock = self._services.clock
        status = msgspec.structs.replace(
            value.status,
            last_heartbeat=value.status.last_heartbeat or stamp(clock()),
            conditions=with_condition(value.status.conditions, refused, clock()),
        )
        try:
            await self._services.client.update_status(value, status)
        except NetloomError as error:
            log.info("cannot write the status of speaker %s: %s", value.metadata.name, error)

    def _remote_changed(self, change: Change[RemoteVTEP]) -> None:
        for running in self.running.values():
            running.remote_changed(change)
