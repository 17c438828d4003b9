"""BGP speakers side by side: ours, FRR's of two generations, GoBGP's, os-ken's; the same sender and the same bytes.

The sender connects, sends everything as fast as the receiver reads, and stays. The time is that from the first route
to the moment when the receiver shows all of them: FRR by its terminal, GoBGP by its client, ours by the number of
machines that `netloom evpn summary` shows. Ours is the whole `netloom speaker`, which makes RemoteVTEPs of what it
learns and writes them to a `netloom serve` beside it; the library alone is shown, too. The speakers take turns, and
the best of several turns counts, since what else this machine does can only make one slower; the slow ones have one
turn. Decoding alone is compared with ExaBGP's.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from bench.table import Row
from netloom.bgp import communities as ext
from netloom.bgp.attributes import AttributeCache, Attributes, Context
from netloom.bgp.fsm import Local
from netloom.bgp.messages import KEEPALIVE, LONGEST_EXTENDED, Framer, Kind, encode_open
from netloom.bgp.nlri import EVPN, MacIp, encode_evpn
from netloom.bgp.update import announce, decode_update, withdraw
from netloom.lab.daemons.entering import entered, inside, mountpoints
from tests.run.serving import NETLOOM, environment
from tests.support.frr import BGPD, OURS, THEIRS, Bgpd, cabled
from tests.support.ovn import run
from tests.support.process import free_port, scratch

ROUTES, PER_UPDATE, TURNS = 100_000, 90, 3
LIBRARY = "the library"
FEW = 2000
"""Routes for os-ken, which takes minutes for more, and does not report all of them."""
FEEDERS = [f"10.9.0.{10 + number}" for number in range(10)]
SINK = "10.9.0.30"
PEERS = {OURS: 65001, SINK: 65003, **dict.fromkeys(FEEDERS, 65001)}
HERE = Path(__file__).parents[1]

_NEIGHBORS = "\n".join(
    f" neighbor {address} remote-as {asn}\n neighbor {address} passive" for address, asn in PEERS.items()
)
_ACTIVE = "\n".join(f"  neighbor {address} activate" for address in PEERS)
FRR = f"""
router bgp 65002
 bgp router-id {THEIRS}
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
{_NEIGHBORS}
 address-family l2vpn evpn
{_ACTIVE}
 exit-address-family
"""
GOBGP = f"""
[global.config]
  as = 65002
  router-id = "{THEIRS}"
""" + "".join(
    f"""
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {asn}
  [neighbors.transport.config]
    passive-mode = true
  [neighbors.timers.config]
    idle-hold-time-after-reset = 1
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "l2vpn-evpn"
"""
    for address, asn in PEERS.items()
)

_OURS = """
import asyncio, gc, sys
from ipaddress import IPv4Address
from random import Random
from netloom.bgp.communities import route_target
from netloom.bgp.evi import Instance, Instances
from netloom.bgp.io import Endpoint, SpeakerIO
from netloom.bgp.nlri import EVPN
from netloom.bgp.speaker import PeerConfig, Speaker

async def main(path, ours, *peers):
    speaker, tables = Speaker(65002, IPv4Address(ours), random=Random(1)), Instances()
    tables.add(Instance("blue", [route_target("65001:10")]), {})
    io = SpeakerIO(speaker, listen=(ours, 179), on_changes=lambda changes: tables.apply(changes.get(EVPN, {})),
                   on_event=lambda event: None)
    async def answer(reader, writer):
        while await reader.readline():
            count = len(tables["blue"].paths)
            assert count != 100000 or tables["blue"].mac((2 << 40 | 99999).to_bytes(6, "big")) is not None
            writer.write(b"%d\\n" % count)
    await asyncio.start_unix_server(answer, path)
    for peer in peers:
        address, asn = peer.split("=")
        io.add_peer(PeerConfig(address, int(asn), passive=True), Endpoint(address))
    speaker.complete()
    await io.run()

gc.freeze()
asyncio.run(main(*sys.argv[1:]))
"""

_OS_KEN = """
import logging, socket, sys, threading
from os_ken.services.protocols.bgp.bgpspeaker import BGPSpeaker
logging.disable(logging.CRITICAL)
known = set()
def changed(event):
    (known.discard if event.is_withdraw else known.add)((event.remote_as, event.route_dist, event.prefix))
speaker = BGPSpeaker(65002, sys.argv[2], bgp_server_hosts=(sys.argv[2],), best_path_change_handler=changed)
for peer in sys.argv[3:]:
    address, asn = peer.split("=")
    speaker.neighbor_add(address, int(asn), enable_ipv4=False, enable_evpn=True, connect_mode="passive")
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    files = server.accept()[0].makefile("rw")
    for line in files:
        files.write("%d\\n" % len(known))
        files.flush()
