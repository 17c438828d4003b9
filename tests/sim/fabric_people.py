"""Users: attachments that come, go and move with their addresses, which of them may communicate, and at what rate.

Addresses are given by hand, at once, as IPAM gives them; IPAM has a simulation of its own.
"""

import asyncio
from collections.abc import Sequence

from netloom.errors import Conflict, NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SECURITY_PROFILE, SHAPING
from netloom.plan.addresses import macs
from netloom.plan.addresses.blocks import Address
from netloom.sim import loop as sim
from netloom.store.base import Store
from tests.control.helpers import document
from tests.sim.fabric_oracle import Resources

NETWORKS = {"blue": 10, "red": 11, "green": 12}
"""By name, and their VNIs; all have the same addresses."""
ADDRESSES = range(2, 8)
NAMESPACE = "ns1"
PROFILES = ("p1", "p2", "p3")
ROLES = ("web", "db")


class People:
    """Users: attachments come, go, and move with their addresses."""

    def __init__(self, store: Store, nodes: Sequence[str], *, policed: bool) -> None:
        """With `policed`, they create SecurityProfiles and Shapings, too."""
        self.store = store
        self._nodes = nodes
        self._policed = policed
        self._random = sim.current().random
        self._made = 0
        self._there: dict[str, tuple[str, int]] = {}
        """Network and address, by name."""

    async def prepare(self) -> None:
        """Make the Networks."""
        for name, vni in NETWORKS.items():
            await self.store.create(NETWORK, document(NETWORK, name, {"fabric": "vxlan"}))
            await self._status(NETWORK, name, {"vni": vni})

    async def change(self) -> None:
        """Do one thing."""
        chance = self._random.random()
        if self._policed and self._random.random() < 0.35:
            await self._police()
        elif not self._there or chance < 0.35:
            await self.arrive()
        elif chance < 0.6:
            await self.leave(self._random.choice(sorted(self._there)))
        else:
            await self.move(self._random.choice(sorted(self._there)))

    async def arrive(self) -> None:
        """Attach something where an address is free."""
        taken = set(self._there.values())
        free = [(network, n) for network in NETWORKS for n in ADDRESSES if (network, n) not in taken]
        if free:
            self._made += 1
            await self._attach(f"a{self._made}", *self._random.choice(free))

    async def leave(self, name: str) -> None:
        """Detach something."""
        del self._there[name]
        await self.store.delete(NETWORK_ATTACHMENT, NAMESPACE, name)

    async def move(self, name: str) -> None:
        """Detach something and attach it with its address, perhaps elsewhere, at once or when it is quiet."""
        network, number = self._there[name]
        await self.leave(name)
        self._there[name] = network, number  # Nobody else may take it.
        await asyncio.sleep(self._random.choice((0, 0, 0.01, 1.0)))
        del self._there[name]
        if self._random.random() < 0.5:
            self._made += 1
            name = f"a{self._made}"
        await self._attach(name, network, number)

    async def _attach(self, name: str, network: str, number: int) -> None:
        spec: Document = {"node": self._random.choice(self._nodes), "network": network, "port": {"type": "internal"}}
        if self._policed and self._random.random() < 0.4:
            spec["securityProfiles"] = sorted(self._random.sample(PROFILES, self._random.randint(1, 2)))
        self._there[name] = network, number
        labels = {"role": self._random.choice(ROLES)} if self._policed else {}
        await self.store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, spec, labels=labels))
        await asyncio.sleep(self._random.choice((0, 0, 0.05)))
        vni = NETWORKS[network]
        status = {
            "ips": [f"10.0.0.{number}/24", f"fd00::{number}/64"],
            "locks": [{"ip": ip, "uid": f"lock-{ip}"} for ip in (f"10.0.0.{number}", f"fd00::{number}")],
            "mac": macs.formula(vni, Address(4, 0x0A000000 + number)),
            "vni": vni,
            "conditions": [{"type": "Addressed", "status": "True", "observedGeneration": 1}],
        }
        await self._status(NETWORK_ATTACHMENT, name, status)

    async def _police(self) -> None:
        """Make, change or take away a SecurityProfile or a Shaping."""
        kind, name, spec = self._random.choice((self._profile, self._shaping))()
        try:
            there = (await self.store.get(kind, NAMESPACE, name)).document()
        except NotFound:
            await self.store.create(kind, document(kind, name, spec))
            return
        if self._random.random() < 0.3:
            await self.store.delete(kind, NAMESPACE, name)
        else:
            await self.store.update(kind, {**there, "spec": spec})

    def _profile(self) -> tuple[Kind, str, Document]:
        spec: Document = {}
        for direction, end in (("ingress", "from"), ("egress", "to")):
            if self._random.random() < 0.6:
                spec[direction] = [self._rule(end) for _ in range(self._random.randint(0, 2))]
        if self._random.random() < 0.5:
            spec["selector"] = self._selector()
        return SECURITY_PROFILE, self._random.choice(PROFILES), spec

    def _rule(self, end: str) -> Document:
        rule: Document = {"action": self._random.choice(("allow", "allow", "allow", "drop"))}
        if self._random.random() < 0.8:
            rule[end] = [self._peer() for _ in range(self._random.randint(1, 2))]
        return rule

    def _peer(self) -> Document:
        blocks = ("10.0.0.0/30", "10.0.0.4/31", "fd00::/126", "10.0.0.0/8")
        chosen = self._random.randrange(3)
        if chosen == 0:
            return {"cidr": self._random.choice(blocks)}
        return {"profile": self._random.choice(PROFILES)} if chosen == 1 else {"selector": self._selector()}

    def _selector(self) -> Document:
        return {"matchLabels": {"role": self._random.choice(ROLES)}}

    def _shaping(self) -> tuple[Kind, str, Document]:
        network, names = self._random.choice(list(NETWORKS)), sorted(self._there)
        places: list[Document] = [{"network": network}, {"selector": self._selector()}]
        places += [{"node": self._random.choice(self._nodes)}]
        places += [{"attachment": self._random.choice(names)}] if names else []
        spec = {"from": self._random.choice(places), "rate": self._random.choice(("1mbit", "10mbit"))}
        if self._random.random() < 0.3:
            spec["to"] = self._random.choice(places)
        return SHAPING, self._random.choice(("s1", "s2")), spec

    async def _status(self, kind: Kind, name: str, status: Document) -> None:
        while True:
            made = (await self.store.get(kind, NAMESPACE, name)).document()
            made["status"] = {**made.get("status", {}), **status}
            try:
                await self.store.update(kind, made, subresource="status")
                return
            except Conflict:
                continue

    async def resources(self) -> Resources:
        """Return all desired objects."""
        kinds = (NETWORK, NETWORK_ATTACHMENT, SECURITY_PROFILE, SHAPING)
        pages = [await self.store.list(kind) for kind in kinds]
        return Resources(*([one.document() for one in page.items] for page in pages))
