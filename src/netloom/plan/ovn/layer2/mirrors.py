"""Mirrors: why one is not possible.  Pure.

OVN 23.03 mirrors to tunnels only, not to a port. So the node's Open vSwitch makes the copy (`plan/node` plans that),
and this module only reports problems. Both ends must be on one node: the copy does not leave it.
"""

from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.paths import Mirror
from netloom.plan.rows import Outcome
from netloom.plan.world.world import Port, World


def plan_mirror(world: World, mirror: Mirror) -> Outcome:
    """Plan no rows; report the problems of a Mirror."""
    namespace, spec = mirror.metadata.namespace, mirror.spec
    outcome = Outcome()
    ends: list[Port] = []
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
        ends.append(port)
    if len(ends) == 2 and ends[0].node != ends[1].node:
        said = (
            f"spec.destination.attachment: {ends[1].name} is on Node {ends[1].node}, and the source {ends[0].name} on"
            f" {ends[0].node}: a copy stays on its node, so choose a destination on {ends[0].node}"
        )
        outcome.report("DifferentNodes", said)
    return outcome
