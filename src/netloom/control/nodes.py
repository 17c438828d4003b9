"""Nodes without heartbeats: their condition `Ready` becomes Unknown.

An agent writes a heartbeat every ten seconds. This controller measures the time since it saw the last one, by its own
clock: the clocks of the nodes do not matter. After a start it waits for every node as long as usual. The agent writes
`Ready` again with its next heartbeat.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from netloom.control.runtime.cache import Cache, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import READY, UNKNOWN, with_condition
from netloom.control.runtime.events import Recorder
from netloom.errors import NotFound
from netloom.model.document import Condition
from netloom.model.kinds.cluster import AGENT_SILENT_SECONDS, Node

REASON = "AgentSilent"


class NodeWatcher:
    """Reconciles `Ready` of Nodes without heartbeats.  The keys are those of Nodes."""

    def __init__(self, client: Client, nodes: Cache[Node], recorder: Recorder, *, clock: Clock) -> None:
        self._client = client
        self._nodes = nodes
        self._recorder = recorder
        self._clock = clock
        self._heard: dict[Key, tuple[str, float]] = {}
        """The last heartbeat, and when it was seen."""

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all Nodes."""
        return [key for key, _ in self._nodes.items()]

    async def reconcile(self, key: Key) -> float | None:
        """Set `Ready` to Unknown if heartbeats are missing; return when to check again."""
        node = self._nodes.get(*key)
        if node is None:
            self._heard.pop(key, None)
            return None
        now = asyncio.get_running_loop().time()
        beat, since = self._heard.get(key, ("", now))
        if key not in self._heard or beat != node.status.last_heartbeat:
            since = now
            self._heard[key] = (node.status.last_heartbeat, now)
        if now - since < AGENT_SILENT_SECONDS:
            return AGENT_SILENT_SECONDS - (now - since)
        await self._set_unknown(node)
        return None  # The next heartbeat is a change.

    async def _set_unknown(self, node: Node) -> None:
        ready = node.status.condition(READY)
        if ready is None or ready.status == UNKNOWN:
            return
        message = f"no heartbeat for {AGENT_SILENT_SECONDS:g} seconds: check that `netloom agent` runs on this node"
        unknown = Condition(
            type=READY,
            status=UNKNOWN,
            observed_generation=node.metadata.generation,
            reason=REASON,
            message=message,
        )
        conditions = with_condition(node.status.conditions, unknown, self._clock())
        try:
            await self._client.update_status(node, msgspec.structs.replace(node.status, conditions=conditions))
        except NotFound:
            return  # The informer will report that it is gone.
        self._recorder.warning(node, REASON, message)
