"""An attachment's status as its node's agent writes it.  Pure but for the time, which is an argument.

The agent writes `ifcName`, `hostIP`, `errors.host`, the condition Plugged, and Ready, which is what Addressed and
Plugged add up to. Plugged holds once the port's flows are installed, by OVN or by us, and not before: then whoever
writes Ready next, IPAM or the agent, comes to the same. And it writes `postCreateExecReport` (`control/node/hooks.py`).
"""

from datetime import datetime

import msgspec
from msgspec import Struct

from netloom.control.attachment_statuses import put, sent
from netloom.control.node.views import View
from netloom.control.runtime.conditions import FALSE, READY, TRUE, UNKNOWN, summary, with_condition
from netloom.model.attachments import ExecReport, NetworkAttachment
from netloom.model.document import Condition, Document
from netloom.model.networks import Fabric
from netloom.plan.node.ports import ADDRESSED

PLUGGED = "Plugged"
LONGEST = 1024
AWAITED = {
    Fabric.OVN: "OVN has not said that the port's flows are installed",
    Fabric.VXLAN: "the switch has not said that the port's flows are installed",
}


class Found(Struct, frozen=True, kw_only=True):
    """What became of an attachment on this node."""

    device: str = ""
    installed: bool = False
    fabric: Fabric = Fabric.OVN
    reason: str = ""
    """What stands in the way, in one word; "": nothing does."""
    message: str = ""
    complaints: tuple[str, ...] = ()
    """What is amiss, and does not stand in the way."""
    report: ExecReport | None = None
    """How the program went that was run when it was made; None: whatever the status says."""

    def condition(self, generation: int) -> Condition:
        """Return Plugged."""
        if self.reason:
            status, reason, message = FALSE, self.reason, self.message[:LONGEST]
        elif not self.installed:
            status, reason, message = UNKNOWN, "NotInstalled", AWAITED[self.fabric]
        else:
            status, reason, message = TRUE, PLUGGED, ""
        return Condition(type=PLUGGED, status=status, observed_generation=generation, reason=reason, message=message)

    @property
    def errors(self) -> tuple[str, ...]:
        """What the status has as errors."""
        messages = (self.message, *self.complaints) if self.reason else self.complaints
        return tuple(message[:LONGEST] for message in messages)


def settled(value: NetworkAttachment, found: Found, host_ip: str) -> bool:
    """Whether the status says all this already."""
    status, generation = value.status, value.metadata.generation
    if (status.ifc_name, status.host_ip, status.errors.host) != (found.device, host_ip, found.errors):
        return False
    if found.report is not None and not is_told(value, found.report):
        return False
    plugged, ready = status.condition(PLUGGED), status.condition(READY)
    if plugged is None or ready is None or not _same(plugged, found.condition(generation)):
        return False
    return _same(ready, summary(status.conditions, (ADDRESSED, PLUGGED), generation))


def is_told(value: NetworkAttachment, report: ExecReport) -> bool:
    """Whether the status has the report of this run: when it began says which it is."""
    told = value.status.post_create_exec_report
    return told is not None and told.start_time == report.start_time


def document(view: View, found: Found, host_ip: str, now: datetime) -> Document:
    """Return what is sent: which attachment, at which revision, and its status, with all that others wrote."""
    before: Document = view.stored.document().get("status") or {}
    generation = view.value.metadata.generation
    after = dict(before)
    put(after, "ifcName", found.device)
    put(after, "hostIP", host_ip)
    errors = dict(before.get("errors") or {})
    put(errors, "host", list(found.errors))
    put(after, "errors", errors)
    if found.report is not None and not is_told(view.value, found.report):
        after["postCreateExecReport"] = {"exitStatus": 0, **msgspec.to_builtins(found.report)}
    conditions = with_condition(view.value.status.conditions, found.condition(generation), now)
    conditions = with_condition(conditions, summary(conditions, (ADDRESSED, PLUGGED), generation), now)
    # Of others' conditions not a letter may change: the API takes from a node its own two only.
    others = {one["type"]: one for one in before.get("conditions") or () if one["type"] not in (PLUGGED, READY)}
    after["conditions"] = [others.get(one.type) or msgspec.to_builtins(one) for one in conditions]
    return sent(view.value.metadata, after)


def _same(one: Condition, other: Condition) -> bool:
    return (one.status, one.reason, one.message, one.observed_generation) == (
        other.status,
        other.reason,
        other.message,
        other.observed_generation,
    )
