"""Keeps the mirrors of this node: those with a source or the destination plugged here.  A key is a namespace."""

from collections.abc import Iterable

from netloom.control.node.views import AttachmentView, NodeWatches
from netloom.control.runtime.cache import Cache, Key
from netloom.drivers.vswitch.driver import AttachmentName, Vswitch
from netloom.drivers.vswitch.mirrors import Mirrors
from netloom.plan.node.mirrors import plan_mirrors


class MirrorReconciler:
    """The mirrors of this node."""

    def __init__(
        self, underlay: str, attachments: Cache[AttachmentView], watches: NodeWatches, switch: Vswitch
    ) -> None:
        """`underlay` is the node's underlay address."""
        self._underlay = underlay
        self._attachments = attachments
        self._watches = watches
        self._switch = switch
        self._mirrors = Mirrors(switch)

    def all_keys(self) -> set[str]:
        """Return the namespaces that have mirrors on this node, or may need some."""
        return {*self._watches.namespaces(), *self._mirrors.namespaces()}

    def interfaces_changed(self, names: Iterable[AttachmentName]) -> set[str]:
        """Return the namespaces whose mirrors a change of interfaces may affect."""
        present = self._mirrors.namespaces()
        namespaces = {namespace for namespace, _ in names}
        return {one for one in namespaces if self._watches.mirrors(one) or one in present}

    async def reconcile(self, namespace: str) -> float | None:
        """Write the mirrors of one namespace."""
        found = self._watches.mirrors(namespace)
        if not self._switch.synced or (found is None and self._attachments.indexed("namespace", namespace)):
            return None  # Not known yet; `on_mirrors` enqueues the namespace again.
        wanted = plan_mirrors(found or (), self._underlay, self._device, self._devices)
        await self._mirrors.apply(namespace, {unit.name: plan for unit, plan in wanted.items()})
        return None

    def _device(self, namespace: str, name: str) -> str:
        view = self._attachments.get(namespace, name)
        return "" if view is None else self._device_of(view)

    def _devices(self, namespace: str, network: str) -> set[str]:
        views = self._attachments.indexed("network", str(Key(namespace, network)))
        return {self._device_of(view) for view in views} - {""}

    def _device_of(self, view: AttachmentView) -> str:
        if view.going:
            return ""
        row = self._switch.plugged((view.stored.namespace, view.stored.name), view.value.metadata.uid)
        return "" if row is None else row.name
