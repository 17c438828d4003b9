"""Many watches over one connection: each is what it would have been alone."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.http.limits import Limits
from netloom.front.api.verbs.streams import LONGEST_LINE, PATH
from tests.front.serving import Serving, attachment, network, path, serving
from tests.support.process import wait_until


class Stream:
    """A request and its answer, both open."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._answer = connection.makefile("rb")
        self.head = b"".join(iter(self._answer.readline, b"\r\n")).decode()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()

    def send(self, line: bytes) -> None:
        self._connection.sendall(b"%x\r\n%b\r\n" % (len(line) + 1, line + b"\n"))

    def begin(self, number: int, target: str) -> None:
        self.send(json.dumps({"begin": number, "path": target}).encode())

    def end(self, number: int) -> None:
        self.send(json.dumps({"end": number}).encode())

    def chunk(self) -> bytes:
        """Return the next chunk; b"" at the end."""
        size = int(self._answer.readline() or b"0", 16)
        data = self._answer.read(size)
        self._answer.readline()
        return data

    def take(self, count: int) -> list[Any]:
        """Return so many lines."""
        lines: list[bytes] = []
        while len(lines) < count:
            found = self.chunk()
            assert found, "the stream ended"
            lines += found.splitlines()
        assert len(lines) == count
        return [json.loads(line) for line in lines]

    def lines(self) -> list[Any]:
        """Return all lines until the stream ends."""
        whole = b"".join(iter(self.chunk, b""))
        return [json.loads(line) for line in whole.splitlines()]


@contextmanager
def stream(server: Serving, who: str = "admin") -> Iterator[Stream]:
    plain = socket.create_connection(("127.0.0.1", server.port), 30)
    with closing(server.tls().wrap_socket(plain, server_hostname="127.0.0.1")) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {who}-token\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        made = Stream(connection)
        try:
            yield made
        finally:
            made.close()


def watching(server: Serving, plural: str, query: str = "", namespace: str = "default") -> str:
    """Return the target of a watch from now on."""
    revision = server.get(path(plural, namespace=namespace)).json["metadata"]["resourceVersion"]
    return f"{path(plural, namespace=namespace)}?watch=true&resourceVersion={revision}{query}"


def told(lines: list[Any]) -> list[tuple[int, str, str]]:
    return [(line["watch"], line["type"], line["object"].get("metadata", {}).get("name", "")) for line in lines]


def test_each_watch_is_told_what_is_its_own(server: Serving) -> None:
    nets, atts = watching(server, "networks"), watching(server, "networkattachments")
    with stream(server) as both:
        assert both.head.startswith("HTTP/1.1 200 ")
        both.begin(1, nets)
        both.begin(2, atts)
        assert sorted(told(both.take(2))) == [(1, "BEGUN", ""), (2, "BEGUN", "")]
        server.post(path("networks"), network("blue"))
        assert told(both.take(1)) == [(1, "ADDED", "blue")]
        server.post(path("networkattachments"), attachment("web"))
        assert told(both.take(1)) == [(2, "ADDED", "web")]
        assert len(server.api.watches) == 2
        assert sum(server.api.watches.open.values()) == 2
        both.end(1)
        wait_until(lambda: len(server.api.watches) == 1, what="the first watch to end")
        server.delete(path("networks", name="blue"))
        server.delete(path("networkattachments", name="web"))
        assert told(both.take(1)) == [(2, "DELETED", "web")]
    wait_until(lambda: len(server.api.watches) == 0, what="all watches to end with their connection")


def test_what_was_missed_comes_first(server: Serving) -> None:
    target = watching(server, "networks")
    for name in ("a", "b", "c"):
        server.post(path("networks"), network(name))
    with stream(server) as one:
        one.begin(5, target)
        assert told(one.take(4)) == [(5, "BEGUN", ""), (5, "ADDED", "a"), (5, "ADDED", "b"), (5, "ADDED", "c")]


