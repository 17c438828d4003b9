"""What a node's own certificate is good for at OVN's databases: its own rows, and no other chassis'."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab
from netloom.lab.layout import NODES_PORT, NORTHBOUND_PORT, SOUTHBOUND_PORT
from netloom.lab.pki import Files
from netloom.run.access import certificates
from tests.lab import labs
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

Json = dict[str, Any]

FLOW = {"pipeline": "ingress", "table_id": 0, "priority": 65535, "match": "1", "actions": "drop;"}
"""What would stop all packets of whatever has it."""
WITHOUT_CERTIFICATE = """
import socket, ssl, sys
context = ssl._create_unverified_context()
try:
    with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=120)) as server:
        server.sendall(b'{"method":"list_dbs","params":[],"id":0}')
        print(server.recv(1000))
except OSError as error:
    sys.exit(str(error))
"""


def where(column: str, value: str) -> list[list[str]]:
    return [[column, "==", value]]


def delete(table: str, *matching: list[str]) -> Json:
    return {"op": "delete", "table": table, "where": list(matching)}


def update(table: str, row: Json, *matching: list[str]) -> Json:
    return {"op": "update", "table": table, "row": row, "where": list(matching)}


def insert(table: str, row: Json) -> Json:
    return {"op": "insert", "table": table, "row": row}


OTHERS: list[Json] = [
    delete("Chassis", *where("name", "n2")),
    update("Chassis", {"external_ids": ["map", [["stolen", "yes"]]]}, *where("name", "n2")),
    update("Chassis", {"transport_zones": "elsewhere"}, *where("name", "n2")),
    insert("Chassis", {"name": "n4", "encaps": ["named-uuid", "none"]}),
    delete("Chassis_Private", *where("name", "n2")),
    update("Chassis_Private", {"nb_cfg": 1000000}, *where("name", "n2")),
    delete("Encap", *where("chassis_name", "n2")),
    update("Encap", {"ip": "172.31.0.1"}, *where("chassis_name", "n2")),
    insert("Encap", {"type": "geneve", "ip": "172.31.0.1", "chassis_name": "n2"}),
    update("SB_Global", {"options": ["map", [["mac_prefix", "0a:0a:0a"]]]}),
    insert("Logical_Flow", FLOW),
    update("Connection", {"role": ""}),
    delete("RBAC_Role"),
    update("RBAC_Permission", {"authorization": ""}),
    insert("Address_Set", {"name": "everybody"}),
    insert("Port_Group", {"name": "everybody"}),
]
"""What a node must not do; each changes something on a southbound that has no roles."""


def as_node(lab: Lab, node: str, *argv: str, files: Files | None = None, place: str = "", server: str = "") -> Any:
    """Have `ovsdb-client` do something with a node's certificate, from that node, at the address it has."""
    server = server or f"ssl:{lab.layout.management_ip('central')}:{NODES_PORT}"
    files = files or Files.of_node(lab.layout, node)
    argv = ("ovsdb-client", "--timeout=120", *files.options(), argv[0], server, *argv[1:])
    return lab.exec(place or node, argv, check=False)


def transact(lab: Lab, node: str, *operations: Json) -> list[Any]:
    ended = as_node(lab, node, "transact", json.dumps(["OVN_Southbound", *operations]))
    assert ended.returncode == 0, ended.stderr
    found: list[Any] = json.loads(ended.stdout)
    return found


def dump(lab: Lab) -> dict[str, list[str]]:
    """Return rows as an administrator sees them; of connections without their counters."""
    columns = {"Connection": ["--columns=target,role"]}
    found = {}
    for table in dict.fromkeys(operation["table"] for operation in OTHERS):
        argv = ["ovn-sbctl", "--format=csv", *columns.get(table, []), "list", table]
        found[table] = sorted(lab.exec("central", argv).stdout.splitlines())
    return found


def test_a_node_changes_no_other_chassis_and_nothing_of_northd(lab: Lab) -> None:
    before = dump(lab)
    for operation in OTHERS:
        answers = transact(lab, "n1", operation)
        said = [answer for answer in answers if answer and "error" in answer]
        assert [one["error"] for one in said] == ["permission error"], (operation, answers)
        assert 'RBAC rules for client "n1" role "ovn-controller" prohibit' in said[0]["details"]
    assert dump(lab) == before


