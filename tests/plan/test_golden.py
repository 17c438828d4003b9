"""Whole cases: tests/golden/CASE has the objects, and the rows that must be planned from them.

`NETLOOM_UPDATE_GOLDEN=1` writes the rows again: read the difference before you keep it. A resource's `status` is
given where others would have written it: addresses of attachments, VNIs, validated Subnets.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from netloom.plan.ovn.planner import Planner
from netloom.plan.rows import Ref
from tests.plan.northd import misread, write
from tests.plan.planning import Database, offences, planned, rendered, resources, unit_of
from tests.support.ovn import Central, ovn_central

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "resources.yaml").exists())


def objects(case: str) -> str:
    return (GOLDEN / case / "resources.yaml").read_text()


@pytest.mark.parametrize("case", CASES)
def test_objects_are_planned_as_these_rows(case: str) -> None:
    found = rendered(planned(objects(case)).desired)
    path = GOLDEN / case / "rows.json"
    if os.environ.get("NETLOOM_UPDATE_GOLDEN"):
        path.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_rows_are_what_the_real_schema_takes(case: str) -> None:
    assert list(offences(planned(objects(case)).desired)) == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_order_grouping_and_repetition_change_nothing(case: str, seed: int) -> None:
    random, wanted = Random(seed), resources(objects(case))
    planner, database = Planner(), Database()
    for _ in range(2):  # All come, some go, all come again.
        random.shuffle(wanted)
        for resource in wanted:
            planner.put(resource)
            if random.random() < 0.7:
                database.apply(planner.desired, planner.flush())
                database.insist(planner.desired)
        for resource in random.sample(wanted, len(wanted) // 2):
            planner.remove(unit_of(resource))
            if random.random() < 0.7:
                database.apply(planner.desired, planner.flush())
                database.insist(planner.desired)
    for resource in wanted:
        planner.put(resource)
    database.apply(planner.desired, planner.flush())
    database.insist(planner.desired)
    assert rendered(planner.desired) == rendered(planned(objects(case)).desired)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_of_what_is_removed(case: str) -> None:
    planner = planned(objects(case))
    for resource in resources(objects(case)):
        planner.remove(unit_of(resource))
    planner.flush()
    assert rendered(planner.desired) == {"rows": {}, "problems": {}}
    assert not planner.flush()
    for part in (planner.world, planner.world._tracker, planner.desired, planner.world._matches):
        held = {name: len(value) for name, value in vars(part).items() if hasattr(value, "__len__")}
        assert not any(size for name, size in held.items() if name not in ("_pool", "_last", "_followed")), held


@pytest.fixture(scope="module")
def central(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Central]:
    with ovn_central(tmp_path_factory.mktemp("ovn")) as central:
        yield central


@pytest.mark.ovn
@pytest.mark.parametrize("case", CASES)
def test_ovn_takes_the_rows_and_can_read_the_flows_that_come_of_them(case: str, central: Central) -> None:
    log = central.folder / "northd.log"
    before = len(log.read_text())
    wanted = planned(objects(case)).desired
    write(central, wanted)
    said = [line for line in log.read_text()[before:].splitlines() if "WARN" in line or "ERR" in line]
    # There are no nodes here; on a slow machine ovn-northd also counts the messages about that which it dropped.
    assert [line for line in said if "Unknown chassis" not in line and "excessive rate" not in line] == []
    assert misread(central, wanted) == ""


@pytest.mark.ovn
def test_flows_that_ovn_cannot_read_are_noticed(central: Central) -> None:
    wanted = planned(objects("dhcp")).desired
    options = wanted.rows[Ref("DHCP_Options", "default/blue-a")].columns["options"]
    assert isinstance(options, dict)
    options["wpad"] = "unquoted text"
    write(central, wanted)
    assert "parsing actions failed" in misread(central, wanted)
