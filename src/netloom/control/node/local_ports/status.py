"""The status of an attachment as its node's agent writes it.  Pure.

The agent writes `ifcName`, `hostIP`, `errors.host`, the condition Plugged, and Ready, which follows from Addressed and
Plugged. Plugged becomes true when the port's flows are installed, by OVN or by the vxlan fabric, and not earlier: so
IPAM and the agent, whichever writes Ready next, write the same. The agent also writes `postCreateExecReport`
(`control/node/local_ports/hooks.py`).
"""

from datetime import datetime

import msgspec
from msgspec import Struct

from netloom.control.attachment_statuses import put, sent
from netloom.control.node.views import AttachmentView
from netloom.control.runtime.conditions import FALSE, READY, TRUE, UNKNOWN, summary, with_condition
from netloom.model.conditions import ADDRESSED, PLUGGED
from netloom.model.document import Condition, Document
from netloom.model.kinds.attachments import ExecReport, NetworkAttachment
from netloom.model.kinds.networks import Fabric
from netloom.plan.problem import Problem, Waiting

LONGEST = 1024
"""Characters of a message that are written."""
WAITING = {
    Fabric.OVN: "OVN has not reported the port's flows as installed",
    Fabric.VXLAN: "the switch has not acknowledged the port's flows",
    Fabric.LINUX: "the Network's bridge on the node is not connected to the other nodes yet",
}


class PlugResult(Struct, frozen=True, kw_only=True):
    """The state of an attachment on this node."""

    device: str = ""
    installed: bool = False
    fabric: Fabric = Fabric.OVN
    problem: Problem | None = None
    """What prevents the port."""
    waiting: Waiting | None = None
    """What the port waits for."""
    complaints: tuple[str, ...] = ()
    """Errors that do not prevent the port."""
    report: ExecReport | None = None
    """The report of the program that ran after the port was made; None: leave the report of the status as it is."""

    def condition(self, generation: int) -> Condition:
        """Return the condition Plugged."""
        if self.problem is not None:
            status, reason, message = FALSE, self.problem.reason, self.problem.message[:LONGEST]
        elif self.waiting is not None:
            status, reason, message = UNKNOWN, self.waiting.reason, self.waiting.message
        elif not self.installed:
            status, reason, message = UNKNOWN, "NotInstalled", WAITING[self.fabric]
        else:
            status, reason, message = TRUE, PLUGGED, ""
        return Condition(type=PLUGGED, status=status, observed_generation=generation, reason=reason, message=message)

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors of the status."""
        messages = self.complaints if self.problem is None else (self.problem.message, *self.complaints)
        return tuple(message[:LONGEST] for message in messages)


def settled(value: NetworkAttachment, result: PlugResult, host_ip: str) -> bool:
    """Whether the status already says this."""
    status, generation = value.status, value.metadata.generation
    if (status.ifc_name, status.host_ip, status.errors.host) != (result.device, host_ip, result.errors):
        return False
    if result.report is not None and not has_report(value, result.report):
        return False
    plugged, ready = status.condition(PLUGGED), status.condition(READY)
    if plugged is None or ready is None or not _same(plugged, result.condition(generation)):
        return False
    return _same(ready, summary(status.conditions, (ADDRESSED, PLUGGED), generation))


def has_report(value: NetworkAttachment, report: ExecReport) -> bool:
    """Whether the status has the report of this run, which its start time identifies."""
    written = value.status.post_create_exec_report
    return written is not None and written.start_time == report.start_time


def document(view: AttachmentView, result: PlugResult, host_ip: str, now: datetime) -> Document:
    """Return the document to send: identity and revision of the attachment, and its whole status."""
    before: Document = view.stored.document().get("status") or {}
    generation = view.value.metadata.generation
    after = dict(before)
    put(after, "ifcName", result.device)
    put(after, "hostIP", host_ip)
    errors = dict(before.get("errors") or {})
    put(errors, "host", list(result.errors))
    put(after, "errors", errors)
    if result.report is not None and not has_report(view.value, result.report):
        after["postCreateExecReport"] = {"exitStatus": 0, **msgspec.to_builtins(result.report)}
    conditions = with_condition(view.value.status.conditions, result.condition(generation), now)
    conditions = with_condition(conditions, summary(conditions, (ADDRESSED, PLUGGED), generation), now)
    # Conditions of other writers must be sent unchanged: the API accepts only these two from a node.
    others = {one["type"]: one for one in before.get("conditions") or () if one["type"] not in (PLUGGED, READY)}
    after["conditions"] = [others.get(one.type) or msgspec.to_builtins(one) for one in conditions]
    return sent(view.value.metadata, after)


def _same(one: Condition, other: Condition) -> bool:
    return msgspec.structs.replace(one, last_transition_time=other.last_transition_time) == other
