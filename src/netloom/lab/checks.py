"""The preconditions of a lab: root, the programs, a folder. An error says what is missing and how to fix it."""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from netloom.errors import Conflict, Forbidden, Invalid, NotFound
from netloom.lab.daemons.programs import BGPD
from netloom.lab.kube import binaries
from netloom.lab.kube.places import MOST_NODES
from netloom.lab.layout import Layout

TOOLS = {"ip": "iproute2", "ethtool": "ethtool", "nsenter": "util-linux", "unshare": "util-linux", "sysctl": "procps"}
SWITCH = dict.fromkeys(("ovsdb-server", "ovsdb-tool", "ovs-vswitchd", "ovs-vsctl"), "openvswitch-switch")
OVN = {"ovn-northd": "ovn-central", "ovn-controller": "ovn-host"}
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
# Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes the port while the server restarts.
PORTS = range(20000, 32000)


def root(uid: int) -> None:
    """Refuse users other than root."""
    if uid:
        raise Forbidden("a lab needs root to create network namespaces: run this command with sudo")


def programs(ovn: int, roots: Mapping[str, str]) -> None:
    """Refuse a machine, or a root folder of a node, without the programs; name their packages."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SBIN}".removeprefix(":")
    wanted = {**TOOLS, **SWITCH, **(OVN if ovn else {})}
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        packages = sorted({wanted[name] for name in missing})
        raise NotFound(
            f"programs not found: {', '.join(missing)}: install them, as with apt-get install {' '.join(packages)}"
        )
    for place, folder in roots.items():
        needed = OVN.keys() - {"ovn-controller"} if place == "central" else ("ovs-vswitchd", "ovsdb-server")
        lacking = [name for name in needed if not _in_root(Path(folder), name)]
        if lacking:
            raise NotFound(f"--root-of {place}={folder}: programs not found in it: {', '.join(lacking)}")


def kubernetes(version: str, nodes: int, *, ovn: int) -> None:
    """Refuse a machine without the programs of a Kubernetes; "": none is wanted."""
    if not version:
        return
    binaries.folder(version)
    binaries.installed()
    if not ovn:
        raise Invalid("--kube with --ovn none: Netloom's network for pods needs OVN, or use --cni bridge")
    if nodes > MOST_NODES:
        raise Invalid(f"--nodes {nodes}: a lab with --kube has at most {MOST_NODES}")


def reflector(name: str) -> None:
    """Refuse a machine without the program that reflects routes between sites."""
    if name == "frr" and not Path(BGPD).exists():
        raise NotFound(f"program not found: {BGPD}: install it, as with apt-get install frr")


def places(layout: Layout) -> None:
    """Refuse a root folder of a node that does not exist."""
    # All servers of a cluster are of one version.
    known = [name for name in layout.places if name not in ("underlay", "outside", *layout.centrals[1:])]
    for place in layout.state.roots:
        if place not in known:
            raise Invalid(f"--root-of {place}=...: no such host {place!r}: use one of {', '.join(known)}")


def choose_ports(kept: Sequence[int], seed: str, count: int) -> list[int]:
    """Return ports of the loopback for the API and for OVN's servers: those the lab had before, or free ones."""
    start = int(seed, 16)
    found: list[int] = []
    for port in (*kept, *(PORTS[(start + 97 * step) % len(PORTS)] for step in range(200))):
        if len(found) == count:
            break
        if port in found:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise Conflict("no free port on 127.0.0.1 for the API")
    return found


def _in_root(folder: Path, name: str) -> bool:
    return any((folder / where / name).exists() for where in ("usr/sbin", "usr/bin"))
