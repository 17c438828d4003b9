"""kill -9 of everything while addresses are given and taken: `netloom apiserver`, two controllers, and etcd.

Eight writers create attachments, delete them, make them again under the same name and ask for addresses; there are more
of them than addresses. Meanwhile one process after the other is killed, at random, and started again. A writer whose
connection breaks does not know whether it was heard, and goes on. A watcher follows the attachments through all of it:
at no revision do two of them show one address. In the end everything is read and examined: every address, every lock,
every attachment.

Eight kills for each store; NETLOOM_TEST_KILLS=100 for more.
"""

import contextlib
import http.client
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_interface
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.kind import Kind
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet, VNILock
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET, VNI_LOCK
from netloom.plan.audit.addresses import audit
from netloom.store.kube import kubeconfig as kubeconfigs
from tests.run.serving import NETLOOM, environment
from tests.sim.ipam_oracle import State, complaints
from tests.support.etcd import Etcd
from tests.support.process import Program, free_port, wait_until

KILLS = int(os.environ.get("NETLOOM_TEST_KILLS", "8"))
WRITERS = 8
EACH = 10
"""How many names a writer has; not all of them fit at once."""
BLOCKS = {"v4": "10.4.0.0/26", "v6": "fd00:4::/122"}
REST = 120.0
PACE = 0.08
PATIENCE = 8.0
"""How long, in seconds, nobody is killed at most."""

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Resource)
Away = (OSError, http.client.HTTPException)


class Plane:
    """A control plane of several processes that are killed and started again."""

    def __init__(self, folder: Path, store: str, etcd: Etcd | None) -> None:
        self._folder = folder
        self._store = store
        self._listen = f"127.0.0.1:{free_port()}"
        self.kubeconfig = folder / "d" / "admin.kubeconfig"
        self.up = threading.Event()
        self.etcd = etcd
        self._programs: dict[str, Program] = {}
        self.killed: dict[str, int] = {}

    def start(self) -> None:
        """Start everything."""
        self._start_apiserver()
        for name in ("one", "two"):
            self._start_controller(name)

    def kill(self, name: str) -> None:
        """Kill one process and start it again."""
        self.killed[name] = self.killed.get(name, 0) + 1
        if name == "etcd":
            assert self.etcd is not None
            self.etcd.kill()
            self.etcd.start()
        elif name == "apiserver":
            self.up.clear()
            self._programs[name].kill()
            self._start_apiserver()
        else:
            self._programs[name].kill()
            self._start_controller(name)

    def victims(self) -> list[str]:
        """Return whom one can kill."""
        return [*self._programs, *(["etcd"] if self.etcd else [])]

    def stop(self) -> None:
        """Stop everything, in no good order."""
        for program in self._programs.values():
            program.kill()

    def tails(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"--- {name}\n{program.tail(8)}" for name, program in self._programs.items())

    def _start_apiserver(self) -> None:
        data = str(self._folder / "d")
        argv = [*NETLOOM, "apiserver", "--data", data, "--listen", self._listen, "--store", self._store]
        program = Program(argv, log=self._folder / "apiserver.log", env=environment())
        self._programs["apiserver"] = program
        program.wait_ready(self._ready)
        self.up.set()

    def _start_controller(self, name: str) -> None:
        argv = [*NETLOOM, "controller", "--kubeconfig", str(self.kubeconfig), "--identity", name]
        self._programs[name] = Program(argv, log=self._folder / f"{name}.log", env=environment())

    def _ready(self) -> bool:
        try:
            with contextlib.closing(Door(self)) as door:
                return door.send("GET", "/readyz")[0] == 200
        except (*Away, NetloomError):
            return False


class Door:
    """One connection to the API, made again when it broke."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._connection: http.client.HTTPSConnection | None = None
        self._headers: dict[str, str] = {}

    def send(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request and return status and answer; raises what says that nobody knows."""
        try:
            return self._send(method, path, body)
        except Away:
            self.close()
            raise

    def _send(self, method: str, path: str, body: object) -> tuple[int, Any]:
        connection = self.connect()
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**self._headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text

    def connect(self) -> http.client.HTTPSConnection:
        """Return the connection."""
        if self._connection is None:
            cluster = kubeconfigs.load(str(self._plane.kubeconfig))
            url = urlsplit(cluster.server)
            assert url.hostname
            self._headers = cluster.headers()
            self._connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=cluster.tls())
        return self._connection

    @property
    def headers(self) -> dict[str, str]:
        """What says who asks."""
        return self._headers

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class World:
    """What writers, the watcher and the killer share."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.enough = threading.Event()
        """The writers may stop."""
        self.over = threading.Event()
        self.done = itertools.count()
        self.requests = 0
        self.problems: list[str] = []

    @contextlib.contextmanager
    def supposed_to_work(self) -> Iterator[None]:
        """Keep a thread's failure for the main thread, and let everybody stop."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            self.problems.append(repr(error))
            self.enough.set()
            self.over.set()


