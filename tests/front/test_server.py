"""The listening side: TLS, identity from certificates, stopping."""

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from asyncio import sslproto
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netloom.errors import Conflict
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.auth.identity import Certificate
from netloom.front.api.http import server as listening
from netloom.front.api.http.connection import certificate, target
from netloom.front.api.http.limits import Limits
from netloom.model.registry import KINDS
from netloom.run.access import certificates
from netloom.store.base import Store
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, make_credentials, network, path, serving, wait_until


def test_tls_is_new_enough_and_speaks_http_1(server: Serving) -> None:
    context = server.tls()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=120) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped,
    ):
        assert wrapped.selected_alpn_protocol() == "http/1.1"
        assert wrapped.version() == "TLSv1.3"


def asked(connection: http.client.HTTPSConnection) -> int:
    """Ask something; with TLS 1.3 a client learns only now that its certificate was refused."""
    connection.request("GET", "/healthz")
    return connection.getresponse().status


def test_a_certificate_of_another_authority_is_refused(server: Serving, tmp_path: Path) -> None:
    make_credentials(tmp_path)
    context = server.tls()
    context.load_cert_chain(tmp_path / "cert-admin.crt", tmp_path / "cert-admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=120)
    with contextlib.closing(connection), pytest.raises((ssl.SSLError, ConnectionError)):
        asked(connection)


def test_the_servers_own_certificate_is_no_clients(server: Serving) -> None:
    connection = server.connect(certificate="server")
    with contextlib.closing(connection), pytest.raises((ssl.SSLError, ConnectionError)):
        asked(connection)


def test_a_renewed_certificate_is_used_at_once(tmp_path: Path) -> None:
    make_credentials(tmp_path)
    context = listening.tls_context(tmp_path / "server.crt", tmp_path / "server.key")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    key = certificates.new_key()
    now = datetime.now(UTC)
    ca = certificates.Pair(certificates.make_ca(key, name="new", now=now), key)
    (tmp_path / "new.crt").write_bytes(certificates.make_server(ca, key, hosts=["localhost"], now=now))
    (tmp_path / "new.key").write_bytes(key)
    context.load_cert_chain(tmp_path / "new.crt", tmp_path / "new.key")


def test_tls_buffers_are_small(server: Serving) -> None:
    assert server.get("/healthz").code == 200
    assert sslproto.SSLProtocol.max_size == listening.TLS_BUFFER


def test_a_certificates_subject_is_read() -> None:
    subject = ((("organizationName", "netloom:admin"),), (("organizationName", "people"),), (("commonName", "x"),))
    assert certificate({"subject": subject}) == Certificate("x", ("netloom:admin", "people"))
    assert certificate({"subject": ()}) == Certificate("")
    assert certificate(None) is None
    assert certificate({}) is None


def test_request_targets_are_paths_or_urls() -> None:
    assert target(b"/a/b?c=d") == (b"/a/b", b"c=d")
    assert target(b"/a?b#c") == (b"/a", b"b")
    assert target(b"https://host:1/a?b=c") == (b"/a", b"b=c")


def test_a_port_in_use_is_said(server: Serving) -> None:
    with pytest.raises(OSError, match="in use"):
        listening.bind("127.0.0.1", server.port)


def test_the_other_family_can_be_bound() -> None:
    with contextlib.closing(listening.bind("::1", 0)) as sock:
        assert sock.family is socket.AF_INET6


class Slow:
    """Refuses deletions of what is called `used`, and takes its time with creations."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.free = asyncio.Event()

    async def review(self, write: Write, store: Store) -> None:
        if write.operation is WriteOperation.DELETE and write.name == "used":
            raise Conflict(f'networks.netloom.dev "{write.name}" is in use by subnets "a", "b"')
        if write.operation is WriteOperation.CREATE and write.name == "slow":
            self.entered.set()
            await self.free.wait()


def test_admission_refuses_what_is_in_use(credentials: Path) -> None:
    with serving(credentials, admissions=[Slow()]) as server:
        for name in ("used", "free"):
            server.post(path("networks"), network(name))
        refused = server.delete(path("networks", name="used"))
        assert (refused.code, refused.json["reason"]) == (409, "Conflict")
        assert "in use" in refused.json["message"]
        assert server.delete(path("networks", name="free")).code == 200


def test_a_server_that_stops_lets_requests_finish(credentials: Path) -> None:
    rule = Slow()
    codes: list[int] = []
    with serving(credentials, admissions=[rule], limits=Limits(grace_seconds=10)) as server:
        thread = threading.Thread(target=lambda: codes.append(server.post(path("networks"), network("slow")).code))
        thread.start()
        assert rule.entered.wait(120)
        server.loop.call_soon_threadsafe(server.loop.call_later, 0.3, rule.free.set)
    thread.join(10)
    assert codes == [201]


def test_a_request_that_takes_too_long_is_given_up(credentials: Path) -> None:
    with serving(credentials, admissions=[Slow()], limits=Limits(request_seconds=0.2)) as server:
        late = server.post(path("networks"), network("slow"))
        assert (late.code, late.json["reason"]) == (504, "Timeout")
        assert server.get(path("networks")).json["items"] == []


class Broken(MemoryStore):
    """A store with a bug."""

    async def revision(self) -> int:
        raise RuntimeError("secret detail")


def test_a_bug_is_answered_with_500_and_no_details(credentials: Path) -> None:
    with serving(credentials, store=Broken()) as server:
        answer = server.get(path("networks") + "?resourceVersion=5")
        assert (answer.code, answer.json["reason"]) == (500, "InternalError")
        assert b"secret" not in answer.body
        assert server.get("/healthz").code == 200


def test_many_come_and_go_and_nothing_is_left(server: Serving) -> None:
    def visit() -> None:
        for _ in range(5):
            assert server.get(path("networks")).code == 200

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: server.server.connections == 0)


def test_what_cannot_be_read_is_for_people_of_all_namespaces(server: Serving) -> None:
    path = "/apis/netloom.dev/v1alpha1/damaged"
    assert server.get(path).json == {"kinds": len(list(KINDS)), "items": []}
    assert server.get(path, who="n1").code == 403
    assert server.get(path, who="").code == 401
    assert server.post(path, {}).code == 405
