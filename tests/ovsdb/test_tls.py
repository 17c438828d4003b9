"""TLS: both sides show certificates, and a server of another CA is not spoken to."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.operations import Insert
from netloom.ovsdb.reconnect import is_exposed
from netloom.run.access import certificates
from tests.ovsdb.following import following, run, until
from tests.ovsdb.real import standalone
from tests.support.process import free_port

pytestmark = pytest.mark.ovn


class Authority:
    """A CA that writes its files into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.now = datetime.now(UTC)
        self.folder = folder
        key = certificates.new_key()
        self.pair = certificates.Pair(certificates.make_ca(key, name=name, now=self.now), key)
        self.file = folder / f"{name}.ca"
        self.file.write_bytes(self.pair.certificate)

    def server(self, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> tuple[Path, Path]:
        key = certificates.new_key()
        made = certificates.make_server(self.pair, key, hosts=hosts, now=self.now)
        return self._write("server", made, key)

    def named(self, name: str) -> tuple[Path, Path]:
        """Return a certificate with a common name and no other."""
        key = certificates.new_key()
        made = certificates.make_peer(self.pair, key, name=name, hosts=[], now=self.now)
        return self._write("named", made, key)

    def client(self) -> tuple[Path, Path]:
        key = certificates.new_key()
        made = certificates.make_client(self.pair, key, name="controller", groups=[], now=self.now)
        return self._write("client", made, key)

    def _write(self, name: str, certificate: bytes, key: bytes) -> tuple[Path, Path]:
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(key)
        return files

    def context(self, trusted: "Authority", *, check_hostname: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(trusted.file))
        context.check_hostname = check_hostname
        context.load_cert_chain(*self.client())
        return context

    def options(self, port: int, files: tuple[Path, Path]) -> list[str]:
        """Return what has an ovsdb-server show these files."""
        certificate, key = files
        options = [f"--private-key={key}", f"--certificate={certificate}", f"--ca-cert={self.file}"]
        return [f"--remote=pssl:{port}:127.0.0.1", *options]


def test_a_server_is_followed_over_tls_and_one_of_another_ca_is_not(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    port = free_port()
    options = ours.options(port, ours.server())

    async def main() -> None:
        remotes = [f"ssl:127.0.0.1:{port}"]
        async with following(remotes, tls=ours.context(ours)) as client:
            await client.transact([Insert("Logical_Switch", {"name": "blue"})])
            assert [row.name for row in client.cache.rows("Logical_Switch").values()] == ["blue"]
        async with following(remotes, tls=ours.context(other), wait=False) as client:
            await until(lambda: client.counters.failures >= 2)
            assert not client.synced.is_set()
        async with following(remotes, tls=other.context(ours), wait=False) as client:
            await until(lambda: client.counters.failures + client.counters.disconnects >= 2)
            assert not client.synced.is_set()

    with standalone(options=options):
        run(main)


def test_a_certificate_for_another_host_is_refused_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, port = Authority(tmp_path, "ours"), free_port()

    async def main() -> None:
        async with following([f"ssl:127.0.0.1:{port}"], tls=ours.context(ours), wait=False) as client:
            await until(lambda: client.counters.failures >= 3)
            assert not client.synced.is_set()

    with standalone(options=ours.options(port, ours.server(["192.0.2.7", "ovn.example"]))):
        run(main)
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert said[0].startswith(f"ssl:127.0.0.1:{port}: the server's certificate is refused: ")
    assert "IP address mismatch" in said[0]


@pytest.mark.parametrize("common_name_alone", [False, True])
def test_a_certificate_must_be_for_one_of_the_names_that_are_given(
    common_name_alone: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, port = Authority(tmp_path, "ours"), free_port()
    name = "ovn2 id:8a4f" if common_name_alone else "ovn.example"
    files = ours.named(name) if common_name_alone else ours.server([name])

    async def main() -> None:
        remotes, tls = [f"ssl:127.0.0.1:{port}"], ours.context(ours, check_hostname=False)
        async with following(remotes, tls=tls, names=["ovn1", name.upper()]) as client:
            await client.transact([Insert("Logical_Switch", {"name": "blue"})])
        async with following(remotes, tls=tls, names=["ovn1", "netloom"], wait=False) as client:
            await until(lambda: client.counters.disconnects >= 2)
            assert not client.synced.is_set()
            assert client.counters.bytes_out == 0, "nothing is sent to a server of another name"

    with standalone(options=ours.options(port, files)):
        run(main)
    assert f"certificate is for {name}" in caplog.text
    assert "not ovn1, netloom" in caplog.text


def test_names_are_never_left_unchecked(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    for names, check_hostname in (((), False), (("ovn",), True)):
        with pytest.raises(ValueError, match="either the TLS context checks host names, or names are given"):
            OvsdbClient(
                ["ssl:127.0.0.1:1"],
                "OVN_Northbound",
                tables={},
                random=Random(1),
                tls=ours.context(ours, check_hostname=check_hostname),
                names=names,
            )


@pytest.mark.parametrize(
    ("remote", "exposed"),
    [
        ("tcp:192.0.2.5:6642", True),
        ("tcp:[2001:db8::5]:6642", True),
        ("tcp:ovn.example:6642", True),
        ("tcp:192.0.2.5", True),
        ("tcp:192.0.2.5:none", True),
        ("tcp:127.0.0.1:6642", False),
        ("tcp:127.8.8.8:6642", False),
        ("tcp:[::1]:6642", False),
        ("tcp:localhost:6642", False),
        ("ssl:192.0.2.5:6642", False),
        ("unix:/run/ovn/ovnsb_db.sock", False),
    ],
)
def test_what_goes_over_a_network_in_the_clear_is_known(remote: str, exposed: bool) -> None:
    assert is_exposed(remote) is exposed


def test_a_server_is_followed_over_tcp() -> None:
    port = free_port()

    async def main() -> None:
        async with following([f"tcp:127.0.0.1:{port}"]) as client:
            await client.transact([Insert("Logical_Switch", {"name": "blue"})])
            assert len(client.cache.rows("Logical_Switch")) == 1

    with standalone(options=[f"--remote=ptcp:{port}:127.0.0.1"]):
        run(main)
