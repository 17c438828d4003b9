"""The state of a lab, in one small file: DIR/lab.json.

Everything else about a lab, its namespaces, addresses, sockets and processes, is computed from it (`layout`), so the
folder is enough to end the lab, whatever crashed. The lab's id is derived from the folder's path: two folders are two
labs, and the path of a removed folder still identifies its namespaces and processes.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from netloom.errors import Conflict, Invalid, NotFound
from netloom.run import files

FILE = "lab.json"
LOCK = "lab.lock"
"""Locked while a command brings the lab up or takes it down; the first file in a lab's folder."""
FORMAT = 1
MOST_NODES = 250
MOST_SITES = 9
LABS = Path("/run/netloom/labs")
"""One link per lab that may have processes or namespaces: its name is the lab's id, its target the folder."""

Phase = Literal["starting", "up", "down"]
Cni = Literal["bridge", "netloom"]
"""`netloom`: this project's; `bridge`: the reference plugin alone, to compare with or to look for errors elsewhere."""
Reflector = Literal["none", "netloom", "frr"]


class State(Struct, frozen=True, kw_only=True):
    """The requested lab, and its phase."""

    format: int = FORMAT
    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)]
    """How many hosts there are; with several sites, in each of them."""
    ovn: Literal[0, 1, 3] = 1
    """How many servers each OVN database has; 0: no OVN."""
    port: int
    """The API's port, on the loopback of this machine and of every node."""
    plain_ovn: bool = False
    """OVN's databases listen on unix sockets only, without TLS and without roles."""
    ovn_ports: tuple[int, ...] = ()
    """The ports of OVN's servers for the control plane, with TLS, on this machine's loopback: the northbound's, then
    the southbound's."""
    restart: bool = True
    outside: bool = False
    cluster: str = ""
    """The API endpoint of a Kubernetes cluster that the lab uses, as HOST:PORT; "": the lab has its own API."""
    kube: str = ""
    """The version of the lab's own Kubernetes cluster; "": it has none."""
    cni: Cni = "netloom"
    """The network of that cluster's pods."""
    roots: dict[str, str] = {}
    """Node, or `central` -> the folder from which its OVS and OVN run by chroot; default: this machine's own."""
    mountpoints: tuple[str, ...] = ()
    """Mount points made in those roots for the lab's folder, the deepest first."""
    sites: Annotated[int, Meta(ge=0, le=MOST_SITES)] = 0
    """How many sites there are, each a lab in DIR/siteK; this one is the router between them. 0: one lab with hosts."""
    site: Annotated[int, Meta(ge=0, le=MOST_SITES)] = 0
    """The number of the site that this lab is; 0: it is none."""
    reflector: Reflector = "none"
    """What reflects routes between the sites."""
    phase: Phase = "starting"


def identity(folder: Path) -> str:
    """Return the id of the lab in `folder`: eight characters that differ from folder to folder."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]


def site(folder: Path, number: int) -> Path:
    """Return the folder of a site of the lab in `folder`."""
    return folder / f"site{number}"


def left_sites(folder: Path) -> list[Path]:
    """Return the folders of the sites of which there may be something, also if the lab's folder was removed."""
    known = registered()
    every = [site(folder, number) for number in range(1, MOST_SITES + 1)]
    return [one for one in every if (one / FILE).exists() or identity(one) in known]


def load(folder: Path) -> State:
    """Read the lab's state; `NotFound` if there is no lab, `Invalid` if the file is not valid."""
    path = folder / FILE
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no lab in {folder}: run `netloom lab up --data {folder}` to create one") from None
    try:
        state = msgspec.json.decode(raw, type=State)
    except msgspec.DecodeError as error:
        raise Invalid(f"{path} is not a valid lab file: {error}") from None
    if state.format != FORMAT:
        raise Invalid(f"{path} was written by another version of netloom (format {state.format}, expected {FORMAT})")
    return state


def save(folder: Path, state: State) -> None:
    """Write the lab's state."""
    # The server uses the same folder, and at its start removes temporary files.
    with files.locked(folder):
        files.write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(state)) + b"\n")


def register(folder: Path) -> None:
    """Register the lab in `folder`, so that its leftovers are found even when the folder is gone."""
    LABS.mkdir(mode=0o755, parents=True, exist_ok=True)
    link = LABS / identity(folder)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(folder.resolve())


def forget(lab_id: str) -> None:
    """Remove the registration."""
    (LABS / lab_id).unlink(missing_ok=True)


def registered() -> dict[str, Path]:
    """Return the registered labs: id -> folder."""
    if not LABS.is_dir():
        return {}
    return {link.name: Path(link.readlink()) for link in sorted(LABS.iterdir()) if link.is_symlink()}


def known() -> list[Path]:
    """Return the folders of the labs of this machine, without those that are sites of another."""
    folders = [folder for folder in registered().values() if (folder / FILE).exists()]
    return [folder for folder in folders if not load(folder).site or folder.parent not in folders]


def check_folder(folder: Path) -> State | None:
    """Return the state of the lab in `folder`, None if one can be made there; `Conflict` if it has other contents."""
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is not a folder: choose another one with --data")
    if folder.exists() and not _is_ours_alone(folder):
        raise Conflict(f"{folder} is writable by other users: choose another one with --data")
    if (folder / FILE).exists():
        return load(folder)
    if folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
        raise Conflict(f"{folder} is not empty and not a lab: choose another folder with --data")
    return None


def _is_ours_alone(folder: Path) -> bool:
    """Whether only root, and the user who called sudo, can write to a folder.

    Its contents are written and removed as root; another user's symbolic link would redirect that.
    """
    found = folder.stat()
    caller = os.environ.get("SUDO_UID", "")
    us = {0, os.geteuid(), int(caller) if caller.isdecimal() else 0}
    return found.st_uid in us and not found.st_mode & stat.S_IWOTH
