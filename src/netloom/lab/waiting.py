"""Waiting until a lab is up: every process ready, the API answering, every node Ready.

Each stage says what it waits for when it begins and how long it took. It does not wait for a process that keeps dying:
after the third time the end of its log is the error.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from netloom.errors import NetloomError, TimedOut
from netloom.lab.daemons.processes import is_of, read_pid
from netloom.lab.daemons.programs import programs
from netloom.lab.kube import observing
from netloom.lab.kube import programs as kube
from netloom.lab.layout import Layout
from netloom.model.registry import NODE
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

if TYPE_CHECKING:
    from netloom.model.kinds.cluster import Node

ASK_SECONDS = 0.05
LOG_LINES = 3


def until_up(layout: Layout, *, began: datetime, deadline: float, say: Callable[[str], None]) -> None:
    """Return when the lab, whose start began at `began`, is up.

    `TimedOut` at the deadline, with the missing processes and the ends of their logs.
    """
    names = [program.name for program in programs(layout)]
    if layout.state.sites:
        _until_ready(layout, names, deadline)
        return
    if layout.state.ovn:
        servers = layout.state.ovn
        say(f"OVN: {'a cluster of three' if servers == 3 else 'one server'}")
        _until_ready(layout, [name for name in names if name.startswith(("ovn-n", "ovn-sb"))], deadline)
    say("switches")
    _until_ready(layout, [name for name in names if name.startswith(("ovs", "ovn-controller"))], deadline)
    if layout.state.kube:
        say(f"Kubernetes {layout.state.kube}")
        _until_ready(layout, ["etcd", kube.API], deadline)
    say(f"control plane at {layout.url}")
    asyncio.run(_until_nodes(layout, layout.nodes, began=began, deadline=deadline, say=say))
    if layout.state.ovn:
        _until_chassis(layout, deadline)
    _until_ready(layout, names, deadline)
    _until_kube(layout, layout.nodes, began=began, deadline=deadline)
    if layout.state.kube:
        say("every node is Ready in Kubernetes")


def _until_ready(layout: Layout, names: list[str], deadline: float) -> None:
    while missing := [name for name in names if not (layout.ready / name).exists()]:
        _check(layout, missing, deadline)
        time.sleep(ASK_SECONDS)


def _until_chassis(layout: Layout, deadline: float) -> None:
    """Wait until every node is a chassis in OVN."""
    argv = ["ovn-sbctl", f"--db={layout.remotes('sb')}", "--timeout=5", "--bare", "--columns=name", "list", "Chassis"]
    while True:
        known = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
        missing = [f"ovn-controller-{node}" for node in layout.nodes if node not in known]
        if not missing:
            return
        _check(layout, missing, deadline)
        time.sleep(ASK_SECONDS)


def _until_kube(layout: Layout, nodes: list[str], *, began: datetime, deadline: float) -> None:
    """Wait until nodes are Ready in the lab's Kubernetes, if it has one."""
    while layout.state.kube:
        ready = observing.ready_nodes(layout.kubeconfig, since=began)
        missing = [f"kubelet-{node}" for node in nodes if node not in ready]
        if not missing:
            return
        _check(layout, missing, deadline)
        time.sleep(2 * ASK_SECONDS)


def until_on(layout: Layout, node: str, *, began: datetime, deadline: float) -> None:
    """Return when a host that was powered on is Ready."""
    _until_ready(layout, [program.name for program in programs(layout) if program.place == node], deadline)
    asyncio.run(_until_nodes(layout, [node], began=began, deadline=deadline, say=lambda text: None))
    _until_kube(layout, [node], began=began, deadline=deadline)


async def _until_nodes(
    layout: Layout, nodes: list[str], *, began: datetime, deadline: float, say: Callable[[str], None]
) -> None:
    said = ""
    store = await KubeStore.open(kubeconfig.load(str(layout.kubeconfig)))
    try:
        while True:
            ready = await ready_nodes(store, since=began)
            waiting = [node for node in nodes if node not in ready]
            if not waiting:
                say("every node is Ready")
                return
            news = f"agents: {len(nodes) - len(waiting)} of {len(nodes)} nodes Ready"
            if ready and news != said:
                say(news)
                said = news
            _check(layout, [f"agent-{node}" for node in waiting], deadline)
            await asyncio.sleep(2 * ASK_SECONDS)
    finally:
        await store.close()


async def ready_nodes(store: KubeStore, *, since: datetime | None = None) -> set[str]:
    """Return the nodes that are Ready, with a heartbeat after `since`."""
    try:
        page = await store.list(NODE)
    except NetloomError:
        return set()  # The server is not up yet.
    found: list[Node] = [item.value() for item in page.items]  # type: ignore[misc]  # the list is of Nodes
    return {node.metadata.name for node in found if _is_ready(node, since)}


def _is_ready(node: "Node", since: datetime | None) -> bool:
    ready = node.status.condition("Ready")
    if ready is None or ready.status != "True":
        return False
    # The API of a lab that was up before still has the nodes' earlier statuses.
    return since is None or datetime.fromisoformat(node.status.last_heartbeat) >= since.replace(microsecond=0)


def _check(layout: Layout, missing: list[str], deadline: float) -> None:
    """Raise if waiting longer is pointless."""
    supervisor = read_pid(layout.pids, "supervisor")
    if not is_of(supervisor, layout.id, "supervisor") and not layout.state.restart:
        raise TimedOut(f"the supervisor exited: {_log_tail(layout, 'supervisor')}")
    if time.monotonic() < deadline:
        return
    tails = "\n".join(f"{name}: {_log_tail(layout, name)}" for name in missing[:2])
    raise TimedOut(f"timed out waiting for {', '.join(missing)}; the logs are in {layout.log}\n{tails}")


def _log_tail(layout: Layout, name: str) -> str:
    try:
        text = (layout.log / name).read_text(errors="replace")
    except OSError:
        return "not started"
    return "\n  ".join(["", *text.splitlines()[-LOG_LINES:]]) if text.strip() else "no output"
