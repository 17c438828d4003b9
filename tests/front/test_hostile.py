"""What strangers send: each gets a right answer or none, nothing is stored, and the server goes on."""

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.http.limits import Limits
from tests.front.serving import Serving, attachment, network, path, serving, wait_until

IMPATIENT = Limits(
    headers_seconds=0.5, body_seconds=0.5, idle_seconds=2.0, write_seconds=0.5, handshake_seconds=0.5, grace_seconds=1.0
)


@pytest.fixture
def impatient(credentials: Path) -> Iterator[Serving]:
    with serving(credentials, limits=IMPATIENT) as running:
        yield running


@contextlib.contextmanager
def raw(server: Serving) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to write anything to."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=120) as sock,
        server.tls().wrap_socket(sock, server_hostname="127.0.0.1") as wrapped,
    ):
        yield wrapped


def head(method: str, target: str, *lines: str) -> bytes:
    return "\r\n".join(
        [f"{method} {target} HTTP/1.1", "Host: x", "Authorization: Bearer admin-token", *lines, "", ""]
    ).encode()


def everything(sock: ssl.SSLSocket) -> bytes:
    """Read until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := sock.recv(65536):
            found += chunk
    return found


def unharmed(server: Serving, stored: int = 0) -> None:
    listed = server.get(path("networks"))
    assert listed.code == 200
    assert len(listed.json["items"]) == stored
    assert server.post(path("networks") + "?dryRun=All", network("probe")).code == 201


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"nonsense", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'"text"', "application/json", 400),
        (b"null", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"a":1}{"b":2}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "application/json", 400),
        (b": : :", "application/yaml", 400),
        (b"a: 1\n---\nb: 2\n", "application/yaml", 400),
        (b"a: &a [x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "application/yaml", 400),
        (b"!!python/object/apply:os.system [id]", "application/yaml", 400),
        (b"{" * 10_000, "application/yaml", 400),
        (b"k8s\x00\x0a", "application/vnd.kubernetes.protobuf", 415),
        (b"<xml/>", "application/xml", 415),
        (b"{}", "nonsense", 415),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_body_that_is_no_document_is_refused(server: Serving, body: bytes, media: str, code: int) -> None:
    answer = server.post(path("networks"), body, media=media)
    assert answer.code == code
    assert answer.json["kind"] == "Status"
    unharmed(server)


def test_a_key_written_twice_is_refused(server: Serving) -> None:
    text = json.dumps(network(vni=5)).replace('"vni": 5', '"vni": 5, "vni": 6').encode()
    answer = server.post(path("networks"), text)
    assert answer.code == 400
    assert "vni" in answer.json["message"]
    yaml = b"apiVersion: netloom.dev/v1alpha1\nkind: Network\nmetadata: {name: a, name: b}\n"
    assert server.post(path("networks"), yaml, media="application/yaml").code == 400
    unharmed(server)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": []},
        {"spec": {"vni": "ten"}},
        {"spec": {"vni": 1e400}},
        {"spec": {"vni": 2**70}},
        {"spec": {"mtu": True}},
        {"spec": {"provider": "x"}},
        {"metadata": {"name": 5}},
        {"metadata": {"name": "x" * 300}},
        {"metadata": {"name": "a/b"}},
        {"metadata": {"name": "../../etc/passwd"}},
        {"metadata": {"name": "Blue Net"}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": "blue", "labels": {"a": 1}}},
        {"metadata": {"name": "blue", "labels": {"a b": "c"}}},
        {"metadata": {"name": "blue", "annotations": {"big": "x" * 300_000}}},
        {"metadata": {"name": "blue", "ownerReferences": [{"name": "x"}]}},
        {"metadata": {"name": "blue", "finalizers": "all"}},
        {"metadata": {"name": "blue", "resourceVersion": "7"}},
        {"metadata": {"name": "blue", "somethingElse": 1}},
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_an_object_that_is_wrong_is_refused(server: Serving, change: dict[str, Any]) -> None:
    answer = server.post(path("networks"), network() | change)
    assert answer.code in (400, 422), answer.body
    assert answer.json["message"]
    unharmed(server)


@pytest.mark.parametrize(
    "target",
    [
        path("networks", name="x" * 300),
        path("networks", name="a%2Fb"),
        path("networks", namespace="x" * 300),
        path("networks", name="a%00b"),
        path("networks", name="%ff%fe"),
        path("networks", name=".."),
        "//apis//netloom.dev",
        "/apis/netloom.dev/v1alpha1/" + "networks/" * 50,
        path("networks") + "?labelSelector=" + "a," * 5000,
        path("networks") + "?labelSelector=(((",
        path("networks") + "?fieldSelector=spec.secret=1",
        path("networks") + "?limit=" + "9" * 400,
        path("networks") + "?resourceVersion=" + "9" * 400,
        path("networks") + "?continue=" + "A" * 5000,
        path("networks") + "?" + "&".join(f"x{i}=1" for i in range(500)),
    ],
    ids=lambda value: value[:60],
)
def test_a_path_or_query_that_means_nothing_is_refused(server: Serving, target: str) -> None:
    answer = server.get(target)
    assert answer.code in (400, 404)
    assert answer.json["kind"] == "Status"
    unharmed(server)


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json-patch+json", [{"op": "add", "path": "/spec/fabric", "value": "linux"}]),
        ("application/json-patch+json", [{"op": "replace", "path": "/metadata/name", "value": "red"}]),
        ("application/json-patch+json", [{"op": "replace", "path": "", "value": []}]),
        ("application/json-patch+json", [{"op": "remove", "path": "/metadata"}]),
        ("application/json-patch+json", [{"op": "explode", "path": "/spec"}]),
        ("application/json-patch+json", [{"op": "copy", "from": "", "path": "/spec/x"}] * 100),
        ("application/json-patch+json", {"a": 1}),
        ("application/json-patch+json", [1, 2]),
        ("application/merge-patch+json", {"spec": {"fabric": "linux"}}),
        ("application/merge-patch+json", {"spec": {"vni": 8}}),
        ("application/merge-patch+json", {"kind": "Subnet"}),
        ("application/merge-patch+json", {"metadata": None}),
        ("application/merge-patch+json", {"metadata": {"uid": "x"}}),
        ("application/merge-patch+json", []),
        ("application/merge-patch+json", "x"),
        ("application/apply-patch+yaml", []),
        ("application/apply-patch+yaml", network(fabric="linux")),
        ("application/apply-patch+yaml", network("red")),
        ("application/apply-patch+yaml", network() | {"metadata": {"name": "blue", "managedFields": [{}]}}),
        ("application/apply-patch+yaml", network() | {"spec": "x"}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_patch_that_breaks_the_object_changes_nothing(server: Serving, media: str, body: Any) -> None:
    before = server.post(path("networks"), network(vni=7, fabric="ovn")).json
    target = path("networks", name="blue")
    query = "?fieldManager=me&force=true" if "apply" in media else ""
    answer = server.patch(target + query, body, media)
    assert answer.code in (400, 409, 422), answer.body
    assert server.get(target).json == before
    unharmed(server, 1)


def test_a_stale_or_absurd_revision_is_refused(server: Serving) -> None:
    made = server.post(path("networks"), network()).json
    for revision, code in (("1", 409), ("99999999", 409), ("x", 409), (5, 422)):
        body = made | {"metadata": made["metadata"] | {"resourceVersion": revision}}
        assert server.put(path("networks", name="blue"), body).code in (code, 400), revision
    assert server.get(path("networks", name="blue")).json == made


def test_a_body_too_large_is_refused_before_it_is_read(credentials: Path) -> None:
    with serving(credentials, limits=Limits(body=10_000)) as server:
        big = network() | {"metadata": {"name": "blue", "annotations": {"a": "x" * 20_000}}}
        answer = server.post(path("networks"), big)
        assert (answer.code, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert answer.headers["Connection"] == "close"
        with raw(server) as sock:  # In chunks, without saying how large it will be.
            sock.sendall(head("POST", path("networks"), "Transfer-Encoding: chunked", "Content-Type: application/json"))
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                for _ in range(100):
                    sock.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
            assert everything(sock).startswith(b"HTTP/1.1 413")
        unharmed(server)


def test_a_request_larger_than_three_megabytes_is_too_large(server: Serving) -> None:
    assert server.post(path("networks"), b" " * (3 * 1024 * 1024 + 1)).code == 413
    assert server.post(path("networks"), b" " * (3 * 1024 * 1024 - 1)).code == 400
    unharmed(server)


def test_headers_without_end_are_refused(server: Serving) -> None:
    with raw(server) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for i in range(3000):
                sock.sendall(b"X-Long-%d: %b\r\n" % (i, b"y" * 100))
        assert everything(sock).startswith(b"HTTP/1.1 431")
    unharmed(server)


def test_a_url_without_end_is_refused(server: Serving) -> None:
    with raw(server) as sock:
        sock.sendall(b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert everything(sock).startswith(b"HTTP/1.1 414")
    unharmed(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: ten\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_request_is_refused_and_closed(server: Serving, data: bytes) -> None:
    with raw(server) as sock:
        sock.sendall(data)
        assert everything(sock).startswith(b"HTTP/1.1 400")
    unharmed(server)


def test_garbage_instead_of_tls_is_dropped(server: Serving) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in sock.recv(1000)
    unharmed(server)
    wait_until(lambda: server.server.connections == 0)


def test_a_truncated_request_stores_nothing(server: Serving) -> None:
    body = json.dumps(network()).encode()
    request = head("POST", path("networks"), "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    for cut in (10, len(request) - len(body), len(request) - 20, len(request) - 1):
        with raw(server) as sock:
            sock.sendall(request[:cut])
    wait_until(lambda: server.server.connections == 0)
    unharmed(server)


@pytest.mark.slow
def test_slow_headers_slow_bodies_and_idlers_are_dropped(impatient: Serving) -> None:
    with raw(impatient) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert everything(sock) == b""
    with raw(impatient) as sock:
        sock.sendall(head("POST", path("networks"), "Content-Length: 1000") + b"{")
        assert everything(sock) == b""
    with raw(impatient) as sock:
        sock.sendall(head("GET", "/healthz"))
        assert everything(sock).endswith(b"ok")
    address = ("127.0.0.1", impatient.port)
    with socket.create_connection(address, timeout=120) as quiet, contextlib.suppress(ConnectionError):
        assert quiet.recv(1) == b""
    wait_until(lambda: impatient.server.connections == 0)
    unharmed(impatient)


def test_a_watcher_that_stops_reading_is_dropped_and_the_others_go_on(impatient: Serving) -> None:
    with raw(impatient) as sock, impatient.watching(path("networkattachments") + "?watch=1") as reader:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(head("GET", path("networkattachments") + "?watch=1"))
        wait_until(lambda: len(impatient.api.watches) == 2)
        body = attachment("a")
        body["metadata"]["annotations"] = {"text": "x" * 200_000}
        for i in range(60):
            body["metadata"]["name"] = f"a{i}"
            assert impatient.post(path("networkattachments"), body).code == 201
            assert reader.take(1) == [("ADDED", f"a{i}")]
        wait_until(lambda: len(impatient.api.watches) == 1)
    unharmed(impatient)


def test_a_lister_that_stops_reading_is_dropped(impatient: Serving) -> None:
    body = attachment("a")
    body["metadata"]["annotations"] = {"text": "x" * 200_000}
    for i in range(60):
        body["metadata"]["name"] = f"a{i}"
        impatient.post(path("networkattachments"), body)
    with raw(impatient) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(head("GET", path("networkattachments")))
        wait_until(lambda: impatient.server.connections == 0)
    unharmed(impatient)


def test_connections_are_limited_before_the_handshake(credentials: Path) -> None:
    with serving(credentials, limits=Limits(connections=3)) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                sock = stack.enter_context(raw(server))
                sock.sendall(head("GET", "/healthz"))
                assert sock.recv(1000).startswith(b"HTTP/1.1 200")
            with pytest.raises((ConnectionError, ssl.SSLError)):
                stack.enter_context(raw(server))
        wait_until(lambda: server.server.connections == 0)
        unharmed(server)


def test_one_client_may_not_take_all_connections(credentials: Path) -> None:
    with serving(credentials, limits=Limits(connections_per_client=1)) as server:
        with raw(server), pytest.raises((ConnectionError, ssl.SSLError)), raw(server):
            pass
        wait_until(lambda: server.server.connections == 0)
        assert server.get("/healthz").code == 200


def test_requests_may_follow_each_other_without_waiting(server: Serving) -> None:
    with raw(server) as sock:
        last = head("GET", "/version", "Connection: close")
        sock.sendall(head("GET", "/healthz") * 3 + head("GET", path("networks", name="x")) + last)
        answers = everything(sock)
    assert answers.count(b"HTTP/1.1 200") == 4
    assert answers.count(b"HTTP/1.1 404") == 1
    assert answers.index(b"404 Not Found") < answers.index(b"gitVersion")


def test_what_is_asked_of_an_answered_connection_later_is_answered_too(server: Serving) -> None:
    with raw(server) as sock:
        for _ in range(3):
            sock.sendall(head("GET", "/healthz"))
            assert sock.recv(1000).endswith(b"ok")


def test_a_client_may_ask_whether_to_go_on(server: Serving) -> None:
    body = json.dumps(network()).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue")
    with raw(server) as sock:
        sock.sendall(head("POST", path("networks"), *lines))
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
        sock.sendall(body)
        assert sock.recv(1000).startswith(b"HTTP/1.1 201")


def test_a_compressed_body_is_refused(server: Serving) -> None:
    assert server.post(path("networks"), b"\x1f\x8b", Content_Encoding="gzip").code == 400
    unharmed(server)