def _path(kind: Kind, name: str = "") -> str:
    where = "/namespaces/default" if kind.namespaced else ""
    return f"/apis/{kind.api_version}{where}/{kind.plural}{'/' * bool(name)}{name}"


def _document(kind: Kind, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}


class Writer:
    """Somebody who wants attachments, and then others."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._random = Random(number)
        self._names = [f"w{number}-{i}" for i in range(EACH)]
        self._door = Door(world.plane)

    def run(self) -> None:
        """Wish until it is over."""
        with self._world.supposed_to_work(), contextlib.closing(self._door):
            while not self._world.enough.is_set():
                if not self._world.plane.up.wait(1):
                    continue
                with contextlib.suppress(*Away):
                    self._wish()
                    self._world.requests = next(self._world.done)
                time.sleep(self._random.uniform(0, PACE))  # Else it is the writers who keep two cores busy.

    def _wish(self) -> None:
        random = self._random
        name = random.choice(self._names)
        spec: dict[str, Any] = {"node": "n1", "network": "blue"}
        if random.random() < 0.2:
            spec["ips"] = [f"10.4.0.{random.randrange(2, 63)}"]
        if random.random() < 0.55:
            status, answer = self._door.send(
                "POST", _path(NETWORK_ATTACHMENT), _document(NETWORK_ATTACHMENT, name, spec)
            )
            assert status in (201, 409, 500, 503, 504), (status, answer)
        else:
            status, answer = self._door.send("DELETE", _path(NETWORK_ATTACHMENT, name))
            assert status in (200, 404, 500, 503, 504), (status, answer)


class Watcher:
    """Somebody who sees every attachment at every revision."""

    def __init__(self, world: World, revision: int) -> None:
        self._world = world
        self._revision = revision
        self._shown: dict[str, frozenset[str]] = {}
        self.given = 0
        """How often somebody came to have an address."""
        self.most = 0

    def run(self) -> None:
        """Follow until it is over."""
        with self._world.supposed_to_work():
            while not self._world.over.is_set():
                if self._world.plane.up.wait(1):
                    with contextlib.suppress(*Away, ValueError):
                        self._follow()

    def _follow(self) -> None:
        with contextlib.closing(Door(self._world.plane)) as door, contextlib.ExitStack() as held:
            connection = door.connect()
            query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={self._revision}"
            connection.request("GET", f"{_path(NETWORK_ATTACHMENT)}?{query}", headers=door.headers)
            answer = held.enter_context(connection.getresponse())
            if answer.status != 200:
                answer.read()
                time.sleep(0.1)  # It is not up yet, or its etcd is not.
                return
            for line in iter(answer.readline, b""):
                if not line.endswith(b"\n"):
                    return  # Cut off by a crash: it will come again.
                self._see(json.loads(line))

    def _see(self, event: dict[str, Any]) -> None:
        what, metadata = event["object"], event["object"].get("metadata", {})
        assert event["type"] != "ERROR" or what.get("code", 500) >= 500, event
        if event["type"] == "ERROR":
            raise OSError(what)
        self._revision = int(metadata["resourceVersion"])
        if event["type"] == "BOOKMARK":
            return
        name = metadata["name"]
        if event["type"] == "DELETED":
            self._shown.pop(name, None)
            return
        ips = frozenset(str(ip_interface(text).ip) for text in what.get("status", {}).get("ips", ()))
        for other, theirs in self._shown.items():
            assert other == name or not ips & theirs, f"{name} and {other} show {sorted(ips & theirs)}: {event}"
        self.given += bool(ips - self._shown.get(name, frozenset()))
        self._shown[name] = ips
        self.most = max(self.most, sum(map(bool, self._shown.values())))


class Everything:
    """All objects, read at one go."""

    def __init__(self, door: Door) -> None:
        self.networks = _read(door, NETWORK, Network)
        self.subnets = _read(door, SUBNET, Subnet)
        self.attachments = _read(door, NETWORK_ATTACHMENT, NetworkAttachment)
        self.locks = _read(door, IP_LOCK, IPLock)
        self.vni_locks = _read(door, VNI_LOCK, VNILock)

    def wrong(self) -> list[str]:
        """Return what is not as it should be when all is at rest."""
        state = State(networks=self.networks, subnets=self.subnets, attachments=self.attachments, locks=self.locks)
        return complaints(state)

    def findings(self) -> list[str]:
        """Return what the audit finds."""
        found = audit(self.networks, self.subnets, self.attachments, self.locks, self.vni_locks)
        return [str(finding) for finding in found]


def _read(door: Door, kind: Kind, of: type[R]) -> list[R]:
    status, answer = door.send("GET", _path(kind))
    if status != 200:
        raise OSError(f"{status} {answer}")
    meant = {"apiVersion": kind.api_version, "kind": kind.name}
    values = [kind.decode(json.dumps(item | meant).encode()) for item in answer["items"]]
    return [value for value in values if isinstance(value, of)]


@pytest.fixture(params=[pytest.param("sqlite"), pytest.param("etcd", marks=pytest.mark.etcd)])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plane]:
    etcd: Etcd | None = None
    if request.param == "etcd":
        etcd = Etcd(tmp_path)
        etcd.start()
    made = Plane(tmp_path, f"etcd:{etcd.url}" if etcd else f"sqlite:{tmp_path / 'db'}", etcd)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        if etcd:
            etcd.kill()


@pytest.mark.slow
@pytest.mark.timeout(300 + KILLS * 6)
def test_killed_at_random_everything_is_right_in_the_end_and_no_address_is_ever_shown_twice(plane: Plane) -> None:
    world = World(plane)
    with contextlib.closing(Door(plane)) as door:
        _prepare(door)
        revision = int(door.send("GET", _path(NETWORK_ATTACHMENT))[1]["metadata"]["resourceVersion"])
    watcher = Watcher(world, revision)
    threads = [threading.Thread(target=Writer(world, number).run) for number in range(WRITERS)]
    threads.append(threading.Thread(target=watcher.run))
    try:
        for thread in threads:
            thread.start()
        _kill_at_random(world, watcher, Random(1))
        world.enough.set()
        for thread in threads[:WRITERS]:
            thread.join(60)
        _examine(plane)
    finally:
        world.enough.set()
        world.over.set()
        for thread in threads:
            thread.join(60)
    assert not world.problems, f"{world.problems}\n{plane.tails()}"
    assert watcher.most > WRITERS, "hardly anybody ever had an address"
    log.info("%d requests, %d given, at most %d, killed %s", world.requests, watcher.given, watcher.most, plane.killed)


def _prepare(door: Door) -> None:
    assert door.send("POST", _path(NETWORK), _document(NETWORK, "blue", {}))[0] == 201
    for name, cidr in BLOCKS.items():
        spec = {"network": "blue", "cidr": cidr}
        assert door.send("POST", _path(SUBNET), _document(SUBNET, name, spec))[0] == 201


def _kill_at_random(world: World, watcher: Watcher, random: Random) -> None:
    """Kill somebody whenever a few have got their addresses, so that it strikes in the middle of the work."""
    for _ in range(KILLS):
        goal, deadline = watcher.given + random.randrange(60), time.monotonic() + PATIENCE
        while watcher.given < goal and time.monotonic() < deadline and not world.over.is_set():
            time.sleep(random.uniform(0.001, 0.05))
        if world.over.is_set():
            return
        world.plane.kill(random.choice(world.plane.victims()))


def _examine(plane: Plane) -> None:
    """Wait until all is as it should be, and audit it."""
    wrong: list[str] = []

    def at_rest() -> bool:
        nonlocal wrong
        with contextlib.closing(Door(plane)) as door:
            wrong = Everything(door).wrong()
        return not wrong

    try:
        wait_until(at_rest, what="everything to come to rest", timeout=REST, interval=1.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {wrong}\n{plane.tails()}") from None
    with contextlib.closing(Door(plane)) as door:
        everything = Everything(door)
    assert not everything.findings(), everything.findings()
    assert everything.attachments
    assert everything.locks
