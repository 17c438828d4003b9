"""The vxlan fabric of this node: what is plugged here and elsewhere, as flows on the node's own switch.

    own attachments, their ports' numbers ──┐
    others of each Network that concerns us ├──► VxlanPlan ──► what changed ──► Fabric ──► one bundle ──► acknowledged
    SecurityProfiles, Shapings              ┘    (plan/vxlan)                (drivers/vxlan)              (`carries`)

News is taken in as it comes, and is only noted; one task writes. So whatever comes together, or while a bundle is on
its way, is one bundle. When the switch has taken a port's flows its attachment is looked at again, which says Plugged.

Nothing is written before all that concerns this node is known once: what an agent that was ended left on the switch
carries packets until then, and is compared as a whole; if nothing changed meanwhile, nothing is written. A port is
planned for when the others of its Network and the profiles of its namespace are known, not earlier: it would be closed,
or open, by mistake; for the same reason not while a profile there cannot be decoded, and one that was known stays as it
was. After that each change is written by itself; a switch that was started again is given everything
at once. Somebody else may be at it, too: every few seconds the flows are counted, which costs next to nothing, and now
and then everything is read back.

An attachment is told from one of the same name by its uid: one that was deleted and made again, here or elsewhere, is
another, in whatever order that is heard of. Two that claim the same address have it by the newer one's right.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, NoReturn

from netloom.control.node.views import NodeWatches, View
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.drivers.vswitch.driver import UID, VXLAN_BRIDGE, Vswitch
from netloom.drivers.vxlan.bridge import bridge_is_there, keep_bridge, tunnel_number
from netloom.drivers.vxlan.driver import Fabric
from netloom.errors import NetloomError
from netloom.model import networks
from netloom.model.paths import Shaping
from netloom.model.policy import SecurityProfile
from netloom.ovsdb.rows.vswitch import Interface
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Problem
from netloom.plan.vxlan.fabric import LocalPort, Remote, VxlanPlan
from netloom.plan.vxlan.inputs import local_port, remote_port

log = logging.getLogger(__name__)

REST = 0.02
"""How often, in seconds, it is looked whether all is known, at the start."""
PATIENCE = 10.0
"""After how many seconds of that people are told."""
TOGETHER = 0.025
"""For how many seconds after a write what is not urgent waits for more."""
AGAIN = 1.0
"""How long what went wrong is left alone."""
COUNT = 5.0
"""How often the switch is asked how many flows of ours it has."""
DOUBT = 600.0
"""After how long everything is read back."""


class FabricReconciler:
    """The flows of this node's ports, and of those elsewhere that they can reach."""

    def __init__(
        self,
        *,
        underlay: str,
        datapath: str,
        attachments: Cache[View],
        neighbours: NodeWatches,
        switch: Vswitch,
        fabric: Fabric,
        connect: Callable[[], Coroutine[Any, Any, Any]],
        planned: Callable[[View], PortPlan | Problem | None],
        random: Random,
    ) -> None:
        """`connect` speaks to the switch until cancelled; `planned` says what an attachment means here."""
        self.plan = VxlanPlan()
        self.fabric = fabric
        self.wake: Callable[[Iterable[Key]], None] = lambda keys: None
        """Told whose flows the switch has taken, or refused."""
        self.on_host: Callable[[], None] = lambda: None
        """Called when the first port of another node is heard of."""
        self._underlay, self._datapath = underlay, datapath
        self._attachments = attachments
        self._neighbours = neighbours
        self._switch = switch
        self._connect = connect
        self._planned = planned
        self._random = random
        self._locals: dict[Key, LocalPort] = {}
        self._remotes: dict[str, Remote] = {}
        self._hosts: set[str] = set()
        self._arrived: dict[str, View] = {}
        """Those of the others whose flows are on their way for the first time."""
        self._lifetimes = neighbours.lifetimes
        self._unwritten: set[Key] = set()
        """Those of the local ports whose flows are not known to be on the switch."""
        self._faults: dict[str, str] = {}
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        """Set when a port of our own waits for its flows."""
        self._wrote = 0.0
        self._bridged = asyncio.Event()
        self._making = asyncio.Lock()
        self._began = False
        self._recount = False
        """Whether it is time to count."""
        self._kept: set[Key] = set()
        """Profiles that are as they were, because they cannot be decoded any more."""
        self._held = False
        """Whether ports wait because some profile cannot be decoded."""

    # What others ask.

    @property
    def at_rest(self) -> bool:
        """Whether all that is known has been written."""
        return self._began and not self._news.is_set() and not self._unwritten and self.fabric.current

    async def prepare(self) -> None:
        """Have the bridge and its tunnel port."""
        if bridge_is_there(self._switch, self._underlay):
            return
        async with self._making:
            if await keep_bridge(self._switch, underlay=self._underlay, datapath=self._datapath):
                log.info("bridge %s is made, or corrected", VXLAN_BRIDGE)

    def carries(self, plan: PortPlan, row: Interface) -> bool:
        """Whether a port's flows are on the switch."""
        key = Key(plan.namespace, plan.name)
        here = self._locals.get(key)
        if here is None or key in self._unwritten or here.uid in self._faults:
            return False
        return (here.uid, here.ofport, here.vni) == (plan.uid, row.ofport, plan.vni)

    def fault(self, plan: PortPlan) -> str:
        """Return what the switch says is wrong with a port's flows; "": nothing."""
        return self._faults.get(plan.uid, "")

    def remote_hosts(self) -> set[str]:
        """Return the addresses of the nodes that ports elsewhere are on."""
        self._hosts = {remote.host_ip for remote in self._remotes.values()}
        return set(self._hosts)

    def numbers(self) -> Mapping[str, float]:
        """Return plain numbers for who exports metrics."""
        counters = self.fabric.counters
        return {
            "fabric_connected": float(self.fabric.connected),
            "fabric_flows": len(self.fabric.seen),
            "fabric_flows_wanted": len(self.plan.table.flows),
            "fabric_flows_refused": len(self.fabric.refused),
            "fabric_bundles": counters.bundles,
            "fabric_puts": counters.puts,
            "fabric_drops": counters.drops,
            "fabric_compared": counters.compared,
            "local_attachments": len(self._locals),
            "remote_attachments": len(self._remotes),
            "relevant_networks": len(self._neighbours.others_followed()),
        }

    # What is heard.

    def listen(self) -> None:
        """Be told by the neighbourhood."""
        self._neighbours.other_changed = self._other_changed
        self._neighbours.others_known = self._others_known
        self._neighbours.profile_changed = self._profile_changed
        self._neighbours.shaping_changed = self._shaping_changed
        self._neighbours.policies_known = self._policies_known

    def look(self, keys: Iterable[Key]) -> None:
        """Look at own attachments, of which something changed: the wish, its Network, or the port on the switch."""
        for key in keys:
            self._look(key)

    def changed(self) -> None:
        """Look at the switch as a whole: its bridges and its tunnel port."""
        number = tunnel_number(self._switch, self.plan.vtep)
        if number is not None:
            self._bridged.set()
        if number != self.plan.vtep or not bridge_is_there(self._switch, self._underlay):
            self.plan.vtep = number
            self._news.set()

    def _look(self, key: Key) -> None:
        view = self._attachments.get(*key)
        if view is None and key in self._attachments.undecodable:
            return
        before = self._locals.get(key)
        after = self._port(view, before) if view is not None and not view.going else None
        if after == before:
            return
        if before is not None and (after is None or after.uid != before.uid):
            self.plan.drop_local(before.uid)
            self._faults.pop(before.uid, None)
        if after is None or view is None:
            del self._locals[key]
            self._unwritten.discard(key)
        else:
            self.plan.put_local(after, view.stored.revision)
            self._locals[key] = after
            self._unwritten.add(key)
            self._urgent.set()
        self._news.set()

    def _port(self, view: View, before: LocalPort | None) -> LocalPort | None:
        plan = self._planned(view)
        if not isinstance(plan, PortPlan) or plan.fabric is not networks.Fabric.VXLAN:
            return None
        rows = self._switch.interfaces((plan.namespace, plan.name))
        row = next((one for one in rows if one.name == plan.device and one.external_ids.get(UID) == plan.uid), None)
        if row is not None and row.ofport is None and before is not None and before.uid == plan.uid:
            return before  # The switch is about to say which number it has now.
        if row is None or row.ofport is None or row.ofport <= 0:
            return None
        if not self._is_known(view) and (before is None or before.uid != plan.uid):
            return None
        return local_port(view.value, plan, row.ofport)

    def _is_known(self, view: View) -> bool:
        """Whether all is known that decides what a port may do."""
        namespace = view.stored.namespace
        if self._neighbours.unread_profiles(namespace):
            self._held = True
            return False
        return self._neighbours.profiles(namespace) is not None and self._neighbours.others(view.network) is not None

    def _other_changed(self, change: Change[View]) -> None:
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
            if after.host_ip not in self._hosts:
                self._hosts.add(after.host_ip)
                self.on_host()
            self.plan.put_remote(after, new.stored.revision)
            self._news.set()

    def _forget(self, uid: str) -> None:
        if self._remotes.pop(uid, None) is not None:
            self._arrived.pop(uid, None)
            self._lifetimes.lost(uid)
            self.plan.drop_remote(uid)
            self._news.set()

    def _others_known(self, network: Key) -> None:
        self._look_in("network", str(network))

    def _policies_known(self, namespace: str) -> None:
        self._look_in("namespace", namespace)

    def _look_in(self, index: str, value: str) -> None:
        views = self._attachments.indexed(index, value)
        self.look([Key(view.stored.namespace, view.stored.name) for view in views])

    def _profile_changed(self, change: Change[SecurityProfile]) -> None:
        key = change.key
        self._kept.discard(key)
        if change.new is not None:
            self.plan.put_profile(change.new)
        elif key in self._neighbours.unread_profiles(key.namespace):
            log.warning("SecurityProfile %s cannot be decoded: it stays as it was", key)
            self._kept.add(key)
        else:
            self.plan.drop_profile(*key)
        self._news.set()

    def _look_at_unread(self) -> None:
        """Look whether profiles that could not be decoded are gone, or can be now: of that nobody tells."""
        for key in [one for one in self._kept if one not in self._neighbours.unread_profiles(one.namespace)]:
            self._kept.discard(key)
            self.plan.drop_profile(*key)
        if self._held:
            self._held = False
            self.look([key for key, _ in self._attachments.items()])
            if not self._held:
                self.fabric.doubt()  # What was left where it was is compared again.

    def _shaping_changed(self, change: Change[Shaping]) -> None:
        if change.new is None:
            self.plan.drop_shaping(*change.key)
        else:
            self.plan.put_shaping(change.new)
        self._news.set()

    # What is written.

    async def run(self) -> NoReturn:
        """Have the switch carry what is wished, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._speak())
            await self._begin()
            while True:
                await self._news.wait()
                await self._gather()
                self._news.clear()
                try:
                    await self._write()
                except NetloomError as error:
                    log.info("the switch has not all flows yet: %s", error)
                    group.create_task(self._later())
                except Exception:  # The edge: ports are plugged, and their agent lives, also where a plan has a bug.
                    log.exception("the fabric's flows cannot be worked out, or not be written")
                    group.create_task(self._later(doubt=True))
        raise AssertionError  # The group ends only by being cancelled.

    async def _gather(self) -> None:
        """Soon after a write, let what is only about ports elsewhere wait for more of it; our own ports do not wait."""
        rest = self._wrote + TOGETHER - asyncio.get_running_loop().time()
        if rest > 0 and not self._unwritten:
            self._urgent.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), rest)
        await asyncio.sleep(0)  # Who was woken by the same event is to come along.

    async def _begin(self) -> None:
        """Wait until all that concerns us is known, and look at everything."""
        self.changed()
        clock = asyncio.get_running_loop().time
        warned = clock() + PATIENCE
        while not (self._neighbours.synced and self._switch.synced):
            await asyncio.sleep(REST)  # There is no one event that says so.
            if clock() > warned:
                log.warning("no flow is written before everything that concerns this node could be read")
                warned = clock() + DOUBT
        self.look([key for key, _ in self._attachments.items()])
        self.changed()
        self._began = True
        self._news.set()

    async def _speak(self) -> NoReturn:
        """Be connected to the switch as soon as there is the bridge."""
        await self._bridged.wait()
        self.fabric.on_outdated.connect(self._news.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connect())
            group.create_task(self._doubt())
        raise AssertionError  # As above.

    async def _doubt(self) -> NoReturn:
        """Have the flows counted, and now and then read back: somebody else may have changed them."""
        while True:
            for _ in range(round(DOUBT / COUNT * self._random.uniform(0.75, 1.25))):
                await asyncio.sleep(COUNT)
                self._look_at_unread()
                self._recount = True
                self._news.set()
            self.fabric.doubt()

    async def _later(self, *, doubt: bool = False) -> None:
        await asyncio.sleep(AGAIN)
        if doubt:
            self.fabric.doubt()
        self._news.set()

    async def _write(self) -> None:
        if self._locals:
            await self.prepare()  # Somebody may have taken the tunnel away.
        if not self.fabric.connected:
            return  # When it is, everything is written.
        if self._recount:
            self._recount = False
            await self.fabric.recount()
        written = {key: self._locals[key] for key in self._unwritten}
        arrived = dict(self._arrived)
        delta = self.plan.flush()
        if self.fabric.current:
            with self._lifetimes.timing("change-flows"):
                await self.fabric.apply(delta.puts, delta.drops, delta.meters)
        else:
            table = self.plan.table
            with self._lifetimes.timing("compare-flows"):
                whole = not self._attachments.undecodable and not self._held
                await self.fabric.compare(table.flows, table.meters, remove=whole)
        self._wrote = asyncio.get_running_loop().time()
        self._settle(written)
        for uid, view in arrived.items():
            if self._arrived.get(uid) is view:
                del self._arrived[uid]
                self._lifetimes.reached(view.value)

    def _settle(self, written: Mapping[Key, LocalPort]) -> None:
        """Have those told whose flows the switch has taken, or refused."""
        done = [key for key, port in written.items() if self._locals.get(key) is port]
        self._unwritten.difference_update(done)
        faults = self._refusals() if self.fabric.refused else {}
        if faults != self._faults:
            done += [key for key, port in self._locals.items() if self._faults.get(port.uid) != faults.get(port.uid)]
            self._faults = faults
        if done:
            self.wake(done)

    def _refusals(self) -> dict[str, str]:
        """Return what is wrong with the flows of local ports, by uid."""
        found = {}
        for port in self._locals.values():
            for flow in self.plan.table.claimed(f"local/{port.uid}"):
                if words := self.fabric.refused.get(flow.key):
                    found[port.uid] = words
        return found
