"""The sink of a cluster without OVN: it takes plans and writes nothing, so that statuses report what cannot be planned.

In a cluster where all Networks are of fabric vxlan there is no OVN. The nodes implement SecurityProfiles and Shapings
by themselves. Nothing implements Routers, LoadBalancers and Mirrors, and their statuses say so.

Attachments are planned only where that can change a status: where they name a SecurityProfile, or where an object in
their namespace can refer to attachments. Most clusters have tens of thousands to which nothing refers.
"""

from collections.abc import Callable, Iterable

from netloom.control.ipam.views import Attachment
from netloom.control.ovn.plan_feed import Sink
from netloom.model.registry import PLANNED
from netloom.plan.problem import Problem, Unit
from netloom.signals import Signal

NEED_OVN = frozenset(kind.name for kind in PLANNED if kind.needs_ovn)
REFER_TO_ATTACHMENTS = frozenset(kind.name for kind in PLANNED if kind.refers_to_attachments)
MISSING = "this cluster runs without OVN, and a {} needs it: set --ovn-nb and --ovn-sb of the controllers, or delete it"


class PlanOnly(Sink):
    """Takes plans and writes nothing."""

    name = "the plan"
    success = "the nodes it concerns implement it"
    sweep = None

    def __init__(self, attachments: Callable[[], Iterable[Attachment]]) -> None:
        """`attachments` returns all there are."""
        self.on_problem: Signal[[]] = Signal()
        self._attachments = attachments
        self._referring: set[str] = set()
        """Namespaces in which an object can refer to attachments, or could."""

    def refusal(self, unit: Unit) -> Problem | None:
        """Return that a kind needs OVN, if so."""
        return Problem("OvnMissing", MISSING.format(unit.kind)) if unit.kind in NEED_OVN else None

    def newly_needed(self, unit: Unit) -> Iterable[Attachment]:
        """Return the attachments of a namespace when the first object that can refer to them appears in it."""
        if unit.kind not in REFER_TO_ATTACHMENTS or unit.namespace in self._referring:
            return ()
        self._referring.add(unit.namespace)
        return [one for one in self._attachments() if one.metadata.namespace == unit.namespace]

    def needs(self, attachment: Attachment) -> bool:
        """Return whether the plan of an attachment can change a status."""
        # The node's agent reports that a child attachment needs OVN.
        named = bool(attachment.profiles) and not attachment.parent
        return named or attachment.metadata.namespace in self._referring
