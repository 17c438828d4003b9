"""`netloom serve` with a real northbound: alone, as a cluster, over TLS; killed, compacted, shared with strangers."""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from netloom.errors import Invalid
from netloom.ovsdb.io import OvsdbClient
from netloom.run import ovn
from netloom.run.access import certificates
from netloom.run.config import ServeSettings
from tests.ovsdb.following import until
from tests.ovsdb.real import Member, cluster, standalone
from tests.run.serving import Serving, serving
from tests.support.ovn import run
from tests.support.process import find_program, free_port, wait_until

pytestmark = pytest.mark.ovn

API = "apiVersion: netloom.dev/v1alpha1"
DEFAULT_CONTEXT = ssl.create_default_context
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


class Secured(NamedTuple):
    """A CA, and key and certificate of a server and of a client."""

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]

    def of_server(self, port: int) -> list[str]:
        """Return what has an ovsdb-server listen with them."""
        key, certificate = self.server
        files = [f"--private-key={key}", f"--certificate={certificate}", f"--ca-cert={self.ca}"]
        return [f"--remote=pssl:{port}:127.0.0.1", *files]

    def flags(self) -> tuple[str, ...]:
        """Return what has `netloom` connect with them."""
        key, certificate = self.client
        return "--ovn-key", str(key), "--ovn-cert", str(certificate), "--ovn-ca", str(self.ca)

    def settings(self, port: int, *names: str) -> ServeSettings:
        """Return the same as settings, with the names that the server's certificate may be for."""
        key, certificate = map(str, self.client)
        return ServeSettings(
            ovn_nb=(f"ssl:127.0.0.1:{port}",),
            ovn_key=key,
            ovn_cert=certificate,
            ovn_ca=str(self.ca),
            ovn_server_names=names,
        )


def attachments(first: int, last: int) -> str:
    spec = "spec: {node: n1, network: blue}"
    one = f"{API}\nkind: NetworkAttachment\nmetadata: {{name: a%d, namespace: default}}\n{spec}"
    return "\n---\n".join(one % i for i in range(first, last))


def apply(server: Serving, text: str) -> None:
    server.cli("apply", "-f", "-", stdin=text)


def ports(remote: str) -> set[str]:
    """Return the ports there are; nothing while a cluster has no leader."""
    argv = "--bare", "--columns=name", "list", "Logical_Switch_Port"
    return set(run("ovn-nbctl", "--timeout=120", f"--db={remote}", *argv, check=False).split())


def wait_for_ports(remote: str, names: set[str]) -> None:
    wait_until(lambda: ports(remote) >= names, what=f"{len(names)} ports", timeout=120, interval=0.2)


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
            lambda: ports(database.remote) == names(0, 40) - {"default/a1"}, what="what came meanwhile", timeout=120
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
        wait_until(lambda: ports(rest) == names(0, 80), what="all ports", timeout=120, interval=0.5)


def with_strict_default(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **options: Any) -> ssl.SSLContext:
    """Make a context as `ssl.create_default_context` does since Python 3.13."""
    context = DEFAULT_CONTEXT(purpose, **options)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


@asynccontextmanager
async def connected(settings: ServeSettings) -> AsyncIterator[OvsdbClient]:
    """Give the connection to the northbound that these settings mean."""
    found = ovn.from_settings(settings)
    assert found is not None
    north = found.connect_north(Random(1), lambda: True)
    task = asyncio.create_task(north.client.run())
    try:
        yield north.client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def secured(folder: Path, hosts: list[str]) -> Secured:
    """Make a CA, a server's certificate for `hosts` and a client's."""
    now = datetime.now(UTC)
    key = certificates.new_key()
    ca = certificates.Pair(certificates.make_ca(key, name="ovn", now=now), key)
    server_key, client_key = certificates.new_key(), certificates.new_key()
    written = {
        "ca": ca.certificate,
        "server.key": server_key,
        "server.crt": certificates.make_server(ca, server_key, hosts=hosts, now=now),
        "client.key": client_key,
        "client.crt": certificates.make_client(ca, client_key, name="controller", groups=[], now=now),
    }
    for name, data in written.items():
        (folder / name).write_bytes(data)
    return Secured(folder / "ca", *((folder / f"{name}.key", folder / f"{name}.crt") for name in ("server", "client")))


