"""The real ovn-northd takes the rows of every golden case, and has nothing to say against them.

Rows are written with ovsdb-client, so that this is about the plan and not about what else writes it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.rows import Ref
from tests.plan.planning import planned
from tests.support.ovn import Central, ovn_central, run

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "resources.yaml").exists())

pytestmark = pytest.mark.ovn


@pytest.fixture(scope="module")
def central(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Central]:
    with ovn_central(tmp_path_factory.mktemp("northd")) as made:
        for number, name in enumerate(("n1", "n2", "n3"), start=1):
            made.sbctl("chassis-add", name, "geneve", f"172.31.0.{number}")
        yield made


@pytest.mark.parametrize("case", CASES)
def test_northd_makes_flows_of_the_rows_without_a_complaint(central: Central, case: str) -> None:
    log = central.folder / "northd.log"
    before = log.read_text()
    wanted = planned((GOLDEN / case / "resources.yaml").read_text()).desired
    transact(central, [insert(wanted, ref) for ref in wanted.rows])
    central.nbctl("--wait=sb", "sync")
    routers = {ref.key for ref in wanted.rows if ref.table in ("Logical_Router", "Logical_Switch")}
    names = central.sbctl("--bare", "--columns=external_ids", "list", "Datapath_Binding")
    assert all(f"name={name} " in f"{names} ".replace("\n", " ") for name in routers)
    # A non-root row that nobody refers to any more is gone only when the transaction ends, too late for its own
    # references to be: what it refers to can be deleted in the same transaction only if it is deleted itself.
    transact(central, [{"op": "delete", "table": table, "where": []} for table in {ref.table for ref in wanted.rows}])
    central.nbctl("--wait=sb", "sync")
    assert central.sbctl("--bare", "--columns=_uuid", "list", "Datapath_Binding").strip() == ""
    assert log.read_text() == before


def transact(central: Central, operations: list[dict[str, Any]]) -> None:
    text = json.dumps(["OVN_Northbound", *operations])
    results = json.loads(run("ovsdb-client", "--timeout=120", "transact", central.northbound.remote, text))
    assert [one for one in results if one and "error" in one] == []


def insert(wanted: DesiredRows, ref: Ref) -> dict[str, Any]:
    columns = {name: wire(value) for name, value in wanted.rows[ref].columns.items()}
    for column, places in wanted.members(ref).items():
        entries = sorted(places.items(), key=repr)
        if any(place != value for place, value in entries):
            columns[column] = ["map", [[place, wire(value)] for place, value in entries]]
        else:
            columns[column] = ["set", [wire(value) for _, value in entries]]
    return {"op": "insert", "table": ref.table, "row": columns, "uuid-name": symbol(ref)}


def wire(value: object) -> Any:
    if isinstance(value, Ref):
        return ["named-uuid", symbol(value)]
    if value is None:
        return ["set", []]
    if isinstance(value, frozenset):
        return ["set", [wire(one) for one in sorted(value, key=repr)]]
    if isinstance(value, Mapping):
        return ["map", [[key, wire(one)] for key, one in sorted(value.items())]]
    return value


def symbol(ref: Ref) -> str:
    return "row" + "".join(f"{ord(letter):x}_" for letter in f"{ref.table}/{ref.key}")
