"""The vxlan fabric of one node, one change at a time: ports, remotes, profiles and shapings in, flows out. Pure.

    put_local, put_remote, put_profile, put_shaping, put_vtep, drop_… ──► dirty ──► flush() ──► Delta

`flush` plans only what a change affects. Its result depends on the present objects, never on the order in which they
arrived, on objects that were put twice, or on the number of flushes. A remote that is added or removed costs its own
flows, and the memberships of its address in sets that rules on this node refer to.

Until the number of the tunnel port is known (`vtep`), only the local ports' own flows are planned.
"""

from collections.abc import Iterator, Mapping

from netloom.model.kinds.bgp import RemoteVTEP
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan.vxlan.address_classes import Address, AddressClasses
from netloom.plan.vxlan.flow_claims import Delta, FlowClaims
from netloom.plan.vxlan.layout import COOKIE, COOKIE_MASK, METERS
from netloom.plan.vxlan.meters import MeterFlows
from netloom.plan.vxlan.policy import port_flows
from netloom.plan.vxlan.ports import LocalPort, Remote, base, local, numbers, remote, shared
from netloom.plan.vxlan.profiles import ProfileFlows
from netloom.plan.vxlan.sites import SiteFlows

__all__ = ["COOKIE", "COOKIE_MASK", "METERS", "LocalPort", "Remote", "VxlanPlan", "base", "local", "remote"]


