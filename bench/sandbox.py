"""A sandbox of 20 hosts, 5 networks and 2 routers on three nodes: from the command until all pairs ping.

The reference is mininet with the same topology on one machine, alternately in the same run. Both clocks start when a
program starts that reads the topology of a file: `netloom sandbox apply`, which verifies it first, and a script that
imports mininet. The same prober pings both, and mininet's own way to ping is shown beside it. All else is measured from
the request to the API. Then 50 copies with the same addresses, which must not see each other,
and the change of one link of one of them, while all copies ping.
"""

import asyncio
import contextlib
import json
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.table import Row
from netloom.errors import Internal, NotFound
from netloom.lab import Lab
from netloom.lab.daemons.entering import inside
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import SANDBOX, SHAPING
from netloom.plan.sandbox.objects import plan_sandbox
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

NODES = ("n1", "n2", "n3")
TURNS = 3
COPIES = 50
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default")
PATIENCE = 120.0
RESEND = 0.05
NETWORKS = {f"net{number}": f"10.{number}.0.0/24" for number in range(1, 6)}
ROUTERS = {"left": ("net1", "net2", "net3"), "right": ("net4", "net5")}
HOSTS = {
    f"h{number}-{host}": (f"net{number}", f"10.{number}.0.{10 + host}") for number in range(1, 6) for host in range(4)
}
WAN = "100.100.100.0/24"
ECHO_REQUEST, ECHO_REPLY = 8, 0
_ECHO = struct.Struct("!BBHHH")
TOGETHER, GAP = 32, 0.004
"""How many packets are sent at once, and the pause after them, in seconds."""
PACE = 1.0
"""How often each host pings while a link is changed, in seconds."""

T = TypeVar("T")
Answered = Callable[[tuple[str, str], str, int], None]
"""Called with the host that had an answer, who answered, and the number of the packet."""


def rows() -> list[Row]:
    """Measure and return the table."""
    with tempfile.TemporaryDirectory(prefix="netloom-bench-") as folder, _many_neighbours():
        lab = Lab.up(Path(folder) / "lab", nodes=len(NODES))
        try:
            return asyncio.run(measure(lab, Path(folder)))
        finally:
            lab.down()


@contextlib.contextmanager
def _many_neighbours() -> Iterator[None]:
    """Let the kernel know the neighbours of a thousand hosts: it counts those of all namespaces together."""
    files = [NEIGHBOURS / f"gc_thresh{number}" for number in (1, 2, 3)]
    before = [file.read_text() for file in files]
    for file, value, limit in reversed(list(zip(files, before, (4096, 8192, 16384), strict=True))):
        file.write_text(str(max(int(value), limit)))
    try:
        yield
    finally:
        for file, value in zip(files, before, strict=True):
            file.write_text(value)


async def measure(lab: Lab, folder: Path) -> list[Row]:
    """Measure in a lab that is up."""
    async with _api(lab) as store:
        mine, commanded, theirs, own_way = list[float](), list[float](), list[float](), list[float]()
        for turn in range(TURNS):  # Alternately, and the best of each: other load on this machine affects both.
            name = f"s{lab.layout.id}t{turn}"
            mine.append(await _deployed(store, [name]))
            await _removed(store, [name])
            commanded.append(await asyncio.to_thread(_applied, lab, folder, f"{name}a"))
            await _removed(store, [f"{name}a"])
            alone, pinged = _in_mininet(folder)
            theirs.append(alone)
            own_way.append(pinged)
        one = min(mine)
        names = [f"s{lab.layout.id}c{number}" for number in range(COPIES)]
        many = await _deployed(store, names)
        await asyncio.to_thread(_warm_up, names)
        change, lost = await _changed(store, names)
        another = await _deployed(store, [f"s{lab.layout.id}more"])
        await _removed(store, [*names, f"s{lab.layout.id}more"])
    return [
        Row("command until all 380 pairs ping", min(commanded), "s", min(theirs), 1.0, more_is_better=False),
        Row("  and mininet with its own pings", min(commanded), "s", min(own_way), 1.0, more_is_better=False),
        Row("  from the request to the API on", one, "s", min(theirs), 1.0, more_is_better=False),
        Row("planning, of that time", _planning() / one * 100, "%", None, 1.0, more_is_better=False),
        Row(
            f"{COPIES} copies, all isolated; beside {COPIES} times one",
            many,
            "s",
            COPIES * one,
            1.0,
            more_is_better=False,
        ),
        Row(
            "one link of one copy changed; beside building one more",
            change * 1000,
            "ms",
            another * 1000,
            0.1,
            more_is_better=False,
        ),
        Row("  packets lost in all copies meanwhile", lost, "", None, 0, more_is_better=False),
    ]


