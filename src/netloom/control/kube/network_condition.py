"""The condition NetworkUnavailable of the cluster's nodes.

Some clouds set it when a node joins, with a taint that keeps pods away until the node has a network. Where it is set,
it becomes False when the attachment of the node is Ready. Nothing else of a node is ever written.
"""

from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, stamp
from netloom.errors import NotFound
from netloom.model.kinds.kubernetes import ClusterNode
from netloom.model.kubernetes import CLUSTER_NODE

CONDITION = "NetworkUnavailable"


class NetworkCondition:
    """Writes the condition."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        """`client` is that of the cluster."""
        self._client = client
        self._clock = clock

    @staticmethod
    def is_wanted(node: ClusterNode) -> bool:
        """Whether a node says that it has no network."""
        return any(one.type == CONDITION and one.status != "False" for one in node.status.conditions)

    async def write(self, node: ClusterNode | None, *, ready: bool) -> None:
        """Write the condition of a node whose network is ready, unless it is written."""
        if node is None or not ready or not self.is_wanted(node):
            return
        try:
            document = await self._client.document(CLUSTER_NODE, "", node.metadata.name)
        except NotFound:
            return
        if document["metadata"]["uid"] != node.metadata.uid:
            return
        now = stamp(self._clock())
        for one in document["status"]["conditions"]:
            if one.get("type") == CONDITION and one.get("status") != "False":
                one |= {
                    "status": "False",
                    "reason": "NetloomIsReady",
                    "message": "Netloom has connected the node",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
        await self._client.replace_status(CLUSTER_NODE, document)
