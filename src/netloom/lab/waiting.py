"""Waiting until a lab is up: every process ready, the API answering, every node Ready.

Each stage says what it waits for when it begins and how long it took. A process that keeps dying is not waited for in
vain: after the third time its last words are the error.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from netloom.errors import NetloomError, TimedOut
from netloom.lab.layout import Layout
from netloom.lab.processes import is_of, read_pid
from netloom.lab.programs import programs
from netloom.model.registry import NODE
from netloom.store import kubeconfig
from netloom.store.kube import KubeStore

if TYPE_CHECKING:
    from netloom.model.cluster import Node

ASK_SECONDS = 0.05
LAST_WORDS = 3


def until_up(layout: Layout, *, deadline: float, say: Callable[[str], None]) -> None:
    """Return when the lab is up; `TimedOut` with what is missing, and its last words, at the deadline."""
    names = [program.name for program in programs(layout)]
    if layout.state.ovn:
        servers = layout.state.ovn
        say(f"OVN: {'a cluster of three' if servers == 3 else 'one server'}")
        _until_ready(layout, [name for name in names if name.startswith(("ovn-n", "ovn-sb"))], deadline)
    say("switches")
    _until_ready(layout, [name for name in names if name.startswith(("ovs", "ovn-controller"))], deadline)
    say(f"control plane at {layout.url}")
    asyncio.run(_until_nodes(layout, deadline, say))
    _until_ready(layout, names, deadline)


def _until_ready(layout: Layout, names: list[str], deadline: float) -> None:
    while missing := [name for name in names if not (layout.ready / name).exists()]:
        _check(layout, missing, deadline)
        time.sleep(ASK_SECONDS)


async def _until_nodes(layout: Layout, deadline: float, say: Callable[[str], None]) -> None:
    said = ""
    store = await KubeStore.open(kubeconfig.load(str(layout.kubeconfig)))
    try:
        while True:
            ready = await ready_nodes(store)
            waiting = [node for node in layout.nodes if node not in ready]
            if not waiting:
                say("every node is Ready")
                return
            news = f"agents: {len(layout.nodes) - len(waiting)} of {len(layout.nodes)} nodes Ready"
            if ready and news != said:
                say(news)
                said = news
            _check(layout, [f"agent-{node}" for node in waiting], deadline)
            await asyncio.sleep(2 * ASK_SECONDS)
    finally:
        await store.close()


async def ready_nodes(store: KubeStore) -> set[str]:
    """Return the nodes that say they are Ready."""
    try:
        page = await store.list(NODE)
    except NetloomError:
        return set()  # The server is still to come.
    found: list[Node] = [item.value() for item in page.items]  # type: ignore[misc]  # the list is of Nodes
    return {node.metadata.name for node in found if _is_ready(node)}


def _is_ready(node: "Node") -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _check(layout: Layout, missing: list[str], deadline: float) -> None:
    """Raise when there is nothing to wait for any more."""
    supervisor = read_pid(layout.pids, "supervisor")
    if not is_of(supervisor, layout.id, "supervisor") and not layout.state.restart:
        raise TimedOut(f"the supervisor ended: {_last_words(layout, 'supervisor')}")
    if time.monotonic() < deadline:
        return
    told = "\n".join(f"{name}: {_last_words(layout, name)}" for name in missing[:2])
    raise TimedOut(f"gave up waiting for {', '.join(missing)}; logs are in {layout.log}\n{told}")


def _last_words(layout: Layout, name: str) -> str:
    try:
        text = (layout.log / name).read_text(errors="replace")
    except OSError:
        return "it was not started"
    return "\n  ".join(["", *text.splitlines()[-LAST_WORDS:]]) if text.strip() else "it said nothing"
