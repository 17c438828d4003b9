"""Flows on a real Open vSwitch: a node with 5,000 remote interfaces, after a restart of its switch.

Ours is what the agent does: the planned flows, the driver that compares and writes, one connection. The reference,
measured alternately and on the same switch, is `ovs-ofctl --bundle add-flows` with the same flows in a file. Both times
begin when ovs-vswitchd is started, so its own start and detecting it are included in both. Then single changes: one
more remote interface and its number of bundles, compared with one ovs-ofctl process for each.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from bench.table import Row
from netloom.drivers.vxlan.driver import FabricFlows
from netloom.openflow.flows import Flow
from netloom.openflow.io import Connection
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, METERS, LocalPort, Remote, VxlanPlan
from tests.openflow.real import Real, connection, real_switch, until

REMOTES, NETWORKS, NODES = 5_000, 20, 100
VTEP = 1000
TURNS = 3
CHANGES = 200


def rows() -> list[Row]:
    """Measure and return the table."""
    with real_switch() as switch:
        return asyncio.run(_measure(switch))


async def _measure(switch: Real) -> list[Row]:
    plan = VxlanPlan()
    plan.vtep = VTEP
    for number in range(NETWORKS):
        plan.put_local(_local(number))
    for number in range(REMOTES):
        plan.put_remote(_remote(number), rank=number)
    start = time.perf_counter()
    plan.flush()
    planned = time.perf_counter() - start
    flows = len(plan.claims.flows)
    ours, theirs = [], []
    async with connection(switch.socket) as made:
        fabric = FabricFlows(made, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=METERS)
        for _ in range(TURNS):  # In turns, and the best of each: what else this machine does hits both.
            ours.append(await _restart(switch, made, fabric, plan))
            before = made.generation
            theirs.append(_restart_theirs(switch, plan.claims.flows.values()))
            await until(partial(_is_connected, made, before))
        await fabric.compare(plan.claims)
        single = await _changes(switch, made, fabric, plan)
    best, beside = min(ours), min(theirs)
    return [
        Row(f"{REMOTES:,} remotes ({flows:,} flows) after a restart", best, "s", beside, 1.5, more_is_better=False),
        Row("planning those flows, once", planned, "s"),
        *single,
    ]


def _is_connected(made: Connection, before: int) -> bool:
    return made.generation > before and made.connected.is_set()


async def _restart(switch: Real, made: Connection, fabric: FabricFlows, plan: VxlanPlan) -> float:
    await asyncio.to_thread(switch.kill)
    await until(lambda: not made.connected.is_set())
    start = time.perf_counter()
    switch.node.start_vswitchd()
    await made.connected.wait()
    await fabric.compare(plan.claims)
    took = time.perf_counter() - start
    assert {flow.key: flow for flow in await made.flows(COOKIE, COOKIE_MASK)} == plan.claims.flows
    return took


def _restart_theirs(switch: Real, flows: Iterable[Flow]) -> float:
    with tempfile.TemporaryDirectory(prefix="netloom-bench-") as folder:
        file = Path(folder) / "flows"
        file.write_text("".join(f"{flow}\n" for flow in flows))
        switch.kill()
        start = time.perf_counter()
        switch.start()
        switch.ofctl("add-flows", file, "--bundle")
        return time.perf_counter() - start


async def _changes(switch: Real, made: Connection, fabric: FabricFlows, plan: VxlanPlan) -> list[Row]:
    before = made.counters.bundles
    ours, theirs = [], []
    for number in range(REMOTES, REMOTES + CHANGES):
        start = time.perf_counter()
        plan.put_remote(_remote(number), rank=number)
        delta = plan.flush()
        await fabric.apply(delta)
        ours.append((time.perf_counter() - start) * 1000)
        if number % 10 == 0:
            theirs.append(_one_of_theirs(switch, delta.puts))
    bundles = (made.counters.bundles - before) / CHANGES
    a, b = statistics.median(ours), statistics.median(theirs)
    return [
        Row("one more remote: bundles", bundles, "", wanted=1.0, more_is_better=False),
        Row("one more remote, from the resource to the switch", a, "ms", b),
    ]


def _one_of_theirs(switch: Real, flows: Iterable[Flow]) -> float:
    with tempfile.NamedTemporaryFile("w", prefix="netloom-bench-") as file:
        file.write("".join(f"{flow}\n" for flow in flows))
        file.flush()
        start = time.perf_counter()
        switch.ofctl("add-flows", file.name, "--bundle")
        return (time.perf_counter() - start) * 1000


def _local(number: int) -> LocalPort:
    return LocalPort(
        uid=f"local-{number}", namespace="default", name=f"local-{number}", ofport=number + 1, vni=4096 + number,
        mac=f"02:01:00:00:00:{number:02x}", ips=(f"10.9.{number}.1", f"fd00:9:{number:x}::1"),
    )  # fmt: skip


def _remote(number: int) -> Remote:
    high, low = divmod(number, 250)
    node = number % NODES
    return Remote(
        uid=f"remote-{number}", namespace="default", name=f"remote-{number}", vni=4096 + number % NETWORKS,
        mac=f"02:02:00:00:{high:02x}:{low:02x}", ips=(f"10.10.{high}.{low + 1}", f"fd00:10:{high:x}::{low + 1:x}"),
        host_ip=f"192.0.2.{node + 1}",
    )  # fmt: skip
