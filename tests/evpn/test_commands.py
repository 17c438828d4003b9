"""`netloom evpn` against the control sockets of two sites, and what hostile clients send there."""

import asyncio
import contextlib
import io
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.shell_completion import ShellComplete
from msgspec.structs import replace

from netloom.bgp.nlri import EVPN, split
from netloom.bgp.rib import Relation, Source
from netloom.cli.main import cli, run
from netloom.control.evpn import live
from netloom.control.evpn.answers import SLICE, Request, answer
from netloom.control.runtime.cache import Key
from netloom.diagnose import evpn as diagnose
from netloom.diagnose.access import Access, Switch
from netloom.diagnose.explain.speakers import read_speaker
from netloom.errors import NotFound, Unreachable
from netloom.model.registry import EVPN_NETWORK
from netloom.plan.problem import Unit
from tests.evpn.sites import Site, eventually, sites

WEB, DB, TWIN = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
CROWD = 1024


class Said(NamedTuple):
    rc: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def netloom(site: Site, *words: str, path: str = "", sockets: bool = True) -> Said:
    """Run `netloom evpn` beside the event loop of the site."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["evpn", *words]
    if sockets:
        argv += ["--socket", path or str(site.folder / f"site{site.number}.sock")]

    def call() -> int:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return run(argv)

    return Said(await asyncio.to_thread(call), out.getvalue(), err.getvalue())


@contextlib.asynccontextmanager
async def two_sites(folder: Path, fabric: str = "ovn") -> AsyncIterator[tuple[Site, Site]]:
    """Give two sites; `WEB` is at the first one, `DB` at the second."""
    async with sites(folder) as (one, two):
        for site in (one, two):
            await site.stretch(fabric=fabric)
        await one.attach("web", WEB, ["10.0.0.1", "2001:db8::1"])
        await two.attach("db", DB, ["10.0.0.2"])

        async def known() -> bool:
            return set(await one.remote()) == {DB} and set(await two.remote()) == {WEB}

        await eventually(known, "the machines at the other site")
        yield one, two


def test_each_command_shows_what_the_speaker_knows(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            found = (await netloom(two, "summary", "-o", "json")).json
            (peer,) = found["peers"]
            assert (peer["address"], peer["state"], peer["name"]) == (one.address, "Established", "site1")
            assert (peer["received"], peer["sent"], peer["flaps"], peer["malformed"]) == (4, 3, 0, 0)
            assert [speaker["established"] for speaker in found["speakers"]] == [1]
            (network,) = found["networks"]
            assert (network["evpnNetwork"], network["local"], network["remote"]) == ("default/blue", 1, 1)
            assert (
                yaml.safe_load((await netloom(two, "summary", "-o", "yaml")).out)["peers"][0]["state"] == "Established"
            )

            table = (await netloom(two, "summary")).out.splitlines()
            assert table[0].startswith("BGPSpeaker default/main: AS 65000, router ID 192.0.2.2, listening on port")
            assert table[1].split() == [
                "PEER",
                "ADDRESS",
                "ASN",
                "STATE",
                "SINCE",
                "RECEIVED",
                "SENT",
                "FLAPS",
                "ERROR",
            ]
            assert table[2].split()[:4] == ["site1", one.address, "65000", "Established"]
            assert table[4].split() == ["default/blue", "blue", "10", "true", "1", "1", "1", "0"]

            rows = (await netloom(two, "macs")).out.splitlines()
            assert rows[0].split() == ["MAC", "IPS", "STATE", "VTEP", "VNI", "SEQ", "NETWORK"]
            assert rows[1].split() == [WEB, "10.0.0.1", "(+1)", "remote", one.vtep, "10", "0", "default/blue"]
            assert rows[2].split() == [DB, "10.0.0.2", "local", two.vtep, "10", "0", "default/blue"]
            macs = (await netloom(two, "macs", "-o", "json")).json
            assert [item["mac"] for item in macs] == [WEB, DB]
            assert macs == yaml.safe_load((await netloom(two, "macs", "-o", "yaml")).out)

            routes = (await netloom(two, "routes", "-o", "json")).json
            assert sorted({item["type"] for item in routes}) == [2, 3]
            assert all(item["evpnNetworks"] == ["default/blue"] for item in routes)
            theirs = (await netloom(two, "routes", "--peer", "site1", "--network", "blue", "-o", "json")).json
            assert {item["peer"] for item in theirs} == {one.address}
            assert len(theirs) == 4
            wide = (await netloom(two, "routes", "-o", "wide")).out
            assert "RT:65000:10" in wide or "65000:10" in wide

            (vtep,) = (await netloom(two, "vteps", "--peer", one.address, "-o", "json")).json
            assert (vtep["address"], vtep["vni"], vtep["macs"], vtep["flood"]) == (one.vtep, 10, 1, True)
            assert (vtep["port"], vtep["peers"]) == (f"vxlan_{one.vtep}_10", [one.address])
            assert "vxlan_192.0.2.1_10" in (await netloom(two, "vteps")).out

    asyncio.run(main())


def test_a_dump_has_the_peers_and_every_route(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (_, two):
            await crowd(two)
            file = tmp_path / "rib.mrt"
            said = await netloom(two, "dump", "--mrt", str(file))
            assert (said.rc, said.out) == (0, "")
            kinds = list(_records(file.read_bytes()))
            routes = [item for item in two.ask("routes") if item["best"]]
            assert kinds == [(13, 1), *[(13, 6)] * len(routes)]
            assert two.host is not None
            items = answer(two.host.running, Request("mrt"))
            next(items)
            rib = two.host.running[Key("default", "main")].speaker.rib  # A peer comes while the dump is made.
            best = next(reversed(rib.best[EVPN].values()))
            rib.add_source(new := Source("127.0.0.99", Relation.INTERNAL, IPv4Address("192.0.2.99"), 65000))
            theirs = replace(best.attributes, next_hop=new.router_id)
            rib.announce(new, EVPN, theirs, split(EVPN, best.route))
            assert len(rib.paths(EVPN, next(iter(split(EVPN, best.route))))) == 2
            assert len([item for item in items if item is not None]) == len(routes) // SLICE

    asyncio.run(main())


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield type and subtype of each record of a dump."""
    while data:
        kind, subtype, length = struct.unpack_from("!HHI", data, 4)
        assert len(data) >= 12 + length
        yield kind, subtype
        data = data[12 + length :]


