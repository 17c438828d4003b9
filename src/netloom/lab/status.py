"""The current state of a lab, as values, and as a tree for people.

It is observed from outside: pid files compared with /proc, the supervisor's log for the number of restarts, the API for
the state of the nodes. A part that does not answer is shown as such, and never makes the command fail.
"""

import asyncio
import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

from netloom.errors import NetloomError
from netloom.lab import state, waiting
from netloom.lab.daemons import databases, processes
from netloom.lab.daemons.programs import programs
from netloom.lab.kube import observing
from netloom.lab.kube.places import PLACE as KUBE
from netloom.lab.layout import OUTSIDE_ADDRESSES, PHYSICAL_NETWORK, ROUTER, Layout, router_ip
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

API_SECONDS = 3.0
LABELS = {"starting": "not up yet", "up": "up", "down": "down"}


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """One process of a lab."""

    name: str
    pid: int = 0
    """0: not running."""
    ready: bool = False
    seconds: int = 0
    """How long it has been running."""
    restarts: int = 0
    leader: bool = False
    """Whether it leads its cluster."""


class PlaceStatus(Struct, frozen=True, kw_only=True):
    """The control plane, the central, a node, the outside."""

    name: str
    netns: str = ""
    about: str = ""
    version: str = ""
    off: bool = False
    """Whether it is powered off."""
    ready: bool | None = None
    """Whether a node is Ready; None for other places."""
    kube_ready: bool | None = None
    """Whether a node is Ready in the lab's Kubernetes; None without one, and for other places."""
    attachments: int = 0
    processes: tuple[ProcessStatus, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether everything here is running and ready."""
        return False not in (self.ready, self.kube_ready) and all(one.pid and one.ready for one in self.processes)


class Status(Struct, frozen=True, kw_only=True):
    """A whole lab."""

    folder: str
    id: str
    phase: state.Phase
    url: str
    kubeconfig: str
    places: tuple[PlaceStatus, ...]
    sites: tuple["Status", ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether the lab is up, and everything is running and ready."""
        healthy = all(place.healthy for place in self.places) and all(site.healthy for site in self.sites)
        return self.phase == "up" and healthy


def observe(folder: Path) -> Status:
    """Return the status of the lab in `folder`."""
    layout = Layout(folder.absolute(), state.load(folder.absolute()))
    running = layout.state.phase != "down"
    ready, attachments = asyncio.run(_ask(layout)) if running and layout.nodes else (set[str](), Counter[str]())
    in_kube = observing.ready_nodes(layout.kubeconfig) if running and layout.state.kube else set[str]()
    again = _restarts(layout)
    found = {program.name: _process(layout, program.name, again) for program in programs(layout)}
    central = [found[name] for name in ("serve", "controller") if name in found]
    central += [_process(layout, "supervisor", again), *(found[name] for name in found if name == "keeper")]
    about = layout.url if layout.has_api else ""
    places = [PlaceStatus(name="control plane", about=about, processes=tuple(central))] if found else []
    for place in layout.places:
        own = [found[program.name] for program in programs(layout) if program.place == place]
        if running and layout.state.ovn == 3 and place in layout.centrals:
            own = [msgspec.structs.replace(one, leader=_leads(layout, one.name)) for one in own]
        places.append(
            PlaceStatus(
                name=place,
                netns=layout.netns(place),
                about=_about(layout, place),
                version=_version(layout, place),
                off=layout.is_off(place),
                ready=place in ready and not layout.is_off(place) if place in layout.nodes else None,
                kube_ready=place in in_kube and not layout.is_off(place)
                if layout.state.kube and place in layout.nodes
                else None,
                attachments=attachments[place],
                processes=tuple(own),
            )
        )
    return Status(
        folder=str(layout.folder),
        id=layout.id,
        phase=layout.state.phase,
        url=about,
        kubeconfig=str(layout.kubeconfig) if layout.has_api else "",
        places=tuple(places),
        sites=tuple(map(observe, state.left_sites(layout.folder))),
    )


def tree(status: Status) -> list[str]:
    """Return the status as lines."""
    nodes = [place for place in status.places if place.ready is not None]
    unready = sum(not one.pid or not one.ready for place in status.places for one in place.processes)
    ready = sum(place.ready is True for place in nodes)
    verdict = LABELS[status.phase]
    if status.sites:
        verdict += f", {sum(one.phase == 'up' for one in status.sites)} of {len(status.sites)} sites up"
    elif status.phase != "down":
        verdict += f", {ready} of {len(nodes)} nodes Ready" + (f", {unready} processes not ready" if unready else "")
    lines = [f"{status.folder}  (lab {status.id}: {verdict})"]
    sites = [line for one in status.sites for line in ("", *tree(one))]
    if status.phase == "down":
        return lines + sites
    width = max((len(one.name) for place in status.places for one in place.processes), default=0)
    for place in status.places:
        last = place is status.places[-1]
        lines.append(f"{'└─' if last else '├─'} {_headline(place)}")
        stem = "   " if last else "│  "
        for process in place.processes:
            fork = "└─" if process is place.processes[-1] else "├─"
            lines.append(f"{stem}{fork} {process.name.ljust(width)}  {_condition(process)}")
    return lines + sites


def _headline(place: PlaceStatus) -> str:
    words = [place.about, place.version]
    if place.ready is not None:
        words += ["OFF" if place.off else "Ready" if place.ready else "NOT READY"]
        words += ["NOT READY in Kubernetes"] if place.kube_ready is False and not place.off else []
        words += [f"{place.attachments} attachment{'s' * (place.attachments != 1)}"] if place.attachments else []
    return f"{place.name}  {', '.join(word for word in words if word)}".rstrip()


def _condition(process: ProcessStatus) -> str:
    if not process.pid:
        return "NOT RUNNING"
    words = [_duration(process.seconds)]
    words += [] if process.ready else ["not ready yet"]
    words += ["leader"] if process.leader else []
    words += [f"restarted {process.restarts}x"] if process.restarts else []
    return f"{process.pid:>7}  {', '.join(words)}"


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 3600 else f"{seconds // 3600}h{seconds % 3600 // 60:02}m"


def _process(layout: Layout, name: str, again: Counter[str]) -> ProcessStatus:
    pid = processes.read_pid(layout.pids, name)
    if not pid or not processes.is_of(pid, layout.id, name):
        return ProcessStatus(name=name, restarts=again[name])
    ready = name == "supervisor" or (layout.ready / name).exists()
    return ProcessStatus(name=name, pid=pid, ready=ready, seconds=_age(pid), restarts=again[name])


def _age(pid: int) -> int:
    ticks = processes.started(pid)
    return max(0, int(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))) if ticks else 0


