"""Attachments as the vxlan fabric sees them, plugged here or on another node.  Pure."""

from collections.abc import Iterable

from netloom.model.attachments import NetworkAttachment
from netloom.plan.nodes import PortPlan
from netloom.plan.vxlan_ports import LocalPort, Remote


def local_port(value: NetworkAttachment, plan: PortPlan, ofport: int) -> LocalPort:
    """Return an attachment that is plugged here."""
    return LocalPort(
        uid=plan.uid,
        namespace=plan.namespace,
        name=plan.name,
        ofport=ofport,
        vni=plan.vni,
        mac=plan.mac,
        ips=_bare(value.status.ips),
        allowed=tuple(value.spec.allowed_addresses),
        profiles=tuple(value.spec.security_profiles),
        labels=value.metadata.labels,
        network=value.spec.network,
        node=value.spec.node,
    )


def remote_port(value: NetworkAttachment) -> Remote | None:
    """Return an attachment on another node, or None where it is not known yet, or no longer, where it is."""
    status = value.status
    known = status.host_ip and status.mac and status.ips and status.vni is not None
    if value.metadata.deletion_timestamp or not known:
        return None
    return Remote(
        uid=value.metadata.uid,
        namespace=value.metadata.namespace,
        name=value.metadata.name,
        vni=status.vni or 0,
        mac=status.mac,
        ips=_bare(status.ips),
        host_ip=status.host_ip,
        allowed=tuple(value.spec.allowed_addresses),
        profiles=tuple(value.spec.security_profiles),
        labels=value.metadata.labels,
        network=value.spec.network,
        node=value.spec.node,
    )


def _bare(ips: Iterable[str]) -> tuple[str, ...]:
    return tuple([ip.partition("/")[0] for ip in ips])
