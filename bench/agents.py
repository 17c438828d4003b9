"""Agents that receive only relevant objects: how fast, how much, and how many of them.

   create to Ready    four nodes of a lab, 50 attachments a second for a minute, on the vxlan fabric; compared, at the
                      same rate, with the minimum of necessary calls; and the same attachments on OVN. Latency depends
                      on how busy the machine is: on two slow cores 50 a second is all that it can do. So the target is
                      about processor time: ours, compared with that of the switches for the same ports
   relevance          one agent with 20 Networks, where there are 20 and where there are 2,000; compared, in the same
                      run, with one that watches everything
   a thousand agents  simulated up to their switches, 10,000 attachments, one API server

All of it uses `netloom bench attachments` (netloom/load), against real processes.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench import ipam
from bench.api import resident_mb
from bench.lab import JsonRpc
from bench.table import Row
from netloom.lab import Lab
from netloom.load import running
from netloom.load.crowd import CrowdSpec, Worker, node_name, workers
from netloom.load.plan import Load, Phase
from netloom.load.records import RunResult
from netloom.load.running import Options
from netloom.load.sizes import Shape
from netloom.model.document import Document
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import LEASE, NETWORK, NETWORK_ATTACHMENT
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from tests.support.process import Program

NODES = 4
PER_SECOND = 50
MINUTE = float(os.environ.get("NETLOOM_BENCH_MINUTE", "60"))
HELD, MANY = 20, int(os.environ.get("NETLOOM_BENCH_NETWORKS", "2000"))
MEMBERS = 10
CHANGED = 200
AGENTS = int(os.environ.get("NETLOOM_BENCH_AGENTS", "1000"))
ATTACHMENTS = int(os.environ.get("NETLOOM_BENCH_ATTACHMENTS", "10000"))
PROCESSES = 2
WRITERS = 64
BRIDGE = [["name", "==", "br-vxlan"]]


STATUS = {
    **ipam.STATUS,
    "conditions": [{**one, "lastTransitionTime": "2026-01-01T00:00:00Z"} for one in ipam.STATUS["conditions"]],
}


def tables() -> Iterator[tuple[str, str, list[Row]]]:
    """Measure, and yield each table with its name and its reference."""
    yield "agents: create to Ready, a lab of 4", "plain calls", in_a_lab()
    yield "agents: data received by one", "20 Networks", relevance()
    yield "agents: many", "", many()


def in_a_lab() -> list[Row]:
    """Measure attachments to Ready on both fabrics, each in a lab with what it needs, compared with plain calls."""
    with _lab(ovn=0) as lab:
        half = _driven(lab, Fabric.VXLAN, PER_SECOND / 2, MINUTE / 3)
        half_plain = asyncio.run(_plain(lab, PER_SECOND / 2, MINUTE / 3))
        plain = asyncio.run(_plain(lab, PER_SECOND, MINUTE / 3))
        before = _used(lab)
        ours = _driven(lab, Fabric.VXLAN, PER_SECOND, MINUTE)
        busy, switches = (now - then for now, then in zip(_used(lab), before, strict=True))
    with _lab(ovn=1) as lab:
        theirs = _driven(lab, Fabric.OVN, PER_SECOND, MINUTE / 3)
    a, b, c = (one.summaries(Phase.CRUISE)["ready"] for one in (ours, theirs, half))
    p50, p99 = statistics.median(plain), statistics.quantiles(plain, n=100)[-1]
    beside = statistics.median(half_plain) * 1e3
    return [
        Row("server and agents, processor time; the switches'", busy, "s", switches, 2, more_is_better=False),
        Row(f"create to Ready, vxlan, {PER_SECOND}/s, p50", a.p50 * 1e3, "ms", p50 * 1e3),
        Row(f"create to Ready, vxlan, {PER_SECOND}/s, p99", a.p99 * 1e3, "ms", p99 * 1e3),
        Row("errors", ours.errors.total(), "", wanted=0, more_is_better=False),
        Row(f"the same at {PER_SECOND / 2:g}/s, p50", c.p50 * 1e3, "ms", beside),
        Row(f"the same at {PER_SECOND / 2:g}/s, p99", c.p99 * 1e3, "ms"),
        Row(f"create to Ready, OVN, {PER_SECOND}/s, p50", b.p50 * 1e3, "ms"),
        Row(f"create to Ready, OVN, {PER_SECOND}/s, p99", b.p99 * 1e3, "ms"),
    ]


def _used(lab: Lab) -> tuple[float, float]:
    """Return the processor time, in seconds, of a lab's server and agents, and of its switches."""
    tick = os.sysconf("SC_CLK_TCK")

    def used(name: str) -> float:
        fields = Path(f"/proc/{lab.pid(name)}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    ours = used("serve") + sum(used(f"agent-{node}") for node in lab.nodes)
    return ours, sum(used(f"{program}-{node}") for program in ("ovs-vswitchd", "ovsdb-server") for node in lab.nodes)


async def _plain(lab: Lab, per_second: float, seconds: float) -> list[float]:
    """Return how long the necessary calls for an attachment take, at the same rate and in the same lab.

    These are four consecutive writes through the API (the attachment, its lock, its addresses, its readiness; here on a
    Lease, which no controller watches), and a port on a node's switch until the switch has numbered it. There is no
    planning, no choice of an address, no flow, and no configuration of a device.
    """
    found: list[float] = []
    store = await KubeStore.open(kubeconfig.load(str(lab.kubeconfig)))
    ports = [Ports(lab.layout.switch_socket(node)) for node in lab.layout.nodes]

    async def one(number: int) -> None:
        began = asyncio.get_running_loop().time()
        metadata = {"name": f"plain-{per_second:g}-{number}", "namespace": "bench"}
        document = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": {}}
        for turn in range(4):
            document["spec"] = {"holderIdentity": f"{turn}" * 200}
            write = store.update if turn else store.create
            document = (await write(LEASE, document)).document()
        await asyncio.to_thread(ports[number % len(ports)].plug, f"pl{number}")
        found.append(asyncio.get_running_loop().time() - began)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(round(per_second * seconds)):
                group.create_task(one(number))
                await asyncio.sleep(1 / per_second)
        for line in ports:
            line.clear()
        return found
    finally:
        await store.close()


class Ports:
    """Ports of a node's switch, with OVSDB calls only."""

    def __init__(self, path: str) -> None:
        self._rpc = JsonRpc(path, "Open_vSwitch")
        self._busy = threading.Lock()

    def plug(self, name: str) -> None:
        """Add an internal device to the vxlan bridge; return when the switch has made it."""
        interface = {"name": name, "type": "internal"}
        port = {"name": name, "interfaces": ["named-uuid", "i"]}
        ports = [["ports", "insert", ["set", [["named-uuid", "p"]]]]]
        known = {"op": "wait", "table": "Interface", "where": [["name", "==", name]], "columns": ["ofport"],
                 "until": "!=", "rows": [{"ofport": ["set", []]}], "timeout": 10_000}  # fmt: skip
        with self._busy:
            self._rpc.call(
                [
                    {"op": "insert", "table": "Interface", "row": interface, "uuid-name": "i"},
                    {"op": "insert", "table": "Port", "row": port, "uuid-name": "p"},
                    {"op": "mutate", "table": "Bridge", "where": BRIDGE, "mutations": ports},
                ]
            )
            self._rpc.call([known])

    def clear(self) -> None:
        """Remove them all."""
        [found] = self._rpc.call([{"op": "select", "table": "Port", "where": [], "columns": ["_uuid", "name"]}])
        gone = [row["_uuid"] for row in found["rows"] if row["name"].startswith("pl")]
        removal = [["ports", "delete", ["set", gone]]]
        self._rpc.call([{"op": "mutate", "table": "Bridge", "where": BRIDGE, "mutations": removal}])
        self._rpc.close()


@contextlib.contextmanager
def _lab(*, ovn: Literal[0, 1]) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="netloom-bench-") as folder:
        lab = Lab.up(Path(folder) / "lab", nodes=NODES, ovn=ovn)
        try:
            yield lab
        finally:
            lab.down()


