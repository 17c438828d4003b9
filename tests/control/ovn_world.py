"""A simulated site with OVN: a store and two databases in memory, and the program's own controllers on them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from netloom.control.runtime.election import Election
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.memory.serving import Pipe, dial
from netloom.plan.node.grants import ALL_PROVIDERS
from netloom.plan.ovn.planner import Planner
from netloom.plan.rows import Ref
from netloom.run.controllers import ControlPlane, Options
from netloom.run.ovn import Ovn
from netloom.sim import loop as sim
from netloom.store.base import Store, Stored
from tests.control.helpers import assemble, document, memory, network, subnet

NB, SB = "memory:nb", "memory:sb"
SHARE = Path("/usr/share/ovn")


def schema(name: str) -> Document:
    found: Document = json.loads((SHARE / f"ovn-{name}.ovsschema").read_text())
    return found


class Site:
    """A store, OVN's databases, and controllers that come and go."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or memory()
        self.random = Random(sim.current().random.random())
        self.nb = Database(schema("nb"), self.random)
        self.sb = Database(schema("sb"), self.random)
        self.servers = {NB: Server([self.nb]), SB: Server([self.sb])}
        self.pipes: list[Pipe] = []
        self.manager: ControlPlane | None = None

    def assemble(self, election: Election | None = None, **told: Any) -> ControlPlane:
        connect = dial(self.servers, self.pipes)
        ovn = Ovn(nb=(NB,), sb=(SB,), dial=connect)
        options = Options(quarantine=0.0, ovn=ovn, **{"providers": ALL_PROVIDERS, **told})
        self.manager = assemble(self.store, random=self.random, parts=[""], options=options, election=election)
        return self.manager

    @asynccontextmanager
    async def running(self, **told: Any) -> AsyncIterator[ControlPlane]:
        manager = self.assemble(**told)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(manager.run())
            await self.settle()
            try:
                yield manager
            finally:
                task.cancel()

    async def settle(self, seconds: float = 5.0) -> None:
        """Let things happen until they have."""
        await asyncio.sleep(seconds)

    @contextmanager
    def away(self, name: str = NB) -> Iterator[None]:
        """Have a database not answer."""
        server = self.servers.pop(name)
        self.cut()
        try:
            yield
        finally:
            self.servers[name] = server

    def cut(self) -> None:
        """Break all connections."""
        pipes, self.pipes[:] = list(self.pipes), []
        for pipe in pipes:
            pipe.cut()

    # What is wanted.

    async def put(self, kind: str | Kind, name: str, spec: Document, namespace: str = "ns1", **metadata: Any) -> Stored:
        known = KINDS.named(kind) if isinstance(kind, str) else kind
        return await self.store.create(known, document(known, name, spec, namespace, **metadata))

    async def put_blue(self, attachments: int = 2) -> None:
        """Make a Network with a Subnet and attachments a0, a1, …, on node n1."""
        await self.store.create(NETWORK, network("blue"))
        await self.store.create(SUBNET, subnet("blue-v4", "10.0.0.0/24"))
        for i in range(attachments):
            await self.attach(f"a{i}")

    async def attach(self, name: str, **spec: Any) -> Stored:
        labels = spec.pop("labels", {})
        whole = {"node": "n1", "network": "blue", **spec}
        return await self.store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, whole, labels=labels))

    async def edit(self, kind: str, name: str, namespace: str = "ns1", **spec: Any) -> None:
        known = KINDS.named(kind)
        found = (await self.store.get(known, namespace, name)).document()
        found["spec"].update(spec)
        await self.store.update(known, found)

    async def delete(self, kind: str, name: str, namespace: str = "ns1") -> None:
        await self.store.delete(KINDS.named(kind), namespace, name)

    async def status(self, kind: str, name: str, namespace: str = "ns1") -> Document:
        found = (await self.store.get(KINDS.named(kind), namespace, name)).document()
        status: Document = found.get("status", {})
        return status

    async def condition(self, kind: str, name: str, of: str = "Ready") -> tuple[str, str]:
        for one in (await self.status(kind, name)).get("conditions", ()):
            if one["type"] == of:
                return one["status"], one["reason"]
        return "", ""

    async def reasons(self, about: str) -> set[str]:
        events = (await self.store.list(KINDS.named("event"))).items
        return {e["reason"] for item in events if (e := item.document())["involvedObject"]["name"] == about}

    # What is there.

    def transact(self, *operations: Document, database: Database | None = None) -> list[Any]:
        """Do something in a database as somebody else would."""
        results = (database or self.nb).transact(list(operations)).results
        assert not any("error" in one for one in results), results
        return results

    def rows(self, table: str, database: Database | None = None) -> list[Document]:
        found = self.transact({"op": "select", "table": table, "where": []}, database=database)
        listed: list[Document] = found[0]["rows"]
        return listed

    def ours(self) -> set[Ref]:
        """Return what of ours is in the northbound."""
        found = set()
        for table, kind in self.nb.schema.tables.items():
            if "external_ids" in kind.columns:
                marks = [dict(row["external_ids"][1]) for row in self.rows(table)]
                found |= {Ref(table, one["netloom-key"]) for one in marks if one.get("netloom-owner") == "netloom"}
        return found

    async def planned(self) -> Planner:
        """Return the plan of what the store has, made from scratch."""
        planner = Planner()
        for kind in KINDS:
            for item in (await self.store.list(kind)).items:
                planner.put(item.value())
        planner.flush()
        return planner
