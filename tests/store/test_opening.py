"""From `--store` to an open store."""

import asyncio
import http.client
import ssl
from pathlib import Path

import pytest

from netloom.errors import BadRequest, Unreachable
from netloom.store.memory import MemoryStore
from netloom.store.opening import open_store
from netloom.store.sqlite.store import SqliteStore
from tests.store.certificates import certificate
from tests.support.etcd import INSTALL, Etcd
from tests.support.process import Program, find_program, free_port


def test_a_store_is_opened_by_its_name(tmp_path: Path) -> None:
    async def go() -> None:
        memory = await open_store("memory:")
        assert isinstance(memory, MemoryStore)
        durable = await open_store(f"sqlite:{tmp_path}/x.db")
        assert isinstance(durable, SqliteStore)
        await durable.close()
        dead = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(Unreachable):
            await open_store(f"etcd:{dead},{dead}")

    asyncio.run(go())


@pytest.mark.etcd
def test_an_etcd_is_opened_by_its_addresses(etcd: Etcd) -> None:
    async def go() -> None:
        store = await open_store(f"etcd:{etcd.url}, ")
        assert await store.revision() > 1
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("url", ["", "sqlite:", "etcd:", "memory:x", "mysql:x", "/var/lib/x.db"])
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="is not a store: it is memory:, sqlite:PATH or etcd:URL"):
        asyncio.run(open_store(url))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("colour=red", "etcd has no option 'colour'; it has: ca, cert, compact, keepalive, key, prefix"),
        ("cert=/x", "both cert and key"),
        ("ca=/does/not/exist", "cannot read /does/not/exist: No such file"),
        ("prefix=x", "must be like /netloom"),
        ("prefix=/x/", "must be like /netloom"),
        ("compact=soon", "whole number of seconds"),
        ("compact=0", "whole number of seconds"),
        ("keepalive=often", "keepalive=.often. must be a whole number of seconds"),
    ],
)
def test_options_of_etcd_are_checked(query: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        asyncio.run(open_store(f"etcd:http://127.0.0.1:1?{query}"))


@pytest.mark.etcd
def test_an_etcd_that_wants_certificates_is_given_them(tmp_path: Path) -> None:
    ca, ca_key = certificate("ca", None)
    for name, (public, secret) in {
        "ca": (ca, ca_key),
        "server": certificate("server", (ca, ca_key)),
        "client": certificate("client", (ca, ca_key)),
    }.items():
        (tmp_path / f"{name}.crt").write_bytes(public)
        (tmp_path / f"{name}.key").write_bytes(secret)
    port = free_port()
    url, peer = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    program = Program(
        [
            find_program("etcd", install=INSTALL),
            f"--data-dir={tmp_path / 'data'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--cert-file={tmp_path / 'server.crt'}",
            f"--key-file={tmp_path / 'server.key'}",
            f"--trusted-ca-file={tmp_path / 'ca.crt'}",
            "--client-cert-auth",
            "--logger=zap",
            "--log-level=error",
        ],
        log=tmp_path / "etcd.log",
    )

    def answers() -> bool:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    async def go() -> None:
        files = f"ca={tmp_path}/ca.crt&cert={tmp_path}/client.crt&key={tmp_path}/client.key"
        store = await open_store(f"etcd:{url}?{files}&prefix=/lab&compact=3600&keepalive=6")
        assert await store.revision() > 1
        await store.close()
        with pytest.raises(Unreachable):
            await open_store(f"etcd:{url}?ca={tmp_path}/ca.crt")

    try:
        program.wait_ready(answers, timeout=120)
        asyncio.run(go())
    finally:
        program.kill()
