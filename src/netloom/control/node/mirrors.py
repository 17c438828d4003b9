"""Keeps the mirrors of this node: those whose source and destination are both attachments plugged here.

A key is a namespace. What copies between nodes is OVN's business, not the agent's.
"""

from netloom.control.node.views import NodeWatches, View
from netloom.control.runtime.cache import Cache
from netloom.drivers.vswitch.driver import UID, Vswitch
from netloom.drivers.vswitch.mirrors import MirrorPlan, Mirrors
from netloom.model.paths import MirrorDirection


class MirrorReconciler:
    """The mirrors of this node."""

    def __init__(self, attachments: Cache[View], neighbours: NodeWatches, switch: Vswitch) -> None:
        self._attachments = attachments
        self._neighbours = neighbours
        self._switch = switch
        self._mirrors = Mirrors(switch)
        self.changed = 0

    def everything(self) -> set[str]:
        """Return all namespaces that have, or may want, mirrors here."""
        return {*self._neighbours.namespaces(), *self._mirrors.namespaces()}

    def concerned(self, namespace: str) -> bool:
        """Whether a change in a namespace may mean anything to its mirrors."""
        return bool(self._neighbours.mirrors(namespace)) or namespace in self._mirrors.namespaces()

    async def reconcile(self, namespace: str) -> float | None:
        """Have one namespace's mirrors as they should be."""
        found = self._neighbours.mirrors(namespace)
        if not self._switch.synced or (found is None and self._attachments.indexed("namespace", namespace)):
            return None  # Not known yet; when it is, we are told.
        wanted = {}
        for mirror in found or ():
            source = self._device(namespace, mirror.spec.source.attachment)
            destination = self._device(namespace, mirror.spec.destination.attachment)
            if source and destination and not mirror.metadata.deletion_timestamp:
                direction = mirror.spec.direction
                wanted[mirror.metadata.name] = MirrorPlan(
                    source,
                    destination,
                    direction is not MirrorDirection.INGRESS,
                    direction is not MirrorDirection.EGRESS,
                )
        self.changed += await self._mirrors.apply(namespace, wanted)
        return None

    def _device(self, namespace: str, name: str) -> str:
        view = self._attachments.get(namespace, name)
        if view is None or view.going:
            return ""
        rows = self._switch.interfaces((namespace, name))
        return next((row.name for row in rows if row.external_ids.get(UID) == view.value.metadata.uid), "")
