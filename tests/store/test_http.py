"""The HTTP client, against a server that behaves and misbehaves on demand."""

import asyncio
import ssl
from contextlib import closing
from pathlib import Path

import pytest

from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable
from netloom.store.http.client import Client
from netloom.store.http.connect import Refused, tls_context
from tests.store.certificates import certificate
from tests.store.fakeserver import END, STREAM, Request, always, chunk, in_turn, reply, serving
from tests.support.process import free_port


def test_connections_are_kept_and_used_again() -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"hello", "X-Note: 1"))) as server:
            client = Client(server.url + "/base/", headers=lambda: {"Authorization": "Bearer t"})
            for _ in range(3):
                response = await client.request("POST", "/path?q=1", body=b"{}")
                assert (response.status, response.body, response.headers["x-note"]) == (200, b"hello", "1")
            assert server.connections == 1
            asked = server.requests[0]
            assert (asked.method, asked.target, asked.body) == ("POST", "/base/path?q=1", b"{}")
            assert asked.headers["authorization"] == "Bearer t"
            assert asked.headers["content-type"] == "application/json"
            await client.close()
            with pytest.raises(Unreachable, match="closed"):
                await client.request("GET", "/")

    asyncio.run(go())


def test_no_more_requests_are_under_way_than_allowed() -> None:
    async def go() -> None:
        under_way = most = 0

        async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(5):
                await asyncio.sleep(0)
            under_way -= 1
            writer.write(reply(200))

        async with serving(answer) as server:
            client = Client(server.url, connections=3)
            await asyncio.gather(*(client.request("GET", "/") for _ in range(20)))
            assert (most, server.connections) == (3, 3)
            await client.close()

    asyncio.run(go())


def test_a_server_that_is_not_there_certainly_did_nothing() -> None:
    async def go() -> None:
        client = Client(f"http://127.0.0.1:{free_port()}")
        with pytest.raises(Refused, match="cannot connect to"):
            await client.request("POST", "/")
        with pytest.raises(Refused):
            await client.stream("GET", "/")

    asyncio.run(go())


def test_a_server_that_does_not_answer_in_time_may_have_acted() -> None:
    async def go() -> None:
        async def silence(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with serving(silence) as server:
            client = Client(server.url, timeout=0.05)
            with pytest.raises(TimedOut, match=r"did not answer within 0\.05 s"):
                await client.request("GET", "/")
            with pytest.raises(TimedOut):
                await client.stream("GET", "/")
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", STREAM + b"zz\r\n"]
)
def test_an_answer_that_is_none_is_the_servers_fault(answer: bytes) -> None:
    async def go() -> None:
        async def answer_and_go(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await writer.drain()
            writer.close()

        async with serving(answer_and_go) as server:
            client = Client(server.url)
            with pytest.raises(Unreachable) as caught:
                await client.request("POST", "/")
            assert not isinstance(caught.value, Refused)
            await client.close()

    asyncio.run(go())


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"x" * 5000))) as server:
            client = Client(server.url, max_body=4999)
            with pytest.raises(TooLarge):
                await client.request("GET", "/")
            await client.close()

    asyncio.run(go())


def test_endless_headers_are_refused() -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"", "X-Long: " + "x" * 1_000_000))) as server:
            client = Client(server.url)
            with pytest.raises(Unreachable):
                await client.request("GET", "/")
            await client.close()

    asyncio.run(go())


def test_a_kept_connection_that_the_server_closed_is_noticed() -> None:
    async def go() -> None:
        async with serving(always(reply(200))) as server:
            client = Client(server.url)
            await client.request("GET", "/")
            server.hang_up()
            await asyncio.sleep(0.01)  # Let the news arrive; it does not matter whether it does.
            await client.request("GET", "/")
            assert server.connections == 2
            await client.close()

    asyncio.run(go())


