"""Problems of a file with their place, and the judgement of a topology document: `judge`.

    document + spots -> the schema -> a `Topology`, as far as it can be read -> checks -> findings, sorted by place

A value of the wrong type is replaced by an empty one, so that one mistake does not hide the others; the checks ignore
what is empty.
"""

import re
from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from netloom.errors import Cause
from netloom.model.codec import Spot
from netloom.model.document import Json
from netloom.model.kinds.sandbox import BaseBox, Topology, Wan
from netloom.model.schemas import checks as shapes
from netloom.model.schemas.schema import Schema, struct
from netloom.model.schemas.validation import SUGGESTIONS
from netloom.model.topology import checks

MOST_FINDINGS = 1000
"""How many problems of a file are reported."""
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[([0-9]+)\]")
_NAMED = {"name": "TopologyDefinition", "hosts": "Host", "routers": "Router", "networks": "Network", "wan": "WAN"}
"""The platform's classes of what has a name."""
_REMEDIES = {
    "hosts": {
        "network": "link hosts to networks in net_mappings",
        "networks": "link hosts to networks in net_mappings",
        "ip": "set addresses in net_mappings",
        "base_box_user": "use mgmt_user in base_box",
    },
    "routers": {"cidr": "set addresses in router_mappings", "base_box_user": "use mgmt_user in base_box"},
    "": {
        "provider": "remove it",
        "provisioning": "remove it",
        "block_internet": "set block_internet: true in each host",
        "hidden_hosts": "set hidden: true in each host",
        "suspended_hosts": "remove it",
        "include_user_access": "use accessible_by_user in networks",
    },
}
"""What to write instead of keys of older versions, and of keys that the format does not have, by section."""


_BAD_NAME = ": must start with a lower case letter"


class Finding(Struct, frozen=True, order=True):
    """A problem of a file, and its place; line and column count from 1."""

    line: int
    column: int
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {'warning: ' if self.is_warning else ''}{self.message}"