class VxlanPlan:
    """The desired flows and meters of this node's switch."""

    def __init__(self) -> None:
        self.claims = FlowClaims()
        """The desired flows and meters; read only."""
        self._profile_flows = ProfileFlows(self.claims)
        self._meter_flows = MeterFlows(self.claims)
        self._address_classes = AddressClasses(
            self.claims, lambda one: (self._profile_flows.joined(one), self._meter_flows.joined(one))
        )
        self._site_flows = SiteFlows(self.claims)
        self._vtep: int | None = None
        self._ports: dict[str, tuple[LocalPort | Remote, int]] = {}
        """Local and remote ports, and their ranks, by owner: `local/UID`, `remote/UID`."""
        self._dirty: set[str] = set()
        """The owners that were added, removed or changed."""
        self._users: dict[Address, dict[str, bool]] = {}
        """The owners that may use an address, and whether it is their own."""
        self._shared: dict[Address, int] = {}
        """The number of owners that may use an address that is not their own."""
        self._asked: set[Address] = set()
        """The addresses whose users may have changed."""

    @property
    def vtep(self) -> int | None:
        """The OpenFlow number of the tunnel port; None while it is unknown."""
        return self._vtep

    @vtep.setter
    def vtep(self, number: int | None) -> None:
        if number == self._vtep:
            return
        self._vtep = number
        self._dirty.update(owner for owner, (one, _) in self._ports.items() if isinstance(one, Remote))
        self._asked.update(self._shared)
        self._site_flows.set_tunnel(number)
        self.claims.replace("base", () if number is None else base(number))

    def put_local(self, port: LocalPort, rank: int = 0) -> None:
        """Add or change a local port."""
        self._change(f"local/{port.uid}", port, rank)

    def drop_local(self, uid: str) -> None:
        """Remove a local port."""
        self._change(f"local/{uid}", None, 0)

    def put_remote(self, one: Remote, rank: int) -> None:
        """Add or change a remote port; of two that claim one address the higher rank has it."""
        self._change(f"remote/{one.uid}", one, rank)

    def drop_remote(self, uid: str) -> None:
        """Remove a remote port."""
        self._change(f"remote/{uid}", None, 0)

    def put_profile(self, profile: SecurityProfile) -> None:
        """Add or change a SecurityProfile."""
        self._profile_flows.put(profile)

    def drop_profile(self, namespace: str, name: str) -> None:
        """Remove a SecurityProfile."""
        self._profile_flows.drop((namespace, name))

    def put_shaping(self, shaping: Shaping) -> None:
        """Add or change a Shaping."""
        self._meter_flows.put(shaping)

    def drop_shaping(self, namespace: str, name: str) -> None:
        """Remove a Shaping."""
        self._meter_flows.drop((namespace, name))

    def put_vtep(self, vtep: RemoteVTEP) -> None:
        """Add or change a RemoteVTEP, and the machines behind it."""
        self._site_flows.put(vtep)

    def drop_vtep(self, namespace: str, name: str) -> None:
        """Remove a RemoteVTEP."""
        self._site_flows.drop((namespace, name))

    def missing(self, uid: str) -> tuple[str, ...]:
        """Return the profiles that a local port names and that do not exist; with one, the port is closed.

        The result is that of the last flush.
        """
        return self._profile_flows.cover(f"local/{uid}").missing

    def slices(self) -> Iterator[None]:
        """Plan the RemoteVTEPs that changed before `flush` does, one at a time, so that others can work in between."""
        for _ in range(self._site_flows.unplanned):
            self._site_flows.plan_one()
            yield

    def flush(self) -> Delta:
        """Plan what changed; return the difference to the last flush."""
        covered, joined = self._profile_flows.settle()
        metered, ends = self._meter_flows.settle()
        for owner in covered:
            self._asked.update(address for address in self._addresses(owner) if address in self._shared)
        dirty, self._dirty = self._dirty | covered | metered, set()
        self._address_classes.recheck |= joined | ends
        for owner in dirty:
            self._plan(owner)
        changed = self._address_classes.settle()
        self._profile_flows.fill(self._address_classes.known, changed)
        self._meter_flows.fill(self._address_classes.known, changed)
        asked, self._asked = self._asked, set()
        for address in asked:
            self._ask(address)
        self._site_flows.settle()
        return self.claims.take()

    def _change(self, owner: str, new: LocalPort | Remote | None, rank: int) -> None:
        old = self._ports.get(owner)
        if old == (None if new is None else (new, rank)):
            return
        if old is not None:
            self._use(owner, old[0], gone=True)
            del self._ports[owner]
        if new is not None:
            self._ports[owner] = new, rank
            self._use(owner, new)
        self._address_classes.member(owner, new)
        self._dirty.add(owner)
        if isinstance(new, LocalPort) or (old is not None and isinstance(old[0], LocalPort)):
            self._profile_flows.port(owner, new if isinstance(new, LocalPort) else None)
            self._meter_flows.port(owner, new if isinstance(new, LocalPort) else None)
            self._site_flows.port(owner, new if isinstance(new, LocalPort) else None)

    def _use(self, owner: str, one: LocalPort | Remote, *, gone: bool = False) -> None:
        """Record which owners may use which addresses, or may no longer."""
        own = numbers(one.ips)
        for version, ip in numbers((*one.ips, *one.allowed)):
            address, is_own = (one.vni, version, ip), (version, ip) in own
            users = self._users.setdefault(address, {})
            if gone:
                del users[owner]
            else:
                users[owner] = is_own
            if not users:
                del self._users[address]
            if not is_own:
                self._shared[address] = self._shared.get(address, 0) + (-1 if gone else 1)
            if address in self._shared:
                self._asked.add(address)

    def _addresses(self, owner: str) -> Iterator[Address]:
        one, _ = self._ports.get(owner, (None, 0))
        if one is not None:
            yield from ((one.vni, version, ip) for version, ip in numbers((*one.ips, *one.allowed)))

    def _plan(self, owner: str) -> None:
        """Claim the flows of a port."""
        one, rank = self._ports.get(owner, (None, 0))
        if isinstance(one, LocalPort):
            cover, ends = self._profile_flows.cover(owner), self._meter_flows.sets(owner)
            evaluated = port_flows(one.ofport, one.uid, cover, peers=bool(cover.sets or ends))
            self.claims.replace(owner, () if cover.missing else (*local(one), *evaluated), rank)
            self._address_classes.need(owner, one.vni, cover.sets | ends)
        elif isinstance(one, Remote) and self._vtep is not None:
            self.claims.replace(owner, remote(one, self._vtep), rank)
        else:
            self.claims.remove(owner)
            self._address_classes.need(owner, 0, ())

    def _ask(self, address: Address) -> None:
        """Send questions for an address to all ports that may use it, if it is not the own address of all of them."""
        owner = "shared/{}/{}/{}".format(*address)
        if not self._shared.get(address):
            self._shared.pop(address, None)
            self.claims.remove(owner)
            return
        ports, hosts = set(), set()
        for user in self._answering(self._users[address]):
            one = self._ports[user][0]
            if isinstance(one, LocalPort):
                if not self._profile_flows.cover(user).missing:
                    ports.add(one.ofport)
            else:
                hosts.add(one.host_ip)
        vni, version, ip = address
        self.claims.replace(owner, shared(vni, (version, ip), sorted(ports), sorted(hosts), self._vtep))

    def _answering(self, users: Mapping[str, bool]) -> Iterator[str]:
        """Yield the owners that may answer for an address: all that are allowed it, and one of those that own it."""
        yield from (user for user, is_own in users.items() if not is_own)
        own = [user for user, is_own in users.items() if is_own]
        if own:
            yield max(own, key=lambda user: (isinstance(self._ports[user][0], LocalPort), self._ports[user][1], user))
