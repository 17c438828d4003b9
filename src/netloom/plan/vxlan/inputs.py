"""Attachments as ports of the vxlan fabric, local or remote, and the plan of all of them on one node. Pure.

Flows are made only for addresses that are locked according to the status: an address that IPAM did not allocate gets no
packets, even if it is written there. Of RemoteVTEPs only those count that the node of the speaker has written, for the
Network's own VNI: so another node's credential cannot redirect packets.
"""

from collections.abc import Callable, Iterable, Mapping

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment, NetworkAttachmentStatus
from netloom.model.kinds.bgp import EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan.node.ports import PortPlan
from netloom.plan.vxlan.fabric import VxlanPlan
from netloom.plan.vxlan.ports import LocalPort, Remote


def plan_fabric(
    resources: Iterable[Resource],
    node: str,
    plans: Mapping[tuple[str, str], PortPlan],
    ofport: Callable[[PortPlan], int | None],
    vtep: int | None,
) -> VxlanPlan:
    """Return the flows of a node from all resources at once; its agent plans the same, one change at a time.

    `plans` has the ports of the node, and `ofport` returns their OpenFlow numbers, or None while they have none.
    """
    found = VxlanPlan()
    found.vtep = vtep
    resources = list(resources)
    attachments = [one for one in resources if isinstance(one, NetworkAttachment)]
    relevant = set()
    for one in attachments:
        plan = plans.get((one.metadata.namespace, one.metadata.name))
        if plan is not None and plan.fabric is Fabric.VXLAN and one.spec.node == node:
            relevant.add((one.metadata.namespace, one.spec.network))
            if (number := ofport(plan)) is not None and number > 0:
                found.put_local(local_port(one, plan, number), _rank(one))
    for one in attachments:
        there = remote_port(one)
        if there is not None and one.spec.node != node and (there.namespace, there.network) in relevant:
            found.put_remote(there, _rank(one))
    namespaces = {namespace for namespace, _ in relevant}
    for policy in resources:
        if isinstance(policy, SecurityProfile) and policy.metadata.namespace in namespaces:
            found.put_profile(policy)
        elif isinstance(policy, Shaping) and policy.metadata.namespace in namespaces:
            found.put_shaping(policy)
    networks = {_key(one): one for one in resources if isinstance(one, Network) and _key(one) in relevant}
    extended = {_key(one): one for one in resources if isinstance(one, EVPNNetwork)}
    for far in [one for one in resources if isinstance(one, RemoteVTEP)]:
        namespace, spec = far.metadata.namespace, far.spec
        if counts(far, networks.get((namespace, spec.network)), extended.get((namespace, spec.evpn_network))):
            found.put_vtep(far)
    found.flush()
    return found


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


def counts(vtep: RemoteVTEP, network: Network | None, by: EVPNNetwork | None, *, recently: bool = False) -> bool:
    """Whether flows follow from a RemoteVTEP.

    Its EVPNNetwork must be of the same Network, and forward by the node that has written the RemoteVTEP, or have done
    so `recently`. Only controllers write the status of Networks, and these fields of the status of EVPNNetworks.
    """
    return (
        network is not None
        and network.status.vni == vtep.spec.local_vni
        and by is not None
        and by.spec.network == vtep.spec.network
        and (by.status.forwarding or recently)
        and by.status.node == vtep.spec.node
    )


def _key(value: Resource) -> tuple[str, str]:
    return value.metadata.namespace, value.metadata.name


def _rank(value: NetworkAttachment) -> int:
    """Return the revision of an attachment: of two that claim one address the newer has it."""
    version = value.metadata.resource_version
    return int(version) if version.isdecimal() else 0


def _locked(status: NetworkAttachmentStatus) -> tuple[str, ...]:
    """Return the locked addresses, without their prefix lengths."""
    locked = {one.ip for one in status.locks}
    return tuple([ip for ip in (written.partition("/")[0] for written in status.ips) if ip in locked])
