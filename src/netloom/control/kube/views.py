"""The informers of a cluster network: the cluster's own objects, and the objects that are made for it.

Pods that are not scheduled, and those that have finished, are not watched: nothing is made for them, and a cluster may
keep thousands. Objects that are made are cached without their status, except for the attachments of nodes.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, TypeVar, cast

from msgspec import structs

from netloom.control.runtime.cache import Indexer
from netloom.control.runtime.informer import Informer, informer, lean
from netloom.model.document import Resource
from netloom.model.kind import Kind
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.kubernetes import (
    ClusterNamespace,
    ClusterNode,
    EndpointSlice,
    NetworkPolicy,
    Pod,
    Service,
    decode,
)
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kubernetes import (
    CLUSTER_NAMESPACE,
    CLUSTER_NETWORK_POLICY,
    CLUSTER_NODE,
    ENDPOINT_SLICE,
    NETWORK_POLICY,
    POD,
    SERVICE,
)
from netloom.model.registry import (
    LOAD_BALANCER,
    NETWORK,
    NETWORK_ATTACHMENT,
    PORT_POOL,
    ROUTER,
    SECURITY_PROFILE,
    SUBNET,
)
from netloom.model.values.selectors import EVERYTHING, Operator, Requirement, Selector
from netloom.plan.kube import names
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.kube.policies.named_profiles import named
from netloom.plan.kube.services.load_balancers import has_hints
from netloom.plan.problem import Unit
from netloom.store.base import Store, Stored

R = TypeVar("R", bound=Resource)

MADE = (NETWORK, SUBNET, ROUTER, SECURITY_PROFILE, NETWORK_ATTACHMENT, LOAD_BALANCER, PORT_POOL)
"""The kinds of the objects that are made for a cluster, in the order of creation."""
RUNNING = Selector(
    fields=(
        Requirement("spec.nodeName", Operator.NOT_IN, frozenset(("",))),
        Requirement("status.phase", Operator.NOT_IN, frozenset(("Succeeded",))),
        Requirement("status.phase", Operator.NOT_IN, frozenset(("Failed",))),
    )
)
MANAGED = Selector(labels=(Requirement(names.MANAGED, Operator.IN, frozenset(("true",))),))
OTHERS = Selector(labels=(Requirement(names.MANAGED, Operator.ABSENT, frozenset()),))
BY_NODE, BY_PROFILE, BY_SERVICE, BY_SOURCE, HINTED = "node", "profile", "service", "source", "hinted"
CLUSTER = Unit("Cluster", "", names.NETWORK)
"""The source of what there is once for the cluster."""
UNKNOWN = Unit("Unknown", "", "unknown")
"""The source of an object that does not say for what it was made."""
SOURCES = (CLUSTER.kind, CLUSTER_NODE.name, POD.name, SERVICE.name, NETWORK_POLICY.name, CLUSTER_NETWORK_POLICY.name)


class ClusterInformers:
    """The informers of a cluster's own objects."""

    def __init__(self, store: Store, *, random: Random) -> None:
        def of(
            kind: Kind,
            view: type[R],
            indexes: Mapping[str, Indexer[R]] | None = None,
            *,
            selector: Selector = EVERYTHING,
            optional: bool = False,
        ) -> Informer[R]:
            def read(stored: Stored) -> R:
                return decode(stored.raw, view)

            return Informer(store, kind, read, random=random, selector=selector, indexes=indexes, optional=optional)

        self.nodes = of(CLUSTER_NODE, ClusterNode)
        self.namespaces = of(CLUSTER_NAMESPACE, ClusterNamespace)
        self.pods = of(POD, Pod, {BY_NODE: _node, BY_PROFILE: named}, selector=RUNNING)
        self.services = of(SERVICE, Service)
        self.slices = of(ENDPOINT_SLICE, EndpointSlice, {BY_SERVICE: service_of, HINTED: _hinted})
        self.policies = of(NETWORK_POLICY, NetworkPolicy)
        self.cluster_policies = of(CLUSTER_NETWORK_POLICY, ClusterNetworkPolicy, optional=True)

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Return all of them."""
        of_pods = (self.nodes, self.namespaces, self.pods, self.services, self.slices)
        return iter((*of_pods, self.policies, self.cluster_policies))


def made_informers(store: Store, settings: ClusterSettings, *, random: Random) -> dict[str, Informer[Any]]:
    """Return the informers of the objects that are made for the cluster, by kind."""
    found: dict[str, Informer[Any]] = {}
    for kind in MADE:
        found[kind.name] = Informer(
            store,
            kind,
            _without_status,
            random=random,
            namespace=settings.namespace,
            selector=MANAGED,
            indexes={BY_SOURCE: lambda one: (str(source_of(one)),)},
        )
    return found


def profile_informer(store: Store, settings: ClusterSettings, *, random: Random) -> Informer[SecurityProfile]:
    """Return the informer of the SecurityProfiles of administrators, which pods may name."""
    return informer(store, SecurityProfile, random=random, namespace=settings.namespace, selector=OTHERS)


def source_of(one: Resource) -> Unit:
    """Return for what an object was made."""
    found = Unit.parse(one.metadata.annotations.get(names.SOURCE, ""))
    return found if found is not None and found.kind in SOURCES else UNKNOWN


def service_of(one: EndpointSlice) -> Iterable[str]:
    """Return the key of the Service of a slice."""
    return (f"{one.metadata.namespace}/{one.service}",) if one.service else ()


def _hinted(one: EndpointSlice) -> Iterable[str]:
    return (HINTED,) if has_hints(one) else ()


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,)


def _without_status(stored: Stored) -> Resource:
    value = lean(stored.value())
    if isinstance(value, NetworkAttachment) and value.metadata.labels.get(names.HOST) == "true":
        return value
    status: Any = getattr(value, "status", None)
    return value if status is None else structs.replace(value, **cast("dict[str, Any]", {"status": type(status)()}))
