"""What prevents an attachment that is a VLAN of another attachment's port. Pure.

A machine that runs containers has one device on its node, and each container sends by it with a VLAN of its own. OVN
calls that a child: a logical port with a `parent_name` and a `tag`, of any switch. It has no device of its own and is
on its parent's node.

The planner of OVN evaluates this for all attachments, and a node's agent for its own: both must come to the same
result, because nothing on the node's switch says that OVN has no such child. So the result depends on little. Of two
attachments that ask for one VLAN of one port, the one whose name comes first has it, in whatever Network they are, and
whatever else is wrong with it.
"""

from collections.abc import Iterable

from netloom.model.kinds.networks import Fabric, Network
from netloom.plan.problem import Problem
from netloom.plan.world.world import Port, World

NOT_PLUGGED = "ParentNotPlugged"


def obstacle(world: World, one: Port) -> Problem | None:
    """Return what prevents a child from being planned."""
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
    """Return the problem of a child whose parent does not exist, or is not on its node."""
    message = f"is not on this node, {node}" if node else "does not exist"
    return Problem("ParentMissing", f"spec.port.parent: NetworkAttachment {parent} {message}")


def elsewhere(parent: str, there: str, here: str) -> Problem | None:
    """Return the problem of a child that is on another node than its parent."""
    if there == here:
        return None
    message = (
        f"spec.port.parent: {parent} is on Node {there}, and this one on {here}: a child is on the node of its parent"
    )
    return Problem("ParentElsewhere", message)


def childless(parent: str, grandparent: str) -> Problem | None:
    """Return the problem of a child whose parent is itself a child."""
    if not grandparent:
        return None
    message = (
        f"spec.port.parent: {parent} is itself a VLAN of {grandparent}'s port: name {grandparent}, and another VLAN"
    )
    return Problem("ParentIsChild", message)


def carried(at: str, network: Network | None) -> Problem | None:
    """Return the problem of a Network, the child's or its parent's, that is not of fabric ovn."""
    if network is None or network.spec.fabric is Fabric.OVN:
        return None
    message = f"Network {network.metadata.name} is carried by {network.spec.fabric}: a port of type child needs ovn"
    return Problem("WrongFabric", f"{at}: {message}")


def taken(parent: str, vlan: int | None, name: str, rivals: Iterable[str]) -> Problem | None:
    """Return the problem of a child whose VLAN another attachment on the same node has."""
    first = min(rivals, default=name)
    if first >= name:
        return None
    return Problem("VlanTaken", f"spec.port.vlan: VLAN {vlan} of {parent} is {first}'s: choose another")
