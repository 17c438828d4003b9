"""The vxlan fabric of one node, a change at a time: ports, remotes, profiles and shapings in, flows out.  Pure.

    put_local, put_remote, put_profile, put_shaping, drop_… ──► dirty ──► flush() ──► Delta

`flush` works out only what a change concerns, and what comes of it depends on what there is, never on the order in
which it came, on what was put twice, or on how often it was flushed. One remote that comes or goes costs its own flows,
and its address's place in the sets that rules on this node speak of.

Until the tunnel's number is known (`vtep`) nothing is planned but the local ports' own flows.
"""

from collections.abc import Iterator, Mapping

from netloom.model.paths import Shaping
from netloom.model.policy import SecurityProfile
from netloom.plan.vxlan.address_classes import Address, AddressClasses
from netloom.plan.vxlan.flow_claims import Delta, FlowClaims
from netloom.plan.vxlan.layout import COOKIE, COOKIE_MASK, METERS
from netloom.plan.vxlan.meters import MeterFlows
from netloom.plan.vxlan.policy import port_flows
from netloom.plan.vxlan.ports import LocalPort, Remote, base, local, numbers, remote, shared
from netloom.plan.vxlan.profiles import ProfileFlows

__all__ = ["COOKIE", "COOKIE_MASK", "METERS", "LocalPort", "Remote", "VxlanPlan", "base", "local", "remote"]

SHARED = 2**64
"""The rank of flows for an address that several may use: above all of those who have it."""


class VxlanPlan:
    """What must be on this node's switch."""

    def __init__(self) -> None:
        self.claims = FlowClaims()
        """What must be: its flows and meters may be read."""
        self._profile_flows = ProfileFlows(self.claims)
        self._meter_flows = MeterFlows(self.claims)
        self._address_classes = AddressClasses(
            self.claims, lambda one: (self._profile_flows.joined(one), self._meter_flows.joined(one))
        )
        self._vtep: int | None = None
        self._ports: dict[str, tuple[LocalPort | Remote, int]] = {}
        """Ports here and elsewhere, and their ranks, by owner: `local/UID`, `remote/UID`."""
        self._dirty: set[str] = set()
        """The owners that came, went or changed."""
        self._users: dict[Address, dict[str, bool]] = {}
        """Who may use an address, and whether it is theirs."""
        self._shared: dict[Address, int] = {}
        """How many may use an address that is not theirs."""
        self._asked: set[Address] = set()
        """Addresses whose users may be others now."""

    @property
    def vtep(self) -> int | None:
        """The tunnel's number on the switch; None: not known."""
        return self._vtep

    @vtep.setter
    def vtep(self, number: int | None) -> None:
        if number == self._vtep:
            return
        self._vtep = number
        self._dirty.update(owner for owner, (one, _) in self._ports.items() if isinstance(one, Remote))
        self._asked.update(self._shared)
        self.claims.replace("base", () if number is None else base(number))

    def put_local(self, port: LocalPort, rank: int = 0) -> None:
        """Let a port be plugged here."""
        self._change(f"local/{port.uid}", port, rank)

    def drop_local(self, uid: str) -> None:
        """Let a port be gone."""
        self._change(f"local/{uid}", None, 0)

    def put_remote(self, one: Remote, rank: int) -> None:
        """Let a port be plugged elsewhere; of two who claim one address the higher rank has it."""
        self._change(f"remote/{one.uid}", one, rank)

    def drop_remote(self, uid: str) -> None:
        """Let a port elsewhere be gone."""
        self._change(f"remote/{uid}", None, 0)

    def put_profile(self, profile: SecurityProfile) -> None:
        """Let a SecurityProfile be as it is now."""
        self._profile_flows.put(profile)

    def drop_profile(self, namespace: str, name: str) -> None:
        """Let a SecurityProfile be gone."""
        self._profile_flows.drop((namespace, name))

    def put_shaping(self, shaping: Shaping) -> None:
        """Let a Shaping be as it is now."""
        self._meter_flows.put(shaping)

    def drop_shaping(self, namespace: str, name: str) -> None:
        """Let a Shaping be gone."""
        self._meter_flows.drop((namespace, name))

    def missing(self, uid: str) -> tuple[str, ...]:
        """Return the profiles that a local port names and that do not exist; with one, it is closed.

        What is said is as of the last flush.
        """
        return self._profile_flows.cover(f"local/{uid}").missing

    def flush(self) -> Delta:
        """Work out what must be now; return what changed in it since the last time."""
        covered, joined = self._profile_flows.settle()
        metered, ends = self._meter_flows.settle()
        for owner in covered:
            self._asked.update(address for address in self._addresses(owner) if address in self._shared)
        dirty, self._dirty = self._dirty | covered | metered, set()
        for vni in joined | ends:
            self._address_classes.doubt(vni)
        for owner in dirty:
            self._plan(owner)
        changed = self._address_classes.settle()
        self._profile_flows.fill(self._address_classes.known, changed)
        self._meter_flows.fill(self._address_classes.known, changed)
        asked, self._asked = self._asked, set()
        for address in asked:
            self._ask(address)
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

    def _use(self, owner: str, one: LocalPort | Remote, *, gone: bool = False) -> None:
        """Take note of who may use which address, or may no longer."""
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
        """Let a port have the flows it needs."""
        one, rank = self._ports.get(owner, (None, 0))
        if isinstance(one, LocalPort):
            cover, ends = self._profile_flows.cover(owner), self._meter_flows.sets(owner)
            judged = port_flows(one.ofport, one.uid, cover, peers=bool(cover.sets or ends))
            self.claims.replace(owner, () if cover.missing else (*local(one), *judged), rank)
            self._address_classes.need(owner, one.vni, cover.sets | ends)
        elif isinstance(one, Remote) and self._vtep is not None:
            self.claims.replace(owner, remote(one, self._vtep), rank)
        else:
            self.claims.remove(owner)
            self._address_classes.need(owner, 0, ())

    def _ask(self, address: Address) -> None:
        """Let the question who has an address go to all who may, if some may use it whose it is not."""
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
        self.claims.replace(owner, shared(vni, (version, ip), sorted(ports), sorted(hosts), self._vtep), SHARED)

    def _answering(self, users: Mapping[str, bool]) -> Iterator[str]:
        """Give those who may answer for an address: all who are allowed it, and one of those whose it is."""
        yield from (user for user, is_own in users.items() if not is_own)
        own = [user for user, is_own in users.items() if is_own]
        if own:
            yield max(own, key=lambda user: (isinstance(self._ports[user][0], LocalPort), self._ports[user][1], user))
