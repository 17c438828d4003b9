"""What users change while IPAM is disturbed, and the disturbances.

The world is tiny on purpose: blocks of four and eight addresses, and half a dozen names, so that full Subnets, taken
addresses, quarantines and names used again come up all the time. People are polite in one thing, which the API would
see to: a Subnet or a Network is deleted only when no attachment uses it.
"""

import asyncio
from ipaddress import ip_interface, ip_network
from random import Random
from typing import Any

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Subnet
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.sim import loop as sim
from netloom.sim.world import Process
from tests.control.helpers import document, network, subnet
from tests.sim.ipam_ledger import Ledger

BLOCKS = {
    "tiny": "10.0.0.0/30",
    "small": "10.0.0.8/29",
    "other": "10.0.0.16/30",
    "six": "fd00::/126",
}
"""Each Subnet always has the same block: what comes and goes is the Subnet."""
NAMES = tuple(f"a{number}" for number in range(6))
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
VNI = 7


def attachment(name: str, of: str = "blue", namespace: str = "ns1", **spec: Any) -> dict[str, Any]:
    return document(NETWORK_ATTACHMENT, name, {"node": "n1", "network": of, **spec}, namespace)


class People:
    """All users."""

    def __init__(self, store: Ledger, random: Random) -> None:
        self._store = store
        self._random = random
        self.story: list[str] = []

    async def settle_in(self) -> None:
        """Make the Network and some Subnets."""
        await self._store.create(NETWORK, network("blue", self._random.choice((VNI, VNI, None))))
        for name in self._random.choice((("tiny",), ("tiny", "six"), ("tiny", "other"), ("small", "six"))):
            await self._store.create(SUBNET, subnet(name, BLOCKS[name]))
            self.tell(f"create {name}")

    async def change(self) -> None:
        """Make one change that a user might make."""
        random = self._random
        there = {a.metadata.name: a for a in self._store.attachments}
        name = random.choice(NAMES)
        if name not in there:
            await self._create(name)
            return
        match random.choices(("delete", "again", "edit", "subnet", "exclude"), (5, 3, 2, 1, 2))[0]:
            case "delete":
                self.tell(f"delete {name}")
                await self._store.delete(NETWORK_ATTACHMENT, "ns1", name)
            case "again":
                self.tell(f"delete {name}")
                await self._store.delete(NETWORK_ATTACHMENT, "ns1", name)
                await asyncio.sleep(random.choice((0.0, 0.0, 0.1, 1.0)))
                await self._create(name)
            case "edit":
                await self._edit(name)
            case "subnet":
                await self._subnet(random.choice(list(BLOCKS)))
            case "exclude":
                await self._exclude(random.choice(list(BLOCKS)))

    async def _create(self, name: str) -> None:
        spec = self._spec()
        self.tell(f"create {name} {spec}")
        await self._store.create(NETWORK_ATTACHMENT, attachment(name, **spec))

    async def _edit(self, name: str) -> None:
        found = self._store.lookup(NETWORK_ATTACHMENT, "ns1", name)
        if found is None:
            return
        made = found.document()
        made["spec"] = {"node": "n1", "network": "blue", **self._spec()}
        self.tell(f"edit {name} {made['spec']}")
        await self._store.update(NETWORK_ATTACHMENT, made)

    def _spec(self) -> dict[str, Any]:
        random = self._random
        spec: dict[str, Any] = {}
        if random.random() < 0.25:
            spec["ips"] = sorted({str(random.choice(list(ip_network(block)))) for block in self._some_blocks()})
        if random.random() < 0.2:
            spec["subnets"] = self._some_subnets()
        if random.random() < 0.1:
            spec["mac"] = random.choice(MACS)
        return spec

    def _some_blocks(self) -> list[str]:
        return self._random.choices(list(BLOCKS.values()), k=self._random.choice((1, 1, 2)))

    def _some_subnets(self) -> list[str]:
        return self._random.choice((["tiny"], ["small"], ["six"], ["tiny", "six"], ["small", "six"]))

    async def _subnet(self, name: str) -> None:
        """Make a Subnet, or delete it if nobody uses it."""
        if self._store.lookup(SUBNET, "ns1", name) is None:
            self.tell(f"create {name}")
            await self._store.create(SUBNET, subnet(name, BLOCKS[name]))
        elif not any(uses(one, name) for one in self._store.attachments):
            self.tell(f"delete {name}")
            await self._store.delete(SUBNET, "ns1", name)

    async def _exclude(self, name: str) -> None:
        """Exclude an address of a Subnet, or lift all exclusions."""
        found = self._store.lookup(SUBNET, "ns1", name)
        if found is None:
            return
        made = found.document()
        ip = str(self._random.choice(list(ip_network(BLOCKS[name]))))
        made["spec"] = {"network": "blue", "cidr": BLOCKS[name]}
        if not found.document()["spec"].get("exclude"):
            made["spec"]["exclude"] = [ip]
        self.tell(f"{name} excludes {made['spec'].get('exclude')}")
        await self._store.update(SUBNET, made)

    def tell(self, what: str) -> None:
        """Let something be part of the story."""
        self.story.append(f"{sim.current().time():.3f} {what}")


def torment(processes: list[Process], people: People, random: Random) -> None:
    """Let something happen to one of the processes, or nothing."""
    victim = random.choice(processes)
    what = random.choice(("kill", "freeze", "thaw", "cut", "mend", "", "", ""))
    match what:
        case "kill":
            victim.kill()
            victim.start()
        case "freeze":
            victim.freeze()
        case "thaw":
            victim.thaw()
        case "cut":
            victim.link.cut()
        case "mend":
            victim.link.heal()
        case _:
            return
    people.tell(f"{what} {victim.name}")


def uses(one: NetworkAttachment, name: str) -> bool:
    """Whether an attachment names a Subnet of ours, or has an address of it."""
    block = ip_network(BLOCKS[name])
    return name in one.spec.subnets or any(ip_interface(text).ip in block for text in one.status.ips)


def subnets_of(store: Ledger) -> list[Subnet]:
    """Return all Subnets there are."""
    found = [stored.value() for stored in store.all(SUBNET)]
    return [one for one in found if isinstance(one, Subnet)]
