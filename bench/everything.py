"""An agent that watches everything, to compare with one that watches relevant objects only.

    python -m bench.everything KUBECONFIG

It watches all attachments, Networks, Subnets, Mirrors, SecurityProfiles and Shapings, like an agent that selects its
own objects itself. A line on standard input requests the bytes that it received and its memory.
"""

import asyncio
import json
import resource
import sys
from pathlib import Path
from random import Random
from typing import Any

from netloom.control.runtime.informer import Informer, informer
from netloom.load.crowd import CONNECTIONS
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.kinds.paths import Mirror, Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.run import process
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore


async def main(path: str) -> None:
    """Watch everything until the input ends."""
    cluster = kubeconfig.load(path)
    client = cluster.client(tls=cluster.tls(), connections=CONNECTIONS)
    store = KubeStore(client)
    random = Random(1)
    followed: list[Informer[Any]] = [
        informer(store, kind, random=random)
        for kind in (NetworkAttachment, Network, Subnet, Mirror, SecurityProfile, Shaping)
    ]
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.run()) for one in followed]
        while await reader.readline():
            said = {
                "synced": all(one.synced.is_set() for one in followed),
                "revision": followed[0].cache.revision,
                "received": client.meter.received,
                "resident": _resident(),
            }
            print(json.dumps(said), flush=True)
        for task in tasks:
            task.cancel()
    await store.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(process.run(main(sys.argv[1])))
