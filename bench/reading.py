"""Read all objects of some kinds through the API, decode each, and exit: what every starting controller must do.

python -m bench.reading KUBECONFIG NORTHBOUND KIND ... [CLUSTER.kubeconfig]

With the address of a northbound database, its rows are read too; "" for none. With the kubeconfig of a cluster, all
that the network of the cluster is made of is read there too.
"""

import asyncio
import sys
from random import Random

from netloom.drivers.northbound.driver import DATABASE, TABLES
from netloom.model.kinds.kubernetes import decode
from netloom.model.kubernetes import KUBERNETES_KINDS
from netloom.model.registry import KINDS
from netloom.ovsdb.io import OvsdbClient
from netloom.run import process
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore


async def main(path: str, northbound: str, kinds: list[str]) -> None:
    """Read everything once."""
    if kinds[-1].endswith("kubeconfig"):
        await _read_cluster(kinds.pop())
    store = await KubeStore.open(kubeconfig.load(path))
    rows = OvsdbClient([northbound], DATABASE, tables=TABLES, random=Random(1)) if northbound else None
    running = asyncio.create_task(rows.run()) if rows else None
    try:
        pages = await asyncio.gather(*(store.list(KINDS.named(kind)) for kind in kinds))
        print(sum(len([one.value() for one in page.items]) for page in pages))
        if rows:
            await rows.synced.wait()
    finally:
        if running:
            running.cancel()
        await store.close()


async def _read_cluster(path: str) -> None:
    store = await KubeStore.open(kubeconfig.load(path))
    try:
        kinds = list(KUBERNETES_KINDS)
        pages = await asyncio.gather(*(store.list(kind) for kind in kinds))
        for kind, page in zip(kinds, pages, strict=True):
            for one in page.items:
                decode(one.raw, kind.type)
    finally:
        await store.close()


if __name__ == "__main__":
    sys.exit(process.run(main(sys.argv[1], sys.argv[2], sys.argv[3:])))