def _driven(lab: Lab, fabric: Fabric, per_second: float, seconds: float) -> RunResult:
    load = Load(
        run=f"bench-{fabric}",
        shape=Shape(count=20, top=60),
        fabric=fabric,
        alive=100,
        rate=2.0 * per_second,  # As many deletes as creates.
        cruise=seconds,
        cool_down=False,
    )
    options = Options(namespace="default", lab=lab.layout.folder)
    cluster = kubeconfig.load(str(lab.kubeconfig))
    return asyncio.run(running.attachments(cluster, load, options, lambda now: None))


def relevance() -> list[Row]:
    """Measure what an agent receives and holds, with few other Networks and with many."""
    with tempfile.TemporaryDirectory(prefix="netloom-bench-") as data, ipam.site(f"sqlite:{data}/bench.db") as here:
        return asyncio.run(_relevance(here))


class Received(NamedTuple):
    """What an agent received and holds."""

    received: float
    resident: float


async def _relevance(here: ipam.Site) -> list[Row]:
    async with ipam.opened(here) as store:
        await _fill(store, range(HELD), own=True)
        await _received(here, store, "first", HELD)  # It writes the status of its own, once; that is not measured.
        few, few_all = await _received(here, store, "few", HELD)
        await _fill(store, range(HELD, MANY), own=False)
        many, many_all = await _received(here, store, "many", MANY)
    what = f"received by an agent of {HELD} Networks, {MANY:,} in all"
    return [
        Row(what, many.received / 1e3, "kB", few.received / 1e3, 1.1, more_is_better=False),
        Row("its memory", many.resident / 1e6, "MB", few.resident / 1e6, 1.1, more_is_better=False),
        Row("received by one that watches everything", many_all.received / 1e3, "kB", few_all.received / 1e3),
        Row("its memory", many_all.resident / 1e6, "MB", few_all.resident / 1e6),
        Row("bytes: everything, and relevant objects only", many_all.received / 1e3, "kB", many.received / 1e3),
    ]


