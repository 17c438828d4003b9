"""What a lab is, in one small file: DIR/lab.json.

Everything else about a lab, its namespaces, addresses, sockets and processes, is computed from it (`layout`), so
whoever has the folder can end what runs in it, whatever crashed. The lab's id is made of the folder's path: two
folders are two labs, and a folder that was removed by hand still says which namespaces and processes were its own.
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
"""Held while somebody brings the lab up or takes it down; the first file in a lab's folder."""
FORMAT = 1
MOST_NODES = 250
LABS = Path("/run/netloom/labs")
"""One link per lab that may have something on this machine: its name is the lab's id, its target the folder."""

Phase = Literal["starting", "up", "down"]


class State(Struct, frozen=True, kw_only=True):
    """The lab as it was asked for, and how far it is."""

    format: int = FORMAT
    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)]
    ovn: Literal[0, 1, 3] = 1
    """How many servers each OVN database has; 0: no OVN."""
    port: int
    """Where the API listens, on the loopback of this machine and of every node."""
    plain_ovn: bool = False
    """OVN's databases are reached by unix sockets alone, without TLS and without roles."""
    ovn_ports: tuple[int, ...] = ()
    """Where the control plane reaches the servers of OVN's databases by TLS, on the loopback of this machine: the
    northbound's, then the southbound's."""
    restart: bool = True
    outside: bool = False
    cluster: str = ""
    """Where the API of a Kubernetes cluster is that is the lab's, as HOST:PORT; "": the lab has one of its own."""
    roots: dict[str, str] = {}
    """Node, or `central` -> the folder its OVS and OVN are run from by chroot; this machine's own otherwise."""
    mountpoints: tuple[str, ...] = ()
    """Folders made in those roots for the lab's own to be seen at, the deepest first."""
    phase: Phase = "starting"


def identity(folder: Path) -> str:
    """Return the id of the lab in `folder`: eight characters that differ from folder to folder."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]


def load(folder: Path) -> State:
    """Read the lab's state; `NotFound` where there is no lab, `Invalid` where the file is not one of ours."""
    path = folder / FILE
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no lab in {folder}: `netloom lab up --data {folder}` makes one") from None
    try:
        state = msgspec.json.decode(raw, type=State)
    except msgspec.DecodeError as error:
        raise Invalid(f"{path} is not a lab's: {error}") from None
    if state.format != FORMAT:
        raise Invalid(f"{path} was written by another version of netloom (format {state.format}, not {FORMAT})")
    return state


def save(folder: Path, state: State) -> None:
    """Write the lab's state."""
    # The folder is also that of the server, which at its start sweeps away half-written files.
    with files.locked(folder):
        files.write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(state)) + b"\n")


def register(folder: Path) -> None:
    """Note that there is a lab in `folder`, so that its leftovers are found even when the folder is gone."""
    LABS.mkdir(mode=0o755, parents=True, exist_ok=True)
    link = LABS / identity(folder)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(folder.resolve())


def forget(lab_id: str) -> None:
    """Take the note back."""
    (LABS / lab_id).unlink(missing_ok=True)


def registered() -> dict[str, Path]:
    """Return the labs that may have something on this machine: id -> folder."""
    if not LABS.is_dir():
        return {}
    return {link.name: Path(link.readlink()) for link in sorted(LABS.iterdir()) if link.is_symlink()}


def check_folder(folder: Path) -> State | None:
    """Return the state of the lab in `folder`, None where a new one can be made; `Conflict` where something else is."""
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is not a folder: choose another by --data")
    if folder.exists() and not _is_ours_alone(folder):
        raise Conflict(f"{folder} is somebody else's, or all may write to it: choose another by --data")
    if (folder / FILE).exists():
        return load(folder)
    if folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
        raise Conflict(f"{folder} is not empty and not a lab's: choose another by --data")
    return None


def _is_ours_alone(folder: Path) -> bool:
    """Whether nobody but us, and who called us by sudo, can put anything into a folder.

    What is in it is written and removed as root; a link that a stranger put there would lead that astray.
    """
    found = folder.stat()
    caller = os.environ.get("SUDO_UID", "")
    us = {0, os.geteuid(), int(caller) if caller.isdecimal() else 0}
    return found.st_uid in us and not found.st_mode & stat.S_IWOTH