def test_explain_names_routes_objects_and_ports(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            (found,) = (await netloom(two, "explain", WEB.upper().replace(":", "-"), "-o", "json")).json
            assert (found["object"], found["written"]) == (f"blue.{one.vtep.replace('.', '-')}.10.0", True)
            assert found["port"] == f"vxlan_{one.vtep}_10"
            assert [route["best"] for route in found["routes"]] == [True, False, False]
            assert found["routes"][1]["why"] == "it has the same VTEP as the best: both are used"
            text = (await netloom(two, "explain", WEB)).out
            assert "Remote: it is at another site." in text
            assert f"RemoteVTEP default/{found['object']}\n" in text
            assert f"logical port vxlan_{one.vtep}_10 of logical switch default/blue" in text
            assert f"ovs-vsctl list interface vxlan_{one.vtep}_10 on this node" in text

            (mine,) = (await netloom(two, "explain", DB, "-o", "json")).json
            assert (mine["local"], mine["attachedAs"], mine["object"]) == (True, ["attachment default/db"], "")
            text = (await netloom(two, "explain", DB)).out
            assert "Local: it is attached here." in text
            assert "nothing: it is attached here: routes of other sites for it are not imported" in text
            assert "netloom explain networkattachment/db -n default" in text

    asyncio.run(main())


def test_explain_names_the_flow_of_fabric_vxlan(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path, fabric="vxlan") as (_, two):
            text = (await netloom(two, "explain", WEB)).out
            assert f"tun_id=0xa,dl_dst={WEB} on br-vxlan of each node" in text
            assert "logical port" not in text
            (vtep,) = (await netloom(two, "vteps", "-o", "json")).json
            assert vtep["port"] == ""

    asyncio.run(main())


def test_a_duplicate_is_explained_with_the_route_that_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.attach("twin", TWIN, ["10.0.0.9"])

            async def is_duplicate() -> bool:
                status = (await two.store.get(EVPN_NETWORK, "default", "blue")).document().get("status", {})
                return bool(status.get("duplicateMACs"))

            await eventually(is_duplicate, "the duplicate")
            (found,) = (await netloom(two, "explain", TWIN, "-o", "json")).json
            assert (found["duplicate"], found["local"], found["contested"]) == (True, True, True)
            lost = [route["why"] for route in found["routes"] if not route["used"]]
            assert lost
            assert all("mobility sequence" in why for why in lost)
            assert "Duplicate: " in (await netloom(two, "explain", TWIN)).out
            (row,) = [line for line in (await netloom(two, "macs")).out.splitlines() if line.startswith(TWIN)]
            assert "duplicate" in row

    asyncio.run(main())


def test_a_route_from_two_peers_says_which_is_preferred(tmp_path: Path) -> None:
    class Reflecting(Site):
        async def peer(self, other: Site, **spec: Any) -> None:
            await super().peer(other, routeReflectorClient=True, **spec)

    async def main() -> None:
        async with sites(tmp_path, 3, Reflecting) as (one, two, three):
            for site in (one, two, three):
                await site.stretch()
            await one.attach("web", WEB, ["10.0.0.1"])

            async def both() -> bool:
                routes = two.ask("routes")
                return {route["peer"] for route in routes if route.get("mac") == WEB} == {one.address, three.address}

            await eventually(both, "the route from both peers")
            (found,) = (await netloom(two, "explain", WEB, "-o", "json")).json
            lost = [route for route in found["routes"] if route["peer"] == three.address]
            assert len(lost) == 2
            assert all("the shorter cluster list wins, 0 against 1" in route["why"] for route in lost)

    asyncio.run(main())


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            unknown = await netloom(two, "explain", "02:00:00:00:00:ff")
            assert unknown.rc == 1
            assert "no EVPNNetwork has a route for 02:00:00:00:00:ff" in unknown.err
            malformed = await netloom(two, "explain", "02:00")
            assert (malformed.rc, "'02:00' is not a MAC address" in malformed.err) == (2, True)
            peer = await netloom(two, "routes", "--peer", "10.9.9.9")
            assert (peer.rc, f"has a peer '10.9.9.9': it has {one.address}" in peer.err) == (1, True)
            network = await netloom(two, "macs", "--network", "red")
            assert (network.rc, "Network 'red': EVPNNetworks are default/blue" in network.err) == (1, True)
            absent = await netloom(two, "summary", path=str(tmp_path / "none.sock"))
            assert absent.rc == 1
            assert "check that `netloom agent` or `netloom speaker` runs on this node" in absent.err
            assert "spec.node" in absent.err
            await two.silence()
            gone = await netloom(two, "summary")
            assert (gone.rc, "no BGP speaker answers at" in gone.err) == (1, True)

    asyncio.run(main())


async def crowd(site: Site) -> None:
    """Announce as many machines as one EVPNNetwork may name, and wait until the speaker does."""
    stored = (await site.store.get(EVPN_NETWORK, "default", "blue")).document()
    clients = [
        {"mac": f"06:00:00:00:{n >> 8:02x}:{n & 255:02x}", "ip": f"10.1.{n >> 8}.{n & 255}"} for n in range(CROWD)
    ]
    stored["spec"]["clients"] = clients
    await site.store.update(EVPN_NETWORK, stored)

    async def all_of_them() -> bool:
        return len(site.ask("macs")) > CROWD and len(site.ask("routes")) > 2 * CROWD

    await eventually(all_of_them, "all machines")


@pytest.mark.parametrize("command", ["macs", "routes"])
def test_long_answers_are_sorted_and_let_others_work_between_slices(tmp_path: Path, command: str) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            await crowd(one)
            assert one.host is not None
            items = list(answer(one.host.running, Request(command)))
            macs = [item["mac"] for item in items if item is not None and "mac" in item]
            assert macs == sorted(macs) or command == "routes"
            assert _longest(items) <= SLICE
            nothing = list(answer(one.host.running, Request(command, peer=two.address)))
            assert nothing.count(None) >= CROWD // SLICE
            said = await netloom(one, command)
            assert len(said.out.splitlines()) == sum(item is not None for item in items) + 1

    asyncio.run(main())


def _longest(items: list[Any]) -> int:
    longest = count = 0
    for item in items:
        count = 0 if item is None else count + 1
        longest = max(longest, count)
    return longest


# Hostile clients.


async def send(site: Site, data: bytes) -> list[dict[str, Any]]:
    """Send bytes, and return the lines of the answer."""
    reader, writer = await asyncio.open_unix_connection(site.folder / f"site{site.number}.sock")
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        await writer.drain()
    found = [json.loads(line) async for line in reader]
    writer.close()
    return found


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x" * 5000 + b"\n", "longer than 4096 bytes"),
        (b'{"command": "macs"' + b" " * 5000, "longer than 4096 bytes"),
        (b"hello\n", "not a valid request"),
        (b"\xff\xfe\n", "not a valid request"),
        (b'{"command": "\xff"}\n', "not a valid request"),
        (b"", "not a valid request"),
        (b"[1, 2]\n", "not a valid request"),
        (b'{"command": 7}\n', "not a valid request"),
        (b'{"command": "macs", "more": 1}\n', "unknown field"),
        (b'{"command": "macs", "peer": ["a"]}\n', "not a valid request"),
        (b'{"command": "drop"}\n', "'drop' is not one of summary, routes, macs, vteps, explain, mrt"),
        (b'{"command": "explain", "mac": "nonsense"}\n', "is not a MAC address"),
        (b'{"command": "explain", "mac": "' + b"0" * 3000 + b'"}\n', "is not a MAC address"),
    ],
)
def test_bad_requests_get_one_line_and_harm_nobody(tmp_path: Path, data: bytes, words: str) -> None:
    async def main() -> None:
        async with sites(tmp_path, 1) as (one,):
            await eventually(_listening(one), "the socket")
            found = await send(one, data)
            assert len(found) == 1
            assert found[0]["end"] is True
            assert words in found[0]["error"]
            assert found[0]["reason"] == "BadRequest"
            assert len(found[0]["error"]) < 400
            assert (await netloom(one, "summary")).rc == 0

    asyncio.run(main())