"""


class Receiver:
    """What is measured: how many routes it shows, and its process."""

    def __init__(self, count: Callable[[], int], pid: int, pause: float = 0.005) -> None:
        self.count = count
        self.pid = pid
        self._pause = pause

    def wait(self, routes: int, *sessions: socket.socket) -> None:
        """Wait until it shows that many routes, and keep sessions alive."""
        due = time.monotonic() + 5
        while self.count() != routes:
            time.sleep(self._pause)
            if time.monotonic() >= due:
                due += 5
                for session in sessions:
                    session.sendall(KEEPALIVE)

    def seconds(self) -> float:
        """Return the processor time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Return its resident memory."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def _python(script: str, netns: str, folder: Path) -> Iterator[Receiver]:
    """Run a speaker in Python that tells its number of routes on a socket."""
    path = folder / "count.sock"
    peers = [f"{address}={asn}" for address, asn in PEERS.items()]
    argv = entered([sys.executable, "-c", script, str(path), THEIRS, *peers], netns=netns, folder=folder)
    with subprocess.Popen(argv) as child, socket.socket(socket.AF_UNIX) as asking:
        try:
            while True:
                try:
                    asking.connect(str(path))
                    break
                except OSError:
                    assert child.poll() is None, "the speaker has ended"
                    time.sleep(0.05)
            answers = asking.makefile("rw")

            def count() -> int:
                answers.write("\n")
                answers.flush()
                return int(answers.readline())

            yield Receiver(count, child.pid)
        finally:
            child.send_signal(signal.SIGKILL)
            path.unlink()


@contextmanager
def _netloom(netns: str, folder: Path) -> Iterator[Receiver]:
    with _python(_OURS, netns, folder) as receiver:
        yield receiver


