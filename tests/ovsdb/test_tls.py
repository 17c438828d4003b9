"""TLS: both sides show certificates, and a server of another CA is not spoken to."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netloom.ovsdb.operations import Insert
from netloom.run import certificates
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

    def server(self) -> tuple[Path, Path]:
        key = certificates.new_key()
        made = certificates.make_server(self.pair, key, hosts=["127.0.0.1", "localhost"], now=self.now)
        return self._write("server", made, key)

    def client(self) -> tuple[Path, Path]:
        key = certificates.new_key()
        made = certificates.make_client(self.pair, key, name="controller", groups=[], now=self.now)
        return self._write("client", made, key)

    def _write(self, name: str, certificate: bytes, key: bytes) -> tuple[Path, Path]:
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(key)
        return files

    def context(self, trusted: "Authority") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(trusted.file))
        context.load_cert_chain(*self.client())
        return context


def test_a_server_is_followed_over_tls_and_one_of_another_ca_is_not(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    certificate, key = ours.server()
    port = free_port()
    options = [
        f"--remote=pssl:{port}:127.0.0.1",
        f"--private-key={key}",
        f"--certificate={certificate}",
        f"--ca-cert={ours.file}",
    ]

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


def test_a_server_is_followed_over_tcp() -> None:
    port = free_port()

    async def main() -> None:
        async with following([f"tcp:127.0.0.1:{port}"]) as client:
            await client.transact([Insert("Logical_Switch", {"name": "blue"})])
            assert len(client.cache.rows("Logical_Switch")) == 1

    with standalone(options=[f"--remote=ptcp:{port}:127.0.0.1"]):
        run(main)
