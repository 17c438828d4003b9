"""The databases of OVS and OVN, made where they are missing and converted where their programs have become newer."""

import subprocess
from pathlib import Path

from netloom.lab.entering import entered
from netloom.lab.layout import Layout, suffix
from netloom.lab.programs import RAFT_PORTS
from netloom.lab.wiring import run

SWITCH_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
OVN_SCHEMAS = {"nb": "/usr/share/ovn/ovn-nb.ovsschema", "sb": "/usr/share/ovn/ovn-sb.ovsschema"}
OVN_NAMES = {"nb": "OVN_Northbound", "sb": "OVN_Southbound"}


def make(layout: Layout) -> None:
    """See to it that every server of the lab finds its database."""
    for node in layout.nodes:
        layout.node(node).mkdir(mode=0o700, parents=True, exist_ok=True)
        _alone(layout, node, layout.node(node) / "conf.db", SWITCH_SCHEMA)
    if layout.state.ovn:
        layout.ovn.mkdir(mode=0o700, parents=True, exist_ok=True)
    for database, schema in OVN_SCHEMAS.items():
        if layout.state.ovn == 1:
            _alone(layout, "central", layout.ovn / f"{database}.db", schema)
        elif layout.state.ovn:
            _cluster(layout, database, schema)


def raft_address(database: str, number: int) -> str:
    """Return where a server of a cluster talks to its fellows."""
    return f"tcp:127.0.0.1:{RAFT_PORTS[database] + 10 * (number - 1)}"


def _alone(layout: Layout, place: str, file: Path, schema: str) -> None:
    if not file.exists():
        _tool(layout, place, "create", str(file), schema)
    elif _tool(layout, place, "needs-conversion", str(file), schema) == "yes":
        _tool(layout, place, "convert", str(file), schema)


def _cluster(layout: Layout, database: str, schema: str) -> None:
    for number in range(1, layout.state.ovn + 1):
        file = layout.ovn / f"{database}{suffix(number)}.db"
        if file.exists():
            continue
        own = raft_address(database, number)
        if number == 1:
            _tool(layout, "central", "create-cluster", str(file), schema, own)
        else:
            _tool(layout, "central", "join-cluster", str(file), OVN_NAMES[database], own, raft_address(database, 1))


def _tool(layout: Layout, place: str, *args: str) -> str:
    """Run ovsdb-tool of the version that the place has."""
    return run(entered(["ovsdb-tool", *args], root=layout.root(place), folder=layout.folder)).strip()


def version(layout: Layout, place: str) -> str:
    """Return which OVS, or for the central which OVN, a place runs."""
    program = "ovn-northd" if place == "central" else "ovs-vswitchd"
    argv = entered([program, "--version"], root=layout.root(place), folder=layout.folder)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    words = ended.stdout.partition("\n")[0].split()
    return words[-1] if words else ""
