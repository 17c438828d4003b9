"""Reading topology files for the commands, and the Sandbox that a file describes."""

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import click
import msgspec

from netloom.cli.options import given, kubeconfig
from netloom.cli.tables import clean
from netloom.client.session import is_configured
from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Backend, Placement, Topology
from netloom.model.registry import SANDBOX
from netloom.model.topology import ssh_config
from netloom.model.topology.findings import Finding
from netloom.model.topology.reading import Format, Reading, read

FILE = click.Path(allow_dash=True, dir_okay=False)
NAME = click.option("--name", default="", metavar="NAME", help="Name of the Sandbox, instead of the topology's.")
OWN_SSH_CONFIG = "has_own_ssh_config"
"""The attribute of a command whose --ssh-config is more than a placement."""
F = TypeVar("F", bound=Callable[..., object])


def describing(command: F) -> F:
    """Add the options of commands that make a Sandbox of a file, and pass the Sandbox on as `document`.

    Where the command has --ssh-config for other purposes too, that places hosts unless --placement does.
    """
    more = () if getattr(command, OWN_SSH_CONFIG, False) else ("--ssh-config",)

    @click.argument("file", type=FILE)
    @NAME
    @click.option(
        "--placement",
        *more,
        "placed",
        type=FILE,
        metavar="FILE",
        help="Place hosts on the Nodes that are their jump hosts in this SSH config.",
    )
    @click.option(
        "--run/--no-run",
        default=None,
        help="Run each host as a network namespace on its Node.  [default: as the file says; with --lab: run]",
    )
    @click.option(
        "--backend",
        type=click.Choice([one.value for one in Backend]),
        help="The implementation: ovn, or linux, which needs neither OVN nor Open vSwitch.  "
        "[default: as the file says, or ovn]",
    )
    @functools.wraps(command)
    def wrapped(
        file: str, name: str, placed: str | None, run: bool | None, backend: str | None, **rest: object
    ) -> object:
        topology, reading = topology_of(file)
        placement = None
        if config := placed or given("access"):
            placement = ssh_config.placement(topology, valid(config).machines)
            if placement is None and (placed or not is_over_ssh(reading)):
                raise BadRequest(f"{config}: no host of the topology is behind a jump host")
        document = sandbox_of(topology, reading, placement, name)
        if run is None and given("lab") is not None:
            run = document["spec"].get("run", True)
        if run is not None:
            document["spec"]["run"] = run
        if backend is not None:
            document["spec"]["backend"] = backend
        return command(document=document, **rest)

    return cast("F", wrapped)


def is_over_ssh(reading: Reading) -> bool:
    """Whether a command works over SSH on the Sandbox of a file: that is what --over-ssh says.

    With --ssh-config alone it does if the Sandbox has the backend linux, or if there is no API server to ask instead.
    """
    backend = given("backend") or (reading.sandbox or {}).get("spec", {}).get("backend", "")
    return is_pushed(str(given("access") or ""), over_ssh=bool(given("over_ssh")), backend=str(backend))


def is_pushed(access: str, *, over_ssh: bool, backend: str) -> bool:
    """Whether a command works over SSH on a Sandbox of a backend."""
    if over_ssh or not access:
        return over_ssh
    return backend == Backend.LINUX.value or not is_configured(kubeconfig(), given("context_name"))


def content(file: str) -> bytes:
    """Return the bytes of a file, or of standard input; at most one more than is allowed."""
    most = codec.SIZE_LIMIT + 1
    if file == "-":
        return sys.stdin.buffer.read(most)
    with Path(file).open("rb") as opened:
        return opened.read(most)


def read_or_fail(file: str) -> Reading:
    """Return the content of a file; a file that cannot be opened has that as its only problem."""
    try:
        return read(content(file))
    except OSError as error:
        return Reading(Format.TOPOLOGY, (Finding(1, 1, error.strerror or str(error)),))


def valid(file: str) -> Reading:
    """Return the content of a file without errors; print warnings."""
    reading = read(content(file))
    for finding in reading.findings:
        click.echo(clean(f"{file}:{finding}"), err=True)
    if not reading.is_valid:
        raise BadRequest(f"{file} is not valid")
    return reading


def topology_of(file: str) -> tuple[Topology, Reading]:
    """Return the topology of a file without errors, and all that was read."""
    reading = valid(file)
    if reading.topology is None:
        raise BadRequest(f"{file} is no topology, but {reading.format}: it has no networks")
    return reading.topology, reading


def sandbox_of(topology: Topology, reading: Reading, placement: Placement | None, name: str) -> Document:
    """Return the Sandbox of a topology, or the one that the file is."""
    given = reading.sandbox or {}
    spec: Document = {**given.get("spec", {}), "topology": topology}
    if reading.links:
        spec["links"] = reading.links
    if placement is not None:
        spec["placement"] = placement
    # Names in a topology may have capitals and end with a dash; those of objects may not.
    metadata = {"name": re.sub(r"-+$", "", topology.name.lower()), **given.get("metadata", {})}
    if name:
        metadata["name"] = name
    document = {"apiVersion": SANDBOX.api_version, "kind": SANDBOX.name, "metadata": metadata, "spec": spec}
    written: Document = msgspec.json.decode(msgspec.json.encode(document))
    return written