@contextmanager
def _speaker(netns: str, folder: Path) -> Iterator[Receiver]:
    """Run `netloom serve` and `netloom speaker`."""
    data, path, port = folder / f"serve-{time.monotonic_ns()}", folder / "speaker.sock", free_port()
    kubeconfig, listen = data / "admin.kubeconfig", f"127.0.0.1:{port}"

    def within(*args: object) -> list[str]:
        return entered([*NETLOOM, *map(str, args)], netns=netns, folder=folder)

    def started(*args: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(within(*args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())

    with started("serve", "--data", data, "--listen", listen) as server:
        try:
            peers = [
                _object("BGPPeer", f"p{n}", {"speaker": "main", "address": address, "remoteASN": asn, "passive": True})
                for n, (address, asn) in enumerate(PEERS.items())
            ]
            objects = [
                _object("Node", "n1", {"underlayIP": THEIRS}),
                _object("Network", "blue", {"vni": 10}),
                _object(
                    "BGPSpeaker",
                    "main",
                    {"asn": 65002, "routerID": THEIRS, "node": "n1", "listen": {"address": THEIRS}},
                ),
                _object("EVPNNetwork", "blue", {"network": "blue", "speaker": "main", "importTargets": ["65001:10"]}),
                *peers,
            ]
            applying = within("--kubeconfig", kubeconfig, "apply", "-f", "-")
            text = json.dumps({"kind": "List", "items": objects})
            while subprocess.run(
                applying, input=text, text=True, capture_output=True, env=environment(), check=False
            ).returncode:
                assert server.poll() is None, "netloom serve has ended"
            with started("speaker", "--kubeconfig", kubeconfig, "--node", "n1", "--speaker-socket", path) as child:
                try:
                    yield Receiver(partial(_shown, path), child.pid, 0.02)
                finally:
                    child.send_signal(signal.SIGKILL)
        finally:
            server.send_signal(signal.SIGKILL)


def _object(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _shown(path: Path) -> int:
    """Return how many machines of others a speaker has imported; -1 if it does not forward yet."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return -1
        asking.sendall(b'{"command": "summary"}\n')
        items = list(map(json.loads, asking.makefile("rb")))
    found = [item for item in items if item.get("kind") == "network"]
    return int(found[0]["remote"]) if found and found[0]["forwarding"] else -1


@contextmanager
def _os_ken(netns: str, folder: Path) -> Iterator[Receiver]:
    with _python(_OS_KEN, netns, folder) as receiver:
        yield receiver


def _frr(root: str) -> Callable[[str, Path], contextlib.AbstractContextManager[Receiver]]:
    @contextmanager
    def start(netns: str, folder: Path) -> Iterator[Receiver]:
        made = mountpoints(folder, [root] if root else [])
        daemon = Bgpd(folder, netns, FRR, root)

        def count() -> int:
            peers = json.loads(daemon.vty("show bgp l2vpn evpn summary json")).get("peers", {})
            return sum(int(peer.get("pfxRcd", 0)) for peer in peers.values())

        try:
            yield Receiver(count, int((daemon.folder / "bgpd.pid").read_text()))
        finally:
            daemon.kill()
            (folder / "bgpd.pid").unlink()
            for path in made:
                Path(path).rmdir()

    return start


@contextmanager
def _gobgp(netns: str, folder: Path) -> Iterator[Receiver]:
    made = subprocess.run([HERE / "tools/gobgp/build"], capture_output=True, text=True, check=True)
    programs = Path(made.stdout.strip())
    (folder / "gobgpd.toml").write_text(GOBGP)
    options = ["-f", str(folder / "gobgpd.toml"), "--api-hosts", "127.0.0.1:50051", "-l", "error"]
    argv = entered([str(programs / "gobgpd"), *options], netns=netns, folder=folder)
    asking = entered(
        [str(programs / "gobgp"), "global", "rib", "summary", "-a", "evpn", "-j"], netns=netns, folder=folder
    )

    def count() -> int:
        shown = subprocess.run(asking, capture_output=True, text=True, check=False)
        return int(json.loads(shown.stdout).get("num_destination", 0)) if shown.returncode == 0 else -1

    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield Receiver(count, child.pid, 0.05)
        finally:
            child.send_signal(signal.SIGKILL)


def _routes(sender: str, first: int, number: int) -> list[list[bytes]]:
    rd = ext.route_distinguisher(f"{sender}:10")
    routes = [
        encode_evpn(MacIp(rd, (0x02 << 40 | n).to_bytes(6, "big"), IPv4Address(0x0A000000 + n), 10))
        for n in range(first, first + number)
    ]
    return [routes[at : at + PER_UPDATE] for at in range(0, number, PER_UPDATE)]


def messages(sender: str = OURS, first: int = 0, number: int = ROUTES) -> tuple[list[bytes], bytes]:
    """Return the announcements and the withdrawals of routes."""
    attributes = Attributes(
        as_path=((2, (65001,)),),
        next_hop=IPv4Address(sender),
        extended=(ext.route_target("65001:10"), ext.encapsulation()),
    )
    groups, context = _routes(sender, first, number), Context(internal=False)
    came = [data for group in groups for data in announce(EVPN, group, attributes, context, 4096)]
    return came, b"".join(data for group in groups for data in withdraw(EVPN, group, 4096))


def _connected(address: str) -> socket.socket:
    """Return a connection with an established session."""
    while True:
        sock = socket.socket()
        try:
            sock.bind((address, 0))
            sock.connect((THEIRS, 179))
            sock.sendall(encode_open(Local(PEERS[address], IPv4Address(address)).open()))
            framer, seen = Framer(), set[Kind]()
            while Kind.KEEPALIVE not in seen:
                data = sock.recv(65536)
                if not data:
                    raise ConnectionResetError  # The earlier session is not over yet.
                for kind, _ in framer.feed(data):
                    if kind is Kind.OPEN:
                        sock.sendall(KEEPALIVE)
                    if kind is Kind.NOTIFICATION:
                        raise ConnectionResetError
                    seen.add(kind)
        except OSError:
            sock.close()
            time.sleep(0.05)
        else:
            return sock


Figures = dict[str, float]
LESS = ("megabytes", "received seconds", "withdrawn seconds", "peers seconds")


def _measure(receiver: Receiver) -> Figures:
    """Return routes per second by what was done, and the megabytes with all routes."""
    found: Figures = {}
    each = ROUTES * 2 // len(FEEDERS)

    def timed(what: str, data: list[tuple[socket.socket, bytes]], left: int) -> None:
        start, spent = time.perf_counter(), receiver.seconds()
        for sock, some in data:
            sock.sendall(some)
        receiver.wait(left, *(sock for sock, _ in data))
        found[what] = (left or ROUTES) / (time.perf_counter() - start)
        found[f"{what} seconds"] = receiver.seconds() - spent

    updates, gone = messages()
    came = b"".join(updates)
    receiver.wait(0)
    with _connected(OURS) as sock:
        timed("received", [(sock, came)], ROUTES)
        found["megabytes"] = receiver.megabytes()
        timed("withdrawn", [(sock, gone)], 0)
        sock.sendall(came)
        receiver.wait(ROUTES, sock)
        found["sent"] = ROUTES / _drained()
    receiver.wait(0)
    with contextlib.ExitStack() as stack:
        many = []
        for number, address in enumerate(FEEDERS):
            data = b"".join(messages(address, number * each, each)[0])
            many.append((stack.enter_context(_connected(address)), data))
        timed("peers", many, each * len(FEEDERS))
    receiver.wait(0)
    return found


def _measure_few(receiver: Receiver) -> Figures:
    """Return routes per second, for nine in ten of a few."""
    came = b"".join(messages(number=FEW)[0])
    with _connected(OURS) as sock:
        start = time.perf_counter()
        sock.sendall(came)
        while (count := receiver.count()) < FEW * 0.9:
            time.sleep(0.005)
        return {"received": count / (time.perf_counter() - start)}


def _drained() -> float:
    """Return how long a new peer waits for all routes."""
    framer, cache, count = Framer(), AttributeCache(), 0
    framer.longest = LONGEST_EXTENDED
    start = time.perf_counter()
    with _connected(SINK) as sock:
        while count < ROUTES:
            for kind, body in framer.feed(sock.recv(1 << 20)):
                if kind is Kind.UPDATE and (found := decode_update(body, Context(False), (EVPN,), cache).announced):
                    count += len(found[EVPN].routes)
        return time.perf_counter() - start


def _decoding() -> Row:
    """Compare the decoding of the same messages with ExaBGP's."""
    from tests.support.bgp_codecs import ExaBgp

    bodies = [data[19:] for data in messages(number=9000)[0]]
    other = ExaBgp()

    def ours() -> None:
        cache = AttributeCache()
        for body in bodies:
            decode_update(body, Context(internal=False), (EVPN,), cache)

    def theirs() -> None:
        for body in bodies:
            other.unpack(body)

    def best(work: Callable[[], None]) -> float:
        spent = []
        for _ in range(5):
            start = time.process_time()
            work()
            spent.append(time.process_time() - start)
        return min(spent)

    return Row("routes decoded", 9000 / best(ours), "/s", 9000 / best(theirs), 5.0)


def tables() -> list[tuple[str, str, list[Row]]]:
    """Measure and return the tables."""
    speakers: dict[str, Callable[[str, Path], contextlib.AbstractContextManager[Receiver]]] = {
        "netloom": _speaker,
        LIBRARY: _netloom,
        "FRR": _frr(""),
        "GoBGP": _gobgp,
        "os-ken": _os_ken,
    }
    newest = Path(os.environ.get("NETLOOM_OVN_ROOTS", Path.home() / ".cache/netloom/ovn")) / "v26.03"
    if (newest / str(BGPD).lstrip("/")).exists():
        speakers["FRR 10.7"] = _frr(str(newest))
    best: dict[str, Figures] = {}
    with cabled() as (netns, theirs), scratch("bgp-bench") as folder:
        for address in (*FEEDERS, SINK):
            run("ip", "-n", netns, "address", "add", f"{address}/24", "dev", "veth0")
        for turn in range(TURNS):
            for name, start in speakers.items():
                if turn and name in ("GoBGP", "os-ken"):
                    continue
                with start(theirs, folder) as receiver:
                    measure = _measure_few if name == "os-ken" else _measure
                    found = inside(netns, partial(measure, receiver))
                before = best.get(name, found)
                best[name] = {
                    what: (min if what in LESS else max)(value, before[what]) for what, value in found.items()
                }
                print(name, {what: round(value, 2) for what, value in found.items()}, flush=True)
    version = subprocess.run([BGPD, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    print(f"beside FRR {version}, {os.cpu_count()} cores")
    shown = [
        (f"BGP beside {name}", name, _rows(best["netloom"], best[name], name)) for name in best if name != "netloom"
    ]
    return [*shown, ("BGP codec", "ExaBGP", [_decoding()])]


def _rows(ours: Figures, theirs: Figures, name: str) -> list[Row]:
    # The library is a part of ours, which is shown to tell what the rest costs.
    wanted = None if name == LIBRARY else 0.5 if name.startswith("FRR") else 1.0
    rows = [
        Row(what, ours[key], "/s", theirs[key], wanted)
        for what, key in (
            ("routes received, to the table of MACs", "received"),
            ("routes withdrawn", "withdrawn"),
            (f"routes received from {len(FEEDERS)} peers", "peers"),
            ("routes sent to a new peer", "sent"),
        )
        if key in theirs
    ]
    if name == "os-ken":
        return rows
    # On a busy machine, a program with several threads gets more than its share: this tells what each needs.
    rows += [
        Row(f"processor time of routes {what}", ours[f"{what} seconds"], "s", theirs[f"{what} seconds"])
        for what in ("received", "withdrawn")
    ]
    least = None if name in (LIBRARY, "FRR") else 1.0  # Of FRR, the newer one counts: it needs less.
    memory = ("memory with 100,000 routes", ours["megabytes"], "MB", theirs["megabytes"], least)
    return [*rows, Row(*memory, more_is_better=False)]
