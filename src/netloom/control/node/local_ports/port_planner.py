"""Plans the ports of this node's attachments, from the caches.  Does no IO.

A plan is made of an attachment, its Network with the Subnets, the Shapings that name it, and the node
(`plan/node/ports.py`); that of a pod's port also of the pod's sandbox. A child, which is a VLAN of another attachment's
port, is planned from its parent, the parent's plan, and its rivals: the attachments that ask for the same VLAN of the
same port. All of them are attachments of this node, so a child costs no further watch.

The reconciler that plugs ports and the one that writes flows share one planner, and so see the same plan.
"""

from collections.abc import Iterable, Iterator
from operator import is_not

from netloom.control.node.host import NodeHost
from netloom.control.node.views import AttachmentView, NodeWatches
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.drivers.vswitch.pods import PodSandboxes
from netloom.model.conditions import ADDRESSED
from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.networks import Fabric
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan.node.ports import ParentPort, PortPlan, plan_port
from netloom.plan.problem import Problem, Waiting

Plan = PortPlan | Problem | Waiting | None
"""A port, what prevents it, what it waits for, or nothing yet."""


class PortPlanner:
    """Plans ports, and keeps each plan until something that it was made of changes."""

    def __init__(
        self, attachments: Cache[AttachmentView], watches: NodeWatches, host: NodeHost, sandboxes: PodSandboxes
    ) -> None:
        self._attachments = attachments
        self._sandboxes = sandboxes
        self._watches = watches
        self._host = host
        self._plans: dict[Key, tuple[tuple[object, ...], Plan]] = {}
        """The last plan of each attachment, and what it was made of."""

    def plan(self, view: AttachmentView) -> Plan:
        """Return the port of an attachment, or what prevents it.

        None while its Network, its Shapings or its addresses are unknown, or SecurityProfiles that may refuse it.
        """
        known = self._watches.network(view.network)
        key = Key(view.stored.namespace, view.stored.name)
        shapings = self._watches.shapings(key)
        if known is None or shapings is None:
            return None
        network, subnets = known
        profiles = self._profiles(view) if network.spec.fabric is Fabric.LINUX else []
        if profiles is None:
            return None
        parent, inputs = self._parent_port(view) if view.parent else (None, ())
        host = self._host.current
        sandbox = self._sandboxes.of(view.value) if view.value.spec.port.type is PortType.POD else None
        made_of = (view, network, host, sandbox, *inputs, *subnets, *shapings, *profiles)
        last = self._plans.get(key)
        # Identity is enough: comparing the values costs more than planning again.
        if last is None or len(last[0]) != len(made_of) or any(map(is_not, last[0], made_of)):
            plan = plan_port(view.value, network, subnets, host, parent, shapings, sandbox, profiles)
            last = self._plans[key] = made_of, plan
        return last[1]

    def forget(self, key: Key) -> None:
        """Drop the plan of an attachment that is gone."""
        self._plans.pop(key, None)

    def with_children(self, keys: Iterable[Key]) -> list[Key]:
        """Return attachments and their children."""
        keys = list(keys)
        return keys + [child for key in keys for child in self._children(key)]

    def affected(self, change: Change[AttachmentView]) -> Iterator[Key]:
        """Yield the other attachments whose plans a change may alter: children, and rivals of before and after."""
        found = self._children(change.key)
        for view in (change.old, change.new):
            if view is not None and view.parent:
                found += (Key(one.stored.namespace, one.stored.name) for one in self._rivals(view))
        if found and _matters(change.old) != _matters(change.new):  # Most have none.
            yield from (other for other in found if other != change.key)

    def unfiltered(self, namespace: str) -> list[Key]:
        """Return the attachments of a namespace that no SecurityProfile may restrict: those on fabric linux."""
        views = self._attachments.indexed("namespace", namespace)
        found = [view for view in views if self._watches.fabric(view.network) is Fabric.LINUX]
        return [Key(view.stored.namespace, view.stored.name) for view in found]

    def _profiles(self, view: AttachmentView) -> list[SecurityProfile] | None:
        """Return the SecurityProfiles of an attachment's namespace, or None while they are not all known."""
        namespace = view.stored.namespace
        return None if self._watches.undecodable_profiles(namespace) else self._watches.profiles(namespace)

    def _children(self, parent: Key) -> list[Key]:
        views = self._attachments.indexed("parent", str(parent))
        return [Key(view.stored.namespace, view.stored.name) for view in views]

    def _rivals(self, child: AttachmentView) -> list[AttachmentView]:
        """Return the attachments, `child` among them, that ask for its VLAN, by name."""
        same = [view for view in self._attachments.indexed("parent_vlan", child.parent_vlan) if not view.going]
        return sorted(same, key=lambda view: view.stored.name)

    def _parent_port(self, child: AttachmentView) -> tuple[ParentPort, tuple[object, ...]]:
        """Return what a child needs to know of its parent, and what that is made of."""
        parent = None if child.parent is None else self._attachments.get(*child.parent)
        if parent is None or parent.going:
            return ParentPort(), ()
        known = self._watches.network(parent.network)
        network = None if known is None else known[0]
        # A parent that is itself a child has no plan here: two attachments could name each other.
        plan = None if parent.parent else self.plan(parent)
        rivals = self._rivals(child)
        names = tuple(view.stored.name for view in rivals)
        port = ParentPort(attachment=parent.value, plan=plan, network=network, rivals=names)
        return port, (parent, plan, network, *rivals)


def _matters(view: AttachmentView | None) -> object:
    """Return the fields of an attachment that others are planned from."""
    if view is None:
        return None
    value, addressed = view.value, view.value.status.condition(ADDRESSED)
    given = addressed is not None and addressed.status == "True"
    return value.metadata.uid, view.going, value.spec.port, value.status.mac, bool(value.status.ips), given