def collect(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by place, each once, and not more than people read; warnings only if nothing is wrong.

    Most warnings about what has errors follow from these.
    """
    found = sorted(set(findings))
    found = [finding for finding in found if not finding.is_warning] or found
    if len(found) <= MOST_FINDINGS:
        return tuple(found)
    last = found[MOST_FINDINGS - 1]
    return (*found[:MOST_FINDINGS], Finding(last.line, last.column, f"and {len(found) - MOST_FINDINGS} more"))


def judge(document: Json, spot: Spot) -> tuple[Topology | None, list[Finding]]:
    """Return a topology, if the document has one without errors, and all findings.  Changes the document."""
    document, spot = _with_tcp(document, spot)
    wrong, found = shape(document, spot, Topology)
    topology = _salvaged(document, wrong, Topology)
    if topology is not None:
        found += [at(spot, f".{one.path}", one.message, is_warning=one.is_warning) for one in checks.check(topology)]
    if topology is None or any(not one.is_warning for one in found):
        return None, found
    return normalised(topology), found


def shape(document: Json, spot: Spot, cls: type[Struct], *, lenient: bool = False) -> tuple[list[Cause], list[Finding]]:
    """Check a document against the schema of a struct; return the problems that concern types, and all findings.

    `lenient` makes unknown keys warnings.
    """
    causes = [cause for cause in _compiled(cls)(document) or () if not _is_reference(cause)]
    found, hints = [], 0
    for cause in causes:
        if not isinstance(cause, shapes.UnknownField):
            found.append(at(spot, cause.field, _words(cause)))
            continue
        name, parent = cause.message, cause.field[: -min(len(cause.message), shapes.KEY_LENGTH) - 1]
        section = (_STEP.match(parent) or ("", ""))[1]
        hint = ""
        if remedy := _REMEDIES.get(section, {}).get(name):
            hint = f": {remedy}"
        elif hints < SUGGESTIONS:
            hints += 1
            hint = shapes.nearest(name, cause.known)
        owner = spot_of(spot, parent)
        key = owner.inner.get(name, owner).key if isinstance(owner.inner, dict) else (0, 0)
        line, column = key if key[0] else (owner.line, owner.column)
        found.append(Finding(line, column, f'unknown key "{name:.64}"{hint}', lenient))
    return [cause for cause in causes if not isinstance(cause, shapes.UnknownField)], found


def at(spot: Spot, path: str, message: str, *, is_warning: bool = False) -> Finding:
    """Return a finding at the place of a path such as `.hosts[2].name`."""
    found = spot_of(spot, path)
    return Finding(found.line, found.column, message, is_warning)


def spot_of(spot: Spot, path: str) -> Spot:
    """Return the place of a path, or of the innermost part of it that exists."""
    for step in _STEP.finditer(path):
        inner = spot.inner
        if isinstance(inner, dict) and step[1] in inner:
            spot = inner[step[1]]
        elif isinstance(inner, list) and step[2] and int(step[2]) < len(inner):
            spot = inner[int(step[2])]
        else:
            break
    return spot


@cache
def _compiled(cls: type[Struct]) -> shapes.Check:
    return shapes.compiled(struct(cls))


def _is_reference(cause: Cause) -> bool:
    """Whether a problem is that nothing can have a name, where the checks say that nothing has it."""
    field = re.sub(r"\[[0-9]+\]$", "", cause.field).rpartition(".")[2]
    return field in ("host", "network", "router", "node", "nodes") and _BAD_NAME in cause.message


def _words(cause: Cause) -> str:
    """Return the message of a problem that the schema has found, in the platform's words where it has some."""
    if cause.reason == shapes.REQUIRED:
        return (
            f'the key "{cause.field.rpartition(".")[2]}" is missing'
            if cause.message == "Required value"
            else cause.message
        )
    steps = _STEP.findall(cause.field)
    names = [step[0] for step in steps if step[0]]
    value = cause.message.removeprefix("Invalid value: ").rpartition(_BAD_NAME)[0]
    if names and names[-1] == "name" and names[0] in _NAMED and len(names) <= 2 and value:
        return checks.bad_name(_NAMED[names[0]], value[1:-1])
    if names[-1:] == ["volumes"] and "must have at least" in cause.message:
        return "Volumes must contain at least one entry for system disk"
    if names[-1:] == ["base_box"]:
        return f"{cause.message}, such as {{image: debian-12}}"
    return cause.message


def _with_tcp(document: Json, spot: Spot) -> tuple[Json, Spot]:
    """Return a document whose monitoring targets are not the flat list of older versions."""
    if not isinstance(document, dict) or not isinstance(document.get("monitoring_targets"), list):
        return document, spot
    document = document | {"monitoring_targets": {"tcp": document["monitoring_targets"]}}
    if not isinstance(spot.inner, dict) or "monitoring_targets" not in spot.inner:
        return document, spot
    targets = spot.inner["monitoring_targets"]
    inner = spot.inner | {"monitoring_targets": replace(targets, inner={"tcp": targets})}
    return document, replace(spot, inner=inner)


def _salvaged(document: Json, wrong: list[Cause], cls: type[Topology]) -> Topology | None:
    """Return the topology with empty values where types are wrong or texts too long; None if that is not enough."""
    schema = struct(cls)
    if not isinstance(document, dict):
        return None
    for cause in wrong:
        if cause.reason in (shapes.TYPE_INVALID, shapes.REQUIRED, shapes.NOT_SUPPORTED, shapes.TOO_LONG):
            _clear(document, schema, cause.field)
    try:
        return msgspec.convert(document, cls, strict=True)
    except msgspec.ValidationError:
        return None


def _clear(document: Json, schema: Schema, path: str) -> None:
    """Replace the value at a path by the empty value of its type."""
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    value = document
    for number, step in enumerate(steps, start=1):
        schema = schema["properties"][step] if isinstance(step, str) else schema["items"]
        if number == len(steps):
            value[step] = _empty(schema)
        else:
            value = value[step]


def _empty(schema: Schema) -> Json:
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _empty(schema["properties"][name]) for name in schema.get("required", ())}
        case "array":
            return []
        case "string":
            return ""
        case "integer":
            return 0
        case "boolean":
            return False
        case _:
            return None


def normalised(topology: Topology) -> Topology:
    """Return a topology with today's names instead of deprecated ones, and with the platform's defaults."""
    return replace(
        topology,
        wan=topology.wan or Wan(),
        hosts=tuple(replace(host, base_box=_box(host.base_box)) for host in topology.hosts),
        routers=tuple(replace(router, base_box=_box(router.base_box)) for router in topology.routers),
    )


def _box(box: BaseBox | None) -> BaseBox | None:
    if box is None:
        return None
    return replace(
        box,
        mgmt_user=box.mgmt_user or box.man_user or "debian",
        mgmt_protocol=(box.mgmt_protocol or box.mng_protocol or "SSH").upper(),
        man_user="",
        mng_protocol="",
    )
