"""containers.yml: the containers on the hosts of a topology."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Struct

from netloom.model.codec import Spot
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Topology
from netloom.model.topology.checks import Problem, not_unique, repeated
from netloom.model.topology.findings import Finding, at, shape
from netloom.model.values.scalars import Line, Port, Word, meta


class Container(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image, or the file to build it from."""

    name: Annotated[Word, meta("The name.", minLength=1)]
    image: Line = ""
    dockerfile: Line = ""


class ContainerMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A container on a host."""

    container: Word
    host: Word
    port: Port
    hidden: bool = False


class Containers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of containers.yml."""

    containers: Annotated[tuple[Container, ...], meta(maxItems=1024)]
    container_mappings: Annotated[tuple[ContainerMapping, ...], meta(maxItems=4096)]
    hide_all: bool = False


def is_containers(document: Document) -> bool:
    """Whether a document is a containers.yml."""
    return "containers" in document or "container_mappings" in document


def judge(document: Document, spot: Spot) -> tuple[Containers | None, list[Finding]]:
    """Return the containers, if nothing is wrong with them, and all findings.  Changes the document."""
    _, found = shape(document, spot, Containers)
    if found:
        return None, found
    content = msgspec.convert(document, Containers)
    found = [at(spot, f".{one.path}", one.message) for one in _check(content)]
    return (None if found else content), found


def check_hosts(content: Containers, topology: Topology) -> list[Problem]:
    """Return the problems of containers on the hosts of a topology."""
    hosts = {host.name for host in topology.hosts}
    return [
        Problem(f"container_mappings[{i}].host", f'Invalid container mapping. Cannot find host with name "{one.host}".')
        for i, one in enumerate(content.container_mappings)
        if one.host not in hosts
    ]


def _check(content: Containers) -> Iterator[Problem]:
    names = [(f"containers[{i}].name", one.name) for i, one in enumerate(content.containers)]
    for path, name in repeated(names):
        yield Problem(path, not_unique("containers", name))
    for i, one in enumerate(content.containers):
        if bool(one.image) == bool(one.dockerfile):
            yield Problem(f"containers[{i}]", f'The container "{one.name}" needs either image or dockerfile.')
    known = {name for _, name in names}
    ports = set()
    for i, mapping in enumerate(content.container_mappings):
        if mapping.container not in known:
            message = f'Invalid container mapping. Cannot find container with name "{mapping.container}".'
            yield Problem(f"container_mappings[{i}].container", message)
        if (mapping.host, mapping.port) in ports:
            message = f'Port {mapping.port} of host "{mapping.host}" has two containers: choose another port.'
            yield Problem(f"container_mappings[{i}].port", message)
        ports.add((mapping.host, mapping.port))
