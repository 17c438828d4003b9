"""How soon a peer hears of an attachment that becomes Ready, beside a plain watch that sees the same write.

A real `netloom serve` and `netloom speaker`; this process writes the statuses, watches, and is the speaker's BGP peer.
Both figures begin before the write: one ends when the watch has the event, the other when the UPDATE has arrived.
"""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from random import Random

from bench.table import Row
from netloom.bgp.io import Changes, Endpoint, SpeakerIO
from netloom.bgp.nlri import EVPN, MAC_IP
from netloom.bgp.speaker import PeerConfig, Speaker
from netloom.errors import Conflict
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    SUBNET,
)
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.store.base import Watch
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from tests.run.serving import NETLOOM, environment, serving
from tests.support.process import Program, free_port

ATTACHMENTS = 300
OURS, THEIRS = "127.0.0.1", "127.0.0.2"
OF_NETWORK = Selector((), (Requirement("spec.network", Operator.IN, frozenset(("blue",))),))


def rows() -> list[Row]:
    """Measure and return the table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving(folder))
        argv: list[str | Path] = [*NETLOOM, "speaker", "--kubeconfig", server.kubeconfig, "--node", "n1"]
        argv += ["--speaker-socket", folder / "speaker.sock"]
        stack.enter_context(Program(argv, log=folder / "speaker.log", env=environment()))
        heard, seen = asyncio.run(_measured(server.kubeconfig))
    return [
        Row(
            f"attachment Ready to UPDATE, p{percent}",
            1000 * _percentile(heard, percent),
            "ms",
            1000 * _percentile(seen, percent),
            wanted,
            more_is_better=False,
        )
        for percent, wanted in ((50, None), (99, 2.0))
    ]


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


class _Peer:
    """The speaker's peer, which notes when it hears of a machine."""

    def __init__(self, port: int) -> None:
        self.heard: dict[str, float] = {}
        speaker = Speaker(65000, IPv4Address("192.0.2.9"), random=Random(1))
        self._io = SpeakerIO(speaker, listen=(THEIRS, port), on_changes=self._changed, on_event=lambda _: None)

    async def run(self) -> None:
        self._io.speaker.complete()
        self._io.add_peer(PeerConfig(OURS, 65000, passive=True), Endpoint(OURS))
        await self._io.run()

    def _changed(self, changes: Changes) -> None:
        now = time.perf_counter()
        for key in changes.get(EVPN, {}):
            if key[0] == MAC_IP:
                self.heard.setdefault(key[14:20].hex(":"), now)


async def _measured(path: Path) -> tuple[list[float], list[float]]:
    store = await KubeStore.open(kubeconfig.load(str(path)))
    port = free_port()
    peer = _Peer(port)
    seen: dict[str, float] = {}
    async with asyncio.TaskGroup() as group:
        peering = group.create_task(peer.run())
        await _prepare(store, port)
        listed = await store.list(NETWORK_ATTACHMENT, "default", selector=OF_NETWORK)
        watch = await store.watch(NETWORK_ATTACHMENT, "default", selector=OF_NETWORK, since=listed.revision)
        watching = group.create_task(_follow(watch, seen))
        written: dict[str, float] = {}
        for number in range(ATTACHMENTS):
            mac = await _plug(store, f"a{number}", written)
            while mac not in peer.heard or mac not in seen:  # noqa: ASYNC110 - Two things to wait for.
                await asyncio.sleep(0.0005)
        for task in (peering, watching):
            task.cancel()
    await watch.close()
    await store.close()
    return ([peer.heard[mac] - at for mac, at in written.items()], [seen[mac] - at for mac, at in written.items()])


async def _follow(watch: Watch, seen: dict[str, float]) -> None:
    """Note when the watch has an attachment that is plugged."""
    while True:
        events = await watch.next()
        now = time.perf_counter()
        for event in events:
            status = event.object.document().get("status") or {}
            if status.get("hostIP"):
                seen.setdefault(status["mac"], now)


async def _prepare(store: KubeStore, port: int) -> None:
    """Create a Network that is extended, with attachments that have addresses and are not plugged."""

    async def create(kind: Kind, name: str, spec: Document) -> None:
        metadata = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        await store.create(kind, document)

    await create(NODE, "n1", {"underlayIP": "192.0.2.1"})
    await create(NETWORK, "blue", {"vni": 10})
    await create(SUBNET, "blue", {"network": "blue", "cidr": "10.0.0.0/16"})
    await create(BGP_SPEAKER, "main", {"asn": 65000, "routerID": "192.0.2.1", "node": "n1"})
    await create(BGP_PEER, "bench", {"speaker": "main", "address": THEIRS, "port": port, "remoteASN": 65000})
    await create(EVPN_NETWORK, "blue", {"network": "blue", "speaker": "main"})
    for number in range(ATTACHMENTS):
        await create(NETWORK_ATTACHMENT, f"a{number}", {"node": "n1", "network": "blue"})
    while True:
        items = (await store.list(NETWORK_ATTACHMENT, "default")).items
        addressed = all((one.document().get("status") or {}).get("mac") for one in items)
        state = (await store.get(BGP_PEER, "default", "bench")).document().get("status") or {}
        if addressed and state.get("state") == "Established":
            return
        await asyncio.sleep(0.1)


async def _plug(store: KubeStore, name: str, written: dict[str, float]) -> str:
    """Write a status as the agent does when an attachment is plugged; return its MAC address."""
    while True:
        document = (await store.get(NETWORK_ATTACHMENT, "default", name)).document()
        document["status"]["hostIP"] = "192.0.2.1"
        mac: str = document["status"]["mac"]
        written[mac] = time.perf_counter()
        try:
            await store.update(NETWORK_ATTACHMENT, document, subresource="status")
        except Conflict:
            continue
        return mac
