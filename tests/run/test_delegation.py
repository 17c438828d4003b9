"""Whom a cluster believes: read, followed, and used by the TLS of a server that runs."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from netloom.errors import Invalid, NotFound, Unreachable
from netloom.front.api.http.server import tls_context
from netloom.run.access import certificates
from netloom.run.cluster.delegation import CONFIG_MAP, Delegation, account
from netloom.store.kube.kubeconfig import Cluster
from tests.store.fakeserver import STREAM, FakeServer, Request, chunk, reply, serving

NOW = datetime.now(UTC)


def authority(name: str) -> certificates.Pair:
    key = certificates.new_key()
    return certificates.Pair(certificates.make_ca(key, name=name, now=NOW), key)


OLD, NEW, CLIENTS = authority("old"), authority("new"), authority("clients")


class Kubernetes:
    """The little of a cluster that is asked: one ConfigMap, which can be watched, and namespaces."""

    def __init__(self) -> None:
        self.revision = 1
        self.data = {"requestheader-client-ca-file": OLD.certificate.decode()}
        self.watchers: list[asyncio.StreamWriter] = []

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if "watch=true" in request.target:
            writer.write(STREAM)
            self.watchers.append(writer)
        elif request.target.endswith(f"%3D{CONFIG_MAP}"):
            found = {"metadata": {"name": CONFIG_MAP}, "data": self.data}
            metadata = {"resourceVersion": str(self.revision)}
            writer.write(reply(200, msgspec.json.encode({"metadata": metadata, "items": [found]})))
        else:
            status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
            writer.write(reply(404, msgspec.json.encode(status)))

    def change(self, **data: str) -> None:
        self.revision += 1
        self.data = data
        for writer in self.watchers:
            writer.write(chunk(b'{"type":"MODIFIED","object":{}}\n'))


@contextlib.asynccontextmanager
async def following(cluster: Kubernetes, **options: object) -> AsyncIterator[tuple[Delegation, FakeServer]]:
    async with asyncio.timeout(120), serving(cluster.answer) as server:
        delegation = Delegation(Cluster(server=server.url), **options)  # type: ignore[arg-type]  # the test's own
        follower = asyncio.ensure_future(delegation.follow())
        try:
            yield delegation, server
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            await delegation.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # others' state
        await asyncio.sleep(0.01)


def test_a_ca_that_is_replaced_is_believed_from_then_on() -> None:
    async def main() -> None:
        cluster = Kubernetes()
        async with following(cluster) as (delegation, _):
            with pytest.raises(Unreachable):
                await delegation.ready()
            await delegation.known.wait()
            await delegation.ready()
            assert delegation.trust.proxy_ca == OLD.certificate
            await until(lambda: cluster.watchers)
            cluster.change(
                **{
                    "requestheader-client-ca-file": NEW.certificate.decode(),
                    "client-ca-file": CLIENTS.certificate.decode(),
                }
            )
            await until(lambda: delegation.trust.proxy_ca == NEW.certificate)
            assert delegation.trust.client_ca == CLIENTS.certificate

    asyncio.run(main())


def test_the_servers_tls_verifies_certificates_of_whom_the_cluster_believes(tmp_path: Path) -> None:
    server, key = authority("server"), certificates.new_key()
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "crt").write_bytes(certificates.make_server(server, key, hosts=["localhost"], now=NOW))

    def shakes_hands(context: ssl.SSLContext, ca: certificates.Pair) -> bool:
        own = certificates.new_key()
        (tmp_path / "own").write_bytes(certificates.make_client(ca, own, name="front", groups=[], now=NOW) + own)
        client = ssl.create_default_context(cadata=server.certificate.decode())
        client.load_cert_chain(tmp_path / "own")
        return handshake(context, client)

    async def main() -> None:
        cluster = Kubernetes()
        async with following(cluster) as (delegation, _):
            context = tls_context(tmp_path / "crt", tmp_path / "key")
            delegation.verify(context)
            await delegation.known.wait()
            assert shakes_hands(context, OLD)
            assert not shakes_hands(context, NEW)
            await until(lambda: cluster.watchers)
            cluster.change(**{"requestheader-client-ca-file": NEW.certificate.decode()})
            await until(lambda: delegation.trust.proxy_ca == NEW.certificate)
            assert shakes_hands(context, NEW)

    asyncio.run(main())


def handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bool:
    """Let two sides shake hands in memory; whether both are content."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    waiting = [client, server]
    for _ in range(20):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return not waiting and server.getpeercert() is not None


def test_what_cannot_be_read_leaves_what_was_believed() -> None:
    async def main() -> None:
        cluster = Kubernetes()
        async with following(cluster) as (delegation, server):
            await delegation.known.wait()
            await until(lambda: cluster.watchers)
            cluster.change(**{"requestheader-allowed-names": "no list", "requestheader-client-ca-file": "X"})
            await until(lambda: sum("watch" not in one.target for one in server.requests) > 1)
            assert delegation.trust.proxy_ca == OLD.certificate

    asyncio.run(main())


def test_a_file_says_whose_proxies_to_believe_instead(tmp_path: Path) -> None:
    async def main() -> None:
        ca = tmp_path / "ca.crt"
        ca.write_bytes(NEW.certificate)
        async with following(Kubernetes(), proxy_ca=ca, proxy_names=("front",)) as (delegation, _):
            await delegation.known.wait()
            assert (delegation.trust.proxy_ca, delegation.trust.proxy_names) == (NEW.certificate, ("front",))

    asyncio.run(main())


def test_what_the_cluster_does_not_have_is_not_found() -> None:
    async def main() -> None:
        async with following(Kubernetes()) as (delegation, _):
            with pytest.raises(NotFound):
                await delegation.namespace("none/../x")

    asyncio.run(main())


def test_an_account_is_the_user_that_the_cluster_makes_of_it() -> None:
    assert account("netloom-system/netloom-agent") == "system:serviceaccount:netloom-system:netloom-agent"
    for wrong in ("netloom-agent", "a/b/c", "/b", "a/", "a:x/b"):
        with pytest.raises(Invalid):
            account(wrong)
