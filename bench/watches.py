"""What many watches of a kube-apiserver cost this client over HTTP/2, beside the same watches over HTTP/1.1.

    python -m bench.watches KUBECONFIG PROTOCOL

The watches of each protocol are opened in a process of its own, in turns, on the same kube-apiserver: connections, CPU
time (user and system) and memory are those of the process. All watches see the same changes.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from bench.table import Row
from netloom.model.registry import LEASE
from netloom.store.base import Watch
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from tests.support.kube import kube

WATCHES, CHANGES, TURNS = 200, 100, 3


def rows() -> list[Row]:
    """Measure and return the table."""
    best: dict[str, dict[str, float]] = {"h2": {}, "http/1.1": {}}
    with kube() as cluster:
        for _ in range(TURNS):  # In turns, and the best of each: other work on this machine affects both.
            for protocol, figures in best.items():
                for name, figure in _measured(cluster.kubeconfig, protocol).items():
                    figures[name] = min(figures.get(name, figure), figure)
    ours, theirs = best.values()

    def row(what: str, name: str, unit: str, wanted: float) -> Row:
        return Row(what, ours[name], unit, theirs[name], wanted, more_is_better=False)

    return [
        row("connections", "connections", "", 0.05),
        row("CPU to open the watches", "open", "ms", 0.5),
        row(f"CPU to receive {WATCHES * CHANGES:,} events", "receive", "ms", 0.8),
        row("memory of a watch", "memory", "kB", 0.2),
    ]


def _measured(path: Path, protocol: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.watches", str(path), protocol]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


async def _watch(path: str, protocol: str) -> dict[str, float]:
    cluster = kubeconfig.load(path)
    tls = cluster.tls()
    client = cluster.client(tls=tls)
    tls.set_alpn_protocols([protocol])
    store = KubeStore(client)
    since = (await store.list(LEASE, "default")).revision
    sockets, memory = _sockets(), _resident()
    start = time.process_time()
    watches = await asyncio.gather(*(store.watch(LEASE, "default", since=since) for _ in range(WATCHES)))
    opened = time.process_time() - start
    found = {
        "connections": _sockets() - sockets + 1.0,  # One was opened for the list.
        "open": opened * 1e3,
        "memory": (_resident() - memory) / WATCHES,
    }
    readers = [asyncio.create_task(_read(watch)) for watch in watches]
    start = time.process_time()
    for number in range(CHANGES):
        metadata = {"name": f"bench-{os.getpid()}-{number}", "namespace": "default"}
        await store.create(LEASE, {"metadata": metadata, "spec": {}})
    await asyncio.gather(*readers)
    found["receive"] = (time.process_time() - start) * 1e3
    await store.close()
    return found


async def _read(watch: Watch) -> None:
    seen = 0
    while seen < CHANGES:
        seen += len(await watch.next())


def _sockets() -> int:
    return sum(os.readlink(one).startswith("socket:") for one in _open_files())


def _open_files() -> list[str]:
    return [path for name in os.listdir("/proc/self/fd") if os.path.lexists(path := f"/proc/self/fd/{name}")]


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e3


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_watch(*sys.argv[1:]))))
