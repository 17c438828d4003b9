"""Mirrors: why one is not possible, and the tunnels of one between nodes.  Pure.

OVN 23.03 mirrors to tunnels only, not to a port. So the nodes' Open vSwitch makes the copies (`plan/node` plans that),
and this module plans no rows. A Network is mirrored at the ports of its attachments: a Router has no port on a node.
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
    sources: tuple[Port, ...] = ()
    if spec.source.network:
        sources = _network_ports(world, namespace, spec.source.network, outcome)
    elif (source := _port(world, namespace, "source", spec.source.attachment, outcome)) is not None:
        sources = (source,)
    destination = _port(world, namespace, "destination", spec.destination.attachment, outcome)
    if destination is None:
        return outcome
    if all(one.node == destination.node for one in sources):
        return outcome
    at = "source.network" if spec.source.network else "source.attachment"
    nodes: dict[str, tuple[str, Port]] = {}
    for one in sources:
        nodes.setdefault(one.node, (at, one))
    nodes.setdefault(destination.node, ("destination.attachment", destination))
    for node, (field, one) in sorted(nodes.items()):
        if world.get(Node, "", node) is None:
            said = f"{one.name} is on Node {node}, which does not exist: start its agent"
            outcome.report("NodeMissing", f"spec.{field}: {said}")
    return outcome


def _port(world: World, namespace: str, at: str, name: str, outcome: Outcome) -> Port | None:
    """Return the port of an attachment that an end names, and report why it cannot be one."""
    port = world.port(namespace, name)
    if port is None:
        outcome.report("AttachmentMissing", f"spec.{at}.attachment: NetworkAttachment {name} does not exist")
        return None
    network = world.get(Network, namespace, port.network)
    if network is not None and network.spec.fabric is not Fabric.OVN:
        said = f"{name} is in Network {port.network} of fabric {network.spec.fabric}: mirrors need ovn"
        outcome.report("WrongFabric", f"spec.{at}.attachment: {said}")
    if port.parent:
        said = f"{name} is a VLAN of {port.parent}'s port and has no device of its own: mirror {port.parent}"
        outcome.report("NoDevice", f"spec.{at}.attachment: {said}")
    return port


def _network_ports(world: World, namespace: str, name: str, outcome: Outcome) -> tuple[Port, ...]:
    """Return the ports of a Network that is the source, and report why it cannot be one."""
    network = world.get(Network, namespace, name)
    if network is None:
        outcome.report("NetworkMissing", f"spec.source.network: Network {name} does not exist")
        return ()
    if network.spec.fabric is not Fabric.OVN:
        said = f"spec.source.network: {name} is of fabric {network.spec.fabric}: mirrors need ovn"
        outcome.report("WrongFabric", said)
    ports = world.ports(namespace, name)
    if children := sorted(one.name for one in ports if one.parent):
        said = f"{children[0]} is a VLAN of another port and has no device of its own: mirror the parents' Networks"
        outcome.report("NoDevice", f"spec.source.network: {said}")
    return ports


def tunnels_of(world: World, mirror: Mirror) -> tuple[MirrorTunnel, ...]:
    """Return the tunnels of a Mirror: one from each node with a source, but from the destination's and unknown ones."""
    namespace, spec = mirror.metadata.namespace, mirror.spec
    target = world.port(namespace, spec.destination.attachment)
    end = None if target is None else world.get(Node, "", target.node)
    if end is None:
        return ()
    if spec.source.network:
        sources = world.ports(namespace, spec.source.network)
    else:
        source = world.port(namespace, spec.source.attachment)
        sources = () if source is None else (source,)
    starts = [world.get(Node, "", name) for name in sorted({one.node for one in sources} - {end.metadata.name})]
    return tuple(
        MirrorTunnel(
            key=names.mirror_key(namespace, mirror.metadata.name, start.metadata.name),
            source_ip=start.spec.underlay_ip,
            destination_ip=end.spec.underlay_ip,
        )
        for start in starts
        if start is not None
    )


def rerouted(world: World, namespaces: Iterable[str], nodes: bool) -> set[Unit]:
    """Return the Mirrors whose tunnel may have changed, where attachments changed, or with `nodes` a Node."""
    found = world.all(Mirror) if nodes else [one for namespace in namespaces for one in world.all(Mirror, namespace)]
    return {Unit(one.kind, one.metadata.namespace, one.metadata.name) for one in found}
