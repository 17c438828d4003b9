"""Two or more sites in one process: each with a store, the controllers and a speaker, over real sockets on loopback."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from netloom.control.evpn.answers import Request, answer
from netloom.control.evpn.host import SpeakerHost
from netloom.control.evpn.speaker import SpeakerServices
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import now
from netloom.control.runtime.events import Recorder
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    REMOTE_VTEP,
)
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document

T = TypeVar("T")
LIMIT = 120.0
"""Ends hangs."""


async def eventually(check: Callable[[], Awaitable[T]], what: str) -> T:
    """Wait until a check returns something true, and return that."""
    began = time.monotonic()
    while time.monotonic() - began < LIMIT:
        if found := await check():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {LIMIT:g} s: {what}")


class Site:
    """One site: its store, controllers, and the speaker of its node `gw`."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        own = os.getpid() % 62_500  # Other processes test beside this one.
        self.address = f"127.{own // 250 + 1}.{own % 250}.{number}"
        self.vtep = f"192.0.2.{number}"
        self.store = MemoryStore(clock=time.time, random=Random(number))
        self.folder = folder
        self._tasks: list[asyncio.Task[Any]] = []
        self._speaking: asyncio.Task[None] | None = None
        self.host: SpeakerHost | None = None

    async def create(self, kind: Kind, name: str, spec: Document, **metadata: Any) -> None:
        await self.store.create(kind, document(kind, name, spec, "default", **metadata))

    async def status(self, kind: Kind, name: str, status: Document) -> None:
        stored = (await self.store.get(kind, "default", name)).document()
        stored["status"] = {**stored.get("status", {}), **status}
        await self.store.update(kind, stored, subresource="status")

    async def attach(self, name: str, mac: str, ips: Iterable[str], host: str = "", network: str = "blue") -> None:
        """Create an attachment as if IPAM and the agent had done their part."""
        spec = {"node": "n1", "network": network}
        with contextlib.suppress(Exception):
            await self.store.delete(NETWORK_ATTACHMENT, "default", name)
        await self.create(NETWORK_ATTACHMENT, name, spec)
        locks = [{"ip": ip, "name": f"l{number}", "uid": "u"} for number, ip in enumerate(ips)]
        status = {"mac": mac, "ips": [f"{ip}/24" for ip in ips], "locks": locks, "hostIP": host or self.vtep, "vni": 10}
        await self.status(NETWORK_ATTACHMENT, name, status)

    async def stretch(self, fabric: str = "ovn", name: str = "blue", vni: int = 10, **spec: Any) -> None:
        await self.create(NETWORK, name, {"fabric": fabric, "vni": vni})
        await self.create(EVPN_NETWORK, name, {"network": name, "speaker": "main", **spec})

    async def peer(self, other: "Site", **spec: Any) -> None:
        await self.create(
            BGP_PEER,
            f"site{other.number}",
            {"speaker": "main", "address": other.address, "port": other.port, "remoteASN": other.asn, **spec},
        )

    @property
    def asn(self) -> int:
        return 65000

    @property
    def port(self) -> int:
        return 21790

    async def start(self) -> None:
        random = Random(self.number)
        parts = ("evpn", "networks", "subnets", "garbage")
        plane = assemble(self.store, random=random, clock=now, collect=True, parts=parts)
        self._tasks.append(asyncio.create_task(plane.run()))
        listen = {"address": self.address, "port": self.port}
        await self.create(BGP_SPEAKER, "main", {"asn": self.asn, "routerID": self.vtep, "node": "gw", "listen": listen})
        self.speak()

    def speak(self) -> None:
        random = Random(self.number)
        services = SpeakerServices(
            store=self.store,
            client=Client(self.store),
            recorder=Recorder(self.store, "netloom-agent", random=random, host="gw"),
            node="gw",
            clock=now,
            random=random,
            password_folder=self.folder,
        )
        socket = str(self.folder / f"site{self.number}.sock")
        self.host = SpeakerHost(services, socket=socket, namespaces=("default",))
        self._speaking = asyncio.create_task(self.host.run())
        self._tasks.append(asyncio.create_task(services.recorder.run()))

    async def silence(self) -> None:
        """Stop the speaker, as a process that is killed."""
        assert self._speaking is not None
        await _cancelled(self._speaking)

    async def end_controllers(self) -> None:
        """Stop the controllers: the speaker goes on with what they have written."""
        while self._tasks:
            await _cancelled(self._tasks.pop())

    async def stop(self) -> None:
        for task in [*self._tasks, *([self._speaking] if self._speaking else [])]:
            await _cancelled(task)
        await self.store.close()

    async def remote(self) -> dict[str, list[str]]:
        """Return the machines of other sites: MAC, VTEP and addresses."""
        found = {}
        for stored in (await self.store.list(REMOTE_VTEP)).items:
            spec = stored.document()["spec"]
            for one in spec.get("macs", ()):
                found[one["mac"]] = [spec["address"], *one.get("ips", ())]
        return found

    async def flooded(self) -> set[str]:
        specs = [stored.document()["spec"] for stored in (await self.store.list(REMOTE_VTEP)).items]
        return {spec["address"] for spec in specs if spec.get("flood")}

    def ask(self, command: str, **request: Any) -> list[dict[str, Any]]:
        assert self.host is not None
        items = answer(self.host.running, Request(command, **request))
        return [item for item in items if item is not None]

    async def events(self) -> set[tuple[str, str]]:
        """Return the kind and the reason of all Events."""
        found = [stored.document() for stored in (await self.store.list(EVENT)).items]
        return {(one["involvedObject"]["kind"], one["reason"]) for one in found}

    async def established(self) -> int:
        stored = await self.store.get(BGP_SPEAKER, "default", "main")
        count: int = stored.document().get("status", {}).get("established", 0)
        return count


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def sites(folder: Path, count: int = 2, kind: type[Site] = Site) -> AsyncIterator[list[Site]]:
    """Give sites that peer with each other in a full mesh."""
    made = [kind(number, folder) for number in range(1, count + 1)]
    try:
        for site in made:
            await site.start()
            for other in made:
                if other is not site:
                    await site.peer(other)
        yield made
    finally:
        for site in made:
            await site.stop()
