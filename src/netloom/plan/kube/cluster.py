"""The network of a cluster: its Network and Router, and for each node the Subnets of its pods and its own attachment.

    settings           Network `pods`
    Node.spec.podCIDRs Subnet slice-v4.NODE, slice-v6.NODE: the first address is the gateway, the second the node's own
                       NetworkAttachment node.NODE: the device nl-host with these addresses, and routes to the blocks
                       of pods and Services
                       PortPool pool.NODE: free ports for its pods, if the settings say so
    all nodes          Router `pods`: a port on the Network, and the policies below

A packet between pods is switched, or routed between slices. A packet of a pod to anywhere else goes to the own address
of the pod's node, which masquerades. The policies of the Router, highest priority first:

    3000  to a slice: as routed
    2000  to another address in the blocks of pods and Services: dropped. There is no such pod; and a Service's address
          was translated before, at the sender's port, if the Service has it.
    1000  from a slice to the outside: to the own address of the slice's node
       1  anything else: dropped

OVN drops a packet without a route before it looks at policies. So the Router has a default route, to the own address of
the first node; no packet follows it.

A block of a node that cannot be used is a problem of that node only.  Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from netloom.model.kinds.attachments import (
    AttachmentPort,
    NetworkAttachment,
    NetworkAttachmentSpec,
    PortPool,
    PortPoolSpec,
    PortType,
)
from netloom.model.kinds.kubernetes import ClusterNode
from netloom.model.kinds.networks import (
    Network,
    NetworkSpec,
    Route,
    Router,
    RouterPort,
    RouterSpec,
    Subnet,
    SubnetSpec,
)
from netloom.model.kinds.policy import PolicyAction, RouterPolicy
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, PORT_POOL, ROUTER, SUBNET
from netloom.model.values import addresses
from netloom.plan.kube import names
from netloom.plan.kube.planned import ClusterSettings, Planned, meta
from netloom.plan.problem import Problem

TO_SLICES, TO_NOWHERE, TO_OUTSIDE, OTHERS = 3000, 2000, 1000, 1
"""The priorities of the Router's policies."""
BLOCKS_IN_POLICY = 32
"""Blocks that one router policy can name."""
SMALLEST = 8
"""Addresses of the smallest block of a node: four of them are its own, the gateway's, and the first and the last."""
EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


ZONE = "topology.kubernetes.io/zone"
"""The label of a node with its zone."""


class Slice(NamedTuple):
    """The block of a node's pods in one family."""

    subnet: str
    """The name of its Subnet."""
    version: int
    block: str
    gateway: str
    own: str
    """The node's own address."""


def slices(settings: ClusterSettings, node: ClusterNode) -> tuple[list[Slice], list[Problem]]:
    """Return the slices of a node, at most one of each family, and why some of its blocks are none."""
    found: dict[int, Slice] = {}
    problems: list[Problem] = []
    for text in node.spec.blocks:
        if not addresses.is_cidr(text):
            problems.append(Problem("PodCIDRMalformed", f"spec.podCIDRs: {text!r} is not an address block"))
            continue
        block = addresses.interface(text).network
        if not settings.has_pods(block):
            known = ", ".join(settings.pod_blocks)
            why = f"spec.podCIDRs: {text} is outside the blocks of pods ({known}): pods here get no address of it"
            problems.append(Problem("PodCIDROutside", why))
        elif block.num_addresses < SMALLEST:
            why = f"spec.podCIDRs: {text} is too small: a node needs a block of {SMALLEST} addresses or more"
            problems.append(Problem("PodCIDRTooSmall", why))
        elif block.version not in found:
            name = names.slice_subnet(node.metadata.name, block.version)
            first = block.network_address
            found[block.version] = Slice(name, block.version, str(block), str(first + 1), str(first + 2))
    return [found[version] for version in sorted(found)], problems


def zone(node: ClusterNode | None) -> str | None:
    """Return the zone of a node; "": it has none; None: there is no node."""
    return None if node is None else node.metadata.labels.get(ZONE, "")


def plan_node(settings: ClusterSettings, node: ClusterNode, *, pooled: bool = False) -> Planned:
    """Return the Subnets of a node's pods, the node's own attachment, and with `pooled` its PortPool, if it has one."""
    own, problems = slices(settings, node)
    if not own:
        return Planned(problems=tuple(problems))
    subnets = (_subnet(settings, one) for one in own)
    pools = (_pool(settings, node, own),) if pooled and settings.pool_size else ()
    return Planned(objects=(*subnets, _host(settings, node, own), *pools), problems=tuple(problems))


