"""Attachments as ports of the vxlan fabric, local or remote. Pure.

Flows are made only for addresses that are locked according to the status: an address that IPAM did not allocate gets no
packets, even if it is written there.
"""

from netloom.model.kinds.attachments import NetworkAttachment, NetworkAttachmentStatus
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.ports import LocalPort, Remote


def local_port(value: NetworkAttachment, plan: PortPlan, ofport: int) -> LocalPort:
    """Return the local port of an attachment of this node."""
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
    """Return the remote port of another node's attachment, or None while its location is unknown."""
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
    """Return the locked addresses, without their prefix lengths."""
    locked = {one.ip for one in status.locks}
    return tuple([ip for ip in (written.partition("/")[0] for written in status.ips) if ip in locked])
