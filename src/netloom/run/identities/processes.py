"""The two processes: each works with the API of a kubeconfig, or of the pod that it runs in."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from netloom.control.runtime.clock import now
from netloom.run import logs, process
from netloom.run.identities.api import Api
from netloom.run.identities.authority import Authority
from netloom.run.identities.node import Identity
from netloom.store.kube import kubeconfig

Chosen = tuple[str | None, str | None]
"""A kubeconfig and a context; None: the usual ones."""


def authority(chosen: Chosen, *, folder: Path, address: str) -> int:
    """Run until stopped; return the exit status."""
    return _run(chosen, folder, lambda api: Authority(api, folder=folder, address=address, clock=now).run())


def identity(chosen: Chosen, *, folder: Path, node: str, ca: Path) -> int:
    """Run until stopped; return the exit status."""
    return _run(chosen, folder, lambda api: Identity(api, node=node, folder=folder, ca=ca, clock=now).run())


def _run(chosen: Chosen, folder: Path, work: Callable[[Api], Awaitable[None]]) -> int:
    logs.configure(level="info", form="auto")
    path, context = chosen
    cluster = kubeconfig.load(path, context=context)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def main() -> None:
        client = cluster.client()
        try:
            await work(Api(client))
        finally:
            await client.close()

    return process.run(main())
