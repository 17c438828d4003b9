"""The databases of OVS and OVN: created if they are missing, converted if their programs are newer."""

import json
import subprocess
from pathlib import Path

from netloom.errors import Conflict
from netloom.lab.daemons.entering import entered
from netloom.lab.daemons.programs import RAFT_PORTS
from netloom.lab.layout import NODES_PORT, Layout, suffix
from netloom.lab.wiring import run

SWITCH_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
OVN_SCHEMAS = {"nb": "/usr/share/ovn/ovn-nb.ovsschema", "sb": "/usr/share/ovn/ovn-sb.ovsschema"}
INACTIVITY_PROBE = 60000
"""Milliseconds: longer than the default of five seconds, so that a busy node is not disconnected."""
OVN_NAMES = {"nb": "OVN_Northbound", "sb": "OVN_Southbound"}


def make(layout: Layout) -> None:
    """Create or convert the databases of all servers of the lab."""
    for node in layout.nodes:
        layout.node(node).mkdir(mode=0o700, parents=True, exist_ok=True)
        _alone(layout, node, layout.node(node) / "conf.db", SWITCH_SCHEMA)
    if layout.state.ovn:
        layout.ovn.mkdir(mode=0o700, parents=True, exist_ok=True)
    for database, schema in OVN_SCHEMAS.items():
        if layout.state.ovn == 1:
            file = layout.ovn / f"{database}.db"
            _alone(layout, "central", file, schema)
            if database == "sb" and layout.secure:
                _listen_for_nodes(layout, file)
        elif layout.state.ovn:
            _cluster(layout, database, schema)


def raft_address(layout: Layout, database: str, number: int) -> str:
    """Return the Raft address of a server of a cluster."""
    port = RAFT_PORTS[database]
    if layout.secure:
        return f"ssl:{layout.central_ip(layout.central(number))}:{port}"
    return f"tcp:127.0.0.1:{port + 10 * (number - 1)}"


def _alone(layout: Layout, place: str, file: Path, schema: str) -> None:
    if not file.exists():
        _tool(layout, place, "create", str(file), schema)
    elif _tool(layout, place, "needs-conversion", str(file), schema) == "yes":
        _tool(layout, place, "convert", str(file), schema)


def _cluster(layout: Layout, database: str, schema: str) -> None:
    for number in range(1, layout.state.ovn + 1):
        file = layout.ovn / f"{database}{suffix(number)}.db"
        own = raft_address(layout, database, number)
        if file.exists():
            _check_transport(layout, file, own)
        elif number == 1:
            _found(layout, database, schema, file, own)
        else:
            first = raft_address(layout, database, 1)
            _tool(layout, "central", "join-cluster", str(file), OVN_NAMES[database], own, first)


def _found(layout: Layout, database: str, schema: str, file: Path, own: str) -> None:
    """Create the database of a cluster's first server."""
    contents = layout.ovn / f"{database}-first.db"
    contents.unlink(missing_ok=True)
    _tool(layout, "central", "create", str(contents), schema)
    if database == "sb" and layout.secure:
        _listen_for_nodes(layout, contents)
    _tool(layout, "central", "create-cluster", str(file), str(contents), own)
    contents.unlink()


def _check_transport(layout: Layout, file: Path, own: str) -> None:
    """Refuse a database whose servers use another transport than this lab's."""
    kept = _tool(layout, "central", "db-local-address", str(file))
    if kept != own:
        made = "without" if kept.startswith("ssl:") else "with"
        raise Conflict(
            f"the cluster in {layout.ovn} was created {made} --plain-ovn: use the same option, or run "
            f"`netloom lab down --delete --data {layout.folder}` first"
        )


def _listen_for_nodes(layout: Layout, file: Path) -> None:
    """Write the listener for nodes, with its role, into a southbound database that no server has open."""
    name, target = OVN_NAMES["sb"], f"pssl:{NODES_PORT}"
    where = [["target", "==", target]]
    row = {"target": target, "role": "ovn-controller", "inactivity_probe": INACTIVITY_PROBE}
    asked = [{"op": "select", "table": "SB_Global", "where": [], "columns": ["_uuid"]},
             {"op": "select", "table": "Connection", "where": where, "columns": ["_uuid"]}]  # fmt: skip
    there, listening = json.loads(_tool(layout, "central", "query", str(file), json.dumps([name, *asked])))
    reference = ["named-uuid", "nodes"]
    added: dict[str, object] = {"op": "insert", "table": "SB_Global", "row": {"connections": reference}}
    if there["rows"]:
        mutations = [["connections", "insert", ["set", [reference]]]]
        added = {"op": "mutate", "table": "SB_Global", "where": [], "mutations": mutations}
    change = [{"op": "insert", "table": "Connection", "row": row, "uuid-name": "nodes"}, added]
    if listening["rows"]:
        change = [{"op": "update", "table": "Connection", "where": where, "row": row}]
    _tool(layout, "central", "transact", str(file), json.dumps([name, *change]))


def _tool(layout: Layout, place: str, *args: str) -> str:
    """Run ovsdb-tool of the version of a place."""
    return run(entered(["ovsdb-tool", *args], root=layout.root(place), folder=layout.folder)).strip()


def version(layout: Layout, place: str) -> str:
    """Return the version of OVS, or for the central of OVN, that a place runs."""
    program = "ovn-northd" if place in layout.centrals else "ovs-vswitchd"
    argv = entered([program, "--version"], root=layout.root(place), folder=layout.folder)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    words = ended.stdout.partition("\n")[0].split()
    return words[-1] if words else ""
