"""Nodes whose agent is silent: Ready is not what it said last, it is unknown.

An agent says every ten seconds that it is alive. How long it has been silent is measured here, from when its last
heartbeat was seen, by this process's own clock: what the machines think the time is does not matter. A controller that
has just started gives everybody the same while to be heard. The agent itself says Ready again with its next heartbeat.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import READY, UNKNOWN, with_condition
from netloom.control.runtime.events import Recorder
from netloom.errors import NotFound
from netloom.model.cluster import AGENT_SILENT_SECONDS, Node
from netloom.model.document import Condition

REASON = "AgentSilent"


class NodeWatcher:
    """Reconciles the Ready of Nodes nobody is heard from.  The keys are Nodes' keys."""

    def __init__(self, client: Client, nodes: Cache[Node], recorder: Recorder, *, clock: Clock) -> None:
        self._client = client
        self._nodes = nodes
        self._recorder = recorder
        self._clock = clock
        self._heard: dict[Key, tuple[str, float]] = {}
        """The heartbeat seen last, and when that was."""

    def all_keys(self) -> Iterable[Key]:
        """Return all keys."""
        return [key for key, _ in self._nodes.items()]

    def node_changed(self, change: Change[Node]) -> Iterable[Key]:
        """Look at a Node that changed."""
        return (change.key,)

    async def reconcile(self, key: Key) -> float | None:
        """Say so if a Node's agent is silent; return when to look again."""
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
        await self._tell(node)
        return None  # The next heartbeat is a change.

    async def _tell(self, node: Node) -> None:
        ready = node.status.condition(READY)
        if ready is None or ready.status == UNKNOWN:
            return
        said = (
            f"the agent has said nothing for {AGENT_SILENT_SECONDS:g} seconds; see whether `netloom agent` runs there"
        )
        unknown = Condition(
            type=READY,
            status=UNKNOWN,
            observed_generation=node.metadata.generation,
            reason=REASON,
            message=said,
        )
        conditions = with_condition(node.status.conditions, unknown, self._clock())
        try:
            await self._client.update_status(node, msgspec.structs.replace(node.status, conditions=conditions))
        except NotFound:
            return  # The informer will tell.
        self._recorder.warning(node, REASON, said)
