"""Who on this node is a VLAN of whose port, and whom a change of one concerns.  Pure.

A child is planned from its parent, from what that comes to, and from its rivals: those that say to be the same VLAN of
the same port. All are attachments of this node, which are followed anyway; so a child costs no watch.
"""

from collections.abc import Iterator

from netloom.control.node.views import View
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.model.conditions import ADDRESSED
from netloom.model.networks import Network
from netloom.plan.node.ports import Family, PortPlan
from netloom.plan.problem import Problem

Kin = tuple[View | PortPlan | Problem | Network | None, ...]
"""The parent, what it comes to, its Network, and the rivals."""


def children_of(attachments: Cache[View], parent: Key) -> list[Key]:
    """Return the children of an attachment."""
    return [Key(view.stored.namespace, view.stored.name) for view in attachments.indexed("parent", str(parent))]


def rivals(attachments: Cache[View], one: View) -> list[View]:
    """Return who says to be the same VLAN of the same port, in order."""
    same = [view for view in attachments.indexed("way", one.way) if not view.going]
    return sorted(same, key=lambda view: view.stored.name)


def family(kin: Kin) -> Family:
    """Return a child's family."""
    parent, plan, network, *others = kin
    return Family(
        parent.value if isinstance(parent, View) else None,
        plan if isinstance(plan, PortPlan | Problem) else None,
        network if isinstance(network, Network) else None,
        tuple(view.stored.name for view in others if isinstance(view, View)),
    )


def concerned(attachments: Cache[View], change: Change[View]) -> Iterator[Key]:
    """Give whom a change concerns besides the one that changed: its children, and its rivals of before and after."""
    found = children_of(attachments, change.key)
    for view in (change.old, change.new):
        if view is not None and view.parent:
            found += (Key(one.stored.namespace, one.stored.name) for one in rivals(attachments, view))
    if found and _matters(change.old) != _matters(change.new):  # Most have none.
        yield from (other for other in found if other != change.key)


def _matters(view: View | None) -> object:
    """Return what others are planned from."""
    if view is None:
        return None
    value, addressed = view.value, view.value.status.condition(ADDRESSED)
    given = addressed is not None and addressed.status == "True"
    return value.metadata.uid, view.going, value.spec.port, value.status.mac, bool(value.status.ips), given
