"""The Python interface of a lab: bring it up, run commands on nodes, kill processes, take it down.

    with Lab.up(folder, nodes=3) as lab:
        lab.exec("n1", ["ping", "-c1", lab.underlay_ip("n2")])
        lab.kill("ovn-northd")

Bringing a lab up does, in order: check the preconditions; end what an earlier lab left; create namespaces and cables,
databases, and the credentials of server and agents; start the supervisor, which starts everything else; and wait until
every node is Ready. If that fails, or is interrupted, everything is ended again; the folder with its logs stays.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from netloom.errors import Conflict, Invalid, NetloomError, NotFound
from netloom.lab import checks, cleaning, clusters, peering, pki, state, waiting, wiring
from netloom.lab.daemons import databases, keeper, processes
from netloom.lab.daemons.entering import NETNS, mountpoints
from netloom.lab.daemons.programs import environment, programs
from netloom.lab.kube import cgroups, ending, preparing
from netloom.lab.kube.places import Places
from netloom.lab.layout import MARK, MARK_NAME, Layout
from netloom.lab.state import Cni, State
from netloom.run import files
from netloom.run.access import credentials

Say = Callable[[str], None]
UP_SECONDS = 120.0
WORKLOAD = re.compile(r"[a-z0-9]([-a-z0-9]{0,62}[a-z0-9])?")


class Lab:
    """An existing lab."""

    def __init__(self, folder: Path) -> None:
        """Open the lab in `folder`; `NotFound` if there is none."""
        folder = folder.absolute()
        self.layout = Layout(folder, state.load(folder))
        self.nodes, self.kubeconfig = self.layout.nodes, self.layout.kubeconfig
        self.underlay_ip, self.remotes = self.layout.underlay_ip, self.layout.remotes

    @classmethod
    def up(
        cls,
        folder: Path,
        *,
        nodes: int = 3,
        ovn: Literal[0, 1, 3] = 1,
        plain_ovn: bool = False,
        restart: bool = True,
        outside: bool = False,
        roots: Mapping[str, str] | None = None,
        kubeconfig: Path | None = None,
        agents: Path | None = None,
        site: int = 0,
        kube: str = "",
        cni: Cni = "netloom",
        timeout: float = UP_SECONDS,
        say: Say = lambda text: None,
    ) -> "Lab":
        """Bring up a lab and return it when every node is Ready.

        With `kubeconfig`, its API is that of a Kubernetes cluster; `agents` is a folder with NODE.kubeconfig for each
        node. Programs connect to OVN's databases with TLS, nodes with OVN's role for them; with `plain_ovn` over unix
        sockets, without roles. With `site`, it is one of several (`sites`). With `kube`, a version of Kubernetes, the
        lab has a cluster of its own, whose API is the lab's, and
        whose pods have the network `cni`.
        """
        folder = folder.absolute()
        checks.root(os.geteuid())
        checks.programs(ovn, roots or {})
        checks.kubernetes(kube, nodes, ovn=ovn if cni == "netloom" else 1)
        cluster = clusters.endpoint(kubeconfig) if kubeconfig is not None else ""
        wanted = State(
            nodes=nodes,
            ovn=ovn,
            plain_ovn=plain_ovn,
            port=0,
            restart=restart,
            outside=outside,
            cluster=cluster,
            roots=dict(roots or {}),
            site=site,
            kube=kube,
            cni=cni,
        )
        checks.places(Layout(folder, wanted))
        with alone(folder) as earlier:
            check_options(folder, earlier, wanted)
            _check_down(folder, earlier)
            start(folder, earlier, wanted, kubeconfig=kubeconfig, agents=agents, timeout=timeout, say=say)
        return cls(folder)

    def down(self, *, delete: bool = False) -> None:
        """End everything; with `delete`, remove the folder too."""
        down(self.layout.folder, delete=delete)

    def exec(
        self, place: str, argv: Sequence[str], *, check: bool = True, timeout: float = 60.0, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on a node (or `central`, `underlay`, `outside`) and wait for it."""
        ended = subprocess.run(
            self.command(place, argv),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment(place),
            check=False,
        )
        if check and ended.returncode:
            raise CommandFailed(place, argv, ended)
        return ended

    def command(self, place: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a node."""
        return ["ip", "netns", "exec", self.netns(place), *argv]

    def environment(self, place: str) -> dict[str, str]:
        """Return the environment for commands on a node: the tools of OVS, OVN and containerd find its daemons.

        With a Kubernetes cluster, its kubectl is in the path.
        """
        marks = {MARK: self.layout.id, MARK_NAME: ""}
        found = {**os.environ, **environment(self.layout, place), **marks}
        if self.layout.state.kube:
            found["PATH"] = f"{Places(self.layout).programs}:{found.get('PATH', '')}"
        return found

    def netns(self, place: str) -> str:
        """Return the network namespace of a place or a workload; `NotFound` names those that exist."""
        here = [name.removeprefix(self.layout.prefix) for name in wiring.namespaces(self.layout.id)]
        if not here:
            raise NotFound(
                f"the lab in {self.layout.folder} is down: run `netloom lab up --data {self.layout.folder}` first"
            )
        if place not in here:
            workloads = [name for name in here if name not in self.layout.places]
            known = ", ".join([*self.layout.places, *workloads])
            elsewhere = ", or choose a site with --site" if self.layout.state.sites else ""
            raise NotFound(f"no {place!r} in this lab: use one of {known}{elsewhere}")
        return self.layout.prefix + place

    def workload(self, name: str) -> Path:
        """Return the file of a workload's network namespace, created if needed; it is removed with the lab."""
        if not WORKLOAD.fullmatch(name) or name in self.layout.places:
            raise Invalid(f"{name!r} is not a valid workload name: use a-z, 0-9 and -, and no name of a host")
        netns = self.layout.prefix + name
        if netns not in wiring.namespaces(self.layout.id):
            wiring.bare(netns)
        return NETNS / netns

    def pid(self, name: str) -> int:
        """Return the pid of a process, 0 while it does not run."""
        pid = processes.read_pid(self.layout.pids, name)
        return pid if pid and processes.is_of(pid, self.layout.id, name) else 0

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Kill a process of the lab and return the pid it had."""
        pid = self.pid(name)
        if not pid:
            raise Conflict(f"{name} is not running")
        os.kill(pid, number)
        return pid

    def off(self, node: str) -> None:
        """Power a host off: its processes are killed, its cables are down, and nothing is restarted."""
        self._host(node)
        self.layout.off.mkdir(mode=0o755, exist_ok=True)
        (self.layout.off / node).touch()
        wiring.set_cables(self.layout, node, connected=False)
        names = {program.name for program in programs(self.layout) if program.place == node}

        def running() -> list[processes.LabProcess]:
            own = [found for found in processes.of_lab(self.layout.id, ()) if found.name in names]
            return [*own, *cgroups.processes(self.layout.id, node)]

        processes.end(running, gently=lambda _: False)
        ending.power_off(self.layout.id, self.layout.folder, node)

    def on(self, node: str, *, timeout: float = UP_SECONDS) -> None:
        """Power a host on again and return when it is Ready."""
        self._host(node)
        began = datetime.now(UTC)
        wiring.set_cables(self.layout, node, connected=True)
        if self.layout.state.kube:
            cgroups.make(self.layout.id, node)
        (self.layout.off / node).unlink(missing_ok=True)
        if not self.layout.state.restart:
            raise Conflict("this lab does not restart processes: it was brought up with --no-restart")
        waiting.until_on(self.layout, node, began=began, deadline=time.monotonic() + timeout)

    def _host(self, node: str) -> None:
        self.netns(node)
        if node not in self.nodes:
            raise Invalid(f"{node!r} is not a host: use one of {', '.join(self.nodes)}")

    def __enter__(self) -> "Lab":
        """Return the lab."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take it down."""
        self.down()


class CommandFailed(NetloomError):
    """A command on a node failed."""

    def __init__(self, place: str, argv: Sequence[str], ended: "subprocess.CompletedProcess[str]") -> None:
        """Name the command, its status and its output."""
        said = (ended.stdout + ended.stderr).strip()
        super().__init__(f"{place}: {' '.join(argv)} failed with status {ended.returncode}: {said}")
        self.ended = ended


def down(folder: Path, *, delete: bool = False) -> None:
    """End the lab of a folder, in any state; with `delete`, remove the folder too."""
    folder = folder.absolute()
    checks.root(os.geteuid())
    lab_id = state.identity(folder)
    if not (folder / state.FILE).exists() and lab_id in state.registered():
        end(folder)
        return
    state.load(folder)  # `NotFound` before a lock is made.
    with alone(folder):
        end(folder)
        if delete:
            shutil.rmtree(folder)


def end(folder: Path) -> None:
    """End the lab of a folder that is locked, if there is one, and the sites in it."""
    for one in state.left_sites(folder):
        if one.exists():
            with alone(one):
                end(one)
        else:
            end(one)
    cleaning.clean(state.identity(folder))
    if not (folder / state.FILE).exists():
        return
    found = state.load(folder)
    cleaning.remove_created_namespaces(folder)
    cleaning.sweep_folder(folder)
    for made in found.mountpoints:
        with suppress(OSError):  # Another lab may use its own one beside it.
            os.rmdir(made)
    state.save(folder, msgspec.structs.replace(found, phase="down", mountpoints=()))


@contextmanager
def alone(folder: Path) -> Iterator[State | None]:
    """Lock the folder for one `lab up` or `lab down`, and yield the state of the lab in it."""
    state.check_folder(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with files.exclusive_lock(folder / state.LOCK, f"another netloom lab command is running in {folder}"):
        yield state.check_folder(folder)  # Again: the previous holder of the lock may have created a lab.


def _check_down(folder: Path, earlier: State | None) -> None:
    """Refuse to bring up a lab that is up."""
    pid = processes.read_pid(folder / "pids", "supervisor")
    if earlier and earlier.phase == "up" and pid and processes.is_of(pid, state.identity(folder), "supervisor"):
        raise Conflict(
            f"the lab in {folder} is up: run `netloom lab down --data {folder}` first, or choose another folder with "
            "--data"
        )


def check_options(folder: Path, earlier: State | None, wanted: State) -> None:
    """Refuse options that differ from those with which the lab in a folder was created, where they must not."""
    if earlier is None:
        return
    again = f"`netloom lab down --data {folder}`"
    if earlier.site != wanted.site:
        raise Conflict(
            f"the lab in {folder} is a site: run `netloom lab up --sites ... --data {folder.parent}` instead"
        )
    if (earlier.sites, earlier.reflector) != (wanted.sites, wanted.reflector):
        made = f"with --sites {earlier.sites} --reflector {earlier.reflector}" if earlier.sites else "without --sites"
        raise Conflict(
            f"the lab in {folder} was created {made}: use the same options, or run "
            f"`netloom lab down --delete --data {folder}` first"
        )
    if bool(earlier.cluster) != bool(wanted.cluster):
        raise Conflict(
            f"the lab in {folder} was made {'with' if earlier.cluster else 'without'} --kubeconfig: run {again} first"
        )
    if bool(earlier.kube) != bool(wanted.kube):
        raise Conflict(
            f"the lab in {folder} was created {'with' if earlier.kube else 'without'} --kube: use the same options, or "
            f"run `netloom lab down --delete --data {folder}` first"
        )
    if earlier.ovn != wanted.ovn:
        raise Conflict(
            f"the lab in {folder} was created with --ovn {earlier.ovn or 'none'}: use the same option, or run "
            f"`netloom lab down --delete --data {folder}` first"
        )


def start(
    folder: Path,
    earlier: State | None,
    wanted: State,
    *,
    kubeconfig: Path | None = None,
    agents: Path | None = None,
    timeout: float,
    say: Say,
) -> None:
    """Bring up the lab in a folder that is locked."""
    for gone in cleaning.sweep_machine():
        say(f"cleaned up what was left of a lab in {gone}, which no longer exists")
    cleaning.clean(state.identity(folder))
    made = mountpoints(folder, wanted.roots.values()) or (earlier.mountpoints if earlier else ())
    layout = Layout(folder, msgspec.structs.replace(_with_ports(folder, earlier, wanted), mountpoints=tuple(made)))
    with _undone_on_failure(layout):
        began = datetime.now(UTC)
        _start(layout, kubeconfig, agents, say)
        waiting.until_up(layout, began=began, deadline=time.monotonic() + timeout, say=say)
        state.save(folder, msgspec.structs.replace(layout.state, phase="up"))


def _with_ports(folder: Path, earlier: State | None, wanted: State) -> State:
    """Return the state with ports for the API and for OVN's servers: the previous ones, if they are free."""
    kept = (earlier.port, *earlier.ovn_ports) if earlier else ()
    count = 1 + 2 * wanted.ovn if Layout(folder, wanted).secure else 1
    port, *ovn = checks.choose_ports(kept, state.identity(folder), count)
    return msgspec.structs.replace(wanted, port=port, ovn_ports=tuple(ovn))


@contextmanager
def _undone_on_failure(layout: Layout) -> Iterator[None]:
    fresh = not (layout.folder / state.FILE).exists()
    try:
        yield
    except BaseException as error:
        cleaning.clean(layout.id)
        cleaning.sweep_folder(layout.folder)
        if fresh and isinstance(error, KeyboardInterrupt):
            shutil.rmtree(layout.folder, ignore_errors=True)
        else:
            state.save(layout.folder, msgspec.structs.replace(layout.state, phase="down"))
        raise


def _start(layout: Layout, kubeconfig: Path | None, agents: Path | None, say: Say) -> None:
    folder = layout.folder
    # The state first: from here on `lab down` knows what to look for, whatever happens.
    state.save(folder, layout.state)
    state.register(folder)
    cleaning.sweep_folder(folder)
    for path in (layout.pids, layout.log, layout.ready):
        path.mkdir(mode=0o755, exist_ok=True)
    for old in layout.log.iterdir():
        old.unlink()
    if layout.nodes:
        say(f"{len(layout.nodes)} host{'s' * (len(layout.nodes) > 1)}: namespaces and cables")
    wiring.build(layout)
    databases.make(layout)
    if layout.secure:
        pki.prepare(layout, now=datetime.now(UTC))
    if layout.state.kube:
        preparing.prepare(layout, now=datetime.now(UTC))
    elif kubeconfig is not None:
        clusters.write_credentials(layout, kubeconfig, agents)
    elif layout.has_api:
        _credentials(layout)
    if layout.state.reflector == "frr":
        (folder / "frr").mkdir(mode=0o700, exist_ok=True)
        (folder / "frr" / "bgpd.conf").write_text(peering.frr_configuration(layout))
    if not programs(layout):
        return
    supervisor = keeper.start_supervisor(folder, layout.id)
    (layout.pids / "supervisor").write_text(f"{supervisor.pid}\n")
    # It outlives us, or we outlive it: then its exit status must be collected.
    threading.Thread(target=supervisor.wait, name="lab-supervisor", daemon=True).start()


def _credentials(layout: Layout) -> None:
    """Create the server's certificates and, with them, a credential for each agent."""
    directory = credentials.Directory(layout.folder)
    directory.lock.touch(mode=0o600)  # So that the folder is accepted as the server's data directory.
    directory.make()
    directory.prepare(hosts=["127.0.0.1"], now=datetime.now(UTC))
    directory.write_kubeconfig(layout.url)
    known = {one.name for one in directory.known()}
    for node in layout.clients:
        path, name = layout.agent_kubeconfig(node), f"agent-{node}"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and name in known and layout.url in path.read_text():
            continue
        if name in known:
            directory.revoke(name)
        text = directory.issue_token(name, [credentials.role(f"node:{node}")], server=layout.url)
        files.write_whole(path, text.encode())
