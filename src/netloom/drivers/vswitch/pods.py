"""The pod sandboxes of a node (`plan/node/pods.py`): in memory, and as records at our bridges.

A record is written in the transaction that puts the pod's port on the switch, and removed in the one that takes it off
for good. What is in memory counts: a record that was lost, as with a bridge that is made again, is written again with
its port, and one that should be gone is removed with the next change. After a restart, memory is filled from the
records.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from netloom.drivers.vswitch.children import without
from netloom.drivers.vswitch.driver import AttachmentName, Vswitch, entry
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.ovsdb.operations import Operation
from netloom.ovsdb.rows.vswitch import Bridge
from netloom.plan.node.pods import PodSandbox, is_for, read_sandbox, written
from netloom.plan.node.ports import PortPlan

POD = "netloom-pod"
"""The prefix of the records: POD/OWNER/CONTAINER/DEVICE at a bridge of ours."""


class PodInterface(NamedTuple):
    """An interface as container runtimes name it."""

    container: str
    device: str


class PodSandboxes:
    """The sandboxes of this node's pods."""

    def __init__(self, switch: Vswitch) -> None:
        self._switch = switch
        self._prefix = f"{POD}/{switch.owner}/"
        self._loaded = False
        self._known: dict[PodInterface, PodSandbox] = {}
        self._keys: set[str] = set()
        self._of: dict[AttachmentName, dict[PodInterface, PodSandbox]] = {}

    def load(self) -> None:
        """Read the records, once the copy of the database is complete; from now on what is in memory counts."""
        self._loaded = True
        for sandbox in self.recorded():
            self.put(sandbox)

    def recorded(self) -> list[PodSandbox]:
        """Return the sandboxes in the database."""
        found = [read_sandbox(text) for _, _, text in self._records()]
        return [one for one in found if one is not None]

    def all(self) -> Collection[PodSandbox]:
        """Return all sandboxes."""
        return list(self._known.values())

    def at(self, interface: PodInterface) -> PodSandbox | None:
        """Return the sandbox of an interface."""
        return self._known.get(interface)

    def of(self, attachment: NetworkAttachment) -> PodSandbox | None:
        """Return the sandbox that an attachment is for; the latest, if there are several."""
        name = attachment.metadata.namespace, attachment.metadata.name
        found = [one for one in self._of.get(name, {}).values() if is_for(one, attachment)]
        return found[-1] if found else None

    def attachments(self) -> set[AttachmentName]:
        """Return the attachments that have sandboxes."""
        return set(self._of)

    def put(self, sandbox: PodSandbox) -> None:
        """Add a sandbox; an earlier one of the same pod and attachment is replaced."""
        interface = PodInterface(sandbox.container, sandbox.device)
        name = sandbox.namespace, sandbox.name
        for other in [one for one in self._of.get(name, {}).values() if one.uid == sandbox.uid]:
            self.drop(other)
        if (before := self._known.get(interface)) is not None:
            self.drop(before)
        self._keys.add(self._key(sandbox))
        self._known[interface] = self._of.setdefault(name, {})[interface] = sandbox

    def drop(self, sandbox: PodSandbox) -> None:
        """Remove a sandbox from memory, if it is still there."""
        interface = PodInterface(sandbox.container, sandbox.device)
        if self._known.get(interface) is not sandbox:
            return
        del self._known[interface]
        self._keys.discard(self._key(sandbox))
        name = sandbox.namespace, sandbox.name
        del self._of[name][interface]
        if not self._of[name]:
            del self._of[name]

    def missing(self, plan: PortPlan) -> list[Operation]:
        """Return the operations that record the sandbox of a pod's port, in place of others; none if it is recorded."""
        named = self._of.get((plan.namespace, plan.name), {}).values()
        bridge = self._switch.home_row(plan)
        found = [one for one in named if (one.device, one.identity) == (plan.inner, plan.netns_identity)]
        texts = {self._key(one): written(one) for one in found}
        due = [
            entry("Bridge", bridge._uuid, k, text) for k, text in texts.items() if bridge.external_ids.get(k) != text
        ]
        return [*due, *self.overdue()] if due else []

    def overdue(self) -> list[Operation]:
        """Return the operations that remove the records of sandboxes that are gone, or that cannot be read."""
        if not self._loaded:
            return []
        return [without(bridge, key) for bridge, key, _ in self._records() if key not in self._keys]

    def _records(self) -> Iterator[tuple[Bridge, str, str]]:
        for bridge in self._switch.bridges():
            for key, text in bridge.external_ids.items():
                if key.startswith(self._prefix):
                    yield bridge, key, text

    def _key(self, sandbox: PodSandbox) -> str:
        return f"{self._prefix}{sandbox.container}/{sandbox.device}"
