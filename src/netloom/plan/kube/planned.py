"""The settings of a cluster network, and what is planned for one object of the cluster."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from netloom.model.document import ObjectMeta, Resource
from netloom.model.values import addresses
from netloom.model.values.addresses import Block
from netloom.plan.kube import names
from netloom.plan.kube.services.pools import Pool
from netloom.plan.problem import Problem


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """What an administrator says about a cluster's network."""

    namespace: str = names.NAMESPACE
    """The namespace of the objects that are made for the cluster."""
    pod_blocks: tuple[str, ...]
    """The blocks of all pods, of one or two families: the cluster CIDRs of kube-controller-manager."""
    service_blocks: tuple[str, ...]
    """The blocks of the cluster IPs: the service CIDRs of kube-apiserver."""
    mtu: int | None = None
    """The MTU of pods; None: that of the underlay less the encapsulation."""
    load_balancer_pools: tuple[Pool, ...] = ()
    """The addresses for Services of type LoadBalancer; (): their statuses are others' to write."""
    pool_size: int = 0
    """The free ports that each node keeps ready; 0: it has no PortPool."""
    pool_max_size: int = 0
    """The most of them, when many pods come; 0: no more than `pool_size`."""

    def inside(self, version: int) -> Iterator[str]:
        """Yield the blocks of pods and Services of a family."""
        yield from (one for one in (*self.pod_blocks, *self.service_blocks) if addresses.family(one) == version)

    def has_pods(self, block: Block) -> bool:
        """Whether a block is inside of one of the pods' blocks."""
        return any(addresses.inside(str(block), one) for one in self.pod_blocks)


class Planned(Struct, frozen=True, kw_only=True):
    """What must exist for one object of the cluster, and what prevents some of it."""

    objects: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()


NOTHING = Planned()


def meta(
    settings: ClusterSettings,
    name: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> ObjectMeta:
    """Return the metadata of an object that is made for the cluster."""
    return ObjectMeta(
        name=name,
        namespace=settings.namespace,
        labels={**(labels or {}), names.MANAGED: "true"},
        annotations=dict(annotations or {}),
    )
