"""Attachments that are a VLAN of another attachment's port: what stands in the way of one.  Pure.

A machine that runs containers has one device on its node, and each container sends by it with a VLAN of its own. OVN
calls that a child: a logical port with a `parent_name` and a `tag`, of whatever switch. It has no device; where its
parent is, there it is.

The planner asks this of all attachments, and a node's agent of its own: both must come to the same, for nothing on the
node's switch says that OVN does not know a child. So it is decided by little. Of two that say they are one VLAN of one
port, the one whose name comes first has it, in whatever Network they are, and whatever else is amiss with it.
"""

from collections.abc import Iterable

from netloom.model.networks import Fabric, Network
from netloom.plan.problem import Problem
from netloom.plan.world.world import Port, World

NOT_PLUGGED = "ParentNotPlugged"


def obstacle(world: World, one: Port) -> Problem | None:
    """Return what keeps a child from being planned."""
    parent = world.port(one.namespace, one.parent)
    if parent is None:
        return missing(one.parent)
    own, its = (world.get(Network, one.namespace, name) for name in (one.network, parent.network))
    same = world.children(one.namespace, one.parent, one.vlan)
    return (
        elsewhere(one.parent, parent.node, one.node)
        or childless(one.parent, parent.parent)
        or carried("spec.network", own)
        or carried("spec.port.parent", its)
        or taken(one.parent, one.vlan, one.name, (other.name for other in same if other.node == parent.node))
    )


def missing(parent: str, node: str = "") -> Problem:
    """Return what is said of a child whose parent is not there, or not on its node."""
    said = f"is not on this node, {node}" if node else "does not exist"
    return Problem("ParentMissing", f"spec.port.parent: NetworkAttachment {parent} {said}")


def elsewhere(parent: str, there: str, here: str) -> Problem | None:
    """Return what stands in the way of a child if its parent is on a node, and the child on another."""
    if there == here:
        return None
    said = f"spec.port.parent: {parent} is on Node {there}, and this one on {here}: a VLAN of its port is where it is"
    return Problem("ParentElsewhere", said)


def childless(parent: str, grandparent: str) -> Problem | None:
    """Return what stands in the way of a child if its parent is a child itself."""
    if not grandparent:
        return None
    said = f"spec.port.parent: {parent} is itself a VLAN of {grandparent}'s port: name {grandparent}, and another VLAN"
    return Problem("ParentIsChild", said)


def carried(at: str, network: Network | None) -> Problem | None:
    """Return what stands in the way if a Network, the child's or its parent's, is not OVN's."""
    if network is None or network.spec.fabric is Fabric.OVN:
        return None
    said = f"Network {network.metadata.name} is carried by {network.spec.fabric}: a port of type child needs ovn"
    return Problem("WrongFabric", f"{at}: {said}")


def taken(parent: str, vlan: int | None, name: str, rivals: Iterable[str]) -> Problem | None:
    """Return what stands in the way if others, on the same node, say that they are the same VLAN of the same port."""
    first = min(rivals, default=name)
    if first >= name:
        return None
    return Problem("VlanTaken", f"spec.port.vlan: VLAN {vlan} of {parent} is {first}'s: choose another")
