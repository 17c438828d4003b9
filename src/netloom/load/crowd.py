"""Many simulated agents in one process, which reads commands on standard input and answers on standard output.

   {"kubeconfig": …, "run": …, "first": 1, "count": 500}      the agents to run, once
   report                                                     return what they know, and their costs
   (the end of the input)                                     stop

So a driver may use several such processes if one core is not enough, and none of them outlives it: when the driver ends
in any way, the input ends.
"""

import asyncio
import contextlib
import gc
import resource
import sys
from asyncio import sslproto
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from netloom.errors import AlreadyExists, Internal
from netloom.load import objects
from netloom.load.agents import Knowledge, Receipts, SimulatedAgent
from netloom.model.registry import NODE
from netloom.run import process
from netloom.store.kube import kubeconfig
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.store import KubeStore

if TYPE_CHECKING:
    from netloom.store.http.connect import Meter

FIRST_ADDRESS = int(IPv4Address("198.18.0.0"))
"""The first address of their underlay: a range for benchmarks, which routers do not forward."""
STARTING = 50
"""How many agents to start in a twentieth of a second: TLS handshakes are expensive for the server."""
TLS_BUFFER = 32 << 10
"""asyncio gives each connection a read buffer of 256 KiB, and thousands of connections read nothing."""
CONNECTIONS = 2
"""How many concurrent requests an agent may have, not counting watches."""
LONGEST = 1 << 26


class CrowdSpec(Struct, frozen=True, kw_only=True):
    """The agents of a process, and their API."""

    kubeconfig: str = ""
    context: str = ""
    run: str
    first: int
    count: int
    seed: int = 0


class Report(Struct, frozen=True, kw_only=True):
    """What some agents know, and their costs."""

    agents: int
    synced: bool
    times: int
    """How often an agent received an attachment of another node."""
    informed: dict[str, float]
    """When the last of them received an attachment, by its uid."""
    knows: dict[str, dict[str, Knowledge]]
    """What each agent knows of each of its Networks."""
    written: int
    received: int
    """Bytes, of all agents."""
    resident: int
    cpu: float
    connections: int


def node_name(number: int) -> str:
    """Return the name of a simulated node."""
    return f"sim-{number:04}"


def names(count: int) -> list[str]:
    """Return the names of simulated nodes."""
    return [node_name(number) for number in range(1, count + 1)]


class Crowd:
    """The agents of one process."""

    def __init__(self, cluster: Cluster, who: CrowdSpec) -> None:
        self._cluster = cluster
        self._who = who
        self._receipts = Receipts()
        self._agents: list[SimulatedAgent] = []
        self._stores: list[KubeStore] = []
        self._meters: list[Meter] = []

    async def run(self) -> None:
        """Run all of them until cancelled."""
        sslproto.SSLProtocol.max_size = TLS_BUFFER  # asyncio has no parameter for it.
        tls = self._cluster.tls() if self._cluster.server.startswith("https:") else None
        numbers = range(self._who.first, self._who.first + self._who.count)
        try:
            async with asyncio.TaskGroup() as group:
                for at, number in enumerate(numbers):
                    client = self._cluster.client(tls=tls, connections=CONNECTIONS)
                    store = KubeStore(client, manager="netloom-bench")
                    self._meters.append(client.meter)
                    self._stores.append(store)
                    group.create_task(self._agent(store, number))
                    if at % STARTING == STARTING - 1:
                        await asyncio.sleep(0.05)
        finally:
            await asyncio.gather(*(store.close() for store in self._stores))

    async def _agent(self, store: KubeStore, number: int) -> None:
        name, address = node_name(number), str(IPv4Address(FIRST_ADDRESS + number))
        with contextlib.suppress(AlreadyExists):
            await store.create(NODE, objects.document(NODE, self._who.run, "", name, {"underlayIP": address}))
        random = Random(f"{self._who.seed} {name}")  # noqa: S311  # only to spread attempts
        agent = SimulatedAgent(store, name, address, receipts=self._receipts, random=random)
        self._agents.append(agent)
        await agent.run()

    def report(self) -> Report:
        """Return the report of all agents."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Report(
            agents=len(self._agents),
            synced=len(self._agents) == self._who.count and all(agent.synced for agent in self._agents),
            times=self._receipts.times,
            informed=self._receipts.last,
            knows={agent.node: agent.knows() for agent in self._agents},
            written=sum(agent.written for agent in self._agents),
            received=sum(meter.received for meter in self._meters),
            resident=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
            cpu=used.ru_utime + used.ru_stime,
            connections=len(list(Path("/proc/self/fd").iterdir())),
        )


async def _main() -> None:
    reader = asyncio.StreamReader(limit=LONGEST)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    # Garbage collection over hundreds of agents would stop all of them at once, which separate machines do not do.
    gc.disable()
    who = msgspec.json.decode(await reader.readline(), type=CrowdSpec)
    crowd = Crowd(kubeconfig.load(who.kubeconfig or None, context=who.context or None), who)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(crowd.run())
        while await reader.readline():
            sys.stdout.buffer.write(msgspec.json.encode(crowd.report()) + b"\n")
            sys.stdout.flush()
        running.cancel()


class Worker:
    """A process with simulated agents, as the driver sees it."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._asking = asyncio.Lock()

    async def report(self) -> Report:
        """Request a report."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        async with self._asking:
            self._child.stdin.write(b"report\n")
            await self._child.stdin.drain()
            line = await self._child.stdout.readline()
        if not line:
            raise Internal("a process with simulated agents exited: see its output above")
        return msgspec.json.decode(line, type=Report)

    async def close(self) -> None:
        """End the process."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()


@contextlib.asynccontextmanager
async def workers(whole: CrowdSpec, processes: int) -> AsyncIterator[list[Worker]]:
    """Yield the processes of all agents, and end them afterwards."""
    found: list[Worker] = []
    first = whole.first
    try:
        for number in range(processes):
            share = whole.count // processes + (number < whole.count % processes)
            who = msgspec.structs.replace(whole, first=first, count=share)
            first += share
            found.append(await _started(who))
        yield found
    finally:
        await asyncio.gather(*(one.close() for one in found))


async def _started(who: CrowdSpec) -> Worker:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "netloom.load.crowd",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST,
        start_new_session=True,  # Ctrl-C is for the driver, which then cleans up while they still run.
    )
    assert child.stdin is not None
    child.stdin.write(msgspec.json.encode(who) + b"\n")
    await child.stdin.drain()
    return Worker(child)


if __name__ == "__main__":
    sys.exit(process.run(_main()))
