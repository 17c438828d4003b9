"""`netloom serve` with a real northbound: alone, as a cluster, over TLS; killed, compacted, shared with strangers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netloom.errors import Invalid
from netloom.run import certificates, ovn
from netloom.run.config import ServeSettings
from tests.ovsdb.real import Member, cluster, standalone
from tests.run.serving import Serving, serving
from tests.support.ovn import run
from tests.support.process import free_port, wait_until

pytestmark = pytest.mark.ovn

API = "apiVersion: netloom.dev/v1alpha1"
BLUE = f"""
{API}
kind: Network
metadata: {{name: blue, namespace: default}}
spec: {{}}
---
{API}
kind: Subnet
metadata: {{name: blue-v4, namespace: default}}
spec: {{network: blue, cidr: 10.0.0.0/16}}
"""


def attachments(first: int, last: int) -> str:
    spec = "spec: {node: n1, network: blue}"
    one = f"{API}\nkind: NetworkAttachment\nmetadata: {{name: a%d, namespace: default}}\n{spec}"
    return "\n---\n".join(one % i for i in range(first, last))


def apply(server: Serving, text: str) -> None:
    server.cli("apply", "-f", "-", stdin=text)


def ports(remote: str) -> set[str]:
    """Return the ports there are; nothing while a cluster has no leader."""
    argv = "--bare", "--columns=name", "list", "Logical_Switch_Port"
    return set(run("ovn-nbctl", "--timeout=20", f"--db={remote}", *argv, check=False).split())


def wait_for_ports(remote: str, names: set[str]) -> None:
    wait_until(lambda: ports(remote) >= names, what=f"{len(names)} ports", timeout=60, interval=0.2)


def names(first: int, last: int) -> set[str]:
    return {f"default/a{i}" for i in range(first, last)}


@contextmanager
def with_ovn(folder: Path, *remotes: str, more: tuple[str, ...] = ()) -> Iterator[Serving]:
    with serving(folder, "--ovn-nb", ",".join(remotes), *more) as server:
        yield server


def test_serve_fills_the_northbound_also_after_it_was_killed(tmp_path: Path) -> None:
    with standalone() as database, with_ovn(tmp_path, database.remote) as server:
        apply(server, BLUE + "---\n" + attachments(0, 20))
        wait_for_ports(database.remote, names(0, 20))
        apply(server, attachments(20, 40))
        server.kill()
        server.start()
        wait_for_ports(database.remote, names(0, 40))
        server.cli("delete", "networkattachment", "a7")
        wait_until(lambda: ports(database.remote) == names(0, 40) - {"default/a7"}, what="the port to go")
        metrics = server.request("GET", "/metrics")[1].decode()
        assert "netloom_ovn_in_step 1.0" in metrics
        assert 'netloom_ovn_transactions_total{outcome="refused"} 0.0' in metrics
        assert "netloom_ovn_rows_wanted" in metrics


def test_a_northbound_that_is_compacted_and_killed_is_followed(tmp_path: Path) -> None:
    with standalone() as database, with_ovn(tmp_path, database.remote) as server:
        apply(server, BLUE + "---\n" + attachments(0, 20))
        database.control_command("ovsdb-server/compact")
        apply(server, attachments(20, 30))
        wait_for_ports(database.remote, names(0, 30))
        database.kill()
        apply(server, attachments(30, 40))
        server.cli("delete", "networkattachment", "a1")
        database.start()
        wait_until(
            lambda: ports(database.remote) == names(0, 40) - {"default/a1"}, what="what came meanwhile", timeout=60
        )


def test_a_cluster_whose_leader_is_killed_gets_everything(tmp_path: Path) -> None:
    with cluster(3) as members, with_ovn(tmp_path, *(one.remote for one in members)) as server:
        apply(server, BLUE + "---\n" + attachments(0, 20))
        everybody = ",".join(one.remote for one in members)
        wait_for_ports(everybody, names(0, 20))
        leader = wait_until(lambda: next((one for one in members if one.leads()), None), what="a leader")
        assert isinstance(leader, Member)
        apply(server, attachments(20, 60))
        leader.kill()
        apply(server, attachments(60, 80))
        rest = ",".join(one.remote for one in members if one is not leader)
        wait_until(lambda: ports(rest) == names(0, 80), what="all ports", timeout=90, interval=0.5)


def test_a_northbound_over_tls_is_filled(tmp_path: Path) -> None:
    now, port = datetime.now(UTC), free_port()
    key = certificates.new_key()
    ca = certificates.Pair(certificates.make_ca(key, name="ovn", now=now), key)
    server_key, client_key = certificates.new_key(), certificates.new_key()
    written = {
        "ca": ca.certificate,
        "server.key": server_key,
        "server.crt": certificates.make_server(ca, server_key, hosts=["ovn"], now=now),
        "client.key": client_key,
        "client.crt": certificates.make_client(ca, client_key, name="controller", groups=[], now=now),
    }
    for name, data in written.items():
        (tmp_path / name).write_bytes(data)
    options = [
        f"--remote=pssl:{port}:127.0.0.1",
        f"--private-key={tmp_path}/server.key",
        f"--certificate={tmp_path}/server.crt",
        f"--ca-cert={tmp_path}/ca",
    ]
    flags = (
        "--ovn-key",
        f"{tmp_path}/client.key",
        "--ovn-cert",
        f"{tmp_path}/client.crt",
        "--ovn-ca",
        f"{tmp_path}/ca",
    )
    with (
        standalone(options=options) as database,
        with_ovn(tmp_path, f"ssl:127.0.0.1:{port}", more=flags) as server,
    ):
        apply(server, BLUE + "---\n" + attachments(0, 3))
        wait_for_ports(database.remote, names(0, 3))


def test_wrong_settings_are_refused_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as raised:
        ovn.from_settings(
            ServeSettings(ovn_nb=("ssl:127.0.0.1:6641", "nowhere"), ovn_key=str(tmp_path / "none"), ovn_owner="")
        )
    assert {cause.field for cause in raised.value.causes} == {"ovnNb", "ovnKey", "ovnCert", "ovnCa", "ovnOwner"}
    assert ovn.from_settings(ServeSettings()) is None


def test_foreign_rows_stay_as_they_are_through_the_life_of_ours(tmp_path: Path) -> None:
    with standalone() as database:
        for argv in (("ls-add", "theirs"), ("lsp-add", "theirs", "their-port"), ("lr-add", "their-router")):
            run("ovn-nbctl", "--timeout=20", f"--db={database.remote}", *argv)
        before = _dump(database.remote)
        with with_ovn(tmp_path, database.remote) as server:
            apply(server, BLUE + "---\n" + attachments(0, 5))
            wait_for_ports(database.remote, names(0, 5))
            for i in range(5):
                server.cli("delete", "networkattachment", f"a{i}")
            server.cli("delete", "subnet", "blue-v4")
            server.cli("delete", "network", "blue")
            wait_until(lambda: _dump(database.remote) == before, what="only theirs to be left", timeout=60)


def _dump(remote: str) -> list[str]:
    return sorted(run("ovsdb-client", "--timeout=10", "-f", "csv", "dump", remote, "OVN_Northbound").splitlines())


def test_problems_end_as_conditions(tmp_path: Path) -> None:
    with standalone() as database, with_ovn(tmp_path, database.remote) as server:
        apply(
            server,
            f"{API}\nkind: Router\nmetadata: {{name: r1, namespace: default}}\nspec: {{networks: [{{network: none}}]}}",
        )

        def ready() -> dict[str, str] | None:
            document = json.loads(server.cli("get", "router", "r1", "-o", "json").out)
            return next(iter(document.get("status", {}).get("conditions", ())), None)

        condition = wait_until(ready, what="a condition")
        assert (condition["status"], condition["reason"]) == ("False", "NetworkMissing")
