"""The files of OVN's databases, before any server runs: what the southbound listens for, and who may switch to TLS."""

import json
import subprocess
from pathlib import Path

import pytest

from netloom.errors import Conflict
from netloom.lab.daemons import databases
from netloom.lab.layout import Layout
from netloom.lab.state import State

pytestmark = pytest.mark.ovn

CONNECTIONS = [{"op": "select", "table": "Connection", "where": [], "columns": ["target", "role"]},
               {"op": "select", "table": "SB_Global", "where": [], "columns": ["connections"]}]  # fmt: skip


def layout(folder: Path, **options: object) -> Layout:
    return Layout(folder, State(nodes=1, port=1, **options))  # type: ignore[arg-type]  # as State has them


def listening(file: Path) -> tuple[list[dict[str, str]], list[dict[str, list[str]]]]:
    argv = ["ovsdb-tool", "query", str(file), json.dumps(["OVN_Southbound", *CONNECTIONS])]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return found[0]["rows"], found[1]["rows"]


def test_nodes_get_their_role_once_however_often_a_lab_is_brought_up(tmp_path: Path) -> None:
    for _ in range(3):
        databases.make(layout(tmp_path))
    connections, whole = listening(tmp_path / "ovn" / "sb.db")
    assert connections == [{"target": "pssl:6642", "role": "ovn-controller"}]
    assert [row["connections"][0] for row in whole] == ["uuid"]


def test_a_database_that_was_there_before_gets_it_too_and_keeps_what_it_has(tmp_path: Path) -> None:
    databases.make(layout(tmp_path, plain_ovn=True))
    file = tmp_path / "ovn" / "sb.db"
    assert listening(file) == ([], [])
    row = {"op": "insert", "table": "SB_Global", "row": {"nb_cfg": 7}}
    subprocess.run(["ovsdb-tool", "transact", file, json.dumps(["OVN_Southbound", row])], check=True)
    databases.make(layout(tmp_path))
    connections, whole = listening(file)
    assert connections == [{"target": "pssl:6642", "role": "ovn-controller"}]
    assert [row["connections"][0] for row in whole] == ["uuid"]


@pytest.mark.parametrize(("before", "word"), [(True, "with"), (False, "without")])
def test_a_cluster_does_not_change_how_its_servers_talk_to_each_other(before: bool, word: str, tmp_path: Path) -> None:
    databases.make(layout(tmp_path, ovn=3, plain_ovn=before))
    databases.make(layout(tmp_path, ovn=3, plain_ovn=before))
    with pytest.raises(Conflict, match=f"was created {word} --plain-ovn"):
        databases.make(layout(tmp_path, ovn=3, plain_ovn=not before))
