"""How an attachment's status is sent.  Two write it, IPAM and the agent of its node: each sends all of it.

What the other wrote goes along as it was read; the revision it was read at says whether it still is so.
"""

from typing import Any, Protocol

from netloom.model.document import Document
from netloom.model.registry import NETWORK_ATTACHMENT


class Meta(Protocol):
    """What of the metadata says which attachment, at which revision."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def resource_version(self) -> str:
        """The revision."""


def sent(meta: Meta, status: Document) -> Document:
    """Return what is sent to the store: enough to say which attachment, at which revision, and its status."""
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
    """Let a field be this value; an empty one is left out."""
    if value:
        within[name] = value
    else:
        within.pop(name, None)