def _restarts(layout: Layout) -> Counter[str]:
    try:
        lines = (layout.log / "supervisor").read_text(errors="replace").splitlines()
    except OSError:
        return Counter()
    started = Counter(line.split()[3] for line in lines if line.endswith(" started") and len(line.split()) > 4)
    return Counter({name: count - 1 for name, count in started.items()})


def _about(layout: Layout, place: str) -> str:
    if place in layout.nodes:
        return layout.underlay_ip(place)
    if place == KUBE:
        return f"{layout.kube_ip}, Kubernetes {layout.state.kube}"
    if place == ROUTER:
        return ", ".join(map(router_ip, range(1, layout.state.sites + 1)))
    if place == "outside":
        return f"{' and '.join(OUTSIDE_ADDRESSES)} on {PHYSICAL_NETWORK}"
    if place in layout.centrals and layout.state.ovn == 3:
        return "a cluster of three" if place == "central" else "of the cluster"
    return ""


def _version(layout: Layout, place: str) -> str:
    if place in ("underlay", "outside", ROUTER, KUBE):
        return ""
    return f"{'OVN' if place in layout.centrals else 'OVS'} {databases.version(layout, place)}"


def _leads(layout: Layout, name: str) -> bool:
    """Whether a server of OVN's databases is the leader, or a northd the active one."""
    word = name.removeprefix("ovn-")
    if word.startswith("northd"):
        argv = ["ovn-appctl", "-t", str(layout.ovn / f"{name}.ctl"), "status"]
        return _says(argv, "Status: active")
    database = databases.OVN_NAMES[word[:2]]
    return _says(["ovs-appctl", "-t", str(layout.ovn / f"{word}.ctl"), "cluster/status", database], "Role: leader")


def _says(argv: list[str], text: str) -> bool:
    try:
        return text in subprocess.run(argv, capture_output=True, text=True, timeout=2, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


async def _ask(layout: Layout) -> tuple[set[str], Counter[str]]:
    """Return which nodes are Ready and how many attachments each has; nothing if the API does not answer."""
    store: KubeStore | None = None
    try:
        async with asyncio.timeout(API_SECONDS):
            store = await KubeStore.open(kubeconfig.load(str(layout.kubeconfig)))
            ready = await waiting.ready_nodes(store)
            page = await store.list(NETWORK_ATTACHMENT)
            return ready, Counter(str(item.document().get("spec", {}).get("node")) for item in page.items)
    except (NetloomError, TimeoutError):
        return set(), Counter()
    finally:
        if store is not None:
            await store.close()
