"""Lets deleted HostDocuments go: once their nodes have removed everything, or when a Node is gone for good.

    deleted ──► the agent removes what it has applied ──► condition `Removed` ──► no finalizer ──► gone
            └─► there is no such Node ───────────────────────────────────────────┘

An agent may write only the status of a HostDocument, so its finalizer is removed here. A Node that is gone for good is
deleted by an administrator. Its agent, should it come back, finds no HostDocument, and removes what it has.
"""

from collections.abc import Iterable

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.events import Recorder
from netloom.errors import NotFound
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.sandbox import REMOVED, HostDocument
from netloom.model.registry import HOST_DOCUMENT
from netloom.plan.linux.objects import FINALIZER


class HostDocumentReconciler:
    """Removes the finalizers of HostDocuments.  The keys are theirs."""

    def __init__(
        self, client: Client, *, documents: Cache[HostDocument], nodes: Cache[Node], recorder: Recorder
    ) -> None:
        self._client = client
        self._documents = documents
        self._nodes = nodes
        self._recorder = recorder

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all deleted HostDocuments."""
        return [key for key, one in self._documents.items() if one.metadata.deletion_timestamp]

    def event_target(self, key: Key) -> HostDocument | None:
        """Return the HostDocument of a key, for Events."""
        return self._documents.get(*key)

    def document_changed(self, change: Change[HostDocument]) -> Iterable[Key]:
        """Return the HostDocument, if it is deleted."""
        return (change.key,) if change.new is not None and change.new.metadata.deletion_timestamp else ()

    def node_changed(self, change: Change[Node]) -> Iterable[Key]:
        """Return the deleted HostDocuments of a Node that is gone."""
        if change.new is not None:
            return ()
        return [key for key in self.all_keys() if self._node(key) == change.key.name]

    def _node(self, key: Key) -> str:
        found = self._documents.get(*key)
        return "" if found is None else found.spec.node

    async def reconcile(self, key: Key) -> None:
        """Remove the finalizer of a deleted HostDocument if nothing of it is left, or will be."""
        found = self._documents.get(*key)
        if found is None or not found.metadata.deletion_timestamp or FINALIZER not in found.metadata.finalizers:
            return
        removed = found.status.condition(REMOVED)
        if removed is None or removed.status != TRUE:
            node = found.spec.node
            if self._nodes.get("", node) is not None or await self._client.find(Node, "", node) is not None:
                return
            self._recorder.warning(found, "NodeGone", f"Node {node} is gone: what it had of this was not removed")
        try:
            document = await self._client.document(HOST_DOCUMENT, *key)
        except NotFound:
            return
        metadata = document["metadata"]
        if metadata["uid"] == found.metadata.uid:
            metadata["finalizers"] = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
            await self._client.replace(HOST_DOCUMENT, document)
