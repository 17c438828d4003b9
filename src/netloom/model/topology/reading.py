"""Reading of files: `read` finds out the format by the content, and reports all problems at once, each with its place.

    topology.yml of CyberRangeCZ, containers.yml, sandbox JSON of KYPO, dumps of KYPODB in SQL or JSON, SSH configs,
    Sandbox objects

The old formats are converted to a topology document whose parts know where they were written, and judged like today's.
"""

import re
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from netloom.errors import NetloomError
from netloom.model.codec import SIZE_LIMIT, Malformed, Spot, locate
from netloom.model.document import Document
from netloom.model.kinds.sandbox import SandboxLink, SandboxSpec, Topology
from netloom.model.registry import SANDBOX
from netloom.model.topology import containers as container_files
from netloom.model.topology import kypodb, legacy, ssh_config
from netloom.model.topology.checks import check_links
from netloom.model.topology.containers import Containers
from netloom.model.topology.conversion import Converted, judge_links
from netloom.model.topology.findings import Finding, at, collect, judge, shape, spot_of


class Format(StrEnum):
    """The format of a file."""

    TOPOLOGY = "topology"
    CONTAINERS = "containers"
    LEGACY = "sandbox-json"
    KYPODB = "kypodb"
    SSH_CONFIG = "ssh-config"
    SANDBOX = "Sandbox"


class Reading(Struct, frozen=True):
    """The content of a file."""

    format: Format
    findings: tuple[Finding, ...] = ()
    """All problems, sorted by place."""
    topology: Topology | None = None
    links: tuple[SandboxLink, ...] = ()
    containers: Containers | None = None
    machines: tuple[ssh_config.Machine, ...] = ()
    sandbox: Document | None = None
    """The object, if the file is one."""
    spot: Spot = Spot(1, 1)
    """Where the content of a YAML or JSON file is written."""

    @property
    def is_valid(self) -> bool:
        """Whether there are no problems but warnings."""
        return all(finding.is_warning for finding in self.findings)


def read(data: bytes) -> Reading:
    """Return the content of a file; a topology only if nothing is wrong with it."""
    if len(data) > SIZE_LIMIT:
        return _failed(Format.TOPOLOGY, f"the file is {len(data)} bytes; at most {SIZE_LIMIT} are allowed")
    format_ = _format(data)
    try:
        match format_:
            case Format.KYPODB:
                converted = kypodb.convert(_text(data))
                return _judged(format_, converted)
            case Format.SSH_CONFIG:
                machines, found = ssh_config.parse(_text(data))
                return Reading(format_, collect(found), machines=machines)
            case _:
                return _structured(data)
    except Malformed as error:
        return Reading(format_, (Finding(error.line or 1, error.column or 1, error.detail),))
    except NetloomError as error:
        return _failed(format_, error.message)


def _failed(format_: Format, message: str) -> Reading:
    return Reading(format_, (Finding(1, 1, message),))


def _structured(data: bytes) -> Reading:
    """Return the content of a YAML or JSON file."""
    located = locate(data)
    found = [Finding(line, column, f'duplicate key "{key:.64}"') for line, column, key in located.repeated]
    document = located.value
    if not isinstance(document, dict):
        return Reading(Format.TOPOLOGY, collect([*found, Finding(1, 1, "a topology must be a mapping")]))
    if container_files.is_containers(document):
        content, wrong = container_files.judge(document, located.spot)
        if found:
            content = None
        return Reading(Format.CONTAINERS, collect([*found, *wrong]), containers=content, spot=located.spot)
    if document.get("kind") == SANDBOX.name and "apiVersion" in document:
        return _manifest(document, located.spot, found)
    if legacy.is_legacy(document):
        return _judged(Format.LEGACY, legacy.convert(document, located.spot), found)
    if kypodb.is_rows(document):
        return _judged(Format.KYPODB, kypodb.convert_rows(document, located.spot), found)
    topology, wrong = judge(document, located.spot)
    return Reading(Format.TOPOLOGY, collect([*found, *wrong]), topology=topology if not found else None)


def _manifest(document: Document, spot: Spot, found: list[Finding]) -> Reading:
    """Return a Sandbox object; its topology has the problems, and the places, of a file of its own."""
    keys = spot.inner if isinstance(spot.inner, dict) else {}
    found = [*found, *(Finding(*keys[key].key, f'unknown key "{key:.64}"') for key in document if key not in _TOP)]
    if document["apiVersion"] != SANDBOX.api_version:
        found.append(at(spot, ".apiVersion", f"must be {SANDBOX.api_version}"))
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        found.append(at(spot, ".metadata", "metadata.name: required"))
    if not isinstance(spec, dict) or "topology" not in spec:
        return Reading(Format.SANDBOX, collect([*found, at(spot, ".spec", "spec.topology: required")]))
    topology, wrong = judge(spec["topology"], spot_of(spot, ".spec.topology"))
    _, others = shape({**spec, "topology": {"name": "any"}}, spot_of(spot, ".spec"), SandboxSpec)
    reading = Reading(Format.SANDBOX, collect([*found, *wrong, *others]))
    if not reading.is_valid:
        return reading
    links = msgspec.convert(spec.get("links", []), tuple[SandboxLink, ...])
    bad_links = check_links(topology, links) if topology is not None else []
    if bad_links:
        found = [at(spot, f".spec.{one.path}", one.message) for one in bad_links]
        return Reading(Format.SANDBOX, collect([*reading.findings, *found]))
    return replace(reading, topology=topology, links=links, sandbox=document)


def _judged(format_: Format, converted: Converted, found: list[Finding] | None = None) -> Reading:
    if converted.document is None:
        return Reading(format_, collect([*(found or ()), *converted.findings]))
    topology, wrong = judge(converted.document, converted.spot)
    links, bad_links = judge_links(converted, topology)
    reading = Reading(format_, collect([*(found or ()), *converted.findings, *wrong, *bad_links]))
    return replace(reading, topology=topology, links=links) if reading.is_valid else reading


_TOP = ("apiVersion", "kind", "metadata", "spec", "status")

# A line is matched in one way only: a file of blank lines costs no more than others.
_DUMP = re.compile(
    rb'^[ \t]*(?:COPY|INSERT[ \t]+INTO)[ \t]+(?:\w+\.)?"?(?:network|link|node|node_interface)"?[ \t]*\(',
    re.MULTILINE | re.IGNORECASE,
)
_SSH = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*+[ \t]*(?:Host|Match)[ \t]+[^\n:]+(?:\n|\Z)", re.IGNORECASE)


def _format(data: bytes) -> Format:
    if _SSH.match(data):
        return Format.SSH_CONFIG
    if _DUMP.search(data):
        return Format.KYPODB
    return Format.TOPOLOGY


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed(f"not UTF-8 at byte {error.start}", line=line, column=1) from None
