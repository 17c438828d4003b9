"""What is wanted, written to a real northbound database in one transaction, as simply as can be."""

import json
from collections.abc import Mapping
from typing import Any

from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.rows import Ref
from tests.plan.planning import northbound
from tests.support.ovn import Central, run


def write(central: Central, wanted: DesiredRows) -> None:
    """Replace all that is in a northbound database by what is wanted, and wait until northd is done with it."""
    operations: list[dict[str, Any]] = [
        {"op": "delete", "table": name, "where": []}
        for name, table in northbound().tables.items()
        if name not in ("NB_Global", "Connection", "SSL")
    ]
    for ref, row in wanted.rows.items():
        columns = {name: _encoded(value) for name, value in row.columns.items()}
        for name, places in wanted.members(ref).items():
            is_map = northbound().tables[ref.table].columns[name].is_map
            columns[name] = _encoded(dict(places) if is_map else frozenset(places.values()))
        operations.append({"op": "insert", "table": ref.table, "row": columns, "uuid-name": _name(ref)})
    request = json.dumps(["OVN_Northbound", *operations])
    replies = json.loads(run("ovsdb-client", "--timeout=120", "transact", central.northbound.remote, request))
    assert not [reply for reply in replies if reply and "error" in reply], replies
    assert len(replies) == len(operations), replies
    central.nbctl("--wait=sb", "sync")


def _name(ref: Ref) -> str:
    return f"u{f'{ref.table} {ref.key}'.encode().hex()}"


def _encoded(value: Any) -> Any:
    if isinstance(value, Ref):
        return ["named-uuid", _name(value)]
    if value is None:
        return ["set", []]
    if isinstance(value, frozenset):
        return ["set", [_encoded(one) for one in value]]
    if isinstance(value, Mapping):
        return ["map", [[key, _encoded(one)] for key, one in value.items()]]
    return value


def misread(central: Central, wanted: DesiredRows) -> str:
    """Return what OVN itself cannot read of the flows that came of it: ovn-trace reads them all before it begins.

    It does not read flows with variables, of which each chassis has its own values.
    """
    places = ((ref.key, wanted.members(ref).get("ports", {})) for ref in sorted(wanted.rows))
    switch, port = next(((name, min(ports)) for name, ports in places if ports), ("", Ref("", "")))
    assert isinstance(port, Ref)
    if not switch:
        return ""
    flow = f'inport == "{port.key}" && eth.src == 02:00:00:00:00:01 && eth.dst == 02:00:00:00:00:02'
    words = ["ovn-trace", f"--db={central.southbound.remote}", "--summary", switch, flow]
    said = run("sh", "-c", 'exec "$@" 2>&1', "sh", *words)
    lines = (line for line in said.splitlines() if "WARN" in line or "ERR" in line)
    return "\n".join(line for line in lines if "^nl_" not in line and "Syntax error at `nl_" not in line)
