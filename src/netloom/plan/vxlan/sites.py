"""The flows of a Network that EVPN extends to other sites: to their machines, and broadcasts between sites. Pure.

    put, drop(RemoteVTEP) ──┐               ┌── each machine: its MAC, and questions for its addresses, to its VTEP
    port(local port)        ├──► settle() ──┤
    tunnel                  ┘               └── each Network: broadcasts to all VTEPs with `flood`, and from them

A machine of another site is like a port of another node, without labels and profiles: rules match it by its address. A
port of this site that claims the same MAC or address has it.

A broadcast of a local port, and a question for an address that nobody is known to have, is sent once to each VTEP with
`flood` (head-end replication). A broadcast from such a VTEP is delivered to the ports of the Network on this node: each
node of this site is a VTEP, and gets a copy of its own. Packets from the tunnel are never sent into it (split horizon).

Each machine claims its flows by itself, so a change of one costs its own flows, and the comparison of one RemoteVTEP,
which has at most 512.
"""

from collections.abc import Iterator, Sequence

from netloom.model.kinds.bgp import RemoteVTEP, RemoteVTEPSpec
from netloom.openflow.flows import Action, Flow, Goto, Resubmit, SetField
from netloom.plan.vxlan.flow_claims import FlowClaims
from netloom.plan.vxlan.layout import FLOOD, GROUP, HERE, IN, PART, TO_PORT, flow, ip_number
from netloom.plan.vxlan.ports import LocalPort, machine, towards

Name = tuple[str, str]
"""Namespace and name of a RemoteVTEP."""
LOW = -1
"""The rank of a machine of another site: below that of each port of this one."""
RECEIVERS = 256
"""How many receivers one flow of FLOOD has: an OpenFlow message is limited to 64 KiB."""