def test_a_node_changes_its_own_chassis(lab: Lab) -> None:
    def entry(operation: str, value: list[Any]) -> Json:
        mutations = [["external_ids", operation, value]]
        return {"op": "mutate", "table": "Chassis", "where": where("name", "n1"), "mutations": mutations}

    assert transact(lab, "n1", entry("insert", ["map", [["tried", "yes"]]])) == [{"count": 1}]
    assert transact(lab, "n1", entry("delete", ["set", ["tried"]])) == [{"count": 1}]


def test_a_node_is_not_let_into_the_northbound_nor_to_the_southbound_without_a_role(lab: Lab) -> None:
    northbound = f"ssl:127.0.0.1:{NORTHBOUND_PORT}"
    for port in (NORTHBOUND_PORT, SOUTHBOUND_PORT):
        address = lab.layout.management_ip("central")
        assert lab.exec("n1", ["nc", "-z", "-w", "2", address, str(port)], check=False).returncode, port
    # Even where it could be reached: who has the control plane's certificate is let in, and who has a node's is not.
    allowed = as_node(lab, "n1", "list-dbs", files=Files.of_central(lab.layout, "netloom"), place="central",
                      server=northbound)  # fmt: skip
    assert "OVN_Northbound" in allowed.stdout, allowed.stderr
    refused = as_node(lab, "n1", "list-dbs", place="central", server=northbound)
    assert (refused.returncode, refused.stdout) == (1, "")


def test_nobody_is_let_in_without_a_certificate_of_the_lab(lab: Lab, tmp_path: Path) -> None:
    address = lab.layout.management_ip("central")
    argv = [sys.executable, "-c", WITHOUT_CERTIFICATE, address, str(NODES_PORT)]
    ended = lab.exec("n1", argv, check=False)
    assert "OVN_Southbound" not in ended.stdout
    assert ended.returncode == 1 or ended.stdout == "b''\n", ended.stdout
    stranger = _stranger(tmp_path, lab, "n1")
    refused = as_node(lab, "n1", "list-dbs", files=stranger)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "OVN_Southbound" in as_node(lab, "n1", "list-dbs").stdout


def test_a_node_cannot_be_taken_for_the_southbound_by_another(lab: Lab) -> None:
    mine, theirs = Files.of_node(lab.layout, "n1"), Files.of_node(lab.layout, "n2")
    argv: list[str | Path] = ["openssl", "verify", "-CAfile", theirs.ca]
    assert subprocess.run([*argv, mine.certificate], capture_output=True, check=False).returncode
    server = Files.of_server(lab.layout, "sb", 1).certificate
    assert subprocess.run([*argv, server], capture_output=True, check=False).returncode == 0


def test_every_connection_to_ovn_is_over_tls_and_nothing_was_refused(lab: Lab) -> None:
    for node in lab.nodes:
        told = lab.exec(node, ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"]).stdout.strip()
        assert told == f'"ssl:172.30.1.1:{NODES_PORT}"'
        status = lab.exec(node, ["ovn-appctl", "-t", "ovn-controller", "connection-status"]).stdout
        assert status.strip() == "connected"
    argv = Path(f"/proc/{lab.pid('serve')}/cmdline").read_text().split("\0")
    assert argv[argv.index("--ovn-nb") + 1] == lab.layout.controller_remotes("nb")
    assert lab.layout.controller_remotes("nb").startswith("ssl:127.0.0.1:")
    wait_until(lambda: "in step" in (lab.layout.log / "serve").read_text(), what="the northbound to be in step")


def test_a_lab_without_tls_is_to_be_had(tmp_path: Path) -> None:
    with labs.running(nodes=1, plain_ovn=True) as lab:
        told = lab.exec("n1", ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"]).stdout
        assert told.strip() == f'"unix:{lab.layout.ovn}/sb.sock"'
        assert "mgmt0" not in lab.exec("n1", ["ip", "-brief", "link"]).stdout
        assert not lab.layout.tls.exists()


def _stranger(folder: Path, lab: Lab, name: str) -> Files:
    """Return a certificate for a node's name by a CA of somebody else."""
    now = datetime.now(UTC)
    ca_key, key = certificates.new_key(), certificates.new_key()
    ca = certificates.Pair(certificates.make_ca(ca_key, name="somebody", now=now), ca_key)
    (folder / "stranger.key").write_bytes(key)
    (folder / "stranger.crt").write_bytes(certificates.make_client(ca, key, name=name, groups=[], now=now))
    return Files(folder / "stranger.crt", folder / "stranger.key", Files.of_node(lab.layout, name).ca)