def test_a_client_that_does_not_read_is_disconnected_and_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STALLED_SECONDS", 1.0)

    async def main() -> None:
        async with two_sites(tmp_path) as (one, _):
            await crowd(one)
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(str(tmp_path / "site1.sock"))
                deaf.sendall(b'{"command": "routes"}\n')
                assert (await netloom(one, "vteps")).rc == 0

                async def alone() -> bool:
                    assert one.host is not None
                    return one.host._socket._clients == 0

                await eventually(alone, "the end of the connection")
                deaf.settimeout(120)
                whole = await asyncio.to_thread(_drained, deaf)
            assert b'{"end"' not in whole
            assert len(whole) < 1_000_000

    asyncio.run(main())


def _drained(connection: socket.socket) -> bytes:
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            found += data
    return bytes(found)


def test_too_many_clients_are_refused_until_others_leave(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path, 1) as (one,):
            await eventually(_listening(one), "the socket")
            path = tmp_path / "site1.sock"
            waiting = [await asyncio.open_unix_connection(path) for _ in range(live.MOST_CLIENTS)]

            async def full() -> bool:
                assert one.host is not None
                return one.host._socket._clients == live.MOST_CLIENTS

            await eventually(full, "all clients")
            said = await netloom(one, "summary")
            assert said.rc == 1
            assert f"the speaker answers {live.MOST_CLIENTS} clients already: try again later" in said.err
            for _, writer in waiting:
                writer.close()

            async def answered() -> bool:
                return (await netloom(one, "summary")).rc == 0

            await eventually(answered, "an answer")

    asyncio.run(main())


