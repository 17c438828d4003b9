"""One run from its settings to its outcome: look up the nodes, make the plan, run the driver."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

from msgspec import Struct

from netloom.errors import TimedOut
from netloom.lab import Lab
from netloom.load import informing, objects, plan
from netloom.load.crowd import CrowdSpec, Worker, names, workers
from netloom.load.driver import Driver, Now
from netloom.load.informing import ASK_SECONDS
from netloom.load.plan import Load, Phase
from netloom.load.records import RunResult
from netloom.load.sizes import average_peers, sizes
from netloom.load.testers import PREFIX, LabTester, remove_places
from netloom.model.kinds.networks import Fabric
from netloom.store.base import Store
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.store import KubeStore

Show = Callable[[Now], None]
SHOWN = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class Options(Struct, frozen=True, kw_only=True):
    """The options of a run, besides the load."""

    namespace: str
    node: str = ""
    labels: str = ""
    lab: Path | None = None
    pings: int = 1
    pending: float = 60.0
    stop_on_error: bool = False
    simulated: int = 0
    """How many agents to simulate; 0: use the existing ones."""
    processes: int = 1
    """The number of processes for them."""
    kubeconfig: str = ""
    context: str = ""


def estimate(load: Load) -> list[list[str]]:
    """Return the objects of a run, as a table."""
    planned = plan.networks(load)
    rows = [["NETWORK", "SIZE", "SUBNETS"]]
    for one in planned:
        blocks = ", ".join(subnet.cidr for part in one.parts for subnet in part.subnets)
        rows.append([one.name, str(sum(part.size for part in one.parts)), blocks])
    return rows


def totals(load: Load) -> tuple[int, float]:
    """Return the number of attachments, and the average number of peers of each."""
    found = sizes(load.shape)
    return sum(found), average_peers(found)


async def attachments(cluster: Cluster, load: Load, options: Options, show: Show) -> RunResult:
    """Run a load against an API server."""
    async with _opened(cluster) as store:
        try:
            if not options.simulated:
                nodes = await objects.ready_nodes(store, options.labels, only=options.node)
                return await _driven(_driver(store, load, options, nodes), show)
            who = CrowdSpec(
                kubeconfig=options.kubeconfig,
                context=options.context,
                run=load.run,
                first=1,
                count=options.simulated,
                seed=load.seed,
            )
            async with workers(who, options.processes) as crowds:
                return await _simulated(_driver(store, load, options, names(options.simulated)), crowds, options, show)
        finally:
            await objects.protected(objects.clean(store, load.run))


def _driver(store: Store, load: Load, options: Options, nodes: list[str]) -> Driver:
    planned = plan.networks(load)
    slots = plan.slots(load, planned, nodes)
    return Driver(
        store,
        load,
        namespace=options.namespace,
        networks=planned,
        slots=slots,
        steps=list(plan.steps(load, len(slots))),
        tester=LabTester(Lab(options.lab), load.run, pings=options.pings) if options.lab and load.test_share else None,
        pending=options.pending,
        stop_on_error=options.stop_on_error,
    )


async def _simulated(driver: Driver, crowds: Sequence[Worker], options: Options, show: Show) -> RunResult:
    """Run a load with simulated agents: before each phase all of them must know their relevant attachments."""
    driver.now.phase = "starting agents"
    show(driver.now)
    await _started(crowds, options.simulated, options.pending)

    async def informed(phase: Phase) -> None:
        driver.now.phase = f"waiting for the agents before {phase}"
        if driver.fabric is not Fabric.VXLAN:
            return  # They receive only their own.
        try:
            wanted = informing.expected(options.namespace, driver.alive)
            informing.note(driver.outcome, await informing.wait_until_informed(crowds, wanted, seconds=options.pending))
        except TimedOut as error:
            driver.outcome.broke("agents not up to date", error.message)

    outcome = await _driven(driver, show, informed)
    informing.note(outcome, await asyncio.gather(*(crowd.report() for crowd in crowds)))
    return outcome


async def _started(crowds: Sequence[Worker], count: int, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                reports = await asyncio.gather(*(crowd.report() for crowd in crowds))
                if all(report.synced for report in reports):
                    return
                await asyncio.sleep(ASK_SECONDS)
    except TimeoutError:
        raise TimedOut(f"not all of {count} agents were running within {seconds:g} s") from None


async def _driven(
    driver: Driver, show: Show, before_phase: Callable[[Phase], Awaitable[None]] | None = None
) -> RunResult:
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show(driver.now, show))
        try:
            return await driver.run(before_phase=before_phase)
        finally:
            showing.cancel()
            show(driver.now)


async def clean(cluster: Cluster, run: str, lab: Path | None) -> int:
    """Remove what a run left behind; return the number of removed objects."""
    async with _opened(cluster) as store:
        count = await objects.clean(store, run)
    return count + (remove_places(Lab(lab), f"{PREFIX}{run}-") if lab is not None else 0)


def new_run() -> str:
    """Return a unique name for a run."""
    return f"b{SystemRandom().getrandbits(24):06x}"


async def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run something that SIGINT or SIGTERM cancels, so that it cleans up; the second signal ends the process."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, interrupt)
    return await work


@contextlib.asynccontextmanager
async def _opened(cluster: Cluster) -> AsyncIterator[KubeStore]:
    store = await KubeStore.open(cluster, manager="netloom-bench")
    try:
        yield store
    finally:
        await store.close()


async def _show(now: Now, show: Show) -> None:
    while True:
        show(now)
        await asyncio.sleep(SHOWN)
