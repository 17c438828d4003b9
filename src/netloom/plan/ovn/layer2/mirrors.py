"""Mirrors: why one is not possible, and the tunnel of one between nodes.  Pure.

OVN 23.03 mirrors to tunnels only, not to a port. So the nodes' Open vSwitch makes the copies (`plan/node` plans that),
and this module plans no rows.
"""

from collections.abc import Iterable

from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.paths import Mirror, MirrorTunnel
from netloom.plan import names
from netloom.plan.problem import Unit
from netloom.plan.rows import Outcome
from netloom.plan.world.world import Port, World


def plan_mirror(world: World, mirror: Mirror) -> Outcome:
    """Plan no rows; report the problems of a Mirror."""
    namespace, spec = mirror.metadata.namespace, mirror.spec
    outcome = Outcome()
    ends: list[tuple[str, Port]] = []
    for at, name in (("source", spec.source.attachment), ("destination", spec.destination.attachment)):
        port = world.port(namespace, name)
        if port is None:
            outcome.report("AttachmentMissing", f"spec.{at}.attachment: NetworkAttachment {name} does not exist")
            continue
        network = world.get(Network, namespace, port.network)
        if network is not None and network.spec.fabric is not Fabric.OVN:
            said = f"{name} is in Network {port.network} of fabric {network.spec.fabric}: mirrors need ovn"
            outcome.report("WrongFabric", f"spec.{at}.attachment: {said}")
        if port.parent:
            said = (
                f"spec.{at}.attachment: {name} is a VLAN of {port.parent}'s port and has no device of its own: "
                f"mirror {port.parent}"
            )
            outcome.report("NoDevice", said)
        ends.append((at, port))
    if len(ends) == 2 and ends[0][1].node != ends[1][1].node:
        for at, port in ends:
            if world.get(Node, "", port.node) is None:
                said = f"{port.name} is on Node {port.node}, which does not exist: start its agent"
                outcome.report("NodeMissing", f"spec.{at}.attachment: {said}")
    return outcome


def tunnel_of(world: World, mirror: Mirror) -> MirrorTunnel | None:
    """Return the tunnel of a Mirror between nodes; None: both ends are on one node, or one is not known."""
    namespace, spec = mirror.metadata.namespace, mirror.spec
    ports = [world.port(namespace, one.attachment) for one in (spec.source, spec.destination)]
    nodes = [None if port is None else world.get(Node, "", port.node) for port in ports]
    if nodes[0] is None or nodes[1] is None or nodes[0].metadata.name == nodes[1].metadata.name:
        return None
    return MirrorTunnel(
        key=names.mirror_key(namespace, mirror.metadata.name),
        source_ip=nodes[0].spec.underlay_ip,
        destination_ip=nodes[1].spec.underlay_ip,
    )


def rerouted(world: World, namespaces: Iterable[str], nodes: bool) -> set[Unit]:
    """Return the Mirrors whose tunnel may have changed, where attachments changed, or with `nodes` a Node."""
    found = world.all(Mirror) if nodes else [one for namespace in namespaces for one in world.all(Mirror, namespace)]
    return {Unit(one.kind, one.metadata.namespace, one.metadata.name) for one in found}
