"""Keeps the VXLAN ports to the VTEPs of other sites, on a node with a speaker.

RemoteVTEPs are watched only where there is a BGPSpeaker: most nodes have none. A namespace whose speakers may not run
here (the setting `speakerNamespaces`) has no ports either. Of an object with hundreds of machines
only its VTEP is kept in memory.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from random import Random

import msgspec

from netloom.control.node.views import where
from netloom.control.runtime.cache import Change
from netloom.control.runtime.informer import Informer, informer
from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vswitch.vxlan_ports import VxlanPorts
from netloom.model.kinds.bgp import BGPSpeaker
from netloom.model.registry import REMOTE_VTEP
from netloom.plan.node.remote_vteps import VtepView, plan_vxlan_ports
from netloom.store.base import Store, Stored

log = logging.getLogger(__name__)

KEY = "remote VTEPs"


class _Spec(msgspec.Struct):
    address: str
    vni: int
    local_vni: int = msgspec.field(name="localVNI")
    local_address: str = msgspec.field(name="localAddress", default="")


class _Document(msgspec.Struct):
    spec: _Spec


def _view(stored: Stored) -> VtepView:
    spec = msgspec.json.decode(stored.raw, type=_Document).spec
    return VtepView(stored.namespace, stored.name, spec.address, spec.vni, spec.local_vni, spec.local_address)


class RemoteVtepReconciler:
    """The VXLAN ports of this node.  They have one key."""

    def __init__(
        self,
        store: Store,
        node: str,
        switch: Vswitch,
        *,
        namespaces: Sequence[str],
        nodes: Callable[[], Collection[str]],
        random: Random,
    ) -> None:
        """`namespaces` are patterns of those whose speakers may run here.

        `nodes` returns the addresses of this cluster's nodes, as far as they are known.
        """
        self.speakers = informer(store, BGPSpeaker, random=random, selector=where("spec.node", node))
        self.vteps: Informer[VtepView] = Informer(
            store, REMOTE_VTEP, _view, random=random, selector=where("spec.node", node)
        )
        self.vteps.wanted.clear()
        self.speakers.on_change(lambda _: self.vteps.wanted.set())
        self._ports = VxlanPorts(switch)
        self._switch = switch
        self._namespaces = namespaces
        self._nodes = nodes
        self._taken: list[str] = []

    def all_keys(self) -> Iterable[str]:
        """Return the key."""
        return (KEY,)

    def changed(self, change: Change[VtepView] | Change[BGPSpeaker]) -> Iterable[str]:
        """Return the key, unless only machines changed."""
        return () if change.old == change.new else (KEY,)

    async def announce(self, enqueue: Callable[[str], None]) -> None:
        """Enqueue the key when all objects are known: an empty list is no change."""
        await self.speakers.synced.wait()
        enqueue(KEY)
        await self.vteps.synced.wait()
        enqueue(KEY)

    async def reconcile(self, key: str) -> None:
        """Write the ports."""
        speakers, vteps = self.speakers, self.vteps
        if not (self._switch.synced and speakers.synced.is_set()) or (
            len(speakers.cache) and not vteps.synced.is_set()
        ):
            return  # Not known yet; `announce` enqueues it again.
        granted = [one for one in speakers.cache if self._is_granted(one.metadata.namespace)]
        sources = {(one.metadata.namespace, one.spec.router_id) for one in granted}
        wanted = plan_vxlan_ports(vteps.cache, sources, self._nodes())
        undecodable = bool(speakers.cache.undecodable or vteps.cache.undecodable)
        taken = await self._ports.apply(wanted, keep=undecodable)
        if taken != self._taken:
            log.warning(
                "interfaces of these names belong to another program: remove them (%s)", ", ".join(taken) or "-"
            )
        self._taken = taken

    def _is_granted(self, namespace: str) -> bool:
        return any(fnmatchcase(namespace, pattern) for pattern in self._namespaces)
