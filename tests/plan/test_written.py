"""Golden cases come and go in a real northbound database: whatever changes can be written, and once is enough.

Routers are the hard part: their rows refer to each other across units, some strongly and some weakly, and OVSDB refuses
to part them in the wrong order.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from netloom.drivers.northbound.driver import DATABASE, TABLES, Northbound
from netloom.ovsdb.io import OvsdbClient
from netloom.plan.ovn.planner import Planner
from tests.plan.planning import resources, unit_of
from tests.support.ovn import OVN_SHARE, Database, run

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "resources.yaml").exists())

pytestmark = pytest.mark.ovn


@pytest.mark.parametrize("case", CASES)
def test_whatever_comes_and_goes_is_written_once(case: str, tmp_path: Path) -> None:
    database = Database(tmp_path, "nb", OVN_SHARE / "ovn-nb.ovsschema")
    try:
        database.start()
        asyncio.run(asyncio.wait_for(churn(database, (GOLDEN / case / "resources.yaml").read_text()), 120))
        left = run("ovsdb-client", "--timeout=120", "--format=csv", "dump", database.remote, DATABASE)
        assert "netloom-owner" not in left
    finally:
        database.stop()


async def churn(database: Database, specs: str) -> None:
    """Put and remove the case's resources in a random order, written at random moments; in the end nothing is left."""
    north = Northbound(
        lambda changed: OvsdbClient([database.remote], DATABASE, tables=TABLES, random=Random(1), changed=changed),
        "netloom",
        random=Random(2),
    )
    client = north.client
    assert isinstance(client, OvsdbClient)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.run())
        await asyncio.wait_for(client.synced.wait(), 120)
        random, planner = Random(3), Planner()
        for _ in range(3):
            steps = [(resource, random.random() < 0.75) for resource in resources(specs)]
            random.shuffle(steps)
            for resource, stays in steps:
                if stays:
                    planner.put(resource)
                else:
                    planner.remove(unit_of(resource))
                if random.random() < 0.5:
                    await north.apply(planner.desired, planner.flush())
            await settled(north, planner)
        for resource in resources(specs):
            planner.remove(unit_of(resource))
        await settled(north, planner)
        task.cancel()


async def settled(north: Northbound, planner: Planner) -> None:
    await north.apply(planner.desired, planner.flush())
    assert north.problems == {}
    assert (await north.apply(planner.desired)).written == 0
