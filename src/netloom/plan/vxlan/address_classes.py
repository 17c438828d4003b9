"""The sets that each address is a member of, among those that rules on this node refer to. Pure.

    need(port, vni, sets): the rules of a local port refer to these sets
    member(owner, one):    a port, local or remote, is in a Network
                                        ──► settle() ──► classes of addresses (flows), and classes added or removed

The class of an address is the set of all sets it is in; usually there are few classes, however many addresses. While no
port of a Network needs a set, its addresses have no flows.

Several ports may use one address: that of its own attachment, and those that are allowed it. It is in the sets of all
of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from netloom.plan.vxlan.flow_claims import FlowClaims
from netloom.plan.vxlan.policy import Class, Set, peer_flows
from netloom.plan.vxlan.ports import LocalPort, Remote, numbers

Address = tuple[int, int, int]
"""VNI, family, number."""
Joined = tuple[Class, Class]
"""The sets that all addresses of a port are in, and those that only its own addresses are in as well."""
NO_SETS: Class = frozenset()


class AddressClasses:
    """The classes of addresses, kept up to date."""

    def __init__(self, claims: FlowClaims, joined: Callable[[LocalPort | Remote], Joined]) -> None:
        self._claims = claims
        self._joined = joined
        self._ones: dict[str, LocalPort | Remote] = {}
        self._in: dict[int, set[str]] = {}
        """The owners in a Network, by VNI."""
        self._needs: dict[str, tuple[int, Class]] = {}
        self._needed: dict[int, Counter[Set]] = {}
        self._at: dict[Address, dict[str, Class]] = {}
        """What each owner contributes to the class of an address."""
        self._of: dict[str, dict[Address, Class]] = {}
        self._classes: dict[Address, Class] = {}
        self.known: Counter[Class] = Counter()
        """The present classes, and the number of their addresses."""
        self._changed: set[str] = set()
        self.recheck: set[int] = set()
        """The VNIs of Networks whose ports are all checked again, because memberships changed."""

    def need(self, owner: str, vni: int, sets: Iterable[Set]) -> None:
        """Set the sets that the rules of a local port refer to."""
        new = vni, frozenset(sets)
        old = self._needs.get(owner, (vni, NO_SETS))
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
            self.recheck.add(vni)
        if not needed:
            del self._needed[vni]

    def member(self, owner: str, one: LocalPort | Remote | None) -> None:
        """Add a port to its Network; None: remove it."""
        old = self._ones.pop(owner, None)
        if old is not None:
            self._in[old.vni].discard(owner)
            if not self._in[old.vni]:
                del self._in[old.vni]
        if one is not None:
            self._ones[owner] = one
            self._in.setdefault(one.vni, set()).add(owner)
        self._changed.add(owner)

    def settle(self) -> set[Class]:
        """Update the class of each address; return the classes that were added or removed."""
        owners, self._changed = self._changed, set()
        for vni in self.recheck:
            owners |= self._in.get(vni, set())
        self.recheck = set()
        addresses: set[Address] = set()
        for owner in owners:
            addresses |= self._contribute(owner)
        were: dict[Class, bool] = {}
        for address in addresses:
            self._classify(address, were)
        return {one for one, was in were.items() if was != (one in self.known)}

    def _contribute(self, owner: str) -> set[Address]:
        """Update the sets of a port's addresses; return the addresses that changed."""
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
        """Update the class of an address; record in `were` which classes existed before."""
        new: Class = frozenset().union(*self._at.get(address, {}).values())
        old = self._classes.pop(address, NO_SETS)
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