async def _fill(store: Store, numbers: range, *, own: bool) -> None:
    """Create Networks with attachments on other nodes and, for the agent's own Networks, one on its node."""
    networks = [ipam.network(f"n{number:04}") | {} for number in numbers]
    for one in networks:
        one["spec"] = {"fabric": "vxlan"}
    await _each(store.create(NETWORK, one) for one in networks)
    members = [(f"n{number:04}", member) for number in numbers for member in range(0 if own else 1, MEMBERS + 1)]
    await _each(_attach(store, *member) for member in members)


async def _attach(store: Store, network: str, member: int) -> None:
    node = node_name(member + 1)
    document = ipam.attachment(f"{network}-{member}", network)
    document["spec"]["node"] = node
    made = (await store.create(NETWORK_ATTACHMENT, document)).document()
    made["status"] = {**STATUS, "hostIP": f"198.18.0.{member + 1}", "ifcName": "nl020000000009"}
    await store.update(NETWORK_ATTACHMENT, made, subresource="status")


async def _each(work: Any) -> None:  # noqa: ANN401  # any coroutines
    left = iter(work)

    async def some() -> None:
        for one in left:
            await one

    await asyncio.gather(*(some() for _ in range(WRITERS)))


async def _received(here: ipam.Site, store: Store, run: str, count: int) -> tuple[Received, Received]:
    """Start both agents, change attachments everywhere, and return what each received."""
    who = CrowdSpec(kubeconfig=str(here.kubeconfig), run=f"bench-{run}", first=1, count=1)
    async with workers(who, 1) as [worker], _everything(here) as everything:
        await _until_synced(worker, everything)
        for number in range(CHANGED):  # The same in the agent's own Networks; and as often for each of the others.
            await _change(store, f"n{number % HELD:04}", 1 + number % MEMBERS, number)
        await _each(_change(store, f"n{number:04}", 1, number) for number in range(HELD, count))
        revision = await store.revision()
        while (await _ask(everything))["revision"] < revision:  # noqa: ASYNC110  # another process is asked
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        mine, theirs = await worker.report(), await _ask(everything)
    return Received(mine.received, mine.resident), Received(theirs["received"], theirs["resident"])


