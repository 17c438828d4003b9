"""Which sets each address is in, of those that something on this node speaks of.  Pure.

    need(port, vni, sets): a local port's rules speak of these sets
    member(owner, one):    somebody is in a Network, here or elsewhere
                                        ──► settle() ──► addresses' classes (flows), and which classes came and went

An address's class is the set of all sets it is in; usually there are few classes, however many addresses. Where no port
of a Network needs a set, nobody's address has a flow.

An address may be used by several: its own attachment, and those that are allowed it. It is in the sets of all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from netloom.plan.vxlan.flow_claims import FlowClaims
from netloom.plan.vxlan.policy import Class, Set, peer_flows
from netloom.plan.vxlan.ports import LocalPort, Remote, numbers

Address = tuple[int, int, int]
"""VNI, family, number."""
Joined = tuple[Class, Class]
"""The sets that all addresses of somebody are in, and those that only his own are in besides."""
NOBODY: Class = frozenset()


class AddressClasses:
    """The classes of addresses, kept up to date."""

    def __init__(self, claims: FlowClaims, joined: Callable[[LocalPort | Remote], Joined]) -> None:
        self._claims = claims
        self._joined = joined
        self._ones: dict[str, LocalPort | Remote] = {}
        self._in: dict[int, set[str]] = {}
        """Who is in a Network, by VNI."""
        self._needs: dict[str, tuple[int, Class]] = {}
        self._needed: dict[int, Counter[Set]] = {}
        self._at: dict[Address, dict[str, Class]] = {}
        """What each contributes to an address's class."""
        self._of: dict[str, dict[Address, Class]] = {}
        self._classes: dict[Address, Class] = {}
        self.known: Counter[Class] = Counter()
        """The classes there are, and how many addresses they have."""
        self._changed: set[str] = set()
        self._doubted: set[int] = set()

    def need(self, owner: str, vni: int, sets: Iterable[Set]) -> None:
        """Let these be the sets that a local port's rules speak of."""
        new = vni, frozenset(sets)
        old = self._needs.get(owner, (vni, NOBODY))
        if old == new:
            return
        for one in old[1]:
            self._count(old[0], one, -1)
        for one in new[1]:
            self._count(vni, one, 1)
        if new[1]:
            self._needs[owner] = new
        else:
            self._needs.pop(owner, None)

    def _count(self, vni: int, one: Set, more: int) -> None:
        needed = self._needed.setdefault(vni, Counter())
        before = needed[one]
        needed[one] = before + more
        if not needed[one]:
            del needed[one]
        if not before or not needed[one]:
            self._doubted.add(vni)
        if not needed:
            del self._needed[vni]

    def member(self, owner: str, one: LocalPort | Remote | None) -> None:
        """Let somebody be in a Network; None: no longer."""
        old = self._ones.pop(owner, None)
        if old is not None:
            self._in[old.vni].discard(owner)
            if not self._in[old.vni]:
                del self._in[old.vni]
        if one is not None:
            self._ones[owner] = one
            self._in.setdefault(one.vni, set()).add(owner)
        self._changed.add(owner)

    def doubt(self, vni: int) -> None:
        """Have all in a Network looked at again: what makes somebody a member has changed."""
        self._doubted.add(vni)

    def settle(self) -> set[Class]:
        """Let each address have the class it is in now; return the classes that came or went."""
        owners, self._changed = self._changed, set()
        for vni in self._doubted:
            owners |= self._in.get(vni, set())
        self._doubted = set()
        addresses: set[Address] = set()
        for owner in owners:
            addresses |= self._contribute(owner)
        were: dict[Class, bool] = {}
        for address in addresses:
            self._classify(address, were)
        return {one for one, was in were.items() if was != (one in self.known)}

    def _contribute(self, owner: str) -> set[Address]:
        """Let somebody's addresses be in the sets he is in now; return those for which that is a change."""
        one, new = self._ones.get(owner), {}
        needed = None if one is None else self._needed.get(one.vni)
        if one is not None and needed:
            every, own = (sets.intersection(needed) for sets in self._joined(one))
            new = {(one.vni, *ip): every for ip in numbers(one.allowed)}
            new |= {(one.vni, *ip): every | own for ip in numbers(one.ips)}
        old = self._of.pop(owner, {})
        if new := {address: sets for address, sets in new.items() if sets}:
            self._of[owner] = new
        changed = {address for address in old.keys() | new.keys() if old.get(address) != new.get(address)}
        for address in changed:
            parts = self._at.setdefault(address, {})
            parts.pop(owner, None)
            if address in new:
                parts[owner] = new[address]
            if not parts:
                del self._at[address]
        return changed

    def _classify(self, address: Address, were: dict[Class, bool]) -> None:
        """Let an address have its class; note in `were` which classes there were before."""
        new: Class = frozenset().union(*self._at.get(address, {}).values())
        old = self._classes.pop(address, NOBODY)
        if new:
            self._classes[address] = new
        if old == new:
            return
        for one, more in ((old, -1), (new, 1)):
            if one:
                were.setdefault(one, one in self.known)
                self.known[one] += more
                if not self.known[one]:
                    del self.known[one]
        self._claims.replace("peer/{}/{}/{}".format(*address), peer_flows(*address, new) if new else ())
