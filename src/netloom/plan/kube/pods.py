"""The attachment of a pod.  Pure.

A pod has one from when it is scheduled until it has finished or is gone. Pods of the host's network, and those on a
node without a block, have none.

Its labels are those of the pod, by which policies select it, except for those under `kube.netloom.dev/`: these are set
here only, so that no tenant can pretend that a pod is a node, or of another namespace.
"""

from collections.abc import Sequence

from netloom.model.kinds.attachments import AttachmentPort, NetworkAttachment, NetworkAttachmentSpec, PortType
from netloom.model.kinds.kubernetes import Pod
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.kube import names
from netloom.plan.kube.cluster import Slice
from netloom.plan.kube.indexes import port_labels
from netloom.plan.kube.node.host_ports import annotation
from netloom.plan.kube.planned import NOTHING, ClusterSettings, Planned, meta
from netloom.plan.kube.policies.named_profiles import FindProfile, granted
from netloom.plan.problem import Problem


def wants_attachment(pod: Pod) -> bool:
    """Whether a pod gets an attachment."""
    return bool(pod.spec.node_name) and not pod.spec.host_network and not pod.finished


def plan_pod(
    settings: ClusterSettings, pod: Pod, own: Sequence[Slice], find: FindProfile = lambda _name: None
) -> Planned:
    """Return the attachment of a pod, given the slices of its node; `find` returns profiles of administrators."""
    if not wants_attachment(pod):
        return NOTHING
    if not own:
        text = (
            f"node {pod.spec.node_name} has no address block for pods: kube-controller-manager sets spec.podCIDRs of"
            " nodes with --allocate-node-cidrs"
        )
        return Planned(problems=(Problem("NodeWithoutPodCIDR", text),))
    given = pod.metadata
    labels = {key: value for key, value in given.labels.items() if not key.startswith(names.PREFIX)}
    labels |= port_labels(pod) | {names.OF_NAMESPACE: given.namespace, names.POD_UID: given.uid}
    profiles, problems = granted(pod, settings.namespace, find)
    attachment = NetworkAttachment(
        api_version=NETWORK_ATTACHMENT.api_version,
        kind=NETWORK_ATTACHMENT.name,
        metadata=meta(
            settings,
            names.pod(given.namespace, given.name),
            labels,
            {names.POD_NAME: given.name, **annotation(pod)},
        ),
        spec=NetworkAttachmentSpec(
            node=pod.spec.node_name,
            network=names.NETWORK,
            subnets=tuple(one.subnet for one in own),
            port=AttachmentPort(type=PortType.POD),
            security_profiles=profiles,
            default_route=True,
        ),
    )
    return Planned(objects=(attachment,), problems=problems)