# The topology.


def _sandbox(name: str) -> Document:
    gateways = {network: f"10.{network[3:]}.0.1" for network in NETWORKS}
    topology: Document = {
        "name": "bench",
        "hosts": [{"name": host} for host in HOSTS],
        "routers": [{"name": router} for router in ROUTERS],
        "wan": {"name": "wan", "cidr": WAN},
        "networks": [{"name": network, "cidr": block} for network, block in NETWORKS.items()],
        "net_mappings": [{"host": host, "network": network, "ip": ip} for host, (network, ip) in HOSTS.items()],
        "router_mappings": [
            {"router": router, "network": network, "ip": gateways[network]}
            for router, networks in ROUTERS.items()
            for network in networks
        ],
    }
    metadata = {"name": name, "namespace": "default"}
    spec = {"run": True, "topology": topology}
    return {"apiVersion": SANDBOX.api_version, "kind": SANDBOX.name, "metadata": metadata, "spec": spec}


def _planning() -> float:
    """Return how long one plan takes, in seconds."""
    value = SANDBOX.decode(json.dumps(_sandbox("bench")).encode())
    assert isinstance(value, Sandbox)
    took = []
    for _ in range(9):
        began = time.perf_counter()
        plan_sandbox(value, NODES)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


# Ours.


@contextlib.asynccontextmanager
async def _api(lab: Lab) -> AsyncIterator[KubeStore]:
    store = await KubeStore.open(kubeconfig.load(str(lab.kubeconfig)))
    try:
        yield store
    finally:
        await store.close()


async def _deployed(store: KubeStore, names: Sequence[str]) -> float:
    """Create Sandboxes; return how long it took until all pairs of each ping, in seconds."""
    watch = await store.watch(SANDBOX, since=await store.revision())
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(store.create(SANDBOX, _sandbox(name)))
        left = set(names)
        while left:  # As `netloom sandbox apply` waits.
            left -= {one.object.name for one in await watch.next() if _is_ready(one.object.document())}
    await watch.close()
    spaces = _spaces(names)
    await asyncio.to_thread(_all_ping, spaces)
    return time.perf_counter() - began


def _applied(lab: Lab, folder: Path, name: str) -> float:
    """Deploy a Sandbox by the command; return how long it took until all its pairs ping, in seconds."""
    file = folder / "sandbox.json"
    file.write_text(json.dumps(_sandbox(name)))
    program = str(Path(sys.executable).with_name("netloom"))
    argv = [program, "--kubeconfig", str(lab.kubeconfig), "sandbox", "apply", str(file)]
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    _all_ping(_spaces([name]))
    return time.perf_counter() - began