def test_a_watch_that_may_not_be_or_cannot_be_costs_itself_only(server: Serving) -> None:
    target = watching(server, "networks")
    with stream(server, "viewer-a") as one:
        one.begin(1, target)
        one.begin(2, target.replace("watch=true&", ""))
        one.begin(3, "/nowhere")
        one.begin(4, watching(server, "networks", namespace="a"))
        lines = {line["watch"]: line for line in one.take(4)}
    assert [lines[n]["object"].get("code") for n in (1, 2, 3, 4)] == [403, 400, 404, None]
    assert lines[4]["type"] == "BEGUN"


def test_a_revision_that_is_gone_is_said_so(server: Serving) -> None:
    with stream(server) as one:
        one.begin(1, f"{path('networks')}?watch=true&resourceVersion=99999")
        [line] = one.take(1)
    assert (line["type"], line["object"]["code"] in (410, 504)) == ("ERROR", True)


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b'{"begin":"x"}', b"x" * (LONGEST_LINE + 1), b'{"x":' + b"[" * 30_000, b'{"path":"\xff"}'],
    ids=["text", "types", "length", "depth", "encoding"],
)
def test_who_does_not_speak_the_protocol_is_cut_off(
    server: Serving, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with stream(server) as one:
        one.begin(1, watching(server, "networks"))
        one.take(1)
        one.send(line)
        wait_until(lambda: len(server.api.watches) == 0, what="the watch to end")
    assert server.get(path("networks")).code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_number_is_one_watch_at_a_time(server: Serving) -> None:
    target = watching(server, "networks")
    with stream(server) as one:
        one.begin(1, target)
        one.take(1)
        one.begin(1, target)
        wait_until(lambda: len(server.api.watches) == 0, what="the watch to end")


def test_so_many_and_no_more(credentials: Path) -> None:
    with serving(credentials, limits=Limits(watches_per_stream=1)) as server, stream(server) as one:
        target = watching(server, "networks")
        one.begin(1, target)
        one.begin(2, target)
        codes = {line["watch"]: line["object"].get("code") for line in one.take(2)}
    assert codes == {1: None, 2: 429}


def test_bookmarks_say_how_far_all_have_come(credentials: Path) -> None:
    with serving(credentials, limits=Limits(bookmark_seconds=0.05)) as server, stream(server) as one:
        one.begin(1, watching(server, "networks"))
        one.take(1)
        server.post(path("networkattachments"), attachment("web"))
        revision = int(server.get(path("networks")).json["metadata"]["resourceVersion"])
        while True:
            [line] = one.take(1)
            assert (line["watch"], line["type"]) == (0, "BOOKMARK")
            if int(line["object"]["metadata"]["resourceVersion"]) >= revision:
                break


def test_a_stream_ends_in_order_when_its_time_is_over(credentials: Path) -> None:
    with serving(credentials, limits=Limits(watch_seconds=1.0)) as server:
        target = watching(server, "networks")  # Before its time begins to run.
        with stream(server) as one:
            one.begin(1, target)
            lines = b"".join(iter(one.chunk, b""))
    assert b'"BEGUN"' in lines


def test_a_stream_is_counted_as_what_it_carries(credentials: Path) -> None:
    seen: list[Any] = []
    with serving(credentials, observe=seen.append) as server, stream(server) as one:
        one.begin(1, watching(server, "networks"))
        one.take(1)
        one.close()
        wait_until(lambda: len(server.api.watches) == 0, what="the watch to end")
    assert ("watch", "networks", 200) in [(it.verb, it.resource, it.code) for it in seen]
    assert ("watch", "", 200) in [(it.verb, it.resource, it.code) for it in seen]


def test_only_who_comes_directly_is_offered_it(server: Serving) -> None:
    assert server.get(path("networks")).headers["netloom-watches"]
    assert "netloom-watches" not in server.get(path("networks"), X_Forwarded_For="192.0.2.1").headers
    assert server.get(PATH).code == 405


def test_nobody_unknown_gets_a_stream(server: Serving) -> None:
    with stream(server, "stranger") as one:
        assert one.head.startswith("HTTP/1.1 401 ")
