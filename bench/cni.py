"""CNI calls as a container runtime sees them, from the start of the plugin's process to its end.

One node of a lab with a real Open vSwitch and OVN, and beside it, on the same node and measured alternately, the
reference plugins bridge and host-local. Ours is measured twice: *warm*, for a pod that was given a port of a PortPool,
and *cold*, for one whose attachment was made for it and has its addresses. What the controller of a cluster does
before a runtime calls, this script does by the same writes.

    python -m bench cni
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.table import Row
from netloom.errors import Conflict
from netloom.front.cni.install import PLUGIN, put_plugin
from netloom.lab import Lab
from netloom.lab.kube.binaries import plugins
from netloom.lab.kube.places import Places
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, PORT_POOL, SUBNET
from netloom.plan.kube import names
from netloom.plan.pools import LABEL
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

NODE = "n1"
NAMESPACE = names.NAMESPACE
WARM_UP = 3
SINGLE = 40
"""How many pods of each type are added and deleted, one after another."""
BURST = 110
"""How many are added at once: what a kubelet runs at most."""
SIZE = 128
PATIENCE = 240.0


class Call(NamedTuple):
    """How to call a plugin for a pod."""

    program: str
    configuration: str
    netns: str
    pod: str

    def run(self, verb: str) -> float:
        """Run the plugin; return how long it took, in seconds."""
        environment = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": f"bench-{self.pod}",
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(Path(self.program).parent),
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={self.pod};K8S_POD_UID={self.pod}",
        }
        began = time.perf_counter()
        ended = subprocess.run(
            [self.program], input=self.configuration.encode(), env=environment, capture_output=True, check=False
        )
        took = time.perf_counter() - began
        if ended.returncode:
            raise RuntimeError(f"{verb} of {self.pod}: {ended.stdout.decode()}{ended.stderr.decode()}")
        return took


def rows() -> list[Row]:
    """Measure and return the table."""
    with tempfile.TemporaryDirectory(prefix="nlb-") as folder:
        lab = Lab.up(Path(folder) / "lab", nodes=1)
        try:
            python = os.path.realpath(sys.executable)  # The plugin uses no packages of the environment.
            put_plugin(Path(folder), agent=Places(lab.layout).cni_socket(NODE), python=python)
            # In a process of its own: the reference makes its bridge where it runs.
            inside = ["nsenter", f"--net=/run/netns/{lab.netns(NODE)}", "--"]
            argv = [*inside, sys.executable, "-m", "bench.cni", folder]
            ended = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
        finally:
            lab.down()
    return [Row(*one) for one in json.loads(ended.stdout)]


async def measure(folder: Path) -> list[Row]:
    """Measure in a lab that is up, within the network namespace of its node."""
    lab = Lab(folder / "lab")
    async with opened(lab) as store:
        bench = Bench(store, lab, folder)
        return [*await bench.singles(), *await bench.bursts()]


class Bench:
    """The pods of a node, of three types."""

    def __init__(self, store: KubeStore, lab: Lab, folder: Path) -> None:
        self._store = store
        self._lab = lab
        self._folder = folder
        self._threads = ThreadPoolExecutor(BURST)
        self._made = 0

    async def singles(self) -> list[Row]:
        """Measure calls one after another."""
        kinds: dict[str, Callable[[], Any]] = {"warm": self._warm, "cold": self._cold, "bridge": self._bridge}
        added: dict[str, list[float]] = {kind: [] for kind in kinds}
        deleted: dict[str, list[float]] = {kind: [] for kind in kinds}
        await self._filled(SINGLE + WARM_UP)
        for _ in range(WARM_UP + SINGLE):
            for kind, make in kinds.items():
                call = await make()
                await asyncio.sleep(0.05)  # A runtime takes longer to start a sandbox.
                added[kind].append(await self._thread(call, "ADD") * 1000)
                deleted[kind].append(await self._thread(call, "DEL") * 1000)
        add = {kind: statistics.median(some[WARM_UP:]) for kind, some in added.items()}
        gone = {kind: statistics.median(some[WARM_UP:]) for kind, some in deleted.items()}
        worst = {kind: statistics.quantiles(some[WARM_UP:], n=20)[-1] for kind, some in added.items()}
        return [
            Row("ADD with a warm pool, p50", add["warm"], "ms", add["bridge"], 1.0, more_is_better=False),
            Row("ADD with a warm pool, p95", worst["warm"], "ms", worst["bridge"]),
            Row("ADD cold, p50", add["cold"], "ms", add["bridge"], 3.0, more_is_better=False),
            Row("ADD cold, p95", worst["cold"], "ms", worst["bridge"]),
            Row("DEL, p50", gone["cold"], "ms", gone["bridge"], 1.0, more_is_better=False),
            Row("DEL of a port of a pool, p50", gone["warm"], "ms", gone["bridge"], 1.0, more_is_better=False),
        ]

    async def bursts(self) -> list[Row]:
        """Measure many calls at once; the reference adds them one after another."""
        took: dict[str, float] = {}
        for kind, make in (("warm", self._warm), ("cold", self._cold)):
            await self._filled(BURST)
            calls = [await make() for _ in range(BURST)]
            await asyncio.sleep(2)
            took[kind] = await self._all(calls, "ADD")
            await self._all(calls, "DEL")
        calls = [await self._bridge() for _ in range(BURST)]
        took["bridge"] = sum([await self._thread(call, "ADD") for call in calls])
        what = f"{BURST} ADDs at once, to the last"
        return [
            Row(f"{what}, warm", took["warm"], "s", took["bridge"], 1.0, more_is_better=False),
            Row(f"{what}, cold", took["cold"], "s", took["bridge"], 1.0, more_is_better=False),
        ]

    async def _all(self, calls: Sequence[Call], verb: str) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self._thread(call, verb) for call in calls))
        return time.perf_counter() - began

    async def _thread(self, call: Call, verb: str) -> float:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call.run, verb)

    async def _warm(self) -> Call:
        """Return a pod that was given a port of the pool."""
        call = self._pod()
        while True:
            free = [one for one in await self._ports() if _is_ready(one)]
            one = free[0]
            one["metadata"]["ownerReferences"] = []
            one["metadata"] |= _of(call.pod, {LABEL: "pool"})
            with contextlib.suppress(Conflict):
                await self._store.update(NETWORK_ATTACHMENT, one)
                return call

    async def _cold(self) -> Call:
        """Return a pod whose attachment has its addresses."""
        call = self._pod()
        name = names.pod("bench", call.pod)
        spec = {"node": NODE, "network": "pods", "port": {"type": "pod"}, "defaultRoute": True}
        document = _document(NETWORK_ATTACHMENT, name, spec)
        document["metadata"] |= _of(call.pod, {})
        await self._store.create(NETWORK_ATTACHMENT, document)

        async def addressed() -> bool:
            one = (await self._store.get(NETWORK_ATTACHMENT, NAMESPACE, name)).document()
            return bool(one.get("status", {}).get("ips"))

        await _until(addressed)
        return call

    async def _bridge(self) -> Call:
        """Return a pod of the reference."""
        ipam = {
            "type": "host-local",
            "dataDir": str(self._folder / "leases"),
            "ranges": [[{"subnet": "10.99.0.0/16"}]],
        }
        more = {"bridge": "cni0", "isDefaultGateway": True, "ipMasq": False, "ipam": ipam}
        text = json.dumps({"cniVersion": "1.0.0", "name": "reference", "type": "bridge", **more})
        call = self._pod()
        return call._replace(program=f"{plugins()}/bridge", configuration=text)

    def _pod(self) -> Call:
        self._made += 1
        name = f"p{self._made}"
        text = json.dumps({"cniVersion": "1.0.0", "name": "netloom", "type": PLUGIN})
        return Call(str(self._folder / PLUGIN), text, str(self._lab.workload(name)), name)

    async def _ports(self) -> list[Document]:
        page = await self._store.list(NETWORK_ATTACHMENT, NAMESPACE)
        return [one.document() for one in page.items if one.document()["metadata"].get("ownerReferences")]

    async def _filled(self, number: int) -> None:
        async def filled() -> bool:
            return sum(map(_is_ready, await self._ports())) >= number

        await _until(filled)


@contextlib.asynccontextmanager
async def opened(lab: Lab) -> AsyncIterator[KubeStore]:
    """Yield the API, with the Network of pods and a PortPool in it."""
    store = await KubeStore.open(kubeconfig.load(str(lab.kubeconfig)))
    try:
        await store.create(NETWORK, _document(NETWORK, "pods", {}))
        await store.create(SUBNET, _document(SUBNET, "pods", {"network": "pods", "cidr": "10.98.0.0/16"}))
        spec = {"node": NODE, "network": "pods", "size": SIZE, "defaultRoute": True}
        await store.create(PORT_POOL, _document(PORT_POOL, "pool", spec))
        yield store
    finally:
        await store.close()


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  # a measurement may poll
            await asyncio.sleep(0.05)


def _of(pod: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the metadata by which an agent knows a pod's attachment."""
    labels = {**labels, names.OF_NAMESPACE: "bench", names.POD_UID: pod}
    return {"labels": labels, "annotations": {names.POD_NAME: pod}}


def _is_ready(one: Document) -> bool:
    conditions: Iterable[Any] = one.get("status", {}).get("conditions", ())
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _document(kind: Kind, name: str, spec: dict[str, Any]) -> Document:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1])))))
