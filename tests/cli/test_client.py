"""The command line's HTTP client against a server that misbehaves: a real one, that executes what a test scripts."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from netloom.client import http as clients
from netloom.client.http import Client
from netloom.errors import Forbidden, Internal, Invalid, NotFound, TooManyRequests, Unreachable

Script = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def served(*scripts: Script, on_warning: Callable[[str], None] = lambda text: None) -> Iterator[Client]:
    """Give a client of a server that answers its n-th request by the n-th script, and all later ones by the last."""
    left = list(scripts)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            (left.pop(0) if len(left) > 1 else left[0])(self)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    client = Client(
        f"http://127.0.0.1:{server.server_port}",
        ssl.create_default_context(),
        lambda: {"Authorization": "Bearer x"},
        on_warning=on_warning,
    )
    try:
        yield client
    finally:
        client.close()
        server.shutdown()
        server.server_close()
        thread.join()


def answering(status: int, body: bytes | dict[str, object], **headers: str) -> Script:
    def script(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return script


def closing_after(script: Script) -> Script:
    """Answer, and close the connection without having said so."""

    def close(handler: BaseHTTPRequestHandler) -> None:
        script(handler)
        handler.close_connection = True

    return close


def hanging_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def streaming(*lines: bytes) -> Script:
    def script(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for line in lines:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        handler.wfile.write(b"0\r\n\r\n")

    return script


STATUS = {
    "kind": "Status",
    "code": 422,
    "reason": "Invalid",
    "message": 'Network "x" is invalid: spec.vni: too big',
    "details": {"causes": [{"field": "spec.vni", "message": "too big", "reason": "FieldValueInvalid"}]},
}


def test_a_status_comes_out_as_the_error_it_names() -> None:
    with served(answering(422, STATUS)) as client, pytest.raises(Invalid) as caught:
        client.get("/x")
    assert [str(cause) for cause in caught.value.causes] == ["spec.vni: too big"]


@pytest.mark.parametrize(
    ("status", "error"), [(404, NotFound), (403, Forbidden), (418, Internal), (502, Internal), (503, Unreachable)]
)
def test_an_error_without_a_status_is_the_nearest(status: int, error: type[Exception]) -> None:
    with served(answering(status, b"<html>proxy</html>")) as client, pytest.raises(error, match="proxy"):
        client.get("/x")


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"x"'])
def test_what_is_no_object_is_not_taken_for_one(body: bytes) -> None:
    with served(answering(200, body)) as client, pytest.raises(Internal, match="is not a Kubernetes API server"):
        client.get("/x")


def test_too_many_requests_are_tried_again_when_the_server_says() -> None:
    busy = answering(429, {"kind": "Status", "reason": "TooManyRequests", "message": "busy"}, Retry_After="0")
    with served(busy, busy, answering(200, {"a": 1})) as client:
        assert client.get("/x") == {"a": 1}
    with served(busy) as client, pytest.raises(TooManyRequests):
        client.get("/x")


@pytest.mark.parametrize(("asked", "seconds"), [("3", 3), ("600", 10), ("", 1), ("soon", 1), ("-1", 1), ("٣", 1)])
def test_the_pause_is_what_was_asked_for_within_reason(asked: str, seconds: float) -> None:
    assert clients._pause(asked) == seconds


def test_warnings_are_passed_on() -> None:
    heard: list[str] = []
    with served(answering(200, {}, Warning='299 - "the \\"old\\" way"'), on_warning=heard.append) as client:
        client.get("/x")
    assert heard == ['the "old" way']


def test_a_kept_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    with served(closing_after(answering(200, {"n": 1})), answering(200, {"n": 2})) as client:
        assert client.get("/x") == {"n": 1}
        assert client.get("/x") == {"n": 2}


def test_a_request_that_may_have_been_done_is_not_sent_twice() -> None:
    with served(answering(200, {}), hanging_up, answering(200, {})) as client:
        client.get("/x")
        with pytest.raises(Unreachable):
            client.call("POST", "/x", body={})


def test_a_server_that_hangs_up_is_unreachable() -> None:
    with served(hanging_up) as client, pytest.raises(Unreachable, match="cannot reach http://127"):
        client.get("/x")


def test_events_come_whole_however_they_are_cut() -> None:
    whole = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n{"type":"BOOKMARK","object":{}}\n'
    for cut in (1, 10, 51, 60):
        with served(streaming(whole[:cut], whole[cut:])) as client:
            assert [event["type"] for event in client.stream("/x", {})] == ["ADDED", "BOOKMARK"]


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":3}\n'])
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with served(streaming(line)) as client, pytest.raises(Internal, match="not a watch event"):
        list(client.stream("/x", {}))


def test_a_refused_watch_says_why() -> None:
    with served(answering(422, STATUS)) as client, pytest.raises(Invalid):
        list(client.stream("/x", {}))
