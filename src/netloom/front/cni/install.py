"""Puts the CNI plugin on a node: the program, and the configuration that makes the runtime use it.

Both are written beside their places and renamed: a program that runs is not overwritten, and no runtime reads half a
file. The configuration comes last, when the agent says that it can add pods: until then the runtime reports that its
network is not ready, and no pod is scheduled to the node. It stays when the agent ends.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec

from netloom.front.cni.request import LATEST, VERSIONS

SHIM = Path(__file__).with_name("shim.py")
PLUGIN = "netloom-cni"
CONFIGURATION = "10-netloom.conflist"
DEFAULT_SOCKET = "/run/netloom/cni.sock"
SECONDS = 10.0
"""For an answer to STATUS."""


def configuration(name: str = "netloom") -> dict[str, Any]:
    """Return the network configuration list.

    A runtime that does not know `cniVersions` takes `cniVersion`: 1.0.0 is what all in use know.
    """
    capabilities = dict.fromkeys(("ips", "mac", "bandwidth", "portMappings"), True)
    return {
        "cniVersion": "1.0.0",
        "cniVersions": list(VERSIONS),
        "name": name,
        "plugins": [{"type": PLUGIN, "capabilities": capabilities}],
    }


def put_plugin(folder: Path, *, agent: str, python: str = "") -> Path:
    """Write the plugin into a folder, for the agent with this socket; `python`: the interpreter, if not the usual."""
    head, _, rest = SHIM.read_text().partition("\n")
    first = f"#!{python} -IS" if python else head
    text = rest.replace(f'SOCKET = "{DEFAULT_SOCKET}"', f"SOCKET = {json.dumps(agent)}", 1)
    return _put(folder / PLUGIN, f"{first}\n{text}", 0o755)


def put_configuration(folder: Path) -> Path:
    """Write the network configuration list into a folder."""
    return _put(folder / CONFIGURATION, json.dumps(configuration(), indent=2) + "\n", 0o644)


def remove(programs: Path, configurations: Path) -> list[Path]:
    """Remove the plugin and its configuration, that first: no runtime may call a program that is gone."""
    there = [path for path in (configurations / CONFIGURATION, programs / PLUGIN) if path.exists()]
    for path in there:
        path.unlink(missing_ok=True)
    return there


def not_ready(agent: str) -> str:
    """Ask an agent whether it can add pods; return why not, or "": it can."""
    asked = msgspec.json.encode({"cniVersion": LATEST, "name": "netloom"})
    body = b"CNI_COMMAND=STATUS\0\0" + asked
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SECONDS)
            connection.connect(agent)
            connection.sendall(b"%d\n" % len(body) + body)
            answer = b""
            while part := connection.recv(65536):
                answer += part
    except OSError as error:
        return f"the agent at {agent} does not answer: {error.strerror or error}"
    if answer.startswith(b"0\n"):
        return ""
    try:
        return str(json.loads(answer[2:])["msg"])
    except (ValueError, KeyError, TypeError):
        return f"what listens at {agent} is no agent"


def _put(path: Path, text: str, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(text)
        made.chmod(mode)
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    return path
