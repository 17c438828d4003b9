"""Read all objects of some kinds through the API, decode each, and end: what every controller that starts must do.

python -m bench.reading KUBECONFIG KIND ...
"""

import asyncio
import sys

from netloom.model.registry import KINDS
from netloom.run import process
from netloom.store import kubeconfig
from netloom.store.kube import KubeStore


async def main(path: str, kinds: list[str]) -> None:
    """Read everything once."""
    store = await KubeStore.open(kubeconfig.load(path))
    try:
        pages = await asyncio.gather(*(store.list(KINDS.named(kind)) for kind in kinds))
        print(sum(len([one.value() for one in page.items]) for page in pages))
    finally:
        await store.close()


if __name__ == "__main__":
    sys.exit(process.run(main(sys.argv[1], sys.argv[2:])))
