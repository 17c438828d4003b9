"""The nodes of a lab's cluster, as its API shows them."""

from datetime import datetime
from pathlib import Path

from netloom.client.session import connect
from netloom.errors import NetloomError
from netloom.model.document import Document


def ready_nodes(kubeconfig: Path, *, since: datetime | None = None) -> set[str]:
    """Return the nodes that are Ready, with a heartbeat after `since`; none while the API does not answer."""
    try:
        client = connect(str(kubeconfig)).client
    except NetloomError:
        return set()
    try:
        found = client.call("GET", "/api/v1/nodes")
    except NetloomError:
        return set()
    finally:
        client.close()
    return {item["metadata"]["name"] for item in found.get("items", ()) if _is_ready(item, since)}


def _is_ready(node: Document, since: datetime | None) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    ready = next((one for one in conditions if one["type"] == "Ready" and one["status"] == "True"), None)
    # The API of a lab that was up before still has the nodes' earlier statuses.
    if ready is None or since is None:
        return ready is not None
    return datetime.fromisoformat(ready["lastHeartbeatTime"]) >= since.replace(microsecond=0)