def _spaces(names: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the network namespace of each host, by copy and address."""
    return {(name, ip): f"{name}-{host}" for name in names for host, (_, ip) in HOSTS.items()}


async def _removed(store: KubeStore, names: Sequence[str]) -> None:
    for name in names:
        await store.delete(SANDBOX, "default", name)
    async with asyncio.timeout(PATIENCE):
        for name in names:
            with contextlib.suppress(NotFound):
                while True:
                    await store.get(SANDBOX, "default", name)
                    await asyncio.sleep(0.05)


def _warm_up(names: Sequence[str]) -> None:
    """Let OVN and the switches finish what they do after the last change."""
    spaces = _spaces(names)
    with _Prober(spaces) as prober:
        prober.ping_neighbours(3.0)


async def _changed(store: KubeStore, names: Sequence[str]) -> tuple[float, int]:
    """Limit the rate of one link; return how long it took, and how many packets of all copies were lost meanwhile."""
    spaces = _spaces(names)
    host, (network, _) = next(iter(HOSTS.items()))
    stored = (await store.get(SANDBOX, "default", names[0])).document()
    stored["spec"]["links"] = [{"host": host, "network": network, "rate": "50mbit"}]
    with _Prober(spaces) as prober:
        watch = asyncio.create_task(asyncio.to_thread(prober.ping_neighbours, 5.0))
        await asyncio.sleep(1.5)
        began = time.perf_counter()
        await store.update(SANDBOX, stored)
        async with asyncio.timeout(PATIENCE):
            while not await _is_shaped(store, f"{names[0]}-{host}-{network}"):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        return took, await watch


async def _is_shaped(store: KubeStore, name: str) -> bool:
    try:
        document = (await store.get(SHAPING, "default", name)).document()
    except NotFound:
        return False
    return _is_ready(document)


def _is_ready(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


# Mininet.


def _in_mininet(folder: Path) -> tuple[float, float]:
    """Return how long mininet takes until all pairs ping: with our prober, and with its own."""
    hop = {"left": "100.100.100.2", "right": "100.100.100.3"}
    routers: list[Any] = [
        (
            [*((network, f"10.{network[3:]}.0.1/24") for network in networks), ("wan", f"{hop[name]}/24")],
            [("default", "100.100.100.1")],
        )
        for name, networks in ROUTERS.items()
    ]
    routes = [(NETWORKS[network], hop[name]) for name, networks in ROUTERS.items() for network in networks]
    topology = {
        "networks": [*NETWORKS, "wan"],
        "hosts": [(host, net, f"{ip}/24", f"10.{net[3:]}.0.1") for host, (net, ip) in HOSTS.items()],
        "routers": [*routers, ([("wan", "100.100.100.1/24")], routes)],
    }
    file = folder / "topology.json"
    file.write_text(json.dumps(topology))
    began = time.perf_counter()
    script = Path(__file__).with_name("mininet_exercise.py")
    argv = ["/usr/bin/python3", "-I", str(script), str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            pids = json.loads(running.stdout.readline())["pids"]
            built = time.perf_counter() - began
            addresses = [ip for _, ip in HOSTS.values()]
            spaces = {("", ip): f"/proc/{pid}/ns/net" for ip, pid in zip(addresses, pids, strict=True)}
            _all_ping(spaces)
            alone = time.perf_counter() - began
            running.stdin.write("pingall\n")
            running.stdin.flush()
            pinged = json.loads(running.stdout.readline())
            assert pinged["lost"] == 0, pinged
        finally:
            running.stdin.close()
    return alone, built + float(pinged["pinged"])


# Pings, of all hosts at once.


def _all_ping(spaces: Mapping[tuple[str, str], str]) -> None:
    """Return when every host of each copy has had an answer from every other one of its copy."""
    with _Prober(spaces) as prober:
        prober.ping_all()


class _Prober:
    """A raw socket in the network namespace of each host, given by copy and address.

    Echo requests carry the copy that they are of: one that arrives in another copy is an error.
    """

    def __init__(self, spaces: Mapping[tuple[str, str], str]) -> None:
        self._copies = {copy: number for number, copy in enumerate(dict.fromkeys(copy for copy, _ in spaces))}
        self._deadline = time.monotonic() + PATIENCE
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[tuple[str, str], socket.socket] = {}
        for host, space in spaces.items():
            self._sockets[host] = self._opened(space)
            self._selector.register(self._sockets[host], selectors.EVENT_READ, host)

    def __enter__(self) -> "_Prober":
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all sockets."""
        self._selector.close()
        for one in self._sockets.values():
            one.close()

    def _opened(self, space: str) -> socket.socket:
        def made() -> socket.socket:
            found = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
            found.setblocking(False)
            return found

        while True:
            try:
                return inside(space, made)
            except OSError:
                if time.monotonic() > self._deadline:
                    raise Internal(f"timed out: there is no network namespace {space}") from None
                time.sleep(0.005)

    def ping_all(self) -> None:
        """Ping from every host to every other one of its copy until all have answered."""
        peers: dict[str, list[str]] = {}
        for copy, ip in self._sockets:
            peers.setdefault(copy, []).append(ip)
        waiting = {(copy, ip): {peer for peer in peers[copy] if peer != ip} for copy, ip in self._sockets}

        def answered(host: tuple[str, str], peer: str, _: int) -> None:
            waiting[host].discard(peer)

        left, pause = waiting, RESEND
        while left:
            if time.monotonic() > self._deadline:
                copy, ip = next(iter(left))
                raise Internal(
                    f"timed out: {copy} {ip} does not reach {sorted(left[copy, ip])}; {len(left)} hosts wait"
                )
            pairs = [(copy, ip, peer) for (copy, ip), wanted in left.items() for peer in wanted]
            for copy, ip, peer in self._paced(pairs, answered):
                if peer in waiting[copy, ip]:
                    self._send(copy, ip, peer, 1)
            until, pause = time.monotonic() + pause, min(pause * 2, 2.0)  # A switch that is overloaded gets time.
            while any(left.values()) and time.monotonic() < until:
                self._receive(answered, until - time.monotonic())
            left = {host: wanted for host, wanted in left.items() if wanted}

    def ping_neighbours(self, seconds: float) -> int:
        """Ping from every host to the next of its copy for some time; return how many packets were lost."""
        hosts = list(self._sockets)
        after = {one: two for one, two in zip(hosts, [*hosts[1:], hosts[0]], strict=True) if one[0] == two[0]}
        waiting: set[tuple[tuple[str, str], int]] = set()

        def answered(host: tuple[str, str], _: str, number: int) -> None:
            waiting.discard((host, number))

        end = time.monotonic() + seconds
        number = 1
        while time.monotonic() < end:
            number += 1
            following = time.monotonic() + PACE
            for (copy, ip), (_, peer) in self._paced(list(after.items()), answered):
                if self._send(copy, ip, peer, number):
                    waiting.add(((copy, ip), number))
            self._receive_until(answered, following)
        until = time.monotonic() + 2
        while waiting and time.monotonic() < until:
            self._receive(answered, 0.1)
        return len(waiting)

    def _send(self, copy: str, ip: str, peer: str, number: int) -> bool:
        header = _ECHO.pack(ECHO_REQUEST, 0, 0, self._copies[copy], number)
        checked = _ECHO.pack(ECHO_REQUEST, 0, _checksum(header), self._copies[copy], number)
        try:
            self._sockets[copy, ip].sendto(checked, (peer, 0))
        except OSError:
            return False  # It has no address or route yet.
        return True

    def _paced(self, items: Sequence[T], answered: Answered) -> Iterator[T]:
        """Yield items a few at a time: the uplink of a node has a queue of some 200 packets."""
        for at in range(0, len(items), TOGETHER):
            yield from items[at : at + TOGETHER]
            self._receive_until(answered, time.monotonic() + GAP)

    def _receive_until(self, answered: Answered, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            self._receive(answered, left)

    def _receive(self, answered: Answered, seconds: float) -> None:
        """Wait for packets, and read what has come."""
        for key, _ in self._selector.select(max(seconds, 0)):
            host: tuple[str, str] = key.data
            for packet, peer in _packets(self._sockets[host]):
                kind, _, _, copy, number = _ECHO.unpack_from(packet, (packet[0] & 15) * 4)
                if kind not in (ECHO_REQUEST, ECHO_REPLY):
                    continue  # Errors quote the packet that they are about.
                if copy != self._copies[host[0]]:
                    raise Internal(f"a packet of another copy is at {host}")
                if kind == ECHO_REPLY:
                    answered(host, peer, number)


def _packets(one: socket.socket) -> Iterator[tuple[bytes, str]]:
    while True:
        try:
            packet, (peer, _) = one.recvfrom(256)
        except BlockingIOError:
            return
        yield packet, peer


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