async def _change(store: Store, network: str, member: int, number: int) -> None:
    document = (await store.get(NETWORK_ATTACHMENT, "default", f"{network}-{member}")).document()
    document["metadata"].setdefault("labels", {})["turn"] = str(number)
    await store.update(NETWORK_ATTACHMENT, document)


@contextlib.asynccontextmanager
async def _everything(here: ipam.Site) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    argv = [sys.executable, "-m", "bench.everything", str(here.kubeconfig)]
    child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    try:
        yield child
    finally:
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()


async def _ask(child: asyncio.subprocess.Process) -> Document:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"?\n")
    await child.stdin.drain()
    said: Document = json.loads(await child.stdout.readline())
    return said


async def _until_synced(worker: Worker, everything: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(120):
        while True:
            report, other = await worker.report(), await _ask(everything)
            knows = report.knows.get(node_name(1), {})
            if report.synced and other["synced"] and len(knows) == HELD:
                assert all(one.count == MEMBERS for one in knows.values()), knows
                return
            await asyncio.sleep(0.2)


def many() -> list[Row]:
    """Measure a thousand agents on one API server."""
    with (
        tempfile.TemporaryDirectory(prefix="netloom-bench-") as data,
        ipam.site(f"sqlite:{data}/bench.db") as here,
        ipam.controller(here) as (controller, _),
    ):
        return _many(here, controller)


def _many(here: ipam.Site, controller: Program) -> list[Row]:
    before = _busy(here.api.pid)
    load = Load(
        run="bench-many",
        shape=_shape(ATTACHMENTS),
        fabric=Fabric.VXLAN,
        alive=ATTACHMENTS,
        rate=40.0,
        edge_rate=100.0,
        cruise=30.0,
        cool_down=False,
    )
    found: dict[str, float] = {}

    def look(now: object) -> None:
        found["memory"] = max(found.get("memory", 0.0), resident_mb(here.api.pid))
        found["controller"] = max(found.get("controller", 0.0), resident_mb(controller.pid))

    options = Options(
        namespace="default",
        simulated=AGENTS,
        processes=PROCESSES,
        kubeconfig=str(here.kubeconfig),
        pending=300.0,
    )
    outcome = asyncio.run(running.attachments(kubeconfig.load(str(here.kubeconfig)), load, options, look))
    busy = _busy(here.api.pid) - before
    measured = outcome.summaries(Phase.CRUISE)
    informed, create = measured.get("informed"), measured.get("create")
    _, peers = running.totals(load)
    return [
        Row(
            f"{AGENTS:,} agents, {ATTACHMENTS:,} attachments: not up to date",
            outcome.errors.total(),
            "",
            wanted=0,
            more_is_better=False,
        ),
        Row(
            f"address to last agent, {peers:.0f} peers each, p50", _ms(None if informed is None else informed.p50), "ms"
        ),
        Row(
            "address to last agent, p99; a write's own answer",
            _ms(None if informed is None else informed.p99),
            "ms",
            _ms(None if create is None else create.p99),
            10,
            more_is_better=False,
        ),
        Row("events received by agents", outcome.notes.get("events received by agents", 0.0), ""),
        Row("API server, memory at most", found.get("memory", 0.0), "MB"),
        Row("API server, processor time", busy, "s"),
        Row("controller, memory at most", found.get("controller", 0.0), "MB"),
        Row("each agent, memory", outcome.notes.get("agents' memory, MB", 0.0) / AGENTS * 1e3, "kB"),
        Row("each agent, descriptors", outcome.notes.get("agents' descriptors", 0.0) / AGENTS, ""),
    ]


def _shape(attachments: int) -> Shape:
    """Return Networks with about so many attachments in total: the largest with a fortieth of them."""
    top = max(2, attachments // 40)
    count = 1
    while running.totals(Load(run="x", shape=Shape(count=count, top=top, exponent=0.5)))[0] < attachments:
        count += 1
    return Shape(count=count, top=top, exponent=0.5)


def _ms(seconds: float | None) -> float:
    return float("nan") if seconds is None else seconds * 1e3


def _busy(pid: int) -> float:
    """Return a process's processor time, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    for name, beside, rows in tables():
        print(f"\n{name:52} {'netloom':>14} {beside:>14}")
        print(*rows, sep="\n")