class SiteFlows:
    """The RemoteVTEPs, and their flows."""

    def __init__(self, claims: FlowClaims) -> None:
        self._claims = claims
        self._tunnel: int | None = None
        self._vteps: dict[Name, RemoteVTEPSpec] = {}
        self._planned: dict[Name, tuple[RemoteVTEPSpec, int]] = {}
        """The RemoteVTEPs that have flows, and the tunnel port of these."""
        self._flooding: dict[int, dict[Name, RemoteVTEPSpec]] = {}
        """The RemoteVTEPs with `flood`, by the VNI of the Network."""
        self._ports: dict[int, dict[str, int]] = {}
        """The OpenFlow numbers of local ports, by the VNI of the Network and owner."""
        self._vnis: dict[str, int] = {}
        """The VNIs of local ports, by owner."""
        self._changed: set[Name] = set()
        self._outwards: set[int] = set()
        """The VNIs of Networks in which a VTEP with `flood` changed."""
        self._inwards: set[int] = set()
        """The VNIs of Networks in which a local port changed, or the first or last such VTEP."""

    def put(self, vtep: RemoteVTEP) -> None:
        """Add or change a RemoteVTEP."""
        self._change((vtep.metadata.namespace, vtep.metadata.name), vtep.spec)

    def drop(self, name: Name) -> None:
        """Remove a RemoteVTEP."""
        self._change(name, None)

    def _change(self, name: Name, new: RemoteVTEPSpec | None) -> None:
        old = self._vteps.pop(name, None)
        if new is not None:
            self._vteps[name] = new
        self._changed.add(name)
        for one in (old, new):
            if one is not None and one.flood and (old is None or new is None or _where(old) != _where(new)):
                self._outwards.add(one.local_vni)
                self._inwards.add(one.local_vni)
        if old is not None and old.flood:
            del self._flooding[old.local_vni][name]
        if new is not None and new.flood:
            self._flooding.setdefault(new.local_vni, {})[name] = new

    def port(self, owner: str, port: LocalPort | None) -> None:
        """Add or change a local port; None: remove it."""
        old = self._vnis.pop(owner, None)
        if old is not None:
            del self._ports[old][owner]
            self._inwards.add(old)
        if port is not None:
            self._vnis[owner] = port.vni
            self._ports.setdefault(port.vni, {})[owner] = port.ofport
            self._inwards.add(port.vni)

    def set_tunnel(self, number: int | None) -> None:
        """Set the OpenFlow number of the tunnel port; None: it is not known, and there are no flows."""
        self._tunnel = number
        self._changed.update(self._vteps)
        self._outwards.update(self._flooding)
        self._inwards.update(self._flooding)

    @property
    def unplanned(self) -> int:
        """The number of RemoteVTEPs that changed."""
        return len(self._changed)

    def plan_one(self) -> None:
        """Claim the flows of one of the RemoteVTEPs that changed."""
        if self._changed:
            self._plan(self._changed.pop())

    def settle(self) -> None:
        """Claim the flows of what changed."""
        while self._changed:
            self.plan_one()
        outwards, self._outwards = self._outwards, set()
        for vni in outwards:
            if not self._flooding[vni]:
                del self._flooding[vni]
            self._claims.replace(f"flood/{vni}/out", self._flood_out(vni))
        inwards, self._inwards = self._inwards, set()
        for vni in inwards:
            if not self._ports.get(vni):
                self._ports.pop(vni, None)
            self._claims.replace(f"flood/{vni}/in", self._flood_in(vni))

    def _plan(self, name: Name) -> None:
        """Claim the flows of a RemoteVTEP, and of those machines behind it that changed."""
        new, tunnel = self._vteps.get(name), self._tunnel
        old, old_tunnel = self._planned.pop(name, (None, 0))
        before = {} if old is None else {one.mac: one.ips for one in old.macs}
        if new is None or tunnel is None:
            for mac in before:
                self._claims.remove(_owner(name, mac))
            self._claims.remove(_owner(name))
            return
        self._planned[name] = new, tunnel
        self._claims.replace(_owner(name), (_from(new, tunnel),) if new.flood else ())
        after = {one.mac: one.ips for one in new.macs}
        for mac in before.keys() - after.keys():
            self._claims.remove(_owner(name, mac))
        if old is not None and (_where(old)[1:], old_tunnel) == (_where(new)[1:], tunnel):
            after = {mac: ips for mac, ips in after.items() if before.get(mac) != ips}
        there = _to(new, tunnel)
        for mac, ips in after.items():
            self._claims.replace(_owner(name, mac), machine(mac, ips, new.local_vni, there), LOW)

    def _flood_out(self, vni: int) -> Iterator[Flow]:
        """Yield the flows that send a broadcast to other sites."""
        if self._tunnel is None:
            return
        # A VTEP with several objects gets one copy.
        flooding = sorted(self._flooding.get(vni, {}).values(), key=lambda one: one.vni)
        vteps = {ip_number(one.address): one for one in flooding}
        # IPv6 first: once an address of IPv4 is set, it has precedence.
        yield from _parts([_to(vteps[ip], self._tunnel) for ip in sorted(vteps, reverse=True)], vni, 100)

    def _flood_in(self, vni: int) -> Iterator[Flow]:
        """Yield the flows that deliver a broadcast of another site to the local ports."""
        if self._tunnel is None or not self._flooding.get(vni):
            return
        ports = sorted(self._ports.get(vni, {}).values())
        each = [(SetField(TO_PORT, ofport), Resubmit(IN)) for ofport in ports]
        yield from _parts(each, vni, 200, in_port=self._tunnel)


def _parts(receivers: Sequence[tuple[Action, ...]], vni: int, priority: int, **source: int) -> Iterator[Flow]:
    """Yield the flows that send a packet to each receiver: several of limited size, one after another."""
    for part, start in enumerate(range(0, len(receivers), RECEIVERS)):
        acts = [act for one in receivers[start : start + RECEIVERS] for act in one]
        if start + RECEIVERS < len(receivers):
            acts += [SetField("tun_id", vni), SetField(PART, part + 1), Resubmit(FLOOD)]
        yield flow(FLOOD, priority, tuple(acts), **source, tun_id=vni, **{PART: part})


def _from(vtep: RemoteVTEPSpec, tunnel: int) -> Flow:
    """Return the flow that accepts broadcasts of a VTEP."""
    version, ip = ip_number(vtep.address)
    source = {"tun_src" if version == 4 else "tun_ipv6_src": ip}
    return flow(HERE, 10, (Goto(FLOOD),), in_port=tunnel, tun_id=vtep.local_vni, dl_dst=GROUP, **source)


def _to(vtep: RemoteVTEPSpec, tunnel: int) -> tuple[Action, ...]:
    """Return the actions that send a packet to a VTEP."""
    return SetField("tun_id", vtep.vni), *towards(vtep.address, tunnel)


def _where(vtep: RemoteVTEPSpec) -> tuple[bool, str, int, int]:
    return vtep.flood, vtep.address, vtep.vni, vtep.local_vni


def _owner(name: Name, mac: str = "") -> str:
    return "vtep/{}/{}/".format(*name) + mac
