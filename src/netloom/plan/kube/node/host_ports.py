"""The ports of a node that lead to its pods (`hostPort` of a container), as an annotation of their attachments.  Pure.

The annotation is written for a pod, and read by the agent of its node: `tcp * 8080 80, udp 192.0.2.1 53 53` has the
protocol, the address of the node or `*`, the port there, and that of the pod.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.kubernetes import ContainerPort, Pod
from netloom.model.values import addresses
from netloom.plan.kube import names

EVERY = "*"
_UNSPECIFIED = (EVERY, "0.0.0.0", "::")  # noqa: S104  # what a container may say
_PROTOCOLS = ("tcp", "udp", "sctp")
_FIELDS = 4


class HostPort(NamedTuple):
    """A port of a node, and where it leads."""

    protocol: str
    host: str
    """The address of the node; "": each of the family of `ip`."""
    port: int
    ip: str
    target: int


def annotation(pod: Pod) -> dict[str, str]:
    """Return the annotation for the attachment of a pod; none for one without such ports."""
    texts = dict.fromkeys(text for port in pod.ports if (text := _text(port)))
    return {names.HOST_PORTS: ", ".join(texts)} if texts else {}


def host_ports(attachments: Iterable[NetworkAttachment]) -> Iterator[HostPort]:
    """Return the ports of a node that lead to its attachments, in a stable order; what is malformed is left out."""
    for attachment in sorted(attachments, key=lambda one: one.metadata.name):
        ips = [one.partition("/")[0] for one in attachment.status.ips]
        for text in attachment.metadata.annotations.get(names.HOST_PORTS, "").split(", "):
            fields = text.split(" ")
            if len(fields) == _FIELDS and _is_valid(fields):
                protocol, host, port, target = fields
                for ip in ips:
                    if host == EVERY or addresses.family(host) == addresses.family(ip):
                        exact = "" if host in _UNSPECIFIED else host
                        yield HostPort(protocol, exact, int(port), ip, int(target))


def _text(port: ContainerPort) -> str:
    fields = [port.protocol.lower(), port.host_ip or EVERY, str(port.host_port), str(port.container_port)]
    return " ".join(fields) if _is_valid(fields) else ""


def _is_valid(fields: list[str]) -> bool:
    protocol, host, *ports = fields
    return (
        protocol in _PROTOCOLS
        and (host == EVERY or addresses.is_ip(host))
        and all(port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536 for port in ports)
    )
