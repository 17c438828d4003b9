"""Writing an attachment's status.  IPAM and the agent of its node both write it, and each sends all of it.

A writer sends the other's fields as it read them; the revision makes the store refuse them if they have changed since.
"""

from typing import Any

from netloom.control.runtime.gc import ItemMeta
from netloom.model.document import Document, ObjectMeta
from netloom.model.registry import NETWORK_ATTACHMENT


def sent(meta: ObjectMeta | ItemMeta, status: Document) -> Document:
    """Return the document to send: the identity and the revision of an attachment, and its status."""
    return {
        "apiVersion": NETWORK_ATTACHMENT.api_version,
        "kind": NETWORK_ATTACHMENT.name,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        },
        "status": status,
    }


def put(within: dict[str, Any], name: str, value: object) -> None:
    """Set a field; remove it if the value is empty."""
    if value:
        within[name] = value
    else:
        within.pop(name, None)
