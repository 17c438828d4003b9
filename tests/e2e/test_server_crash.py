"""kill -9 of `netloom serve` in the middle of 10,000 creates over HTTPS, ten times.

Two servers take 10,000 creates each from concurrent clients; each is killed ten times, at random points, and started
again; NETLOOM_TEST_SERVERS=5 has five of them. A client whose connection breaks does not know whether its object was
stored, and goes on with the next. Watchers resume from the last resourceVersion they saw. In the end:

- every object whose creation was acknowledged is there, at the revision that was acknowledged;
- nothing is there but those and the uncertain ones, and each is whole: as it was sent;
- every watcher saw each object exactly once, in order of revision, and none that is not there.
"""

import contextlib
import http.client
import itertools
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.run.serving import Serving
from tests.support.process import wait_until

SERVERS = int(os.environ.get("NETLOOM_TEST_SERVERS", "2"))
OBJECTS = 10_000
KILLS = 10
CLIENTS = 8
WATCHERS = 3
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
"""A kind that no controller writes to: what the watchers see is what the clients did."""


@dataclass
class World:
    """What the clients and watchers of one server share."""

    server: Serving
    up: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(OBJECTS)))
    acknowledged: dict[str, int] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    unsent: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        return len(self.acknowledged) + len(self.uncertain) + len(self.unsent)

    @contextlib.contextmanager
    def supposed_to_work(self) -> Iterator[None]:
        """Keep a thread's failure for the main thread, and let everybody stop."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            self.problems.append(repr(error))
            self.over.set()


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"holderIdentity": name * 5, "leaseDurationSeconds": 3},
    }


def create(world: World) -> None:
    """Create objects until there are no more numbers; a broken connection makes one object uncertain."""
    connection: http.client.HTTPSConnection | None = None
    headers: dict[str, str] = {}
    with world.supposed_to_work():
        for number in world.numbers:
            if world.over.is_set():
                break
            name = f"a{number:05}"
            try:
                if connection is None:
                    world.up.wait(120)
                    connection, headers = world.server.connect()
                    connection.connect()
            except OSError:
                connection = None
                world.unsent.add(name)
                continue
            try:
                connection.request(
                    "POST", LEASES, json.dumps(lease(name)), headers | {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                world.uncertain.add(name)
                connection.close()
                connection = None
            else:
                assert answer.status == 201, body
                world.acknowledged[name] = int(json.loads(body)["metadata"]["resourceVersion"])
    if connection is not None:
        connection.close()


class Watcher:
    """Watches from the empty list on, resuming across every crash."""

    def __init__(self, world: World, revision: int) -> None:
        self._world = world
        self.seen: list[tuple[str, int]] = []
        self.revision = revision

    def run(self) -> None:
        with self._world.supposed_to_work():
            while not self._world.over.is_set():
                self._world.up.wait(120)
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    self._follow()

    def _follow(self) -> None:
        connection, headers = self._world.server.connect()
        with contextlib.closing(connection), contextlib.ExitStack() as held:
            query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={self.revision}"
            connection.request("GET", f"{LEASES}?{query}", headers=headers)
            answer = held.enter_context(connection.getresponse())
            assert answer.status == 200, answer.read()
            for line in iter(answer.readline, b""):
                if not line.endswith(b"\n"):
                    return  # Cut off by the crash: it will come again.
                event = json.loads(line)
                assert event["type"] in ("ADDED", "BOOKMARK"), event
                metadata = event["object"]["metadata"]
                self.revision = int(metadata["resourceVersion"])
                if event["type"] == "ADDED":
                    self.seen.append((metadata["name"], self.revision))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SERVERS))
def test_killed_ten_times_it_loses_nothing_acknowledged_and_watchers_miss_nothing(tmp_path: Path, seed: int) -> None:
    server = Serving(tmp_path)
    world = World(server)
    server.start()
    world.up.set()
    empty = json.loads(server.request("GET", LEASES)[1])
    watchers = [Watcher(world, int(empty["metadata"]["resourceVersion"])) for _ in range(WATCHERS)]
    threads = [threading.Thread(target=watcher.run) for watcher in watchers]
    threads += [threading.Thread(target=create, args=(world,)) for _ in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        _kill_at_random(world, Random(seed))
        wait_until(lambda: world.done >= OBJECTS or world.over.is_set(), what="all creates to end", timeout=200)
        listed = _listed(server)
        last = max(listed.values(), default=0)
        wait_until(
            lambda: all(watcher.revision >= last for watcher in watchers) or world.over.is_set(),
            what="the watchers to see the last object",
        )
    finally:
        world.over.set()
        world.up.set()
        server.kill()
        for thread in threads:
            thread.join(60)
    assert not world.problems, world.problems
    _check(world, listed, watchers)


def _kill_at_random(world: World, random: Random) -> None:
    for point in sorted(random.sample(range(OBJECTS // 20, OBJECTS - OBJECTS // 20), KILLS)):
        wait_until(
            lambda at=point: world.done >= at or world.over.is_set(),  # type: ignore[misc]
            what=f"{point} creates",
            timeout=120,
            interval=random.uniform(0.001, 0.02),
        )
        world.up.clear()
        world.server.kill()
        world.server.start()
        world.up.set()


def _listed(server: Serving) -> dict[str, int]:
    """Return every object with its revision, having checked that each is whole."""
    found: dict[str, int] = {}
    uids: set[str] = set()
    token = ""
    for _ in itertools.count():
        page = json.loads(server.request("GET", f"{LEASES}?limit=2000&continue={token}")[1])
        for item in page["items"]:
            metadata = item["metadata"]
            sent = lease(metadata["name"])
            assert item["spec"].items() >= sent["spec"].items()
            assert metadata["labels"] == sent["metadata"]["labels"]
            assert metadata["generation"] == 1
            assert metadata["creationTimestamp"]
            uids.add(metadata["uid"])
            found[metadata["name"]] = int(metadata["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert len(uids) == len(found)
    return found


def _check(world: World, listed: dict[str, int], watchers: list[Watcher]) -> None:
    assert world.acknowledged.items() <= listed.items(), "acknowledged, and not there as acknowledged"
    assert listed.keys() <= world.acknowledged.keys() | world.uncertain, "there, and never sent"
    assert len(world.acknowledged) > OBJECTS // 2, "the clients were away too long for this to mean anything"
    for watcher in watchers:
        revisions = [revision for _, revision in watcher.seen]
        assert revisions == sorted(set(revisions)), "seen out of order, or twice"
        assert dict(watcher.seen) == listed, "missed, or seen and not there"
        assert len(watcher.seen) == len(listed), "seen twice"
