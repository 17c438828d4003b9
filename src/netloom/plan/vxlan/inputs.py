"""Attachments as the vxlan fabric sees them, plugged here or on another node.  Pure.

Flows are made for addresses that the status says are locked, and for no other: an address that IPAM did not give away
gets no packets, whoever wrote it there.
"""

from netloom.model.attachments import NetworkAttachment, NetworkAttachmentStatus
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.ports import LocalPort, Remote


def local_port(value: NetworkAttachment, plan: PortPlan, ofport: int) -> LocalPort:
    """Return an attachment that is plugged here."""
    return LocalPort(
        uid=plan.uid,
        namespace=plan.namespace,
        name=plan.name,
        ofport=ofport,
        vni=plan.vni,
        mac=plan.mac,
        ips=_locked(value.status),
        allowed=tuple(value.spec.allowed_addresses),
        profiles=tuple(value.spec.security_profiles),
        labels=value.metadata.labels,
        network=value.spec.network,
        node=value.spec.node,
    )


def remote_port(value: NetworkAttachment) -> Remote | None:
    """Return an attachment on another node, or None where it is not known yet, or no longer, where it is."""
    status = value.status
    ips = _locked(status)
    known = status.host_ip and status.mac and ips and status.vni is not None
    if value.metadata.deletion_timestamp or not known:
        return None
    return Remote(
        uid=value.metadata.uid,
        namespace=value.metadata.namespace,
        name=value.metadata.name,
        vni=status.vni or 0,
        mac=status.mac,
        ips=ips,
        host_ip=status.host_ip,
        allowed=tuple(value.spec.allowed_addresses),
        profiles=tuple(value.spec.security_profiles),
        labels=value.metadata.labels,
        network=value.spec.network,
        node=value.spec.node,
    )


def _locked(status: NetworkAttachmentStatus) -> tuple[str, ...]:
    """Return the addresses that are locked, without their prefix lengths."""
    locked = {one.ip for one in status.locks}
    return tuple([ip for ip in (written.partition("/")[0] for written in status.ips) if ip in locked])