def test_a_client_closes_after_a_kept_connection_was_lost() -> None:
    async def go() -> None:
        async with serving(always(reply(200))) as server:
            client = Client(server.url)
            await client.request("GET", "/")
            server.hang_up()
            await asyncio.sleep(0.1)  # Let the news arrive.
            async with asyncio.timeout(120):
                await client.close()

    asyncio.run(go())


def test_reading_is_tried_again_when_a_kept_connection_breaks_and_writing_is_not() -> None:
    async def go() -> None:
        async def once(request: Request, writer: asyncio.StreamWriter) -> None:
            if request.target == "/break" and len(server.requests) < 3:
                writer.transport.abort()
                return
            writer.write(reply(200, request.method.encode()))

        async with serving(once) as server:
            client = Client(server.url)
            await client.request("GET", "/")
            assert (await client.request("GET", "/break")).body == b"GET"
            server.requests.clear()
            with pytest.raises(Unreachable):
                await client.request("POST", "/break")
            await client.close()

    asyncio.run(go())


def test_a_server_that_wants_to_close_is_let_go() -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"", "Connection: close"))) as server:
            client = Client(server.url)
            await client.request("GET", "/")
            await client.request("GET", "/")
            assert server.connections == 2
            await client.close()

    asyncio.run(go())


def test_a_stream_is_read_as_it_comes() -> None:
    async def go() -> None:
        async with serving(always(STREAM + chunk(b"one") + chunk(b"two") + END)) as server:
            client = Client(server.url)
            with closing(await client.stream("GET", "/")) as stream:
                assert stream.status == 200
                assert await stream.read() + await stream.read() == b"onetwo"
                assert await stream.read() == b""
            stream.close()
            await client.close()

    asyncio.run(go())


def test_closing_the_client_ends_its_streams() -> None:
    async def go() -> None:
        async with serving(always(STREAM)) as server:
            client = Client(server.url)
            stream = await client.stream("GET", "/")
            reading = asyncio.ensure_future(stream.read())
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(Unreachable, match="connection was lost"):
                await reading

    asyncio.run(go())


def test_information_before_the_answer_is_skipped() -> None:
    async def go() -> None:
        async with serving(in_turn(b"HTTP/1.1 103 Early Hints\r\n\r\n" + reply(200, b"ok"))) as server:
            client = Client(server.url)
            assert (await client.request("GET", "/")).body == b"ok"
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize("by", [1, 7, 1000])
def test_where_an_answer_is_cut_makes_no_difference(by: int) -> None:
    whole = (
        b"HTTP/1.1 100 Continue\r\nX-Note: no\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nX-Note:  yes \r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(b"one") + b"3;name=value\r\ntwo\r\n0\r\nX-Trailer: dropped\r\n\r\n"
    )  # fmt: skip

    async def go() -> None:
        async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
            for at in range(0, len(whole), by):
                writer.write(whole[at : at + by])
                await asyncio.sleep(0)

        async with serving(cut) as server:
            client = Client(server.url)
            for _ in range(2):
                found = await client.request("GET", "/")
                assert (found.status, found.body) == (200, b"onetwo")
                assert found.headers == {"x-note": "yes", "transfer-encoding": "chunked"}
            assert server.connections == 1
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize("end", [b"0\r\nX-Long: ", b"1;", b"0\r\n" + b"X: y\r\n" * 1000 + b"X-Long: "])
def test_endless_trailers_and_chunk_extensions_are_refused(end: bytes) -> None:
    async def go() -> None:
        async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(STREAM + chunk(b"one") + end)
            while not writer.is_closing():
                writer.write(b"x" * 10_000)
                await writer.drain()

        async with serving(endless) as server:
            client = Client(server.url)
            with pytest.raises(Unreachable, match="bytes of headers"):
                await client.request("GET", "/")
            assert client.meter.received < 1 << 20
            await client.close()

    asyncio.run(go())


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def go() -> None:
        async def until_close(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
            await writer.drain()
            writer.close()

        async with serving(until_close) as server:
            client = Client(server.url)
            for _ in range(2):
                assert (await client.request("GET", "/")).body == b"all of it"
            assert server.connections == 2
            await client.close()

    asyncio.run(go())


def test_an_answer_that_nobody_asked_for_is_never_taken_for_the_next_one() -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"mine") + reply(200, b"not mine"))) as server:
            client = Client(server.url)
            for _ in range(3):
                assert (await client.request("GET", "/")).body == b"mine"
            assert server.connections == 3
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize("late", [reply(200, b"late"), b"HTTP/1.1 100 Continue\r\n\r\n", b"H"], ids=len)
def test_what_arrives_on_an_idle_connection_is_never_taken_for_an_answer(late: bytes) -> None:
    async def go() -> None:
        async with serving(always(reply(200, b"mine"))) as server:
            client = Client(server.url)
            assert (await client.request("GET", "/")).body == b"mine"
            server.writers[0].write(late)
            await asyncio.sleep(0.05)
            assert (await client.request("GET", "/")).body == b"mine"
            assert server.connections == 2
            await client.close()

    asyncio.run(go())