def plan_network(settings: ClusterSettings, nodes: Iterable[ClusterNode]) -> Planned:
    """Return the Network and the Router of all pods."""
    network = Network(
        api_version=NETWORK.api_version,
        kind=NETWORK.name,
        metadata=meta(settings, names.NETWORK),
        spec=NetworkSpec(mtu=settings.mtu),
    )
    every = [one for node in sorted(nodes, key=lambda node: node.metadata.name) for one in slices(settings, node)[0]]
    spec = RouterSpec(
        networks=(RouterPort(network=names.NETWORK),) if every else (),
        routes=tuple(_default_routes(every)),
        policies=tuple(_policies(settings, every)),
    )
    router = Router(api_version=ROUTER.api_version, kind=ROUTER.name, metadata=meta(settings, names.ROUTER), spec=spec)
    return Planned(objects=(network, router))


def _subnet(settings: ClusterSettings, one: Slice) -> Subnet:
    return Subnet(
        api_version=SUBNET.api_version,
        kind=SUBNET.name,
        metadata=meta(settings, one.subnet),
        spec=SubnetSpec(network=names.NETWORK, cidr=one.block, gateway=one.gateway),
    )


def _host(settings: ClusterSettings, node: ClusterNode, own: Sequence[Slice]) -> NetworkAttachment:
    """Return the attachment of a node itself."""
    ips = tuple(one.own for one in own)
    spec = NetworkAttachmentSpec(
        node=node.metadata.name,
        network=names.NETWORK,
        subnets=tuple(one.subnet for one in own),
        ips=ips,
        # They are reserved by this: an address that is allowed somewhere is allocated to who requests it, and to no
        # other.
        allowed_addresses=ips,
        port=AttachmentPort(type=PortType.INTERNAL, name=names.HOST_DEVICE),
        routes=tuple(Route(to=to, via=one.gateway) for one in own for to in settings.inside(one.version)),
        forwarding=True,
    )
    return NetworkAttachment(
        api_version=NETWORK_ATTACHMENT.api_version,
        kind=NETWORK_ATTACHMENT.name,
        metadata=meta(settings, names.node(node.metadata.name), {names.HOST: "true"}),
        spec=spec,
    )


def _pool(settings: ClusterSettings, node: ClusterNode, own: Sequence[Slice]) -> PortPool:
    """Return the pool of a node: ports as pods have them, without profiles."""
    name = node.metadata.name
    spec = PortPoolSpec(
        node=name,
        network=names.NETWORK,
        subnets=tuple(one.subnet for one in own),
        size=settings.pool_size,
        max_size=settings.pool_max_size or None,
        default_route=True,
    )
    return PortPool(
        api_version=PORT_POOL.api_version, kind=PORT_POOL.name, metadata=meta(settings, names.pool(name)), spec=spec
    )


def _default_routes(every: Sequence[Slice]) -> Iterator[Route]:
    for version, everywhere in EVERYWHERE.items():
        first = next((one for one in every if one.version == version), None)
        if first is not None:
            yield Route(to=everywhere, via=first.own)


def _policies(settings: ClusterSettings, every: Sequence[Slice]) -> Iterator[RouterPolicy]:
    if not every:
        return
    for version in EVERYWHERE:
        blocks = [one.block for one in every if one.version == version]
        for to in _chunks(blocks):
            yield RouterPolicy(priority=TO_SLICES, to=to, action=PolicyAction.ALLOW)
        for to in _chunks(list(settings.inside(version))) if blocks else ():
            yield RouterPolicy(priority=TO_NOWHERE, to=to, action=PolicyAction.DROP)
    for one in every:
        yield RouterPolicy(priority=TO_OUTSIDE, from_=(one.block,), action=PolicyAction.REROUTE, via=(one.own,))
    yield RouterPolicy(priority=OTHERS, action=PolicyAction.DROP)


def _chunks(blocks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    unique = list(dict.fromkeys(blocks))
    for at in range(0, len(unique), BLOCKS_IN_POLICY):
        yield tuple(unique[at : at + BLOCKS_IN_POLICY])
