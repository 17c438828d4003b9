"""What must hold of a store whose process was killed, and a process to be killed.

`Tally` is told what writers were told, and checks a store against it after each crash; any `Store` will do.

Run as a program, this opens a SQLite store and creates objects with several concurrent writers, one line on standard
output for each creation that was acknowledged: `python -m tests.store.crashing PATH FIRST COUNT`.
"""

import asyncio
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from netloom.errors import AlreadyExists
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS
from netloom.store.base import EventType, Store, Stored
from netloom.store.sqlite.store import SqliteStore

ATTACHMENT = KINDS.named("networkattachments")
NAMESPACE = "default"
WRITERS = 16


def checked_object(name: str, kind: Kind = ATTACHMENT) -> Document:
    """Return an object of which one can tell whether it is whole."""
    payload = hashlib.sha256(name.encode()).hexdigest() * (1 + len(name) % 7)
    checksum = hashlib.sha256(payload.encode()).hexdigest()
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "namespace": NAMESPACE,
            "name": name,
            "annotations": {"netloom.test/payload": payload, "netloom.test/checksum": checksum},
        },
        "spec": {"node": "n1", "network": "blue"},
    }


def is_whole(stored: Stored) -> bool:
    """Whether this is the object that was sent, and all of it."""
    document = stored.document()
    metadata, sent = document["metadata"], checked_object(stored.name, stored.kind)
    return bool(
        metadata["annotations"] == sent["metadata"]["annotations"]
        and metadata["resourceVersion"] == str(stored.revision)
        and metadata["uid"]
        and metadata["generation"] == 1
        and document["spec"].items() >= sent["spec"].items()
    )


@dataclass(slots=True)
class Tally:
    """What writers and one watcher were told so far."""

    kind: Kind = ATTACHMENT
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The revision of each name whose creation was acknowledged."""
    seen: Counter[str] = field(default_factory=Counter)
    since: int = 0
    """Where the watcher resumes."""

    async def check(self, store: Store) -> None:
        """Check that nothing is lost, nothing is half there, and that a watcher that resumes sees each object once."""
        page = await store.list(self.kind, NAMESPACE)
        there = {item.name: item for item in page.items}
        lost = self.acknowledged.keys() - there.keys()
        assert not lost, f"acknowledged and lost: {sorted(lost)}"
        moved = [n for n, revision in self.acknowledged.items() if there[n].revision != revision]
        assert not moved, f"not at the revision that was acknowledged: {moved}"
        halves = [name for name, item in there.items() if not is_whole(item)]
        assert not halves, f"not whole: {halves}"
        await self._resume(store, page.revision)
        assert self.seen.keys() == there.keys()
        assert set(self.seen.values()) <= {1}, "seen twice"

    async def _resume(self, store: Store, until: int) -> None:
        watch = await store.watch(self.kind, NAMESPACE, since=self.since or 1)
        while watch.revision < until:
            for event in await watch.next():
                assert event.type is EventType.ADDED
                assert event.object.revision > self.since, "out of order"
                self.since = event.object.revision
                self.seen[event.object.name] += 1
        await watch.close()


async def write(path: str, names: Iterator[str]) -> None:
    """Create objects with several writers and say which creations were acknowledged."""
    store = await SqliteStore.open(path)

    async def writer() -> None:
        for name in names:
            try:
                made = await store.create(ATTACHMENT, checked_object(name))
            except AlreadyExists:
                made = await store.get(ATTACHMENT, NAMESPACE, name)
            os.write(sys.stdout.fileno(), f"{name} {made.revision}\n".encode())

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(writer())
    await store.close()


def main(path: str, first: str, count: str) -> None:
    """Write objects FIRST to FIRST + COUNT."""
    asyncio.run(write(path, (f"a{number:06}" for number in range(int(first), int(first) + int(count)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