def by_ovs_pki(folder: Path) -> Secured:
    """Have `ovs-pki` make them, as OVN's own documents tell operators to."""
    folder.mkdir()
    pki: list[str | Path] = [find_program("ovs-pki", install="apt-get install openvswitch-common"), "--force"]
    pki += [f"--dir={folder / 'pki'}", f"--log={folder / 'log'}"]
    for argv in (["init"], ["-u", "req+sign", "ovn1", "controller"], ["-u", "req+sign", "netloom", "controller"]):
        subprocess.run([*pki, *argv], cwd=folder, check=True, capture_output=True, timeout=120)
    pairs = ((folder / f"{name}-privkey.pem", folder / f"{name}-cert.pem") for name in ("ovn1", "netloom"))
    return Secured(folder / "pki" / "controllerca" / "cacert.pem", *pairs)


def test_a_northbound_over_tls_is_filled(tmp_path: Path) -> None:
    made, port = secured(tmp_path, ["127.0.0.1"]), free_port()
    with (
        standalone(options=made.of_server(port)) as database,
        with_ovn(tmp_path, f"ssl:127.0.0.1:{port}", more=made.flags()) as server,
    ):
        apply(server, BLUE + "---\n" + attachments(0, 3))
        wait_for_ports(database.remote, names(0, 3))


def test_a_northbound_of_another_name_is_connected_to_only_if_that_is_the_name_expected(tmp_path: Path) -> None:
    made, port = secured(tmp_path, ["ovn.example"]), free_port()

    async def main() -> None:
        async with connected(made.settings(port)) as client:
            await until(lambda: client.counters.failures >= 2)
            assert not client.synced.is_set()
        async with connected(made.settings(port, "ovn1", "ovn.example")) as client:
            await until(client.synced.is_set)

    with standalone(options=made.of_server(port)):
        asyncio.run(main())


def test_a_server_whose_ca_ovs_pki_made_is_connected_to_by_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, port = by_ovs_pki(tmp_path / "made"), free_port()
    monkeypatch.setattr(ssl, "create_default_context", with_strict_default)

    async def main() -> None:
        async with connected(made.settings(port, "ovn1")) as client:
            await until(client.synced.is_set)

    with standalone(options=made.of_server(port)):
        asyncio.run(main())


def test_tcp_to_another_host_is_warned_of_in_the_log_and_on_networks(tmp_path: Path) -> None:
    said = "the connection to OVN at tcp:192.0.2.5:6641 is not encrypted: use ssl: in ovnNb and ovnSb"
    with standalone() as database:
        with with_ovn(tmp_path, database.remote, "tcp:192.0.2.5:6641") as server:
            apply(server, BLUE + f"---\n{API}\nkind: Network\nmetadata: {{name: red}}\nspec: {{fabric: vxlan}}")
            assert wait_until(lambda: ready(server, "blue"), what="Ready")["message"] == said
            assert wait_until(lambda: ready(server, "red"), what="Ready").get("message", "") == ""
            assert server.log.read_text().count(said) == 1
        with with_ovn(tmp_path, database.remote) as server:
            wait_until(lambda: ready(server, "blue").get("message", "") == "", what="the warning to go")


def ready(server: Serving, network: str) -> dict[str, str]:
    """Return the condition Ready of a Network, once it has one."""
    found = json.loads(server.cli("get", "network", network, "-o", "json").out)
    return next((one for one in found.get("status", {}).get("conditions", ()) if one["type"] == "Ready"), {})


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
            run("ovn-nbctl", "--timeout=120", f"--db={database.remote}", *argv)
        before = _dump(database.remote)
        with with_ovn(tmp_path, database.remote) as server:
            apply(server, BLUE + "---\n" + attachments(0, 5))
            wait_for_ports(database.remote, names(0, 5))
            for i in range(5):
                server.cli("delete", "networkattachment", f"a{i}")
            server.cli("delete", "subnet", "blue-v4")
            server.cli("delete", "network", "blue")
            wait_until(lambda: _dump(database.remote) == before, what="only theirs to be left", timeout=120)


def _dump(remote: str) -> list[str]:
    return sorted(run("ovsdb-client", "--timeout=120", "-f", "csv", "dump", remote, "OVN_Northbound").splitlines())


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
