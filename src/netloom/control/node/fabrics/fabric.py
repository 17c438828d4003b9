"""Writes the flows of the vxlan fabric on this node's switch: for ports of this node, and for remote ports.

    own attachments, their OpenFlow ports ──┐
    remotes of each relevant Network        ├──► VxlanPlan ──► Delta ──► FabricFlows ──► one bundle ──► acknowledged
    SecurityProfiles, Shapings, RemoteVTEPs ┘    (plan/vxlan)            (drivers/vxlan)                (`carries`)

Listeners only record changes; one task writes. So all changes that arrive together, or while a bundle is in flight, are
one bundle. When the switch has accepted the flows of a port, `on_programmed` is sent, and its attachment is Plugged.

Nothing is written before everything relevant to this node is known. Until then the flows of an earlier agent forward
packets; afterwards they are compared as a whole, and if nothing changed meanwhile, nothing is written. A port gets
flows only when the remotes of its Network and the profiles of its namespace are known: earlier it would be closed, or
open, by mistake. For the same reason it gets none while a profile there cannot be decoded, and a profile that was known
stays in force as it was. After that each change is written by itself; a switch that restarted is given everything at
once. Other programs may change the flows, too: every few seconds they are counted, which is cheap, and now and then all
of them are read back.

The uid tells an attachment from an earlier one of the same name: one that was deleted and made again, here or on
another node, is another attachment, in whatever order the events arrive. Of two that claim one address the newer has
it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, NoReturn

from netloom.control.node.local_ports.port_planner import PortPlanner
from netloom.control.node.views import AttachmentView, NodeWatches
from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.informer import Informer
from netloom.drivers.shapes import ReconciledSet
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vxlan.bridge import ensure_bridge, is_bridge_ready, tunnel_ofport
from netloom.drivers.vxlan.driver import DesiredFlows
from netloom.errors import NetloomError
from netloom.model.kinds import networks
from netloom.model.kinds.bgp import RemoteVTEP
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.openflow.flows import Flow
from netloom.openflow.flows import Key as FlowKey
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.fabric import LocalPort, Remote, VxlanPlan
from netloom.plan.vxlan.flow_claims import Delta
from netloom.plan.vxlan.inputs import local_port, remote_port
from netloom.signals import Signal

log = logging.getLogger(__name__)

SYNC_POLL = 0.02
"""Seconds between two checks, at the start, whether everything is known."""
SYNC_WARNING = 10.0
"""Seconds after which the log says that something is not known yet."""
BATCH = 0.025
"""Seconds after a write for which changes that are not urgent are collected."""
RETRY = 1.0
"""Seconds before a failed write is retried."""
COUNT = 5.0
"""Seconds between two counts of our flows on the switch."""
COMPARE = 600.0
"""Seconds between two comparisons of all flows."""


class FabricReconciler:
    """The flows of this node's ports, and of those elsewhere that they can reach."""

    def __init__(
        self,
        *,
        underlay: str,
        datapath: str,
        attachments: Informer[AttachmentView],
        watches: NodeWatches,
        planner: PortPlanner,
        switch: Vswitch,
        flows: ReconciledSet[FlowKey, Flow, DesiredFlows, Delta],
        connect: Callable[[], Coroutine[Any, Any, Any]],
        random: Random,
    ) -> None:
        """`connect` keeps the connection to the switch until cancelled."""
        self.on_programmed: Signal[[Iterable[Key]]] = Signal()
        """Sent with the attachments whose flows the switch accepted or refused."""
        self.on_remote_host: Signal[[]] = Signal()
        """Sent when the first port of another node, or a VTEP of another site, becomes known."""
        self.plan = VxlanPlan()
        self.flows = flows
        self._underlay, self._datapath = underlay, datapath
        self._attachments = attachments.cache
        self._watches = watches
        self._planner = planner
        self._switch = switch
        self._connect = connect
        self._random = random
        self._locals: dict[Key, LocalPort] = {}
        self._remotes: dict[str, Remote] = {}
        self._vteps: dict[Key, RemoteVTEP] = {}
        self._hosts: set[str] = set()
        self._arrived: dict[str, AttachmentView] = {}
        """The remotes whose flows are being written for the first time."""
        self._lifetimes = watches.lifetimes
        self._unwritten: set[Key] = set()
        """The local ports whose flows the switch has not acknowledged."""
        self._refused: dict[str, str] = {}
        """Why the switch refused the flows of local ports, by uid."""
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        """Set when a local port waits for its flows."""
        self._wrote = 0.0
        self._bridged = asyncio.Event()
        self._preparing = asyncio.Lock()
        self._count_due = False
        self._stale_profiles: set[Key] = set()
        """Profiles that stay in force as they were, because they cannot be decoded any more."""
        self._blocked = False
        """Whether ports wait because a profile cannot be decoded."""
        attachments.on_change(lambda change: self.enqueue((change.key,)))
        watches.on_network.connect(self.enqueue)
        watches.on_remote.connect(self._remote_changed)
        watches.on_remotes_synced.connect(lambda network: self._enqueue_indexed("network", str(network)))
        watches.on_vtep.connect(self._vtep_changed)
        watches.on_profile.connect(self._profile_changed)
        watches.on_shaping.connect(self._shaping_changed)
        watches.on_shapings_synced.connect(lambda namespace: self._enqueue_indexed("namespace", namespace))
        watches.on_policies_synced.connect(lambda namespace: self._enqueue_indexed("namespace", namespace))
        switch.on_interfaces.connect(lambda names: self.enqueue(Key(*name) for name in names))
        switch.on_switch.connect(self.check_bridge)
        flows.on_outdated.connect(self._changed.set)

    # The state, for other parts.

    @property
    def connected(self) -> bool:
        """Whether flows can be written."""
        return self.flows.connected

    async def prepare(self, plan: PortPlan | None = None) -> None:  # all ports share the bridge
        """Create the bridge and its tunnel port, unless they exist."""
        if is_bridge_ready(self._switch, self._underlay):
            return
        async with self._preparing:
            if await ensure_bridge(self._switch, underlay=self._underlay, datapath=self._datapath):
                log.info("bridge %s was created or corrected", VXLAN_BRIDGE)

    def carries(self, plan: PortPlan, row: Interface) -> bool:
        """Whether the flows of a port are on the switch."""
        key = Key(plan.namespace, plan.name)
        here = self._locals.get(key)
        if here is None or key in self._unwritten or here.uid in self._refused:
            return False
        return (here.uid, here.ofport, here.vni) == (plan.uid, row.ofport, plan.vni)

    def refusal(self, plan: PortPlan) -> str:
        """Return why the switch refused the flows of a port; "": it did not."""
        return self._refused.get(plan.uid, "")

    def error(self, plan: PortPlan) -> str:  # other fabrics have tunnels of their own
        """Return nothing: a port needs nothing besides its flows."""
        return ""

    def node_addresses(self) -> set[str]:
        """Return the addresses of the nodes that are known, without this one's."""
        return {remote.host_ip for remote in self._remotes.values()}

    def remote_hosts(self) -> set[str]:
        """Return the addresses of the nodes that remote ports are on, and of the VTEPs of other sites."""
        self._hosts = self.node_addresses()
        self._hosts.update(vtep.spec.address for vtep in self._vteps.values())
        return set(self._hosts)

    def numbers(self) -> Mapping[str, float]:
        """Return the values of this part's metrics."""
        return {
            **self.flows.numbers(),
            "fabric_flows_wanted": len(self.plan.claims.flows),
            "local_attachments": len(self._locals),
            "remote_attachments": len(self._remotes),
            "remote_vteps": len(self._vteps),
            "relevant_networks": len(self._watches.networks_with_remotes()),
        }

    # Changes.

    def enqueue(self, keys: Iterable[Key]) -> None:
        """Update the flows of own attachments whose spec, Network or port on the switch changed."""
        for key in keys:
            self._update_local(key)

    def check_bridge(self) -> None:
        """Check the bridge and its tunnel port."""
        number = tunnel_ofport(self._switch, self.plan.vtep)
        if number is not None:
            self._bridged.set()
        if number != self.plan.vtep or not is_bridge_ready(self._switch, self._underlay):
            self.plan.vtep = number
            self._changed.set()

    def _update_local(self, key: Key) -> None:
        view = self._attachments.get(*key)
        if view is None and key in self._attachments.undecodable:
            return
        before = self._locals.get(key)
        after = self._port(view, before) if view is not None and not view.going else None
        if after == before:
            return
        if before is not None and (after is None or after.uid != before.uid):
            self.plan.drop_local(before.uid)
            self._refused.pop(before.uid, None)
        if after is None or view is None:
            del self._locals[key]
            self._unwritten.discard(key)
        else:
            self.plan.put_local(after, view.stored.revision)
            self._locals[key] = after
            self._unwritten.add(key)
            self._urgent.set()
        self._changed.set()

    def _port(self, view: AttachmentView, before: LocalPort | None) -> LocalPort | None:
        plan = self._planner.plan(view)
        if not isinstance(plan, PortPlan) or plan.fabric is not networks.Fabric.VXLAN:
            return None
        row = self._switch.plugged((plan.namespace, plan.name), plan.uid, plan.device)
        if row is not None and row.ofport is None and before is not None and before.uid == plan.uid:
            return before  # The switch is about to report its new number.
        if row is None or row.ofport is None or row.ofport <= 0:
            return None
        if not self._is_known(view) and (before is None or before.uid != plan.uid):
            return None
        return local_port(view.value, plan, row.ofport)

    def _is_known(self, view: AttachmentView) -> bool:
        """Whether everything is known that decides what a port may send and receive."""
        namespace = view.stored.namespace
        if self._watches.undecodable_profiles(namespace):
            self._blocked = True
            return False
        return self._watches.profiles(namespace) is not None and self._watches.remotes(view.network) is not None

    def _remote_changed(self, change: Change[AttachmentView]) -> None:
        old, new = change.old, change.new
        after = remote_port(new.value) if new is not None else None
        if old is not None and (after is None or after.uid != old.value.metadata.uid):
            self._forget(old.value.metadata.uid)
        if new is None or after is None:
            return
        if self._remotes.get(after.uid) != after:
            if after.uid not in self._remotes or after.uid in self._arrived:
                self._arrived[after.uid] = new
            self._remotes[after.uid] = after
            self._reach(after.host_ip)
            self.plan.put_remote(after, new.stored.revision)
            self._changed.set()

    def _forget(self, uid: str) -> None:
        if self._remotes.pop(uid, None) is not None:
            self._arrived.pop(uid, None)
            self._lifetimes.lost(uid)
            self.plan.drop_remote(uid)
            self._changed.set()

    def _reach(self, address: str) -> None:
        """Announce the address of a node, or of a VTEP, that was not known before."""
        if address not in self._hosts:
            self._hosts.add(address)
            self.on_remote_host()

    def _vtep_changed(self, change: Change[RemoteVTEP]) -> None:
        key, new = change.key, change.new
        if new is not None and self._watches.counts(new):
            self._vteps[key] = new
            self._reach(new.spec.address)
            self.plan.put_vtep(new)
            self._changed.set()
        elif self._vteps.pop(key, None) is not None:
            self.plan.drop_vtep(*key)
            self._changed.set()

    def _enqueue_indexed(self, index: str, value: str) -> None:
        views = self._attachments.indexed(index, value)
        self.enqueue([Key(view.stored.namespace, view.stored.name) for view in views])

    def _profile_changed(self, change: Change[SecurityProfile]) -> None:
        key = change.key
        self._stale_profiles.discard(key)
        if change.new is not None:
            self.plan.put_profile(change.new)
        elif key in self._watches.undecodable_profiles(key.namespace):
            log.warning("SecurityProfile %s cannot be decoded: its last version stays in force", key)
            self._stale_profiles.add(key)
        else:
            self.plan.drop_profile(*key)
        self._changed.set()

    def _recheck_undecodable(self) -> None:
        """Check whether profiles that could not be decoded are gone, or can be decoded now: no event says so."""
        for key in [
            one for one in self._stale_profiles if one not in self._watches.undecodable_profiles(one.namespace)
        ]:
            self._stale_profiles.discard(key)
            self.plan.drop_profile(*key)
        if self._blocked:
            self._blocked = False
            self.enqueue([key for key, _ in self._attachments.items()])
            if not self._blocked:
                self.flows.invalidate()  # Flows that were left alone are compared again.

    def _shaping_changed(self, change: Change[Shaping]) -> None:
        if change.new is None:
            self.plan.drop_shaping(*change.key)
        else:
            self.plan.put_shaping(change.new)
        self._changed.set()

    # Writing.

    async def run(self) -> NoReturn:
        """Keep the flows of the switch up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_connected())
            await self._sync()
            while True:
                await self._changed.wait()
                await self._batch()
                self._changed.clear()
                try:
                    await self._write()
                except NetloomError as error:
                    log.info("the flows are not all written yet: %s", error)
                    asyncio.get_running_loop().call_later(RETRY, self._changed.set)
                except Exception:  # The edge: a bug in a plan must not stop the agent from plugging ports.
                    log.exception("the flows of the vxlan fabric cannot be planned or written")
                    asyncio.get_running_loop().call_later(RETRY, self.flows.invalidate)
        raise AssertionError  # The group ends only by being cancelled.

    async def _batch(self) -> None:
        """Soon after a write, collect more changes of remote ports first; local ports do not wait."""
        rest = self._wrote + BATCH - asyncio.get_running_loop().time()
        if rest > 0 and not self._unwritten:
            self._urgent.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), rest)
        await asyncio.sleep(0)  # Other tasks that the same event woke may add their changes.

    async def _sync(self) -> None:
        """Wait until everything relevant is known, and plan all local ports."""
        self.check_bridge()
        clock = asyncio.get_running_loop().time
        warn_at = clock() + SYNC_WARNING
        while not (self._watches.synced and self._switch.synced):
            await asyncio.sleep(SYNC_POLL)  # No single event says so.
            if clock() > warn_at:
                log.warning("no flows are written until everything relevant to this node has been read")
                warn_at = clock() + COMPARE
        self.enqueue([key for key, _ in self._attachments.items()])
        self.check_bridge()
        self._changed.set()

    async def _stay_connected(self) -> NoReturn:
        """Connect to the switch as soon as the bridge exists."""
        await self._bridged.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connect())
            group.create_task(self._verify())
        raise AssertionError  # As above.

    async def _verify(self) -> NoReturn:
        """Count the flows every few seconds and read them back now and then: other programs may change them."""
        while True:
            for _ in range(round(COMPARE / COUNT * self._random.uniform(0.75, 1.25))):
                await asyncio.sleep(COUNT)
                self._recheck_undecodable()
                self._count_due = True
                self._changed.set()
            self.flows.invalidate()

    async def _write(self) -> None:
        if self._locals:
            await self.prepare()  # Another program may have removed the tunnel port.
        if not self.flows.connected:
            return  # Everything is compared once it is.
        if self._count_due:
            self._count_due = False
            await self.flows.recount()
        for _ in self.plan.slices():
            await asyncio.sleep(0)
        written = {key: self._locals[key] for key in self._unwritten}
        arrived = dict(self._arrived)
        delta = self.plan.flush()
        if self.flows.current:
            with self._lifetimes.timing("change-flows"):
                await self.flows.apply(delta)
        else:
            with self._lifetimes.timing("compare-flows"):
                whole = not self._attachments.undecodable and not self._blocked
                await self.flows.compare(self.plan.claims, remove=whole)
        self._wrote = asyncio.get_running_loop().time()
        for uid, view in arrived.items():
            if self._arrived.get(uid) is view:
                del self._arrived[uid]
                self._lifetimes.reached(view.value)
        # Announce the local ports whose flows the switch accepted or refused.
        done = [key for key, port in written.items() if self._locals.get(key) is port]
        self._unwritten.difference_update(done)
        refused = {}
        for port in self._locals.values() if self.flows.refused else ():
            for flow in self.plan.claims.claimed(f"local/{port.uid}"):
                if error := self.flows.refused.get(flow.key):
                    refused[port.uid] = error
        if refused != self._refused:
            done += [key for key, port in self._locals.items() if self._refused.get(port.uid) != refused.get(port.uid)]
            self._refused = refused
        if done:
            self.on_programmed(done)