def test_a_stream_that_is_not_read_holds_up_its_server() -> None:
    async def go() -> None:
        async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(STREAM)
            while not writer.is_closing():
                writer.write(chunk(b"x" * 60_000))
                await writer.drain()

        async with serving(flood) as server:
            client = Client(server.url)
            with closing(await client.stream("GET", "/")) as stream:
                before = -1
                while client.meter.received > before:  # Until the buffers of both sides are full.
                    before = client.meter.received
                    await asyncio.sleep(0.1)
                assert before < 1 << 20
                assert len(await stream.read()) < 1 << 20
                while client.meter.received == before:
                    await stream.read()
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("path", "token"), [("/a b", "t"), ("/a\r\nX: y", "t"), ("/ü", "t"), ("/", "t\r\nX: y"), ("/", "t\n"), ("/", "ü")]
)
def test_a_request_is_never_more_than_one(path: str, token: str) -> None:
    async def go() -> None:
        async with serving(always(reply(200))) as server:
            client = Client(server.url, headers=lambda: {"Authorization": f"Bearer {token}"})
            with pytest.raises(BadRequest, match="characters that HTTP does not allow"):
                await client.request("GET", path)
            assert server.requests == []
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://", ""])
def test_an_address_must_be_one(url: str) -> None:
    with pytest.raises(BadRequest, match="is not an http:// or https:// address"):
        Client(url)


def test_tls_trusts_the_given_authority_and_shows_the_given_certificate(tmp_path: Path) -> None:
    ca, ca_key = certificate("ca", None)
    server_pem, server_key = certificate("server", (ca, ca_key))
    client_pem, client_key = certificate("client", (ca, ca_key))
    (tmp_path / "server.pem").write_bytes(server_pem + server_key)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(tmp_path / "server.pem")
    listening.load_verify_locations(cadata=ca.decode())
    listening.verify_mode = ssl.CERT_OPTIONAL

    async def go() -> None:
        shown: list[object] = []

        async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
            shown.append(writer.get_extra_info("peercert"))
            writer.write(reply(200, b"secret"))

        async with serving(answer, tls=listening) as server:
            known = Client(server.url, tls=tls_context(ca=ca, certificate=client_pem, key=client_key))
            assert (await known.request("GET", "/")).body == b"secret"
            assert shown[-1]
            careless = Client(server.url, tls=tls_context(insecure=True))
            assert (await careless.request("GET", "/")).body == b"secret"
            for wrong in (
                Client(server.url),
                Client(server.url, tls=tls_context(ca=ca), server_name="other.example"),
            ):
                with pytest.raises(Refused, match="certificate verify failed"):
                    await wrong.request("GET", "/")
            for client in (known, careless):
                await client.close()

    asyncio.run(go())


def test_certificates_that_cannot_be_read_are_refused_with_words() -> None:
    with pytest.raises(BadRequest, match="the certificates cannot be used"):
        tls_context(ca=b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(BadRequest):
        tls_context(certificate=b"nonsense", key=b"nonsense")