def test_a_socket_that_cannot_be_made_does_not_end_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        folder = tmp_path / "run"
        folder.write_text("not a folder")

        async def warned(words: str) -> bool:
            return words in caplog.text

        async with asyncio.TaskGroup() as group:
            made = live.ControlSocket(str(folder / "sock"), {})
            taken = group.create_task(made.take())
            await eventually(lambda: warned(f"{folder / 'sock'}: cannot lock it"), "the warning")
            assert not taken.done()
            folder.unlink()
            await taken
            (folder / "sock").mkdir()  # In the place of the socket.
            serving = group.create_task(made.serve())
            await eventually(lambda: warned(f"{folder / 'sock'}: cannot listen"), "the warning")
            (folder / "sock").rmdir()

            async def listening() -> bool:
                return (folder / "sock").is_socket()

            await eventually(listening, "the socket")
            serving.cancel()

    asyncio.run(main())


# Hostile and old speakers.


@contextlib.contextmanager
def pretending(path: Path, *chunks: bytes) -> Iterator[str]:
    """Give a control socket that answers each client with these bytes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(ConnectionError):
                        connection.recv(4096)
                        for chunk in chunks:
                            connection.sendall(chunk)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


END = b'{"end":true}\n'


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([b"hello\n", END], "does not answer as a BGP speaker does"),
        ([b"[1, 2]\n", END], "does not answer as a BGP speaker does"),
        ([b'{"mac": "\xff"}\n', END], "does not answer as a BGP speaker does"),
        ([b'{"end": 7}\n'], "does not answer as a BGP speaker does"),
        ([b"x" * (1 << 20)] * 65, "has sent a line of more than 64 MiB"),
        ([b'{"mac": "02:00:00:00:00:01"}\n', END], "has no 'ips': update netloom here or on that node"),
        ([b'{"mac": "02:00:00:00:00:01"}\n'], "closed the connection before the end of the answer"),
        ([], "closed the connection before the end of the answer"),
    ],
)
@pytest.mark.parametrize("output", ["table", "wide"])
def test_an_answer_that_is_none_is_an_error_in_one_line(
    tmp_path: Path, chunks: list[bytes], words: str, output: str
) -> None:
    err = io.StringIO()
    with pretending(tmp_path / "sock", *chunks) as path, contextlib.redirect_stderr(err):
        assert run(["evpn", "macs", "-o", output, "--socket", path]) == 1
    assert words in err.getvalue()
    assert err.getvalue().count("\n") == 1


def test_an_answer_without_an_end_is_cut_off(tmp_path: Path) -> None:
    with (
        pretending(tmp_path / "sock", *[b'{"mac": "02:00:00:00:00:01"}\n'] * 100, END) as path,
        pytest.raises(Unreachable, match="has sent more than 1000 bytes: ask for less, with --network or --peer"),
    ):
        diagnose.ask([diagnose.Place(Path(path))], Request("macs"), most=1000)


@pytest.mark.parametrize(
    "line", [b"hello\n", b'{"end":true,"error":"the speaker answers 16 clients already","reason":"TooManyRequests"}\n']
)
def test_one_bad_speaker_costs_itself_alone(tmp_path: Path, line: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pretending(tmp_path / "bad", line) as bad, pretending(tmp_path / "good", END) as good:
        assert run(["evpn", "macs", "-o", "json", "--socket", bad, "--socket", good]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == []
    assert err.startswith("Warning: ")


def _listening(site: Site) -> Callable[[], Any]:
    async def listening() -> bool:
        assert site.host is not None
        return bool(site.host.running) and (site.folder / f"site{site.number}.sock").exists()

    return listening


def test_explain_of_an_object_and_ovs_find_the_socket_beside_that_of_the_switch(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            (tmp_path / "gw").mkdir()
            (tmp_path / "gw" / live.SOCKET).symlink_to(tmp_path / "site2.sock")
            access = Access(
                owner="netloom", nb=(), sb=(), tls=None, names=(), north=lambda: None,  # type: ignore[arg-type,return-value]
                ovn_command=list, switches=(Switch(f"unix:{tmp_path}/gw/db.sock", "gw"),),
            )  # fmt: skip
            cases = {
                ("BGPSpeaker", "main"): "runs: 1 of 1 sessions established, 7 routes",
                ("BGPPeer", "site1"): f"session with {one.address}: Established, 4 routes received, 3 sent, 0 flaps",
                ("EVPNNetwork", "blue"): "EVPNNetwork default/blue: forwards, 1 local and 1 remote MAC addresses,",
                ("EVPNNetwork", "red"): "",
            }
            for (kind, name), words in cases.items():
                unit = Unit(kind, "default", name)
                port, unseen = await asyncio.to_thread(read_speaker, access, unit, {"spec": {}}, "gw")
                assert port is not None
                assert unseen == ""
                assert (port.lines[0] if port.lines else "").startswith(words)
                assert bool(port.missing) == (name == "red")
            said = await netloom(two, "summary", "--ovs", f"unix:{tmp_path}/gw/db.sock", sockets=False)
            assert "site1" in said.out
            wrong = await netloom(two, "summary", "--ovs", "tcp:127.0.0.1:6640", sockets=False)
            assert (wrong.rc, "is not unix:/PATH" in wrong.err) == (2, True)

    asyncio.run(main())


def test_what_was_written_before_a_restart_is_stale_until_a_peer_announces_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, two):
            await one.silence()
            await two.silence()
            two.speak()

            async def stale() -> bool:
                try:
                    return [item["stale"] for item in two.ask("macs", network="blue")] == [True, False]
                except NotFound:
                    return False

            await eventually(stale, "the machines")
            said = await netloom(two, "explain", WEB)
            assert "Stale: it was written before the speaker started" in said.out
            assert "written before the speaker started: no peer has announced it since" in said.out
            assert f"RemoteVTEP default/blue.{one.vtep.replace('.', '-')}.10.0\n" in said.out
            one.speak()

            async def fresh() -> bool:
                return [item["stale"] for item in two.ask("macs")] == [False, False]

            await eventually(fresh, "the machine of the other site")

    asyncio.run(main())


def test_the_shell_completes_what_the_speaker_knows(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_sites(tmp_path) as (one, _):
            shell = ShellComplete(cli, {}, "netloom", "_NETLOOM_COMPLETE")
            here = ["--socket", str(tmp_path / "site2.sock")]

            def words(args: list[str], incomplete: str) -> list[str]:
                return [item.value for item in shell.get_completions(["evpn", *args], incomplete)]

            assert await asyncio.to_thread(words, ["explain", *here], "02:00") == [WEB, DB]
            assert await asyncio.to_thread(words, ["routes", *here, "--peer"], "") == [one.address]
            assert await asyncio.to_thread(words, ["macs", *here, "--network"], "b") == ["blue"]
            assert await asyncio.to_thread(words, ["macs", "--socket", "/nowhere", "--network"], "b") == []
            assert (await asyncio.to_thread(words, [], "su")) == ["summary"]

    asyncio.run(main())
